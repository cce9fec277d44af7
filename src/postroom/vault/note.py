"""One note: Markdown with YAML frontmatter, changed by splicing so that all else stays as it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from postroom.core.errors import Corrupt, Invalid

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
MAX_FRONTMATTER = 65_536
MAX_DEPTH = 50

_OPENING = re.compile(r"\ufeff?---[ \t]*(?:\r\n?|\n)")
# The lookbehind comes second: a search that begins with letters is fast over a long body.
_CLOSING = re.compile(r"---(?<=[\r\n]---)[ \t]*(?:\r\n?|\n|\Z)")
_NEWLINE = re.compile(r"\r\n?|\n")
_RETURN = re.compile(r"\r\n?")
_YAML_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_COLON = re.compile(r"[ \t]*:")
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
# JSON leaves these as they are, but YAML refuses them, ends a line there, or shows another order.
_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NULLS = {"", "~", "null", "Null", "NULL"}
_MEND = "The file is left as it is: mend its frontmatter."
# CommonMark 0.31, sections 4.2 and 4.5.
_HEADING = re.compile(r" {0,3}##(?:[ \t]([^\n]*))?\n?")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_INLINE_QUERY = re.compile(r"[\s\ufeff]*\$?=")


class _Node(NamedTuple):
    """A value, where it stands, and what it holds; a block ends with the last thing in it."""

    value: Value
    start: int
    end: int
    column: int = 0
    flow: bool = False
    inner: Sequence[_Node] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A note as it was read: its fields as text, and its body with plain newlines."""

    raw: bytes
    fields: Mapping[str, Value] = field(compare=False)
    body: str = field(compare=False, repr=False)
    _text: str = field(compare=False, repr=False)
    _top: _Node = field(compare=False, repr=False)  # from fence to fence
    _body: int = field(compare=False, repr=False)

    @classmethod
    @lru_cache(maxsize=8)  # what was just written is mostly the next that is read
    def parse(cls, raw: bytes) -> Note:
        """Return the note; what cannot be read is `Corrupt`, with its line and column."""
        try:
            text = raw.decode()
        except UnicodeDecodeError as why:
            before = raw[: why.start].decode()
            raise _corrupt(before, len(before), "this is no UTF-8") from why
        start = body = int(text.startswith("\ufeff"))
        top = _Node({}, start, start)
        if opening := _OPENING.match(text):
            closing = _CLOSING.search(text, opening.end())
            if closing is None:
                raise _corrupt(text, 0, "the frontmatter has no end, a line `---`")
            body = closing.end()
            top = _read(text, opening.end(), closing.start())
        assert isinstance(top.value, dict)
        return cls(raw, top.value, _RETURN.sub("\n", text[body:]), text, top, body)

    def text(self, key: str) -> str:
        """Return a field's text: "" where it is missing or has keys of its own, a list with commas."""
        value = self.fields.get(key, "")
        texts = value if isinstance(value, list) else [value]
        return ", ".join(text for text in texts if isinstance(text, str))

    def set(self, changes: Mapping[str, str | None], body: str | None = None) -> Note:
        """Return the note with these keys set, or removed where None; no other line is touched.

        A `body` replaces the one that is there, in the file's own kind of newlines.
        """
        top, newline, fields = self._top, self._newline(), dict(self.fields)
        pairs = {key.value: (key, value) for key, value in _pairs(top.inner)}
        indent = " " * (top.inner[0].column if pairs else 0)
        cuts, added = [], ""
        for name, change in changes.items():
            new = None if change is None else _encodable(change)
            if fields.get(name) == new:
                continue
            if top.flow:
                raise _corrupt(self._text, top.start, "keys in braces are not changed one by one")
            if name in pairs:
                cuts.append(self._cut(*pairs[name], new))
            if new is None:
                del fields[name]
                continue
            if name not in pairs:
                added += f"{indent}{_key(name)}: {_quoted(new)}{newline}"
            fields[name] = new
        if added and top.start == self._body:
            added = f"---{newline}{added}---{newline}"
        cuts.append((top.end, top.end, added))
        if body is None:
            return self._proven(cuts, fields, self.body)
        body = _encodable(_RETURN.sub("\n", body))
        new = body.replace("\n", newline)
        if new and self._text[: self._body].endswith(("-", " ", "\t")):
            new = newline + new
        cuts.append((self._body, len(self._text), new))
        return self._proven(cuts, fields, body)

    def _newline(self) -> str:
        found = _NEWLINE.search(self._text)
        return found[0] if found else "\n"

    def _cut(self, key: _Node, old: _Node, new: str | None) -> tuple[int, int, str]:
        """Return the span to cut, and what to put there, to set one key or to remove it."""
        text, colon = self._text, _COLON.match(self._text, key.end)
        if colon is None:
            raise _corrupt(text, key.start, "a key written with `?` is not changed")
        if new is None:
            # A block scalar ends after its last newline, everything else before it.
            last = _YAML_BREAK.search(text, max(colon.end(), old.end - 1))
            return key.start - key.column, last.end() if last else old.end, ""
        end = old.start + len(text[old.start : old.end].rstrip(" \t\r\n"))
        gap = text[colon.end() : old.start]
        if gap.strip():  # a comment, and the value in a line of its own
            gap += "  "
        elif not gap or _NEWLINE.search(gap):
            gap = " "
        return colon.end(), end, gap + _quoted(new)

    def _proven(self, cuts: list[tuple[int, int, str]], fields: object, body: str) -> Note:
        """Return the note after these cuts, if it then has just these fields and this body."""
        text = self._text
        for start, end, new in sorted(cuts, reverse=True):
            text = text[:start] + new + text[end:]
        try:
            made = self if text == self._text else Note.parse(text.encode())
        except Corrupt as why:
            raise Corrupt(f"This change would break the note: {why}", remedy=_MEND) from why
        if made.fields != fields or made.body != body:
            raise Corrupt("This change would touch more of the note than asked", remedy=_MEND)
        return made


