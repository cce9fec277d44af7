"""The settings: postroom.toml and the environment, parsed once into frozen values.

`SETTINGS` is the whole list. A new setting is a row there, a field of the group it belongs to and
a line in docs/settings.md; a test compares the three.

A person's own file says what holds. A `postroom.toml` that is found upward from the working
directory is often in an agent's reach, so it may only tighten. The environment is over both, but
for the mode, where the most careful word counts, wherever it stands.

No message repeats a value: somebody will write a password into the wrong place.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from postroom.core.errors import Corrupt, Invalid, NotFound, Unavailable

FILE_NAME = "postroom.toml"
MAX_FILE = 1_000_000  # bytes of a settings file that are read
DEFAULT_ADDRESS = "you@example.org"
GMAIL_ENDPOINT = "https://gmail.googleapis.com"
GMAIL_TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address

_ACCOUNT_NAME = r"[a-z0-9][a-z0-9_-]{0,31}"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# One spelling of each loopback address, and no user part: nothing that two readers take differently.
_LOOPBACK = (
    rf"https?://(?:localhost|127(?:\.{_BYTE}){{3}}|\[::1\])"
    r"(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]*)?"
)
# Addresses that are right at first sight. What is not goes to the full parser, whose tables take
# longer to load than a search in a large mailbox takes.
_DOMAIN = r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]"
_FOLDER = r"(?!\.)[^\x00-\x1f/\\]+(?:/(?!\.)[^\x00-\x1f/\\]+)*/?"
_PLAIN_ADDRESS = (
    r"(?=.{1,63}\Z)[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*@(?:[a-z0-9](?:-?[a-z0-9])*\.)+"
    r"(?!(?:arpa|invalid|local|localhost|onion|test)\Z)[a-z]{2,}"
)


class Origin(NamedTuple):
    """Where a value is written: a file, or the environment (and the defaults), where all is text."""

    file: Path | None
    folder: Path  # what a relative path is relative to
    home: Path


class Kind(NamedTuple):
    """What may be written, in words, and its parser, which raises `ValueError` for the rest."""

    allowed: str
    read: Callable[[object, Origin], object]


class May(NamedTuple):
    """What a project file may do with a setting: in words, and for the person's and its own value."""

    said: str
    allows: Callable[[Any, Any], bool]


class Setting(NamedTuple):
    """One row of the table: where it is written, what is allowed, what holds without it."""

    key: str  # its dotted key in the file; empty where the environment alone has it
    variable: str  # of the environment; empty where the file alone has it
    kind: Kind
    default: str  # as text; empty where `otherwise` tells it
    project: May
    meaning: str
    otherwise: str = ""


class Found(NamedTuple):
    """A value and where it was found: "default", a variable, or a key and its file."""

    value: Any
    source: str


def _whole(low: int, high: int) -> Kind:
    def read(raw: object, origin: Origin) -> int:
        if origin.file is None and isinstance(raw, str) and re.fullmatch("[0-9]{1,9}", raw):
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
            raise ValueError
        return raw

    return Kind(f"a whole number from {low} to {high}", read)


def _matching(allowed: str, pattern: str) -> Kind:
    def read(raw: object, _: Origin) -> str:
        if not isinstance(raw, str) or not re.fullmatch(pattern, raw):
            raise ValueError
        return raw

    return Kind(allowed, read)


def _read_switch(raw: object, _: Origin) -> bool | None:
    """True, false, or None for what is neither: the mode counts that as true, and says so."""
    if isinstance(raw, bool):
        return raw
    return {"true": True, "false": False}.get(raw.strip().lower()) if isinstance(raw, str) else None


def _read_truth(raw: object, origin: Origin) -> bool:
    said = _read_switch(raw, origin) if origin.file is None else raw
    if said is not True and said is not False:
        raise ValueError
    return said


def _read_path(raw: object, origin: Origin) -> Path:
    if not isinstance(raw, str) or not raw.strip() or "\0" in raw:
        raise ValueError
    first, _, rest = raw.partition("/")
    if first == "~":
        return origin.home / rest.lstrip("/")
    if first.startswith("~"):
        raise ValueError
    return origin.folder / raw


def _read_address(raw: object, _: Origin) -> str:
    if isinstance(raw, str) and (raw == DEFAULT_ADDRESS or re.fullmatch(_PLAIN_ADDRESS, raw)):
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
    """An address, or a domain with all below it."""
    plain = raw.strip().removeprefix("@").lower() if isinstance(raw, str) else ""
    return plain if re.fullmatch(_DOMAIN, plain) else _read_address(raw, origin).lower()


