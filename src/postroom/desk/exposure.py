"""What mail shows to agents, notes and files, recorded; and the facts that a risk card is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.address import Address
from postroom.core.card import Card, Exposure, LetterFacts
from postroom.core.errors import NotFound, PostroomError
from postroom.core.letter import Enclosure, Letter
from postroom.core.message import SENT
from postroom.core.records import ShownMail
from postroom.core.stamp import Stamp
from postroom.core.text import one_line
from postroom.core.values import dataclass
from postroom.store.ledger import Ledger

if TYPE_CHECKING:
    from postroom.core.message import Mail, Message, Party, Summary
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
MAX_NEW: Final = 20  # new recipients of whom it is looked up whether they wrote
MAX_SUBJECT: Final = 300  # characters of a subject that are kept
MAX_ADDRESS: Final = 320


class Shown(NamedTuple):
    """What a mail shows: addresses and texts, each with the part of the mail that it stands in.

    `how` it is shown is "whole", "line" (of a list), or the name of a file.
    """

    mail: ShownMail
    how: str
    people: Iterable[tuple[str, str]]
    texts: Sequence[tuple[str, str]]
    html: str = ""


@dataclass(slots=True)
class ExposureLog:
    """The one port between a mailbox and the risk card: written to, and seen in mail."""

    ledger: Ledger
    mailboxes: Callable[[str], Mailbox]
    clock: Callable[[], Stamp]
    _pruned: float = -SHORTLY
    _recent: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def saw_messages(self, account: str, *messages: Message) -> None:
        """Record what mails show that an agent is about to read."""
        self.record([_whole(account, message) for message in messages])

    def saw_list(self, account: str, summaries: Sequence[Summary]) -> None:
        """Record what the mails of a list show that an agent is about to read."""
        self.record(
            [
                Shown(
                    _mail(account, one, one.sender, one.subject),
                    "line",
                    [("from", _key(one.sender)), *(("to", _key(party)) for party in one.to)],
                    [("name", one.sender.name), ("subject", one.subject), ("body", one.snippet)],
                )
                for one in summaries
            ]
        )

    def saw_file(self, account: str, message: Message, part: str, file: Enclosure) -> None:
        """Record what a file of a mail shows, before it is on the disk for anybody to read."""
        # A text in two bytes a character, or with a byte to hide behind, reads as one without zeros.
        content = file.content[:READABLE].replace(b"\0", b"")
        try:
            words = content.decode()
        except UnicodeDecodeError:  # of what is no text, the strings in it
            words = "\n".join(run.decode("ascii") for run in _RUNS.findall(content))
        texts = [("file", f"{file.name}\n{file.name.rpartition('.')[0]}"), ("file", words)]
        texts += [("file", text) for text in _decoded(content)]
        whole = _whole(account, message)
        self.record([whole, Shown(whole.mail, f"part {part}", (), texts)], synced=True)

    def record(self, mails: Iterable[Shown], *, synced: bool = False) -> None:
        """Record what mails show; what was recorded within the hour is left out."""
        now = self.clock().wall
        new = {(*one.mail[:2], one.how): one for one in mails if not self._remembered(one, now)}
        if not new:
            return
        found = [(one.mail, _tokens(one)) for one in new.values()]
        with self.ledger.write(synced=synced) as tx:
            for mail, tokens in found:
                tx.exposure.record(mail, tokens)
            if not 0 <= now - self._pruned < SHORTLY:  # which looks at all that is remembered
                tx.exposure.forget_before(now - MEMORY)
                self._pruned = now
        if len(self._recent) > MANY:
            self._recent.clear()
        self._recent.update(dict.fromkeys(new, now))

    def _remembered(self, one: Shown, now: float) -> bool:
        account, id = one.mail[:2]
        ways = (one.how, "whole") if one.how == "line" else (one.how,)
        times = (self._recent.get((account, id, how), -SHORTLY) for how in ways)
        return any(0 <= now - time < SHORTLY for time in times)

    def own(self, account: str) -> frozenset[str]:
        """Return the keys of the account's own addresses."""
        return frozenset(address.key for address in self.mailboxes(account).own_addresses())

    def answered(self, letter: Letter) -> str:
        """Return the key of the address that an answer to the answered mail goes to."""
        with suppress(PostroomError):
            for mail in _thread(self.mailboxes(letter.account), letter) or ():
                if mail.message_id == letter.in_reply_to:
                    parties = mail.reply_to or (mail.sender,)
                    first = parties[0]
                    return first.address.casefold() if first and len(parties) == 1 else ""
        return ""

    def card(self, letter: Letter, origins: Sequence[str]) -> Card:
        """Return the letter's risk card; what could not be looked up is a line of it."""
        from postroom.review.risk import assess  # its tables are for new letters alone
        from postroom.review.tables import card_line
        from postroom.review.tokens import letter_tokens

        seen = self.ledger.exposure.find(letter_tokens(letter), self.clock().wall - MEMORY)
        try:
            return assess(letter, self._facts(letter, seen), origins)
        except PostroomError as why:
            unchecked = card_line("unchecked", why=one_line(why.message).rstrip("."))
            return assess(letter, LetterFacts(seen=seen), origins).adding(unchecked)

    def _facts(self, letter: Letter, seen: Mapping[str, Sequence[Exposure]]) -> LetterFacts:
        box = self.mailboxes(letter.account)
        thread, answered, automatic = _conversation(box, letter)
        written_to = frozenset(
            address.key for address in letter.envelope if _written_to(box, address)
        )
        new = [address for address in letter.envelope if address.key not in written_to]
        return LetterFacts(
            own=box.own_addresses(),
            written_to=written_to,
            contacts=self._contacts(box, letter.account),
            wrote={a.key: date for a in new[:MAX_NEW] if (date := _wrote(box, a))},
            thread=thread,
            answered=answered,
            seen=seen,
            repeats=self.ledger.letters.with_same_text(letter.text, except_id=letter.id),
            automatic=automatic,
        )

    def _contacts(self, box: Mailbox, account: str) -> frozenset[str]:
        """Return the addresses written to, after a look at what was sent since the last time."""
        known, last_sent = self.ledger.exposure.correspondents(account)
        if sent := list(_sent_since(box, last_sent)):
            found = {_key(party) for summary in sent for party in summary.to}
            with self.ledger.write(synced=False) as tx:
                tx.exposure.add_correspondents(account, found - known - {""}, sent[0].id)
            known |= found - {""}
        return known


