"""Import of mail from mbox, Maildir and .eml files, recognised by their content and read one mail at a time.

Why not the standard library's `mailbox`: docs/decisions/0015-mail-files.md.
"""

from __future__ import annotations

import csv
import json
import os
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from postroom.core.errors import Invalid, NotFound
from postroom.core.message import DRAFT, INBOX, STARRED, TRASH, UNREAD
from postroom.core.text import one_line
from postroom.core.values import dataclass
from postroom.mail import headers
from postroom.mail.mailbox import Arrival, ImportCount

MAX_MAIL = 150_000_000  # bytes; Gmail takes 25 MB, the largest servers a hundred or so
MAX_LINE = 1_000_000
CHUNK_MAILS = 500  # parsed at once by one process
CHUNK_BYTES = 4_000_000

_GIVE = "Give an mbox file, a Maildir, an .eml file or a folder of them; unpack archives first."
_FROM_LINE = re.compile(rb"From \S.*\d{4}|From \S+\r?\n|From .*@.*\r?\n")
_HEADER_LINE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:>?From .*\s+)?[!-9;-~]{1,200}[ \t]*:")
# A colon in its first line alone does not make a text a mail (`/etc/passwd` has one): a header that all mail has does.
_MAIL_HEADER = re.compile(rb"(?im)^(?:from|to|date|subject|received|return-path|message-id)[ \t]*:")
_STATUS = re.compile(rb"(?im)^(status|x-status):(.*)\n")
# Gmail's export writes its headers before all others. Further down, the sender could have written
# one, and a mail that calls itself sent would count as a person's own.
_EXPORTED = re.compile(rb"(?i)(?:x-gm-[a-z-]+:.*\n)*x-gmail-labels:(.*\n(?:[ \t].*\n)*)")
_MAILDIR_FLAGS = {"F": STARRED, "T": TRASH, "D": DRAFT}
_MBOX_FLAGS = {"F": STARRED, "D": TRASH}  # none makes a draft: a sender could
_LABELS: dict[str, str] = json.loads(
    Path(__file__).with_name("folder_labels.json").read_text("utf-8")
)


class MailSource(NamedTuple):
    """Mail at a path."""

    path: Path
    kind: str  # mbox, maildir, eml, other (not a mail) or closed (it may not be read)
    size: int  # bytes to read
    label: str = INBOX  # of a Maildir's folder


class FileMail(NamedTuple):
    """One mail of a source, or why it could not be read, and the bytes it takes there."""

    arrival: Arrival | None
    size: int
    refused: str = ""


def sources(path: Path) -> list[MailSource]:
    """Return the sources at this path: a file, or all files of a folder's tree, those that are not mail included.

    Raises `NotFound` for a path that does not exist, `Invalid` if nothing there is mail.
    """
    if not path.exists():
        raise NotFound(f"{path} does not exist", remedy=_GIVE)
    if not (path.is_dir() or path.is_file()):
        raise Invalid(f"{path} is neither a file nor a folder", remedy=_GIVE)
    found = list(_tree(path)) if path.is_dir() else [_file_source(path)]
    if all(source.kind == "other" for source in found):
        if path.is_dir():
            raise Invalid(f"There is no mail in {path}", remedy=_GIVE)
        why = "no mail header" if found[0].size else "it is empty"
        raise Invalid(f"{path} was not imported: {why}", remedy=_GIVE)
    return found


def _file_source(path: Path) -> MailSource:
    try:
        with path.open("rb") as file:
            size, start = os.fstat(file.fileno()).st_size, file.read(4096)
    except OSError:
        return MailSource(path, "closed", 0)
    is_named = path.name.isdecimal() or path.suffix.lower() == ".eml"
    is_mail = _HEADER_LINE.match(start) and (is_named or _MAIL_HEADER.search(start))
    kind = "eml" if is_mail else "other"
    return MailSource(path, "mbox" if _FROM_LINE.match(start) else kind, size)


def _tree(top: Path) -> Iterator[MailSource]:
    unreadable: list[OSError] = []
    for name, folders, names in os.walk(top, onerror=unreadable.append):
        folders.sort()
        folder = Path(name)
        if {"cur", "new"} <= {each for each in folders if not (folder / each).is_symlink()}:
            folders[:] = [each for each in folders if each not in {"cur", "new", "tmp"}]
            size = sum(sum(_maildir_files(folder / part).values()) for part in ("cur", "new"))
            yield MailSource(folder, "maildir", size, _maildir_label(top, folder))
            continue
        for path in (folder / each for each in sorted(names)):
            # A link leads out of the folder that the person named.
            if path.is_file() and not path.is_symlink():
                source = _file_source(path)
                # A colon in its first line alone does not make a text a mail.
                named = path.name.isdecimal() or path.suffix.lower() == ".eml"
                is_text = source.kind == "eml" and not named
                yield source._replace(kind="other") if is_text else source
    yield from (MailSource(Path(error.filename), "closed", 0) for error in unreadable)


def read(source: MailSource) -> Iterator[FileMail]:
    """Yield the mails of a source; for one that cannot be read, the reason."""
    try:
        if source.kind == "mbox":
            yield from _read_mbox(source.path)
        elif source.kind == "maildir":
            yield from _read_maildir(source)
        elif source.kind != "other":
            yield _read_file(source.path, frozenset({INBOX, UNREAD}))
    except OSError as error:
        yield FileMail(None, 0, f"{error.filename or source.path}: {error.strerror}")


