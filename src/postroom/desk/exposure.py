"""Records the addresses and links that mail has shown to agents, and gathers the facts for a letter's risk card."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core.address import Address
from postroom.core.errors import NotFound, PostroomError
from postroom.core.letter import Enclosure, Letter, is_message_id
from postroom.core.message import SENT
from postroom.core.records import AnsweredMail, Card, Exposure, LetterFacts, ShownMail
from postroom.core.stamp import Stamp
from postroom.core.text import one_line
from postroom.core.values import dataclass
from postroom.store.ledger import Ledger

if TYPE_CHECKING:
    from postroom.core.message import Message, Party, Summary
    from postroom.mail.mailbox import Mailbox

EXPOSURE_SECONDS: Final = 30 * 86_400.0  # a mail counts as a source for so long after it was shown
REPEAT_SECONDS: Final = 3600.0  # a mail that is shown again within this time is not recorded again
# Any address, link or number has one of these: a text without them has no tokens.
_TOKEN_SIGNS: Final = re.compile(r"[@＠﹫./:\\\d\[({]|www", re.IGNORECASE)
_PRINTABLE_RUNS: Final = re.compile(rb"[\t\n\r -~]{6,}")
MAX_RECENT: Final = 10_000  # recordings that a process remembers, to leave out repeats
MAX_TOKENS: Final = 30_000  # recorded of one text; many, since a mail may list others to hide one
READABLE: Final = 1_000_000  # bytes of a file that are searched
MAX_PAGES: Final = 5  # pages of sent mail that are searched for recipients, the first time
PAGE_SIZE, FIRST_PAGE_SIZE = 100, 5  # mails
MAX_UNSAVED: Final = 2  # recipients of sent mail that are not written to the ledger yet
MAX_NEW: Final = 20  # new recipients for whom the mailbox is asked whether they ever wrote
MAX_SUBJECT: Final = 300  # characters that are recorded
MAX_ADDRESS: Final = 320


class Shown(NamedTuple):
    """What a mail shows: `people` are (part, address) and `texts` are (part, text); the part says where in the mail.

    `how` is "whole", "line" for a line of a list, "part N" for a file, or "note".
    """

    mail: ShownMail
    how: str
    people: Iterable[tuple[str, str]]
    texts: Sequence[tuple[str, str]]
    html: str = ""


@dataclass(slots=True)
class ExposureLog:
    """What the risk card knows of mail: what it has shown to agents, and who wrote or was written to."""

    ledger: Ledger
    mailboxes: Callable[[str], Mailbox]
    clock: Callable[[], Stamp]
    _pruned: float = -REPEAT_SECONDS
    _recent: dict[tuple[str, str, str], float] = field(default_factory=dict)
    # By account: the addresses written to, the newest mail that counts, and recipients that the ledger lacks.
    _written: dict[str, tuple[frozenset[str], str, tuple[str, ...]]] = field(default_factory=dict)

    def saw_messages(self, account: str, *messages: Message) -> None:
        self.record([_whole(account, message) for message in messages])

    def saw_list(self, account: str, summaries: Sequence[Summary]) -> None:
        self.record(_line(account, summary) for summary in summaries)

    def saw_file(self, account: str, message: Message, part: str, file: Enclosure) -> None:
        """Record what an attachment shows, before it is saved where an agent can read it."""
        # Without zero bytes, UTF-16 reads as ASCII, and no zero byte splits an address.
        content = file.content[:READABLE].replace(b"\0", b"")
        try:
            words = content.decode()
        except UnicodeDecodeError:  # a binary file: its printable strings
            words = "\n".join(run.decode("ascii") for run in _PRINTABLE_RUNS.findall(content))
        texts = [f"{file.name}\n{file.name.rpartition('.')[0]}", words, *_decoded(content)]
        whole = _whole(account, message)
        shown = Shown(whole.mail, f"part {part}", (), [("file", text) for text in texts])
        self.record([whole, shown], synced=True)

    def record(self, mails: Iterable[Shown], *, synced: bool = False) -> None:
        """Record what mails show, without those that were recorded in the same way within the hour."""
        now = self.clock().wall
        new = {(*one.mail[:2], one.how): one for one in mails if not self._is_recent(one, now)}
        if not new:
            return
        found = [(one.mail, _tokens(one)) for one in new.values()]
        with self.ledger.write(synced=synced) as tx:
            for mail, tokens in found:
                tx.exposure.record(mail, tokens)
            if not 0 <= now - self._pruned < REPEAT_SECONDS:  # seldom: it reads all records
                tx.exposure.forget_before(now - EXPOSURE_SECONDS)
                self._pruned = now
        if len(self._recent) > MAX_RECENT:
            self._recent.clear()
        self._recent.update(dict.fromkeys(new, now))

    def _is_recent(self, one: Shown, now: float) -> bool:
        ways = ("line", "whole") if one.how == "line" else (one.how,)
        times = (self._recent.get((*one.mail[:2], how), -REPEAT_SECONDS) for how in ways)
        return any(0 <= now - time < REPEAT_SECONDS for time in times)

    def own(self, account: str) -> frozenset[str]:
        return frozenset(address.key for address in self.mailboxes(account).own_addresses())

    def answered(self, letter: Letter) -> str:
        """Return the key of the one address to which a reply to the letter's parent mail goes; empty without one."""
        with suppress(PostroomError):
            messages = _parent_thread(self.mailboxes(letter.account), letter) or ()
            parents = [message.mail for message in _parents(messages, letter)]
            parties = [mail.reply_to or (mail.sender,) for mail in parents]
            keys = {
                tuple(one.address.casefold() if one else "" for one in each) for each in parties
            }
            if len(keys) == 1 and len(only := keys.pop()) == 1:
                return only[0]
        return ""

    def card(self, letter: Letter, origins: Sequence[str]) -> Card:
        """Return the letter's risk card. If the mailbox cannot be asked, a line of the card says so."""
        from postroom.review.risk import assess  # imported here: only new letters need its tables
        from postroom.review.tables import card_line
        from postroom.review.tokens import letter_tokens

        seen = self.ledger.exposure.find(
            letter_tokens(letter), self.clock().wall - EXPOSURE_SECONDS
        )
        try:
            return assess(letter, self._facts(letter, seen), origins)
        except PostroomError as why:
            unchecked = card_line("unchecked", why=one_line(why.message).rstrip("."))
            return assess(letter, LetterFacts(seen=seen), origins).adding(unchecked)

    def _facts(self, letter: Letter, seen: Mapping[str, Sequence[Exposure]]) -> LetterFacts:
        box = self.mailboxes(letter.account)
        conversation = _conversation_facts(box, letter)
        contacts = self._contacts(box, letter.account)
        known = [a for a in letter.envelope if a.key in contacts or _has_mail(box, a)]
        written_to = frozenset(one.key for one in known if _written_to(box, one))
        new = [one for one in known if one.key not in written_to]
        return replace(
            conversation,
            own=box.own_addresses(),
            written_to=written_to,
            contacts=contacts,
            wrote={a.key: date for a in new[:MAX_NEW] if (date := _wrote(box, a))},
            seen=seen,
            repeats=self.ledger.letters.with_same_text(letter.text, except_id=letter.id),
        )

    def _contacts(self, box: Mailbox, account: str) -> frozenset[str]:
        """Return the addresses written to so far, with those of mails sent since the last call."""
        written = self._written.get(account) or (*self.ledger.exposure.correspondents(account), ())
        known, last_sent, waiting = written
        if sent := list(_sent_since(box, last_sent)):
            waiting += tuple(_key(party) for summary in sent for party in summary.to)
            found, last_sent = frozenset(waiting) - {""}, sent[0].id
            known |= found
            # A process that begins later finds a few mails by itself, so not each is written.
            if len(waiting) > MAX_UNSAVED:
                with self.ledger.write(synced=False) as tx:
                    tx.exposure.add_correspondents(account, found, last_sent)
                waiting = ()
        self._written[account] = known, last_sent, waiting
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
    # With and without the file type: in box@example.org.pdf, the address is what comes before `.pdf`.
    files = [text for a in mail.attachments for text in (a.name, a.name.rpartition(".")[0])]
    texts = [("name", names), ("file", "\n".join(files)), ("subject", mail.subject), ("body", mail.text)]  # fmt: skip
    shown = _mail(account, message, mail.sender, mail.subject)
    return Shown(shown, "whole", [(part, _key(one)) for part, one in people], texts, mail.html)


