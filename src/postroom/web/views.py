"""The values that templates show: what every page has around it, the queue, the chart, and the difference of an edit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from difflib import SequenceMatcher
from os.path import commonprefix
from typing import Final, NamedTuple

from postroom.core import life
from postroom.core.letter import Letter
from postroom.core.policy import Rules
from postroom.core.records import LetterSummary
from postroom.core.stamp import Stamp, elapsed
from postroom.core.values import dataclass
from postroom.desk.proposals import AUTHORS, ORCHESTRATOR

PAGE_SIZE: Final = 50  # letters of a list on one page
MAX_TEXT_SHOWN: Final = 200_000  # characters of a letter on a page; a link leads to the rest
MAX_SOURCES: Final = 60
MAX_MAIL_TEXT: Final = 20_000  # characters of each mail of a conversation
CHART_DAYS: Final = 30
SERIES: Final = ("approved", "rejected", "sent")
OUTCOMES: Final = (*life.CLOSED, "rehearsal", *life.OPEN)
MAX_WORDS: Final = 2_500  # of two texts; comparing them takes time that grows with the square
MAX_PIECE: Final = 20_000  # characters of one insertion or deletion that are shown
CONTEXT: Final = 300  # characters that are shown before and after a change
_WORD: Final = re.compile(r"\w+|[^\S\n]+|\n|.")


class Notice(NamedTuple):
    """A sentence at the top of a page; `kind` is `good`, `note` or `stop`."""

    kind: str
    text: str


def pages(total: int) -> int:
    """Return how many pages a list of this many letters has."""
    return max(1, -(-total // PAGE_SIZE))


def agent_name(name: str) -> str:
    """Return the author of a letter as people say it."""
    return AUTHORS.get(name) or ("Postroom's own draft" if name == ORCHESTRATOR else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One page of the queue, newest first."""

    unknown: Sequence[LetterSummary]
    failed: Sequence[LetterSummary]
    approved: Sequence[LetterSummary]
    waiting: Sequence[LetterSummary]
    total: int
    number: int = 1
    rehearsed: bool = False  # `waiting` are rehearsals
    chosen: str = ""  # the id of the letter that is open


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """What every page has around it: its place, whose page it is, the rules, the time, notices and the queue."""

    title: str
    place: str  # the address of the tab that it belongs to
    person: str
    token: str
    rules: Rules
    zone: tzinfo
    now: Stamp
    waiting: int
    notices: Sequence[Notice] = ()
    queue: QueueView | None = None

    def since(self, stamp: Stamp) -> float:
        """Return the seconds since then."""
        return elapsed(stamp, self.now)

    def expires_in(self, state: life.Pending) -> float:
        """Return the seconds until a waiting letter expires."""
        return self.rules.expiry_seconds - elapsed(state.since, self.now)

    def due_in(self, state: life.Approved) -> float:
        """Return the seconds until an approved letter is sent or tried again."""
        return max(0.0, state.wait - elapsed(state.since, self.now))


def approval_date(state: life.State, zone: tzinfo) -> datetime | None:
    """Return when a person approved a letter; None where nobody did."""
    verdict = getattr(state, "verdict", None)
    if verdict is None or verdict.is_automatic:
        return None
    return datetime.fromtimestamp(verdict.at.wall, zone)


def decided_by(state: life.State) -> str:
    """Return who brought a letter into this state."""
    match state:
        case life.Rejected(by=by):
            return by
        case life.Withdrawn():
            return "its agent"
    verdict = getattr(state, "verdict", None)
    if verdict is None:
        return ""
    return "no approval required" if verdict.is_automatic else str(verdict.by)


class HistoryQuery(NamedTuple):
    """What a person looks for in the history, and the number of the page."""

    words: str = ""
    state: str = ""
    agent: str = ""
    number: int = 1


class Chart(NamedTuple):
    """How many letters were approved, rejected and sent on each of the last days."""

    days: Sequence[tuple[int, date, Mapping[str, int]]]  # with the number of the day's column
    totals: Mapping[str, int]
    highest: int  # of all bars


def chart(counts: Mapping[int, Mapping[str, int]], today: date) -> Chart | None:
    """Return the chart up to today, or None where nothing happened; `counts` are by days since 1970."""
    first = today - timedelta(days=CHART_DAYS - 1)
    start = (first - date(1970, 1, 1)).days
    days = [
        (column, first + timedelta(days=column), {kind: counts[start + column].get(kind, 0) for kind in SERIES})
        for column in range(CHART_DAYS)
        if start + column in counts
    ]  # fmt: skip
    if not days:
        return None
    totals = {kind: sum(day[kind] for _, _, day in days) for kind in SERIES}
    highest = max(max(day["approved"] + day["rejected"], day["sent"]) for _, _, day in days)
    return Chart(days, totals, highest)


