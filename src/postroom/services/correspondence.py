"""What agents do with letters to each other. A call and its line in the log are one, but for a kill between the two."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from postroom.agents.mail import MAX_BYTES, AgentLetter, AgentMail
from postroom.agents.mailbox import Delivery
from postroom.agents.record import STATUSES, AgentMessage, seconds
from postroom.agents.roster import (
    AgentCaller,
    check_name,
    everybody,
    identify,
    is_sealed,
    person,
)
from postroom.core.audit import Value
from postroom.core.errors import Denied, Unavailable, raise_if
from postroom.core.text import words
from postroom.core.values import dataclass
from postroom.desk.recorder import Call, CallRecorder
from postroom.store.files import Locked

PAUSE: Final = 0.02  # seconds between two looks at whether a mailbox is free
TURNS: Final = 500
INTERVAL: Final = 0.25  # seconds between two looks for mail that is waited for
THREADED: Final = 64  # characters of a thread's name


class ReceivedMessage(NamedTuple):
    delivery: Delivery | None  # None where it was only looked at
    letter: AgentLetter
    owner: str


class Agent(NamedTuple):
    name: str
    is_current: bool
    status: str


@dataclass(frozen=True, slots=True)
class Correspondence:
    mail: AgentMail
    recorder: CallRecorder
    voice: Callable[[], bytes]
    sleep: Callable[[float], None]

    def me(self, call: Call) -> AgentCaller:
        """Return who calls: never by their own word."""
        if call.client_session == "":
            return identify(self.mail.environ, otherwise=call.agent if call.named else "")
        if not call.named:
            raise Denied(
                "not running inside a tmux session: over HTTP an agent's name is its token's",
                remedy="The person makes a token with a name: `postroom init --token NAME`.",
            )
        return AgentCaller(check_name(call.agent))

    def send(self, call: Call, recipient: str, text: str, reply_to: str = "") -> AgentLetter:
        """Send a message, or an answer: then to whoever wrote the one that is answered."""
        size = len(text.encode("utf-8", "replace"))
        raise_if(
            (not text, "no message provided", ""),
            (size > MAX_BYTES, "message exceeds maximum size of 64KB", ""),
        )
        me = self.me(call)
        about: dict[str, str] = {}
        if reply_to:
            original = self.mail.find(me, reply_to)
            thread = self.mail.letter(original, original.to).thread
            about = {"thread": thread[:THREADED], "reply_to": reply_to[:THREADED]}
            recipient = recipient or (
                original.to if original.sender == me.name else original.sender
            )
        sent = self._sent(call, me, recipient, text, about)
        return AgentLetter(
            sent, about.get("thread") or sent.id, about.get("reply_to", ""), "queued"
        )

    def _sent(
        self, call: Call, me: AgentCaller, recipient: str, text: str, about: dict[str, str]
    ) -> AgentMessage:
        """Write a message and its line, together or not at all; neither lock is held while the other is waited for."""
        turns = TURNS
        while True:
            try:
                with self.recorder.transaction(call, recipient) as commit:
                    return self.mail.send(
                        me,
                        recipient,
                        text,
                        about=lambda _message: about,
                        then=lambda message: commit(**_as(call, me, id=message.id)),
                        patience=0.0,
                    )
            except Locked:
                turns -= 1
                if not turns:
                    raise
            self.sleep(PAUSE)

    def receive(
        self, call: Call, wait: float = 0, *, peek: bool = False
    ) -> Generator[float, None, ReceivedMessage | None]:
        """Take the oldest unread message, or only look at it; where there is none, wait so long for one."""
        me = self.me(call)
        seen = None
        try:
            for _ in range(1 + int(wait / INTERVAL)):
                size = self.mail.box(me.name).change_token()
                taken = None if size == seen else self.mail.take(me)
                if taken:
                    return self._receive(call, me, taken, peek=peek)
                if not wait:
                    break
                seen = size
                yield INTERVAL
        except GeneratorExit:
            self._record(call, me, Unavailable("nobody waits for it any more"))
            raise
        self._record(call, me)
        return None

    def _receive(
        self, call: Call, me: AgentCaller, taken: Delivery, *, peek: bool
    ) -> ReceivedMessage:
        with taken:
            letter = self.mail.letter(taken.message, me.name)
            with self.recorder.transaction(call, taken.message.sender) as commit:
                commit(**_as(call, me, id=taken.message.id))  # before it is marked as read
        if peek:
            taken.release()
        return ReceivedMessage(None if peek else taken, letter, me.name)

    def left(self, received: ReceivedMessage) -> int:
        """Return how many wait behind this one, of which its reader thereby knows."""
        return max(0, self.mail.count_waiting(received.owner) - 1)

    def set_status(self, call: Call, status: str) -> None:
        me = self.me(call)
        self.mail.set_status(me, status)
        self._record(call, me, status=status)

    def agents(self, call: Call) -> list[Agent]:
        me = self.me(call)
        names = self.mail.recipients(me)
        statuses = self.mail.statuses() if self.mail.find_folder() else {}
        self._record(call, me)
        known = {name: status for name, status in statuses.items() if status in STATUSES}
        return [Agent(name, name == me.name, known.get(name, "")) for name in names]

    def present(self) -> list[tuple[Agent, int]]:
        """Return who is there, as the person sees it, and how much each has not read; nobody is told."""
        folder = self.mail.find_folder()
        if folder is None:
            return []
        me = person(self.mail.environ)
        statuses, left_out = self.mail.statuses(), {me.name, *folder.ignored()}
        return [
            (Agent(name, name == me.name, statuses.get(name, "")), self.mail.box(name).unread())
            for name in everybody(folder, me)
            if name not in left_out
        ]

    def search(
        self, call: Call, *, query: str = "", agent: str = "", thread: str = "", id: str = ""
    ) -> list[AgentLetter]:
        me = self.me(call)
        wanted, found, kept = set(words(query)), [], {}
        for message in self.mail.history(me, id):
            if (
                (id and message.id != id)
                or (agent and agent not in (message.sender, message.to))
                or (wanted and not wanted <= set(words(message.text)))
            ):
                continue
            if message.to not in kept:
                kept[message.to] = self.mail.box(message.to).abouts()
            letter = self.mail.letter(message, message.to, kept[message.to].get(message.id, {}))
            if not thread or letter.thread == thread:
                found.append(letter)
        self._record(call, me)
        return sorted(found, key=lambda one: seconds(one.message.created) or 0.0, reverse=True)

    def by_the_person(self, letter: AgentLetter) -> bool:
        if not letter.seal:
            return False
        return is_sealed(self.voice(), self.mail.folder.root, letter.message, letter.seal)

    def _record(
        self, call: Call, me: AgentCaller, error: Unavailable | None = None, **parameters: Value
    ) -> None:
        self.recorder.write(call, error, parameters=_as(call, me, **parameters), synced=False)


def _as(call: Call, me: AgentCaller, **parameters: Value) -> dict[str, Value]:
    """Return what a line says beside: under which name it was done, where the client has another."""
    return parameters if call.agent == me.name else {"name": me.name, **parameters}
