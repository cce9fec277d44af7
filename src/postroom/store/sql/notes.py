"""Notes: where they are, which of them tools wrote, and the slips and requests among them."""

from __future__ import annotations

import json
from collections.abc import Callable

from postroom.core.errors import Denied
from postroom.core.records import NOWHERE, ApprovalRequest, NoteLocation, NoteStatus, ToolNote
from postroom.core.stamp import Stamp
from postroom.store.sql import rows
from postroom.store.sql.rows import OPEN, Noun, marks, note_stem

_LOCATION = ("path", "hash", "notice", "pages", "version", "size", "mtime", "inode")
_COLUMNS = ", ".join(f"note.{name}" for name in _LOCATION)
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in _LOCATION)


class NoteReader(Noun):
    """Where notes are, and what they were when Postroom wrote or saw them last."""

    def location(self, id: str) -> NoteLocation:
        """Return where a note is; `NOWHERE` where it was never written."""
        row = self._session.row(f"SELECT {_COLUMNS} FROM note WHERE letter = ?", [id])
        return NoteLocation(*row) if row else NOWHERE

    def locations(self) -> dict[str, NoteLocation]:
        """Return the notes of open letters, and those of closed ones that are still to be written."""
        found = self._session.rows(
            f"SELECT note.letter, {_COLUMNS} FROM note"
            f" JOIN letter ON letter.id = note.letter WHERE state IN ({OPEN}) UNION ALL"
            f" SELECT note.letter, {_COLUMNS} FROM note JOIN letter ON letter.id = note.letter WHERE path = ''"
        )
        return {row[0]: NoteLocation(*row[1:]) for row in found}

    def in_folders(self, *folders: str) -> dict[str, tuple[str, NoteLocation]]:
        """Return the notes in these folders: path, key and location."""
        ranges = " OR ".join("(path > ? AND path < ?)" for _ in folders)
        found = self._session.rows(
            f"SELECT letter, {_COLUMNS} FROM note WHERE {ranges}",
            [end for folder in folders for end in (f"{folder}/", f"{folder}0")],
        )
        return {row[1]: (row[0], NoteLocation(*row[1:])) for row in found}

    def status(self, id: str) -> NoteStatus:
        """Return where a note is, what was about to be written, and the letter's version, in one look."""
        row = self._session.row(
            f"SELECT {_COLUMNS}, planned_path, planned_hash, (SELECT version FROM letter"
            " WHERE letter.id = note.letter) FROM note WHERE note.letter = ?",
            [id],
        )
        return NoteStatus(NoteLocation(*row[:8]), *row[8:]) if row else NoteStatus(NOWHERE)

    def planned_write(self, id: str) -> tuple[str, str]:
        """Return path and hash of a note whose writing began and was not finished; empty without one."""
        sql = "SELECT planned_path, planned_hash FROM note WHERE letter = ?"
        row = self._session.row(sql, [id])
        return (row[0], row[1]) if row else ("", "")


class NoteStore(NoteReader):
    """Notes, before and after they are written."""

    def plan_write(self, id: str, path: str, hash: str) -> None:
        """Record what is about to be written where, in case the process ends before it is done."""
        self._session.run(
            "INSERT INTO note (letter, planned_path, planned_hash) VALUES (?, ?, ?)"
            " ON CONFLICT (letter) DO UPDATE SET planned_path = excluded.planned_path,"
            " planned_hash = excluded.planned_hash",
            [id, path, hash],
        )

    def finish_write(self, id: str, location: NoteLocation) -> None:
        """Record where a note is that was written as planned."""
        self._save(id, location, ", planned_path = '', planned_hash = ''")

    def save_location(self, id: str, location: NoteLocation) -> None:
        """Record where a note is."""
        self._save(id, location)

    def _save(self, id: str, location: NoteLocation, also: str = "") -> None:
        self._session.run(
            f"INSERT INTO note (letter, {', '.join(_LOCATION)}) VALUES (?, {marks(_LOCATION)})"
            f" ON CONFLICT (letter) DO UPDATE SET {_UPDATES}{also}",
            [id, *location],
        )


