"""A mailbox on the disk: what is taken and when it is read, and what a crash leaves."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count, product
from pathlib import Path

import pytest

from postroom.agents.folder import MailFolder, find, locked
from postroom.agents.mailbox import AgentMailbox
from postroom.agents.record import AgentMessage, read_message, write_message
from postroom.core.errors import Denied, Invalid, NotFound, PostroomError, Unavailable
from postroom.store.files import Locked
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear
from tests.mailboxes import (
    CLEANED_BEFORE,
    MIXED,
    OLD,
    break_off_cleaning,
    check_next_finishes_cleaning,
    data,
    put,
    received,
    record,
)
from tests.narrow import present


@pytest.fixture
def folder(tmp_path: Path) -> MailFolder:
    (tmp_path / ".git").mkdir()
    return present(find(str(tmp_path)))


@pytest.fixture
def box(folder: MailFolder) -> AgentMailbox:
    return AgentMailbox(folder, "bob")


def test_messages_come_in_the_order_in_which_they_were_sent_and_once(box: AgentMailbox) -> None:
    for text in ("one", "two", "three"):
        box.append("alice", text)
    assert [received(box) for _ in range(4)] == ["one", "two", "three", None]


def test_files_and_folders_are_the_owner_s(box: AgentMailbox, folder: MailFolder) -> None:
    box.append("alice", "x")
    received(box)
    assert os.stat(box.path).st_mode & 0o777 == 0o600
    assert os.stat(folder.path).st_mode & 0o777 == 0o750 & ~_umask()
    assert os.stat(folder.boxes).st_mode & 0o777 == 0o750 & ~_umask()
    assert all(
        os.stat(f"{folder.own_files}/{f}").st_mode & 0o77 == 0 for f in os.listdir(folder.own_files)
    )


def _umask() -> int:
    mask = os.umask(0o77)
    os.umask(mask)
    return mask


def test_a_message_is_marked_in_place_and_every_other_byte_stays(box: AgentMailbox) -> None:
    box.append("alice", "one")
    box.append("alice", "two")
    before = data(box)
    inode = os.stat(box.path).st_ino
    assert received(box) == "one"
    assert data(box) == before.replace(b'"read_flag":false', b'"read_flag":true ', 1)
    assert os.stat(box.path).st_ino == inode


def test_what_was_not_handed_over_is_there_for_the_next(box: AgentMailbox) -> None:
    box.append("alice", "one")
    taken = present(box.take())
    with pytest.raises(Unavailable, match="locked"):
        box.take(patience=0.05)
    taken.release()
    assert received(box) == "one"
    taken.confirm()  # too late, and nothing more happens
    assert received(box) is None


def test_nothing_is_written_of_what_cannot_be_marked(box: AgentMailbox, tmp_path: Path) -> None:
    box.append("alice", "one")
    taken = present(box.take())
    with open(tmp_path / "out", "wb") as out, locked(box.path), pytest.raises(Locked):
        taken.deliver(out.fileno(), b"x" * 2_000, patience=0.05)
    assert (tmp_path / "out").read_bytes() == b""
    assert received(box) == "one"


def test_what_was_confirmed_for_nothing_can_be_taken_back(box: AgentMailbox) -> None:
    box.append("alice", "one")
    box.append("alice", "two")
    taken = present(box.take())
    taken.confirm()
    taken.take_back()
    assert [received(box) for _ in range(3)] == ["one", "two", None]
    taken.take_back()  # somebody has read it since, and it is as if it had been us
    assert received(box) == "one"


def test_what_is_taken_back_in_one_tick_of_the_file_system_s_clock_is_found(
    box: AgentMailbox,
) -> None:
    box.append("alice", "first")
    taken = present(box.take())
    taken.confirm()
    marked = os.stat(box.path).st_mtime_ns
    taken.take_back()
    os.utime(box.path, ns=(marked, marked))  # as where stamps are milliseconds coarse
    assert received(box) == "first"


def test_a_sender_does_not_wait_for_who_is_receiving(box: AgentMailbox) -> None:
    box.append("alice", "one")
    taken = present(box.take())
    box.append("alice", "two")
    taken.confirm()
    assert received(box) == "two"


def test_a_message_that_is_not_written_with_its_line_is_not_written(box: AgentMailbox) -> None:
    def fails(_message: AgentMessage) -> None:
        raise Unavailable("the ledger is full")

    box.append("alice", "one")
    before = data(box)
    with pytest.raises(Unavailable):
        box.append("alice", "two", then=fails)
    assert data(box) == before


def test_ids_are_of_eight_signs_and_none_is_drawn_twice(box: AgentMailbox) -> None:
    drawn = iter([bytes(24), bytes(24), bytes([1] * 24)])
    first = box.append("alice", "x", draw=lambda _: bytes(24))
    second = box.append("alice", "x", draw=lambda _: next(drawn))
    assert (first.id, second.id) == ("aaaaaaaa", "bbbbbbbb")
    again = AgentMailbox(box._folder, "bob")  # another process, which knows nothing of these
    more = iter([bytes([1] * 24), bytes([2] * 24)])
    third = again.append("alice", "x", draw=lambda _: next(more))
    assert third.id == "cccccccc"


def test_an_id_that_somebody_else_wrote_meanwhile_is_not_drawn(box: AgentMailbox) -> None:
    box.append("alice", "x", draw=lambda _: bytes(24))
    with open(box.path, "ab") as file:
        file.write(record("bbbbbbbb"))
    drawn = iter([bytes([1] * 24), bytes([2] * 24)])
    assert box.append("alice", "x", draw=lambda _: next(drawn)).id == "cccccccc"


def test_both_copies_of_one_id_are_delivered_once_each(box: AgentMailbox) -> None:
    put(box, record("samesame", text="one"), record("samesame", text="one"))
    assert [received(box) for _ in range(3)] == ["one", "one", None]


# Odd lines


ODD = [b"\n", b"   \n", b"{torn\n", b'{"id":7}\n', b'{"ID":"x","From":"a","message":"odd case","READ_FLAG":false}\n']  # fmt: skip


def test_odd_lines_are_passed_over_and_kept(box: AgentMailbox) -> None:
    put(box, *ODD, record("aaaaaaaa"), b"\n\n")
    assert [received(box) for _ in range(3)] == ["odd case", "hello", None]
    box.append("alice", "new")
    assert all(line in data(box) for line in ODD[:4])
    assert received(box) == "new"


def test_a_torn_last_line_is_set_aside_before_anything_is_appended(
    box: AgentMailbox, folder: MailFolder
) -> None:
    torn = b'{"id":"zzzzzzzz","from":"al'
    put(box, record("aaaaaaaa"), torn)
    box.append("alice", "new")
    assert [present(read_message(line)).text for line in data(box).splitlines()] == ["hello", "new"]
    with open(f"{folder.own_files}/bob.torn", "rb") as file:
        assert file.read() == torn + b"\n"


def test_who_receives_sets_a_torn_line_aside_too(box: AgentMailbox) -> None:
    put(box, record("aaaaaaaa"), b'{"id')
    assert received(box) == "hello"
    assert all(read_message(line) for line in data(box).splitlines())


def test_a_last_line_that_lacks_its_end_alone_is_a_message(
    box: AgentMailbox, folder: MailFolder
) -> None:
    put(box, record("aaaaaaaa"), record("bbbbbbbb", text="whole")[:-1])
    assert [received(box) for _ in range(3)] == ["hello", "whole", None]
    assert not os.path.exists(f"{folder.own_files}/bob.torn")


def test_a_message_that_the_original_glued_to_a_torn_one_is_delivered(box: AgentMailbox) -> None:
    put(box, b'{"id":"zzzzzzzz","from":"al' + record("aaaaaaaa", text="glued"), record("bbbbbbbb"))
    assert [received(box) for _ in range(3)] == ["glued", "hello", None]


@pytest.mark.parametrize("line", [b'{"id":"a","from":"x","message":"m"}\n', b'{"id":"a","message":"m","read_flag":null}\n'])  # fmt: skip
def test_a_message_without_the_flag_is_delivered_once_and_its_neighbours_stay(
    box: AgentMailbox, line: bytes
) -> None:
    put(box, record("aaaaaaaa", text="before"), line, record("bbbbbbbb", text="after"))
    assert [received(box) for _ in range(4)] == ["before", "m", "after", None]
    assert [present(read_message(one)).read for one in data(box).splitlines()] == [True] * 3


# The cursor


def test_what_was_read_is_not_looked_at_again(box: AgentMailbox, folder: MailFolder) -> None:
    put(box, *(record(f"{n:08}", read=True) for n in range(50)))
    assert received(box) is None
    with open(f"{folder.own_files}/bob.cursor") as file:
        assert int(file.read().split()[1]) == os.stat(box.path).st_size


@pytest.mark.parametrize("how", ["rewritten", "shorter", "another", "unread", "lost", "garbage"])
def test_a_file_that_was_changed_under_the_cursor_is_read_anew(
    box: AgentMailbox, folder: MailFolder, how: str
) -> None:
    put(box, *(record(f"{n:08}", read=n < 3) for n in range(4)))
    assert received(box) == "hello"
    assert received(box) is None
    cursor = f"{folder.own_files}/bob.cursor"
    match how:
        case "rewritten":  # as the original does when it marks a message
            put(box, *(write_message(present(read_message(line))) for line in data(box).splitlines()), record("bbbbbbbb", text="new"))  # fmt: skip
        case "shorter":
            put(box, record("bbbbbbbb", text="new"))
        case "another":
            lines = data(box)
            os.rename(box.path, f"{box.path}.old")
            put(box, record("bbbbbbbb", text="new"), lines)
        case "unread":
            changed = data(box).replace(b'"hello","read_flag":true', b'"hello","read_flag":true', 1)
            changed = changed[::-1].replace(b" eurt", b"eslaf", 1)[::-1]  # the last one
            with open(box.path, "r+b") as file:
                file.write(changed)
            os.utime(box.path, ns=(0, 0))
            assert received(box) == "hello"
            return
        case "lost":
            os.unlink(cursor)
            box.append("alice", "new")
        case "garbage":
            with open(cursor, "wb") as file:
                file.write(b"1 2 3 4 5 6")
            box.append("alice", "new")
    assert received(box) == "new"
    assert received(box) is None


def test_a_message_is_marked_though_the_original_rewrote_the_file_meanwhile(
    box: AgentMailbox,
) -> None:
    put(
        box,
        record("aaaaaaaa", read=True).replace(b"true", b"true "),
        record("bbbbbbbb", text="two"),
    )
    taken = present(box.take())
    put(box, *(write_message(present(read_message(line))) for line in data(box).splitlines()))
    taken.confirm()
    assert [present(read_message(line)).read for line in data(box).splitlines()] == [True, True]


def test_a_mailbox_that_is_gone_meanwhile_is_no_error(box: AgentMailbox) -> None:
    box.append("alice", "x")
    taken = present(box.take())
    os.unlink(box.path)
    taken.confirm()
    assert box.take() is None


def test_a_file_that_was_unlinked_while_we_waited_for_it_is_opened_anew(
    box: AgentMailbox, folder: MailFolder
) -> None:
    box.append("alice", "old")
    with locked(box.path):
        os.rename(box.path, f"{box.path}.gone")
        box.append("alice", "new")  # would be lost in the file that nobody finds
    assert present(read_message(data(box))).text == "new"


# Cleaning, and crashes in it


def test_cleaning_removes_what_was_read_long_ago_and_nothing_else(box: AgentMailbox) -> None:
    put(box, *MIXED)
    assert box.clean(CLEANED_BEFORE, dry_run=True) == (2, False, 1)
    assert b"oldread1" in data(box)
    inode = os.stat(box.path).st_ino
    assert box.clean(CLEANED_BEFORE) == (2, False, 1)
    assert data(box) == b"{odd\n" + record("unread01", created=OLD, text="unread") + record("newread1", read=True)  # fmt: skip
    assert os.stat(box.path).st_ino == inode
    assert received(box) == "unread"


def test_cleaning_sets_aside_what_was_torn_before_a_message(
    box: AgentMailbox, folder: MailFolder
) -> None:
    torn = b'{"id":"zzzzzzzz","fr'
    put(
        box,
        torn + record("oldread1", read=True, created=OLD),
        record("unread01", created=OLD, text="one"),
        torn + record("unread02", created=OLD, text="two"),
    )
    assert box.clean(CLEANED_BEFORE) == (1, False, 0)
    assert [present(read_message(line)).text for line in data(box).splitlines()] == ["one", "two"]
    with open(f"{folder.own_files}/bob.torn", "rb") as file:
        assert file.read() == (torn + b"\n") * 2


def test_a_mailbox_of_which_all_was_read_is_emptied_and_not_unlinked(box: AgentMailbox) -> None:
    put(box, record("oldread1", read=True, created=OLD), b"\n")
    inode = os.stat(box.path).st_ino
    assert box.clean(CLEANED_BEFORE) == (1, True, 0)
    assert data(box) == b""
    assert os.stat(box.path).st_ino == inode
    assert box.clean(CLEANED_BEFORE) == (0, False, 0)


def test_what_is_kept_beside_a_message_goes_with_it(box: AgentMailbox) -> None:
    first = box.append("alice", "x", about=lambda _: {"thread": "t1"})
    second = box.append("alice", "y", about=lambda _: {"thread": "t2"})
    assert box.about(first.id) == {"id": first.id, "thread": "t1"}
    assert received(box) == "x"
    box.clean(4e9)
    assert box.about(first.id) == {}
    assert box.about(second.id) == {"id": second.id, "thread": "t2"}
    assert box.about("nothing1") == {}


@for_each(("part", "appended"), product([0.0, 0.001, 0.5, 0.999, 1.0], [False, True]))
def test_a_rewrite_that_is_broken_off_is_finished_by_the_next(
    folder: MailFolder, part: float, appended: bool
) -> None:
    """The tests of crashes break it off after every byte."""
    box = AgentMailbox(folder, f"bob{part}{appended}".replace(".", ""))
    break_off_cleaning(box, round(part * sum(map(len, MIXED))))
    check_next_finishes_cleaning(box, appended=appended)


def test_a_rewrite_that_somebody_else_overtook_is_dropped(box: AgentMailbox) -> None:
    break_off_cleaning(box, 0)
    put(box, record("theirs01", text="theirs"), record("unread01", created=OLD, text="unread"))
    assert [received(box) for _ in range(3)] == ["theirs", "unread", None]


def test_a_copy_that_nobody_of_ours_wrote_is_dropped(box: AgentMailbox, folder: MailFolder) -> None:
    box.append("alice", "x")
    for left in (b"", b"nonsense", b"[1, 2, 3]\nabc", json.dumps([os.stat(box.path).st_ino, 3, 9]).encode() + b"\nabc"):  # fmt: skip
        with open(f"{folder.own_files}/bob.rewrite", "wb") as file:
            file.write(left)
        assert len(box.messages()) == 1
        assert not os.path.exists(f"{folder.own_files}/bob.rewrite")


# Places


@for_each("name", ["..", "..x", "../bob", "/etc/passwd", "a/../../b", "x\0y"])
def test_a_name_that_leads_out_is_refused(folder: MailFolder, name: str) -> None:
    with pytest.raises(Invalid, match="directory traversal"):
        AgentMailbox(folder, name)


def test_a_name_with_a_slash_has_no_mailbox(folder: MailFolder) -> None:
    with pytest.raises(NotFound, match="no such file or directory"):
        AgentMailbox(folder, "a/b")


ALL = ["mailboxes/bob.jsonl", *(f"postroom/bob.{ending}" for ending in ("about", "cursor", "take", "rewrite", "rewrite.new", "told", "torn"))]  # fmt: skip


def everything_done(box: AgentMailbox) -> None:
    """Do with a mailbox all that can be done, whatever becomes of it."""
    with suppress(FileNotFoundError), open(box.path, "ab") as file:
        file.write(b'{"id":"flagless","message":"x"}\n{"torn')
    for deed in (
        lambda: box.append("alice", "x", about=lambda _: {"thread": "t"}),
        lambda: received(box),
        lambda: received(box),
        box.unread,
        box.record_notice,
        lambda: box.clean(4e9),
        lambda: box.about("aaaaaaaa"),
    ):
        with suppress(OSError, PostroomError):
            deed()


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize("how", ["symlink", "link"])
def test_no_file_leads_out(
    box: AgentMailbox, folder: MailFolder, tmp_path: Path, path: str, how: str
) -> None:
    folder.make()
    secret = tmp_path / "secret"
    secret.write_text("x\n")
    getattr(os, how)(secret, f"{folder.path}/{path}")
    if path == ALL[0]:
        with pytest.raises((OSError, Denied)):
            box.append("alice", "x")
    else:
        everything_done(box)
    assert secret.read_text() == "x\n"


@pytest.mark.parametrize("name", ["", "mailboxes", "postroom"])
def test_no_folder_leads_out(
    box: AgentMailbox, folder: MailFolder, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    (outside / "mailboxes").mkdir(parents=True)
    (outside / "postroom").mkdir()
    if name:
        os.mkdir(folder.path)
    os.symlink(outside / name, f"{folder.path}/{name}".rstrip("/"))
    with pytest.raises(Denied, match="not a folder of its own"):
        box.append("alice", "x")
    assert list(outside.rglob("*.*")) == []


@pytest.mark.parametrize("path", ALL)
@pytest.mark.timeout(30)
def test_a_pipe_or_a_folder_in_the_place_of_a_file_hangs_nobody(
    box: AgentMailbox, folder: MailFolder, path: str
) -> None:
    for make in (os.mkfifo, os.mkdir):
        folder.make()
        place = f"{folder.path}/{path}"
        if os.path.exists(place):
            os.unlink(place)
        make(place)
        if path != ALL[0]:
            everything_done(box)
        else:
            with pytest.raises((OSError, Denied)):
                box.take()
        if path.endswith("cursor"):  # which only saves time
            box.append("alice", "still")
            assert received(box) == "still"
        if os.path.lexists(place):
            (os.rmdir if make is os.mkdir else os.unlink)(place)


@pytest.mark.parametrize("left", [b"5\n", b'[1,"a",2]\n', b"[" * size(100_000), b'{"id":"aaaaaaaa","thread":' + b"[" * size(100_000) + b"\n", b"\xff" * 300, b"-5 -5 0 0 0 0"])  # fmt: skip
@pytest.mark.parametrize("path", [one for one in ALL[1:] if "told" not in one])
def test_nonsense_in_a_file_of_ours_stops_nobody(
    box: AgentMailbox, folder: MailFolder, path: str, left: bytes
) -> None:
    box.append("alice", "x", draw=lambda _: bytes(24), about=lambda _: {"thread": "t"})
    with open(f"{folder.path}/{path}", "wb") as file:
        file.write(left)
    assert isinstance(box.about("aaaaaaaa"), dict)
    assert received(box) == "x"
    box.append("alice", "y")
    assert received(box) == "y"


LONG: dict[str, Callable[[int], tuple[bytes, str | None]]] = {
    "flags": lambda n: (b'{"id":"flagflag",' + b'"read_flag":false,' * (n // 18) + b'"message":"f"}\n', "f"),
    "brackets": lambda n: (b'{"id":' * (n // 6) + b"\n", None),
    "text": lambda n: (record("aaaaaaaa", text="x" * n), "x" * n),
    "messages": lambda n: (record("aaaaaaaa", read=True) * (n // 100) + record("bbbbbbbb", text="last"), "last"),
}  # fmt: skip


@for_each("kind", LONG)
def test_long_lines_and_many_messages_are_received_in_linear_time(
    folder: MailFolder, kind: str
) -> None:
    numbers = count()

    def build(n: int) -> tuple[AgentMailbox, str | None]:
        box = AgentMailbox(folder, f"{kind}{next(numbers)}")
        line, text = LONG[kind](n)
        put(box, line)
        return box, text

    def receive(given: tuple[AgentMailbox, str | None]) -> None:
        box, text = given
        assert received(box) == text

    assert_linear(receive, build, size(400_000))


def test_many_messages_are_cleaned_in_linear_time(folder: MailFolder) -> None:
    numbers = count()

    def build(n: int) -> tuple[AgentMailbox, int]:
        box = AgentMailbox(folder, f"bob{next(numbers)}")
        put(box, *(record(f"{k:08}", read=True, created=OLD) for k in range(n)))
        with open(f"{box._beside}about", "wb") as file:
            file.writelines(b'{"id":"%08d","thread":"t"}\n' % k for k in range(n))
        return box, n

    def clean(given: tuple[AgentMailbox, int]) -> None:
        box, messages = given
        assert box.clean(CLEANED_BEFORE) == (messages, True, 0)
        assert box.about("00000001") == {}

    assert_linear(clean, build, size(10_000))


def test_the_repository_is_found_from_below_and_by_a_file_of_a_worktree(tmp_path: Path) -> None:
    below = tmp_path / "tree" / "a" / "b"
    below.mkdir(parents=True)
    found = find(str(below))
    assert found is None or not found.root.startswith(str(tmp_path))
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere")
    assert present(find(str(below))).root == str(tmp_path / "tree")


def test_the_ignore_file_has_one_name_a_line_and_nothing_else(folder: MailFolder) -> None:
    assert folder.ignored() == frozenset()
    with open(f"{folder.root}/.agentmailignore", "w") as file:
        file.write("  bob \n\n# x\r\n*\na\x0bb\n")
    assert folder.ignored() == {"bob", "# x", "*", "a\x0bb"}


def test_folder_of_another_place_is_another(tmp_path: Path) -> None:
    assert MailFolder(str(tmp_path)).names() == []
