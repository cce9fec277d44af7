"""An outgoing mail, frozen: what a person approves is its digest, and nothing else is ever sent."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import field, fields
from typing import Any, Final

from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.core.text import clean
from postroom.core.values import dataclass

MAX_SUBJECT: Final = 998  # RFC 5322 section 2.1.1: a line of a header
MAX_TEXT: Final = 5_000_000
MAX_BYTES: Final = 25_000_000  # what Gmail, and most servers, take of one mail
MAX_REFERENCES: Final = 100
ID_BYTES: Final = 7

_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID: Final = re.compile(r"[a-z2-7]{10}")
_NAME: Final = re.compile(r"[!-~]{0,200}")
_MESSAGE_ID: Final = re.compile(r"<[!-;=?-~]{1,250}@[!-;=?-~]{1,250}>")
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_NOT_ONE_LINE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}")


def is_message_id(text: str) -> bool:
    """Whether this can stand in a letter's headers as the name of another mail."""
    return bool(_MESSAGE_ID.fullmatch(text))


def letter_id(entropy: bytes) -> str:
    """Return a letter's id, ten lower-case base32 characters, from at least seven random bytes."""
    number = int.from_bytes(entropy[:ID_BYTES], "big")
    return "".join(_BASE32[number >> (5 * place) & 31] for place in range(10))


@dataclass(frozen=True, slots=True)
class Enclosure:
    """A file that goes out with a letter."""

    name: str
    type: str
    content: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if (
            not self.name.strip(". ")
            or self.name != clean(self.name).text
            or set(self.name) & set("/\\\n\t")
        ):
            raise Invalid(
                f"{self.name!r} is no file name", remedy="Give a plain name such as report.pdf."
            )
        if len(self.name) > 200:
            raise Invalid(
                "An attachment's name is longer than 200 characters", remedy="Shorten it."
            )
        if not _TYPE.fullmatch(self.type):
            raise Invalid(
                f"{self.type!r} is no content type", remedy="Give one such as application/pdf."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
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
        if not _ID.fullmatch(self.id):
            raise Invalid(f"{self.id!r} is no letter's id")
        if not self.envelope:
            raise Invalid("The letter has no recipient", remedy="Name at least one in `to`.")
        _check_subject(self.subject)
        for name in ("account", "thread"):
            if not _NAME.fullmatch(getattr(self, name)):
                raise Invalid(f"{getattr(self, name)[:40]!r} is no {name}")
        for name in ("text", "html"):
            _check_text(name, getattr(self, name))
        for header in (*self.references, *filter(None, (self.in_reply_to,))):
            if not is_message_id(header):
                raise Invalid(f"{header[:80]!r} is no Message-ID")
        if len(self.references) > MAX_REFERENCES:
            raise Invalid(f"A letter has at most {MAX_REFERENCES} references")
        size = len(self.text) + len(self.html) + sum(len(a.content) for a in self.attachments)
        if size > MAX_BYTES:
            raise Invalid(
                f"The letter holds {size:,} bytes; {MAX_BYTES:,} is the most",
                remedy="Send fewer or smaller attachments, or a link to them.",
            )

    @property
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
    def about_html(self) -> str:
        """What a person is told of the HTML part, wherever the letter is shown."""
        from postroom.core.outgoing_html import is_reduced  # few letters have one

        same = "The text shown was made from it and has the same words."
        old = "An older version wrote it: recipients may see other words than these."
        return f"{len(self.html):,} characters. {same if is_reduced(self.html, self.text) else old}"

    @property
    def message_id(self) -> str:
        """The Message-ID, which comes from the id, so that every sending of this letter has the same."""
        return f"<{self.id}@{self.sender.domain}>"

    @property
    def digest(self) -> str:
        """What a person approves: SHA-256 over all of the letter but its Date."""
        return _sha256(self._canonical())

    @property
    def content_key(self) -> str:
        """The digest without what the id gives: it recognises a repeated call."""
        return _sha256({name: value for name, value in self._canonical().items() if name != "id"})

    def _canonical(self) -> dict[str, Any]:
        return {"version": 1, **{name: getattr(self, name) for name in FIELDS}}


FIELDS: Final = tuple(field.name for field in fields(Letter))


def _plain(part: Address | Enclosure) -> list[str | int]:
    if isinstance(part, Address):
        return [part.name, part.local, part.domain]
    return [part.name, part.type, len(part.content), hashlib.sha256(part.content).hexdigest()]


def _sha256(value: dict[str, Any]) -> str:
    # JSON with sorted keys and ASCII escapes is one spelling for one value, in every Python.
    encoded = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
    return f"sha256:{hashlib.sha256(encoded.encode('ascii')).hexdigest()}"


def _check_subject(subject: str) -> None:
    if _NOT_ONE_LINE.search(subject) or clean(subject).removed:
        raise Invalid(
            "The subject holds a line break or an invisible character",
            remedy="Write it as one line of plain text.",
        )
    if len(subject) > MAX_SUBJECT:
        raise Invalid(
            f"The subject has {len(subject)} characters; {MAX_SUBJECT} is the most",
            remedy="Shorten it.",
        )


def _check_text(name: str, text: str) -> None:
    if _SURROGATE.search(text):
        raise Invalid(
            f"The {name} holds half a character (a lone surrogate)", remedy="Send valid Unicode."
        )
    if _CONTROL.search(text):
        raise Invalid(
            f"The {name} holds control characters or carriage returns",
            remedy="Use plain text with newlines.",
        )
    if len(text) > MAX_TEXT:
        raise Invalid(
            f"The {name} has {len(text):,} characters; {MAX_TEXT:,} is the most",
            remedy="Shorten it.",
        )
