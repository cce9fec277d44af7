"""The note of a mail that came in: what it shows, where it stands, and what people did to it.

The ledger decides and the note follows, as with letters. What others wrote stands in a fence or as a
quoted value; what a person added stays.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from postroom.core.errors import Conflict, Corrupt, NotFound, PostroomError
from postroom.core.message import IMPORTANT, Message, Party
from postroom.core.policy import back_off
from postroom.core.quoting import split
from postroom.core.stamp import Stamp
from postroom.core.text import clean, line
from postroom.core.triage import Facts, Judgement
from postroom.desk.placing import Placing
from postroom.desk.strays import MAIL
from postroom.store.entries import NOWHERE, Place
from postroom.store.errands import Errand
from postroom.store.ledger import Ledger
from postroom.vault.folders import DONE, FAILED, NEEDS_ACTION, PLANS
from postroom.vault.markdown import fence, fenced, link, quote, sections
from postroom.vault.note import Note, render
from postroom.vault.vault import File, Vault

BODY: Final = 20_000  # characters of a mail in its note
MAX_FIELD: Final = 1_000
STATUS: Final = {
    "found": "pending",
    "decided": "pending",
    "delegated": "pending_approval",
    "aside": "done",
}
BY_HAND: Final = "a person"
ELSEWHERE: Final = ("Approved", "Rejected", "Pending_Approval", "Drafts", "Plans")
_ADDRESS: Final = re.compile(r"<([^<>]*)>$")


class Came(NamedTuple):
    """A mail as the email server tells of it."""

    id: str
    thread: str
    date: str
    sender: str
    to: tuple[str, ...]
    cc: tuple[str, ...]
    subject: str
    labels: tuple[str, ...]
    list_id: str
    automatic: bool
    files: tuple[tuple[str, str, int], ...]
    text: str
    notes: tuple[str, ...]


def came(values: Mapping[str, Any]) -> Came:
    """Return the mail that `get_email` answered; one that is no mail is `Corrupt`."""
    try:
        hidden, quoted = int(values.get("hidden_chars", 0)), int(values.get("quoted_chars", 0))
        total, more = int(values.get("total_chars", 0)), int(values.get("next_offset", 0))
        notes = [line(str(said)) for said in values.get("warnings", ())]
        notes += [f"{total - more:,} more characters are not shown here"] if more else []
        notes += [f"{quoted:,} characters of quoted history are left out"] if quoted else []
        notes += [f"{hidden:,} hidden characters were removed"] if hidden else []
        return Came(
            id=str(values["id"]),
            thread=str(values["thread"]),
            date=str(values["date"]),
            sender=line(str(values.get("from", ""))),
            to=tuple(line(str(who)) for who in values.get("to", ())),
            cc=tuple(line(str(who)) for who in values.get("cc", ())),
            subject=line(str(values.get("subject", ""))),
            labels=tuple(line(str(label)) for label in values.get("labels", ())),
            list_id=line(str(values.get("list_id", ""))).strip("<>").casefold(),
            automatic=bool(values.get("automatic", False)),
            files=tuple(
                (line(str(one["name"])), line(str(one["type"])), int(one["size"]))
                for one in values.get("files", ())
            ),
            text=clean(str(values.get("text", "")))[0][:BODY],
            notes=tuple(notes),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as why:
        raise Corrupt("The answer of the email server is no mail") from why


def values_of(message: Message) -> dict[str, Any]:
    """Return a mail as `get_email` would answer it, where no server can be asked."""
    mail = message.mail
    fresh, quoted = split(mail.text)
    body = fresh.strip("\n")
    return {
        "id": message.id,
        "thread": message.thread,
        "date": Stamp(message.date).iso,
        "from": _person(mail.sender),
        "to": [_person(party) for party in mail.to[:20]],
        "cc": [_person(party) for party in mail.cc[:20]],
        "subject": mail.subject[:500],
        "labels": sorted(message.labels),
        "list_id": mail.list_id,
        "automatic": mail.automatic,
        "files": [{"name": a.name, "type": a.type, "size": a.size} for a in mail.attachments[:20]],
        "text": body[:BODY],
        "warnings": list(mail.damage[:5]),
        "total_chars": len(body),
        "next_offset": BODY if len(body) > BODY else 0,
        "quoted_chars": len(quoted.strip()),
        "hidden_chars": mail.hidden,
    }


def _person(party: Party | None) -> str:
    """Return name and address; a long name must not push the address out."""
    whole = str(party or "")
    return whole if party is None or len(whole) <= 200 else party.address[:200]


def address(person: str) -> str:
    """Return the address of a person as a mail names them, folded of case."""
    found = _ADDRESS.search(person)
    return (found[1] if found else person).strip().casefold()


def facts(mail: Came, own: frozenset[str]) -> Facts:
    """Return what rules and guards ask of a mail."""
    sender = address(mail.sender)
    return Facts(
        sender=sender,
        recipients=tuple(map(address, (*mail.to, *mail.cc))),
        subject=mail.subject,
        labels=mail.labels,
        list_id=mail.list_id,
        automatic=mail.automatic,
        own=sender in own,
    )


def facts_json(of: Facts) -> str:
    """Return the facts as the ledger keeps them."""
    kept = asdict(of)
    del kept["said"]
    return json.dumps(kept)


def facts_of(errand: Errand, said: Sequence[str] = ()) -> Facts:
    """Return the facts that the ledger has kept, with the words of the mail."""
    kept = json.loads(errand.facts or "{}")
    for name in ("recipients", "labels"):
        kept[name] = tuple(kept.get(name, ()))
    return Facts(**kept, said=list(said))


def judgement_of(errand: Errand) -> Judgement:
    """Return what was decided about a mail."""
    return Judgement(**json.loads(errand.judgement))


def name_of(account: str, mail: Came) -> str:
    """Return the name of a mail's note: the same for the same mail, whenever it is written."""
    digest = hashlib.sha256(f"{account}\0{mail.id}".encode()).digest()
    tag = base64.b32encode(digest)[:8].decode().lower()
    about = " ".join(re.findall(r"\w+", mail.subject))[:40].strip()
    return f"{mail.date[:10]} {tag}{f' {about}' if about else ''}.md"


