"""A change to one note: text added, text replaced, fields set, all of it or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from postroom.core.errors import Invalid, NotFound, raise_if
from postroom.core.values import dataclass
from postroom.vault.markdown import Heading, headings
from postroom.vault.note import Note, Typed


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What is to be done; with a heading, to the part of the note under it."""

    append: str = ""
    prepend: str = ""
    find: str = ""
    replace: str | None = None
    heading: str = ""
    set: Mapping[str, Typed] = field(default_factory=dict)
    remove: Sequence[str] = ()

    def apply(self, note: Note) -> Note:
        texts = (self.append, self.prepend, self.find)
        is_half = bool(self.find) != (self.replace is not None)
        both = "Give both; an empty `replace` takes the text out."
        text = "Give append, prepend or find with it."
        some = "Give append, prepend, find with replace, set or remove."
        raise_if(
            (is_half, "`find` and `replace` go together", both),
            (self.heading and not any(texts), "`heading` needs a text", text),
            (not any((*texts, self.set, self.remove)), "This edit changes nothing", some),
        )
        if self.set or self.remove:
            note = note.revise(self.set, self.remove)
        if self.find:
            note = self._replace(note)
        if self.prepend:
            note = self._prepend(note)
        return self._append(note) if self.append else note

    def _span(self, body: str) -> tuple[int, int]:
        if not self.heading:
            return 0, len(body)
        heading = _find_heading(body, self.heading)
        return heading.text, heading.end

    def _replace(self, note: Note) -> Note:
        start, end = self._span(note.body)
        text = self.find.replace("\r\n", "\n").replace("\r", "\n")
        at = note.body.find(text, start, end)
        where = "under that heading" if self.heading else "in the note"
        if at < 0:
            raise NotFound(
                f"The text to be replaced does not stand {where}",
                remedy="Read the note again, and copy the text as it is there.",
            )
        if note.body.find(text, at + 1, end) >= 0:
            raise Invalid(
                f"The text to be replaced stands {where} more than once",
                remedy="Give more of what is around it, until it is the only one.",
            )
        return note.splice(at, at + len(text), self.replace or "")

    def _prepend(self, note: Note) -> Note:
        start, _ = self._span(note.body)
        text = self.prepend.rstrip("\n")
        # A heading that is the last line may have no end.
        begins = note.body[start - 1 : start] in ("", "\n")
        return note.splice(start, start, f"{text}\n" if begins else f"\n{text}")

    def _append(self, note: Note) -> Note:
        start, end = self._span(note.body)
        body, text = note.body, self.append.rstrip("\n")
        at = start + len(body[start:end].rstrip())  # the empty lines before the next heading stay
        if at == start and body[at - 1 : at] in ("", "\n"):
            return note.splice(at, at, f"{text}\n")
        newline = body.find("\n", at, end)
        at = newline if newline >= 0 else end
        return note.splice(at, at, f"\n{text}")


def _find_heading(body: str, words: str) -> Heading:
    """Return the one heading of these words; hashes in front tell its rank."""
    title = words.strip().lstrip("#").strip()
    level = len(words.strip()) - len(words.strip().lstrip("#"))
    ranked = [one for one in headings(body) if not level or one.level == level]
    matches = [one for one in ranked if one.title == title]
    matches = matches or [one for one in ranked if one.title.casefold() == title.casefold()]
    if not matches:
        raise NotFound(
            "The note has no such heading", remedy="Read it again: its headings begin with #."
        )
    if len(matches) > 1:
        raise Invalid(
            f"The note has {len(matches)} headings of these words",
            remedy="Give its rank, as in `## Tasks`, or replace a text that stands there once.",
        )
    return matches[0]
