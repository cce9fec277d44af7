"""Triage: decide about each mail once, by the person's rules or a model, then do what was decided.

A decision is in the ledger before anything is done about it, which can then be repeated without harm: notes show the
ledger, and a letter is drafted under an idempotency key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, Final, NamedTuple

from postroom.core import handbook, life
from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
    raise_if,
)
from postroom.core.handbook import Case, Decision, Judgement, MailFacts, Rule
from postroom.core.message import SENT
from postroom.core.policy import Full, back_off
from postroom.core.records import DecidedBy, Entry, InboxItem, InboxState, Level
from postroom.core.stamp import DAY
from postroom.core.text import words
from postroom.core.values import dataclass
from postroom.desk.proposals import ORCHESTRATOR, Proposal, Written
from postroom.desk.recorder import Call
from postroom.orchestrator.context import Model, Question, RunContext, ToolValues
from postroom.services.inbox import STATE_AFTER, Changes, MailNotes
from postroom.services.incoming import text_of
from postroom.vault.folders import DRAFTS, HANDBOOK, STYLE
from postroom.vault.markdown import numbered
from postroom.vault.note import Note

MAX_TRIES: Final = 4  # before a mail that cannot be judged or answered is left to the person
POLL_SECONDS: Final = 1.0  # between two looks at the letters while a model works
MAX_CHARS: Final = 50_000  # of a note
DRAFT_CALL: Final = Call("draft_reply", ORCHESTRATOR, ORCHESTRATOR)
WITHDRAW_CALL: Final = Call("withdraw_letter", ORCHESTRATOR, ORCHESTRATOR)
STANDARD_TEXTS: Final = {
    "draft_reply": handbook.ACKNOWLEDGEMENT,
    "urgent": handbook.ACKNOWLEDGEMENT,
    "delegate": handbook.DELEGATED,
}


class Triage:
    """Judges the mails that wait, and has their answers drafted."""

    def __init__(
        self, context: RunContext, mail_notes: MailNotes, between_mails: Callable[[], None]
    ) -> None:
        self.mail_notes = mail_notes
        self.rules: tuple[Rule, ...] = ()
        self._handbook = ""
        self._style = ""
        self._context = context
        self._between_mails = between_mails  # called often: approved letters do not wait
        self._drafter = Drafter(context)

    def round(self) -> None:
        self._drafter.follow_letters()
        pending = self._context.inbox.records.in_states(InboxState.PENDING)
        if self._context.stopping.is_set():
            return
        has_due = any(map(self._is_due, pending))
        # Where nothing is to be judged, no server is started only to check the rules.
        if self._load_rules(use_server=has_due) and has_due:
            for items in self._context.chunks(InboxState.PENDING):
                self._judge([item for item in items if self._is_due(item)])
                self._between_mails()
        retry = next((item for item in pending if item.tries and item.held), None)
        if retry is not None and self._context.model is not None:
            self._context.trouble.setdefault("model", retry.held)
        self._draft_answers()
        self.sync_stale_notes()

    def finish_round(self) -> None:
        self._drafter.follow_letters()
        self.sync_stale_notes()

    def sync_stale_notes(self) -> None:
        for item in self._context.inbox.records.with_stale_note():
            self.mail_notes.guarded(self.mail_notes.sync_note, item)

    def _is_due(self, item: InboxItem) -> bool:
        waited = self._context.desk.clock().wall - item.changed
        return not (item.tries and 0 <= waited < back_off(item.tries))

    def _load_rules(self, *, use_server: bool) -> bool:
        """Read the rules and the style; where they are wrong, no mail is triaged."""
        notes = read_notes(self._context, (HANDBOOK, STYLE), raw=True, use_server=use_server)
        try:
            self._handbook, self._style = (_whole_text(path, note) for path, note in notes.items())
            self.rules = parse_rules(self._handbook)
        except Corrupt as error:
            if not self._context.stopping.is_set():
                self._context.report(HANDBOOK, error, part="handbook")
            return False
        self._context.trouble.pop(HANDBOOK, None)
        return not self._context.stopping.is_set()

    def _draft_answers(self) -> None:
        items = filter(self._is_due, self._context.inbox.records.in_states(InboxState.DECIDED))
        # Where there is no room for all letters, the urgent ones come first.
        for item in sorted(items, key=lambda item: _decision(item) != "urgent"):
            if self._context.stopping.is_set() or not self._drafter.draft(item):
                break
            self.sync_stale_notes()
            self._between_mails()

    def _judge(self, items: Sequence[InboxItem]) -> None:
        notes = {path: item for item in items if (path := self._context.note_path(item))}
        results: list[InboxItem] = []
        for path, answer in read_notes(self._context, list(notes)).items():
            item = notes[path]
            if self._context.stopping.is_set():
                break
            if isinstance(answer, Corrupt):
                self.mail_notes.guarded(self.mail_notes.sync_note, item)  # which puts it aside
            elif isinstance(answer, PostroomError):
                self.mail_notes.report(f"{path}: {answer.message_with_remedy}")
            elif (
                str(answer.fields.get("status")).strip().casefold() == InboxState.PENDING
                and (result := self._judge_one(item, answer)) is not None
            ):
                results.append(result)
                if result.by == DecidedBy.MODEL:  # recorded at once: it must not be asked again
                    self._save(results)
                    results.clear()
        self._save(results)

    def _judge_one(self, item: InboxItem, note: NoteText) -> InboxItem | None:
        """Return a mail with what becomes of it; None where it is to be judged again later."""
        facts = replace(item.facts or MailFacts(), words=words(text_of(note.body)))
        rule = None if item.wish else handbook.decide(self.rules, facts)
        by: str = DecidedBy.NO_RULE
        if rule is not None:
            judgement, by = rule.judgement, f"line {rule.line} of {HANDBOOK}"
        elif model := self._context.model:
            answer, by = self._ask_model(model, item, note), DecidedBy.MODEL
            if answer is None or not self.mail_notes.is_unchanged(item):
                return None  # no answer, or the person edited the note meanwhile
            judgement = answer
        elif self._handbook:
            judgement = Judgement("draft_reply", why="No rule fits it.")
        else:
            judgement = Judgement("needs_info", why=f"There is no {HANDBOOK} with rules.")
        judgement = handbook.prevent_loop(judgement, find_obstacle(self._context, item))
        text = judgement.text or STANDARD_TEXTS.get(judgement.decision, "")
        return item._replace(judgement=replace(judgement, text=text), by=by)

    def _ask_model(self, model: Model, item: InboxItem, note: NoteText) -> Judgement | None:
        """Return the model's answer; it is waited for in a thread, so that approved letters are sent meanwhile."""
        fields, draft = note.fields, ""
        if item.wish and item.letter:
            draft = self._context.desk.reader.letters.get(item.letter).letter.text
        case = Case(
            sender=str(fields.get("from", "")),
            to=str(fields.get("to", "")),
            subject=str(fields.get("subject", "")),
            date=str(fields.get("date", "")),
            body=note.body,
            handbook=self._handbook,
            style=self._style,
            wish=item.wish,
            draft=draft,
        )
        try:
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(model.judge, case)
                while not wait([answer], POLL_SECONDS).done:
                    self._between_mails()
                judgement = answer.result()
        except PostroomError as error:
            if self._context.stopping.is_set():
                return None
            self._context.report("model", error, part="model")
            is_setting = isinstance(error, Invalid | AuthRequired)  # wrong for every mail
            if not is_setting and item.tries + 1 >= MAX_TRIES:
                return Judgement(
                    "needs_info", why=f"The model gave no answer: {error.message}"[:300]
                )
            held = error.message_with_remedy if is_setting else error.message
            self._context.inbox.change(item, held=held, tries=item.tries + 1)
            return None
        self._context.trouble.pop("model", None)
        return judgement

    def _save(self, results: Sequence[InboxItem]) -> None:
        if results:
            for item in self._context.inbox.save_decisions(results):
                self._context.emit_for(item, "triaged", decision=_decision(item), by=item.by)
            self.sync_stale_notes()