def written(account: str, mail: Came) -> bytes:
    """Return the note of a mail that has just come in."""
    fields: dict[str, str | Sequence[str]] = {
        "type": MAIL,
        "id": mail.id,
        "account": account,
        "thread": mail.thread,
        "from": mail.sender[:MAX_FIELD],
        "to": ", ".join(mail.to)[:MAX_FIELD],
        **({"cc": ", ".join(mail.cc)[:MAX_FIELD]} if mail.cc else {}),
        "subject": mail.subject[:MAX_FIELD],
        "date": mail.date,
        "labels": mail.labels,
        "priority": "high" if IMPORTANT in mail.labels else "normal",
        "status": "pending",
    }
    parts = [f"\n## Mail\n\n{fence(mail.text.strip(chr(10)) or '(no text)')}\n"]
    if mail.files:
        rows = [
            f"- {quote(name)}, {quote(kind)}, {size:,} bytes" for name, kind, size in mail.files
        ]
        parts.append("\n## Attachments\n\n" + "\n".join(rows) + "\n")
    if mail.notes:
        parts.append("\n## Remarks\n\n" + "\n".join(f"- {quote(one)}" for one in mail.notes) + "\n")
    return render(fields, "".join(parts))


def text_of(body: str) -> str:
    """Return the words of the mail that a note holds."""
    held = [fenced(part) for title, part in sections(body) if title == "Mail"]
    return held[0] if held and held[0] is not None else body


def _done(note: Note) -> bool:
    return note.text("status").strip().casefold() == "done"


def shown(errand: Errand, note: Note, answer: str) -> Note:
    """Return the note brought up to what the ledger has; what a person wrote stays."""
    later = errand.changed + back_off(errand.tries) if errand.tries and errand.held else 0
    fields: dict[str, str | None] = {
        "status": STATUS.get(errand.state, errand.state),
        "answer": answer or None,
        "held": errand.held[:MAX_FIELD] or None,
        "next_try": Stamp(later).iso if later else None,
    }
    body = None
    if errand.judgement:
        judged = judgement_of(errand)
        fields |= {"decision": judged.decision, "decided_by": errand.by[:MAX_FIELD]}
        fields["why"] = judged.why or None
        if judged.decision == "urgent":
            fields["priority"] = "urgent"
        if judged.decision == "delegate":
            added = f"\n## Delegation\n\n{fence(judged.text.strip(chr(10)))}\n"
            if added not in note.body:
                body = f"{note.body.rstrip(chr(10))}\n{added}"
    else:
        fields |= {"decision": None, "decided_by": None, "why": None}
    return note.set(fields, body)


def folder(errand: Errand) -> str:
    """Return the folder in which the note of a mail belongs."""
    return {"done": DONE, "failed": FAILED}.get(errand.state, NEEDS_ACTION)


