"""Finds the settings files, reads them and the environment, and returns one `Config`.

The person's own file may set everything. A `postroom.toml` that is found upward from the working
directory is often within an agent's reach, so it may only tighten. The environment overrides both,
except for the mode: there one `true` anywhere keeps Postroom in rehearsal.

No message repeats a value, because a value may be a password in the wrong place.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from postroom.config.settings import (
    ACCOUNT_NAME,
    NAME,
    NOT_ALLOWED,
    SECTIONS,
    SETTINGS,
    Account,
    Config,
    Mode,
    Origin,
    Setting,
    printable,
    unknown_setting,
)
from postroom.core.errors import Corrupt, Invalid, Unavailable

FILE_NAME = "postroom.toml"
MAX_FILE = 1_000_000  # bytes of a settings file that are read

_ROWS = {tuple(row.key.split(".")): row for row in SETTINGS if row.key}
_TABLES = {path[:length] for path in _ROWS for length in range(1, len(path))}


class Value(NamedTuple):
    """A parsed value, and its source: "default", a variable, or a key and its file."""

    value: Any
    source: str


def load_settings() -> Config:
    return load(os.environ, Path.cwd(), Path.home())


def load(
    environ: Mapping[str, str], cwd: Path, home: Path, *, platform: str = sys.platform
) -> Config:
    """Return the settings that hold in this environment and folder; raise what is wrong, by name."""

    def user_folder(variable: str, usual: str) -> Path:
        # XDG Base Directory Specification: a path there that is not absolute is ignored.
        if environ.get(variable, "").startswith("/"):
            return Path(environ[variable], "postroom")
        if platform == "darwin":
            return home / "Library" / "Application Support" / "postroom"
        return home / usual / "postroom"

    origin = Origin(None, cwd, home)
    environment = {
        row.key: Value(_parse(row, row.variable, environ[row.variable], origin), row.variable)
        for row in SETTINGS
        if row.variable and environ.get(row.variable)
    }
    usual_file = user_folder("XDG_CONFIG_HOME", ".config") / FILE_NAME
    named = environment.pop("", None)
    own = named.value if named else usual_file
    document = _read_file(own, required=named is not None)
    person = _read_layer(document, Origin(own, own.parent, home))
    defaults = {
        row.key: Value(
            cwd / row.default if isinstance(row.default, Path) else row.default, "default"
        )
        for row in _ROWS.values()
    }
    project = _read_project_files(cwd, home, (own, usual_file), defaults | person)
    values = defaults | person | project | environment
    default_account, names = _choose_accounts(document, person, environment, values)

    def fields(section: type[Any], prefix: str) -> dict[str, Any]:
        return {name: values[prefix + name].value for name in section._field_defaults}

    config = Config(
        **{name: section(**fields(section, f"{name}.")) for name, section in SECTIONS.items()},
        file=own,
        state=values["state"].value,
        desks=user_folder("XDG_STATE_HOME", ".local/state"),
        cwd=cwd,
        accounts=tuple(Account(name, **fields(Account, f"accounts.{name}.")) for name in names),
        default_account=default_account,
        mode=decide_mode((environment, person, project)),
        sources=MappingProxyType(
            {key: value.source for key, value in values.items() if ".NAME." not in key}
        ),
    )
    _refuse_contradictions(config)
    return config


def _read_project_files(
    cwd: Path, home: Path, own: tuple[Path, ...], before: Mapping[str, Value]
) -> dict[str, Value]:
    """Return what the postroom.toml files from the home directory down to `cwd` tighten."""
    files = []
    for folder in (cwd, *cwd.parents):
        file = folder / FILE_NAME
        # Without an error where a folder above may not be searched.
        if os.path.isfile(file) and not any(_is_same(file, other) for other in own):  # noqa: PTH113
            files.append(file)
        if _is_same(folder, home):
            break
    tightened: dict[str, Value] = {}
    # The outermost first: a nearer one, in a folder that agents write to, cannot loosen it again.
    for file in reversed(files):
        for key, value in _read_layer(_read_file(file), Origin(file, file.parent, home)).items():
            override = _ROWS[_general(tuple(key.split(".")))].override
            problem = ""
            if override is NOT_ALLOWED:
                problem = "may not be set in a project's file"
            elif not override.allows(tightened.get(key, before[key]).value, value.value):
                problem = f"would loosen it; a project's file may only {override.words}"
            if problem:
                raise Invalid(f"{value.source} {problem}.", remedy=f"Put it into {own[0]}.")
            tightened[key] = value
    return tightened


def _is_same(one: Path, other: Path) -> bool:
    """Return whether both are one place, also through links and on a disk that ignores case."""
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False


def _read_file(file: Path, *, required: bool = False) -> dict[str, Any]:
    """Return the file's tables; a missing file that is not required has none."""
    try:
        # Without blocking: a pipe in the place of the file must not hang every command.
        with open(
            file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)
        ) as stream:
            raw = stream.read(MAX_FILE + 1)
    except (FileNotFoundError, NotADirectoryError) as missing:
        if not required:
            return {}
        raise Invalid(
            f"POSTROOM_CONFIG names {file}, which does not exist.",
            remedy="Create the file, or unset POSTROOM_CONFIG.",
        ) from missing
    except OSError as why:
        raise Unavailable(
            f"{file} cannot be read: {why.strerror}.", remedy="Make it a file that you may read."
        ) from why
    if len(raw) > MAX_FILE:
        raise Corrupt(f"{file} is too long for a settings file.", remedy="Shorten it.")
    # Imported where there is a file: without one, the settings cost nothing.
    import tomllib

    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as wrong:
        raise Corrupt(
            f"{file} is not TOML: {wrong}.", remedy="Correct the file; it was not changed."
        ) from wrong


