"""Mail in files: mbox, Maildir and .eml, told apart by what they are, read one mail at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from postroom.core.errors import Invalid, NotFound, Unavailable
from postroom.core.message import (
    CATEGORIES,
    DRAFT,
    IMPORTANT,
    INBOX,
    SENT,
    SPAM,
    STARRED,
    TRASH,
    UNREAD,
)
from postroom.core.text import line
from postroom.mail import headers
from postroom.mail.mailbox import Arrival, Keeper

MAX_MAIL = 150_000_000  # bytes; Gmail takes 25 MB, the largest servers a hundred or so
MAX_LINE = 1_000_000
BATCH_MAILS = 2_000  # kept in one transaction
BATCH_BYTES = 16_000_000

_FROM_LINE = re.compile(rb"From \S.*\d{4}|From \S+\r?\n|From .*@.*\r?\n")
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
_FLAGS = {"F": STARRED, "T": TRASH, "D": DRAFT}
_FOLDERS = {
    "inbox": INBOX,
    "sent": SENT,
    "sent mail": SENT,
    "sent items": SENT,
    "drafts": DRAFT,
    "draft": DRAFT,
    "trash": TRASH,
    "deleted items": TRASH,
    "junk": SPAM,
    "spam": SPAM,
    "archive": "",
    "all mail": "",
    "unread": UNREAD,
    "starred": STARRED,
    "important": IMPORTANT,
    "opened": "",
    "archived": "",
} | {f"category {name}": f"CATEGORY_{name.upper()}" for name in CATEGORIES}


class Source(NamedTuple):
    """A file or folder of mail; `size` counts the bytes or files that progress is shown in."""

    path: Path
    kind: str
    size: int


class Read(NamedTuple):
    """One step through a source: a mail, or why there is none, and how much of `size` it took."""

    arrival: Arrival | None
    step: int
    refused: str = ""


def sources(path: Path) -> list[Source]:
    """Return the mail that is at this path: one source, or those of a folder's tree."""
    if not path.exists():
        raise NotFound(
            f"{path} does not exist",
            remedy="Give an mbox file, a Maildir, an .eml file or a folder of them.",
        )
    try:
        found = [_file(path)] if path.is_file() else list(_tree(path))
    except OSError as why:
        raise Unavailable(
            f"{why.filename or path} cannot be read: {why.strerror}",
            remedy="Check its permissions.",
        ) from why
    if not found:
        raise Invalid(
            f"There is no mail in {path}",
            remedy="Give an mbox file, a Maildir, an .eml file or a folder of them.",
        )
    return found


def _file(path: Path) -> Source:
    size = path.stat().st_size
    with path.open("rb") as file:
        kind = "mbox" if _FROM_LINE.match(file.readline(1000)) else "eml"
    return Source(path, kind, size if kind == "mbox" else 1)


def _tree(top: Path) -> Iterator[Source]:
    for folder, folders, names in os.walk(top):
        folders.sort()
        if "cur" in folders and "new" in folders:
            here = Path(folder)
            for part in ("cur", "new", "tmp"):
                if part in folders:
                    folders.remove(part)
            yield Source(
                here,
                "maildir",
                sum(1 for part in ("cur", "new") for _ in _maildir_files(here / part)),
            )
            continue
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith((".eml", ".mbox", ".mbx")) and path.is_file():
                yield _file(path)


def read(source: Source) -> Iterator[Read]:
    """Yield the mails of a source; one that cannot be read is named and passed over."""
    if source.kind == "mbox":
        yield from _read_mbox(source.path)
    elif source.kind == "maildir":
        yield from _read_maildir(source.path)
    else:
        yield _read_file(source.path, frozenset({INBOX, UNREAD}))


def _read_file(path: Path, labels: frozenset[str]) -> Read:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            raw = file.read(MAX_MAIL + 1)
    except OSError as why:
        return Read(None, 1, f"{path}: {why.strerror}")
    if len(raw) > MAX_MAIL:
        return Read(None, 1, f"{path}: larger than {MAX_MAIL:,} bytes")
    if not raw.strip():
        return Read(None, 1, f"{path}: empty")
    return Read(Arrival(raw, labels, int(about.st_mtime)), 1)


def _read_maildir(top: Path) -> Iterator[Read]:
    folder = _maildir_label(top)
    for part in ("new", "cur"):
        for name in sorted(_maildir_files(top / part)):
            # The standard puts the flags after ":2,"; file systems without a colon use "!" or ";".
            flags = re.split(r"[:!;]2,", name)[-1] if re.search(r"[:!;]2,", name) else ""
            labels = {label for flag, label in _FLAGS.items() if flag in flags}
            if "S" not in flags:
                labels.add(UNREAD)
            if not labels & {TRASH, DRAFT}:
                labels.update({folder} - {""})
            yield _read_file(top / part / name, frozenset(labels))


