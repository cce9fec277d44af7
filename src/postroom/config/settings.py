"""All settings: each is one row, the field of the section it belongs to.

A row has the field's type and default, the values that are allowed, what a project's file may do with
it, its meaning, and its environment variable, if any. The key in the file is section and field:
`limits.sends_per_hour`. `SETTINGS` collects the rows; `config.loading` parses files and environment by
them, and docs/settings.md has the same tables: a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from postroom.config import kinds
from postroom.config.kinds import DEFAULT_ADDRESS, ProjectOverride, ValueKind, whole
from postroom.core.errors import Invalid, NotFound
from postroom.core.values import dataclass

GMAIL_ENDPOINT = "https://gmail.googleapis.com"
GMAIL_TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address

NOT_ALLOWED, MAY_LOWER = ProjectOverride.NOT_ALLOWED, ProjectOverride.MAY_LOWER
MAY_RAISE, MAY_REHEARSE = ProjectOverride.MAY_RAISE, ProjectOverride.MAY_REHEARSE
Default = TypeVar("Default")


class Setting(NamedTuple):
    """One row: where a setting is written, what is allowed, and what holds without it."""

    key: str  # its dotted key in the file; empty where only the environment has it
    kind: ValueKind
    default: object  # a relative path is relative to the working directory
    override: ProjectOverride
    meaning: str
    variable: str = ""  # of the environment; empty where only the file has it
    no_value: str = ""  # what holds without a value, in words, where the default does not say it

    @property
    def default_text(self) -> str:
        """The default as documentation shows it; empty where `no_value` describes it."""
        if self.no_value:
            return ""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f"./{self.default}" if isinstance(self.default, Path) else str(self.default)


def setting(
    default: Default,
    kind: ValueKind,
    override: ProjectOverride,
    meaning: str,
    *,
    variable: str = "",
    no_value: str = "",
) -> Default:
    """Declare one setting as the field of a section."""
    row = Setting("", kind, default, override, meaning, variable, no_value)
    declared: Any = field(default=default, metadata={"setting": row})
    value: Default = declared
    return value


# fmt: off
@dataclass(frozen=True, slots=True)
class TopLevelSettings:
    """The keys at the top of the file, above all tables."""

    state: Path | None = setting(None, kinds.PATH, NOT_ALLOWED, "The folder of the mailbox and the records, outside the vault.", variable="POSTROOM_STATE", no_value="the user's state folder, by desk id")
    provider: str = setting("local", kinds.PROVIDER, NOT_ALLOWED, "Where the mail of the default account is kept: `local` or `gmail`.", variable="POSTROOM_PROVIDER")
    address: str = setting(DEFAULT_ADDRESS, kinds.ADDRESS, NOT_ALLOWED, "The address of the default account.", variable="POSTROOM_ADDRESS")
    default_account: str = setting("", kinds.NAME, NOT_ALLOWED, "The account to use where none is named.", no_value="the only account")
    dry_run: bool | None = setting(None, kinds.SWITCH, MAY_REHEARSE, "Rehearse: show what would be sent, send nothing.", variable="DRY_RUN", no_value="rehearsal")
    dev_mode: bool | None = setting(None, kinds.SWITCH, MAY_REHEARSE, "The same switch under its other name.", variable="DEV_MODE", no_value="rehearsal")


@dataclass(frozen=True, slots=True)
class VaultSettings:
    """Where the notes are, and what tools may write there."""

    path: Path = setting(Path("vault"), kinds.PATH, NOT_ALLOWED, "The root of the vault, a folder of Markdown notes.", variable="VAULT_PATH")
    room: str = setting("", kinds.ROOM, NOT_ALLOWED, "A folder in the vault that holds all of Postroom's files.", no_value="the root of the vault")
    agent_folders: tuple[str, ...] | None = setting(None, kinds.FOLDERS, ProjectOverride.MAY_NARROW_FOLDERS, "Which of your own folders in the vault tools may write to.", no_value="all of your own")
    active_content: bool = setting(False, kinds.BOOLEAN, ProjectOverride.MAY_FORBID, "Whether tools may write content that runs or loads something when a note is opened: remote embeds, HTML, code.")

    @property
    def postroom_folder(self) -> Path:
        """The folder that has Postroom's folders in it: the vault's root, or `room` in it."""
        return self.path / self.room

    @property
    def room_prefix(self) -> str:
        """What a path in the vault starts with where it is Postroom's: empty, or `room/`."""
        return f"{self.room}/" if self.room else ""