def _line(account: str, summary: Summary) -> Shown:
    sender, subject = summary.sender, summary.subject
    people = [("from", _key(sender)), *(("to", _key(party)) for party in summary.to)]
    texts = [("name", sender.name), ("subject", subject), ("body", summary.snippet)]
    return Shown(_mail(account, summary, sender, subject), "line", people, texts)


def _decoded(content: bytes) -> Iterator[str]:
    """Yield the texts of a file read as a mail, and with quoted-printable decoded, as contact cards have it."""
    from quopri import decodestring

    from postroom.mail import mime

    inner = mime.read(content)
    people = (inner.sender, *inner.to, *inner.cc, *inner.reply_to)
    yield "\n".join((inner.subject, *map(str, filter(None, people)), inner.text))
    if b"=" in content:
        yield decodestring(content).decode(errors="replace")


def _tokens(shown: Shown) -> dict[str, set[str]]:
    from postroom.review.tokens import tokens

    found = defaultdict[str, set[str]](set)
    for part, key in shown.people:
        found[part].add(key)
    # Each text has its own limit, so that one full of addresses does not push out those of another.
    for part, text in shown.texts:
        if _TOKEN_SIGNS.search(text):
            found[part].update(tokens(text, most=MAX_TOKENS))
    if shown.html:
        found["html"] = set(tokens("", shown.html, most=MAX_TOKENS)) - found["body"]
    return {part: shown_there - {""} for part, shown_there in found.items()}


