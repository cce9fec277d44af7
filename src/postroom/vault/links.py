"""The links between notes: found as Obsidian and CommonMark read them, rewritten where a file has moved."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from posixpath import dirname, join, normpath, relpath
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

# All files of the vault, as of before the move, whose `key(stem(path))` is this key.
Files: TypeAlias = Callable[[str], Sequence[str]]

MAX_TARGET = (
    1024  # longer than any path; a run of marks is normalized in a time that grows with its square
)
MAX_DEPTH = 50  # quotes and lists in one another; what is deeper is taken for text

# A line: what may be the markers of quotes and lists, and the rest. The last one is always empty.
_LINE = re.compile(r"([ \t>*+\-0-9.)]*+)([^\r\n]*+)(?:\r\n?|\n|\Z)")
# CommonMark 0.31, sections 4.1 to 4.5 and 5.1 to 5.2, for lines without tabs and without trailing space.
_HOLDER = re.compile(r" {0,3}(?:(>) ?|(?:[-+*]|[0-9]{1,9}[.)])(?: {1,4}(?=[^ ])| (?= )|$))")
_RULE = re.compile(r" {0,3}(?:(?:- *+){3,}|(?:\* *+){3,}|(?:_ *+){3,}|=+)")
_FENCE = re.compile(r" {0,3}(`{3,}+(?=[^`]*$)|~{3,})")
_ALONE = re.compile(r" {0,3}(?:#{1,6}(?: |$)|\|)")  # a heading, a row of a table
_WIKI = re.compile(
    # No group of two ways is possessive: before 3.11.5 Python misreads that (gh-106052).
    r"\[\[((?:[^\[\]|#\\\r\n]++|\\(?!\|))*)"
    r"(?:(?:#|\\?\|)(?:[^\[\]\r\n]++|\[(?!\[)|\](?!\]))*)?\]\]"
)
_PLAIN = r"(?:[^\x00- ()\\\x7f]++|\\\S?+)*+"
for _ in range(4):
    _PLAIN = rf"(?:[^\x00- ()\\\x7f]++|\\\S?+|\({_PLAIN}\))*+"
_NAMED = rf"(?!\[\[)(?:<((?:[^<>\\\r\n]++|\\[^\r\n])*+)>|(?!<)({_PLAIN}))"
_TARGET = (
    rf"{_NAMED}"
    r"""(?:\s++(?:"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|\((?:[^()\\]++|\\.)*+\)))?+\s*+"""
)
_INLINE = re.compile(rf"\(\s*+{_TARGET}\)", re.DOTALL)
# `[^1]:` is a footnote: what follows it is text.
_DEFINITION = re.compile(
    rf"(?:[ \t]*+(?:>|(?:[-+*]|[0-9]{{1,9}}+[.)])(?=[ \t])))*+[ \t]*+\[(?!\^)(?:[^\[\]\\\r\n]++|\\.)++\]:[ \t]*+{_TARGET}"
)
_SOME_WIKI = re.compile(r"\[\[([^\[\]|#\r\n]+)")
_SOME_INLINE = re.compile(rf"\]\([\s>]*+{_NAMED}")
_SOME_DEFINITION = re.compile(rf"\]:[\s>]*+{_NAMED}")
_TOKEN = re.compile(r"\\[!-/:-@\[-`{-~]|`+|<!--|\$\$|!?\[|\]")
_ENDS = ("-->", "$$")
_TICKS = re.compile("`+")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_WIKI_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|//")  # "Meeting: notes" is a name
# What cannot stand in a target: between `[[` and `]]`, there in YAML, and in a Markdown link.
_UNFIT = re.compile(r"[\[\]|#^\\\x00-\x1f\x7f]|^\s|\s$")
_UNFIT_YAML = re.compile(r"""["']|:(?:\s|$)""")
_ENCODED = r"[%#<>\[\]\\|`:?\x00-\x1f\x7f]|&(?=#?\w+;)"
_ENCODED_WIDE = re.compile("%[89A-Fa-f]")
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"(\s*+:)?+')
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)

_Edit: TypeAlias = tuple[int, int, str]


class Link(NamedTuple):
    """A link to a file of the vault, and where the text names that file: without heading and alias."""

    start: int
    end: int
    target: str  # without escapes
    wiki: bool
    angle: bool = False  # `[text](<target>)`


class Moved(NamedTuple):
    """A file's path in the vault before and after its move."""

    source: str
    target: str


