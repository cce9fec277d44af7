"""What every provider of mail does, whatever is behind it."""

from datetime import UTC, datetime, timedelta

import pytest

from postroom.core.address import Address
from postroom.core.errors import Conflict, Invalid, NotFound
from postroom.core.letter import Enclosure
from postroom.core.message import DRAFT, INBOX, SENT, STARRED, TRASH, UNREAD
from postroom.mail.mailbox import Accepted, NotSent, SearchPage, move
from tests.contract.conftest import Post
from tests.mails import DAY, mail

SENDING = datetime(2026, 11, 15, 12, tzinfo=UTC)
YOU = Address.parse("You <you@example.org>")


def subjects(page: SearchPage) -> list[str]:
    return [item.subject for item in page.items]


# Reading


def test_a_mail_that_arrived_is_found_by_its_words_and_read_back_whole(post: Post) -> None:
    raw = mail(subject="Invoice 1234", text="Please pay by Friday.")
    id = post.receive(raw)
    (found,) = post.box.search("invoice friday").items
    assert found.id == id
    assert (found.sender.name, found.sender.address) == ("Ann Example", "ann@example.com")
    assert found.subject == "Invoice 1234"
    assert found.snippet == "Please pay by Friday."
    assert found.date == int(DAY.timestamp())
    assert found.labels >= {INBOX, UNREAD}
    message = post.box.message(id)
    assert message.mail.text.strip() == "Please pay by Friday."
    assert message.mail.subject == "Invoice 1234"
    assert message.labels == found.labels
    assert post.box.raw(id) == raw


def test_answers_come_newest_first_in_whatever_order_mail_arrived(post: Post) -> None:
    for day in (3, 1, 5, 2, 4):
        post.receive(mail(subject=f"day {day}", date=DAY + timedelta(days=day)))
    assert subjects(post.box.search("day")) == ["day 5", "day 4", "day 3", "day 2", "day 1"]


def test_pages_continue_without_a_gap_or_a_repetition(post: Post) -> None:
    for number in range(7):
        post.receive(mail(subject=f"number {number}", date=DAY + timedelta(hours=number)))
    seen, cursor = [], ""
    while True:
        page = post.box.search("number", limit=3, cursor=cursor)
        seen += subjects(page)
        cursor = page.cursor
        if not cursor:
            break
    assert seen == [f"number {number}" for number in reversed(range(7))]


def test_a_page_that_ends_exactly_at_the_limit_has_no_cursor(post: Post) -> None:
    for number in range(3):
        post.receive(mail(subject=f"number {number}"))
    assert post.box.search("number", limit=3).cursor == ""


def test_a_whole_address_is_that_address_and_not_what_a_name_claims(post: Post) -> None:
    post.receive(mail(subject="real", sender="Amy <amy@example.org>"))
    post.receive(mail(subject="longer", sender="not-amy@example.org"))
    post.receive(mail(subject="claimed", sender='"amy@example.org" <eve@example.com>'))
    assert subjects(post.box.search("from:AMY@example.org")) == ["real"]
    assert len(subjects(post.box.search("from:amy"))) == 3


@pytest.mark.parametrize("limit", [0, -1, 101, 10**9])
def test_a_page_size_out_of_bounds_is_refused(post: Post, limit: int) -> None:
    with pytest.raises(Invalid):
        post.box.search("x", limit=limit)


@pytest.mark.parametrize(
    "id", ["", "nope", "0", "../x", "x" * 10_000, "ffffffffffffffffffffff", "١"]
)
def test_what_does_not_exist_is_not_found(post: Post, id: str) -> None:
    for ask in (post.box.message, post.box.thread, post.box.raw, post.box.draft):
        with pytest.raises(NotFound):
            ask(id)
    with pytest.raises(NotFound):
        post.box.relabel(id, add=frozenset({"Work"}))


def test_replies_are_one_conversation_oldest_first_even_when_they_arrive_first(post: Post) -> None:
    reply = "In-Reply-To: <a@example.com>\r\nReferences: <a@example.com>\r\n"
    second = "In-Reply-To: <b@example.com>\r\nReferences: <a@example.com> <b@example.com>\r\n"
    last = post.receive(
        mail(
            subject="Re: plan",
            message_id="<c@example.com>",
            more=second,
            date=DAY + timedelta(days=2),
        )
    )
    first = post.receive(mail(subject="plan", message_id="<a@example.com>"))
    post.receive(
        mail(
            subject="Re: plan",
            message_id="<b@example.com>",
            more=reply,
            date=DAY + timedelta(days=1),
        )
    )
    post.receive(mail(subject="plan", message_id="<other@example.com>"))
    thread = post.box.thread(post.box.message(first).thread)
    assert [message.mail.message_id for message in thread.messages] == [
        "<a@example.com>",
        "<b@example.com>",
        "<c@example.com>",
    ]
    assert thread.subject == "plan"
    assert post.box.message(last).thread == thread.id


