"""What a person finds in the vault: Dashboard.md kept current, a briefing a day, and the state file.

All three only show: nothing is read back from them but the parts of Dashboard.md that the person wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from postroom.core import life
from postroom.core.errors import Conflict, PostroomError
from postroom.core.handbook import MailFacts
from postroom.core.records import InboxItem, InboxState, LetterSummary
from postroom.core.text import duration
from postroom.core.values import dataclass
from postroom.orchestrator.context import RunContext
from postroom.vault.folders import BRIEFINGS, DASHBOARD
from postroom.vault.markdown import link, quote, sections
from postroom.vault.vault import Vault

T = TypeVar("T")
TITLE: Final = "Now"
MARK: Final = "%%postroom%%"  # a comment that Obsidian does not show
STATE_FILE: Final = "Logs/orchestrator_state.json"
MOST: Final = 20  # rows of one list
REFRESH_SECONDS: Final = 900.0  # after which the time of the last round is written again
HEAD: Final = "# Postroom\n\n"
DAY: Final = 86_400
LEVEL_MARKS: Final = ("", "worth a look, ", "**red**, ")
LETTER_LISTS: Final = (
    ("Waiting for your word", ("pending",)),
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


class PartHealth(NamedTuple):
    """How one part of the orchestrator is, and what to do where something is wrong."""

    part: str
    is_well: bool
    text: str


@dataclass(slots=True)
class Dashboard:
    """Writes the dashboard, the briefings and the state file."""

    context: RunContext
    health: Callable[[], Sequence[PartHealth]]
    remarks: Callable[[], Sequence[str]]  # about notes in the folders that count for nothing
    progress: Callable[[], Mapping[str, Any]]
    _last_text: str = ""
    _last_time: float = 0
    _last_day: str = ""
    _last_state: str = ""

    def update(self, *, is_stopped: bool = False) -> None:
        """Bring all three up to now; what cannot be written is written by the next round."""
        with suppress(PostroomError):
            self.context.desk.effects.check_ownership()
            writers = (
                partial(self._update_dashboard, is_stopped=is_stopped),
                self._write_briefing,
                self._write_state,
            )
            for write in writers:
                with suppress(PostroomError):
                    write()

    def _local(self, wall: float) -> datetime:
        return datetime.fromtimestamp(wall, self.context.zone)

    # Dashboard.md

    def _update_dashboard(self, *, is_stopped: bool) -> None:
        now = self.context.desk.clock().wall
        text = "\n".join(self._dashboard_lines())
        is_fresh = 0 <= now - self._last_time < REFRESH_SECONDS
        if text == self._last_text and is_fresh and not is_stopped:
            return
        at = f"{self._local(now):%Y-%m-%d %H:%M}"
        status = f"Running. Last looked at {at}."
        if is_stopped:
            status = f"Not running since {at}; start it with `postroom run`."
        section = f"## {TITLE}\n\n{MARK}\n{status}\n{text}\n"
        _replace_section(self.context.desk.vault, section)
        self._last_text, self._last_time = text, now

    def _dashboard_lines(self) -> Iterator[str]:
        desk, overview = self.context.desk, self.context.services.overview
        yield f"Mode: {quote(desk.rules.mode)}. Trust level: {desk.rules.trust}."
        if paused := desk.paused():
            yield f"\n**Sending and sorting of mail is paused** by `{paused}`: delete it to go on."
        letters = overview.lists.summaries()
        for title, kinds in LETTER_LISTS:
            chosen = [letter for letter in letters if life.name(letter.state) in kinds]
            # Urgent letters and those with a red line come first: they are easily overlooked.
            yield from _list(title, sorted(chosen, key=_by_urgency), self._letter_row)
        items = self.context.inbox.records.in_states(
            *(state for _, states in MAIL_LISTS for state in states)
        )
        for title, states in MAIL_LISTS:
            newest_first = [item for item in reversed(items) if item.state in states]
            yield from _list(title, newest_first, self._mail_row)
        now = desk.clock()
        today = self._local(now.wall).date()
        sent = [one for one, at in overview.sent() if self._local(at.wall).date() == today]
        yield from _list("Left today", sent[::-1], self._sent_row, show_empty=True)
        left, window = overview.sends_left(now), duration(desk.rules.window)
        yield f"\nBudget: {left} of {desk.rules.sends} letters may still leave within {window}."
        if remarks := self.remarks():
            yield "\n### What your folders say\n"
            yield from (f"- {quote(remark[:300])}" for remark in remarks[:MOST])
        yield "\n### Health\n"
        for one in self.health():
            yield f"- {quote(one.part)}: {'' if one.is_well else '**amiss**, '}{quote(one.text)}"

    def _mail_row(self, item: InboxItem) -> str:
        facts, judgement = item.facts or MailFacts(), item.judgement
        why = item.held or (judgement.why if judgement else "")
        about = f"{quote(facts.sender[:80])}, {quote(facts.subject[:120])}"
        return f"{self._mail_link(item)} {about}{_remark(why)}"

    def _letter_row(self, letter: LetterSummary) -> str:
        note = self.context.services.overview.notes.location(letter.id)
        marks = ("**urgent**, " if _is_urgent(letter) else "") + LEVEL_MARKS[letter.level]
        remark = _remark(getattr(letter.state, "held", "") or note.notice)
        return f"{link(note.path, letter.id)} {marks}{_about(letter)}, by {quote(letter.agent)}{remark}"

    def _sent_row(self, letter: LetterSummary) -> str:
        return f"{self._letter_link(letter)} {_about(letter)}"

    def _mail_link(self, item: InboxItem) -> str:
        return link(self.context.inbox.note_path(item), item.message)

    def _letter_link(self, letter: LetterSummary) -> str:
        return link(self.context.services.overview.notes.location(letter.id).path, letter.id)

    # Briefings

    def _write_briefing(self) -> None:
        now = self.context.desk.clock().wall
        day = f"{self._local(now):%Y-%m-%d}"
        path = f"{BRIEFINGS}/{day}.md"
        vault = self.context.desk.vault
        if day != self._last_day and vault.stat(path) is None:
            lines = self._briefing_lines(day, since=now - DAY)
            if not lines:
                return
            vault.create(path, ("\n".join(lines) + "\n").encode())
        self._last_day = day

    def _briefing_lines(self, day: str, *, since: float) -> list[str]:
        """Return the briefing; on the first day nothing before something has happened."""
        inbox, overview = self.context.inbox, self.context.services.overview
        counts, changed = inbox.records.count_by_state(), inbox.records.count_by_state(since)
        sent = [one for one, at in overview.sent() if at.wall >= since]
        waiting = overview.lists.summaries("pending")
        is_first = not self.context.desk.vault.names(BRIEFINGS)
        if is_first and not (sent or waiting or set(changed) - UNEVENTFUL):
            return []
        lines = [f"# Briefing of {day}", "", "## The last 24 hours", ""]
        lines += [
            f"- Mail {words}: {changed[state]}"
            for state, words in BRIEFING_WORDS.items()
            if changed.get(state)
        ] or ["- No mail was dealt with."]
        lines += [f"- Letters that left: {len(sent)}"]
        lines += [f"  - {_about(one)}" for one in sent[-MOST:]]
        lines += ["", "## Waiting now", "", f"- Letters that wait for your word: {len(waiting)}"]
        lines += [f"  - {self._letter_link(one)}" for one in waiting[-MOST:]]
        for state, words in (
            (InboxState.NEEDS_INFO, "that needs you"),
            (InboxState.DELEGATED, "for somebody else"),
        ):
            lines += [f"- Mail {words}: {counts.get(state, 0)}"]
            lines += [
                f"  - {self._mail_link(item)}" for item in inbox.records.in_states(state)[-MOST:]
            ]
        if unwell := [one for one in self.health() if not one.is_well]:
            lines += ["", "## Amiss", ""]
            lines += [f"- {quote(one.part)}: {quote(one.text)}" for one in unwell]
        return lines

    def _write_state(self) -> None:
        text, vault = json.dumps(self.progress(), indent=1) + "\n", self.context.desk.vault
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
    """Yield a list under its title with the count, cut after some rows."""
    if items or show_empty:
        yield f"\n### {title} ({len(items)})\n"
    yield from (f"- {row(item)}" for item in items[:MOST])
    if len(items) > MOST:
        yield f"- and {len(items) - MOST} more"


def _replace_section(vault: Vault, new: str) -> None:
    """Put our section into the dashboard; what the person wrote around it stays."""
    if vault.stat(DASHBOARD) is None:
        with suppress(Conflict):
            vault.create(DASHBOARD, f"{HEAD}{new}".encode())
        return
    raw, file = vault.read(DASHBOARD)
    parts = sections(raw.decode(errors="surrogateescape").replace("\r\n", "\n"))
    texts = [text for _, text in parts]
    # Only a section with our mark: the person may have one of the same title.
    ours = (at for at, (title, text) in enumerate(parts) if title == TITLE and MARK in text)
    at = next(ours, None)
    if at is None:
        texts.append(("" if texts[-1].endswith("\n\n") else "\n") + new)
    else:
        texts[at] = new + ("\n" if at + 1 < len(texts) else "")
    newline = "\r\n" if b"\r\n" in raw else "\n"
    data = "".join(texts).replace("\n", newline).encode(errors="surrogateescape")
    if data != raw:
        vault.replace(DASHBOARD, data, file)
