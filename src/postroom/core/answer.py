"""Whom an answer goes to, and what it is called."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.core.letter import MAX_SUBJECT
from postroom.core.message import DRAFT, SENT, SPAM, TRASH, Mail, Message, Party
from postroom.core.text import one_line

_PASSED_OVER: Final = frozenset({DRAFT, SENT, SPAM, TRASH})
_MARKS: Final = ("re:", "re :", "aw:", "sv:", "antw:")


class ReplyEnvelope(NamedTuple):
    """The envelope and the subject of an answer."""

    to: tuple[Address, ...]
    cc: tuple[Address, ...]
    subject: str


def answer(mail: Mail, own: Collection[str], *, sent: bool, everyone: bool) -> ReplyEnvelope:
    """Return where an answer to a mail goes: to whom it asks for, or to all but its own account.

    To one that this account has `sent`, it goes to whom that went; a mail that only claims so has
    chosen its recipients itself.
    """
    sender = tuple(filter(None, (mail.sender,)))
    to = _others(mail.to, own) if sent else _others(mail.reply_to, own) or _others(sender, own)
    if not to:
        raise Invalid(
            "The mail names nobody but this account to answer to",
            remedy="Write a new letter, and name its recipient.",
        )
    there = {_key(party) for party in to}
    rest = _others((*mail.to, *mail.cc), {*own, *there}) if everyone else ()
    return ReplyEnvelope(_addresses(to), _addresses(rest), answer_subject(mail.subject))


def answered(messages: Sequence[Message]) -> Message:
    """Return the mail of a conversation that an answer is to: the newest that came in."""
    incoming = [message for message in messages if not message.labels & _PASSED_OVER]
    written = [message for message in messages if DRAFT not in message.labels]
    return (incoming or written or list(messages))[-1]


def answer_subject(subject: str) -> str:
    """Return the subject of an answer, marked once."""
    plain = one_line(subject)
    marked = plain if plain.casefold().startswith(_MARKS) else f"Re: {plain}".rstrip()
    return marked[:MAX_SUBJECT]


def _key(party: Party) -> str:
    return party.address.casefold()


def _others(parties: Sequence[Party], own: Collection[str]) -> tuple[Party, ...]:
    found = {_key(party): party for party in reversed(parties) if party.address}
    return tuple(party for key, party in reversed(found.items()) if key not in own)


def _addresses(parties: Sequence[Party]) -> tuple[Address, ...]:
    return tuple(map(_address, parties))


def _address(party: Party) -> Address:
    for text in (str(party), party.address):  # a name that poses as an address is not passed on
        with suppress(Invalid):
            return Address.parse(text)
    # Without the address: it is the mail's word, and an error is ours.
    raise Invalid(
        "The mail names somebody by an address that cannot be written to",
        remedy="Read it, and write a letter to the address that is meant.",
    )
