"""The labels of a Gmail account: ids to names and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from postroom.core.errors import Conflict
from postroom.core.message import SYSTEM_LABELS, label_key, system_label
from postroom.mail.gmail.api import USER, GmailApi, with_query
from postroom.mail.gmail.errors import Json
from postroom.mail.gmail.payload import object_list, text_field
from postroom.mail.mailbox import new_label_name

FRESH: Final = 300.0  # seconds for which names are cached; a person may rename one at any time
PATH: Final = f"{USER}/labels"
LIST_PATH: Final = with_query(PATH, fields="labels(id,name,type)")

# Where Gmail's id of a system label is not its name here.
_IDS: Final = {"CATEGORY_PRIMARY": "CATEGORY_PERSONAL"}
_NAMES: Final = {id: name for name, id in _IDS.items()}


class LabelCache:
    """The account's labels, fetched as seldom as possible."""

    def __init__(self, api: GmailApi, now: Callable[[], float]) -> None:
        self._api = api
        self._now = now
        self._lock = threading.Lock()
        self._own: dict[str, str] = {}  # id → name, of the person's own
        self._fetched = -FRESH

    @property
    def is_stale(self) -> bool:
        """Whether the names should be fetched again, from `LIST_PATH`."""
        return not 0 <= self._now() - self._fetched < FRESH

    def update(self, answer: Json) -> None:
        """Replace the names by those in an answer to `LIST_PATH`."""
        rows = object_list(answer, "labels")
        own = {text_field(row, "id"): text_field(row, "name") for row in rows}
        with self._lock:
            self._own = {id: name for id, name in own.items() if not _system_name(id)}
            self._fetched = self._now()

    def _fetch(self) -> None:
        self.update(self._api.get(LIST_PATH))

    def all(self) -> tuple[str, ...]:
        """Return the names of all labels, system labels first."""
        self._fetch()
        return (*sorted(SYSTEM_LABELS), *sorted(self._own.values(), key=str.casefold))

    def names(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the names of these labels; an unknown one keeps its id."""
        wanted = frozenset(ids)
        own = {id for id in wanted if not _system_name(id)}
        if own and (self.is_stale or own - self._own.keys()):
            self._fetch()
        return frozenset(_system_name(id) or self._own.get(id, id) for id in wanted)

    def find(self, name: str) -> str | None:
        """Return the id of a label by its name, in whatever spelling."""
        if known := system_label(name):
            return _IDS.get(known, known)
        if self.is_stale:
            self._fetch()
        spellings: tuple[Callable[[str], str], ...] = (str, str.casefold, label_key)
        for spelling in spellings:
            for id, own in self._own.items():
                if spelling(own) == spelling(name):
                    return id
        return None

    def find_or_create(self, name: str) -> str:
        """Return the id of a label by its name, created if there is none."""
        if found := self.find(name):
            return found
        try:
            made = self._api.change("POST", PATH, {"name": new_label_name(name)})
        except Conflict:  # created meanwhile, by somebody else or by a try whose answer was lost
            self._fetch()
            if found := self.find(name):
                return found
            raise
        id = text_field(made, "id")
        with self._lock:
            self._own = {**self._own, id: text_field(made, "name")}
        return id


def _system_name(id: str) -> str:
    """Return the name of a system label by its id; empty for a label of the person's own."""
    name = _NAMES.get(id, id)
    return name if name in SYSTEM_LABELS else ""
