"""The action log: files in the vault, one a day, that show people the ledger's chain of audit lines.

The ledger decides; the files only show it. Anyone may edit or delete them, so nothing in them is trusted without a
check. Lines that were deleted are not written again: `verify` reports them.
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
from postroom.store.ledger import Change, Ledger
from postroom.store.sql.desk import LogBacklog
from postroom.vault.vault import Vault

TAIL = 8_192  # bytes read from the end of a file first; enough if only this desk writes to it
LONGER_TAILS = (262_144, 16_000_000)  # bytes read if that was not enough
MAX_FILE = 128_000_000  # bytes; of a larger file only the end is read
BATCH = 32_768  # bytes in one append
FOLDER = "Logs/actions"

_FILE = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])\.json", re.ASCII)
_SEQ = re.compile(rb'"seq":([0-9]{1,16})\b')
_DAY = re.compile(r'\{"timestamp":"(\d{4}-\d\d-\d\d)')
_FIRST_DAY = "1970-01-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLogEntry:
    """The pre-send record of a letter of document 003: of the contract `gmail`, of `postroom run`, or of a draft note."""

    event: str = "pre_send_audit"
    timestamp: str
    to: str
    subject: str
    body_preview: str
    reply_to_message_id: str | None
    severity: str = "INFO"


@dataclass(slots=True)
class ActionLog:
    files: Vault
    ledger: Ledger
    desk: str
    # Whether a line has the seal of this desk's ledger: anyone may write into the files.
    trusted: Callable[[str], bool] = lambda _line: True
    _written: LogPosition = LogPosition()  # by this process, which may not have recorded it yet

    def write_new_lines(self) -> None:
        """Append the ledger's lines that the files lack, and record the position. The caller holds the desk's lock."""
        self.ledger.apply(self.append_new_lines())

    def append_new_lines(self) -> Change | None:
        """Append the ledger's lines that the files lack; return a function that records the position, None if none."""
        mark, head, waiting = self.ledger.actions.backlog()
        # Beyond the ledger's head is a position of a ledger that was replaced since.
        if mark.seq < self._written.seq <= head and self._is_unchanged(self._written):
            mark = self._written
            waiting = [(seq, line) for seq, line in waiting if seq > mark.seq]
        if not waiting:
            return None
        today, newest = _day(waiting[-1][1]), mark.name
        sound = today <= mark.name and self._is_unchanged(mark)
        if not sound:
            mark = mark._replace(seq=self._last_written(mark.seq, dict(waiting)))
            waiting = [(seq, line) for seq, line in waiting if seq > mark.seq]
            # A file with a later date than today counts if this desk wrote to it before the clock was set back.
            names = (name for name in reversed(self._names()) if name <= today or self._has_own_lines(name))  # fmt: skip
            newest = next(names, "")
        if waiting:
            # A power cut must not leave a line in the file that the ledger has lost: it looks like a restored backup.
            self.ledger.sync(waiting[-1][0])
        for name, last, data in _batches(waiting, newest):
            torn = b"" if sound else self._tail(name, TAIL).rpartition(b"\n")[2]
            if torn:
                data = data[len(torn) :] if data.startswith(torn) else b"\n" + data  # noqa: PLW2901
            size = self.files.append(f"{FOLDER}/{name}", data)
            changed = mark.changed if sound else self.files.folder_mtime(FOLDER)
            mark = LogPosition(last, name, size, changed)
        self._written = mark
        return lambda tx: tx.actions.save_position(mark)

    def write_pre_send_record(self, entry: AuditLogEntry) -> None:
        line = f"{json.dumps(asdict(entry), ensure_ascii=False)}\n"
        self.files.append(f"Logs/gmail_mcp_{entry.timestamp[:10]}.jsonl", line.encode())

    def lines_ahead(self, backlog: LogBacklog | None = None) -> list[ParsedLine]:
        """Return this desk's lines that are newer than the ledger's last: there are some only after a restored backup."""
        mark, head, _ = backlog or self.ledger.actions.backlog()
        if mark.seq <= head and self._is_unchanged(mark):
            return []
        # Read the files before the ledger's head: another process writes a line to the ledger first.
        blocks = (sorted(block, key=_number, reverse=True) for block in self._blocks())
        last = next((found.seq for block in blocks for found in self._own_lines(block)), 0)
        head = self.ledger.actions.head()
        if last <= head:
            return []
        past: dict[int, ParsedLine] = {}
        for name in reversed(self._names()):
            own = list(filter(self._is_own, self._parsed(name)))
            # Of several lines with the same number the first counts: the others were added later.
            past.update((found.seq, found) for found in reversed(own) if found.seq > head)
            if own and own[0].seq <= head:
                break
        head = self.ledger.actions.head()
        return [past[seq] for seq in sorted(past) if seq > head]

    def verify(self) -> list[Fault]:
        """Return the places where the files differ from the ledger; a line not yet written to a file is missing."""
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
        """Yield the lines of all desks in the files as dictionaries, newest last.

        `since` and `until`, both inclusive, are dates or times in UTC as ISO 8601, which may be shortened. `wanted`
        are values of a line's fields; an empty value allows any.
        """
        for name in self._names():
            # A line is in the file of its own day or of a later one.
            if name[: min(10, len(since))] < since[:10]:
                continue
            for found in self._parsed(name):
                at = found.timestamp
                if at[: len(since)] < since or (until and at[: len(until)] > until):
                    continue
                if all(value in ("", found.record.get(key)) for key, value in wanted.items()):
                    yield found.record

    def _is_unchanged(self, mark: LogPosition) -> bool:
        """Whether the folder, and the size of the newest file, are as this desk left them: then no line is new."""
        if not mark.name:
            return False
        changed, file = self.files.stat_with_folder(f"{FOLDER}/{mark.name}")
        return changed == mark.changed and file is not None and file.size == mark.size

    def _last_written(self, recorded: int, waiting: dict[int, str]) -> int:
        """Return the number of the last line in the files, which after a crash is beyond what the ledger recorded."""
        for found in (one for block in self._blocks() for one in self._own_lines(reversed(block))):
            # A line with the number of a waiting one counts only if it is that very line.
            if found.seq <= recorded or waiting.get(found.seq) == found.line:
                return max(recorded, found.seq)
        return recorded

    def _blocks(self) -> Iterator[list[bytes]]:
        """Yield the last lines of each file, newest file first; of each file a few, then more in larger blocks."""
        for name in reversed(self._names()):
            for size in (TAIL, *LONGER_TAILS):
                data = self._tail(name, size)
                if len(data) < size:  # the whole file
                    yield data.split(b"\n")
                    break
                yield data.split(b"\n")[1:]

    def _own_lines(self, lines: Iterable[bytes]) -> Iterator[ParsedLine]:
        return filter(self._is_own, filter(None, (audit.read(_text(line)) for line in lines)))

    def _has_own_lines(self, name: str) -> bool:
        return any(self._own_lines(reversed(self._tail(name, LONGER_TAILS[0]).split(b"\n"))))

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
    found = _SEQ.match(line, line.rfind(b'"seq":'))
    return int(found[1]) if found else 0


def _text(line: bytes) -> str:
    # One byte more than the longest line shows that a line is too long.
    return line[: audit.MAX_LINE + 1].decode("utf-8", "replace")


def _day(line: str) -> str:
    found = _DAY.match(line)
    return f"{found[1] if found else _FIRST_DAY}.json"


def _batches(waiting: list[tuple[int, str]], newest: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield the appends that write the waiting lines: the file, the number of the last line, and the bytes."""
    name, last, data = newest, 0, b""
    for seq, line in waiting:
        # Never a file before the newest one, so that lines stay in order when the clock is set back.
        file = max(name, _day(line))
        if data and (file != name or len(data) > BATCH):
            yield name, last, data
            data = b""
        name, last = file, seq
        data += line.encode("utf-8", "replace") + b"\n"
    if data:
        yield name, last, data
