"""Sending through Gmail in a way that can prove whether a letter was sent.

Google replaces the Message-ID that it is given, and its search lags, so not finding a letter proves nothing. A draft
does: sending consumes it, once. The letter is first stored as a draft, whose id the desk keeps. `drafts.send` carries the
approved bytes again, in case somebody changed the draft. After a lost answer, a draft that is still there proves that
nothing was sent; the next try uses the same draft, so that if the first request is carried out late, one of the two finds
it gone. If it is gone, the sent mail is looked for by its header: in the history since, among the newest under Sent, and
in its conversation.

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
from postroom.mail.gmail.api import USER, GmailApi, Value, with_query
from postroom.mail.gmail.errors import Json, malformed
from postroom.mail.gmail.payload import (
    id_field,
    label_ids,
    number_field,
    object_field,
    object_list,
)
from postroom.mail.mailbox import Accepted, Changes, NotSent, SendOutcome, Unproven

MARK: Final = "X-Postroom-Letter"
ID_HEADERS: Final = ("Message-ID", "X-Google-Original-Message-ID")
MAX_PAGES: Final = 200  # of history, and of drafts
NEWEST: Final = 50  # sent mails, or drafts, that are searched

_PROOF: Final = re.compile(r"(draft|message):([A-Za-z0-9_-]{0,128}):([0-9]{0,20})")


class GmailSender:
    """Sends the letters of an account, and finds out whether they were sent."""

    def __init__(self, api: GmailApi, *, by_draft: bool) -> None:
        self._api = api
        self._by_draft = by_draft

    def prepare(self, letter: Letter, wire: bytes) -> str:
        """Store the letter as a draft and return its id and place in the history; nothing is sent."""
        if not self._by_draft:
            return f"message::{current_cursor(self._api)}"
        mail = thread_reference(letter)
        made = self._api.act(f"{USER}/drafts", {"message": mail}, mail, wire)
        history = 0
        with suppress(PostroomError):  # without it, the newest sent mails are searched
            path = f"{USER}/messages/{id_field(object_field(made))}"
            found = self._api.get(path, format="minimal", fields="historyId")
            history = number_field(found, "historyId")
        return f"draft:{id_field(made)}:{history or ''}"

    def send(self, letter: Letter, wire: bytes, proof: str) -> Accepted:
        """Send by one request, which is never repeated."""
        kind, draft, _ = _parse_proof(proof)
        mail = thread_reference(letter)
        path, body = f"{USER}/messages/send", mail
        if kind == "draft":
            path, body = f"{USER}/drafts/send", {"id": draft, "message": mail}
        answer = self._api.act(path, body, mail, wire)
        try:
            return Accepted(id_field(answer), id_field(answer, "threadId"))
        except Unavailable as garbled:
            raise Uncertain(garbled.message, remedy="Look at Sent.") from garbled

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
        """Delete the draft of a letter that is not to be sent; return False if it is gone."""
        kind, draft, _ = _parse_proof(proof)
        return kind == "message" or self._delete(draft)

    def sweep(self, letter: Letter, proof: str = "") -> bool:
        """Delete drafts of this letter except that of the proof; return whether more may be listed later."""
        if not self._by_draft:
            return False
        current = _parse_proof(proof)[1] if proof else ""
        listed = self._api.get(f"{USER}/drafts", maxResults=NEWEST, fields="drafts(id,message/id)")
        rows = object_list(listed, "drafts")
        drafts = {id_field(object_field(row)): id_field(row) for row in rows}
        others = [mail for mail, draft in drafts.items() if draft != current]
        for mail in self._with_mark(others, letter):
            self._delete(drafts[id_field(mail)])
        return True

    def _exists(self, draft: str) -> bool:
        try:
            self._api.get(f"{USER}/drafts/{draft}", format="minimal", fields="id")
        except NotFound:
            return False
        return True

    def _delete(self, draft: str) -> bool:
        """Delete a draft by one request: a repeated one could not tell who deleted it."""
        try:
            self._api.act(f"{USER}/drafts/{draft}", method="DELETE")
        except NotFound:
            return False
        return True

    def _find(self, letter: Letter, history: str) -> Accepted | None:
        """Return the sent mail of this letter: from the history, the newest, or its conversation."""
        searches = (
            (self._sent_since, history),
            (self._newest_with_label, SENT),
            (self._in_thread, letter.thread),
        )
        for search, place in searches:
            ids: list[str] = []
            with suppress(NotFound):  # Gmail keeps its history for about a week
                ids = search(place) if place else []
            for mail in self._with_mark(ids, letter):
                labels = label_ids(mail)
                if SENT in labels and DRAFT not in labels:
                    return Accepted(id_field(mail), id_field(mail, "threadId"))
        return None

    def _sent_since(self, history: str) -> list[str]:
        changes = changes_since(self._api, history, labelId=SENT)
        return list(dict.fromkeys([*changes.added, *changes.relabelled]))

    def _newest_with_label(self, label: str) -> list[str]:
        # By label and not by search, which lags.
        asked = {"labelIds": label, "fields": "messages(id)"}
        return _ids(self._api.get(f"{USER}/messages", maxResults=NEWEST, **asked))

    def _in_thread(self, thread: str) -> list[str]:
        path = f"{USER}/threads/{thread}"
        return _ids(self._api.get(path, format="minimal", fields="messages(id)"))[-NEWEST:]

    def _with_mark(self, ids: list[str], letter: Letter) -> list[Json]:
        """Return those of these mails that are this letter."""
        how = {"format": "metadata", "fields": "id,threadId,labelIds,payload(headers)"}
        headers = (MARK, *ID_HEADERS)
        paths = [with_query(f"{USER}/messages/{i}", **how, metadataHeaders=headers) for i in ids]
        found = []
        for mail in self._api.get_many(paths):
            if isinstance(mail, NotFound):
                continue
            if isinstance(mail, PostroomError):
                raise mail
            if _is_letter(mail, letter):
                found.append(mail)
        return found


def thread_reference(letter: Letter) -> Json:
    """Return the message of a request without its bytes: the conversation that it belongs to."""
    return {"threadId": letter.thread} if letter.thread else {}


def _parse_proof(proof: str) -> tuple[str, str, str]:
    found = _PROOF.fullmatch(proof)
    if not found:
        raise Unavailable("What the ledger keeps of this letter is no proof of Gmail's")
    return found[1], found[2], found[3]


def _is_letter(mail: Json, letter: Letter) -> bool:
    wanted = {MARK.lower(): letter.id} | {name.lower(): letter.message_id for name in ID_HEADERS}
    return any(
        str(row.get("value", "")).strip() == wanted.get(str(row.get("name", "")).lower())
        for row in object_list(object_field(mail, "payload"), "headers")
    )


def _ids(answer: Json) -> list[str]:
    return [id_field(row) for row in object_list(answer, "messages")]


# Gmail's history


def current_cursor(api: GmailApi) -> str:
    """Return the history id of now."""
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
    ids: dict[str, dict[str, None]] = {"added": {}, "relabelled": {}, "removed": {}}
    kinds = {
        "messagesAdded": ids["added"],
        "labelsAdded": ids["relabelled"],
        "labelsRemoved": ids["relabelled"],
        "messagesDeleted": ids["removed"],
    }
    found = list(pages(api, f"{USER}/history", startHistoryId=cursor, **only))
    if len(found) == MAX_PAGES:
        raise NotFound("More happened since than can be followed")
    for record in (record for page in found for record in object_list(page, "history")):
        for kind, changed in kinds.items():
            rows = object_list(record, kind)
            changed.update(dict.fromkeys(id_field(object_field(row)) for row in rows))
    return Changes(_history_id(found[-1]), *map(tuple, ids.values()))


def pages(api: GmailApi, path: str, **params: Value) -> Iterator[Json]:
    """Yield the pages of a long list, at most `MAX_PAGES`."""
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
    raise malformed("lacks its historyId")
