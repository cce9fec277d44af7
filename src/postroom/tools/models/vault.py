"""The arguments of the contract `vault`, with the document's names."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from postroom.tools.contracts.vault import SHOWN
from postroom.tools.models import Arguments, at_most

MAX_BODY: Final = 1_000_000

Path = Annotated[str, at_most(1_000)]
Text = Annotated[str, at_most(MAX_BODY)]
Tag = Annotated[str, at_most(100), Field(description="etag of what you read")]
Mark = Annotated[str, at_most(2_000)]


class ReadNoteInput(Arguments):
    path: Path = Field(description='vault-relative path, e.g. "Needs_Action/email-001.md"')
    offset: int = Field(0, ge=0)
    raw: Annotated[bool, Field(description="the whole text, unparsed")] = False
    max_chars: int = Field(SHOWN, ge=200, le=200_000)


class WriteNoteInput(Arguments):
    path: Path = Field(description="vault-relative path (created if not exists)")
    frontmatter: dict[str, Any] = Field(description="YAML key-value pairs")
    body: Text = Field(description="markdown body content")
    if_match: Tag = ""


class EditNoteInput(Arguments):
    path: Path
    append: Text = ""
    prepend: Text = ""
    find: Annotated[Text, Field(description="text that stands there once; replace it")] = ""
    replace: Text = ""  # which must be given with `find`, though it be empty
    heading: Annotated[
        str, at_most(1_000), Field(description="only in its part, with subheadings")
    ] = ""
    set: dict[str, Any] = Field(default_factory=dict, description="frontmatter")
    remove: list[str] = Field(default_factory=list, max_length=100, description="frontmatter keys")
    if_match: Tag = ""


class ListNotesInput(Arguments):
    directory: Annotated[str, at_most(1_000)] = Field(
        description='vault-relative directory, e.g. "Needs_Action"'
    )
    filter: Annotated[str, at_most(2_000)] | None = Field(
        None, description='frontmatter filter, e.g. "status:pending AND tags:work"'
    )
    cursor: Mark = ""


class MoveNoteInput(Arguments):
    source: Path = Field(description="vault-relative source path")
    destination: Path = Field(description="vault-relative destination path")


class SearchNotesInput(Arguments):
    query: Annotated[str, at_most(1_000)] = Field(
        description="text to search for in note body or frontmatter values"
    )
    cursor: Mark = ""
