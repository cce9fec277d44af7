"""The contract of the server `all`: mail, notes and messages between agents. Text of others is fenced."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from postroom.tools import table
from postroom.tools.answers import fenced_reply, hidden_text, more_text
from postroom.tools.contracts import postroom, vault
from postroom.tools.contracts.agents import MESSAGE_TOOLS

_json: Final = partial(json.dumps, ensure_ascii=False)


def _content(note: vault.NoteContent) -> table.Reply:
    fields = [f"{_json(key)}: {_json(value)}" for key, value in note.frontmatter.items()]
    text = "\n".join([note.path, *fields, "", note.body])
    head = f"etag {note.etag}. The path, the frontmatter, an empty line, and the body:"
    tail = [more_text(note.next_offset, note.total_chars), hidden_text(note.hidden_chars)]
    return fenced_reply(note, head, text, tail)


def _list(page: vault.NoteList) -> table.Reply:
    rows = [f"{note.path} | {note.snippet}" if note.snippet else note.path for note in page.notes]
    rows += [f"Folder: {name}/" for name in page.folders]
    rows += [f"Not readable: {path}" for path in page.unreadable]
    count = f"{len(page.notes)} of {page.total} notes." if page.total else "No note."
    more = f"More: cursor={page.cursor}" if page.cursor else ""
    return fenced_reply(page, count, "\n".join(rows), [page.hint, more])


def _moved(move: vault.NoteMoved) -> table.Reply:
    rows = [f"Now: {move.path}"]
    rows += [f"Links rewritten in {path}" for path in move.rewritten]
    rows += [f"Ambiguous, left as it is, in {note}" for note in move.ambiguous]
    rows += [f"Not for tools, left as it is: {path}" for path in move.untouched]
    head = f"Moved. {move.links} links were rewritten."
    return fenced_reply(move, head, "\n".join(rows))


def _written(note: vault.NoteContent | vault.NoteWritten) -> table.Reply:
    """Return the path and etag of a note that was written, without its text, which the agent has just sent."""
    result = vault.NoteWritten(path=note.path, etag=note.etag, letter=note.letter, hint=note.hint)
    return table.Reply(f"Written. etag {result.etag}. {result.hint}".rstrip(), result)


SHAPES: Final[Mapping[str, Callable[..., table.Reply]]] = {
    "read_note": _content,
    "write_note": _written,
    "edit_note": _written,
    "list_notes": _list,
    "move_note": _moved,
    "search_notes": _list,
}
NOTE_TOOLS: Final = tuple(
    tool._replace(
        shape=SHAPES[tool.name],
        result=vault.NoteWritten if tool.name == "write_note" else tool.result,
    )
    for tool in vault.TOOLS
)
CONTRACT: Final = table.Contract(
    name="all",
    tools=(*postroom.TOOLS, *NOTE_TOOLS, *MESSAGE_TOOLS),
    resources=postroom.CONTRACT.resources,
)
