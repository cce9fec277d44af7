"""What the note of a letter says, in the order in which a person reads it.

First a callout with the outcome or the risk, then recipients and subject, the letter in the one fence under *Letter*,
its attachments, the mail that it answers, what to do, and the details, folded. Text of an agent or a mail stands in a
fence or as code within a line, in callouts too: nothing in it can end them, and nothing renders it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from postroom.core import life
from postroom.core.letter import Letter
from postroom.core.policy import Rules
from postroom.core.records import Entry, Level
from postroom.core.stamp import Stamp
from postroom.core.text import duration, file_title
from postroom.core.values import dataclass
from postroom.desk.note_files import LinkedFiles
from postroom.desk.proposals import AUTHORS
from postroom.vault import folders
from postroom.vault.markdown import fence, link, parse, quote

LEVELS: Final = {Level.PLAIN: "nothing unusual", Level.LOOK: "worth a look", Level.STOP: "red"}
MAX_REASONS: Final = 3  # of the risk card, that stand at the top
LETTER: Final = "Letter"
# The titles of the sections below the top.
SECTIONS: Final = (
    LETTER,
    "Difference",
    "Attachments",
    "In reply to",
    "What to do",
    "Rollback plan",
)
# Those that earlier versions wrote.
OLD_SECTIONS: Final = ("Outcome", "Notice", "Envelope", "Risk assessment")
# How blocks of Postroom's begin that have no heading: a person's change of one is told from a remark by this.
OWN_BLOCK: Final = re.compile(
    r"> \[!\w+\] (?:Red:|Worth a look|Nothing unusual|Notice|Not known:|`)|> \[!note\]- Details"
    r"|- (?:To|Cc|Bcc): `"
)
_RISKS: Final = {
    Level.STOP: "[!danger] Red: read this first",
    Level.LOOK: "[!warning] Worth a look",
    Level.PLAIN: "[!note] Nothing unusual",
}
_DETAILS: Final = "[!note]- Details"
_UNKNOWN: Final = "[!danger] Not known: it may or may not have been sent"
_OUTCOMES: Final = {"sent": "success", "rejected": "failure", "failed": "failure"}
_BLANK: Final = re.compile(r"\n(?:[ \t]*\n)+")
# Where a link leads: Obsidian may write it anew when a note is moved.
_TARGET: Final = re.compile(r"\]\([^)\n]*\)|\[\[[^\]\n]*\]\]")


def note_name(entry: Entry) -> str:
    """Return the name of a letter's new note: subject, day and id."""
    subject = file_title(entry.letter.subject) or "No subject"
    return f"{subject} ({date_time(entry.created.wall)[:10]}) {entry.id}.md"


def date_time(second: float) -> str:
    """Return a moment as Obsidian's properties have it: the time on this machine's clock, without its offset."""
    return datetime.fromtimestamp(int(second)).isoformat()  # noqa: DTZ006 - the property has no zone


def is_date_time(text: str, shown: str) -> bool:
    """Whether a field that was read is the moment that `date_time` gave; others wrote it in UTC, or in another zone."""
    try:
        one, other = datetime.fromisoformat(text), datetime.fromisoformat(shown)
    except ValueError:
        return False
    if one.tzinfo is not None:
        return one == other.astimezone()
    # Zones differ by quarters of an hour, and by 26 hours at most.
    apart = abs((one - other).total_seconds())
    return apart <= 26 * 3600 and apart % 900 == 0


def moment(stamp: Stamp) -> str:
    """Return a moment for people: the time on this machine's clock, with its zone."""
    local = datetime.fromtimestamp(int(stamp.wall), UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S %Z}"


def fence_letter(text: str) -> str:
    """Return the section with the letter's text."""
    # Without blank lines at its ends: a person who removes such a line in the note has changed nothing.
    return f"## {LETTER}\n{fence(text.strip(chr(10)))}\n"


