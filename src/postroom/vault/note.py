"""One note: Markdown with YAML frontmatter, changed by splicing so that all else stays as it was written."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from postroom.core.errors import Corrupt, Invalid
from postroom.core.values import dataclass

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
Typed: TypeAlias = "bool | int | float | str | list[Typed] | dict[str, Typed] | None"
MAX_FRONTMATTER = 65_536
MAX_DEPTH = 50
MAX_COMPARED = 100_000  # pairs of items of two lists; larger ones are written as a whole
REMEMBERED = 200_000  # bytes; of larger notes none is kept in memory

_OPENING = re.compile(r"\ufeff?---[ \t]*(?:\r\n?|\n)")
# The lookbehind comes second: a search that begins with letters is fast over a long body.
_CLOSING = re.compile(r"---(?<=[\r\n]---)[ \t]*(?:\r\n?|\n|\Z)")
# A key and a text without escapes in double quotes, as most lines that Postroom writes are. Compiled at its first use.
_QUOTED_LINE = r'([A-Za-z_][A-Za-z0-9_-]{0,200}): "([^"\\\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)"\n'
_NEWLINE = re.compile(r"\r\n?|\n")
_RETURN = re.compile(r"\r\n?")
_YAML_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_COLON = re.compile(r"[ \t]*:")
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
# JSON leaves these as they are, but YAML refuses them, ends a line there, or shows another order.
_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NULLS: dict[str, None] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
# YAML 1.2.2, section 10.3.2: the core schema.
_CONSTANTS = (
    _NULLS
    | dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
)
_WHOLE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_REAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_LARGEST = 2**53  # the readers of JSON keep whole numbers up to here
# What may stand without quotes, in brackets too, for readers of either YAML.
_BARE = re.compile(
    r"[^\W\d][\w./@+-]*(?: [\w./@+-]+)*|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:]{4,8}Z?)?"
)
_NOT_BARE = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
_json = json.JSONEncoder(ensure_ascii=False).encode
_REPAIR = "The file is left as it is: repair its frontmatter."


class _Node(NamedTuple):
    """A value, where it stands, and what it holds; a block ends with the last thing in it."""

    value: Value
    start: int
    end: int
    column: int = 0
    flow: bool = False
    plain: bool = False  # a text without quotes, which may mean something else
    inner: Sequence[_Node] = ()

    @property
    def typed(self) -> Typed:
        """The value by YAML's core rules; what no reader of JSON could hold stays text."""
        if isinstance(self.value, list):
            return [node.typed for node in self.inner]
        if isinstance(self.value, dict):
            return {str(key.value): value.typed for key, value in _pairs(self.inner)}
        return _resolve(self.value) if self.plain else self.value


