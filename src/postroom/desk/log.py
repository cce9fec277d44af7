"""The action log: one file a day in the vault that shows the ledger's chain to people.

The ledger decides; the files only show, and anyone may have edited, cut or deleted them. They are
therefore read as a stranger's, and what was deleted is not written again: `verify` tells of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from io import BytesIO
from typing import Any

from postroom.core import audit
from postroom.core.audit import Fault, LogPosition, ParsedLine
from postroom.core.errors import Corrupt, PostroomError
from postroom.core.values import dataclass
from postroom.store.ledger import Ledger
from postroom.vault.vault import Vault

TAIL = 8_192  # bytes; holds the newest lines of a file where nobody else writes to it
LONGER = (262_144, 16_000_000)
MAX_FILE = 128_000_000  # bytes; of a larger file the end is read
BATCH = 32_768  # bytes in one append
FOLDER = "Logs/actions"

_FILE = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])\.json", re.ASCII)
_SEQ = re.compile(rb'"seq":([0-9]{1,16})\b')
_FIRST_DAY = "1970-01-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLogEntry:
    """The pre-send record of a letter of the contract `gmail`."""

    event: str = "pre_send_audit"
    timestamp: str
    to: str
    subject: str
    body_preview: str
    reply_to_message_id: str | None
    severity: str = "INFO"


@dataclass(frozen=True, slots=True)
class ActionLog:
    """The log files of one vault, as one desk sees them."""

    files: Vault
    ledger: Ledger
    desk: str
    # Whether we wrote a line: anyone may have written into the files.
    trusted: Callable[[str], bool] = lambda _line: True

    def write_new_lines(self) -> None:
        """Write the actions that the files do not show yet, each once; under the desk's lock."""
        mark, _, waiting = self.ledger.actions.backlog()
        if not waiting:
            return
        today = _day(waiting[-1][1])
        sound = today <= mark.name and self._is_unchanged(mark)
        if sound:
            newest = mark.name
        else:
            written = self._last_written(mark.seq, dict(waiting))
            waiting = [(seq, line) for seq, line in waiting if seq > written]
            # A file of a day to come counts if we wrote it, before the clock was set back.
            names = reversed(self._names())
            newest = next(
                (name for name in names if name <= today or self._has_own_lines(name)), ""
            )
            mark = mark._replace(seq=written)
        if waiting:
            # A power cut must not leave a line in the file that the ledger has lost: that would
            # look like a restored backup.
            self.ledger.sync(waiting[-1][0])
        for name, last, data in _batches(waiting, newest):
            torn = b"" if sound else self._tail(name, TAIL).rpartition(b"\n")[2]
            if torn:
                data = data[len(torn) :] if data.startswith(torn) else b"\n" + data  # noqa: PLW2901
            size = self.files.append(f"{FOLDER}/{name}", data)
            changed = mark.changed if sound else self.files.changed(FOLDER)
            mark = LogPosition(last, name, size, changed)
            self._save_position(mark)
        if not waiting:
            self._save_position(mark)

    def _save_position(self, position: LogPosition) -> None:
        with self.ledger.write(synced=False) as tx:
            tx.actions.save_position(position)

    def write_pre_send_record(self, entry: AuditLogEntry) -> None:
        """Write a pre-send record to its own file, outside of the audit chain."""
        line = json.dumps(asdict(entry), ensure_ascii=False).encode()
        self.files.append(f"Logs/gmail_mcp_{entry.timestamp[:10]}.jsonl", line + b"\n")

    def lines_ahead(self) -> list[ParsedLine]:
        """Return this desk's lines past the ledger's head: if there are any, an older ledger was restored."""
        mark, head, _ = self.ledger.actions.backlog()
        if mark.seq <= head and self._is_unchanged(mark):
            return []
        # The files first, then the head: a line is in the ledger before it is in a file.
        tops = (
            next(self._own_lines(sorted(b, key=_number, reverse=True)), None)
            for b in self._blocks()
        )
        last = next((top.seq for top in tops if top), 0)
        head = self.ledger.actions.head()
        if last <= head:
            return []
        past: dict[int, ParsedLine] = {}
        for name in reversed(self._names()):
            own = [found for found in self._parsed(name) if self._is_own(found)]
            # Of lines with one number the first counts: it stood there when others were added.
            past.update((found.seq, found) for found in reversed(own) if found.seq > head)
            if own and own[0].seq <= head:
                break
        head = self.ledger.actions.head()
        return [past[seq] for seq in sorted(past) if seq > head]

    def verify(self) -> list[Fault]:
        """Return where the files differ from the ledger; what is not projected yet is missing."""
        head = self.ledger.actions.head()
        digests: dict[int, str] = {}
        unreadable: list[Fault] = []

        def known(seq: int) -> str | None:
            if seq not in digests:
                fresh = self.ledger.actions.after(next(reversed(digests), 0))
                digests.update((number, audit.digest(line)) for number, line in fresh)
            return digests.get(seq)

        def lines() -> Iterator[tuple[str, int, str]]:
            for name in self._names():
                try:
                    for number, text in enumerate(self._lines(name), 1):
                        yield name, number, text
                except PostroomError as why:
                    unreadable.append(Fault(name, 0, f"not read: {why.message}"))

        return audit.verify(lines(), desk=self.desk, head=head, known=known) + unreadable

    def records(
        self, *, since: str = "", until: str = "", **wanted: str
    ) -> Iterator[dict[str, Any]]:
        """Yield what the files say of all desks, newest last.

        `since` and `until` are dates or moments in UTC, as ISO 8601 or a beginning of it, both
        inclusive; others are fields of a line, of which an empty one says nothing.
        """
        for name in self._names():
            # A line never stands in a file of an earlier day than its own.
            if name[: min(10, len(since))] < since[:10]:
                continue
            for found in self._parsed(name):
                at = found.timestamp
                if at[: len(since)] < since or (until and at[: len(until)] > until):
                    continue
                if all(
                    not value or found.record.get(key) == value for key, value in wanted.items()
                ):
                    yield found.record

    def _is_unchanged(self, mark: LogPosition) -> bool:
        """Whether the log is as long as we left it, in as many files: then nothing in it is news."""
        if not mark.name or self.files.changed(FOLDER) != mark.changed:
            return False
        file = self.files.stat(f"{FOLDER}/{mark.name}")
        return file is not None and file.size == mark.size

    def _last_written(self, projected: int, waiting: dict[int, str]) -> int:
        """Return the last number that the files show: after a crash they are ahead of the mark."""
        for block in self._blocks():
            for found in self._own_lines(reversed(block)):
                # A line that is not the ledger's own must not keep the ledger's from being written.
                if found.seq <= projected or waiting.get(found.seq) == found.line:
                    return max(projected, found.seq)
        return projected

    def _blocks(self) -> Iterator[list[bytes]]:
        """Yield the lines at the ends of the files, newest file first; of each a few, then more."""
        for name in reversed(self._names()):
            for size in (TAIL, *LONGER):
                data = self._tail(name, size)
                whole = len(data) < size
                yield data.split(b"\n")[0 if whole else 1 :]
                if whole:
                    break

    def _own_lines(self, lines: Iterable[bytes]) -> Iterator[ParsedLine]:
        found = (audit.read(_text(line)) for line in lines)
        return (each for each in found if each and self._is_own(each))

    def _has_own_lines(self, name: str) -> bool:
        return any(self._own_lines(reversed(self._tail(name, LONGER[0]).split(b"\n"))))

    def _is_own(self, found: ParsedLine) -> bool:
        return found.desk == self.desk and self.trusted(found.line)

    def _names(self) -> list[str]:
        return sorted(filter(_FILE.fullmatch, self.files.names(FOLDER)))

    def _tail(self, name: str, size: int) -> bytes:
        try:
            return self.files.tail(f"{FOLDER}/{name}", size)
        except PostroomError:
            return b""

    def _lines(self, name: str) -> Iterator[str]:
        data = self.files.tail(f"{FOLDER}/{name}", MAX_FILE)
        for line in BytesIO(data):
            yield _text(line.removesuffix(b"\n"))
        if len(data) >= MAX_FILE:
            raise Corrupt(f"larger than {MAX_FILE // 1_000_000} MB, of which only the end was read")

    def _parsed(self, name: str) -> Iterator[ParsedLine]:
        try:
            yield from filter(None, map(audit.read, self._lines(name)))
        except PostroomError:
            return


def _number(line: bytes) -> int:
    """Return the number that a line claims, without reading all of it."""
    found = _SEQ.match(line, line.rfind(b'"seq":'))
    return int(found[1]) if found else 0


def _text(line: bytes) -> str:
    # One byte more than a line has is enough to see that it is none.
    return line[: audit.MAX_LINE + 1].decode("utf-8", "replace")


def _day(line: str) -> str:
    found = audit.read(line)
    return f"{found.timestamp[:10] if found else _FIRST_DAY}.json"


def _batches(waiting: list[tuple[int, str]], newest: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield what is to be appended: the file, the number of the last line, the bytes."""
    name, last, data = newest, 0, b""
    for seq, line in waiting:
        # Never an earlier file than the newest, so that the order stands when a clock is set back.
        file = max(name, _day(line))
        if data and (file != name or len(data) > BATCH):
            yield name, last, data
            data = b""
        name, last = file, seq
        data += line.encode("utf-8", "replace") + b"\n"
    if data:
        yield name, last, data
