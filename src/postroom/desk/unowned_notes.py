"""Notes without a letter: the drafts, slips and requests that people, or agents in their folders, wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from postroom.core import life
from postroom.core.address import Address
from postroom.core.agent_name import OURS
from postroom.core.card import Level
from postroom.core.errors import (
    Conflict,
    Corrupt,
    Denied,
    Limited,
    NotFound,
    PostroomError,
)
from postroom.core.lookalike import reads_as
from postroom.core.policy import SLIP_SECONDS, Full, Rules
from postroom.core.records import ApprovalRequest, Entry, ToolNote
from postroom.core.stamp import Stamp, elapsed
from postroom.desk.compose import Composer, Written
from postroom.desk.exposure import ExposureLog
from postroom.desk.notes import LEVELS, MARKS, Notes, begun, inert_fields
from postroom.desk.outbox import ORCHESTRATOR, PERSON, Outbox, Proposal
from postroom.desk.recorder import Call
from postroom.desk.slips import Slip, slip
from postroom.store.ledger import TOOL_NOTES_SINCE, Ledger
from postroom.vault import folders
from postroom.vault.markdown import fence, fenced, quote, sections
from postroom.vault.note import Note, etag
from postroom.vault.vault import File, Vault

PROPOSED: Final = "pending_approval"
MAIL: Final = "email"  # the type of a note that holds a mail that came in
VAULT_AGENT: Final = "vault"  # whose the drafts are that nobody knows the agent of
KEPT: Final = "kept slip "  # in the ledger, with the hash of its text: it counts though it is old
BY_TOOL: Final = (
    "A tool wrote this note, or may have, so moving it did not approve it. This is the letter as it"
    " will be sent; move the note to Approved/ again to approve it."
)
DOUBT: Final = "A tool may have written this note, so it has to be moved twice. "
WROTE: Final = "What the agent wrote"


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
class UnownedNotes:
    """Takes such notes for what they are; the desk's lock is held meanwhile."""

    vault: Vault
    ledger: Ledger
    outbox: Outbox
    notes: Notes
    composer: Composer
    reading: ExposureLog
    rules: Rules
    clock: Callable[[], Stamp]
    say: Callable[[str], None]
    full: set[str] = field(default_factory=set)  # of whom no more drafts are taken in this look

    def classify(self, one: Found) -> str | None:
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
            by = self._tool_note(one, note)
            wish = Proposal(home=folders.DRAFTS, form="note" if by else "draft")
            return self._freeze(one, note, Call("draft_note", _agent(by), "vault"), wish)
        return None

    def _tool_note(self, one: Found, note: Note) -> ToolNote | None:
        """Return which tool wrote a note, or may have; None where a person did."""
        tag = etag(note.raw)
        found = self.ledger.tool_note(one.path, one.file.inode, tag)
        older = one.file.mtime_ns < float(self.ledger.meta(TOOL_NOTES_SINCE) or 0) * 1e9
        older = older and not self.ledger.meta(f"{KEPT}{tag}")
        return ToolNote("") if older and (found is None or found.inode_only) else found

    def _approved_stray(self, one: Found, note: Note) -> str | None:
        written, by = slip(one.path, one.file, note), self._tool_note(one, note)
        draft = note.text("to") and note.body.strip() and "subject" in note.fields
        if not written and not draft:
            self.say(
                f"{one.path} counts for nothing: it is no letter ({_lacks(note)}) and no slip."
            )
        elif self.rules.trust != "folder":
            where = folders.PENDING if written else folders.DRAFTS
            self.notes.writer.put_back(one.path, one.file, where)
            self.say(
                f"{one.path} went back to {where}/: at trust level desk, only the terminal approves."
            )
        elif written and by and by.inode_only:
            # Perhaps another file that got the number of one that a tool wrote: the person's word
            # stays theirs, but has to be given again.
            self.notes.writer.put_back(one.path, one.file, folders.PENDING)
            with self.ledger.write(synced=False) as book:
                book.free_inode(one.file.inode)
            self.say(
                f"{one.path} went back to {folders.PENDING}/: a tool may have written it. Move it"
                f" to {folders.APPROVED}/ again to approve what it names."
            )
        elif written and by:
            return self._request(written, one, note, by)
        elif written:
            self._see(written, one, note)
        elif not self.rules.live:
            self.say(f"{one.path} is not sent: Postroom rehearses ({self.rules.source}).")
        elif by:
            call = Call("draft_note", _agent(by), "vault")
            return self._freeze(one, note, call, Proposal(home=folders.PENDING), BY_TOOL)
        else:
            wish = Proposal(home=folders.DRAFTS, form="draft", verdict=PERSON)
            return self._freeze(one, note, Call("approve_draft", PERSON, PERSON), wish)
        return None

    def _freeze(
        self, one: Found, note: Note, call: Call, wish: Proposal, notice: str = ""
    ) -> str | None:
        """Make a letter of a note whose whole body is its text, and return its id."""
        if not self.rules.live or call.agent in self.full:
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
            self.say(
                f"{one.path} counts for nothing again. {life.describe(entry.state, id=entry.id)}"
            )
            return None
        # Remembered first: gone before it is marked, it is a note that left Approved/.
        with self.ledger.write(synced=False) as book:
            book.set_place(entry.id, begun(entry, one.path, note.raw, one.file))
        self.notes.sync_note(entry, notice)
        self.say(f"{one.path} is the letter {entry.id} now.{f' {notice}' if notice else ''}")
        return entry.id

    # Slips

    def _see(self, written: Slip, one: Found, note: Note) -> None:
        spent = self.ledger.slips().get(written.hash)
        if spent and spent[1]:
            self._file(written, one, spent[1])
            return
        adopted = self.ledger.adopted(written.hash)
        if written.status != "approved" and adopted and adopted.agent is None:
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
        """Put a slip away once its letter is sent; a copy of one counts for nothing, and says so."""
        if not isinstance(self.ledger.entry(letter).state, life.Sent):
            return
        filed = f"filed {written.hash}"
        if self.ledger.meta(filed):
            why = f"a copy of the slip that let the letter {letter} out"
            why += "; a new one needs a `created` of its own"
            where, mark = folders.REJECTED, {"status": "void", "reason": why}
            self.say(f"{one.path} counts for nothing, and went to Rejected/: {why}.")
        else:
            where, mark = folders.DONE, {"status": "done"}
            self.say(f"{one.path} was spent on the letter {letter} and went to Done/.")
        target = self.notes.writer.put_back(one.path, one.file, where)
        with self.ledger.write(synced=False) as book:
            book.set(filed, target)
        raw, file = self.vault.read(target)
        try:
            self.vault.replace(target, Note.parse(raw).set(mark).raw, file)
        except (Corrupt, Conflict):
            return

    def slips(self, *, spent: bool = False) -> list[Slip]:
        """Return the slips that may still be spent, the newest first.

        With `spent`, also those that were, and the requests that approved a letter.
        """
        known, now = self.ledger.slips(), self.clock()
        found = []
        for one in self._notes_in(folders.APPROVED):
            written = slip(one.path, one.file, one.note) if one.note else None
            seen, letter = known.get(written.hash, (None, "")) if written else (None, "")
            if not (written and seen and one.note) or elapsed(seen, now) >= SLIP_SECONDS:
                continue
            if spent or not (letter or self._tool_note(one, one.note)):
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
            fitting = self._waiting(written)
            if len(fitting) == 1:
                yield fitting[0].id, written.hash
            elif fitting:
                self.say(f"{written.path} fits {len(fitting)} letters, and so approves none.")

    def _waiting(self, written: Slip, agent: str = "") -> list[Entry]:
        """Return the letters that wait and fit, of this agent or of all."""
        # A slip is about what an agent asks for; what was drafted by itself is to be seen first.
        lines = [each for each in self.ledger.lines("pending") if each.agent != ORCHESTRATOR]
        waiting = [self.ledger.entry(each.id) for each in lines if agent in ("", each.agent)]
        return [e for e in waiting if written.fits(e.letter, self.reading.answered(e.letter))]

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
        by = self._tool_note(one, one.note)
        agent = by.agent if by and not by.inode_only else None
        if self._put_before(one, one.note, agent, doubtful=bool(by)):
            self.outbox.recorder.write(Call("adopt_request", agent or VAULT_AGENT, "vault"))
            self.say(f"{one.path} asks for approval and went to {folders.PENDING}/.")

    def _request(self, written: Slip, one: Found, note: Note, by: ToolNote) -> str | None:
        """Take an agent's request in Approved/ for a yes to the one letter that it lists; else put it back."""
        spent = self.ledger.slips().get(written.hash)
        if spent and spent[1]:
            self._file(written, one, spent[1])
            return None
        # Only a file that the desk wrote in Pending_Approval/, and that still says the same, has a list
        # that counts: an agent can copy the text of one.
        ours = by.path.startswith(f"{folders.PENDING}/")
        listed = self.ledger.adopted(written.hash) if ours else None
        why = "a tool wrote it, or may have, and it does not list exactly one letter"
        if listed and listed.agent is not None and len(listed.letters) == 1:
            id, digest = listed.letters[0]
            entry = self.ledger.entry(id)
            verdict = getattr(entry.state, "verdict", None)
            if verdict and verdict.slip == written.hash:
                return None  # it was taken for a yes, and waits for the outcome
            with self.ledger.write() as book:
                book.see_slip(written.hash)
                recalled = book.used(id, written.hash)
            try:
                if recalled:
                    why = f"the approval of the letter {id} was taken back"
                elif entry.card.level is Level.STOP:
                    why = f"the letter {id} is red, and needs a verdict of its own"
                else:
                    entry = self.outbox.approve(
                        id, by=PERSON, via="folder", digest=digest, slip=written.hash
                    )
                    self.notes.sync_note(entry)
                    self.say(f"The letter {id} was approved: {one.path} lists it.")
                    return id
            except (Conflict, Denied) as refused:
                why = refused.message
        if self._put_before(one, note, by.agent):
            self.say(f"{one.path} went back to {folders.PENDING}/ with a new list: {why}.")
        return None

    def _put_before(
        self, one: Found, note: Note, agent: str | None, *, doubtful: bool = False
    ) -> bool:
        """Move a request to Pending_Approval/ and let it say what approving it does.

        A doubtful one of a person's has the inode of a tool's note, and keeps that mark.

        One that an agent wrote (`agent` is not None) lists the letters that it would approve. The list
        is kept with the hash of this very text, so that nobody else can write one that counts.
        """
        found = slip(one.path, one.file, note)
        assert found is not None
        told = {title: fenced(text) for title, text in sections(note.body)}
        before = told.get(WROTE)  # where it was put before the person already
        text = note.body.strip() if before is None else before
        letters: list[Entry] = []
        if agent is None:
            whom = quote(found.to or f"thread {found.thread}")
            body = (
                f"\n## A request\n{DOUBT if doubtful else ''}If you move this note to `{folders.APPROVED}/`, it lets out the next letter to {whom}"
                " that fits it, **whatever that letter says**. Its text was:\n\n"
                f"{fence(text)}\n"
            )
        else:
            letters = self._waiting(found._replace(status="approved"), agent)
            body = self._list(letters) + f"\n## {WROTE}\n\n{fence(text)}\n"
        fields: dict[str, str | None] = {"status": "pending"}
        fields |= inert_fields(note, but=fields) if agent is not None else {}
        try:
            new = note.set(fields, body)
        except Corrupt as why:
            self.say(f"{one.path} was not taken as a request: {why.message}.")
            return False
        target = self.notes.writer.free(folders.PENDING, one.path.rpartition("/")[2])
        adopted = slip(target, one.file, new)
        assert adopted is not None

        def ready(inode: int) -> None:
            request = ApprovalRequest(agent, [(entry.id, entry.digest) for entry in letters])
            with self.ledger.write() as book:
                book.adopt(adopted.hash, request)
                if agent is not None:  # what we add to a tool's note does not make it a person's
                    book.add_tool_note(target, inode, etag(new.raw), agent)
                elif doubtful:
                    book.add_tool_note("", inode, "", "")

        self.vault.move(one.path, target, one.file, new.raw, ready)
        return True

    def _list(self, letters: list[Entry]) -> str:
        rows = [
            f"- The letter `{entry.id}` to {quote(_people(entry))}, subject"
            f" {quote(entry.letter.subject or '(none)')}, risk **{LEVELS[entry.card.level]}**,"
            f" digest `{entry.digest}`, version {entry.version}"
            for entry in letters
        ]
        if len(letters) == 1:
            told = (
                f"Move this note to `{folders.APPROVED}/` to approve the letter that it lists, as"
            )
            told += " it is listed. If that letter is red, move its own note instead."
        else:
            told = (
                f"Moving this note to `{folders.APPROVED}/` approves nothing: it must list exactly"
            )
            told += " one letter. It comes back with a new list."
        waits = "\n".join(rows) or "No waiting letter of the agent fits this request."
        when = f"Listed at {self.clock().iso}. Letters proposed later need a verdict of their own."
        return f"\n## A request\n{told}\n\n{waits}\n\n{when}\n"