class Rewritten(NamedTuple):
    """A text after a move, how many links changed, and which were left though they may mean the file."""

    text: str
    changed: int
    ambiguous: tuple[str, ...]


class _Sense(NamedTuple):
    """The files that a link can mean: from its note's folder, by the whole path, or by the name."""

    way: Literal["near", "whole", "name"]
    paths: list[str]


def key(name: str) -> str:
    """Return what two names have in common that Obsidian takes for the same."""
    return unicodedata.normalize("NFC", name).casefold()


def stem(path: str) -> str:
    """Return a file's name as links have it: a note's without `.md`, an attachment's whole."""
    return _bare(path.rpartition("/")[2])


def mentions(text: str) -> list[str]:
    """Return what links may name, quickly: all that `links` finds, and some that stand in code."""
    found = [name.rstrip("\\").strip() for name in _SOME_WIKI.findall(text)]
    for pattern in (_SOME_INLINE, _SOME_DEFINITION) if "](" in text or "]:" in text else ():
        found += [_decoded(angle or plain) for angle, plain in pattern.findall(text)]
    return [name for name in found if name and len(name) <= MAX_TARGET]


def _decoded(target: str) -> str:
    target = target.partition("#")[0]
    return unquote(_ESCAPE.sub(r"\1", target)) if "%" in target or "\\" in target else target


def _bare(path: str) -> str:
    return path[:-3] if path[-3:].lower() == ".md" else path


def links(text: str, *, frontmatter: int = 0) -> list[Link]:
    """Return the links to files in order; of the frontmatter, so many characters, wikilinks alone."""
    matches = _WIKI.finditer(text, 0, frontmatter)
    found = [link for match in matches for link in _wiki(match)]
    for start, end in _stretches(text, frontmatter):
        if definition := _DEFINITION.fullmatch(text, start, end):
            found += _markdown(definition)
        else:
            found += _inline(text, start, end)
    return found


