"""`postroom agentmail`: the original's commands, with its texts and exit codes.

Hooks run `status` and `receive --hook` at every step of an agent, so this is reached before click is
imported, and each command imports what it needs. Arguments are read as Go programs read them: `-x` is
`--x`, and the first word that is not a flag ends the flags.
"""

from __future__ import annotations

import json
import os
import select
import stat
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from postroom.agents.folder import PATIENCE as USUAL
from postroom.agents.mail import SEAL, AgentLetter, AgentMail, SelfAddressed, cleanup
from postroom.agents.record import STATUSES, AgentMessage
from postroom.agents.roster import (
    PERSON,
    AgentCaller,
    NotInTmux,
    describe_sender,
    everybody,
    identify,
    is_sealed,
    person,
    seal,
)
from postroom.core.errors import Denied, Invalid, NotFound, PostroomError, Unavailable
from postroom.store.files import write_all

OUTSIDE: Final = 2  # the exit code outside tmux and without a name
PATIENCE: Final = 0.25  # seconds to wait for stdin where an argument has the message too
HOOK_PATIENCE: Final = 2.0  # seconds that a hook waits for another process
HOOK_CHARACTERS: Final = 65_536  # of a message that a hook brings into a context
HELP: Final = ("h", "help")
TRUE: Final = ("true", "1", "t", "T", "TRUE", "True")
FALSE: Final = ("false", "0", "f", "F", "FALSE", "False")
SHORT: Final = {"r": "recipient", "m": "message"}
NUMBERS: Final = ("stale-hours", "delivered-hours")
WITH_VALUE: Final = (*SHORT, *SHORT.values(), "as", *NUMBERS)


class Invocation(NamedTuple):
    words: list[str]
    given: dict[str, str]
    closed: tuple[int, ...] = ()  # descriptors of 0, 1 and 2 that were closed

    def has(self, flag: str) -> bool:
        return self.given.get(flag, "false") in TRUE

    @property
    def patience(self) -> float:
        return HOOK_PATIENCE if self.has("hook") else USUAL

    @property
    def mail(self) -> AgentMail:
        return AgentMail(os.getcwd(), os.environ)

    def identify(self) -> AgentCaller:
        """Return who calls; a name that is not the tmux window's is refused."""
        given = self.given.get("as", "")
        me = identify(os.environ, given)
        if given and me.windows is not None and me.name != given:
            raise Invalid(f"in tmux an agent's name is its window's: {me.name}, not {given}")
        return me


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    closed = _open_closed_streams()
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        _explain_commands(name)
        return 1
    run, flags = COMMANDS[name]
    try:
        words, given = _parse(arguments[1:], flags.split())
    except Invalid as wrong:
        _explain_flags(name, wrong.message)
        return 1
    call = Invocation(words, given, closed)
    try:
        return run(call)
    except NotInTmux as outside:
        return _fail(call, outside.message, OUTSIDE)
    except PostroomError as error:
        return _fail(call, error.message)
    except OSError as why:
        return _fail(call, f"{why.filename or name}: {(why.strerror or str(why)).lower()}")
    except Exception as bug:  # noqa: BLE001 - a hook is silent whatever is wrong
        return _fail(call, f"something is wrong inside Postroom ({type(bug).__name__})")


def _open_closed_streams() -> tuple[int, ...]:
    """Open what is closed of stdin, stdout and stderr, or a mailbox would get its number."""
    closed = []
    for handle in (0, 1, 2):
        try:
            os.fstat(handle)
        except OSError:
            closed.append(handle)
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    return tuple(closed)


def _explain_commands(name: str) -> None:
    is_flag, plain = name.startswith("-"), name.lstrip("-")
    if name and plain not in HELP:
        problem = "flag provided but not defined: -" if is_flag else "unknown command "
        _err(f"{problem}{_printable(plain if is_flag else repr(name))}")
    _err(_help(name))
    if is_flag and plain in HELP:
        _err("error: error parsing commandline arguments: flag: help requested")


def _explain_flags(command: str, problem: str) -> None:
    if problem != "flag: help requested":
        _err(problem)
    _err(f"{_help(command)}\n\nerror: error parsing commandline arguments: {problem}")


def _help(command: str) -> str:
    """Return the help of a command, or of all of them where there is none of this name."""
    general, *sections = _read_text("texts", "agentmail.txt").rstrip().split("\n\n# ")
    return dict(section.split("\n", 1) for section in sections).get(command, general)


