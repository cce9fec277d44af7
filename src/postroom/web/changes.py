"""What an edit changed, word by word, so that a person sees it before they approve it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from os.path import commonprefix

from postroom.core.letter import Letter
from postroom.web.markup import Html, html, put, shown

MAX_WORDS = 2_500  # of both texts; comparing takes a time that grows with the square
MAX_SHOWN = 200_000  # characters of a text on a page; the rest is a link away
MAX_PIECE = 20_000  # of what came or went in one place
AROUND = 300  # characters that are shown before and after a change
_WORD = re.compile(r"\w+|[^\S\n]+|\n|.")


def changes(before: Letter, after: Letter) -> Html:
    """Return every field that differs, with what went and what came; nothing where none does."""
    rows = []
    for name in ("to", "cc", "bcc"):
        old, new = ({str(one): None for one in getattr(side, name)} for side in (before, after))
        if old != new:
            gone = [html("<del>{who}</del> ", who=shown(who)) for who in old if who not in new]
            came = [html("<ins>{who}</ins> ", who=shown(who)) for who in new if who not in old]
            kept = [html("{who} ", who=shown(who)) for who in new if who in old]
            rows.append((name.capitalize(), put([*gone, *came, *kept])))
    if before.subject != after.subject:
        rows.append(("Subject", words(before.subject, after.subject)))
    if before.text != after.text:
        rows.append(("Text", words(before.text, after.text)))
    if before.html and not after.html:
        rows.append(("HTML", html("<del>The HTML part goes: the plain text says something else now.</del>")))  # fmt: skip
    return put(
        html(
            '<div class="change"><dt>{name}</dt><dd class="text">{what}</dd></div>',
            name=name,
            what=what,
        )
        for name, what in rows
    )


def words(old: str, new: str) -> Html:
    """Return a text with what went struck out and what came marked."""
    before, after = _ends(old, new)
    ends = len(old) - after, len(new) - after
    ours, theirs = (text[before:end] for text, end in ((old, ends[0]), (new, ends[1])))
    return put([_around(old[:before]), *_between(ours, theirs), _around(old[ends[0] :])])


def _ends(old: str, new: str) -> tuple[int, int]:
    """Return how much both have in common at their beginning, and at their end, up to a word."""
    before = len(commonprefix((old, new)))  # noqa: RUF071 - of characters, as it should
    while before and _inside(old, before):
        before -= 1
    most = min(len(old), len(new)) - before
    after = min(len(commonprefix((old[::-1], new[::-1]))), most)  # noqa: RUF071
    while after and _inside(old, len(old) - after):
        after -= 1
    return before, after


def _inside(text: str, at: int) -> bool:
    return text[at - 1 : at + 1].isalnum() and 0 < at < len(text)


def _between(old: str, new: str) -> list[Html]:
    for split in (_WORD.findall, lambda text: text.splitlines(keepends=True)):
        ours, theirs = split(old), split(new)
        if len(ours) + len(theirs) <= MAX_WORDS:
            break
    else:
        ours, theirs = [old], [new]
    parts = []
    for same, gone, came in _phrases(ours, theirs):
        if same:
            parts.append(_around(gone))
            continue
        if gone:
            parts.append(html("<del>{gone}</del>", gone=_cut(gone)))
        if came:
            parts.append(html("<ins>{came}</ins>", came=_cut(came)))
    return parts


def _phrases(ours: list[str], theirs: list[str]) -> Iterator[tuple[bool, str, str]]:
    """Yield what is the same, and what went and came; words that changed side by side are one phrase."""
    # With what difflib calls junk: words that are everywhere would make it slow.
    runs = SequenceMatcher(None, ours, theirs).get_opcodes()
    went, came = "", ""
    for at, (what, a, b, c, d) in enumerate(runs):
        here = "".join(ours[a:b])
        between = 0 < at < len(runs) - 1 and here.isspace() and "\n" not in here
        if what != "equal" or between:
            went, came = went + here, came + "".join(theirs[c:d])
            continue
        if went or came:
            yield False, went, came
        yield True, here, here
        went, came = "", ""
    if went or came:
        yield False, went, came


def _cut(piece: str) -> Html:
    """Return what came or went, as far as a page has room for it."""
    if len(piece) <= MAX_PIECE:
        return shown(piece)
    more = f" [… {len(piece) - MAX_PIECE:,} characters more …]"
    return html("{begins}{more}", begins=shown(piece[:MAX_PIECE]), more=more)


def _around(same: str) -> Html:
    """Return what did not change, as far as it stands beside what did."""
    if len(same) <= 3 * AROUND:
        return shown(same)
    return html(
        '{before}<span class="quiet"> [… {many:} characters as they were …] </span>{after}',
        before=shown(same[:AROUND]),
        many=f"{len(same) - 2 * AROUND:,}",
        after=shown(same[-AROUND:]),
    )