def _stretches(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield where links can stand: a paragraph, heading, row or definition; no code, comment, formula."""
    holders: list[int] = []  # from the outside: 0 for a quote, the indent of a list item's lines
    until, begun, formula = "", -1, text.rfind("$$")
    for found in _LINE.finditer(text, start):
        line = (found[1].expandtabs(4) + found[2]).rstrip()
        depth, rest = _held(line, holders)
        if until and depth == len(holders):
            if _closes(rest, until):
                after = text.find(until, found.start()) + len(until)
                begun = after if until in _ENDS and text[after : found.end()].strip() else -1
                until = ""
            continue
        fresh, rest = _hold(holders[:depth], rest)
        until = _opened(rest, formula=found.end() <= formula)
        alone = _ALONE.match(rest) or _RULE.fullmatch(rest)
        if begun >= 0 and len(fresh) == depth and rest and not alone and not until:
            continue  # a paragraph goes on, even where a line lacks its markers
        if begun >= 0:
            yield begun, found.start()
        holders, begun = fresh, -1
        if rest.startswith("    ") or until:
            continue
        if alone or _DEFINITION.fullmatch(rest):
            yield found.span()
            begun = found.end() if rest.lstrip(" ")[0] == "|" else -1  # a row may be a paragraph's
        elif rest:
            begun = found.start()


def _held(line: str, holders: Sequence[int]) -> tuple[int, str]:
    """Return how many of the open quotes and lists a line goes on with, and what it says there."""
    for depth, indent in enumerate(holders):
        if not indent and (marker := _HOLDER.match(line)) and marker[1]:
            line = line[marker.end() :]
        elif indent and line.startswith(" " * indent):
            line = line[indent:]
        elif not indent or line:
            return depth, line
    return len(holders), line


def _hold(holders: list[int], rest: str) -> tuple[list[int], str]:
    """Return the holders with those that begin here, and what the line says in them."""
    while len(holders) < MAX_DEPTH and (marker := _HOLDER.match(rest)):
        if _RULE.fullmatch(rest):
            break
        empty = marker.end() == len(rest)  # the text of such an item stands one column further
        holders.append(0 if marker[1] else marker.end() + empty)
        rest = rest[marker.end() :]
    return holders, rest


def _opened(rest: str, *, formula: bool) -> str:
    """Return what ends the code, comment or formula that begins with this line and goes on; else ""."""
    if fence := _FENCE.match(rest):
        return fence[1]
    indent = len(rest) - len(rest.lstrip(" "))
    if indent < 4 and rest.startswith("<!--", indent) and "-->" not in rest:
        return "-->"
    # An unclosed `$$` is a price: only fences and comments go on to the end of the text.
    opens = formula and indent < 4 and rest.startswith("$$", indent)
    return "$$" if opens and "$$" not in rest[indent + 2 :] else ""


def _closes(rest: str, until: str) -> bool:
    if until in _ENDS:
        return until in rest
    run = rest.strip(" ")
    return run.strip(until[0]) == "" and len(run) >= len(until) and not rest.startswith("    ")


def _inline(text: str, start: int, end: int) -> Iterator[Link]:
    """Yield the links of one stretch. Every character is looked at a bounded number of times."""
    openers: list[bool] = []  # whether each open bracket is an image's
    dead = 0  # so many of the first cannot be links: a link holds no other (CommonMark 6.3)
    runs: dict[int, list[int]] | None = None
    unclosed = set[str]()
    while token := _TOKEN.search(text, start, end):
        start = token.end()
        if token[0][0] == "`":
            runs = _runs(text, start, end) if runs is None else runs
            later = runs.get(len(token[0]), [])
            while later and later[-1] < start:
                later.pop()
            start = later.pop() + len(token[0]) if later else start
        elif (closing := {"<!--": "-->", "$$": "$$"}.get(token[0], "")) and closing not in unclosed:
            closed = text.find(closing, start - 2 * (closing == "-->"), end)  # `<!-->` is a comment
            start = closed + len(closing) if closed >= 0 else start
            unclosed |= {closing} if closed < 0 else set()
        elif token[0][-1] == "[" and token[0][0] != "\\":
            if wiki := _WIKI.match(text, start - 1, end):
                yield from _wiki(wiki)
                start = wiki.end()
            else:
                openers.append(token[0] == "![")
        elif token[0] == "]" and openers:
            image, live = openers.pop(), len(openers) >= dead
            dead = min(dead, len(openers))
            if (image or live) and (inline := _INLINE.match(text, start, end)):
                yield from _markdown(inline)
                start, dead = inline.end(), dead if image else len(openers)


def _runs(text: str, start: int, end: int) -> dict[int, list[int]]:
    """Return where the runs of backticks begin, last first, by their length."""
    runs: dict[int, list[int]] = {}
    for run in reversed(list(_TICKS.finditer(text, start, end))):
        runs.setdefault(len(run[0]), []).append(run.start())
    return runs


def _wiki(match: re.Match[str]) -> Iterator[Link]:
    target = match[1].strip()
    if 0 < len(target) <= MAX_TARGET and not _WIKI_SCHEME.match(target):
        start = match.start(1) + len(match[1]) - len(match[1].lstrip())
        yield Link(start, start + len(target), target, wiki=True)


def _markdown(match: re.Match[str]) -> Iterator[Link]:
    angle = match[1] is not None
    written = match[1 if angle else 2].partition("#")[0]
    target = unquote(_ESCAPE.sub(r"\1", written))
    if 0 < len(target) <= MAX_TARGET and not _SCHEME.match(written):
        start = match.start(1 if angle else 2)
        yield Link(start, start + len(written), target, wiki=False, angle=angle)


def rewrite(text: str, moved: Moved, files: Files, *, at: str, frontmatter: int = 0) -> Rewritten:
    """Return the text of the note that was `at` this path before the move, with its links mended."""
    edits, ambiguous = _edits(text, moved, files, at, frontmatter)
    return Rewritten(_spliced(text, edits), len(edits), tuple(dict.fromkeys(ambiguous)))


def rewrite_canvas(text: str, moved: Moved, files: Files, *, at: str) -> Rewritten:
    """Return a canvas whose cards name the moved file; what is no JSON is left as it is."""
    edits: list[_Edit] = []
    ambiguous: list[str] = []
    try:
        json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return Rewritten(text, 0, ())
    name, end = "", 0
    for token in _STRING.finditer(text):
        value = json.loads(f'"{token[1]}"')
        if token[2]:
            name, end = value, token.end()
            continue
        inner: list[_Edit] = []
        if name and text[end : token.start()].strip():
            pass  # the key's value was no string: this one stands in it
        elif name == "file" and _names(value, moved.source, files):
            inner = [(0, len(value), moved.target)]
        elif name == "text":
            inner, doubts = _edits(value, moved, files, at, 0)
            ambiguous += doubts
        if inner:
            characters = _CHARACTER.finditer(text, *token.span(1))
            places = [*(match.start() for match in characters), token.end(1)]
            for first, last, new in inner:
                escaped = json.dumps(new, ensure_ascii=False)[1:-1]
                edits.append((places[first], places[last], escaped))
        name = ""
    return Rewritten(_spliced(text, edits), len(edits), tuple(dict.fromkeys(ambiguous)))


def _names(value: str, source: str, files: Files) -> bool:
    """Whether a whole path is this file's, and not that of one whose name differs in case alone."""
    return value == source or (key(value) == key(source) and value not in files(key(stem(source))))


def _spliced(text: str, edits: Sequence[_Edit]) -> str:
    parts, done = [], 0
    for start, end, new in edits:
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])