def _key(party: Party | None) -> str:
    from postroom.review.tokens import address_key  # few commands need its tables

    return address_key(party.address)[:MAX_ADDRESS] if party else ""


def _mail(account: str, one: Message | Summary, sender: Party | None, subject: str) -> ShownMail:
    sent = SENT in one.labels
    return ShownMail(account, one.id, _key(sender), subject[:MAX_SUBJECT], one.date, sent)


def _whole(account: str, message: Message) -> Shown:
    mail = message.mail
    people = [("from", mail.sender), *(("to", party) for party in (*mail.to, *mail.cc))]
    people += [("reply_to", party) for party in mail.reply_to]
    names = "\n".join(party.name for _, party in people if party)
    # With its ending and without: box@example.org.pdf is read as an address too.
    files = [text for a in mail.attachments for text in (a.name, a.name.rpartition(".")[0])]
    return Shown(
        _mail(account, message, mail.sender, mail.subject),
        "whole",
        [(part, _key(party)) for part, party in people],
        [
            ("name", names),
            ("file", "\n".join(files)),
            ("subject", mail.subject),
            ("body", mail.text),
        ],
        mail.html,
    )


def _decoded(content: bytes) -> Iterator[str]:
    """Yield what a file says if it is a mail, or a card or an event in the encodings of mail."""
    from quopri import decodestring

    from postroom.mail import mime

    inner = mime.read(content)
    people = (inner.sender, *inner.to, *inner.cc, *inner.reply_to)
    yield "\n".join((inner.subject, *map(str, filter(None, people)), inner.text))
    if b"=" in content:
        yield decodestring(content).decode(errors="replace")


def _tokens(shown: Shown) -> dict[str, set[str]]:
    """Return the tokens of each part of a mail."""
    from postroom.review.tokens import tokens

    found: dict[str, set[str]] = {}
    for part, key in shown.people:
        found.setdefault(part, set()).add(key)
    # Each text apart, so that one full of addresses does not push out what another says.
    for part, text in shown.texts:
        if _SIGNS.search(text):
            found.setdefault(part, set()).update(tokens(text, most=MOST))
    if shown.html:
        found["html"] = set(tokens("", shown.html, most=MOST)) - found.get("body", set())
    return {part: of - {""} for part, of in found.items()}


def _sent_since(box: Mailbox, last: str) -> Iterator[Summary]:
    """Yield what was sent since this mail, newest first."""
    cursor = ""
    for _ in range(PAGES):
        # Mostly there is one more letter than the last time.
        page = box.search("in:sent", limit=PAGE if cursor else FIRST_PAGE, cursor=cursor)
        for summary in page.items:
            if summary.id == last:
                return
            yield summary
        cursor = page.cursor
        if not cursor:
            return


def _wrote(box: Mailbox, address: Address) -> float:
    """Return when this address last wrote a mail that is not in Sent, or 0."""
    page = box.search(f'from:"{address.spec}" -in:sent', limit=1)
    return next((one.date for one in page.items if _key(one.sender) == address.key), 0)


def _written_to(box: Mailbox, address: Address) -> bool:
    """Whether a mail in Sent went to this address; Gmail also finds names, and addresses that contain it."""
    spec = address.spec
    asked = f'in:sent (to:"{spec}" OR cc:"{spec}" OR bcc:"{spec}")'
    for one in box.search(asked, limit=FIRST_PAGE).items:
        if address.key in map(_key, one.to):
            return True
        mail = box.message(one.id).mail
        if address.key in map(_key, (*mail.to, *mail.cc, *mail.bcc)):
            return True
    return False


def _thread(box: Mailbox, letter: Letter) -> list[Mail] | None:
    """Return the mails of the conversation that a letter answers; None where it answers none."""
    if not (letter.thread and letter.in_reply_to):
        return None
    return [message.mail for message in box.thread(letter.thread).messages]


def _conversation(
    box: Mailbox, letter: Letter
) -> tuple[frozenset[str] | None, frozenset[str], bool]:
    """Return who takes part in the conversation, whom the answered mail names, and whether that is automatic."""
    try:
        mails = _thread(box, letter)
    except NotFound:
        mails = []
    if mails is None:
        return None, frozenset(), False
    answered = [mail for mail in mails if mail.message_id == letter.in_reply_to]
    named = {_key(one) for mail in answered for one in (mail.sender, *mail.to, *mail.cc)}
    others = {_key(one) for mail in mails for one in (mail.sender, *mail.to, *mail.cc, *mail.reply_to)}  # fmt: skip
    automatic = any(mail.automatic or mail.list_id for mail in answered)
    return frozenset(others - {""}), frozenset(named - {""}), automatic