class _Reader:
    """YAML's events, made into nodes."""

    def __init__(self, text: str, start: int, events: Iterator[Any]) -> None:
        self.text, self.start, self.events = text, start, events

    def node(self, depth: int) -> _Node | None:
        """Return the next value with all that it holds; None where its holder ends."""
        import yaml

        event = self.event = next(self.events)
        at, end = self.start + event.start_mark.index, self.start + event.end_mark.index
        column = event.start_mark.column
        if isinstance(event, yaml.ScalarEvent):
            event.value.encode()  # without libyaml, PyYAML makes any number a character
            value = "" if event.implicit[0] and event.value in _NULLS else event.value
            # What is left out after `? key` is said to stand where the next thing begins.
            end = end if at < end or self.text[end - 1] in ":-" else 0
            return _Node(value, at, end, column)
        if isinstance(event, yaml.CollectionEndEvent):
            return None
        if not isinstance(event, yaml.CollectionStartEvent):
            raise _corrupt(self.text, at, "aliases are not followed: write the value itself")
        if depth > MAX_DEPTH:
            raise _corrupt(self.text, at, f"this is nested deeper than {MAX_DEPTH}")
        inner = list(iter(lambda: self.node(depth + 1), None))
        if event.flow_style:
            end = self.start + self.event.end_mark.index
        else:
            end = max((node.end for node in inner), default=at)
        if isinstance(event, yaml.SequenceStartEvent):
            return _Node([node.value for node in inner], at, end)
        return _Node(self._fields(inner), at, end, 0, bool(event.flow_style), inner)

    def _fields(self, inner: Sequence[_Node]) -> dict[str, Value]:
        fields: dict[str, Value] = {}
        for key, value in _pairs(inner):
            if not isinstance(key.value, str) or key.value == "<<":
                raise _corrupt(self.text, key.start, "a key is a text, and not `<<`")
            if key.value in fields:
                raise _corrupt(self.text, key.start, f"the key {key.value!r} stands here twice")
            fields[key.value] = value.value
        return fields


