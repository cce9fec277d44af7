"""Notes without a letter: the drafts, slips and requests that people, or agents in their folders, wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Conflict, Corrupt, Limited, NotFound, PostroomError
from postroom.core.policy import SLIP_SECONDS, Full, Rules
from postroom.core.stamp import Stamp, elapsed
from postroom.desk.compose import Composer, Written
from postroom.desk.notes import MARKS, Notes
from postroom.desk.outbox import ORCHESTRATOR, OURS, PERSON, Call, Outbox, Proposal
from postroom.desk.reading import Reading
from postroom.desk.slips import Slip, slip
from postroom.store.entries import NOWHERE
from postroom.store.ledger import Ledger
from postroom.vault import folders
from postroom.vault.markdown import fence, quote
from postroom.vault.note import Note
from postroom.vault.vault import File, Vault

PROPOSED: Final = "pending_approval"
MAIL: Final = "email"  # the type of a note that holds a mail that came in
VAULT_AGENT: Final = "vault"  # whose the drafts are that somebody wrote into Drafts/


class Found(NamedTuple):
    """A note where it stands now; without `note` it was not touched, or is broken."""

    path: str
    file: File
    note: Note | None = None
    broken: bool = False

    @property
    def folder(self) -> str:
        """The folder that it stands in."""
        return self.path.rpartition("/")[0]


def with_note(vault: Vault, one: Found) -> Found:
    """Return what was found with its text, if it can be read."""
    if one.note is not None:
        return one
    try:
        raw, file = vault.read(one.path)
        return Found(one.path, file, Note.parse(raw))
    except (Corrupt, NotFound):
        return one


@dataclass(slots=True, kw_only=True)
class Strays:
    """Takes such notes for what they are; the desk's lock is held meanwhile."""

    vault: Vault
    ledger: Ledger
    outbox: Outbox
    notes: Notes
    composer: Composer
    reading: Reading
    rules: Rules
    clock: Callable[[], Stamp]
    say: Callable[[str], None]
    full: set[str] = field(default_factory=set)  # of whom no more drafts are taken in this look

    def take(self, one: Found) -> str | None:
        """Take a note without a letter for what it is; return the letter that it became."""
        note = one.note
        assert note is not None
        if note.text("type") == MAIL:
            self.say(f"{one.path} is a mail, and no letter: nothing of it is sent.")
            return None
        if one.folder == folders.APPROVED:
            return self._approved_stray(one, note)
        if one.folder == folders.DRAFTS and note.text("status") == PROPOSED:
            if not note.text("to"):
                self.say(f"{one.path} is no letter: it has no `to`.")
                return None
            wish = Proposal(home=folders.DRAFTS, form="draft")
            # A draft that an agent wrote through a tool is that agent's letter.
            tag, _, agent = self.ledger.meta(f"made {one.path}").partition(" ")
            ours = tag and hashlib.sha256(note.raw).hexdigest().startswith(tag)
            whose = agent if ours and agent and agent.casefold() not in OURS else VAULT_AGENT
            if whose not in self.full:
                return self._freeze(one, note, Call("draft_note", whose, "vault"), wish)
        return None

    def _approved_stray(self, one: Found, note: Note) -> str | None:
        written = slip(one.path, one.file, note)
        draft = note.text("to") and note.body.strip() and "subject" in note.fields
        if not written and not draft:
            self.say(
                f"{one.path} counts for nothing: it is no letter ({_lacks(note)}) and no slip."
            )
        elif self.rules.trust != "folder":
            where = folders.PENDING if written else folders.DRAFTS
            self.notes.put_back(one.path, one.file, where)
            self.say(
                f"{one.path} went back to {where}/: at trust level desk, only the terminal approves."
            )
        elif written:
            self._see(written, one, note)
        elif not self.rules.live:
            self.say(f"{one.path} is not sent: Postroom rehearses ({self.rules.source}).")
        else:
            wish = Proposal(home=folders.DRAFTS, form="draft", verdict=PERSON)
            return self._freeze(one, note, Call("approve_draft", PERSON, PERSON), wish)
        return None

    def _freeze(self, one: Found, note: Note, call: Call, wish: Proposal) -> str | None:
        """Make a letter of a note whose whole body is its text, and return its id."""
        if not self.rules.live:
            return None
        try:
            note.set(MARKS)  # what cannot be marked cannot be watched
            to, cc, bcc = (Address.parse_list(note.text(key)) for key in ("to", "cc", "bcc"))
            answers, account = note.text("reply_to_message_id"), note.text("account")
            written = Written(to, note.text("subject"), note.body, cc, bcc, "", answers, account)
            letter = self.composer.letter(written)
            entry = self.outbox.propose(call, letter, wish)
        except PostroomError as why:
            self.say(f"{one.path} was not taken as a letter: {why.message}. {why.remedy}")
            self.full |= {call.agent} if isinstance(why, Limited | Full) else set()
            return None
        if entry.id != letter.id and self.ledger.place(entry.id).path not in ("", one.path):
            # A copy, or what a sync client brought back.
            self.say(f"{one.path} counts for nothing again. {life.told(entry.id, entry.state)}")
            return None
        # Remembered first: gone before it is marked, it is a note that left Approved/.
        with self.ledger.write(synced=False) as book:
            book.set_place(entry.id, NOWHERE._replace(path=one.path))
        try:
            self.notes.adopt(entry, one.path, one.file, note)
        except (Conflict, NotFound):
            return entry.id
        self.say(f"{one.path} is the letter {entry.id} now.")
        return entry.id

    # Slips

    def _see(self, written: Slip, one: Found, note: Note) -> None:
        spent = self.ledger.slips().get(written.hash)
        if spent and spent[1]:
            entry = self.ledger.entry(spent[1])
            if isinstance(entry.state, life.Sent):
                self._file(written, one, entry.id)
            return
        if written.status != "approved" and self.ledger.adopted(written.hash):
            now = self.clock().iso
            try:
                data = note.set({"status": "approved", "approved_at": now}).raw
            except Corrupt as why:
                self.say(f"{one.path} approves nothing: {why.message}.")
                return
            self.vault.replace(one.path, data, one.file)
        elif written.status != "approved":
            self.say(f"{one.path} approves nothing: a slip needs `status: approved`.")
        if spent is None:
            with self.ledger.write() as book:
                book.see_slip(written.hash)
        elif elapsed(spent[0], self.clock()) >= SLIP_SECONDS:
            self.say(f"{one.path} has lapsed: it was first seen more than 72 hours ago.")

    def _file(self, written: Slip, one: Found, letter: str) -> None:
        """Put a slip away that let a letter out; a copy of one counts for nothing, and says so."""
        filed = f"filed {written.hash}"
        if self.ledger.meta(filed):
            why = f"a copy of the slip that let the letter {letter} out"
            why += "; a new one needs a `created` of its own"
            where, mark = folders.REJECTED, {"status": "void", "reason": why}
            self.say(f"{one.path} counts for nothing, and went to Rejected/: {why}.")
        else:
            where, mark = folders.DONE, {"status": "done"}
            self.say(f"{one.path} was spent on the letter {letter} and went to Done/.")
        target = self.notes.put_back(one.path, one.file, where)
        with self.ledger.write(synced=False) as book:
            book.set(filed, target)
        raw, file = self.vault.read(target)
        try:
            self.vault.replace(target, Note.parse(raw).set(mark).raw, file)
        except (Corrupt, Conflict):
            return

    def slips(self, *, spent: bool = False) -> list[Slip]:
        """Return the slips that may still be spent, the newest first; or those that were, too."""
        known, now = self.ledger.slips(), self.clock()
        found = []
        for one in self._notes_in(folders.APPROVED):
            written = slip(one.path, one.file, one.note) if one.note else None
            seen, letter = known.get(written.hash, (None, "")) if written else (None, "")
            if written and seen and (spent or not letter) and elapsed(seen, now) < SLIP_SECONDS:
                found.append(written)
        return sorted(found, key=lambda each: each.file.mtime_ns, reverse=True)

    def _notes_in(self, where: str) -> Iterator[Found]:
        for file in self.vault.list(where):
            one = with_note(self.vault, Found(f"{where}/{file.name}", file))
            if one.note is not None:
                yield one

    def fitting(self) -> Iterator[tuple[str, str]]:
        """Yield the letter that waits, and the slip, for each slip that fits one letter and no other."""
        if not self.rules.live or self.rules.trust != "folder":
            return
        for written in self.slips():
            # A slip is about what an agent asks for; what was drafted by itself is to be seen first.
            lines = [each for each in self.ledger.lines("pending") if each.agent != ORCHESTRATOR]
            waiting = [self.ledger.entry(each.id) for each in lines]
            whom = self.reading.answered
            fitting = [e for e in waiting if written.fits(e.letter, whom(e.letter))]
            if len(fitting) == 1:
                yield fitting[0].id, written.hash
            elif fitting:
                self.say(f"{written.path} fits {len(fitting)} letters, and so approves none.")

    # Requests

    def requests(self) -> list[Found]:
        """Return the requests in Plans/ that there is room for among those that wait."""
        waiting = sum(1 for one in self._notes_in(folders.PENDING) if _request(one))
        found = [one for one in self._notes_in(folders.PLANS) if _request(one)]
        room = max(0, self.rules.open_letters - waiting)
        if len(found) > room:
            waiting = max(waiting, self.rules.open_letters)
            self.say(f"{waiting} requests wait already; the others stay in {folders.PLANS}/.")
        return found[:room]

    def adopt(self, one: Found) -> None:
        """Put a request from Plans/ before the person, as what it is."""
        assert one.note is not None
        whom = one.note.text("to") or f"thread {one.note.text('thread_id')}"
        told = (
            f"Moved to `{folders.APPROVED}/`, this lets out the next letter to {quote(whom)} that"
        )
        told += " fits it, **whatever that letter says**. What the agent wrote about it:"
        try:
            body = f"\n## A request\n{told}\n\n{fence(one.note.body.strip())}\n"
            note = one.note.set({"status": "pending"}, body)
        except Corrupt as why:
            self.say(f"{one.path} was not taken as a request: {why.message}.")
            return
        target = self.notes.free(folders.PENDING, one.path.rpartition("/")[2])
        file = self.vault.move(one.path, target, one.file, note.raw)
        written = slip(target, file, note)
        assert written is not None
        with self.ledger.write() as book:
            book.adopt(written.hash)
        self.outbox.record(Call("adopt_request", VAULT_AGENT, "vault"))
        self.say(f"{one.path} asks for approval and went to {folders.PENDING}/.")


def _lacks(note: Note) -> str:
    missing = [key for key in ("to", "subject") if key not in note.fields]
    return f"it has no {' and no '.join(f'`{key}`' for key in missing or ['text'])}"


def _request(one: Found) -> bool:
    return one.note is not None and slip(one.path, one.file, one.note) is not None
