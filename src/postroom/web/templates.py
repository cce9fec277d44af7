"""The templates of the page with the values that they show, their filters, and its static files.

Everything that a template is given is escaped unless it is `Markup`, and a name that it is not given is an error.
`reveal`, `isolate`, `mark_code`, `describe` and `describe_step` are the only Python functions that write HTML; each escapes its text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from difflib import SequenceMatcher
from functools import partial
from hashlib import sha256
from importlib.resources import files
from itertools import chain, zip_longest
from math import ceil
from os.path import commonprefix
from secrets import token_hex
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from postroom.core import life
from postroom.core.letter import Letter
from postroom.core.records import LetterSummary
from postroom.core.stamp import Stamp, elapsed
from postroom.core.text import INVISIBLE, duration, is_shaping, plural
from postroom.desk.proposals import AUTHORS, ORCHESTRATOR
from postroom.web.letter_view import MAX_TEXT_SHOWN, TOP_LINES
from postroom.web.queue import PAGE_SIZE, SOON_SECONDS, Queue, row_time

CHART_DAYS: Final = 30
MIN_POINTS: Final = 5  # days with letters, below which a chart says nothing
MAX_ROWS: Final = 4_000  # rows of the queue that are kept rendered
SERIES: Final = ("approved", "rejected", "sent")
OUTCOMES: Final = (*life.CLOSED, "rehearsal", *life.OPEN)
MAX_WORDS: Final = 2_500  # of two texts; comparing them takes time that grows with the square
MAX_PIECE: Final = 20_000  # characters of one insertion or deletion that are shown
CONTEXT: Final = 300  # characters that are shown before and after a change
_WORD: Final = re.compile(r"\w+|[^\S\n]+|\n|.")

STATIC_TYPES: Final = {
    "desk.css": "text/css; charset=utf-8",
    "desk.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
STATIC: Final = {name: (files("postroom.web") / "static" / name).read_bytes() for name in STATIC_TYPES}  # fmt: skip
# Readers of the source need its comments, browsers do not.
STATIC["desk.js"] = re.sub(rb"(?m)^ *//.*\n", b"", STATIC["desk.js"])
# The address changes with the content, so that browsers may keep a file for ever.
_STATIC_URLS: Final = {
    name: f"/static/{name}?{sha256(content).hexdigest()[:12]}" for name, content in STATIC.items()
}
_HIDDEN_RUN = re.compile(f"({INVISIBLE.pattern})\\1*")
_MARK = Markup('<b class="hidden-char" title="{}">U+{:04X}{}</b>')
_TIME = Markup('<time datetime="{}">{}</time>')
_MARKER = f"\0{token_hex(8)}\0"  # for a moment; random, so that no text can contain it


def reveal(text: str) -> Markup:
    """Return escaped text in which each run of a hidden or direction-changing character is a mark with its code point."""
    parts, end = [], 0
    for match in _HIDDEN_RUN.finditer(text):
        start = match.start() + is_shaping(text, match.start())  # which is needed where it is
        if start == match.end():
            continue
        name = unicodedata.name(match[1], "a control character").lower()
        count = f" × {match.end() - start:,}" if match.end() - start > 1 else ""
        parts += [escape(text[end:start]), _MARK.format(name, ord(match[1]), count)]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def isolate(text: str) -> Markup:
    return Markup('<bdi dir="auto">{}</bdi>').format(reveal(text))


def mark_code(text: str) -> Markup:
    """Return a sentence of Postroom's with the words between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick without its partner
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(one) if at % 2 else one for at, one in enumerate(parts))


def describe(state: life.State, zone: tzinfo) -> Markup:
    """Return the sentence on a letter's state, with its moments as elements that the script puts into the reader's zone."""
    return _with_moments(partial(life.describe, state), zone)


def describe_step(state: life.State, before: life.State | None, zone: tzinfo) -> Markup:
    """Return the sentence on a step of a letter's history in the same way."""
    return _with_moments(partial(life.describe_step, state, before), zone)


def _with_moments(sentence: Callable[..., str], zone: tzinfo) -> Markup:
    moments = list[Markup]()

    def mark(stamp: Stamp) -> str:
        moments.append(moment(stamp, zone))
        return _MARKER

    texts = map(reveal, sentence(when=mark).split(_MARKER))
    return Markup("").join(chain(*zip_longest(texts, moments, fillvalue="")))


