"""What the page of a letter shows beside its envelope: the text with the places that its risk card speaks of, and files.

Each red line of the card has a place where a person ticks that they checked it: in the text, at a recipient, at a file,
or, if it has no place of its own, at the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from postroom.core.letter import Enclosure, Letter
from postroom.core.records import FILE, Card, CardItem, CardLine, Entry, Level

MAX_TEXT_SHOWN: Final = 200_000  # characters of a letter; a link leads to the rest
MAX_SIDE_NOTES: Final = 100  # side notes of a letter
MAX_PREVIEW: Final = 2_000  # characters of a file that is text
MAX_IMAGE: Final = 5_000_000  # bytes of an image that is shown
TOP_LINES: Final = 3  # of the card; the others are folded
PEOPLE: Final = ("recipient", "answers to")
MAX_PIXELS: Final = 40_000_000
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# What browsers show of images; the type comes from the bytes, never from the letter.
_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class Highlight(NamedTuple):
    """A part of the text that is highlighted; places that overlap are one."""

    start: int
    end: int
    items: tuple[str, ...]  # what stands there, as the card's lines name it


class Segment(NamedTuple):
    """A piece of the letter's text: plain, or a place that the card speaks of."""

    text: str
    notes: tuple[int, ...] = ()  # the numbers of the side notes about it, the worst first
    level: int = 0
    box: str = ""  # the name of the box that stands beside it


class SideNote(NamedTuple):
    """What is known of one item of the letter: a recipient, a link, a number."""

    number: int
    item: CardItem
    level: int
    lines: tuple[CardLine, ...]
    box: str  # beside a recipient


class AttachmentView(NamedTuple):
    number: int
    file: Enclosure
    origin: str
    box: str
    image: str  # the type of an image that can be shown, or ""
    text: str | None  # the beginning of a text, if it is one
    is_cut: bool  # there is more of it


class LetterView(NamedTuple):
    segments: Sequence[Segment]
    notes: Sequence[SideNote]
    people: Mapping[str, SideNote]  # by address
    files: Sequence[AttachmentView]
    lines: Sequence[tuple[CardLine, str, str]]  # of the card, with what each leads to, and a box
    facts: Sequence[CardLine]
    boxes: int  # how many there are to tick


def view_letter(entry: Entry, card: Card, *, has_boxes: bool = False) -> LetterView:
    """Return what the page shows of a letter with this card; `has_boxes` where it can be approved."""
    letter = entry.letter
    highlights, boxes = _highlights(letter, card), _boxes(letter, card) if has_boxes else {}
    levels = {what: line.level for line in card.lines[::-1] for what in line.about}
    notes = [
        SideNote(
            number,
            item,
            levels.get(item.what, Level.PLAIN),
            tuple(line for line in card.warnings if item.what in line.about),
            boxes.get(("person", item.what), ""),
        )
        for number, item in enumerate(card.items[:MAX_SIDE_NOTES], 1)
    ]
    by_item = {note.item.what: note for note in reversed(notes)}
    anchors = {f"{FILE} {at}": f"file-{at}" for at in range(len(letter.attachments))}
    anchors |= {what: f"note-{note.number}" for what, note in by_item.items()}
    lines = [
        (line, next((anchors[one] for one in line.about if one in anchors), ""), boxes.get(("line", str(at)), ""))
        for at, line in enumerate(card.warnings)
    ]  # fmt: skip
    return LetterView(
        segments=tuple(_segments(letter.text[:MAX_TEXT_SHOWN], highlights, by_item, boxes)),
        notes=notes,
        people={note.item.what: note for note in reversed(notes) if note.item.kind in PEOPLE},
        files=[_view_file(entry, at, boxes) for at in range(len(letter.attachments))],
        lines=lines,
        facts=[line for line in card.facts if line.kind != "attachment"],
        boxes=len(boxes),
    )


def box_names(letter: Letter, card: Card) -> tuple[str, ...]:
    """Return the names of all boxes that a person ticks before this letter can be approved."""
    return tuple(_boxes(letter, card).values())


