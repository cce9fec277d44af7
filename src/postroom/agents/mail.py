"""What agents do with messages to each other: the order of the checks, and the words of the refusals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from postroom.agents import roster
from postroom.agents.files import PATIENCE
from postroom.agents.folder import NO_ROOT, MailFolder, find, record_read, set_status, states
from postroom.agents.mailbox import AgentMailbox, Delivery
from postroom.agents.record import STATUSES, AgentMessage, seconds
from postroom.agents.roster import AgentCaller
from postroom.core.errors import Invalid, NotFound, PostroomError, Unavailable

MAX_BYTES: Final = 65_536  # of a message that comes in by a tool
SEAL: Final = "person"  # the key of the person's seal
SAME: Final = 0.05  # seconds: within one operation, the folders are checked once
AGAIN: Final = 10.0  # seconds after which a long process registers its name again
REMEMBERED: Final = 64  # mailboxes of a long process


class SelfAddressed(Invalid):
    """A message to oneself."""


class AgentLetter(NamedTuple):
    """A message with what is kept beside it; `state` is queued, delivered or read."""

    message: AgentMessage
    thread: str
    reply_to: str
    state: str
    seal: str = ""  # where the sender claims to be the person; it remains to be checked


class AgentMail:
    """The agent mail of one working directory."""

    def __init__(self, cwd: str, environ: Mapping[str, str]) -> None:
        self._cwd = cwd
        self.environ = environ
        self._boxes: dict[str, AgentMailbox] = {}
        self._folder: MailFolder | None = None
        self._registered: dict[AgentCaller, float] = {}
        self._checked = float("-inf")

    def me(self, given: str = "", otherwise: str = "") -> AgentCaller:
        """Return which agent calls: in tmux its window, else the first name that there is."""
        return roster.identify(self.environ, given, otherwise)

    def find_folder(self) -> MailFolder | None:
        """Return the folder of the repository, if we are in one."""
        if self._folder is None:
            self._folder = find(self._cwd)
        return self._folder

    @property
    def folder(self) -> MailFolder:
        """The folder of the repository."""
        found = self.find_folder()
        if found is None:
            raise NotFound(NO_ROOT, remedy="Agents write to each other within one git repository.")
        if time.monotonic() - self._checked > SAME:
            found.check()
            self._checked = time.monotonic()
        return found

    def box(self, name: str) -> AgentMailbox:
        """Return a mailbox."""
        folder, found = self.folder, self._boxes.get(name)
        if found is None:
            while len(self._boxes) >= REMEMBERED:
                self._boxes.pop(next(iter(self._boxes)), None)
            found = self._boxes[name] = AgentMailbox(folder, name)
        return found

    def register(self, me: AgentCaller) -> None:
        """Let others know this name; that it cannot be written fails nothing."""
        if time.monotonic() - self._registered.get(me, -AGAIN) < AGAIN:
            return
        with suppress(OSError, PostroomError):
            roster.register(self.folder, me, self.environ.get("TMUX", "").partition(",")[0])
            self._registered = {me: time.monotonic()}

    # Sending

    def recipients(self, me: AgentCaller) -> list[str]:
        """Return the names that can be written to, one's own among them."""
        folder = self.find_folder()
        ignored = folder.ignored() if folder else frozenset()
        names = [n for n in roster.everybody(folder, me) if n == me.name or n not in ignored]
        if folder and me.windows is None:
            self.register(me)
        return names

    def send(
        self,
        me: AgentCaller,
        recipient: str,
        text: str,
        *,
        about: dict[str, str] | None = None,
        seal: Callable[[AgentMessage], str] | None = None,
        then: Callable[[AgentMessage], None] = lambda _message: None,
        patience: float = PATIENCE,
    ) -> AgentMessage:
        """Put a message into a mailbox and return it; if `then` fails, the message is gone again.

        `about` is kept beside it; `seal` returns the person's seal.
        """
        folder = self.find_folder()
        is_known = roster.is_known(folder, me, recipient)
        if is_known and recipient == me.name:
            raise SelfAddressed("cannot send message to self")
        if not is_known or (folder and recipient in folder.ignored()):
            raise NotFound(
                "recipient not found", remedy="list_agents, or recipients, says who is there."
            )

        folder = self.folder  # refused where there is none

        def details(message: AgentMessage) -> dict[str, str]:
            return (about or {}) | ({SEAL: seal(message)} if seal else {})

        with error_context("failed to write message"):
            folder.make()
            message = self.box(recipient).append(
                me.name, text, about=details, then=then, patience=patience
            )
        self.register(me)
        return message

    # Receiving

    def take(self, me: AgentCaller, *, patience: float = PATIENCE) -> Delivery | None:
        """Take the oldest unread message; it is read once the caller confirms its delivery."""
        _refuse_nameless(me)
        if not self.folder.can_have(me.name):
            return None
        with error_context("failed to read messages"):
            delivery = self.box(me.name).take(patience=patience)
        if me.windows is None or delivery:
            self.register(me)
        return delivery

    def has_mail(self, me: AgentCaller) -> bool:
        """Whether there may be a message to take, as far as a look without any lock tells."""
        can_have = bool(me.name) and self.folder.can_have(me.name)
        return can_have and self.box(me.name).may_have_unread()

    def record_read(self, me: AgentCaller, patience: float) -> None:
        """Remember that this agent reads now; that it cannot be written fails nothing."""
        if me.name:
            with suppress(OSError, PostroomError):
                record_read(self.folder, me.name, time.time_ns() // 1_000_000, patience)

    def count_waiting(self, name: str) -> int:
        """Return how much this agent has not read, and remember that it knows so."""
        with error_context("failed to read messages"):
            count = self.box(name).unread()
            if count:
                self.box(name).record_notice()
        return count

    def set_status(self, me: AgentCaller, status: str, patience: float = PATIENCE) -> None:
        """Set whether this agent can be disturbed."""
        if status not in STATUSES:
            raise Invalid(f"Invalid status: {status}. Valid: ready, work, offline")
        _refuse_nameless(me)
        folder = self.folder
        with error_context("failed to update status"):
            set_status(folder, me.name, status, patience)
        self.register(me)

    def statuses(self) -> dict[str, str]:
        """Return the status of each agent that has one."""
        return {state.name: state.status for state in states(self.folder)}

    # What was written

    def letter(
        self, message: AgentMessage, owner: str, about: Mapping[str, str] | None = None
    ) -> AgentLetter:
        """Return a message in an agent's mailbox with what is kept beside it, `about` if known."""
        box = self.box(owner)
        about = box.about(message.id) if about is None else about
        thread, reply_to, seal = (str(about.get(k) or "") for k in ("thread", "reply_to", SEAL))
        is_delivered = box.last_notice() >= (seconds(message.created) or 0.0) > 0
        state = "read" if message.read else "delivered" if is_delivered else "queued"
        if seal and box.copies(message.id) > 1:
            seal = ""  # written once, and put there again by another program
        return AgentLetter(message, thread or message.id, reply_to, state, seal)

    def history(self, me: AgentCaller, id: str = "") -> Iterator[AgentMessage]:
        """Yield the messages to and from this agent, mailbox by mailbox; with `id`, likely ones alone."""
        for name in dict.fromkeys([me.name, *self.folder.names()]):
            words = [id] if id else [] if name == me.name else [me.name]
            try:
                with error_context("failed to read messages"):
                    found = self.box(name).messages(*words)
            except PostroomError:
                if name == me.name:
                    raise
                continue  # another agent's broken mailbox is not this agent's trouble
            yield from (one for one in found if one.to == name and me.name in (one.to, one.sender))

    def find(self, me: AgentCaller, id: str) -> AgentMessage:
        """Return one message to or from this agent."""
        found = next((one for one in self.history(me, id) if one.id == id), None)
        if found is None:
            raise NotFound(
                "There is no message of that id to you or from you",
                remedy="What was read long ago may have been cleaned up; search_messages lists the rest.",
            )
        return found


def _refuse_nameless(me: AgentCaller) -> None:
    if not me.name:
        raise Unavailable("current window '' not found in tmux session")


@contextmanager
def error_context(doing: str) -> Iterator[None]:
    """Put what could not be done in front of an error's message, in the original's words."""
    try:
        yield
    except OSError as why:
        place = f"open {why.filename}: " if why.filename else ""
        reason = (why.strerror or str(why)).lower()
        raise Unavailable(f"{doing}: {place}{reason}") from why
    except PostroomError as why:
        if not why.message.startswith(doing):
            why.message = f"{doing}: {why.message}"
        raise
