"""Notes without a letter: the drafts, slips and requests that people, or agents in their folders, wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from postroom.core import life
from postroom.core.address import Address
from postroom.core.card import Level
from postroom.core.errors import Conflict, Corrupt, Limited, PostroomError
from postroom.core.letter import Letter
from postroom.core.lookalike import OURS, reads_as
from postroom.core.policy import SLIP_SECONDS, Full
from postroom.core.records import ApprovalRequest, Entry, ToolNote
from postroom.core.stamp import Stamp, elapsed
from postroom.core.text import one_line
from postroom.desk.compose import Composer, Written
from postroom.desk.exposure import ExposureLog
from postroom.desk.note_actions import FileSlip, Freeze, PresentRequest
from postroom.desk.note_sync import SeenNote
from postroom.desk.notes import LEVELS, MARKS, Notes, inert_fields, taken_over_at
from postroom.desk.plan import ListedLetter, SlipFacts, UnownedNote
from postroom.desk.proposals import ORCHESTRATOR, PERSON, Proposal, Proposals
from postroom.desk.recorder import Call
from postroom.store.ledger import Ledger
from postroom.vault import folders
from postroom.vault.markdown import fence, fenced_sections, quote
from postroom.vault.note import Note, etag
from postroom.vault.vault import File, Vault

PROPOSED: Final = "pending_approval"
MAIL: Final = "email"  # the type of a note that holds a mail that came in
VAULT_AGENT: Final = "vault"  # the agent of drafts whose author is not known
DOUBT: Final = "A tool may have written this note, so it has to be moved twice. "
AGENTS_TEXT: Final = "What the agent wrote"
TYPES: Final = ("email_send", "email_reply")  # of slips and requests


class Slip(NamedTuple):
    """An approval that names a recipient, or a conversation; `hash` is what a copy of it shares."""

    hash: str
    path: str
    file: File
    type: str
    to: str
    subject: str
    thread: str
    status: str

    def fits(self, letter: Letter, answered: str = "") -> bool:
        """Whether it covers this letter: its kind, its whole envelope, and all that the slip names.

        `answered` is the key of the address that a reply goes to, for a slip that names the
        conversation alone.
        """
        wanted = "email_reply" if letter.in_reply_to else "email_send"
        keys = [address.key for address in letter.envelope]
        recipient = self.to.casefold() or (answered if self.thread else "")
        return (
            self.type == wanted
            and self.status == "approved"
            and bool(recipient)
            and keys == [recipient]
            and not letter.attachments
            and (not self.subject or self.subject.casefold() == one_line(letter.subject).casefold())
            and (not self.thread or self.thread == letter.thread)
        )


def parse_slip(path: str, file: File, note: Note) -> Slip | None:
    """Return the slip that a note is, if it is one."""
    if note.text("type") not in TYPES or note.text("letter"):
        return None
    keys = ("type", "to", "subject", "thread_id", "created")
    kind, to, subject, thread, created = (one_line(note.text(key)) for key in keys)
    # Over the words, not the bytes: a sync client may have changed line ends, we its status.
    words = json.dumps([kind, to, subject, thread, created, note.body.split()])
    hash = hashlib.sha256(words.encode()).hexdigest()[:16]
    return Slip(hash, path, file, kind, to, subject, thread, note.text("status"))


class UnownedNotes:
    """Classifies such notes, and makes letters and requests of them; the desk's lock is held meanwhile."""

    def __init__(
        self,
        notes: Notes,
        proposals: Proposals,
        composer: Composer,
        exposure: ExposureLog,
        report: Callable[[str], None],
    ) -> None:
        self._notes, self._sync, self._proposals = notes, notes.sync, proposals
        self._composer, self._exposure, self._report = composer, exposure, report
        self._ledger, self._clock = proposals.ledger, proposals.clock
        self.full: set[str] = set()  # agents of recipient no more drafts are taken now

    # Facts

    def classify(self, seen: SeenNote) -> UnownedNote:
        """Return what a note without a letter is, and who wrote it."""
        note = seen.note
        assert note is not None
        is_mail, is_proposed = note.text("type") == MAIL, note.text("status") == PROPOSED
        if is_mail or not (is_proposed or seen.folder in (folders.APPROVED, folders.PLANS)):
            return UnownedNote(path=seen.path, is_mail=is_mail)
        slip, by = parse_slip(seen.path, seen.file, note), self._tool_note(seen, note)
        missing = [] if note.text("to") else ["to"]
        missing += [] if "subject" in note.fields else ["subject"]
        missing += [] if missing or note.body.strip() else ["text"]
        return UnownedNote(
            path=seen.path,
            by_tool=by is not None,
            by_inode=by is not None and by.inode_only,
            agent=_agent(by, is_request=bool(slip) and seen.folder != folders.DRAFTS),
            missing=tuple(missing),
            is_proposed=is_proposed,
            slip=self._slip_facts(slip, by) if slip else None,
        )

    def _tool_note(self, seen: SeenNote, note: Note) -> ToolNote | None:
        """Return which tool wrote a note, or may have; None if a person did."""
        tag = etag(note.raw)
        by = self._ledger.tool_notes.match(seen.path, seen.file.inode, tag)
        is_older = seen.file.mtime_ns < self._ledger.settings.tool_notes_since * 1e9
        is_older = is_older and not self._ledger.slips.is_trusted(tag)
        return ToolNote("") if is_older and (by is None or by.inode_only) else by

    def _slip_facts(self, slip: Slip, by: ToolNote | None) -> SlipFacts:
        first_seen, letter = self._ledger.slips.all().get(slip.hash, (None, ""))
        request = self._ledger.slips.request(slip.hash)
        # Only a file that the desk wrote in Pending_Approval/, and that still says the same, has a
        # list that counts: an agent can copy the text of one.
        is_by_desk = by is not None and by.path.startswith(f"{folders.PENDING}/")
        listed = None
        if request and request.agent is not None and is_by_desk and len(request.letters) == 1:
            listed = self._listed_letter(*request.letters[0], slip.hash)
        return SlipFacts(
            hash=slip.hash,
            status=slip.status,
            age=elapsed(first_seen, self._clock()) if first_seen else None,
            spent_on=letter,
            is_letter_sent=bool(letter) and self._ledger.letters.get(letter).kind == "sent",
            is_filed=self._ledger.slips.is_filed(slip.hash),
            is_persons_request=request is not None and request.agent is None,
            listed=listed,
        )

    def _listed_letter(self, id: str, digest: str, hash: str) -> ListedLetter:
        with self._ledger.read() as tx:
            entry, was_recalled = tx.letters.get(id), tx.history.was_approved_by(id, hash)
        verdict = getattr(entry.state, "verdict", None)
        return ListedLetter(
            id=id,
            digest=digest,
            is_red=entry.card.level is Level.STOP,
            is_approved_by_it=verdict is not None and verdict.slip == hash,
            was_recalled=was_recalled,
        )

    def slips_among(self, notes: Iterable[SeenNote], *, spent: bool = False) -> list[Slip]:
        """Return the slips that may still be spent, the newest first.

        With `spent`, also those that were, and the requests that approved a letter.
        """
        known, now = self._ledger.slips.all(), self._clock()
        slips = []
        for seen in notes:
            slip = parse_slip(seen.path, seen.file, seen.note) if seen.note else None
            if not (slip and seen.note and slip.hash in known):
                continue
            first_seen, letter = known[slip.hash]
            is_fresh = elapsed(first_seen, now) < SLIP_SECONDS
            if is_fresh and (spent or not (letter or self._tool_note(seen, seen.note))):
                slips.append(slip)
        return sorted(slips, key=lambda slip: slip.file.mtime_ns, reverse=True)

    def waiting_for(self, slip: Slip, agent: str = "") -> list[Entry]:
        """Return the waiting letters that a slip fits, of one agent or of all."""
        # A slip is for what an agent asks; what the orchestrator drafted is to be seen first.
        waiting = [
            self._ledger.letters.get(each.id)
            for each in self._ledger.lists.summaries("pending")
            if each.agent != ORCHESTRATOR and agent in ("", each.agent)
        ]
        return [e for e in waiting if slip.fits(e.letter, self._exposure.answered(e.letter))]

    def requests_in(self, folder: str) -> list[SeenNote]:
        """Return the requests that stand in a folder."""
        seen = self._sync.scan(folder)
        return [one for one in seen if one.note and parse_slip(one.path, one.file, one.note)]

    # Actions

    def freeze(self, seen: SeenNote, action: Freeze) -> str | None:
        """Make a letter of a draft whose whole body is its text; return the letter's id."""
        note = seen.note
        assert note is not None
        call = Call("draft_note", action.agent, "vault")
        wish = Proposal(home=action.home, form=action.form)
        if action.approved:
            call = Call("approve_draft", PERSON, PERSON)
            wish = wish._replace(verdict=PERSON)
        if call.agent in self.full:
            return None
        try:
            note.set(MARKS)  # what cannot be marked cannot be watched
            to, cc, bcc = (Address.parse_list(note.text(key)) for key in ("to", "cc", "bcc"))
            answers, account = note.text("reply_to_message_id"), note.text("account")
            written = Written(to, note.text("subject"), note.body, cc, bcc, "", answers, account)
            letter = self._composer.letter(written)
            entry = self._proposals.propose(call, letter, wish)
        except PostroomError as why:
            self._report(f"{seen.path} was not taken as a letter: {why.message}. {why.remedy}")
            self.full |= {call.agent} if isinstance(why, Limited | Full) else set()
            return None
        if entry.id != letter.id and self._ledger.notes.location(entry.id).path not in (
            "",
            seen.path,
        ):
            # A copy, or what a sync client brought back.
            status = life.describe(entry.state, id=entry.id)
            self._report(f"{seen.path} is ignored: its letter is known. {status}")
            return None
        # Remembered first: gone before it is marked, it is a note that left Approved/.
        with self._ledger.write(synced=False) as tx:
            tx.notes.save_location(entry.id, taken_over_at(entry, seen.path, note.raw, seen.file))
        self._notes.sync_note(entry, action.notice)
        notice = f" {action.notice}" if action.notice else ""
        self._report(f"{seen.path} is the letter {entry.id} now.{notice}")
        return entry.id

    def mark_approved(self, seen: SeenNote) -> None:
        """Give a slip `status: approved`."""
        assert seen.note is not None
        fields = {"status": "approved", "approved_at": self._clock().iso}
        try:
            data = seen.note.set(fields).raw
        except Corrupt as why:
            self._report(f"{seen.path} approves nothing: {why.message}.")
            raise Conflict(f"{seen.path} cannot be marked") from why
        self._sync.vault.replace(seen.path, data, seen.file)

    def file_slip(self, seen: SeenNote, action: FileSlip) -> None:
        """Move a spent slip away and mark it; a copy that comes later is known as one."""
        target = self._sync.move_file(seen.path, seen.file, action.folder)
        with self._ledger.write(synced=False) as tx:
            tx.slips.mark_filed(action.hash, target)
        fields = {"status": action.status} | ({"reason": action.reason} if action.reason else {})
        raw, file = self._sync.vault.read(target)
        with suppress(Corrupt, Conflict):
            self._sync.vault.replace(target, Note.parse(raw).set(fields).raw, file)

    def present_request(self, seen: SeenNote, action: PresentRequest) -> None:
        """Move a request to Pending_Approval/, and let it say what approving it does.

        One that an agent wrote lists the letters that it would approve. The list is kept with the hash of this very
        text, so that nobody else can write one that counts. A doubtful one of a person's has the inode of a tool's
        note, and keeps that mark.
        """
        note, agent = seen.note, action.agent
        assert note is not None
        request = parse_slip(seen.path, seen.file, note)
        assert request is not None
        parts = dict(fenced_sections(note.body))
        before = parts.get(AGENTS_TEXT)  # where it was presented before
        text = note.body.strip() if before is None else before
        letters: list[Entry] = []
        if agent is None:
            body = _persons_request(request, text, doubtful=action.doubtful)
        else:
            letters = self.waiting_for(request._replace(status="approved"), agent)
            body = _listing(letters, self._clock()) + f"\n## {AGENTS_TEXT}\n\n{fence(text)}\n"
        fields: dict[str, str | None] = {"status": "pending"}
        fields |= inert_fields(note, but=fields) if agent is not None else {}
        try:
            new = note.set(fields, body)
        except Corrupt as why:
            self._report(f"{seen.path} was not taken as a request: {why.message}.")
            return
        target = self._sync.free_path(folders.PENDING, seen.path.rpartition("/")[2])
        presented = parse_slip(target, seen.file, new)
        assert presented is not None

        def before_move(inode: int) -> None:
            listed = ApprovalRequest(agent, [(entry.id, entry.digest) for entry in letters])
            with self._ledger.write() as tx:
                tx.slips.add_request(presented.hash, listed)
                if agent is not None:  # what we add to a tool's note does not make it a person's
                    tx.tool_notes.add(target, inode, etag(new.raw), agent)
                elif action.doubtful:
                    tx.tool_notes.add("", inode, "", "")

        self._sync.vault.move(seen.path, target, seen.file, new.raw, before_move)
        if action.why:
            sentence = f"{seen.path} went back to {folders.PENDING}/ with a new list: {action.why}."
        else:
            self._proposals.recorder.write(Call("adopt_request", agent or VAULT_AGENT, "vault"))
            sentence = f"{seen.path} asks for approval and went to {folders.PENDING}/."
        self._report(sentence)


