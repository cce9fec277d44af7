"""What agents do with mail beside sending it: find, read, save, sort, draft. Each call leaves its line."""

from __future__ import annotations

import hashlib
import re
import threading
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from postroom.core import policy
from postroom.core.audit import redact_addresses
from postroom.core.errors import Denied, Invalid, Limited, NotFound, PostroomError
from postroom.core.letter import MAX_BYTES, Enclosure, Letter
from postroom.core.mail_view import ReplyEnvelope, answer, answered
from postroom.core.message import (
    DRAFT,
    INBOX,
    SENT,
    SPAM,
    SYSTEM_LABELS,
    TRASH,
    Message,
    Thread,
    label_key,
    system_label,
)
from postroom.core.records import LabelChange
from postroom.core.text import duration, file_name, numbered, one_line
from postroom.desk.desk import Desk
from postroom.desk.exposure import READABLE
from postroom.desk.proposals import refuse_other_html
from postroom.desk.recorder import Call
from postroom.vault.vault import Vault

if TYPE_CHECKING:
    from postroom.mail.mailbox import Mailbox, MailboxDraft, SearchPage

OUTGOING: Final = "Outgoing"
MAIL_FILES: Final = "Mail_Files"
MAX_FILES: Final = 20  # of one letter
SEARCHES: Final = 30  # in one pace, of those that take turns
LONGEST_TURN: Final = 90.0  # seconds that one of them waits
MAX_LABEL: Final = 100
NO_MAIL: Final = (
    "This mailbox holds no mail at all: the person brings it in with `postroom import`, or has it"
    " in another vault."
)
FROM_MAIL: Final = "mail:"
_LEFT_ALONE: Final = {label_key(label) for label in (TRASH, SPAM, DRAFT)}
# What mail programs and other languages' servers call the places that are the person's.
_OTHER_NAMES: Final = frozenset(
    "bin deleted deleted-items deleted-messages junk junk-e-mail junk-email sent-items sent-mail"
    " sent-messages [gmail]-trash [gmail]-spam [gmail]-sent-mail [gmail]-drafts [gmail]-bin"
    " draft-messages papierkorb corbeille papelera".split()
)


class Saved(NamedTuple):
    path: Path
    name: str  # as the mail calls it
    type: str
    size: int