def _read_command(raw: object, _: Origin) -> tuple[str, ...]:
    words = raw if isinstance(raw, list) else [None]
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError
    return tuple(words)


def _read_folder(raw: object, _: Origin) -> str:
    """A folder below the vault's root, which is not hidden."""
    if not isinstance(raw, str) or not re.fullmatch(_FOLDER, raw):
        raise ValueError
    return raw.rstrip("/")


def _several(allowed: str, one: Callable[[object, Origin], object]) -> Kind:
    """A list, each item of which is read by `one`; what is there twice counts once."""

    def read(raw: object, origin: Origin) -> tuple[object, ...]:
        items = raw if isinstance(raw, list) else [None]
        return tuple(dict.fromkeys(one(item, origin) for item in items))

    return Kind(allowed, read)


def _endpoint(googles: str) -> Kind:
    allowed = f"{googles}, or an http(s) address on this machine such as http://127.0.0.1:8080"
    return _matching(allowed, f"{re.escape(googles)}|{_LOOPBACK}")


PATH = Kind("a path (~/ is the home directory, ~name is not understood)", _read_path)
NAME = _matching("a name of a-z, 0-9, _ and -, at most 32, the first no sign", _ACCOUNT_NAME)
ADDRESS = Kind("one address such as name@example.org, without a display name", _read_address)
ADDRESSES = _several('a list of addresses such as ["name@example.org"]', _read_address)
RECIPIENTS = _several('a list of addresses and domains such as ["name@example.org", "example.com"]', _read_recipient)  # fmt: skip
COMMAND = Kind(
    'a list of words, the program first, such as ["notify-me", "--quiet"]', _read_command
)
PATHS = _several('a list of paths such as ["~/Reports"]', _read_path)
ROOM = _matching("a folder name of letters, digits, spaces, _ and -", r"[A-Za-z0-9][A-Za-z0-9 _-]{0,63}")  # fmt: skip
FOLDERS = _several('a list of folders in the vault such as ["Agents", "Work/Log"]', _read_folder)
TRUTH = Kind("true or false", _read_truth)
SWITCH = Kind("true or false", _read_switch)
PROVIDER = _matching('"local" or "gmail"', "local|gmail")
SENDING = _matching('"draft" or "message"', "draft|message")
MODEL = _matching('a provider and a model such as "ollama:llama3.2"', r"[a-z0-9-]{1,40}:[!-~]{1,200}")  # fmt: skip
ENDPOINT = _matching(
    "an https address, or an http one on this machine", rf"https://[!-~]{{1,500}}|{_LOOPBACK}"
)
HOST = _matching("an address of this machine such as 127.0.0.1", r"localhost|[0-9.]{7,15}|[0-9a-f:]{2,39}")  # fmt: skip
ORIGIN = _matching(
    "scheme and host as your browser shows them, such as https://desk.example.org",
    r"https?://[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[0-9]{1,5})?",
)
TRUST = _matching('"folder" or "desk"', "folder|desk")

NOTHING = May("nothing", lambda _person, _project: False)
LOWER = May("lower it", lambda person, project: project <= person)
RAISE = May("raise it", lambda person, project: project >= person)
# A false is half of going live, so even a repeated one has no place there.
HOLD = May("set it to true", lambda _person, project: project is not False)
FORBID = May("set it to false", lambda person, project: person or not project)
REQUIRE = May("set it to true", lambda person, project: project or not person)
NARROW = May("narrow it", lambda person, project: bool(project) and (not person or set(project) <= set(person)))  # fmt: skip
FEWER = May("narrow it", lambda person, project: person is None or set(project) <= set(person))
EXTEND = May("add to it", lambda person, project: set(project) >= set(person or ()))
DISTRUST = May("set it to desk", lambda person, project: project in ("desk", person))

