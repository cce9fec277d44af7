"""Proposals: agents write letters and ask for them to be sent. Everything happens in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core import life, policy
from postroom.core.address import Address
from postroom.core.errors import Conflict, Invalid, NotFound
from postroom.core.letter import (
    ID_BYTES,
    MAX_REFERENCES,
    Enclosure,
    Letter,
    is_message_id,
    letter_id,
)
from postroom.core.life import Channel
from postroom.core.policy import Rules, has_expired
from postroom.core.records import Card, Entry
from postroom.core.stamp import DAY, Stamp, elapsed
from postroom.core.text import clean
from postroom.core.values import dataclass
from postroom.desk.exposure import ExposureLog
from postroom.desk.recorder import Call, add_line, check_name
from postroom.store.ledger import Ledger, LedgerReader, Transaction

if TYPE_CHECKING:
    from postroom.mail.mailbox import Mailbox

DEFAULT_HOME = "Pending_Approval"
PERSON = "person"
ORCHESTRATOR = "orchestrator"
# Authors that are not agents.
AUTHORS = {PERSON: "a person, by hand", "vault": "not known: a note in the vault"}
MAX_KEY = 200  # characters of an idempotency key


class Proposal(NamedTuple):
    key: str = ""  # idempotency key
    origins: tuple[str, ...] = ()  # for each attachment, where the file comes from
    replaces: str = ""  # the id of the letter that this one replaces
    home: str = DEFAULT_HOME  # the folder of its note while it waits
    form: str = "note"  # "note", or "draft": a note whose whole body is the letter's text
    slip: str = ""  # the hash of a slip that approves it
    verdict: str = ""  # the person who approved it already, by putting their draft into Approved/
    refuse_if_sent: bool = False  # raise if the same letter was sent already
    report_if_sent: bool = False  # but let the first call after the sending answer with its success
    match_persons_letter: bool = False  # a person's approved letter of the same content is this one
    # The id, as JSON, of the mail that it answers, for a letter that is recorded before it is sent; else empty.
    pre_send_record: str = ""
    always_ask: bool = False  # needs a verdict even with `approvals.required = false`
    fields: Mapping[str, str] | None = None  # more frontmatter for its draft


PLAIN: Final = Proposal()


@dataclass(frozen=True, slots=True)
class Proposals:
    ledger: Ledger
    rules: Rules
    exposure: ExposureLog
    clock: Callable[[], Stamp]

    def propose(self, call: Call, letter: Letter, proposal: Proposal = PLAIN) -> Entry:
        """Enter a new letter and return it, or return the existing letter that this call repeats.

        The call's line in the log is written here, unless the letter is approved already: then the caller dispatches
        the letter, and writes the line afterwards. Raises if the letter breaks a rule or a limit.
        """
        if len(proposal.key) > MAX_KEY or not proposal.key.isprintable():
            raise Invalid(f"An idempotency key has at most {MAX_KEY} printable characters")
        check_name(call)
        # The person sees the normalized text, so that is what is frozen.
        if (text := normalize_text(letter.text)) != letter.text:
            letter = replace(letter, text=text)
        refuse_other_html(letter)
        policy.admit(letter, self.rules, self.exposure.own(letter.account))
        known = self._existing(self.ledger, call, letter, proposal)
        # Never within the transaction: the card asks the mailbox, and other processes should not wait for that.
        card = self.exposure.card(letter, proposal.origins) if _is_to_enter(known) else None
        with self.ledger.write() as tx:
            known = self._existing(tx, call, letter, proposal)
            if known is not None and not _is_to_enter(known):
                return self._repeat(tx, call, known, letter, proposal)
            if card is not None:
                return self._enter(tx, call, letter, proposal, card, rehearsal=known)
        return self.propose(call, letter, proposal)  # the one that was known is closed meanwhile

    def _existing(
        self, tx: LedgerReader | Transaction, call: Call, letter: Letter, proposal: Proposal
    ) -> Entry | None:
        """Return the letter that this call repeats, or the rehearsal of it that a new letter replaces; None without."""
        by_key = tx.letters.by_key(call.agent, proposal.key) if proposal.key else None
        if by_key:
            id, content = by_key
            if content != letter.content_key:
                raise Conflict(
                    f"The idempotency key names the letter {id}, which says something else",
                    remedy="Use a new key for a new letter.",
                )
            return tx.letters.get(id)
        latest = tx.letters.latest(call.agent, letter.content_key)
        if proposal.match_persons_letter and not (
            latest and latest.kind in ("approved", "sending")
        ):
            by_person = tx.letters.latest(PERSON, letter.content_key)
            waits = latest is not None and latest.kind in life.OPEN
            counts = ("approved", "sending") if waits else ("approved", "sending", "sent")
            latest = by_person if by_person and by_person.kind in counts else latest
        match latest and latest.state:
            case life.Pending() | life.Approved() | life.Sending() | life.Unknown():
                return latest
            case life.Sent(at=at):
                if proposal.verdict:  # a draft that comes again was restored by a sync client
                    return latest
                # A slip lets out another one only after a call was told of this one.
                another = bool(proposal.slip) and not _is_news(latest, proposal)
                fresh = bool(proposal.key) or (another and tx.slips.is_unspent(proposal.slip))
                return latest if not fresh and elapsed(at, self.clock()) < DAY else None
            case life.Rejected() | life.Rehearsal():
                return latest
        return None

    def _repeat(
        self, tx: Transaction, call: Call, known: Entry, letter: Letter, proposal: Proposal
    ) -> Entry:
        """Answer a repeated call with the letter that exists."""
        if proposal.key and known.kind in life.OPEN:
            tx.letters.bind_key(call.agent, proposal.key, known)
        if proposal.pre_send_record:
            tx.letters.request_pre_send_record(known.id, proposal.pre_send_record)
        # A slip approves the content of this call, but a person may have edited the known letter. And a person's draft
        # that comes again after a recall is an old copy, not another verdict.
        verdict = self._verdict(tx, known.digest, proposal._replace(verdict=""))
        same = known.letter.content_key == letter.content_key
        same = same and not (proposal.slip and tx.letters.was_approved_by(known.id, proposal.slip))
        is_late = has_expired(known.state, self.rules, self.clock())
        if isinstance(known.state, life.Pending) and not is_late and verdict and same:
            known = tx.letters.swap(known, life.Approved(verdict, verdict.at, 0))
        if not isinstance(known.state, life.Approved | life.Sending):
            add_line(tx, call, known, "rejected" if is_refused_as_sent(known, proposal) else "")
        return known

    def _enter(
        self,
        tx: Transaction,
        call: Call,
        letter: Letter,
        proposal: Proposal,
        card: Card,
        *,
        rehearsal: Entry | None,
    ) -> Entry:
        # Insert a new letter: pending, approved at once, or a rehearsal; `rehearsal` is an earlier one that it
        # replaces. Raises if the agent has too many letters, or if the letter to replace is not its own.
        rules, now = self.rules, self.clock()
        replaced = tx.letters.find(proposal.replaces) if proposal.replaces else None
        if proposal.replaces and (replaced is None or replaced.agent != call.agent):
            raise NotFound(f"There is no letter {proposal.replaces} of yours to replace")
        if replaced and (newer := tx.letters.replacement_of(call.agent, replaced.id)):
            raise Conflict(
                f"The letter {proposal.replaces} was replaced already: {life.describe(newer[1], life.Audience.AGENT, id=newer[0])}",
                remedy=f"Ask after that one, or replace it with replaces={newer[0]}.",
            )
        if call.agent != PERSON:
            waiting, recent = tx.letters.load_of(call.agent, rules.proposals_per_hour)
            policy.admit_agent(waiting if rules.live else 0, recent, now, rules)
        state: life.State = life.Pending(now)
        if not rules.live:
            state = life.Rehearsal(now)
        elif verdict := self._verdict(tx, letter.digest, proposal):
            wait = rules.undo_seconds if proposal.verdict else 0
            state = life.Approved(verdict, now, wait)
        if rehearsal is not None:
            tx.letters.remove_rehearsal(rehearsal.id)
        entry = tx.letters.insert(
            Entry(
                letter=letter,
                agent=call.agent,
                state=state,
                created=now,
                card=card,
                digest=letter.digest,
                content_key=letter.content_key,
                home=proposal.home,
                form=proposal.form,
                replaces=proposal.replaces,
                origins=proposal.origins,
                pre_send=proposal.pre_send_record,
                fields=proposal.fields or {},
            )
        )
        if proposal.key:
            tx.letters.bind_key(call.agent, proposal.key, entry)
        if not isinstance(state, life.Approved) or proposal.verdict:
            add_line(tx, call, entry)
        return entry

    def _verdict(self, tx: Transaction, digest: str, proposal: Proposal) -> life.Verdict | None:
        """Return the verdict that approves a new letter at once, by a draft, a slip or the settings; None without."""
        now = self.clock()
        if proposal.always_ask:
            return None
        by_file = bool(proposal.verdict or proposal.slip) and self.rules.trust == "folder"
        if by_file and not tx.settings.is_trust_raised:
            if proposal.verdict:
                return life.Verdict(proposal.verdict, Channel.FOLDER, now, digest)
            return life.Verdict(PERSON, Channel.SLIP, now, digest, proposal.slip)
        if self.rules.required or (tx.settings.passphrase and tx.settings.approval_required):
            return None
        return life.Verdict("nobody", Channel.NOT_REQUIRED, now, digest)


def _is_to_enter(known: Entry | None) -> bool:
    """Whether a call enters a letter: nothing answers it but, if anything, a rehearsal, which the letter replaces."""
    return known is None or isinstance(known.state, life.Rehearsal)


def is_refused_as_sent(known: Entry, proposal: Proposal) -> bool:
    """Whether a call is refused because its letter was sent before."""
    is_sent = isinstance(known.state, life.Sent)
    return proposal.refuse_if_sent and is_sent and not _is_news(known, proposal)


def _is_news(known: Entry | None, proposal: Proposal) -> bool:
    """Whether a call is the first one to be told that its letter was sent."""
    if not (proposal.report_if_sent and known and isinstance(known.state, life.Sent)):
        return False
    # Of a letter that a person resolved as sent, there is nothing that a success could name.
    return bool(known.state.message) and not known.is_reported


def refuse_other_html(letter: Letter) -> None:
    """Raise `Invalid` unless a letter's HTML part was built by Postroom, and its text made from that."""
    if not letter.is_reduced:
        raise Invalid("The HTML part and the text of a letter are made by Postroom alone")


