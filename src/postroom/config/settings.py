"""All settings: each is one row, the field of the section it belongs to.

A row has the field's type and default, the values that are allowed, what a project's file may do with
it, its meaning, and its environment variable, if any. The key in the file is section and field:
`limits.sends_per_hour`. `SETTINGS` collects the rows; `config.loading` parses files and environment by
them, and docs/settings.md has the same tables: a test compares them.
"""

import os
import re
from collections.abc import Callable, Mapping
from operator import ge, le
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from postroom.core.errors import Invalid, NotFound

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


class ProjectOverride(NamedTuple):
    """What a project's file may do with a setting: in words, and as a test of the two values."""

    words: str
    allows: Callable[[Any, Any], bool]  # of the person's value and the project's


NOT_ALLOWED = ProjectOverride("nothing", lambda _person, _project: False)
MAY_LOWER = ProjectOverride("lower it", ge)
MAY_RAISE = ProjectOverride("raise it", le)
# One `false` is half of going live, so a project's file may not even repeat it.
MAY_REHEARSE = ProjectOverride("set it to true", lambda _person, project: project is not False)
MAY_FORBID = ProjectOverride("set it to false", ge)
MAY_REQUIRE = ProjectOverride("set it to true", le)
# An empty list of recipients means everybody; only an absent list of folders means all of them.
MAY_NARROW = ProjectOverride("narrow it", lambda person, project: bool(project) and (not person or set(project) <= set(person)))  # fmt: skip
MAY_NARROW_FOLDERS = ProjectOverride("narrow it", lambda person, project: person is None or set(project) <= set(person))  # fmt: skip
MAY_EXTEND = ProjectOverride("add to it", lambda person, project: set(person) <= set(project))
MAY_SET_DESK = ProjectOverride("set it to desk", lambda person, project: project in ("desk", person))  # fmt: skip


def whole(low: int, high: int) -> ValueKind:
    def read(raw: object, origin: Origin) -> int:
        if origin.file is None and isinstance(raw, str) and re.fullmatch("[0-9]{1,9}", raw):
            raw = int(raw)
        if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
            raise ValueError
        return raw

    return ValueKind(f"a whole number from {low} to {high}", read)


def matching(allowed: str, pattern: str) -> ValueKind:
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


def service_at(default: str) -> ValueKind:
    allowed = f"{default}, or an http(s) address on this machine such as http://127.0.0.1:8080"
    return matching(allowed, f"{re.escape(default)}|{_LOOPBACK}")


def read_switch(raw: object, _: Origin) -> bool | None:
    """Return true, false, or None for anything else: the mode counts that as true and warns."""
    if isinstance(raw, bool):
        return raw
    return {"true": True, "false": False}.get(raw.strip().lower()) if isinstance(raw, str) else None


def _read_boolean(raw: object, _: Origin) -> bool:
    if not isinstance(raw, bool):
        raise ValueError  # noqa: TRY004 - what readers raise
    return raw


def _read_path(raw: object, origin: Origin) -> Path:
    # `fsencode` raises a ValueError where half a character is in it.
    if not isinstance(raw, str) or not raw.strip() or b"\0" in os.fsencode(raw):
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

GMAIL_ENDPOINT = "https://gmail.googleapis.com"
GMAIL_TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address


class Setting(NamedTuple):
    """One row: where a setting is written, what is allowed, and what holds without it."""

    kind: ValueKind
    override: ProjectOverride
    meaning: str
    variable: str = ""  # of the environment; empty where only the file has it
    no_value: str = ""  # what holds without a value, in words, where the default does not say it
    key: str = ""  # its dotted key in the file; empty where only the environment has it
    default: object = None  # a relative path is relative to the working directory


