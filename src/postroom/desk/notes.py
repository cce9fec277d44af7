"""A letter as a note in the vault: what it shows, where it stands, and what of it is read back.

The ledger decides and the note follows. What a person added stays: keys of ours are spliced, our
sections are replaced, all else is left as it was written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.card import Card, Level
from postroom.core.errors import Corrupt, Invalid, PostroomError
from postroom.core.letter import Letter
from postroom.core.policy import Rules
from postroom.core.records import NOWHERE, Entry, NoteLocation
from postroom.core.stamp import Stamp
from postroom.core.text import duration
from postroom.desk.compose import settled
from postroom.desk.note_sync import NoteSync, seen_at
from postroom.desk.outbox import WHO
from postroom.desk.plan import FOLDERS
from postroom.store.ledger import Ledger, Transaction
from postroom.vault import folders
from postroom.vault.markdown import fence, fenced, inert, quote, sections
from postroom.vault.note import Note, render
from postroom.vault.vault import File

STATUS: Final = {"sending": "approved", "sent": "done"}
MAX_COMPARED: Final = 4_000
MAX_FOUND: Final = 2_000  # characters of the recipients, or of a risk card, in the frontmatter
# What a draft must be able to take: the keys of ours, with more text than any of them has.
MARKS: Final = dict.fromkeys(
    "status approved_at sent_at letter digest letter_version desk agent expires risk trust mode"
    " next_try".split(),
    "x" * 1_000,
) | dict.fromkeys(("risk_assessment", "held", "failed", "notice"), "x" * 4 * MAX_FOUND)
LEVELS: Final = {Level.PLAIN: "nothing unusual", Level.LOOK: "worth a look", Level.STOP: "red"}
SECTIONS: Final = (
    "What to do",
    "Outcome",
    "Notice",
    "Envelope",
    "Letter",
    "Difference",
    "Risk assessment",
    "Rollback plan",
)


def folder(entry: Entry) -> str:
    """Return the folder in which a letter's note belongs."""
    return FOLDERS.get(entry.kind, entry.home)


def text_of(entry: Entry, note: Note) -> str | None:
    """Return the letter's text as the note has it; None where it cannot be told."""
    if entry.form == "draft":
        return settled(note.body)
    found = [fenced(text) for title, text in sections(note.body) if title == "Letter"]
    return settled(found[0]) if len(found) == 1 and found[0] is not None else None