def moment(stamp: Stamp | float, zone: tzinfo) -> Markup:
    return _TIME.format(utc_time(stamp), local_time(stamp, zone))


def utc_time(stamp: Stamp | float) -> str:
    return f"{datetime.fromtimestamp(_seconds(stamp), UTC).isoformat()[:19]}Z"


def local_time(stamp: Stamp | float, zone: tzinfo) -> str:
    """Return a moment in the zone of the machine; the script replaces it by the reader's zone."""
    local = datetime.fromtimestamp(_seconds(stamp), zone)
    return f"{local:%Y-%m-%d %H:%M} {local.tzname()}"


def _seconds(stamp: Stamp | float) -> int:
    return int(stamp.wall if isinstance(stamp, Stamp) else stamp)


def clock_time(second: float, zone: tzinfo) -> str:
    """Return the time of day of a moment in the zone of the machine; the script replaces it by the reader's."""
    return f"{datetime.fromtimestamp(second, zone):%H:%M}"


def time_left(seconds: float) -> str:
    if seconds > 96 * 3600:
        return f"{ceil(seconds / 86_400)} d"
    return f"{ceil(seconds / 3600)} h" if seconds > 3600 else f"{max(1, ceil(seconds / 60))} min"


_rows: Final[dict[tuple[object, ...], Markup]] = {}


def queue_rows(letters: Sequence[LetterSummary], queue: Queue, frame: Mapping[str, Any]) -> Markup:
    """Return rows of the queue. They are kept: rendering fifty of them takes longer than all else of a page."""
    rules, now, zone, query = frame["rules"], frame["now"], frame["zone"], frame["query"]
    rows = list[Markup]()
    if len(_rows) >= MAX_ROWS:
        _rows.clear()
    for letter in letters:
        note, seconds = row_time(letter, rules, now)
        then, is_chosen = int(now.wall + seconds), letter.id == queue.chosen
        shown = time_left(seconds) if note == "expires" else then if note == "held" else seconds
        # All that the row shows, since ids are those of one desk alone.
        key = (
            *letter[:6],
            *letter[9:],
            life.name(letter.state),
            is_chosen,
            query,
            note,
            shown,
            zone,
        )
        if (row := _rows.get(key)) is None:
            render_row = ENVIRONMENT.get_template("queue.html").module.row  # type: ignore[attr-defined]
            row = _rows[key] = render_row(letter, is_chosen, query, note, seconds, then, zone)
        rows.append(row)
    return Markup("".join(rows))  # noqa: S704 - they are markup