def _read(text: str, start: int, end: int) -> _Node:
    """Return the mapping that stands between these two places."""
    import yaml

    block = text[start:end]
    if len(block.encode()) > MAX_FRONTMATTER:
        raise _corrupt(text, start, "the frontmatter is larger than 64 KB")
    if found := _UNREADABLE.search(block):
        raise _corrupt(text, start + found.start(), "control characters cannot stand here")
    events = yaml.parse(block, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        next(events)
        if isinstance(next(events), yaml.StreamEndEvent):
            return _Node({}, start, end)
        top, after = _Reader(text, start, events).node(1), next(events)
        if top is None or not isinstance(top.value, dict):
            raise _corrupt(text, start, "these are no keys with values")
        if after.explicit or not isinstance(next(events), yaml.StreamEndEvent):
            raise _corrupt(text, start + after.start_mark.index, "the frontmatter ends too early")
    except (yaml.MarkedYAMLError, ValueError, OverflowError) as why:
        mark = getattr(why, "problem_mark", None)
        at = start + (mark.index if mark else 0)
        raise _corrupt(text, at, getattr(why, "problem", None) or "this is no YAML") from why
    return top._replace(start=start, end=end)


def _pairs(inner: Sequence[_Node]) -> Iterator[tuple[_Node, _Node]]:
    return zip(inner[::2], inner[1::2], strict=True)


def _corrupt(text: str, index: int, why: str) -> Corrupt:
    lines = _NEWLINE.split(text[:index].removeprefix("\ufeff"))
    return Corrupt(f"Line {len(lines)}, column {len(lines[-1]) + 1}: {why}", remedy=_MEND)


def _encodable(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _quoted(text: str) -> str:
    quoted = json.dumps(_encodable(text), ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) and name not in _NULLS else _quoted(name)


def render(fields: Mapping[str, str | Sequence[str]], body: str) -> bytes:
    """Return a new note, every value in double quotes and every list in brackets."""
    head = ""
    for key, value in fields.items():
        items = value if isinstance(value, str) else ", ".join(map(_quoted, value))
        head += f"{_key(key)}: {_quoted(items) if isinstance(value, str) else f'[{items}]'}\n"
    if len(head.encode()) > MAX_FRONTMATTER:
        raise Invalid("The fields of a note have room for 64 KB", remedy="Put less into them.")
    return f"---\n{head}---\n{_encodable(body)}".encode()


def _ticks(text: str, least: int) -> str:
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def fence(text: str) -> str:
    """Return the text in a code fence that nothing in it can close."""
    ticks = _ticks(text, 3)
    return f"{ticks}text\n{text}\n{ticks}"


def fenced(section: str) -> str | None:
    """Return what the one fence holds; None where there is none, a second, or one left open."""
    lines = list(_marked(section))
    if "".join(mark for _, mark in lines if mark in "<>") != "<>":
        return None
    indent = next(len(line) - len(line.lstrip(" ")) for line, mark in lines if mark == "<")
    held = [re.sub(f"^ {{0,{indent}}}", "", line) for line, mark in lines if mark == "|"]
    return "".join(held).removesuffix("\n")


@lru_cache(maxsize=8)
def sections(body: str) -> tuple[tuple[str, str], ...]:
    """Return (title, text) of each part that starts with `## title`; the texts joined are the body."""
    parts = [("", [""])]
    for line, mark in _marked(body):
        if mark == " " and (heading := _HEADING.fullmatch(line)):
            title = (heading[1] or "").strip(" \t")
            closing = title.rstrip("#")  # a closing run of # is none of the title
            title = closing.rstrip(" \t") if not closing or closing[-1] in " \t" else title
            parts.append((title, []))
        parts[-1][1].append(line)
    return tuple((title, "".join(lines)) for title, lines in parts)


def _marked(body: str) -> Iterator[tuple[str, str]]:
    """Yield each line with a mark: `<` opens a fence, `|` is inside, `>` closes, a space is outside."""
    closing = None
    for line in re.findall(r"[^\n]*\n|[^\n]+", body):
        if closing is not None:
            ends = closing.fullmatch(line)
            yield line, ">" if ends else "|"
            closing = None if ends else closing
        elif opens := _FENCE.match(line):
            yield line, "<"
            closing = re.compile(rf" {{0,3}}{opens[1]}{opens[1][0]}*[ \t]*\n?")
        else:
            yield line, " "


def quote(text: str) -> str:
    """Return a text as one line of inline code; not for tables, where a `|` in it would end the cell."""
    line = " ".join(text.splitlines()) or " "
    if _INLINE_QUERY.match(line):
        line = "\\" + line  # the Dataview plugin would run it
    pad = " " if line.strip(" ") and (line[0] in "` " or line[-1] in "` ") else ""
    return f"{_ticks(line, 1)}{pad}{line}{pad}{_ticks(line, 1)}"