def _maildir_files(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        # Plain files only: opening a pipe or a device would wait for ever.
        yield from (
            entry.name for entry in entries if not entry.name.startswith(".") and entry.is_file()
        )


def _maildir_label(top: Path) -> str:
    """Return the label of a Maildir's folder: Maildir++ names its subfolders with dots."""
    if not top.name.startswith(".") or top.name in {".", ".."}:
        return INBOX
    name = line(top.name[1:].replace(".", "/"))
    return _FOLDERS.get(name.casefold(), name)


def _read_mbox(path: Path) -> Iterator[Read]:
    """Split at `From ` lines that follow a blank line or start the file."""
    try:
        with path.open("rb") as file:
            lines: list[bytes] = []
            size, start, blank = 0, b"", True
            # A line is read in pieces and a mail past the limit only counted: memory stays bounded.
            while text := file.readline(MAX_LINE):
                if blank and text.startswith(b"From ") and _FROM_LINE.match(text):
                    if lines or start:
                        yield _mbox_mail(path, start, lines, size)
                    lines, size, start = [], len(text), text
                else:
                    size += len(text)
                    if size <= MAX_MAIL:
                        lines.append(text)
                blank = text in (b"\n", b"\r\n")
            if lines or start:
                yield _mbox_mail(path, start, lines, size)
    except OSError as why:
        raise Unavailable(
            f"{path} cannot be read: {why.strerror}", remedy="Check its permissions."
        ) from why


def _mbox_mail(path: Path, start: bytes, lines: list[bytes], size: int) -> Read:
    if size > MAX_MAIL:
        return Read(None, size, f"{path}: a mail larger than {MAX_MAIL:,} bytes")
    if lines and lines[-1] in (b"\n", b"\r\n"):
        lines.pop()  # the blank line belongs to the mbox, not to the mail
    raw = _QUOTED_FROM.sub(rb"\1", b"".join(lines))
    if not raw.strip():
        return Read(None, size, f"{path}: an empty mail")
    return Read(Arrival(raw, _mbox_labels(raw), _mbox_date(start, path)), size)


def _mbox_date(start: bytes, path: Path) -> int:
    words = start.decode("ascii", "replace").split(maxsplit=2)
    found = headers.seconds(words[2]) if len(words) == 3 else None
    return int(path.stat().st_mtime) if found is None else found


_STATUS = re.compile(rb"(?im)^(status|x-status):(.*)$")
# Gmail's export writes its headers before all others. Further down, the sender could have written
# one, and a mail that calls itself sent would count as a person's own.
_EXPORTED = re.compile(rb"(?i)(?:x-gm-[a-z-]+:.*\n)*x-gmail-labels:(.*(?:\n[ \t].*)*)")


def _mbox_labels(raw: bytes) -> frozenset[str]:
    """Return the labels that Status and X-Status flags, or Gmail's own export, give to a mail."""
    exported = _EXPORTED.match(raw)
    if exported:
        return _exported_labels(exported[1].decode("utf-8", "replace"))
    end = re.search(rb"\r?\n\r?\n", raw)
    head = raw[: end.start()] if end else raw
    flags = {
        name.lower(): value.decode("ascii", "replace") for name, value in _STATUS.findall(head)
    }
    status, more = flags.get(b"status", ""), flags.get(b"x-status", "")
    marks = {"F": STARRED, "D": TRASH, "T": DRAFT}
    labels = {label for flag, label in marks.items() if flag in more}
    if "R" not in status:
        labels.add(UNREAD)
    if not labels & {TRASH, DRAFT}:
        labels.add(INBOX)
    return frozenset(labels)


def _exported_labels(text: str) -> frozenset[str]:
    names = [line(name.strip().strip('"')) for name in headers.words(text).split(",")]
    return frozenset(filter(None, (_FOLDERS.get(name.casefold(), name) for name in names)))


@dataclass(slots=True)
class Report:
    """What an import did so far."""

    added: int = 0
    known: int = 0
    refused: list[str] = field(default_factory=list)


def load(keeper: Keeper, source: Source, report: Report, stepped: Callable[[int], None]) -> None:
    """Keep a source's mails a batch at a time; what is kept stays kept, so a stopped import goes on."""
    batch: list[Arrival] = []
    waiting = steps = 0
    for found in read(source):
        steps += found.step
        if found.arrival is None:
            report.refused.append(found.refused)
            continue
        batch.append(found.arrival)
        waiting += len(found.arrival.raw)
        if len(batch) >= BATCH_MAILS or waiting >= BATCH_BYTES:
            _keep(keeper, batch, report)
            stepped(steps)
            batch, waiting, steps = [], 0, 0
    _keep(keeper, batch, report)
    stepped(steps)


def _keep(keeper: Keeper, batch: list[Arrival], report: Report) -> None:
    kept = keeper.keep(batch)
    report.added += kept.added
    report.known += kept.known
