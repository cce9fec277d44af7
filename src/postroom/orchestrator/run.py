"""The round: what people decided, new mail, triage, what was approved, and what there is to be seen of it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from postroom.core import life
from postroom.core.errors import PostroomError
from postroom.orchestrator.dashboard import Dashboard, Health
from postroom.orchestrator.mail_notes import MailNotes
from postroom.orchestrator.setup import Setup
from postroom.orchestrator.triage import Triage
from postroom.orchestrator.watcher import Watcher
from postroom.vault.folders import HANDBOOK

TICK: Final = 2.0  # seconds between two looks at what people did to letters
SHORTEST: Final = 0.1  # and the least of it: another dispatcher may have the letter
LONGEST_WAIT: Final = 30.0  # seconds that a single round waits for an undo window
AGENT: Final = "watcher"  # as which the servers are asked


class Orchestrator:
    """Goes round by round until it is told to stop."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._started = setup.desk.clock()
        self._mail_notes = MailNotes(setup.desk.vault, setup.desk.ledger, self._say)
        self._watcher = Watcher(setup, self._mail_notes, self._breathe)
        self._triage = Triage(setup, self._mail_notes, self._breathe)
        self._dashboard = Dashboard(
            setup.desk, setup.zone, self._health, lambda: self._folders, self._progress
        )
        self._ticked = 0.0
        self._trouble = ""
        self._said: set[str] = set()
        self._folders: list[str] = []
        setup.servers.between = self._between
        if wrong := getattr(setup.model, "error", None):  # known before any mail is judged
            self._triage.trouble["model"] = wrong.message_with_remedy

    def run(self, *, once: bool, backlog: str = "") -> bool:
        """Go on until told to stop; or for one round, and the undo windows that pass shortly.

        Returns whether all was well at the end.
        """
        due = 0.0
        try:
            if backlog:
                self._backlog(backlog)
            while not self.setup.stopping.is_set():
                if time.monotonic() >= due:
                    self.round()
                    due = time.monotonic() + self.setup.interval
                    if once:
                        self._wait_out()
                        break
                else:
                    self._tick()
                self.setup.stopping.wait(max(0.0, min(TICK, due - time.monotonic())))
        finally:
            self._dashboard.show(stopped=True)
            self.setup.tell("stopped")
        return all(one.well for one in self._health())

    def _backlog(self, query: str) -> None:
        """Take mail that is there already; a query that is none is an error, and nothing is begun."""
        self.setup.desk.belongs()
        for account in self.setup.accounts:
            self._watcher.look(account)
            if account not in self._watcher.trouble:
                self._watcher.backlog(account, query)

    def round(self) -> None:
        """Look at everything once; what fails in one part does not keep the others waiting."""
        amiss = ""
        try:
            self.setup.desk.belongs()
        except PostroomError as why:  # whatever stands there is not ours to look at
            self._amiss(why.message_with_remedy)
            return
        for part in (
            lambda: self._letters(adopt=True),
            self._mail_notes.reconcile,
            self._watch,
            self._watcher.bring,
            self._triage.round,
            self._letters,
            self._triage.round_off,
        ):
            try:
                part()
            except PostroomError as why:
                amiss = amiss or why.message_with_remedy
        self._amiss(amiss)
        self._dashboard.show()

    def _watch(self) -> None:
        for account in self.setup.accounts:
            self._watcher.look(account)

    def _amiss(self, why: str) -> None:
        if why and why != self._trouble:
            self.setup.tell("trouble", error=why)
        self._trouble = why

    def _tick(self) -> None:
        """Between two rounds: take in what people decided, and send what is due."""
        try:
            if self._letters():
                self._triage.round_off()
                self._dashboard.show()
        except PostroomError as why:
            self._amiss(why.message_with_remedy)

    def _breathe(self) -> None:
        """Within a long round: what was approved does not wait for all of it."""
        if time.monotonic() - self._ticked >= TICK:
            try:
                self._letters()
            except PostroomError as why:
                self._amiss(why.message_with_remedy)

    def _between(self) -> bool:
        self._breathe()
        return not self.setup.stopping.is_set()

    def _letters(self, *, adopt: bool = False) -> int:
        desk, before = self.setup.desk, self.setup.desk.ledger.head()
        said = desk.reconcile(adopt=adopt)
        for sentence in said:
            self._say(sentence)
        if adopt:  # what is still so in the next round is no passing remark
            self._folders = said
        for entry in desk.send_approved():
            self.setup.tell("letter", letter=entry.id, state=entry.kind, said=_told(entry.state))
        for sentence in desk.trouble:
            self._say(sentence)
        desk.trouble.clear()
        self._ticked = time.monotonic()
        return desk.ledger.head() - before

    def _say(self, sentence: str) -> None:
        """Say what a person should know, once."""
        if sentence not in self._said:
            if len(self._said) > 1_000:
                self._said.clear()
            self._said.add(sentence)
            self.setup.tell("said", text=sentence)

    def _wait_out(self) -> None:
        """Wait for letters that were approved just now, and may leave shortly."""
        desk = self.setup.desk
        end = time.monotonic() + LONGEST_WAIT
        while not self.setup.stopping.is_set():
            waits = [
                desk.dispatcher.due_in(line.state)
                for line in desk.ledger.lines("approved")
                if isinstance(line.state, life.Approved) and not line.state.held
            ]
            shortest = min(waits, default=None)
            if shortest is None or time.monotonic() + shortest > end:
                break
            self.setup.stopping.wait(max(shortest, SHORTEST))
            self._tick()

    # What there is to be seen

    def _health(self) -> Sequence[Health]:
        found = []
        for account in self.setup.accounts:
            why = self._watcher.trouble.get(account)
            said = why.message_with_remedy if why else "followed"
            found.append(Health(f"account {account}", why is None, said))
        amiss = self._triage.trouble
        count = len(self._triage.rules)
        rules = f"{count} rule{'' if count == 1 else 's'}" if count else "no rules"
        found.append(Health(HANDBOOK, "handbook" not in amiss, amiss.get("handbook", rules)))
        name = self.setup.model_name or "none: what no rule fits gets an acknowledgement"
        found.append(Health("model", "model" not in amiss, amiss.get("model", name)))
        if self._trouble:
            found.append(Health("round", well=False, said=self._trouble))
        for path, stands in self._mail_notes.amiss.items():
            found.append(Health(path, well=False, said=stands))
        for path, why_not in self._mail_notes.broken.items():
            found.append(Health(path, well=False, said=f"{why_not}. Mend it, or take it away."))
        return found

    def _progress(self) -> Mapping[str, Any]:
        with self.setup.desk.ledger.read() as book:
            watched = {name: book.watched(name) for name in self.setup.accounts}
            tally = book.tally()
        return {
            "version": 1,
            "pid": os.getpid(),
            "started": self._started.iso,
            "accounts": {
                name: {"cursor": watch.cursor if watch else ""} for name, watch in watched.items()
            },
            "mails": tally,
            "health": [asdict(one) for one in self._health()],
        }


def _told(state: life.State) -> str:
    match state:
        case life.Approved(held=held):
            return held
        case life.Failed(reason=reason):
            return reason
        case life.Unknown(why=why):
            return why
    return ""