def _read_file(path: Path, labels: frozenset[str]) -> FileMail:
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            # Not MAX_MAIL: Python allocates as much as it is asked to read.
            raw = file.read(min(about.st_size, MAX_MAIL) + 1)
    except OSError as error:
        return FileMail(None, 0, f"{path}: {error.strerror}")
    if len(raw) > MAX_MAIL:
        return FileMail(None, about.st_size, f"{path}: larger than {MAX_MAIL:,} bytes")
    if not _HEADER_LINE.match(raw):
        return FileMail(None, len(raw), f"{path}: {'no mail header' if raw.strip() else 'empty'}")
    return FileMail(Arrival(raw, labels, int(about.st_mtime)), len(raw))


def _read_maildir(source: MailSource) -> Iterator[FileMail]:
    for part in ("new", "cur"):
        for name in sorted(_maildir_files(source.path / part)):
            # File systems without a colon use another sign.
            found = re.fullmatch(r"(?s).*[:!;]2,(.*)", name)
            flags = found[1] if found else ""
            labels = _labels(flags, _MAILDIR_FLAGS, source.label, is_read="S" in flags)
            yield _read_file(source.path / part / name, labels)


def _labels(flags: str, meanings: dict[str, str], folder: str, *, is_read: bool) -> frozenset[str]:
    labels = {label for flag, label in meanings.items() if flag in flags}
    place = set() if labels & {TRASH, DRAFT} else {folder} - {""}
    return frozenset(labels | place | (set() if is_read else {UNREAD}))


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
    path = folder.name if folder.name.startswith(".") else ""
    if (top / "cur").is_dir() and folder != top:
        path = folder.relative_to(top).as_posix()
    path = path.removeprefix(".").replace(".", "/")
    name = one_line(re.sub(r"&([A-Za-z0-9+,]*)-", _decode_utf7, path))
    return _LABELS.get(name.casefold(), name) if name else INBOX


def _decode_utf7(found: re.Match[str]) -> str:
    packed = found[1].replace(",", "/")  # RFC 3501 section 5.1.3
    with suppress(ValueError):
        return b64decode(packed + "=" * (-len(packed) % 4)).decode("utf-16-be") or "&"
    return found[0]


def _read_mbox(path: Path) -> Iterator[FileMail]:
    with path.open("rb") as file:
        mail, size, start, blank = bytearray(), 0, b"", True
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


def _mbox_mail(path: Path, start: bytes, mail: bytearray, size: int) -> FileMail:
    if size > MAX_MAIL:
        return FileMail(None, size, f"{path}: a mail larger than {MAX_MAIL:,} bytes")
    if mail.endswith((b"\n\n", b"\n\r\n")):  # the blank line belongs to the mbox, not to the mail
        del mail[-2 if mail.endswith(b"\r\n") else -1 :]
    raw, labels = _mbox_labels(re.sub(rb"(?m)^>(>*From )", rb"\1", mail))
    if not raw.strip():
        return FileMail(None, size, f"{path}: an empty mail")
    words = start.decode("ascii", "replace").split(maxsplit=2)
    date = headers.seconds(words[2]) if len(words) == 3 else None
    date = int(path.stat().st_mtime) if date is None else date
    return FileMail(Arrival(raw, labels, date), size)


def _mbox_labels(raw: bytes) -> tuple[bytes, frozenset[str]]:
    """Return a mail without the flags that the mbox added, with which it would be another mail, and these as labels."""
    if exported := _EXPORTED.match(raw):
        return raw[exported.end() :], _exported_labels(exported[1].decode("utf-8", "replace"))
    blank = re.search(rb"\n\r?\n", raw)
    end = blank.start() + 1 if blank else len(raw)
    flags = {  # of several the last counts, which the mbox wrote
        name.lower(): value.decode("ascii", "replace") for name, value in _STATUS.findall(raw[:end])
    }
    is_read = "R" in flags.get(b"status", "")
    labels = _labels(flags.get(b"x-status", ""), _MBOX_FLAGS, INBOX, is_read=is_read)
    return _STATUS.sub(b"", raw[:end]) + raw[end:], labels


def _exported_labels(text: str) -> frozenset[str]:
    joined = " ".join(headers.words(text).split())
    try:
        names = next(csv.reader([joined], skipinitialspace=True), [])
    except csv.Error:
        names = joined.split(",")
    labels = {_LABELS.get(name.casefold(), name) for name in map(one_line, names)}
    return frozenset(labels - {""})


@dataclass(slots=True)
class ImportReport:
    added: int = 0
    known: int = 0
    refused: list[str] = field(default_factory=list)


def load(
    store: Callable[[Iterable[list[Arrival]]], Iterable[ImportCount]],
    sources: Iterable[MailSource],
    report: ImportReport,
    on_progress: Callable[[int], None],
) -> None:
    """Import all mails of the sources; `on_progress` is called with the bytes done since its last call.

    `store` takes chunks and returns a count for each transaction. Stored mails stay if the import is stopped.
    """
    done = 0

    def chunks() -> Iterator[list[Arrival]]:
        nonlocal done
        chunk: list[Arrival] = []
        size = 0
        for mail in chain.from_iterable(map(read, sources)):
            done += mail.size
            if mail.arrival is None:
                report.refused.append(one_line(mail.refused))
                continue
            chunk.append(mail.arrival)
            size += len(mail.arrival.raw)
            if len(chunk) >= CHUNK_MAILS or size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    for count in store(chunks()):
        report.added += count.added
        report.known += count.known
        on_progress(done)
        done = 0