def difference(before: str, after: str) -> str:
    """Return what an edit changed, line by line."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > MAX_COMPARED:  # comparing takes a time that grows with the square
        return f"{len(old)} lines became {len(new)}; they are too many to compare."
    import difflib  # for what was edited alone

    lines = difflib.unified_diff(old, new, "as it was", "as it is", lineterm="", n=2)
    return "\n".join(lines)


def form(letter: Letter) -> str:
    """Return what a person may change of a letter: recipients, subject, text."""
    people = {"To": letter.to, "Cc": letter.cc, "Bcc": letter.bcc}
    head = "".join(f"{name}: {', '.join(map(str, who))}\n" for name, who in people.items())
    return f"{head}Subject: {letter.subject}\n\n{letter.text}"


@dataclass(frozen=True, slots=True)
class Notes:
    """Writes the notes of letters."""

    sync: NoteSync
    rules: Rules
    desk: str  # its id

    @property
    def ledger(self) -> Ledger:
        """The ledger that decides."""
        return self.sync.ledger

    def sync_note(
        self, entry: Entry, notice: str = "", *, retext: bool = False, restore: bool = False
    ) -> None:
        """Write a letter's note as the ledger has the letter now, where it belongs.

        `retext` writes the letter's text too, where it was edited elsewhere. A note that is not
        where it was left is written again only with `restore`: somebody may have moved it.
        """
        entry = self.ledger.letters.refresh(entry)
        self.sync.sync(_LetterNote(self, entry, notice, retext), restore=restore)

    def is_untouched(self, entry: Entry) -> bool:
        """Whether an approved letter's note, and with it the approval, is as it was last seen."""
        location = self.ledger.notes.location(entry.id)
        if not location.path:
            return _is_sent_within_call(entry.state)
        file = self.sync.vault.stat(location.path)
        is_same = file is not None and file[1:] == location[-3:]
        return is_same and location.path.startswith(f"{folder(entry)}/")

    def text(self, entry: Entry) -> str | None:
        """Return the letter's text as its note has it now; None if it cannot be read."""
        location = self.ledger.notes.location(entry.id)
        try:
            raw = self.sync.vault.read(location.path)[0] if location.path else None
            return text_of(entry, Note.parse(raw)) if raw is not None else None
        except PostroomError:
            return None

    def wrong_fields(self, entry: Entry, note: Note) -> tuple[str, ...]:
        """Return the display fields of a note that do not show its letter."""
        fields = self.fields(entry, note)
        ignored = ("trust", "mode")  # they show the settings
        return tuple(
            key
            for key, value in fields.items()
            if key not in ignored and note.text(key) != (value or "")
        )

    # What a note says

    def render(self, entry: Entry, notice: str) -> bytes:
        if entry.form == "draft":
            letter = entry.letter
            people = {"to": letter.to, "cc": letter.cc, "bcc": letter.bcc}
            # With their names, since these fields are read back and compared.
            named = {key: ", ".join(map(str, who)) for key, who in people.items() if who}
            named = {"from": str(letter.sender)} | named | {"subject": letter.subject}
            named |= dict(entry.fields)
            named |= {"notice": inert(notice)} if notice else {}
            return render(named | _given(self.fields(entry)), f"\n{letter.text}")
        pages = [f"\n## {title}\n{text}" for title, text in self._pages(entry, notice)]
        more = dict(entry.fields)
        return render(_given(self.fields(entry)) | more, "".join(pages))

    def update(
        self, entry: Entry, note: Note, place: NoteLocation, notice: str, *, retext: bool
    ) -> Note:
        """Return the note brought up to date; what a person wrote into it stays, wherever that was."""
        told = text_of(entry, note) is not None
        fields = self.fields(entry, note)
        ours = json.loads(place.pages)
        if entry.form == "draft":
            # What somebody typed meanwhile stays: the letter is then not approved before they agree.
            text = settled(note.body)
            follows = ours.get("") == _hash(text) and text != entry.letter.text
            fields |= {"notice": inert(notice[:MAX_FOUND]) or None}
            return note.set(fields, f"\n{entry.letter.text}" if follows else None)
        pages = {title: f"## {title}\n{text}\n" for title, text in self._pages(entry, notice)}
        if "" in ours:
            # A draft that an agent wrote: until now its body was the text, which Obsidian renders.
            text = settled(note.body)
            if not retext and ours[""] != _hash(text):
                pages["Letter"] = f"## Letter\n{_text(text)}\n"
            more = dict(entry.fields)
            fields |= inert_fields(note, but={*fields, *more})
            fields |= dict.fromkeys(("cc", "bcc"))  # they stand in the envelope
            return note.set(fields, "\n" + "".join(pages.values()))
        top, theirs, taken = "", "", False
        for title, text in sections(note.body):
            if not title and not top:
                top = f"{text.rstrip(chr(10))}\n"
            elif title == "Letter" and not (retext or taken):
                taken = True
                if ours.get(title) != _hash(text):
                    # The person's word. Where a fence is open, all that follows would be inside it.
                    theirs = f"{theirs}{text}" if not told else theirs
                    pages[title] = text if told else ""
            elif ours.pop(title, "") == _hash(text):
                continue
            elif title in SECTIONS:
                theirs += text.replace(title, f"{title} (as you had it)", 1)
            else:
                theirs += text
        body = top + "".join(pages.values()) + theirs
        return note.set(fields, f"{body.rstrip(chr(10))}\n")

    def fields(self, entry: Entry, note: Note | None = None) -> dict[str, str | None]:
        """Return the frontmatter that the note of a letter has; None where a key has no place."""
        letter, state = entry.letter, entry.state
        reply = bool(letter.in_reply_to)
        verdict = getattr(state, "verdict", None)
        waits = state.since if isinstance(state, life.Pending) else None
        common: dict[str, str | None] = {
            "status": STATUS.get(entry.kind, entry.kind),
            "approved_at": verdict.at.iso if verdict else None,
            "sent_at": state.at.iso if isinstance(state, life.Sent) else None,
            "letter": entry.id,
            "digest": entry.digest,
            "letter_version": str(entry.version),
            "desk": self.desk,
            "agent": entry.agent,
            "expires": _later(waits, self.rules.expiry_seconds) if waits else None,
            "risk": LEVELS[entry.card.level],
            **_why(state),
        }
        if waits and entry.home == folders.DRAFTS:
            common["status"] = "pending_approval"
        if entry.form == "draft":
            warnings, facts = entry.card.warnings, entry.card.facts
            texts = [one.text for one in (*warnings, *facts)]
            texts.insert(len(warnings), "Facts:" if facts else "")
            found = " ".join(texts).strip()[:MAX_FOUND]
            common |= {"risk_assessment": found or None}
            common |= {"trust": self.rules.trust, "mode": self.rules.mode}
            return _inert(common) | (_as_written(entry, note) if note else {})
        shown: dict[str, str | None] = {
            "type": "email_reply" if reply else "email_send",
            "status": common.pop("status"),
            "action_type": "reply_email" if reply else "send_email",
            "to": _specs(letter.to),
            "subject": letter.subject,
            "created": entry.created.iso,
            **common,
        }
        return _inert(shown)

    def _pages(self, entry: Entry, notice: str) -> list[tuple[str, str]]:
        letter = entry.letter
        title = "What to do" if entry.kind in life.OPEN else "Outcome"
        pages = [(title, self._what_to_do(entry))]
        if notice:
            pages.append(("Notice", f"{quote(notice)}\n"))
        pages.append(("Envelope", _envelope(entry)))
        pages.append(("Letter", _text(letter.text)))
        former = self.ledger.history.original(entry.id) if entry.version > 1 else None
        if former is not None and form(former) != form(letter):
            pages.append(("Difference", _text(difference(form(former), form(letter)))))
        pages.append(("Risk assessment", _card(entry.card)))
        pages.append(("Rollback plan", self._rollback(entry)))
        return pages

    def _what_to_do(self, entry: Entry) -> str:
        id, state, folder_counts = entry.id, entry.state, self.rules.trust == "folder"
        match state:
            case life.Pending() if folder_counts:
                said = (
                    f"Move this note to `{folders.APPROVED}/` to send the letter as it stands here, or to"
                    f" `{folders.REJECTED}/`; a `reason` in the frontmatter reaches the agent."
                    f" Or use the page, `postroom desk`, or `postroom approve {id}`.\n\nYou may change the text under"
                    " *Letter*. The note then comes back once, with a new risk assessment and the"
                    " difference; moved again, it is approved."
                )
            case life.Pending():
                said = (
                    f"Approve it on the page (`postroom desk`) or with `postroom approve {id}`."
                    " A moved note is no verdict here."
                )
            case life.Approved(verdict=verdict, held=held, wait=wait, since=since):
                said = f"Approved by {quote(verdict.by)} at {verdict.at.iso}. "
                said += f"Held: {quote(held)}. " if held else ""
                said += f"It may leave from {_later(since, wait)} on. " if wait else ""
                said += f"Until then move it back to `{entry.home}/`, or `postroom undo {id}`."
            case life.Sending(at=at):
                said = f"Being sent since {at.iso}."
            case life.Unknown(why=why):
                said = (
                    f"**It may or may not have been sent** ({quote(why)}). Look into the mailbox, then"
                    f" `postroom resolve {id} --sent` or `postroom resolve {id} --not-sent`."
                )
            case _:
                said = quote(life.describe(state))
        level = (
            "moving this note is the verdict" if folder_counts else "a passphrase is the verdict"
        )
        risk = f"Risk: **{LEVELS[entry.card.level]}**.\n\n" if entry.kind in life.OPEN else ""
        active = f"Trust level: {self.rules.trust} ({level}). Mode: {quote(self.rules.mode)}."
        return f"{risk}{said}\n\n{active}\n"

    def _rollback(self, entry: Entry) -> str:
        gone = "A mail that was sent cannot be called back; write to the same people to correct it."
        match entry.state:
            case life.Sent():
                return f"{gone}\n"
            case life.Pending() | life.Approved() | life.Sending() | life.Unknown():
                window = self.rules.undo_seconds
                waits = duration(window) if window else "no time"
                return f"After approval it waits {waits}: `postroom undo {entry.id}` recalls it. {gone}\n"
        return (
            "Nothing was sent, so there is nothing to roll back. If you want it after all, move this"
            f" note to `{folders.APPROVED}/`: it then waits for your word again.\n"
        )