SETTINGS: tuple[Setting, ...] = (
    Setting("", "POSTROOM_CONFIG", PATH, "", NOTHING, "Your settings file.", "the user's configuration folder"),
    Setting("vault.path", "VAULT_PATH", PATH, "./vault", NOTHING, "The root of the vault, a folder of Markdown notes."),
    Setting("vault.room", "", ROOM, "", NOTHING, "A folder in the vault that holds all of Postroom's.", "the root of the vault"),
    Setting("vault.agent_folders", "", FOLDERS, "", FEWER, "Folders of your own in the vault that tools may write to.", "all of your own"),
    Setting("vault.active_content", "", TRUTH, "false", FORBID, "Whether tools may write what acts when a note is opened: remote embeds, HTML, code that runs."),
    Setting("state", "POSTROOM_STATE", PATH, "", NOTHING, "Folder of the mailbox and the records, outside the vault.", "the user's state folder, by desk id"),
    Setting("provider", "POSTROOM_PROVIDER", PROVIDER, "local", NOTHING, "Where the mail of the default account lives: `local` or `gmail`."),
    Setting("address", "POSTROOM_ADDRESS", ADDRESS, DEFAULT_ADDRESS, NOTHING, "The default account's own address."),
    Setting("default_account", "", NAME, "", NOTHING, "The account that is meant where none is named.", "the only account"),
    Setting("accounts.NAME.provider", "", PROVIDER, "local", NOTHING, "Where this account's mail lives: `local` or `gmail`."),
    Setting("accounts.NAME.address", "", ADDRESS, DEFAULT_ADDRESS, NOTHING, "This account's own address."),
    Setting("accounts.NAME.aliases", "", ADDRESSES, "", NOTHING, "A list of other addresses that reach this account.", "none"),
    Setting("accounts.NAME.sending", "", SENDING, "", NOTHING, "How this account's letters leave, if Gmail keeps it: as a `draft` or as a `message`.", "`gmail.sending`"),
    Setting("dry_run", "DRY_RUN", SWITCH, "", HOLD, "Rehearse: show what would be sent, send nothing.", "rehearsal"),
    Setting("dev_mode", "DEV_MODE", SWITCH, "", HOLD, "The same switch under its other name.", "rehearsal"),
    Setting("limits.sends_per_hour", "POSTROOM_SENDS_PER_HOUR", _whole(0, 10_000), "10", LOWER, "Letters that may leave in one window; a further one is refused."),
    Setting("limits.window_seconds", "", _whole(1, 604_800), "3600", RAISE, "The window of `limits.sends_per_hour`."),
    Setting("limits.sends_per_pace", "", _whole(1, 10_000), "10", LOWER, "Letters that may leave in one pace; a further one waits."),
    Setting("limits.pace_seconds", "", _whole(1, 86_400), "60", RAISE, "The length of one pace."),
    Setting("limits.recipients_per_letter", "", _whole(1, 1_000), "25", LOWER, "Recipients of one letter, Cc and Bcc with them."),
    Setting("limits.recipients_per_hour", "", _whole(1, 100_000), "50", LOWER, "Recipients of all letters in one window."),
    Setting("limits.open_letters", "", _whole(1, 10_000), "20", LOWER, "Letters of one agent that may wait at once."),
    Setting("limits.proposals_per_hour", "", _whole(1, 100_000), "30", LOWER, "Letters that one agent may propose in one window."),
    Setting("limits.replies_per_thread", "", _whole(1, 1_000), "5", LOWER, "Letters into one conversation in one window."),
    Setting("limits.moves_per_hour", "", _whole(0, 100_000), "200", LOWER, "Mails that all agents together may move or label in one window; a further one is refused."),
    Setting("recipients.allow", "", RECIPIENTS, "", NARROW, "Who may get mail at all: addresses, and domains with all below them.", "everybody"),
    Setting("recipients.deny", "", RECIPIENTS, "", EXTEND, "Who never gets mail; this is over `recipients.allow`.", "nobody"),
    Setting("attachments.folders", "", PATHS, "", NOTHING, "Folders that attachments may be taken from, beside the vault's `Outgoing/`.", "none"),
    Setting("notify.desktop", "", TRUTH, "true", NOTHING, "Whether a new letter is told by the desktop, where there is one."),
    Setting("notify.command", "", COMMAND, "", NOTHING, "A program that is run for each new letter instead, with JSON on its input.", "none"),
    Setting("approvals.required", "", TRUTH, "true", REQUIRE, "Whether a person must approve each letter."),
    Setting("approvals.trust", "", TRUST, "folder", DISTRUST, "What counts as approval: `folder`, a moved note too; `desk`, the terminal and the page alone."),
    Setting("approvals.undo_seconds", "", _whole(0, 86_400), "10", RAISE, "How long an approved letter waits and can be recalled."),
    Setting("approvals.expiry_hours", "", _whole(1, 8_760), "72", LOWER, "How long a letter waits for a verdict."),
    Setting("run.interval_seconds", "", _whole(1, 86_400), "30", NOTHING, "How often `postroom run` looks for new mail."),
    Setting("desk.host", "", HOST, "127.0.0.1", NOTHING, "The address that the page listens on; any other than this machine's own needs a passphrase."),
    Setting("desk.port", "", _whole(0, 65_535), "8766", NOTHING, "The port of the page; 0 takes a free one."),
    Setting("desk.origin", "", ORIGIN, "", NOTHING, "The address by which your own proxy or tunnel shows the page, such as `https://desk.example.org`; it needs a passphrase.", "none"),
    Setting("desk.idle_minutes", "", _whole(1, 1_440), "15", LOWER, "After how long without a click the page asks for the passphrase again, where it needs one."),
    Setting("triage.model", "", MODEL, "", NOTHING, "The model that judges mail which no rule fits, such as `anthropic:NAME`, `openai:NAME` or `ollama:NAME`.", "none"),
    Setting("triage.command", "", COMMAND, "", NOTHING, "A program that judges instead: it reads a prompt and prints JSON.", "none"),
    Setting("triage.endpoint", "", ENDPOINT, "", NOTHING, "The address of an OpenAI-compatible service or of Ollama.", "the provider's own"),
    Setting("triage.timeout_seconds", "", _whole(1, 3_600), "120", NOTHING, "How long a model may take for one mail."),
    Setting("triage.drafts_per_thread", "", _whole(0, 1_000), "2", LOWER, "Answers that are drafted by themselves in one conversation within a day."),
    Setting("gmail.credentials_path", "GMAIL_CREDENTIALS_PATH", PATH, "", NOTHING, "The OAuth client's file.", "`credentials.json` in the state folder, then in the working directory"),
    Setting("gmail.token_path", "GMAIL_TOKEN_PATH", PATH, "", NOTHING, "The OAuth token's file.", "`token.json` in the state folder, then in the working directory"),
    Setting("gmail.sending", "", SENDING, "draft", NOTHING, "How a letter leaves: as a `draft` that sending consumes, which proves what became of it; or as a `message`."),
    Setting("gmail.endpoint", "GMAIL_API_ENDPOINT", _endpoint(GMAIL_ENDPOINT), GMAIL_ENDPOINT, NOTHING, "The Gmail service; any other must be on this machine."),
    Setting("gmail.token_uri", "GMAIL_TOKEN_URI", _endpoint(GMAIL_TOKEN_URI), GMAIL_TOKEN_URI, NOTHING, "Where tokens are renewed; any other must be on this machine."),
)  # fmt: skip

