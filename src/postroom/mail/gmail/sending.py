"""Sending through Gmail, so that what became of a letter can be proved.

Google gives a mail another Message-ID than it was handed, and its search lags, so that not finding
a letter proves nothing. A draft does: sending it consumes it, once. So the letter is first stored
as a draft, whose id the desk keeps. The act carries the approved bytes again, in case somebody
changed the draft in between. After a lost answer, a draft that is still there proves that nothing
was sent so far; the next try goes by the same draft, so that if the first request is carried out
late, one of the two finds it gone. Where it is gone, the sent mail is looked for by its header in
what happened since, among the newest under Accepted and in its conversation.

With `by_draft` false the letter goes out by one `messages.send`; a lost answer is then only ever
settled by finding the mail, and a refusal is Gmail's own error alone.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from postroom.core.errors import NotFound, PostroomError, Unavailable, Uncertain
from postroom.core.letter import Letter
from postroom.core.message import DRAFT, SENT
from postroom.mail.gmail.api import USER, Api, Json, at
from postroom.mail.gmail.payload import inner, name, names, number, rows
from postroom.mail.mailbox import Accepted, Changes, NotSent, SendOutcome, Unproven

MARK: Final = "X-Postroom-Letter"
HEADERS: Final = (MARK, "Message-ID", "X-Google-Original-Message-ID")
MAX_PAGES: Final = 200  # of history, and of drafts
NEWEST: Final = 50  # sent mails, or drafts, that are looked through

_PROOF: Final = re.compile(r"(draft|message):([A-Za-z0-9_-]{0,128}):([0-9]{0,20})")


class Outgoing:
    """How letters leave an account, and how it is told that they did."""

    def __init__(self, api: Api, *, by_draft: bool) -> None:
        self._api = api
        self._by_draft = by_draft

    def prepare(self, letter: Letter, wire: bytes) -> str:
        """Return what will prove what became of the letter; nothing leaves."""
        if not self._by_draft:
            return f"message::{self.now()}"
        mail = in_thread(letter)
        made = self._api.act(f"{USER}/drafts", {"message": mail}, mail, wire)
        history = 0
        with suppress(PostroomError):  # without it, the newest sent mails are looked through
            place = f"{USER}/messages/{name(inner(made), 'id')}"
            found = self._api.get(place, format="minimal", fields="historyId")
            history = number(found, "historyId")
        return f"draft:{name(made, 'id')}:{history or ''}"

    def send(self, letter: Letter, wire: bytes, proof: str) -> Accepted:
        """Send by one request, which is never repeated."""
        kind, draft, _ = _read(proof)
        mail = in_thread(letter)
        if kind == "message":
            return _accepted(self._api.act(f"{USER}/messages/send", mail, mail, wire))
        body: Json = {"id": draft, "message": mail}
        return _accepted(self._api.act(f"{USER}/drafts/send", body, mail, wire))

    def find_outcome(self, letter: Letter, proof: str) -> SendOutcome:
        """Say what became of a letter; a draft that is still there proves that it was not sent."""
        if not proof:
            return self._find(letter, "") or NotSent("nothing had been handed to Gmail yet")
        kind, draft, history = _read(proof)
        if kind == "draft" and self._is_there(draft):
            return NotSent("its draft is still in Gmail, unsent")
        if found := self._find(letter, history):
            return found
        if kind == "draft":  # a person deleted it, or Gmail does not show yet what it sent
            return Unproven("its draft is gone, and no sent mail of it was found", final=True)
        return Unproven("Gmail shows no sent mail of this letter, which proves nothing")

    def release(self, proof: str) -> bool:
        """Delete the draft of a letter that does not leave after all; false where it is gone."""
        kind, draft, _ = _read(proof)
        return kind == "message" or self._delete(draft)

    def _is_there(self, draft: str) -> bool:
        try:
            self._api.get(f"{USER}/drafts/{draft}", format="minimal", fields="id")
        except NotFound:
            return False
        return True

    def _delete(self, draft: str) -> bool:
        """Delete a draft by one request: were it repeated, nobody could tell who did it."""
        try:
            self._api.act(f"{USER}/drafts/{draft}", method="DELETE")
        except NotFound:
            return False
        return True

    def sweep(self, letter: Letter, proof: str) -> bool:
        """Delete drafts of this letter but that of the proof; return whether more may be listed later."""
        if not self._by_draft:
            return False
        kept = _read(proof)[1] if proof else ""
        found = self._api.get(f"{USER}/drafts", maxResults=NEWEST, fields="drafts(id,message/id)")
        drafts = {name(inner(row), "id"): name(row, "id") for row in rows(found, "drafts")}
        orphans = [mail for mail, draft in drafts.items() if draft != kept]
        for mail in self._marked(orphans, letter):
            self._delete(drafts[name(mail, "id")])
        return True

    # Finding what was sent

    def _find(self, letter: Letter, history: str) -> Accepted | None:
        """Return the sent mail of this letter: by the history, among the newest, in its conversation."""
        for look, place in (
            (self._since, history),
            (self._newest, SENT),
            (self._in_thread, letter.thread),
        ):
            ids: list[str] = []
            with suppress(NotFound):  # Gmail keeps its history for about a week
                ids = look(place) if place else []
            for mail in self._marked(ids, letter):
                labels = names(mail, "labelIds")
                if SENT in labels and DRAFT not in labels:
                    return Accepted(name(mail, "id"), name(mail, "threadId"))
        return None

    def _since(self, history: str) -> list[str]:
        happened = self.since(history, labelId=SENT)
        return list(dict.fromkeys([*happened.added, *happened.relabelled]))

    def _newest(self, label: str) -> list[str]:
        # By label and not by search, which lags.
        found = self._api.get(
            f"{USER}/messages", labelIds=label, maxResults=NEWEST, fields="messages(id)"
        )
        return [name(row, "id") for row in rows(found, "messages")]

    def _in_thread(self, thread: str) -> list[str]:
        place = f"{USER}/threads/{thread}"
        found = self._api.get(place, format="minimal", fields="messages(id)")
        return [name(row, "id") for row in rows(found, "messages")][-NEWEST:]

    def _marked(self, ids: list[str], letter: Letter) -> list[Json]:
        """Return those of these mails that are this letter."""
        fields = "id,threadId,labelIds,payload(headers)"
        paths = [
            at(f"{USER}/messages/{id}", format="metadata", metadataHeaders=HEADERS, fields=fields)
            for id in ids
        ]
        found = []
        for mail in self._api.many(paths):
            if isinstance(mail, NotFound):
                continue
            if isinstance(mail, PostroomError):
                raise mail
            if _is(mail, letter):
                found.append(mail)
        return found

    # Gmail's history

    def now(self) -> str:
        """Return the cursor of now."""
        try:
            return _cursor(self._api.get(f"{USER}/profile", fields="historyId"))
        except NotFound:  # a service that has no profile: its newest mail knows as well
            listed = self._api.get(f"{USER}/messages", maxResults=1, fields="messages(id)")
            for row in rows(listed, "messages"):
                place = f"{USER}/messages/{name(row, 'id')}"
                return _cursor(self._api.get(place, format="minimal", fields="historyId"))
            return "1"  # before anything

    def since(self, cursor: str, **only: str) -> Changes:
        """Return what happened since the cursor, or raise `NotFound` where Gmail does not know it."""
        if not re.fullmatch(r"[1-9][0-9]{0,19}", cursor):
            raise NotFound("That is no cursor of Gmail's")
        added: dict[str, None] = {}
        relabelled: dict[str, None] = {}
        removed: dict[str, None] = {}
        kinds = {
            "messagesAdded": added,
            "labelsAdded": relabelled,
            "labelsRemoved": relabelled,
            "messagesDeleted": removed,
        }
        token = ""
        for _ in range(MAX_PAGES):
            page = self._api.get(
                f"{USER}/history", startHistoryId=cursor, maxResults=500, pageToken=token, **only
            )
            for record in rows(page, "history"):
                for kind, into in kinds.items():
                    for row in rows(record, kind):
                        into[name(inner(row), "id")] = None
            last = _cursor(page)
            more = page.get("nextPageToken")
            if not isinstance(more, str) or more == token:
                return Changes(last, tuple(added), tuple(relabelled), tuple(removed))
            token = more
        raise NotFound("More happened since than can be followed")


def in_thread(letter: Letter) -> Json:
    """Return the message of a request, without its bytes: the conversation that it belongs to."""
    return {"threadId": letter.thread} if letter.thread else {}


def _read(proof: str) -> tuple[str, str, str]:
    found = _PROOF.fullmatch(proof)
    if not found:
        raise Unavailable("What the ledger keeps of this letter is no proof of Gmail's")
    return found[1], found[2], found[3]


def _cursor(found: Json) -> str:
    """Return the history id that Gmail must have given."""
    if id := number(found, "historyId"):
        return str(id)
    raise Unavailable("Gmail's answer lacks its historyId", remedy="Try again in a while.")


def _accepted(answer: Json) -> Accepted:
    try:
        return Accepted(name(answer, "id"), name(answer, "threadId"))
    except Unavailable as garbled:
        raise Uncertain(garbled.message, remedy="Look at Accepted.") from garbled


def _is(mail: Json, letter: Letter) -> bool:
    headers = rows(inner(mail, "payload"), "headers")
    wanted = {MARK.lower(): letter.id}
    wanted |= dict.fromkeys((key.lower() for key in HEADERS[1:]), letter.message_id)
    return any(
        str(row.get("value", "")).strip() == wanted.get(str(row.get("name", "")).lower())
        for row in headers
    )
