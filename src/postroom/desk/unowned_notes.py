"""Notes without a letter: the drafts, slips and requests that people, or agents in their folders, wrote."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Conflict, Corrupt, Denied, Limited, PostroomError
from postroom.core.letter import Letter
from postroom.core.policy import SLIP_SECONDS, Full
from postroom.core.records import ApprovalRequest, Entry, Level, ToolNote
from postroom.core.stamp import Stamp, elapsed
from postroom.core.text import one_line
from postroom.desk import plan
from postroom.desk.note_sync import NoteSync, SeenNote
from postroom.desk.note_text import LEVELS, date_time, details
from postroom.desk.notes import MARKS, inert_fields, taken_over_at
from postroom.desk.proposals import ORCHESTRATOR, PERSON, Composer, Proposal, Proposals, Written
from postroom.desk.recorder import Call, CallRecorder
from postroom.desk.verdicts import Verdicts
from postroom.store.ledger import Ledger
from postroom.vault import folders
from postroom.vault.markdown import fence, fenced_sections, quote, sections
from postroom.vault.note import Note, etag
from postroom.vault.vault import Vault

PROPOSED: Final = "pending_approval"
MAIL: Final = "email"  # the `type` of a note that shows an incoming mail
DOUBT_NOTICE: Final = "A tool may have written this note, so it has to be moved twice. "
AGENTS_TEXT: Final = "What the agent wrote"
TYPES: Final = ("email_send", "email_reply")  # of slips and requests
_REQUEST_LIKE: Final = re.compile("|".join(TYPES).encode())


class ApprovalFile(NamedTuple):
    """What an approval says: the fields of document 000, those of the frontmatter first, then the parts of the body."""

    type: str
    status: str
    action_type: str
    to: str
    subject: str
    created: str
    approved_at: str
    risk_assessment: str
    rollback_plan: str

    @classmethod
    def of(cls, note: Note) -> Self:
        parts = {
            title.casefold(): text.partition("\n")[2].strip() for title, text in sections(note.body)
        }
        parts |= {title.casefold(): text for title, text in details(note.body).items()}
        return cls(
            type=one_line(note.text("type")),
            status=note.text("status"),
            action_type=one_line(note.text("action_type")),
            to=one_line(note.text("to")),
            subject=one_line(note.text("subject")),
            created=one_line(note.text("created")),
            approved_at=one_line(note.text("approved_at")),
            risk_assessment=parts.get("risk assessment", ""),
            rollback_plan=parts.get("rollback plan", ""),
        )


class Slip(NamedTuple):
    """A note that approves a letter by naming its recipient or conversation; copies of a slip have the same `hash`."""

    hash: str
    seen: SeenNote
    file: ApprovalFile
    thread: str

    @property
    def path(self) -> str:
        return self.seen.path

    def fits(self, letter: Letter, answered: Callable[[Letter], str]) -> bool:
        """Whether this slip approves a letter: one of its kind, to its recipient alone, with all else that it names.

        `answered` returns the key of the address that a reply goes to. It asks the mailbox, so it is called only for a
        slip that names the conversation alone, and fits otherwise.
        """
        wanted = "email_reply" if letter.is_reply else "email_send"
        keys = [address.key for address in letter.envelope]
        file, subject = self.file, one_line(letter.subject)
        return (
            file.type == wanted
            and file.status == "approved"
            and bool(file.to or self.thread)
            and not letter.attachments
            and (not file.subject or file.subject.casefold() == subject.casefold())
            and (not self.thread or self.thread == letter.thread)
            and keys == [file.to.casefold() or answered(letter)]
        )


def parse_slip(seen: SeenNote) -> Slip | None:
    """Return a note as a slip; None if it is none."""
    note = seen.note
    if note is None or note.text("type") not in TYPES or note.text("letter"):
        return None
    file, thread = ApprovalFile.of(note), one_line(note.text("thread_id"))
    # The hash is over the words, not the bytes: a sync client may change line ends, and Postroom sets the status.
    fields = [file.type, file.to, file.subject, thread, file.created]
    words = json.dumps([*fields, note.body.split()])
    hash = hashlib.sha256(words.encode()).hexdigest()[:16]
    return Slip(hash, seen, file, thread)


class ApprovedDraft(NamedTuple):
    """A draft as document 003 has it: one that a person put into Approved/, or that waits in Drafts/ for a verdict."""

    filepath: Path
    to: str
    subject: str
    body: str
    reply_to_message_id: str | None

    @classmethod
    def of(cls, filepath: Path, note: Note) -> Self:
        to, subject, parent = (note.text(name) for name in ("to", "subject", "reply_to_message_id"))
        return cls(filepath, to, subject, note.body, parent or None)


class UnownedNotes:
    """Classifies notes without a letter, and makes letters and requests of them. The caller holds the desk's lock."""

    def __init__(
        self,
        sync: NoteSync,
        composer: Composer,
        proposals: Proposals,
        verdicts: Verdicts,
        sync_letter: Callable[[Entry, str], None],
        report: Callable[[str], None],
    ) -> None:
        self._sync, self._composer, self._proposals = sync, composer, proposals
        self._verdicts, self._sync_letter, self._report = verdicts, sync_letter, report
        self._ledger, self._clock = proposals.ledger, proposals.clock
        # Of one reconcile, until `begin`: agents that may propose no more, and letters that a note became or approved.
        self._full: set[str] = set()
        self.handled: set[str] = set()

    def begin(self) -> None:
        """Forget the reconcile before."""
        self._full.clear()
        self.handled.clear()

    # Facts

    def classify(self, seen: SeenNote) -> plan.UnownedNote:
        """Return the facts about a note that was read; only a draft, slip or request has more than its path."""
        note = seen.note
        assert note is not None
        is_mail, is_proposed = note.text("type") == MAIL, note.text("status") == PROPOSED
        if is_mail or not (is_proposed or seen.folder in (folders.APPROVED, folders.PLANS)):
            return plan.UnownedNote(path=seen.path, is_mail=is_mail)
        slip, by = parse_slip(seen), self._tool_note(seen)
        missing = []
        if not note.text("to"):
            missing.append("to")
        if "subject" not in note.fields:
            missing.append("subject")
        if not missing and not note.body.strip():  # named only if it is all that is missing
            missing.append("text")
        return plan.UnownedNote(
            path=seen.path,
            by=by,
            missing=tuple(missing),
            is_proposed=is_proposed,
            slip=self._slip_facts(slip, by) if slip else None,
        )

    def _tool_note(self, seen: SeenNote) -> ToolNote | None:
        """Return the record of the tool that wrote a note, or may have written it; None if a person wrote it."""
        tag = etag(seen.raw)
        by = self._ledger.tool_notes.match(seen.path, seen.file.inode, tag)
        if by is not None and not by.inode_only:
            return by
        # The ledger may be an older one than the vault: what tools wrote before this moment has no record.
        is_older = seen.file.mtime_ns < self._ledger.settings.tool_notes_since * 1e9
        if is_older and not self._ledger.slips.is_trusted(tag):
            return ToolNote("")
        return by

    def _slip_facts(self, slip: Slip, by: ToolNote | None) -> plan.SlipFacts:
        first_seen, letter = self._ledger.slips.all().get(slip.hash, (None, ""))
        request = self._ledger.slips.request(slip.hash)
        # The list of letters counts only in a file that the desk wrote in Pending_Approval/ and that is unchanged:
        # an agent can write the same text elsewhere.
        is_by_desk = by is not None and by.path.startswith(f"{folders.PENDING}/")
        listed = None
        if request and request.agent is not None and is_by_desk and len(request.letters) == 1:
            listed = self._listed_letter(*request.letters[0], slip.hash)
        return plan.SlipFacts(
            hash=slip.hash,
            status=slip.file.status,
            age=elapsed(first_seen, self._clock()) if first_seen else None,
            spent_on=letter,
            is_letter_sent=bool(letter) and self._ledger.letters.get(letter).kind == "sent",
            is_filed=self._ledger.slips.is_filed(slip.hash),
            is_persons_request=request is not None and request.agent is None,
            listed=listed,
        )

    def _listed_letter(self, id: str, digest: str, hash: str) -> plan.ListedLetter:
        with self._ledger.read() as tx:
            entry, was_recalled = tx.letters.get(id), tx.letters.was_approved_by(id, hash)
        verdict = getattr(entry.state, "verdict", None)
        return plan.ListedLetter(
            id=id,
            digest=digest,
            is_red=entry.card.level is Level.STOP,
            is_approved_by_it=verdict is not None and verdict.slip == hash,
            was_recalled=was_recalled,
        )

    def slips_among(self, notes: Iterable[SeenNote], *, spent: bool = False) -> list[Slip]:
        """Return the slips that can still be spent, newest first; with `spent`, also those that approved a letter."""
        known, now = self._ledger.slips.all(), self._clock()
        slips = []
        for slip in filter(None, map(parse_slip, notes)):
            first_seen, letter = known.get(slip.hash, (None, ""))
            is_fresh = first_seen is not None and elapsed(first_seen, now) < SLIP_SECONDS
            if is_fresh and (spent or not (letter or self._tool_note(slip.seen))):
                slips.append(slip)
        return sorted(slips, key=lambda slip: slip.seen.file.mtime_ns, reverse=True)

    def waiting_for(self, slip: Slip, agent: str = "") -> list[Entry]:
        # Not those of the orchestrator: it writes letters that nobody asked for, so a person must read each.
        waiting = [
            self._ledger.letters.get(each.id)
            for each in self._ledger.lists.summaries("pending")
            if each.agent != ORCHESTRATOR and agent in ("", each.agent)
        ]
        answered = self._proposals.exposure.answered
        return [entry for entry in waiting if slip.fits(entry.letter, answered)]

    def requests_in(self, folder: str, settled_before: int) -> list[SeenNote]:
        seen = self._sync.scan(folder, settled_before=settled_before, unknown=_REQUEST_LIKE)
        return list(filter(parse_slip, seen))

    # Actions

    def act(self, action: plan.FileAction, seen: SeenNote) -> SeenNote:
        """Perform an action; return the note as `slips_among` is to see it: without content once it was moved."""
        match action:
            case plan.MoveFile():
                return self._move(seen, action)
            case plan.Freeze():
                self._freeze(seen, action)
            case plan.SeeSlip():
                seen = self._mark_approved(seen) if action.mark else seen
                with self._ledger.write() as tx:
                    tx.slips.add(action.hash)
            case plan.ApproveListed():
                self._approve_listed(seen, action)
            case plan.PresentRequest():
                self._present_request(seen, action)
        return seen

    def _move(self, seen: SeenNote, action: plan.MoveFile) -> SeenNote:
        target = self._sync.move_file(seen.path, seen.file, action.folder)
        self._report(action.report)
        with self._ledger.write(synced=False) as tx:
            if action.forget_inode:
                tx.tool_notes.free_inode(seen.file.inode)
            if action.spent_slip:  # by this a later copy of the slip is recognized
                tx.slips.mark_filed(action.spent_slip, target)
        if action.fields:
            raw, file = self._sync.vault.read(target)
            with suppress(Corrupt, Conflict):
                self._sync.vault.replace(target, Note.parse(raw).set(action.fields).raw, file)
        return seen._replace(note=None)  # not parsed, so that it no longer counts as a slip

    def _freeze(self, seen: SeenNote, action: plan.Freeze) -> None:
        """Propose the draft in a note as a letter; its whole body is the text. A refusal is reported."""
        note = seen.note
        assert note is not None
        call = Call("draft_note", action.agent, "vault")
        draft = ApprovedDraft.of(self._sync.vault.root / seen.path, note)
        record = json.dumps(draft.reply_to_message_id)
        proposal = Proposal(home=action.home, form=action.form, pre_send_record=record)
        if action.approved:
            call = Call("approve_draft", PERSON, PERSON)
            proposal = proposal._replace(verdict=PERSON)
        if call.agent in self._full:
            return
        try:
            # Raises if Postroom's fields cannot be written into this frontmatter later.
            note.set(MARKS)
            to, cc, bcc = map(Address.parse_list, (draft.to, note.text("cc"), note.text("bcc")))
            answers, account = draft.reply_to_message_id or "", note.text("account")
            written = Written(to, draft.subject, draft.body, cc, bcc, "", answers, account)
            letter = self._composer.letter(written)
            entry = self._proposals.propose(call, letter, proposal)
        except PostroomError as why:
            self._report(f"{seen.path} was not taken as a letter: {why.message}. {why.remedy}")
            if isinstance(why, Limited | Full):
                self._full.add(call.agent)
            return
        known_path = self._ledger.notes.location(entry.id).path
        if entry.id != letter.id and known_path not in ("", seen.path):
            # The note is a copy, or an old file that a sync client restored.
            status = life.describe(entry.state, id=entry.id)
            self._report(f"{seen.path} is ignored: its letter is known. {status}")
            return
        # The location is recorded first: if the note leaves Approved/ before it is marked, that recalls the letter.
        with self._ledger.write(synced=False) as tx:
            tx.notes.save_location(entry.id, taken_over_at(entry, seen.path, note.raw, seen.file))
        report = f"{seen.path} is the letter {entry.id} now. {action.notice}".rstrip()
        self._finish(entry.id, action.notice, report)

    def _finish(self, id: str, notice: str, report: str) -> None:
        self._sync_letter(self._ledger.letters.get(id), notice)
        self._report(report)
        self.handled.add(id)

    def _mark_approved(self, seen: SeenNote) -> SeenNote:
        assert seen.note is not None
        fields = {"status": "approved", "approved_at": date_time(self._clock().wall)}
        try:
            data = seen.note.set(fields).raw
        except Corrupt as why:
            self._report(f"{seen.path} approves nothing: {why.message}.")
            raise Conflict(f"{seen.path} cannot be marked") from why
        self._sync.vault.replace(seen.path, data, seen.file)
        return self._sync.open(seen.path, seen.file)

    def _approve_listed(self, seen: SeenNote, action: plan.ApproveListed) -> None:
        with self._ledger.write() as tx:
            tx.slips.add(action.hash)
        try:
            entry = self._verdicts.approve(
                self._ledger.letters.get(action.letter),
                by=PERSON,
                via=life.Channel.FOLDER,
                digest=action.digest,
                slip=action.hash,
            )
        except (Conflict, Denied) as why:
            again = plan.PresentRequest(action.path, action.agent, why=why.message)
            self._present_request(seen, again)
        else:
            report = f"The letter {entry.id} was approved: {action.path} lists it."
            self._finish(entry.id, "", report)

    def _present_request(self, seen: SeenNote, action: plan.PresentRequest) -> None:
        """Move a request to Pending_Approval/, with a text that says what approving it does.

        An agent's request lists the letters that it would approve. The ledger keeps the list with the hash of this
        text, so that a list which an agent writes does not count. A person's request is doubtful if its file has the
        inode of a tool's note; the new file stays marked as a tool's.
        """
        note, request, agent = seen.note, parse_slip(seen), action.agent
        assert note is not None
        assert request is not None
        earlier_text = dict(fenced_sections(note.body)).get(AGENTS_TEXT)
        text = note.body.strip() if earlier_text is None else earlier_text
        fields: dict[str, str | None] = {"status": "pending"}
        letters: list[Entry] = []
        if agent is None:
            body = _persons_request(request, text, doubtful=action.doubtful)
        else:
            approved = request._replace(file=request.file._replace(status="approved"))
            letters = self.waiting_for(approved, agent)
            body = _listing(letters, self._clock()) + f"\n## {AGENTS_TEXT}\n\n{fence(text)}\n"
            fields |= inert_fields(note, but=fields)
        try:
            new = note.set(fields, body)
        except Corrupt as why:
            self._report(f"{seen.path} was not taken as a request: {why.message}.")
            return
        target = self._sync.free_path(folders.PENDING, seen.path.rpartition("/")[2])
        presented = parse_slip(seen._replace(note=new))
        assert presented is not None

        def before_move(inode: int) -> None:
            listed = ApprovalRequest(agent, [(entry.id, entry.digest) for entry in letters])
            with self._ledger.write() as tx:
                tx.slips.add_request(presented.hash, listed)
                # The rewritten file still counts as the tool's, not as a person's.
                if agent is not None:
                    tx.tool_notes.add(target, inode, etag(new.raw), agent)
                elif action.doubtful:
                    tx.tool_notes.add("", inode, "", "")

        self._sync.vault.move(seen.path, target, seen.file, new.raw, before_move)
        if action.why:
            went = f"{seen.path} went back to {folders.PENDING}/ with a new list: {action.why}."
        else:
            CallRecorder(self._ledger).write(
                Call("adopt_request", agent or plan.VAULT_AGENT, "vault")
            )
            went = f"{seen.path} asks for approval and went to {folders.PENDING}/."
        self._report(went)


def _persons_request(request: Slip, text: str, *, doubtful: bool) -> str:
    recipient = quote(request.file.to or f"thread {request.thread}")
    return (
        f"\n## A request\n{DOUBT_NOTICE if doubtful else ''}If you move this note to"
        f" `{folders.APPROVED}/`, it approves the next letter to {recipient} that fits it, **whatever"
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
    """Record the drafts in Approved/ as written by an unknown tool, so that each waits for a verdict; slips stay valid.

    Called when this desk adopts the vault of another one: only the other desk's ledger has who put the drafts there,
    and whether they were sent.
    """
    for file in vault.list(folders.APPROVED):
        path, tag, slip = f"{folders.APPROVED}/{file.name}", "", None
        # A file that cannot be read now is recorded too: it may be readable later.
        with suppress(PostroomError):
            raw, _ = vault.read(path)
            tag = etag(raw)
            slip = parse_slip(SeenNote(path, file, note=Note.parse(raw)))
        with ledger.write() as tx:
            if slip:
                tx.slips.trust(tag, path)
            else:
                tx.tool_notes.add(path, file.inode, tag, "")
