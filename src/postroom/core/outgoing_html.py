"""The HTML that a letter may have: a strict subset, parsed and written anew, with the plain text made from it.

What a recipient sees is what the person was shown: nothing of the given markup is passed on, every word of the
result is in its plain text, and both have the same order. What the subset has no place for is refused by name.
"""

from __future__ import annotations

import re
from html import escape, unescape
from html.entities import html5
from typing import Final, NamedTuple

from postroom.core.errors import Invalid
from postroom.core.text import clean

MAX_HTML: Final = 200_000  # characters, of what is given and of what is written
MAX_TAGS: Final = 5_000
MAX_DEPTH: Final = 30
MAX_HREF: Final = 2_000

_INLINE: Final = frozenset("strong b em i u s a code br".split())
_APART: Final = frozenset("p h1 h2 h3 h4 blockquote pre ul ol table hr".split())  # by a blank line
_BLOCKS: Final = _APART | frozenset("div li thead tbody tr th td".split())
_BREAKS: Final = frozenset("html head body center meta".split())
_DROPPED: Final = _BREAKS | frozenset("span font small sub sup".split())
_ALLOWED: Final = _INLINE | _BLOCKS | _DROPPED
_VOID: Final = frozenset("br hr meta".split())
_ONLY_INLINE: Final = frozenset("p pre h1 h2 h3 h4".split())
# What may stand in these, and where these may stand: browsers move everything else elsewhere.
_HOLDS: Final = {
    "table": ("thead", "tbody"), "thead": ("tr",), "tbody": ("tr",), "tr": ("th", "td"),
    "ul": ("li", "ul", "ol"), "ol": ("li", "ul", "ol"),
}  # fmt: skip
_PLACED: Final = frozenset("thead tbody tr th td li".split())
_FRAMES: Final = frozenset("blockquote li tr th td".split())
_REMEDY: Final = (
    "Use only p br div strong b em i u s a[href] ul ol li blockquote pre code h1 h2 h3 h4 hr table thead tbody tr"
    " th td, each closed in its place; or send the text alone."
)
_SPACE: Final = "[ \t\n\f\r]"
_ATTRIBUTE: Final = rf"""{_SPACE}++([^ \t\n\f\r"'<>/=]++)(?:{_SPACE}*+={_SPACE}*+("[^"]*+"|'[^']*+'|[^ \t\n\f\r"'<>=`]++))?+"""
_TAG: Final = re.compile(
    rf"<(?:(/)([A-Za-z][^ \t\n\f\r/>]*+){_SPACE}*+|([A-Za-z][^ \t\n\f\r/>]*+)((?:{_ATTRIBUTE})*+){_SPACE}*+(/?+))>"
)
_ATTRIBUTES: Final = re.compile(_ATTRIBUTE)
_DOCTYPE: Final = re.compile("<!doctype[^<>]*+>", re.IGNORECASE)
_NAME: Final = re.compile("</?+([A-Za-z][A-Za-z0-9:-]{0,30}+)")
_LONG_NUMBER: Final = re.compile("&#[xX]?[0-9a-fA-F]{9}")
_REFERENCE: Final = re.compile("&(#?[A-Za-z0-9]++)(;?+)(?!=)")
_SPACES: Final = re.compile("[ \t\n\f\r]++")
_WEB: Final = re.compile(
    r"https?://(?:[\w.-]++|\[[0-9a-f:.]++\])(?::[0-9]{1,5}+)?+(?:[/?#]|\Z)", re.I
)
_NOT_IN_HREF: Final = re.compile(r"""[\s\\<>"`\x00-\x20\x7f-\x9f]""")


class Reduced(NamedTuple):
    """A letter's HTML part as it is sent, its plain part, and the words of both without marks and addresses of links."""

    html: str
    text: str
    words: str


