"""Notifies the person of a waiting letter: on the desktop, or by a command of their own."""

from __future__ import annotations

import html
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field
from tempfile import TemporaryFile

from postroom.core.audit import redact_addresses, redact_subject
from postroom.core.records import Entry
from postroom.core.values import dataclass

TIMEOUT = 10.0  # seconds for the command to end
_APPLE = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    desktop: bool
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def __call__(self, entry: Entry, page: str = "") -> None:
        """Notify of one letter: recipients, subject, agent and page; never its text."""
        people = [address.spec for address in entry.letter.envelope]
        about = redact_subject(entry.letter.subject) or "(no subject)"
        title = f"A letter of {entry.agent} waits"
        if self.command:
            # It is the person's own command: it may see the addresses.
            message = {"letter": entry.id, "agent": entry.agent, "to": people, "subject": about}
            _run(self.command, json.dumps(message | ({"page": page} if page else {})))
        elif self.desktop:
            text = "\n".join(filter(None, [f"{redact_addresses(people)}: {about}", page]))
            if command := self._desktop_command(title, text):
                _run(command, "")

    def _desktop_command(self, title: str, text: str) -> list[str]:
        if sys.platform == "darwin":
            script = [part for line in _APPLE for part in ("-e", line)]
            return ["/usr/bin/osascript", *script, title, text]
        seat = self.environ.get("WAYLAND_DISPLAY") or self.environ.get("DISPLAY")
        program = shutil.which("notify-send", path=self.environ.get("PATH", ""))
        # The text may hold markup to notification servers: links, and images from elsewhere.
        plain = [html.escape(title), html.escape(text)]
        return [program, "--app-name=Postroom", "--", *plain] if seat and program else []


def _run(command: Sequence[str], message: str) -> None:
    """Start a command without waiting for its end; it gets the whole message even if this process ends meanwhile."""
    silent = subprocess.DEVNULL
    try:
        with TemporaryFile() as file:
            file.write(message.encode())
            file.seek(0)
            process = subprocess.Popen(command, stdin=file, stdout=silent, stderr=silent)  # noqa: S603 - the person's own command, without a shell
    except (OSError, ValueError):  # a word of the command may hold a NUL
        return
    threading.Thread(target=_end, args=(process,), daemon=False).start()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
