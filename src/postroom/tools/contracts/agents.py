"""Messages between agents: the contract `agents`, and the tools for messages in the server `all`.

The contract has the names, parameters and texts of the original program. The tools of `all` can do more: answer in a
thread, wait, search. Their names differ from those of the tools for mail, and text of others is fenced.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

from postroom.agents.mail import MAX_BYTES, AgentLetter
from postroom.agents.record import seconds
from postroom.agents.roster import describe_sender
from postroom.core.errors import Invalid, PostroomError
from postroom.core.mail_view import cut
from postroom.core.text import clean, one_line
from postroom.services.correspondence import Correspondence
from postroom.tools import table
from postroom.tools.answers import fenced_reply
from postroom.tools.fence import NOTICE, PERSONS

if TYPE_CHECKING:
    from pydantic import Field

    from postroom.tools.models import AgentMailId, AgentName, Needed, ShortText

_in_json: Final = partial(table.in_json, separators=(",", ":"))
NO_MESSAGES: Final = "No unread messages"
MAX_SHOWN: Final = 20_000  # characters of a message in one answer
PAGE_SIZE: Final = 20  # messages in a list
MAX_SNIPPET: Final = 200  # characters of each message in a list


class SendResponse(table.Result):
    message_id: str


class ReceiveResponse(table.Result, sender="from"):
    sender: str
    id: str
    message: str
    status: str = ""


class ReceiveEmptyResponse(table.Result):
    status: str


class StatusResponse(table.Result):
    status: str


class RecipientInfo(table.Result):
    name: str
    is_current: bool


class ListRecipientsResponse(table.Result):
    recipients: tuple[RecipientInfo, ...]


def send(
    context: table.ToolContext,
    *,
    recipient: Annotated[Needed, "The tmux window name of the recipient agent"] = "",
    message: Annotated[
        str,
        "The message content to send (max 64KB)",
        Field(json_schema_extra={"maxLength": MAX_BYTES, "required": True}),
    ] = "",
) -> table.Result:
    """Send a message to another agent in a tmux window"""
    sent = context.services.correspondence.send(context.call, recipient, message)
    return SendResponse(message_id=sent.message.id)


def receive(context: table.ToolContext) -> table.Waiting:
    """Read the oldest unread message from your mailbox"""
    received = yield from context.services.correspondence.receive(context.call)
    if received is None:
        return ReceiveEmptyResponse(status=NO_MESSAGES)
    with received.delivery or nullcontext():
        message = received.letter.message
        sender = sender_of(context.services.correspondence, received.letter)
        response = ReceiveResponse(
            sender=sender, id=one_line(message.id), message=bounded(message.text)
        )
        return _in_json(response)._replace(delivery=received.delivery)


def status(
    context: table.ToolContext,
    *,
    status: Annotated[
        str,
        "The availability status to set",
        Field(json_schema_extra={"enum": ["ready", "work", "offline"], "required": True}),
    ] = "",
) -> table.Result:
    """Set your agent's availability status"""
    context.services.correspondence.set_status(context.call, status)
    return StatusResponse(status="ok")


def list_recipients(context: table.ToolContext) -> table.Result:
    """List all available agents that can receive messages"""
    agents = context.services.correspondence.agents(context.call)
    recipients = (RecipientInfo(name=one_line(a.name), is_current=a.is_current) for a in agents)
    return ListRecipientsResponse(recipients=tuple(recipients))


def sender_of(service: Correspondence, letter: AgentLetter) -> str:
    """Return the sender of a message; a warning follows one that claims to be the person without proof."""
    return describe_sender(letter.message.sender, proven=service.by_the_person(letter))


def bounded(text: str, start: int = 0, most: int = MAX_BYTES) -> str:
    """Return at most `most` characters of a cleaned text, from `start`; a last line says how many more there are."""
    whole = clean(text).text
    left = len(whole) - start - most
    return whole[start : start + most] + (f"\n[{left} characters more]" if left > 0 else "")


def refuse(_tool: str, error: PostroomError) -> table.Reply:
    """Return an error as the original program does: only its message."""
    problem = table.Problem.of(error)
    return table.Reply(problem.message, table.Failure(error=problem._asdict()), refused=True)


_documented: Final = partial(
    table.Tool, actor="agents", shape=_in_json, invalid="failed to parse arguments: "
)
CONTRACT: Final = table.Contract(
    name="agents",
    tools=(
        _documented(
            list_recipients, "List agents", ListRecipientsResponse, table.READS, dashed=True
        ),
        _documented(receive, "Receive", ReceiveResponse, table.CHANGES),
        _documented(send, "Send", SendResponse, table.CHANGES),
        _documented(status, "Set status", StatusResponse, table.SETS),
    ),
    accounts=False,
    refuse=refuse,
)


# The tools of the server `all`
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


class Received(table.Fenced, sender="from"):
    """The oldest unread message, and the number of the others; without a message, all is empty."""

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


class Messages(table.Fenced):
    messages: tuple[ShownMessage, ...]
    end: str = ""
    total: int
    next_offset: int = 0


class ListedAgent(RecipientInfo):
    status: str = ""


class AgentList(table.Fenced):
    agents: tuple[ListedAgent, ...]
    end: str = ""


