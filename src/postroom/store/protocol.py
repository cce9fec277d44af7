"""What the rest of Postroom asks of a store: one protocol for each noun, and the transaction that holds them.

A noun has a reader, which `Ledger` and `Ledger.read()` offer, and a writer, which `Ledger.write()`
offers as well. Every engine passes the suite in `tests/contract/store`. Import this module for
annotations alone (`if TYPE_CHECKING`): it costs start-up time otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from postroom.core import life
from postroom.core.audit import Action, ParsedLine
from postroom.core.card import Card, Exposure
from postroom.core.letter import Letter
from postroom.core.policy import Spent
from postroom.core.records import (
    AgentActivity,
    ApprovalRequest,
    DeskSettings,
    Entry,
    InboxItem,
    InboxState,
    LabelChange,
    LetterState,
    LetterSummary,
    MailboxCursor,
    NoteLocation,
    ProviderProof,
    ShownMail,
    ToolNote,
)
from postroom.core.stamp import Stamp

# Letters


class LetterReader(Protocol):
    """Letters, each with its state and version."""

    def get(self, id: str) -> Entry:
        """Return one letter, or raise `NotFound`."""

    def find(self, id: str) -> Entry | None:
        """Return a letter, if there is one of this id."""

    def find_id(self, beginning: str) -> str:
        """Return the whole id of the one letter whose id begins so, or raise `NotFound`."""

    def refresh(self, entry: Entry) -> Entry:
        """Return the letter as it is now; the very same object where its version has not changed."""

    def latest(self, agent: str, content_key: str) -> Entry | None:
        """Return the agent's letter of this content: the open one, or else the last."""

    def replacement_of(self, agent: str, id: str) -> tuple[str, life.State] | None:
        """Return id and state of the letter that replaces this one, if it waits or was sent."""

    def in_states(self, *states: str) -> list[Entry]:
        """Return all letters in these states, oldest first."""

    def states(self, *states: str) -> dict[str, LetterState]:
        """Return the state of each letter in these states (all open ones without any), oldest first."""

    def by_key(self, agent: str, key: str) -> tuple[str, str] | None:
        """Return id and content key of the letter that an agent's idempotency key names."""

    def count_open(self, agent: str) -> int:
        """Return how many letters of this agent wait or are on their way."""

    def proposal_times(self, agent: str, count: int) -> list[Stamp]:
        """Return when the agent proposed its last `count` letters; nothing where there are fewer."""

    def with_same_text(self, text: str, *, except_id: str) -> tuple[str, ...]:
        """Return the ids of earlier letters with the same text, newest first, at most 5."""

    def with_old_html(self) -> list[str]:
        """Return the letters whose HTML part an older version froze, and that are to be frozen anew."""


class LetterStore(LetterReader, Protocol):
    """Letters, to be entered and changed."""

    def insert(self, entry: Entry) -> Entry:
        """Enter a letter that is frozen for the first time."""

    def swap(
        self,
        entry: Entry,
        state: life.State,
        *,
        letter: Letter | None = None,
        card: Card | None = None,
    ) -> Entry:
        """Give a letter its next state (and text); `Conflict` where its version has changed."""

    def take_over(self, entry: Entry) -> Entry:
        """Raise the version of a claimed letter, so that its former owner can keep no proof any more.

        Without a proof, the former owner may have prepared something that no proof names: it is
        entered as an orphan. `Conflict` where the version has changed.
        """

    def bind_key(self, agent: str, key: str, entry: Entry) -> None:
        """Let an idempotency key name this letter for ever; a letter has at most 100."""

    def request_pre_send_record(self, id: str, reply_to: str) -> None:
        """Have a record written before the letter is sent; `reply_to` is what it answers, as JSON."""

    def rekey(self, letter: Letter, *, done: bool) -> None:
        """Let a repeated call find a letter of `with_old_html` by what the call freezes now."""

    def remove_rehearsal(self, id: str) -> None:
        """Delete a rehearsal that another one replaces."""


class LetterLists(Protocol):
    """Letters as lists and charts show them."""

    def summaries(
        self,
        *states: str,
        words: Sequence[str] = (),
        agent: str | None = None,
        newest: int | None = None,
        skip: int = 0,
        by_outcome: bool = False,
    ) -> list[LetterSummary]:
        """Return the letters in these states (all open ones without any), oldest first.

        `words` must all occur in the recipients, subject, text, agent's name or id. Of more than
        `newest`, the newest after the `skip` that are newer still. `by_outcome` orders by the time
        of the outcome.
        """

    def count(self, *states: str, words: Sequence[str] = (), agent: str | None = None) -> int:
        """Return how many letters `summaries` finds."""

    def change_token(self) -> tuple[int, ...]:
        """Return a value that differs once an open letter has come, gone or changed."""

    def agents(self) -> list[AgentActivity]:
        """Return each agent that has written letters, the last writer first."""

    def per_day(self, since: float, offset: int) -> dict[int, dict[str, int]]:
        """Return how many letters were approved, rejected and sent on each day since then.

        Days are numbered from 1970; they begin `offset` seconds before UTC's.
        """


