"""The mailman: tells idle agents about their mail by typing one line into their terminal pane.

A hook shows mail to an agent at work; the mailman is for agents that wait for input. It types only into the agent's
own pane, and only while nothing there changes and the input is empty. Then it checks that the program accepted the
line. It never types over what a person has begun.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Final, NamedTuple

from postroom.agents import roster, tmux
from postroom.agents.folder import MailFolder, content, find, locked, overwrite, read_all
from postroom.agents.mailbox import AgentMailbox
from postroom.agents.record import AgentState, now, seconds
from postroom.agents.roster import States, change_state, change_states, states
from postroom.agents.tmux import Pane
from postroom.core.errors import Invalid, PostroomError, Unavailable, raise_if
from postroom.core.stop import StopEvent
from postroom.core.text import one_line
from postroom.store.files import Locked

NUDGE: Final = "Check your agentmail"
# Seconds, unless the name says milliseconds.
NUDGE_INTERVAL: Final = 60.0  # between two nudges of one agent; also between two rounds at most
STATE_LIFETIME: Final = 3600.0  # a state that was not renewed for so long is removed
DEBOUNCE_MS: Final = 500  # a round begins once the files have not changed for so long
READ_TO_READY: Final = 0.5  # at most, from an agent's first read to the `ready` that it sets
STILL_TIME: Final = 0.5  # an idle pane does not change for so long
TYPING_TIME: Final = 5.0  # a person counts as typing for so long after a key
INPUT_TIMEOUT: Final = 3.0  # for a program to show a typed line, and again to accept it
ENTER_DELAY: Final = 0.2  # between a typed line and its Enter
CAPTURE_INTERVAL: Final = 0.1  # between two captures of a pane

Say = Callable[[str], None]


class Mailman:
    def __init__(
        self, folder: MailFolder, environ: Mapping[str, str], say: Say, stop: Event
    ) -> None:
        self._folder = folder
        self._environ = environ
        self._log = say
        self._stop = stop
        self._nudged_at: dict[
            str, float
        ] = {}  # by name; agents without a state have no record of it
        self._last_reasons: dict[str, str] = {}  # why an agent was not nudged, by name

    def run(self) -> None:
        """Do a round whenever mail comes or an agent becomes ready, and every minute, until stopped."""
        from watchfiles._rust_notify import RustNotify

        self._folder.make()
        with RustNotify(
            [self._folder.path, self._folder.boxes],
            debug=False,
            force_polling=False,
            poll_delay_ms=0,
            recursive=False,
            ignore_permission_denied=True,
        ) as watch:
            while not self._stop.is_set():
                try:
                    self.cycle()
                except Exception as why:  # noqa: BLE001 - nothing here ends the mailman
                    self._log(f"[mailman] {_reason(why)}")
                self._wait(watch.watch)

    def _wait(self, watch: Callable[..., object]) -> None:
        """Wait until a mailbox or a state changes, for a minute at most."""
        end = time.monotonic() + NUDGE_INTERVAL
        while (left := end - time.monotonic()) > 0 and not self._stop.is_set():
            changes = watch(DEBOUNCE_MS * 4, DEBOUNCE_MS, int(left * 1000) + 1, self._stop)
            if isinstance(changes, set) and any(path.endswith(".jsonl") for _, path in changes):
                return

    def cycle(self) -> None:
        """Do one round: nudge every agent that has mail and may be nudged, all at once."""
        self._folder.check()
        known = states(self._folder)
        panes = self._panes()
        begun = time.monotonic()
        due = {
            state.name: _is_declared(state)
            for state in known
            if state.status == "ready"
            and time.time() - (seconds(state.notified) or 0.0) >= NUDGE_INTERVAL
        }
        for name in sorted(set(self._folder.names()) - {state.name for state in known}):
            if begun - self._nudged_at.get(name, -NUDGE_INTERVAL) >= NUDGE_INTERVAL:
                due[name] = False
        with ThreadPoolExecutor(max_workers=len(due) or 1) as threads:
            for name, is_ready in due.items():
                with suppress(PostroomError, OSError):
                    if AgentMailbox(self._folder, name).unread() > 0:
                        threads.submit(self._nudge_or_log, name, panes, is_ready=is_ready)
                        self._nudged_at[name] = begun
        change_states(self._folder, _keep_recent)

    def _nudge_or_log(self, name: str, panes: list[Pane], *, is_ready: bool) -> None:
        """Nudge one agent and record that, or log the reason why not. Never raises: it runs in a thread of its own."""
        why, text = "", f"told {one_line(name)} of its mail"
        try:
            pane = self._find_pane(name, panes)
            self._check_idle(pane, is_ready=is_ready)
            self._nudge(pane)
            AgentMailbox(self._folder, name).record_notice()
            change_state(self._folder, name, lambda old: old._replace(notified=now()))
        except Exception as error:  # noqa: BLE001 - one agent's trouble is no other's
            why = _reason(error)
            text = f"{one_line(name)} is not told yet: {why}"
        if not why or self._last_reasons.get(name) != why:  # the same reason is logged once
            self._log(f"[mailman] {text}")
        self._last_reasons[name] = why

    def _panes(self) -> list[Pane]:
        pane = self._environ.get("TMUX") and self._environ.get("TMUX_PANE")
        with suppress(PostroomError):
            return tmux.panes(pane or None, self._environ)
        return []

    def _find_pane(self, name: str, panes: list[Pane]) -> Pane:
        """Return the pane of this agent; raise `Unavailable` if it cannot be told from others."""
        named = [pane for pane in panes if pane.name.strip() == name]
        registered = roster.registered(self._folder).get(name, {}).get("pane")
        own = [pane for pane in named if pane.id == registered]
        # Without tmux around us, the list has all sessions: a window of another project may have that name.
        is_here = own or self._environ.get("TMUX")
        unknown = "it has not said yet in which pane it is; or start this in its session"
        several = "its window has several panes, and it has not said yet in which one it is"
        raise_if(
            (not named, "it has no window here; hooks or its own tools bring it", ""),
            (not is_here, unknown, ""),
            (len(named) > 1 and not own, several, ""),
            kind=Unavailable,
        )
        return (own or named)[0]

    def _capture(self, pane: Pane) -> Screen:
        head = "#{cursor_x} #{cursor_y} #{pane_in_mode} #{pane_current_command}"
        about = ["display-message", "-p", "-t", pane.id, head]
        words = [*about, ";", "capture-pane", "-p", "-e", "-t", pane.id]
        first, _, captured = tmux.run(words, self._environ).partition("\n")
        x, y, mode, command = first.split(" ", 3)
        return Screen(captured, int(x), int(y), mode not in ("", "0"), command)

    def _is_person_typing(self, pane: Pane) -> bool:
        rows = tmux.run(["list-clients", "-F", "#{client_activity} #{pane_id}"], self._environ)
        return any(
            row.endswith(f" {pane.id}") and time.time() - int(row.split()[0]) < TYPING_TIME
            for row in rows.splitlines()
        )

    def _check_idle(self, pane: Pane, *, is_ready: bool) -> None:
        """Raise `Unavailable` with the reason if nothing may be typed into a pane now.

        With `is_ready`, the agent has set its status to ready itself: then a shell in the foreground is its own.
        """
        if pane.dead or pane.in_mode or pane.synchronized:
            raise Unavailable("its pane is not taking input of its own")
        if self._is_person_typing(pane):
            raise Unavailable("somebody is typing there")
        before = self._capture(pane)
        if self._stop.wait(STILL_TIME):
            raise Unavailable("the mailman ends")
        after = self._capture(pane)
        is_agent = is_ready or after.command.lstrip("-") not in SHELLS
        shell = f"{one_line(after.command)} is in front, and no agent has said that it is ready"
        raise_if(
            (before != after or after.in_mode, "it is at work", ""),
            (after.typed_text(), "something is typed there already", ""),
            (not is_agent, shell, ""),
            kind=Unavailable,
        )

    def _nudge(self, pane: Pane) -> None:
        """Type the line and press Enter until it is accepted; raise `Unavailable` with the reason if it is not."""
        tmux.run(["send-keys", "-t", pane.id, "-l", "--", NUDGE], self._environ)
        if not self._wait_for_input(pane, lambda typed: typed == NUDGE):
            raise Unavailable("it does not show what is typed, or somebody typed at the same time")
        time.sleep(ENTER_DELAY)  # some programs take an Enter that comes with the text for pasted
        for _ in range(2):
            if self._capture(pane).typed_text() != NUDGE:
                raise Unavailable("somebody typed at the same time: the line was left as it is")
            tmux.run(["send-keys", "-t", pane.id, "Enter"], self._environ)
            if self._wait_for_input(pane, lambda typed: NUDGE not in typed):
                return
        raise Unavailable("it did not take the line")

    def _wait_for_input(self, pane: Pane, is_expected: Callable[[str], bool]) -> bool:
        """Return True once the text in the pane's input is as expected, False after `INPUT_TIMEOUT`."""
        for _ in range(int(INPUT_TIMEOUT / CAPTURE_INTERVAL)):
            if is_expected(self._capture(pane).typed_text()):
                return True
            # Not `_stop.wait`: a mailman that is stopped still finishes the line that it began.
            time.sleep(CAPTURE_INTERVAL)
        return False


