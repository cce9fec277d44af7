"""A Gmail account behind the protocols that every provider keeps.

What Gmail is asked for is kept small: ids first, then the headers of all of them in one batch, and
the bytes of a mail when it is read. A mail that is larger than `LARGE` is never fetched whole: its
texts come, and a file of it when that file is wanted, straight through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from postroom.core.address import Address
from postroom.core.errors import Invalid, NotFound, PostroomError, Unavailable
from postroom.core.language import parse
from postroom.core.letter import Letter
from postroom.core.message import DRAFT, Message, Thread
from postroom.mail import mime
from postroom.mail.gmail import payload
from postroom.mail.gmail.api import USER, Api, Json, at
from postroom.mail.gmail.labels import Labels
from postroom.mail.gmail.payload import LARGE, checked, inner, name, names, number, rows
from postroom.mail.gmail.sending import MAX_PAGES, Outgoing, in_thread
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
    not_found,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

REMEMBERED: Final = 5_000  # mails whose size is known from a list
OWN_SECONDS: Final = 600.0  # for which the account's own addresses are believed

_ASIDE: Final = re.compile(r"\b(?:in|is|label):[\"']?(?:anywhere|spam|trash)\b", re.IGNORECASE)
_CURSOR: Final = re.compile(r"[!-~]{1,2000}")


class GmailMailbox:
    """One Gmail account; what each method promises, `Mailbox` says."""

    def __init__(
        self,
        api: Api,
        *,
        now: Callable[[], float],
        by_draft: bool = True,
    ) -> None:
        self._now = now
        self._api = api
        self._labels = Labels(api, now)
        self._outgoing = outgoing = Outgoing(self._api, by_draft=by_draft)
        self.prepare, self.send, self.find_outcome = (
            outgoing.prepare,
            outgoing.send,
            outgoing.find_outcome,
        )
        self.release = outgoing.release
        self._sizes: dict[str, int] = {}
        self._own: tuple[Address, ...] = ()
        self._own_asked, self._whose = -OWN_SECONDS, ""

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    # Reading

    def own_addresses(self) -> tuple[Address, ...]:
        """Return the addresses that the account sends as, the usual one first."""
        whose = self._api.whose  # another may have signed in meanwhile
        if whose != self._whose or not 0 <= self._now() - self._own_asked < OWN_SECONDS:
            found = self._api.get(f"{USER}/settings/sendAs")
            usual = [row for row in rows(found, "sendAs") if _confirmed(row)]
            usual.sort(key=lambda row: (not row.get("isDefault"), not row.get("isPrimary")))
            self._own = tuple(filter(None, map(_address, usual)))
            self._own_asked, self._whose = self._now(), self._api.whose
        if not self._own:
            raise Unavailable("Gmail names no address of this account", remedy="Try again.")
        return self._own

    def search(self, query: str, *, limit: int = 20, cursor: str = "") -> SearchPage:
        """Return the newest mails that match, at most `limit`; Gmail reads the query itself."""
        check_page_size(limit)
        if cursor and not _CURSOR.fullmatch(cursor):
            raise invalid_cursor()
        try:
            found = self._api.get(
                f"{USER}/messages",
                q=query.strip(),
                maxResults=limit,
                pageToken=cursor,
                includeSpamTrash=bool(_ASIDE.search(query)),
                fields="messages(id),nextPageToken",
            )
        except Invalid as refused:
            raise invalid_cursor() if cursor else refused from refused
        ids = [name(row, "id") for row in rows(found, "messages")]
        how = {"fields": payload.SUMMARY, "format": "metadata"}
        items = self._all([_path(id, **how, metadataHeaders=payload.SUMMARY_HEADERS) for id in ids])
        summaries = tuple(payload.summary(item, self._named(item)) for item in items)
        if len(self._sizes) > REMEMBERED:
            self._sizes.clear()
        self._sizes.update((item.id, item.size) for item in summaries)
        more = found.get("nextPageToken")
        return SearchPage(summaries, more if isinstance(more, str) else "", _notes(query))

    def message(self, id: str) -> Message:
        with _named_missing("Message", id):
            large = self._size(id) > LARGE
            found = self._api.get(f"{USER}/messages/{id}", **_how(large=large))
        return payload.message(found, self._named(found))

    def thread(self, id: str) -> Thread:
        with _named_missing("Thread", id):
            asked = "id,messages(id,sizeEstimate)"
            try:
                found = self._api.get(f"{USER}/threads/{id}", format="minimal", fields=asked)
            except NotFound:
                mail = self._api.get(f"{USER}/messages/{id}", format="minimal", fields="threadId")
                place = f"{USER}/threads/{name(mail, 'threadId')}"
                found = self._api.get(place, format="minimal", fields=asked)
            sizes = {
                name(row, "id"): number(row, "sizeEstimate") for row in rows(found, "messages")
            }
            paths = [_path(mail, **_how(large=size > LARGE)) for mail, size in sizes.items()]
            items = self._all(paths)
        mails = [payload.message(item, self._named(item)) for item in items]
        if not mails:
            raise not_found("Thread", id)
        mails.sort(key=lambda mail: mail.date)
        return Thread(name(found, "id"), tuple(mails))

    def raw(self, id: str) -> bytes:
        with _named_missing("Message", id):
            return b"".join(self._api.stream(f"{USER}/messages/{id}", "raw", format="raw"))

    def attachment(self, id: str, part: str) -> AttachmentStream:
        with _named_missing("Message", id):
            large = self._size(id) > LARGE
        if not large:
            file = mime.attachment(self.raw(id), part)
            return AttachmentStream(file.name, file.type, iter([file.content]))
        found = self._api.get(f"{USER}/messages/{id}", **_how(large=True))
        message = payload.message(found, frozenset())
        for listed in message.mail.attachments:
            if listed.part == part:
                body = inner(payload.parts(found["payload"])[part], "body")
                pieces = self._pieces(id, body, listed.size)
                return AttachmentStream(listed.name, listed.type, pieces)
        raise NotFound(
            f"The mail has no attachment at part {part[:20]!r}",
            remedy="Read the mail: it lists its attachments.",
        )

    def _pieces(self, id: str, body: Json, size: int) -> Iterator[bytes]:
        """Yield the bytes of a file as they come, and notice where some are not_found."""
        if "attachmentId" not in body:
            yield payload.decoded(body.get("data", ""))
            return
        place = quote(payload.text(body, "attachmentId"), safe="")
        came = 0
        for piece in self._api.stream(f"{USER}/messages/{id}/attachments/{place}", "data"):
            came += len(piece)
            yield piece
        if size and came != size:
            raise Unavailable(f"{came:,} of {size:,} bytes came", remedy="Try again in a while.")

    def _size(self, id: str) -> int:
        known = self._sizes.get(checked("Message", id))
        if known is None:
            found = self._api.get(f"{USER}/messages/{id}", format="minimal", fields="sizeEstimate")
            known = self._sizes[id] = number(found, "sizeEstimate")
        return known

    def _all(self, paths: Sequence[str]) -> list[Json]:
        """Return what is at these paths, and learn the labels on the way; what is gone is left out."""
        beside = self._labels.wanted if paths else ()
        found: list[Json] = []
        for at_, answer in enumerate(self._api.many([*paths, *beside])):
            if isinstance(answer, NotFound):
                continue
            if isinstance(answer, PostroomError):
                raise answer
            if at_ < len(paths):
                found.append(answer)
            else:
                self._labels.take(answer)
        return found

    def _named(self, found: Json) -> frozenset[str]:
        return self._labels.named(names(found, "labelIds"))

    # Sorting

    def labels(self) -> tuple[str, ...]:
        return self._labels.all()

    def relabel(
        self, id: str, *, add: frozenset[str] = frozenset(), remove: frozenset[str] = frozenset()
    ) -> RelabelResult:
        for label in add:
            new_label_name(label)
        with _named_missing("Message", id):
            found = self._api.get(f"{USER}/messages/{id}", format="minimal", fields="labelIds")
            before = self._named(found)
            new, gone = self._ids(add, make=False), self._ids(remove, make=False)
            check_label_change(before, add=self._labels.named(new), remove=self._labels.named(gone))
            wish = {
                "addLabelIds": sorted(self._ids(add, make=True)),
                "removeLabelIds": sorted(gone),
            }
            if not any(wish.values()):
                return RelabelResult(id, frozenset(), frozenset())
            changed = self._api.change("POST", f"{USER}/messages/{id}/modify", wish)
        after = self._named(changed)
        return RelabelResult(id, after - before, before - after)

    def _ids(self, labels: frozenset[str], *, make: bool) -> frozenset[str]:
        ids = map(self._labels.make if make else self._labels.find, labels)
        return frozenset(id for id in ids if id)

    # Drafts

    def drafts(self) -> dict[str, str]:
        found: dict[str, str] = {}
        token = ""
        for _ in range(MAX_PAGES):
            page = self._api.get(
                f"{USER}/drafts",
                maxResults=500,
                pageToken=token,
                fields="drafts(id,message/id),nextPageToken",
            )
            for row in rows(page, "drafts"):
                found[name(row, "id")] = name(inner(row), "id")
            more = page.get("nextPageToken")
            if not isinstance(more, str) or more == token:
                break
            token = more
        return found

    def draft(self, id: str) -> MailboxDraft:
        version = self._version(id)
        return MailboxDraft(id, version, self.message(version))

    def create_draft(self, letter: Letter, *, date: datetime) -> MailboxDraft:
        raw, mail = self.wire(letter, date=date), in_thread(letter)
        made = self._api.act(f"{USER}/drafts", {"message": mail}, mail, raw)
        return self._made(made, raw)

    def revise_draft(
        self, id: str, letter: Letter, *, version: str, date: datetime
    ) -> MailboxDraft:
        self._check(id, version)
        raw, mail = self.wire(letter, date=date), in_thread(letter)
        with _named_missing("Draft", id):
            body: Json = {"id": id, "message": mail}
            made = self._api.change("PUT", f"{USER}/drafts/{id}", body, mail, raw)
        return self._made(made, raw)

    def discard_draft(self, id: str, *, version: str) -> None:
        self._check(id, version)
        try:
            self._api.change("DELETE", f"{USER}/drafts/{id}")
        except NotFound:
            return  # a first try did it, and its answer was lost

    def _version(self, id: str) -> str:
        with _named_missing("Draft", id):
            found = self._api.get(f"{USER}/drafts/{id}", format="minimal", fields="message(id)")
        return name(inner(found), "id")

    def _check(self, id: str, version: str) -> None:
        if self._version(id) != version:
            raise draft_changed(id)

    def _made(self, found: Json, raw: bytes) -> MailboxDraft:
        made = inner(found)
        mail = name(made, "id")
        labels = self._named(made) | {DRAFT}
        message = Message(
            mail, name(made, "threadId"), int(self._now()), len(raw), labels, mime.read(raw)
        )
        return MailboxDraft(name(found, "id"), mail, message)

    # Following

    def changes(self, since: str = "") -> Changes:
        """Return what happened since the cursor; without one, only the cursor of now."""
        if not since:
            return Changes(self._outgoing.now())
        try:
            return self._outgoing.since(since)
        except (NotFound, Invalid):
            raise NotFound(
                "Gmail does not know that cursor, or not any more",
                remedy="Start again from a search.",
            ) from None

    # Sending: what else there is of it, `Outgoing` does

    def wire(self, letter: Letter, *, date: datetime) -> bytes:
        """Return the very bytes that `send` will hand over: Gmail has no envelope, so with Bcc."""
        return mime.build(letter, date=date, bcc=True)

    def sweep(self, letter: Letter, proof: str = "") -> bool:
        """Delete drafts of this letter but that of the proof; return whether more may be listed later."""
        return self._outgoing.sweep(letter, proof)


def _path(id: str, **params: str | Sequence[str]) -> str:
    return at(f"{USER}/messages/{id}", **params)


def _how(*, large: bool) -> dict[str, str]:
    """Return how a mail is asked for: as its bytes, or as its texts where those are many."""
    if large:
        return {"format": "full", "fields": payload.PARTS}
    return {"format": "raw", "fields": payload.WHOLE}


def _confirmed(row: Json) -> bool:
    return bool(row.get("isPrimary")) or row.get("verificationStatus") == "accepted"


def _address(row: Json) -> Address | None:
    """Return an own address with its display name, or without one that no letter could have."""
    spec, shown = row.get("sendAsEmail"), row.get("displayName")
    for text in (f'"{shown}" <{spec}>', spec) if shown else (spec,):
        with suppress(Invalid):
            return Address.parse(text if isinstance(text, str) else "")
    return None


def _notes(query: str) -> tuple[str, ...]:
    """Say what of the query only Gmail can make sense of."""
    try:
        parse(query)
    except Invalid as strange:
        return (f"{strange.message}; Gmail was asked for it as it stands.",)
    return ()


@contextmanager
def _named_missing(what: str, id: str) -> Iterator[None]:
    """Say of which id it is that Gmail has no such thing."""
    checked(what, id)
    try:
        yield
    except NotFound:
        raise not_found(what, id) from None