def _read_layer(
    table: Mapping[str, object], origin: Origin, above: tuple[str, ...] = ()
) -> dict[str, Value]:
    """Return every setting of a file's table, parsed; refuse by name what is not a setting."""
    layer: dict[str, Value] = {}
    for name, raw in table.items():
        path = (*above, name)
        key, place = ".".join(path), f" in {origin.file}"
        if above == ("accounts",) and not re.fullmatch(ACCOUNT_NAME, name):
            raise Invalid(f"{printable(key)}{place} must have {NAME.allowed}.", remedy="Rename it.")
        row = _ROWS.get(_general(path))
        if row is not None:
            layer[key] = Value(_parse(row, key + place, raw, origin), key + place)
        elif _general(path) not in _TABLES:
            raise unknown_setting(key, place)
        elif not isinstance(raw, dict):
            raise Invalid(f"{key}{place} must be a table.", remedy=f"Write it as [{key}].")
        else:
            layer |= _read_layer(raw, origin, path)
    return layer


def _general(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path as the rows have it: with NAME for an account's name."""
    return (path[0], "NAME", *path[2:]) if path[0] == "accounts" and len(path) > 1 else path


def _parse(row: Setting, source: str, raw: object, origin: Origin) -> object:
    try:
        return row.kind.read(raw, origin)
    except ValueError:
        remedy = "Change it there." if origin.file else f"Change or unset {source}."
        # Without its cause, which may hold the value.
        raise Invalid(f"{source} must be {row.kind.allowed}.", remedy=remedy) from None


def decide_mode(layers: tuple[Mapping[str, Value], ...]) -> Mode:
    """Return live where at least one layer says false and no layer says anything else."""
    switches = [layer[key] for layer in layers for key in ("dry_run", "dev_mode") if key in layer]
    warnings = tuple(
        f"{switch.source} is neither true nor false and counts as true."
        for switch in switches
        if switch.value is None
    )
    holding = [switch for switch in switches if switch.value is not False]
    deciding = holding or switches
    source = deciding[0].source if deciding else "default"
    return Mode(bool(switches) and not holding, source, warnings)


def _choose_accounts(
    document: Mapping[str, Any],
    person: Mapping[str, Value],
    environment: Mapping[str, Value],
    values: dict[str, Value],
) -> tuple[str, tuple[str, ...]]:
    """Add each account's settings to `values`; return the default account and all names."""
    tables = tuple(document.get("accounts", ()))
    names = tables or ("default",)
    for key in ("provider", "address"):
        if tables and key in person:
            raise Invalid(
                f"{person[key].source} has no effect beside tables of accounts.",
                remedy=f"Put it into one of: {', '.join(f'[accounts.{name}]' for name in names)}.",
            )
    chosen = values["default_account"]
    default = chosen.value or (names[0] if len(names) == 1 else "")
    if default not in names:
        several = "default_account is needed where there are several accounts"
        problem = f"{chosen.source} names no account" if default else several
        raise Invalid(f"{problem}.", remedy=f"Set it to one of: {', '.join(names)}.")
    for field in Account._field_defaults:
        for name in names:
            key = f"accounts.{name}.{field}"
            is_plain = not tables or (name == default and field in environment)
            values[key] = values.get(field if is_plain else key, values[f"accounts.NAME.{field}"])
    return default, names


def _refuse_contradictions(config: Config) -> None:
    """Refuse two local accounts with one address, and records inside the vault.

    Postroom could not tell whose mail it is. Notes are synced, shared and written by tools.
    """
    seen: dict[str, str] = {}
    local = [account for account in config.accounts if account.provider != "gmail"]
    for account in local:  # Google knows its addresses
        for address in (account.address, *account.aliases):
            other = seen.setdefault(address.casefold(), account.name)
            if other != account.name:
                raise Invalid(
                    f"The accounts {other} and {account.name} have the same address.",
                    remedy=f"Give accounts.{account.name}.address a value of its own.",
                )
    state = config.state or config.desks
    # The links of both are followed: what counts is where the bytes are.
    vault, real = (Path(os.path.realpath(path)) for path in (config.vault.path, state))
    if any(_is_same(folder, vault) for folder in (real, *real.parents)):
        raise Invalid(
            f"The state folder {state} ({config.source('state')}) is inside the vault {config.vault.path}.",
            remedy="Set POSTROOM_STATE, or state in your settings file, to a folder outside the vault.",
        )
