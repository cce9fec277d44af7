"""What may be written for a setting, and what a project's file may do with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from postroom.core.errors import Invalid

DEFAULT_ADDRESS = "you@example.org"
ACCOUNT_NAME = r"[a-z0-9][a-z0-9_-]{0,31}"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# One spelling of each loopback address and no user part, so that no two parsers disagree about it.
_LOOPBACK = (
    rf"https?://(?:localhost|127(?:\.{_BYTE}){{3}}|\[::1\])"
    r"(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]*)?"
)
_DOMAIN = r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]"
_FOLDER = r"(?!\.)[^\x00-\x1f/\\]+(?:/(?!\.)[^\x00-\x1f/\\]+)*/?"
# Ordinary addresses. The full parser reads all others: its tables take longer to load than a search
# in a large mailbox takes.
PLAIN_ADDRESS = (
    r"(?=.{1,63}\Z)[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*@(?:[a-z0-9](?:-?[a-z0-9])*\.)+"
    r"(?!(?:arpa|invalid|local|localhost|onion|test)\Z)[a-z]{2,}"
)


class Origin(NamedTuple):
    """Where a value is written: in a file, or in the environment, where everything is text."""

    file: Path | None
    folder: Path  # what a relative path is relative to
    home: Path


class ValueKind(NamedTuple):
    """A type of setting: the allowed values in words, and a parser that raises `ValueError`."""

    allowed: str
    read: Callable[[object, Origin], object]


class ProjectOverride(Enum):
    """What a project's file may do with a setting: in words, and as a test of the two values."""

    NOT_ALLOWED = ("nothing", lambda _person, _project: False)
    MAY_LOWER = ("lower it", lambda person, project: project <= person)
    MAY_RAISE = ("raise it", lambda person, project: project >= person)
    # One `false` is half of going live, so a project's file may not even repeat it.
    MAY_REHEARSE = ("set it to true", lambda _person, project: project is not False)
    MAY_FORBID = ("set it to false", lambda person, project: person or not project)
    MAY_REQUIRE = ("set it to true", lambda person, project: project or not person)
    # An empty list of recipients means everybody; only an absent list of folders means all of them.
    MAY_NARROW = (
        "narrow it",
        lambda person, project: bool(project) and (not person or set(project) <= set(person)),
    )
    MAY_NARROW_FOLDERS = (
        "narrow it",
        lambda person, project: person is None or set(project) <= set(person),
    )
    MAY_EXTEND = ("add to it", lambda person, project: set(project) >= set(person))
    MAY_SET_DESK = ("set it to desk", lambda person, project: project in ("desk", person))

    def __init__(self, words: str, allows: Callable[[Any, Any], bool]) -> None:
        self.words = words
        self.allows = allows


def whole(low: int, high: int) -> ValueKind:
    """Return the kind of whole numbers within these bounds."""

    def read(raw: object, origin: Origin) -> int:
        if origin.file is None and isinstance(raw, str) and re.fullmatch("[0-9]{1,9}", raw):
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
            raise ValueError
        return raw

    return ValueKind(f"a whole number from {low} to {high}", read)


def matching(allowed: str, pattern: str) -> ValueKind:
    """Return the kind of texts that match a pattern."""

    def read(raw: object, _: Origin) -> str:
        if not isinstance(raw, str) or not re.fullmatch(pattern, raw):
            raise ValueError
        return raw

    return ValueKind(allowed, read)


def list_of(allowed: str, read_item: Callable[[object, Origin], object]) -> ValueKind:
    """Return the kind of lists whose items `read_item` parses; duplicates count once."""

    def read(raw: object, origin: Origin) -> tuple[object, ...]:
        if not isinstance(raw, list):
            raise ValueError  # noqa: TRY004 - what readers raise
        return tuple(dict.fromkeys(read_item(item, origin) for item in raw))

    return ValueKind(allowed, read)


def endpoint(default: str) -> ValueKind:
    """Return the kind of service addresses: the provider's own, or one on this machine."""
    allowed = f"{default}, or an http(s) address on this machine such as http://127.0.0.1:8080"
    return matching(allowed, f"{re.escape(default)}|{_LOOPBACK}")