def test_a_mail_that_joins_two_conversations_makes_them_one_and_both_ids_lead_there(
    post: Post,
) -> None:
    one = post.receive(mail(subject="plan", message_id="<a@example.com>"))
    other = post.receive(
        mail(
            subject="Re: plan",
            message_id="<c@example.com>",
            more="In-Reply-To: <b@example.com>\r\n",
        )
    )
    threads = [post.box.message(id).thread for id in (one, other)]
    post.receive(
        mail(
            subject="Re: plan",
            message_id="<b@example.com>",
            more="In-Reply-To: <a@example.com>\r\n",
        )
    )
    assert [len(post.box.thread(id).messages) for id in threads] == [3, 3]


def test_an_attachment_is_listed_and_its_bytes_come_back(post: Post) -> None:
    letter = post.letter(
        attachments=(Enclosure("report.pdf", "application/pdf", b"%PDF-1.4\0\xff"),)
    )
    id = post.receive(post.box.wire(letter, date=SENDING))
    (listed,) = post.box.message(id).mail.attachments
    assert (listed.name, listed.type, listed.size) == ("report.pdf", "application/pdf", 10)
    assert post.box.attachment(id, listed.part).read_all() == Enclosure(
        "report.pdf", "application/pdf", b"%PDF-1.4\0\xff"
    )
    assert post.box.search("has:attachment filename:report").items[0].attachments == 1
    with pytest.raises(NotFound):
        post.box.attachment(id, "99")


# Labels


def test_a_label_is_made_when_it_is_first_applied_and_found_in_any_spelling(post: Post) -> None:
    id = post.receive(mail())
    assert "Work/Clients" not in post.box.labels()
    assert post.box.relabel(id, add=frozenset({"Work/Clients"})).added == {"Work/Clients"}
    assert "Work/Clients" in post.box.labels()
    for query in (
        "label:work-clients",
        "label:Work/Clients",
        'label:"work/clients"',
        "has:userlabels",
    ):
        assert [item.id for item in post.box.search(query).items] == [id]
    assert post.box.relabel(id, add=frozenset({"WORK/clients"})).added == frozenset()
    assert post.box.relabel(id, remove=frozenset({"work-clients"})).removed == {"Work/Clients"}
    assert not post.box.search("label:work-clients").items
    assert not post.box.search("has:userlabels").items


def test_reading_and_starring_are_labels_and_searches_follow_at_once(post: Post) -> None:
    id = post.receive(mail())
    assert post.box.search("is:unread in:inbox").items
    post.box.relabel(id, add=frozenset({STARRED}), remove=frozenset({UNREAD}))
    assert not post.box.search("is:unread").items
    assert [item.id for item in post.box.search("is:read is:starred").items] == [id]


def test_a_move_files_the_mail_and_takes_it_out_of_the_inbox(post: Post) -> None:
    id = post.receive(mail())
    change = move(post.box, id, "Done")
    assert (change.added, change.removed) == (frozenset({"Done"}), frozenset({INBOX}))
    assert not post.box.search("in:inbox").items
    change = move(post.box, id, "inbox")
    assert (change.added, change.removed) == (frozenset({INBOX}), frozenset())


def test_spam_and_trash_stay_out_of_answers_unless_they_are_asked_for(post: Post) -> None:
    id = post.receive(mail())
    post.box.relabel(id, add=frozenset({TRASH}))
    assert not post.box.search("hello").items
    assert post.box.search("hello in:trash").items
    assert post.box.search("hello in:anywhere").items


@pytest.mark.parametrize("label", [SENT, DRAFT, "sent", "drafts"])
def test_nobody_can_turn_a_mail_into_a_sent_one_or_a_draft(post: Post, label: str) -> None:
    id = post.receive(mail())
    with pytest.raises(Invalid):
        post.box.relabel(id, add=frozenset({label}))


@pytest.mark.parametrize("label", ["", "   ", "/", "a//b", "x" * 300])
def test_a_label_without_a_name_is_refused(post: Post, label: str) -> None:
    id = post.receive(mail())
    with pytest.raises(Invalid):
        post.box.relabel(id, add=frozenset({label}))
    assert post.box.message(id).labels == {INBOX, UNREAD}


# Drafts


