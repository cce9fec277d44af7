"""Mailboxes of agents, written and read as files: what tests of several kinds put there and find there."""

from __future__ import annotations

import json
import os
import zlib

from postroom.agents.mailbox import AgentMailbox
from postroom.agents.record import AgentMessage, write_message

OLD = "2026-01-01T00:00:00Z"
CLEANED_BEFORE = 1_790_000_000.0  # between OLD and the time of other messages


def data(box: AgentMailbox) -> bytes:
    """Return the bytes of a mailbox."""
    with open(box.path, "rb") as file:
        return file.read()


def put(box: AgentMailbox, *lines: bytes) -> None:
    """Make these lines the whole mailbox."""
    box._folder.make()
    with open(box.path, "wb") as file:
        file.write(b"".join(lines))


def record(
    id: str, *, read: bool = False, text: str = "hello", created: str = "2026-11-15T06:17:49Z"
) -> bytes:
    """Return the line of a message from alice to bob."""
    return write_message(AgentMessage(id, "alice", "bob", text, read, created))


def received(box: AgentMailbox) -> str | None:
    """Take the next message, confirm it, and return its text; None if there is none."""
    taken = box.take()
    if taken is None:
        return None
    taken.confirm()
    return taken.message.text


# Messages of which cleaning removes two, and a line that is none.
MIXED = (
    record("oldread1", read=True, created=OLD),
    b"{odd\n",
    record("unread01", created=OLD, text="unread"),
    record("untimed1", read=True, created="0001-01-01T00:00:00Z"),
    record("newread1", read=True),
)


def break_off_cleaning(box: AgentMailbox, written: int) -> None:
    """Leave what cleaning leaves if it is killed when it has written so many bytes of the mailbox."""
    put(box, *MIXED)
    before = data(box)
    box.clean(CLEANED_BEFORE)
    after = data(box)
    put(box, after.ljust(len(before), b"\n")[:written] + before[written:])
    head = [os.stat(box.path).st_ino, len(before), zlib.crc32(before + after)]
    with open(f"{box._beside}rewrite", "wb") as file:
        file.write(json.dumps(head).encode() + b"\n" + before + after)


def check_next_finishes_cleaning(box: AgentMailbox, *, appended: bool) -> None:
    """Check that who comes next finishes a cleaning that was broken off, and loses no message.

    With `appended`, a program that knows nothing of it has written another message meanwhile.
    """
    if appended:
        with open(box.path, "ab") as file:
            file.write(record("appended", text="later"))
    texts, ids = (["later"], ["appended"]) if appended else ([], [])
    assert [received(box) for _ in range(len(texts) + 2)] == ["unread", *texts, None]
    assert [message.id for message in box.messages()] == ["unread01", "newread1", *ids]
