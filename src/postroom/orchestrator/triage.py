"""Triage: each mail is judged once, by the person's rules or a model, and what was decided is done once.

A decision is in the ledger, with its line in the log, before anything is done about it; what is done
then can be done again without harm: notes follow the ledger, and a letter is drafted under a key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from postroom.core import handbook, life
from postroom.core.audit import Action
from postroom.core.card import Level
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
)
from postroom.core.handbook import Rule
from postroom.core.message import SENT
from postroom.core.policy import DAY, Full, back_off
from postroom.core.records import Entry, InboxItem
from postroom.core.text import words
from postroom.core.triage import (
    ACKNOWLEDGEMENT,
    DELEGATED,
    DRAFTS,
    Case,
    Judgement,
    not_answered,
    settled,
)
from postroom.desk.compose import Written
from postroom.desk.outbox import ORCHESTRATOR, Proposal
from postroom.desk.recorder import Call
from postroom.orchestrator.incoming import facts_of, judgement_of, text_of
from postroom.orchestrator.mail_notes import BY_HAND, MailNotes
from postroom.orchestrator.servers import Answer, Question
from postroom.orchestrator.setup import Setup
from postroom.vault.folders import DRAFTS as DRAFTS_FOLDER
from postroom.vault.folders import HANDBOOK, STYLE
from postroom.vault.markdown import numbered
from postroom.vault.note import Note

READ: Final = 50_000  # characters of a note
TRIES: Final = 4  # before a mail that cannot be judged or answered is left to the person
MODEL: Final = "the model"
TICK: Final = 1.0  # seconds between two looks at the letters while a model thinks
NO_RULE: Final = "no rule"
STATES: Final = {"archive": "done", "needs_info": "needs_info", "delegate": "delegated"}


@dataclass(slots=True)
class Triage:
    """Judges what waits, and does what was decided."""

    setup: Setup
    mail_notes: MailNotes
    breathe: Callable[[], None]
    rules: tuple[Rule, ...] = ()
    trouble: dict[str, str] = field(default_factory=dict)  # handbook and model: what is amiss
    _texts: dict[str, str] = field(default_factory=dict)
    _full: bool = False

    def round(self) -> None:
        """Go through all that can be judged or done now."""
        self._full = False
        self._letters()
        with self.setup.desk.ledger.read() as book:
            waits = book.items("pending")
        if self.setup.stopping.is_set():
            return
        due = any(self._due(one) for one in waits)
        # Where nothing is to be judged, no server is started to find out how the rules are.
        if self._handbook(asked=due) and due:
            for chunk in self.setup.waiting("pending"):
                self._judge([one for one in chunk if self._due(one)])
                self.breathe()
        failed = next((one for one in waits if one.tries and one.held), None)
        if failed is not None and self.setup.model is not None:
            self.trouble.setdefault("model", failed.held)
        with self.setup.desk.ledger.read() as book:
            decided = book.items("decided")
        # Where there is no room for all, the urgent ones have it.
        decided.sort(key=lambda one: judgement_of(one).decision != "urgent")
        for item in decided:
            if self.setup.stopping.is_set() or self._full:
                break
            if self._due(item):
                self._draft(item)
                self.breathe()
        self.sync_stale_notes()

    def _due(self, item: InboxItem) -> bool:
        waited = self.setup.desk.clock().wall - item.changed
        return not (item.tries and 0 <= waited < back_off(item.tries))

    def round_off(self) -> None:
        """Let mail follow what has just become of its letters."""
        self._letters()
        self.sync_stale_notes()

    def sync_stale_notes(self) -> None:
        """Bring the notes of mail up to the ledger."""
        with self.setup.desk.ledger.read() as book:
            behind = book.unfollowed()
        for item in behind:
            self.mail_notes.guarded(self.mail_notes.sync_note, item)

    # The person's own words

    def _handbook(self, *, asked: bool) -> bool:
        """Read the rules; where they do not parse, nothing is triaged rather than wrongly."""
        questions = [self._question(name, raw=True) for name in (HANDBOOK, STYLE)]
        found = self._read(questions) if asked else [one.alone() for one in questions]
        if self.setup.stopping.is_set():
            return False
        self._texts = {}
        for name, answer in zip((HANDBOOK, STYLE), found, strict=True):
            if isinstance(answer, NotFound):
                self._texts[name] = ""
            elif isinstance(answer, PostroomError):
                return self._amiss("handbook", f"{name}: {answer.message_with_remedy}")
            elif answer.get("next_offset"):
                return self._amiss("handbook", f"{name} has more than {READ:,} characters")
            else:
                self._texts[name] = str(answer["body"])
        try:
            self.rules = rules_of(self._texts[HANDBOOK])
        except Corrupt as why:
            return self._amiss("handbook", why.message_with_remedy)
        self.trouble.pop("handbook", None)
        return True

    def _amiss(self, what: str, why: str) -> bool:
        if self.trouble.get(what) != why:
            self.trouble[what] = why
            self.setup.tell("trouble", part=what, error=why)
        return False

    def _read(self, questions: Sequence[Question]) -> list[Answer | PostroomError]:
        """Ask the vault's server; an answer that is no note is read without it."""
        found = self.setup.servers.ask("vault", "read_note", questions) if questions else []
        for at, answer in enumerate(found):
            if isinstance(answer, dict) and not (
                isinstance(answer.get("frontmatter"), dict) and isinstance(answer.get("body"), str)
            ):
                found[at] = questions[at].alone()
        return found

    def _question(self, path: str, *, raw: bool = False) -> Question:
        def read() -> Answer:
            data = self.setup.desk.vault.read(path)[0]
            if raw:
                text = data.decode(errors="replace").replace("\r\n", "\n")
                return {"frontmatter": {}, "body": text}
            note = Note.parse(data)
            return {"frontmatter": note.values, "body": note.body}

        return Question({"path": f"{self.setup.room}{path}", "max_chars": READ, "raw": raw}, read)

    # Judging

    def _judge(self, items: Sequence[InboxItem]) -> None:
        placed = [(one, self.setup.desk.ledger.place(one.key).path) for one in items]
        placed = [(one, path) for one, path in placed if path]
        answers = self._read([self._question(path) for _, path in placed])
        if self.setup.stopping.is_set():
            return
        judged: list[tuple[InboxItem, Judgement, str]] = []
        for (item, path), answer in zip(placed, answers, strict=True):
            if isinstance(answer, Corrupt):
                self.mail_notes.guarded(self.mail_notes.sync_note, item)  # which puts it aside
            elif isinstance(answer, PostroomError):
                self.mail_notes.say(f"{path}: {answer.message_with_remedy}")
            elif (
                str(answer["frontmatter"].get("status")).strip().casefold() == "pending"
                and not self.setup.stopping.is_set()
                and (found := self._judged(item, answer))
            ):
                judged.append((item, *found))
                if found[1] == MODEL:  # it took its time, and must not be asked again
                    self._decide(judged)
                    judged.clear()
        self._decide(judged)

    def _judged(self, item: InboxItem, note: Answer) -> tuple[Judgement, str] | None:
        """Return what becomes of a mail and by whose word; None where that is to be asked again."""
        facts = facts_of(item, words(text_of(str(note["body"]))))
        obstacle = self._obstacle(item)
        rule = None if item.wish else handbook.decide(self.rules, facts)
        if rule is not None:
            return settled(rule.judgement, obstacle), f"line {rule.line} of {HANDBOOK}"
        if self.setup.model is None and not self._texts.get(HANDBOOK):
            return Judgement("needs_info", why=f"There is no {HANDBOOK} with rules."), NO_RULE
        if self.setup.model is None:
            return settled(Judgement("draft_reply", why="No rule fits it."), obstacle), NO_RULE
        judgement = self._asked(item, note)
        if judgement is None or not self.mail_notes.is_unchanged(item):
            return None  # to be asked again; or a person was at the note meanwhile
        return settled(judgement, obstacle), MODEL

    def _obstacle(self, item: InboxItem) -> str:
        with self.setup.desk.ledger.read() as book:
            since = self.setup.desk.clock().wall - DAY
            drafts = book.drafts_in(item.account, item.thread, since)
        # Another version that the person asked for is none of its own accord.
        return not_answered(facts_of(item), 0 if item.wish else drafts, self.setup.most_drafts)

    def _asked(self, item: InboxItem, note: Answer) -> Judgement | None:
        shown: dict[str, Any] = note["frontmatter"]
        draft = ""
        if item.wish and item.letter:
            draft = self.setup.desk.ledger.entry(item.letter).letter.text
        case = Case(
            sender=str(shown.get("from", "")),
            to=str(shown.get("to", "")),
            subject=str(shown.get("subject", "")),
            date=str(shown.get("date", "")),
            body=str(note["body"]),
            handbook=self._texts.get(HANDBOOK, ""),
            style=self._texts.get(STYLE, ""),
            wish=item.wish,
            draft=draft,
        )
        try:
            judgement = self._thought(case)
        except (Invalid, AuthRequired) as why:  # the set-up is wrong, not the mail
            self._amiss("model", why.message_with_remedy)
            self._hold(item, why.message_with_remedy)
            return None
        except PostroomError as why:
            if self.setup.stopping.is_set():
                return None
            self._amiss("model", why.message_with_remedy)
            if item.tries + 1 >= TRIES:
                return Judgement("needs_info", why=f"The model gave no answer: {why.message}"[:300])
            self._hold(item, why.message)
            return None
        self.trouble.pop("model", None)
        return judgement

    def _thought(self, case: Case) -> Judgement:
        """Let the model think in a thread of its own: what was approved does not wait for it."""
        assert self.setup.model is not None
        with ThreadPoolExecutor(1) as pool:
            thinking = pool.submit(self.setup.model.judge, case)
            while not wait([thinking], TICK).done:
                self.breathe()
            return thinking.result()

    def _hold(self, item: InboxItem, why: str) -> None:
        with suppress(Conflict), self.setup.desk.ledger.write() as book:
            book.change(item, held=why, tries=item.tries + 1)

    def _decide(self, judged: Sequence[tuple[InboxItem, Judgement, str]]) -> None:
        """Write down what was decided, all at once; from here on it is only carried out."""
        if not judged:
            return
        done = []
        with self.setup.desk.ledger.write() as book:
            for item, judgement, by in judged:
                state = STATES.get(judgement.decision, "decided")
                with suppress(Conflict):
                    book.change(
                        item,
                        state=state,
                        judgement=json.dumps(asdict(_worded(judgement))),
                        by=by,
                        held="",
                        tries=0,
                        turn=item.turn + 1,
                    )
                    about = {"message": item.message, "decision": judgement.decision, "by": by}
                    book.log(
                        Action(
                            actor=ORCHESTRATOR,
                            action_type="triage_mail",
                            agent=ORCHESTRATOR,
                            parameters=about,
                        )
                    )
                    done.append((item, judgement, by))
        for item, judgement, by in done:
            self._tell("triaged", item, decision=judgement.decision, by=by)
        self.sync_stale_notes()

    # Drafting

    def _draft(self, item: InboxItem) -> None:
        """Put the answer that was decided on before the person; it waits there, whatever the settings."""
        judgement = judgement_of(item)
        if not self.setup.desk.rules.live:
            self._rehearse(item)
            return
        try:
            entry = self._proposed(item, judgement)
        except (Limited, Full, AuthRequired) as why:
            self._full = True
            self._held(item, f"{why.message.rstrip('.')}. It is drafted when there is room.")
            return
        except _AnsweredError as why:
            self._instead(item, "done", Judgement("archive", why=why.message))
            return
        except (Invalid, Denied, NotFound) as why:
            said = f"No answer is drafted by itself: {why.message.rstrip('.')}."[:300]
            self._instead(item, "needs_info", Judgement("needs_info", why=said))
            return
        except PostroomError as why:
            if item.tries + 1 >= TRIES and not isinstance(why, Unavailable):
                said = f"No answer could be drafted: {why.message_with_remedy}"[:300]
                self._instead(item, "needs_info", Judgement("needs_info", why=said))
            else:
                self._hold(item, why.message)
            return
        try:
            with self.setup.desk.ledger.write() as book:
                book.change(item, state="drafted", letter=entry.id, wish="", held="", tries=0)
                if not entry.replaces:
                    book.drafted_in(item.account, item.thread, entry.id)
        except Conflict:  # the next round finds it by its key, if it is still wanted
            return
        self._tell("drafted", item, letter=entry.id)
        self.sync_stale_notes()

    def _instead(self, item: InboxItem, state: str, judgement: Judgement) -> None:
        with suppress(Conflict), self.setup.desk.ledger.write() as book:
            book.change(item, state=state, judgement=json.dumps(asdict(judgement)), held="")
        self._tell("instead", item, decision=judgement.decision, why=judgement.why)

    def _proposed(self, item: InboxItem, judgement: Judgement) -> Entry:
        replaced = item.letter if item.wish else ""
        key = f"triage {item.turn} {item.account} {item.message}"[:200]
        with self.setup.desk.ledger.read() as book:
            bound = book.bound(ORCHESTRATOR, key)
        if bound:  # drafted after this was decided, and stopped before that was written down
            entry = self.setup.desk.ledger.entry(bound[0])
            self.setup.desk.sync_notes_and_log(entry)
            return entry
        if obstacle := self._obstacle(item):  # since it was judged, another may have been drafted
            raise Denied(obstacle)
        self._refuse_answered(item)
        _, answer = self.setup.services.mailbox.answer(
            item.account, id=item.message, thread="", everyone=False
        )
        written = Written(
            answer.to,
            answer.subject,
            judgement.text,
            answers=item.message,
            account=item.account,
        )
        place = self.setup.desk.ledger.place(item.key).path
        name = place.rpartition("/")[2].removesuffix(".md")
        urgent = {"priority": "urgent"} if judgement.decision == "urgent" else {}
        wish = Proposal(
            key=key,
            home=DRAFTS_FOLDER,
            replaces=replaced,
            always_ask=True,
            fields={"reply_to_message_id": item.message, "answers": f"[[{name}]]", **urgent},
        )
        letter = self.setup.desk.composer.letter(written)
        if item.by == NO_RULE and self.setup.desk.reading.card(letter, ()).level is Level.STOP:
            raise Denied("no rule asks for it, and its risk card would be red")
        return self.setup.desk.propose(_CALL, letter, wish)

    def _refuse_answered(self, item: InboxItem) -> None:
        """Refuse to answer what the person has answered meanwhile, from wherever."""
        mails = self.setup.services.mailbox.box(item.account).thread(item.message).messages
        named = {one.mail.message_id for one in mails if one.id == item.message} - {""}
        for one in mails:
            answers = {*one.mail.in_reply_to, *one.mail.references}
            if SENT in one.labels and named & answers:
                raise _AnsweredError("It was answered already.")

    def _rehearse(self, item: InboxItem) -> None:
        said = (
            f"Postroom rehearses ({self.setup.desk.rules.source}): it is drafted when that is over."
        )
        if item.held != said:
            self.setup.desk.recorder.write(
                _CALL, result="dev_mode", parameters={"message": item.message}
            )
            self._held(item, said)

    def _held(self, item: InboxItem, why: str) -> None:
        if item.held != why:
            with suppress(Conflict), self.setup.desk.ledger.write() as book:
                book.change(item, held=why)
            self._tell("held", item, why=why)

    def _tell(self, event: str, item: InboxItem, **facts: str) -> None:
        name = self.setup.desk.ledger.place(item.key).path.rpartition("/")[2].removesuffix(".md")
        self.setup.tell(event, account=item.account, mail=item.message, name=name, **facts)

    # What became of the letters

    def _letters(self) -> None:
        """Let mails follow their letters: answered they are done, and otherwise the person's."""
        with self.setup.desk.ledger.read() as book:
            news = book.news()
        for item in news:
            entry = self.setup.desk.ledger.entry(item.letter)
            changes: dict[str, str | int | float] = {}
            if item.by == BY_HAND and item.state == "done":
                self._withdraw(item, entry)
                continue
            match entry.state:
                case life.Sent():
                    changes = {"state": "done", "held": ""}
                case life.Rejected(revise=True, reason=wish) if self.setup.model is not None:
                    changes = {"state": "pending", "wish": wish or "Write it anew.", "tries": 0}
                case _ if entry.kind in life.OPEN:
                    changes = {"state": "drafted"}
                case state:
                    why = life.describe(state, id=entry.id)[:300]
                    judged = Judgement("needs_info", why=why)
                    changes = {"state": "needs_info", "judgement": json.dumps(asdict(judged))}
            if item.state == changes["state"]:
                continue
            with suppress(Conflict), self.setup.desk.ledger.write() as book:
                book.change(item, **changes)

    def _withdraw(self, item: InboxItem, entry: Entry) -> None:
        """Take back the answer to a mail that the person has just dealt with, if it still waits."""
        by = f"{BY_HAND}, whatever becomes of its letter"
        if isinstance(entry.state, life.Pending):
            try:
                self.setup.desk.withdraw(_CALL._replace(action_type="withdraw_letter"), entry.id)
            except Conflict:
                pass  # it was decided in this moment
            except PostroomError:
                return  # the next round does it
            by = f"{BY_HAND}; the answer that waited was withdrawn"
        with suppress(Conflict), self.setup.desk.ledger.write() as book:
            book.change(item, by=by)


