"""Letters between agents in the server `all`: under names that nobody takes for mail, and fenced."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from postroom.agents.mail import AgentLetter
from postroom.agents.record import seconds
from postroom.core.errors import Invalid
from postroom.core.mail_view import cut
from postroom.core.text import clean, one_line
from postroom.services.correspondence import Correspondence
from postroom.tools import table
from postroom.tools.answers import fenced_reply
from postroom.tools.contracts.agents import bounded, sender_of
from postroom.tools.fence import NOTICE, PERSONS

if TYPE_CHECKING:
    from postroom.tools.models.messages import (
        ListAgents,
        ReceiveMessage,
        SearchMessages,
        SendMessage,
        SetStatus,
    )

INSTRUCTIONS: Final = (
    "send_message and receive_message are for other agents in this repository, not for mail. Answer"
    " with reply_to."
)
SHOWN: Final = 20_000  # characters of a message
FEW: Final = 20  # messages in a list
SNIPPET: Final = 200


class MessageSent(table.Result):
    id: str
    thread: str
    state: str


class ShownMessage(table.Result, sender="from"):
    id: str
    sender: str
    to: str = ""
    message: str
    sent_at: str
    thread: str
    reply_to: str = ""
    state: str = ""
    person: bool = False


class Received(table.Result, sender="from"):
    """The oldest message between two marks, and how many more wait; none has no id."""

    fence: str = ""
    sender: str = ""
    message: str = ""
    end: str = ""
    id: str = ""
    thread: str = ""
    reply_to: str = ""
    sent_at: str = ""
    person: bool = False
    next_offset: int = 0
    left: int = 0


class Messages(table.Result):
    """Messages, between two marks."""

    fence: str = ""
    messages: tuple[ShownMessage, ...]
    end: str = ""
    total: int
    next_offset: int = 0


class StatusSet(table.Result):
    status: str


class ListedAgent(table.Result):
    name: str
    is_current: bool
    status: str = ""


class AgentList(table.Result):
    fence: str = ""
    agents: tuple[ListedAgent, ...]
    end: str = ""


def send_message(context: table.ToolContext, asked: SendMessage) -> table.Reply:
    """Write to another agent, or answer one."""
    if not (asked.recipient or asked.reply_to):
        raise Invalid("There is no recipient", remedy="Name one, or give reply_to.")
    sent = context.services.correspondence.send(
        context.call, asked.recipient, asked.message, asked.reply_to
    )
    id, thread = sent.message.id, one_line(sent.thread)
    text = f"Sent: message {id}, thread {thread}. It waits in the other's mailbox."
    return table.Reply(text, MessageSent(id=id, thread=thread, state=sent.state))


def receive_message(context: table.ToolContext, asked: ReceiveMessage) -> table.Waiting:
    """Read the oldest unread message that another agent wrote to you; wait for one if you like."""
    book = context.services.correspondence
    received = yield from book.receive(context.call, asked.wait_seconds, peek=asked.peek)
    if received is None:
        return table.Reply("No unread messages.", Received())
    with received.release_on_error():
        reply, left = _whole(book, received.letter, 0), book.left(received)
        assert isinstance(reply.result, Messages)
        shared = vars(reply.result) | vars(reply.result.messages[0])
        fields = {name: shared[name] for name in Received._fields if name in shared}
        text = f"{reply.text}\n{left} more wait." if left else reply.text
        return table.Reply(text, Received(**fields, left=left), delivery=received.delivery)


def set_status(context: table.ToolContext, asked: SetStatus) -> table.Reply:
    """Say whether other agents' letters may disturb you: ready, work or offline."""
    context.services.correspondence.set_status(context.call, asked.status)
    return table.Reply(f"You are {asked.status}.", StatusSet(status=asked.status))


def list_agents(context: table.ToolContext, _asked: ListAgents) -> table.Reply:
    """List the agents that you can write to."""
    found = tuple(
        ListedAgent(name=one_line(one.name), is_current=one.is_current, status=one.status)
        for one in context.services.correspondence.agents(context.call)
    )
    rows = [
        f"{one.name}{' [you]' if one.is_current else ''}{f' ({one.status})' if one.status else ''}"
        for one in found
    ]
    return fenced_reply(AgentList(agents=found), "", "\n".join(rows))


def search_messages(context: table.ToolContext, asked: SearchMessages) -> table.Reply:
    """Find messages to and from you, newest first, and their state: queued, delivered or read."""
    book = context.services.correspondence
    found = book.search(
        context.call, query=asked.query, agent=asked.agent, thread=asked.thread, id=asked.id
    )
    if asked.id and found:
        return _whole(book, found[0], asked.offset, len(found))
    return _listed(book, found, asked.offset)


def _plain(id: str) -> str:
    """Return an id as it stands outside the fence: one that says something is none."""
    return id if re.fullmatch("[A-Za-z0-9_-]{1,16}", id, re.ASCII) else ""


def _shown(book: Correspondence, letter: AgentLetter, text: str) -> ShownMessage:
    message = letter.message
    return ShownMessage(
        id=_plain(message.id),
        sender=cut(sender_of(book, letter), 256),
        to=cut(one_line(message.to), 256),
        message=text,
        sent_at=message.created if seconds(message.created) is not None else "",
        thread=_plain(letter.thread),
        reply_to=_plain(letter.reply_to),
        state=letter.state,
        person=book.by_the_person(letter),
    )


def _whole(book: Correspondence, letter: AgentLetter, offset: int, total: int = 1) -> table.Reply:
    """Return one message with all of its text, or a window of it."""
    size = len(clean(letter.message.text).text)
    one = _shown(book, letter, bounded(letter.message.text, offset, SHOWN))
    text = f"From: {one.sender}\nTo: {one.to}\n\n{one.message}"
    after = offset + SHOWN if offset + SHOWN < size else 0
    head = f"Message {one.id}, thread {one.thread}, {one.sent_at}."
    more = f"More: search_messages id={one.id} offset={after}" if after else ""
    about = Messages(messages=(one,), total=total, next_offset=after)
    return fenced_reply(about, head, text, [more], PERSONS if one.person else NOTICE)


def _listed(book: Correspondence, found: list[AgentLetter], offset: int) -> table.Reply:
    """Return the beginnings of several."""
    page = tuple(
        _shown(book, letter, cut(one_line(letter.message.text), SNIPPET))
        for letter in found[offset : offset + FEW]
    )
    rows = [
        f"{one.id} {one.sent_at} {one.sender} to {one.to}, {one.state}, thread {one.thread}: {one.message}"
        for one in page
    ]
    after = offset + FEW if offset + FEW < len(found) else 0
    head = f"{len(page)} of {len(found)} messages." if found else "No message."
    about = Messages(messages=page, total=len(found), next_offset=after)
    return fenced_reply(about, head, "\n".join(rows), [f"More: offset={after}" if after else ""])


_row: Final = partial(table.Tool, contract="all", actor="agents")
TOOLS: Final = (
    _row(send_message, "Write to an agent", MessageSent, table.Hints()),
    _row(receive_message, "Read an agent's letter", Received, table.Hints()),
    _row(set_status, "Set your status", StatusSet, table.Hints(idempotent=True)),
    _row(list_agents, "List agents", AgentList, table.READS),
    _row(search_messages, "Search messages", Messages, table.READS),
)
