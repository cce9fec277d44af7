"""The mailman: tells agents that are ready of their mail, by typing one line where they take input.

A hook brings mail without typing; this is for agents that rest. It types only into the pane that is the
agent's, only where nothing moves and nothing is typed, and looks whether the line was accepted.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from postroom.agents import roster, tmux
from postroom.agents.files import content, locked, overwrite, read_all
from postroom.agents.folder import MailFolder, States, change_states, find, record_nudge, states
from postroom.agents.mailbox import AgentMailbox
from postroom.agents.pane import PaneControl
from postroom.agents.record import AgentState, seconds
from postroom.agents.tmux import Pane
from postroom.core.errors import PostroomError, Unavailable
from postroom.core.text import one_line

AGAIN: Final = 60.0  # seconds between two nudges of one agent, and between two looks at all of them
FORGOTTEN: Final = 3600.0  # seconds after which a state counts no more
DEBOUNCE: Final = 500  # milliseconds without a change before a look
IMPLIED: Final = 0.5  # seconds between a first reading and the status that it made
CHILD: Final = "AGENTMAIL_DAEMON_CHILD"
STARTED: Final = 10.0  # seconds for one in the background to begin
STEP: Final = 0.025

Say = Callable[[str], None]


class Mailman:
    """One repository's mailman."""

    def __init__(
        self, folder: MailFolder, environ: Mapping[str, str], say: Say, stop: threading.Event
    ) -> None:
        self._folder = folder
        self._environ = environ
        self._say = say
        self._stop = stop
        self._control = PaneControl(environ, stop)
        self._nudged: dict[str, float] = {}  # when, of those that have no state
        self._reports: dict[str, str] = {}

    def cycle(self) -> None:
        """Nudge every agent that may be nudged."""
        self._folder.check()
        known = states(self._folder)
        panes = self._panes()
        ready = {
            state.name: _is_declared(state)
            for state in known
            if state.status == "ready" and time.time() - (seconds(state.notified) or 0.0) >= AGAIN
        }
        now = time.monotonic()
        stateless = set(self._folder.names()) - {state.name for state in known}
        ready |= {
            name: False
            for name in sorted(stateless)
            if now - self._nudged.get(name, -AGAIN) >= AGAIN
        }
        waiting = {name: is_ready for name, is_ready in ready.items() if self._has_unread(name)}
        self._nudged |= dict.fromkeys(stateless & waiting.keys(), now)
        threads = [
            threading.Thread(target=self._visit, args=(name, panes, is_ready))
            for name, is_ready in waiting.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        change_states(self._folder, _recent)

    def _visit(self, name: str, panes: list[Pane], is_ready: bool) -> None:  # noqa: FBT001
        try:
            pane = self._find_pane(name, panes)
            why = self._control.reason_to_wait(pane, is_ready=is_ready) or self._control.nudge(pane)
            if not why:
                AgentMailbox(self._folder, name).record_notice()
                record_nudge(self._folder, name)
        except Exception as wrong:  # noqa: BLE001 - one agent's trouble is no other's
            why = one_line(getattr(wrong, "message", "") or str(wrong))
        if not why:
            self._say(f"[mailman] told {one_line(name)} of its mail")
        elif self._reports.get(name) != why:  # not the same at every look
            self._say(f"[mailman] {one_line(name)} is not told yet: {why}")
        self._reports[name] = why

    def _panes(self) -> list[Pane]:
        try:
            if self._environ.get("TMUX") and self._environ.get("TMUX_PANE"):
                return tmux.panes(self._environ["TMUX_PANE"], self._environ)
            return tmux.all_panes(self._environ)
        except PostroomError:
            return []

    def _find_pane(self, name: str, panes: list[Pane]) -> Pane:
        """Return the one pane that is this agent's."""
        there = [pane for pane in panes if pane.name.strip() == name]
        registered = roster.registered(self._folder).get(name, {}).get("pane")
        own = [pane for pane in there if pane.id == registered]
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

    def _has_unread(self, name: str) -> bool:
        try:
            return AgentMailbox(self._folder, name).unread() > 0
        except (PostroomError, OSError):
            return False

    def run(self) -> None:
        """Look whenever mail comes or an agent becomes ready, and every minute, until stopped."""
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
                self._wait(watch.watch)

    def _wait(self, watch: Callable[..., object]) -> None:
        """Wait for a change that matters, a minute at most."""
        end = time.monotonic() + AGAIN
        while (left := end - time.monotonic()) > 0 and not self._stop.is_set():
            changes = watch(DEBOUNCE * 4, DEBOUNCE, int(left * 1000) + 1, self._stop)
            if isinstance(changes, set) and any(path.endswith(".jsonl") for _, path in changes):
                return


def _is_declared(state: AgentState) -> bool:
    """Whether the agent itself has set its status: a first reading makes one ready by itself."""
    read = state.last_read / 1000
    return not read or abs((seconds(state.updated) or 0.0) - read) > IMPLIED


def _recent(known: States) -> States:
    """Return the states that were renewed lately."""
    oldest = time.time() - FORGOTTEN
    return [state for state in known if (seconds(state.updated) or 0.0) > oldest]


# The process


def main(cwd: str, environ: Mapping[str, str], *, background: bool, say: Say, err: Say) -> int:
    """Run the mailman here, or in the background; there is one for a repository."""
    folder = find(cwd) or MailFolder(cwd)
    try:
        folder.make()
    except PostroomError as wrong:
        err(f"error: {one_line(wrong.message)}")
        return 1
    os.chdir(folder.root)
    try:
        with locked(folder.pid, patience=0.0, make=not background) as handle:
            old = _parse_pid(read_all(handle))
            if old and _is_alive(old) and old != os.getpid():
                err(f"error: mailman daemon already running (PID: {old})")
                return 2
            if old:
                err("Warning: Stale PID file found, cleaning up")
            if not background:
                return _serve(folder, environ, handle, say)
    except FileNotFoundError:
        pass  # there is none
    except Unavailable:
        err(f"error: mailman daemon already running (PID: {_read_pid(folder.pid)})")
        return 2
    except ValueError as wrong:
        err(f"error: failed to read PID file: invalid PID file content: {wrong}")
        return 1
    return _start(folder, environ, say, err)


def _serve(folder: MailFolder, environ: Mapping[str, str], handle: int, say: Say) -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    overwrite(handle, f"{os.getpid()}\n".encode())
    try:
        say(f"Mailman daemon started (PID: {os.getpid()})")
        Mailman(folder, environ, say, stop).run()
    finally:
        with suppress(OSError):
            # While we hold its lock: a process that waits for it sees that it is gone.
            os.unlink(folder.pid)
    return 0


def _start(folder: MailFolder, environ: Mapping[str, str], say: Say, err: Say) -> int:
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
    while _read_pid(folder.pid) != child and time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            err(f"error: the mailman ended with {os.waitstatus_to_exitcode(status)} at once")
            return 1
        time.sleep(STEP)
    say(f"Mailman daemon started in background (PID: {child})")
    return 0


def _read_pid(path: str) -> int:
    try:
        return _parse_pid(content(path, 100)) or 0
    except ValueError:
        return 0


def _parse_pid(data: bytes) -> int | None:
    text = data.decode("utf-8", "replace").strip()
    if not text:
        return None
    if not (text.isascii() and text.lstrip("+-").isdigit() and len(text) < 19):
        raise ValueError(f'strconv.Atoi: parsing "{one_line(text)[:60]}": invalid syntax')
    return int(text)


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
