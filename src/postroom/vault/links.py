"""The links between notes: found as Obsidian and CommonMark read them, rewritten where a file has moved."""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from posixpath import dirname, join, normpath, relpath
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from postroom.vault.markdown import Structure, parse

# All files of the vault, as of before the move, whose `key(stem(path))` is this key.
Files: TypeAlias = Callable[[str], Sequence[str]]

# Longer than any path; a run of marks is normalized in a time that grows with its square.
MAX_TARGET = 1024

_WIKI = re.compile(
    # No group of two ways is possessive: before 3.11.5 Python misreads that (gh-106052).
    r"\[\[((?:[^\[\]|#\\\r\n]++|\\(?!\|))*)"
    r"(?:(?:#|\\?\|)(?:[^\[\]\r\n]++|\[(?!\[)|\](?!\]))*)?\]\]"
)
# What names the file in `](target "title")`, and after the label of a definition.
_TARGET = re.compile(r"\s*(?:[\r\n][ \t>]*)?(?:<((?:[^<>\\\r\n]++|\\[^\r\n])*+)>|(\S*))")
_FORMULA = re.compile(r"(?:^|(?<=\r))[ \t>]*\$\$(?![^\r\n]*\$\$).*?\$\$", re.MULTILINE | re.DOTALL)
_LABEL = re.compile(r"\[(?:[^\[\]\\]++|\\.)*+\]:", re.DOTALL)
_SOME_WIKI = re.compile(r"\[\[([^\[\]|#\r\n]+)")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_WIKI_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|//")  # "Meeting: notes" is a name
# What cannot stand in a target: between `[[` and `]]`, there in YAML, and in a Markdown link.
_UNFIT = re.compile(r"[\[\]|#^\\\x00-\x1f\x7f]|^\s|\s$")
_UNFIT_YAML = re.compile(r"""["']|:(?:\s|$)""")
_ENCODED = r"[%#<>\[\]\\|`:?\x00-\x1f\x7f]|&(?=#?\w+;)"
_ENCODED_WIDE = re.compile("%[89A-Fa-f]")
# What a card of a canvas shows: in JSON, a quote without a backslash begins or ends a string.
_CARD = re.compile(r'(?<!\\)"(file|text)"\s*+:\s*+"((?:[^"\\]++|\\.)*+)"')
_CHARACTER = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL)

_Edit: TypeAlias = tuple[int, int, str]


class NoteLink(NamedTuple):
    """A link to a file of the vault, and where the text names that file: without heading and alias."""

    start: int
    end: int
    target: str  # without escapes
    wiki: bool
    angle: bool = False  # `[text](<target>)`


class Moved(NamedTuple):
    source: str
    target: str


class Rewritten(NamedTuple):
    """A text after a move, how many links changed, and which were left though they may mean the file."""

    text: str
    changed: int
    ambiguous: tuple[str, ...]


class _Sense(NamedTuple):
    way: Literal["near", "whole", "name"]  # from its note's folder, by the whole path, or by name
    paths: list[str]  # of the files that a link can mean


def key(name: str) -> str:
    """Return what two names have in common that Obsidian takes for the same."""
    return unicodedata.normalize("NFC", name).casefold()


def stem(path: str) -> str:
    """Return a file's name as links have it: a note's without `.md`, an attachment's whole."""
    return _bare(path.rpartition("/")[2])


def mentions(text: str, *, frontmatter: int = 0) -> list[str]:
    """Return what links may name, quickly: all that `links` finds, and wikilinks in code."""
    names = [name.rstrip("\\").strip() for name in _SOME_WIKI.findall(text)]
    if "](" in text or "]:" in text:
        names += [link.target for link in links(text, frontmatter=frontmatter) if not link.wiki]
    return [name for name in names if 0 < len(name) <= MAX_TARGET]


def _bare(path: str) -> str:
    return path[:-3] if path[-3:].lower() == ".md" else path


def links(text: str, *, frontmatter: int = 0) -> list[NoteLink]:
    """Return the links to files in order; of the frontmatter, so many characters, wikilinks alone."""
    found = [link for match in _WIKI.finditer(text, 0, frontmatter) for link in _wiki(match)]
    if text.find("[", frontmatter) >= 0:
        body, at = sorted(_body_links(text[frontmatter:])), frontmatter
        found += [one._replace(start=one.start + at, end=one.end + at) for one in body]
    return found


