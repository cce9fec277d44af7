"""The log files: every action once, in order, whatever happened to the files meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.core import audit
from postroom.core.audit import GENESIS, Action, LogPosition
from postroom.core.errors import Denied, Unavailable
from postroom.desk import log
from postroom.desk.log import ActionLog
from postroom.store.ledger import SqliteLedger
from postroom.store.sql.desk import ActionReader, LogBacklog
from postroom.vault.vault import Vault

DESK = "abcdefghijklmnop"
OTHER = "qrstuvwxyz234567"
FOLDER = "Logs/actions"


class MemoryActions(ActionReader):
    """A chain of audit lines in memory."""

    def __init__(self, chain: list[str]) -> None:
        self.chain = chain
        self.marked = LogPosition()

    def head(self) -> int:
        return len(self.chain)

    def after(self, number: int = 0) -> list[tuple[int, str]]:
        return list(enumerate(self.chain, 1))[number:]

    def backlog(self) -> LogBacklog:
        return LogBacklog(self.marked, self.head(), self.after(self.marked.seq))

    def save_position(self, position: LogPosition) -> None:
        self.marked = position


class MemoryLedger(SqliteLedger):
    """A ledger that has nothing but a chain of actions, in memory."""

    def __init__(self, desk: str = DESK) -> None:
        self.desk = desk
        self.chain: list[str] = []
        self.actions = self.log = MemoryActions(self.chain)

    def act(self, day: str = "2026-01-05", **fields: Any) -> str:
        action = Action(**{"actor": "email_mcp", "action_type": "send_email", **fields})
        line = audit.write(
            action,
            seq=len(self.chain) + 1,
            previous=audit.digest(self.chain[-1]) if self.chain else GENESIS,
            desk=self.desk,
            timestamp=f"{day}T10:00:00Z",
            correlation_id="c0ffee",
        )
        self.chain.append(line)
        return line

    def sync(self, number: int) -> None:
        assert 0 < number <= len(self.chain)

    @property
    def marked(self) -> LogPosition:
        return self.log.marked

    @marked.setter
    def marked(self, position: LogPosition) -> None:
        self.log.marked = position

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Any]:
        yield self


class Desk:
    """A ledger, and its log in a vault that others may share."""

    def __init__(self, root: Path, desk: str = DESK) -> None:
        self.root = root
        self.ledger = MemoryLedger(desk)
        self.vault = Vault(root)
        self.log = ActionLog(self.vault, self.ledger, desk=desk)

    def close(self) -> None:
        self.vault.close()

    def act(self, *days: str, **fields: dict[str, str] | str) -> None:
        for day in days or ("2026-01-05",):
            self.ledger.act(day, **fields)
            self.log.write_new_lines()

    def file(self, day: str = "2026-01-05") -> Path:
        return self.root / FOLDER / f"{day}.json"

    def shown(self, day: str = "2026-01-05") -> list[str]:
        return self.file(day).read_text("utf-8", "replace").splitlines()

    def faults(self) -> list[tuple[str, int, str]]:
        return [(fault.file[:10], fault.line, fault.what) for fault in self.log.verify()]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with closing(Desk(tmp_path)) as desk:
        yield desk


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[Desk]:
    """Another desk that shares the vault."""
    with closing(Desk(tmp_path, OTHER)) as desk:
        yield desk


# Projecting


def test_each_action_stands_once_in_the_file_of_its_day(desk: Desk) -> None:
    desk.act("2026-01-05", "2026-01-05", "2026-01-06")
    desk.log.write_new_lines()
    assert desk.shown("2026-01-05") == desk.ledger.chain[:2]
    assert desk.shown("2026-01-06") == desk.ledger.chain[2:]
    assert desk.ledger.marked.seq == 3
    assert desk.faults() == []
    assert desk.file().stat().st_mode & 0o777 == 0o600


def test_actions_of_several_days_at_once_go_to_their_files(desk: Desk) -> None:
    for day in ("2026-01-05", "2026-01-05", "2026-01-07"):
        desk.ledger.act(day)
    desk.log.write_new_lines()
    assert (len(desk.shown("2026-01-05")), len(desk.shown("2026-01-07"))) == (2, 1)
    assert desk.faults() == []


def test_a_clock_that_jumps_back_a_day_keeps_the_order(desk: Desk) -> None:
    desk.act("2026-01-06", "2026-01-05", "2026-01-07")
    assert len(desk.shown("2026-01-06")) == 2
    assert not desk.file("2026-01-05").exists()
    assert desk.faults() == []


def test_a_long_backlog_is_written_in_batches_each_remembered(desk: Desk) -> None:
    for _ in range(500):
        desk.ledger.act()
    desk.log.write_new_lines()
    assert desk.shown() == desk.ledger.chain
    assert desk.faults() == []


def test_a_crash_before_the_mark_was_moved_repeats_no_line(desk: Desk) -> None:
    for _ in range(500):
        desk.ledger.act()
    desk.log.write_new_lines()
    desk.ledger.marked = LogPosition(0)
    desk.log.write_new_lines()
    desk.act()
    assert desk.shown() == desk.ledger.chain
    assert desk.ledger.marked.seq == 501


def test_a_torn_line_is_completed_in_its_place(desk: Desk) -> None:
    desk.act()
    line = desk.ledger.act().encode()
    with desk.file().open("ab") as file:
        file.write(line[:100])
    desk.act()
    assert desk.shown() == desk.ledger.chain


def test_a_line_torn_from_its_line_end_is_not_repeated(desk: Desk) -> None:
    desk.act()
    line = desk.ledger.act()
    with desk.file().open("a") as file:
        file.write(line)
    desk.log.write_new_lines()
    desk.act()
    assert desk.shown() == desk.ledger.chain


@pytest.mark.parametrize(
    "rubbish", [b"garbage", b"\0" * 5_000, b"\xff\xfe", b'{"seq":', b"x" * 99_999]
)
def test_any_other_torn_end_is_left_for_people_to_see(desk: Desk, rubbish: bytes) -> None:
    desk.act()
    with desk.file().open("ab") as file:
        file.write(rubbish)
    desk.act()
    first, middle, last = desk.file().read_bytes().splitlines()
    assert [first.decode(), last.decode()] == desk.ledger.chain
    assert middle == rubbish
    assert desk.faults() == [("2026-01-05", 2, "not a line of the log")]


def test_an_editor_that_drops_the_last_line_end_does_no_harm(desk: Desk) -> None:
    desk.act()
    desk.file().write_bytes(desk.file().read_bytes().rstrip())
    assert desk.faults() == []
    desk.act()
    assert desk.shown() == desk.ledger.chain


def test_what_was_deleted_is_not_written_again(desk: Desk) -> None:
    desk.act("2026-01-05", "2026-01-06", "2026-01-07")
    desk.file("2026-01-07").unlink()
    desk.log.write_new_lines()
    assert not desk.file("2026-01-07").exists()
    desk.act("2026-01-07")
    assert len(desk.shown("2026-01-07")) == 1
    assert desk.faults() == [("2026-01-07", 1, "missing line 3")]


@pytest.mark.parametrize("seq", [1, 2, 3, 10**9])
def test_a_forged_line_does_not_stop_the_log(desk: Desk, seq: int) -> None:
    desk.act()
    forged = desk.ledger.chain[0].replace('"seq":1', f'"seq":{seq}')
    with desk.file().open("a") as file:
        file.write(f"{forged}\n")
    desk.act()
    assert desk.shown()[-1] == desk.ledger.chain[-1]
    assert desk.faults() != []


def test_files_with_other_names_are_no_part_of_the_log(desk: Desk) -> None:
    desk.act()
    for name in (
        "notes.md",
        "9999-99-99.json",
        "2026-01-05 (conflict).json",
        "2026-01-06.json.bak",
    ):
        desk.file().with_name(name).write_text("hello")
    desk.act()
    assert desk.shown() == desk.ledger.chain
    assert desk.faults() == []


# Several desks


def test_two_desks_write_to_one_file_and_neither_is_disturbed(desk: Desk, neighbour: Desk) -> None:
    for _ in range(3):
        neighbour.act()
        desk.act()
    assert len(desk.shown()) == 6
    foreign = "written by another desk"
    assert desk.faults() == [("2026-01-05", 3, foreign), ("2026-01-05", 5, foreign)]
    assert desk.log.lines_ahead() == neighbour.log.lines_ahead() == []


def test_our_last_line_is_found_before_thousands_of_anothers(desk: Desk, neighbour: Desk) -> None:
    desk.act("2026-01-05", "2026-01-05")
    for day in ("2026-01-05", "2026-01-06"):
        for _ in range(500):
            neighbour.ledger.act(day)
    neighbour.log.write_new_lines()
    desk.ledger.marked = LogPosition(0)
    desk.log.write_new_lines()
    assert desk.ledger.marked.seq == 2
    del desk.ledger.chain[1:]
    assert [found.seq for found in desk.log.lines_ahead()] == [2]


# A ledger that was put back


def test_lines_past_the_ledgers_head_are_told_with_their_letters(desk: Desk) -> None:
    desk.act()
    desk.act("2026-01-05", letter="aaaaaaaaaa", state="approved")
    desk.act("2026-01-06", letter="aaaaaaaaaa", state="sent")
    assert desk.log.lines_ahead() == []
    lost = desk.ledger.chain[1:]
    del desk.ledger.chain[1:]
    found = desk.log.lines_ahead()
    assert [(each.seq, each.letter, each.state) for each in found] == [
        (2, "aaaaaaaaaa", "approved"),
        (3, "aaaaaaaaaa", "sent"),
    ]
    assert [each.line for each in found] == lost
    assert desk.faults() == [
        ("2026-01-05", 2, "the ledger is older than the log: 2 lines past its head")
    ]


def test_all_lines_past_the_head_are_found_each_once_however_many(desk: Desk) -> None:
    for day in ("2026-01-05", "2026-01-06", "2026-01-07"):
        for _ in range(300):
            desk.ledger.act(day)
    desk.log.write_new_lines()
    with desk.file("2026-01-07").open("a") as file:
        file.write(desk.ledger.chain[-1].replace("success", "error") + "\n")
    whole = desk.ledger.chain[:]
    del desk.ledger.chain[100:]
    assert [found.line for found in desk.log.lines_ahead()] == whole[100:]


def test_a_ledger_that_took_the_lost_lines_over_goes_on_after_them(desk: Desk) -> None:
    for _ in range(400):
        desk.ledger.act()
    desk.log.write_new_lines()
    desk.ledger.marked = LogPosition(5)
    desk.act()
    assert desk.shown() == desk.ledger.chain
    assert desk.log.lines_ahead() == []


def test_a_new_ledger_beside_an_old_log_is_told(desk: Desk) -> None:
    desk.act("2026-01-05", "2026-01-06")
    desk.ledger.chain.clear()
    assert [found.seq for found in desk.log.lines_ahead()] == [1, 2]


def test_a_line_that_is_written_while_we_look_is_not_taken_for_a_lost_one(desk: Desk) -> None:
    desk.act()

    class Busy(Vault):
        def tail(self, path: str, size: int = 65_536) -> bytes:
            desk.act()
            return super().tail(path, size)

    with closing(Busy(desk.root)) as vault:
        busy = ActionLog(vault, desk.ledger, desk=DESK)
        assert busy.lines_ahead() == []
        assert busy.verify() == []


def test_without_files_nothing_is_ahead(desk: Desk) -> None:
    assert desk.log.lines_ahead() == []
    assert desk.faults() == []
    desk.log.write_new_lines()
    assert not (desk.root / FOLDER).exists()


# Verifying


def test_a_deleted_file_is_found_first_middle_or_last(desk: Desk) -> None:
    days = ["2026-01-05", "2026-01-06", "2026-01-07"]
    desk.act(*(day for day in days for _ in range(2)))
    kept = {day: desk.file(day).read_bytes() for day in days}
    found = {}
    for day in days:
        desk.file(day).unlink()
        found[day] = desk.faults()
        desk.file(day).write_bytes(kept[day])
    assert found == {
        "2026-01-05": [("2026-01-06", 1, "missing lines 1 to 2")],
        "2026-01-06": [("2026-01-07", 1, "missing lines 3 to 4")],
        "2026-01-07": [("2026-01-06", 2, "cut off after 4")],
    }


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda a, b, c: [a, b.replace(b"success", b"rejected"), c], [(2, "edited")]),
        (lambda a, b, c: [a, b.replace(b"success", "é".encode()), c], [(2, "edited")]),
        (lambda a, b, c: [a, b.replace(b"success", b"\xff\xfe"), c], [(2, "edited")]),
        (lambda a, b, c: [a, b + b"\r", c], [(2, "edited")]),
        (lambda a, b, c: [b, c], [(1, "missing line 1")]),
        (lambda a, b, c: [a, c], [(2, "missing line 2")]),
        (lambda a, b, c: [a, b], [(2, "cut off after 2")]),
        (lambda a, b, c: [], [(0, "missing lines 1 to 3")]),
        (lambda a, b, c: [a, c, b], [(3, "out of order")]),
        (lambda a, b, c: [a, a, b, c], [(2, "repeated")]),
        (lambda a, b, c: [a, b"", b, c], [(2, "not a line of the log")]),
        (lambda a, b, c: [a, b"[" * 200_000, b, c], [(2, "not a line of the log")]),
        (lambda a, b, c: [a, b, c[:-9]], [(2, "cut off after 2"), (3, "not a line of the log")]),
    ],
)
def test_what_was_done_to_the_file_is_found(
    desk: Desk, change: Callable[..., list[bytes]], found: list[tuple[int, str]]
) -> None:
    desk.act(*["2026-01-05"] * 3)
    lines = desk.file().read_bytes().splitlines()
    desk.file().write_bytes(b"".join(line + b"\n" for line in change(*lines)))
    assert [(line, what) for _, line, what in desk.faults()] == found
    desk.act()
    assert desk.shown()[-1] == desk.ledger.chain[-1]


def test_a_line_of_megabytes_is_one_fault_and_the_log_goes_on(desk: Desk) -> None:
    desk.act()
    with desk.file().open("ab") as file:
        file.write(b"{" * (log.LONGER_TAILS[-1] + 5))
    assert desk.log.lines_ahead() == []
    desk.act()
    assert desk.faults() == [("2026-01-05", 2, "not a line of the log")]


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ("2026-01-05", [("2026-01-06", "missing line 1")]),
        ("2026-01-06", [("2026-01-05", "cut off after 1")]),
    ],
)
def test_what_cannot_be_read_is_said_and_the_rest_is_read(
    desk: Desk, broken: str, found: list[tuple[str, str]]
) -> None:
    desk.act("2026-01-05", "2026-01-06")

    class Failing(Vault):
        def tail(self, path: str, size: int = 65_536) -> bytes:
            if broken in path:
                raise Unavailable("Input/output error")
            return super().tail(path, size)

    with closing(Failing(desk.root)) as vault:
        failing = ActionLog(vault, desk.ledger, desk=DESK)
        said = [(fault.file[:10], fault.what) for fault in failing.verify()]
        assert said == [*found, (broken, "not read: Input/output error")]
        assert len(list(failing.records())) == 1
        assert failing.lines_ahead() == []


def test_of_a_file_beyond_all_bounds_the_end_is_read_and_that_is_said(desk: Desk) -> None:
    desk.act()
    with desk.file().open("r+b") as file:
        file.truncate(log.MAX_FILE)
    desk.act()
    assert [record["seq"] for record in desk.log.records()] == [2]
    assert desk.faults() == [
        ("2026-01-05", 1, "not a line of the log"),
        ("2026-01-05", 2, "missing line 1"),
        ("2026-01-05", 0, "not read: larger than 128 MB, of which only the end was read"),
    ]


def test_a_link_in_the_place_of_a_file_is_not_followed(desk: Desk) -> None:
    secret = desk.root / "secret"
    secret.write_text("kept")
    desk.act("2026-01-05")
    desk.file("2026-01-06").symlink_to(secret)
    desk.act("2026-01-05")
    assert desk.shown() == desk.ledger.chain
    desk.ledger.act("2026-01-06")
    with pytest.raises(Denied):
        desk.log.write_new_lines()
    assert secret.read_text() == "kept"
    assert desk.ledger.marked.seq == 2


# Reading


def test_records_are_chosen_by_time_letter_actor_and_result(desk: Desk) -> None:
    desk.act("2026-01-05", letter="aaaaaaaaaa")
    desk.act("2026-01-06", actor="dispatcher", letter="aaaaaaaaaa", result="error", error="no")
    desk.act("2026-01-07", actor="person")

    def seqs(**chosen: str) -> list[int]:
        return [record["seq"] for record in desk.log.records(**chosen)]

    assert seqs() == [1, 2, 3]
    assert seqs(since="2026-01-06") == [2, 3]
    assert seqs(since="2026-01-06T10:00:01Z") == [3]
    assert seqs(since="2026") == [1, 2, 3]
    assert seqs(until="2026-01-06") == [1, 2]
    assert seqs(since="2026-01-06", until="2026-01-06T09") == []
    assert seqs(letter="aaaaaaaaaa") == [1, 2]
    assert seqs(letter="aaaaaaaaaa", result="error") == [2]
    assert seqs(actor="person") == [3]


def test_records_pass_over_what_is_no_line(desk: Desk) -> None:
    desk.act()
    with desk.file().open("ab") as file:
        file.write(b"\xff\n[]\n\n")
    desk.act()
    assert [record["seq"] for record in desk.log.records()] == [1, 2]


def test_no_body_reaches_a_file(desk: Desk) -> None:
    with pytest.raises(ValueError, match="never logged"):
        desk.act(parameters={"body": "the body"})
    desk.act(parameters={"subject": "Hello", "to": "john.doe@example.com"})
    (record,) = map(json.loads, desk.shown())
    assert record["parameters"] == {"subject": "Hello", "to": "j***@example.com"}
    assert desk.faults() == []


def test_a_torn_line_is_mended_in_whichever_file_comes_next(desk: Desk) -> None:
    desk.act("2026-01-05")
    desk.ledger.act("2026-01-06")
    desk.file("2026-01-06").write_bytes(desk.ledger.chain[-1].encode()[:100])  # killed meanwhile
    desk.ledger.act("2026-01-05")  # and the clock set back
    desk.log.write_new_lines()
    assert desk.faults() == []