class Written(NamedTuple):
    """The content of a new letter; `answers` is the id of the mail it replies to. `html` takes the place of `text`."""

    to: tuple[Address, ...]
    subject: str
    text: str
    cc: tuple[Address, ...] = ()
    bcc: tuple[Address, ...] = ()
    html: str = ""
    answers: str = ""
    account: str = ""
    attachments: tuple[Enclosure, ...] = ()
    reply_to: tuple[Address, ...] = ()


# The sender of a letter before its mailbox is asked for one; a rehearsal does not ask.
UNKNOWN_SENDER: Final = Address("nobody", "example.org")


@dataclass(frozen=True, slots=True)
class Composer:
    """Makes letters from their content, for the account that it names or the `default` account."""

    mailboxes: Callable[[str], Mailbox]
    draw: Callable[[int], bytes]
    default: str

    def letter(self, written: Written) -> Letter:
        account = written.account or self.default
        box, answers = self.mailboxes(account), written.answers
        thread, message_id, references = _reply_headers(box, answers) if answers else ("", "", ())
        preview = self.preview(written)
        return replace(
            preview,
            sender=box.own_addresses()[0],
            thread=thread,
            in_reply_to=message_id,
            references=references,
        )

    def preview(self, written: Written) -> Letter:
        """Return the letter without what only the mailbox knows: its sender, and the headers of a reply."""
        from postroom.core.outgoing_html import reduce_html  # few commands need it

        html, text, _ = reduce_html(written.html)
        return Letter(
            id=letter_id(self.draw(ID_BYTES)),
            account=written.account or self.default,
            sender=UNKNOWN_SENDER,
            to=written.to,
            cc=written.cc,
            bcc=written.bcc,
            reply_to=written.reply_to,
            subject=written.subject,
            text=text if written.html else normalize_text(written.text),
            html=html,
            attachments=written.attachments,
        )


def _reply_headers(box: Mailbox, id: str) -> tuple[str, str, tuple[str, ...]]:
    message = box.message(id)
    mail = message.mail
    # A mail may have no Message-ID: the answer then joins the conversation by its id and the references there are.
    message_id = mail.message_id if is_message_id(mail.message_id) else ""
    # RFC 5322 section 3.6.4: the parent's References, or without them its In-Reply-To; then the parent itself.
    chain = mail.references or mail.in_reply_to[:1]
    references = tuple(dict.fromkeys(filter(is_message_id, (*chain, message_id))))
    # Mail programs find a conversation by its first id, so that stays when the list is shortened.
    if len(references) > MAX_REFERENCES:
        references = (references[0], *references[-20:])
    return message.thread, message_id, references


def normalize_text(text: str) -> str:
    """Return a text as it is frozen: plain newlines, nothing invisible, one newline at the end."""
    words = clean(text).text.strip("\n")
    return f"{words}\n" if words.strip() else ""
