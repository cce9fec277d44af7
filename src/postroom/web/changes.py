"""What an edit changed, word by word, so that a person sees it before they approve it."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from postroom.core.letter import Letter
from postroom.web.markup import Html, html, put, shown

MAX_WORDS = 6_000  # of both texts; comparing takes a time that grows with the square
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
    ours, theirs = _WORD.findall(old), _WORD.findall(new)
    if len(ours) + len(theirs) > MAX_WORDS:
        ours, theirs = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if len(ours) + len(theirs) > MAX_WORDS:
        return html("<del>{old}</del><ins>{new}</ins>", old=shown(old), new=shown(new))
    parts = []
    for what, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        gone, came = "".join(ours[a:b]), "".join(theirs[c:d])
        if what == "equal":
            parts.append(shown(gone))
            continue
        if gone:
            parts.append(html("<del>{gone}</del>", gone=shown(gone)))
        if came:
            parts.append(html("<ins>{came}</ins>", came=shown(came)))
    return put(parts)
