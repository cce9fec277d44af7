"""The keeper of the index: one process, under a lock, which sweeps the vault and then watches it.

Other processes read the index, and add what they wrote themselves. When the keeper ends, however it
ends, another process takes its place within half a second. It begins with a sweep, which finds what
changed meanwhile. Where the system cannot watch, every answer begins with a sweep.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from postroom.core.errors import Corrupt, PostroomError, Unavailable
from postroom.store.files import try_lock
from postroom.vault.index import Index
from postroom.vault.vault import Vault

BATCH: Final = 1_000  # files that are taken in at once
SUCCESSION: Final = 0.5  # seconds between two looks at whether the keeper is gone
LOOK: Final = 1.0  # seconds between two looks at whether the index is still there
SWEEP: Final = 60.0  # seconds after which even a watched vault is swept
RECENT: Final = 0.1  # seconds that a sweep is as good as a new one
STEP, GROUP = 25, 75  # milliseconds that a change waits for the next, and at most
SWEEPING, FRESH, SWEPT = "sweeping", "fresh", "swept"

Watch = Callable[[Sequence[Path], threading.Event], AbstractContextManager[Callable[[], set[str]]]]


class Progress(NamedTuple):
    done: int
    total: int


@contextmanager
def watching(folders: Sequence[Path], stop: threading.Event) -> Iterator[Callable[[], set[str]]]:
    """Watch these folders; what is lent waits for a change, and returns the paths that changed."""
    # Not `watchfiles.watch`, which begins only when it is first asked: what is swept must be watched.
    from watchfiles._rust_notify import RustNotify

    with RustNotify(
        list(map(str, folders)),
        debug=False,
        force_polling=False,
        poll_delay_ms=0,
        recursive=False,  # which would follow links out of the vault
        ignore_permission_denied=True,
    ) as notify:

        def changes() -> set[str]:
            found = notify.watch(GROUP, STEP, int(LOOK * 1000), stop)
            return {path for _, path in found} if isinstance(found, set) else set()

        yield changes


class Keeper:
    """Keeps the index of a vault current, or waits for its turn to."""

    def __init__(
        self,
        vault: Vault,
        index: Index,
        lock: Path,
        hidden: Callable[[str], bool],
        watch: Watch = watching,
    ) -> None:
        self._vault = vault
        self._index = index
        self._lock = lock
        self._hidden = hidden
        self._watch = watch
        self._stop = threading.Event()
        self._last_sweep = 0.0
        self._trouble: PostroomError | None = None
        self._decided = threading.Event()  # set once it is known whether this process keeps it
        self._thread = threading.Thread(target=self._run, name="vault index", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._decided.wait(5.0)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def progress(self) -> Progress | None:
        """Return how far the index is; None where it shows the vault as it is."""
        if why := self._trouble:  # a new one: each call adds its own context
            raise type(why)(why.message, remedy=why.remedy)
        self._index.generation()
        state = self._index.meta("state")
        if state == FRESH:
            return None
        if state == SWEPT:
            if time.monotonic() - self._last_sweep > RECENT:
                self.sweep()
            return None
        done, _, total = self._index.meta("progress").partition("/")
        return Progress(int(done or 0), int(total or 0))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
            except PostroomError as why:  # a full disk, or no right: tried again
                self._trouble = why
            except Exception as bug:  # noqa: BLE001 - a thread that ends reports nothing
                kind = type(bug).__name__
                self._trouble = Unavailable(f"The index of the vault cannot be kept ({kind})")
            finally:
                self._decided.set()
            self._stop.wait(SUCCESSION)

    def _turn(self) -> None:
        try:
            with try_lock(self._lock) as is_keeper:
                self._trouble = None
                if is_keeper:
                    self._keep()
        except Corrupt:  # it can be rebuilt from the files
            self._index.renew()

    def _keep(self) -> None:
        self._index.keep(state=SWEEPING, progress="0/0")
        self._decided.set()
        folders = self.sweep()
        while not self._stop.is_set():
            try:
                folders = self._follow(folders)
            except FileNotFoundError:  # a folder was gone before it was watched
                folders = self.sweep()
            except (OSError, RuntimeError):  # more folders than the system watches
                self._index.keep(state=SWEPT)
                self._stop.wait(SWEEP)
                folders = self.sweep()

    def _follow(self, folders: list[str]) -> list[str]:
        """Take in changes until it is time for a sweep; return the folders that there are then."""
        root, known = self._vault.root, set(folders)
        which = self._index.generation()
        with self._watch([root / folder for folder in folders], self._stop) as changes:
            folders = self.sweep()  # what changed before it was watched
            if set(folders) == known:
                self._index.keep(state=FRESH)
                ends = time.monotonic() + SWEEP
                while not self._stop.is_set() and time.monotonic() < ends:
                    if self._index.generation() != which:
                        break  # it was deleted, or rebuilt
                    found = (Path(path).relative_to(root).as_posix() for path in changes())
                    paths = [path for path in found if path != "." and not self._hidden(path)]
                    if any(path in known or (root / path).is_dir() for path in paths):
                        break  # a folder was made, moved or removed
                    self._take(sorted(paths))
                folders = self.sweep()
        return folders

    def _take(self, paths: list[str]) -> None:
        """Index these files, until the keeper is stopped."""
        for start in range(0, len(paths), BATCH):
            if self._stop.is_set():
                break
            self._index.keep(progress=f"{start}/{len(paths)}")
            self._index.refresh(self._vault, paths[start : start + BATCH])

    def sweep(self) -> list[str]:
        """Take in all that changed, without waiting for the watch; return the folders that there are."""
        folders: list[str] = []
        changed: list[str] = []
        for folder, files in self._vault.walk(self._hidden):
            folders.append(folder)
            known = self._index.folder(folder)
            above = f"{folder}/" if folder else ""
            changed += [f"{above}{f.name}" for f in files if known.pop(f.name, None) != f[1:]]
            changed += [f"{above}{name}" for name in known]  # that are no more
        for gone in set(self._index.folders()) - set(folders):
            self._index.forget(gone)
        self._take(changed)
        self._last_sweep = time.monotonic()
        return folders
