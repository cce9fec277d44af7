"""Sending through Gmail in a way that can prove whether a letter was sent.

Google replaces the Message-ID that it is given, and its search lags, so not finding a letter proves nothing. A draft
does: sending consumes it, once. The letter is first stored as a draft, whose id the desk keeps. `drafts.send` carries the
approved bytes again, in case somebody changed the draft. After a lost answer, a draft that is still there proves that
nothing was sent; the next try uses it again, so that of two requests one finds it gone. If it is gone, the sent mail is
looked for by its header: in the history since, among the newest under Sent, and in its conversation.

With `by_draft` false the letter is sent by one `messages.send`; a lost answer is then resolved only by finding the mail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from postroom.core.errors import NotFound, PostroomError, Unavailable, Uncertain
from postroom.core.letter import Letter
from postroom.core.message import DRAFT, SENT
from postroom.mail.gmail import formats
from postroom.mail.gmail.api import USER, GmailApi, Value, with_query
from postroom.mail.gmail.formats import Json, id_field, number_field, object_field, object_list
from postroom.mail.mailbox import Accepted, Changes, NotSent, SendOutcome, Unproven

MARK: Final = "X-Postroom-Letter"
ID_HEADERS: Final = ("Message-ID", "X-Google-Original-Message-ID")
MAX_PAGES: Final = 200  # of history, and of drafts
NEWEST: Final = 50  # sent mails, or drafts, that are searched
HISTORY_KINDS: Final = {
    "messagesAdded": "added", "labelsAdded": "relabelled",
    "labelsRemoved": "relabelled", "messagesDeleted": "removed",
}  # fmt: skip


class GmailSender:
    def __init__(self, api: GmailApi, *, by_draft: bool) -> None:
        self._api = api
        self._by_draft = by_draft

    def prepare(self, letter: Letter, wire: bytes) -> str:
        """Return the id of a draft that has the letter, and its place in the history."""
        if not self._by_draft:
            return f"message::{current_cursor(self._api)}"
        made = self._api.act_with_new_token(
            f"{USER}/drafts", {"message": thread_reference(letter)}, wire
        )
        history = 0
        with suppress(PostroomError):  # without it, the newest sent mails are searched
            path = f"{USER}/messages/{id_field(object_field(made))}"
            found = self._api.get(path, format="minimal", fields="historyId")
            history = number_field(found, "historyId")
        return f"draft:{id_field(made)}:{history or ''}"

    def send(self, letter: Letter, wire: bytes, proof: str) -> Accepted:
        kind, draft, _ = _parse_proof(proof)
        path, body = f"{USER}/messages/send", thread_reference(letter)
        if kind == "draft":
            path, body = f"{USER}/drafts/send", {"id": draft, "message": body}
        answer = self._api.act(path, body, wire)
        try:
            return Accepted(id_field(answer), id_field(answer, "threadId"))
        except Unavailable as garbled:
            uncertain = Uncertain(garbled.message, remedy="Look at Sent.")
            uncertain.status = 200
            raise uncertain from garbled

    def find_outcome(self, letter: Letter, proof: str) -> SendOutcome:
        """Return what became of a letter; a draft that is still there proves that it was not sent."""
        if not proof:
            return self._find(letter, "") or NotSent("nothing had been handed to Gmail yet")
        kind, draft, history = _parse_proof(proof)
        if kind == "draft" and self._exists(draft):
            return NotSent("its draft is still in Gmail, unsent")
        if found := self._find(letter, history):
            return found
        if kind == "draft":  # a person deleted it, or Gmail does not show yet what it sent
            return Unproven("its draft is gone, and no sent mail of it was found", final=True)
        return Unproven("Gmail shows no sent mail of this letter, which proves nothing")

    def release(self, proof: str) -> bool:
        kind, draft, _ = _parse_proof(proof)
        return kind == "message" or self._delete(draft)

    def sweep(self, letter: Letter, proof: str = "") -> bool:
        """Delete drafts of this letter except that of the proof; return whether more may be listed later."""
        if not self._by_draft:
            return False
        current = _parse_proof(proof)[1] if proof else ""
        listed = self._api.get(f"{USER}/drafts", maxResults=NEWEST, fields="drafts(id,message/id)")
        rows = [row for row in object_list(listed, "drafts") if id_field(row) != current]
        drafts = {id_field(object_field(row)): id_field(row) for row in rows}
        for mail in self._with_mark(list(drafts), letter):
            self._delete(drafts[id_field(mail)])
        return True

    def _exists(self, draft: str) -> bool:
        with suppress(NotFound):
            self._api.get(f"{USER}/drafts/{draft}", format="minimal", fields="id")
            return True
        return False

    def _delete(self, draft: str) -> bool:
        """Delete a draft by one request: a repeated one could not tell who deleted it."""
        with suppress(NotFound):
            self._api.act_with_new_token(f"{USER}/drafts/{draft}", method="DELETE")
            return True
        return False

    def _find(self, letter: Letter, history: str) -> Accepted | None:
        for ids in self._candidates(letter.thread, history):
            for mail in self._with_mark(ids, letter):
                labels = formats.label_ids(mail)
                if SENT in labels and DRAFT not in labels:
                    return Accepted(id_field(mail), id_field(mail, "threadId"))
        return None

    def _candidates(self, thread: str, history: str) -> Iterator[list[str]]:
        """Yield mails that may be the sent one: from the history, the newest, and its conversation."""
        if history:
            with suppress(NotFound):  # Gmail keeps its history for about a week
                changes = changes_since(self._api, history, labelId=SENT)
                yield list(dict.fromkeys([*changes.added, *changes.relabelled]))
        fields = "messages(id)"
        with suppress(NotFound):  # by label and not by search, which lags
            path = f"{USER}/messages"
            yield _ids(self._api.get(path, maxResults=NEWEST, labelIds=SENT, fields=fields))
        if thread:
            with suppress(NotFound):
                path = f"{USER}/threads/{thread}"
                yield _ids(self._api.get(path, format="minimal", fields=fields))[-NEWEST:]

    def _with_mark(self, ids: list[str], letter: Letter) -> list[Json]:
        fields, headers = "id,threadId,labelIds,payload(headers)", (MARK, *ID_HEADERS)
        how = {"format": "metadata", "fields": fields, "metadataHeaders": headers}
        paths = [with_query(f"{USER}/messages/{id}", **how) for id in ids]
        return [mail for mail in self._api.get_many(paths) if _is_letter(mail, letter)]


def thread_reference(letter: Letter) -> Json:
    """Return the message of a request without its bytes: the conversation that it belongs to."""
    return {"threadId": letter.thread} if letter.thread else {}


def _parse_proof(proof: str) -> tuple[str, str, str]:
    found = re.fullmatch(r"(draft|message):([A-Za-z0-9_-]{0,128}):([0-9]{0,20})", proof)
    if not found:
        raise Unavailable("What the ledger keeps of this letter is not a proof of Gmail's")
    return found[1], found[2], found[3]


def _is_letter(mail: Json, letter: Letter) -> bool:
    wanted = {MARK.lower(): letter.id} | {name.lower(): letter.message_id for name in ID_HEADERS}
    return any(
        str(row.get("value", "")).strip() == wanted.get(str(row.get("name", "")).lower())
        for row in object_list(object_field(mail, "payload"), "headers")
    )


def _ids(answer: Json) -> list[str]:
    return [id_field(row) for row in object_list(answer, "messages")]


def current_cursor(api: GmailApi) -> str:
    try:
        return _history_id(api.get(f"{USER}/profile", fields="historyId"))
    except NotFound:  # a service without profile: its newest mail has the id too
        for id in _ids(api.get(f"{USER}/messages", maxResults=1, fields="messages(id)")):
            path = f"{USER}/messages/{id}"
            return _history_id(api.get(path, format="minimal", fields="historyId"))
        return "1"  # before anything


def changes_since(api: GmailApi, cursor: str, **only: str) -> Changes:
    """Return what changed since the cursor, or raise `NotFound` if Gmail does not know it."""
    if not re.fullmatch(r"[1-9][0-9]{0,19}", cursor):
        raise NotFound("This is not a cursor of Gmail's")
    found = list(pages(api, f"{USER}/history", startHistoryId=cursor, **only))
    if len(found) == MAX_PAGES:
        raise NotFound("More happened since than can be followed")
    changes = (
        (kind, id_field(object_field(row)))
        for page in found
        for record in object_list(page, "history")
        for key, kind in HISTORY_KINDS.items()
        for row in object_list(record, key)
    )
    return Changes.collect(_history_id(found[-1]), changes)


def pages(api: GmailApi, path: str, **params: Value) -> Iterator[Json]:
    token = ""
    for _ in range(MAX_PAGES):
        page = api.get(path, maxResults=500, pageToken=token, **params)
        yield page
        following = page.get("nextPageToken")
        if not isinstance(following, str) or following == token:
            return
        token = following


def _history_id(answer: Json) -> str:
    if id := number_field(answer, "historyId"):
        return str(id)
    raise formats.malformed("lacks its historyId")