@dataclass(frozen=True, slots=True)
class LetterText:
    """The sections of a letter's note."""

    entry: Entry
    rules: Rules
    notice: str = ""
    files: LinkedFiles | None = None  # those that a person can open
    answered: str = ""  # the path of the note of the mail that the letter answers

    def sections(self, difference: str = "") -> dict[str, str]:
        """Return each section by its title, that of the top being empty."""
        entry = self.entry
        parts = {
            "": f"{self._summary()}\n{self._notice()}{_people(entry.letter)}",
            LETTER: fence_letter(entry.letter.text),
        }
        if difference:
            parts["Difference"] = f"## Difference\n{fence(difference)}\n"
        if entry.letter.attachments:
            rows = "\n".join(self._attachments())
            parts["Attachments"] = f"## Attachments\n{rows}\n"
        if entry.letter.is_reply:
            parts["In reply to"] = f"## In reply to\n{self._in_reply_to()}\n"
        if entry.kind in life.OPEN:
            title, text = "What to do", self._what_to_do()
        else:
            title, text = "Rollback plan", _rollback_plan(entry, self.rules)
        parts[title] = f"## {title}\n{text}\n\n{self._details()}"
        return parts

    # The top

    def _summary(self) -> str:
        state, card = self.entry.state, self.entry.card
        if isinstance(state, life.Unknown):
            return _callout(_UNKNOWN, [quote(state.why)])
        if self.entry.kind not in life.OPEN:
            kind = _OUTCOMES.get(self.entry.kind, "info")
            return _callout(f"[!{kind}] {quote(life.describe(state, when=moment))}")
        more = len(card.warnings) - MAX_REASONS
        lines = [f"- {quote(one.text)}" for one in card.warnings[:MAX_REASONS]]
        lines += [f"- and {more} more under *Details*"] if more > 0 else []
        return _callout(_RISKS[card.level], lines)

    def _notice(self) -> str:
        return f"{_callout('[!important] Notice', [quote(self.notice)])}\n" if self.notice else ""

    # Below the letter

    def _attachments(self) -> Iterator[str]:
        letter, origins = self.entry.letter, self.entry.origins
        saved = list(self.files or ())
        for at, file in enumerate(letter.attachments):
            name, renamed = quote(file.name), ""
            if saved:
                name = _link_to(f"{folders.LETTER_FILES}/{letter.id}/{saved[at]}", file.name)
                renamed = f", saved as {quote(saved[at])}" if saved[at] != file.name else ""
            sha = hashlib.sha256(file.content).hexdigest()[:12]
            origin = origins[at] if at < len(origins) else "agent"
            yield (
                f"- {name}, {quote(file.type)}, {len(file.content):,} bytes, SHA-256 {sha}…,"
                f" from the {origin}{renamed}"
            )

    def _in_reply_to(self) -> str:
        letter, answers = self.entry.letter, self.entry.card.answers
        if answers is None:
            known, id = (
                ("id", letter.in_reply_to) if letter.in_reply_to else ("thread", letter.thread)
            )
            return f"A mail of which only its {known} is known: {quote(id)}"
        if not self.answered:
            return quote(answers.what)
        # An agent can give another note the same name. Later the mail's note moves, to where only its name leads.
        is_open = self.entry.kind in life.OPEN
        note = _link_to(self.answered) if is_open else link(self.answered, "")
        return f"{note}: {quote(answers.what)}"

    def _what_to_do(self) -> str:
        entry, id = self.entry, self.entry.id
        match entry.state:
            case life.Pending() if self.rules.trust == "folder":
                return (
                    f"Move this note to `{folders.APPROVED}/` to send the letter as it stands here, or to"
                    f" `{folders.REJECTED}/`; a `reason` in the properties reaches the agent."
                    f" Or use the page (`postroom desk`) or `postroom approve {id}`.\nYou may change the"
                    " text under *Letter*: the note then comes back once, with a new risk assessment"
                    " and the difference; moved again, it is approved."
                )
            case life.Pending():
                return (
                    f"Approve it on the page (`postroom desk`) or with `postroom approve {id}`."
                    " A moved note is no verdict here."
                )
            case life.Approved(verdict=verdict, held=held, wait=wait, since=since):
                text = f"Approved by {quote(verdict.by)} at {moment(verdict.at)}. "
                text += f"Held: {quote(held)}. " if held else ""
                text += f"It may leave from {moment(Stamp(since.wall + wait))} on. " if wait else ""
                return f"{text}Until then move it back to `{entry.home}/`, or `postroom undo {id}`."
            case life.Unknown():
                return (
                    f"Look into the mailbox, then `postroom resolve {id} --sent` or"
                    f" `postroom resolve {id} --not-sent`."
                )
        return quote(life.describe(entry.state, when=moment))

    def _details(self) -> str:
        entry, letter, rules = self.entry, self.entry.letter, self.rules
        lines = ["#### Risk assessment", *self._risk()]
        if entry.kind in life.OPEN:
            lines += ["", "#### Rollback plan", _rollback_plan(entry, rules)]
        means = "moving this note" if rules.trust == "folder" else "a passphrase"
        lines += ["", "#### Record", f"- From: {quote(str(letter.sender))}"]
        lines += [f"- HTML part: {letter.about_html}"] if letter.html else []
        lines += [
            f"- Agent: {AUTHORS.get(entry.agent) or quote(entry.agent)}",
            f"- Digest: `{entry.digest}`",
            f"- Trust level: {rules.trust} ({means} is the verdict)",
            f"- Mode: {quote(rules.mode)}",
        ]
        return _callout(_DETAILS, lines)

    def _risk(self) -> list[str]:
        card = self.entry.card
        is_at_top = self.entry.kind in life.OPEN and not isinstance(self.entry.state, life.Unknown)
        marks = {Level.LOOK: "**look** ", Level.STOP: "**red** "}
        shown = card.warnings[MAX_REASONS if is_at_top else 0 :]
        warnings = [f"- {marks[one.level]}{quote(one.text)}" for one in shown]
        # Those about attachments stand beside them.
        facts = [f"- {quote(one.text)}" for one in card.facts if one.kind != "attachment"]
        where = " The reasons at the top" if is_at_top and card.warnings else ""
        level = f"Level: **{LEVELS[card.level]}**."
        if where:
            level += f"{where}, and:" if warnings else f"{where}."
        return [level, *warnings, *(["", "Facts:", "", *facts] if facts else [])]