@dataclass(frozen=True, slots=True)
class Note:
    """A note as it was read: its fields as text, and its body with plain newlines."""

    raw: bytes
    fields: Mapping[str, Value] = field(compare=False)
    body: str = field(compare=False, repr=False)
    source: str = field(compare=False, repr=False)  # the whole text, with its own newlines
    head: int = field(compare=False, repr=False)  # how much of the source comes before the body
    _top: _Node = field(compare=False, repr=False)  # from fence to fence

    @classmethod
    def parse(cls, raw: bytes) -> Note:
        """Return the note; what cannot be read is `Corrupt`, with its line and column."""
        return _parse_cached(raw) if len(raw) <= REMEMBERED else _parse(raw)

    def text(self, key: str) -> str:
        """Return a field's text: "" where it is missing or has keys of its own, a list with commas."""
        value = self.fields.get(key, "")
        texts = value if isinstance(value, list) else [value]
        return ", ".join(text for text in texts if isinstance(text, str))

    @property
    def values(self) -> dict[str, Typed]:
        """The fields by YAML's core rules: numbers, true and false, null; all else is text, dates too."""
        return {str(key.value): value.typed for key, value in _pairs(self._top.inner)}

    def set(self, changes: Mapping[str, str | None], body: str | None = None) -> Note:
        """Return the note with these keys set, or removed where None; no other line is touched.

        A `body` replaces the one that is there, in the file's own kind of newlines.
        """
        new = {name: text for name, text in changes.items() if self.fields.get(name) != text}
        removed = [name for name, text in new.items() if text is None]
        texts = {name: _encodable(text) for name, text in new.items() if text is not None}
        return self._change(texts, removed, body, lambda text, _old: _quoted(str(text)))

    def revise(
        self, values: Mapping[str, Typed], removed: Iterable[str] = (), body: str | None = None
    ) -> Note:
        """Return the note with these values, written as the person wrote the ones that they replace.

        What has that value already stays as it is written.
        """
        old = self.values
        new = {
            _encodable(name): _clean(value)
            for name, value in values.items()
            if name not in old or not _same(old[name], value)
        }
        gone = [name for name in removed if name in old and name not in new]
        body = None if body is None or _RETURN.sub("\n", body) == self.body else body
        return self._change(new, gone, body, self._write_like)

    def splice(self, start: int, end: int, text: str) -> Note:
        """Return the note with this in the place of a part of its body; every other byte stays."""
        new = _encodable(_RETURN.sub("\n", text))
        body = self.body[:start] + new + self.body[end:]
        # A line break of two characters in the source is one in the body: `breaks` are their indices in the body.
        pairs = re.finditer("\r\n", self.source[self.head :])
        breaks = [found.start() - earlier for earlier, found in enumerate(pairs)]

        def in_source(index: int) -> int:
            return self.head + index + bisect_left(breaks, index)

        put = new.replace("\n", self._newline()) if start else self._as_body(new)
        return self._verify([(in_source(start), in_source(end), put)], self.values, body)

    def _change(
        self,
        new: Mapping[str, Typed],
        removed: Iterable[str],
        body: str | None,
        write: Callable[[Typed, _Node | None], str],
    ) -> Note:
        top, newline, fields = self._top, self._newline(), self.values
        pairs = {key.value: (key, value) for key, value in _pairs(top.inner)}
        indent = " " * (top.inner[0].column if pairs else 0)
        cuts, added = [], ""
        if top.flow and (new or any(name in pairs for name in removed)):
            raise _corrupt(
                self.source, top.start, "frontmatter in braces cannot be changed key by key"
            )
        for name in removed:
            if name in pairs:
                cuts.append(self._cut(*pairs[name], None))
                del fields[name]
        for name, value in new.items():
            fields[name] = value
            if name not in pairs:
                added += f"{indent}{_key(name)}: {write(value, None)}{newline}"
                continue
            key, old = pairs[name]
            cuts.append(self._cut_list(old, value) or self._cut(key, old, write(value, old)))
        if added and top.start == self.head:
            added = f"---{newline}{added}---{newline}"
        cuts.append((top.end, top.end, added))
        if body is not None:
            body = _encodable(_RETURN.sub("\n", body))
            cuts.append((self.head, len(self.source), self._as_body(body)))
        return self._verify(cuts, fields, self.body if body is None else body)

    def _as_body(self, text: str) -> str:
        lacks_newline = text and self.source[: self.head].endswith(("-", " ", "\t"))
        return (f"\n{text}" if lacks_newline else text).replace("\n", self._newline())

    def _write_like(self, value: Typed, old: _Node | None) -> str:
        """Return a value as YAML, in quotes like those of the one that it replaces."""
        style = self.source[old.start : old.start + 1] if old and not old.plain else ""
        if isinstance(value, str) and style == "'" and value.isprintable():
            return "'" + value.replace("'", "''") + "'"
        if isinstance(value, str) and style == '"':
            return _quoted(value)
        return _flow(value)

    def _cut_list(self, old: _Node, new: Typed) -> tuple[int, int, str] | None:
        """Return the span to cut where both are lists, the old one with a line for each of its items.

        Items that stay keep their lines, with the comments there and above.
        """
        if not (isinstance(old.value, list) and isinstance(new, list) and old.inner and new):
            return None
        has_inner = any(isinstance(node.value, list | dict) for node in old.inner)
        if old.flow or has_inner or len(old.inner) * len(new) > MAX_COMPARED:
            return None
        from difflib import SequenceMatcher

        lead, at = self._newline() + " " * old.column, old.start - old.column
        lines = []
        for node in old.inner:
            # A block scalar ends after its last newline, everything else before it.
            found = _YAML_BREAK.search(self.source, max(node.start, node.end - 1))
            end = found.start() if found else len(self.source)
            lines.append(self.source[at:end])
            at = end
        lines[0] = self._newline() + lines[0]
        before = [json.dumps(node.typed) for node in old.inner]
        matcher = SequenceMatcher(None, before, list(map(json.dumps, new)), autojunk=False)
        texts = []
        for kind, start, end, first, last in matcher.get_opcodes():
            added = [f"{lead}- {_flow(item)}" for item in new[first:last]]
            texts += lines[start:end] if kind == "equal" else added
        return old.start - old.column, at, "".join(texts)[len(self._newline()) :]

    def _newline(self) -> str:
        found = _NEWLINE.search(self.source)
        return found[0] if found else "\n"

    def _cut(self, key: _Node, old: _Node, new: str | None) -> tuple[int, int, str]:
        """Return the span to cut, and what to put there, to set one key or, without it, to remove it."""
        text, colon = self.source, _COLON.match(self.source, key.end)
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
        return colon.end(), end, gap + new

    def _verify(self, cuts: list[tuple[int, int, str]], fields: Typed, body: str) -> Note:
        """Return the note after these cuts; refuse them unless it has just these fields and this body."""
        text = self.source
        for start, end, new in sorted(cuts, reverse=True):
            text = text[:start] + new + text[end:]
        try:
            result = self if text == self.source else Note.parse(text.encode())
        except Corrupt as why:
            raise Corrupt(f"This change would break the note: {why}", remedy=_REPAIR) from why
        if not _same(result.values, fields) or result.body != body:
            raise Corrupt("This change would alter other parts of the note too", remedy=_REPAIR)
        return result


