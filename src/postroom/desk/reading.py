"""What agents are shown of mail, remembered; and the facts that a risk card is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.card import Card, Facts, Level, Line
from postroom.core.errors import NotFound, PostroomError
from postroom.core.letter import Enclosure, Letter
from postroom.core.stamp import Stamp
from postroom.core.text import line
from postroom.store.ledger import Ledger

if TYPE_CHECKING:
    from postroom.core.message import Message, Party, Summary
    from postroom.mail.mailbox import Mailbox

MEMORY: Final = 30 * 86_400.0  # seconds for which a mail that was shown counts as the source
SHORTLY: Final = 3600.0  # seconds in which it is not remembered again
# Without one of these a text brings nothing.
_SIGNS: Final = re.compile(r"[@＠﹫./:\\\d\[({]|www", re.IGNORECASE)
_RUNS: Final = re.compile(rb"[\t\n\r -~]{6,}")
MANY: Final = 10_000
MOST: Final = 30_000  # tokens of a text that are remembered: a mail can hold many, to hide one
READABLE: Final = 1_000_000  # bytes of a file that are looked at
PAGES: Final = 5  # of sent mail that are looked through for domains, the first time
PAGE, FIRST_PAGE = 100, 5


class Source(NamedTuple):
    """Something of a letter that leads elsewhere, and the mail that it first stood in, if any did."""

    kind: str  # "recipient", "answers to", "link" or "picture"
    what: str
    where: str


class _Brought(NamedTuple):
    texts: tuple[str, ...]
    html: str
    people: frozenset[str]
    sender: str


class Reading:
    """The one port between a mailbox and the risk card: written to, and seen in mail."""

    def __init__(
        self, ledger: Ledger, mailboxes: Callable[[str], Mailbox], clock: Callable[[], Stamp]
    ) -> None:
        self._ledger = ledger
        self._mailboxes = mailboxes
        self._clock = clock
        self._pruned = -SHORTLY
        self._recent: dict[tuple[str, str, str], float] = {}

    def shown(self, account: str, *messages: Message) -> None:
        """Remember what mails brought that an agent is about to be shown."""
        brought = {}
        for message in messages:
            mail = message.mail
            if not self._remembered(account, message.id, "whole"):
                people = (mail.sender, *mail.to, *mail.cc, *mail.reply_to)
                names = [party.name for party in people if party]
                # With its ending and without: box@example.org.pdf is read as an address too.
                for file in mail.attachments:
                    names += [file.name, file.name.rpartition(".")[0]]
                texts = ("\n".join(names), f"{mail.subject}\n{mail.text}")
                found = _Brought(texts, mail.html, _keys(people), _sender(mail.sender))
                brought[account, message.id, "whole"] = found
        self._see(brought)

    def listed(self, account: str, summaries: Sequence[Summary]) -> None:
        """Remember what the mails of a list brought that an agent is about to be shown."""
        brought = {}
        for mail in summaries:
            if not self._remembered(account, mail.id, "whole", "line"):
                people = (mail.sender, *mail.to)
                texts = (mail.sender.name, f"{mail.subject}\n{mail.snippet}")
                found = _Brought(texts, "", _keys(people), _sender(mail.sender))
                brought[account, mail.id, "line"] = found
        self._see(brought)

    def saved(self, account: str, id: str, part: str, file: Enclosure) -> None:
        """Remember what a file brought that an agent is about to find on the disk."""
        # A text in two bytes a character, or with a byte to hide behind, reads as one without zeros.
        content = file.content[:READABLE].replace(b"\0", b"")
        try:
            words = content.decode()
        except UnicodeDecodeError:  # of what is no text, the strings in it
            words = "\n".join(run.decode("ascii") for run in _RUNS.findall(content))
        texts = (f"{file.name}\n{file.name.rpartition('.')[0]}", words)
        found = _Brought(texts, "", frozenset(), f"a file of it, {line(file.name)[:60]}")
        self._see({(account, id, f"part {part}"): found})

    def _remembered(self, account: str, id: str, *how: str) -> bool:
        now = self._clock().wall
        return any(
            0 <= now - self._recent.get((account, id, one), -SHORTLY) < SHORTLY for one in how
        )

    def _see(self, brought: dict[tuple[str, str, str], _Brought]) -> None:
        if not brought:
            return
        from postroom.core.risk import tokens

        now = self._clock().wall
        found = {}
        for (_, id, _), one in brought.items():
            # Apart, so that one full of addresses does not push out what another says.
            parts = [tokens(text, most=MOST) for text in one.texts if _SIGNS.search(text)]
            page = tokens("", one.html, most=MOST) if one.html else frozenset()
            found[f"mail {id} from {one.sender}"] = one.people.union(page, *parts)
        with self._ledger.write(synced=False) as book:
            book.see(found)
            if not 0 <= now - self._pruned < SHORTLY:  # which looks at all that is remembered
                book.forget_seen(now - MEMORY)
                self._pruned = now
        if len(self._recent) > MANY:
            self._recent.clear()
        self._recent.update(dict.fromkeys(brought, now))

    def own(self, account: str) -> frozenset[str]:
        """Return the keys of the account's own addresses."""
        return frozenset(address.key for address in self._mailboxes(account).own())

    def answered(self, letter: Letter) -> str:
        """Return the key of the address that an answer to the answered mail goes to."""
        if not (letter.thread and letter.in_reply_to):
            return ""
        try:
            thread = self._mailboxes(letter.account).thread(letter.thread)
        except PostroomError:
            return ""
        for message in thread.messages:
            if message.mail.message_id == letter.in_reply_to:
                whom = message.mail.reply_to or (message.mail.sender,)
                return whom[0].address.casefold() if len(whom) == 1 and whom[0] else ""
        return ""

    def sources(self, letter: Letter) -> list[Source]:
        """Return each recipient and each link, with the mail in which an agent was shown it first."""
        from postroom.core.findings import links
        from postroom.core.risk import letter_tokens

        seen = self._ledger.seen(letter_tokens(letter), self._clock().wall - MEMORY)
        people = [("recipient", address) for address in letter.envelope]
        people += [("answers to", address) for address in letter.reply_to]
        found = [Source(kind, one.spec, seen.get(one.key, "")) for kind, one in people]
        for link in links(letter.text, letter.html):
            where = seen.get(link.target) or seen.get(f"host:{link.host}", "")
            kind = "picture" if link.how == "loads" else "link"
            found.append(Source(kind, link.target or link.host, where))
        return list(dict.fromkeys(found))

    def card(self, letter: Letter, origins: Sequence[str]) -> Card:
        """Return the letter's risk card; what could not be looked up is a line of it."""
        from postroom.core.risk import assess  # its tables are loaded for new letters alone

        try:
            return assess(letter, self._facts(letter), origins)
        except PostroomError as why:
            unchecked = Line(Level.LOOK, "unchecked", f"Not all was looked up: {line(why.message)}")
            bare = assess(letter, Facts(), origins)
            return Card((*bare.lines, unchecked))

    def _facts(self, letter: Letter) -> Facts:
        from postroom.core.risk import letter_tokens

        box = self._mailboxes(letter.account)
        thread, automatic = _conversation(box, letter)
        return Facts(
            own=box.own(),
            written_to=frozenset(
                address.key for address in letter.envelope if _written_to(box, address.spec)
            ),
            known_domains=self._domains(box, letter.account),
            thread=thread,
            seen=self._ledger.seen(letter_tokens(letter), self._clock().wall - MEMORY),
            repeats=self._ledger.repeats(letter.text, but=letter.id),
            automatic=automatic,
        )

    def _domains(self, box: Mailbox, account: str) -> frozenset[str]:
        """Return the domains written to, after a look at what was sent since the last time."""
        key, cursor = f"contacts.{account}", ""
        last, newest = self._ledger.meta(key), ""
        domains: set[str] = set()
        for _ in range(PAGES):
            # Mostly there is one more letter than the last time.
            page = box.search("in:sent", limit=PAGE if cursor else FIRST_PAGE, cursor=cursor)
            newest = newest or (page.items[0].id if page.items else "")
            for summary in page.items:
                if summary.id == last:
                    break
                domains.update(party.address.rpartition("@")[2].casefold() for party in summary.to)
            else:
                cursor = page.cursor
                if cursor:
                    continue
            break
        if newest != last:
            with self._ledger.write(synced=False) as book:
                book.meet(account, frozenset(filter(None, domains)))
                book.set(key, newest)
        return self._ledger.domains(account)


def _sender(party: Party | None) -> str:
    return line(party.address)[:80] if party else "nobody"


def _keys(people: Iterable[Party | None]) -> frozenset[str]:
    return frozenset(party.address.casefold() for party in people if party and party.address)


def _written_to(box: Mailbox, spec: str) -> bool:
    asked = f'in:sent (to:"{spec}" OR cc:"{spec}" OR bcc:"{spec}")'
    return bool(box.search(asked, limit=1).items)


def _conversation(box: Mailbox, letter: Letter) -> tuple[frozenset[str] | None, bool]:
    """Return who takes part in what the letter answers, and whether that was an automatic mail."""
    if not (letter.thread and letter.in_reply_to):
        return None, False
    try:
        mails = [message.mail for message in box.thread(letter.thread).messages]
    except NotFound:
        return frozenset(), False
    parties: list[Party | None] = []
    for mail in mails:
        parties += (mail.sender, *mail.to, *mail.cc, *mail.reply_to)
    answered = [mail for mail in mails if mail.message_id == letter.in_reply_to]
    automatic = any(mail.automatic or mail.list_id for mail in answered)
    return frozenset(party.address.casefold() for party in parties if party), automatic
