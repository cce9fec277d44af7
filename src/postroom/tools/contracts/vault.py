"""The contract `vault`: notes in a vault of Markdown files, for clients written from document 003.

The models have the document's names. Additions are optional for clients: etags, parts of long notes, cursors, totals,
and the tool `edit_note`.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from postroom.core.errors import Invalid
from postroom.core.mail_view import cut
from postroom.core.text import clean
from postroom.services.note_search import NoteSearch
from postroom.services.notebook import NoteVersion
from postroom.tools import table
from postroom.tools.documents import mcp_refusal
from postroom.vault.edit import Edit
from postroom.vault.index import snippet, terms
from postroom.vault.keeper import Progress
from postroom.vault.note import Typed

if TYPE_CHECKING:
    from pydantic import Field

    from postroom.tools.models import (
        Body,
        Etag,
        Folder,
        Frontmatter,
        Query,
        Replacement,
        ShortText,
    )

MAX_SHOWN: Final = 50_000  # characters of a note's text in one answer
MAX_LIST: Final = 8_000  # bytes of an answer with a list, its text and its values together
LIST_FRAME: Final = 700  # of these bytes, for everything but the notes
PAGE_SIZE: Final = 60  # notes in one query of the index
NO_FIELDS: Final = dict[str, Any]()
NO_KEYS: Final = list[str]()
MAX_NAMES: Final = 20  # results of a search, and names in any other list of an answer
POLL_INTERVAL: Final = 0.1  # seconds between two tests whether the index is ready

PREFIX_HINT: Final = "No note has these words: these have words that begin so."
EMPTY_HINT: Final = "No note has these words. Fewer words, begin*, or a OR b find more."


class NoteContent(table.Fenced):
    path: str
    frontmatter: dict[str, Any]
    body: str
    end: str = ""
    etag: str
    next_offset: int = 0
    total_chars: int = 0
    hidden_chars: int = 0
    letter: str = ""
    hint: str = ""


class NoteWritten(table.Result):
    """A note that was changed; `letter` is the id of the letter that it became, if it was a draft."""

    path: str
    etag: str
    letter: str = ""
    hint: str = ""


class NoteMatch(table.Result):
    path: str
    snippet: str | None = None


class NoteList(table.Fenced):
    notes: tuple[NoteMatch, ...]
    folders: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    end: str = ""
    total: int
    cursor: str = ""
    hint: str = ""


class NoteMoved(table.Result):
    moved: bool
    fence: str = ""
    path: str = ""
    rewritten: tuple[str, ...] = ()
    ambiguous: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    end: str = ""
    links: int = 0


def read_note(
    context: table.ToolContext,
    *,
    path: Annotated[ShortText, 'vault-relative path, e.g. "Needs_Action/email-001.md"'],
    offset: Annotated[int, Field(ge=0)] = 0,
    raw: Annotated[bool, "the whole text, unparsed"] = False,
    max_chars: Annotated[int, Field(ge=200, le=200_000)] = MAX_SHOWN,
) -> table.Result:
    """Read a note; long text in windows: go on with offset=next_offset."""
    version = context.services.notebook.read(context.call, path, raw=raw)
    return _content(context, version, offset, max_chars, raw=raw)


def write_note(
    context: table.ToolContext,
    *,
    path: Annotated[ShortText, "vault-relative path (created if not exists)"],
    frontmatter: Annotated[Frontmatter, "YAML key-value pairs"] = None,
    body: Annotated[Body, "markdown body content"],
    if_match: Etag = "",
) -> table.Result:
    """Make a note, or replace one that you have read; without frontmatter it keeps its own."""
    version = context.services.notebook.write(context.call, path, frontmatter, body, if_match)
    return _content(context, version, 0, max(MAX_SHOWN, len(body) + 1))


def edit_note(
    context: table.ToolContext,
    *,
    path: ShortText,
    append: Body = "",
    prepend: Body = "",
    find: Annotated[Body, "text that stands there once; replace it"] = "",
    replace: Replacement = None,
    heading: Annotated[ShortText, "only in its part, with subheadings"] = "",
    set: Annotated[dict[str, Any], "frontmatter"] = NO_FIELDS,  # noqa: A002
    remove: Annotated[list[str], Field(max_length=100), "frontmatter keys"] = NO_KEYS,
    if_match: Etag = "",
) -> table.Result:
    """Change a part of a note that you have read, all at once."""
    edit = Edit(
        append=append,
        prepend=prepend,
        find=find,
        replace=replace,
        heading=heading,
        set=set,
        remove=remove,
    )
    version = context.services.notebook.edit(context.call, path, edit, if_match)
    return NoteWritten(
        path=version.path, etag=version.etag, letter=version.letter, hint=version.hint
    )


def list_notes(
    context: table.ToolContext,
    *,
    directory: Annotated[Folder, 'vault-relative directory, e.g. "Needs_Action"'] = "",
    filter: Annotated[  # noqa: A002
        Query | None, 'frontmatter filter, e.g. "status:pending AND tags:work"'
    ] = None,
    cursor: Query = "",
) -> table.Waiting:
    """List the notes of a folder and all below it, by path; cursor leads on.

    filter: field:value, joined by AND; a list matches by any value.
    """
    finder = context.services.notebook.finder
    yield from _wait_until_ready(context, finder)
    start = _decode_cursor(cursor)
    page = finder.list(context.call, directory, filter or "", limit=PAGE_SIZE, after=start)
    notes = tuple(_fitting(NoteMatch(path=path) for path in page.matches))
    has_more = len(notes) < len(page.matches) or len(page.matches) == PAGE_SIZE
    is_plain = not (start or filter)  # the first page of a whole folder
    return NoteList(
        notes=notes,
        folders=tuple(page.folders) if is_plain else (),
        unreadable=tuple(cut(path, 200) for path in page.unreadable) if is_plain else (),
        total=page.total,
        cursor=_encode_cursor(notes[-1].path) if notes and has_more else "",
    )


def move_note(
    context: table.ToolContext,
    *,
    source: Annotated[ShortText, "vault-relative source path"],
    destination: Annotated[ShortText, "vault-relative destination path"],
) -> table.Waiting:
    """Give a note another path; links to it in other notes are rewritten."""
    book = context.services.notebook
    yield from _wait_until_ready(context, book.finder)
    moving = book.mover.move(context.call, source, destination)
    result = yield from table.waiting_for(moving, _rewriting)
    return NoteMoved(
        moved=True,
        path=result.path,
        rewritten=_shorten(result.links),
        ambiguous=_shorten(
            f"{path}: {', '.join(cut(target, 60) for target in targets[:3])}"
            for path, targets in result.ambiguous.items()
        ),
        untouched=_shorten(result.untouched),
        links=sum(result.links.values()),
    )


def search_notes(
    context: table.ToolContext,
    *,
    query: Annotated[ShortText, "text to search for in note body or frontmatter values"],
    cursor: Query = "",
) -> table.Waiting:
    """Find notes by their words, the best first; cursor leads on.

    "a phrase", begin*, -without, a OR b; title: tag: heading: field: link: look there alone.
    """
    finder = context.services.notebook.finder
    offset = int(cursor) if re.fullmatch("[0-9]{1,9}", cursor, re.ASCII) else 0
    if cursor and str(offset) != cursor:
        raise _no_cursor()
    yield from _wait_until_ready(context, finder)
    page = finder.search(context.call, query, limit=MAX_NAMES, offset=offset)
    words = terms(query)
    notes = tuple(
        _fitting(
            NoteMatch(path=path, snippet=snippet(note, words) if note else "")
            for path, note in page.matches.items()
        )
    )
    end = offset + len(notes)
    return NoteList(
        notes=notes,
        total=page.total,
        cursor=str(end) if notes and end < page.total else "",
        hint=PREFIX_HINT if page.by_prefix else "" if page.total else EMPTY_HINT,
    )


def _encode_cursor(path: str) -> str:
    """Return a path as a cursor, encoded: a path may hold words of others, and a cursor is shown outside the fence."""
    return urlsafe_b64encode(path.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError:
        raise _no_cursor() from None


def _no_cursor() -> Invalid:
    return Invalid("This is not a cursor of this tool", remedy="Begin without one.")


def _content(
    context: table.ToolContext, version: NoteVersion, offset: int, most: int, *, raw: bool = False
) -> NoteContent:
    note, hidden = version.note, 0

    def cleaned(text: str) -> str:
        nonlocal hidden
        result = clean(text)
        hidden += result.removed
        return result.text

    end = offset + most
    body = cleaned(note.body[offset:end])
    fields = _map_texts(note.values, cleaned)
    assert isinstance(fields, dict)
    # An agent may replace only a note that it has seen whole and unchanged; `raw` shows it as one text, for edits.
    whole = offset == 0 and len(note.body) <= most and not hidden and not raw
    return NoteContent(
        path=version.path,
        frontmatter=fields,
        body=body,
        etag=context.services.notebook.remember(context.call, version, whole=whole),
        next_offset=end if end < len(note.body) else 0,
        total_chars=0 if whole else len(note.body),
        hidden_chars=hidden,
        letter=version.letter,
        hint=version.hint,
    )


def _map_texts(value: Typed, change: Callable[[str], str]) -> Typed:
    if isinstance(value, dict):
        return {change(key): _map_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_map_texts(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def _wait_until_ready(
    context: table.ToolContext, finder: NoteSearch
) -> Generator[table.Pause, None, None]:
    for progress in finder.wait_until_ready(context.call):
        yield table.Wait(POLL_INTERVAL, *progress, "Indexing the vault")


def _rewriting(progress: Progress) -> table.Wait:
    return table.Wait(0.0 if progress.total else POLL_INTERVAL, *progress, "Rewriting links")


def _fitting(matches: Iterable[NoteMatch]) -> Iterator[NoteMatch]:
    """Yield as many notes as fit into one answer, and at least one."""
    room = MAX_LIST - LIST_FRAME
    for number, match in enumerate(matches):
        item = json.dumps(table.dump(match), ensure_ascii=False)
        # The answer has each note twice: as a value, and in a JSON text, where quotes and backslashes are escaped.
        room -= 2 * len(item.encode()) + item.count('"') + item.count("\\") + 4
        if room < 0 and number:
            return
        yield match


def _shorten(names: Iterable[str]) -> tuple[str, ...]:
    every = list(names)
    more = (f"and {len(every) - MAX_NAMES} more",) if len(every) > MAX_NAMES else ()
    return (*(cut(name, 160) for name in every[:MAX_NAMES]), *more)


_row: Final = partial(table.Tool, actor="vault")
TOOLS: Final = (
    _row(read_note, "Read a note", NoteContent, table.READS),
    _row(write_note, "Write a note", NoteContent, table.REPLACES),
    _row(edit_note, "Edit a note", NoteWritten, table.REMOVES),
    _row(list_notes, "List notes", NoteList, table.READS),
    _row(move_note, "Move a note", NoteMoved, table.REMOVES),
    _row(search_notes, "Search notes", NoteList, table.READS),
)
CONTRACT: Final = table.Contract(name="vault", tools=TOOLS, accounts=False, refuse=mcp_refusal)