class HistoryReader(Protocol):
    """What letters were before."""

    def states(self, id: str) -> list[life.State]:
        """Return the states of a letter, oldest first."""

    def original(self, id: str) -> Letter | None:
        """Return the letter as its agent wrote it, where a person has changed it."""

    def claimed_before_edit(self, id: str) -> bool:
        """Whether a version of this letter was claimed before the one that it has now."""

    def was_approved_by(self, id: str, slip: str) -> bool:
        """Whether this slip approved the letter before."""


# Notes


class NoteReader(Protocol):
    """Where notes are, and what they were when Postroom wrote or saw them last."""

    def location(self, id: str) -> NoteLocation:
        """Return where a note is; `NOWHERE` where it was never written."""

    def locations(self) -> dict[str, NoteLocation]:
        """Return the notes of open letters, and those of closed ones that are still to be written."""

    def in_folder(self, folder: str) -> dict[str, tuple[str, NoteLocation]]:
        """Return the notes in this folder: path, key and location."""

    def planned_write(self, id: str) -> tuple[str, str]:
        """Return path and hash of a note whose writing began and was not finished; empty without one."""


class NoteStore(NoteReader, Protocol):
    """Notes, before and after they are written."""

    def plan_write(self, id: str, path: str, hash: str) -> None:
        """Record what is about to be written where, in case the process ends before it is done."""

    def finish_write(self, id: str, location: NoteLocation) -> None:
        """Record where a note is that was written as planned."""

    def save_location(self, id: str, location: NoteLocation) -> None:
        """Record where a note is."""


class ToolNoteReader(Protocol):
    """Files that tools wrote."""

    def match(self, path: str, inode: int, text_hash: str) -> ToolNote | None:
        """Return the record that has most in common with a file, of several the newest."""

    def has(self, path: str, text_hash: str = "") -> bool:
        """Whether a tool wrote a file at this path; with a hash, whether it wrote that text there."""


class ToolNoteStore(ToolNoteReader, Protocol):
    """Files that tools write."""

    def add(self, path: str, inode: int, text_hash: str, agent: str) -> None:
        """Record a file that a tool is about to write or move."""

    def free_inode(self, inode: int) -> None:
        """Forget an inode that tools no longer use: the file system gives it to another file."""


class SlipReader(Protocol):
    """Slips and requests: approvals that people, or agents, wrote as notes."""

    def all(self) -> dict[str, tuple[Stamp, str]]:
        """Return every slip: by its hash, when it was first seen and the letter that it was spent on."""

    def is_unspent(self, hash: str) -> bool:
        """Whether a slip was seen, and has approved nothing so far."""

    def is_filed(self, hash: str) -> bool:
        """Whether a spent slip was put into its folder."""

    def is_trusted(self, text_hash: str) -> bool:
        """Whether a slip counts though tools may have written notes of its age."""

    def request(self, hash: str) -> ApprovalRequest | None:
        """Return the request that the desk wrote with this text, if it wrote one."""


class SlipStore(SlipReader, Protocol):
    """Slips and requests, to be seen and spent."""

    def add(self, hash: str) -> None:
        """Record when a slip was first seen."""

    def spend(self, hash: str, id: str, is_fresh: Callable[[Stamp], bool]) -> None:
        """Spend a slip on a letter, once, while it is fresh; else `Denied`."""

    def mark_filed(self, hash: str, path: str) -> None:
        """Record where a spent slip was put."""

    def trust(self, text_hash: str, path: str) -> None:
        """Let a slip count though tools may have written notes of its age."""

    def add_request(self, hash: str, request: ApprovalRequest) -> None:
        """Record a request that is about to be put before the person, and what it lists."""


# Sending


class BudgetReader(Protocol):
    """The claims that count against the limits."""

    def spent(self, now: Stamp, seconds: float) -> list[Spent]:
        """Return the claims that are younger than this, or may be, oldest first.

        None is older than one before it, whatever a clock said that was behind for a while.
        """


class BudgetStore(BudgetReader, Protocol):
    """The claims that count against the limits, to be spent and given back."""

    def spend(self, letter: Letter, at: Stamp) -> None:
        """Count a claim."""

    def refund(self, id: str, slip: str) -> None:
        """Give back what a try did not use: the newest claim, and its slip unless the letter may still leave."""


