"""Lists and searches of notes: answered by the index, compared with the files before they are returned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.errors import Corrupt, NotFound, PostroomError, Unavailable
from postroom.desk.recorder import Call
from postroom.vault.folders import NOTE
from postroom.vault.index import HitPage, Index, conditions, expression
from postroom.vault.keeper import Keeper, Progress
from postroom.vault.note import Note

if TYPE_CHECKING:
    from postroom.services.notebook import Notebook

MAX_WAITS: Final = 450  # of a tenth of a second each, for the index
MAX_SUBFOLDERS: Final = 20  # that a list names
ROUNDS: Final = 3  # of asking again where the index was behind
_EMPTY: Final = b"---\n---\n"


class NotePage(NamedTuple):
    """Notes by path, in a list without their texts; how many there are in all, and what leads to the next."""

    matches: dict[str, Note | None]
    total: int
    folders: Sequence[str] = ()
    unreadable: Sequence[str] = ()
    by_prefix: bool = False  # no note has the words themselves: these have words that begin so


class NoteSearch:
    """The index of one vault, kept up to date while it is used."""

    def __init__(self, book: Notebook) -> None:
        self._book = book
        self._opening = threading.Lock()
        self._keeper: Keeper | None = None

    @cached_property
    def index(self) -> Index:
        return Index(self._book.state / "index.sqlite")

    def close(self) -> None:
        """Release the index for the process that keeps it next."""
        if self._keeper:
            self._keeper.close()
            self.index.close()

    def progress(self) -> Progress | None:
        """Return how far the index is; None once it shows the vault as it is."""
        with self._opening:
            if self._keeper is None:
                lock = self._book.state / "index.lock"
                keeper = Keeper(self._book.vault, self.index, lock, self._book.access.hidden)
                keeper.start()
                self._keeper = keeper
        progress = self._keeper.progress()
        if progress is None:
            self._book.finish_moves(links=True)
        return progress

    def wait_until_ready(self, call: Call) -> Generator[Progress, None, None]:
        """Yield how far the index is until it shows the vault. Whoever iterates waits a tenth of a second for each.

        Raises `Unavailable` after `MAX_WAITS` of them.
        """
        state = ""
        with self._book.recorder.abandonment(call):
            for _ in range(MAX_WAITS):
                progress = self.progress()
                if progress is None:
                    return
                state = f"{progress.done} of {progress.total} files"
                yield progress
        raise Unavailable(
            f"The index of the vault is being made: {state}", remedy="Try again in a while."
        )

    def sweep(self) -> None:
        """Take in at once what others changed, where a moment's delay would do harm."""
        if self._keeper:
            self._keeper.sweep()

    def refresh(self, *paths: str) -> None:
        if self._keeper:
            with suppress(PostroomError):  # the keeper sees it too
                self.index.refresh(self._book.vault, list(paths))

    def list(self, call: Call, folder: str, filter: str, *, limit: int, after: str) -> NotePage:  # noqa: A002
        """Return the notes of a folder and all below that a filter lets through, by path."""
        with self._book.recorder.recording(call, folder, filter=filter[:200]):
            place = self.folder(folder)
            tests = conditions(filter) if filter.strip() else []
            page = self._checked(partial(self.index.list, place, tests, limit=limit, after=after))
            below = self.index.subfolders(place, MAX_SUBFOLDERS)
            return NotePage(
                dict.fromkeys(hit.path for hit in page.hits),
                page.total,
                [f"{place}/{name}" if place else name for name in below],
                self.index.broken(place, 3),
            )

    def search(self, call: Call, query: str, *, limit: int, offset: int) -> NotePage:
        """Return notes that have these words, the best first."""
        with self._book.recorder.recording(call, query=query[:200]):
            for by_prefix in (False, True):
                match = expression(query, prefixes=by_prefix)
                page = self._checked(partial(self.index.search, match, limit=limit, offset=offset))
                if page.total:
                    break
            matches: dict[str, Note | None] = {}
            for hit in page.hits:
                with suppress(PostroomError):  # it is gone in this moment
                    raw, _ = self._book.vault.read(hit.path)
                    matches[hit.path] = parse_note(hit.path, raw, lenient=True)
            return NotePage(matches, page.total, by_prefix=by_prefix and bool(matches))

    def folder(self, folder: str) -> str:
        """Return the path of a folder that exists; the root's is empty."""
        if folder in ("", ".", "./", "/"):
            return ""
        place = self._book.vault.spelled(folder.removesuffix("/"))
        self._book.access.refuse_reading(place)
        if not self._book.vault.folder_mtime(place) and not self._book.access.is_workflow(place):
            raise NotFound(
                f"There is no folder {folder!r} in the vault",
                remedy="list_notes of the folder above it names those that there are.",
            )
        return place

    def _checked(self, ask: Callable[[], HitPage]) -> HitPage:
        """Return what the index answers, once that agrees with each file on the disk."""
        try:
            page = ask()
        except Corrupt:  # the index itself: it holds nothing that cannot be found out again
            self.index.renew()
            self.sweep()
            page = ask()
        refreshed = set[str]()  # by this very call: they are no older than it
        for _ in range(ROUNDS):
            files = self._book.vault.stats([hit.path for hit in page.hits])
            changed = {h.path for h, file in zip(page.hits, files, strict=True) if file != h.file}
            stale = sorted(changed - refreshed)
            if not stale:
                return page
            self.index.refresh(self._book.vault, stale)
            refreshed.update(stale)
            page = ask()
        # Somebody saves one note after the other: return those that exist as of this moment.
        files = self._book.vault.stats([hit.path for hit in page.hits])
        return page._replace(hits=[h for h, file in zip(page.hits, files, strict=True) if file])


def parse_note(path: str, raw: bytes, *, lenient: bool = False) -> Note:
    """Return a file as a note; one that is not a note, or `lenient` one that is broken, has no fields."""
    if path.lower().endswith(NOTE):
        try:
            return Note.parse(raw)
        except Corrupt:
            if not lenient:
                raise
    return parse_body(path, raw.decode(errors="replace").encode() if lenient else raw)


def parse_body(path: str, raw: bytes) -> Note:
    """Return a file as a body alone: an empty frontmatter keeps a `---` in it from being read as one."""
    first = raw.find(b"\n")
    newline = b"\r\n" if raw[max(0, first - 1) : first] == b"\r" else b"\n"
    try:
        return Note.parse(_EMPTY.replace(b"\n", newline) + raw)
    except Corrupt as why:
        raise Corrupt(f"{path!r} is not text", remedy="Only text can be read here.") from why