def test_a_draft_is_kept_listed_revised_and_discarded(post: Post) -> None:
    draft = post.box.create_draft(
        post.letter(subject="First try", bcc=(Address.parse("b@example.net"),)), date=SENDING
    )
    assert draft.message.labels >= {DRAFT}
    assert draft.message.mail.bcc[0].address == "b@example.net"
    assert post.box.drafts() == {draft.id: draft.version}
    assert subjects(post.box.search("in:drafts first")) == ["First try"]
    revised = post.box.revise_draft(
        draft.id, post.letter(subject="Second thought"), version=draft.version, date=SENDING
    )
    assert revised.id == draft.id
    assert revised.version != draft.version
    assert subjects(post.box.search("in:drafts")) == ["Second thought"]
    assert not post.box.search("first").items
    post.box.discard_draft(draft.id, version=revised.version)
    assert not post.box.drafts()
    assert not post.box.search("in:drafts").items
    with pytest.raises(NotFound):
        post.box.draft(draft.id)


def test_a_draft_that_changed_since_it_was_read_is_not_overwritten(post: Post) -> None:
    draft = post.box.create_draft(post.letter(), date=SENDING)
    post.box.revise_draft(draft.id, post.letter(text="theirs"), version=draft.version, date=SENDING)
    with pytest.raises(Conflict):
        post.box.revise_draft(
            draft.id, post.letter(text="mine"), version=draft.version, date=SENDING
        )
    with pytest.raises(Conflict):
        post.box.discard_draft(draft.id, version=draft.version)
    assert post.box.draft(draft.id).message.mail.text.strip() == "theirs"


def test_a_draft_of_a_reply_stands_in_its_conversation(post: Post) -> None:
    id = post.receive(mail(message_id="<a@example.com>"))
    thread = post.box.message(id).thread
    letter = post.letter(
        subject="Re: Hello",
        in_reply_to="<a@example.com>",
        references=("<a@example.com>",),
        thread=thread,
    )
    draft = post.box.create_draft(letter, date=SENDING)
    assert draft.message.thread == thread


# Following


def test_a_cursor_tells_what_came_since_and_nothing_twice(post: Post) -> None:
    post.receive(mail(subject="before"))
    cursor = post.box.changes().cursor
    assert post.box.changes(cursor).added == ()
    ids = [post.receive(mail(subject=f"after {n}", date=DAY - timedelta(days=n))) for n in range(3)]
    post.box.relabel(ids[0], add=frozenset({STARRED}))
    changes = post.box.changes(cursor)
    assert list(changes.added) == ids
    assert list(changes.relabelled) == [ids[0]]
    assert post.box.changes(changes.cursor).added == ()


@pytest.mark.parametrize("cursor", ["nonsense", "0", "zz-1", "-", "00000000-99999999"])
def test_a_cursor_of_another_mailbox_is_not_found(post: Post, cursor: str) -> None:
    with pytest.raises(NotFound):
        post.box.changes(cursor)


# Sending


def test_a_letter_that_was_sent_is_under_sent_with_its_own_mark(post: Post) -> None:
    letter = post.letter(subject="Offer", text="As agreed.\n")
    sent = post.send(letter)
    assert isinstance(sent, Accepted)
    message = post.box.message(sent.message)
    assert SENT in message.labels
    assert INBOX not in message.labels
    if "headers of its own" not in post.gaps:
        assert f"\r\nX-Postroom-Letter: {letter.id}\r\n".encode() in post.box.raw(message.id)
    assert (message.mail.message_id == letter.message_id) == ("message id" not in post.gaps)
    assert message.thread == sent.thread
    assert subjects(post.box.search("in:sent from:me")) == ["Offer"]


def test_a_reply_is_sent_within_its_conversation(post: Post) -> None:
    id = post.receive(mail(message_id="<a@example.com>"))
    thread = post.box.message(id).thread
    letter = post.letter(
        subject="Re: Hello",
        in_reply_to="<a@example.com>",
        references=("<a@example.com>",),
        thread=thread,
    )
    assert post.send(letter).thread == thread
    assert len(post.box.thread(thread).messages) == 2


def test_a_letter_to_oneself_arrives_in_the_inbox(post: Post) -> None:
    letter = post.letter(to=(YOU,))
    post.send(letter)
    assert post.box.search("in:inbox is:unread from:me to:me").items


def test_what_became_of_a_letter_is_told_with_proof(post: Post) -> None:
    letter = post.letter()
    assert isinstance(post.box.find_outcome(letter, ""), NotSent)
    sent = post.send(letter)
    assert post.box.find_outcome(letter, post.proof) == sent


def test_the_bytes_that_go_out_are_the_same_each_time_they_are_made(post: Post) -> None:
    letter = post.letter(
        html="<p>Good day.</p>", attachments=(Enclosure("a.txt", "text/plain", b"a"),)
    )
    assert post.box.wire(letter, date=SENDING) == post.box.wire(letter, date=SENDING)


def test_own_addresses_are_known_the_main_one_first(post: Post) -> None:
    assert [address.spec for address in post.box.own_addresses()] == [
        "you@example.org",
        "desk@example.org",
    ]
