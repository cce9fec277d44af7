"""The contract of the server `all`: mail, notes and messages between agents, what others wrote between two marks.

The tools for messages have names that nobody takes for mail; the contract `agents` has those of a document.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from postroom.agents.mail import AgentLetter
from postroom.agents.record import seconds
from postroom.core.errors import Invalid
from postroom.core.mail_view import cut
from postroom.core.text import clean, one_line
from postroom.services.correspondence import Correspondence
from postroom.tools import table
from postroom.tools.answers import fenced_reply, hidden_text, more_text
from postroom.tools.contracts import postroom, vault
from postroom.tools.contracts.agents import bounded, sender_of
from postroom.tools.fence import NOTICE, PERSONS

if TYPE_CHECKING:
    from postroom.tools import models


MESSAGES: Final = (
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


def send_message(context: table.ToolContext, args: models.SendMessage) -> table.Reply:
    """Write to another agent, or answer one."""
    if not (args.recipient or args.reply_to):
        raise Invalid("There is no recipient", remedy="Name one, or give reply_to.")
    sent = context.services.correspondence.send(
        context.call, args.recipient, args.message, args.reply_to
    )
    id, thread = sent.message.id, one_line(sent.thread)
    text = f"Sent: message {id}, thread {thread}. It waits in the other's mailbox."
    return table.Reply(text, MessageSent(id=id, thread=thread, state=sent.state))


def receive_message(context: table.ToolContext, args: models.ReceiveMessage) -> table.Waiting:
    """Read the oldest unread message that another agent wrote to you; wait for one if you like."""
    service = context.services.correspondence
    received = yield from service.receive(context.call, args.wait_seconds, peek=args.peek)
    if received is None:
        return table.Reply("No unread messages.", Received())
    with received.release_on_error():
        reply, left = _message_reply(service, received.letter, 0), service.left(received)
        assert isinstance(reply.result, Messages)
        shared = vars(reply.result) | vars(reply.result.messages[0])
        fields = {name: shared[name] for name in Received._fields if name in shared}
        text = f"{reply.text}\n{left} more wait." if left else reply.text
        return table.Reply(text, Received(**fields, left=left), delivery=received.delivery)


def set_status(context: table.ToolContext, args: models.SetStatus) -> table.Reply:
    """Say whether other agents' letters may disturb you: ready, work or offline."""
    context.services.correspondence.set_status(context.call, args.status)
    return table.Reply(f"You are {args.status}.", StatusSet(status=args.status))


def list_agents(context: table.ToolContext, _args: models.ListAgents) -> table.Reply:
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


def search_messages(context: table.ToolContext, args: models.SearchMessages) -> table.Reply:
    """Find messages to and from you, newest first, and their state: queued, delivered or read."""
    service = context.services.correspondence
    letters = service.search(
        context.call, query=args.query, agent=args.agent, thread=args.thread, id=args.id
    )
    if args.id and letters:
        return _message_reply(service, letters[0], args.offset, len(letters))
    return _list_reply(service, letters, args.offset)


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
    """Return an id if it may be outside the fence: it has no room for words."""
    return id if re.fullmatch("[A-Za-z0-9_-]{1,16}", id, re.ASCII) else ""


def _message_reply(
    service: Correspondence, letter: AgentLetter, offset: int, total: int = 1
) -> table.Reply:
    """Return one message with its text, or a window of it."""
    message = _view(service, letter, bounded(letter.message.text, offset, SHOWN))
    end, size = offset + SHOWN, len(clean(letter.message.text).text)
    result = Messages(messages=(message,), total=total, next_offset=end if end < size else 0)
    head = f"Message {message.id}, thread {message.thread}, {message.sent_at}."
    text = f"From: {message.sender}\nTo: {message.to}\n\n{message.message}"
    more = f"More: search_messages id={message.id} offset={end}" if end < size else ""
    return fenced_reply(result, head, text, [more], PERSONS if message.person else NOTICE)