_ROWS = {tuple(row.key.split(".")): row for row in SETTINGS if row.key}
_SECTIONS = {path[:length] for path in _ROWS for length in range(1, len(path))}


@dataclass(frozen=True, slots=True)
class Account:
    """A mailbox of the person's: its name here, its provider, its addresses."""

    name: str
    provider: str
    address: str
    aliases: tuple[str, ...] = ()
    sending: str = ""


@dataclass(frozen=True, slots=True)
class Mode:
    """Whether letters may leave, what decided that, and what was written but not understood."""

    live: bool
    source: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """How many letters may leave in which time."""

    sends_per_hour: int
    window_seconds: int
    sends_per_pace: int
    pace_seconds: int
    recipients_per_letter: int
    recipients_per_hour: int
    open_letters: int
    proposals_per_hour: int
    replies_per_thread: int
    moves_per_hour: int


@dataclass(frozen=True, slots=True)
class Recipients:
    """Who may get mail, and who may not."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attachments:
    """Where files that go out may come from."""

    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Notify:
    """How a person is told of a new letter."""

    desktop: bool
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """How the orchestrator goes round."""

    interval_seconds: int


@dataclass(frozen=True, slots=True)
class Page:
    """Where the desk is found in a browser."""

    host: str
    port: int
    idle_minutes: int
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Triage:
    """Who judges mail that no rule fits, and what is drafted by itself."""

    timeout_seconds: int
    drafts_per_thread: int
    model: str = ""
    command: tuple[str, ...] = ()
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class Approvals:
    """What a letter needs before it leaves."""

    required: bool
    trust: str
    undo_seconds: int
    expiry_hours: int


@dataclass(frozen=True, slots=True)
class Gmail:
    """Where Gmail and its keys are found."""

    cwd: Path
    sending: str
    endpoint: str
    token_uri: str
    credentials_path: Path | None = None
    token_path: Path | None = None

    def credentials_files(self, state: Path) -> tuple[Path, ...]:
        """The places of the OAuth client, in the order in which they are tried."""
        return self._places(self.credentials_path, state, "credentials.json")

    def token_files(self, state: Path, account: str = "") -> tuple[Path, ...]:
        """The places of the OAuth token, in the order in which they are tried.

        Where several accounts are at Gmail, each has a file of its own, by its name.
        """
        if account:
            return (state / f"token-{account}.json",)
        return self._places(self.token_path, state, "token.json")

    def _places(self, given: Path | None, state: Path, name: str) -> tuple[Path, ...]:
        return (given,) if given else (state / name, self.cwd / name)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings as they hold, each with where it came from."""

    vault: Path
    room: str  # the folder in the vault that holds Postroom's own; empty: the root
    agent_folders: tuple[str, ...] | None  # of the person's own, that tools may write to; None: all
    active_content: bool
    state: Path | None  # where one is given; else `desks` holds a folder for each desk
    desks: Path
    accounts: tuple[Account, ...]
    default_account: str
    mode: Mode
    limits: Limits
    approvals: Approvals
    recipients: Recipients
    attachments: Attachments
    notify: Notify
    triage: Triage
    run: Run
    desk: Page
    gmail: Gmail
    sources: Mapping[str, str] = field(repr=False, hash=False)

    def account(self, name: str | None = None) -> Account:
        """Return the account of this name, or the default one."""
        wanted = self.default_account if name is None else name
        for account in self.accounts:
            if account.name == wanted:
                return account
        known = ", ".join(account.name for account in self.accounts)
        raise NotFound(f"There is no account {_shown(wanted)}.", remedy=f"Name one of: {known}.")

    def by_draft(self, account: Account) -> bool:
        """Whether this account's letters leave as drafts, if it is at Gmail."""
        return (account.sending or self.gmail.sending) == "draft"

    def state_for(self, desk: str) -> Path:
        """Return the state folder of this desk; one that is given serves every desk."""
        return self.state or self.desks / desk

    def source(self, key: str) -> str:
        """Return where this setting's value was found: "default", a variable, or a key and its file."""
        if key not in self.sources:
            raise _unknown(key)
        return self.sources[key]