@dataclass(frozen=True, slots=True)
class _LetterNote:
    """A letter as the source of its note."""

    notes: Notes
    entry: Entry
    notice: str
    retext: bool

    @property
    def key(self) -> str:
        return self.entry.id

    @property
    def folder(self) -> str:
        return folder(self.entry)

    def render(self) -> tuple[str, bytes] | None:
        state = self.entry.state
        if isinstance(state, life.Rehearsal) or _is_sent_within_call(state):
            return None
        return _name(self.entry), self.notes.render(self.entry, self.notice)

    def update(self, raw: bytes, location: NoteLocation) -> bytes | None:
        entry, retext = self.entry, self.retext
        try:
            note = Note.parse(raw)
            is_its_note = note.text("letter") in (entry.id, "")
            new = self.notes.update(entry, note, location, self.notice, retext=retext).raw
        except Corrupt:
            return raw  # broken by hand: it goes where it belongs, as it is
        return new if is_its_note else None

    def record(self, tx: Transaction, path: str, data: bytes, file: File, *, current: bool) -> None:
        location = _written_at(self.entry, path, data, file, self.notice if current else "")
        tx.notes.finish_write(self.entry.id, location if current else location._replace(version=0))


def _written_at(entry: Entry, path: str, data: bytes, file: File, notice: str = "") -> NoteLocation:
    """Return what is remembered of a note that was written."""
    body = data.decode(errors="replace").replace("\r\n", "\n")
    pages = {title: _hash(text) for title, text in sections(body) if title in SECTIONS}
    # As we would write it: what stands there may be the person's.
    pages["Letter"] = _hash(f"## Letter\n{_text(entry.letter.text)}")
    if entry.form == "draft":
        pages = {"": _hash(entry.letter.text)}
    shown = NOWHERE._replace(notice=notice, pages=json.dumps(pages), version=entry.version)
    return seen_at(path, data, file, shown)