def _link_to(path: str, name: str = "") -> str:
    """Return a link to one file, the same in every folder of the workflow: a note that is moved need not be changed."""
    from urllib.parse import quote as encode  # few letters need it

    name = name or path.rpartition("/")[2].removesuffix(folders.NOTE)
    return f"[{quote(name)}](../{encode(path)})"


def _callout(title: str, lines: Iterable[str] = ()) -> str:
    rows = "\n".join((title, *lines)).split("\n")
    return "".join(f"> {row}".rstrip() + "\n" for row in rows)


def _people(letter: Letter) -> str:
    rows = [
        f"- {name}: {quote(str(one))}"
        for name, every in letter.address_rows
        for one in every
        if name != "From"
    ]
    return "\n".join((*rows, f"- Subject: {quote(letter.subject or '(none)')}")) + "\n"


def _rollback_plan(entry: Entry, rules: Rules) -> str:
    final = "A mail that was sent cannot be called back; write to the same people to correct it."
    if isinstance(entry.state, life.Sent):
        return final
    if entry.kind in life.OPEN:
        waits = duration(rules.undo_seconds) if rules.undo_seconds else "no time"
        return f"After approval it waits {waits}: `postroom undo {entry.id}` recalls it. {final}"
    return (
        "Nothing was sent, so there is nothing to roll back. If you want it after all, move this"
        f" note to `{folders.APPROVED}/`: it then waits for your word again."
    )


def details(body: str) -> dict[str, str]:
    """Return the parts of a note's details by their titles."""
    folded = body.rpartition(f"\n> {_DETAILS}\n")[2]
    _, *parts = re.split(r"(?m)^> #### (.*)\n", folded)
    texts = (re.sub(r"(?m)^> ?", "", text).strip() for text in parts[1::2])
    return dict(zip(parts[::2], texts, strict=True))


# What Postroom wrote into a note, and what a person added


def text_hash(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def block_hashes(sections: Iterable[str]) -> str:
    """Return what the ledger keeps of the sections that Postroom wrote: a hash of each block."""
    return " ".join(dict.fromkeys(_block_hash(one) for text in sections for one in blocks(text)))


def persons_blocks(section: str, written: str) -> list[str]:
    """Return the blocks of a section that Postroom did not write, or that a person changed since."""
    return [one for one in blocks(section) if _block_hash(one) not in written.split()]


def blocks(section: str) -> list[str]:
    """Return what stands between blank lines; no part of a fence leaves it."""
    found, at = [], 0
    fences = parse(section).fences if _has_fence(section) else ()
    for blank in _BLANK.finditer(section):
        if not any(one.start <= blank.start() < one.end - 1 for one in fences):
            found.append(section[at : blank.start()])
            at = blank.end()
    return [one.strip("\n") for one in (*found, section[at:]) if one.strip()]


def _block_hash(block: str) -> str:
    return text_hash(block if _has_fence(block) else _TARGET.sub("]", block))


def _has_fence(text: str) -> bool:
    return "```" in text or "~~~" in text
