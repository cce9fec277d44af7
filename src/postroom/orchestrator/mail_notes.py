"""The notes of mail in the vault: written, brought up to the ledger, and what people did to them.

The ledger decides and the note follows, as with letters; what a person added stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from postroom.core.errors import Conflict, Corrupt, NotFound, PostroomError
from postroom.core.records import NOWHERE, InboxItem, NoteLocation
from postroom.core.triage import MailFacts
from postroom.desk.note_writer import NoteWriter, found_at
from postroom.desk.unowned_notes import MAIL
from postroom.orchestrator.incoming import (
    STATUS,
    IncomingMail,
    facts_json,
    folder,
    name_of,
    shown,
    status_of,
    written,
)
from postroom.store.ledger import Ledger
from postroom.vault.folders import (
    APPROVED,
    DONE,
    DRAFTS,
    FAILED,
    NEEDS_ACTION,
    PENDING,
    PLANS,
    REJECTED,
)
from postroom.vault.markdown import inert, link, quote
from postroom.vault.note import Note, render
from postroom.vault.vault import File, Vault

BY_HAND: Final = "a person"
ELSEWHERE: Final = (APPROVED, REJECTED, PENDING, DRAFTS, PLANS)


@dataclass(slots=True)
class MailNotes:
    """Writes the notes of mail, and takes in what was done to them."""

    vault: Vault
    ledger: Ledger
    say: Callable[[str], None]
    broken: dict[str, str] = field(default_factory=dict)  # notes of a person's that do not parse
    amiss: dict[str, str] = field(default_factory=dict)  # what stood in the way in this round
    _seen: dict[str, File] = field(default_factory=dict)  # strangers that were looked at

    @property
    def _writer(self) -> NoteWriter:
        return NoteWriter(self.vault, self.ledger)

    # Writing

    def create(self, items: Sequence[tuple[InboxItem, IncomingMail, MailFacts]]) -> None:
        """Write the notes of mails that have come in; each is in the ledger before it is in the vault."""
        begun: list[tuple[InboxItem, str, bytes]] = []
        with self.ledger.write() as book:
            for item, mail, known in items:
                name, data = name_of(item.account, mail), written(item.account, mail)
                path = self._writer.free(NEEDS_ACTION, name)
                book.intend(item.key, path, hashlib.sha256(data).hexdigest())
                noted = book.change(item, thread=mail.thread, facts=facts_json(known))
                begun.append((noted, path, data))
        made = []
        for item, path, data in begun:
            try:
                made.append((item, path, data, self.vault.create(path, data)))
            except Conflict:  # the name was taken in this moment: the next round finds another
                continue
        with self.ledger.write(synced=False) as book:
            for item, path, data, file in made:
                book.written(item.key, found_at(NOWHERE, path, data, file))
                book.shown(book.change(item, state="pending", changed=item.changed))

    def finish_write(self, item: InboxItem) -> bool:
        """Bring the writing of a new note to its end that was interrupted; return whether it had begun."""
        found = self._writer.finish(item.key)
        begun = self.ledger.intended(item.key)[0]
        if not found and begun and item.state == "found":
            # A person may have edited it before we could write down that it is there.
            edited = self._named(item, begun)
            found = (begun, *edited) if edited else None
        if found:
            with self.ledger.write(synced=False) as book:
                book.written(item.key, found_at(NOWHERE, *found))
                if item.state == "found":
                    book.shown(book.change(item, state="pending", changed=item.changed))
        return found is not None

    def is_unchanged(self, item: InboxItem) -> bool:
        """Whether the note of a mail still has the text that it last had."""
        place = self.ledger.place(item.key)
        try:
            return hashlib.sha256(self.vault.read(place.path)[0]).hexdigest() == place.hash
        except PostroomError:
            return False

    def is_filed(self, item: InboxItem, mail: IncomingMail) -> bool:
        """Whether a note of this mail stands in Done/: tools cannot have put it there."""
        return self.vault.stat(f"{DONE}/{name_of(item.account, mail)}") is not None

    def adopt_existing(self, item: InboxItem, mail: IncomingMail, known: MailFacts) -> bool:
        """Go on with a note of this mail that is there already: the ledger came from a backup."""
        path = f"{NEEDS_ACTION}/{name_of(item.account, mail)}"
        found = self._named(item, path)
        if not found or path in self.ledger.standing(NEEDS_ACTION):
            return False
        with self.ledger.write() as book:
            book.written(item.key, found_at(NOWHERE, path, *found))
            book.change(item, state="pending", thread=mail.thread, facts=facts_json(known))
        return True

    def sync_note(self, item: InboxItem) -> None:
        """Bring the note to what the ledger has; somebody who is at it meanwhile is not disturbed."""
        self.finish_write(item)
        place = self.ledger.place(item.key)
        if not place.path:
            return
        try:
            raw, file = self.vault.read(place.path)
            note = Note.parse(raw)
            edited = hashlib.sha256(raw).hexdigest() != place.hash
            if edited and status_of(note) == "done" and item.state != "done":
                with self.ledger.write() as book:  # a person was quicker
                    item = book.change(item, state="done", by=BY_HAND, held="")
            letter = item.letter
            answer = link(self.ledger.place(letter).path, letter) if letter else ""
            new = shown(item, note, answer).raw
            path, file = self._writer.bring(item.key, place, folder(item), raw, file, new)
        except Corrupt as why:
            self._quarantine(item, place, why)
            return
        except (Conflict, NotFound):
            return
        with self.ledger.write(synced=False) as book:
            book.written(item.key, found_at(NOWHERE, path, new, file))
            book.shown(item)

    def guarded(
        self, act: Callable[..., None], item: InboxItem, *more: object, **how: object
    ) -> None:
        """Do it; what stands in its way there must not keep all other mail waiting."""
        try:
            act(item, *more, **how)
        except PostroomError as why:
            path = self.ledger.place(item.key).path or item.message
            self.amiss[path] = why.message_with_remedy
            self.say(f"{path}: {self.amiss[path]}")

    def _quarantine(self, item: InboxItem, place: NoteLocation, why: Corrupt) -> None:
        """Put a note of ours that does not parse any more aside, as it is, with the reason beside it."""
        name, path, raw = place.path.rpartition("/")[2], place.path, b""
        file = self.vault.stat(path)
        with suppress(Corrupt):  # one that is too large to be read is moved all the same
            raw, file = self.vault.read(path)
        if file is None:
            return
        if item.state != "failed":
            with self.ledger.write() as book:
                item = book.change(item, state="failed", held=why.message)
        if not path.startswith(f"{FAILED}/"):
            path = self._writer.reserve_path(item.key, FAILED, name, raw)
            file = self.vault.move(place.path, path, file)
        beside = f"{path.removesuffix('.md')} (why).md"
        if self.vault.stat(beside) is None:
            said = f"{why.message}. Mend the note, and move it back to {NEEDS_ACTION}/."
            fields = {
                "status": "failed",
                "reason": inert(why.message),
                "note": path.rpartition("/")[2],
            }
            self.vault.create(beside, render(fields, f"\n{quote(said)}\n"))
        with self.ledger.write(synced=False) as book:
            book.written(item.key, found_at(NOWHERE, path, raw, file))
            book.shown(item)
        self.say(f"{place.path} does not parse any more and went to {FAILED}/: {why.message}.")

    # What people did

    def reconcile(self) -> None:
        """Take in what was done to the notes of mail that is still to be dealt with."""
        self.amiss.clear()
        if not self.vault.is_folder(NEEDS_ACTION):
            return  # a sync client may be about to bring it: nothing in it was deleted
        open_states = ("pending", "decided", "drafted", "needs_info", "delegated")
        with self.ledger.read() as book:
            items = {item.key: item for item in book.items(*open_states)}
            # A note that has not followed yet is not where it belongs, and its status nobody's word.
            behind = {item.key: item for item in book.unfollowed()}
        standing = dict(self.ledger.standing(NEEDS_ACTION).values())
        places = {key: standing.get(key) or self.ledger.place(key) for key in items}
        paths = [place.path for place in places.values()]
        for (key, place), file in zip(places.items(), self.vault.stats(paths), strict=True):
            if file is None:
                self.guarded(self._missing, items[key], place)
            elif file[1:] != place[-3:]:
                self.guarded(self._touched, items[key], place, shown=key not in behind)
        self._strangers(items | behind)

    def _touched(self, item: InboxItem, place: NoteLocation, *, shown: bool) -> None:
        try:
            raw, file = self.vault.read(place.path)
            note = Note.parse(raw)
        except Corrupt as why:
            self._quarantine(item, place, why)
            return
        except PostroomError:
            return
        with self.ledger.write(synced=False) as book:
            book.set_place(item.key, found_at(NOWHERE, place.path, raw, file))
        self._worded(item, note, shown=shown)

    def _worded(self, item: InboxItem, note: Note, *, shown: bool) -> None:
        """Take a status that a person wrote for their word: `done`, or `pending` to be judged again."""
        status = status_of(note)
        if status == "done":
            self._change(item, state="done", by=BY_HAND, held="")
        elif status == "pending" and shown and item.state in ("needs_info", "delegated"):
            self._change(item, **_AGAIN)
        elif status != STATUS.get(item.state, item.state):
            if shown:
                said = (
                    "what you write there counts as `done`, or as `pending` where it waits for you"
                )
                self.say(f"The status of {self.ledger.place(item.key).path} was put back: {said}.")
            self.sync_note(item)

    def _change(self, item: InboxItem, **changes: str | int | float) -> None:
        try:
            with self.ledger.write() as book:
                item = book.change(item, **changes)
        except Conflict:
            return
        self.sync_note(item)

    def _missing(self, item: InboxItem, place: NoteLocation) -> None:
        name = place.path.rpartition("/")[2]
        if self.finish_write(item) or not place.path or self._renamed(item):
            return
        if self._is_of(item, f"{DONE}/{name}"):
            self._adopt(item, f"{DONE}/{name}", state="done", by=BY_HAND, held="")
            return
        for where in ELSEWHERE:
            path = f"{where}/{name}"
            if self._is_of(item, path) and (file := self.vault.stat(path)):
                self.say(f"{path} is a mail, and went back to {NEEDS_ACTION}/.")
                self._adopt(item, self._writer.put_back(path, file, NEEDS_ACTION))
                return
        if self.vault.stat(place.path) is None:  # an editor may have put it back meanwhile
            self.say(
                f"{place.path} was deleted or taken away: nothing more is done about that mail."
            )
            with self.ledger.write() as book:
                book.shown(book.change(item, state="gone", by=BY_HAND))

    def _renamed(self, item: InboxItem) -> bool:
        known = self.ledger.standing(NEEDS_ACTION)
        for file in self.vault.list(NEEDS_ACTION):
            path = f"{NEEDS_ACTION}/{file.name}"
            of = known.get(path, ("",))[0]
            if of in ("", item.key) and self._is_of(item, path):
                self._adopt(item, path)
                return True
        return False

    def _is_of(self, item: InboxItem, path: str) -> bool:
        """Whether a note is the one that we wrote of this mail: it names it, and is that very file or text.

        Else anybody could write one that names a mail.
        """
        if not (found := self._named(item, path)):
            return False
        raw, file = found
        place = self.ledger.place(item.key)
        if hashlib.sha256(raw).hexdigest() == place.hash or path.startswith(f"{DONE}/"):
            return True
        mended = item.state == "failed" and self.vault.stat(place.path) is None
        # Not in Plans/, where tools may write: a number that is free again is given to another file.
        same = file.inode == place.inode and not path.startswith(f"{PLANS}/")
        return same or mended

    def _named(self, item: InboxItem, path: str) -> tuple[bytes, File] | None:
        """Return a note that names this mail, and that no tool wrote."""
        if self.ledger.tool_wrote(path):
            return None
        try:
            raw, file = self.vault.read(path)
            note = Note.parse(raw)
        except PostroomError:
            return None
        names = (note.text("type"), note.text("account"), note.text("id"))
        return (raw, file) if names == (MAIL, item.account, item.message) else None

    def _adopt(self, item: InboxItem, path: str, **changes: str) -> None:
        """Go on with a note where a person put it."""
        try:
            raw, file = self.vault.read(path)
        except PostroomError:
            return
        with self.ledger.write(synced=False) as book:
            book.set_place(item.key, found_at(NOWHERE, path, raw, file))
        if changes:
            self._change(item, **changes)

    def _strangers(self, items: Mapping[str, InboxItem]) -> None:
        """Look at notes that are nobody's: one that a person brought back is its mail's again."""
        known = self.ledger.standing(NEEDS_ACTION)
        there: dict[str, File] = {}
        broken: dict[str, str] = {}
        for file in self.vault.list(NEEDS_ACTION):
            path = f"{NEEDS_ACTION}/{file.name}"
            if path in known and known[path][0] in items:
                continue
            there[path] = file
            if self._seen.get(path) == file:
                if path in self.broken:
                    broken[path] = self.broken[path]
                continue
            try:
                note = Note.parse(self.vault.read(path)[0])
            except Corrupt as why:
                broken[path] = why.message
                continue
            except PostroomError:
                continue
            if note.text("type") == MAIL:
                with suppress(PostroomError):  # the next round looks again
                    self._brought_back(path, note, items)
        self._seen, self.broken = there, broken

    def _brought_back(self, path: str, note: Note, items: Mapping[str, InboxItem]) -> None:
        with self.ledger.read() as book:
            item = book.item(note.text("account"), note.text("id"))
        if item is None or item.key in items or item.state in ("found", "before", "aside"):
            return
        if not self._is_of(item, path):
            return  # what it says of itself counts for nothing
        beside = f"{FAILED}/{path.rpartition('/')[2].removesuffix('.md')} (why).md"
        if item.state == "failed" and (file := self.vault.stat(beside)):
            with suppress(PostroomError):  # it told what is mended now
                self.vault.remove(beside, file)
        self.say(f"{path} was brought back, and is judged again.")
        self._adopt(item, path, **_AGAIN)


_AGAIN: Final = {
    "state": "pending",
    "judgement": "",
    "by": "",
    "held": "",
    "wish": "",
    "letter": "",
}
