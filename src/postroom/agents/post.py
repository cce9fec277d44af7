"""What agents do with letters between them: the order of its checks, and the words of its refusals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from postroom.agents import roster
from postroom.agents.files import PATIENCE
from postroom.agents.folder import NO_ROOT, Folder, find
from postroom.agents.mailbox import Delivery, Mailbox
from postroom.agents.record import STATUSES, Message, seconds
from postroom.agents.roster import Me
from postroom.agents.states import set_status, states, was_read
from postroom.core.errors import Invalid, NotFound, PostroomError, Unavailable

MAX_BYTES: Final = 65_536  # of a message that comes in by a tool
VOICE: Final = "person"
SAME: Final = 0.05  # seconds: within one operation, the folders are looked at once
AGAIN: Final = 10.0  # seconds after which a long process says again who is here
KEPT: Final = 64  # mailboxes that a long process remembers

Seal = Callable[[Message], str]  # by who has the person's key


class Self(Invalid):
    """A message to oneself."""


class Letter(NamedTuple):
    """A message with what is kept beside it; `state` is queued, delivered or read."""

    message: Message
    thread: str
    reply_to: str
    state: str
    seal: str = ""  # of who claims to be the person; it remains to be checked


class Post:
    """The agent mail of one working directory."""

    def __init__(self, cwd: str, environ: Mapping[str, str]) -> None:
        self._cwd = cwd
        self.environ = environ
        self._boxes: dict[str, Mailbox] = {}
        self._folder: Folder | None = None
        self._registered: dict[Me, float] = {}
        self._checked = float("-inf")

    def me(self, given: str = "", otherwise: str = "") -> Me:
        """Return who calls: in tmux the window, else a given name, that of the environment, or another."""
        return roster.whoami(self.environ, given, otherwise)

    def look(self) -> Folder | None:
        """Return the folder of the repository, if we are in one."""
        if self._folder is None:
            self._folder = find(self._cwd)
        return self._folder

    @property
    def folder(self) -> Folder:
        """The folder of the repository."""
        found = self.look()
        if found is None:
            raise NotFound(NO_ROOT, remedy="Agents write to each other within one git repository.")
        if time.monotonic() - self._checked > SAME:
            found.check()
            self._checked = time.monotonic()
        return found

    def box(self, name: str) -> Mailbox:
        """Return a mailbox."""
        folder, found = self.folder, self._boxes.get(name)
        if found is None:
            while len(self._boxes) >= KEPT:
                self._boxes.pop(next(iter(self._boxes)), None)
            found = self._boxes[name] = Mailbox(folder, name)
        return found

    def register(self, me: Me) -> None:
        """Let others know this name; that it cannot be written is no error of what was asked for."""
        if time.monotonic() - self._registered.get(me, -AGAIN) < AGAIN:
            return
        with suppress(OSError, PostroomError):
            roster.register(self.folder, me, self.environ.get("TMUX", "").partition(",")[0])
            self._registered = {me: time.monotonic()}

    # Whom one can write to

    def recipients(self, me: Me) -> list[str]:
        """Return the names that can be written to, one's own among them."""
        folder = self.look()
        ignored = folder.ignored() if folder else frozenset()
        named = [n for n in roster.everybody(folder, me) if n == me.name or n not in ignored]
        if folder and me.windows is None:
            self.register(me)
        return named

    def send(
        self,
        me: Me,
        recipient: str,
        text: str,
        *,
        about: dict[str, str] | None = None,
        seal: Seal | None = None,
        then: Callable[[Message], None] = lambda _message: None,
        patience: float = PATIENCE,
    ) -> Message:
        """Put a message into a mailbox and return it; `then` must come about with it."""
        folder = self.look()
        if not roster.known(folder, me, recipient):
            raise _no_recipient()
        if recipient == me.name:
            raise Self("cannot send message to self")
        if folder and recipient in folder.ignored():
            raise _no_recipient()
        root = self.folder
        extra: dict[str, str] = about or {}

        def beside(message: Message) -> dict[str, str]:
            return extra | ({VOICE: seal(message)} if seal else {})

        with _told("failed to write message"):
            root.make()
            box = self.box(recipient)
            sent = box.append(me.name, text, about=beside, then=then, patience=patience)
        self.register(me)
        return sent

    # Receiving

    def take(self, me: Me, *, patience: float = PATIENCE) -> Delivery | None:
        """Take the oldest unread message; it is read once the caller confirms that it was handed over."""
        if not me.name:
            raise Unavailable("current window '' not found in tmux session")
        if not self.folder.holds(me.name):
            return None
        with _told("failed to read messages"):
            taken = self.box(me.name).take(patience=patience)
        if me.windows is None or taken:
            self.register(me)
        return taken

    def has_mail(self, me: Me) -> bool:
        """Whether there is something to take, as far as a look without any lock tells."""
        return bool(me.name) and self.folder.holds(me.name) and self.box(me.name).may_have()

    def read_now(self, me: Me, patience: float) -> None:
        """Remember that this agent reads now, as the command does; no error if that fails."""
        if not me.name:
            return
        with suppress(OSError, PostroomError):
            was_read(self.folder, me.name, time.time_ns() // 1_000_000, patience)

    def waiting(self, name: str) -> int:
        """Return how much this agent has not read, which it thereby knows of."""
        with _told("failed to read messages"):
            found = self.box(name).unread()
            if found:
                self.box(name).tell()
        return found

    def set_status(self, me: Me, status: str, patience: float = PATIENCE) -> None:
        """Say whether this agent can be disturbed."""
        if status not in STATUSES:
            raise Invalid(f"Invalid status: {status}. Valid: ready, work, offline")
        if not me.name:
            raise Unavailable("current window '' not found in tmux session")
        root = self.folder
        with _told("failed to update status"):
            set_status(root, me.name, status, patience)
        self.register(me)

    def statuses(self) -> dict[str, str]:
        """Return the status of each agent that has one."""
        return {state.name: state.status for state in states(self.folder)}

    # What was written

    def letter(self, message: Message, owner: str, kept: Mapping[str, str] | None = None) -> Letter:
        """Return a message in somebody's mailbox with what is kept beside it, which may be known."""
        box = self.box(owner)
        kept = box.about(message.id) if kept is None else kept
        thread, reply_to, seal = (str(kept.get(k) or "") for k in ("thread", "reply_to", VOICE))
        told = box.told() >= (seconds(message.created) or 0.0) > 0
        state = "read" if message.read else "delivered" if told else "queued"
        if seal and box.copies(message.id) > 1:
            seal = ""  # said once, and put there again by somebody else
        return Letter(message, thread or message.id, reply_to, state, seal)

    def history(self, me: Me, id: str = "") -> Iterator[Message]:
        """Yield the messages to and from this agent, mailbox by mailbox; with `id`, likely ones alone."""
        for name in dict.fromkeys([me.name, *self.folder.names()]):
            words = [id] if id else [] if name == me.name else [me.name]
            try:
                with _told("failed to read messages"):
                    found = self.box(name).messages(*words)
            except PostroomError:
                if name == me.name:
                    raise
                continue  # what is wrong with another's mailbox is not this agent's trouble
            yield from (one for one in found if one.to == name and me.name in (one.to, one.sender))

    def find(self, me: Me, id: str) -> Message:
        """Return one message to or from this agent."""
        found = next((one for one in self.history(me, id) if one.id == id), None)
        if found is None:
            raise NotFound(
                "There is no message of that id to you or from you",
                remedy="What was read long ago may have been cleaned up; search_messages lists the rest.",
            )
        return found


def _no_recipient() -> NotFound:
    return NotFound("recipient not found", remedy="list_agents, or recipients, says who is there.")


@contextmanager
def _told(doing: str) -> Iterator[None]:
    """Say what could not be done, in the original's words."""
    try:
        yield
    except OSError as why:
        place = f"open {why.filename}: " if why.filename else ""
        said = (why.strerror or str(why)).lower()
        raise Unavailable(f"{doing}: {place}{said}") from why
    except PostroomError as why:
        if not why.message.startswith(doing):
            why.message = f"{doing}: {why.message}"
        raise
