"""A mailbox on the disk: what is taken and when it is read, and what a crash leaves."""

import json
import os
import zlib
from contextlib import suppress

import pytest

from postroom.agents.files import Locked, locked
from postroom.agents.folder import Folder, find
from postroom.agents.mailbox import Mailbox
from postroom.agents.record import Message, read_message, write_message
from postroom.core.errors import Denied, Invalid, NotFound, PostroomError, Unavailable

OLD = "2026-01-01T00:00:00Z"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / ".git").mkdir()
    return find(str(tmp_path))


@pytest.fixture
def box(folder):
    return Mailbox(folder, "bob")


def data(box):
    with open(box.path, "rb") as file:
        return file.read()


def put(box, *lines):
    box._folder.make()
    with open(box.path, "wb") as file:
        file.write(b"".join(lines))


def record(id, *, read=False, text="hello", created="2026-11-15T06:17:49Z"):
    return write_message(Message(id, "alice", "bob", text, read, created))


def received(box):
    taken = box.take()
    if taken is None:
        return None
    taken.confirm()
    return taken.message.text


def test_messages_come_in_the_order_in_which_they_were_sent_and_once(box):
    for text in ("one", "two", "three"):
        box.append("alice", text)
    assert [received(box) for _ in range(4)] == ["one", "two", "three", None]


def test_files_and_folders_are_the_owner_s(box, folder):
    box.append("alice", "x")
    received(box)
    assert os.stat(box.path).st_mode & 0o777 == 0o600
    assert os.stat(folder.path).st_mode & 0o777 == 0o750 & ~_umask()
    assert os.stat(folder.boxes).st_mode & 0o777 == 0o750 & ~_umask()
    assert all(os.stat(f"{folder.ours}/{f}").st_mode & 0o77 == 0 for f in os.listdir(folder.ours))


def _umask():
    mask = os.umask(0o77)
    os.umask(mask)
    return mask


def test_a_message_is_marked_in_place_and_every_other_byte_stays(box):
    box.append("alice", "one")
    box.append("alice", "two")
    before = data(box)
    inode = os.stat(box.path).st_ino
    assert received(box) == "one"
    assert data(box) == before.replace(b'"read_flag":false', b'"read_flag":true ', 1)
    assert os.stat(box.path).st_ino == inode


def test_what_was_not_handed_over_is_there_for_the_next(box):
    box.append("alice", "one")
    taken = box.take()
    with pytest.raises(Unavailable, match="locked"):
        box.take(patience=0.05)
    taken.release()
    assert received(box) == "one"
    taken.confirm()  # too late, and nothing more happens
    assert received(box) is None


def test_nothing_is_written_of_what_cannot_be_marked(box, tmp_path):
    box.append("alice", "one")
    taken = box.take()
    with open(tmp_path / "out", "wb") as out, locked(box.path):
        assert not taken.hand_at_once(out.fileno(), b"one")
        with pytest.raises(Locked):
            taken.hand(out.fileno(), b"x" * 2_000, patience=0.05)
    assert (tmp_path / "out").read_bytes() == b""
    assert received(box) == "one"


def test_what_was_confirmed_for_nothing_can_be_taken_back(box):
    box.append("alice", "one")
    box.append("alice", "two")
    taken = box.take()
    taken.confirm()
    taken.take_back()
    assert [received(box) for _ in range(3)] == ["one", "two", None]
    taken.take_back()  # somebody has read it since, and it is as if it had been us
    assert received(box) == "one"


def test_what_is_taken_back_in_one_tick_of_the_file_system_s_clock_is_found(box):
    box.append("alice", "first")
    taken = box.take()
    taken.confirm()
    marked = os.stat(box.path).st_mtime_ns
    taken.take_back()
    os.utime(box.path, ns=(marked, marked))  # as where stamps are milliseconds coarse
    assert received(box) == "first"


def test_a_sender_does_not_wait_for_who_is_receiving(box):
    box.append("alice", "one")
    taken = box.take()
    box.append("alice", "two")
    taken.confirm()
    assert received(box) == "two"


def test_a_message_that_is_not_written_with_its_line_is_not_written(box):
    def fails(_message):
        raise Unavailable("the ledger is full")

    box.append("alice", "one")
    before = data(box)
    with pytest.raises(Unavailable):
        box.append("alice", "two", then=fails)
    assert data(box) == before


