"""What triage reads in the vault, through its MCP server: notes of mail, and the person's rules and style."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from postroom.core import handbook
from postroom.core.errors import Corrupt, NotFound, PostroomError
from postroom.core.handbook import Rule
from postroom.core.values import dataclass
from postroom.orchestrator.context import RunContext
from postroom.orchestrator.servers import Question, ToolValues
from postroom.vault.folders import HANDBOOK, STYLE
from postroom.vault.markdown import numbered
from postroom.vault.note import Note

MAX_CHARS: Final = 50_000  # of a note


def read_notes(
    context: RunContext, paths: Sequence[str], *, raw: bool = False, use_server: bool = True
) -> list[ToolValues | PostroomError]:
    """Return `frontmatter` and `body` of each note, or the error in its place.

    With `raw`, the body is the whole text. What the server does not answer is read from the disk;
    without `use_server` everything is.
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


@dataclass(frozen=True, slots=True)
class Guidance:
    """What the person wrote for triage: the rules, and both texts for a model."""

    rules: tuple[Rule, ...] = ()
    handbook: str = ""
    style: str = ""


def load_guidance(context: RunContext, *, use_server: bool) -> Guidance:
    """Return the person's rules and style; `Corrupt` where they cannot be read or are wrong."""
    texts = []
    paths = (HANDBOOK, STYLE)
    answers = read_notes(context, paths, raw=True, use_server=use_server)
    for path, answer in zip(paths, answers, strict=True):
        if isinstance(answer, NotFound):
            texts.append("")
        elif isinstance(answer, PostroomError):
            raise Corrupt(f"{path}: {answer.message}", remedy=answer.remedy)
        elif answer.get("next_offset"):
            raise Corrupt(f"{path} has more than {MAX_CHARS:,} characters", remedy="Shorten it.")
        else:
            texts.append(str(answer["body"]))
    return Guidance(parse_rules(texts[0]), *texts)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of a handbook's text; `Corrupt` names the line that is wrong.

    A handbook without rules under its heading is refused: its rules were written somewhere else.
    """
    lines = list(numbered(text.removeprefix("\ufeff")))
    under = [(number, line) for number, title, line in lines if title == handbook.TITLE]
    if text.strip() and not under:
        raise Corrupt(
            f"{HANDBOOK} has no heading `## {handbook.TITLE}`, under which rules would count",
            remedy="Write it, in these letters. Until then no mail is triaged.",
        )
    elsewhere = ((number, line) for number, title, line in lines if title != handbook.TITLE)
    if misplaced := handbook.misplaced(elsewhere):
        raise Corrupt(
            f"{HANDBOOK}, line {misplaced}: a rule does not stand under `## {handbook.TITLE}`",
            remedy="Move it there, or put what only looks like one into a code fence.",
        )
    return handbook.parse((number, line) for number, line in under if not line.startswith("#"))