class _Frame:
    """The plain lines of one block that is set off from what is around it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.blank = False  # whether an empty line comes before the next

    def put(self, rows: list[str]) -> None:
        if rows:
            self.lines += [""] if self.blank and self.lines else []
            self.lines += rows
            self.blank = False


class _Reducer:
    """Reads the given HTML once, and writes both parts."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.stack: list[tuple[str, str]] = []  # the open tags: as given, and as written
        self.open: list[str] = []  # those that are written
        self.links: list[tuple[str, int]] = []  # the open link, and where its label begins
        self.chars: list[str] = []  # text since the last tag that is written
        self.run: list[str] = []  # plain text since the last line
        self.words: list[str] = []
        self.frames = [_Frame()]
        self.tags = 0

    def read(self, given: str) -> Reduced:
        at = 0
        while at < len(given):
            sign = given.find("<", at)
            sign = len(given) if sign < 0 else sign
            self.chars.append(unescape(given[at:sign]))
            at = sign
            if found := _TAG.match(given, at):
                if found[1]:
                    self._end(found[2].lower())
                else:
                    self._start(found[3].lower(), found[4], found[7])
                at = found.end()
            elif found := _DOCTYPE.match(given, at):
                at = found.end()
            elif at < len(given):
                raise _unreadable(given[at : at + 40])
        self._close_implied()
        if self.stack:
            raise _refused(f"<{self.stack[-1][0]}> is not closed")
        self._flush()
        self._line()
        text = "\n".join(self.frames[0].lines).strip("\n")
        html = "".join(self.out) if text.strip() else ""
        if len(html) > MAX_HTML:
            raise _refused(f"The HTML part grows to more than {MAX_HTML:,} characters")
        return Reduced(html, f"{text}\n" if html else "", "".join(self.words))

    def _start(self, name: str, attributes: str, slash: str) -> None:
        if name not in _ALLOWED:
            raise _refused(f"<{name[:30]}> is not allowed")
        if slash and name not in _VOID:
            raise _refused(f"<{name}/> closes nothing")
        href = _href(attributes) if name == "a" else ""
        if name == "a" and any(given == "a" for given, _ in self.stack):
            raise _refused("<a> stands in another <a>")
        if name in _DROPPED or href is None:
            self.chars += ["\n"] if name in _BREAKS else []
            self._open(name, "")
            return
        self._flush()
        if name == "tr" and self.open[-1:] == ["table"]:
            self._open("", "tbody")
        elif name == "tbody":
            self._close_implied()
        self._check_place(name)
        if name == "a":
            self.links.append((href, len(self.words)))
        self._open(name, name, f' href="{escape(href)}"' if href else "")

    def _check_place(self, name: str) -> None:
        parent = self.open[-1] if self.open else ""
        misplaced = name in _PLACED and name not in _HOLDS.get(parent, ())
        if misplaced or (parent in _HOLDS and name not in _HOLDS[parent]):
            raise _refused(f"<{name}> stands in {f'<{parent}>' if parent else 'no table or list'}")
        if name in _BLOCKS and (outer := _ONLY_INLINE.intersection(self.open)):
            raise _refused(f"<{name}> stands in <{min(outer)}>, which holds no blocks")
        # Browsers draw a table's head above its rows, wherever it stands.
        if name == "thead" and self.out[-1] != "<table>":
            raise _refused("<thead> does not come first in its <table>")

    def _open(self, given: str, name: str, href: str = "") -> None:
        self.tags += 1
        if self.tags > MAX_TAGS:
            raise _refused(f"The HTML part has more than {MAX_TAGS:,} tags")
        if name:
            self.out.append(f"<{name}{href}>")
        if name in _BLOCKS:
            self._line(blank=name in _APART)
        if name in _FRAMES:
            self.frames.append(_Frame())
        if name == "br":
            self.run.append("\n")
            self.words.append("\n")
        elif name == "hr":
            self.frames[-1].put(["---"])
            self.frames[-1].blank = True
        if given in _VOID:
            return
        self.stack.append((given, name))
        self.open += [name] if name else []
        if len(self.stack) > MAX_DEPTH:
            raise _refused(f"The HTML part is nested deeper than {MAX_DEPTH} tags")

    def _end(self, name: str) -> None:
        self._close_implied()
        if not self.stack or self.stack[-1][0] != name:
            last = f"the open tag is <{self.stack[-1][0]}>" if self.stack else "no tag is open"
            raise _refused(f"</{name[:30]}> closes nothing: {last}")
        self._close()

    def _close_implied(self) -> None:
        if self.stack and not self.stack[-1][0]:
            self._close()

    def _close(self) -> None:
        given, name = self.stack.pop()
        if not name:
            self.chars += ["\n"] if given in _BREAKS else []
            return
        self._flush()
        self.out.append(f"</{name}>")
        if name == "a":
            href, begin = self.links.pop()
            label = _SPACES.sub(" ", "".join(self.words[begin:])).strip(" ")
            self.run += [] if label in (href, href.removeprefix("mailto:")) else [f" ({href})"]
        if name in _BLOCKS:
            self._line(blank=name in _APART)
        if name in _FRAMES:
            self._close_frame(name)
        self.open.pop()

    def _close_frame(self, name: str) -> None:
        lines, outer = self.frames.pop().lines, self.frames[-1]
        if name == "blockquote":
            outer.put([f"> {row}".rstrip(" ") for row in lines])
        elif name == "li":
            outer.put([f"{'  ' if at else '- '}{row}".rstrip(" ") for at, row in enumerate(lines)])
        elif name == "tr":
            outer.put(" | ".join(lines).split("\n") if any(lines) else [])
        else:
            outer.lines.append("\n".join(lines))
        outer.blank = name == "blockquote"

    def _flush(self) -> None:
        """Write the text since the last tag: decoded once, cleaned, and escaped again."""
        text = clean("".join(self.chars).replace("\f", " ")).text
        self.chars.clear()
        parent = self.open[-1] if self.open else ""
        if parent in _HOLDS:
            if stray := text.strip(" \t\n"):
                raise _refused(f"Text stands in <{parent}> itself: {stray[:30]!r}")
            return
        if self.out and self.out[-1] == "<pre>":
            text = text.lstrip("\n")  # browsers leave the first one out
        if text:
            self.out.append(escape(text, quote=False))
            self.run.append(text if "pre" in self.open else _SPACES.sub(" ", text))
            self.words.append(self.run[-1])

    def _line(self, *, blank: bool = False) -> None:
        """End the plain line where a block begins or ends."""
        text, frame = "".join(self.run), self.frames[-1]
        self.run.clear()
        self.words.append("\n")
        rows = text.split("\n")
        if "pre" not in self.open:
            rows = [_SPACES.sub(" ", row).strip(" ") for row in rows]
        frame.put([row.rstrip(" ") for row in (rows if rows[-1] else rows[:-1])])
        frame.blank |= blank and self.open[-1:] != ["li"]