def test_ids_are_of_eight_signs_and_none_is_drawn_twice(box):
    drawn = iter([bytes(24), bytes(24), bytes([1] * 24)])
    first = box.append("alice", "x", draw=lambda _: bytes(24))
    second = box.append("alice", "x", draw=lambda _: next(drawn))
    assert (first.id, second.id) == ("aaaaaaaa", "bbbbbbbb")
    again = Mailbox(box._folder, "bob")  # another process, which knows nothing of these
    more = iter([bytes([1] * 24), bytes([2] * 24)])
    third = again.append("alice", "x", draw=lambda _: next(more))
    assert third.id == "cccccccc"


def test_an_id_that_somebody_else_wrote_meanwhile_is_not_drawn(box):
    box.append("alice", "x", draw=lambda _: bytes(24))
    with open(box.path, "ab") as file:
        file.write(record("bbbbbbbb"))
    drawn = iter([bytes([1] * 24), bytes([2] * 24)])
    assert box.append("alice", "x", draw=lambda _: next(drawn)).id == "cccccccc"


def test_both_copies_of_one_id_are_delivered_once_each(box):
    put(box, record("samesame", text="one"), record("samesame", text="one"))
    assert [received(box) for _ in range(3)] == ["one", "one", None]


# Odd lines


ODD = [b"\n", b"   \n", b"{torn\n", b'{"id":7}\n', b'{"ID":"x","From":"a","message":"odd case","READ_FLAG":false}\n']  # fmt: skip


def test_odd_lines_are_passed_over_and_kept(box):
    put(box, *ODD, record("aaaaaaaa"), b"\n\n")
    assert [received(box) for _ in range(3)] == ["odd case", "hello", None]
    box.append("alice", "new")
    assert all(line in data(box) for line in ODD[:4])
    assert received(box) == "new"


def test_a_torn_last_line_is_set_aside_before_anything_is_appended(box, folder):
    torn = b'{"id":"zzzzzzzz","from":"al'
    put(box, record("aaaaaaaa"), torn)
    box.append("alice", "new")
    assert [read_message(line).text for line in data(box).splitlines()] == ["hello", "new"]
    with open(f"{folder.ours}/bob.torn", "rb") as file:
        assert file.read() == torn + b"\n"


def test_who_receives_sets_a_torn_line_aside_too(box):
    put(box, record("aaaaaaaa"), b'{"id')
    assert received(box) == "hello"
    assert all(read_message(line) for line in data(box).splitlines())


def test_a_last_line_that_lacks_its_end_alone_is_a_message(box, folder):
    put(box, record("aaaaaaaa"), record("bbbbbbbb", text="whole")[:-1])
    assert [received(box) for _ in range(3)] == ["hello", "whole", None]
    assert not os.path.exists(f"{folder.ours}/bob.torn")


def test_a_message_that_the_original_glued_to_a_torn_one_is_delivered(box):
    put(box, b'{"id":"zzzzzzzz","from":"al' + record("aaaaaaaa", text="glued"), record("bbbbbbbb"))
    assert [received(box) for _ in range(3)] == ["glued", "hello", None]


@pytest.mark.parametrize("line", [b'{"id":"a","from":"x","message":"m"}\n', b'{"id":"a","message":"m","read_flag":null}\n'])  # fmt: skip
def test_a_message_without_the_flag_is_delivered_once_and_its_neighbours_stay(box, line):
    put(box, record("aaaaaaaa", text="before"), line, record("bbbbbbbb", text="after"))
    assert [received(box) for _ in range(4)] == ["before", "m", "after", None]
    assert [read_message(one).read for one in data(box).splitlines()] == [True] * 3


# The cursor


def test_what_was_read_is_not_looked_at_again(box, folder):
    put(box, *(record(f"{n:08}", read=True) for n in range(50)))
    assert received(box) is None
    with open(f"{folder.ours}/bob.cursor") as file:
        assert int(file.read().split()[1]) == os.stat(box.path).st_size


@pytest.mark.parametrize("how", ["rewritten", "shorter", "another", "unread", "lost", "garbage"])
def test_a_file_that_was_changed_under_the_cursor_is_read_anew(box, folder, how):
    put(box, *(record(f"{n:08}", read=n < 3) for n in range(4)))
    assert received(box) == "hello"
    assert received(box) is None
    cursor = f"{folder.ours}/bob.cursor"
    match how:
        case "rewritten":  # as the original does when it marks a message
            put(box, *(write_message(read_message(line)) for line in data(box).splitlines()), record("bbbbbbbb", text="new"))  # fmt: skip
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


def test_a_message_is_marked_though_the_original_rewrote_the_file_meanwhile(box):
    put(
        box,
        record("aaaaaaaa", read=True).replace(b"true", b"true "),
        record("bbbbbbbb", text="two"),
    )
    taken = box.take()
    put(box, *(write_message(read_message(line)) for line in data(box).splitlines()))
    taken.confirm()
    assert [read_message(line).read for line in data(box).splitlines()] == [True, True]


