"""The contract of the server `all`: mail, notes and agents, what others wrote between two marks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from postroom.tools.contracts import messages, postroom, vault
from postroom.tools.fence import fenced, mark
from postroom.tools.table import Contract, Reply, Result

INSTRUCTIONS: Final = (
    f"{postroom.INSTRUCTIONS} The vault tools keep notes in the person's Markdown vault: read a note"
    f" before you change it, and prefer edit_note to write_note for one that exists. {vault.DRAFTS} {messages.INSTRUCTIONS}"
)


def shape(result: Result) -> Reply:
    """Return a result of the vault's with what others wrote between two marks."""
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
        kept = {"path", "etag", "letter", "hint"}
        result = vault.NoteWritten(**result.model_dump(include=kept))
    return shape(result)


def _content(note: vault.NoteContent) -> Reply:
    fields = [f"{_json(key)}: {_json(value)}" for key, value in note.frontmatter.items()]
    text = "\n".join([note.path, *fields, "", note.body])
    said = [f"etag {note.etag}. The path, the frontmatter, an empty line, and the body:"]
    said.append(fenced(text, fence := mark(text)))
    if note.next_offset:
        said.append(f"More: offset={note.next_offset} of {note.total_chars} characters.")
    if note.hidden_chars:
        said.append(f"{note.hidden_chars} hidden characters were removed.")
    return Reply("\n".join(said), note.model_copy(update={"fence": fence, "end": fence}))


def _listed(found: vault.NoteList) -> Reply:
    rows = [f"{one.path} | {one.snippet}" if one.snippet else one.path for one in found.notes]
    rows += [f"Folder: {name}/" for name in found.folders]
    rows += [f"Not readable: {path}" for path in found.unreadable]
    text = "\n".join(rows)
    fence = mark(text) if rows else ""
    count = f"{len(found.notes)} of {found.total} notes." if found.total else "No note."
    more = f"More: cursor={found.cursor}" if found.cursor else ""
    said = [count, fenced(text, fence) if rows else "", found.hint, more]
    return Reply(
        "\n".join(filter(None, said)), found.model_copy(update={"fence": fence, "end": fence})
    )


def _moved(done: vault.NoteMoved) -> Reply:
    rows = [f"Now: {done.path}"]
    rows += [f"Links rewritten in {path}" for path in done.rewritten]
    rows += [f"Ambiguous, left as it is, in {found}" for found in done.ambiguous]
    rows += [f"Not for tools, left as it is: {path}" for path in done.untouched]
    text = "\n".join(rows)
    fence = mark(text)
    said = f"Moved. {done.links} links were rewritten.\n{fenced(text, fence)}"
    return Reply(said, done.model_copy(update={"fence": fence, "end": fence}))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


CONTRACT: Final = Contract(
    instructions=INSTRUCTIONS,
    tools=(
        *postroom.TOOLS,
        *(
            replace(
                row, function=vault.shaped(vault.write_note, _written), result=vault.NoteWritten
            )
            if row.name == "write_note"
            else row
            for row in vault.tools(shape)
        ),
        *messages.TOOLS,
    ),
    resources=postroom.CONTRACT.resources,
)
