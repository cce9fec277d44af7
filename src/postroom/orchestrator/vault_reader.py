"""Read notes through the vault's MCP server, or from the disk where it does not answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from postroom.core.errors import PostroomError
from postroom.orchestrator.context import RunContext
from postroom.orchestrator.servers import Question, ToolValues
from postroom.vault.note import Note

MAX_CHARS: Final = 50_000  # of a note


def read_notes(
    context: RunContext, paths: Sequence[str], *, raw: bool = False, use_server: bool = True
) -> list[ToolValues | PostroomError]:
    """Return `frontmatter` and `body` of each note, or the error in its place.

    With `raw`, the body is the whole text. Without `use_server`, no server is started for it.
    """
    questions = [_question(context, path, raw=raw) for path in paths]
    if not use_server:
        return [question.answer_locally() for question in questions]
    answers = context.servers.ask("vault", "read_note", questions)
    return [
        answer if _is_note(answer) else question.answer_locally()
        for question, answer in zip(questions, answers, strict=True)
    ]


def _is_note(answer: ToolValues | PostroomError) -> bool:
    if isinstance(answer, PostroomError):
        return True
    return isinstance(answer.get("frontmatter"), dict) and isinstance(answer.get("body"), str)


def _question(context: RunContext, path: str, *, raw: bool) -> Question:
    def read() -> ToolValues:
        data = context.desk.vault.read(path)[0]
        if raw:
            text = data.decode(errors="replace").replace("\r\n", "\n")
            return {"frontmatter": {}, "body": text}
        note = Note.parse(data)
        return {"frontmatter": note.values, "body": note.body}

    arguments = {"path": f"{context.room}{path}", "max_chars": MAX_CHARS, "raw": raw}
    return Question(arguments, read)
