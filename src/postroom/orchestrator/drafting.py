"""Draft the answers that triage decided on, and let each mail follow what becomes of its letter."""

from __future__ import annotations

from typing import Final

from postroom.core import life
from postroom.core.card import Level
from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Denied,
    Invalid,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
)
from postroom.core.handbook import Judgement, MailFacts, not_answered
from postroom.core.message import SENT
from postroom.core.policy import Full
from postroom.core.records import DecidedBy, Entry, InboxItem, InboxState
from postroom.core.values import dataclass
from postroom.desk.compose import Written
from postroom.desk.proposals import ORCHESTRATOR, Proposal
from postroom.desk.recorder import Call
from postroom.orchestrator.context import RunContext
from postroom.vault.folders import DRAFTS

MAX_TRIES: Final = 4  # before a mail that cannot be answered is left to the person
DRAFT_CALL: Final = Call("draft_reply", ORCHESTRATOR, ORCHESTRATOR)
WITHDRAW_CALL: Final = Call("withdraw_letter", ORCHESTRATOR, ORCHESTRATOR)


def find_obstacle(context: RunContext, item: InboxItem) -> str:
    """Return why no answer to this mail is drafted automatically; empty where nothing speaks against it."""
    # Another version that the person asked for does not count as an automatic answer.
    drafts = 0 if item.wish else context.inbox.drafts_within_a_day(item)
    return not_answered(item.facts or MailFacts(), drafts, context.most_drafts)


@dataclass(frozen=True, slots=True)
class Drafter:
    """Proposes answers to the desk; each waits there for the person, whatever the settings."""

    context: RunContext

    def draft(self, item: InboxItem) -> bool:
        """Draft the answer to one mail; return False where there is no room for more letters."""
        if not self.context.desk.rules.live:
            self._rehearse(item)
            return True
        try:
            entry = self._propose(item)
        except (Limited, Full, AuthRequired) as error:
            self._hold(item, f"{error.message.rstrip('.')}. It is drafted when there is room.")
            return False
        except (Invalid, Denied, NotFound) as error:
            self._leave_to_person(
                item, f"No answer is drafted by itself: {error.message.rstrip('.')}."
            )
        except PostroomError as error:
            if item.tries + 1 >= MAX_TRIES and not isinstance(error, Unavailable):
                self._leave_to_person(
                    item, f"No answer could be drafted: {error.message_with_remedy}"
                )
            else:
                self.context.inbox.change(item, held=error.message, tries=item.tries + 1)
        else:
            if entry is None:
                judgement = Judgement("archive", why="It was answered already.")
                self._close(item, InboxState.DONE, judgement)
            # Where it cannot be recorded, the next round finds the letter by its key.
            elif self.context.inbox.save_draft(item, entry):
                self.context.emit_for(item, "drafted", letter=entry.id)
        return True

    def _propose(self, item: InboxItem) -> Entry | None:
        """Return the answer, proposed to the desk; None where the person has answered the mail."""
        desk, inbox = self.context.desk, self.context.inbox
        key = f"triage {item.turn} {item.account} {item.message}"[:200]
        if existing := inbox.letter_by_key(key):  # drafted before a crash, and not recorded
            desk.sync_notes_and_log(existing)
            return existing
        # Since it was judged, another answer may have been drafted in its conversation.
        if obstacle := find_obstacle(self.context, item):
            raise Denied(obstacle)
        if self._is_answered(item):
            return None
        judgement = item.judgement
        assert judgement is not None
        _, reply = self.context.services.mailbox.answer(
            item.account, id=item.message, thread="", everyone=False
        )
        letter = desk.composer.letter(
            Written(
                reply.to,
                reply.subject,
                judgement.text,
                answers=item.message,
                account=item.account,
            )
        )
        if item.by == DecidedBy.NO_RULE and desk.exposure.card(letter, ()).level is Level.STOP:
            raise Denied("no rule asks for it, and its risk card would be red")
        urgent = {"priority": "urgent"} if judgement.decision == "urgent" else {}
        link = f"[[{inbox.note_name(item)}]]"
        proposal = Proposal(
            key=key,
            home=DRAFTS,
            replaces=item.letter if item.wish else "",
            always_ask=True,
            fields={"reply_to_message_id": item.message, "answers": link, **urgent},
        )
        return desk.calls.propose(DRAFT_CALL, letter, proposal)

    def _is_answered(self, item: InboxItem) -> bool:
        """Whether a sent mail of the conversation answers this one."""
        box = self.context.services.mailbox.box(item.account)
        messages = box.thread(item.message).messages
        names = {one.mail.message_id for one in messages if one.id == item.message} - {""}
        sent = [one.mail for one in messages if SENT in one.labels]
        return any(names & {*mail.in_reply_to, *mail.references} for mail in sent)

    def _rehearse(self, item: InboxItem) -> None:
        desk = self.context.desk
        why = f"Postroom rehearses ({desk.rules.source}): it is drafted when that is over."
        if item.held != why:
            parameters = {"message": item.message}
            desk.recorder.write(DRAFT_CALL, result="dev_mode", parameters=parameters)
            self._hold(item, why)

    def _hold(self, item: InboxItem, why: str) -> None:
        if item.held != why:
            self.context.inbox.change(item, held=why)
            self.context.emit_for(item, "held", why=why)

    def _leave_to_person(self, item: InboxItem, why: str) -> None:
        self._close(item, InboxState.NEEDS_INFO, Judgement("needs_info", why=why[:300]))

    def _close(self, item: InboxItem, state: InboxState, judgement: Judgement) -> None:
        self.context.inbox.change(item, state=state, judgement=judgement, held="")
        self.context.emit_for(item, "instead", decision=judgement.decision, why=judgement.why)

    # What became of the letters

    def follow_letters(self) -> None:
        """Change the mails whose letter was closed or reopened."""
        has_model = self.context.model is not None
        for item, entry in self.context.inbox.with_changed_letter():
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


def plan_for_letter(
    item: InboxItem, entry: Entry, *, has_model: bool
) -> dict[str, str | int | Judgement]:
    """Return what changes about a mail after its letter: sent is done, and a refused one is the person's.

    Nothing where the mail is in that state already.
    """
    changes: dict[str, str | int | Judgement]
    match entry.state:
        case life.Sent():
            changes = {"state": InboxState.DONE, "held": ""}
        case life.Rejected(revise=True, reason=wish) if has_model:
            changes = {"state": InboxState.PENDING, "wish": wish or "Write it anew.", "tries": 0}
        case _ if entry.kind in life.OPEN:
            changes = {"state": InboxState.DRAFTED}
        case state:
            why = life.describe(state, id=entry.id)[:300]
            judgement = Judgement("needs_info", why=why)
            changes = {"state": InboxState.NEEDS_INFO, "judgement": judgement}
    return {} if changes["state"] == item.state else changes
