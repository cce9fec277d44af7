"""A letter as a note in the vault: how the note is written, and how the letter's text is read back from it.

The ledger decides and the note follows. What a person added stays: only Postroom's own keys and sections are replaced.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container
from contextlib import suppress
from dataclasses import field
from typing import Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Corrupt, Invalid
from postroom.core.letter import Letter
from postroom.core.policy import Rules
from postroom.core.records import NOWHERE, Card, Entry, Level, NoteLocation
from postroom.core.stamp import Stamp
from postroom.core.text import duration
from postroom.core.values import dataclass
from postroom.desk.note_sync import seen_at
from postroom.desk.plan import folder
from postroom.desk.proposals import AUTHORS, normalize_text
from postroom.store.ledger import Ledger, Transaction
from postroom.vault import folders
from postroom.vault.markdown import fence, fenced_sections, inert, leaves_open, quote, sections
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
LEVELS: Final = {Level.PLAIN: "nothing unusual", Level.LOOK: "worth a look", Level.STOP: "red"}
_SECTION_START: Final = "(?m)^(?=## )"
# fmt: off
SECTIONS: Final = ("What to do", "Outcome", "Notice", "Envelope", "Letter", "Difference", "Risk assessment",
                   "Rollback plan")
# fmt: on


def text_of(entry: Entry, note: Note) -> str | None:
    """Return the letter's text as the note has it; None if it cannot be read."""
    if entry.form == "draft":
        return normalize_text(note.body)
    written = json.loads(entry.note.location.pages)
    if written.get("Letter") == _text_hash(entry.letter) and _is_as_written(note.body, written):
        return normalize_text(entry.letter.text)
    texts = [text for title, text in fenced_sections(note.body) if title == "Letter"]
    return normalize_text(texts[0]) if len(texts) == 1 and texts[0] is not None else None


