"""The orchestrator's rounds, and what the person finds of them in the vault: Dashboard.md, briefings, the state file.

All three only show: nothing is read back from them but the parts of Dashboard.md that the person wrote.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple, TypeVar

from postroom.core import life
from postroom.core.errors import Conflict, PostroomError
from postroom.core.handbook import MailFacts
from postroom.core.records import InboxItem, InboxState, LetterSummary
from postroom.core.stamp import DAY
from postroom.core.text import plural
from postroom.desk.note_sync import NoteSync
from postroom.orchestrator.context import RunContext
from postroom.orchestrator.triage import Triage
from postroom.orchestrator.watcher import Watcher
from postroom.services.inbox import MailNotes
from postroom.vault.folders import BRIEFINGS, DASHBOARD, HANDBOOK
from postroom.vault.markdown import link, quote, sections
from postroom.vault.vault import Vault

TICK_SECONDS: Final = 2.0  # between two looks at what people did to letters
SHORTEST_WAIT: Final = 0.1  # seconds: another dispatcher may have the letter
LONGEST_WAIT: Final = 30.0  # seconds that a single round waits for an undo window
MOST_SENTENCES: Final = 1_000  # that are remembered as told

T = TypeVar("T")
TITLE: Final = "Now"
MARK: Final = "%%postroom%%"  # a comment that Obsidian does not show
STATE_FILE: Final = "Logs/orchestrator_state.json"
MOST: Final = 20  # rows of one list
MOST_SENT: Final = 500  # sent letters that are looked at
REFRESH_SECONDS: Final = 900.0  # after which the time of the last round is written again
LEVEL_MARKS: Final = ("", "worth a look, ", "**red**, ")
LETTER_LISTS: Final = (
    ("Waiting for your decision", ("pending",)),
    ("May or may not have been sent", ("unknown",)),
    ("Approved, and not sent yet", ("approved", "sending")),
)
MAIL_LISTS: Final = (
    ("Mail that needs you", (InboxState.NEEDS_INFO, InboxState.FAILED)),
    ("Mail for somebody else", (InboxState.DELEGATED,)),
    ("Mail that is still to be triaged", (InboxState.PENDING, InboxState.DECIDED)),
)
BRIEFING_WORDS: Final = {
    InboxState.DONE: "dealt with",
    InboxState.DRAFTED: "answered by a draft",
    InboxState.NEEDS_INFO: "left to you",
    InboxState.DELEGATED: "for somebody else",
    InboxState.FAILED: "put aside as unreadable",
}

UNEVENTFUL: Final = {InboxState.BEFORE, InboxState.ASIDE, InboxState.GONE}


class Orchestrator:
    def __init__(self, context: RunContext) -> None:
        self.context = context
        sync = NoteSync(context.desk.vault, context.desk.ledger)
        self._mail_notes = MailNotes(sync, context.inbox, self._tell_once)
        self._watcher = Watcher(context, self._mail_notes, self._send_due_now)
        self._triage = Triage(context, self._mail_notes, self._send_due_now)
        self._dashboard = Dashboard(context, self._health)
        self._last_tick = 0.0
        self._reported: set[str] = set()
        context.servers.keep_waiting = self._keep_waiting
        if error := getattr(context.model, "error", None):  # known before any mail is judged
            context.trouble["model"] = error.message_with_remedy

    def run(self, *, once: bool, backlog: str = "") -> bool:
        """Run until stopped, or `once`: one round and the undo windows that pass shortly. Return whether all parts are well."""
        stopping, next_round = self.context.stopping, 0.0
        try:
            if backlog:
                self.add_backlog(backlog)
            while not stopping.is_set():
                if time.monotonic() >= next_round:
                    self.round()
                    next_round = time.monotonic() + self.context.interval
                    if once:
                        self._wait_for_undo_windows()
                        break
                else:
                    self._attempt(self._tick)
                stopping.wait(max(0.0, min(TICK_SECONDS, next_round - time.monotonic())))
        finally:
            self._dashboard.update(is_stopped=True)
            self.context.emit("stopped")
        return all(one.is_well for one in self._health())

    def add_backlog(self, query: str) -> None:
        """Take mail that is there already; a query that does not parse raises, and nothing is done."""
        self.context.desk.effects.check_ownership()
        for account in self.context.accounts:
            if self._watcher.find_new(account):
                self._watcher.add_backlog(account, query)

    def round(self) -> None:
        """Look at everything once; a part that fails does not keep the others waiting."""
        if not self._attempt(self.context.desk.effects.check_ownership):
            return  # the vault is another desk's: nothing in it is touched
        if self._attempt(
            lambda: self._handle_letters(begins_round=True),
            self._mail_notes.reconcile,
            self._watcher.find_all_new,
            self._watcher.write_notes,
            self._triage.round,
            self._handle_letters,
            self._triage.finish_round,
        ):
            self.context.trouble.pop("round", None)
        self._dashboard.update()

    def _attempt(self, *parts: Callable[[], object]) -> bool:
        """Do each part, whether others fail or not, and report the first error; return whether all went well."""
        first: PostroomError | None = None
        for part in parts:
            try:
                part()
            except PostroomError as error:
                first = first or error
        if first:
            self.context.report("round", first)
        return first is None

    def _tick(self) -> None:
        """Between two rounds: take in what people decided, and send what is due."""
        if self._handle_letters():
            self._triage.finish_round()
            self._dashboard.update()

    def _send_due_now(self) -> None:
        """Within a long round: send what is due, at most every few seconds."""
        if time.monotonic() - self._last_tick >= TICK_SECONDS:
            self._attempt(self._handle_letters)

    def _keep_waiting(self) -> bool:
        self._send_due_now()
        return not self.context.stopping.is_set()

    def _handle_letters(self, *, begins_round: bool = False) -> bool:
        """Take in verdicts, slips and requests, and send what is due; return whether anything happened."""
        desk = self.context.desk
        before = desk.reader.actions.head()  # it grows with everything that happens
        remarks = desk.reconcile(adopt=True)
        if begins_round:  # what is still so in the next round is not a passing remark
            self._dashboard.remarks = remarks
        self._tell_once(*remarks)
        for entry in desk.send_approved():
            why = _why_not_sent(entry.state)
            self.context.emit("letter", letter=entry.id, state=entry.kind, reason=why)
        self._tell_once(*desk.problems)
        desk.problems.clear()
        self._last_tick = time.monotonic()
        return desk.reader.actions.head() != before

    def _tell_once(self, *sentences: str) -> None:
        for sentence in sentences:
            if sentence not in self._reported:
                if len(self._reported) > MOST_SENTENCES:
                    self._reported.clear()
                self._reported.add(sentence)
                self.context.emit("remark", text=sentence)

    def _wait_for_undo_windows(self) -> None:
        desk = self.context.desk
        end = time.monotonic() + LONGEST_WAIT
        while not self.context.stopping.is_set():
            waits = [
                desk.dispatcher.due_in(letter.state)
                for letter in desk.reader.lists.summaries("approved")
                if isinstance(letter.state, life.Approved) and not letter.state.held
            ]
            shortest = min(waits, default=float("inf"))
            if time.monotonic() + shortest > end:
                break
            self.context.stopping.wait(max(shortest, SHORTEST_WAIT))
            self._attempt(self._tick)

    def _health(self) -> list[PartHealth]:
        count = len(self._triage.rules)
        texts = {f"account {name}": "followed" for name in self.context.accounts}
        texts[HANDBOOK] = plural(count, "rule") if count else "no rules"
        texts["model"] = (
            self.context.model_name or "none: mail that fits no rule gets an acknowledgement"
        )
        broken = self._mail_notes.broken.items()
        problems = self.context.trouble | self._mail_notes.problems
        problems |= {path: f"{why}. Mend it, or take it away." for path, why in broken}
        texts |= problems
        return [PartHealth(part, part not in problems, text) for part, text in texts.items()]


def _why_not_sent(state: life.State) -> str:
    match state:
        case life.Approved(held=why) | life.Failed(reason=why) | life.Unknown(why=why):
            return why
    return ""


class PartHealth(NamedTuple):
    """How one part of the orchestrator is, and what to do where something is wrong."""

    part: str
    is_well: bool
    text: str


class Dashboard:
    def __init__(self, context: RunContext, health: Callable[[], Sequence[PartHealth]]) -> None:
        self.remarks: Sequence[str] = ()  # about notes in the folders that count for nothing
        self._context = context
        self._desk = context.desk
        self._reader = context.desk.reader
        self._health = health
        self._started = context.desk.clock().iso
        self._last_text, self._last_time = "", 0.0
        self._last_day = ""
        self._last_state = ""

    def update(self, *, is_stopped: bool = False) -> None:
        """Bring all three up to now; what cannot be written is written by the next round."""
        with suppress(PostroomError):
            self._desk.effects.check_ownership()
            for write in (
                partial(self._write_dashboard, is_stopped=is_stopped),
                self._write_briefing,
                self._write_state,
            ):
                with suppress(PostroomError):
                    write()

    def _local(self, wall: float) -> datetime:
        return datetime.fromtimestamp(wall, self._context.zone)

    def _write_dashboard(self, *, is_stopped: bool) -> None:
        now = self._desk.clock().wall
        text = "\n".join(self._dashboard_lines())
        is_fresh = 0 <= now - self._last_time < REFRESH_SECONDS
        if text == self._last_text and is_fresh and not is_stopped:
            return
        at = f"{self._local(now):%Y-%m-%d %H:%M}"
        running = f"Running. Last looked at {at}."
        stopped = f"Not running since {at}; start it with `postroom run`."
        status = stopped if is_stopped else running
        _replace_section(self._desk.vault, f"## {TITLE}\n\n{MARK}\n{status}\n{text}\n")
        self._last_text, self._last_time = text, now

    def _dashboard_lines(self) -> Iterator[str]:
        rules, now = self._desk.rules, self._desk.clock()
        yield f"Mode: {quote(rules.mode)}. Trust level: {rules.trust}."
        if paused := self._desk.paused():
            yield f"\n**Sending and sorting of mail is paused** by `{paused}`: delete it to go on."
        # Urgent letters and those with a red line come first: they are easily overlooked.
        letters = sorted(self._reader.lists.summaries(), key=_by_urgency)
        for title, kinds in LETTER_LISTS:
            chosen = [letter for letter in letters if life.name(letter.state) in kinds]
            yield from _list(title, chosen, self._letter_row)
        for title, states in MAIL_LISTS:
            items = self._context.inbox.records.in_states(*states)
            yield from _list(title, items[::-1], self._mail_row)
        today = self._local(now.wall).date()
        sent = [one for one, wall in self._sent() if self._local(wall).date() == today]
        yield from _list("Sent today", sent[::-1], self._letter_title, show_empty=True)
        yield f"\nSent: {self._desk.meter().describe(self._context.zone)}."
        if self.remarks:
            yield "\n### What your folders say\n"
            yield from (f"- {quote(remark[:300])}" for remark in self.remarks[:MOST])
        yield "\n### Health\n"
        for one in self._health():
            yield f"- {quote(one.part)}: {'' if one.is_well else '**amiss**, '}{quote(one.text)}"

    def _mail_row(self, item: InboxItem) -> str:
        facts, judgement = item.facts or MailFacts(), item.judgement
        why = item.held or (judgement.why if judgement else "")
        about = f"{quote(facts.sender[:80])}, {quote(facts.subject[:120])}"
        return f"{self._mail_link(item)} {about}{_remark(why)}"

    def _letter_row(self, letter: LetterSummary) -> str:
        marks = ("**urgent**, " if _is_urgent(letter) else "") + LEVEL_MARKS[letter.level]
        notice = self._reader.notes.location(letter.id).notice
        remark = _remark(getattr(letter.state, "held", "") or notice)
        return f"{self._letter_title(letter, marks)}, by {quote(letter.agent)}{remark}"

    def _letter_title(self, letter: LetterSummary, marks: str = "") -> str:
        return f"{self._letter_link(letter)} {marks}{_about(letter)}"

    def _mail_link(self, item: InboxItem) -> str:
        return link(self._context.note_path(item), item.message)

    def _letter_link(self, letter: LetterSummary) -> str:
        return link(self._reader.notes.location(letter.id).path, letter.id)

    def _sent(self) -> list[tuple[LetterSummary, float]]:
        """Return the letters that were sent last, oldest first, and when."""
        summaries = self._reader.lists.summaries("sent", newest=MOST_SENT)
        return [(one, one.state.at.wall) for one in summaries if isinstance(one.state, life.Sent)]

    def _write_briefing(self) -> None:
        now, vault = self._desk.clock().wall, self._desk.vault
        day = f"{self._local(now):%Y-%m-%d}"
        path = f"{BRIEFINGS}/{day}.md"
        if day != self._last_day and vault.stat(path) is None:
            lines = self._briefing_lines(day, since=now - DAY)
            if not lines:
                return
            vault.create(path, ("\n".join(lines) + "\n").encode())
        self._last_day = day

    def _briefing_lines(self, day: str, *, since: float) -> list[str]:
        """Return the briefing; on the first day nothing before something has happened."""
        records = self._context.inbox.records
        changed = records.count_by_state(since)
        sent = [one for one, wall in self._sent() if wall >= since]
        waiting = self._reader.lists.summaries("pending")
        is_first = not self._desk.vault.names(BRIEFINGS)
        if is_first and not (sent or waiting or set(changed) - UNEVENTFUL):
            return []
        dealt_with = [
            f"- Mail {words}: {changed[state]}"
            for state, words in BRIEFING_WORDS.items()
            if changed.get(state)
        ]
        lines = [
            *(f"# Briefing of {day}", "", "## The last 24 hours", ""),
            *(dealt_with or ["- No mail was dealt with."]),
            *_counted("Letters that left", sent, _about),
            *("", "## Waiting now", ""),
            *_counted("Letters that wait for your word", waiting, self._letter_link),
        ]
        for title, (state, *_) in MAIL_LISTS[:2]:
            lines += _counted(title, records.in_states(state), self._mail_link)
        unwell = [f"- {quote(o.part)}: {quote(o.text)}" for o in self._health() if not o.is_well]
        return [*lines, "", "## Amiss", "", *unwell] if unwell else lines

    def _write_state(self) -> None:
        records, vault = self._context.inbox.records, self._desk.vault
        cursors = {name: records.cursor(name) for name in self._context.accounts}
        progress = {
            "version": 1,
            "pid": os.getpid(),
            "started": self._started,
            "accounts": {
                name: {"cursor": cursor.cursor if cursor else ""}
                for name, cursor in cursors.items()
            },
            "mails": records.count_by_state(),
            "health": [
                {"part": one.part, "ok": one.is_well, "text": one.text} for one in self._health()
            ],
        }
        text = json.dumps(progress, indent=1) + "\n"
        if text == self._last_state:
            return
        if vault.stat(STATE_FILE) is None:
            vault.create(STATE_FILE, text.encode(), mode=0o600)
        else:
            vault.replace(STATE_FILE, text.encode(), vault.read(STATE_FILE)[1])
        self._last_state = text


def _is_urgent(letter: LetterSummary) -> bool:
    return letter.fields.get("priority") == "urgent"


def _by_urgency(letter: LetterSummary) -> tuple[bool, int, float]:
    return not _is_urgent(letter), -letter.level, -letter.created.wall


def _about(letter: LetterSummary) -> str:
    return f"{quote(letter.recipients[:120])}, {quote(letter.subject[:120] or '(no subject)')}"


def _remark(text: str) -> str:
    return f": {quote(text[:200])}" if text else ""


def _list(
    title: str, items: Sequence[T], row: Callable[[T], str], *, show_empty: bool = False
) -> Iterator[str]:
    if items or show_empty:
        yield f"\n### {title} ({len(items)})\n"
    yield from (f"- {row(item)}" for item in items[:MOST])
    if len(items) > MOST:
        yield f"- and {len(items) - MOST} more"


def _counted(title: str, items: Sequence[T], row: Callable[[T], str]) -> list[str]:
    return [f"- {title}: {len(items)}", *(f"  - {row(item)}" for item in items[-MOST:])]


def _replace_section(vault: Vault, new: str) -> None:
    """Put our section into the dashboard; what the person wrote around it stays."""
    if vault.stat(DASHBOARD) is None:
        with suppress(Conflict):
            vault.create(DASHBOARD, f"# Postroom\n\n{new}".encode())
        return
    raw, file = vault.read(DASHBOARD)
    parts = sections(raw.decode(errors="surrogateescape").replace("\r\n", "\n"))
    texts = [text for _, text in parts]
    # Only a section with our mark: the person may have one of the same title.
    ours = [at for at, (title, text) in enumerate(parts) if title == TITLE and MARK in text]
    if ours:
        texts[ours[0]] = new + ("\n" if ours[0] + 1 < len(texts) else "")
    else:
        texts.append(("" if texts[-1].endswith("\n\n") else "\n") + new)
    newline = "\r\n" if b"\r\n" in raw else "\n"
    data = "".join(texts).replace("\n", newline).encode(errors="surrogateescape")
    if data != raw:
        vault.replace(DASHBOARD, data, file)
