"""An outgoing mail, frozen: what a person approves is its digest, and nothing else is ever sent."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import field
from functools import cached_property
from typing import Any, Final

from postroom.core.address import Address
from postroom.core.errors import Invalid, raise_if
from postroom.core.text import clean
from postroom.core.values import dataclass

MAX_SUBJECT: Final = 998  # RFC 5322 section 2.1.1: a line of a header
MAX_TEXT: Final = 5_000_000
MAX_BYTES: Final = 25_000_000  # what Gmail, and most servers, take of one mail
MAX_REFERENCES: Final = 100
ID_BYTES: Final = 7

_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID: Final = r"[a-z2-7]{10}"
_NAME: Final = r"[!-~]{0,200}"
_MESSAGE_ID: Final = r"<[!-;=?-~]{1,250}@[!-;=?-~]{1,250}>"
_CONTROL: Final = "[\x00-\x08\x0b-\x1f\x7f]"
_SURROGATE: Final = "[\ud800-\udfff]"
_NOT_ONE_LINE: Final = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_TYPE: Final = r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}"


def is_message_id(text: str) -> bool:
    """Whether this can stand in a letter's headers as the name of another mail."""
    return bool(re.fullmatch(_MESSAGE_ID, text))


def letter_id(entropy: bytes) -> str:
    """Return a letter's id, ten lower-case base32 characters, from at least seven random bytes."""
    number = int.from_bytes(entropy[:ID_BYTES], "big")
    return "".join(_BASE32[number >> (5 * place) & 31] for place in range(10))


@dataclass(frozen=True, slots=True)
class Enclosure:
    name: str
    type: str
    content: bytes = field(repr=False)

    def __post_init__(self) -> None:
        name = self.name
        plain = name.strip(". ") and name == clean(name).text and not set(name) & set("/\\\n\t")
        unknown = not re.fullmatch(_TYPE, self.type)
        raise_if(
            (not plain, f"{name!r} is not a file name", "Give a plain name such as report.pdf."),
            (len(name) > 200, "An attachment's name is longer than 200 characters", "Shorten it."),
            (unknown, f"{self.type!r} is not a content type", "Give one such as application/pdf."),
        )


@dataclass(frozen=True, kw_only=True)
class Letter:
    """Everything that a provider needs to send one mail, but its Date, which is set when it is sent."""

    id: str
    account: str
    sender: Address
    to: tuple[Address, ...]
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    reply_to: tuple[Address, ...] = ()
    subject: str = ""
    text: str = ""
    html: str = ""
    thread: str = ""
    in_reply_to: str = ""
    references: tuple[str, ...] = ()
    attachments: tuple[Enclosure, ...] = ()

    def __post_init__(self) -> None:
        hidden = re.search(_NOT_ONE_LINE, self.subject) or clean(self.subject).removed
        where = "The subject holds a line break or an invisible character"
        raise_if(
            (not re.fullmatch(_ID, self.id), f"{self.id!r} is not a letter's id", ""),
            (not self.envelope, "The letter has no recipient", "Name at least one in `to`."),
            (hidden, where, "Write it as one line of plain text."),
            (not re.fullmatch(_NAME, self.account), f"{self.account[:40]!r} is not an account", ""),
            (not re.fullmatch(_NAME, self.thread), f"{self.thread[:40]!r} is not a thread", ""),
        )
        limits = {"subject": MAX_SUBJECT, "text": MAX_TEXT, "html": MAX_TEXT}
        for name, text in (("subject", self.subject), ("text", self.text), ("html", self.html)):
            halves = f"The {name} holds half a character (a lone surrogate)"
            control = f"The {name} holds control characters or carriage returns"
            long = f"The {name} has {len(text):,} characters; {limits[name]:,} is the most"
            raise_if(
                (re.search(_SURROGATE, text), halves, "Send valid Unicode."),
                (re.search(_CONTROL, text), control, "Use plain text with newlines."),
                (len(text) > limits[name], long, "Shorten it."),
            )
        for header in (*self.references, *filter(None, (self.in_reply_to,))):
            raise_if((not is_message_id(header), f"{header[:80]!r} is not a Message-ID", ""))
        size = len(self.text) + len(self.html) + sum(len(a.content) for a in self.attachments)
        many = f"A letter has at most {MAX_REFERENCES} references"
        large = f"The letter holds {size:,} bytes; {MAX_BYTES:,} is the most"
        raise_if(
            (len(self.references) > MAX_REFERENCES, many, ""),
            (size > MAX_BYTES, large, "Send fewer or smaller attachments, or a link to them."),
        )

    @cached_property
    def envelope(self) -> tuple[Address, ...]:
        """Every recipient, each once, in the order To, Cc, Bcc."""
        return tuple({address.key: address for address in (*self.to, *self.cc, *self.bcc)}.values())

    @property
    def address_rows(self) -> list[tuple[str, tuple[Address, ...]]]:
        """From, To, Cc, Bcc and Reply-To with their addresses, as every surface lists them; empty ones left out."""
        rows = [
            ("From", (self.sender,)),
            ("To", self.to),
            ("Cc", self.cc),
            ("Bcc", self.bcc),
            ("Reply-To", self.reply_to),
        ]
        return [(name, addresses) for name, addresses in rows if addresses]

    @property
    def is_reply(self) -> bool:
        """Whether it answers a mail, which may have no Message-ID: then only the conversation says so."""
        return bool(self.in_reply_to or self.thread)

    @property
    def is_reduced(self) -> bool:
        """Whether the text was made from the HTML part, if it has one, and both have the same words."""
        if not self.html:
            return True
        from postroom.core.outgoing_html import reduce_html  # few letters have one

        try:
            return reduce_html(self.html)[:2] == (self.html, self.text)
        except Invalid:
            return False

    @property
    def about_html(self) -> str:
        same = "The text shown was made from it and has the same words."
        old = "An older version wrote it: recipients may see other words than these."
        return f"{len(self.html):,} characters. {same if self.is_reduced else old}"

    @property
    def message_id(self) -> str:
        """The Message-ID, which comes from the id, so that every sending of this letter has the same."""
        return f"<{self.id}@{self.sender.domain}>"

    @cached_property
    def digest(self) -> str:
        """What a person approves: SHA-256 over all of the letter but its Date."""
        return _sha256(self._canonical())

    @cached_property
    def content_key(self) -> str:
        """The digest without what the id gives: it recognises a repeated call."""
        return _sha256({name: value for name, value in self._canonical().items() if name != "id"})

    def _canonical(self) -> dict[str, Any]:
        return {"version": 1, **{name: getattr(self, name) for name in FIELDS}}


FIELDS: Final = tuple(Letter.__annotations__)


def _plain(part: Address | Enclosure) -> list[str | int]:
    if isinstance(part, Address):
        return [part.name, part.local, part.domain]
    return [part.name, part.type, len(part.content), hashlib.sha256(part.content).hexdigest()]


def _sha256(value: dict[str, Any]) -> str:
    # JSON with sorted keys and ASCII escapes is one spelling for one value, in every Python.
    return f"sha256:{hashlib.sha256(_json(value).encode('ascii')).hexdigest()}"


_json: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain).encode
