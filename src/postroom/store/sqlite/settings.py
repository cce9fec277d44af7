"""What is kept once for the whole desk: the one row of the table `desk`, a column for each field."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

from postroom.core.audit import LogPosition
from postroom.core.errors import Corrupt
from postroom.core.records import DeskSettings
from postroom.store.database import Database
from postroom.store.sqlite.rows import marks

_NAMES: Final = tuple(field.name for field in fields(DeskSettings))


class SqlSettings:
    """The settings as one transaction sees them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._value: DeskSettings | None = None

    @property
    def value(self) -> DeskSettings:
        """The settings, read once."""
        if self._value is None:
            self._value = load(self._database)
        return self._value

    def save(self, settings: DeskSettings) -> None:
        """Write the fields that differ."""
        before = self.value
        changed = [name for name in _NAMES if getattr(settings, name) != getattr(before, name)]
        if changed:
            names = ", ".join(f"{name} = ?" for name in changed)
            values = [_column(getattr(settings, name)) for name in changed]
            if not self._database.run(f"UPDATE desk SET {names}", values):
                self._insert(settings)
            self._value = settings

    def _insert(self, settings: DeskSettings) -> None:
        sql = f"INSERT INTO desk ({', '.join(_NAMES)}) VALUES ({marks(_NAMES)})"
        self._database.run(sql, [_column(getattr(settings, name)) for name in _NAMES])

    def seal_key(self, draw: Callable[[int], bytes]) -> str:
        """Return the key that seals our lines in the log, drawn for the first."""
        if not self.value.seal_key:
            self.save(replace(self.value, seal_key=draw(32).hex()))
        return self.value.seal_key


def load(database: Database) -> DeskSettings:
    """Return the settings as they are now."""
    row = database.row(f"SELECT {', '.join(_NAMES)} FROM desk")
    if row is None:
        return DeskSettings()
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    values["approval_required"] = bool(values["approval_required"])
    try:
        values["log_position"] = LogPosition(*json.loads(values["log_position"]))
    except (ValueError, TypeError) as why:
        raise Corrupt(
            "The ledger does not say how far the log was written",
            remedy="Put a backup of the state folder in its place.",
        ) from why
    return DeskSettings(**values)


def _column(value: object) -> object:
    return json.dumps(value) if isinstance(value, LogPosition) else value
