"""The HTML that a letter may have: a strict subset, parsed and written anew, with the plain text made from it.

What a recipient sees is what the person was shown: nothing of the given markup is passed on, every word of the
result is in its plain text, and both have the same order. What the subset has no place for is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape, unescape
from html.entities import html5
from typing import Final, NamedTuple

from postroom.core.errors import raise_if
from postroom.core.text import clean

# A tag by its name, its end with a slash before it, or text under no name; and the text, or where a link leads.
Token = tuple[str, str]

APART: Final = frozenset("p h1 h2 h3 h4 blockquote pre ul ol table hr".split())  # by a blank line
BLOCKS: Final = APART | frozenset("div li thead tbody tr th td".split())
_FRAMES: Final = frozenset("blockquote li tr th td".split())
_SPACES: Final = re.compile("[ \t\n]++")


class _Frame:
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.lines: list[str] = []
        self.blank = False  # whether an empty line comes before the next

    def put(self, rows: list[str]) -> None:
        if rows:
            self.lines += [""] if self.blank and self.lines else []
            self.lines += rows
            self.blank = False


class _Writer:
    def __init__(self) -> None:
        self.frames = [_Frame()]
        self.run: list[str] = []  # since the last line
        self.words: list[str] = []
        self.link, self.label = "", 0  # where the open link leads, and where its words begin
        self.pre = False

    def take(self, name: str, value: str) -> None:
        if not name:
            self.run.append(value if self.pre else _SPACES.sub(" ", value))
            self.words.append(self.run[-1])
        elif name == "br":
            self.run.append("\n")
            self.words.append("\n")
        elif name == "a":
            self.link, self.label = value, len(self.words)
        elif name == "/a":
            label = _SPACES.sub(" ", "".join(self.words[self.label :])).strip(" ")
            same = label in (self.link, self.link.removeprefix("mailto:"))
            after = " " if self.run and self.run[-1].endswith(" ") else ""
            self.run += [] if same else [f" ({self.link}){after}"]
        elif name in ("s", "/s"):  # what is struck out says the opposite
            self.run.append("~~")
        elif name.lstrip("/") in BLOCKS:
            self._block(name)

    def _block(self, name: str) -> None:
        self.line()
        if name in _FRAMES:
            self.frames[-1].blank |= name in APART
            self.frames.append(_Frame(name))
        elif name[0] == "/" and name[1:] in _FRAMES:
            self._close_frame()
        self.pre = name == "pre"
        frame = self.frames[-1]
        if name == "hr":
            frame.blank = True
            frame.put(["---"])
        frame.blank |= name.lstrip("/") in APART and frame.name != "li"

    def _close_frame(self) -> None:
        closed, outer = self.frames.pop(), self.frames[-1]
        lines = closed.lines
        if closed.name == "blockquote":
            outer.put([f"> {row}".rstrip(" ") for row in lines])
        elif closed.name == "li":
            outer.put([f"{'  ' if at else '- '}{row}".rstrip(" ") for at, row in enumerate(lines)])
        elif closed.name == "tr":
            outer.put(" | ".join(lines).split("\n") if any(lines) else [])
        else:
            outer.lines.append("\n".join(lines))  # a cell of its row

    def line(self) -> None:
        """End the line where a block begins or ends; a line break just before it shows nothing."""
        rows = "".join(self.run).split("\n")
        self.run.clear()
        self.words.append("\n")
        if not self.pre:
            rows = [_SPACES.sub(" ", row).strip(" ") for row in rows]
        self.frames[-1].put([row.rstrip(" ") for row in (rows if rows[-1] else rows[:-1])])


def plain_text(tokens: Iterable[Token]) -> tuple[str, str]:
    """Return the text, nothing where nothing can be seen; and its words without marks and addresses of links.

    Links are `label (address)`; items begin with `- `, quoted lines with `> `; ` | ` stands between cells; what is
    struck out stands between `~~`.
    """
    writer = _Writer()
    for token in tokens:
        writer.take(*token)
    writer.line()
    text = "\n".join(writer.frames[0].lines).strip("\n")
    return (f"{text}\n" if text.strip() else ""), "".join(writer.words)


MAX_HREF: Final = 2_000
SPACE: Final = "[ \t\n\f\r]"
ATTRIBUTE: Final = rf"""{SPACE}++([^ \t\n\f\r"'<>/=]++)(?:{SPACE}*+={SPACE}*+("[^"]*+"|'[^']*+'|[^ \t\n\f\r"'<>=`]++))?+"""
_ATTRIBUTES: Final = re.compile(ATTRIBUTE)
_REFERENCE: Final = re.compile("&(#?[A-Za-z0-9]++(?:;|(?!=)))")
_WEB: Final = re.compile(
    r"https?://(?:[\w.-]++|\[[0-9a-f:.]++\])(?::[0-9]{1,5}+)?+(?:[/?#]|\Z)", re.I
)
_REFUSED: Final = re.compile(r"""[\s\\<>"`\x00-\x20\x7f-\x9f]""")


def parse_href(attributes: str) -> str | None:
    """Return the address in the first `href` of a tag, None without one.

    Raises `Invalid` unless that is a whole http, https or mailto address that a reader sees as it is.
    """
    given = (value for name, value in _ATTRIBUTES.findall(attributes) if name.lower() == "href")
    if (value := next(given, None)) is None:
        return None
    bare = value[1:-1] if value[:1] in ('"', "'") else value
    href = _REFERENCE.sub(_character, bare).strip(" \t\n\f\r")
    long = f"A link has {len(href):,} characters; {MAX_HREF:,} is the most"
    mails = href[:7].lower() == "mailto:" and len(href) > 7
    plain = not _REFUSED.search(href) and not clean(href).removed
    relative = (
        f"The link {clean(href[:60]).text!r} is not an absolute http, https or mailto address"
    )
    whole = "Write the whole address, without a user name and spaces."
    raise_if(
        (len(href) > MAX_HREF, long, ""),
        (not plain or not (mails or _WEB.match(href)), relative, whole),
    )
    return href


def _character(found: re.Match[str]) -> str:
    """Return what a reference stands for; in an attribute, one without its end is often none."""
    return unescape(found[0]) if found[1] in html5 or found[1][0] == "#" else found[0]


MAX_HTML: Final = 200_000  # characters, of what is given and of what is written
MAX_TAGS: Final = 5_000
MAX_DEPTH: Final = 30

_DROPPED: Final = frozenset("html head body center meta span font small sub sup".split())
_ALLOWED: Final = BLOCKS | _DROPPED | frozenset("strong b em i u s a code br".split())
_VOID: Final = frozenset("br hr meta".split())
_NO_BLOCKS: Final = APART & frozenset("p pre h1 h2 h3 h4".split())
# What each of these holds: browsers move everything else out of a table, and close one item for the next.
_HOLDS: Final = {
    "table": ("thead", "tbody"), "thead": ("tr",), "tbody": ("tr",), "tr": ("th", "td"),
    "ul": ("li", "ul", "ol"), "ol": ("li", "ul", "ol"),
}  # fmt: skip
_HELD: Final = frozenset("thead tbody tr th td li".split())  # which stand nowhere else
_REMEDY: Final = (
    "Use only p br div strong b em i u s a[href] ul ol li blockquote pre code h1 h2 h3 h4 hr table thead tbody tr"
    " th td, each closed in its place; or send the text alone."
)
_WORD: Final = "([A-Za-z][^ \t\n\f\r/>]*+)"
_PIECE: Final = re.compile(  # text, a tag or a document type; else a sign that begins none of them
    rf"([^<]++)|<(?:/{_WORD}{SPACE}*+|{_WORD}((?:{ATTRIBUTE})*+){SPACE}*+(/?+))>|<!(?i:doctype)[^<>]*+>|<"
)
_NAME: Final = re.compile("</?+([A-Za-z][A-Za-z0-9:-]{0,30}+)")
_LONG_NUMBER: Final = re.compile("&#[xX]?[0-9a-fA-F]{9}")


class Reduced(NamedTuple):
    html: str  # as it is sent
    text: str  # the plain part
    words: str  # of both, without marks and addresses of links


def reduce_html(given: str) -> Reduced:
    """Return the HTML written anew and its plain text, or raise `Invalid`; what was written here comes back unchanged."""
    size = f"The HTML part has {len(given):,} characters; {MAX_HTML:,} is the most"
    number = "A character is written as a number of more than 8 digits"
    _check((len(given) > MAX_HTML, size), (_LONG_NUMBER.search(given), number))
    tokens = _Parser().read(given)
    text, words = plain_text(tokens)
    html = "".join(map(_written, tokens)) if text else ""
    _check((len(html) > MAX_HTML, f"The HTML part grows to more than {MAX_HTML:,} characters"))
    return Reduced(html, text, words)


class _Parser:
    def __init__(self) -> None:
        self.out: list[Token] = []
        self.stack: list[tuple[str, str]] = []  # the open tags: as given, and as written
        self.chars: list[str] = []  # text since the last tag that is written
        self.tags = 0

    def read(self, given: str) -> list[Token]:
        for found in _PIECE.finditer(given):
            text, end, name, attributes, _, _, slash = found.groups("")
            if text:
                self.chars.append(unescape(text))
            elif end:
                self._end(end.lower())
            elif name:
                self._start(name.lower(), attributes, slash)
            else:
                _check((found[0] == "<", _unreadable(given[found.start() : found.start() + 40])))
        self._close_implied()
        for name, _ in self.stack[-1:]:
            _check((True, f"<{name}> is not closed"))
        self._flush()
        return self.out

    def _parent(self) -> str:
        return next((name for _, name in reversed(self.stack) if name), "")

    def _start(self, name: str, attributes: str, slash: str) -> None:
        _check(
            (name not in _ALLOWED, f"<{clean(name[:30]).text}> is not allowed"),
            (slash and name not in _VOID, f"<{name}/> closes nothing"),
            (name == "a" and "a" in dict(self.stack), "<a> stands in another <a>"),
        )
        href = parse_href(attributes) if name == "a" else ""
        if name in _DROPPED or href is None:
            self._open(name, "")
            return
        self._flush()
        if name == "tr" and self._parent() == "table":
            self._open("", "tbody")
        elif name == "tbody":
            self._close_implied()
        self._check_place(name, self._parent())
        self._open(name, name, href)

    def _check_place(self, name: str, parent: str) -> None:
        lost = name in _HELD and name not in _HOLDS.get(parent, ())
        astray = lost or name not in _HOLDS.get(parent, (name,))
        where = f"in <{parent}> (is that closed?)" if parent else "outside of a table or list"
        outer = _NO_BLOCKS.intersection(name for _, name in self.stack)
        in_outer = f"<{name}> stands in <{min(outer, default='')}>, which holds no blocks"
        # Browsers draw a table's head above its rows, wherever it stands.
        late = name == "thead" and self.out[-1:] != [("table", "")]
        _check(
            (astray, f"<{name}> stands {where}"),
            (name in BLOCKS and outer, in_outer),
            (late, "<thead> does not come first in its <table>"),
        )

    def _open(self, given: str, name: str, href: str = "") -> None:
        self.tags += 1
        many = f"It has more than {MAX_TAGS:,} tags, or is deeper than {MAX_DEPTH}"
        _check((self.tags > MAX_TAGS or len(self.stack) >= MAX_DEPTH, many))
        self._write(given, name, href)
        if given not in _VOID:
            self.stack.append((given, name))

    def _write(self, given: str, name: str, href: str = "") -> None:
        if name:
            self.out.append((name, href))
        elif given in ("html", "head", "body", "center", "meta"):  # which part words
            self.chars.append("\n")

    def _end(self, name: str) -> None:
        self._close_implied()
        last = self.stack[-1][0] if self.stack else ""
        state = f"the open tag is <{last}>" if self.stack else "no tag is open"
        _check((name != last, f"</{clean(name[:30]).text}> closes nothing: {state}"))
        self._close()

    def _close_implied(self) -> None:
        if self.stack and not self.stack[-1][0]:
            self._close()

    def _close(self) -> None:
        if self.stack[-1][1]:
            self._flush()
        given, name = self.stack.pop()
        self._write(given, name and f"/{name}")

    def _flush(self) -> None:
        """Write the text since the last tag, decoded once and cleaned."""
        text = clean("".join(self.chars).replace("\f", " ")).text
        self.chars.clear()
        parent = self._parent()
        if parent in _HOLDS:
            stray = text.strip(" \t\n")
            _check((stray, f"Text stands in <{parent}> itself: {stray[:30]!r}"))
            return
        if self.out and self.out[-1][0] == "pre":
            text = text.lstrip("\n")  # browsers leave the first one out
        if text:
            self.out.append(("", text))


def _written(token: Token) -> str:
    name, value = token
    href = f' href="{escape(value)}"' if value else ""
    return f"<{name}{href}>" if name else escape(value, quote=False)


def _unreadable(rest: str) -> str:
    """Return why this, which begins with `<`, is not a tag."""
    if named := _NAME.match(rest):
        known = named[1].lower() in _ALLOWED
        return f"<{named[1]}> is not {'written as a whole tag' if known else 'allowed'}"
    comment = rest.startswith("<!--")
    return "A comment is not allowed" if comment else "A < begins no tag (write &lt;)"


def _check(*faults: tuple[object, str]) -> None:
    raise_if(*((is_so, f"The HTML is refused: {why}", _REMEDY) for is_so, why in faults))