def taken_over_at(entry: Entry, path: str, data: bytes, file: File) -> NoteLocation:
    """Return what is remembered of a note, not ours yet, that is about to become a letter's.

    Its whole body is the letter's text. Stopped before it is marked, the next look goes on.
    """
    pages = json.dumps({"": _hash(entry.letter.text)})
    return seen_at(path, data, file, NOWHERE._replace(pages=pages))


def inert_fields(note: Note, but: Container[str]) -> dict[str, str | None]:
    """Return what else must change in the fields of an agent's note.

    None of them is rendered, and none passes for what the desk says.
    """
    texts = {key: note.text(key) for key in note.fields if key not in but}
    wanted = {key: None if key in MARKS else inert(text) for key, text in texts.items()}
    return {key: text for key, text in wanted.items() if text != texts[key]}


def _why(state: life.State) -> dict[str, str | None]:
    """Return why a letter has not left, and when it is tried again."""
    match state:
        case life.Approved(held=held, since=since, wait=wait) if held:
            return {"held": held[:MAX_FOUND], "next_try": _later(since, wait), "failed": None}
        case life.Failed(reason=reason):
            return {"held": None, "next_try": None, "failed": reason[:MAX_FOUND]}
    return dict.fromkeys(("held", "next_try", "failed"))


