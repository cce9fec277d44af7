"""The mailman: tells agents that are ready of their mail, by typing one line where they take input.

A hook brings mail without typing; this is for agents that rest. It types only into the pane that is the
agent's, only where nothing moves and nothing is typed, and looks whether the line was taken.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from postroom.agents import roster, tmux
from postroom.agents.files import content, locked, read_all, replace_all
from postroom.agents.folder import Folder, find
from postroom.agents.mailbox import Mailbox
from postroom.agents.record import State, seconds
from postroom.agents.screen import NUDGE, SHELLS, Screen, screen
from postroom.agents.states import change, states, was_notified
from postroom.agents.tmux import Pane
from postroom.core.errors import PostroomError, Unavailable
from postroom.core.text import one_line

AGAIN: Final = 60.0  # seconds between two nudges of one agent, and between two looks at all of them
FORGOTTEN: Final = 3600.0  # seconds after which a state counts no more
DEBOUNCE: Final = 500  # milliseconds without a change before a look
STILL: Final = 0.5  # seconds in which a pane at rest does not change
TYPING: Final = 5.0  # seconds since the last key of somebody who looks at the pane
TAKEN: Final = 3.0  # seconds that a program has to show, and to take, what was typed
STEP: Final = 0.1
IMPLIED: Final = 0.5  # seconds between a first reading and the status that it made
SETTLE: Final = 0.2
CHILD: Final = "AGENTMAIL_DAEMON_CHILD"
STARTED: Final = 10.0  # seconds for one in the background to begin

Say = Callable[[str], None]


class Look(NamedTuple):
    """A pane at one moment."""

    screen: Screen
    in_mode: bool
    command: str


class Hands:
    """What the mailman does to a pane."""

    def __init__(self, environ: Mapping[str, str], stop: threading.Event) -> None:
        self._environ = environ
        self._stop = stop

    def look(self, pane: str) -> Look:
        """Return what a pane shows."""
        head = "#{cursor_x} #{cursor_y} #{pane_in_mode} #{pane_current_command}"
        about = ["display-message", "-p", "-t", pane, head]
        words = [*about, ";", "capture-pane", "-p", "-e", "-t", pane]
        first, _, rest = tmux.run(words, self._environ).partition("\n")
        x, y, mode, command = first.split(" ", 3)
        return Look(screen(rest, int(x), int(y)), mode not in ("", "0"), command)

    def typed_lately(self, pane: Pane) -> bool:
        """Whether somebody who has this pane before them pressed a key just now."""
        rows = tmux.run(["list-clients", "-F", "#{client_activity} #{pane_id}"], self._environ)
        return any(
            row.endswith(f" {pane.id}") and time.time() - int(row.split()[0]) < TYPING
            for row in rows.splitlines()
        )

    def unrest(self, pane: Pane, *, ready: bool) -> str:
        """Return why one may not type there now; nothing where one may."""
        if pane.dead or pane.in_mode or pane.synchronized:
            return "its pane is not taking input of its own"
        if self.typed_lately(pane):
            return "somebody is typing there"
        before = self.look(pane.id)
        if self._stop.wait(STILL):
            return "the mailman ends"
        after = self.look(pane.id)
        if before != after or after.in_mode:
            return "it is at work"
        if after.screen.input():
            return "something is typed there already"
        if not ready and after.command.lstrip("-") in SHELLS:
            return f"{one_line(after.command)} is in front, and no agent has said that it is ready"
        return ""

    def nudge(self, pane: Pane) -> str:
        """Type the line and have it taken; return what went wrong, if anything."""
        tmux.run(["send-keys", "-t", pane.id, "-l", "--", NUDGE], self._environ)
        if not self._until(pane, lambda typed: typed == NUDGE):
            return "it does not show what is typed, or somebody typed at the same time"
        time.sleep(SETTLE)  # what comes in one piece with the text, some take for pasted
        for _ in range(2):
            if self.look(pane.id).screen.input() != NUDGE:
                return "somebody typed at the same time: the line was left as it is"
            tmux.run(["send-keys", "-t", pane.id, "Enter"], self._environ)
            if self._until(pane, lambda typed: NUDGE not in typed):
                return ""
        return "it did not take the line"

    def _until(self, pane: Pane, fits: Callable[[str], bool]) -> bool:
        for _ in range(int(TAKEN / STEP)):
            if fits(self.look(pane.id).screen.input()):
                return True
            time.sleep(STEP)  # also where the mailman is to end: no line is left half done
        return False


class Mailman:
    """One repository's mailman."""

    def __init__(
        self, folder: Folder, environ: Mapping[str, str], say: Say, stop: threading.Event
    ) -> None:
        self._folder = folder
        self._environ = environ
        self._say = say
        self._stop = stop
        self._hands = Hands(environ, stop)
        self._nudged: dict[str, float] = {}  # when, of those that have no state
        self._said: dict[str, str] = {}

    def cycle(self) -> None:
        """Tell everybody who may be told."""
        self._folder.check()
        found = states(self._folder)
        panes = self._panes()
        work: list[Callable[[], None]] = []
        for state in found:
            lately = time.time() - (seconds(state.notified) or 0.0) < AGAIN
            if state.status == "ready" and not lately and self._unread(state.name):
                work.append(self._visit(state.name, panes, ready=_said_so(state)))
        now = time.monotonic()
        known = {state.name for state in found}
        for name in self._folder.names():
            fresh = now - self._nudged.get(name, -AGAIN) < AGAIN
            if name not in known and not fresh and self._unread(name):
                self._nudged[name] = now
                work.append(self._visit(name, panes, ready=False))
        threads = [threading.Thread(target=visit) for visit in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._forget()

    def _visit(self, name: str, panes: list[Pane], *, ready: bool) -> Callable[[], None]:
        def visit() -> None:
            try:
                pane = self._pane(name, panes)
                why = self._hands.unrest(pane, ready=ready) or self._hands.nudge(pane)
                if not why:
                    Mailbox(self._folder, name).tell()
                    was_notified(self._folder, name)
            except Exception as wrong:  # noqa: BLE001 - one agent's trouble is no other's
                why = one_line(getattr(wrong, "message", "") or str(wrong))
            self._tell(name, why)

        return visit

    def _tell(self, name: str, why: str) -> None:
        """Say what became of it, but not the same at every look."""
        if not why:
            self._say(f"[mailman] told {one_line(name)} of its mail")
        elif self._said.get(name) != why:
            self._say(f"[mailman] {one_line(name)} is not told yet: {why}")
        self._said[name] = why

    def _panes(self) -> list[Pane]:
        try:
            if self._environ.get("TMUX") and self._environ.get("TMUX_PANE"):
                return tmux.panes(self._environ["TMUX_PANE"], self._environ)
            return tmux.all_panes(self._environ)
        except PostroomError:
            return []

    def _pane(self, name: str, panes: list[Pane]) -> Pane:
        """Return the one pane that is this agent's."""
        there = [pane for pane in panes if pane.name.strip() == name]
        told = roster.registered(self._folder).get(name, {}).get("pane")
        own = [pane for pane in there if pane.id == told]
        if not there:
            raise Unavailable("it has no window here; hooks or its own tools bring it")
        if not own and not self._environ.get("TMUX"):
            # Of all sessions, some may be other projects'.
            raise Unavailable(
                "it has not said yet in which pane it is; or start this in its session"
            )
        if len(there) > 1 and not own:
            raise Unavailable(
                "its window has several panes, and it has not said yet in which one it is"
            )
        return (own or there)[0]

    def _unread(self, name: str) -> bool:
        try:
            return Mailbox(self._folder, name).unread() > 0
        except (PostroomError, OSError):
            return False

    def _forget(self) -> None:
        """Drop the states that nobody has renewed for long."""

        def decide(found: list[State]) -> list[State]:
            oldest = time.time() - FORGOTTEN
            return [state for state in found if (seconds(state.updated) or 0.0) > oldest]

        change(self._folder, decide)

    def run(self) -> None:
        """Look whenever mail comes or an agent becomes ready, and every minute, until told to stop."""
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
                    self._say(f"[mailman] {one_line(getattr(why, 'message', '') or str(why))}")
                changed = self._wait(watch.watch)
                if not changed:
                    return

    def _wait(self, watch: Callable[..., object]) -> bool:
        """Wait for a change that matters, a minute at most; say whether to go on."""
        end = time.monotonic() + AGAIN
        while (left := end - time.monotonic()) > 0 and not self._stop.is_set():
            found = watch(DEBOUNCE * 4, DEBOUNCE, int(left * 1000) + 1, self._stop)
            if isinstance(found, set) and any(path.endswith(".jsonl") for _, path in found):
                break
        return not self._stop.is_set()


def _said_so(state: State) -> bool:
    """Whether the agent itself has said that it is ready: one who first reads becomes so without a word."""
    read = state.last_read / 1000
    return not read or abs((seconds(state.updated) or 0.0) - read) > IMPLIED


# The process


def main(cwd: str, environ: Mapping[str, str], *, background: bool, say: Say, err: Say) -> int:
    """Run the mailman here, or in the background; there is one for a repository."""
    folder = find(cwd) or Folder(cwd)
    try:
        folder.make()
    except PostroomError as wrong:
        err(f"error: {one_line(wrong.message)}")
        return 1
    os.chdir(folder.root)
    try:
        with locked(folder.pid, patience=0.0, make=not background) as handle:
            old = _pid(read_all(handle))
            if old and _alive(old) and old != os.getpid():
                err(f"error: mailman daemon already running (PID: {old})")
                return 2
            if old:
                err("Warning: Stale PID file found, cleaning up")
            if not background:
                return _serve(folder, environ, handle, say)
    except FileNotFoundError:
        pass  # there is none
    except Unavailable:
        err(f"error: mailman daemon already running (PID: {_of(folder.pid)})")
        return 2
    except ValueError as wrong:
        err(f"error: failed to read PID file: invalid PID file content: {wrong}")
        return 1
    return _start(folder, environ, say, err)


def _serve(folder: Folder, environ: Mapping[str, str], handle: int, say: Say) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    replace_all(handle, f"{os.getpid()}\n".encode())
    try:
        say(f"Mailman daemon started (PID: {os.getpid()})")
        Mailman(folder, environ, say, stop).run()
    finally:
        with suppress(OSError):
            os.unlink(
                folder.pid
            )  # while we hold its lock: whoever waits for it sees that it is gone
    return 0


def _start(folder: Folder, environ: Mapping[str, str], say: Say, err: Say) -> int:
    """Start another process that goes on when this one and its terminal are gone."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "postroom", "agentmail", "mailman"],
        {**environ, CHILD: "1"},
        file_actions=[(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)],
        setsid=True,
    )
    os.close(null)
    end = time.monotonic() + STARTED
    while _of(folder.pid) != child and time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            err(f"error: the mailman ended with {os.waitstatus_to_exitcode(status)} at once")
            return 1
        time.sleep(STEP / 4)
    say(f"Mailman daemon started in background (PID: {child})")
    return 0


def _of(path: str) -> int:
    try:
        return _pid(content(path, 100)) or 0
    except ValueError:
        return 0


def _pid(data: bytes) -> int | None:
    text = data.decode("utf-8", "replace").strip()
    if not text:
        return None
    if not (text.isascii() and text.lstrip("+-").isdigit() and len(text) < 19):
        raise ValueError(f'strconv.Atoi: parsing "{one_line(text)[:60]}": invalid syntax')
    return int(text)


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