class ToolNoteReader(Noun):
    """Files that tools wrote."""

    def match(self, path: str, inode: int, text_hash: str) -> ToolNote | None:
        """Return the record that has most in common with a file, of several the newest."""
        stem = note_stem(path)
        row = self._session.row(
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
        """Whether a tool wrote a file at this path; with a hash, whether it wrote that text there."""
        sql, values = "SELECT 1 FROM tool_note WHERE path = ?", [path]
        if text_hash:
            sql, values = f"{sql} AND text_hash = ?", [path, text_hash]
        return self._session.row(sql, values) is not None


class ToolNoteStore(ToolNoteReader):
    """Files that tools write."""

    def add(self, path: str, inode: int, text_hash: str, agent: str) -> None:
        # Not updated in place: of several rows the newest counts.
        """Record a file that a tool is about to write or move."""
        sql = "DELETE FROM tool_note WHERE path = ? AND text_hash = ? AND inode = ?"
        self._session.run(sql, [path, text_hash, inode])
        self._session.run(
            "INSERT INTO tool_note (path, stem, inode, text_hash, agent, at)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [path, note_stem(path), inode, text_hash, agent, self._clock().wall],
        )

    def free_inode(self, inode: int) -> None:
        """Forget an inode that tools no longer use: the file system gives it to another file."""
        if not inode:
            return
        self._session.run(
            "DELETE FROM tool_note WHERE inode = 0 AND EXISTS (SELECT 1 FROM tool_note AS used"
            " WHERE used.inode = ? AND used.path = tool_note.path AND used.text_hash = tool_note.text_hash)",
            [inode],
        )
        self._session.run("UPDATE tool_note SET inode = 0 WHERE inode = ?", [inode])


class SlipReader(Noun):
    """Slips and requests: approvals that people, or agents, wrote as notes."""

    def all(self) -> dict[str, tuple[Stamp, str]]:
        """Return every slip: by its hash, when it was first seen and the letter that it was spent on."""
        found = self._session.rows("SELECT hash, seen, letter FROM slip")
        return {hash: (rows.stamp(seen), letter) for hash, seen, letter in found}

    def is_unspent(self, hash: str) -> bool:
        """Whether a slip was seen, and has approved nothing so far."""
        return self._has("slip WHERE hash = ? AND letter = ''", hash)

    def is_filed(self, hash: str) -> bool:
        """Whether a spent slip was put into its folder."""
        return self._has("slip WHERE hash = ? AND filed_path != ''", hash)

    def is_trusted(self, text_hash: str) -> bool:
        """Whether a slip counts though tools may have written notes of its age."""
        return self._has("trusted_slip WHERE text_hash = ?", text_hash)

    def _has(self, what: str, hash: str) -> bool:
        return self._session.row(f"SELECT 1 FROM {what}", [hash]) is not None

    def request(self, hash: str) -> ApprovalRequest | None:
        """Return the request that the desk wrote with this text, if it wrote one."""
        row = self._session.row("SELECT agent, letters FROM approval_request WHERE hash = ?", [hash])  # fmt: skip
        if row is None:
            return None
        return ApprovalRequest(row[0], [(id, digest) for id, digest in json.loads(row[1])])


class SlipStore(SlipReader):
    """Slips and requests, to be seen and spent."""

    def add(self, hash: str) -> None:
        """Record when a slip was first seen."""
        sql = "INSERT INTO slip (hash, seen) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING"
        self._session.run(sql, [hash, json.dumps(self._clock())])

    def spend(self, hash: str, id: str, is_fresh: Callable[[Stamp], bool]) -> None:
        """Spend a slip on a letter, once, while it is fresh; else `Denied`."""
        sql = "SELECT seen FROM slip WHERE hash = ? AND letter IN ('', ?)"
        row = self._session.row(sql, [hash, id])
        if row is None or not is_fresh(rows.stamp(row[0])):
            raise Denied(
                "The slip was spent on another letter, or has lapsed", remedy="Write a new one."
            )
        self._session.run("UPDATE slip SET letter = ? WHERE hash = ?", [id, hash])

    def mark_filed(self, hash: str, path: str) -> None:
        """Record where a spent slip was put."""
        self._session.run("UPDATE slip SET filed_path = ? WHERE hash = ?", [path, hash])

    def trust(self, text_hash: str, path: str) -> None:
        """Let a slip count though tools may have written notes of its age."""
        self._session.run(
            "INSERT INTO trusted_slip (text_hash, path) VALUES (?, ?)"
            " ON CONFLICT (text_hash) DO UPDATE SET path = excluded.path",
            [text_hash, path],
        )

    def add_request(self, hash: str, request: ApprovalRequest) -> None:
        """Record a request that is about to be put before the person, and what it lists."""
        self._session.run(
            "INSERT INTO approval_request (hash, agent, letters) VALUES (?, ?, ?) ON CONFLICT (hash)"
            " DO UPDATE SET agent = excluded.agent, letters = excluded.letters",
            [hash, request.agent, json.dumps(request.letters)],
        )