def _reason(error: Exception) -> str:
    return one_line(getattr(error, "message", "") or str(error))


def _is_declared(state: AgentState) -> bool:
    """Whether the agent set its status itself, and not its first read of mail, which makes it ready too."""
    read = state.last_read / 1000
    return not read or abs((seconds(state.updated) or 0.0) - read) > READ_TO_READY


def _keep_recent(known: States) -> States:
    oldest = time.time() - STATE_LIFETIME
    return [state for state in known if (seconds(state.updated) or 0.0) > oldest]


SHELLS: Final = frozenset("sh bash zsh fish dash ksh mksh tcsh csh nu elvish xonsh pwsh".split())
_BORDERS: Final = " │┃|╎┆\t"
_CODES: Final = re.compile(r"\x1b\[([0-9;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
# The numbers of a colour are not codes of their own.
_COLOUR: Final = re.compile(r"\b[34]8;(?:5;\d*|2;\d*;\d*;\d*)")
# The first of these signs with a blank after it is the prompt; the text after it is typed. A prompt that ends in `:`
# is left out: it asks for a password or a choice, not for a line to work on.
_PROMPT: Final = re.compile(r"[>❯›»$#%λ➜](?:\s|$)")
_INPUT: Final = re.compile(r"\s*[│┃|]?\s?[>❯›](?:\s(.*))?")


class Screen(NamedTuple):
    """A pane at one moment: its text with the codes for colours, and the place of the cursor."""

    captured: str
    x: int
    y: int
    in_mode: bool = False
    command: str = ""

    def typed_text(self) -> str:
        """Return the text that is typed but not submitted; empty also if no input can be found."""
        rows = [_without_dimmed(row) for row in self.captured.split("\n")]
        row = rows[self.y] if self.y < len(rows) else ""
        left, right = row[: self.x], row[self.x :]
        if left.strip(_BORDERS) or right.strip(_BORDERS):
            prompt = _PROMPT.search(left)
            return (left[prompt.end() if prompt else 0 :] + right).strip(_BORDERS)
        # The cursor is parked elsewhere: take the last row that looks like an input.
        inputs = [match for match in map(_INPUT.fullmatch, rows) if match]
        return (inputs[-1][1] or "").strip(_BORDERS) if inputs else ""


def _without_dimmed(row: str) -> str:
    """Return a row with blanks in place of dimmed text, which is a program's hint and not typed."""
    kept, at, is_dim = [], 0, False
    for code in _CODES.finditer(f"{row}\x1b[m"):
        piece = row[at : code.start()]
        kept.append(" " * len(piece) if is_dim else piece)
        at = code.end()
        if code[1] is not None:
            numbers = _COLOUR.sub("38", code[1]).split(";")
            changes = [number == "2" for number in numbers if number in {"", "0", "2", "22"}]
            is_dim = changes[-1] if changes else is_dim
    return "".join(kept)


def main(cwd: str, environ: Mapping[str, str], *, background: bool, say: Say, err: Say) -> int:
    """Run the mailman in this process, or in the background; return the exit code. A repository has one at most."""
    folder = find(cwd) or MailFolder(cwd)
    folder.make()
    os.chdir(folder.root)
    try:
        with locked(folder.pid, patience=0.0) as handle:
            old = _parse_pid(read_all(handle))
            if old == os.getpid() or not _is_alive(old):
                if old:
                    err("Warning: Stale PID file found, cleaning up")
                return _serve(folder, environ, handle, say, background=background)
    except Locked:
        old = 0
        with suppress(Invalid):
            old = _parse_pid(content(folder.pid, 100))
    err(f"error: mailman daemon already running (PID: {old})")
    return 2


def _serve(
    folder: MailFolder, environ: Mapping[str, str], handle: int, say: Say, *, background: bool
) -> int:
    """Deliver until a signal comes; in the background, in a process that outlives this one and its terminal."""
    stop = StopEvent()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    child = os.fork() if background else 0
    overwrite(handle, f"{child or os.getpid()}\n".encode())  # both processes write the same
    if child:  # it has the file's lock too, and keeps it
        say(f"Mailman daemon started in background (PID: {child})")
        return 0
    if background:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
    try:
        say(f"Mailman daemon started (PID: {os.getpid()})")
        Mailman(folder, environ, say, stop).run()
    finally:
        with suppress(OSError):
            # Still under the file's lock: a process that waits for the lock then sees that the file is gone.
            os.unlink(folder.pid)
    return 0


def _parse_pid(data: bytes) -> int:
    """Return the process id in a PID file; 0 if the file is empty."""
    text = data.decode("utf-8", "replace").strip()
    if text and not (text.isascii() and text.lstrip("+-").isdigit() and len(text) < 19):
        why = f'strconv.Atoi: parsing "{one_line(text)[:60]}": invalid syntax'
        raise Invalid(f"failed to read PID file: invalid PID file content: {why}")
    return int(text or "0")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0