def _decision(item: InboxItem) -> str:
    return item.judgement.decision if item.judgement else ""


def find_obstacle(context: RunContext, item: InboxItem) -> str:
    """Return why no answer to this mail is drafted automatically; empty where nothing speaks against it."""
    since = context.desk.clock().wall - DAY
    drafts = context.inbox.records.drafts_in_thread(item.account, item.thread, since)
    # Another version that the person asked for does not count as an automatic answer.
    return handbook.answer_obstacle(
        item.facts or MailFacts(), 0 if item.wish else drafts, context.most_drafts
    )


class NoteText(NamedTuple):
    fields: dict[str, Any]
    body: str
    is_cut: bool = False


def read_notes(
    context: RunContext, paths: Sequence[str], *, raw: bool = False, use_server: bool = True
) -> dict[str, NoteText | PostroomError]:
    """Return each note, or the error in its place; with `raw`, the body is the whole text.

    What the server does not answer is read from the disk; without `use_server` everything is.
    """
    questions = [_question(context, path, raw=raw) for path in paths]
    answers = (
        context.servers.ask("vault", "read_note", questions)
        if use_server
        else [question.result({}) for question in questions]
    )
    return dict(zip(paths, answers, strict=True))


def _question(context: RunContext, path: str, *, raw: bool) -> Question[NoteText]:
    def read() -> NoteText:
        data = context.desk.vault.read(path)[0]
        if raw:
            return NoteText({}, data.decode(errors="replace").replace("\r\n", "\n"))
        note = Note.parse(data)
        return NoteText(dict(note.values), note.body)

    arguments = {"path": f"{context.room}{path}", "max_chars": MAX_CHARS, "raw": raw}
    return Question(arguments, _parse_note, read)


