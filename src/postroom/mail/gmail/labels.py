"""The labels of a Gmail account: ids to names and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from postroom.core.errors import Conflict
from postroom.core.message import SYSTEM_LABELS, label_key, system_label
from postroom.mail.gmail.api import USER, Api, Json, at
from postroom.mail.gmail.payload import rows, text
from postroom.mail.mailbox import new_label_name

FRESH: Final = 300.0  # seconds for which names are believed; a person may rename one at any time
PATH: Final = f"{USER}/labels"

# Where Gmail's id of a system label is not its name here.
_IDS: Final = {"CATEGORY_PRIMARY": "CATEGORY_PERSONAL"}
_NAMES: Final = {id: name for name, id in _IDS.items()}


class Labels:
    """What the account's labels are called, asked for as seldom as possible."""

    def __init__(self, api: Api, now: Callable[[], float]) -> None:
        self._api = api
        self._now = now
        self._turn = threading.Lock()
        self._own: dict[str, str] = {}  # id → name, of the person's own
        self._asked = -FRESH

    @property
    def wanted(self) -> tuple[str, ...]:
        """The path to ask for beside other things, where the names have become old."""
        return (at(PATH, fields="labels(id,name,type)"),) if self._old() else ()

    def take(self, found: Json) -> None:
        """Believe this list."""
        own = {text(row, "id"): text(row, "name") for row in rows(found, "labels")}
        with self._turn:
            self._own = {id: n for id, n in own.items() if _system(id) is None}
            self._asked = self._now()

    def _old(self) -> bool:
        return not 0 <= self._now() - self._asked < FRESH

    def _load(self) -> None:
        self.take(self._api.get(PATH, fields="labels(id,name,type)"))

    def all(self) -> tuple[str, ...]:
        """Return the names of all labels, the system's first."""
        self._load()
        return (*sorted(SYSTEM_LABELS), *sorted(self._own.values(), key=str.casefold))

    def named(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the names of these labels; one that nobody knows keeps its id."""
        wanted = frozenset(ids)
        own = {id for id in wanted if _system(id) is None}
        if own and (self._old() or own - self._own.keys()):
            self._load()
        return frozenset(_system(id) or self._own.get(id, id) for id in wanted)

    def find(self, name: str) -> str | None:
        """Return the id of the label of this name, in whatever spelling."""
        if known := system_label(name):
            return _IDS.get(known, known)
        if self._old():
            self._load()
        spellings: tuple[Callable[[str], str], ...] = (str, str.casefold, label_key)
        for spelled in spellings:
            for id, own in self._own.items():
                if spelled(own) == spelled(name):
                    return id
        return None

    def make(self, name: str) -> str:
        """Return the id of the label of this name, made if there is none."""
        if found := self.find(name):
            return found
        try:
            made = self._api.change("POST", PATH, {"name": new_label_name(name)})
        except Conflict:  # made in this moment, by somebody else or by a try whose answer was lost
            self._load()
            if found := self.find(name):
                return found
            raise
        id = text(made, "id")
        with self._turn:
            self._own = {**self._own, id: text(made, "name")}
        return id


def _system(id: str) -> str | None:
    """Return the name of a system label from its id; those of the person's own are never like it."""
    name = _NAMES.get(id, id)
    return name if name in SYSTEM_LABELS else None
