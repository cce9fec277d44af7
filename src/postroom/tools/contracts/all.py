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
        return _listed(result)
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


def _listed(found: vault.NoteList) -> Reply:
    rows = [f"{one.path} | {one.snippet}" if one.snippet else one.path for one in found.notes]
    rows += [f"Folder: {name}/" for name in found.folders]
    rows += [f"Not readable: {path}" for path in found.unreadable]
    count = f"{len(found.notes)} of {found.total} notes." if found.total else "No note."
    more = f"More: cursor={found.cursor}" if found.cursor else ""
    return fenced_reply(found, count, "\n".join(rows), [found.hint, more])


def _moved(done: vault.NoteMoved) -> Reply:
    rows = [f"Now: {done.path}"]
    rows += [f"Links rewritten in {path}" for path in done.rewritten]
    rows += [f"Ambiguous, left as it is, in {found}" for found in done.ambiguous]
    rows += [f"Not for tools, left as it is: {path}" for path in done.untouched]
    head = f"Moved. {done.links} links were rewritten."
    return fenced_reply(done, head, "\n".join(rows))


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