# fmt: off
class TopLevelSettings(NamedTuple):
    state: Annotated[Path | None, Setting(PATH, NOT_ALLOWED, "The folder of the mailbox and the records, outside the vault.", variable="POSTROOM_STATE", no_value="the user's state folder, by desk id")] = None
    provider: Annotated[str, Setting(PROVIDER, NOT_ALLOWED, "Where the mail of the default account is kept: `local` or `gmail`.", variable="POSTROOM_PROVIDER")] = "local"
    address: Annotated[str, Setting(ADDRESS, NOT_ALLOWED, "The address of the default account.", variable="POSTROOM_ADDRESS")] = DEFAULT_ADDRESS
    default_account: Annotated[str, Setting(NAME, NOT_ALLOWED, "The account to use where none is named.", no_value="the only account")] = ""
    dry_run: Annotated[bool | None, Setting(SWITCH, MAY_REHEARSE, "Rehearse: show what would be sent, send nothing.", variable="DRY_RUN", no_value="rehearsal")] = None
    dev_mode: Annotated[bool | None, Setting(SWITCH, MAY_REHEARSE, "The same switch under its other name.", variable="DEV_MODE", no_value="rehearsal")] = None


class VaultSettings(NamedTuple):
    path: Annotated[Path, Setting(PATH, NOT_ALLOWED, "The root of the vault, a folder of Markdown notes.", variable="VAULT_PATH")] = Path("vault")
    room: Annotated[str, Setting(ROOM, NOT_ALLOWED, "A folder in the vault that holds all of Postroom's files.", no_value="the root of the vault")] = ""
    agent_folders: Annotated[tuple[str, ...] | None, Setting(FOLDERS, MAY_NARROW_FOLDERS, "Which of your own folders in the vault tools may write to.", no_value="all of your own")] = None
    active_content: Annotated[bool, Setting(BOOLEAN, MAY_FORBID, "Whether tools may write content that runs or loads something when a note is opened: remote embeds, HTML, code.")] = False

    @property
    def postroom_folder(self) -> Path:
        """The folder that has Postroom's folders in it: the vault's root, or `room` in it."""
        return self.path / self.room

    @property
    def room_prefix(self) -> str:
        """What a path in the vault starts with where it is Postroom's: empty, or `room/`."""
        return f"{self.room}/" if self.room else ""


class Account(NamedTuple):
    """A mailbox of the person's: its name here, its provider, its addresses."""

    name: str
    provider: Annotated[str, Setting(PROVIDER, NOT_ALLOWED, "Where this account's mail is kept: `local` or `gmail`.")] = "local"
    address: Annotated[str, Setting(ADDRESS, NOT_ALLOWED, "The address of this account.")] = DEFAULT_ADDRESS
    aliases: Annotated[tuple[str, ...], Setting(ADDRESSES, NOT_ALLOWED, "A list of other addresses that reach this account.", no_value="none")] = ()
    sending: Annotated[str, Setting(SENDING, NOT_ALLOWED, "How this account's letters are sent, if it is at Gmail: as a `draft` or as a `message`.", no_value="`gmail.sending`")] = ""


class LimitSettings(NamedTuple):
    sends_per_hour: Annotated[int, Setting(whole(0, 10_000), MAY_LOWER, "Letters that may be sent in one window; a further one is refused.", variable="POSTROOM_SENDS_PER_HOUR")] = 10
    window_seconds: Annotated[int, Setting(whole(1, 604_800), MAY_RAISE, "The window of `limits.sends_per_hour`.")] = 3600
    sends_per_pace: Annotated[int, Setting(whole(1, 10_000), MAY_LOWER, "Letters that may be sent in one pace; a further one waits.")] = 10
    pace_seconds: Annotated[int, Setting(whole(1, 86_400), MAY_RAISE, "The length of one pace.")] = 60
    recipients_per_letter: Annotated[int, Setting(whole(1, 1_000), MAY_LOWER, "Recipients of one letter, including Cc and Bcc.")] = 25
    recipients_per_hour: Annotated[int, Setting(whole(1, 100_000), MAY_LOWER, "Recipients of all letters in one window.")] = 50
    open_letters: Annotated[int, Setting(whole(1, 10_000), MAY_LOWER, "Letters of one agent that may wait at once.")] = 20
    proposals_per_hour: Annotated[int, Setting(whole(1, 100_000), MAY_LOWER, "Letters that one agent may propose in one window.")] = 30
    replies_per_thread: Annotated[int, Setting(whole(1, 1_000), MAY_LOWER, "Letters into one conversation in one window.")] = 5
    moves_per_hour: Annotated[int, Setting(whole(0, 100_000), MAY_LOWER, "Mails that all agents together may move or label in one window; a further one is refused.")] = 200