class ProofReader(Protocol):
    """What providers gave to tell what became of letters."""

    def get(self, id: str) -> ProviderProof | None:
        """Return a letter's proof."""

    def unreleased(self) -> list[str]:
        """Return the closed letters whose proof the provider has still to take back."""

    def orphans(self) -> dict[str, tuple[Stamp, Stamp | None]]:
        """Return the letters of which the provider may hold what no proof names: since when, last swept when."""


class ProofStore(ProofReader, Protocol):
    """Proofs, kept before the act that they prove."""

    def keep(self, entry: Entry, proof: str) -> None:
        """Keep a proof, and that a send by it has no answer yet; `Conflict` where the letter's version changed."""

    def mark_answered(self, id: str) -> None:
        """Record that the last send by a letter's proof was refused, and did nothing."""

    def drop(self, id: str, proof: str = "", *, unanswered: bool = True) -> bool:
        """Delete a letter's proof, if it is this one; with `unanswered` false, only if every send was answered."""

    def add_orphan(self, id: str, since: Stamp | None = None, swept: Stamp | None = None) -> None:
        """Record that the provider may hold something of a letter that no proof names."""

    def drop_orphan(self, id: str) -> None:
        """Record that the provider holds nothing more of a letter."""


class LetterClaims(Protocol):
    """Exclusive claims on letters, which end with the process that holds them."""

    def hold(self, id: str) -> AbstractContextManager[bool]:
        """Hold the claim on a letter if nobody else does; the value says whether."""


# Mail that came in, and what agents did with it


class InboxReader(Protocol):
    """Mail that came in, and what is to be done about it."""

    def cursor(self, account: str) -> MailboxCursor | None:
        """Return how far this account was followed; None where it never was."""

    def known_of(self, account: str, ids: Sequence[str]) -> set[str]:
        """Return those of these mails that were seen before."""

    def get(self, account: str, message: str) -> InboxItem | None:
        """Return what is known of a mail."""

    def in_states(self, *states: str) -> list[InboxItem]:
        """Return mails in these states, oldest first."""

    def page(self, state: str, count: int, after: int = 0) -> list[tuple[int, InboxItem]]:
        """Return the oldest mails in this state past a row, each with its row."""

    def with_stale_note(self) -> list[InboxItem]:
        """Return the mails whose note does not show what the ledger has."""

    def with_changed_letter(self) -> list[InboxItem]:
        """Return the mails whose letter was closed or reopened, or is to be withdrawn."""

    def drafts_in_thread(self, account: str, thread: str, since: float) -> int:
        """Return how many letters were drafted automatically in a conversation since then."""

    def count_by_state(self, since: float = 0) -> dict[str, int]:
        """Return how many mails are in each state, of those that changed since then."""


class InboxStore(InboxReader, Protocol):
    """Mail that comes in."""

    def add(
        self, account: str, cursor: MailboxCursor, ids: Iterable[str], state: str = InboxState.FOUND
    ) -> int:
        """Record mails and how far the mailbox was followed, in one transaction; return how many are new."""

    def reopen_aside(self, account: str, ids: Iterable[str]) -> int:
        """Look again at mails that were put aside, since their labels changed; return how many."""

    def change(self, item: InboxItem, **changes: str | int | float) -> InboxItem:
        """Change some fields of a mail; `Conflict` where its version has changed."""

    def mark_note_current(self, item: InboxItem) -> None:
        """Record that the note of a mail shows this version."""

    def add_draft_in_thread(self, account: str, thread: str, letter: str) -> None:
        """Count a letter that was drafted automatically in a conversation."""


class ExposureReader(Protocol):
    """What mail showed to agents, and whom the person has written to."""

    def find(self, tokens: Collection[str], since: float) -> dict[str, tuple[Exposure, ...]]:
        """Return for each token the mail that showed it first, then one of each further sender, 3 at most.

        A mail in Sent that is older than all others comes first whenever it was shown: they quote it.
        A mail is no younger than when it was shown, whatever date it claims.
        """

    def correspondents(self, account: str) -> frozenset[str]:
        """Return the addresses that the person of this account has written to, as far as is known.

        Of some only the domain is known: `@example.org`.
        """

    def last_sent(self, account: str) -> str:
        """Return the newest mail in Sent whose recipients are among the correspondents."""


class ExposureStore(ExposureReader, Protocol):
    """What mail shows to agents."""

    def record(self, mail: ShownMail, tokens: Mapping[str, Collection[str]]) -> None:
        """Record which tokens a mail shows, by the part of the mail that they stand in.

        A token that the mail has shown before keeps the time when it did so first.
        """

    def forget_before(self, before: float) -> None:
        """Delete what no mail has shown since this time."""

    def add_correspondents(self, account: str, addresses: Collection[str], last_sent: str) -> None:
        """Record addresses that the person has written to, in mails up to `last_sent`."""