@dataclass(frozen=True, slots=True)
class Account:
    """A mailbox of the person's: its name here, its provider, its addresses."""

    name: str
    provider: str = setting("local", kinds.PROVIDER, NOT_ALLOWED, "Where this account's mail is kept: `local` or `gmail`.")
    address: str = setting(DEFAULT_ADDRESS, kinds.ADDRESS, NOT_ALLOWED, "The address of this account.")
    aliases: tuple[str, ...] = setting((), kinds.ADDRESSES, NOT_ALLOWED, "A list of other addresses that reach this account.", no_value="none")
    sending: str = setting("", kinds.SENDING, NOT_ALLOWED, "How this account's letters are sent, if it is at Gmail: as a `draft` or as a `message`.", no_value="`gmail.sending`")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How many letters may be sent in which time."""

    sends_per_hour: int = setting(10, whole(0, 10_000), MAY_LOWER, "Letters that may be sent in one window; a further one is refused.", variable="POSTROOM_SENDS_PER_HOUR")
    window_seconds: int = setting(3600, whole(1, 604_800), MAY_RAISE, "The window of `limits.sends_per_hour`.")
    sends_per_pace: int = setting(10, whole(1, 10_000), MAY_LOWER, "Letters that may be sent in one pace; a further one waits.")
    pace_seconds: int = setting(60, whole(1, 86_400), MAY_RAISE, "The length of one pace.")
    recipients_per_letter: int = setting(25, whole(1, 1_000), MAY_LOWER, "Recipients of one letter, including Cc and Bcc.")
    recipients_per_hour: int = setting(50, whole(1, 100_000), MAY_LOWER, "Recipients of all letters in one window.")
    open_letters: int = setting(20, whole(1, 10_000), MAY_LOWER, "Letters of one agent that may wait at once.")
    proposals_per_hour: int = setting(30, whole(1, 100_000), MAY_LOWER, "Letters that one agent may propose in one window.")
    replies_per_thread: int = setting(5, whole(1, 1_000), MAY_LOWER, "Letters into one conversation in one window.")
    moves_per_hour: int = setting(200, whole(0, 100_000), MAY_LOWER, "Mails that all agents together may move or label in one window; a further one is refused.")


@dataclass(frozen=True, slots=True)
class RecipientSettings:
    """Who may get mail, and who may not."""

    allow: tuple[str, ...] = setting((), kinds.RECIPIENTS, ProjectOverride.MAY_NARROW, "Who may get mail at all: addresses, and domains with their subdomains.", no_value="everybody")
    deny: tuple[str, ...] = setting((), kinds.RECIPIENTS, ProjectOverride.MAY_EXTEND, "Who never gets mail; this overrides `recipients.allow`.", no_value="nobody")


@dataclass(frozen=True, slots=True)
class AttachmentSettings:
    """Where attachments of letters may come from."""

    folders: tuple[Path, ...] = setting((), kinds.PATHS, NOT_ALLOWED, "Folders that attachments may be taken from, besides the vault's `Outgoing/`.", no_value="none")


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """How the person is notified of a new letter."""

    desktop: bool = setting(True, kinds.BOOLEAN, NOT_ALLOWED, "Whether a new letter causes a desktop notification, where there is a desktop.")
    command: tuple[str, ...] = setting((), kinds.COMMAND, NOT_ALLOWED, "A program that is run for each new letter instead, with JSON on its input.", no_value="none")


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """What a letter needs before it is sent."""

    required: bool = setting(True, kinds.BOOLEAN, ProjectOverride.MAY_REQUIRE, "Whether a person must approve each letter.")
    trust: str = setting("folder", kinds.TRUST, ProjectOverride.MAY_SET_DESK, "What counts as approval: `folder`, a moved note too; `desk`, only the terminal and the page.")
    undo_seconds: int = setting(10, whole(0, 86_400), MAY_RAISE, "How long an approved letter waits and can be recalled.")
    expiry_hours: int = setting(72, whole(1, 8_760), MAY_LOWER, "How long a letter waits for a verdict.")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How often the orchestrator looks for mail."""

    interval_seconds: int = setting(30, whole(1, 86_400), NOT_ALLOWED, "How often `postroom run` looks for new mail.")