def _persons_request(request: Slip, text: str, *, doubtful: bool) -> str:
    recipient = quote(request.to or f"thread {request.thread}")
    return (
        f"\n## A request\n{DOUBT if doubtful else ''}If you move this note to"
        f" `{folders.APPROVED}/`, it lets out the next letter to {recipient} that fits it, **whatever"
        f" that letter says**. Its text was:\n\n{fence(text)}\n"
    )


def _listing(letters: list[Entry], now: Stamp) -> str:
    rows = [
        f"- The letter `{entry.id}` to {quote(', '.join(a.spec for a in entry.letter.envelope))},"
        f" subject {quote(entry.letter.subject or '(none)')},"
        f" risk **{LEVELS[entry.card.level]}**, digest `{entry.digest}`, version {entry.version}"
        for entry in letters
    ]
    if len(letters) == 1:
        effect = (
            f"Move this note to `{folders.APPROVED}/` to approve the letter that it lists, as"
            " it is listed. If that letter is red, move its own note instead."
        )
    else:
        effect = (
            f"Moving this note to `{folders.APPROVED}/` approves nothing: it must list exactly"
            " one letter. It comes back with a new list."
        )
    waiting = "\n".join(rows) or "No waiting letter of the agent fits this request."
    when = f"Listed at {now.iso}. Letters proposed later need a verdict of their own."
    return f"\n## A request\n{effect}\n\n{waiting}\n\n{when}\n"


def mark_unknown_drafts(vault: Vault, ledger: Ledger) -> None:
    """Record the drafts that stand in Approved/ as written by an unknown tool.

    For a vault that another desk had: who put them there, and whether they were sent, is in a
    ledger that this one does not have. So they wait for a verdict here. Slips count.
    """
    for file in vault.list(folders.APPROVED):
        path, tag, counts = f"{folders.APPROVED}/{file.name}", "", None
        with suppress(PostroomError):  # one that cannot be read now may be later
            raw, _ = vault.read(path)
            tag = etag(raw)
            counts = parse_slip(path, file, Note.parse(raw))
        with ledger.write() as tx:
            if counts:
                tx.slips.trust(tag, path)
            else:
                tx.tool_notes.add(path, file.inode, tag, "")


def _agent(by: ToolNote | None, *, is_request: bool) -> str:
    """Return the agent whose request a note is, or whose letter a draft becomes."""
    is_agent = by and not (by.inode_only or reads_as(by.agent, OURS)) and by.agent
    return by.agent if by and (is_request or is_agent) else VAULT_AGENT