def mark_unknown_drafts(vault: Vault, ledger: Ledger) -> None:
    """Record the drafts that stand in Approved/ as written by a tool that nobody knows.

    For a vault that another desk had: who put them there, and whether they were sent, is in a
    ledger that this one does not have. So they wait for a verdict here. Slips count.
    """
    for file in vault.list(folders.APPROVED):
        path, tag, counts = f"{folders.APPROVED}/{file.name}", "", None
        with suppress(PostroomError):  # one that cannot be read now may be later
            raw, _ = vault.read(path)
            tag = etag(raw)
            counts = slip(path, file, Note.parse(raw))
        with ledger.write() as book:
            if counts:
                book.set(f"{KEPT}{tag}", path)
            else:
                book.add_tool_note(path, file.inode, tag, "")


def _agent(by: ToolNote | None) -> str:
    """Return whose letter a draft is."""
    known = by is not None and not by.inode_only and by.agent and not reads_as(by.agent, OURS)
    return by.agent if by and known else VAULT_AGENT


def _people(entry: Entry) -> str:
    return ", ".join(address.spec for address in entry.letter.envelope)


def _lacks(note: Note) -> str:
    missing = [key for key in ("to", "subject") if key not in note.fields]
    return f"it has no {' and no '.join(f'`{key}`' for key in missing or ['text'])}"


def _request(one: Found) -> bool:
    return one.note is not None and slip(one.path, one.file, one.note) is not None
