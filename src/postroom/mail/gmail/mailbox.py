"""A Gmail account as a `Mailbox`.

It fetches as little as possible: ids first, then the headers of all of them in one batch, and the bytes of a mail when it
is read. A mail larger than `LARGE` is never fetched whole: its texts are, and an attachment is streamed when it is wanted.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx2

from postroom.core.address import Address
from postroom.core.errors import Conflict, Invalid, NotFound, Unavailable
from postroom.core.language import parse
from postroom.core.letter import Letter
from postroom.core.message import DRAFT, SYSTEM_LABELS, Message, Thread, label_key, system_label
from postroom.core.values import dataclass
from postroom.mail import mime
from postroom.mail.gmail import formats
from postroom.mail.gmail.api import USER, GmailApi, Value, with_query
from postroom.mail.gmail.formats import Json, id_field, number_field, object_field, object_list
from postroom.mail.gmail.oauth import TokenStore, sign_in_remedy
from postroom.mail.gmail.sending import (
    GmailSender,
    changes_since,
    current_cursor,
    pages,
    thread_reference,
)
from postroom.mail.mailbox import (
    AttachmentStream,
    Changes,
    MailboxDraft,
    RelabelResult,
    SearchPage,
    check_label_change,
    check_page_size,
    draft_changed,
    invalid_cursor,
    new_label_name,
    no_attachment,
    not_found,
)

LABEL_SECONDS: Final = 300.0  # for which names are cached; a person may rename one at any time
OWN_SECONDS: Final = 600.0  # for which the account's own addresses are cached
CACHED_SIZES: Final = 5_000  # mails whose size is known from a list
LABELS: Final = f"{USER}/labels"

# Where Gmail's id of a system label is not its name here.
_LABEL_IDS: Final = {"CATEGORY_PRIMARY": "CATEGORY_PERSONAL"}
_LABEL_NAMES: Final = {_LABEL_IDS.get(name, name): name for name in SYSTEM_LABELS}


@dataclass(slots=True)
class LabelCache:
    """The account's labels, fetched as seldom as possible."""

    _api: GmailApi
    _now: Callable[[], float]
    _own: dict[str, str] = field(default_factory=dict)  # id → name, of the person's own
    _fetched: float = -LABEL_SECONDS

    @property
    def _is_stale(self) -> bool:
        return not 0 <= self._now() - self._fetched < LABEL_SECONDS

    def _fetch(self) -> None:
        rows = object_list(self._api.get(LABELS, fields="labels(id,name,type)"), "labels")
        names = {formats.text_field(row, "id"): formats.text_field(row, "name") for row in rows}
        # Replaced as a whole: other threads read it meanwhile.
        self._own = {id: name for id, name in names.items() if id not in _LABEL_NAMES}
        self._fetched = self._now()

    def all(self) -> tuple[str, ...]:
        self._fetch()
        return (*sorted(SYSTEM_LABELS), *sorted(self._own.values(), key=str.casefold))

    def names(self, ids: Iterable[str]) -> frozenset[str]:
        """Return the names of these labels, asking Gmail for those that are not known yet; an unknown one keeps its id."""
        wanted = frozenset(ids)
        own = wanted - _LABEL_NAMES.keys()
        if own and (self._is_stale or own - self._own.keys()):
            self._fetch()
        return frozenset(_LABEL_NAMES.get(id) or self._own.get(id, id) for id in wanted)

    def find(self, name: str) -> str | None:
        if known := system_label(name):
            return _LABEL_IDS.get(known, known)
        if self._is_stale:
            self._fetch()
        spellings: tuple[Callable[[str], str], ...] = (str, str.casefold, label_key)
        pairs = [(spelling, id) for spelling in spellings for id in self._own]
        return next((id for like, id in pairs if like(self._own[id]) == like(name)), None)

    def find_or_create(self, name: str) -> str:
        if found := self.find(name):
            return found
        try:
            made = self._api.change("POST", LABELS, {"name": new_label_name(name)})
        except Conflict:  # created meanwhile, by somebody else or by a try whose answer was lost
            self._fetch()
            if found := self.find(name):
                return found
            raise
        id = formats.text_field(made, "id")
        self._own = {**self._own, id: formats.text_field(made, "name")}
        return id


