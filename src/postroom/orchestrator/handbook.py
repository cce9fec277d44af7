"""The person's own texts: the rules in Handbook.md, and the style that a model writes in."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.core import handbook
from postroom.core.errors import Corrupt, NotFound, PostroomError
from postroom.core.handbook import Rule
from postroom.orchestrator.context import RunContext
from postroom.orchestrator.vault_reader import MAX_CHARS, read_notes
from postroom.vault.folders import HANDBOOK, STYLE
from postroom.vault.markdown import numbered


@dataclass(frozen=True, slots=True)
class Guidance:
    """What the person wrote for triage: the rules, and both texts for a model."""

    rules: tuple[Rule, ...] = ()
    handbook: str = ""
    style: str = ""


def load_guidance(context: RunContext, *, use_server: bool) -> Guidance:
    """Return the person's texts; `Corrupt` where they cannot be read or are wrong."""
    texts = {}
    paths = (HANDBOOK, STYLE)
    answers = read_notes(context, paths, raw=True, use_server=use_server)
    for path, answer in zip(paths, answers, strict=True):
        if isinstance(answer, NotFound):
            texts[path] = ""
        elif isinstance(answer, PostroomError):
            raise Corrupt(f"{path}: {answer.message}", remedy=answer.remedy)
        elif answer.get("next_offset"):
            raise Corrupt(f"{path} has more than {MAX_CHARS:,} characters", remedy="Shorten it.")
        else:
            texts[path] = str(answer["body"])
    return Guidance(parse_rules(texts[HANDBOOK]), texts[HANDBOOK], texts[STYLE])


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