def _parse(arguments: Sequence[str], flags: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words after the flags, and the values of the flags."""
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise Invalid(f"bad flag syntax: {_printable(word)}")
        if name not in flags:
            problem = f"flag provided but not defined: -{_printable(name)}"
            raise Invalid("flag: help requested" if name in HELP else problem)
        if not equals and name in WITH_VALUE and not rest:
            raise Invalid(f"flag needs an argument: -{name}")
        if not equals:
            value = rest.pop(0) if name in WITH_VALUE else "true"
        if name not in WITH_VALUE and value not in (*TRUE, *FALSE):
            raise Invalid(f'invalid boolean value "{_printable(value)}" for -{name}: parse error')
        if name in NUMBERS and _number(value) is None:
            raise Invalid(f'invalid value "{_printable(value)}" for flag -{name}: parse error')
        given[SHORT.get(name, name)] = value
    return rest, given


def _number(value: str) -> int | None:
    """Return a number as Go programs read one: also 0x10 and 1_000."""
    try:
        found = int(value, 0)
    except ValueError:
        return None
    return found if abs(found) < 10**9 and value == value.strip() else None


def _send(call: Invocation) -> int:
    if call.has("person"):
        return _send_as_person(call)
    if not os.environ.get("TMUX"):
        identify(os.environ, call.given.get("as", ""))  # refuses before anything else
    recipient, text = _read_message(call)
    if not recipient:
        raise Invalid("missing required arguments: recipient message")
    if not text:
        _err("error: no message provided\nusage: agentmail send <recipient> <message>")
        return 1
    try:
        sent = call.mail.send(call.identify(), recipient, text)
    except SelfAddressed:
        return _fail(call, "recipient not found")
    return _print({"message_id": sent.id}, f"Message #{sent.id} sent\n", call)


def _read_message(call: Invocation) -> tuple[str, str]:
    """Return recipient and text: from flags first, then from words; stdin overrides the words."""
    words, given = list(call.words), call.given
    recipient = given.get("recipient") or (words.pop(0) if words else "")
    text = given.get("message") or (words.pop(0) if words else "")
    if any(word.lstrip("-") == "person" and word.startswith("-") for word in words):
        raise Invalid("flags come before words: send --person <recipient> <message>")
    if words:
        _err(f"Note: not sent: {_printable(' '.join(words))[:60]!r}. Put the message in quotes.")
    return recipient, (_read_stdin(is_optional=bool(text)) or text) if recipient else text


def _read_stdin(*, is_optional: bool) -> str:
    """Return what is piped in, without its last line end; wait only briefly where it is optional."""
    try:
        if stat.S_ISCHR(os.fstat(0).st_mode):
            return ""
        if is_optional and not select.select([0], [], [], PATIENCE)[0]:
            return ""  # an agent's shell may leave it open for ever
        pieces = []
        while piece := os.read(0, 1 << 20):
            pieces.append(piece)
    except OSError as why:
        if is_optional:
            return ""
        raise Unavailable(f"failed to read stdin: {(why.strerror or '').lower()}") from why
    return b"".join(pieces).decode("utf-8", "replace").removesuffix("\n")


def _send_as_person(call: Invocation) -> int:
    from postroom import wiring
    from postroom.cli.ui import confirm, passphrase_if_needed
    from postroom.core.text import clean, one_line
    from postroom.desk.recorder import Call
    from postroom.wiring.desk import find_desk

    recipient, text = _read_message(call)
    if not recipient or not text:
        raise Denied("say to whom, and what: postroom agentmail send --person NAME TEXT")
    mail, config, me = call.mail, wiring.settings(), person(os.environ)
    if recipient not in everybody(mail.find_folder(), me):
        raise NotFound("recipient not found: `postroom agentmail recipients` lists who is there")
    _err(f"To {one_line(recipient)}, as yourself:\n{clean(text).text}")
    if not confirm("Send this?"):
        raise Denied("nothing was sent, as you said")
    with find_desk(config) as desk:
        if desk is not None:
            desk.trust.prove(passphrase_if_needed(desk))
        key, root = wiring.voice_key(config, make=True), mail.folder.root
        sent = mail.send(
            me, recipient, text, about=lambda message: {SEAL: seal(key, root, message)}
        )
        if desk is not None:
            desk.recorder.write(Call("send_message", "", "person"), target=recipient)
    return _print({"message_id": sent.id}, f"Message #{sent.id} sent\n", call)


def _receive(call: Invocation) -> int:
    mail = call.mail
    hook = call.has("hook")
    if call.has("person"):
        from postroom.cli.ui import open_terminal

        with open_terminal("Run it in a terminal of your own."):
            me = AgentCaller(PERSON)
    else:
        me = call.identify()
    if (2 if hook else 1) in call.closed:
        raise Unavailable("there is nobody to show it to: the output is closed")
    delivery = None
    if not me.name or mail.has_mail(me):
        if me.name != PERSON:
            mail.record_read(me, 0.5)
        delivery = mail.take(me, patience=call.patience)
    if delivery is None:
        status = "No unread messages"
        return 0 if hook else _print({"status": status}, f"{status}\n", call)
    with delivery:
        data, code = _format(mail, delivery.message, me.name, call)
    # The process ends as soon as the message is marked: one that ends otherwise has not delivered it.
    delivery.deliver(2 if hook else 1, data, patience=call.patience, done=lambda: os._exit(code))
    return code


def _format(
    mail: AgentMail, message: AgentMessage, owner: str, call: Invocation
) -> tuple[bytes, int]:
    from postroom.core.text import clean, one_line

    letter = mail.letter(message, owner)
    by_person = _is_by_person(mail, letter)
    sender, text = describe_sender(message.sender, proven=by_person), clean(message.text).text
    hook = call.has("hook")
    if call.has("json") and not hook:
        values = {"from": sender, "id": message.id, "message": text, "thread": letter.thread}
        values |= {"reply_to": letter.reply_to, "sent_at": message.created}
        return json.dumps(values | {"person": by_person}).encode() + b"\n", 0
    if hook and len(text) > HOOK_CHARACTERS:
        more, path = len(text) - HOOK_CHARACTERS, one_line(mail.box(owner).path)
        text = f"{text[:HOOK_CHARACTERS]}\n[cut: {more} characters more in {path}]"
    text = f"From: {sender}\nID: {one_line(message.id)}\n\n{text}"
    if call.has("fenced"):
        from postroom.tools.fence import NOTICE, PERSONS, fenced, mark

        text = fenced(text, mark(text), PERSONS if by_person else NOTICE)
    if hook:
        return f"You got new mail\n{text}".encode("utf-8", "replace"), 2
    text += "\n" if os.isatty(1) else ""  # a prompt comes next
    return text.encode("utf-8", "replace"), 0


def _is_by_person(mail: AgentMail, letter: AgentLetter) -> bool:
    if not letter.seal:
        return False
    from postroom import wiring

    try:
        key = wiring.voice_key(wiring.settings(), make=False)
    except PostroomError:
        return False
    return is_sealed(key, mail.folder.root, letter.message, letter.seal)


def _recipients(call: Invocation) -> int:
    mail = call.mail
    try:
        me = call.identify()
    except NotInTmux:
        return _fail(call, "not running inside a tmux session", OUTSIDE)
    names = mail.recipients(me)
    values = [{"name": name, "is_current": name == me.name} for name in names]
    rows = [f"{_printable(name)}{' [you]' if name == me.name else ''}\n" for name in names]
    return _print({"recipients": values}, "".join(rows), call)


def _status(call: Invocation) -> int:
    """Set the caller's status. Outside tmux, do nothing for a caller without a name: hooks run there too."""
    if not os.environ.get("TMUX"):
        try:
            identify(os.environ, call.given.get("as", ""))
        except NotInTmux:
            return 0
    status = call.words[0] if call.words else ""
    if status in STATUSES:
        call.mail.set_status(call.identify(), status, call.patience)
    elif not call.has("hook"):
        invalid = f"Invalid status: {_printable(status)}. Valid: ready, work, offline"
        missing = (
            "error: missing required argument: status\nusage: agentmail status <ready|work|offline>"
        )
        _err(invalid if call.words else missing)
        return 1
    return 0


def _mailman(call: Invocation) -> int:
    from postroom.agents.mailman import main as mailman

    return mailman(os.getcwd(), os.environ, background=call.has("daemon"), say=_out, err=_err)


def _mcp(call: Invocation) -> int:
    from postroom.cli.server import main as serve

    name = call.given.get("as", "")
    arguments = ["agents", *(["--agent", name] if name else [])]
    serve(arguments)  # returns where click must look at the arguments
    from postroom.cli.main import run

    return run(["mcp", *arguments])


def _onboard(call: Invocation) -> int:
    return _print({}, _read_text("..", "agents", "onboard.md"), call)


def _cleanup(call: Invocation) -> int:
    stale = _number(call.given.get("stale-hours", "48")) or 0
    delivered = _number(call.given.get("delivered-hours", "2")) or 0
    dry_run = call.has("dry-run")

    def warn(text: str) -> None:
        _err(_printable(text))

    done = cleanup(os.getcwd(), os.environ, stale, delivered, dry_run=dry_run, err=warn)
    return _print(done._asdict(), done.describe(dry_run=dry_run), call)


def _read_text(*path: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), *path), encoding="utf-8") as file:
        return file.read()


