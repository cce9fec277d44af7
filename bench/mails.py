"""Invented mail: as many mails as wanted, the same on every machine, each made from its number alone.

A mail's rank is its place in the order of dates. Nothing is remembered between two mails, so they
can be made in any order: shuffled for a mailbox that must bear it, by date for bare FTS5.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from functools import cache
from pathlib import Path
from typing import NamedTuple

from postroom.core.message import INBOX, TRASH, UNREAD
from postroom.mail.mailbox import Arrival

SEED = 5321
FIRST_DATE = 1_420_070_400  # 2015-01-01
LAST_DATE = 1_735_689_600  # 2025-01-01
ME = "you@example.org"

# Words that the invented vocabulary cannot hold, for it has no q, and the part of mails with each.
NEARLY_ALL, NEARLY_ALL_PART = "quill", 0.97
COMMON, COMMON_PART = "quay", 0.20
RARE, RARE_PART = "quartz", 0.001
PHRASE, PHRASE_PART = "quiet quince", 0.01
APART_PART = 0.05  # with one of the phrase's words alone, and as many with the other

RARE_LABEL, RARE_LABEL_PART = "Rare", 0.001
LABELS, LABEL_PART = ("Work", "Family", "Travel", "Receipts", "Lists"), 0.03
INBOX_PART, UNREAD_PART, TRASH_PART = 0.30, 0.10, 0.01
ARCHIVE = "Archive"

HTML_PART, ATTACHMENT_PART, UNICODE_PART, CC_PART, QUOTING_PART = 0.10, 0.05, 0.10, 0.15, 0.25
MEAN_BYTES = 2048
WORDS_MU, WORDS_SIGMA = 5.00, 0.75  # of the lognormal length of a text: it gives MEAN_BYTES
WORDS_A_LINE, LINES_A_PARAGRAPH = 11, 5

VOCABULARY = 50_000
SENDERS = 2_000
TABLE = 1 << 20  # words drawn from a table that holds each as often as Zipf's law has it
REPLY_REACH, DEEPEST = 40, 12


class Made(NamedTuple):
    """One invented mail, and what bare FTS5 is given of it."""

    rank: int
    raw: bytes
    date: int
    folder: str
    unread: bool
    trashed: bool
    subject: str
    sender: str
    text: str

    @property
    def arrival(self) -> Arrival:
        """Return the mail as a mailbox takes it in."""
        own = {TRASH} if self.trashed else {self.folder} - {ARCHIVE}
        return Arrival(self.raw, frozenset(own | ({UNREAD} if self.unread else set())), self.date)

    @property
    def marks(self) -> str:
        """Return its folder and flags as words."""
        return f"{self.folder.lower()}{' unread' if self.unread else ''}"

    def write(self, maildir: Path) -> None:
        """Put the mail into a Maildir whose folders were made by `make_folders`."""
        folder = maildir if self.folder == INBOX else maildir / f".{self.folder}"
        flags = f"{'' if self.unread else 'S'}{'T' if self.trashed else ''}"
        (folder / "cur" / f"{self.date}.M{self.rank}.bench:2,{flags}").write_bytes(self.raw)


def make_folders(maildir: Path) -> None:
    """Make an empty Maildir with the folders that invented mail lies in."""
    for name in ("", *(f".{label}" for label in (ARCHIVE, RARE_LABEL, *LABELS))):
        for part in ("cur", "new", "tmp"):
            (maildir / name / part).mkdir(parents=True)


def shuffled(count: int) -> Iterator[Made]:
    """Yield that many mails in the order in which they arrive, which is not that of their dates."""
    ranks = list(range(count))
    random.Random(SEED).shuffle(ranks)
    return (mail(rank, count) for rank in ranks)


def rank_of(message_id: str) -> int:
    """Return the rank of the mail that bears this Message-ID."""
    return int(message_id.strip("<>").split(".", 1)[0])


@cache
def vocabulary() -> Sequence[str]:
    """Return the invented words, the most frequent and shortest first."""
    draw = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < VOCABULARY:
        syllables = 1 if len(found) < 80 else 2 if len(found) < 4000 else draw.choice((2, 3, 4))
        word = "".join(
            draw.choice("bdfghklmnprstvwz") + draw.choice("aeiou") for _ in range(syllables)
        )
        found[word + draw.choice(("", "", "n", "r", "s", "t"))] = None
    return tuple(found)


@cache
def senders() -> Sequence[tuple[str, str]]:
    """Return the names and addresses of those who write, the busiest first; one in twenty has an umlaut."""
    draw = random.Random(SEED + 1)
    known = vocabulary()
    first, last, hosts = known[100:400], known[1000:2000], known[500:550]
    found: dict[str, str] = {}
    while len(found) < SENDERS:
        one, two = draw.choice(first), draw.choice(last)
        shown = f"{one} {two}".title()
        found[f"{one}.{two}@{draw.choice(hosts)}.example.org"] = (
            f"{shown} Müller" if draw.random() < 0.05 else shown
        )
    return tuple((name, address) for address, name in found.items())


@cache
def _table() -> Sequence[str]:
    known = vocabulary()
    whole = sum(1 / place for place in range(1, VOCABULARY + 1))
    table = [
        word
        for place, word in enumerate(known, 1)
        for _ in range(max(1, round(TABLE / (place * whole))))
    ]
    return tuple(table)


def mail(rank: int, count: int) -> Made:
    """Return the mail of this rank in a mailbox of so many."""
    draw = random.Random(SEED * 1_000_003 + rank)
    chain = _ancestors(rank)
    root = chain[0] if chain else rank
    date = FIRST_DATE + (LAST_DATE - FIRST_DATE) * rank // count
    unicode = draw.random() < UNICODE_PART
    topic = random.Random(-root - 1).choices(_table(), k=2 + root % 5)
    subject = f"{'Re: ' if chain else ''}{' '.join(topic).capitalize()}"
    name, address = _person(draw)
    text = _text(draw, name, unicode=unicode)
    if chain and draw.random() < QUOTING_PART:
        quoted = _lines(draw.choices(_table(), k=40))
        text += "\n\n" + "\n".join(f"> {line}" for line in quoted)
    head = [
        f"Return-Path: <{address}>",
        f"Received: from {address.split('@')[1]} by mx.example.org with ESMTPS id {rank:x}",
        f"\tfor <{ME}>; {formatdate(date)}",
        f"Message-ID: {_id(rank)}",
        f"Date: {formatdate(date - 2)}",
        f"From: {_encoded(name)} <{address}>",
        f"To: {ME}",
    ]
    if draw.random() < CC_PART:
        people = (_person(draw) for _ in range(draw.randint(1, 4)))
        head.append("Cc: " + ",\n ".join(f"{_encoded(who)} <{where}>" for who, where in people))
    head.append(f"Subject: {_encoded(subject)}")
    if chain:
        head.append(f"In-Reply-To: {_id(chain[-1])}")
        head.append("References: " + "\n ".join(map(_id, chain)))
    head.append("MIME-Version: 1.0")
    return Made(
        rank,
        "\n".join([*head, *_content(draw, rank, text)]).encode(),
        date - 2,
        _folder(draw),
        draw.random() < UNREAD_PART,
        draw.random() < TRASH_PART,
        subject,
        f"{name} <{address}>",
        text,
    )


def _ancestors(rank: int) -> list[int]:
    """Return the mails that this one answers, the first of the thread first: half of all mails answer one."""
    chain: list[int] = []
    while len(chain) < DEEPEST:
        mixed = (rank * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        rank -= 1 + (mixed >> 40) % REPLY_REACH
        if mixed >> 63 or rank < 0:
            break
        chain.append(rank)
    return chain[::-1]


def _id(rank: int) -> str:
    return f"<{rank}.{(rank * 2654435761) & 0xFFFFFFFF:08x}@mail.example.org>"


def _person(draw: random.Random) -> tuple[str, str]:
    return senders()[int(SENDERS ** draw.random()) - 1]


def _folder(draw: random.Random) -> str:
    place = draw.random()
    for name, part in (
        (RARE_LABEL, RARE_LABEL_PART),
        (INBOX, INBOX_PART),
        *((label, LABEL_PART) for label in LABELS),
    ):
        place -= part
        if place < 0:
            return name
    return ARCHIVE


def _text(draw: random.Random, name: str, *, unicode: bool) -> str:
    words = draw.choices(_table(), k=8 + int(draw.lognormvariate(WORDS_MU, WORDS_SIGMA)))
    one, two = PHRASE.split()
    for word, part in (
        (NEARLY_ALL, NEARLY_ALL_PART),
        (COMMON, COMMON_PART),
        (RARE, RARE_PART),
        (one, APART_PART),
        (two, APART_PART),
        (PHRASE, PHRASE_PART),
        (f"{draw.getrandbits(40):x}", 0.1),  # a number of an order or a parcel: it occurs once
    ):
        if draw.random() < part:
            # Never beside another of them: the phrase is there when it is meant to be.
            words.insert(draw.randrange(1, len(words)), f"{word} {words[0]}")
    lines = _lines(words)
    for at in range(LINES_A_PARAGRAPH, len(lines), LINES_A_PARAGRAPH + 1):
        lines.insert(at, "")
    return "\n".join([*lines, "", "Schöne Grüße" if unicode else "Yours", name])


def _lines(words: Sequence[str]) -> list[str]:
    return [
        " ".join(words[at : at + WORDS_A_LINE]).capitalize() + "."
        for at in range(0, len(words), WORDS_A_LINE)
    ]


def _encoded(text: str) -> str:
    return text if text.isascii() else f"=?utf-8?b?{base64.b64encode(text.encode()).decode()}?="


def _content(draw: random.Random, rank: int, text: str) -> list[str]:
    """Return the lines from Content-Type on."""
    plain = ["Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: 8bit", "", text]
    if draw.random() < HTML_PART:
        boundary = f"=_alternative_{rank}"
        html = "".join(f"<p>{part}</p>\n" for part in text.replace("> ", "&gt; ").split("\n\n"))
        plain = [
            f'Content-Type: multipart/alternative; boundary="{boundary}"',
            "",
            f"--{boundary}",
            *plain,
            f"--{boundary}",
            "Content-Type: text/html; charset=utf-8",
            "Content-Transfer-Encoding: 8bit",
            "",
            "<html><head><style>p { margin: 1em 0; color: #222 }</style></head><body>",
            f'{html}<a href="https://www.example.org/mail/{rank}">Read it online</a>',
            "</body></html>",
            f"--{boundary}--",
        ]
    if draw.random() < ATTACHMENT_PART:
        boundary = f"=_mixed_{rank}"
        content = base64.encodebytes(draw.randbytes(draw.randint(500, 3000))).decode()
        plain = [
            f'Content-Type: multipart/mixed; boundary="{boundary}"',
            "",
            f"--{boundary}",
            *plain,
            f"--{boundary}",
            f'Content-Type: application/pdf; name="{draw.choice(vocabulary())}.pdf"',
            "Content-Disposition: attachment",
            "Content-Transfer-Encoding: base64",
            "",
            content,
            f"--{boundary}--",
        ]
    return [*plain, ""]
