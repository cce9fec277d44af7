"""The desk itself: its settings, budget and chain of audit lines, who may use the page, and its notes and slips."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from postroom.core import audit
from postroom.core.audit import Action, LogPosition, ParsedLine
from postroom.core.errors import Conflict, Denied
from postroom.core.policy import Spent
from postroom.core.records import (
    NO_NOTE,
    NOWHERE,
    ApprovalRequest,
    DeskSettings,
    ExpectedNote,
    NoteLocation,
    NoteStatus,
    ToolNote,
)
from postroom.core.stamp import Stamp, elapsed
from postroom.store.protocol import Clock, Session
from postroom.store.sql.rows import OPEN, Noun, letter_state, note_status, note_stem, stamp

TICKET_SECONDS: Final = 600.0  # in which a one-time address must be used
SESSION_SECONDS: Final = 30 * 86_400.0  # after which a browser must sign in again
MAX_SESSIONS: Final = 200  # tickets, and sessions, that are kept
MAX_CLAIMS: Final = 100_000  # that are remembered; more than any window has room for
PRUNE_EVERY: Final = 1000  # claims
_NAMES: Final = tuple(DeskSettings.__annotations__)
_SETTINGS: Final = f"SELECT {', '.join(_NAMES)} FROM desk"

_LOCATION = ", ".join(f"note.{name}" for name in NoteLocation._fields)
_UNPLANNED = {"planned_path": "", "planned_hash": ""}


def load_settings(session: Session) -> DeskSettings:
    values = dict(zip(_NAMES, session.row(_SETTINGS) or (), strict=False))
    return DeskSettings(**values | {"approval_required": bool(values.get("approval_required"))})


class BudgetReader(Noun):
    """The claims that count against the limits."""

    def spent(self, now: Stamp, seconds: float) -> list[Spent]:
        """Return the claims that are younger than this, or may be, oldest first; none is older than one before it."""
        found = self._session.rows(
            "SELECT recipients, thread, wall, boot, steady FROM claim WHERE row >= (SELECT min(row) FROM"
            " (SELECT row FROM claim WHERE boot = ? AND steady > ? UNION ALL SELECT row FROM claim"
            " WHERE (boot != ? OR boot = '') AND wall > ?) AS recent) ORDER BY row",
            [now.boot, now.steady - seconds, now.boot, now.wall - seconds],
        )
        claims, last = [], None
        for recipients, thread, *moment in found:
            at = Stamp(*moment)
            if last is not None and elapsed(last, now) < elapsed(at, now):
                at = last
            elif at.wall <= now.wall:
                last = at
            claims.append(Spent(at, recipients, thread))
        return claims


class BudgetStore(BudgetReader):
    def spend(self, id: str, recipients: int, thread: str, at: Stamp) -> None:
        ((row,),) = self._session.rows(
            "INSERT INTO claim (letter, recipients, thread, wall, boot, steady)"
            " VALUES (?, ?, ?, ?, ?, ?) RETURNING row",
            [id, recipients, thread, *at],
        )
        # By their number: a clock that is wrong for a while must not make them look old.
        if row % PRUNE_EVERY == 0:
            self._session.run("DELETE FROM claim WHERE row <= ?", [row - MAX_CLAIMS])

    def refund(self, id: str, slip: str) -> None:
        """Give back what a try did not use: the newest claim, and its slip unless the letter may still leave."""
        sql = "DELETE FROM claim WHERE row = (SELECT max(row) FROM claim WHERE letter = ?)"
        self._session.run(sql, [id])
        if slip:
            self._session.run(
                "UPDATE slip SET letter = '' WHERE letter = ? AND hash = ?"
                " AND NOT EXISTS (SELECT 1 FROM proof WHERE letter = ? AND unanswered > 0)",
                [id, slip, id],
            )


class LogBacklog(NamedTuple):
    """How far the log was written, the number of the last line, and the lines that the log lacks."""

    position: LogPosition
    head: int
    lines: list[tuple[int, str]]


class ActionReader(Noun):
    def head(self) -> int:
        return self._find(int, "coalesce(max(seq), 0)", "action") or 0

    def backlog(self) -> LogBacklog:
        found = self._session.rows(
            "SELECT log_seq, log_name, log_size, log_changed, (SELECT max(seq) FROM action), seq, line"
            " FROM desk LEFT JOIN action ON seq > log_seq ORDER BY seq"
        )
        if not found:
            return LogBacklog(LogPosition(), self.head(), self.after())
        lines = [row[5:] for row in found if row[5] is not None]
        return LogBacklog(LogPosition(*found[0][:4]), found[0][4] or 0, lines)

    def after(self, number: int = 0) -> list[tuple[int, str]]:
        sql = "SELECT seq, line FROM action WHERE seq > ? ORDER BY seq"
        return self._session.rows(sql, [number])


class ActionStore(ActionReader):
    """The chain of audit lines, to be added to."""

    def __init__(self, session: Session, clock: Clock, draw: Callable[[int], bytes]) -> None:
        super().__init__(session, clock)
        self._draw = draw
        # The end of the chain as this process saw it last, and what new lines name; verified when one is added.
        self._seq, self._line, self._desk_id, self._seal_key = 0, "", "", ""
        self.last = 0  # the last line that this transaction added

    def append(self, action: Action) -> None:
        from uuid import UUID  # who only reads needs none

        id = str(UUID(bytes=self._draw(16), version=4))
        line = self._next_line(action, id)
        if not self._insert_if_current(line):
            self._read_head()
            line = self._next_line(action, id)
            self._insert("action", {"seq": self._seq + 1, "line": line})
        self._seq, self._line, self.last = self._seq + 1, line, self._seq + 1

    def _next_line(self, action: Action, id: str) -> str:
        return audit.write(
            action,
            seq=self._seq + 1,
            previous=audit.digest(self._line) if self._line else audit.GENESIS,
            desk=self._desk_id,
            timestamp=self._clock().iso,
            correlation_id=id,
            key=self._seal_key,
        )

    def _insert_if_current(self, line: str) -> bool:
        """Add a line if the chain, the desk and its key are still what the line was made for."""
        if not self._seal_key:
            return False
        sql = (
            "INSERT INTO action (seq, line) SELECT ?, ? FROM desk WHERE desk_id = ? AND seal_key = ?"
            " AND coalesce((SELECT line FROM action ORDER BY seq DESC LIMIT 1), '') = ?"
        )
        values = [self._seq + 1, line, self._desk_id, self._seal_key, self._line]
        return self._session.run(sql, values) > 0

    def _read_head(self) -> None:
        sql = (
            "SELECT coalesce(seq, 0), coalesce(line, ''), desk_id, seal_key FROM desk"
            " LEFT JOIN action ON seq = (SELECT max(seq) FROM action)"
        )
        row = self._session.row(sql)
        if row is None or not row[3]:
            self._save_desk({"seal_key": self._draw(32).hex()})
            (row,) = self._session.rows(sql)
        self._seq, self._line, self._desk_id, self._seal_key = row

    def save_position(self, position: LogPosition) -> None:
        self._update("desk", {f"log_{name}": value for name, value in position._asdict().items()})

    def import_from_log(self, line: ParsedLine) -> None:
        """Take over a line that the log has and this ledger has not: what it spent stays spent."""
        self._insert("action", {"seq": line.seq, "line": line.line})
        if line.action_type != "claim_letter":
            return
        at = Stamp(datetime.fromisoformat(line.timestamp).timestamp())
        about = line.parameters
        BudgetStore(self._session, self._clock).spend(
            line.letter, about.get("recipients", 1), about.get("thread", ""), at
        )
        if slip := about.get("slip"):
            self._upsert("slip", {"hash": slip}, {"seen": json.dumps(at), "letter": line.letter})


class NoteReader(Noun):
    """Where notes are, and what they were when Postroom wrote or saw them last."""

    def location(self, id: str) -> NoteLocation:
        """Return where a note is; `NOWHERE` where it was never written."""
        return self._find(NoteLocation, _LOCATION, "note", letter=id) or NOWHERE

    def expected(self, *folders: str) -> list[ExpectedNote]:
        """Return the notes of open letters, those of closed ones that are still to be written, and all in these folders."""
        ranges, ends = _in_folders(folders)
        sql = (
            f"SELECT note.letter, {_LOCATION}, planned_path, state, detail, letter.version FROM note"
            " LEFT JOIN letter ON letter.id = note.letter WHERE note.letter IN"
            f" (SELECT id FROM letter WHERE state IN ({OPEN})"
            " UNION ALL SELECT letter FROM note WHERE path = '' AND letter IN (SELECT id FROM letter)"
            f" UNION ALL SELECT letter FROM note WHERE {ranges}) ORDER BY letter.row"
        )
        return [
            ExpectedNote(
                key,
                NoteLocation(*location),
                letter_state(key, kind, detail, version) if kind else None,
                is_planned=bool(planned),
            )
            for key, *location, planned, kind, detail, version in self._session.rows(sql, ends)
        ]

    def in_folders(self, *folders: str) -> dict[str, tuple[str, NoteLocation]]:
        ranges, ends = _in_folders(folders)
        found = self._session.rows(f"SELECT letter, {_LOCATION} FROM note WHERE {ranges}", ends)
        return {row[1]: (row[0], NoteLocation(*row[1:])) for row in found}

    def status(self, id: str) -> NoteStatus:
        sql = f"SELECT {_LOCATION}, planned_path, planned_hash FROM note WHERE letter = ?"
        return self._one(note_status, sql, id) or NO_NOTE


def _in_folders(folders: Sequence[str]) -> tuple[str, list[str]]:
    ranges = " OR ".join("(path > ? AND path < ?)" for _ in folders)
    return ranges, [end for folder in folders for end in (f"{folder}/", f"{folder}0")]


class NoteStore(NoteReader):
    def plan_write(self, id: str, path: str, hash: str, known: NoteStatus = NO_NOTE) -> None:
        """Record what is about to be written where; `Conflict` where the note is no longer where it is `known` to be."""
        planned = self._session.run(
            "INSERT INTO note (letter, planned_path, planned_hash) VALUES (?, ?, ?)"
            " ON CONFLICT (letter) DO UPDATE SET planned_path = excluded.planned_path,"
            " planned_hash = excluded.planned_hash WHERE note.path = ? AND note.planned_path = ?",
            [id, path, hash, known.location.path, known.planned_path],
        )
        if not planned:
            raise Conflict(f"Another process writes the note of {id}")

    def finish_write(self, id: str, location: NoteLocation) -> None:
        self._upsert("note", {"letter": id}, location._asdict() | _UNPLANNED)

    def save_location(self, id: str, location: NoteLocation) -> None:
        self._upsert("note", {"letter": id}, location._asdict())


class ToolNoteReader(Noun):
    def match(self, path: str, inode: int, text_hash: str) -> ToolNote | None:
        """Return the record that has most in common with a file, of several the newest."""
        sql = (
            "SELECT agent, path, same FROM (SELECT agent, path, row,"
            " CASE WHEN path = ? THEN 1 ELSE 0 END + CASE WHEN stem = ? THEN 1 ELSE 0 END"
            " + CASE WHEN text_hash = ? THEN 1 ELSE 0 END AS same,"
            " CASE WHEN inode = ? AND inode != 0 THEN 1 ELSE 0 END AS same_inode FROM tool_note"
            " WHERE path = ? OR stem = ? OR text_hash = ? OR (inode = ? AND inode != 0)) AS candidate"
            " ORDER BY same + same_inode DESC, row DESC LIMIT 1"
        )
        row = self._session.row(sql, [path, note_stem(path), text_hash, inode] * 2)
        return ToolNote(row[0], row[1], inode_only=not row[2]) if row else None

    def has(self, path: str, text_hash: str = "") -> bool:
        """Whether a tool wrote a file at this path; with a hash, whether it wrote that text there."""
        text = {"text_hash": text_hash} if text_hash else {}
        return self._has("tool_note", path=path, **text)


class ToolNoteStore(ToolNoteReader):
    def add(self, path: str, inode: int, text_hash: str, agent: str) -> None:
        keys = {"path": path, "text_hash": text_hash, "inode": inode}
        # Not updated in place: of several rows the newest counts.
        self._delete("tool_note", **keys)
        columns = {"stem": note_stem(path), "agent": agent, "at": self._clock().wall}
        self._insert("tool_note", keys | columns)

    def free_inode(self, inode: int) -> None:
        """Forget an inode that tools no longer use: the file system gives it to another file."""
        if not inode:
            return
        self._session.run(
            "DELETE FROM tool_note WHERE inode = 0 AND EXISTS (SELECT 1 FROM tool_note AS used"
            " WHERE used.inode = ? AND used.path = tool_note.path AND used.text_hash = tool_note.text_hash)",
            [inode],
        )
        self._update("tool_note", {"inode": 0}, inode=inode)


class SlipReader(Noun):
    """Slips and requests: approvals that people, or agents, wrote as notes."""

    def all(self) -> dict[str, tuple[Stamp, str]]:
        """Return every slip: by its hash, when it was first seen and the letter that it was spent on."""
        found = self._session.rows("SELECT hash, seen, letter FROM slip")
        return {hash: (stamp(seen), letter) for hash, seen, letter in found}

    def is_unspent(self, hash: str) -> bool:
        return self._has("slip", hash=hash, letter="")

    def is_filed(self, hash: str) -> bool:
        return bool(self._find(str, "filed_path", "slip", hash=hash))

    def is_trusted(self, text_hash: str) -> bool:
        return self._has("trusted_slip", text_hash=text_hash)

    def request(self, hash: str) -> ApprovalRequest | None:
        row = self._row("agent, letters", "approval_request", hash=hash)
        return ApprovalRequest(row[0], list(map(tuple, json.loads(row[1])))) if row else None


class SlipStore(SlipReader):
    def add(self, hash: str) -> None:
        columns = {"hash": hash, "seen": json.dumps(self._clock())}
        self._insert("slip", columns, "ON CONFLICT (hash) DO NOTHING")

    def spend(self, hash: str, id: str, is_fresh: Callable[[Stamp], bool]) -> None:
        """Spend a slip on a letter, once, while it is fresh; else `Denied`."""
        sql = "SELECT seen FROM slip WHERE hash = ? AND letter IN ('', ?)"
        seen = self._one(stamp, sql, hash, id)
        if seen is None or not is_fresh(seen):
            raise Denied(
                "The slip was spent on another letter, or has lapsed", remedy="Write a new one."
            )
        self._update("slip", {"letter": id}, hash=hash)

    def mark_filed(self, hash: str, path: str) -> None:
        self._update("slip", {"filed_path": path}, hash=hash)

    def trust(self, text_hash: str, path: str) -> None:
        """Let a slip count though tools may have written notes of its age."""
        self._upsert("trusted_slip", {"text_hash": text_hash}, {"path": path})

    def add_request(self, hash: str, request: ApprovalRequest) -> None:
        """Record a request that is about to be put before the person, and what it lists."""
        columns = {"agent": request.agent, "letters": json.dumps(request.letters)}
        self._upsert("approval_request", {"hash": hash}, columns)


class SessionReader(Noun):
    """Who may use the page. Only hashes of secrets are kept."""

    def is_ticket_valid(self, ticket: str) -> bool:
        return self._person("ticket", ticket, TICKET_SECONDS) is not None

    def person(self, secret: str) -> str | None:
        return self._person("web_session", secret, SESSION_SECONDS)

    def _person(self, table: str, secret: str, seconds: float) -> str | None:
        row = self._row("person, at", table, hash=_hash(secret))
        # A clock that was set back makes it older too, never younger.
        return str(row[0]) if row and abs(self._clock().wall - row[1]) < seconds else None


class SessionStore(SessionReader):
    def issue_ticket(self, ticket: str, person: str) -> None:
        self._add("ticket", ticket, person)

    def redeem_ticket(self, ticket: str, secret: str) -> str | None:
        """Spend a ticket and begin a session with this secret; return whose it is, if the ticket was valid."""
        person = self._person("ticket", ticket, TICKET_SECONDS)
        if person is None or not self._delete("ticket", hash=_hash(ticket)):
            return None
        self._add("web_session", secret, person)
        return person

    def end(self, secret: str) -> None:
        self._delete("web_session", hash=_hash(secret))

    def _add(self, table: str, secret: str, person: str) -> None:
        self._insert(table, {"hash": _hash(secret), "person": person, "at": self._clock().wall})
        sql = f"DELETE FROM {table} WHERE row <= (SELECT max(row) FROM {table}) - ?"
        self._session.run(sql, [MAX_SESSIONS])


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