def etag(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:16]


def _parse(raw: bytes) -> Note:
    try:
        text = raw.decode()
    except UnicodeDecodeError as why:
        before = raw[: why.start].decode()
        raise _corrupt(before, len(before), "this is not UTF-8") from why
    start = body = int(text.startswith("\ufeff"))
    top = _Node({}, start, start)
    if opening := _OPENING.match(text):
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            raise _corrupt(text, 0, "the line `---` that ends the frontmatter is missing")
        body = closing.end()
        top = _read(text, opening.end(), closing.start())
    assert isinstance(top.value, dict)
    return Note(raw, top.value, _RETURN.sub("\n", text[body:]), text, body, top)


_parse_cached = lru_cache(maxsize=8)(_parse)  # what was just written is mostly read next


class _YamlReader:
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
            # PyYAML places a value that is left out after `? key` where the next thing begins.
            end = end if at < end or self.text[end - 1] in ":-" else 0
            return _Node(value, at, end, column, plain=event.implicit[0])
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
            values = [node.value for node in inner]
            return _Node(values, at, end, column, bool(event.flow_style), inner=inner)
        return _Node(self._fields(inner), at, end, 0, bool(event.flow_style), inner=inner)

    def _fields(self, inner: Sequence[_Node]) -> dict[str, Value]:
        fields: dict[str, Value] = {}
        for key, value in _pairs(inner):
            if not isinstance(key.value, str):
                raise _corrupt(
                    self.text,
                    key.start,
                    "a key must be text: put a key with braces or brackets in quotes",
                )
            if key.value == "<<":
                raise _corrupt(self.text, key.start, "`<<` is not followed: write the values here")
            if key.value in fields:
                raise _corrupt(self.text, key.start, "this key occurs twice")
            fields[key.value] = value.value
        return fields