def reduce_html(given: str) -> Reduced:
    """Return the HTML written anew and the plain text made from it; `Invalid` names what is refused.

    What was written here comes back unchanged.
    """
    if len(given) > MAX_HTML:
        raise _refused(f"The HTML part has {len(given):,} characters; {MAX_HTML:,} is the most")
    if _LONG_NUMBER.search(given):
        raise _refused("A character is written as a number of more than 8 digits")
    return _Reducer().read(given)


def is_reduced(html: str, text: str) -> bool:
    """Whether these two parts of a letter were made by `reduce_html`; a letter without HTML always is."""
    if not html:
        return True
    try:
        return reduce_html(html)[:2] == (html, text)
    except Invalid:
        return False


def _href(attributes: str) -> str | None:
    """Return where a link leads, None where it names no place; the first `href` counts."""
    for name, value in _ATTRIBUTES.findall(attributes):
        if name.lower() == "href":
            bare = value[1:-1] if value[:1] in "\"'" else value
            href = _REFERENCE.sub(_character, bare).strip(" \t\n\f\r")
            break
    else:
        return None
    if len(href) > MAX_HREF:
        raise _refused(f"A link has {len(href):,} characters; {MAX_HREF:,} is the most")
    mails = href[:7].lower() == "mailto:" and len(href) > 7
    if not (mails or _WEB.match(href)) or _NOT_IN_HREF.search(href) or clean(href).removed:
        shown = clean(href[:60]).text
        raise _refused(f"The link {shown!r} is no absolute http, https or mailto address")
    return href


def _character(found: re.Match[str]) -> str:
    """Return what a reference in an attribute stands for: there, one without its end is often none."""
    name = f"{found[1]}{found[2]}"
    return unescape(found[0]) if name in html5 or name.startswith("#") else found[0]


def _unreadable(rest: str) -> Invalid:
    if rest.startswith("<!--"):
        return _refused("A comment is not allowed")
    if named := _NAME.match(rest):
        tag = named[1].lower()
        return _refused(
            f"<{tag}> is not {'written as a whole tag' if tag in _ALLOWED else 'allowed'}"
        )
    return _refused("A < begins no tag (a sign is written &lt;)")


def _refused(why: str) -> Invalid:
    return Invalid(f"The HTML is refused: {why}", remedy=_REMEDY)
