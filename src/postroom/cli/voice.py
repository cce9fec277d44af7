"""A message as it is shown, and the person's own voice among agents; reached only where there is one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from postroom.agents.mail import AgentLetter, AgentMail
from postroom.agents.record import AgentMessage
from postroom.agents.roster import describe_sender, is_sealed, seal
from postroom.core.errors import Denied, NotFound, PostroomError
from postroom.core.text import clean, one_line

if TYPE_CHECKING:
    from postroom.cli.agentmail import Asked

HOOKED: Final = 65_536  # characters of a message that a hook brings into a context


def shown(mail: AgentMail, message: AgentMessage, owner: str, asked: Asked) -> tuple[bytes, int]:
    """Return what is written for a message, and the exit code."""
    letter = mail.letter(message, owner)
    theirs = by_the_person(mail, letter)
    sender = describe_sender(message.sender, proven=theirs)
    text = clean(message.text).text
    if asked.has("json") and not asked.has("hook"):
        about: dict[str, object] = {
            "from": sender,
            "id": message.id,
            "message": text,
            "thread": letter.thread,
        }
        about |= {"reply_to": letter.reply_to, "sent_at": message.created, "person": theirs}
        return json.dumps(about).encode() + b"\n", 0
    if asked.has("hook") and len(text) > HOOKED:
        path = one_line(mail.box(owner).path)
        text = f"{text[:HOOKED]}\n[cut: {len(text) - HOOKED} characters more in {path}]"
    said = f"From: {sender}\nID: {one_line(message.id)}\n\n{text}"
    if asked.has("fenced"):
        from postroom.tools.fence import NOTICE, PERSONS, fenced, mark

        said = fenced(said, mark(said), PERSONS if theirs else NOTICE)
    if not asked.has("hook") and os.isatty(1):
        said += "\n"  # a prompt comes next
    if asked.has("hook"):
        return f"You got new mail\n{said}".encode("utf-8", "replace"), 2
    return said.encode("utf-8", "replace"), 0


def by_the_person(mail: AgentMail, letter: AgentLetter) -> bool:
    """Whether a message bears the person's seal."""
    if not letter.seal:
        return False
    from postroom import wiring

    try:
        key = wiring.voice_key(wiring.settings(), make=False)
    except PostroomError:
        return False
    return is_sealed(key, mail.folder.root, letter.message, letter.seal)


def send(asked: Asked) -> int:
    """Send a message as the person, who is asked on the terminal, and for the passphrase if need be."""
    from postroom import wiring
    from postroom.agents.roster import is_known, person
    from postroom.cli import terminal
    from postroom.cli.agentmail import addressed
    from postroom.desk.recorder import Call
    from postroom.wiring.desk import desk

    recipient, text = addressed(asked)
    if not recipient or not text:
        raise Denied("say to whom, and what: postroom agentmail send --person NAME TEXT")
    mail, config = asked.mail, wiring.settings()
    me = person(asked.environ)
    if not is_known(mail.find_folder(), me, recipient):
        raise NotFound("recipient not found: `postroom agentmail recipients` lists who is there")
    os.write(2, f"To {one_line(recipient)}, as yourself:\n{clean(text).text}\n".encode())
    if not terminal.confirm("Send this?"):
        raise Denied("nothing was sent, as you said")
    with desk(config) as found:
        if found is not None:
            found.prove(terminal.ask_passphrase() if found.rules.trust == "desk" else None)
        key, root = wiring.voice_key(config, make=True), mail.folder.root
        sent = mail.send(me, recipient, text, seal=lambda message: seal(key, root, message))
        if found is not None:
            found.recorder.write(Call("send_message", "", "person"), target=recipient)
    os.write(1, f"Message #{sent.id} sent\n".encode())
    return 0


def receive(asked: Asked) -> int:
    """Show the person what agents have written to them."""
    from postroom.agents.folder import PERSON
    from postroom.agents.roster import Caller
    from postroom.cli import terminal

    mail = asked.mail
    with terminal.open_terminal("Run it in a terminal of your own."):
        taken = mail.take(Caller(PERSON))
    if taken is None:
        os.write(1, b"No unread messages\n")
        return 0
    data, code = shown(mail, taken.message, PERSON, asked)
    taken.deliver(1, data)
    return code
