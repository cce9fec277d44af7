"""Who is at work at a desk: places that one process at a time has, and gives up however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from postroom.core.errors import Conflict, Unavailable
from postroom.store.ledger import Ledger
from postroom.store.locks import is_locked, locked
from postroom.vault.vault import Vault


class SingletonLocks:
    """The places at one desk: the orchestrator's, and that of who serves the page."""

    ledger: Ledger
    state: Path

    @property
    def vault(self) -> Vault:
        """The vault; refused if the desk has none."""
        raise NotImplementedError

    @contextmanager
    def orchestrating(self) -> Iterator[None]:
        """Hold the orchestrator's place at this desk, or say that it is taken."""
        with ExitStack() as stack:
            try:  # who only asks whether it is taken holds it for a moment
                stack.enter_context(locked(self._orchestrator, patience=0.5))
            except Unavailable as why:
                raise Conflict(
                    f"Another orchestrator works on the vault {self.vault.root} already",
                    remedy="Let that one run, or end it first (Ctrl-C, or `systemctl --user stop"
                    " postroom`).",
                ) from why
            yield

    def orchestrated(self) -> bool:
        """Whether an orchestrator works at this desk now."""
        return is_locked(self._orchestrator)

    @contextmanager
    def serving(self) -> Iterator[bool]:
        """Hold the place of who serves the page, if nobody does, and say whether."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._server, patience=0.5))
            except Unavailable:
                yield False
            else:
                yield True

    def serves_at(self, address: str) -> None:
        """Let others know where the page is served."""
        with self.ledger.write() as tx:
            tx.save_settings(replace(tx.settings, page_address=address))

    def served(self) -> str:
        """Return where the page is served now, if it is."""
        return self.ledger.settings.page_address if is_locked(self._server) else ""

    @property
    def _orchestrator(self) -> Path:
        return self.state / "orchestrator.lock"

    @property
    def _server(self) -> Path:
        return self.state / "page.lock"
