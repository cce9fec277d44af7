"""What a person sees before they decide: all of the letter, and nothing that only looks like a part of the page."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from urllib.parse import unquote

import pytest

from postroom.core.address import Address
from postroom.core.letter import Enclosure
from postroom.core.message import Message
from postroom.core.records import Check, Entry, Level
from postroom.desk.recorder import Call
from postroom.mail.mailbox import Arrival
from tests.desks import BOB, START, YOU, Office, database_of
from tests.mails import DAY, mail
from tests.providers import Courier
from tests.unit.web.browser import Browser, Node, opened

EVIL = '"><script>alert(1)</script>'
MORE = "{x} %s </title></textarea> ' onload='y' &lt;b&gt; {0.__class__} <!--"
PAGES = ("/", "/history", "/history?q=%22%3E%3Cscript%3E&state=rejected&agent=%22%3E%3Cscript%3E&page=1", "/history/chain", "/agents", "/health", "/health/mail")  # fmt: skip
LETTER = ("", "/edit", "/thread")


def shape(page: Node) -> list[tuple[str, tuple[str, ...]]]:
    """Return all elements of a page with the names of their attributes, but for those that name hidden characters."""
    return [(n.tag, tuple(sorted(n.attrs))) for n in page if n.attrs.get("class") != "hidden-char"]


def filled(office: Office, evil: str, more: str) -> list[str]:
    """Fill a desk with letters that have these words wherever somebody else chooses them; return their ids."""
    call = Call("send_email", evil[:60])
    name = evil.replace("<", "").replace(">", "")  # no address has a name with these
    to = Address("ann", "example.com", name)
    file = Enclosure(f"{evil.replace('/', '')} x.txt", "text/plain", evil.encode())
    office.box.add_mails(
        [Arrival(mail(message_id="<q@example.com>", sender="ann@example.com", subject=evil, text=f"{evil} {more}"), frozenset({"INBOX"}), int(START))]
    )  # fmt: skip
    (found,) = office.box.search("in:inbox").items
    asked = {"in_reply_to": "<q@example.com>", "thread": office.box.message(found.id).thread}
    words = {"to": (to,), "cc": (Address("bob", "example.net", name),), "subject": f"{evil} {more}"}
    waits = office.propose(office.letter(**words, **asked, html=f"<p>{escape(evil)}</p><p>{escape(more)}</p>", attachments=(file,)), call, origins=("agent",))  # fmt: skip
    rejected = office.propose(office.letter(**words, text=f"{evil} again\n"), call)
    office.desk.decide(rejected.id, "reject", by=evil, reason=f"{evil}\n{more}")
    approved = office.propose(office.letter(**words, text=f"{evil} once more\n"), call)
    office.desk.approve(approved.id, by=evil, digest=approved.digest)
    return [waits.id, rejected.id, approved.id]


def hostile_health(evil: str, more: str) -> Callable[[], list[Check]]:
    return lambda: [Check(evil, "fail", more, evil), Check("vault", "note", evil)]


def test_no_words_of_others_become_a_part_of_any_page(tmp_path: Path) -> None:
    from tests.desks import Office

    drawn = []
    for name, evil, more in (("calm", "x" * len(EVIL), "y"), ("evil", EVIL, MORE)):
        office = Office(tmp_path / name)
        ids = filled(office, evil, more)
        health = hostile_health(evil, more)
        with opened(office, health=health, mail_health=health) as site:
            browser = site.browser(evil)
            paths = [*PAGES, *(f"/letter/{id}{end}" for id in ids for end in LETTER)]
            drawn.append({path: browser.get(path) for path in paths})
            form = browser.get(f"/letter/{ids[0]}/edit").page.form("/preview")
            for typed in ({"subject": f"{evil} {more} 2"}, {"to": evil}):
                answer = browser.submit(form, typed)
                drawn[-1][str(list(typed))] = answer
                assert evil in answer.page.text or evil in str([n.attrs for n in answer.page])
        office.close()
    calm, hostile = drawn
    for path, answer in hostile.items():
        assert answer.status == calm[path].status, path
        assert shape(answer.page) == shape(calm[path].page), path
        assert [s.attrs.get("src", "")[:12] for s in answer.page.all("script")] == ["/static/desk"]
    first = next(path for path in hostile if path.startswith("/letter/"))
    assert hostile[first].page.one("h1", id="subject").text == f"{EVIL} {MORE}"


def test_every_recipient_stands_on_the_page_in_full(office: Office) -> None:
    office.reopen(recipients_per_letter=200)
    people = [Address(f"person.number.{n}", "a-rather-long-domain.example.com", f"Dr. Person, the {n}th") for n in range(100)]  # fmt: skip
    entry = office.propose(
        office.letter(to=tuple(people[:40]), cc=tuple(people[40:70]), bcc=tuple(people[70:]), reply_to=(BOB,))
    )  # fmt: skip
    with opened(office) as site:
        page = site.browser().get(f"/letter/{entry.id}").page
    rows = {node.one("dt").words: [who.text for who in node.all(class_="who")] for node in page.one(class_="envelope").all("div")}  # fmt: skip
    # A name is beside its address, each in a box of its own, and needs no quotes.
    assert rows == {
        "From": [f"{YOU.name} <{YOU.spec}>"],
        "Reply-To": [f"{BOB.name} <{BOB.spec}>"],
        **{
            f"{name} {len(part)}": [f"{one.name} <{one.spec}>" for one in part]
            for name, part in (("To", people[:40]), ("Cc", people[40:70]), ("Bcc", people[70:]))
        },
    }


def test_the_page_says_that_there_is_an_html_part_and_gives_its_source_as_text(
    office: Office, browser: Browser
) -> None:
    entry = office.propose(
        office.letter(html='<p>Good day, <a href="https://a.example/x">Ann</a></p>')
    )
    page = browser.get(f"/letter/{entry.id}")
    assert "HTML part" in page.words
    assert page.page.one(class_="body").text == "Good day, Ann (https://a.example/x)\n"
    source = browser.get(f"/letter/{entry.id}/source")
    assert source.headers["content-type"] == "text/plain; charset=utf-8"
    assert source.text == entry.letter.html
    assert "HTML part" not in browser.get(f"/letter/{office.propose().id}").words


def test_hidden_characters_in_the_text_are_named(office: Office, browser: Browser) -> None:
    # A text that was frozen before such characters were taken out, or by other code than ours.
    entry = office.propose()
    with database_of(office.desk.ledger).write() as connection:
        connection.execute("UPDATE letter SET frozen = replace(frozen, 'Good day', 'Good\u202e\u200b day')")  # fmt: skip
    body = browser.get(f"/letter/{entry.id}").page.one(class_="body")
    assert [n.attrs["title"] for n in body.all(class_="hidden-char")] == ["right-to-left override", "zero width space"]  # fmt: skip


def test_the_whole_text_the_digest_and_the_history_stand_on_the_page(
    office: Office, browser: Browser
) -> None:
    text = "".join(f"Line {n}.\n" for n in range(2000))
    entry = office.propose(office.letter(text=text))
    page = browser.get(f"/letter/{entry.id}").page
    assert page.one(class_="body").text == text
    assert entry.digest in page.words
    assert "Proposed at 2026-11-15 00:00 UTC" in page.words


NAMES = ["plan.pdf", 'a"b;c.txt', "naïve – 日本.txt", "x%0d%0aSet-Cookie: a=b", "page.html", "a'b&<i>.svg", "semi;colon=1.txt"]  # fmt: skip


def test_attachments_are_named_with_type_size_and_hash_and_are_never_shown_by_a_browser(
    office: Office, browser: Browser
) -> None:
    files = tuple(Enclosure(name, "text/html", f"<script>{name}</script>".encode()) for name in NAMES)  # fmt: skip
    entry = office.propose(office.letter(attachments=files))
    page = browser.get(f"/letter/{entry.id}").page
    for at, file in enumerate(files):
        sha = hashlib.sha256(file.content).hexdigest()
        row = page.one("li", id=f"file-{at}")
        assert row.one("code").text == sha
        assert row.one("a").text == file.name
        assert f"{len(file.content):,} bytes" in row.text
        assert "text/html" in row.text
        answer = browser.get(f"/letter/{entry.id}/file/{at}")
        assert answer.raw.content == file.content
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"
        disposition = answer.headers["content-disposition"]
        kind, _, name = disposition.partition("; filename*=UTF-8''")
        assert kind == "attachment"
        assert unquote(name) == file.name
        assert re.fullmatch(r"[\w.!~*'()%-]+", name)
        assert "set-cookie" not in answer.headers
    for wrong in (len(files), 99999999999999999999999, "-1", "x", "0x0", "1.0"):
        assert browser.get(f"/letter/{entry.id}/file/{wrong}").status == 404


def test_a_plain_text_is_never_taken_for_a_page(office: Office, browser: Browser) -> None:
    entry = office.propose(office.letter(text="<script>alert(1)</script>\n"))
    answer = browser.get(f"/letter/{entry.id}/text")
    assert answer.text == "<script>alert(1)</script>\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_what_mail_asked_for_is_said_of_recipients_and_links(
    office: Office, browser: Browser
) -> None:
    raw = mail(
        sender="eve@evil.example", text="Write to drop@evil.example at https://evil.example/x"
    )
    office.box.add_mails([Arrival(raw, frozenset({"INBOX"}), int(START))])
    (found,) = office.box.search("in:inbox").items
    office.desk.exposure.saw_messages("default", office.box.message(found.id))
    entry = office.propose(office.letter(to=(Address.parse("drop@evil.example"),), text="See https://evil.example/x\n"))  # fmt: skip
    source = "eve@evil.example's mail “Hello”"

    def agree(*wanted: str) -> list[str]:
        found = office.desk.ledger.letters.get(entry.id).card
        page = browser.get(f"/letter/{entry.id}").page
        rows = [row.words for row in page.one(class_="origins").all("li")]
        seen = [row.partition("First seen in ") for row in rows]
        assert all(any(what in row and source in mails for row, _, mails in seen) for what in wanted)  # fmt: skip
        said = [line.text for line in found.lines if line.kind == "from_mail"]
        assert len(said) == len(wanted)
        assert all(source in text for text in said)
        return rows

    before = agree("drop@evil.example", "evil.example/x")
    # A mail that is shown after the letter was written is no source of it.
    raw = mail(sender="dora@example.com", text="drop@evil.example and late@evil.example")
    office.box.add_mails([Arrival(raw, frozenset({"INBOX"}), int(START))])
    (later, _) = office.box.search("in:inbox").items
    office.desk.exposure.saw_messages("default", office.box.message(later.id))
    assert agree("drop@evil.example", "evil.example/x") == before
    source = "later also from dora@example.com"
    office.desk.edit(entry.id, replace(entry.letter, text="Good day.\n"))
    agree("drop@evil.example")


# Conversation


@pytest.fixture
def answer(office: Office) -> Entry:
    raw = mail(message_id="<q@example.com>", sender="ann@example.com", text="Shall we meet?")
    office.box.add_mails([Arrival(raw, frozenset({"INBOX"}), int(START))])
    (found,) = office.box.search("in:inbox").items
    thread = office.box.message(found.id).thread
    return office.propose(office.letter(in_reply_to="<q@example.com>", references=("<q@example.com>",), thread=thread))  # fmt: skip


def test_the_conversation_is_shown_with_what_is_answered(browser: Browser, answer: Entry) -> None:
    page = browser.get(f"/letter/{answer.id}").page
    (link,) = [node for node in page if "data-beside" in node.attrs]
    assert link.attrs["data-beside"] == link.attrs["href"] == f"/letter/{answer.id}/thread"
    assert "The mail it answers" in link.words
    assert "Shall we meet?" not in page.words  # before anybody asks for it
    thread = browser.get(f"/letter/{answer.id}/thread")
    assert "Shall we meet?" in thread.words
    assert "answered here" in thread.words
    piece = browser.get(f"/letter/{answer.id}/thread", x_desk_live="1")
    assert "Shall we meet?" in piece.words
    assert not piece.page.all("html")


def forge(office: Office, answer: Entry, to: Address) -> Sequence[Message]:
    """Receive another mail with the Message-ID of the answered one; return the conversation."""
    raw = mail(message_id="<q@example.com>", sender="eve@evil.example", to=to.spec, text="Or tea?")
    office.box.add_mails([Arrival(raw, frozenset({"INBOX"}), int(START))])
    return office.box.thread(answer.letter.thread).messages


def test_a_mail_with_the_message_id_of_the_answered_one_does_not_vouch_for_a_recipient(
    office: Office, answer: Entry
) -> None:
    drop = Address.parse("drop@evil.example")
    office.desk.exposure.saw_messages("default", *forge(office, answer, drop))
    entry = office.propose(replace(answer.letter, id="bbbbbbbbbb", to=(drop,)))
    (line,) = (line for line in entry.card.lines if line.kind == "from_mail")
    assert line.level is Level.STOP
    assert drop.spec in line.text
    assert entry.card.answers is None


def test_a_mail_with_the_message_id_of_the_answered_one_does_not_pass_for_it(
    office: Office, browser: Browser, answer: Entry
) -> None:
    assert len(forge(office, answer, YOU)) == 2
    shown = browser.get(f"/letter/{answer.id}/thread").page.one("details", open="")
    assert shown.text.startswith("ann@example.com")
    assert "Shall we meet?" in shown.text


def test_a_draft_is_no_part_of_the_conversation(
    office: Office, browser: Browser, answer: Entry
) -> None:
    wider = replace(answer.letter, id="bbbbbbbbbb", cc=(BOB,), text="As Robin I agree.\n")
    office.box.create_draft(wider, date=DAY)
    entry = office.propose(wider)
    (growth,) = (line.text for line in entry.card.lines if line.kind == "growth")
    assert BOB.spec in growth
    assert "As Robin I agree." not in browser.get(f"/letter/{answer.id}/thread").words


def test_a_provider_that_is_down_is_said_and_the_letter_is_shown_all_the_same(
    office: Office, courier: Courier, browser: Browser, answer: Entry
) -> None:
    from postroom.core.errors import Unavailable

    def down(_id: str) -> None:
        raise Unavailable("no network <b>", remedy="Look at the cable.")

    office.desk.mailboxes = lambda _account: type("Box", (), {"thread": staticmethod(down), "own_addresses": staticmethod(lambda: (YOU,))})()  # fmt: skip
    thread = browser.get(f"/letter/{answer.id}/thread")
    assert thread.status == 200
    assert "cannot be shown: no network <b>. Look at the cable." in thread.words
    assert browser.get(f"/letter/{answer.id}").status == 200


def test_a_letter_that_answers_nothing_has_no_conversation(
    office: Office, browser: Browser
) -> None:
    entry = office.propose()
    page = browser.get(f"/letter/{entry.id}").page
    assert "The mail it answers" not in page.words
    assert not [node for node in page if "data-beside" in node.attrs]
    answer = browser.get(f"/letter/{entry.id}/thread")
    assert answer.status == 200
    assert "The conversation cannot be shown" in answer.words


# Many


def test_a_long_queue_is_turned_over_newest_first_and_each_page_is_small(office: Office) -> None:
    office.reopen(open_letters=1000, proposals_per_hour=1000)
    entries = [office.desk.proposals.propose(Call("send_email", "claude"), office.letter(subject=f"Subject number {n}")) for n in range(500)]  # fmt: skip
    with opened(office) as site:
        browser = site.browser()
        seen, path = list[str](), "/"
        while path:
            answer = browser.get(path)
            assert len(answer.text.encode()) <= 60_000
            assert answer.page.one("nav", **{"aria-label": "Pages"}).words.startswith("Queue 500 ")
            assert f"Page {len(seen) // 50 + 1} of 10" in answer.words
            page = answer.page
            rows = page.one(id="queue").all("a")
            ids = [a.attrs["href"].removeprefix("/letter/").partition("?")[0] for a in rows if "/letter/" in a.attrs["href"]]  # fmt: skip
            assert len(ids) == 50
            seen += ids
            path = next((a.attrs["href"] for a in rows if a.attrs.get("rel") == "next"), "")
        for number in ("0", "-1", "x", "999999999", "1e3", "%00", ""):
            assert browser.get(f"/?page={number}").status == 200
        beyond = browser.get("/?page=99").words
        assert "Nothing is waiting" not in beyond
    assert seen == [entry.id for entry in reversed(entries)]