def _sent_since(box: Mailbox, last: str) -> Iterator[Summary]:
    cursor = ""
    for _ in range(MAX_PAGES):
        # The first page is small: usually only one letter was sent since.
        page = box.search("in:sent", limit=PAGE_SIZE if cursor else FIRST_PAGE_SIZE, cursor=cursor)
        for summary in page.items:
            if summary.id == last:
                return
            yield summary
        cursor = page.cursor
        if not cursor:
            return


def _has_mail(box: Mailbox, address: Address) -> bool:
    """Whether any mail is from or to this address: of most that are new there is none, and one search tells."""
    spec = address.spec
    asked = f'from:"{spec}" OR to:"{spec}" OR cc:"{spec}" OR bcc:"{spec}"'
    return bool(box.search(asked, limit=1).items)


def _wrote(box: Mailbox, address: Address) -> float:
    """Return the date of the newest mail from this address that is not in Sent; 0 without one."""
    hits = box.search(f'from:"{address.spec}" -in:sent', limit=1).items
    return next((one.date for one in hits if _key(one.sender) == address.key), 0)


def _written_to(box: Mailbox, address: Address) -> bool:
    """Whether a mail in Sent went to this address. Each hit is checked: Gmail also finds similar addresses."""
    spec = address.spec
    asked = f'in:sent (to:"{spec}" OR cc:"{spec}" OR bcc:"{spec}")'
    for one in box.search(asked, limit=FIRST_PAGE_SIZE).items:
        if address.key in map(_key, one.to):
            return True
        mail = box.message(one.id).mail
        if address.key in map(_key, (*mail.to, *mail.cc, *mail.bcc)):
            return True
    return False


def _parent_thread(box: Mailbox, letter: Letter) -> Sequence[Message] | None:
    """Return all mails of the conversation in which a letter is a reply; None if the letter is not a reply."""
    return box.thread(letter.thread).mails if letter.thread else None


def _parents(messages: Iterable[Message], letter: Letter) -> list[Message]:
    """Return the mails of a conversation that a reply may answer: several, if no Message-ID tells them apart.

    Anybody can send another mail with the Message-ID of the one that is answered.
    """
    if letter.in_reply_to:
        return [one for one in messages if one.mail.message_id == letter.in_reply_to]
    return [one for one in messages if not is_message_id(one.mail.message_id)]


def _conversation_facts(box: Mailbox, letter: Letter) -> LetterFacts:
    """Return what a reply's conversation tells: its people, and the mail that is answered."""
    messages: Sequence[Message] | None = ()
    with suppress(NotFound):
        messages = _parent_thread(box, letter)
    if messages is None:
        return LetterFacts()
    answered = _parents(messages, letter)
    mails, parents = [one.mail for one in messages], [one.mail for one in answered]
    named = [{_key(one) for one in (mail.sender, *mail.to, *mail.cc)} for mail in parents]
    others = {_key(one) for mail in mails for one in (mail.sender, *mail.to, *mail.cc, *mail.reply_to)}  # fmt: skip
    return LetterFacts(
        thread=frozenset(others - {""}),
        answered=frozenset(set.intersection(*named) - {""}) if named else frozenset(),
        answers=_answered_mail(letter.account, answered[0]) if len(answered) == 1 else None,
        automatic=any(mail.automatic or mail.list_id for mail in parents),
    )


def _answered_mail(account: str, message: Message) -> AnsweredMail:
    shown = _mail(account, message, message.mail.sender, message.mail.subject)
    about = Exposure(shown.sender, shown.subject, shown.date, shown.sent, frozenset())
    return AnsweredMail(message.id, str(about))
