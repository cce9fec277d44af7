"""Roles that one process at a time has at a desk, and gives up however it ends: the orchestrator's, and serving the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from postroom.core.errors import Conflict, Unavailable
from postroom.core.values import dataclass
from postroom.store.ledger import Ledger
from postroom.store.locks import is_locked, locked

_PATIENCE = 0.5  # seconds: a process that only asks holds the lock for a moment


@dataclass(frozen=True, slots=True)
class SingletonLocks:
    """The kernel locks of one desk's roles."""

    ledger: Ledger
    state: Path

    @contextmanager
    def hold_orchestrator(self) -> Iterator[None]:
        """Be the orchestrator of this desk; `Conflict` if another process is."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.state / "orchestrator.lock", patience=_PATIENCE))
            except Unavailable as why:
                raise Conflict(
                    "Another orchestrator works at this desk already",
                    remedy="Let that one run, or end it first (Ctrl-C, or `systemctl --user stop"
                    " postroom`).",
                ) from why
            yield

    def has_orchestrator(self) -> bool:
        """Whether an orchestrator works at this desk now."""
        return is_locked(self.state / "orchestrator.lock")

    @contextmanager
    def hold_page(self) -> Iterator[bool]:
        """Be the process that serves the page, if no other is; the value says whether."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.state / "page.lock", patience=_PATIENCE))
            except Unavailable:
                yield False
            else:
                yield True

    def set_page_address(self, address: str) -> None:
        """Record where the page is served."""
        with self.ledger.write() as tx:
            tx.save_settings(replace(tx.settings, page_address=address))

    def page_address(self) -> str:
        """Return where the page is served now, or nothing."""
        return self.ledger.settings.page_address if is_locked(self.state / "page.lock") else ""
