"""Import of mail from mbox, Maildir and .eml files, recognised by their content and read one mail at a time."""

from __future__ import annotations

import csv
import os
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from postroom.core.errors import Invalid, NotFound
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
from postroom.core.text import one_line
from postroom.mail import headers
from postroom.mail.mailbox import Arrival, MailImporter

MAX_MAIL = 150_000_000  # bytes; Gmail takes 25 MB, the largest servers a hundred or so
MAX_LINE = 1_000_000
CHUNK_MAILS = 500  # parsed at once by one process
CHUNK_BYTES = 4_000_000

_GIVE = "Give an mbox file, a Maildir, an .eml file or a folder of them; unpack archives first."
_FROM_LINE = re.compile(rb"From \S.*\d{4}|From \S+\r?\n|From .*@.*\r?\n")
_HEADER_LINE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:>?From .*\s+)?[!-9;-~]{1,200}[ \t]*:")
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
    """Mail at a path, and how many bytes there are to read.

    The kind is `mbox`, `maildir` (with the label of its folder), `eml`, `other` for a file that is not
    mail, or `closed` for one that may not be read.
    """

    path: Path
    kind: str
    size: int
    label: str = INBOX


class Read(NamedTuple):
    """One mail of a source, or why it could not be read, and the bytes it takes there."""

    arrival: Arrival | None
    size: int
    refused: str = ""


def sources(path: Path) -> list[Source]:
    """Return what is at this path: one source, or all of a folder's tree."""
    if not path.exists():
        raise NotFound(f"{path} does not exist", remedy=_GIVE)
    if not (path.is_dir() or path.is_file()):
        raise Invalid(f"{path} is neither a file nor a folder", remedy=_GIVE)
    found = list(_tree(path)) if path.is_dir() else [_file(path)]
    if all(source.kind == "other" for source in found):
        what = "There is no mail in" if path.is_dir() else "This is no mail:"
        raise Invalid(f"{what} {path}", remedy=_GIVE)
    return found


def _file(path: Path) -> Source:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(4096)
    except OSError:
        return Source(path, "closed", 0)
    kind = "eml" if _HEADER_LINE.match(start) else "other"
    return Source(path, "mbox" if _FROM_LINE.match(start) else kind, size)


def _tree(top: Path) -> Iterator[Source]:
    unreadable: list[OSError] = []
    for name, folders, names in os.walk(top, onerror=unreadable.append):
        folders.sort()
        folder = Path(name)
        if {"cur", "new"} <= {each for each in folders if not (folder / each).is_symlink()}:
            folders[:] = [each for each in folders if each not in {"cur", "new", "tmp"}]
            size = sum(sum(_maildir_files(folder / part).values()) for part in ("cur", "new"))
            yield Source(folder, "maildir", size, _maildir_label(top, folder))
            continue
        for each in sorted(names):
            path = folder / each
            # A link leads out of the folder that the person named.
            if path.is_file() and not path.is_symlink():
                source = _file(path)
                # A colon in its first line alone does not make a text a mail.
                named = each.isdecimal() or path.suffix.lower() == ".eml"
                plain = source.kind == "eml" and not named
                yield source._replace(kind="other") if plain else source
    yield from (Source(Path(why.filename), "closed", 0) for why in unreadable)


def read(source: Source) -> Iterator[Read]:
    """Yield the mails of a source; for one that cannot be read, the reason."""
    try:
        if source.kind == "mbox":
            yield from _read_mbox(source.path)
        elif source.kind == "maildir":
            yield from _read_maildir(source)
        elif source.kind != "other":
            yield _read_file(source.path, frozenset({INBOX, UNREAD}))
    except OSError as why:
        yield Read(None, 0, f"{why.filename or source.path}: {why.strerror}")


def _read_file(path: Path, labels: frozenset[str]) -> Read:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            # Not MAX_MAIL: Python allocates as much as it is asked to read.
            raw = file.read(min(about.st_size, MAX_MAIL) + 1)
    except OSError as why:
        return Read(None, 0, f"{path}: {why.strerror}")
    if len(raw) > MAX_MAIL:
        return Read(None, about.st_size, f"{path}: larger than {MAX_MAIL:,} bytes")
    if not _HEADER_LINE.match(raw):
        return Read(None, len(raw), f"{path}: {'no mail' if raw.strip() else 'empty'}")
    return Read(Arrival(raw, labels, int(about.st_mtime)), len(raw))


def _read_maildir(source: Source) -> Iterator[Read]:
    for part in ("new", "cur"):
        for name in sorted(_maildir_files(source.path / part)):
            # The standard puts the flags after ":2,"; file systems without a colon use "!" or ";".
            flags = re.split(r"[:!;]2,", name)[-1] if re.search(r"[:!;]2,", name) else ""
            labels = {label for flag, label in _FLAGS.items() if flag in flags}
            if "S" not in flags:
                labels.add(UNREAD)
            if not labels & {TRASH, DRAFT}:
                labels.update({source.label} - {""})
            yield _read_file(source.path / part / name, frozenset(labels))


def _maildir_files(folder: Path) -> dict[str, int]:
    """Return the mails of a folder by name, with their sizes: plain files only, since a pipe would never end."""
    with os.scandir(folder) as entries:
        return {
            entry.name: entry.stat(follow_symlinks=False).st_size
            for entry in entries
            if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False)
        }