def _read(text: str, start: int, end: int) -> _Node:
    import yaml

    block = text[start:end]
    if len(block.encode()) > MAX_FRONTMATTER:
        raise _corrupt(text, start, "the frontmatter is larger than 64 KB")
    if found := _UNREADABLE.search(block):
        raise _corrupt(text, start + found.start(), "control characters are not allowed here")
    if simple := _read_quoted(text, start, end):
        return simple
    events = yaml.parse(block, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        next(events)
        if isinstance(next(events), yaml.StreamEndEvent):
            return _Node({}, start, end)
        top, after = _YamlReader(text, start, events).node(1), next(events)
        if top is None or not isinstance(top.value, dict):
            raise _corrupt(text, start, "the frontmatter must consist of `key: value` lines")
        if after.explicit or not isinstance(next(events), yaml.StreamEndEvent):
            raise _corrupt(text, start + after.start_mark.index, "the frontmatter ends too early")
    except (yaml.MarkedYAMLError, ValueError, OverflowError) as why:
        mark = getattr(why, "problem_mark", None)
        at = start + (mark.index if mark else 0)
        raise _corrupt(text, at, getattr(why, "problem", None) or "this is not YAML") from why
    return top._replace(start=start, end=end)


def _read_quoted(text: str, start: int, end: int) -> _Node | None:
    """Return a mapping of which each line is a `_QUOTED_LINE`, without YAML's parser, which takes long; None for another."""
    inner: list[_Node] = []
    fields: dict[str, Value] = {}
    match, at = re.compile(_QUOTED_LINE).match, start
    while found := match(text, at, end):
        key, value = found.groups()
        if key in fields or key in _NULLS:
            return None
        fields[key] = value
        colon = at + len(key)
        end_of_line = found.end()
        inner.append(_Node(key, at, colon, plain=True))
        inner.append(_Node(value, colon + 2, end_of_line - 1, len(key) + 2))
        at = end_of_line
    return _Node(fields, start, end, inner=inner) if fields and at == end else None


def _pairs(inner: Sequence[_Node]) -> Iterator[tuple[_Node, _Node]]:
    return zip(inner[::2], inner[1::2], strict=True)


def _corrupt(text: str, index: int, why: str) -> Corrupt:
    lines = _NEWLINE.split(text[:index].removeprefix("\ufeff"))
    return Corrupt(f"Line {len(lines)}, column {len(lines[-1]) + 1}: {why}", remedy=_REPAIR)


def _encodable(text: str) -> str:
    """Return a text that UTF-8 can encode: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _quoted(text: str) -> str:
    quoted = _json(_encodable(text))
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _resolve(text: str) -> Typed:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        number = int(text, base) if len(text) < 40 else _LARGEST + 1
        return number if abs(number) <= _LARGEST else text
    if _REAL.fullmatch(text):
        real = float(text)
        return real if abs(real) <= sys.float_info.max else text
    return text


def _same(one: Typed, other: Typed) -> bool:
    """Whether two values are equal: 1 is 1.0, and not true."""
    if repr(one) == repr(other):  # as most are
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _clean(value: Typed) -> Typed:
    if isinstance(value, dict):
        return {_encodable(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(_clean, value))
    if isinstance(value, str):
        return _encodable(value)
    most = sys.float_info.max if isinstance(value, float) else _LARGEST
    if value is not None and not abs(value) <= most:
        raise Invalid("A number in the frontmatter is too large", remedy="Write it as a text.")
    return value


def _flow(value: Typed) -> str:
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) and value.casefold() not in _NOT_BARE
        return value if bare else _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)}: {_flow(inner)}' for key, inner in value.items())}}}"
    return json.dumps(value)


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) and name not in _NULLS else _quoted(name)


def render(fields: Mapping[str, str | Sequence[str]], body: str) -> bytes:
    """Return a new note, every value in double quotes and every list in brackets."""
    head = ""
    for key, value in fields.items():
        text = _quoted(value) if isinstance(value, str) else f"[{', '.join(map(_quoted, value))}]"
        head += f"{_key(key)}: {text}\n"
    if len(head.encode()) > MAX_FRONTMATTER:
        raise Invalid("The frontmatter may have at most 64 KB", remedy="Shorten the values.")
    return f"---\n{head}---\n{_encodable(body)}".encode()
