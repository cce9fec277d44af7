"""A letter as a note in the vault: how the note is written, and how the letter's text is read back from it.

The ledger decides and the note follows. What a person added stays: only Postroom's own keys and sections are replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any, Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Corrupt, Invalid
from postroom.core.letter import Letter
from postroom.core.policy import Rules
from postroom.core.records import NOWHERE, Entry, NoteLocation
from postroom.core.values import dataclass
from postroom.desk.note_files import KEY as FILES
from postroom.desk.note_files import LinkedFiles
from postroom.desk.note_sync import seen_at
from postroom.desk.note_text import (
    LETTER,
    LEVELS,
    OLD_SECTIONS,
    OWN_BLOCK,
    SECTIONS,
    LetterText,
    block_hashes,
    blocks,
    date_time,
    fence_letter,
    is_date_time,
    note_name,
    persons_blocks,
    text_hash,
)
from postroom.desk.plan import folder
from postroom.desk.proposals import normalize_text
from postroom.store.ledger import Ledger, Transaction
from postroom.vault import folders
from postroom.vault.markdown import fenced_sections, inert, leaves_open, sections
from postroom.vault.note import Note, render
from postroom.vault.vault import File

STATUS: Final = {"sending": "approved", "sent": "done"}
MAX_COMPARED: Final = 4_000  # lines of both texts together
MAX_FIELD: Final = 2_000  # characters of the recipients, or of a risk card, in the frontmatter
# Postroom's keys with the longest text that each may get. Before a draft is taken over, they are set once for a test.
MARKS: Final = dict.fromkeys(
    "status approved_at sent_at letter digest letter_version desk agent expires risk trust mode"
    " next_try".split(),
    "x" * 1_000,
) | dict.fromkeys(("risk_assessment", "held", "failed", "notice"), "x" * 4 * MAX_FIELD)
# Fields that show a moment: older versions wrote it in UTC, and a machine in another zone writes it otherwise.
THREAD: Final = "thread_id"
MOMENTS: Final = ("created", "approved_at", "sent_at", "expires", "next_try")
BODY, BLOCKS = (
    "body",
    "blocks",
)  # what the ledger keeps of a note: hashes of its body, and of each block


def text_of(entry: Entry, note: Note) -> str | None:
    """Return the letter's text as the note has it; None if it cannot be read."""
    if entry.form == "draft":
        return normalize_text(note.body)
    written = json.loads(entry.note.location.pages)
    is_same = written.get(LETTER) == text_hash(fence_letter(entry.letter.text))
    if is_same and _is_as_written(note.body, written):
        return normalize_text(entry.letter.text)
    texts = [text for title, text in fenced_sections(note.body) if title == LETTER]
    return normalize_text(texts[0]) if len(texts) == 1 and texts[0] is not None else None


def _is_as_written(body: str, written: Mapping[str, str]) -> bool:
    """Whether a body has only what Postroom wrote, and nobody changed it; parsing Markdown takes longer."""
    return written.get(BODY) == _hash_body(body)


def _hash_body(body: str) -> str:
    # Only newlines are left out: some white space, such as U+2028, keeps a fence from closing.
    return hashlib.sha256(body.strip("\n").encode()).hexdigest()[:12]


def difference(before: str, after: str) -> str:
    old, new = before.splitlines(), after.splitlines()
    # The time of a comparison grows with the square of the lines.
    if len(old) + len(new) > MAX_COMPARED:
        return f"{len(old)} lines became {len(new)}; they are too many to compare."
    from difflib import unified_diff  # imported here: only edited letters need it

    return "\n".join(unified_diff(old, new, "as it was", "as it is", lineterm="", n=2))


def form(letter: Letter) -> str:
    """Return the parts of a letter that a person may change, as a text: recipients, subject, text."""
    people = (("To", letter.to), ("Cc", letter.cc), ("Bcc", letter.bcc))
    head = "".join(f"{name}: {', '.join(map(str, addresses))}\n" for name, addresses in people)
    return f"{head}Subject: {letter.subject}\n\n{letter.text}"