class RecipientSettings(NamedTuple):
    allow: Annotated[tuple[str, ...], Setting(RECIPIENTS, MAY_NARROW, "Who may get mail at all: addresses, and domains with their subdomains.", no_value="everybody")] = ()
    deny: Annotated[tuple[str, ...], Setting(RECIPIENTS, MAY_EXTEND, "Who never gets mail; this overrides `recipients.allow`.", no_value="nobody")] = ()


class AttachmentSettings(NamedTuple):
    folders: Annotated[tuple[Path, ...], Setting(PATHS, NOT_ALLOWED, "Folders that attachments may be taken from, besides the vault's `Outgoing/`.", no_value="none")] = ()


class NotifySettings(NamedTuple):
    desktop: Annotated[bool, Setting(BOOLEAN, NOT_ALLOWED, "Whether a new letter causes a desktop notification, where there is a desktop.")] = True
    command: Annotated[tuple[str, ...], Setting(COMMAND, NOT_ALLOWED, "A program that is run for each new letter instead, with JSON on its input.", no_value="none")] = ()


class ApprovalSettings(NamedTuple):
    required: Annotated[bool, Setting(BOOLEAN, MAY_REQUIRE, "Whether a person must approve each letter.")] = True
    trust: Annotated[str, Setting(TRUST, MAY_SET_DESK, "What counts as approval: `folder`, a moved note too; `desk`, only the terminal and the page.")] = "folder"
    undo_seconds: Annotated[int, Setting(whole(0, 86_400), MAY_RAISE, "How long an approved letter waits and can be recalled.")] = 10
    expiry_hours: Annotated[int, Setting(whole(1, 8_760), MAY_LOWER, "How long a letter waits for a verdict.")] = 72


class RunSettings(NamedTuple):
    interval_seconds: Annotated[int, Setting(whole(1, 86_400), NOT_ALLOWED, "How often `postroom run` looks for new mail.")] = 30


class PageSettings(NamedTuple):
    host: Annotated[str, Setting(HOST, NOT_ALLOWED, "The address that the page listens on; any but a loopback address needs a passphrase.")] = "127.0.0.1"
    port: Annotated[int, Setting(whole(0, 65_535), NOT_ALLOWED, "The port of the page; 0 takes a free one.")] = 8766
    origin: Annotated[str, Setting(WEB_ORIGIN, NOT_ALLOWED, "The address by which your own proxy or tunnel shows the page, such as `https://desk.example.org`; it needs a passphrase.", no_value="none")] = ""
    idle_minutes: Annotated[int, Setting(whole(1, 1_440), MAY_LOWER, "After how long without a click the page asks for the passphrase again, where it needs one.")] = 15


class TriageSettings(NamedTuple):
    model: Annotated[str, Setting(MODEL, NOT_ALLOWED, "The model that judges mail which no rule fits, such as `anthropic:NAME`, `openai:NAME` or `ollama:NAME`.", no_value="none")] = ""
    command: Annotated[tuple[str, ...], Setting(COMMAND, NOT_ALLOWED, "A program that judges instead: it reads a prompt and prints JSON.", no_value="none")] = ()
    endpoint: Annotated[str, Setting(SERVICE, NOT_ALLOWED, "The address of an OpenAI-compatible service or of Ollama.", no_value="the provider's own")] = ""
    timeout_seconds: Annotated[int, Setting(whole(1, 3_600), NOT_ALLOWED, "How long a model may take for one mail.")] = 120
    drafts_per_thread: Annotated[int, Setting(whole(0, 1_000), MAY_LOWER, "Answers that are drafted automatically in one conversation within a day.")] = 2


