"""The text of a letter with what the risk card speaks of, the boxes of red lines, its files, and where things came from."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import NotFound, PostroomError, Unavailable
from postroom.core.letter import MAX_TEXT, Enclosure
from postroom.core.records import ITEM_KINDS, Card, CardItem, CardLine, Entry, Level
from postroom.mail.mailbox import Arrival
from postroom.web.letter_view import (
    MAX_IMAGE,
    MAX_PREVIEW,
    MAX_SIDE_NOTES,
    MAX_TEXT_SHOWN,
    TOP_LINES,
    box_names,
    image_type,
    view_letter,
)
from postroom.web.sessions import HEADERS
from tests.cases import for_each
from tests.conftest import size
from tests.desks import ANN, BOB, START, Office
from tests.mails import mail
from tests.unit.web.browser import Browser, Node, macro, opened, parsed, unseen
from tests.unit.web.test_templates import EARLIER
from tests.unit.web.test_templates import entry as full_entry

TWIN = Address.parse("Ann <ann@exarnple.com>")  # looks like Ann's, whom the person has written to
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">2I", 16, 9) + b"\0" * 40
GIF = b"GIF89a" + struct.pack("<2H", 16, 9) + b"\0" * 40
# A comment, and the header of a frame: its length, its depth, its height and its width.
JPEG = b"\xff\xd8\xff\xfe\0\4ab\xff\xc0" + struct.pack(">HB2H", 11, 8, 9, 16) + b"\0" * 40
WEBP = b"RIFF\x24\0\0\0WEBPVP8 "


@pytest.fixture
def ann(office: Office) -> Address:
    """A person to whom a mail was written before."""
    raw = mail(sender="you@example.org", to=ANN.spec, subject="Earlier")
    office.box.add_mails([Arrival(raw, frozenset({"SENT"}), int(START) - 86_400)])
    return ANN


def receive(office: Office, text: str, sender: str = "eve@evil.example") -> str:
    """Receive a mail, and let an agent read it; return its id."""
    office.box.add_mails([Arrival(mail(sender=sender, text=text), frozenset({"INBOX"}), int(START))])  # fmt: skip
    (found, *_) = office.box.search("in:inbox", limit=1).items
    office.desk.exposure.saw_messages("default", office.box.message(found.id))
    return found.id


def body_of(browser: Browser, entry: Entry) -> Node:
    return browser.get(f"/letter/{entry.id}").page.one(class_="body")


def text_of(body: Node) -> str:
    """Return the text of a body without its boxes, with the hidden characters that are named there."""
    text = ""
    for one in body.children:
        if isinstance(one, str):
            text += one
        elif "tick" in one.attrs.get("class", ""):
            assert text.endswith(" ")  # between a place and its box
            text = text[:-1]
        elif one.attrs.get("class") == "hidden-char":
            text += unseen(one)
        else:
            text += text_of(one)
    return text


# Places in the text

MIXED = (
    "Dear Ann,\nwrite to dora@example.com or see https://a.example/x. Pay €4,500.00 to DE89 3704 0044 0532 0130 00.\n"
    "The password is hunter2hunter2\n"
)  # fmt: skip


def test_what_the_card_speaks_of_is_highlighted_and_nothing_else(
    office: Office, browser: Browser
) -> None:
    receive(office, "Pay to DE89 3704 0044 0532 0130 00")
    entry = office.propose(office.letter(text=MIXED))
    page = browser.get(f"/letter/{entry.id}").page
    places = page.one(class_="body").all("a")
    assert [(one.text, one.attrs["class"]) for one in places] == [
        ("dora@example.com", "place calm"),
        ("https://a.example/x", "place calm"),
        ("€4,500.00", "place calm"),
        ("DE89 3704 0044 0532 0130 00", "place stop"),
        ("password is hunter2hunter2", "place stop"),
    ]
    notes = [
        [page.one("li", id=f"note-{number}").one("b").text for number in one.attrs["data-notes"].split()]
        for one in places
    ]  # fmt: skip
    assert notes == [["dora@example.com"], ["https://a.example/x"], ["€4,500.00"], ["a number", "An IBAN"], ["A password"]]  # fmt: skip
    for one in places:
        assert one.attrs["href"] == f"#note-{one.attrs['data-notes'].split()[0]}"
    assert "hunter2hunter2" not in page.one(class_="origins").text


WORDS = (
    "ann@example.com", "mailto:bob@example.net", "https://a.example/?mail=bob@example.net&sum=€100", "€1,000", "4711 4711 4711",
    "https://eve:hunter2hunter2@evil.example/", "password: hunter2hunter2", "DE89 3704 0044 0532 0130 00", "שלום dora@example.com שלום",
    "مرحبا €20 مرحبا", "👩\u200d💻", "می\u200cخواهم", "<b>&amp;</b>", "\"'`{{ 7 }}", "\n", "\n\n\t", " ", "a", "https://[", "@", "ann@example.com<script>",
    "sk-ant-api03-" + "Ab1" * 30, "ﷺ", "e\u0301",
)  # fmt: skip


def test_the_text_of_a_letter_is_unchanged_by_its_places(office: Office) -> None:
    office.reopen(open_letters=200, proposals_per_hour=200)
    receive(
        office, "Call 4711 4711 4711, pay to DE89 3704 0044 0532 0130 00, see https://evil.example/"
    )
    texts = [" ".join(WORDS), "".join(WORDS), "\n".join(reversed(WORDS))]
    texts += [f"{one}{other}" for one, other in zip(WORDS, WORDS[3:], strict=False)]
    texts += ["\n".join(f"Line {n} of ann{n}@example.com" for n in range(size(10_000))), "x"]
    with opened(office) as site:
        browser = site.browser()
        for at, text in enumerate(texts):
            entry = office.propose(office.letter(text=f"{text}\n", subject=f"{at}"))
            assert entry.letter.text
            body = body_of(browser, entry)
            assert text_of(body) == entry.letter.text[:MAX_TEXT_SHOWN], text[:200]
            assert all(one.text for one in body.all("a"))
            office.desk.decide(entry.id, "reject", by="ada", reason="")


def test_hidden_characters_beside_and_in_a_place_are_named_and_the_place_stays_where_it_is(
    office: Office,
) -> None:
    text = "Pay\u200b 1\u202e00 \u2066to\u2069 me\u200b"
    start = text.index("1")
    card = Card((), (CardItem("amount", "100", "", "", ((start, start + 4),)),))
    entry = office.propose()
    entry = replace(entry, letter=replace(entry.letter, text=text))
    view = view_letter(entry, card)
    assert [one.text for one in view.segments] == ["Pay\u200b ", "1\u202e00", " \u2066to\u2069 me\u200b"]  # fmt: skip


def test_of_a_letter_as_long_as_one_may_be_the_beginning_is_shown(
    office: Office, browser: Browser
) -> None:
    entry = office.propose()
    line = "Write to dora@example.com, or see https://a.example/x.\n"
    text = line * (size(MAX_TEXT) // len(line))
    office.desk.edit(entry.id, replace(entry.letter, text=text))
    answer = browser.get(f"/letter/{entry.id}")
    assert text_of(answer.page.one(class_="body")) == text[:MAX_TEXT_SHOWN]
    assert len(answer.text) < 3 * MAX_TEXT_SHOWN
    assert f"{len(text):,} characters are shown" in answer.words


ITEMS = st.builds(
    lambda kind, what, start, length: CardItem(kind, what, "", "", ((start, start + length),)),
    st.sampled_from(sorted(ITEM_KINDS)), st.sampled_from(["a", "b", "c", ANN.spec, BOB.spec, "file 0"]), st.integers(0, 60), st.integers(-1, 20),
)  # fmt: skip
LINES = st.builds(
    CardLine, st.sampled_from(list(Level)), st.sampled_from(["attachment", "secrets", "from_mail"]), st.just("Look at it."),
    st.lists(st.sampled_from(["a", "b", "c", ANN.spec, BOB.spec, "file 0", "gone"]), max_size=3).map(tuple),
)  # fmt: skip


@given(st.lists(ITEMS, max_size=8), st.lists(LINES, max_size=8))
@example([CardItem("address", ANN.spec, ""), CardItem("answers to", ANN.spec, "")], [CardLine(Level.STOP, "links", "Look at it.", (ANN.spec,))])  # fmt: skip
def test_every_red_line_has_a_box_and_every_box_stands_on_the_page_once(
    items: list[CardItem], lines: list[CardLine]
) -> None:
    entry = full_entry(life.Pending(EARLIER))
    card = Card(tuple(sorted(lines, key=lambda one: -one.level)), tuple(items))
    view = view_letter(entry, card, has_boxes=True)
    assert "".join(one.text for one in view.segments) == entry.letter.text
    shown = [one.box for one in view.segments] + [one.box for one in view.people.values()]
    shown += [one.box for one in view.files] + [box for _, _, box in view.lines]
    names = box_names(entry.letter, card)
    assert sorted(filter(None, shown)) == sorted(names)
    assert len(set(names)) == len(names) == view.boxes
    assert set(view.people) <= {one.spec for one in (*entry.letter.envelope, *entry.letter.reply_to)} | {one.what for one in items}  # fmt: skip
    red = [one for one in lines if one.level == Level.STOP]
    assert bool(red) == bool(names)
    assert len(names) <= len(red)
    without = view_letter(entry, card)
    assert without.boxes == 0
    assert [one.text for one in without.segments] == [one.text for one in view.segments]


def test_places_that_overlap_are_one_and_have_one_box() -> None:
    entry = full_entry(life.Pending(EARLIER))
    text = entry.letter.text
    items = tuple(CardItem("secret", what, "", "", ((start, end),)) for what, start, end in (("a", 0, 5), ("b", 4, 9), ("c", 9, 12)))  # fmt: skip
    card = Card(tuple(CardLine(Level.STOP, "secrets", "Red.", (what,)) for what in "abc"), items)
    view = view_letter(entry, card, has_boxes=True)
    first, second = box_names(entry.letter, card)
    assert [(one.text, one.notes, one.box) for one in view.segments] == [
        (text[:9], (1, 2), first),
        (text[9:12], (3,), second),
        (text[12:], (), ""),
    ]


def test_a_red_line_about_more_than_is_shown_has_its_box_at_the_card() -> None:
    entry = full_entry(life.Pending(EARLIER))
    long = replace(entry, letter=replace(entry.letter, text="x" * (MAX_TEXT_SHOWN + 100)))
    beyond = CardItem("secret", "beyond", "", "", ((MAX_TEXT_SHOWN + 1, MAX_TEXT_SHOWN + 9),))
    many = [CardItem("link", f"{n}", "", "", ((n, n + 1),)) for n in range(MAX_SIDE_NOTES + 1)]
    last = many[-1].what
    for items, what in (((beyond,), "beyond"), (tuple(many), last)):
        card = Card((CardLine(Level.STOP, "links", "Red.", (what,)),), items)
        view = view_letter(long, card, has_boxes=True)
        assert tuple(box for _, _, box in view.lines) == box_names(long.letter, card)
        assert not any(one.box for one in view.segments)


# Boxes


def tick_of(page: Node, name: str) -> Node:
    """Return the smallest element that can have a box and has this one."""
    holds = [
        node
        for node in page
        if (node.tag in {"li", "section"} or {"who", "body"} & {*node.attrs.get("class", "").split()})
        and any(one.attrs.get("name") == name for one in node.all("input"))
    ]  # fmt: skip
    return holds[-1]


Make = Callable[[Office], Entry]
RED: dict[str, tuple[Make, str]] = {
    "a secret": (lambda office: office.propose(office.letter(text="The password is hunter2hunter2\n")), "body"),
    "a recipient": (lambda office: office.propose(office.letter(to=(TWIN,))), "who"),
    "a blind copy": (lambda office: office.propose(office.letter(bcc=(TWIN,))), "who"),
    "whom answers go to": (lambda office: office.propose(office.letter(reply_to=(TWIN,))), "who"),
    "a program": (lambda office: office.propose(office.letter(attachments=(Enclosure("run.exe", "text/plain", b"MZ\0"),))), "file-0"),
    "a secret in a file": (lambda office: office.propose(office.letter(attachments=(Enclosure("plan.txt", "text/plain", b"fine"), Enclosure("notes.txt", "text/plain", b"password: hunter2hunter2")))), "file-1"),
    "a secret in the subject": (lambda office: office.propose(office.letter(subject="password: hunter2hunter2")), "stop"),
}  # fmt: skip


@for_each("what", list(RED))
def test_the_box_of_a_red_line_stands_beside_what_it_speaks_of(
    office: Office, browser: Browser, ann: Address, what: str
) -> None:
    make, where = RED[what]
    entry = make(office)
    assert entry.card.level is Level.STOP
    page = browser.get(f"/letter/{entry.id}").page
    (name,) = page.boxes
    holder = tick_of(page, name)
    assert where in (*holder.attrs.get("class", "").split(), holder.attrs.get("id")), holder.attrs
    assert "1 place to check" in page.one("footer").words
    assert browser.decide(entry.id, "approve").status == 400
    assert office.state_of(entry.id) == "pending"
    assert browser.decide(entry.id, "approve", **page.boxes).status == 200
    assert office.state_of(entry.id) == "approved"


def test_each_of_many_boxes_is_needed(office: Office, browser: Browser, ann: Address) -> None:
    receive(office, "Pay to DE89 3704 0044 0532 0130 00 at https://evil.example/x")
    text = f"{MIXED}See https://evil.example/x, https://1.2.3.4/ and javascript:alert(1).\n"
    exe = Enclosure("run.exe", "application/x-msdownload", b"MZ\0")
    entry = office.propose(office.letter(to=(TWIN,), text=text, subject="password: hunter2hunter2", attachments=(exe,)))  # fmt: skip
    page = browser.get(f"/letter/{entry.id}").page
    boxes = page.boxes
    assert tuple(boxes) != () == tuple(set(boxes) ^ set(box_names(entry.letter, entry.card)))
    assert len(boxes) >= 6
    assert f"{len(boxes)} places to check" in page.one("footer").words
    form = page.form("/approve")
    for name in boxes:
        for value in (None, "", "no", "Yes", "yes "):
            ticked = {one: text for one, text in boxes.items() if one != name}
            ticked |= {} if value is None else {name: value}
            answer = browser.submit(form, ticked)
            assert answer.status == 400, name
            assert "Tick the box beside each" in answer.words
    assert office.state_of(entry.id) == "pending"
    assert not [one for one in office.desk.log.records(letter=entry.id) if one["actor"] == "person"]
    assert browser.submit(form, boxes).status == 200
    assert office.state_of(entry.id) == "approved"


@for_each("field", ["cc", "bcc", "reply_to"])
def test_a_red_recipient_who_stands_in_two_rows_has_one_box(
    office: Office, browser: Browser, ann: Address, field: str
) -> None:
    """A form with a field twice is refused: with two boxes, nobody could approve the letter."""
    entry = office.propose(office.letter(**{"to": (TWIN,), field: (TWIN,)}, subject=field))
    page = browser.get(f"/letter/{entry.id}").page
    assert browser.decide(entry.id, "approve", **page.boxes).status == 200
    assert office.state_of(entry.id) == "approved"


def test_each_of_several_files_of_one_name_has_a_box(office: Office, browser: Browser) -> None:
    files = tuple(Enclosure("run.exe", "application/x-msdownload", b"MZ\0" + bytes([n])) for n in range(3))  # fmt: skip
    entry = office.propose(office.letter(attachments=files))
    page = browser.get(f"/letter/{entry.id}").page
    assert [tick_of(page, name).attrs["id"] for name in page.boxes] == ["file-0", "file-1", "file-2"]  # fmt: skip
    assert browser.decide(entry.id, "approve", **page.boxes).status == 200


def test_boxes_of_another_version_or_card_do_not_count(office: Office, browser: Browser) -> None:
    entry = office.propose(office.letter(text="The password is hunter2hunter2\n"))
    old = browser.get(f"/letter/{entry.id}").page.boxes
    office.desk.edit(entry.id, replace(entry.letter, text="See https://1.2.3.4/\n"))
    new = browser.get(f"/letter/{entry.id}").page.boxes
    assert len(old) == len(new) == 1
    assert browser.decide(entry.id, "approve", **old).status == 400
    assert browser.decide(entry.id, "approve", **new).status == 200


def test_a_letter_with_as_many_red_lines_as_a_card_has_can_be_approved(
    office: Office, browser: Browser, ann: Address
) -> None:
    receive(office, " ".join(f"https://evil{n}.example/ drop{n}@evil.example" for n in range(30)))
    bad = [f"https://evil{n}.example/" for n in range(9)] + [f"![x](https://pictures{n}.example/)" for n in range(40)]  # fmt: skip
    bad += [f"https://{n}.2.3.4/" for n in range(30)] + [f"https://a@b{n}.example/" for n in range(40)]  # fmt: skip
    bad += ["password: hunter2hunter2", "DE89 3704 0044 0532 0130 00", f"ghp_{'aB3' * 12}", "AKIAIOSFODNN7EXAMPLE", "4111 1111 1111 1111"]  # fmt: skip
    people = tuple(Address.parse(f"drop{n}@evil.example") for n in range(9))
    twins = tuple(Address.parse(f"x@{name}") for name in ("exarnple.com", "exampie.com", "examp1e.com", "exannple.com", "exmaple.com", "exampl.com", "example.co"))  # fmt: skip
    files = tuple(Enclosure(f"run{n}.exe", "text/plain", b"MZ\0" + bytes([n])) for n in range(14))
    entry = office.propose(office.letter(to=people, cc=twins, text=" ".join(bad), subject="password: hunter2hunter2", attachments=files))  # fmt: skip
    page = browser.get(f"/letter/{entry.id}").page
    assert len(page.boxes) > 37  # with the form's own fields, more than forty
    answer = browser.decide(entry.id, "approve", **page.boxes)
    assert answer.status == 200, answer.words[:500]
    assert office.state_of(entry.id) == "approved"


def test_a_letter_that_cannot_be_approved_has_no_boxes(office: Office, browser: Browser) -> None:
    entry = office.propose(office.letter(text="The password is hunter2hunter2\n"))
    office.edit(entry.id, "The password", "My password")
    assert not browser.get(f"/letter/{entry.id}").page.boxes
    office.edit(entry.id, "My password", "The password")
    assert browser.get(f"/letter/{entry.id}").page.boxes
    office.desk.decide(entry.id, "reject", by="ada", reason="")
    assert not browser.get(f"/letter/{entry.id}").page.boxes


# The card


def test_three_lines_of_the_card_are_open_and_a_folded_box_is_not_hidden() -> None:
    draw = macro("parts.html", "card")
    entry = full_entry(life.Pending(EARLIER))
    for level, is_open in ((Level.LOOK, False), (Level.STOP, True)):
        lines = tuple(CardLine(level, "many", f"Line {n}.") for n in range(TOP_LINES + 2))
        card = Card((*lines, CardLine(Level.PLAIN, "many", "A fact.")))
        page = parsed(draw(card, view_letter(entry, card, has_boxes=True)))
        rest, facts = page.all("details")
        assert ("open" in rest.attrs) == is_open
        red = ", 2 red" if level == Level.STOP else ""
        assert rest.one("summary").text == f"2 more warnings{red}"
        assert [one.words.split()[2] for one in rest.all("li")] == ["3.", "4."]
        assert facts.one("summary").text == "1 fact"
        assert "open" not in facts.attrs
        assert len(page.one("section").all("li")) == TOP_LINES + 3


# Files


def with_files(office: Office, *files: tuple[str, str, bytes]) -> Entry:
    return office.propose(office.letter(attachments=tuple(Enclosure(*one) for one in files)))


def test_only_what_is_an_image_by_its_bytes_is_shown_as_one(
    office: Office, browser: Browser
) -> None:
    page = b"<html><script>alert(1)</script></html>"
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'
    images = [("a.txt", "text/html", PNG), ("b", "image/svg+xml", GIF), ("c.jpg", "image/jpeg", JPEG)]  # fmt: skip
    others = [("e.png", "image/png", svg), ("f.png", "image/png", page), ("g.png", "image/png", b""), ("h.png", "image/png", b" " + PNG), ("i.png", "image/png", b"\x89PNG"), ("j.bmp", "image/bmp", b"BM" + b"\0" * 60), ("k.webp", "image/webp", WEBP)]  # fmt: skip
    entry = with_files(office, *images, *others)
    shown = browser.get(f"/letter/{entry.id}").page
    for at, (kind, (_, _, content)) in enumerate(zip(("png", "gif", "jpeg"), images, strict=True)):  # fmt: skip
        answer = browser.get(f"/letter/{entry.id}/image/{at}")
        assert (answer.status, answer.headers["content-type"]) == (200, f"image/{kind}")
        assert answer.raw.content == content
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        (drawn,) = shown.one("li", id=f"file-{at}").all("img")
        assert drawn.attrs["src"] == f"/letter/{entry.id}/image/{at}"
        assert drawn.attrs["alt"] == images[at][0]
    for at in range(len(images), len(images) + len(others)):
        answer = browser.get(f"/letter/{entry.id}/image/{at}")
        assert (answer.status, "Not found" in answer.words) == (404, True), others[at - len(images)]
        assert not shown.one("li", id=f"file-{at}").all("img")
    for wrong in (len(images) + len(others), 10**30, "-1", "x", "0x0", "1.0", "%00"):
        assert browser.get(f"/letter/{entry.id}/image/{wrong}").status == 404


def test_an_image_that_is_too_large_is_not_shown() -> None:
    largest = PNG + b"\0" * (MAX_IMAGE - len(PNG))
    assert image_type(Enclosure("a.png", "image/png", largest)) == "image/png"
    assert image_type(Enclosure("a.png", "image/png", largest + b"\0")) == ""
    sides = {4_000: True, 6_324: True, 6_325: False, 65_535: False}
    for side, fits in sides.items():  # what a browser needs memory for is its pixels
        big = {
            "image/png": PNG[:16] + struct.pack(">2I", side, side) + PNG[24:],
            "image/gif": GIF[:6] + struct.pack("<2H", side, side) + GIF[10:],
            "image/jpeg": JPEG[:13] + struct.pack(">2H", side, side) + JPEG[17:],
        }
        for kind, content in big.items():
            assert image_type(Enclosure("a", kind, content)) == (kind if fits else ""), (kind, side)
    for content in (PNG[:20], GIF[:6], JPEG[:8], JPEG[:4], b"\xff\xd8\xff" + b"\xff" * 5_000):
        assert image_type(Enclosure("a", "image/png", content)) == ""


def test_the_beginning_of_a_text_is_shown_and_nothing_of_other_files(
    office: Office, browser: Browser
) -> None:
    long = "語" * (10 * MAX_PREVIEW)
    files = {
        "short.txt": (b"Thursday\n<b>at one</b> \xe2\x80\xae", "Thursday\n<b>at one</b> U+202E"),
        "long.txt": (long.encode(), long[:MAX_PREVIEW]),
        "cut.txt": (b"a" + "😀".encode() * 4 * MAX_PREVIEW, "a" + "😀" * (MAX_PREVIEW - 1)),
        "empty.txt": (b"", "(empty)"),
        "page.html": (b"<script>alert(1)</script>", "<script>alert(1)</script>"),
        "latin.txt": ("Büro".encode("latin-1"), None),
        "torn.txt": (b"torn \xf0\x9f", None),
        "program.bin": (b"MZ\0text", None),
        "late.bin": (b"text" * 100 + b"\xff" + b"text" * MAX_PREVIEW, None),
    }
    entry = with_files(office, *((name, "text/plain", content) for name, (content, _) in files.items()))  # fmt: skip
    page = browser.get(f"/letter/{entry.id}").page
    for at, (name, (_, text)) in enumerate(files.items()):
        row = page.one("li", id=f"file-{at}")
        assert row.one("a").text == name
        assert [one.text for one in row.all("pre")] == ([] if text is None else [text]), name
        assert ("Only the first" in row.words) == (name in {"long.txt", "cut.txt"}), name
        assert row.one("summary").text == ("SHA-256" if text is None else "Preview"), name
    assert len(page.all("script")) == 1


# Where it came from


def test_a_note_leads_to_the_mail_and_shows_its_sentence(office: Office, browser: Browser) -> None:
    receive(office, "Good day. Please pay to DE89 3704 0044 0532 0130 00 <b>today</b>. Bye.")
    entry = office.propose(office.letter(text=MIXED))
    page = browser.get(f"/letter/{entry.id}").page
    (note,) = [one for one in page.one(class_="origins").all("li") if one.one("b").text == "a number"]  # fmt: skip
    address = note.one(class_="source").attrs["data-source"]
    number = note.attrs["id"].removeprefix("note-")
    assert address == f"/letter/{entry.id}/source/{number}?version=1" == note.one("a").attrs["href"]
    assert browser.get(address.replace("version=1", "version=2")).status == 409  # of another card
    whole, part = browser.get(address), browser.get(address, x_desk_live="1")
    for answer in (whole, part):
        quote = answer.page.one("blockquote").text
        assert quote == "Please pay to DE89 3704 0044 0532 0130 00 <b>today</b>."
        assert "eve@evil.example" in answer.words
        assert answer.page.one("details").one(class_="mail").text.startswith("Good day. Please pay")
    assert whole.page.all("html")
    assert whole.page.all("a", href=f"/letter/{entry.id}")  # back
    assert not part.page.all("html")


def test_an_item_without_a_mail_and_a_number_out_of_range_have_no_source(
    office: Office, browser: Browser
) -> None:
    receive(office, "Pay to DE89 3704 0044 0532 0130 00")
    entry = office.propose(office.letter(text=MIXED))
    known = [bool(one.mail) for one in entry.card.items]
    assert True in known
    assert False in known
    for number, has_mail in enumerate(known, 1):
        assert browser.get(f"/letter/{entry.id}/source/{number}").status == (200 if has_mail else 404)  # fmt: skip
    for wrong in (0, len(known) + 1, 10**30, "-1", "x", "1.0", "%00", "١"):
        assert browser.get(f"/letter/{entry.id}/source/{wrong}").status == 404, wrong
    assert browser.get("/letter/zzzzzzzzzz/source/1").status == 404


@for_each("error", [Unavailable("no network <b>", remedy="Look at the cable."), NotFound("no network <b>", remedy="Look at the cable.")])  # fmt: skip
def test_a_mail_that_is_gone_or_a_provider_that_is_down_is_said(
    office: Office, browser: Browser, error: PostroomError
) -> None:
    receive(office, "Pay to DE89 3704 0044 0532 0130 00")
    entry = office.propose(office.letter(text=MIXED))
    number = next(at for at, one in enumerate(entry.card.items, 1) if one.mail)
    address = f"/letter/{entry.id}/source/{number}"

    class Down:
        def message(self, _id: str) -> None:
            raise error

    usual = office.desk.mailboxes
    office.desk.mailboxes = lambda _account: Down()  # type: ignore[assignment,return-value]
    answer = browser.get(address)
    assert answer.status == 200
    assert "That mail cannot be shown: no network <b>. Look at the cable." in answer.words
    assert not answer.page.all("blockquote")
    office.desk.mailboxes = usual
    assert browser.get(address).page.all("blockquote")


# In print


def test_a_letter_in_print_has_its_proof_and_nothing_to_press(
    office: Office, browser: Browser
) -> None:
    exe = Enclosure("run.exe", "application/x-msdownload", b"MZ\0")
    entry = office.propose(office.letter(text="The password is hunter2hunter2\n", attachments=(exe,)))  # fmt: skip
    address = f"/letter/{entry.id}/print"
    page = browser.get(address).page
    assert "Waits for your decision" in page.words
    assert f"Digest{entry.digest}" in page.one(class_="proof").words.replace(" ", "")
    assert re.search(r"SHA-256 [0-9a-f]{64}", page.words)
    office.desk.approve(entry.id, by="Grace H.", digest=entry.digest)
    office.clock.go(10)
    office.desk.send_approved()
    page = browser.get(address).page
    words = page.one(class_="proof").words
    for part in ("Sent at 2026-11-15", "Approved", "Grace H.", f"for {entry.digest}", entry.letter.message_id, "Red: The text seems to contain a password", "Proposed at 2026-11-15"):  # fmt: skip
        assert part in words, part
    assert page.one(class_="body").text == entry.letter.text
    head = office.desk.ledger.actions.head()
    assert f"when the audit log had {head} actions" in page.words
    assert not page.all("form")
    assert not page.all("input")
    assert not page.boxes
    assert not page.all("a", class_="place")
    assert browser.get("/letter/zzzzzzzzzz/print").status == 404


def test_the_whole_text_of_a_long_letter_is_printed(office: Office, browser: Browser) -> None:
    entry = office.propose()
    text = "word " * (MAX_TEXT_SHOWN // 4) + "\n"
    office.desk.edit(entry.id, replace(entry.letter, text=text))
    assert browser.get(f"/letter/{entry.id}/print").page.one(class_="body").text == text