@dataclass(frozen=True, slots=True)
class LetterSource:
    """A letter as a `NoteSource`: writes the letter's note."""

    ledger: Ledger
    rules: Rules
    desk: str  # the id of the desk
    entry: Entry
    notice: str = ""
    retext: bool = False  # whether the letter's text replaces that in the note
    files: LinkedFiles | None = None  # the attachments that a person can open
    answered: str = ""  # the path of the note of the mail that the letter answers
    _made: dict[str, str] = field(default_factory=dict)  # the sections of the last rendering

    @property
    def key(self) -> str:
        return self.entry.id

    @property
    def folder(self) -> str:
        return folder(self.entry.state, self.entry.home)

    def render(self) -> tuple[str, bytes] | None:
        """Return name and content of a new note; None for a rehearsal, or a letter that is sent within its call."""
        entry, letter = self.entry, self.entry.letter
        if isinstance(entry.state, life.Rehearsal) or is_sent_within_call(entry.state):
            return None
        name = note_name(entry)
        fields = {key: value for key, value in self.fields().items() if value is not None}
        if entry.form != "draft":
            return name, render(fields | dict(entry.fields), _body(self._sections().values()))
        # With display names, since these fields are read back and compared with the letter.
        people = {"to": letter.to, "cc": letter.cc, "bcc": letter.bcc}
        own = {key: ", ".join(map(str, some)) for key, some in people.items() if some}
        own = {"from": str(letter.sender)} | own | {"subject": letter.subject} | dict(entry.fields)
        own |= {"notice": inert(self.notice)} if self.notice else {}
        return name, render(own | fields, f"\n{letter.text}")

    def update(self, raw: bytes, location: NoteLocation) -> bytes | None:
        """Return the content brought up to date; None if the file is another letter's note."""
        written, update = json.loads(location.pages), self._update_sections
        if self.entry.form == "draft":
            update = self._update_draft
        elif "" in written:
            update = self._rewrite_draft
        try:
            note = Note.parse(raw)
            return update(note, written).raw if note.text("letter") in (self.entry.id, "") else None
        except Corrupt:
            return raw  # a note that cannot be parsed is moved to its folder unchanged

    def _update_draft(self, note: Note, written: dict[str, str]) -> Note:
        """Return a person's draft with Postroom's fields. Its text is replaced only if it is as Postroom wrote it."""
        text, new = normalize_text(note.body), self.entry.letter.text
        is_as_written = written.get("") == text_hash(text) and text != new
        fields = self.fields(note) | {"notice": inert(self.notice[:MAX_FIELD]) or None}
        return note.set(fields, f"\n{new}" if is_as_written else None)

    def _rewrite_draft(self, note: Note, written: dict[str, str]) -> Note:
        """Return an agent's draft as a note with sections, its text in a code block, which Obsidian does not render."""
        parts, text = self._sections(), normalize_text(note.body)
        if not self.retext and written[""] != text_hash(text):
            parts[LETTER] = fence_letter(text)
        fields = self.fields(note)
        fields |= inert_fields(note, but={*fields, *dict(self.entry.fields)})
        fields |= dict.fromkeys(("cc", "bcc"))  # they stand above the letter
        return note.set(fields, _body(parts.values()))

    def _update_sections(self, note: Note, written: dict[str, str]) -> Note:
        """Return the note with Postroom's sections replaced; what a person wrote or changed is kept."""
        parts, top, persons = self._sections(), list[str](), list[str]()
        has_text, known = False, written.get(BLOCKS, "")
        for title, text in [] if _is_as_written(note.body, written) else sections(note.body):
            if title == LETTER and not (self.retext or has_text):
                has_text = True
                if written.get(title) != text_hash(text):
                    # A code block that the person left open would hide all sections below.
                    is_whole = text_of(self.entry, note) is not None and not leaves_open(text)
                    parts[title] = text if is_whole else ""
                    persons += [] if is_whole else [text]
            elif title or leaves_open(text):
                persons += _persons_section(title, text, written)
            else:
                found = persons_blocks(text, known)
                top = [one for one in found if not OWN_BLOCK.match(one)]
                persons += _changed(found)
        return note.set(self.fields(note), _body([*top, *parts.values(), *persons]))

    def record(self, tx: Transaction, path: str, data: bytes, file: File, *, current: bool) -> None:
        """Record the note's location, and hashes of what Postroom wrote into it."""
        entry = self.entry
        written: dict[str, Any] = {"": text_hash(entry.letter.text)}
        if entry.form != "draft":
            # The hash of the text as Postroom would write it: in the file may be the person's text.
            written = {LETTER: text_hash(fence_letter(entry.letter.text))}
            written |= self._written(data.decode(errors="replace").replace("\r\n", "\n"))
            written |= {FILES: self.files} if self.files else {}
        shown = NOWHERE._replace(pages=json.dumps(written))
        if current:
            shown = shown._replace(notice=self.notice, version=entry.version)
        tx.notes.finish_write(entry.id, seen_at(path, data, file, shown))

    def _written(self, text: str) -> dict[str, str]:
        """Return hashes of what Postroom wrote into a note with this text."""
        parts = self._made
        body = _body(parts.values())
        if parts and text.endswith(f"---\n{body}"):  # there is nothing else in it
            return {BODY: _hash_body(body), BLOCKS: self._blocks()}
        # Parsing Markdown is slow, so it is done only if the file may have other sections than were just written.
        if parts and all(part in text for title, part in parts.items() if title != LETTER):
            return {BLOCKS: self._blocks()}
        found = dict(sections(text))
        own = [part for title, part in found.items() if title in (*SECTIONS, *OLD_SECTIONS)]
        own += [block for block in blocks(found.get("", "")) if OWN_BLOCK.match(block)]
        return {BLOCKS: block_hashes(own)}

    def _blocks(self) -> str:
        # The letter's text is compared as a whole.
        return block_hashes(text for title, text in self._made.items() if title != LETTER)

    # The fields and sections of a note

    def wrong_fields(self, note: Note) -> tuple[str, ...]:
        fields = self.fields(note)
        # The first two show the settings, not the letter; older versions did not write the third.
        ignored = ("trust", "mode", *({THREAD} - note.fields.keys()))
        return tuple(
            key
            for key, value in fields.items()
            if key not in ignored and not _is_shown(key, note.text(key), value or "")
        )

    def fields(self, note: Note | None = None) -> dict[str, str | None]:
        """Return the note's frontmatter, None for what is removed; for a person's draft also what differs in `note`."""
        entry, letter, state = self.entry, self.entry.letter, self.entry.state
        verdict = getattr(state, "verdict", None)
        since = state.since if isinstance(state, life.Pending) else None
        held = state if isinstance(state, life.Approved) and state.held else None
        common: dict[str, str | None] = {
            "status": STATUS.get(entry.kind, entry.kind),
            "approved_at": date_time(verdict.at.wall) if verdict else None,
            "sent_at": date_time(state.at.wall) if isinstance(state, life.Sent) else None,
            "letter": entry.id,
            "digest": entry.digest,
            "letter_version": str(entry.version),
            "desk": self.desk,
            "agent": entry.agent,
            "expires": date_time(since.wall + self.rules.expiry_seconds) if since else None,
            "risk": LEVELS[entry.card.level],
            "held": held.held[:MAX_FIELD] if held else None,
            "next_try": date_time(held.since.wall + held.wait) if held else None,
            "failed": state.reason[:MAX_FIELD] if isinstance(state, life.Failed) else None,
        }
        if since and entry.home == folders.DRAFTS:
            common["status"] = "pending_approval"
        if entry.form == "draft":
            warnings, facts = entry.card.warnings, entry.card.facts
            texts = [line.text for line in (*warnings, *facts)]
            texts.insert(len(warnings), "Facts:" if facts else "")
            common["risk_assessment"] = " ".join(texts).strip()[:MAX_FIELD] or None
            common |= {"trust": self.rules.trust, "mode": self.rules.mode}
            return _inert(common) | (_fields_to_restore(letter, note) if note else {})
        reply = letter.is_reply
        fields: dict[str, str | None] = {
            "type": "email_reply" if reply else "email_send",
            "status": common.pop("status"),
            "action_type": "reply_email" if reply else "send_email",
            # The frontmatter has little room; the envelope below it has all of them.
            "to": ", ".join(address.spec for address in letter.to)[:MAX_FIELD],
            "subject": letter.subject,
            "created": date_time(entry.created.wall),
        }
        fields |= {THREAD: letter.thread} if reply and letter.thread else {}
        return _inert(fields | common)

    def _sections(self) -> dict[str, str]:
        entry, changes = self.entry, ""
        original = self.ledger.letters.original(entry.id) if entry.is_edited else None
        if original is not None and form(original) != form(entry.letter):
            changes = difference(form(original), form(entry.letter))
        text = LetterText(entry, self.rules, self.notice, self.files, self.answered)
        self._made.update(text.sections(changes))
        return dict(self._made)