def load(
    environ: Mapping[str, str], cwd: Path, home: Path, *, platform: str = sys.platform
) -> Config:
    """Return the settings that hold in this environment and folder, or say by name what is wrong."""
    outside = Origin(None, cwd, home)
    usual = user_file({**environ, "POSTROOM_CONFIG": ""}, home, platform=platform)
    environment = _environment(environ, outside)
    named = environment.pop("", None)
    own = named.value if named else usual
    document = _document(own, required=named is not None)
    defaults = {row.key: _default(row, outside) for row in SETTINGS if row.key}
    person = _layer(document, Origin(own, own.parent, home))
    project = _project(cwd, home, (own, usual), defaults | person)
    found = defaults | person | project | environment

    default, names = _accounts(document, person, environment, found)
    config = Config(
        vault=found["vault.path"].value,
        room=found["vault.room"].value or "",
        agent_folders=found["vault.agent_folders"].value,
        active_content=found["vault.active_content"].value,
        state=found["state"].value,
        desks=_user_folder(environ, home, platform, "XDG_STATE_HOME", ".local/state"),
        accounts=tuple(Account(name=name, **_group(found, f"accounts.{name}")) for name in names),
        default_account=default,
        mode=_mode((environment, person, project)),
        limits=Limits(**_group(found, "limits")),
        approvals=Approvals(**_group(found, "approvals")),
        recipients=Recipients(**_group(found, "recipients")),
        attachments=Attachments(**_group(found, "attachments")),
        notify=Notify(**_group(found, "notify")),
        triage=Triage(**_group(found, "triage")),
        run=Run(**_group(found, "run")),
        desk=Page(**_group(found, "desk")),
        gmail=Gmail(cwd=cwd, **_group(found, "gmail")),
        sources=MappingProxyType(
            {key: value.source for key, value in found.items() if ".NAME." not in key}
        ),
    )
    _tell_apart(config)
    _keep_apart(config)
    return config