def _is_as_written(body: str, written: dict[str, str]) -> bool:
    """Whether a body has only sections that Postroom wrote and nobody changed; parsing Markdown takes longer."""
    top, *parts = re.split(_SECTION_START, body)
    found = {text[3 : text.find("\n")]: _hash(text) for text in parts}
    # A hash leaves out the white space at the ends, and some of it, such as U+2028, keeps a fence from closing.
    is_plain = all(text.strip() == text.strip(" \n") for text in parts)
    return is_plain and not top.strip("\n") and len(found) == len(parts) and found == written


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
        about = " ".join(re.findall(r"\w+", letter.subject))[:40]
        name = f"{entry.created.iso[:10]} {entry.id} {about}".strip() + ".md"
        fields = {key: value for key, value in self.fields().items() if value is not None}
        if entry.form != "draft":
            parts = [f"\n## {title}\n{text}" for title, text in self._sections()]
            return name, render(fields | dict(entry.fields), "".join(parts))
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
        is_as_written = written.get("") == _hash(text) and text != new
        fields = self.fields(note) | {"notice": inert(self.notice[:MAX_FIELD]) or None}
        return note.set(fields, f"\n{new}" if is_as_written else None)

    def _rewrite_draft(self, note: Note, written: dict[str, str]) -> Note:
        """Return an agent's draft as a note with sections, its text in a code block, which Obsidian does not render."""
        parts, text = dict(self._sections()), normalize_text(note.body)
        if not self.retext and written[""] != _hash(text):
            parts["Letter"] = _fence(text)
        fields = self.fields(note)
        fields |= inert_fields(note, but={*fields, *dict(self.entry.fields)})
        fields |= dict.fromkeys(("cc", "bcc"))  # they stand in the envelope
        return note.set(fields, "\n" + "".join(f"## {t}\n{text}\n" for t, text in parts.items()))

    def _update_sections(self, note: Note, written: dict[str, str]) -> Note:
        """Return the note with Postroom's sections replaced; sections that a person wrote or changed are kept."""
        parts = {title: f"## {title}\n{text}\n" for title, text in self._sections()}
        top, persons, has_text = "", "", False
        as_written = _is_as_written(note.body, written)
        for title, text in [("", "\n")] if as_written else sections(note.body):
            if not title and not top and not leaves_open(text):
                top = f"{text.rstrip(chr(10))}\n"
            elif title == "Letter" and not (self.retext or has_text):
                has_text = True
                if written.get(title) != _hash(text):
                    # The person has changed the text. A code block that they left open would hide all sections below.
                    is_whole = text_of(self.entry, note) is not None and not leaves_open(text)
                    parts[title] = text if is_whole else ""
                    persons += "" if is_whole else text
            elif written.pop(title, "") == _hash(text):
                continue
            elif title in SECTIONS:
                persons += text.replace(title, f"{title} (as you had it)", 1)
            else:
                persons += text
        body = top + "".join(parts.values()) + persons
        return note.set(self.fields(note), f"{body.rstrip(chr(10))}\n")

    def record(self, tx: Transaction, path: str, data: bytes, file: File, *, current: bool) -> None:
        """Record the note's location, and a hash of each section that Postroom wrote into it."""
        entry = self.entry
        body = data.decode(errors="replace").replace("\r\n", "\n")
        # Parsing Markdown is slow, so it is done only if the file may have other sections than were just written.
        parts = self._made
        is_made = all(text in body for title, text in parts.items() if title != "Letter")
        if not (parts and is_made):
            parts = {title: text for title, text in sections(body) if title in SECTIONS}
        written = {title: _hash(text) for title, text in parts.items()}
        # The hash of the text as Postroom would write it: in the file may be the person's text.
        written["Letter"] = _text_hash(entry.letter)
        if entry.form == "draft":
            written = {"": _hash(entry.letter.text)}
        shown = NOWHERE._replace(pages=json.dumps(written))
        if current:
            shown = shown._replace(notice=self.notice, version=entry.version)
        tx.notes.finish_write(entry.id, seen_at(path, data, file, shown))

    # The fields and sections of a note

    def wrong_fields(self, note: Note) -> tuple[str, ...]:
        fields = self.fields(note)
        ignored = ("trust", "mode")  # these show the settings, not the letter
        is_wrong = {key: note.text(key) != (value or "") for key, value in fields.items()}
        return tuple(key for key in fields if is_wrong[key] and key not in ignored)

    def fields(self, note: Note | None = None) -> dict[str, str | None]:
        """Return the note's frontmatter, None for what is removed; for a person's draft also what differs in `note`."""
        entry, letter, state = self.entry, self.entry.letter, self.entry.state
        verdict = getattr(state, "verdict", None)
        since = state.since if isinstance(state, life.Pending) else None
        held = state if isinstance(state, life.Approved) and state.held else None
        common: dict[str, str | None] = {
            "status": STATUS.get(entry.kind, entry.kind),
            "approved_at": verdict.at.iso if verdict else None,
            "sent_at": state.at.iso if isinstance(state, life.Sent) else None,
            "letter": entry.id,
            "digest": entry.digest,
            "letter_version": str(entry.version),
            "desk": self.desk,
            "agent": entry.agent,
            "expires": _later(since, self.rules.expiry_seconds) if since else None,
            "risk": LEVELS[entry.card.level],
            "held": held.held[:MAX_FIELD] if held else None,
            "next_try": _later(held.since, held.wait) if held else None,
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
        reply = bool(letter.in_reply_to)
        fields: dict[str, str | None] = {
            "type": "email_reply" if reply else "email_send",
            "status": common.pop("status"),
            "action_type": "reply_email" if reply else "send_email",
            # The frontmatter has little room; the envelope below it has all of them.
            "to": ", ".join(address.spec for address in letter.to)[:MAX_FIELD],
            "subject": letter.subject,
            "created": entry.created.iso,
        }
        return _inert(fields | common)

    def _sections(self) -> list[tuple[str, str]]:
        entry, letter = self.entry, self.entry.letter
        is_open = entry.kind in life.OPEN
        parts = [("What to do" if is_open else "Outcome", self._what_to_do())]
        parts += [("Notice", f"{quote(self.notice)}\n")] if self.notice else []
        parts += [("Envelope", _envelope(entry)), ("Letter", _fence(letter.text))]
        original = self.ledger.letters.original(entry.id) if entry.is_edited else None
        if original is not None and form(original) != form(letter):
            parts.append(("Difference", _fence(difference(form(original), form(letter)))))
        parts.append(("Risk assessment", _card(entry.card)))
        parts.append(("Rollback plan", self._rollback_plan()))
        self._made.update({title: f"## {title}\n{text}" for title, text in parts})
        return parts

    def _what_to_do(self) -> str:
        entry, rules = self.entry, self.rules
        id, is_folder_level = entry.id, rules.trust == "folder"
        match entry.state:
            case life.Pending() if is_folder_level:
                text = (
                    f"Move this note to `{folders.APPROVED}/` to send the letter as it stands here, or to"
                    f" `{folders.REJECTED}/`; a `reason` in the frontmatter reaches the agent."
                    f" Or use the page, `postroom desk`, or `postroom approve {id}`.\n\nYou may change the text under"
                    " *Letter*. The note then comes back once, with a new risk assessment and the"
                    " difference; moved again, it is approved."
                )
            case life.Pending():
                text = (
                    f"Approve it on the page (`postroom desk`) or with `postroom approve {id}`."
                    " A moved note is no verdict here."
                )
            case life.Approved(verdict=verdict, held=held, wait=wait, since=since):
                text = f"Approved by {quote(verdict.by)} at {verdict.at.iso}. "
                text += f"Held: {quote(held)}. " if held else ""
                text += f"It may leave from {_later(since, wait)} on. " if wait else ""
                text += f"Until then move it back to `{entry.home}/`, or `postroom undo {id}`."
            case life.Unknown(why=why):
                text = (
                    f"**It may or may not have been sent** ({quote(why)}). Look into the mailbox, then"
                    f" `postroom resolve {id} --sent` or `postroom resolve {id} --not-sent`."
                )
            case state:
                text = quote(life.describe(state))
        means = "moving this note" if is_folder_level else "a passphrase"
        risk = f"Risk: **{LEVELS[entry.card.level]}**.\n\n" if entry.kind in life.OPEN else ""
        mode = f"Mode: {quote(rules.mode)}."
        return f"{risk}{text}\n\nTrust level: {rules.trust} ({means} is the verdict). {mode}\n"

    def _rollback_plan(self) -> str:
        final = (
            "A mail that was sent cannot be called back; write to the same people to correct it.\n"
        )
        if isinstance(self.entry.state, life.Sent):
            return final
        if self.entry.kind in life.OPEN:
            window = self.rules.undo_seconds
            waits = duration(window) if window else "no time"
            return (
                f"After approval it waits {waits}: `postroom undo {self.key}` recalls it. {final}"
            )
        return (
            "Nothing was sent, so there is nothing to roll back. If you want it after all, move this"
            f" note to `{folders.APPROVED}/`: it then waits for your word again.\n"
        )


def taken_over_at(entry: Entry, path: str, data: bytes, file: File) -> NoteLocation:
    """Return the location of a draft that has just become a letter, recorded before the draft gets Postroom's fields."""
    pages = json.dumps({"": _hash(entry.letter.text)})
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


def _hash(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def _text_hash(letter: Letter) -> str:
    return _hash(f"## Letter\n{_fence(letter.text)}")


def _fence(text: str) -> str:
    # Without blank lines at its ends: a person who removes such a line in the note has changed nothing.
    return f"{fence(text.strip(chr(10)))}\n"


def _later(stamp: Stamp, seconds: float) -> str:
    return Stamp(stamp.wall + seconds).iso


def _envelope(entry: Entry) -> str:
    letter = entry.letter
    rows = [f"- {name}: {quote(str(one))}" for name, some in letter.address_rows for one in some]
    rows.append(f"- Subject: {quote(letter.subject or '(none)')}")
    rows += [f"- HTML part: {letter.about_html}"] if letter.html else []
    for at, file in enumerate(letter.attachments):
        origin = entry.origins[at] if at < len(entry.origins) else "agent"
        sha = hashlib.sha256(file.content).hexdigest()[:12]
        rows.append(
            f"- Attachment: {quote(file.name)}, {quote(file.type)}, {len(file.content):,} bytes,"
            f" SHA-256 {sha}…, from the {origin}"
        )
    rows.append(f"- Agent: {AUTHORS.get(entry.agent) or quote(entry.agent)}")
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