class GmailMailbox(GmailSender):
    """One Gmail account; `Mailbox` documents the methods."""

    def __init__(self, api: GmailApi, *, now: Callable[[], float], by_draft: bool = True) -> None:
        super().__init__(api, by_draft=by_draft)
        self._now = now
        self._labels = LabelCache(api, now)
        self._sizes: dict[str, int] = {}
        self._own: tuple[Address, ...] = ()
        self._own_fetched, self._sign_in_id = -OWN_SECONDS, ""

    def close(self) -> None:
        self._api.close()

    def own_addresses(self) -> tuple[Address, ...]:
        id = self._api.tokens.sign_in_id  # another person may have signed in meanwhile
        if id != self._sign_in_id or not 0 <= self._now() - self._own_fetched < OWN_SECONDS:
            rows = object_list(self._api.get(f"{USER}/settings/sendAs"), "sendAs")
            rows.sort(key=lambda row: (not row.get("isDefault"), not row.get("isPrimary")))
            self._own = tuple(filter(None, map(_address, rows)))
            self._own_fetched, self._sign_in_id = self._now(), self._api.tokens.sign_in_id
        if not self._own:
            raise Unavailable("Gmail returned no address for this account", remedy="Try again.")
        return self._own

    def search(self, query: str, *, limit: int = 20, cursor: str = "") -> SearchPage:
        check_page_size(limit)
        if cursor and not re.fullmatch("[!-~]{1,2000}", cursor):
            raise invalid_cursor()
        with_trash = re.search(r"(?i)\b(?:in|is|label):[\"']?(?:anywhere|spam|trash)\b", query)
        try:
            found = self._api.get(
                f"{USER}/messages",
                q=query.strip(),
                maxResults=limit,
                pageToken=cursor,
                includeSpamTrash=bool(with_trash),
                fields="messages(id),nextPageToken",
            )
        except Invalid as refused:
            raise invalid_cursor() if cursor else refused from refused
        how = {"fields": formats.SUMMARY, "format": "metadata"}
        rows, headers = object_list(found, "messages"), formats.SUMMARY_HEADERS
        paths = [_path(id_field(row), **how, metadataHeaders=headers) for row in rows]
        items = tuple(
            formats.summary(mail, self._label_names(mail)) for mail in self._api.get_many(paths)
        )
        if len(self._sizes) > CACHED_SIZES:
            self._sizes.clear()
        self._sizes.update((item.id, item.size) for item in items)
        following = found.get("nextPageToken")
        return SearchPage(items, following if isinstance(following, str) else "", _notes(query))

    def message(self, id: str) -> Message:
        with _naming("mail", id):
            found = self._api.get(_path(id, **_format(self._size(id))))
        return formats.message(found, self._label_names(found))

    def thread(self, id: str) -> Thread:
        how = {"format": "minimal", "fields": "id,messages(id,sizeEstimate)"}
        with _naming("conversation", id):
            try:
                found = self._api.get(f"{USER}/threads/{id}", **how)
            except NotFound:
                mail = self._api.get(_path(id, format="minimal", fields="threadId"))
                found = self._api.get(f"{USER}/threads/{id_field(mail, 'threadId')}", **how)
            paths = [
                _path(id_field(row), **_format(number_field(row, "sizeEstimate")))
                for row in object_list(found, "messages")
            ]
            items = self._api.get_many(paths)
        mails = [formats.message(item, self._label_names(item)) for item in items]
        if not mails:
            raise not_found("conversation", id)
        mails.sort(key=lambda mail: mail.date)
        return Thread(id_field(found), tuple(mails))

    def raw(self, id: str) -> bytes:
        with _naming("mail", id):
            return b"".join(self._api.stream(f"{USER}/messages/{id}", "raw", format="raw"))

    def attachment(self, id: str, part: str) -> AttachmentStream:
        with _naming("mail", id):
            size = self._size(id)
        if size <= formats.LARGE:
            return AttachmentStream.of(mime.attachment(self.raw(id), part))
        found = self._api.get(_path(id, **_format(size)))
        for file in formats.message(found, frozenset()).mail.attachments:
            if file.part == part:
                body = object_field(formats.parts(found["payload"])[part], "body")
                return AttachmentStream(file.name, file.type, self._pieces(id, body, file.size))
        raise no_attachment(part)

    def _pieces(self, id: str, body: Json, size: int) -> Iterator[bytes]:
        """Yield the bytes of a file as they arrive; raise `Unavailable` if some are missing."""
        if "attachmentId" not in body:
            yield formats.bytes_field(body.get("data", ""))
            return
        file = quote(formats.text_field(body, "attachmentId"), safe="")
        length = 0
        for piece in self._api.stream(f"{USER}/messages/{id}/attachments/{file}", "data"):
            length += len(piece)
            yield piece
        if size and length != size:
            raise Unavailable(
                f"Only {length:,} of {size:,} bytes arrived", remedy="Try again in a while."
            )

    def changes(self, since: str = "") -> Changes:
        if not since:
            return Changes(current_cursor(self._api))
        try:
            return changes_since(self._api, since)
        except (NotFound, Invalid):
            raise NotFound(
                "Gmail does not know that cursor, or not any more",
                remedy="Start again from a search.",
            ) from None

    def _size(self, id: str) -> int:
        size = self._sizes.get(id)  # another thread may clear them
        if size is None:
            found = self._api.get(_path(id, format="minimal", fields="sizeEstimate"))
            size = self._sizes[id] = number_field(found, "sizeEstimate")
        return size

    def labels(self) -> tuple[str, ...]:
        return self._labels.all()

    def relabel(
        self, id: str, *, add: frozenset[str] = frozenset(), remove: frozenset[str] = frozenset()
    ) -> RelabelResult:
        for label in add:
            new_label_name(label)
        with _naming("mail", id):
            found = self._api.get(_path(id, format="minimal", fields="labelIds"))
            before = self._label_names(found)
            known, removed = self._label_ids(add), self._label_ids(remove)
            names = self._labels.names
            check_label_change(before, add=names(known), remove=names(removed))
            body: Json = {
                "addLabelIds": sorted(map(self._labels.find_or_create, add)),
                "removeLabelIds": sorted(removed),
            }
            if any(body.values()):
                found = self._api.change("POST", f"{USER}/messages/{id}/modify", body)
        after = self._label_names(found)
        return RelabelResult(id, after - before, before - after)

    def _label_ids(self, labels: frozenset[str]) -> frozenset[str]:
        return frozenset(filter(None, map(self._labels.find, labels)))

    def _label_names(self, answer: Json) -> frozenset[str]:
        return self._labels.names(formats.label_ids(answer))

    def drafts(self) -> dict[str, str]:
        found = pages(self._api, f"{USER}/drafts", fields="drafts(id,message/id),nextPageToken")
        rows = (row for page in found for row in object_list(page, "drafts"))
        return {id_field(row): id_field(object_field(row)) for row in rows}

    def draft(self, id: str) -> MailboxDraft:
        version = self._draft_version(id)
        return MailboxDraft(id, version, self.message(version))

    def create_draft(self, letter: Letter, *, date: datetime) -> MailboxDraft:
        raw, body = self.wire(letter, date=date), {"message": thread_reference(letter)}
        return self._draft(self._api.act_with_new_token(f"{USER}/drafts", body, raw), raw)

    def revise_draft(
        self, id: str, letter: Letter, *, version: str, date: datetime
    ) -> MailboxDraft:
        self._check_version(id, version)
        raw, body = self.wire(letter, date=date), {"id": id, "message": thread_reference(letter)}
        with _naming("draft", id):
            return self._draft(self._api.change("PUT", f"{USER}/drafts/{id}", body, raw), raw)

    def discard_draft(self, id: str, *, version: str) -> None:
        self._check_version(id, version)
        with suppress(NotFound):  # a first try did it, and its answer was lost
            self._api.change("DELETE", f"{USER}/drafts/{id}")

    def _draft_version(self, id: str) -> str:
        with _naming("draft", id):
            found = self._api.get(f"{USER}/drafts/{id}", format="minimal", fields="message(id)")
        return id_field(object_field(found))

    def _check_version(self, id: str, version: str) -> None:
        if self._draft_version(id) != version:
            raise draft_changed(id)

    def _draft(self, answer: Json, raw: bytes) -> MailboxDraft:
        made = object_field(answer)
        version, thread = id_field(made), id_field(made, "threadId")
        labels = self._label_names(made) | {DRAFT}
        message = Message(version, thread, int(self._now()), len(raw), labels, mime.read(raw))
        return MailboxDraft(id_field(answer), version, message)

    # Sending: `GmailSender` does the rest

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        """Return the exact bytes that `send` will hand over: with Bcc, since Gmail takes no envelope."""
        return mime.build(letter, date=date, bcc=True)


