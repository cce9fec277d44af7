"""What acts when a note is merely opened: remote embeds, raw HTML, code that runs, template code.

Obsidian, its plugins and other programs read Markdown differently. So this does not ask what is code
by one parser's rules, but what every reader takes for code; where two could differ, it finds too much
rather than too little (docs/decisions/0012-markdown.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from itertools import zip_longest
from typing import NamedTuple
from urllib.parse import unquote

EMBED, HTML, RUNS, TEMPLATE = "a remote embed", "raw HTML", "code that runs", "template code"
MAX_TEXT = 60
RUNNING = "dataviewjs datacorejs datacorejsx datacorets datacoretsx js-engine meta-bind-js-view templater".split()
# Fences whose content is drawn: a label or a query in it may load an image.
DRAWN = "dataview datacore mermaid tasks query leaflet admonition embed cardlink vid plantuml kroki".split()

_RETURN = re.compile(r"\r\n?")
_HEAD = re.compile(r"\ufeff?---[ \t]*\n")
_HEAD_END = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.M)
# Some programs end a line at these, and CommonMark does not.
_ODD_BREAK = re.compile("[\x0b\x0c\x85\u2028\u2029]")
_FENCE = re.compile(r"([ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t>]++)*+)(`{3,}+|~{3,}+)(.*)", re.DOTALL)
_RUN = re.compile(r"(^[ \t>]*+)?(`{3,}+|~{3,}+)([^`~\n]*+)", re.M)
_LANGUAGE = re.compile(r"[\s{.\ufeff]*+([\w-]*+)")
_INLINE_CODE = re.compile(r"(?<!`)(`++)[\s>\ufeff]*+\$=.*?(?:(?<!`)\1(?!`)|\Z)", re.DOTALL)
_INLINE_QUERY = re.compile(r"(?<!`)(`++)[\s>\ufeff]*+=.*?(?:(?<!`)\1(?!`)|\Z)", re.DOTALL)
_LITERAL = re.compile(r"\"(?:[^\"\\\n]|\\.)*+\"?+|'(?:[^'\\\n]|\\.)*+'?+")
_PUT_TOGETHER = re.compile(r"[!\[<]|:/|//")  # of a text that a query shows as Markdown
_TEMPLATE = re.compile(r"<%.*?(?:%>|\Z)", re.DOTALL)
_ADDRESS = re.compile(r"[:\"'(]\s*+//")
_SPAN = re.compile(r"([^`]*+)(`++)(.*?)(?<!`)\2(?!`)", re.DOTALL)
# Mathematics, comments, wikilinks, escapes and autolinks may each swallow a backtick.
_CLOUD = re.compile(r"\$|%%|\[\[|\\`|<[^\s<>`]*+`[^\s<>]*+>|\A[ \t]*+>.*``")
# A link takes its target and its label as they are written, backticks and all, even over lines.
_OPEN_TARGET = re.compile(r"\](?:\((?![^()<>\"'`\\]*+\))|\[(?![^\[\]`\\]*+\]))")
_PUNCTUATION = r"[!-/:-@\[-`{-~]"
_EXEMPT = re.compile(
    rf"\\{_PUNCTUATION}"
    r"|<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>`\[\]\"'\\]*+>|<[\w.+-]++@[A-Za-z0-9.-]++>"
)
# Tags that only dress a word. Alone on its line, or in its item, a tag begins a block in which
# nothing is code.
_DRESS = re.compile(
    r"</?(?:b|br|del|em|i|ins|kbd|mark|s|small|strong|sub|sup|u|wbr)\s*+/?>", re.IGNORECASE
)
_HOLDERS = re.compile(r"[ \t>]*+(?:(?:[-*+:]|\d{1,9}[.)]|\[\^?[^\[\]]*+\]:?)[ \t>]++)*+")
_WORDS = re.compile(r"[^\W_]")
_ESCAPE = re.compile(rf"\\({_PUNCTUATION})")
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_TAG = re.compile(
    r"<(script|style|textarea|pre)\b.*?(?:</\1|\Z)"
    r"|</?[A-Za-z](?:\"[^\"<]*+\"|'[^'<]*+'|[^<>\n]|\n(?![ \t]*+\n))*+>?|<[!?][^\n<]*+",
    re.IGNORECASE | re.DOTALL,
)
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.)*+)\]", re.DOTALL)
_TARGET = re.compile(r"[\s>]*+(?:<[^<>\n]*+|(?:(?!!\[|\]\()[^\s<])*+)")
# An image in which every reader sees the same brackets, or one that is not so sure.
_IMAGE = re.compile(
    r"(?P<blank>\n[ \t]*+(?=\n))"
    r"|!\[\[(?P<wiki>[^\[\]\n]*+)\]\](?![(\[])"
    r"|!\[(?:[^\[\]`<$%\n]|%(?!%))*+\]\((?P<plain>(?:[^()\[\]`<>$%\n]|%(?!%))*+)\)"
    r"|(?P<open>!\[)|\](?P<next>[(\[])"
)
_UNSURE = re.compile(r"%%|\$\$")
_FUNCTION = re.compile(r"\bfunction\b", re.IGNORECASE)
_NUMBER = re.compile(r"&#\d{8,}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_REMOTE = re.compile(r"[\s<>\ufeff]*+(?:[A-Za-z][A-Za-z0-9+.-]*+:|[/\\]{2})")


class Active(NamedTuple):
    """One thing that acts, and where it stands."""

    line: int  # an index, while they are collected
    kind: str
    source: str  # up to where it ends, so that no part of it is changed unnoticed

    @property
    def text(self) -> str:
        """The beginning of it, on one line."""
        text, _, target = self.source[:999].partition("\0")
        text = text if target in text else text + target
        return " ".join(text.split())[:MAX_TEXT]


def added(before: str, after: str) -> Active | None:
    """Return the first thing that acts in `after` and did not in `before`; moved is not added."""
    had = Counter(finding[1:] for finding in _find_all(before))
    for finding in _find_all(after):
        had[finding[1:]] -= 1
        if had[finding[1:]] < 0:
            return finding
    return None


def _find_all(text: str) -> Iterator[Active]:
    text = _RETURN.sub("\n", text)
    body, sure = 0, not _ODD_BREAK.search(text)
    if opening := _HEAD.match(text):
        closing = _HEAD_END.search(text, opening.end())
        # Only where it is written exactly so do all readers see the same frontmatter.
        if opening[0] == "---\n" and closing and closing[0] == "---":
            body = closing.end()
        else:
            sure = False
    raw = text[body:]
    masked = "\n".join(_mask_code(raw, sure=sure))
    findings = [Active(at + body, *rest) for at, *rest in (*_running(raw), *_embeds(raw, masked))]
    tags = (tag.span() for tag in _TAG.finditer(masked))
    findings += [Active(start + body, HTML, raw[start:end]) for start, end in tags]
    # Some plugins show a field's text as Markdown.
    findings += _embeds(text[:body], text[:body])
    findings += [Active(m.start(), TEMPLATE, m[0]) for m in _TEMPLATE.finditer(text)]
    line, last = 1, 0
    for each in sorted(findings):
        line, last = line + text.count("\n", last, each.line), each.line
        yield each._replace(line=line)


def _mask_code(raw: str, *, sure: bool) -> Iterator[str]:
    """Yield each line, with a dot for every character that every reader takes for code or escaped.

    Where two readers could differ on what is code, nothing is from there on.
    """
    fence, doubt = None, False
    for line in raw.split("\n"):
        mark = _FENCE.match(line) if sure else None
        if not sure:
            masked = line
        elif fence:
            prefix, run, code = fence
            masked = "." * len(line) if code else _BREAK.sub(_dots, line)
            if mark and mark[2].startswith(run) and not mark[3].strip(" \t"):
                fence, sure = None, mark[1] == prefix
            elif not line.startswith(prefix):  # a list or a quote that ends takes its fence along
                sure = line.strip(" \t") == prefix.strip(" \t")
        elif mark:
            prefix, masked = re.sub(r"[^ \t>]", " ", mark[1]), line
            code = mark[1] in ("", " ", "  ", "   ") and not _drawn(_language(mark[3]))
            fence, sure = (prefix, mark[2], code), not re.search("[`~|]", mark[3])
        else:
            # No span of code goes on past a blank line.
            masked, doubt = _without_spans(line, doubt=doubt and line.strip(" \t") != "")
            masked = _EXEMPT.sub(_dots, masked)
            dressed = _DRESS.sub(_dots, masked)
            masked = dressed if _WORDS.search(_HOLDERS.sub("", dressed)) else masked
        sure = sure and not _UNSURE.search(masked) and not _TAG.search(masked)
        yield masked if sure else line


def _without_spans(line: str, *, doubt: bool) -> tuple[str, bool]:
    """Return the line with dots for code, and whether a backtick of it may pair with a later one."""
    doubt = doubt or _OPEN_TARGET.search(line) is not None
    if doubt or "`" not in line or _CLOUD.search(line):
        return line, doubt or "`" in line
    masked, at = [], 0
    while (span := _SPAN.match(line, at)) and "|" not in span[3]:  # a table's cell ends there
        masked += [span[1], "." * (span.end() - span.end(1))]
        at = span.end()
    return "".join(masked) + line[at:], "`" in line[at:]


def _dots(found: re.Match[str]) -> str:
    return "." * len(found[0])


def _running(raw: str) -> Iterator[Active]:
    """Yield the spans and fences whose code runs, and the drawings that reach out."""
    for span in _INLINE_CODE.finditer(raw):
        yield Active(span.start(), RUNS, span[0])
    for span in _INLINE_QUERY.finditer(raw):
        if _shows(span[0]):
            yield Active(span.start(), EMBED, span[0])
    fences = list(_RUN.finditer(raw))
    drawn, run, end = "", "", 0
    for fence, after in zip_longest(fences, fences[1:]):
        word, start = _language(fence[3]), fence.start(2)
        stop = after.start() if after else len(raw)
        if _drawn(word):
            drawn, run = word, fence[2]
        elif fence[1] is not None and fence[2].startswith(run) and not fence[3].strip(" \t"):
            drawn = ""
        shows = drawn in ("dataview", "datacore") and _shows(raw[fence.end() : stop])
        if drawn and (shows or _ADDRESS.search(raw, fence.end(), stop)):
            yield Active(start, EMBED, raw[start:stop])
        if drawn == "tasks" and _FUNCTION.search(raw, fence.end(), stop):
            yield Active(start, RUNS, raw[start:stop])
        if word in RUNNING and start >= end:
            closing = re.compile(rf"^[ \t>]*+{fence[2]}{fence[2][0]}*+[ \t]*+$", re.M)
            close = closing.search(raw, fence.end())
            end = close.end() if close else len(raw)
            yield Active(start, RUNS, raw[start:end])


def _shows(query: str) -> bool:
    """Whether a query has a text in it that may become an image."""
    return any(_PUT_TOGETHER.search(literal) for literal in _LITERAL.findall(query))


def _drawn(word: str) -> bool:
    return word in DRAWN or word.startswith("ad-")


def _language(info: str) -> str:
    word = _LANGUAGE.match(_decoded(info))
    return word[1].lower() if word else ""


def _embeds(raw: str, masked: str) -> Iterator[Active]:
    """Yield the images that come from elsewhere, and the definitions that send them there."""
    defined = _definitions(raw)
    used: set[str] = set()
    opened: list[int] = []
    for found in _IMAGE.finditer(masked):
        group, (start, end), target = found.lastgroup or "", found.span(), ""
        label = _LABEL.match(raw, start + 1)
        if group == "blank":
            opened.clear()
        elif group == "open":
            opened.append(start)
        elif group != "next":
            target = raw[slice(*found.span(group))]
        # Brackets in code, titles and mathematics are counted differently by each reader:
        # where an image may be open, the next remote target is taken for its own.
        elif opened:
            start, target = opened[-1], _target(raw, end) if found[0] == "](" else ""
        else:
            continue
        if label and (key := _key(label[1])) in defined:
            used.add(key)
            target = label[0]
        elif not _remote(target):
            continue
        # An open image may be long, and many may end in one place.
        yield Active(start, EMBED, f"{raw[start : min(end, start + MAX_TEXT)]}\0{target}")
        if group == "next":
            opened.pop()
    for key in used:
        yield from defined[key]


def _definitions(raw: str) -> dict[str, list[Active]]:
    defined: dict[str, list[Active]] = {}
    for label in _LABEL.finditer(raw):
        if raw.startswith(":", label.end()) and _remote(target := _target(raw, label.end() + 1)):
            found = Active(label.start(), EMBED, f"{label[0]}:{target}")
            defined.setdefault(_key(label[1]), []).append(found)
    return defined


def _key(label: str) -> str:
    return re.sub(r"[\s>]+", "", label).casefold().upper()


def _target(raw: str, at: int) -> str:
    target = _TARGET.match(raw, at)
    return target[0] if target else ""


def _remote(target: str) -> bool:
    """Whether a browser would look elsewhere; it drops control characters, and turns slashes."""
    spellings = (target, _decoded(target), unquote(_decoded(target)))
    return any(_REMOTE.match(_CONTROL.sub("", each)) for each in spellings)


def _decoded(text: str) -> str:
    # CommonMark reads up to seven digits; Python refuses to read thousands.
    return unescape(_NUMBER.sub("", _ESCAPE.sub(r"\1", text)))
