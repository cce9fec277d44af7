"""`postroom agentmail`: the original's commands, with its texts and exit codes.

Hooks run `status` and `receive --hook` at every step of an agent, so this is reached before click is
imported, and reads its arguments as Go programs do: `-x` is `--x`, and the first word that is no flag
ends them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from postroom.agents.files import PATIENCE as USUAL
from postroom.agents.mail import AgentMail, SelfAddressed
from postroom.agents.record import STATUSES
from postroom.agents.roster import Caller, NotInTmux
from postroom.core.errors import Invalid, PostroomError, Unavailable
from postroom.store.files import write_all

OUTSIDE: Final = 2
PATIENCE: Final = 0.25  # seconds that stdin has to say something where an argument says it too
HOOK_PATIENCE: Final = 2.0  # seconds that a hook waits for another process

ROOT_HELP: Final = """\
USAGE
  postroom agentmail <command> [flags] [arguments]

Letters between the agents that work in one git repository. In tmux an agent's
name is its window's; elsewhere set AGENTMAIL_NAME, or give --as NAME.

COMMANDS
  send        Send a message: send <recipient> <message>, or by stdin
  receive     Read the oldest unread message
  recipients  List who can be written to
  status      Say whether you can be disturbed: ready, work or offline
  mailman     Tell agents that are ready of their mail, until it is stopped
  onboard     Print what an agent should know of all this
  cleanup     Remove what was read and who is gone
