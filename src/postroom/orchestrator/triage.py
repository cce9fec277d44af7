"""Triage: decide about each mail once, by the person's rules or a model, then do what was decided.

A decision is in the ledger, with its audit line, before anything is done about it. What is done then can
be repeated without harm: notes show the ledger, and a letter is drafted under an idempotency key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import field, replace
from typing import Any, Final

from postroom.core import handbook
from postroom.core.errors import AuthRequired, Corrupt, Invalid, PostroomError
from postroom.core.handbook import (
    ACKNOWLEDGEMENT,
    DELEGATED,
    DRAFTS,
    Case,
    Judgement,
    MailFacts,
    settled,
)
from postroom.core.policy import back_off
from postroom.core.records import DecidedBy, InboxItem, InboxState
from postroom.core.text import words
from postroom.core.values import dataclass
from postroom.orchestrator.context import RunContext
from postroom.orchestrator.drafting import Drafter, find_obstacle
from postroom.orchestrator.servers import ToolValues
from postroom.orchestrator.vault_reader import Guidance, load_guidance, read_notes
from postroom.services.inbox import TriageResult
from postroom.services.incoming import text_of
from postroom.services.mail_notes import MailNotes
from postroom.vault.folders import HANDBOOK

MAX_TRIES: Final = 4  # before a mail that cannot be judged is left to the person
POLL_SECONDS: Final = 1.0  # between two looks at the letters while a model works


@dataclass(slots=True)
class Triage:
    """Judges the mails that wait, and has their answers drafted."""

    context: RunContext
    mail_notes: MailNotes
    between_mails: Callable[[], None]  # called often: approved letters do not wait for a round
    guidance: Guidance = field(default_factory=Guidance)
    trouble: dict[str, str] = field(default_factory=dict)  # of `handbook` and `model`

    @property
    def _drafter(self) -> Drafter:
        return Drafter(self.context)

    def round(self) -> None:
        """Judge and draft all that can be judged and drafted now."""
        self._drafter.follow_letters()
        pending = self.context.inbox.records.in_states(InboxState.PENDING)
        if self.context.stopping.is_set():
            return
        has_due = any(map(self._is_due, pending))
        # Where nothing is to be judged, no server is started only to check the rules.
        if self._load_guidance(use_server=has_due) and has_due:
            for items in self.context.chunks(InboxState.PENDING):
                self._judge([item for item in items if self._is_due(item)])
                self.between_mails()
        retry = next((item for item in pending if item.tries and item.held), None)
        if retry is not None and self.context.model is not None:
            self.trouble.setdefault("model", retry.held)
        self._draft_answers()
        self.sync_stale_notes()

    def finish_round(self) -> None:
        """Bring mails and their notes up to what has just become of their letters."""
        self._drafter.follow_letters()
        self.sync_stale_notes()

    def sync_stale_notes(self) -> None:
        """Bring the notes of mail up to the ledger."""
        for item in self.context.inbox.records.with_stale_note():
            self.mail_notes.guarded(self.mail_notes.sync_note, item)

    def _is_due(self, item: InboxItem) -> bool:
        waited = self.context.desk.clock().wall - item.changed
        return not (item.tries and 0 <= waited < back_off(item.tries))

    def _load_guidance(self, *, use_server: bool) -> bool:
        """Read the rules and the style; where they are wrong, no mail is triaged."""
        try:
            self.guidance = load_guidance(self.context, use_server=use_server)
        except Corrupt as error:
            if not self.context.stopping.is_set():
                self._report("handbook", error)
            return False
        self.trouble.pop("handbook", None)
        return not self.context.stopping.is_set()

    def _report(self, part: str, error: PostroomError) -> None:
        text = error.message_with_remedy
        if self.trouble.get(part) != text:
            self.trouble[part] = text
            self.context.emit("trouble", part=part, error=text)

    def _draft_answers(self) -> None:
        drafter = self._drafter
        items = filter(self._is_due, self.context.inbox.records.in_states(InboxState.DECIDED))
        # Where there is no room for all letters, the urgent ones come first.
        for item in sorted(items, key=_is_not_urgent):
            if self.context.stopping.is_set() or not drafter.draft(item):
                break
            self.sync_stale_notes()
            self.between_mails()

    # Judging

    def _judge(self, items: Sequence[InboxItem]) -> None:
        notes = [(item, path) for item in items if (path := self.context.inbox.note_path(item))]
        answers = read_notes(self.context, [path for _, path in notes])
        results: list[TriageResult] = []
        for (item, path), answer in zip(notes, answers, strict=True):
            if self.context.stopping.is_set():
                break
            if isinstance(answer, Corrupt):
                self.mail_notes.guarded(self.mail_notes.sync_note, item)  # which puts it aside
            elif isinstance(answer, PostroomError):
                self.mail_notes.report(f"{path}: {answer.message_with_remedy}")
            elif (
                str(answer["frontmatter"].get("status")).strip().casefold() == InboxState.PENDING
                and (result := self._judge_one(item, answer)) is not None
            ):
                results.append(result)
                if result.by == DecidedBy.MODEL:  # recorded at once: it must not be asked again
                    self._save(results)
                    results.clear()
        self._save(results)

    def _judge_one(self, item: InboxItem, note: ToolValues) -> TriageResult | None:
        """Return what becomes of a mail; None where it is to be judged again later."""
        facts = replace(item.facts or MailFacts(), words=words(text_of(str(note["body"]))))
        obstacle = find_obstacle(self.context, item)
        rule = None if item.wish else handbook.decide(self.guidance.rules, facts)
        if rule is not None:
            by = f"line {rule.line} of {HANDBOOK}"
            return TriageResult(item, settled(rule.judgement, obstacle), by)
        if self.context.model is None:
            judgement = Judgement("draft_reply", why="No rule fits it.")
            if not self.guidance.handbook:
                judgement = Judgement("needs_info", why=f"There is no {HANDBOOK} with rules.")
            return TriageResult(item, settled(judgement, obstacle), DecidedBy.NO_RULE)
        answer = self._ask_model(item, note)
        if answer is None or not self.mail_notes.is_unchanged(item):
            return None  # no answer, or the person edited the note meanwhile
        return TriageResult(item, settled(answer, obstacle), DecidedBy.MODEL)

    def _ask_model(self, item: InboxItem, note: ToolValues) -> Judgement | None:
        fields: dict[str, Any] = note["frontmatter"]
        has_draft = item.wish and item.letter
        case = Case(
            sender=str(fields.get("from", "")),
            to=str(fields.get("to", "")),
            subject=str(fields.get("subject", "")),
            date=str(fields.get("date", "")),
            body=str(note["body"]),
            handbook=self.guidance.handbook,
            style=self.guidance.style,
            wish=item.wish,
            draft=self.context.inbox.letter(item).letter.text if has_draft else "",
        )
        try:
            judgement = self._run_model(case)
        except PostroomError as error:
            if self.context.stopping.is_set():
                return None
            self._report("model", error)
            is_setting = isinstance(error, Invalid | AuthRequired)  # wrong for every mail
            if not is_setting and item.tries + 1 >= MAX_TRIES:
                why = f"The model gave no answer: {error.message}"[:300]
                return Judgement("needs_info", why=why)
            held = error.message_with_remedy if is_setting else error.message
            self.context.inbox.change(item, held=held, tries=item.tries + 1)
            return None
        self.trouble.pop("model", None)
        return judgement

    def _run_model(self, case: Case) -> Judgement:
        """Ask the model in a thread, so that approved letters are sent meanwhile."""
        assert self.context.model is not None
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.context.model.judge, case)
            while not wait([answer], POLL_SECONDS).done:
                self.between_mails()
            return answer.result()

    def _save(self, results: Sequence[TriageResult]) -> None:
        if not results:
            return
        complete = [result._replace(judgement=_with_text(result.judgement)) for result in results]
        for item, judgement, by in self.context.inbox.save_decisions(complete):
            self.context.emit_for(item, "triaged", decision=judgement.decision, by=by)
        self.sync_stale_notes()


def _is_not_urgent(item: InboxItem) -> bool:
    return item.judgement is None or item.judgement.decision != "urgent"


def _with_text(judgement: Judgement) -> Judgement:
    """Return a judgement with the standard text where its rule gives none."""
    if judgement.text or judgement.decision not in (*DRAFTS, "delegate"):
        return judgement
    text = DELEGATED if judgement.decision == "delegate" else ACKNOWLEDGEMENT
    return Judgement(judgement.decision, text, judgement.why)