# The difference of an edit


class Piece(NamedTuple):
    """A part of a difference: `same`, `ins`, `del`, or `skip` for unchanged text that is left out."""

    kind: str
    text: str


class FieldChange(NamedTuple):
    """A field of a letter that differs."""

    name: str
    pieces: list[Piece]


def letter_changes(before: Letter, after: Letter) -> list[FieldChange]:
    """Return every field that differs, in the order in which a letter shows them."""
    changes = []
    for name in ("to", "cc", "bcc"):
        old, new = ([str(one) for one in getattr(letter, name)] for letter in (before, after))
        if set(old) != set(new):
            changes.append(FieldChange(name.capitalize(), _address_pieces(old, new)))
    if before.subject != after.subject:
        changes.append(FieldChange("Subject", text_changes(before.subject, after.subject)))
    if before.text != after.text:
        changes.append(FieldChange("Text", text_changes(before.text, after.text)))
    if before.html and not after.html:
        dropped = Piece("del", "The HTML part is dropped: it no longer matches the text.")
        changes.append(FieldChange("HTML", [dropped]))
    return changes


def _address_pieces(old: list[str], new: list[str]) -> list[Piece]:
    removed = [("del", one) for one in dict.fromkeys(old) if one not in new]
    added = [("ins", one) for one in dict.fromkeys(new) if one not in old]
    same = [("same", one) for one in dict.fromkeys(new) if one in old]
    pieces = list[Piece]()
    for kind, address in (*removed, *added, *same):
        pieces += [Piece(kind, address), Piece("same", " ")]
    return pieces


def text_changes(old: str, new: str) -> list[Piece]:
    """Return what both texts have in common, and what was deleted and inserted."""
    start, end = _common_ends(old, new)
    old_end, new_end = len(old) - end, len(new) - end
    middle = _middle_pieces(old[start:old_end], new[start:new_end])
    return [*_unchanged(old[:start]), *middle, *_unchanged(old[old_end:])]


def _common_ends(old: str, new: str) -> tuple[int, int]:
    """Return how many characters both have in common at the start, and at the end, in whole words."""
    start = len(commonprefix((old, new)))  # noqa: RUF071 - of characters, as intended
    while start and _inside_word(old, start):
        start -= 1
    most = min(len(old), len(new)) - start
    end = min(len(commonprefix((old[::-1], new[::-1]))), most)  # noqa: RUF071
    while end and _inside_word(old, len(old) - end):
        end -= 1
    return start, end


def _inside_word(text: str, at: int) -> bool:
    return text[at - 1 : at + 1].isalnum() and 0 < at < len(text)


def _middle_pieces(old: str, new: str) -> Iterator[Piece]:
    """Yield the difference by words, by lines where there are too many words, or as a whole."""
    for split in (_WORD.findall, lambda text: text.splitlines(keepends=True)):
        old_parts, new_parts = split(old), split(new)
        if len(old_parts) + len(new_parts) <= MAX_WORDS:
            break
    else:
        old_parts, new_parts = [old], [new]
    for is_same, deleted, inserted in _phrases(old_parts, new_parts):
        if is_same:
            yield from _unchanged(deleted)
            continue
        if deleted:
            yield Piece("del", _limited(deleted))
        if inserted:
            yield Piece("ins", _limited(inserted))


def _phrases(old: list[str], new: list[str]) -> Iterator[tuple[bool, str, str]]:
    """Yield whether a run is the same, with its old and new text; neighbouring changed words are one run."""
    # Difflib's heuristic for frequent words stays on: without it, they make comparing slow.
    runs = SequenceMatcher(None, old, new).get_opcodes()
    deleted, inserted = "", ""
    for at, (tag, a, b, c, d) in enumerate(runs):
        text = "".join(old[a:b])
        is_gap = 0 < at < len(runs) - 1 and text.isspace() and "\n" not in text
        if tag != "equal" or is_gap:
            deleted, inserted = deleted + text, inserted + "".join(new[c:d])
            continue
        if deleted or inserted:
            yield False, deleted, inserted
        yield True, text, text
        deleted, inserted = "", ""
    if deleted or inserted:
        yield False, deleted, inserted


def _limited(text: str) -> str:
    if len(text) <= MAX_PIECE:
        return text
    return f"{text[:MAX_PIECE]} [… {len(text) - MAX_PIECE:,} more characters …]"


def _unchanged(text: str) -> Iterable[Piece]:
    """Yield unchanged text; of a long one, only what is next to a change."""
    if len(text) <= 3 * CONTEXT:
        return [Piece("same", text)] if text else []
    skipped = f"{len(text) - 2 * CONTEXT:,}"
    return [
        Piece("same", text[:CONTEXT]),
        Piece("skip", f" [… {skipped} unchanged characters …] "),
        Piece("same", text[-CONTEXT:]),
    ]
