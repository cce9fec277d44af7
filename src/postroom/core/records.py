"""What the desk and the store pass on, as plain values: risk cards, letters, notes, proofs, and mail that came in."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core import life
from postroom.core.errors import Invalid
from postroom.core.stamp import Stamp
from postroom.core.text import one_line
from postroom.core.values import dataclass

if TYPE_CHECKING:  # a start needs neither
    from postroom.core.address import Address
    from postroom.core.handbook import Judgement, MailFacts
    from postroom.core.letter import Letter

MAX_CARD_LINE: Final = 300
MAX_SUBJECT: Final = 60  # characters of a mail's subject in a line
MAX_SENDER: Final = 80  # of its sender; the end is shown, since it has the domain
_QUOTES: Final = str.maketrans("“”", "''")  # a subject must not end where it does not


def day(second: float) -> str:
    """Return a day as people write it, in UTC: `9 Nov 2026`."""
    return f"{datetime.fromtimestamp(second, UTC):%d %b %Y}".lstrip("0")


class Level(enum.IntEnum):
    PLAIN = 0
    LOOK = 1  # amber
    STOP = 2  # red


@dataclass(frozen=True, slots=True)
class CardLine:
    level: Level
    kind: str
    text: str  # one plain sentence, safe to print
    about: tuple[
        str, ...
    ] = ()  # `CardItem.what` of what it speaks of; `file 0` is the first attachment

    def __post_init__(self) -> None:
        text = one_line(self.text[: 4 * MAX_CARD_LINE])
        text = text if len(text) <= MAX_CARD_LINE else f"{text[: MAX_CARD_LINE - 1]}…"
        while (settled := one_line(text)) != text:  # one hidden character out can bare another
            text = settled
        object.__setattr__(self, "text", text)


ITEM_KINDS: Final = frozenset(
    ("recipient", "answers to", "link", "picture", "address", "number", "code", "amount", "secret")
)
FILE: Final = "file"  # what `CardLine.about` calls an attachment, with a space and its number
ANSWERS: Final = "answers"  # the row of the mail that a letter answers


class AnsweredMail(NamedTuple):
    """The mail that a letter answers."""

    message: str  # its id at the provider
    what: str  # its sender, subject and day


class CardItem(NamedTuple):
    """A recipient, link, number or the like in a letter: where it came from, and where it stands."""

    kind: str  # one of `ITEM_KINDS`
    what: str  # as `CardLine.about` names it; of a secret what it is, never its value
    where: str  # the mails that showed it, if any did
    mail: str = ""  # the first of these: its account, a space and its id
    places: tuple[
        tuple[int, int], ...
    ] = ()  # start and end of each occurrence in the letter's text

    def to_json(self) -> list[object]:
        row: list[object] = [*self[:4], [list(place) for place in self.places]]
        while len(row) > 3 and not row[-1]:
            row.pop()
        return row


@dataclass(frozen=True, slots=True)
class Card:
    """What code found in a letter, the highest level first."""

    lines: tuple[CardLine, ...] = ()
    items: tuple[CardItem, ...] = ()
    answers: AnsweredMail | None = None

    @property
    def level(self) -> Level:
        return max((one.level for one in self.lines), default=Level.PLAIN)

    @property
    def warnings(self) -> tuple[CardLine, ...]:
        return tuple(one for one in self.lines if one.level > Level.PLAIN)

    @property
    def facts(self) -> tuple[CardLine, ...]:
        return tuple(one for one in self.lines if one.level == Level.PLAIN)

    def adding(self, line: CardLine) -> Card:
        """Return the card with one more line, before others of its level."""
        lines = sorted((line, *self.lines), key=lambda one: -one.level)
        return Card(tuple(lines), self.items, self.answers)

    def to_json(self) -> list[list[object]]:
        """Return its lines as `[level, kind, text, about]`, its items as `[kind, what, where, mail, places]`, and what it answers.

        Empty values at the end of a row are left out.
        """
        lines = [
            [int(a.level), a.kind, a.text, *([[*a.about]] if a.about else ())] for a in self.lines
        ]
        answers = [[ANSWERS, *self.answers]] if self.answers else []
        return [*lines, *(one.to_json() for one in self.items), *answers]

    @classmethod
    def from_json(cls, rows: Sequence[Sequence[object]]) -> Card:
        """Return the card that `to_json` wrote, or raise `Invalid`."""
        lines, items, answers = [], [], None
        for row in rows:
            match row:
                case [0 | 1 | 2 as level, str() as kind, str() as text, *about]:
                    lines.append(CardLine(Level(level), kind, text, _texts(*about)))
                case [str() as kind, str() as what, str() as where, *more] if kind in ITEM_KINDS:
                    items.append(CardItem(kind, what, where, *_mail_and_places(*more)))
                case [str() as kind, str() as message, str() as what] if kind == ANSWERS:
                    answers = AnsweredMail(message, what)
                case _:
                    raise Invalid(_NO_CARD)
        return cls(tuple(lines), tuple(items), answers)


_NO_CARD: Final = "This is not a risk card"


def _texts(about: object = (), *more: object) -> tuple[str, ...]:
    match about:
        case [*texts] if not more:
            every = tuple(text for text in texts if isinstance(text, str))
            if len(every) == len(texts):
                return every
    raise Invalid(_NO_CARD)


def _mail_and_places(
    mail: object = "", places: object = (), *more: object
) -> tuple[str, tuple[tuple[int, int], ...]]:
    found = []
    for place in places if isinstance(places, list | tuple) and not more else (None,):
        match place:
            case [int() as start, int() as end]:
                found.append((start, end))
            case _:
                raise Invalid(_NO_CARD)
    if not isinstance(mail, str):
        raise Invalid(_NO_CARD)
    return mail, tuple(found)


@dataclass(frozen=True, slots=True)
class Exposure:
    """A mail that showed a token to an agent, a note or a file."""

    sender: str  # the address in From
    subject: str
    date: float
    sent: bool  # it lies in Sent
    # Where the token stands in it: `from`, `to` (To and Cc), `reply_to`, `name`, `subject`, `body`,
    # `html`, `file`; an empty one is unknown and counts as `body`.
    parts: frozenset[str]
    mail: str = ""  # its account, a space and its id at the provider

    def __str__(self) -> str:
        """Return sender, subject and day. Names in From are left out: anyone can choose one."""
        subject = one_line(self.subject.translate(_QUOTES))[:MAX_SUBJECT] or "(no subject)"
        sender = self.sender if len(self.sender) <= MAX_SENDER else f"…{self.sender[-MAX_SENDER:]}"
        file, when = "a file in " if self.parts == {"file"} else "", f", {day(self.date)}"
        return f"{file}{sender or 'nobody'}'s mail “{subject}”{when if self.date else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    own: tuple[Address, ...] = ()
    written_to: frozenset[str] = frozenset()
    contacts: frozenset[str] = frozenset()  # addresses written to; of some only `@domain`
    wrote: Mapping[str, float] = field(default_factory=dict)  # when a recipient last wrote
    thread: frozenset[str] | None = None  # everybody in the conversation that is answered
    # Whom each mail that may be answered has in From, To or Cc.
    answered: frozenset[str] = frozenset()
    answers: AnsweredMail | None = None  # that mail, where it can be no other
    seen: Mapping[str, Sequence[Exposure]] = field(default_factory=dict)
    repeats: tuple[str, ...] = ()
    automatic: bool = False


class NoteLocation(NamedTuple):
    """Where a letter's note was when it was last written or seen, and what it was."""

    path: str
    hash: str
    notice: str
    pages: str  # the sections that Postroom wrote into it, as JSON: title and hash
    version: int  # of the letter that it shows
    size: int
    mtime: int
    inode: int

    @property
    def file_stamp(self) -> tuple[int, int, int]:
        """Size, time and inode of the file, to compare with `File.stamp`."""
        return self.size, self.mtime, self.inode