class DraftReader(Protocol):
    """Drafts at the provider that Postroom made."""

    def get(self, account: str, id: str) -> tuple[str, str] | None:
        """Return the version in which Postroom left a draft, and its agent."""

    def of_agent(self, account: str, agent: str) -> list[str]:
        """Return the drafts that Postroom made for this agent."""


class DraftStore(DraftReader, Protocol):
    """Drafts at the provider that Postroom makes."""

    def save(self, account: str, id: str, version: str, agent: str) -> None:
        """Record the version in which Postroom left a draft."""

    def remove(self, account: str, id: str) -> None:
        """Forget a draft that is gone."""


class LabelChangeReader(Protocol):
    """Changes of labels that agents made."""

    def newest(self, count: int = 1000) -> list[LabelChange]:
        """Return the changes that can be undone, newest first."""

    def times(self, count: int) -> list[Stamp]:
        """Return when the last changes were made, newest first."""


class LabelChangeStore(LabelChangeReader, Protocol):
    """Changes of labels that agents make."""

    def add(self, change: LabelChange) -> int:
        """Record a change by its inverse, and return its number."""

    def remove(self, number: int) -> None:
        """Forget a change that did not happen, or was undone."""


# The desk itself


class SessionReader(Protocol):
    """Who may use the page. Only hashes of secrets are kept."""

    def is_ticket_valid(self, ticket: str) -> bool:
        """Whether this one-time secret still opens the page."""

    def person(self, secret: str) -> str | None:
        """Return whose browser has this secret, if its session has not ended."""


class SessionStore(SessionReader, Protocol):
    """Who may use the page from now on."""

    def issue_ticket(self, ticket: str, person: str) -> None:
        """Let this secret open the page once, for the person of this name."""

    def redeem_ticket(self, ticket: str, secret: str) -> str | None:
        """Spend a ticket and begin a session with this secret; return whose it is, if the ticket was valid."""

    def end(self, secret: str) -> None:
        """End the session with this secret."""


class ActionReader(Protocol):
    """The chain of audit lines."""

    def head(self) -> int:
        """Return the number of the last line."""

    def after(self, number: int = 0) -> list[tuple[int, str]]:
        """Return the lines past this number, each with its number."""


class ActionStore(ActionReader, Protocol):
    """The chain of audit lines, to be added to."""

    def append(self, action: Action) -> None:
        """Add a line to the chain."""

    def import_from_log(self, line: ParsedLine) -> None:
        """Take over a line that the log has and this ledger has not: what it spent stays spent."""


class LedgerReader(Protocol):
    """All nouns, to be read."""

    letters: LetterReader
    lists: LetterLists
    history: HistoryReader
    notes: NoteReader
    tool_notes: ToolNoteReader
    slips: SlipReader
    budget: BudgetReader
    proofs: ProofReader
    inbox: InboxReader
    exposure: ExposureReader
    drafts: DraftReader
    label_changes: LabelChangeReader
    sessions: SessionReader
    actions: ActionReader

    @property
    def settings(self) -> DeskSettings:
        """What is kept once for the whole desk."""


class Transaction(Protocol):
    """All nouns, to be read and written: all of it is kept, or none."""

    letters: LetterStore
    lists: LetterLists
    history: HistoryReader
    notes: NoteStore
    tool_notes: ToolNoteStore
    slips: SlipStore
    budget: BudgetStore
    proofs: ProofStore
    inbox: InboxStore
    exposure: ExposureStore
    drafts: DraftStore
    label_changes: LabelChangeStore
    sessions: SessionStore
    actions: ActionStore

    @property
    def settings(self) -> DeskSettings:
        """What is kept once for the whole desk, read once a transaction."""

    def save_settings(self, settings: DeskSettings) -> None:
        """Keep the settings that differ from those of this transaction."""

    def commit(self) -> None:
        """Keep what was written so far, before the block ends; nothing is written after it."""


class Ledger(LedgerReader, Protocol):
    """The durable record of one desk. Outside of a transaction each call reads as of its own moment."""

    clock: Callable[[], Stamp]
    path: Path
    claims: LetterClaims

    def read(self) -> AbstractContextManager[LedgerReader]:
        """Read several things as of one moment."""

    def write(
        self, *, synced: bool = True, early: bool = False
    ) -> AbstractContextManager[Transaction]:
        """Hold the ledger: all that is written inside is kept, or none of it.

        What can be found out again need not be `synced` to the disk. With `early`, the transaction
        may be committed before the block ends.
        """

    def sync(self, number: int) -> None:
        """Have the audit lines up to this number on the disk, whichever process wrote them."""

    def is_sealed(self, line: str) -> bool:
        """Whether an audit line is sealed with this ledger's key."""

    def check_integrity(self) -> str:
        """Return the engine's own finding on its files, `ok` where nothing is wrong."""

    def close(self) -> None:
        """Close the files."""