def _is_shown(key: str, text: str, wanted: str) -> bool:
    return text == wanted or (key in MOMENTS and is_date_time(text, wanted))


def _body(parts: Iterable[str]) -> str:
    """Return the body of a note, with a blank line between its parts."""
    return "".join(f"\n{part.strip(chr(10))}\n" for part in parts if part)


def _persons_section(title: str, text: str, written: Mapping[str, str]) -> list[str]:
    """Return what of a section is a person's; a heading says what is not Postroom's text, or not as it wrote it."""
    if written.get(title) == text_hash(text):  # all of it is as Postroom wrote it
        return []
    found = persons_blocks(text, written.get(BLOCKS, ""))
    if not found or title not in (*SECTIONS, *OLD_SECTIONS):
        return [text] if len(found) == len(blocks(text)) else found
    if found[0].startswith("## "):
        return [found[0].replace(title, f"{title} (as you had it)", 1), *found[1:]]
    remarks = [one for one in found if not OWN_BLOCK.match(one)]
    return [*(["## Your remarks", *remarks] if remarks else []), *_changed(found)]


def _changed(found: Iterable[str]) -> list[str]:
    changed = [one for one in found if OWN_BLOCK.match(one)]
    return ["## As you had it", *changed] if changed else []


def taken_over_at(entry: Entry, path: str, data: bytes, file: File) -> NoteLocation:
    """Return the location of a draft that has just become a letter, recorded before the draft gets Postroom's fields."""
    pages = json.dumps({"": text_hash(entry.letter.text)})
    return seen_at(path, data, file, NOWHERE._replace(pages=pages))


