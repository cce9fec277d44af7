"""What a person finds in the vault: Dashboard.md kept current, a briefing a day, and how far the orchestrator is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, Final

from postroom.core import life
from postroom.core.errors import Conflict, PostroomError
from postroom.core.records import InboxItem, LetterSummary
from postroom.core.stamp import Stamp, elapsed
from postroom.core.text import duration
from postroom.desk.desk import Desk
from postroom.desk.outbox import FIELDS
from postroom.orchestrator.incoming import judgement_of
from postroom.vault.folders import BRIEFINGS, DASHBOARD
from postroom.vault.markdown import link, quote, sections
from postroom.vault.vault import Vault

NOW: Final = "Now"
MARK: Final = "%%postroom%%"  # which Obsidian does not show
CLOSED: Final = {"before", "aside", "gone"}
STATE: Final = "Logs/orchestrator_state.json"
MOST: Final = 20  # lines of one list
FRESH: Final = 900.0  # seconds after which the time of the last look is written again
HEAD: Final = "# Postroom\n\n"


@dataclass(frozen=True, slots=True)
class Health:
    """How a part is, in words, and what to do where something is amiss."""

    part: str
    well: bool
    said: str


@dataclass(slots=True)
class Dashboard:
    """Writes what there is to be seen; nothing is read back from it."""

    desk: Desk
    zone: tzinfo
    health: Callable[[], Sequence[Health]]
    said: Callable[[], Sequence[str]]
    progress: Callable[[], Mapping[str, Any]]
    _written: str = ""
    _looked: float = 0
    _day: str = ""
    _state: str = ""

    def show(self, *, stopped: bool = False) -> None:
        """Bring the dashboard, the briefing and the state file up to now."""
        # What cannot be written now is written by the next round.
        with suppress(PostroomError):
            self.desk.belongs()
            for write in (
                partial(self._dashboard, stopped=stopped),
                self._briefing,
                self._progress,
            ):
                with suppress(PostroomError):
                    write()

    def _local(self, wall: float) -> datetime:
        return datetime.fromtimestamp(wall, self.zone)

    # Dashboard.md

    def _dashboard(self, *, stopped: bool) -> None:
        now = self.desk.clock().wall
        text = "\n".join(self._now())
        if text == self._written and not stopped and 0 <= now - self._looked < FRESH:
            return
        at = f"{self._local(now):%Y-%m-%d %H:%M}"
        seen = f"Not running since {at}; start it with `postroom run`." if stopped else ""
        seen = seen or f"Running. Last looked at {at}."
        _section(self.desk.vault, f"## {NOW}\n\n{MARK}\n{seen}\n{text}\n")
        self._written, self._looked = text, now

    def _now(self) -> Iterator[str]:
        desk, rules = self.desk, self.desk.rules
        yield f"Mode: {quote(rules.mode)}. Trust level: {rules.trust}."
        paused = desk.paused()
        if paused:
            yield f"\n**Sending and sorting of mail is paused** by `{paused}`: delete it to go on."
        lines = desk.ledger.lines()
        yield from self._letters("Waiting for your word", lines, "pending")
        yield from self._letters("May or may not have been sent", lines, "unknown")
        yield from self._letters("Approved, and not sent yet", lines, "approved", "sending")
        with desk.ledger.read() as book:
            items = book.items("needs_info", "delegated", "decided", "failed", "pending")
        yield from self._mails("Mail that needs you", items, "needs_info", "failed")
        yield from self._mails("Mail for somebody else", items, "delegated")
        yield from self._mails("Mail that is still to be triaged", items, "pending", "decided")
        yield from self._left()
        if said := self.said():
            yield "\n### What your folders say\n"
            yield from (f"- {quote(one[:300])}" for one in said[:MOST])
        yield "\n### Health\n"
        for one in self.health():
            yield f"- {quote(one.part)}: {'' if one.well else '**amiss**, '}{quote(one.said)}"

    def _letters(self, title: str, lines: Sequence[LetterSummary], *states: str) -> Iterator[str]:
        chosen = [line for line in lines if life.name(line.state) in states]
        # Urgent ones, and those with a red line, are easily overlooked below others.
        urgent = {line.id for line in chosen if self._urgent(line.id)}
        chosen.sort(key=lambda line: (line.id not in urgent, -line.level, -line.created.wall))
        if not chosen:
            return
        yield f"\n### {title} ({len(chosen)})\n"
        for line in chosen[:MOST]:
            about = f"{quote(line.recipients[:120])}, {quote(line.subject[:120] or '(no subject)')}"
            held = getattr(line.state, "held", "") or self.desk.ledger.place(line.id).notice
            marked = "**urgent**, " if line.id in urgent else ""
            marked += ("", "worth a look, ", "**red**, ")[line.level]
            said = f": {quote(held[:200])}" if held else ""
            yield f"- {self._linked(line.id, line.id)} {marked}{about}, by {quote(line.agent)}{said}"
        yield from _more(chosen)

    def _urgent(self, id: str) -> bool:
        shown = json.loads(self.desk.ledger.meta(f"{FIELDS}{id}") or "{}")
        return bool(shown.get("priority") == "urgent")

    def _mails(self, title: str, items: Sequence[InboxItem], *states: str) -> Iterator[str]:
        chosen = [item for item in items if item.state in states]
        if not chosen:
            return
        yield f"\n### {title} ({len(chosen)})\n"
        for item in chosen[: -MOST - 1 : -1]:
            facts = json.loads(item.facts or "{}")
            why = item.held or (judgement_of(item).why if item.judgement else "")
            said = f": {quote(why[:200])}" if why else ""
            about = (
                f"{quote(facts.get('sender', '')[:80])}, {quote(facts.get('subject', '')[:120])}"
            )
            yield f"- {self._linked(item.key, item.message)} {about}{said}"
        yield from _more(chosen)

    def _left(self) -> Iterator[str]:
        now = self.desk.clock()
        today = self._local(now.wall).date()
        sent = [line for line, at in self._sent() if self._local(at.wall).date() == today]
        rules = self.desk.rules
        with self.desk.ledger.read() as book:
            claims = book.spent(now, rules.window)
        spent = sum(elapsed(claim.at, now) < rules.window for claim in claims)
        yield f"\n### Left today ({len(sent)})\n"
        for line in sent[: -MOST - 1 : -1]:
            about = f"{quote(line.recipients[:120])}, {quote(line.subject[:120] or '(no subject)')}"
            yield f"- {self._linked(line.id, line.id)} {about}"
        yield from _more(sent)
        left = max(0, rules.sends - spent)
        yield f"\nBudget: {left} of {rules.sends} letters may still leave within {duration(rules.window)}."

    def _sent(self) -> Iterator[tuple[LetterSummary, Stamp]]:
        for line in self.desk.ledger.lines("sent", newest=500):
            if isinstance(line.state, life.Sent):
                yield line, line.state.at

    # Briefings

    def _briefing(self) -> None:
        now = self.desk.clock().wall
        day = f"{self._local(now):%Y-%m-%d}"
        path = f"{BRIEFINGS}/{day}.md"
        if day == self._day or self.desk.vault.stat(path) is not None:
            self._day = day
            return
        since = now - 86_400
        with self.desk.ledger.read() as book:
            tally, moved = book.tally(), book.tally(since)
            asking = book.items("needs_info", "delegated")
        sent = [line for line, at in self._sent() if at.wall >= since]
        waiting = self.desk.ledger.lines("pending")
        if not (sent or waiting or set(moved) - CLOSED or self.desk.vault.names(BRIEFINGS)):
            return  # on the first day there is nothing to tell before something has happened
        text = [f"# Briefing of {day}", "", "## The last 24 hours", ""]
        words = {
            "done": "dealt with", "drafted": "answered by a draft", "needs_info": "left to you",
            "delegated": "for somebody else", "failed": "put aside as unreadable",
        }  # fmt: skip
        rows = [
            f"- Mail {said}: {moved[state]}" for state, said in words.items() if moved.get(state)
        ]
        text += rows or ["- No mail was dealt with."]
        text += [f"- Letters that left: {len(sent)}"]
        text += [
            f"  - {quote(one.recipients[:120])}, {quote(one.subject[:120])}" for one in sent[-MOST:]
        ]
        text += ["", "## Waiting now", "", f"- Letters that wait for your word: {len(waiting)}"]
        text += [f"  - {self._linked(one.id, one.id)}" for one in waiting[-MOST:]]
        for state, said in (("needs_info", "that needs you"), ("delegated", "for somebody else")):
            text += [f"- Mail {said}: {tally.get(state, 0)}"]
            mine = [one for one in asking if one.state == state][-MOST:]
            text += [f"  - {self._linked(one.key, one.message)}" for one in mine]
        amiss = [one for one in self.health() if not one.well]
        text += ["", "## Amiss", ""] if amiss else []
        text += [f"- {quote(one.part)}: {quote(one.said)}" for one in amiss]
        self.desk.vault.create(path, ("\n".join(text) + "\n").encode())
        self._day = day

    def _linked(self, key: str, otherwise: str) -> str:
        return link(self.desk.ledger.place(key).path, otherwise)

    # Logs/orchestrator_state.json

    def _progress(self) -> None:
        text = json.dumps(self.progress(), indent=1) + "\n"
        if text != self._state:
            put(self.desk.vault, STATE, text.encode(), mode=0o600)
            self._state = text


def put(vault: Vault, path: str, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file whole, whether it is there already or not."""
    if vault.stat(path) is None:
        vault.create(path, data, mode=mode)
    else:
        vault.replace(path, data, vault.read(path)[1])


def _section(vault: Vault, new: str) -> None:
    """Put our section into the dashboard; what the person wrote around it stays."""
    if vault.stat(DASHBOARD) is None:
        with suppress(Conflict):
            vault.create(DASHBOARD, f"{HEAD}{new}".encode())
        return
    raw, file = vault.read(DASHBOARD)
    parts = sections(raw.decode(errors="surrogateescape").replace("\r\n", "\n"))
    # Only a section that we made: a person may have one of that name.
    there = [at for at, (title, text) in enumerate(parts) if title == NOW and MARK in text]
    texts = [text for _, text in parts]
    if there:
        texts[there[0]] = new + ("\n" if there[0] + 1 < len(texts) else "")
    else:
        texts.append(("" if texts[-1].endswith("\n\n") else "\n") + new)
    newline = "\r\n" if b"\r\n" in raw else "\n"
    data = "".join(texts).replace("\n", newline).encode(errors="surrogateescape")
    if data != raw:
        vault.replace(DASHBOARD, data, file)


def _more(chosen: Sequence[object]) -> Iterator[str]:
    if len(chosen) > MOST:
        yield f"- and {len(chosen) - MOST} more"