def _path(id: str, **params: Value) -> str:
    return with_query(f"{USER}/messages/{id}", **params)


def _format(size: int) -> dict[str, Value]:
    if size > formats.LARGE:
        return {"format": "full", "fields": formats.PARTS}
    return {"format": "raw", "fields": formats.WHOLE}


def _address(row: Json) -> Address | None:
    """Return an own address if it is confirmed, with its display name if a letter can carry that."""
    if not row.get("isPrimary") and row.get("verificationStatus") != "accepted":
        return None
    spec, name = row.get("sendAsEmail"), row.get("displayName")
    for text in (f'"{name}" <{spec}>', spec) if name else (spec,):
        with suppress(Invalid):
            return Address.parse(text if isinstance(text, str) else "")
    return None


def _notes(query: str) -> tuple[str, ...]:
    try:
        parse(query)
    except Invalid as unknown:
        return (f"{unknown.message}; Gmail was asked for it as it stands.",)
    return ()


@contextmanager
def _naming(what: str, id: str) -> Iterator[None]:
    """Check an id, and name it in the error if Gmail has no such thing."""
    if not formats.ID.fullmatch(id):  # it becomes part of a path
        raise not_found(what, id)
    try:
        yield
    except NotFound:
        raise not_found(what, id) from None


def open_gmail(
    endpoint: str,
    token_uri: str,
    *,
    tokens: Sequence[Path],
    clients: Sequence[Path] = (),
    account: str = "",
    by_draft: bool = True,
    transport: httpx2.BaseTransport | None = None,
    now: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> GmailMailbox:
    """Return the mailbox of a Gmail account; no request is made yet.

    `tokens` and `clients` are files in the order of search; remedies name the `account`; `transport` replaces HTTP.
    """
    store = TokenStore(tokens, clients, token_uri, now, sign_in_remedy(account))
    api = GmailApi(endpoint, store, pause=pause, chance=random.random, transport=transport)
    return GmailMailbox(api, now=now, by_draft=by_draft)