def inert_fields(note: Note, but: Container[str]) -> dict[str, str | None]:
    """Return changes that make an agent's fields, without `but`, harmless: no markup, and no names of Postroom's own."""
    texts = {key: note.text(key) for key in note.fields if key not in but}
    wanted = {key: None if key in MARKS else inert(text) for key, text in texts.items()}
    return {key: text for key, text in wanted.items() if text != texts[key]}


def _inert(fields: dict[str, str | None]) -> dict[str, str | None]:
    return {key: inert(text) if text else text for key, text in fields.items()}


def is_sent_within_call(state: life.State) -> bool:
    """Whether a letter is being sent within the call that proposed it: its note is written with the outcome."""
    match state:
        case life.Approved(verdict=verdict, held="", tries=0) | life.Sending(verdict=verdict):
            return verdict.via in {life.Channel.SLIP, life.Channel.NOT_REQUIRED}
    return False


def _fields_to_restore(letter: Letter, note: Note) -> dict[str, str | None]:
    """Return the letter's value for each of recipients and subject that differs in a person's draft."""
    wrong: dict[str, str | None] = {}
    for key, people in (("to", letter.to), ("cc", letter.cc), ("bcc", letter.bcc)):
        with suppress(Invalid):
            if Address.parse_list(note.text(key)) == people:
                continue
        wrong[key] = ", ".join(map(str, people)) or None
    if note.text("subject") != letter.subject:
        wrong["subject"] = letter.subject
    return wrong