class NoteStatus(NamedTuple):
    location: NoteLocation
    planned_path: str = ""  # where it was about to be written
    planned_hash: str = ""


NOWHERE: Final = NoteLocation("", "", "", "{}", 0, 0, 0, 0)  # a note that is still to be written
NO_NOTE: Final = NoteStatus(NOWHERE)


@dataclass(frozen=True, slots=True)
class Entry:
    """A letter in the ledger; `digest` is the one it had when it was frozen."""

    letter: Letter
    agent: str
    state: life.State
    created: Stamp
    card: Card
    digest: str
    content_key: str
    home: str  # the folder of its note while it waits
    form: str = "note"  # or "draft": a note whose whole body is the letter's text
    replaces: str = ""
    origins: tuple[str, ...] = field(default=())
    version: int = 1
    is_edited: bool = False  # it is no longer as its agent wrote it
    pre_send: str = ""  # what a record that is written before it is sent names as answered, as JSON
    fields: Mapping[str, str] = field(default_factory=dict)  # further frontmatter of its draft
    is_reported: bool = False  # a call was answered that it was sent
    # When the letter was read: others may have moved its note since.
    note: NoteStatus = field(default=NO_NOTE, compare=False)

    @property
    def id(self) -> str:
        return self.letter.id

    @property
    def kind(self) -> str:
        return life.name(self.state)


class LetterSummary(NamedTuple):
    id: str
    agent: str
    recipients: str
    subject: str
    level: int
    warning: str
    created: Stamp
    state: life.State
    fields: Mapping[str, str] = MappingProxyType({})  # further frontmatter of its draft
    reason: str = ""  # the kind of the card line that `warning` is from
    account: str = ""
    recipient_name: str = ""  # the display name of its first recipient
    opening: str = ""  # how its text begins, on one line
    version: int = 1


class LetterFilter(NamedTuple):
    """What letters of a list have in common; a field that is empty leaves none out."""

    # All of them occur in the recipients, subject, text, agent's name or id.
    words: tuple[str, ...] = ()
    agent: str | None = None
    account: str | None = None
    recipient: str = ""  # a part of any recipient's address, or of the first recipient's name
    levels: tuple[int, ...] = ()


ANY_LETTER: Final = LetterFilter()