def _hash(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def _is_sent_within_call(state: life.State) -> bool:
    """Whether it is on its way out within a call: its note comes with the outcome."""
    match state:
        case life.Approved(verdict=verdict, held="", tries=0) | life.Sending(verdict=verdict):
            return verdict.via in {life.Channel.SLIP, life.Channel.NOT_REQUIRED}
    return False


def _as_written(entry: Entry, note: Note) -> dict[str, str | None]:
    """Return what a draft's own fields must be put back to, where they name somebody else."""
    letter, wrong = entry.letter, dict[str, str | None]()
    for key in ("to", "cc", "bcc"):
        meant: tuple[Address, ...] = getattr(letter, key)
        try:
            same = Address.parse_list(note.text(key)) == meant
        except Invalid:
            same = False
        if not same:
            wrong[key] = ", ".join(map(str, meant)) or None
    if note.text("subject") != letter.subject:
        wrong["subject"] = letter.subject
    return wrong


def _name(entry: Entry) -> str:
    about = " ".join(re.findall(r"\w+", entry.letter.subject))[:40].strip()
    return f"{entry.created.iso[:10]} {entry.id}{f' {about}' if about else ''}.md"


def _inert(fields: dict[str, str | None]) -> dict[str, str | None]:
    return {key: inert(value) if value else value for key, value in fields.items()}


def _given(fields: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in fields.items() if value is not None}


def _text(text: str) -> str:
    # A person who deletes the blank line before the end of a fence has changed nothing.
    return f"{fence(text.strip(chr(10)))}\n"


def _specs(addresses: tuple[Address, ...]) -> str:
    # For the frontmatter, which has little room; the envelope below it has them all.
    return ", ".join(address.spec for address in addresses)[:MAX_FOUND]


def _later(stamp: Stamp, seconds: float) -> str:
    return Stamp(stamp.wall + seconds).iso


def _envelope(entry: Entry) -> str:
    letter = entry.letter
    people = letter.address_rows
    rows = [f"- {name}: {quote(str(a))}" for name, addresses in people for a in addresses]
    rows.append(f"- Subject: {quote(letter.subject or '(none)')}")
    rows += [f"- HTML part: {letter.about_html}"] if letter.html else []
    for at, file in enumerate(letter.attachments):
        origin = entry.origins[at] if at < len(entry.origins) else "agent"
        sha = hashlib.sha256(file.content).hexdigest()[:12]
        rows.append(
            f"- Attachment: {quote(file.name)}, {quote(file.type)}, {len(file.content):,} bytes,"
            f" SHA-256 {sha}…, from the {origin}"
        )
    rows.append(f"- Agent: {WHO.get(entry.agent) or quote(entry.agent)}")
    rows.append(f"- Digest: `{entry.digest}`")
    return "\n".join(rows) + "\n"


def _card(card: Card) -> str:
    marks = {Level.LOOK: "**look** ", Level.STOP: "**red** "}
    warnings = [f"- {marks[line.level]}{quote(line.text)}" for line in card.warnings]
    facts = [f"- {quote(line.text)}" for line in card.facts]
    parts = [
        [f"Level: **{LEVELS[card.level]}**."],
        warnings,
        ["Facts:", "", *facts] if facts else [],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"