def read_switch(raw: object, _: Origin) -> bool | None:
    """Return true, false, or None for anything else: the mode counts that as true and warns."""
    if isinstance(raw, bool):
        return raw
    return {"true": True, "false": False}.get(raw.strip().lower()) if isinstance(raw, str) else None


def _read_boolean(raw: object, origin: Origin) -> bool:
    value = read_switch(raw, origin) if origin.file is None else raw
    if value is not True and value is not False:
        raise ValueError
    return value


def _read_path(raw: object, origin: Origin) -> Path:
    if not isinstance(raw, str) or not raw.strip() or "\0" in raw:
        raise ValueError
    first, _, rest = raw.partition("/")
    if first == "~":
        return origin.home / rest.lstrip("/")
    if first.startswith("~"):
        raise ValueError
    return origin.folder / raw


def read_address(raw: object, _: Origin) -> str:
    """Return one address in its canonical spelling; a display name is refused."""
    if isinstance(raw, str) and (raw == DEFAULT_ADDRESS or re.fullmatch(PLAIN_ADDRESS, raw)):
        return raw
    from postroom.core.address import Address

    try:
        address = Address.parse(raw if isinstance(raw, str) else "")
    except Invalid:
        raise ValueError from None
    if address.name:
        raise ValueError
    return address.spec


def _read_recipient(raw: object, origin: Origin) -> str:
    """Return an address, or a domain, which stands for itself and its subdomains."""
    plain = raw.strip().removeprefix("@").lower() if isinstance(raw, str) else ""
    return plain if re.fullmatch(_DOMAIN, plain) else read_address(raw, origin).lower()


def _read_command(raw: object, _: Origin) -> tuple[str, ...]:
    words = raw if isinstance(raw, list) else [None]
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError
    return tuple(words)


def _read_folder(raw: object, _: Origin) -> str:
    """Return a folder below the vault's root that is not hidden."""
    if not isinstance(raw, str) or not re.fullmatch(_FOLDER, raw):
        raise ValueError
    return raw.rstrip("/")


# fmt: off
ORIGIN_PATTERN = r"https?://[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[0-9]{1,5})?"
PATH = ValueKind("a path (~/ is the home directory, ~name is not understood)", _read_path)
PATHS = list_of('a list of paths such as ["~/Reports"]', _read_path)
NAME = matching("a name of a-z, 0-9, _ and -, at most 32 characters, starting with a letter or digit", ACCOUNT_NAME)
ADDRESS = ValueKind("one address such as name@example.org, without a display name", read_address)
ADDRESSES = list_of('a list of addresses such as ["name@example.org"]', read_address)
RECIPIENTS = list_of('a list of addresses and domains such as ["name@example.org", "example.com"]', _read_recipient)
COMMAND = ValueKind('a list of words, the program first, such as ["notify-me", "--quiet"]', _read_command)
ROOM = matching("a folder name of letters, digits, spaces, _ and -", r"[A-Za-z0-9][A-Za-z0-9 _-]{0,63}")
FOLDERS = list_of('a list of folders in the vault such as ["Agents", "Work/Log"]', _read_folder)
BOOLEAN = ValueKind("true or false", _read_boolean)
SWITCH = ValueKind("true or false", read_switch)
PROVIDER = matching('"local" or "gmail"', "local|gmail")
SENDING = matching('"draft" or "message"', "draft|message")
TRUST = matching('"folder" or "desk"', "folder|desk")
MODEL = matching('a provider and a model such as "ollama:llama3.2"', r"[a-z0-9-]{1,40}:[!-~]{1,200}")
SERVICE = matching("an https address, or an http one on this machine", rf"https://[!-~]{{1,500}}|{_LOOPBACK}")
HOST = matching("an address of this machine such as 127.0.0.1", r"localhost|[0-9.]{7,15}|[0-9a-f:]{2,39}")
WEB_ORIGIN = matching("scheme and host as your browser shows them, such as https://desk.example.org", ORIGIN_PATTERN)
# fmt: on