def _maildir_label(top: Path, folder: Path) -> str:
    """Return the label of a folder of a Maildir: `.Work.Clients` and `Work/Clients` both give Work/Clients."""
    if (top / "cur").is_dir() and folder != top:
        within = folder.relative_to(top).as_posix()
    else:
        within = folder.name if folder.name.startswith(".") else ""
    name = one_line(_MODIFIED_UTF7.sub(_decode_utf7, within.removeprefix(".").replace(".", "/")))
    return _FOLDERS.get(name.casefold(), name) if name else INBOX


_MODIFIED_UTF7 = re.compile(r"&([A-Za-z0-9+,]*)-")  # RFC 3501 section 5.1.3


def _decode_utf7(found: re.Match[str]) -> str:
    packed = found[1].replace(",", "/")
    if not packed:
        return "&"
    try:
        return b64decode(packed + "=" * (-len(packed) % 4)).decode("utf-16-be")
    except ValueError:
        return found[0]


def _read_mbox(path: Path) -> Iterator[Read]:
    """Split at `From ` lines that follow a blank line or start the file."""
    with path.open("rb") as file:
        mail = bytearray()
        size, start, blank = 0, b"", True
        # A long line is read in pieces, and a mail past the limit only counted, to bound the memory.
        while text := file.readline(MAX_LINE):
            if blank and text.startswith(b"From ") and _FROM_LINE.match(text):
                if start:
                    yield _mbox_mail(path, start, mail, size)
                mail, size, start = bytearray(), len(text), text
            else:
                size += len(text)
                if size <= MAX_MAIL:
                    mail += text
            blank = text in (b"\n", b"\r\n")
        yield _mbox_mail(path, start, mail, size)


def _mbox_mail(path: Path, start: bytes, mail: bytearray, size: int) -> Read:
    if size > MAX_MAIL:
        return Read(None, size, f"{path}: a mail larger than {MAX_MAIL:,} bytes")
    if mail.endswith((b"\n\n", b"\n\r\n")):  # the blank line belongs to the mbox, not to the mail
        del mail[-2 if mail.endswith(b"\r\n") else -1 :]
    raw, labels = _mbox_labels(bytes(_QUOTED_FROM.sub(rb"\1", mail)))
    if not raw.strip():
        return Read(None, size, f"{path}: an empty mail")
    return Read(Arrival(raw, labels, _mbox_date(start, path)), size)


def _mbox_date(start: bytes, path: Path) -> int:
    words = start.decode("ascii", "replace").split(maxsplit=2)
    found = headers.seconds(words[2]) if len(words) == 3 else None
    return int(path.stat().st_mtime) if found is None else found


_STATUS = re.compile(rb"(?im)^(status|x-status):(.*)\n")
# Gmail's export writes its headers before all others. Further down, the sender could have written
# one, and a mail that calls itself sent would count as a person's own.
_EXPORTED = re.compile(rb"(?i)(?:x-gm-[a-z-]+:.*\n)*x-gmail-labels:(.*\n(?:[ \t].*\n)*)")


def _mbox_labels(raw: bytes) -> tuple[bytes, frozenset[str]]:
    """Return a mail without the flags that the mbox added, and the flags as labels.

    Without them, because a mail that was read or filed since the last export is still the same mail.
    """
    if exported := _EXPORTED.match(raw):
        return raw[exported.end() :], _exported_labels(exported[1].decode("utf-8", "replace"))
    blank = re.search(rb"\n\r?\n", raw)
    end = blank.start() + 1 if blank else len(raw)
    flags = {
        name.lower(): value.decode("ascii", "replace") for name, value in _STATUS.findall(raw[:end])
    }
    status, more = flags.get(b"status", ""), flags.get(b"x-status", "")
    # Of several the last counts, which the mbox wrote. None makes a draft: a sender could.
    labels = {label for flag, label in {"F": STARRED, "D": TRASH}.items() if flag in more}
    if "R" not in status:
        labels.add(UNREAD)
    if TRASH not in labels:
        labels.add(INBOX)
    return _STATUS.sub(b"", raw[:end]) + raw[end:], frozenset(labels)


def _exported_labels(text: str) -> frozenset[str]:
    joined = " ".join(headers.words(text).split())
    try:
        names = next(csv.reader([joined], skipinitialspace=True), [])
    except csv.Error:
        names = joined.split(",")
    names = [one_line(name) for name in names]
    return frozenset(filter(None, (_FOLDERS.get(name.casefold(), name) for name in names)))


@dataclass(slots=True)
class Report:
    """What an import did so far."""

    added: int = 0
    known: int = 0
    refused: list[str] = field(default_factory=list)


def load(
    keeper: MailImporter,
    sources: Iterable[Source],
    report: Report,
    on_progress: Callable[[int], None],
) -> None:
    """Import all mails of the sources; `on_progress` is called with the bytes done since its last call.

    A transaction keeps a few thousand mails. What is kept stays, so an import that was stopped is run again.
    """
    done = 0

    def chunks() -> Iterator[list[Arrival]]:
        nonlocal done
        chunk: list[Arrival] = []
        size = 0
        for found in chain.from_iterable(map(read, sources)):
            done += found.size
            if found.arrival is None:
                report.refused.append(one_line(found.refused))
                continue
            chunk.append(found.arrival)
            size += len(found.arrival.raw)
            if len(chunk) >= CHUNK_MAILS or size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    for kept in keeper.add_batches(chunks()):
        report.added += kept.added
        report.known += kept.known
        on_progress(done)
        done = 0