def _highlights(letter: Letter, card: Card) -> list[Highlight]:
    """Return the places of the shown text that the card speaks of, in order; those that overlap are one."""
    most = min(len(letter.text), MAX_TEXT_SHOWN)
    found = sorted(
        (start, end, item.what)
        for item in card.items[:MAX_SIDE_NOTES]
        for start, end in item.places
        if 0 <= start < end <= most
    )
    places = list[Highlight]()
    for start, end, what in found:
        if places and start < places[-1].end:
            last = places[-1]
            items = dict.fromkeys((*last.items, what))
            places[-1] = Highlight(last.start, max(last.end, end), tuple(items))
        else:
            places.append(Highlight(start, end, (what,)))
    return places


def _boxes(letter: Letter, card: Card) -> dict[tuple[str, str], str]:
    """Return the name of the box at each place of red lines: a person, a file, a place in the text, or the line."""
    in_text: dict[str, str] = {}
    for place in reversed(_highlights(letter, card)):
        in_text |= dict.fromkeys(place.items, str(place.start))
    files = {f"{FILE} {at}" for at in range(len(letter.attachments))}
    people = {address.spec for address in (*letter.envelope, *letter.reply_to)}
    people &= {item.what for item in card.items[:MAX_SIDE_NOTES] if item.kind in PEOPLE}
    found = list[tuple[str, str]]()
    for at, line in enumerate(card.warnings):
        if line.level == Level.STOP:
            places = (
                (FILE, what) if what in files
                else ("person", what) if what in people
                else ("text", in_text[what])
                for what in line.about
                if what in files | people or what in in_text
            )  # fmt: skip
            found.append(next(places, ("line", str(at))))
    if not found:
        return {}
    # A box of another version or card is another box: a browser may keep ticks, and a page may be old.
    seen = sha256(f"{letter.digest} {card.to_json()}".encode()).hexdigest()[:12]
    return {place: f"seen-{seen}-{at}" for at, place in enumerate(dict.fromkeys(found))}


def _segments(
    text: str,
    places: Sequence[Highlight],
    notes: Mapping[str, SideNote],
    boxes: Mapping[tuple[str, str], str],
) -> Iterator[Segment]:
    """Yield the text in pieces, with its places."""
    end = 0
    for place in places:
        if end < place.start:
            yield Segment(text[end : place.start])
        here = sorted((notes[what] for what in place.items), key=lambda one: (-one.level, one.number))  # fmt: skip
        end = place.end
        numbers = tuple(note.number for note in here)
        box = boxes.get(("text", str(place.start)), "")
        yield Segment(text[place.start : end], numbers, here[0].level, box)
    if end < len(text):
        yield Segment(text[end:])


def _view_file(entry: Entry, at: int, boxes: Mapping[tuple[str, str], str]) -> AttachmentView:
    file = entry.letter.attachments[at]
    image = image_type(file)
    text = None if image else _beginning(file)
    return AttachmentView(
        at,
        file,
        entry.origins[at] if at < len(entry.origins) else "agent",
        boxes.get((FILE, f"{FILE} {at}"), ""),
        image,
        text,
        text is not None and len(text.encode()) < len(file.content),
    )


def image_type(file: Enclosure) -> str:
    """Return the type of an image that browsers show, by its bytes; empty for anything else."""
    content = file.content
    kind = next((kind for magic, kind in _IMAGES if content.startswith(magic)), "")
    is_fit = len(content) <= MAX_IMAGE and 0 < _pixels(content, kind) <= MAX_PIXELS
    return kind if is_fit else ""


def _pixels(content: bytes, kind: str) -> int:
    """Return how many pixels an image says that it has: a browser needs four bytes for each. 0 where it says nothing."""
    width = height = b""
    if kind == "image/png":
        width, height = content[16:20], content[20:24]
    elif kind == "image/gif":
        width, height = content[7:5:-1], content[9:7:-1]  # the low byte comes first
    at = 2
    while (
        kind == "image/jpeg" and content[at : at + 1] == b"\xff"
    ):  # segments, up to a frame's header
        if content[at + 1] in _JPEG_FRAMES:
            height, width = content[at + 5 : at + 7], content[at + 7 : at + 9]
            break
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return int.from_bytes(width, "big") * int.from_bytes(height, "big")


def _beginning(file: Enclosure) -> str | None:
    """Return the beginning of a file that is UTF-8 text; None for other files."""
    head = file.content[: 4 * MAX_PREVIEW]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(head) - error.start > 3 or len(file.content) == len(head):  # not a cut character
            return None
        text = head[: error.start].decode()
    return None if "\0" in text else text[:MAX_PREVIEW]
