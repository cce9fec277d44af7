"""Notes: where they are, which of them tools wrote, and the slips and requests among them."""

from __future__ import annotations

import json
from collections.abc import Callable

from postroom.core.errors import Denied
from postroom.core.records import NOWHERE, ApprovalRequest, NoteLocation, ToolNote
from postroom.core.stamp import Stamp
from postroom.store.database import Database
from postroom.store.sqlite import rows
from postroom.store.sqlite.rows import OPEN, marks, note_stem

_LOCATION = ("path", "hash", "notice", "pages", "version", "size", "mtime", "inode")
_COLUMNS = ", ".join(f"note.{name}" for name in _LOCATION)
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in _LOCATION)


class SqlNotes:
    """Implements `store.protocol.NoteStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def location(self, id: str) -> NoteLocation:
        row = self._database.row(f"SELECT {_COLUMNS} FROM note WHERE letter = ?", [id])
        return NoteLocation(*row) if row else NOWHERE

    def locations(self) -> dict[str, NoteLocation]:
        found = self._database.rows(
            f"SELECT note.letter, {_COLUMNS} FROM note"
            f" JOIN letter ON letter.id = note.letter WHERE state IN ({OPEN}) UNION ALL"
            f" SELECT letter, {_COLUMNS} FROM note WHERE path = ''"
        )
        return {row[0]: NoteLocation(*row[1:]) for row in found}

    def in_folder(self, folder: str) -> dict[str, tuple[str, NoteLocation]]:
        found = self._database.rows(
            f"SELECT letter, {_COLUMNS} FROM note WHERE path > ? AND path < ?",
            [f"{folder}/", f"{folder}0"],
        )
        return {row[1]: (row[0], NoteLocation(*row[1:])) for row in found}

    def planned_write(self, id: str) -> tuple[str, str]:
        row = self._database.row("SELECT path, hash FROM planned_write WHERE note = ?", [id])
        return (row[0], row[1]) if row else ("", "")

    def plan_write(self, id: str, path: str, hash: str) -> None:
        self._database.run(
            "INSERT INTO planned_write (note, path, hash) VALUES (?, ?, ?)"
            " ON CONFLICT (note) DO UPDATE SET path = excluded.path, hash = excluded.hash",
            [id, path, hash],
        )

    def finish_write(self, id: str, location: NoteLocation) -> None:
        self._database.run("DELETE FROM planned_write WHERE note = ?", [id])
        self.save_location(id, location)

    def save_location(self, id: str, location: NoteLocation) -> None:
        self._database.run(
            f"INSERT INTO note (letter, {', '.join(_LOCATION)}) VALUES (?, {marks(_LOCATION)})"
            f" ON CONFLICT (letter) DO UPDATE SET {_UPDATES}",
            [id, *location],
        )


class SqlToolNotes:
    """Implements `store.protocol.ToolNoteStore`."""

    def __init__(self, database: Database, clock: Callable[[], Stamp]) -> None:
        self._database = database
        self._clock = clock

    def match(self, path: str, inode: int, text_hash: str) -> ToolNote | None:
        stem = note_stem(path)
        row = self._database.row(
            "SELECT agent, path, same FROM (SELECT agent, path, row,"
            " CASE WHEN path = ? THEN 1 ELSE 0 END + CASE WHEN stem = ? THEN 1 ELSE 0 END"
            " + CASE WHEN text_hash = ? THEN 1 ELSE 0 END AS same,"
            " CASE WHEN inode = ? AND inode != 0 THEN 1 ELSE 0 END AS same_inode FROM tool_note"
            " WHERE path = ? OR stem = ? OR text_hash = ? OR (inode = ? AND inode != 0)) AS candidate"
            " ORDER BY same + same_inode DESC, row DESC LIMIT 1",
            [path, stem, text_hash, inode] * 2,
        )
        return ToolNote(row[0], row[1], inode_only=not row[2]) if row else None

    def has(self, path: str, text_hash: str = "") -> bool:
        sql, values = "SELECT 1 FROM tool_note WHERE path = ?", [path]
        if text_hash:
            sql, values = f"{sql} AND text_hash = ?", [path, text_hash]
        return self._database.row(sql, values) is not None

    def add(self, path: str, inode: int, text_hash: str, agent: str) -> None:
        # Not updated in place: of several rows the newest counts.
        sql = "DELETE FROM tool_note WHERE path = ? AND text_hash = ? AND inode = ?"
        self._database.run(sql, [path, text_hash, inode])
        self._database.run(
            "INSERT INTO tool_note (path, stem, inode, text_hash, agent, at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [path, note_stem(path), inode, text_hash, agent, self._clock().wall],
        )

    def free_inode(self, inode: int) -> None:
        if not inode:
            return
        self._database.run(
            "DELETE FROM tool_note WHERE inode = 0 AND EXISTS (SELECT 1 FROM tool_note AS used"
            " WHERE used.inode = ? AND used.path = tool_note.path AND used.text_hash = tool_note.text_hash)",
            [inode],
        )
        self._database.run("UPDATE tool_note SET inode = 0 WHERE inode = ?", [inode])


class SqlSlips:
    """Implements `store.protocol.SlipStore`."""

    def __init__(self, database: Database, clock: Callable[[], Stamp]) -> None:
        self._database = database
        self._clock = clock

    def all(self) -> dict[str, tuple[Stamp, str]]:
        found = self._database.rows("SELECT hash, seen, letter FROM slip")
        return {hash: (rows.stamp(seen), letter) for hash, seen, letter in found}

    def is_unspent(self, hash: str) -> bool:
        return self._has("slip WHERE hash = ? AND letter = ''", hash)

    def is_filed(self, hash: str) -> bool:
        return self._has("slip WHERE hash = ? AND filed_path != ''", hash)

    def is_trusted(self, text_hash: str) -> bool:
        return self._has("trusted_slip WHERE text_hash = ?", text_hash)

    def _has(self, what: str, hash: str) -> bool:
        return self._database.row(f"SELECT 1 FROM {what}", [hash]) is not None

    def request(self, hash: str) -> ApprovalRequest | None:
        row = self._database.row("SELECT agent, letters FROM approval_request WHERE hash = ?", [hash])  # fmt: skip
        if row is None:
            return None
        return ApprovalRequest(row[0], [(id, digest) for id, digest in json.loads(row[1])])

    def add(self, hash: str) -> None:
        sql = "INSERT INTO slip (hash, seen) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING"
        self._database.run(sql, [hash, json.dumps(self._clock())])

    def spend(self, hash: str, id: str, is_fresh: Callable[[Stamp], bool]) -> None:
        sql = "SELECT seen FROM slip WHERE hash = ? AND letter IN ('', ?)"
        row = self._database.row(sql, [hash, id])
        if row is None or not is_fresh(rows.stamp(row[0])):
            raise Denied(
                "The slip was spent on another letter, or has lapsed", remedy="Write a new one."
            )
        self._database.run("UPDATE slip SET letter = ? WHERE hash = ?", [id, hash])

    def mark_filed(self, hash: str, path: str) -> None:
        self._database.run("UPDATE slip SET filed_path = ? WHERE hash = ?", [path, hash])

    def trust(self, text_hash: str, path: str) -> None:
        self._database.run(
            "INSERT INTO trusted_slip (text_hash, path) VALUES (?, ?)"
            " ON CONFLICT (text_hash) DO UPDATE SET path = excluded.path",
            [text_hash, path],
        )

    def add_request(self, hash: str, request: ApprovalRequest) -> None:
        self._database.run(
            "INSERT INTO approval_request (hash, agent, letters) VALUES (?, ?, ?) ON CONFLICT (hash)"
            " DO UPDATE SET agent = excluded.agent, letters = excluded.letters",
            [hash, request.agent, json.dumps(request.letters)],
        )