def rules_of(text: str) -> tuple[Rule, ...]:
    """Return the rules of a handbook's text; `Corrupt` names the line that is wrong.

    A handbook that is there and has no rules where they belong was meant otherwise.
    """
    lines = list(numbered(text.removeprefix("\ufeff")))
    under = [(number, line) for number, over, line in lines if over == handbook.TITLE]
    if text.strip() and not under:
        raise Corrupt(
            f"{HANDBOOK} has no heading `## {handbook.TITLE}`, under which rules would count",
            remedy="Write it, in these letters. Until then no mail is triaged.",
        )
    elsewhere = handbook.misplaced((n, line) for n, over, line in lines if over != handbook.TITLE)
    if elsewhere:
        raise Corrupt(
            f"{HANDBOOK}, line {elsewhere}: a rule does not stand under `## {handbook.TITLE}`",
            remedy="Move it there, or put what only looks like one into a code fence.",
        )
    return handbook.parse((number, line) for number, line in under if not line.startswith("#"))


class _AnsweredError(PostroomError):
    """The mail was answered by other means."""


_CALL: Final = Call("draft_reply", ORCHESTRATOR, ORCHESTRATOR)


def _worded(judgement: Judgement) -> Judgement:
    """Return it with the text that stands where nobody gave one."""
    if judgement.text or judgement.decision not in (*DRAFTS, "delegate"):
        return judgement
    text = DELEGATED if judgement.decision == "delegate" else ACKNOWLEDGEMENT
    return Judgement(judgement.decision, text, judgement.why)