def _list_reply(service: Correspondence, letters: list[AgentLetter], offset: int) -> table.Reply:
    """Return the beginnings of several messages."""
    end, total = offset + FEW, len(letters)
    page = tuple(
        _view(service, letter, cut(letter.message.text, SNIPPET)) for letter in letters[offset:end]
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


_row: Final = partial(table.Tool, contract="all", actor="agents")
MESSAGE_TOOLS: Final = (
    _row(send_message, "Write to an agent", MessageSent, table.Hints()),
    _row(receive_message, "Read an agent's letter", Received, table.Hints()),
    _row(set_status, "Set your status", StatusSet, table.Hints(idempotent=True)),
    _row(list_agents, "List agents", AgentList, table.READS),
    _row(search_messages, "Search messages", Messages, table.READS),
)


INSTRUCTIONS: Final = (
    f"{postroom.INSTRUCTIONS} The vault tools keep notes in the person's Markdown vault: read a note"
    f" before you change it, and prefer edit_note to write_note for one that exists. {vault.DRAFTS} {MESSAGES}"
)


def fence(result: table.Result) -> table.Reply:
    """Return a result of the vault's tools with what others wrote between two marks."""
    if isinstance(result, vault.NoteContent):
        return _content(result)
    if isinstance(result, vault.NoteList):
        return _list(result)
    if isinstance(result, vault.NoteMoved):
        return _moved(result)
    assert isinstance(result, vault.NoteWritten)
    return table.Reply(f"Written. etag {result.etag}. {result.hint}".rstrip(), result)


def _written(result: table.Result) -> table.Reply:
    """Return what was written without the words that the agent has just given."""
    if isinstance(result, vault.NoteContent):
        result = vault.NoteWritten(
            path=result.path, etag=result.etag, letter=result.letter, hint=result.hint
        )
    return fence(result)


def _content(note: vault.NoteContent) -> table.Reply:
    fields = [f"{_json(key)}: {_json(value)}" for key, value in note.frontmatter.items()]
    text = "\n".join([note.path, *fields, "", note.body])
    head = f"etag {note.etag}. The path, the frontmatter, an empty line, and the body:"
    tail = [more_text(note.next_offset, note.total_chars), hidden_text(note.hidden_chars)]
    return fenced_reply(note, head, text, tail)


def _list(page: vault.NoteList) -> table.Reply:
    rows = [f"{note.path} | {note.snippet}" if note.snippet else note.path for note in page.notes]
    rows += [f"Folder: {name}/" for name in page.folders]
    rows += [f"Not readable: {path}" for path in page.unreadable]
    count = f"{len(page.notes)} of {page.total} notes." if page.total else "No note."
    more = f"More: cursor={page.cursor}" if page.cursor else ""
    return fenced_reply(page, count, "\n".join(rows), [page.hint, more])


def _moved(move: vault.NoteMoved) -> table.Reply:
    rows = [f"Now: {move.path}"]
    rows += [f"Links rewritten in {path}" for path in move.rewritten]
    rows += [f"Ambiguous, left as it is, in {note}" for note in move.ambiguous]
    rows += [f"Not for tools, left as it is: {path}" for path in move.untouched]
    head = f"Moved. {move.links} links were rewritten."
    return fenced_reply(move, head, "\n".join(rows))


def _fenced(row: table.Tool) -> table.Tool:
    if row.name == "write_note":
        return replace(row, shape=_written, result=vault.NoteWritten)
    return replace(row, shape=fence)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


CONTRACT: Final = table.Contract(
    name="all",
    instructions=INSTRUCTIONS,
    tools=tuple(
        replace(row, contract="all")
        for row in (*postroom.TOOLS, *map(_fenced, vault.TOOLS), *MESSAGE_TOOLS)
    ),
    resources=postroom.CONTRACT.resources,
)
