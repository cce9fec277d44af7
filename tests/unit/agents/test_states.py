"""The states of agents on the disk, which the original reads without a lock."""

import os
from pathlib import Path

import pytest

from postroom.agents.folder import MailFolder, find
from postroom.agents.record import ZERO, AgentState, now, read_state, write_state
from postroom.agents.roster import change_state, change_states, states
from tests.narrow import present

LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.fixture
def folder(tmp_path: Path) -> MailFolder:
    (tmp_path / ".git").mkdir()
    found = present(find(str(tmp_path)))
    found.make()
    return found


def data(folder: MailFolder) -> bytes:
    with open(folder.states, "rb") as file:
        return file.read()


def put(folder: MailFolder, *lines: bytes) -> None:
    with open(folder.states, "wb") as file:
        file.write(b"".join(lines))


def one(folder: MailFolder) -> AgentState:
    (found,) = states(folder)
    return found


def set_status(folder: MailFolder, name: str, status: str) -> None:
    change_state(folder, name, lambda old: old.with_status(status))


def record_read(folder: MailFolder, name: str, milliseconds: int) -> None:
    change_state(folder, name, lambda old: old.after_reading(milliseconds))


def record_nudge(folder: MailFolder, name: str) -> None:
    change_state(folder, name, lambda old: old._replace(notified=now()))


def test_a_status_is_kept_in_the_original_s_form(folder: MailFolder) -> None:
    set_status(folder, "bob", "ready")
    found = one(folder)
    assert (found.name, found.status, found.notified, found.last_read) == ("bob", "ready", ZERO, 0)
    assert data(folder) == write_state(found)
    assert os.stat(folder.states).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("status", "kept"), [("ready", True), ("work", False), ("offline", False)])
def test_only_who_stays_ready_stays_nudged(folder: MailFolder, status: str, kept: bool) -> None:
    put(folder, write_state(AgentState("bob", "ready", LONG_AGO, LONG_AGO, 7)))
    set_status(folder, "bob", status)
    found = one(folder)
    assert found.notified == (LONG_AGO if kept else ZERO)
    assert (found.status, found.last_read) == (status, 7)
    assert found.updated > LONG_AGO


def test_reading_makes_one_ready_who_had_no_state_and_else_only_tells_when(
    folder: MailFolder,
) -> None:
    record_read(folder, "bob", 5)
    assert one(folder)._replace(updated="") == AgentState("bob", "ready", "", ZERO, 5)
    put(folder, write_state(AgentState("bob", "work", LONG_AGO, ZERO, 1)))
    record_read(folder, "bob", 6)
    assert one(folder) == AgentState("bob", "work", LONG_AGO, ZERO, 6)


def test_a_nudge_is_remembered_of_those_alone_who_have_a_state(folder: MailFolder) -> None:
    record_nudge(folder, "bob")
    assert data(folder) == b""
    put(folder, write_state(AgentState("bob", "ready", LONG_AGO)))
    record_nudge(folder, "bob")
    assert one(folder).notified > LONG_AGO


def test_the_order_stays_and_of_two_of_one_name_the_first_is_meant(folder: MailFolder) -> None:
    put(folder, *(write_state(AgentState(name, "ready", LONG_AGO)) for name in ("a", "b", "a")))
    set_status(folder, "a", "work")
    set_status(folder, "c", "ready")
    assert [(s.name, s.status) for s in states(folder)] == [("a", "work"), ("b", "ready"), ("a", "ready"), ("c", "ready")]  # fmt: skip


def test_a_line_that_the_original_cannot_read_is_set_aside(folder: MailFolder) -> None:
    put(folder, b"{torn\n", write_state(AgentState("bob", "ready", LONG_AGO)), b"\n")
    set_status(folder, "bob", "work")
    assert all(read_state(line) for line in data(folder).splitlines())
    with open(f"{folder.own_files}/recipients.torn", "rb") as file:
        assert file.read() == b"{torn\n"


def test_the_file_stays_the_same_file(folder: MailFolder) -> None:
    put(folder, *(write_state(AgentState(f"a{n}", "ready", LONG_AGO)) for n in range(9)))
    inode = os.stat(folder.states).st_ino
    change_states(folder, lambda found: found[:1])
    assert os.stat(folder.states).st_ino == inode
    assert len(states(folder)) == 1


def test_no_file_is_no_state(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert states(present(find(str(tmp_path)))) == []