class ListOrder(enum.StrEnum):
    NEWEST = "newest"
    OUTCOME = "outcome"  # the last outcome first
    RISK = "risk"  # letters with a warning before those without; the newest first among each


class LetterFacets(NamedTuple):
    """What a list of letters can be narrowed down to."""

    agents: tuple[str, ...]
    accounts: tuple[str, ...]


class LetterState(NamedTuple):
    state: life.State
    version: int


class ExpectedNote(NamedTuple):
    key: str
    location: NoteLocation
    letter: LetterState | None = None
    is_planned: bool = False  # a write was planned, and is not recorded as done

    @property
    def is_open(self) -> bool:
        return self.letter is not None and life.name(self.letter.state) in life.OPEN


class AgentActivity(NamedTuple):
    agent: str
    states: dict[str, int]  # how many of its letters are in each state, of all times
    last: float  # when it proposed the last one
    # Of the letters that it proposed lately, without rehearsals: how many there are, and how many of them a person
    # ever approved, edited, or rejected or sent back.
    proposed: int = 0
    approved: int = 0
    edited: int = 0
    rejected: int = 0


class ToolNote(NamedTuple):
    agent: str  # for which a tool wrote it; empty where that is not known
    path: str = ""  # where it was when it was written
    inode_only: bool = False  # nothing else matches, and file systems reuse inodes


class ApprovalRequest(NamedTuple):
    agent: str | None  # its author: None is a person, and an empty one not known
    letters: list[tuple[str, str]]  # id and digest of each that it lists


class ProviderProof(NamedTuple):
    text: str  # what the provider gave to settle a letter by
    digest: str
    unanswered: int  # how many sends by it had no answer


class ShownMail(NamedTuple):
    """A mail whose text was shown to an agent, or written into a note or a file."""

    account: str
    id: str
    sender: str  # the address in From
    subject: str
    date: float
    sent: bool  # it lies in Sent


class LabelChange(NamedTuple):
    number: int
    at: float
    agent: str
    account: str
    message: str
    added: frozenset[str]
    removed: frozenset[str]


class MailboxCursor(NamedTuple):
    cursor: str  # the provider's
    floor: int = 0  # the date before which mail is left alone


class InboxState(enum.StrEnum):
    BEFORE = "before"  # it was in the mailbox when watching began
    FOUND = "found"  # its note is still to be written
    ASIDE = "aside"  # it is not (yet) a mail of the inbox
    PENDING = "pending"  # it is to be triaged
    DECIDED = "decided"  # its answer is to be drafted
    DRAFTED = "drafted"  # its answer waits for the person
    NEEDS_INFO = "needs_info"  # it is left to the person
    DELEGATED = "delegated"  # it is for somebody else
    DONE = "done"
    FAILED = "failed"  # its note does not parse any more
    GONE = "gone"  # its note was deleted or taken away


class DecidedBy(enum.StrEnum):
    """Who decided about a mail, as its note shows it; a rule is `line 5 of Handbook.md`."""

    PERSON = "a person"  # the answer that waits, if any, is still to be withdrawn
    PERSON_WITHDRAWN = "a person; the answer that waited was withdrawn"
    PERSON_ONLY = "a person, whatever becomes of its letter"
    MODEL = "the model"
    NO_RULE = "no rule"


class InboxItem(NamedTuple):
    account: str
    message: str
    thread: str = ""
    state: InboxState = InboxState.FOUND
    facts: MailFacts | None = None  # None until its note is written
    judgement: Judgement | None = None  # None until it was decided about
    by: str = ""  # `DecidedBy`, or the line of a rule
    letter: str = ""
    wish: str = ""
    held: str = ""
    tries: int = 0
    turn: int = 0  # how many times it was judged
    seen: float = 0
    changed: float = 0
    version: int = 0

    @property
    def key(self) -> str:
        return f"mail {self.account} {self.message}"


@dataclass(frozen=True, slots=True)
class DeskSettings:
    desk_id: str = ""
    ledger_id: str = ""  # the vault names it as the one that may send
    machine: str = ""
    state_inode: str = ""  # tells the state folder from a copy of it
    room: str = ""  # the folder in the vault that has Postroom's, after a slash
    passphrase: str = ""  # its salted hash
    trust: str = ""  # pinned by the passphrase: `folder` or `desk`
    approval_required: bool = False  # pinned by the passphrase
    page_address: str = ""  # where the page was last served
    seal_key: str = ""  # of the HMAC of audit lines
    notes_trust: str = ""  # the trust level that the notes give instructions for
    rejected_changed: int = 0  # when the folder of rejected notes was last read, by its mtime
    restored: str = ""  # why this ledger may be older than the log
    tool_notes_since: float = 0.0  # before it, tools may have written what has no record
    last_finished: str = ""  # the last thing that one of several finished, and logged

    @property
    def is_trust_raised(self) -> bool:
        """Whether only the passphrase approves: it may have been pinned after this process started."""
        return self.trust == "desk" and bool(self.passphrase)


class Check(NamedTuple):
    part: str
    verdict: str  # `ok`, `note` or `fail`
    found: str
    remedy: str = ""