def send_message(
    context: table.ToolContext,
    *,
    recipient: Annotated[AgentName, "from list_agents"] = "",
    message: Annotated[str, "at most 64 KB"],
    reply_to: Annotated[AgentMailId, "id; then recipient may be left out"] = "",
) -> table.Reply:
    """Write to another agent, or answer one."""
    if not (recipient or reply_to):
        raise Invalid("There is no recipient", remedy="Name one, or give reply_to.")
    sent = context.services.correspondence.send(context.call, recipient, message, reply_to)
    id, thread = sent.message.id, one_line(sent.thread)
    text = f"Sent: message {id}, thread {thread}. It waits in the other's mailbox."
    return table.Reply(text, MessageSent(id=id, thread=thread, state=sent.state))


def receive_message(
    context: table.ToolContext,
    *,
    wait_seconds: Annotated[int, Field(ge=0, le=60)] = 0,
    peek: Annotated[bool, "leave it unread"] = False,
) -> table.Waiting:
    """Read the oldest unread message that another agent wrote to you; wait for one if you like."""
    service = context.services.correspondence
    received = yield from service.receive(context.call, wait_seconds, peek=peek)
    if received is None:
        return table.Reply("No unread messages.", Received())
    with received.delivery or nullcontext():
        message, end = _window(service, received.letter, 0)
        left = service.left(received)
        fields = {name: value for name, value in vars(message).items() if name in Received._fields}
        result = Received(**fields, next_offset=end, left=left)
        reply = _message_reply(result, message, end, f"{left} more wait." if left else "")
        return reply._replace(delivery=received.delivery)


def set_status(
    context: table.ToolContext, *, status: Literal["ready", "work", "offline"]
) -> table.Reply:
    """Say whether other agents' letters may disturb you: ready, work or offline."""
    context.services.correspondence.set_status(context.call, status)
    return table.Reply(f"You are {status}.", StatusResponse(status=status))


def list_agents(context: table.ToolContext) -> table.Reply:
    """List the agents that you can write to."""
    agents = tuple(
        ListedAgent(name=one_line(agent.name), is_current=agent.is_current, status=agent.status)
        for agent in context.services.correspondence.agents(context.call)
    )
    rows = [
        f"{agent.name}{' [you]' if agent.is_current else ''}"
        f"{f' ({agent.status})' if agent.status else ''}"
        for agent in agents
    ]
    return fenced_reply(AgentList(agents=agents), "", "\n".join(rows))


def search_messages(
    context: table.ToolContext,
    *,
    query: Annotated[ShortText, "words"] = "",
    agent: AgentName = "",
    thread: AgentMailId = "",
    id: Annotated[AgentMailId, "this one, whole"] = "",
    offset: Annotated[int, Field(ge=0)] = 0,
) -> table.Reply:
    """Find messages to and from you, newest first, and their state: queued, delivered or read."""
    service = context.services.correspondence
    letters = service.search(context.call, query=query, agent=agent, thread=thread, id=id)
    if id and letters:
        message, next_offset = _window(service, letters[0], offset)
        result = Messages(messages=(message,), total=len(letters), next_offset=next_offset)
        return _message_reply(result, message, next_offset)
    end, total = offset + PAGE_SIZE, len(letters)
    page = tuple(
        _view(service, letter, cut(letter.message.text, MAX_SNIPPET))
        for letter in letters[offset:end]
    )
    rows = [
        f"{message.id} {message.sent_at} {message.sender} to {message.to}, {message.state},"
        f" thread {message.thread}: {message.message}"
        for message in page
    ]
    head = f"{len(page)} of {total} messages." if letters else "No message."
    result = Messages(messages=page, total=total, next_offset=end if end < total else 0)
    more = f"More: offset={end}" if end < total else ""
    return fenced_reply(result, head, "\n".join(rows), [more])


def _view(service: Correspondence, letter: AgentLetter, text: str) -> ShownMessage:
    message = letter.message
    return ShownMessage(
        id=_checked_id(message.id),
        sender=cut(sender_of(service, letter), 256),
        to=cut(one_line(message.to), 256),
        message=text,
        sent_at=message.created if seconds(message.created) is not None else "",
        thread=_checked_id(letter.thread),
        reply_to=_checked_id(letter.reply_to),
        state=letter.state,
        person=service.by_the_person(letter),
    )


def _checked_id(id: str) -> str:
    """Return an id if it is short and plain enough to be shown outside the fence; otherwise empty."""
    return id if re.fullmatch("[A-Za-z0-9_-]{1,16}", id, re.ASCII) else ""


def _window(service: Correspondence, letter: AgentLetter, offset: int) -> tuple[ShownMessage, int]:
    """Return a message with a part of its text, and the offset of the next part; 0 after the last."""
    message = _view(service, letter, bounded(letter.message.text, offset, MAX_SHOWN))
    end = offset + MAX_SHOWN
    return message, end if end < len(clean(letter.message.text).text) else 0


def _message_reply(
    result: table.Result, message: ShownMessage, next_offset: int, *tail: str
) -> table.Reply:
    head = f"Message {message.id}, thread {message.thread}, {message.sent_at}."
    text = f"From: {message.sender}\nTo: {message.to}\n\n{message.message}"
    more = f"More: search_messages id={message.id} offset={next_offset}" if next_offset else ""
    return fenced_reply(result, head, text, [more, *tail], PERSONS if message.person else NOTICE)


_message_tool: Final = partial(table.Tool, actor="agents")
MESSAGE_TOOLS: Final = (
    _message_tool(send_message, "Write to an agent", MessageSent, table.CHANGES),
    _message_tool(receive_message, "Read an agent's letter", Received, table.CHANGES),
    _message_tool(set_status, "Set your status", StatusResponse, table.SETS),
    _message_tool(list_agents, "List agents", AgentList, table.READS),
    _message_tool(search_messages, "Search messages", Messages, table.READS),
)