def _body_links(text: str) -> Iterator[NoteLink]:
    structure = parse(text)
    formulas = _formulas(text, structure)
    for start, end, label_end, is_wiki in structure.links:
        if start < formulas[bisect_right(formulas, (start, 0)) - 1][1]:
            continue
        if not is_wiki:
            yield from _markdown(text, label_end + 2, end - 1)
        elif match := _WIKI.match(text, text.find("[", start), end):
            yield from _wiki(match)
    for start, end in structure.definitions:
        if (label := _LABEL.match(text, start, end)) is None:
            continue
        if match := _WIKI.search(text, label.end(), end):  # Obsidian reads it before the definition
            yield from _wiki(match)
        else:
            yield from _markdown(text, label.end(), end)


def _formulas(text: str, structure: Structure) -> list[tuple[int, int]]:
    """Return the `$$` blocks outside of code, which may hold blank lines, and before them an empty one."""
    code = [(-1, -1), *sorted(structure.code)]
    found = (match.span() for match in _FORMULA.finditer(text))
    return [(-1, -1), *(span for span in found if span[0] >= code[bisect_right(code, span) - 1][1])]


def _wiki(match: re.Match[str]) -> Iterator[NoteLink]:
    target = match[1].strip()
    if 0 < len(target) <= MAX_TARGET and not _WIKI_SCHEME.match(target):
        start = match.start(1) + len(match[1]) - len(match[1].lstrip())
        yield NoteLink(start, start + len(target), target, wiki=True)


def _markdown(text: str, start: int, end: int) -> Iterator[NoteLink]:
    """Yield the link whose target begins here, unless it leads out of the vault."""
    match = _TARGET.match(text, start, end)
    assert match is not None
    angle = match[1] is not None
    written = match[1 if angle else 2].partition("#")[0]
    target = unquote(_ESCAPE.sub(r"\1", written))
    if 0 < len(target) <= MAX_TARGET and not _SCHEME.match(written):
        start = match.start(1 if angle else 2)
        yield NoteLink(start, start + len(written), target, wiki=False, angle=angle)


def rewrite(text: str, moved: Moved, files: Files, *, at: str, frontmatter: int = 0) -> Rewritten:
    """Return the text of the note that was `at` this path before the move, with its links mended."""
    return _rewritten(text, *_edits(text, moved, files, at, frontmatter))


def rewrite_canvas(text: str, moved: Moved, files: Files, *, at: str) -> Rewritten:
    """Return a canvas whose cards name the moved file; what is not JSON is left as it is."""
    edits: list[_Edit] = []
    ambiguous: list[str] = []
    try:
        json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return Rewritten(text, 0, ())
    for card in _CARD.finditer(text):
        value = json.loads(f'"{card[2]}"')
        inner: list[_Edit] = []
        if card[1] == "text":
            inner, doubts = _edits(value, moved, files, at, 0)
            ambiguous += doubts
        elif _names(value, moved.source, files):
            inner = [(0, len(value), moved.target)]
        characters = _CHARACTER.finditer(text, *card.span(2)) if inner else ()
        places = [*(match.start() for match in characters), card.end(2)]
        for first, last, new in inner:
            edits.append((places[first], places[last], json.dumps(new, ensure_ascii=False)[1:-1]))
    return _rewritten(text, edits, ambiguous)


def _names(value: str, source: str, files: Files) -> bool:
    """Whether a whole path is this file's, and not that of one whose name differs in case alone."""
    return value == source or (key(value) == key(source) and value not in files(key(stem(source))))


def _rewritten(text: str, edits: Sequence[_Edit], ambiguous: Sequence[str]) -> Rewritten:
    parts, done = [], 0
    for start, end, new in edits:
        parts += [text[done:start], new]
        done = end
    parts.append(text[done:])
    return Rewritten("".join(parts), len(edits), tuple(dict.fromkeys(ambiguous)))


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


def _sense(link: NoteLink, folder: str, files: Files) -> _Sense:
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


def _options(link: NoteLink, sense: _Sense, moved: Moved, here: str) -> Iterator[str]:
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


def _near(link: NoteLink, path: str, here: str) -> str:
    near = relpath(f"/{path}", f"/{here}")
    dotted = link.wiki or link.target.startswith("./")
    return f"./{near}" if dotted and not near.startswith("../") else near


def _fit(link: NoteLink, target: str, old: str) -> str:
    """Return the target as it is written in this link; "" where it cannot stand there."""
    if link.wiki:
        return "" if _UNFIT.search(target) else target
    spaced = "" if link.angle else r"|[\s()]"
    wide = "|[^\x00-\x7f]" if _ENCODED_WIDE.search(old) else ""
    return re.sub(_ENCODED + spaced + wide, lambda found: quote(found[0], safe=""), target)