def test_a_mailbox_that_is_gone_meanwhile_is_no_error(box):
    box.append("alice", "x")
    taken = box.take()
    os.unlink(box.path)
    taken.confirm()
    assert box.take() is None


def test_a_file_that_was_unlinked_while_we_waited_for_it_is_opened_anew(box, folder):
    box.append("alice", "old")
    with locked(box.path):
        os.rename(box.path, f"{box.path}.gone")
        box.append("alice", "new")  # would be lost in the file that nobody finds
    assert read_message(data(box)).text == "new"


# Cleaning, and crashes in it


def mixed(box):
    put(
        box,
        record("oldread1", read=True, created=OLD),
        b"{odd\n",
        record("unread01", created=OLD, text="unread"),
        record("untimed1", read=True, created="0001-01-01T00:00:00Z"),
        record("newread1", read=True),
    )


def test_cleaning_removes_what_was_read_long_ago_and_nothing_else(box):
    mixed(box)
    assert box.clean(1_790_000_000.0, rehearse=True) == (2, False)
    assert b"oldread1" in data(box)
    inode = os.stat(box.path).st_ino
    assert box.clean(1_790_000_000.0) == (2, False)
    assert data(box) == b"{odd\n" + record("unread01", created=OLD, text="unread") + record("newread1", read=True)  # fmt: skip
    assert os.stat(box.path).st_ino == inode
    assert received(box) == "unread"


def test_cleaning_sets_aside_what_was_torn_before_a_message(box, folder):
    torn = b'{"id":"zzzzzzzz","fr'
    put(
        box,
        torn + record("oldread1", read=True, created=OLD),
        record("unread01", created=OLD, text="one"),
        torn + record("unread02", created=OLD, text="two"),
    )
    assert box.clean(1_790_000_000.0) == (1, False)
    assert [read_message(line).text for line in data(box).splitlines()] == ["one", "two"]
    with open(f"{folder.ours}/bob.torn", "rb") as file:
        assert file.read() == (torn + b"\n") * 2


def test_a_mailbox_of_which_all_was_read_is_emptied_and_not_unlinked(box):
    put(box, record("oldread1", read=True, created=OLD), b"\n")
    inode = os.stat(box.path).st_ino
    assert box.clean(1_790_000_000.0) == (1, True)
    assert data(box) == b""
    assert os.stat(box.path).st_ino == inode
    assert box.clean(1_790_000_000.0) == (0, False)


def test_what_is_kept_beside_a_message_goes_with_it(box):
    first = box.append("alice", "x", about=lambda _: {"thread": "t1"})
    second = box.append("alice", "y", about=lambda _: {"thread": "t2"})
    assert box.about(first.id) == {"id": first.id, "thread": "t1"}
    assert received(box) == "x"
    box.clean(4e9)
    assert box.about(first.id) == {}
    assert box.about(second.id) == {"id": second.id, "thread": "t2"}
    assert box.about("nothing1") == {}


def broken_off(box, written):
    """Leave what cleaning leaves when it is killed after so many bytes."""
    mixed(box)
    before = data(box)
    box.clean(1_790_000_000.0)
    after = data(box)
    put(box, after.ljust(len(before), b"\n")[:written] + before[written:])
    head = [os.stat(box.path).st_ino, len(before), zlib.crc32(before + after)]
    with open(f"{box._folder.ours}/bob.rewrite", "wb") as file:
        file.write(json.dumps(head).encode() + b"\n" + before + after)


@pytest.mark.parametrize("written", range(0, 560, 13))
@pytest.mark.parametrize("added", [b"", record("appended", text="later")])
def test_a_rewrite_that_is_broken_off_anywhere_is_finished_by_the_next(box, written, added):
    broken_off(box, written)
    with open(box.path, "ab") as file:  # somebody who knows nothing of it goes on
        file.write(added)
    expected = ["unread", "later"] if added else ["unread"]
    assert [received(box) for _ in range(len(expected) + 1)] == [*expected, None]
    assert [message.id for message in box.messages()] == ["unread01", "newread1", *(["appended"] if added else [])]  # fmt: skip


def test_a_rewrite_that_somebody_else_overtook_is_dropped(box):
    broken_off(box, 0)
    put(box, record("theirs01", text="theirs"), record("unread01", created=OLD, text="unread"))
    assert [received(box) for _ in range(3)] == ["theirs", "unread", None]


