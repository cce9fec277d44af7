"""Reconcile: what people did to the notes becomes events of the letters, and the notes follow the ledger.

A note that stands where it was put, as it was put, says nothing. One that was moved is a verdict, if
it is the only one of its letter and says what was frozen before. Whatever else happened to it, by a
person, an editor or a sync client, is put back and said; no text of a person's is thrown away.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from postroom.core import life
from postroom.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    Invalid,
    NotFound,
    PostroomError,
)
from postroom.core.policy import Rules
from postroom.core.records import Entry, LetterState, NoteLocation
from postroom.core.stamp import Stamp
from postroom.core.text import one_line
from postroom.desk.compose import settled
from postroom.desk.note_writer import found_at
from postroom.desk.notes import Notes, folder, text_of
from postroom.desk.outbox import PERSON, Outbox
from postroom.desk.unowned_notes import Found, UnownedNotes, with_note
from postroom.store.ledger import Ledger
from postroom.vault import folders
from postroom.vault.note import Note
from postroom.vault.vault import Vault

RACY: Final = 2_000_000_000  # nanoseconds within which two changes may share one time stamp
HOMES: Final = (folders.PENDING, folders.DRAFTS)
ANEW: Final = (
    "You changed the text. It was frozen anew; look at the difference and the risk assessment, and"
    " move the note to Approved/ again to approve it."
)
BELIED: Final = (
    "Its {wrong} is not the letter's, and was put back: the frontmatter only shows. Move the note"
    " again to approve the letter as it is; recipients are changed with `postroom edit {id}`."
)
_LETTER_LIKE: Final = re.compile(rb"pending_approval|letter")


class Looked(NamedTuple):
    """What a look at the folders found."""

    letters: dict[str, list[Found]]
    strays: list[Found]


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Looks at the folders; the desk's lock is held meanwhile."""

    vault: Vault
    ledger: Ledger
    outbox: Outbox
    notes: Notes
    unowned: UnownedNotes
    rules: Rules
    clock: Callable[[], Stamp]
    desk: str
    said: list[str]
    missed: bool = False  # somebody was at a note meanwhile

    def reconcile(self, *, adopt: bool = False) -> list[str]:
        """Take in what was done to the notes and bring them up to date; return what a person should know.

        `adopt` also takes requests from `Plans/`, and lets slips approve what waits.
        """
        self.said.clear()
        self.missed = False
        self.unowned.full.clear()
        if adopt:
            for request in self.unowned.requests():
                self._guarded(self.unowned.adopt, request)
        for id in self.ledger.old_html():
            self._guarded(self._refreeze, id)
        standings = self.ledger.standings()  # what changes meanwhile is read again by itself
        for entry in self.outbox.expire(standings):
            standings.pop(entry.id)
            self.notes.sync_note(entry)
        looked = self._look()
        fresh = {self._guarded(self.unowned.classify, stray) for stray in looked.strays}
        places = self.ledger.places()
        stale = self.ledger.meta("noted") != self.rules.trust  # what the notes say to do
        for id in dict.fromkeys((*standings, *places, *looked.letters)):
            found = looked.letters.get(id, [])
            place = places.get(id)
            if id not in fresh and (stale or not _unmoved(standings.get(id), place, found)):
                self._guarded(self._letter, id, place, found)
        if stale and not self.missed:
            with self.ledger.write(synced=False) as book:
                book.set("noted", self.rules.trust)
        if adopt:
            for id, hash in self.unowned.fitting():
                self._guarded(self._by_slip, id, hash)
        return list(self.said)

    def _guarded(self, act: Callable[..., str | None], *what: object) -> str | None:
        """Do it, unless somebody decides, moves or edits in this moment: the next look sees that."""
        try:
            return act(*what)
        except (Conflict, NotFound):
            self.missed = True
        except (Corrupt, Denied, Invalid) as why:  # one note must not keep all others waiting
            named = what[0].path if isinstance(what[0], Found) else f"The letter {what[0]}"
            self._say(f"{named}: {why.message}. {why.remedy}")
        return None

    def _say(self, sentence: str) -> None:
        self.said.append(sentence)

    def _refreeze(self, id: str) -> None:
        if entry := self.outbox.refreeze(id):
            notice = next(line.text for line in entry.card.lines if line.kind == "refrozen")
            self._say(f"The letter {id}: {notice}")
            self.notes.sync_note(entry, notice)

    def _by_slip(self, id: str, hash: str) -> None:
        self.notes.sync_note(self.outbox.approve_by_slip(id, hash))

    # Looking

    def _look(self) -> Looked:
        """Look at the folders; again where something is missing, for it may be on its way meanwhile."""
        said = len(self.said)
        for last in (False, False, True):
            del self.said[said:]
            looked = Looked({}, [])
            racy = int(self.clock().wall * 1e9) - RACY
            for where in (*HOMES, folders.APPROVED):
                self._look_into(where, racy, looked)
            # Into Rejected/ notes only come: while it is as it was, and nothing is missing, so is
            # all in it.
            changed = self.vault.changed(folders.REJECTED)
            seen = self.ledger.meta("rejected") == str(changed) and changed < racy
            missing = self._missing(looked)
            if not seen or missing:
                self._look_into(folders.REJECTED, racy, looked)
                with self.ledger.write(synced=False) as book:
                    book.set("rejected", str(changed))
            if last or not missing or all(looked.letters.get(id) for id in missing):
                break
        return looked

    def _missing(self, looked: Looked) -> list[str]:
        return [
            id
            for id, place in self.ledger.places().items()
            if place.path and all(one.path != place.path for one in looked.letters.get(id, ()))
        ]

    def _look_into(self, where: str, racy: int, looked: Looked) -> None:
        known = self.ledger.standing(where)
        for file in self.vault.list(where):
            path = f"{where}/{file.name}"
            id, place = known.get(path, ("", None))
            same = place and (file.size, file.mtime_ns, file.inode) == place[-3:]
            if same and file.mtime_ns < racy:
                looked.letters.setdefault(id, []).append(Found(path, file))
            else:
                self._open(path, id, place, looked)

    def _open(self, path: str, id: str, place: NoteLocation | None, looked: Looked) -> None:
        """Read a note that is new or may have changed, and sort it."""
        try:
            raw, file = self.vault.read(path)
        except PostroomError:
            return  # gone again, or no file of ours to read
        if place and hashlib.sha256(raw).hexdigest() == place.hash:
            looked.letters.setdefault(id, []).append(Found(path, file))
            self._remember(id, found_at(place, path, raw, file))
            return
        if not place and path.startswith(f"{folders.DRAFTS}/") and not _LETTER_LIKE.search(raw):
            return  # a plain draft: there may be thousands, and reading YAML takes its time
        try:
            note = Note.parse(raw)
        except Corrupt as why:
            self._say(f"{path} cannot be read. {why.message}. It counts for nothing.")
            if id:
                looked.letters.setdefault(id, []).append(Found(path, file, broken=True))
            return
        named = note.text("letter")
        if not named:
            looked.strays.append(Found(path, file, note))
        elif note.text("desk") not in ("", self.desk):
            self._say(f"{path} belongs to another desk and counts for nothing here.")
        else:
            looked.letters.setdefault(named, []).append(Found(path, file, note))

    def _remember(self, id: str, place: NoteLocation) -> None:
        with self.ledger.write(synced=False) as book:
            book.set_place(id, place)

    # One letter

    def _letter(self, id: str, place: NoteLocation | None, found: list[Found]) -> None:
        try:
            entry = self.ledger.entry(id)
        except NotFound:
            self._say(
                f"{found[0].path} names the letter {one_line(id)[:20]}, which this desk does not know."
            )
            return
        place = place or self.ledger.place(id)
        found = [one for one in found if _counts(entry, place, one)]
        ours = {place.path, self.ledger.intended(id)[0]}
        if all(one.path in ours for one in found) and self.notes.finish(entry):
            self.notes.sync_note(entry, place.notice)
            return
        match entry.state:
            case life.Pending():
                self._pending(entry, place, found)
            case life.Approved():
                self._approved(entry, place, found)
            case life.Sending():
                pass  # whatever was done to its note waits for the outcome
            case life.Unknown():
                if place.path and not found:
                    self._say(f"The note of the letter {id} was gone: it is back in Approved/.")
                self._settled(entry, place, found, "Its fate is unknown")
            case _:
                self._closed(entry, place, found)

    def _pending(self, entry: Entry, place: NoteLocation, found: list[Found]) -> None:
        home = [one for one in found if one.folder in HOMES]
        rejected = [one for one in found if one.folder == folders.REJECTED]
        if home:
            for one in found:
                if one.folder not in HOMES:
                    self._say(
                        f"{one.path} is a copy: the letter {entry.id} still waits in"
                        f" {home[0].folder}/, so nothing was decided. Move the note itself."
                    )
            self._stand(entry, next((o for o in home if o.path == place.path), home[0]), place)
        elif any(one.path == place.path for one in found):
            # It stands where we put it, or found it, before it waited again: no verdict, but a
            # move of ours that was interrupted.
            self.notes.sync_note(entry, place.notice)
        elif rejected:
            self._reject(entry, rejected[0])
        elif found:
            moved = [with_note(self.vault, one) for one in found]
            texts = {text_of(entry, one.note) if one.note else None for one in moved}
            if len(texts) > 1:
                self._back(
                    entry, moved[0], "Several notes of it are in Approved/, and they differ."
                )
            else:
                self._verdict(entry, moved[0], place)
        else:
            if place.path:
                self._say(
                    f"The note of the letter {entry.id} was gone: it is back in {entry.home}/."
                )
            self.notes.sync_note(entry, place.notice, restore=True)

    def _stand(self, entry: Entry, one: Found, place: NoteLocation) -> None:
        """A note stands where it may: remember it there, and put changed display fields back."""
        one = with_note(self.vault, one) if one.path != place.path else one
        if one.note is not None:
            wanted = self.notes.fields(entry, one.note)
            wrong = [
                key
                for key, value in wanted.items()
                if one.note.text(key) != (value or "") and key not in {"trust", "mode"}
            ]
            if wrong and place.path:
                self._say(
                    f"{one.path}: {', '.join(wrong)} only show what the letter is, and"
                    f" {'was' if len(wrong) == 1 else 'were'} put back. Recipients are changed with"
                    f" `postroom edit {entry.id}`."
                )
            self._remember(entry.id, found_at(place, one.path, one.note.raw, one.file))
        self.notes.sync_note(entry, place.notice)

    def _verdict(self, entry: Entry, one: Found, place: NoteLocation) -> None:
        """A note was moved to Approved/: that is a yes to what was frozen, and to nothing else."""
        text = text_of(entry, one.note) if one.note else None
        if text is None or one.note is None:
            self._back(entry, one, "It was moved to Approved/, but its text cannot be told apart.")
        elif wrong := self._belied(entry, one.note):
            self._back(entry, one, BELIED.format(wrong=wrong, id=entry.id))
        elif text != settled(entry.letter.text) and self.rules.trust == "folder":
            # Remembered first: were we stopped before it is home again, the same move would approve it.
            self._take(entry.id, one, place)
            try:
                entry = self.outbox.edit(entry.id, replace(entry.letter, text=text))
                told = ANEW
            except PostroomError as why:
                told = f"Its new text was not taken: {why.message}."
            self._back(entry, one, told)
        else:
            try:
                approved = self.outbox.approve(entry.id, by=PERSON, via="folder")
            except (Denied, Conflict) as why:
                self._back(self.ledger.entry(entry.id), one, f"{why.message}. {why.remedy}")
                return
            self._say(f"The letter {entry.id} was approved: its note was moved to Approved/.")
            self._take(entry.id, one, place)
            self.notes.sync_note(approved)

    def _belied(self, entry: Entry, note: Note) -> str:
        """Return what a note shows that its letter is not: it was changed, or is an old version."""
        wanted = self.notes.fields(entry, note)
        shown = ("letter_version", "digest", "to", "cc", "bcc", "subject")
        wrong = [key for key in shown if key in wanted and note.text(key) != (wanted[key] or "")]
        return wrong[0] if wrong else ""

    def _back(self, entry: Entry, one: Found, notice: str) -> None:
        self._say(f"The letter {entry.id} was not approved. {notice}")
        self._take(entry.id, one, self.ledger.place(entry.id))
        self.notes.sync_note(entry, notice)

    def _reject(self, entry: Entry, one: Found) -> None:
        one = with_note(self.vault, one)
        reason = one.note.text("reason") if one.note else ""
        rejected = self.outbox.reject(entry.id, by=PERSON, reason=reason)
        self._take(entry.id, one, self.ledger.place(entry.id))
        self.notes.sync_note(rejected)

    def _approved(self, entry: Entry, place: NoteLocation, found: list[Found]) -> None:
        standing = [one for one in found if one.folder == folders.APPROVED]
        rejected = [one for one in found if one.folder == folders.REJECTED]
        assert isinstance(entry.state, life.Approved)
        slip = entry.state.verdict.slip
        if slip and all(written.hash != slip for written in self.unowned.slips(spent=True)):
            one = next(iter(standing or found), None)
            self._recall(entry, one, place, "its slip was taken away")
        elif any(one.path == place.path and one not in standing for one in found):
            self.notes.sync_note(entry, place.notice)  # we were stopped before we could move it
        elif standing:
            one = next((one for one in standing if one.path == place.path), standing[0])
            if one.broken or (one.note and text_of(entry, one.note) != settled(entry.letter.text)):
                self._recall(entry, one, place, "its note was edited after the approval")
            else:
                self._stand(entry, one, place)
        elif not (found or place.path):
            self.notes.sync_note(entry, place.notice)  # or before we could write it
        elif rejected:
            self._reject(entry, rejected[0])
        else:
            self._recall(entry, found[0] if found else None, place, "its note left Approved/")

    def _recall(self, entry: Entry, one: Found | None, place: NoteLocation, why: str) -> None:
        entry = self.outbox.recall(entry.id)
        told = f"The letter {entry.id} was recalled: {why}."
        self._say(told)
        if one is not None:
            self._take(entry.id, with_note(self.vault, one), place)
        self.notes.sync_note(entry, told, restore=one is None)

    def _settled(self, entry: Entry, place: NoteLocation, found: list[Found], why: str) -> None:
        """Bring the note of a letter to its one place, whoever moved it."""
        right = folder(entry)
        standing = [one for one in found if one.folder == right]
        in_place = place.path.startswith(f"{right}/") and self.vault.stat(place.path) is not None
        for one in found:
            if one.folder == right:
                continue
            if one.path == place.path:
                self.notes.sync_note(entry, place.notice)
            elif (in_place or standing) and right == folders.APPROVED:
                self._say(f"{one.path} is a copy of the letter {entry.id}, and counts for nothing.")
            elif in_place or standing:
                self._say(f"{one.path} is a copy of the letter {entry.id}, and went to {right}/.")
                self.notes.writer.put_back(one.path, one.file, right)
            else:
                self._say(f"{why}: the note of the letter {entry.id} is back in {right}/.")
                self._take(entry.id, with_note(self.vault, one), place)
                self.notes.sync_note(entry, place.notice)
            in_place = True
        if not found:
            self.notes.sync_note(entry, place.notice, restore=True)
        elif standing and all(one.path != place.path or one in standing for one in found):
            mine = next((one for one in standing if one.path == place.path), standing[0])
            self._stand(entry, mine, place)

    def _closed(self, entry: Entry, place: NoteLocation, found: list[Found]) -> None:
        moved = [one for one in found if one.folder == folders.APPROVED and one.path != place.path]
        opens = moved and not isinstance(entry.state, life.Sent)
        if opens and (not place.path or self.vault.stat(place.path) is None):
            # Remembered first, as above: this move opens it, and only another one approves it.
            self._take(entry.id, with_note(self.vault, moved[0]), place)
            entry = self.outbox.reopen(entry.id)
            told = f"The letter {entry.id} waits again: its note was moved to Approved/."
            self._say(told)
            self.notes.sync_note(entry, f"{told} Move it there once more to approve it.")
        elif found or not place.path:
            closed = "It was sent already" if isinstance(entry.state, life.Sent) else "It is closed"
            self._settled(entry, place, found, closed)

    def _take(self, id: str, one: Found, place: NoteLocation) -> None:
        """Remember that a letter's note stands here now."""
        if one.note is not None:
            self._remember(id, found_at(place, one.path, one.note.raw, one.file))


def _unmoved(standing: LetterState | None, place: NoteLocation | None, found: list[Found]) -> bool:
    """Whether an open letter's one note stands untouched where it belongs, the usual case."""
    if standing is None or place is None or len(found) != 1 or place.version != standing.version:
        return False
    state = standing.state
    if isinstance(state, life.Approved) and state.verdict.slip:
        return False  # its slip may have been taken away
    (one,) = found
    right = HOMES if isinstance(state, life.Pending) else (folders.APPROVED,)
    return not (one.note or one.broken) and one.path == place.path and one.folder in right


def _counts(entry: Entry, place: NoteLocation, one: Found) -> bool:
    """Whether this can be the letter's note: tools may write to Drafts/, and name any letter there."""
    at_home = entry.form == "draft" or entry.home == folders.DRAFTS
    return one.folder != folders.DRAFTS or one.path == place.path or at_home