@dataclass(slots=True)
class Sheets:
    """Writes the notes of mail, and takes in what was done to them."""

    vault: Vault
    ledger: Ledger
    say: Callable[[str], None]
    broken: dict[str, str] = field(default_factory=dict)  # notes of a person's that do not parse
    amiss: dict[str, str] = field(default_factory=dict)  # what stood in the way in this round
    _seen: dict[str, File] = field(default_factory=dict)  # strangers that were looked at

    @property
    def _placing(self) -> Placing:
        return Placing(self.vault, self.ledger)

    # Writing

    def begin(self, errands: Sequence[tuple[Errand, Came, Facts]]) -> None:
        """Write the notes of mails that have come in; each is in the ledger before it is in the vault."""
        begun: list[tuple[Errand, str, bytes]] = []
        taken: set[str] = set()
        with self.ledger.write() as book:
            for errand, mail, known in errands:
                name, data = name_of(errand.account, mail), written(errand.account, mail)
                path = self._placing.free(NEEDS_ACTION, name)
                while path in taken:  # two accounts have a mail of one name
                    path = f"{path.removesuffix('.md')} 2.md"
                taken.add(path)
                book.intend(errand.key, path, hashlib.sha256(data).hexdigest())
                noted = book.change(errand, thread=mail.thread, facts=facts_json(known))
                begun.append((noted, path, data))
        made = []
        for errand, path, data in begun:
            try:
                made.append((errand, path, data, self.vault.create(path, data)))
            except Conflict:  # somebody took the name in this moment: the next round finds another
                continue
        with self.ledger.write(synced=False) as book:
            for errand, path, data, file in made:
                book.written(errand.key, _placed(path, data, file))
                book.shown(book.change(errand, state="pending", changed=errand.changed))

    def finish(self, errand: Errand) -> bool:
        """Bring the writing of a new note to its end that was interrupted; return whether it had begun."""
        found = self._placing.finish(errand.key)
        begun = self.ledger.intended(errand.key)[0]
        if not found and begun and errand.state == "found":
            # A person may have edited it before we could write down that it is there.
            edited = self._named(errand, begun)
            found = (begun, *edited) if edited else None
        if found:
            with self.ledger.write(synced=False) as book:
                book.written(errand.key, _placed(*found))
                if errand.state == "found":
                    book.shown(book.change(errand, state="pending", changed=errand.changed))
        return found is not None

    def unchanged(self, errand: Errand) -> bool:
        """Whether the note of a mail still has the text that it last had."""
        place = self.ledger.place(errand.key)
        try:
            return hashlib.sha256(self.vault.read(place.path)[0]).hexdigest() == place.hash
        except PostroomError:
            return False

    def filed(self, errand: Errand, mail: Came) -> bool:
        """Whether a note of this mail stands in Done/: tools cannot have put it there."""
        return self.vault.stat(f"{DONE}/{name_of(errand.account, mail)}") is not None

    def noted(self, errand: Errand, mail: Came, known: Facts) -> bool:
        """Go on with a note of this mail that is there already: the ledger came from a backup."""
        path = f"{NEEDS_ACTION}/{name_of(errand.account, mail)}"
        found = self._named(errand, path)
        if not found or path in self.ledger.standing(NEEDS_ACTION):
            return False
        with self.ledger.write() as book:
            book.written(errand.key, _placed(path, *found))
            book.change(errand, state="pending", thread=mail.thread, facts=facts_json(known))
        return True

    def follow(self, errand: Errand) -> None:
        """Bring the note to what the ledger has; somebody who is at it meanwhile is not disturbed."""
        self.finish(errand)
        place = self.ledger.place(errand.key)
        if not place.path:
            return
        try:
            raw, file = self.vault.read(place.path)
            note = Note.parse(raw)
            if hashlib.sha256(raw).hexdigest() != place.hash and _done(note):
                errand = self._filed(errand)  # a person was quicker
            new = shown(errand, note, self._link(errand)).raw
            at, _, name = place.path.rpartition("/")
            path = place.path
            if at == folder(errand):
                file = self.vault.replace(path, new, file) if new != raw else file
            else:
                path = self._placing.intended(errand.key, folder(errand), name, new)
                file = self.vault.move(place.path, path, file, new if new != raw else None)
        except Corrupt as why:
            self._quarantine(errand, place, why)
            return
        except (Conflict, NotFound):
            return
        with self.ledger.write(synced=False) as book:
            book.written(errand.key, _placed(path, new, file))
            book.shown(errand)

    def guarded(
        self, act: Callable[..., None], errand: Errand, *more: object, **how: object
    ) -> None:
        """Do it; what stands in its way there must not keep all other mail waiting."""
        try:
            act(errand, *more, **how)
        except PostroomError as why:
            path = self.ledger.place(errand.key).path or errand.message
            self.amiss[path] = f"{why.message.rstrip('.')}. {why.remedy}".strip()
            self.say(f"{path}: {self.amiss[path]}")

    def _link(self, errand: Errand) -> str:
        """Return the link to the letter that answers a mail."""
        return link(self.ledger.place(errand.letter).path, errand.letter) if errand.letter else ""

    def _filed(self, errand: Errand) -> Errand:
        if errand.state == "done":
            return errand
        with self.ledger.write() as book:
            return book.change(errand, state="done", by=BY_HAND, held="")

    def _quarantine(self, errand: Errand, place: Place, why: Corrupt) -> None:
        """Put a note of ours that does not parse any more aside, as it is, with the reason beside it."""
        name, path, raw = place.path.rpartition("/")[2], place.path, b""
        file = self.vault.stat(path)
        with suppress(Corrupt):  # one that is too large to be read is moved all the same
            raw, file = self.vault.read(path)
        if file is None:
            return
        if errand.state != "failed":
            with self.ledger.write() as book:
                errand = book.change(errand, state="failed", held=why.message)
        if not path.startswith(f"{FAILED}/"):
            path = self._placing.intended(errand.key, FAILED, name, raw)
            file = self.vault.move(place.path, path, file)
        beside = f"{path.removesuffix('.md')} (why).md"
        if self.vault.stat(beside) is None:
            said = f"{why.message}. Mend the note, and move it back to {NEEDS_ACTION}/."
            fields = {"status": "failed", "reason": why.message, "note": path.rpartition("/")[2]}
            self.vault.create(beside, render(fields, f"\n{quote(said)}\n"))
        with self.ledger.write(synced=False) as book:
            book.written(errand.key, _placed(path, raw, file))
            book.shown(errand)
        self.say(f"{place.path} does not parse any more and went to {FAILED}/: {why.message}.")

    # What people did

    def look(self) -> None:
        """Take in what was done to the notes of mail that is still to be dealt with."""
        self.amiss.clear()
        if not self.vault.is_folder(NEEDS_ACTION):
            return  # a sync client may be about to bring it: nothing in it was deleted
        open_states = ("pending", "decided", "drafted", "needs_info", "delegated")
        with self.ledger.write(synced=False) as book:
            errands = {errand.key: errand for errand in book.errands(*open_states)}
            # A note that has not followed yet is not where it belongs, and its status nobody's word.
            behind = {errand.key: errand for errand in book.unfollowed()}
        standing = dict(self.ledger.standing(NEEDS_ACTION).values())
        places = {key: standing.get(key) or self.ledger.place(key) for key in errands}
        paths = [place.path for place in places.values()]
        for (key, place), file in zip(places.items(), self.vault.stats(paths), strict=True):
            if file is None:
                self.guarded(self._missing, errands[key], place)
            elif file[1:] != place[-3:]:
                self.guarded(self._touched, errands[key], place, shown=key not in behind)
        self._strangers(errands | behind)

    def _touched(self, errand: Errand, place: Place, *, shown: bool) -> None:
        try:
            raw, file = self.vault.read(place.path)
            note = Note.parse(raw)
        except Corrupt as why:
            self._quarantine(errand, place, why)
            return
        except PostroomError:
            return
        with self.ledger.write(synced=False) as book:
            book.set_place(errand.key, _placed(place.path, raw, file))
        self._worded(errand, note, shown=shown)

    def _worded(self, errand: Errand, note: Note, *, shown: bool) -> None:
        """Take a status that a person wrote for their word: `done`, or `pending` to be judged again."""
        status = note.text("status").strip().casefold()
        if status == "done":
            self._change(errand, state="done", by=BY_HAND, held="")
        elif status == "pending" and shown and errand.state in ("needs_info", "delegated"):
            self._change(errand, **_AGAIN)
        elif status != STATUS.get(errand.state, errand.state):
            if shown:
                said = (
                    "what you write there counts as `done`, or as `pending` where it waits for you"
                )
                self.say(
                    f"The status of {self.ledger.place(errand.key).path} was put back: {said}."
                )
            self.follow(errand)

    def _change(self, errand: Errand, **changes: str | int | float) -> None:
        try:
            with self.ledger.write() as book:
                errand = book.change(errand, **changes)
        except Conflict:
            return
        self.follow(errand)

    def _missing(self, errand: Errand, place: Place) -> None:
        name = place.path.rpartition("/")[2]
        if self.finish(errand) or not place.path or self._renamed(errand):
            return
        if self._is_of(errand, f"{DONE}/{name}"):
            self._adopt(errand, f"{DONE}/{name}", state="done", by=BY_HAND, held="")
            return
        for where in ELSEWHERE:
            path = f"{where}/{name}"
            if self._is_of(errand, path) and (file := self.vault.stat(path)):
                self.say(f"{path} is a mail, and went back to {NEEDS_ACTION}/.")
                self._adopt(errand, self._placing.put_back(path, file, NEEDS_ACTION))
                return
        if self.vault.stat(place.path) is None:  # an editor may have put it back meanwhile
            self.say(
                f"{place.path} was deleted or taken away: nothing more is done about that mail."
            )
            with self.ledger.write() as book:
                book.shown(book.change(errand, state="gone", by=BY_HAND))

    def _renamed(self, errand: Errand) -> bool:
        known = self.ledger.standing(NEEDS_ACTION)
        for file in self.vault.list(NEEDS_ACTION):
            path = f"{NEEDS_ACTION}/{file.name}"
            of = known.get(path, ("",))[0]
            if of in ("", errand.key) and self._is_of(errand, path):
                self._adopt(errand, path)
                return True
        return False

    def _is_of(self, errand: Errand, path: str) -> bool:
        """Whether a note is the one that we wrote of this mail: it names it, and is that very file or text.

        Else anybody could write one that names a mail.
        """
        if not (found := self._named(errand, path)):
            return False
        raw, file = found
        place = self.ledger.place(errand.key)
        if hashlib.sha256(raw).hexdigest() == place.hash or path.startswith(f"{DONE}/"):
            return True
        mended = errand.state == "failed" and self.vault.stat(place.path) is None
        # Not in Plans/, where tools may write: a number that is free again is given to another file.
        same = file.inode == place.inode and not path.startswith(f"{PLANS}/")
        return same or mended

    def _named(self, errand: Errand, path: str) -> tuple[bytes, File] | None:
        """Return a note that names this mail, and that no tool made where tools make notes."""
        if self.ledger.meta(f"made {path}"):
            return None
        try:
            raw, file = self.vault.read(path)
            note = Note.parse(raw)
        except PostroomError:
            return None
        names = (note.text("type"), note.text("account"), note.text("id"))
        return (raw, file) if names == (MAIL, errand.account, errand.message) else None

    def _adopt(self, errand: Errand, path: str, **changes: str) -> None:
        """Go on with a note where a person put it."""
        try:
            raw, file = self.vault.read(path)
        except PostroomError:
            return
        with self.ledger.write(synced=False) as book:
            book.set_place(errand.key, _placed(path, raw, file))
        if changes:
            self._change(errand, **changes)

    def _strangers(self, errands: Mapping[str, Errand]) -> None:
        """Look at notes that are nobody's: one that a person brought back is its mail's again."""
        known = self.ledger.standing(NEEDS_ACTION)
        there: dict[str, File] = {}
        broken: dict[str, str] = {}
        for file in self.vault.list(NEEDS_ACTION):
            path = f"{NEEDS_ACTION}/{file.name}"
            if path in known and known[path][0] in errands:
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
                    self._brought_back(path, note, errands)
        self._seen, self.broken = there, broken

    def _brought_back(self, path: str, note: Note, errands: Mapping[str, Errand]) -> None:
        with self.ledger.write(synced=False) as book:
            errand = book.errand(note.text("account"), note.text("id"))
        if errand is None or errand.key in errands or errand.state in ("found", "before", "aside"):
            return
        if not self._is_of(errand, path):
            return  # what it says of itself counts for nothing
        beside = f"{FAILED}/{path.rpartition('/')[2].removesuffix('.md')} (why).md"
        if errand.state == "failed" and (file := self.vault.stat(beside)):
            with suppress(PostroomError):  # it told what is mended now
                self.vault.remove(beside, file)
        self.say(f"{path} was brought back, and is judged again.")
        self._adopt(errand, path, **_AGAIN)


_AGAIN: Final = {
    "state": "pending",
    "judgement": "",
    "by": "",
    "held": "",
    "wish": "",
    "letter": "",
}


def _placed(path: str, data: bytes, file: File) -> Place:
    return NOWHERE._replace(
        path=path,
        hash=hashlib.sha256(data).hexdigest(),
        size=file.size,
        mtime=file.mtime_ns,
        inode=file.inode,
    )