def user_file(environ: Mapping[str, str], home: Path, *, platform: str = sys.platform) -> Path:
    """Return the person's own settings file, whether it is there or not."""
    named = environ.get("POSTROOM_CONFIG")
    folder = _user_folder(environ, home, platform, "XDG_CONFIG_HOME", ".config")
    return Path(named) if named else folder / FILE_NAME


def _group(found: Mapping[str, Found], section: str) -> dict[str, Any]:
    """The values of one table, by their last names; the unset are left to the fields' defaults."""
    return {
        key.removeprefix(f"{section}."): value
        for key, (value, _) in found.items()
        if key.startswith(f"{section}.") and value is not None
    }


# Finding and reading the files


def _user_folder(
    environ: Mapping[str, str], home: Path, platform: str, variable: str, usual: str
) -> Path:
    # XDG Base Directory Specification: a path there that is not absolute is ignored.
    if environ.get(variable, "").startswith("/"):
        return Path(environ[variable], "postroom")
    if platform == "darwin":
        return home / "Library" / "Application Support" / "postroom"
    return home / usual / "postroom"


def _project(
    cwd: Path, home: Path, own: tuple[Path, ...], before: Mapping[str, Found]
) -> dict[str, Found]:
    """Return what the postroom.toml files from the home directory down to here tighten, each further."""
    files = []
    for folder in (cwd, *cwd.parents):
        file = folder / FILE_NAME
        if _is_file(file) and not any(_same(file, other) for other in own):
            files.append(file)
        if _same(folder, home):
            break
    tightened: dict[str, Found] = {}
    # The outermost first: a nearer one, in a folder that agents write to, cannot take it back.
    for file in reversed(files):
        for key, found in _layer(_document(file), Origin(file, file.parent, home)).items():
            may = _row(key).project
            if may is NOTHING:
                wrong = "may not be set in a project's file"
            elif not may.allows(tightened.get(key, before[key]).value, found.value):
                wrong = f"would loosen it; a project's file may only {may.said}"
            else:
                tightened[key] = found
                continue
            raise Invalid(f"{found.source} {wrong}.", remedy=f"Put it into {own[0]}.")
    return tightened


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder above that we may not look into
        return False


def _same(one: Path, other: Path) -> bool:
    """Whether both are one place, also through links and on a disk that ignores case."""
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False


def _document(file: Path, *, required: bool = False) -> dict[str, Any]:
    """Return the file's tables; a file that is not there and need not be is empty."""
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
            f"POSTROOM_CONFIG names {file}, which is not there.",
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
            f"{file} is not TOML: {wrong}.", remedy="Mend it there; it is left as it is."
        ) from wrong


# From what is written to values


def _default(row: Setting, origin: Origin) -> Found:
    return Found(row.kind.read(row.default, origin) if row.default else None, "default")


def _environment(environ: Mapping[str, str], origin: Origin) -> dict[str, Found]:
    return {
        row.key: Found(_parsed(row, row.variable, environ[row.variable], origin), row.variable)
        for row in SETTINGS
        if row.variable and environ.get(row.variable)
    }


def _layer(document: Mapping[str, object], origin: Origin) -> dict[str, Found]:
    """Return every setting that a file makes, parsed; what it should not hold is refused by name."""
    layer = {}
    for key, raw in _entries(document, f" in {origin.file}"):
        source = f"{key} in {origin.file}"
        layer[key] = Found(_parsed(_row(key), source, raw, origin), source)
    return layer


def _entries(
    table: Mapping[str, object], where: str, above: tuple[str, ...] = ()
) -> Iterator[tuple[str, object]]:
    for name, raw in table.items():
        path = (*above, name)
        key = ".".join(path)
        if above == ("accounts",) and not re.fullmatch(_ACCOUNT_NAME, name):
            raise Invalid(f"{_shown(key)}{where} must have {NAME.allowed}.", remedy="Rename it.")
        if _general(path) in _ROWS:
            yield key, raw
        elif _general(path) not in _SECTIONS:
            raise _unknown(key, where)
        elif isinstance(raw, dict):
            yield from _entries(raw, where, path)
        else:
            raise Invalid(f"{key}{where} must be a table.", remedy=f"Write it as [{key}].")


