"""The contract of the server `all`: mail, notes and agents, what others wrote between two marks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from postroom.tools.answers import fenced_reply, hidden_text, more_text
from postroom.tools.contracts import messages, postroom, vault
from postroom.tools.table import Contract, Reply, Result, Tool

INSTRUCTIONS: Final = (
    f"{postroom.INSTRUCTIONS} The vault tools keep notes in the person's Markdown vault: read a note"
    f" before you change it, and prefer edit_note to write_note for one that exists. {vault.DRAFTS} {messages.INSTRUCTIONS}"
)


def fence(result: Result) -> Reply:
    """Return a result of the vault's tools with what others wrote between two marks."""
    if isinstance(result, vault.NoteContent):
        return _content(result)
    if isinstance(result, vault.NoteList):
        return _list(result)
    if isinstance(result, vault.NoteMoved):
        return _moved(result)
    assert isinstance(result, vault.NoteWritten)
    return Reply(f"Written. etag {result.etag}. {result.hint}".rstrip(), result)


def _written(result: Result) -> Reply:
    """Return what was written without the words that the agent has just given."""
    if isinstance(result, vault.NoteContent):
        result = vault.NoteWritten(
            path=result.path, etag=result.etag, letter=result.letter, hint=result.hint
        )
    return fence(result)


def _content(note: vault.NoteContent) -> Reply:
    fields = [f"{_json(key)}: {_json(value)}" for key, value in note.frontmatter.items()]
    text = "\n".join([note.path, *fields, "", note.body])
    head = f"etag {note.etag}. The path, the frontmatter, an empty line, and the body:"
    tail = [more_text(note.next_offset, note.total_chars), hidden_text(note.hidden_chars)]
    return fenced_reply(note, head, text, tail)


def _list(page: vault.NoteList) -> Reply:
    rows = [f"{note.path} | {note.snippet}" if note.snippet else note.path for note in page.notes]
    rows += [f"Folder: {name}/" for name in page.folders]
    rows += [f"Not readable: {path}" for path in page.unreadable]
    count = f"{len(page.notes)} of {page.total} notes." if page.total else "No note."
    more = f"More: cursor={page.cursor}" if page.cursor else ""
    return fenced_reply(page, count, "\n".join(rows), [page.hint, more])


def _moved(move: vault.NoteMoved) -> Reply:
    rows = [f"Now: {move.path}"]
    rows += [f"Links rewritten in {path}" for path in move.rewritten]
    rows += [f"Ambiguous, left as it is, in {note}" for note in move.ambiguous]
    rows += [f"Not for tools, left as it is: {path}" for path in move.untouched]
    head = f"Moved. {move.links} links were rewritten."
    return fenced_reply(move, head, "\n".join(rows))


def _fenced(row: Tool) -> Tool:
    if row.name == "write_note":
        return replace(row, shape=_written, result=vault.NoteWritten)
    return replace(row, shape=fence)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


CONTRACT: Final = Contract(
    name="all",
    instructions=INSTRUCTIONS,
    tools=tuple(
        replace(row, contract="all")
        for row in (*postroom.TOOLS, *map(_fenced, vault.TOOLS), *messages.TOOLS)
    ),
    resources=postroom.CONTRACT.resources,
)
