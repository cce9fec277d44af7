"""What the embedded mailbox promises beyond the contract: row ids, neighbours, several processes at once."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.core.address import Address
from postroom.core.errors import Conflict, Invalid, NotFound, Unavailable
from postroom.core.letter import Letter, letter_id
from postroom.core.message import INBOX, UNREAD
from postroom.mail.local import LocalMailbox
from postroom.mail.mailbox import Accepted, Arrival
from tests.mails import DAY, mail
from tests.narrow import narrow, present

YOU = Address.parse("you@example.org")
BOB = Address.parse("bob@example.org")
NOW = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp())
SENDING = datetime(2026, 11, 15, 12, tzinfo=UTC)
IN = frozenset({INBOX, UNREAD})
Opener = Callable[..., LocalMailbox]


@pytest.fixture
def open_box(tmp_path: Path) -> Iterator[Opener]:
    opened = []

    def make(name: str = "you", addresses: tuple[Address] = (YOU,), **options: Any) -> LocalMailbox:
        box = LocalMailbox(
            tmp_path / f"{name}.sqlite", addresses, now=lambda: NOW, zone=UTC, **options
        )
        opened.append(box)
        return box

    yield make
    for box in opened:
        box.close()


def letter(number: int = 1, **changes: Any) -> Letter:
    values: dict[str, Any] = {
        "id": letter_id(number.to_bytes(7, "big")),
        "account": "you",
        "sender": YOU,
        "to": (BOB,),
        "subject": "Hi",
        "text": "x\n",
    }
    return Letter(**{**values, **changes})


def subjects(box: LocalMailbox, query: str = "") -> list[str]:
    return [item.subject for item in box.search(query, limit=100).items]


def test_many_mails_of_one_second_keep_their_order_of_arrival(open_box: Opener) -> None:
    box = open_box()
    box.add_mails([Arrival(mail(subject=f"number {n}"), IN, NOW) for n in range(50)])
    assert subjects(box) == [f"number {n}" for n in reversed(range(50))]


@pytest.mark.parametrize("second", [int(DAY.timestamp()), 253_402_300_799])
def test_a_second_that_is_full_spills_into_the_next_even_the_last_of_all(
    open_box: Opener, second: int
) -> None:
    box = open_box()
    with box._database.write() as connection:
        connection.execute("INSERT INTO gone VALUES (?)", [(second << 20) | 0xFFFFF])
    undated = b"Subject: one more\r\n\r\nhello\r\n"
    box.add_mails([Arrival(undated, IN, second)])
    (found,) = box.search("more").items
    assert found.date == second + 1
    assert box.message(found.id).mail.subject == "one more"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Date: Thu, 01 Jan 1903 00:00:00 +0000", NOW - 5),
        ("Date: Fri, 31 Dec 9999 23:59:59 +0000", NOW - 5),
        ("Date: Mon, 16 Nov 2026 11:59:59 +0000", NOW + 86_399),
        ("Date: nonsense", NOW - 5),
        ("X-No-Date: here", NOW - 5),
    ],
)
def test_a_date_that_cannot_be_believed_gives_way_to_that_of_arrival(
    open_box: Opener, header: str, expected: int
) -> None:
    box = open_box()
    box.add_mails([Arrival(f"Subject: x\r\n{header}\r\n\r\nhello\r\n".encode(), IN, NOW - 5)])
    assert box.search("").items[0].date == expected


def test_the_same_mail_is_kept_once_and_stays_as_the_person_left_it(
    open_box: Opener,
) -> None:
    box = open_box()
    raw = mail(subject="once")
    assert box.add_mails([Arrival(raw, IN, NOW), Arrival(raw, IN, NOW)]) == (1, 1)
    id = box.search("").items[0].id
    box.relabel(id, remove=frozenset({UNREAD}))
    assert box.add_mails([Arrival(raw, IN, NOW)]) == (0, 1)
    assert box.message(id).labels == {INBOX}


def test_two_openings_of_one_mailbox_see_each_others_mail_at_once(
    open_box: Opener,
) -> None:
    one, other = open_box(), open_box()
    one.add_mails([Arrival(mail(subject="first"), IN, NOW)])
    assert subjects(other) == ["first"]
    other.relabel(other.search("").items[0].id, add=frozenset({"Seen"}))
    assert subjects(one, "label:seen") == ["first"]


def test_the_id_of_a_discarded_draft_is_never_another_mails(open_box: Opener) -> None:
    box = open_box()
    draft = box.create_draft(letter(1), date=SENDING)
    box.discard_draft(draft.id, version=draft.version)
    again = box.create_draft(letter(2, subject="another"), date=SENDING)
    assert again.message.id != draft.message.id
    assert subjects(box, "in:drafts") == ["another"]
    assert not box.search("Hi").items


def test_a_letter_to_a_neighbour_arrives_once_unread_and_without_bcc(
    open_box: Opener, tmp_path: Path
) -> None:
    places = {BOB.key: tmp_path / "bob.sqlite", "eve@example.org": tmp_path / "eve.sqlite"}
    you, bob, eve = open_box(neighbours=places), open_box("bob", (BOB,)), open_box("eve")
    sent = letter(bcc=(Address.parse("eve@example.org"),), cc=(Address.parse("out@example.com"),))
    you.send(sent, you.wire(sent, date=SENDING))
    for box in (bob, eve):
        (found,) = box.search("in:inbox is:unread from:you@example.org").items
        message = box.message(found.id)
        assert message.mail.bcc == ()
        assert b"bcc" not in box.raw(found.id).lower()
        assert message.mail.message_id == sent.message_id
        assert (
            box.raw(found.id).split(b"\r\n\r\n", 1)[1]
            == you.raw(narrow(you.find_outcome(sent), Accepted).message).split(b"\r\n\r\n", 1)[1]
        )
    assert (
        you.message(narrow(you.find_outcome(sent), Accepted).message).mail.bcc[0].address
        == "eve@example.org"
    )
    assert you.find_outcome(sent) == you.find_outcome(sent)
    assert len(subjects(bob)) == 1


def test_delivery_that_failed_is_made_up_for_when_the_letter_is_settled(
    open_box: Opener, tmp_path: Path
) -> None:
    place = tmp_path / "bob.sqlite"
    place.write_bytes(b"not a database, for a while" * 40)
    you = open_box(neighbours={BOB.key: place})
    sent = letter()
    assert you.send(sent, you.wire(sent, date=SENDING)).message
    place.unlink()
    you.find_outcome(sent)
    assert subjects(open_box("bob", (BOB,))) == ["Hi"]


def test_a_letter_is_not_sent_twice_under_one_id(open_box: Opener) -> None:
    you = open_box()
    you.send(letter(), you.wire(letter(), date=SENDING))
    with pytest.raises(Conflict, match="already"):
        you.send(letter(), you.wire(letter(), date=SENDING + timedelta(days=1)))
    assert len(subjects(you, "in:sent")) == 1


def test_a_cursor_from_before_a_restored_backup_is_not_found(
    open_box: Opener, tmp_path: Path
) -> None:
    box = open_box()
    box.add_mails([Arrival(mail(), IN, NOW)])
    cursor = box.changes().cursor
    epoch, head = cursor.split("-")
    with pytest.raises(NotFound):
        box.changes(f"{epoch}-{int(head) + 1}")
    with pytest.raises(NotFound):
        open_box("restored").changes(cursor)


def test_a_label_that_does_not_exist_is_said_beside_the_empty_answer(
    open_box: Opener,
) -> None:
    assert open_box().search("label:invoces is:unread").notes == ("There is no label invoces.",)


def test_hostile_references_cost_no_more_than_their_bound(open_box: Opener) -> None:
    box = open_box()
    references = " ".join(f"<{n}@example.com>" for n in range(20_000))
    box.add_mails([Arrival(mail(more=f"References: {references}\r\n"), IN, NOW)])
    (count,) = present(box._database.row("SELECT count(*) FROM reference"))
    assert count <= 101


def test_labels_that_no_mailbox_can_have_are_mended_and_stop_no_import(
    open_box: Opener,
) -> None:
    box = open_box()
    labels = frozenset({"a//b", "/", "  ", "x" * 400, INBOX})
    assert box.add_mails([Arrival(mail(), labels, NOW)]).added == 1
    assert box.search("").items[0].labels == {INBOX, "a/b", "x" * 225}


def test_a_stranger_cannot_make_two_conversations_one(open_box: Opener) -> None:
    box = open_box()
    box.add_mails([Arrival(mail(subject="Salaries", message_id="<a1@example.com>"), IN, NOW)])
    box.add_mails([Arrival(mail(subject="Diagnosis", message_id="<b1@example.com>"), IN, NOW)])
    both = "References: <a1@example.com> <b1@example.com>\r\n"
    box.add_mails([Arrival(mail(subject="Pills", more=both), IN, NOW)])
    threads = {item.subject: item.thread for item in box.search("").items}
    assert threads["Salaries"] != threads["Diagnosis"] == threads["Pills"]
    box.add_mails([Arrival(mail(subject="Spam", more=both), frozenset({"SPAM"}), NOW)])
    (spam,) = box.search("in:spam").items
    assert len(box.thread(spam.id).messages) == 1


def test_a_draft_is_forgotten_by_the_tokens_it_was_stored_with(
    open_box: Opener,
) -> None:
    box = open_box()
    draft = box.create_draft(letter(1, subject="zebra"), date=SENDING)
    with box._database.write() as connection:  # as if another version had read the mail otherwise
        connection.execute(
            "UPDATE raw SET content = ? WHERE id = ?",
            [b"Subject: lion\r\n\r\n", int(draft.version, 16)],
        )
    box.relabel(draft.message.id, add=frozenset({"Later"}))
    box.discard_draft(draft.id, version=draft.version)
    assert box._database.rows("SELECT rowid FROM word WHERE word MATCH 'zebra OR lion'") == []
    assert box._database.rows("SELECT rowid FROM word WHERE word MATCH '\"·all\"'") == []


def test_an_entry_of_the_index_without_its_mail_ends_no_page(open_box: Opener) -> None:
    box = open_box()
    box.add_mails([Arrival(mail(subject=f"number {n}"), IN, NOW) for n in range(30)])
    newest = box.search("number", limit=1).items[0].id
    with box._database.write() as connection:
        connection.execute("DELETE FROM message WHERE id = ?", [int(newest, 16)])
    page = box.search("number", limit=20)
    assert len(page.items) == 19
    assert len(box.search("number", limit=20, cursor=page.cursor).items) == 10


def test_a_draft_and_the_letter_it_becomes_may_be_the_same_bytes(
    open_box: Opener,
) -> None:
    box = open_box()
    box.create_draft(letter(), date=SENDING)
    assert box.send(letter(), box.wire(letter(), date=SENDING)).message
    assert len(box.drafts()) == 1


def test_a_search_that_takes_too_long_is_given_up_and_the_next_is_answered(
    open_box: Opener,
) -> None:
    box = open_box(patience=0.0)
    box.add_mails([Arrival(mail(subject=f"number {n}"), IN, NOW) for n in range(300)])
    with pytest.raises(Invalid, match="too long"):
        box.search("{" + " ".join(f"larger:{n}G" for n in range(1, 390)) + "}")
    assert box.search("number").items


def many_mails() -> list[list[Arrival]]:
    """Return chunks of mails, several of one second, some twice."""
    made = [Arrival(mail(subject=f"number {n // 2}"), IN, NOW) for n in range(120)]
    return [made[at : at + 10] for at in range(0, len(made), 10)]


def test_worker_processes_keep_the_same_mails_under_the_same_ids(tmp_path: Path) -> None:
    results = []
    for workers in (0, 2):
        path = tmp_path / f"{workers}.sqlite"
        with closing(LocalMailbox(path, (YOU,), now=lambda: NOW, zone=UTC)) as box:
            kept = list(box.add_batches(many_mails(), workers))
            found = box.search("number", limit=100).items
            results.append([(item.id, item.thread, item.subject, item.snippet) for item in found])
        assert (sum(k.added for k in kept), sum(k.known for k in kept)) == (60, 60)
    assert len(results[0]) == 60
    assert results[0] == results[1]


def test_a_worker_that_dies_stops_the_import_and_what_was_kept_stays(tmp_path: Path) -> None:
    with closing(LocalMailbox(tmp_path / "x.sqlite", (YOU,), now=lambda: NOW, zone=UTC)) as box:
        chunks = many_mails()
        box.add_mails(chunks[0])

        def killing() -> Iterator[list[Arrival]]:
            yield from chunks[:6]
            for process in multiprocessing.active_children():
                process.kill()
                process.join()
            yield from chunks[6:]

        with pytest.raises(Unavailable, match="ended early"):
            list(box.add_batches(killing(), 2))
        assert len(box.search("number", limit=100).items) == 5
        assert not multiprocessing.active_children()
