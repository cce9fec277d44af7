"""The vault's folder: nothing leads out of it, nothing is written over, and nothing is half-written."""

import errno
import fcntl
import itertools
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from postroom.core.errors import Conflict, Corrupt, Denied, Invalid, NotFound, Unavailable
from postroom.vault import vault as module
from tests.narrow import present

Opener = Callable[..., module.Vault]
OTHER = module.File("x", 1, 1, 1)
CALLS: dict[str, Callable[[module.Vault, str], object]] = {
    "read": lambda vault, path: vault.read(path),
    "stat": lambda vault, path: vault.stat(path),
    "create": lambda vault, path: vault.create(path, b"new"),
    "replace": lambda vault, path: vault.replace(path, b"new", OTHER),
    "move from": lambda vault, path: vault.move(path, "free.md", OTHER),
    "move to": lambda vault, path: vault.move("own.md", path, vault.stat("own.md") or OTHER),
    "remove": lambda vault, path: vault.remove(path, OTHER),
    "append": lambda vault, path: vault.append(path, b"new"),
    "tail": lambda vault, path: vault.tail(path),
    "list": lambda vault, path: vault.list(path),
    "names": lambda vault, path: vault.names(path),
    "folder_mtime": lambda vault, path: vault.folder_mtime(path),
}
ON_FILES = sorted(set(CALLS) - {"list", "names", "folder_mtime"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A vault's folder with one note in it, and beside it a folder that is nobody's business."""
    for name in ("vault", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "vault" / "own.md").write_bytes(b"own")
    (tmp_path / "outside" / "secret.md").write_bytes(b"secret")
    return tmp_path / "vault"


@pytest.fixture
def Vault(root: Path) -> Iterator[Opener]:
    """The class at that folder, whose instances are closed after the test."""
    opened = []

    def make(*below: str, link: Callable[..., None] = os.link) -> module.Vault:
        opened.append(module.Vault(root, *below, link=link))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def outside(root: Path) -> Iterator[Path]:
    """The folder outside, which must be as it was after the test."""
    folder = root.parent / "outside"
    yield folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"secret.md": b"secret"}


def hidden(root: Path) -> list[Path]:
    return list(root.rglob(".*"))


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file can grow beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refusing(code: int) -> Callable[..., None]:
    def link(*_: str, **__: int) -> None:
        raise OSError(code, os.strerror(code))

    return link


def processes(root: Path, code: str, count: int) -> list[str]:
    """Run the same code in several processes at once; return what each of them said."""
    start = f"import sys; from pathlib import Path; from postroom.vault.vault import Vault; from postroom.core.errors import Conflict; vault = Vault(Path({str(root)!r})); me = sys.argv[1]\n"
    started = [
        subprocess.Popen([sys.executable, "-c", start + code, str(n)], stdout=subprocess.PIPE)
        for n in range(count)
    ]
    said = [process.communicate(timeout=100)[0].decode() for process in started]
    assert [process.returncode for process in started] == [0] * count
    return said


# Where it is


def test_a_missing_vault_is_named_with_the_setting_that_names_another(root: Path) -> None:
    for path in (root / "nowhere", root / "own.md"):
        with pytest.raises(Unavailable) as refused:
            module.Vault(path)
        assert str(path) in refused.value.message
        assert "VAULT_PATH" in refused.value.remedy
        assert "postroom init" in refused.value.remedy


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    (root.parent / "link").symlink_to(root)
    vault = module.Vault(root.parent / "link")
    assert vault.read("own.md")[0] == b"own"
    vault.close()
    vault.close()


def test_the_room_below_the_root_is_made_and_may_be_no_link(
    root: Path, Vault: Opener, outside: Path
) -> None:
    vault = Vault("Area", "Postroom")
    assert vault.root == root / "Area" / "Postroom"
    vault.create("note.md", b"x")
    assert (root / "Area" / "Postroom" / "note.md").read_bytes() == b"x"
    (root / "Elsewhere").symlink_to(outside)
    for below in (
        ["Elsewhere"],
        ["Elsewhere", "New"],
        [".."],
        ["a/../.."],
        [".hidden"],
        ["own.md"],
    ):
        with pytest.raises(Denied):
            Vault(*below)


# Where paths may lead


@pytest.mark.parametrize("call", sorted(CALLS))
@pytest.mark.parametrize(
    "path",
    [
        "..",
        ".",
        "../outside/secret.md",
        "a/../own.md",
        "./own.md",
        "/own.md",
        "//own.md",
        "a//b.md",
        "own.md/",
        "a/",
    ]
    + [
        "a\\b.md",
        "..\\x",
        "a\0.md",
        ".obsidian/x.md",
        "a/.x.md",
        ".x",
        "a\nb.md",
        "a\x1b.md",
        "\ud800.md",
    ],
)
def test_a_path_that_could_lead_out_is_denied(
    Vault: Opener, root: Path, outside: Path, call: str, path: str
) -> None:
    with pytest.raises(Denied) as refused:
        CALLS[call](Vault(), path)
    assert repr(path) in refused.value.message
    assert refused.value.remedy
    assert sorted(each.name for each in root.iterdir()) == ["own.md"]


@pytest.mark.parametrize("call", ON_FILES)
def test_no_path_is_empty(Vault: Opener, call: str) -> None:
    with pytest.raises(Denied):
        CALLS[call](Vault(), "")


@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_folder_that_is_a_link_is_denied(
    Vault: Opener, root: Path, outside: Path, call: str
) -> None:
    (root / "Link").symlink_to(outside)
    path = "Link" if call in {"list", "names", "folder_mtime"} else "Link/secret.md"
    with pytest.raises(Denied, match=f"{path!r}.* link") as refused:
        CALLS[call](Vault(), path)
    assert refused.value.remedy


@pytest.mark.parametrize("call", sorted(set(ON_FILES) - {"stat"}))
@pytest.mark.parametrize("target", ["secret.md", "missing.md"])
def test_a_file_that_is_a_link_is_neither_read_nor_written(
    Vault: Opener, root: Path, outside: Path, call: str, target: str
) -> None:
    (root / "Link.md").symlink_to(outside / target)
    with pytest.raises((Denied, Conflict)):
        CALLS[call](Vault(), "Link.md")
    assert (root / "Link.md").is_symlink()
    assert hidden(root) == []


@pytest.mark.parametrize("call", sorted(set(ON_FILES) - {"stat"}))
@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_what_is_no_file_is_refused_and_holds_nobody_up(
    Vault: Opener, root: Path, call: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as bound:
        if kind == "pipe":
            os.mkfifo("odd.md")
        elif kind == "folder":
            os.mkdir("odd.md")
        else:
            bound.bind("odd.md")
        with pytest.raises((Denied, Conflict)):
            CALLS[call](Vault(), "odd.md")
    assert not stat.S_ISREG(os.stat("odd.md").st_mode)
    assert hidden(root) == []


def test_what_stands_at_a_path_is_seen_whatever_it_is(
    Vault: Opener, root: Path, outside: Path
) -> None:
    (root / "Link.md").symlink_to(outside / "missing.md")
    (root / "Folder").mkdir()
    vault = Vault()
    assert present(vault.stat("Link.md")).inode == (root / "Link.md").lstat().st_ino
    assert present(vault.stat("Folder")).name == "Folder"
    assert vault.stat("missing.md") is None
    assert vault.stat("missing/missing.md") is None


def test_a_folder_swapped_for_a_link_while_a_note_is_written_leads_nowhere(
    Vault: Opener, root: Path, outside: Path
) -> None:
    def swap(*names: str, **folders: Any) -> None:
        os.rename(root / "Plans", root / "Was")
        os.symlink(outside, root / "Plans")
        os.link(*names, **folders)

    (root / "Plans").mkdir()
    Vault(link=swap).create("Plans/note.md", b"x")
    assert (root / "Was" / "note.md").read_bytes() == b"x"
    assert hidden(root) == []
    with pytest.raises(Denied):
        Vault().create("Plans/other.md", b"x")


def test_a_folder_that_is_swapped_all_the_time_never_leads_out(
    Vault: Opener, root: Path, outside: Path
) -> None:
    done = threading.Event()

    def swap() -> None:
        for number in itertools.count():
            if done.is_set():
                return
            with suppress(OSError):
                os.rename(root / "Plans", root / f"Was {number}")
            with suppress(OSError):
                os.symlink(outside, root / "Plans")
            with suppress(OSError):
                os.unlink(root / "Plans")

    swapper = threading.Thread(target=swap)
    swapper.start()
    vault = Vault()
    try:
        for number in range(150):
            with suppress(Denied, NotFound, Conflict):
                file = vault.create(f"Plans/Deep/{number}.md", b"x")
                vault.move(f"Plans/Deep/{number}.md", f"Plans/{number}.md", file)
            with suppress(Denied, NotFound):
                vault.read("Plans/secret.md")
                raise AssertionError("it led out")
            with suppress(Denied):
                assert [file for file in vault.list("Plans") if file.name == "secret.md"] == []
    finally:
        done.set()
        swapper.join()


# What is there


def test_a_list_shows_notes_alone(Vault: Opener, root: Path, outside: Path) -> None:
    folder = root / "Plans"
    (folder / "folder.md").mkdir(parents=True)
    for name in ("b.md", "a.md", "ü 😀.md", "log.json", ".hidden.md", ".postroom-0.tmp", "a\\b.md"):
        (folder / name).write_bytes(b"12345")
    (folder / "link.md").symlink_to(outside / "secret.md")
    os.mkfifo(folder / "pipe.md")
    vault = Vault()
    assert [file.name for file in vault.list("Plans")] == ["a.md", "b.md", "ü 😀.md"]
    assert vault.names("Plans") == ["a.md", "b.md", "log.json", "ü 😀.md"]
    assert vault.list("Plans")[0] == vault.stat("Plans/a.md") == vault.read("Plans/a.md")[1]
    assert vault.list("Plans")[0].size == 5
    assert [file.name for file in vault.list("")] == ["own.md"]


def test_a_missing_folder_is_empty(Vault: Opener) -> None:
    vault = Vault()
    assert (vault.list("No"), vault.names("No/Deep"), vault.folder_mtime("No")) == ([], [], 0)
    assert vault.tail("No/log") == b""
    with pytest.raises(NotFound, match=r"No/note\.md"):
        vault.read("No/note.md")
    with pytest.raises(NotFound):
        vault.read("missing.md")


def test_a_folder_that_changed_says_so(Vault: Opener, root: Path) -> None:
    vault = Vault()
    vault.create("Plans/a.md", b"x")
    os.utime(root / "Plans", ns=(1, 1))
    assert vault.folder_mtime("Plans") == 1
    vault.create("Plans/b.md", b"x")
    assert vault.folder_mtime("Plans") > 1
    assert vault.folder_mtime("") > 1


def test_a_file_of_thirty_megabytes_is_read_and_a_larger_one_is_not(
    Vault: Opener, root: Path
) -> None:
    os.truncate(root / "own.md", module.MAX_SIZE)
    assert len(Vault().read("own.md")[0]) == 30_000_000
    os.truncate(root / "own.md", module.MAX_SIZE + 1)
    with pytest.raises(Corrupt, match="larger than 30 MB"):
        Vault().read("own.md")


# What is written


def test_a_new_note_is_whole_and_its_folders_are_made(Vault: Opener, root: Path) -> None:
    vault = Vault()
    file = vault.create("Plans/Deep/ü.md", b"text", mode=0o640)
    path = root / "Plans" / "Deep" / "ü.md"
    assert path.read_bytes() == b"text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_nlink == 1
    assert vault.read("Plans/Deep/ü.md") == (b"text", file)
    assert hidden(root) == []


@pytest.mark.parametrize("link", [os.link, refusing(errno.EPERM), refusing(errno.ENOTSUP)])
def test_nothing_is_written_over_with_hard_links_or_without(
    Vault: Opener, root: Path, link: Callable[..., None]
) -> None:
    vault = Vault(link=link)
    file = vault.create("new.md", b"new")
    assert vault.read("new.md") == (b"new", file)
    own = vault.stat("own.md")
    calls: tuple[Callable[[], object], ...] = (
        lambda: vault.create("own.md", b"other"),
        lambda: vault.move("new.md", "own.md", file),
        lambda: vault.move("new.md", "own.md", file, b"other"),
        lambda: vault.move("new.md", "new.md", file),
    )
    for call in calls:
        with pytest.raises(Conflict):
            call()
    assert vault.read("own.md") == (b"own", own)
    assert vault.read("new.md") == (b"new", file)
    moved = vault.move("new.md", "Done/new.md", file)
    assert vault.read("Done/new.md") == (b"new", moved)
    assert moved == file
    again = vault.move("Done/new.md", "Failed/x.md", moved, b"with a reason")
    assert vault.read("Failed/x.md") == (b"with a reason", again)
    assert sorted(path.name for path in root.rglob("*.*")) == ["own.md", "x.md"]


def test_a_replaced_note_keeps_its_permissions(Vault: Opener, root: Path) -> None:
    vault = Vault()
    (root / "own.md").chmod(0o604)
    file = vault.replace("own.md", b"folder_mtime", present(vault.stat("own.md")))
    assert vault.read("own.md") == (b"folder_mtime", file)
    assert stat.S_IMODE((root / "own.md").stat().st_mode) == 0o604
    moved = vault.move("own.md", "Done/own.md", file, b"moved")
    assert stat.S_IMODE((root / "Done" / "own.md").stat().st_mode) == 0o604
    vault.remove("Done/own.md", moved)
    assert vault.list("Done") == []
    assert hidden(root) == []


def rewritten(path: Path) -> None:
    path.write_bytes(b"new")  # of the same length
    os.utime(path, ns=(5, 5))


def swapped(path: Path) -> None:
    was = path.stat()
    path.rename(path.parent / "aside")
    path.write_bytes(b"new")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [rewritten, swapped, lambda path: path.write_bytes(b"longer"), lambda path: path.unlink()],
)
def test_a_note_that_somebody_else_changed_is_left_to_them(
    Vault: Opener, root: Path, change: Callable[[Path], object]
) -> None:
    vault = Vault()
    was = present(vault.stat("own.md"))
    change(root / "own.md")
    left = (root / "own.md").read_bytes() if (root / "own.md").exists() else None
    calls: tuple[Callable[[], object], ...] = (
        lambda: vault.replace("own.md", b"ours", was),
        lambda: vault.move("own.md", "Done/own.md", was),
        lambda: vault.move("own.md", "Done/own.md", was, b"ours"),
        lambda: vault.remove("own.md", was),
    )
    for call in calls:
        with pytest.raises(Conflict, match=r"'own\.md' was changed or moved") as refused:
            call()
        assert "Read it again" in refused.value.remedy
    assert ((root / "own.md").read_bytes() if (root / "own.md").exists() else None) == left
    assert vault.list("Done") == []
    assert hidden(root) == []


@pytest.mark.parametrize("data", [None, b"ours"])
def test_a_note_that_is_changed_in_the_middle_of_a_move_stays_where_it_is(
    Vault: Opener, root: Path, data: bytes | None
) -> None:
    def link(*names: str, **folders: Any) -> None:
        os.link(*names, **folders)
        swapped(root / "own.md")

    vault = Vault(link=link)
    with pytest.raises(Conflict):
        vault.move("own.md", "Done/own.md", present(vault.stat("own.md")), data)
    assert (root / "own.md").read_bytes() == b"new"
    assert vault.list("Done") == []


@pytest.mark.parametrize("call", ["replace", "move"])
def test_a_note_that_is_changed_while_ours_is_written_is_left_to_its_writer(
    Vault: Opener, root: Path, call: str
) -> None:
    vault = Vault()
    was = present(vault.stat("own.md"))
    calls = {
        "replace": lambda: vault.replace("own.md", b"ours!", was),
        "move": lambda: vault.move("own.md", "Done/own.md", was, b"ours!"),
    }
    said: list[object] = []

    def write() -> None:
        try:
            said.append(calls[call]())
        except Conflict as refused:
            said.append(refused)

    folder = os.open(root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # as another process of ours would hold it
    writer = threading.Thread(target=write)
    writer.start()
    end = time.monotonic() + 60
    while not [path for path in hidden(root) if path.stat().st_size == 5]:
        assert time.monotonic() < end
    rewritten(root / "own.md")
    os.close(folder)
    writer.join()
    assert isinstance(said[0], Conflict)
    assert (root / "own.md").read_bytes() == b"new"
    assert vault.list("Done") == []
    assert hidden(root) == []


def test_two_versions_of_the_same_length_written_at_once_are_told_apart(
    Vault: Opener,
) -> None:
    vault = Vault()
    versions = [present(vault.stat("own.md"))]
    for number in range(20):
        versions.append(vault.replace("own.md", b"%03d" % number, versions[-1]))
    assert len({version.mtime_ns for version in versions}) == 21


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.ENOSPC, Unavailable, "The disk is full"),
        (errno.EDQUOT, Unavailable, "The disk is full"),
        (errno.EROFS, Unavailable, "No right"),
        (errno.EIO, Unavailable, "cannot be read or written"),
    ],
)
def test_what_the_system_refuses_is_said_in_our_words_and_leaves_no_trace(
    Vault: Opener, root: Path, code: int, kind: type[Unavailable], words: str
) -> None:
    vault = Vault(link=refusing(code))
    was = present(vault.stat("own.md"))
    calls: tuple[Callable[[], object], ...] = (
        lambda: vault.create("new.md", b"x"),
        lambda: vault.move("own.md", "new.md", was),
        lambda: vault.move("own.md", "new.md", was, b"x"),
    )
    for call in calls:
        with pytest.raises(kind, match=words) as refused:
            call()
        assert "new.md" in refused.value.message
        assert refused.value.remedy
    assert vault.names("") == ["own.md"]
    assert hidden(root) == []


def test_a_name_that_is_too_long_is_refused(Vault: Opener) -> None:
    with pytest.raises(Invalid, match="too long"):
        Vault().create(f"{'x' * 300}.md", b"x")


def test_a_disk_without_room_leaves_every_file_as_it_was(Vault: Opener, root: Path) -> None:
    vault = Vault()
    was = present(vault.stat("own.md"))
    with disk_of(1000):
        calls: tuple[Callable[[], object], ...] = (
            lambda: vault.create("Plans/new.md", bytes(2000)),
            lambda: vault.replace("own.md", bytes(2000), was),
            lambda: vault.move("own.md", "Done/own.md", was, bytes(2000)),
        )
        for call in calls:
            with pytest.raises(Unavailable) as refused:
                call()
            assert refused.value.remedy
    assert vault.read("own.md") == (b"own", was)
    assert vault.list("Plans") == vault.list("Done") == []
    assert hidden(root) == []


# Logs


def test_lines_are_added_to_a_file_for_its_owner_alone(Vault: Opener, root: Path) -> None:
    vault = Vault()
    vault.append("Logs/actions/a.json", b"one\n")
    vault.append("Logs/actions/a.json", b"two\n")
    assert (root / "Logs/actions/a.json").read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE((root / "Logs/actions/a.json").stat().st_mode) == 0o600
    assert vault.tail("Logs/actions/a.json") == b"one\ntwo\n"
    assert vault.tail("Logs/actions/a.json", 5) == b"\ntwo\n"
    assert vault.names("Logs/actions") == ["a.json"]


def test_a_line_that_finds_no_room_is_cut_off_again(Vault: Opener) -> None:
    vault = Vault()
    vault.append("log", b"a" * 900)
    with disk_of(1000), pytest.raises(Unavailable):
        vault.append("log", b"b" * 900)
    vault.append("log", b"c")
    assert vault.tail("log") == b"a" * 900 + b"c"


# Several at once


def test_of_several_processes_one_makes_the_note_and_the_others_are_told(root: Path) -> None:
    code = """
for number in range(20):
    try:
        vault.create(f"Plans/{number}.md", me.encode() * 1000)
        print(number)
    except Conflict:
        pass
"""
    said = processes(root, code, 4)
    assert sorted("".join(said).split(), key=int) == [str(number) for number in range(20)]
    for number in range(20):
        raw = (root / f"Plans/{number}.md").read_bytes()
        assert len(raw) == 1000
        assert str(number) in said[int(raw[:1])].split()
    assert hidden(root) == []


def test_several_processes_lose_no_change_of_one_note(root: Path, Vault: Opener) -> None:
    (root / "own.md").write_bytes(b"0000")
    code = """
for _ in range(25):
    while True:
        raw, was = vault.read("own.md")
        try:
            vault.replace("own.md", b"%04d" % (int(raw) + 1), was)
            break
        except Conflict:
            pass
    vault.append("Logs/log", me.encode() * 99 + b"\\n")
"""
    processes(root, code, 4)
    vault = Vault()
    assert vault.read("own.md")[0] == b"0100"
    lines = vault.tail("Logs/log").splitlines()
    assert sorted(lines) == sorted(str(n).encode() * 99 for n in range(4) for _ in range(25))


def test_a_note_goes_one_way_when_several_processes_move_it(root: Path) -> None:
    for number in range(20):
        (root / f"{number}.md").write_bytes(b"%d" % number)
    code = """
for file in vault.list(""):
    if file.name != "own.md":
        try:
            vault.move(file.name, f"{me}/{file.name}", file, b"moved" if int(me) % 2 else None)
            print(file.name)
        except Conflict:
            pass
"""
    said = processes(root, code, 4)
    assert sorted("".join(said).split()) == sorted(f"{number}.md" for number in range(20))
    found = sorted(str(path.relative_to(root)) for path in root.glob("[0-3]/*.md"))
    assert found == sorted(
        f"{who}/{name}" for who, names in enumerate(said) for name in names.split()
    )


def test_no_descriptor_is_left_open(Vault: Opener, root: Path, outside: Path) -> None:
    vault = Vault()
    (root / "Link").symlink_to(outside)
    before = len(os.listdir("/dev/fd"))
    for call in CALLS.values():
        for path in ("own.md", "own.md/x", "missing.md", "Link/x.md", "../x", "a/b/.c", "odd"):
            with suppress(Denied, Conflict, NotFound):
                call(vault, path)
    assert len(os.listdir("/dev/fd")) == before


# Files that come in pieces


@pytest.mark.parametrize("link", [os.link, refusing(errno.EPERM)])
def test_a_file_in_pieces_takes_the_first_name_that_is_free_or_holds_the_same(
    Vault: Opener, root: Path, link: Callable[..., None]
) -> None:
    vault = Vault(link=link)
    names = ["a.txt", "b.txt", "c.txt"]
    assert vault.deposit("Files", names, [b"on", b"e"])[0] == "a.txt"
    assert vault.deposit("Files", names, iter([b"one"]))[0] == "a.txt"
    name, file = vault.deposit("Files", names, [b"two"])
    assert (name, file.size) == ("b.txt", 3)
    (root / "Files" / "c.txt").symlink_to(root / "own.md")
    with pytest.raises(Conflict, match="too many"):
        vault.deposit("Files", names, [b"own"])
    assert (root / "own.md").read_bytes() == b"own"
    assert sorted(path.name for path in (root / "Files").iterdir()) == names
    assert hidden(root) == []


def test_a_file_whose_pieces_end_in_an_error_leaves_nothing(Vault: Opener, root: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise Unavailable("the line went dead")

    with pytest.raises(Unavailable, match="dead"):
        Vault().deposit("Files", ["a.txt"], pieces())
    assert list((root / "Files").iterdir()) == []


def test_a_file_in_pieces_goes_nowhere_else(Vault: Opener, root: Path, outside: Path) -> None:
    (root / "Link").symlink_to(outside)
    for folder, name in [("Link", "a.txt"), ("..", "a.txt"), ("Files", "../a.txt"), ("Files", "")]:
        with pytest.raises(Denied):
            Vault().deposit(folder, [name], [b"x"])
    assert not (outside / "a.txt").exists()


def test_the_inode_of_a_file_is_told_before_the_file_has_its_name(
    Vault: Opener, root: Path
) -> None:
    vault, told = Vault(), []

    def ready(inode: int) -> None:
        told.append((inode, sorted(path.name for path in root.glob("*.md"))))

    made = vault.create("a.md", b"a", ready=ready)
    new = vault.replace("a.md", b"b", made, ready)
    moved = vault.move("a.md", "b.md", new, ready=ready)
    last = vault.move("b.md", "c.md", moved, b"c", ready)
    inodes = [file.inode for file in (made, new, moved, last)]
    assert told == list(
        zip(
            inodes,
            (["own.md"], ["a.md", "own.md"], ["a.md", "own.md"], ["b.md", "own.md"]),
            strict=True,
        )
    )
    assert (root / "c.md").stat().st_ino == last.inode