"""


class Flag(NamedTuple):
    """A flag of a command."""

    about: str
    value: str = ""  # what it takes, if anything
    means: str = ""  # the flag that it is another name of


JSON: Final = Flag("write JSON")
AS: Final = Flag("your name, where there is no tmux", "NAME")
PERSON: Final = Flag("as yourself, the person, in a terminal")
COMMANDS: Final[dict[str, tuple[str, dict[str, Flag]]]] = {
    "send": ("send [flags] <recipient> <message>", {
        "r": Flag("recipient", "NAME", "recipient"), "recipient": Flag("recipient", "NAME"),
        "m": Flag("message", "TEXT", "message"), "message": Flag("message", "TEXT"),
        "as": AS, "person": PERSON, "json": JSON,
    }),
    "receive": ("receive [flags]", {
        "hook": Flag("for hooks: mail on stderr with exit code 2"),
        "fenced": Flag("between two marks, as what it is: data"),
        "as": AS, "person": PERSON, "json": JSON,
    }),
    "recipients": ("recipients [flags]", {"as": AS, "json": JSON}),
    "status": ("status [flags] <ready|work|offline>", {
        "as": AS, "hook": Flag("for hooks: silent, and soon over, whatever is wrong"),
    }),
    "mailman": ("mailman [flags]", {"daemon": Flag("in the background")}),
    "onboard": ("onboard", {}),
    "cleanup": ("cleanup [flags]", {
        "stale-hours": Flag("drop agents not heard of for so long (default 48)", "N"),
        "delivered-hours": Flag("drop read messages older than this (default 2)", "N"),
        "dry-run": Flag("say what would be done"), "json": JSON,
    }),
}  # fmt: skip


TRUE: Final = ("true", "1", "t", "T", "TRUE", "True")
FALSE: Final = ("false", "0", "f", "F", "FALSE", "False")


class Usage(Exception):
    """Arguments that are none."""


class Asked(NamedTuple):
    """What a command was called with."""

    words: list[str]
    given: dict[str, str]
    environ: Mapping[str, str]
    closed: tuple[int, ...] = ()  # of the three standard ones

    def has(self, flag: str) -> bool:
        """Whether a flag was given that takes nothing."""
        return self.given.get(flag, "false") in TRUE

    @property
    def mail(self) -> AgentMail:
        """The agent mail of where we are."""
        return AgentMail(os.getcwd(), self.environ)


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    closed = _complete()
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        if name and name.lstrip("-") not in ("h", "help"):
            flag = name.startswith("-")
            what = "flag provided but not defined: -" if flag else "unknown command "
            _err(f"{what}{_plain(name.lstrip('-') if flag else repr(name))}")
        _err(ROOT_HELP + "\nRun 'agentmail <command> --help' for usage.")
        if name.lstrip("-") in ("h", "help") and name.startswith("-"):
            _err("error: error parsing commandline arguments: flag: help requested")
        return 1
    usage, flags = COMMANDS[name]
    try:
        words, given = _parsed(arguments[1:], flags)
    except Usage as wrong:
        why = str(wrong)
        if why != "flag: help requested":
            _err(why)
        rows = [
            f"  --{flag}{f' {about.value}' if about.value else ''}".ljust(24) + about.about
            for flag, about in flags.items()
        ]
        _err("\n".join([f"USAGE\n  postroom agentmail {usage}", *(["", "FLAGS"] if rows else []), *rows, ""]))  # fmt: skip
        _err(f"error: error parsing commandline arguments: {why}")
        return 1
    asked = Asked(words, given, os.environ, closed)
    try:
        return _FUNCTIONS[name](asked)
    except NotInTmux as outside:
        return _failed(asked, outside.message, OUTSIDE)
    except PostroomError as error:
        return _failed(asked, error.message, 1)
    except OSError as why:
        return _failed(asked, f"{why.filename or name}: {(why.strerror or str(why)).lower()}", 1)
    except Exception as bug:  # noqa: BLE001 - a hook is silent whatever is wrong
        return _failed(asked, f"something is wrong inside Postroom ({type(bug).__name__})", 1)


def _complete() -> tuple[int, ...]:
    """Open what is closed of the three standard streams: else a mailbox would become one of them."""
    closed = []
    for handle in (0, 1, 2):
        try:
            os.fstat(handle)
        except OSError:
            closed.append(handle)
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    return tuple(closed)


def _parsed(
    arguments: Sequence[str], flags: Mapping[str, Flag]
) -> tuple[list[str], dict[str, str]]:
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise Usage(f"bad flag syntax: {_plain(word)}")
        if name not in flags:
            known = "flag: help requested" if name in ("h", "help") else ""
            raise Usage(known or f"flag provided but not defined: -{_plain(name)}")
        about = flags[name]
        if about.value and not equals:
            if not rest:
                raise Usage(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        given[about.means or name] = _checked(
            name, about, value if equals or about.value else "true"
        )
    return rest, given


def _checked(name: str, about: Flag, value: str) -> str:
    if not about.value and value not in (*TRUE, *FALSE):
        raise Usage(f'invalid boolean value "{_plain(value)}" for -{name}: parse error')
    if about.value == "N" and _number(value) is None:
        raise Usage(f'invalid value "{_plain(value)}" for flag -{name}: parse error')
    return value


def _number(value: str) -> int | None:
    """Return a number as Go programs read one: also 0x10 and 1_000."""
    try:
        found = int(value, 0)
    except ValueError:
        return None
    return found if abs(found) < 10**9 and value == value.strip() else None


def _failed(asked: Asked, message: str, code: int) -> int:
    if asked.has("hook"):
        return 0  # a hook that cannot help is silent
    _err(f"error: {_plain(message)}")
    return code


# Commands


def _send(asked: Asked) -> int:
    if asked.has("person"):
        from postroom.cli.voice import send

        return send(asked)
    mail = asked.mail
    if not asked.environ.get("TMUX"):
        mail.me(asked.given.get("as", ""))  # before anything else is looked at
    recipient, text = addressed(asked)
    if not recipient:
        _err("error: missing required arguments: recipient message")
        return 1
    if not text:
        _err("error: no message provided\nusage: agentmail send <recipient> <message>")
        return 1
    me = _me(asked, mail)
    try:
        sent = mail.send(me, recipient, text)
    except SelfAddressed:
        return _failed(asked, "recipient not found", 1)
    return _print({"message_id": sent.id}, f"Message #{sent.id} sent\n", asked)


def addressed(asked: Asked) -> tuple[str, str]:
    """Return to whom, and what: flags first, then words; what stdin says wins over the words."""
    words = list(asked.words)
    given = asked.given
    recipient = given.get("recipient") or (words.pop(0) if words else "")
    text = given.get("message") or (words.pop(0) if words else "")
    if any(word.lstrip("-") == "person" and word.startswith("-") for word in words):
        raise Invalid("flags come before words: send --person <recipient> <message>")
    if words:
        _err(f"Note: not sent: {_plain(' '.join(words))[:60]!r}. Put the message in quotes.")
    return recipient, (_stdin(bool(text)) or text) if recipient else text


def _stdin(known: bool) -> str:
    """Return what is piped in, without its last line end; not waiting long where it is not needed."""
    import select
    import stat

    try:
        if stat.S_ISCHR(os.fstat(0).st_mode):
            return ""
        if known and not select.select([0], [], [], PATIENCE)[0]:
            return ""  # an agent's shell may leave it open for ever
        pieces = []
        while piece := os.read(0, 1 << 20):
            pieces.append(piece)
    except OSError as why:
        if known:
            return ""
        raise Unavailable(f"failed to read stdin: {(why.strerror or '').lower()}") from why
    return b"".join(pieces).decode("utf-8", "replace").removesuffix("\n")


def _me(asked: Asked, mail: AgentMail) -> Caller:
    given = asked.given.get("as", "")
    me = mail.me(given)
    if given and me.windows is not None and me.name != given:
        raise Invalid(f"in tmux an agent's name is its window's: {me.name}, not {given}")
    return me


def _receive(asked: Asked) -> int:
    if asked.has("person"):
        from postroom.cli.voice import receive

        return receive(asked)
    mail = asked.mail
    me = _me(asked, mail)
    hook = asked.has("hook")
    if (2 if hook else 1) in asked.closed:
        raise Unavailable("there is nobody to show it to: the output is closed")
    taken = None
    if not me.name or mail.has_mail(me):
        from postroom.cli.voice import shown  # before it is taken: what follows is to be short

        mail.record_read(me, 0.5)
        taken = mail.take(me, patience=HOOK_PATIENCE if hook else USUAL)
    if taken is None:
        return (
            0 if hook else _print({"status": "No unread messages"}, "No unread messages\n", asked)
        )
    try:
        data, code = shown(mail, taken.message, me.name, asked)
    except BaseException:
        taken.release()
        raise
    patience = HOOK_PATIENCE if hook else USUAL
    # It ends as soon as it is marked: whoever sees it end otherwise has not got it.
    taken.deliver(2 if hook else 1, data, patience=patience, done=lambda: os._exit(code))
    return code


def _recipients(asked: Asked) -> int:
    mail = asked.mail
    try:
        me = _me(asked, mail)
    except NotInTmux:
        return _failed(asked, "not running inside a tmux session", OUTSIDE)
    names = mail.recipients(me)
    listed = [{"name": name, "is_current": name == me.name} for name in names]
    text = "".join(f"{_plain(name)}{' [you]' if name == me.name else ''}\n" for name in names)
    return _print({"recipients": listed}, text, asked)


def _status(asked: Asked) -> int:
    mail = asked.mail
    if not asked.environ.get("TMUX"):
        try:
            mail.me(asked.given.get("as", ""))
        except NotInTmux:
            return 0
    if asked.has("hook") and asked.words[:1] not in ([one] for one in STATUSES):
        return 0
    if not asked.words:
        _err(
            "error: missing required argument: status\nusage: agentmail status <ready|work|offline>"
        )
        return 1
    status = asked.words[0]
    if status not in STATUSES:
        _err(f"Invalid status: {_plain(status)}. Valid: ready, work, offline")
        return 1
    patience = HOOK_PATIENCE if asked.has("hook") else USUAL
    mail.set_status(_me(asked, mail), status, patience)
    return 0


def _mailman(asked: Asked) -> int:
    from postroom.agents.mailman import main as mailman

    return mailman(os.getcwd(), os.environ, background=asked.has("daemon"), say=_say, err=_err)


def _onboard(_asked: Asked) -> int:
    from postroom import agents

    with open(os.path.join(agents.__path__[0], "onboard.md"), encoding="utf-8") as file:
        return _print({}, file.read(), _asked)


def _cleanup(asked: Asked) -> int:
    from postroom.agents.cleanup import cleanup

    stale = _number(asked.given.get("stale-hours", "48")) or 0
    delivered = _number(asked.given.get("delivered-hours", "2")) or 0
    dry_run = asked.has("dry-run")
    done = cleanup(os.getcwd(), os.environ, stale, delivered, dry_run=dry_run, err=_err)
    return _print(done._asdict(), done.describe(dry_run=dry_run), asked)


# Words in and out


def _print(values: Mapping[str, object], text: str, asked: Asked) -> int:
    if asked.has("json"):
        import json

        text = json.dumps(values) + "\n"
    write_all(1, text.encode("utf-8", "replace"))
    return 0


def _say(text: str) -> None:
    write_all(1, text.encode("utf-8", "replace") + b"\n")


def _err(text: str) -> None:
    try:
        write_all(2, text.encode("utf-8", "replace") + b"\n")
    except OSError:
        return  # there is nobody to tell


def _plain(text: str) -> str:
    """Return what somebody else may have named, without signs that a terminal obeys."""
    if text.isprintable():
        return text
    from postroom.core.text import one_line

    return one_line(text)


_FUNCTIONS: Final[dict[str, Callable[[Asked], int]]] = {
    "send": _send,
    "receive": _receive,
    "recipients": _recipients,
    "status": _status,
    "mailman": _mailman,
    "onboard": _onboard,
    "cleanup": _cleanup,
}