def _general(path: tuple[str, ...]) -> tuple[str, ...]:
    """The path as the table of settings has it: with NAME for an account's name."""
    return (path[0], "NAME", *path[2:]) if path[0] == "accounts" and len(path) > 1 else path


def _row(key: str) -> Setting:
    return _ROWS[_general(tuple(key.split(".")))]


def _parsed(row: Setting, source: str, raw: object, origin: Origin) -> object:
    try:
        return row.kind.read(raw, origin)
    except ValueError:
        remedy = "Change it there." if origin.file else f"Change or unset {source}."
        # Without its cause, which may hold the value.
        raise Invalid(f"{source} must be {row.kind.allowed}.", remedy=remedy) from None


def _shown(text: str) -> str:
    """A name from outside, fit for one line of a message."""
    return "".join(char if char.isprintable() else "?" for char in text[:80])


def _unknown(key: str, where: str = "") -> Invalid:
    from difflib import get_close_matches

    name = key.split(".")[1] if key.startswith("accounts.") else "NAME"
    known = [".".join(path).replace("NAME", name) for path in (*_ROWS, *_SECTIONS)]
    near = get_close_matches(key[:80], known, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    table, _, last = key.rpartition(".")
    if table and (last,) in _ROWS:
        hint = f"{last} belongs at the top of the file, above [{_shown(table)}]. "
    return Invalid(
        f"{_shown(key)}{where} is not a setting.",
        remedy=f"{hint}docs/settings.md has them all.",
    )


# Values that hang together


def _mode(layers: tuple[Mapping[str, Found], ...]) -> Mode:
    """Live where something says false and nothing else, wherever it stands."""
    said = [layer[key] for layer in layers for key in ("dry_run", "dev_mode") if key in layer]
    warnings = tuple(
        f"{found.source} is neither true nor false and counts as true."
        for found in said
        if found.value is None
    )
    holding = [found for found in said if found.value is not False]
    deciding = holding or said
    return Mode(bool(said) and not holding, deciding[0].source if deciding else "default", warnings)


def _accounts(
    document: Mapping[str, Any],
    person: Mapping[str, Found],
    environment: Mapping[str, Found],
    found: dict[str, Found],
) -> tuple[str, tuple[str, ...]]:
    """Settle in `found` what each account is; return the default account and all of them."""
    tables = tuple(document.get("accounts", ()))
    names = tables or ("default",)
    for key in ("provider", "address"):
        if tables and key in person:
            raise Invalid(
                f"{person[key].source} says nothing beside tables of accounts.",
                remedy=f"Put it into one of: {', '.join(f'[accounts.{name}]' for name in names)}.",
            )
    chosen = found["default_account"]
    default = names[0] if chosen.value is None and len(names) == 1 else chosen.value
    if default not in names:
        wrong = f"{chosen.source} names no account"
        if default is None:
            wrong = "default_account is needed where there are several accounts"
        raise Invalid(f"{wrong}.", remedy=f"Set it to one of: {', '.join(names)}.")
    for name in names:
        for item in ("provider", "address", "aliases", "sending"):
            key = f"accounts.{name}.{item}"
            plain = not tables or (name == default and item in environment)
            found[key] = found.get(item if plain else key, found[f"accounts.NAME.{item}"])
    return default, names


def _tell_apart(config: Config) -> None:
    """Refuse two accounts of one provider with one address: mail for it could not be told apart."""
    seen: dict[tuple[str, str], str] = {}
    for account in config.accounts:
        if account.provider == "gmail":  # which is asked for its addresses
            continue
        for address in (account.address, *account.aliases):
            other = seen.setdefault((account.provider, address.casefold()), account.name)
            if other != account.name:
                raise Invalid(
                    f"The accounts {other} and {account.name} have the same address.",
                    remedy=f"Give accounts.{account.name}.address a value of its own.",
                )


def _keep_apart(config: Config) -> None:
    """Refuse records inside the vault, where notes are synced, shared and written by tools."""
    state = config.state or config.desks
    # The links of both are followed: what counts is where the bytes are.
    vault, real = (Path(os.path.realpath(path)) for path in (config.vault, state))
    if any(_same(folder, vault) for folder in (real, *real.parents)):
        raise Invalid(
            f"The state folder {state} ({config.source('state')}) is inside the vault {config.vault}.",
            remedy="Set POSTROOM_STATE, or state in your settings file, to a folder outside the vault.",
        )