def _parse_note(values: ToolValues) -> NoteText:
    fields, body = values.get("frontmatter"), values.get("body")
    if isinstance(fields, dict) and isinstance(body, str):
        return NoteText(fields, body, bool(values.get("next_offset")))
    raise Corrupt("The answer of the vault's server is not a note")


def _whole_text(path: str, answer: NoteText | PostroomError) -> str:
    """Return the whole text of the person's handbook or style, empty where there is none."""
    if isinstance(answer, NotFound):
        return ""
    if isinstance(answer, PostroomError):
        raise Corrupt(f"{path}: {answer.message}", remedy=answer.remedy)
    if answer.is_cut:
        raise Corrupt(f"{path} has more than {MAX_CHARS:,} characters", remedy="Shorten it.")
    return answer.body


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of a handbook's text; `Corrupt` names the line that is wrong, or the heading that is missing."""
    lines = list(numbered(text.removeprefix("\ufeff")))
    under = [(number, line) for number, title, line in lines if title == handbook.TITLE]
    elsewhere = ((number, line) for number, title, line in lines if title != handbook.TITLE)
    misplaced = handbook.misplaced(elsewhere)
    raise_if(
        (
            text.strip() and not under,
            f"{HANDBOOK} has no heading `## {handbook.TITLE}`, under which rules would count",
            "Write it, in these letters. Until then no mail is triaged.",
        ),
        (
            misplaced,
            f"{HANDBOOK}, line {misplaced}: a rule does not stand under `## {handbook.TITLE}`",
            "Move it there, or put what only looks like one into a code fence.",
        ),
        kind=Corrupt,
    )
    return handbook.parse((number, line) for number, line in under if not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class Drafter:
    """Proposes answers to the desk; each waits there for the person, whatever the settings."""

    context: RunContext

    def draft(self, item: InboxItem) -> bool:
        """Draft the answer to one mail; return False where there is no room for more letters."""
        rules, inbox = self.context.desk.rules, self.context.inbox
        if not rules.live:
            why = f"Postroom rehearses ({rules.source}): it is drafted when that is over."
            if item.held != why:
                about = {"message": item.message}
                self.context.desk.recorder.write(DRAFT_CALL, result="dev_mode", parameters=about)
                self._hold(item, why)
            return True
        try:
            entry = self._propose(item)
        except (Limited, Full, AuthRequired) as error:
            self._hold(item, f"{error.message.rstrip('.')}. It is drafted when there is room.")
            return False
        except (Invalid, Denied, NotFound) as error:
            reason = error.message.rstrip(".")
            self._close(item, "needs_info", f"No answer is drafted by itself: {reason}.")
        except PostroomError as error:
            if item.tries + 1 >= MAX_TRIES and not isinstance(error, Unavailable):
                why = f"No answer could be drafted: {error.message_with_remedy}"
                self._close(item, "needs_info", why)
            else:
                inbox.change(item, held=error.message, tries=item.tries + 1)
        else:
            if entry is None:
                self._close(item, "archive", "It was answered already.")
            # Where it cannot be recorded, the next round finds the letter by its key.
            elif inbox.save_draft(item, entry):
                self.context.emit_for(item, "drafted", letter=entry.id)
        return True

    def _propose(self, item: InboxItem) -> Entry | None:
        """Return the answer, proposed to the desk; None where the person has answered the mail."""
        desk, judgement = self.context.desk, item.judgement
        assert judgement is not None
        key = f"triage {item.turn} {item.account} {item.message}"[:200]
        if known := desk.reader.letters.by_key(ORCHESTRATOR, key):
            existing = desk.reader.letters.get(known[0])  # drafted before a crash, not recorded
            desk.sync_notes_and_log(existing)
            return existing
        # Since it was judged, another answer may have been drafted in its conversation.
        if obstacle := find_obstacle(self.context, item):
            raise Denied(obstacle)
        if self._is_answered(item):
            return None
        _, reply = self.context.services.mailbox.answer(
            item.account, id=item.message, thread="", everyone=False
        )
        written = Written(
            reply.to, reply.subject, judgement.text, answers=item.message, account=item.account
        )
        letter = desk.composer.letter(written)
        if item.by == DecidedBy.NO_RULE and desk.exposure.card(letter, ()).level is Level.STOP:
            raise Denied("no rule asks for it, and its risk card would be red")
        link = f"[[{self.context.note_name(item)}]]"
        fields = {"reply_to_message_id": item.message, "answers": link}
        if judgement.decision == "urgent":
            fields["priority"] = "urgent"
        replaces = item.letter if item.wish else ""
        proposal = Proposal(
            key=key,
            home=DRAFTS,
            replaces=replaces,
            pre_send_record=json.dumps(item.message),
            always_ask=True,
            fields=fields,
        )
        return desk.calls.propose(DRAFT_CALL, letter, proposal)

    def _is_answered(self, item: InboxItem) -> bool:
        messages = self.context.services.mailbox.box(item.account).thread(item.message).messages
        names = {one.mail.message_id for one in messages if one.id == item.message} - {""}
        sent = [one.mail for one in messages if SENT in one.labels]
        return any(names & {*mail.in_reply_to, *mail.references} for mail in sent)

    def _hold(self, item: InboxItem, why: str) -> None:
        if item.held != why:
            self.context.inbox.change(item, held=why)
            self.context.emit_for(item, "held", why=why)

    def _close(self, item: InboxItem, decision: Decision, why: str) -> None:
        judgement, state = Judgement(decision, why=why[:300]), STATE_AFTER[decision]
        self.context.inbox.change(item, state=state, judgement=judgement, held="")
        self.context.emit_for(item, "instead", decision=decision, why=judgement.why)

    def follow_letters(self) -> None:
        has_model = self.context.model is not None
        for item in self.context.inbox.records.with_changed_letter():
            entry = self.context.desk.reader.letters.get(item.letter)
            if item.by == DecidedBy.PERSON and item.state == InboxState.DONE:
                self._withdraw(item, entry)
            elif changes := plan_for_letter(item, entry, has_model=has_model):
                self.context.inbox.change(item, **changes)

    def _withdraw(self, item: InboxItem, entry: Entry) -> None:
        """Withdraw the answer to a mail that the person called done, if it still waits."""
        by = DecidedBy.PERSON_ONLY
        if isinstance(entry.state, life.Pending):
            try:
                self.context.desk.calls.withdraw(WITHDRAW_CALL, entry.id)
            except Conflict:
                pass  # it was decided at this moment
            except PostroomError:
                return  # the next round tries again
            by = DecidedBy.PERSON_WITHDRAWN
        self.context.inbox.change(item, by=by)


def plan_for_letter(item: InboxItem, entry: Entry, *, has_model: bool) -> Changes:
    """Return what changes about a mail after its letter; nothing where the mail is in that state already."""
    changes: Changes
    match entry.state:
        case life.Sent():
            changes = {"state": InboxState.DONE, "held": ""}
        case life.Rejected(revise=True, reason=wish) if has_model:
            changes = {"state": InboxState.PENDING, "wish": wish or "Write it anew.", "tries": 0}
        case _ if entry.kind in life.OPEN:
            changes = {"state": InboxState.DRAFTED}
        case state:
            judgement = Judgement("needs_info", why=life.describe(state, id=entry.id)[:300])
            changes = {"state": InboxState.NEEDS_INFO, "judgement": judgement}
    return {} if changes["state"] == item.state else changes
