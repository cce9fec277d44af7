"""The orchestrator's rounds: verdicts, new mail, triage, letters that are due, and the dashboard."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from postroom.core import life
from postroom.core.errors import PostroomError
from postroom.core.text import plural
from postroom.orchestrator.context import RunContext
from postroom.orchestrator.dashboard import Dashboard, PartHealth
from postroom.orchestrator.triage import Triage
from postroom.orchestrator.watcher import Watcher
from postroom.vault.folders import HANDBOOK

TICK_SECONDS: Final = 2.0  # between two looks at what people did to letters
SHORTEST_WAIT: Final = 0.1  # seconds: another dispatcher may have the letter
LONGEST_WAIT: Final = 30.0  # seconds that a single round waits for an undo window
MOST_SENTENCES: Final = 1_000  # that are remembered as told
NO_MODEL: Final = "none: what no rule fits gets an acknowledgement"
AGENT: Final = "watcher"  # as which the servers are asked


class Orchestrator:
    """Works round by round until it is told to stop."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self._started = context.desk.clock()
        self._mail_notes = context.services.mail_notes(self._tell_once)
        self._watcher = Watcher(context, self._mail_notes, self._send_due_now)
        self._triage = Triage(context, self._mail_notes, self._send_due_now)
        self._dashboard = Dashboard(context, self._health, lambda: self._remarks, self._progress)
        self._last_tick = 0.0
        self._trouble = ""
        self._reported: set[str] = set()
        self._remarks: list[str] = []
        context.servers.keep_waiting = self._keep_waiting
        if error := getattr(context.model, "error", None):  # known before any mail is judged
            self._triage.trouble["model"] = error.message_with_remedy

    def run(self, *, once: bool, backlog: str = "") -> bool:
        """Run until told to stop; with `once`, one round and the undo windows that pass shortly.

        Returns whether all parts were well at the end.
        """
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
                    self._tick()
                stopping.wait(max(0.0, min(TICK_SECONDS, next_round - time.monotonic())))
        finally:
            self._dashboard.update(is_stopped=True)
            self.context.emit("stopped")
        return all(one.is_well for one in self._health())

    def add_backlog(self, query: str) -> None:
        """Take mail that is there already; a query that does not parse raises, and nothing is done."""
        self.context.desk.effects.check_ownership()
        for account in self.context.accounts:
            self._watcher.find_new(account)
            if account not in self._watcher.trouble:
                self._watcher.add_backlog(account, query)

    def round(self) -> None:
        """Look at everything once; a part that fails does not keep the others waiting."""
        try:
            self.context.desk.effects.check_ownership()
        except PostroomError as error:  # the vault is another desk's: nothing in it is touched
            self._report(error)
            return
        trouble: PostroomError | None = None
        for part in (
            lambda: self._handle_letters(adopt=True),
            self._mail_notes.reconcile,
            self._watch,
            self._watcher.write_notes,
            self._triage.round,
            self._handle_letters,
            self._triage.finish_round,
        ):
            try:
                part()
            except PostroomError as error:
                trouble = trouble or error
        self._report(trouble)
        self._dashboard.update()

    def _watch(self) -> None:
        for account in self.context.accounts:
            self._watcher.find_new(account)

    def _report(self, error: PostroomError | None) -> None:
        trouble = error.message_with_remedy if error else ""
        if trouble and trouble != self._trouble:
            self.context.emit("trouble", error=trouble)
        self._trouble = trouble

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except PostroomError as error:
            self._report(error)

    def _tick(self) -> None:
        """Between two rounds: take in what people decided, and send what is due."""
        with self._reporting():
            if self._handle_letters():
                self._triage.finish_round()
                self._dashboard.update()

    def _send_due_now(self) -> None:
        """Within a long round: send what is due, at most every few seconds."""
        if time.monotonic() - self._last_tick >= TICK_SECONDS:
            with self._reporting():
                self._handle_letters()

    def _keep_waiting(self) -> bool:
        self._send_due_now()
        return not self.context.stopping.is_set()

    def _handle_letters(self, *, adopt: bool = False) -> bool:
        """Take in verdicts and send what is due; return whether anything happened."""
        desk, overview = self.context.desk, self.context.services.overview
        before = overview.last_action()
        remarks = desk.reconcile(adopt=adopt)
        for sentence in remarks:
            self._tell_once(sentence)
        if adopt:  # what is still so in the next round is no passing remark
            self._remarks = remarks
        for entry in desk.send_approved():
            why = _why_not_sent(entry.state)
            self.context.emit("letter", letter=entry.id, state=entry.kind, said=why)
        for sentence in desk.problems:
            self._tell_once(sentence)
        desk.problems.clear()
        self._last_tick = time.monotonic()
        return overview.last_action() != before

    def _tell_once(self, sentence: str) -> None:
        """Tell the person something, once."""
        if sentence not in self._reported:
            if len(self._reported) > MOST_SENTENCES:
                self._reported.clear()
            self._reported.add(sentence)
            self.context.emit("said", text=sentence)

    def _wait_for_undo_windows(self) -> None:
        """Wait for letters that were approved just now, and send them."""
        desk = self.context.desk
        end = time.monotonic() + LONGEST_WAIT
        while not self.context.stopping.is_set():
            waits = [
                desk.dispatcher.due_in(letter.state)
                for letter in self.context.services.overview.lists.summaries("approved")
                if isinstance(letter.state, life.Approved) and not letter.state.held
            ]
            shortest = min(waits, default=None)
            if shortest is None or time.monotonic() + shortest > end:
                break
            self.context.stopping.wait(max(shortest, SHORTEST_WAIT))
            self._tick()

    # What the dashboard shows

    def _health(self) -> Sequence[PartHealth]:
        count = len(self._triage.guidance.rules)
        texts = {f"account {name}": "followed" for name in self.context.accounts}
        texts[HANDBOOK] = plural(count, "rule") if count else "no rules"
        texts["model"] = self.context.model_name or NO_MODEL
        problems = {
            f"account {name}": error.message_with_remedy
            for name, error in self._watcher.trouble.items()
        }
        for part, text in self._triage.trouble.items():
            problems[HANDBOOK if part == "handbook" else part] = text
        if self._trouble:
            problems["round"] = self._trouble
        problems |= self._mail_notes.problems
        for path, why in self._mail_notes.broken.items():
            problems[path] = f"{why}. Mend it, or take it away."
        texts |= problems
        return [PartHealth(part, part not in problems, text) for part, text in texts.items()]

    def _progress(self) -> Mapping[str, Any]:
        inbox = self.context.inbox
        cursors = {name: inbox.records.cursor(name) for name in self.context.accounts}
        return {
            "version": 1,
            "pid": os.getpid(),
            "started": self._started.iso,
            "accounts": {
                name: {"cursor": cursor.cursor if cursor else ""}
                for name, cursor in cursors.items()
            },
            "mails": inbox.records.count_by_state(),
            "health": [
                {"part": one.part, "well": one.is_well, "said": one.text} for one in self._health()
            ],
        }


def _why_not_sent(state: life.State) -> str:
    match state:
        case life.Approved(held=why) | life.Failed(reason=why) | life.Unknown(why=why):
            return why
    return ""