def _edits(
    text: str, moved: Moved, files: Files, at: str, frontmatter: int
) -> tuple[list[_Edit], list[str]]:
    """Return what to replace, and the targets as written that are left though they may mean the file."""
    edits, ambiguous = [], []
    leaves = at == moved.source and dirname(at) != dirname(moved.target)
    here = dirname(moved.target if at == moved.source else at)
    sought = key(stem(moved.source))

    def after(name: str) -> list[str]:
        kept = [path for path in files(name) if path not in moved]
        return [*kept, moved.target] if key(stem(moved.target)) == name else kept

    for link in links(text, frontmatter=frontmatter):
        if not leaves and key(stem(link.target)) != sought:
            continue
        sense, written = _sense(link, dirname(at), files), text[link.start : link.end]
        goal = [moved.target]
        if sense.paths == [moved.source]:
            options = list(_options(link, sense, moved, here))
        elif moved.source in sense.paths:
            options = []
        elif leaves and sense.way == "near" and sense.paths:
            options = [_near(link, normpath(join(dirname(at), link.target)), here)]
            goal = sense.paths
        else:
            continue
        for target in options:
            new = written if target == link.target else _fit(link, target, written)
            if link.start < frontmatter and new != written and _UNFIT_YAML.search(target):
                continue
            if new and _sense(link._replace(target=target), here, after).paths == goal:
                edits += [(link.start, link.end, new)] if new != written else []
                break
        else:
            ambiguous.append(written)
    return edits, ambiguous


def _sense(link: Link, folder: str, files: Files) -> _Sense:
    """Return the files that a link in a note of this folder can mean."""
    target, bare = link.target, key(_bare(link.target))
    known = [(key(_bare(path)), path) for path in files(key(stem(target)))]
    relative = target.startswith(("./", "../"))
    if relative or (not link.wiki and target[0] != "/"):
        whole = normpath(join(key(folder), bare))
        near = [path for name, path in known if name == whole]
        if near or relative:
            return _Sense("near", near)
    found = [path for name, path in known if name == bare.removeprefix("/")]
    if found or target[0] == "/" or ("/" in target and not link.wiki):
        return _Sense("whole", found)
    return _Sense("name", [path for name, path in known if name.endswith(f"/{bare}")])


def _options(link: Link, sense: _Sense, moved: Moved, here: str) -> Iterator[str]:
    """Yield the targets that may name the moved file from here, the best first."""
    extended = link.target[-3:].lower() == ".md"
    path = moved.target if extended else _bare(moved.target)
    if sense.way == "near":
        yield _near(link, path, here)
        return
    if "/" not in link.target and (link.wiki or sense.way == "name"):
        if stem(moved.source) == stem(moved.target):
            yield link.target
        yield path.rpartition("/")[2]
    if link.wiki or sense.way == "whole":
        yield "/" * link.target.startswith("/") + path
    if not link.wiki:
        yield _near(link, path, here)


def _near(link: Link, path: str, here: str) -> str:
    """Return the way to this path from a note in this folder."""
    near = relpath(f"/{path}", f"/{here}")
    dotted = link.wiki or link.target.startswith("./")
    return f"./{near}" if dotted and not near.startswith("../") else near


def _fit(link: Link, target: str, old: str) -> str:
    """Return the target as it is written in this link; "" where it cannot stand there."""
    if link.wiki:
        return "" if _UNFIT.search(target) else target
    spaced = "" if link.angle else r"|[\s()]"
    wide = "|[^\x00-\x7f]" if _ENCODED_WIDE.search(old) else ""
    return re.sub(_ENCODED + spaced + wide, lambda found: quote(found[0], safe=""), target)