class GmailSettings(NamedTuple):
    credentials_path: Annotated[Path | None, Setting(PATH, NOT_ALLOWED, "The OAuth client's file.", variable="GMAIL_CREDENTIALS_PATH", no_value="`credentials.json` in the state folder, then in the working directory")] = None
    token_path: Annotated[Path | None, Setting(PATH, NOT_ALLOWED, "The OAuth token's file.", variable="GMAIL_TOKEN_PATH", no_value="`token.json` in the state folder, then in the working directory")] = None
    sending: Annotated[str, Setting(SENDING, NOT_ALLOWED, "How a letter is sent: as a `draft` that sending consumes, which proves what became of it; or as a `message`.")] = "draft"
    endpoint: Annotated[str, Setting(service_at(GMAIL_ENDPOINT), NOT_ALLOWED, "The Gmail service; any other must be on this machine.", variable="GMAIL_API_ENDPOINT")] = GMAIL_ENDPOINT
    token_uri: Annotated[str, Setting(service_at(GMAIL_TOKEN_URI), NOT_ALLOWED, "Where tokens are renewed; any other must be on this machine.", variable="GMAIL_TOKEN_URI")] = GMAIL_TOKEN_URI


CONFIG_FILE = Setting(PATH, NOT_ALLOWED, "Your settings file.", "POSTROOM_CONFIG", "the user's configuration folder")
# fmt: on
SECTIONS: dict[str, type[Any]] = {
    "limits": LimitSettings,
    "recipients": RecipientSettings,
    "attachments": AttachmentSettings,
    "notify": NotifySettings,
    "approvals": ApprovalSettings,
    "run": RunSettings,
    "desk": PageSettings,
    "triage": TriageSettings,
    "gmail": GmailSettings,
    "vault": VaultSettings,
}


def rows_of(section: type[Any], prefix: str) -> list[Setting]:
    return [
        section.__annotations__[name].__metadata__[0]._replace(key=prefix + name, default=default)
        for name, default in section._field_defaults.items()
    ]


SETTINGS: tuple[Setting, ...] = (
    CONFIG_FILE,
    *rows_of(TopLevelSettings, ""),
    *rows_of(Account, "accounts.NAME."),
    *(row for name, section in SECTIONS.items() for row in rows_of(section, f"{name}.")),
)


class Mode(NamedTuple):
    """Whether letters may be sent, which setting decided that, and warnings about values."""

    live: bool
    source: str
    warnings: tuple[str, ...] = ()


class Config(NamedTuple):
    file: Path  # the person's own, whether it exists or not
    vault: VaultSettings
    state: Path | None  # the state folder, where one is set; else each desk has one in `desks`
    desks: Path
    cwd: Path
    accounts: tuple[Account, ...]
    default_account: str
    mode: Mode
    limits: LimitSettings
    approvals: ApprovalSettings
    recipients: RecipientSettings
    attachments: AttachmentSettings
    notify: NotifySettings
    triage: TriageSettings
    run: RunSettings
    desk: PageSettings
    gmail: GmailSettings
    sources: Mapping[str, str]  # where each comes from, by key

    def account(self, name: str | None = None) -> Account:
        wanted = self.default_account if name is None else name
        for account in self.accounts:
            if account.name == wanted:
                return account
        known = ", ".join(account.name for account in self.accounts)
        raise NotFound(f"There is no account {printable(wanted)}.", remedy=f"Name one of: {known}.")

    def sends_by_draft(self, account: Account) -> bool:
        return (account.sending or self.gmail.sending) == "draft"

    def state_for(self, desk: str) -> Path:
        """Return the state folder of a desk; one that is set serves every desk."""
        return self.state or self.desks / desk

    def source(self, key: str) -> str:
        """Return where a value comes from: "default", a variable, or a key and its file."""
        if key not in self.sources:
            raise unknown_setting(key)
        return self.sources[key]


def unknown_setting(key: str, where: str = "") -> Invalid:
    """Return the refusal of a key that is not a setting, with the most similar key that is one."""
    from difflib import get_close_matches

    name = key.split(".")[1] if key.startswith("accounts.") else "NAME"
    keys = {row.key.replace("NAME", name) for row in SETTINGS if row.key}
    tables = {key.rpartition(".")[0] for key in keys} | {"accounts"}
    near = get_close_matches(key[:80], sorted((keys | tables) - {""}), n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    table, _, last = key.rpartition(".")
    if table and last in keys:
        hint = f"{last} belongs at the top of the file, above [{printable(table)}]. "
    return Invalid(
        f"{printable(key)}{where} is not a setting.", remedy=f"{hint}docs/settings.md has them all."
    )


def printable(text: str) -> str:
    """Return a name that somebody else wrote, fit for one line of a message."""
    return "".join(char if char.isprintable() else "?" for char in text[:80])