class MailboxService:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._ledger = desk.ledger
        self._recorder = desk.recorder
        self._exposure = desk.exposure
        self._rules = desk.rules
        self._result = "success" if desk.rules.live else "dev_mode"  # as the log names a change
        self._turns: deque[float] = deque(maxlen=SEARCHES)
        self._taking = threading.Lock()

    def box(self, account: str) -> Mailbox:
        """Return the account's mailbox; without a name, the default one's."""
        return self._desk.mailboxes(account or self._desk.account)

    def search(
        self, call: Call, account: str, query: str, *, limit: int, cursor: str
    ) -> SearchPage:
        with self._recorder.recording(call, query=query[:200]):
            return self._page(account, query, limit, cursor)

    def search_whole(
        self, call: Call, account: str, query: str, *, limit: int
    ) -> tuple[SearchPage, dict[str, Message]]:
        """Return a page of matches, newest first, and the whole mails by id; a mail that is gone since is missing there."""
        with self._recorder.recording(call, query=query[:200]):
            page, found = self._page(account, query, limit, ""), {}
            for item in page.items:
                with suppress(NotFound):  # it may be gone since
                    found[item.id] = self.box(account).message(item.id)
            self._exposure.saw_messages(account, *found.values())
            return page, found

    def _page(self, account: str, query: str, limit: int, cursor: str) -> SearchPage:
        box = self.box(account)
        page = box.search(query, limit=limit, cursor=cursor)
        self._exposure.saw_list(account, page.items)
        if not (page.items or cursor or box.search("", limit=1).items):
            page = page._replace(notes=(*page.notes, NO_MAIL))
        return page

    def turn(self) -> float:
        """Take the next place among the searches of one pace; return the seconds until it comes."""
        now = self._ledger.clock().steady
        with self._taking:
            full = len(self._turns) == SEARCHES
            wait = max(0.0, self._turns[0] + self._rules.pace_seconds - now) if full else 0.0
            if wait > LONGEST_TURN:
                raise Limited(
                    f"Rate limit exceeded ({SEARCHES} searches/{self._rules.pace_seconds:g} seconds)",
                    seconds=wait,
                    remedy=f"There is room again in {duration(wait)}.",
                )
            self._turns.append(now + wait)
        return wait

    def message(self, call: Call, account: str, id: str) -> Message:
        with self._recorder.recording(call, message=id[:60]):
            found = self.box(account).message(id)
            self._exposure.saw_messages(account, found)
            return found

    def thread(self, call: Call, account: str, id: str) -> Thread:
        with self._recorder.recording(call, thread=id[:60]):
            found = self.box(account).thread(id)
            self._exposure.saw_messages(account, *found.messages)
            return found

    def attachment(self, call: Call, account: str, id: str, part: str) -> Saved:
        """Save an attachment in the vault, never over another file."""
        with self._recorder.recording(call, message=id[:60], part=part[:20]):
            box = self.box(account)
            file, message = box.attachment(id, part), box.message(id)
            folder = f"{MAIL_FILES}/{re.sub(r'[^A-Za-z0-9_-]', '_', id)[:80]}"
            begun = _first(file.pieces, READABLE)
            self._exposure.saw_file(account, message, part, Enclosure(file.name, file.type, begun))
            name, hashed = file_name(file.name), hashlib.sha256()
            names = chain([name], (numbered(name, number) for number in range(2, 100)))

            def pieces() -> Iterator[bytes]:
                for piece in chain([begun], file.pieces):
                    hashed.update(piece)
                    yield piece

            def record(name: str, inode: int) -> None:
                with self._ledger.write() as tx:
                    tx.tool_notes.add(
                        f"{folder}/{name}", inode, hashed.hexdigest()[:16], call.agent
                    )

            vault = self._desk.vault
            saved, made = vault.deposit(folder, names, pieces(), record)
            return Saved(vault.root / folder / saved, file.name, file.type, made.size)

    def answer(
        self, account: str, *, id: str, thread: str, everyone: bool
    ) -> tuple[str, ReplyEnvelope]:
        """Return the id of the mail that is answered, by default a conversation's newest, and where the answer goes."""
        box = self.box(account)
        there = box.thread(thread).messages if thread else (box.message(id),)
        named = [message for message in there if message.id == id]
        if id and not named:
            stray = f"{one_line(id)[:60]} is not in the conversation {one_line(thread)[:60]}"
            raise Invalid(f"The mail {stray}", remedy="Name a mail of it.")
        message = named[0] if named else answered(there)
        self._exposure.saw_messages(account, message)  # whom it names is told of, in the letter
        own = {address.key for address in box.own_addresses()}
        sent = SENT in message.labels
        return message.id, answer(message.mail, own, sent=sent, everyone=everyone)

    def enclosures(
        self, account: str, paths: Sequence[str]
    ) -> tuple[tuple[Enclosure, ...], tuple[str, ...]]:
        """Return the files that are to go out, and where each comes from."""
        if len(paths) > MAX_FILES:
            raise Invalid(f"A letter has at most {MAX_FILES} attachments", remedy="Send fewer.")
        found: list[tuple[Enclosure, str]] = []
        for path in paths:
            found.append(self._enclosure(account, path))
            if sum(len(file.content) for file, _ in found) > MAX_BYTES:
                raise Invalid(
                    f"The attachments hold more than {MAX_BYTES:,} bytes",
                    remedy="Send fewer or smaller ones.",
                )
        return tuple(file for file, _ in found), tuple(origin for _, origin in found)

    def _enclosure(self, account: str, path: str) -> tuple[Enclosure, str]:
        if path.startswith(FROM_MAIL):
            id, _, part = path.removeprefix(FROM_MAIL).partition("/")
            return self.box(account).attachment(id, part).read_all(), "mail"
        content, origin = self._outgoing(path)
        from mimetypes import guess_type  # reads the system's tables

        name = path.rpartition("/")[2]
        kind = guess_type(name)[0] or "application/octet-stream"
        return Enclosure(name, kind.lower(), content), origin

    def _outgoing(self, path: str) -> tuple[bytes, str]:
        vault, folders = self._desk.vault, self._desk.permissions.outgoing
        inside = path.removeprefix(f"{vault.root}/")
        if inside.startswith(f"{OUTGOING}/"):
            return vault.read(inside)[0], f"folder {OUTGOING}/"
        for folder in folders:
            if path.startswith(f"{folder}/"):
                # As confined as the vault is: no link, no way up.
                with closing(Vault(folder)) as place:
                    return place.read(path.removeprefix(f"{folder}/"))[0], f"folder {folder}"
        allowed = ", ".join([f"{OUTGOING}/ in the vault", *map(str, folders)])
        raise Denied(
            f"{one_line(path)[:200]!r} is in no folder that files go out from",
            remedy=f"Put it into {allowed}; or name a mail's file as mail:ID/PART.",
        )

    def draft(self, call: Call, letter: Letter, revises: str = "") -> MailboxDraft | None:
        """Store a letter as a draft, or put it in the place of one; None in a rehearsal."""
        about = {"subject": letter.subject, **({"revises": revises[:60]} if revises else {})}
        target = redact_addresses([address.spec for address in letter.envelope])
        with self._recorder.recording(call, target, changes=True, result=self._result, **about):
            box = self.box(letter.account)
            refuse_other_html(letter)
            policy.admit(letter, self._rules, self._exposure.own(letter.account))
            version = ""
            if revises:
                revises, version = self._draft(call, letter.account, revises)
            else:
                self._admit_draft(call, box, letter.account)
            if not self._rules.live:
                return None
            now = datetime.fromtimestamp(self._ledger.clock().wall, UTC)
            made = (
                box.revise_draft(revises, letter, version=version, date=now)
                if revises
                else box.create_draft(letter, date=now)
            )
            with self._ledger.write() as tx:
                tx.drafts.save(letter.account, made.id, made.version, call.agent)
        return made

    def _admit_draft(self, call: Call, box: Mailbox, account: str) -> None:
        """Refuse an agent that keeps too many drafts; what is gone from the mailbox counts no more."""
        most = self._rules.open_letters
        if len(self._ledger.drafts.of_agent(account, call.agent)) < most:
            return
        there = box.drafts()
        with self._ledger.write(synced=False) as tx:
            for id in set(tx.drafts.of_agent(account, call.agent)) - there.keys():
                tx.drafts.remove(account, id)
            if len(tx.drafts.of_agent(account, call.agent)) >= most:
                raise Denied(
                    f"{most} drafts of this agent are kept already (limits.open_letters)",
                    remedy="Revise or delete one of them.",
                )

    def discard(self, call: Call, account: str, id: str) -> bool:
        """Delete a draft of this agent's; False in a rehearsal."""
        account = account or self._desk.account
        with self._recorder.recording(call, changes=True, result=self._result, draft=id[:60]):
            id, version = self._draft(call, account, id)
            if self._rules.live:
                self.box(account).discard_draft(id, version=version)
                with self._ledger.write() as tx:
                    tx.drafts.remove(account, id)
        return self._rules.live

    def _draft(self, call: Call, account: str, id: str) -> tuple[str, str]:
        """Return the id of this agent's draft, and the version in which Postroom left it."""
        known = self._ledger.drafts.get(account, id)
        if known is None:  # it may be the id of the draft as a mail, as a search gives it
            for draft, mail in self.box(account).drafts().items():
                if mail == id != draft:
                    return self._draft(call, account, draft)
        if known is None or known[1] != call.agent:
            raise Denied(
                f"{one_line(id)[:60]!r} is not a draft that Postroom made for you",
                remedy="Leave it to the person, and make a draft of your own.",
            )
        return id, known[0]

    def move(self, call: Call, account: str, id: str, destination: str) -> LabelChange:
        """File a mail under a label and take it out of the inbox; or put it back there."""
        name = _destination(destination)
        if name in SYSTEM_LABELS - {INBOX}:
            raise Invalid(
                f"{name} is not a place for a mail",
                remedy="Move it to INBOX or to a label of your own; add_label marks it.",
            )
        return self._sort(call, account, id, name, remove="" if name == INBOX else INBOX)

    def label(self, call: Call, account: str, id: str, label: str) -> LabelChange:
        return self._sort(call, account, id, _destination(label))

    def _sort(
        self, call: Call, account: str, id: str, add: str, *, remove: str = ""
    ) -> LabelChange:
        """Return the change that was made, or that would be in a rehearsal; its number undoes it."""
        account, rules = account or self._desk.account, self._rules
        with self._recorder.recording(
            call, changes=True, result=self._result, message=id[:60], to=add
        ):
            box, now = self.box(account), self._ledger.clock()
            there = {label_key(label): label for label in box.message(id).labels}
            if there.keys() & _LEFT_ALONE:
                raise Denied(
                    f"The mail {id} is in Trash, Spam or Drafts, where tools sort nothing",
                    remedy="Leave it to the person.",
                )
            added = frozenset({add} if label_key(add) not in there else ())
            removed = frozenset({there[label_key(remove)]} if label_key(remove) in there else ())
            change = LabelChange(0, now.wall, call.agent, account, id, added, removed)
            if not rules.live or not added | removed:
                return change
            if paused := self._desk.paused():
                raise Denied(
                    f"Sending, moving and labelling mail is paused by {paused} in the vault",
                    remedy="Wait until the person has deleted that file.",
                )
            with self._ledger.write() as tx:  # before it happens, so that it can be undone
                policy.admit_move(tx.label_changes.times(rules.moves_per_hour), now, rules)
                change = change._replace(number=tx.label_changes.add(change))
            try:
                box.relabel(id, add=added, remove=removed)
            except PostroomError:
                with self._ledger.write() as tx:
                    tx.label_changes.remove(change.number)
                raise
            return change

    def undo(self, move: LabelChange) -> None:
        with self._recorder.recording(
            Call("undo_move", move.agent, "person"), message=move.message
        ):
            box = self.box(move.account)
            # What the person has thrown away since does not come back into the inbox.
            gone = box.message(move.message).labels & {TRASH, SPAM}
            add = move.removed - {INBOX} if gone else move.removed
            box.relabel(move.message, add=add, remove=move.added)
            with self._ledger.write() as tx:
                tx.label_changes.remove(move.number)


def _first(pieces: Iterator[bytes], size: int) -> bytes:
    """Take pieces until they hold so many bytes; the others stay where they are."""
    taken = bytearray()
    for piece in pieces:
        taken += piece
        if len(taken) >= size:
            break
    return bytes(taken)


def _destination(name: str) -> str:
    """Return the label that is meant, if tools may put it on a mail."""
    plain = one_line(name)
    if not plain or plain != name.strip() or len(plain) > MAX_LABEL:
        raise Invalid(
            f"{plain[:60]!r} is not a label",
            remedy=f"Name one in at most {MAX_LABEL} plain characters.",
        )
    # Wide and ornamental letters are read as plain ones, by people and by servers.
    read_as = unicodedata.normalize("NFKC", plain).strip("/.\\")
    for spelling in (read_as, re.split(r"[/.\\]", read_as)[-1]):
        is_known = system_label(spelling) in (TRASH, SPAM, SENT, DRAFT)
        if is_known or label_key(spelling) in _OTHER_NAMES:
            raise Denied(
                f"{plain} is not a destination for tools: Trash, Spam, Sent and Drafts are the person's",
                remedy="Choose another label, or leave the mail where it is.",
            )
    return system_label(plain) or plain