def test_a_copy_that_nobody_of_ours_wrote_is_dropped(box, folder):
    box.append("alice", "x")
    for left in (b"", b"nonsense", b"[1, 2, 3]\nabc", json.dumps([os.stat(box.path).st_ino, 3, 9]).encode() + b"\nabc"):  # fmt: skip
        with open(f"{folder.ours}/bob.rewrite", "wb") as file:
            file.write(left)
        assert len(box.messages()) == 1
        assert not os.path.exists(f"{folder.ours}/bob.rewrite")


# Places


@pytest.mark.parametrize("name", ["..", "..x", "../bob", "/etc/passwd", "a/../../b", "x\0y"])
def test_a_name_that_leads_out_is_refused(folder, name):
    with pytest.raises(Invalid, match="directory traversal"):
        Mailbox(folder, name)


def test_a_name_with_a_slash_has_no_mailbox(folder):
    with pytest.raises(NotFound, match="no such file or directory"):
        Mailbox(folder, "a/b")


ALL = ["mailboxes/bob.jsonl", *(f"postroom/bob.{ending}" for ending in ("about", "cursor", "take", "rewrite", "rewrite.new", "told", "torn"))]  # fmt: skip


def everything_done(box):
    """Do with a mailbox all that can be done, whatever becomes of it."""
    with suppress(FileNotFoundError), open(box.path, "ab") as file:
        file.write(b'{"id":"flagless","message":"x"}\n{"torn')
    for deed in (
        lambda: box.append("alice", "x", about=lambda _: {"thread": "t"}),
        lambda: received(box),
        lambda: received(box),
        box.unread,
        box.tell,
        lambda: box.clean(4e9),
        lambda: box.about("aaaaaaaa"),
    ):
        with suppress(OSError, PostroomError):
            deed()


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize("how", ["symlink", "link"])
def test_no_file_leads_out(box, folder, tmp_path, path, how):
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
def test_no_folder_leads_out(box, folder, tmp_path, name):
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
def test_a_pipe_or_a_folder_in_the_place_of_a_file_hangs_nobody(box, folder, path):
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


@pytest.mark.parametrize("left", [b"5\n", b'[1,"a",2]\n', b"[" * 100_000, b'{"id":"aaaaaaaa","thread":' + b"[" * 100_000 + b"\n", b"\xff" * 300, b"-5 -5 0 0 0 0"])  # fmt: skip
@pytest.mark.parametrize("path", [one for one in ALL[1:] if "told" not in one])
def test_nonsense_in_a_file_of_ours_stops_nobody(box, folder, path, left):
    box.append("alice", "x", draw=lambda _: bytes(24), about=lambda _: {"thread": "t"})
    with open(f"{folder.path}/{path}", "wb") as file:
        file.write(left)
    assert isinstance(box.about("aaaaaaaa"), dict)
    assert received(box) == "x"
    box.append("alice", "y")
    assert received(box) == "y"


def test_long_lines_and_many_messages_take_time_in_proportion(box):
    """Not by the clock: in a minute, which a square would miss by far."""
    flags = b'{"id":"flagflag",' + b'"read_flag":false,' * 15_000 + b'"message":"f"}\n'
    put(box, flags)
    assert received(box) == "f"
    put(box, b'{"id":' * 170_000 + b"\n", record("aaaaaaaa", text="x" * 40_000_000))
    assert received(box) == "x" * 40_000_000
    put(box, *(record(f"{n:08}", read=True, created=OLD) for n in range(30_000)))
    with open(f"{box._beside}about", "wb") as file:
        file.write(b"".join(b'{"id":"%08d","thread":"t"}\n' % n for n in range(30_000)))
    assert box.clean(4e9) == (30_000, True)
    assert box.about("00000001") == {}


def test_the_repository_is_found_from_below_and_by_a_file_of_a_worktree(tmp_path):
    below = tmp_path / "tree" / "a" / "b"
    below.mkdir(parents=True)
    assert find(str(below)) is None or not find(str(below)).root.startswith(str(tmp_path))
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere")
    assert find(str(below)).root == str(tmp_path / "tree")


def test_the_ignore_file_has_one_name_a_line_and_nothing_else(folder):
    assert folder.ignored() == frozenset()
    with open(f"{folder.root}/.agentmailignore", "w") as file:
        file.write("  bob \n\n# x\r\n*\na\x0bb\n")
    assert folder.ignored() == {"bob", "# x", "*", "a\x0bb"}


def test_folder_of_another_place_is_another(tmp_path):
    assert Folder(str(tmp_path)).names() == []