def pages(total: int) -> int:
    return max(1, -(-total // PAGE_SIZE))


def agent_name(name: str) -> str:
    return AUTHORS.get(name) or ("Postroom's own draft" if name == ORCHESTRATOR else name)


def approval_date(state: life.State, zone: tzinfo) -> datetime | None:
    verdict = getattr(state, "verdict", None)
    if verdict is None or verdict.is_automatic:
        return None
    return datetime.fromtimestamp(verdict.at.wall, zone)


def decided_by(state: life.State) -> str:
    match state:
        case life.Rejected(by=by):
            return by
        case life.Withdrawn():
            return "its agent"
    verdict = getattr(state, "verdict", None)
    if verdict is None:
        return ""
    return "no approval required" if verdict.is_automatic else str(verdict.by)


def chart(counts: Mapping[int, Mapping[str, int]], today: date) -> dict[str, object] | None:
    """Return how many letters were approved, rejected and sent on each of the last days; None for too few days.

    `counts` are by days since 1970. Each day has the number of its column.
    """
    first = today - timedelta(days=CHART_DAYS - 1)
    start = (first - date(1970, 1, 1)).days
    days = [
        (column, first + timedelta(days=column), {kind: counts[start + column].get(kind, 0) for kind in SERIES})
        for column in range(CHART_DAYS)
        if start + column in counts
    ]  # fmt: skip
    if len(days) < MIN_POINTS:
        return None
    totals = {kind: sum(day[kind] for _, _, day in days) for kind in SERIES}
    highest = max(max(day["approved"] + day["rejected"], day["sent"]) for _, _, day in days)
    return {"days": days, "totals": totals, "highest": highest}


# A part of a difference, after its kind: `same`, `ins`, `del`, or `skip` for unchanged text that is left out.
Piece = tuple[str, str]


def letter_changes(before: Letter, after: Letter) -> list[tuple[str, list[Piece]]]:
    """Return the name and the difference of every field that differs, in the order in which a letter shows them."""
    changes = []
    for name in ("to", "cc", "bcc"):
        old, new = ([str(one) for one in getattr(letter, name)] for letter in (before, after))
        if set(old) != set(new):
            changes.append((name.capitalize(), _address_changes(old, new)))
    texts = {"Subject": (before.subject, after.subject), "Text": (before.text, after.text)}
    changes += [(name, text_changes(*pair)) for name, pair in texts.items() if pair[0] != pair[1]]
    if before.html and not after.html:
        changes.append(("HTML", [("del", "The HTML part is dropped: it no longer matches the text.")]))  # fmt: skip
    return changes


def _address_changes(old: list[str], new: list[str]) -> list[Piece]:
    kinds = dict.fromkeys(old, "del") | {one: "same" if one in old else "ins" for one in new}
    return [piece for one, kind in kinds.items() for piece in ((kind, one), ("same", " "))]


def text_changes(old: str, new: str) -> list[Piece]:
    """Return what both texts have in common, and what was deleted and inserted.

    What is between the common start and end is compared by words, by lines where there are too many words, or as a whole.
    """
    texts = _WORD.findall(old), _WORD.findall(new)
    start = len(commonprefix(texts))  # noqa: RUF071 - of words, as intended
    end = len(commonprefix([words[start:][::-1] for words in texts]))  # noqa: RUF071
    before, after = (words[start : len(words) - end] for words in texts)
    if len(before) + len(after) > MAX_WORDS:
        before, after = ("".join(words).splitlines(keepends=True) for words in (before, after))
    if len(before) + len(after) > MAX_WORDS:
        before, after = ["".join(before)], ["".join(after)]
    pieces = _unchanged("".join(texts[0][:start]))
    # A space between two changed words is junk: it belongs to the change. Difflib's heuristic for
    # frequent words stays on: without it, they make comparing slow.
    matcher = SequenceMatcher(lambda word: word.isspace() and "\n" not in word, before, after)
    for tag, a, b, c, d in matcher.get_opcodes():
        deleted, inserted = "".join(before[a:b]), "".join(after[c:d])
        if tag == "equal":
            pieces += _unchanged(deleted)
        else:
            changed = (("del", deleted), ("ins", inserted))
            pieces += [(kind, _limited(text)) for kind, text in changed if text]
    return pieces + _unchanged("".join(texts[0][len(texts[0]) - end :]))


def _limited(text: str) -> str:
    if len(text) <= MAX_PIECE:
        return text
    return f"{text[:MAX_PIECE]} [… {len(text) - MAX_PIECE:,} more characters …]"


def _unchanged(text: str) -> list[Piece]:
    """Return unchanged text; of a long one, only what is next to a change."""
    if len(text) <= 3 * CONTEXT:
        return [("same", text)] if text else []
    skipped = f" [… {len(text) - 2 * CONTEXT:,} unchanged characters …] "
    return [("same", text[:CONTEXT]), ("skip", skipped), ("same", text[-CONTEXT:])]


ENVIRONMENT: Final = Environment(
    loader=PackageLoader("postroom.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
ENVIRONMENT.policies["truncate.leeway"] = 0  # characters that a text may have more than it should
_FILTERS: Final = (
    *(
        agent_name,
        approval_date,
        clock_time,
        decided_by,
        describe,
        describe_step,
        duration,
        elapsed,
        isolate,
        moment,
    ),
    *(mark_code, pages, plural, reveal, time_left, utc_time),
)
ENVIRONMENT.filters |= {function.__name__: function for function in _FILTERS}
ENVIRONMENT.filters |= {
    "due_in": lambda state, now: max(0.0, state.wait - elapsed(state.since, now)),
    "kind": life.name,
    "sha256": lambda content: sha256(content).hexdigest(),
}
ENVIRONMENT.globals |= {
    "chart_days": CHART_DAYS,
    "marks": ("calm", "look", "stop"),  # the classes of a risk card's levels
    "max_mail_text": 20_000,  # characters of each mail of a conversation
    "max_text_shown": MAX_TEXT_SHOWN,
    "open_states": life.OPEN,
    "outcomes": OUTCOMES,
    "queue_rows": queue_rows,
    "soon_seconds": SOON_SECONDS,
    "static": _STATIC_URLS,
    "top_lines": TOP_LINES,
}


def render(template: str, **values: object) -> str:
    return ENVIRONMENT.get_template(template).render(values)
