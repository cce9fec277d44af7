"""A line of the files, byte for byte as the original writes it, and read as it reads it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.agents.record import (
    ZERO,
    AgentMessage,
    AgentState,
    find_message,
    find_unread_flag,
    now,
    read_message,
    read_state,
    seconds,
    write_message,
    write_state,
)
from tests.cases import for_each
from tests.narrow import present

SEEN = b'{"id":"aXEqdhSI","from":"alice","to":"bob","message":"hello","read_flag":false,"created_at":"2026-11-15T06:17:49.082950815Z"}\n'
STATE = b'{"recipient":"bob","status":"work","updated_at":"2026-11-15T06:18:47.507257575Z","notified_at":"0001-01-01T00:00:00Z","last_read_at":1794723527378}\n'
HELLO = AgentMessage("aXEqdhSI", "alice", "bob", "hello", False, "2026-11-15T06:17:49.082950815Z")


def test_the_original_s_message_is_read_and_written_byte_for_byte() -> None:
    assert read_message(SEEN) == HELLO
    assert write_message(HELLO) == SEEN


def test_the_original_s_state_is_read_and_written_byte_for_byte() -> None:
    found = read_state(STATE)
    assert found == AgentState("bob", "work", "2026-11-15T06:18:47.507257575Z", ZERO, 1794723527378)
    assert write_state(found) == STATE
    assert b"last_read_at" not in write_state(found._replace(last_read=0))


@for_each(
    ("text", "written"),
    [
        ("<a> & b", r"\u003ca\u003e \u0026 b"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\b\f\n\r\t\x01\x1f", r"\b\f\n\r\t\u0001\u001f"),
        ("\x7f é 😀 /", "\x7f é 😀 /"),
        ('"\\', r"\"\\"),
        ("\ud800", "\ufffd"),
    ],
)
def test_signs_are_escaped_as_go_escapes_them(text: str, written: str) -> None:
    line = write_message(HELLO._replace(text=text))
    assert f'"message":"{written}"'.encode() in line


@given(st.text(), st.text(min_size=1, max_size=8), st.booleans())
def test_any_text_comes_back(text: str, name: str, read: bool) -> None:
    message = HELLO._replace(text=text, sender=name, read=read)
    assert read_message(write_message(message)) == message
    json.loads(write_message(message))


@for_each(
    ("line", "expected"),
    [
        (rb'{"ID":"a","From":"x","TO":"y","MESSAGE":"m","Read_Flag":true}', ("a", True)),
        (rb'{ "id" : "a" , "from":null, "read_flag":true , "more":[1] }', ("a", True)),
        (rb'{"id":"a","message":"m"}', ("a", False)),
        (rb'{"id":"a","read_flag":null,"created_at":null}', ("a", False)),
        (rb'{"id":"b","id":"a"}', ("a", False)),
        (b'{"id":"a","message":"\xff"}', ("a", False)),
    ],
)
def test_what_go_reads_as_a_message_is_one(line: bytes, expected: tuple[str, bool]) -> None:
    found = present(read_message(line))
    assert (found.id, found.read) == expected


@for_each(
    "line", [b"", b"   ", b"{", b"[]", b"null", b"{}", b'{"id":1}', b'{"id":"a","read_flag":"no"}', b"[" * 100_000]
)  # fmt: skip
def test_what_is_no_message_is_none(line: bytes) -> None:
    assert read_message(line) is None
    assert find_unread_flag(line) == -1


def test_a_state_of_the_older_form_is_read_and_written_in_the_newer() -> None:
    found = read_state(b'{"name":"bob","status":"ready","notified":true,"last_read_at":5}')
    assert found == AgentState("bob", "ready", last_read=5)
    assert write_state(found).startswith(b'{"recipient":"bob","status":"ready","updated_at":')


@for_each(
    "line", [b'{"recipient":"bob","notified_at":"now"}', b'{"recipient":"a","updated_at":"soon"}', b'{"status":"ready"}', b"no"]
)  # fmt: skip
def test_what_the_original_cannot_read_as_a_state_is_none(line: bytes) -> None:
    assert read_state(line) is None


def test_a_state_with_an_empty_time_was_never_nudged() -> None:
    assert read_state(b'{"recipient":"bob","notified_at":""}') == AgentState("bob")


@for_each(
    "line",
    [
        SEEN[:-1],
        rb'{"id":"a","message":"\"read_flag\":false","read_flag":false}',
        rb'{"x":{"read_flag":false},"id":"a","read_flag" : false}',
        rb'{"id":"a","message":"\\","Read_Flag":false}',
    ],
)
def test_the_flag_is_found_where_it_stands(line: bytes) -> None:
    at = find_unread_flag(line)
    marked = line[:at] + b"true " + line[at + 5 :]
    assert read_message(marked) == present(read_message(line))._replace(read=True)


def test_a_flag_that_does_not_stand_there_is_not_found() -> None:
    assert find_unread_flag(rb'{"id":"a","message":"\"read_flag\":false"}') == -1
    assert find_unread_flag(rb'{"id":"a","read_flag":null}') == -1
    assert find_unread_flag(SEEN.replace(b"false", b"true")) == -1


def test_a_message_that_was_appended_to_a_torn_one_is_found() -> None:
    torn = b'{"id":"zzzzzzzz","from":"al' + SEEN
    found, at = find_message(torn)
    assert (torn[at:], found) == (SEEN, HELLO)
    assert find_message(SEEN) == (HELLO, 0)
    assert find_message(b'{"id":"a {"id":"b') == (None, 0)


def test_a_moment_is_in_the_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    for zone, written in (
        ("UTC", "Z"),
        ("Europe/Moscow", "+03:00"),
        ("America/St_Johns", "-03:30"),
    ):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        moment = now(lambda: 1_794_723_469_082_950_000)
        assert moment.endswith(f".08295{written}")
        assert seconds(moment) == pytest.approx(1_794_723_469.08295)
    monkeypatch.undo()
    time.tzset()
    assert "." not in now(lambda: 1_794_723_469_000_000_000)


@given(st.integers(0, 4_102_444_800), st.integers(0, 999_999_999))
def test_moments_come_back(second: int, part: int) -> None:
    assert seconds(now(lambda: second * 1_000_000_000 + part)) == pytest.approx(
        second + part // 1000 / 1e6, abs=1e-6
    )


@for_each("text", ["", "soon", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T00:00:00"])  # fmt: skip
def test_what_is_no_moment_is_none(text: str) -> None:
    assert seconds(text) is None


def test_no_time_is_long_ago() -> None:
    assert seconds(ZERO) == 0