def _print(values: Mapping[str, object], text: str, call: Invocation) -> int:
    if call.has("json"):
        text = json.dumps(values) + "\n"
    write_all(1, text.encode("utf-8", "replace"))
    return 0


def _out(text: str) -> None:
    write_all(1, f"{text}\n".encode("utf-8", "replace"))


def _err(text: str) -> None:
    try:
        write_all(2, f"{text}\n".encode("utf-8", "replace"))
    except OSError:
        return  # nobody reads it


def _fail(call: Invocation, message: str, code: int = 1) -> int:
    if call.has("hook"):
        return 0  # a hook that cannot help is silent
    _err(f"error: {_printable(message)}")
    return code


def _printable(text: str) -> str:
    """Return what somebody else may have named, without characters that a terminal acts upon."""
    if text.isprintable():
        return text
    from postroom.core.text import one_line

    return one_line(text)


# Each command's function and flags.
COMMANDS: Final = {
    "send": (_send, "r recipient m message as person json"),
    "receive": (_receive, "hook fenced as person json"),
    "recipients": (_recipients, "as json"),
    "status": (_status, "as hook"),
    "mailman": (_mailman, "daemon"),
    "mcp": (_mcp, "as"),
    "onboard": (_onboard, ""),
    "cleanup": (_cleanup, "stale-hours delivered-hours dry-run json"),
}