@dataclass(frozen=True, slots=True)
class PageSettings:
    """Where the desk is served for browsers."""

    host: str = setting("127.0.0.1", kinds.HOST, NOT_ALLOWED, "The address that the page listens on; any but a loopback address needs a passphrase.")
    port: int = setting(8766, whole(0, 65_535), NOT_ALLOWED, "The port of the page; 0 takes a free one.")
    origin: str = setting("", kinds.WEB_ORIGIN, NOT_ALLOWED, "The address by which your own proxy or tunnel shows the page, such as `https://desk.example.org`; it needs a passphrase.", no_value="none")
    idle_minutes: int = setting(15, whole(1, 1_440), MAY_LOWER, "After how long without a click the page asks for the passphrase again, where it needs one.")


@dataclass(frozen=True, slots=True)
class TriageSettings:
    """Which model judges mail that no rule fits, and how many answers are drafted."""

    model: str = setting("", kinds.MODEL, NOT_ALLOWED, "The model that judges mail which no rule fits, such as `anthropic:NAME`, `openai:NAME` or `ollama:NAME`.", no_value="none")
    command: tuple[str, ...] = setting((), kinds.COMMAND, NOT_ALLOWED, "A program that judges instead: it reads a prompt and prints JSON.", no_value="none")
    endpoint: str = setting("", kinds.SERVICE, NOT_ALLOWED, "The address of an OpenAI-compatible service or of Ollama.", no_value="the provider's own")
    timeout_seconds: int = setting(120, whole(1, 3_600), NOT_ALLOWED, "How long a model may take for one mail.")
    drafts_per_thread: int = setting(2, whole(0, 1_000), MAY_LOWER, "Answers that are drafted automatically in one conversation within a day.")


@dataclass(frozen=True, slots=True)
class GmailSettings:
    """Where Gmail and the files with its tokens are."""

    credentials_path: Path | None = setting(None, kinds.PATH, NOT_ALLOWED, "The OAuth client's file.", variable="GMAIL_CREDENTIALS_PATH", no_value="`credentials.json` in the state folder, then in the working directory")
    token_path: Path | None = setting(None, kinds.PATH, NOT_ALLOWED, "The OAuth token's file.", variable="GMAIL_TOKEN_PATH", no_value="`token.json` in the state folder, then in the working directory")
    sending: str = setting("draft", kinds.SENDING, NOT_ALLOWED, "How a letter is sent: as a `draft` that sending consumes, which proves what became of it; or as a `message`.")
    endpoint: str = setting(GMAIL_ENDPOINT, kinds.endpoint(GMAIL_ENDPOINT), NOT_ALLOWED, "The Gmail service; any other must be on this machine.", variable="GMAIL_API_ENDPOINT")
    token_uri: str = setting(GMAIL_TOKEN_URI, kinds.endpoint(GMAIL_TOKEN_URI), NOT_ALLOWED, "Where tokens are renewed; any other must be on this machine.", variable="GMAIL_TOKEN_URI")


CONFIG_FILE = Setting("", kinds.PATH, None, NOT_ALLOWED, "Your settings file.", "POSTROOM_CONFIG", "the user's configuration folder")
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
    """Return the rows of a section, with their keys."""
    found = [(each.name, each.metadata.get("setting")) for each in fields(section)]
    return [row._replace(key=prefix + name) for name, row in found if row is not None]


SETTINGS: tuple[Setting, ...] = (
    CONFIG_FILE,
    *rows_of(TopLevelSettings, ""),
    *rows_of(Account, "accounts.NAME."),
    *(row for name, section in SECTIONS.items() for row in rows_of(section, f"{name}.")),
)


@dataclass(frozen=True, slots=True)
class Mode:
    """Whether letters may be sent, which setting decided that, and warnings about values."""

    live: bool
    source: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """All settings that hold, each with where it came from."""

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
    sources: Mapping[str, str] = field(repr=False, hash=False)

    def account(self, name: str | None = None) -> Account:
        """Return the account of this name, or the default one."""
        wanted = self.default_account if name is None else name
        for account in self.accounts:
            if account.name == wanted:
                return account
        known = ", ".join(account.name for account in self.accounts)
        raise NotFound(f"There is no account {printable(wanted)}.", remedy=f"Name one of: {known}.")

    def sends_by_draft(self, account: Account) -> bool:
        """Return whether this account's letters are sent as drafts, if it is at Gmail."""
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
    """Return the refusal of a key that is no setting, with the most similar key that is one."""
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
        f"{printable(key)}{where} is not a setting.",
        remedy=f"{hint}docs/settings.md has them all.",
    )


def printable(text: str) -> str:
    """Return a name that somebody else wrote, fit for one line of a message."""
    return "".join(char if char.isprintable() else "?" for char in text[:80])
