"""A Gmail double that follows Google's published API and token endpoint, with faults on demand.

`Gmail.respond` answers a request. It is asked in process through `Gmail.transport()`, or over HTTP for as
long as a `with` block puts the double on a local port.
"""

import base64
import hashlib
import json
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.parser import BytesHeaderParser
from types import TracebackType
from typing import Any, NamedTuple, TypedDict
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import httpx2

from tests.gmail.carriers import Answer, InProcess, Server, http_bytes, reason_phrase
from tests.gmail.store import (
    PENDING,
    Json,
    Mailbox,
    Refused,
    Sent,
    Stored,
    base64url,
    between,
    from_base64url,
    halves,
    missing,
    page_size,
    wrong,
)

Query = dict[str, list[str]]

SCOPE = "https://www.googleapis.com/auth/gmail."
FULL = "https://mail.google.com/"
CLIENT = "client.apps.googleusercontent.com"
SECRET = "secret"
LIFETIME = 3599  # seconds of an access token
NOWHERE = "http://127.0.0.1:1"  # nobody answers there: in process only
MAX_INNER = 100  # requests in a batch
STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
REASONS = {
    400: "badRequest",
    401: "authError",
    403: "rateLimitExceeded",
    404: "notFound",
    409: "aborted",
    429: "rateLimitExceeded",
}
ANY_METHOD = frozenset(
    {"alt", "fields", "key", "prettyPrint", "quotaUser", "access_token", "$.xgafv"}
)
NOT_FOUND_PAGE = (
    b"<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n<title>Error 404 (Not Found)!!1</title>\n"
    b"<p><b>404.</b> <ins>That\xe2\x80\x99s an error.</ins>\n"
    b"<p>The requested URL was not found on this server.\n"
)


class Asked(NamedTuple):
    """A request that was answered, or lost (`status` 0); `inner` ones came in a batch."""

    method: str
    path: str
    query: Query
    status: int
    inner: bool
    body: bytes


class Failure(TypedDict, total=False):
    """How a request fails: arguments of `Gmail.fail`, and of `Fault`."""

    status: int
    reason: str
    message: str
    headers: dict[str, str]
    body: bytes
    lost: str
    cut: bool
    done: bool
    lag: int


@dataclass
class Fault:
    """A fault that waits for its requests; `struck` is set when it first has its effect."""

    where: re.Pattern[str]
    times: int = 1
    status: int = 0
    reason: str = ""
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    lost: str = ""
    cut: bool = False
    delay: float = 0.0
    skip: int = 0
    hold: threading.Event | None = None
    done: bool = False  # carried out all the same
    lag: int = 0  # of the newest messages, how many the answer does not know of yet
    seen: int = 0
    struck: threading.Event = field(default_factory=threading.Event)

    def answer(self, path: str) -> Answer | None:
        """Return what is answered in place of the truth, if anything."""
        if self.body is not None:
            headers = {"Content-Type": "application/json; charset=UTF-8", **self.headers}
            return Answer(self.status or 200, self.body, headers)
        if not self.status:
            return None
        if path in ("/token", "/revoke"):
            plain = {"error": self.reason or "internal_failure"}
            if self.message:
                plain["error_description"] = self.message
            return answered(plain, self.status, self.headers)
        refused = Refused(self.status, self.reason, self.message)
        return refusal(refused, self.headers)


@dataclass
class Grant:
    """What a person once consented to."""

    client: str
    scopes: tuple[str, ...]
    refresh: str
    void: bool = False


@dataclass
class Access:
    """An access token's grant, scopes and end."""

    grant: Grant
    scopes: tuple[str, ...]
    until: float


class Code(NamedTuple):
    """A consent that waits to be exchanged."""

    client: str
    redirect: str
    scopes: tuple[str, ...]
    challenge: str
    method: str
    lasting: bool


class Ask(NamedTuple):
    """A call of the API, taken apart."""

    ids: dict[str, str]
    query: Query
    body: Json
    raw: bytes | None  # what came by way of /upload

    def one(self, name: str, default: str = "") -> str:
        """Return the last value of a parameter."""
        return self.query.get(name, [default])[-1]

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return self.one(name).lower() in ("true", "1")

    def message(self, holder: Json) -> bytes | None:
        """Return the mail that was handed over, if any."""
        return from_base64url(holder["raw"]) if holder.get("raw") else self.raw


class Method(NamedTuple):
    """A method of the API: where it is, who may call it and what it takes."""

    name: str
    verb: str
    path: re.Pattern[str]
    scopes: frozenset[str]
    query: frozenset[str]
    body: frozenset[str]


def _method(
    name: str, verb: str, path: str, scopes: str, query: str = "", body: str = ""
) -> Method:
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)
    upload = "(?P<upload>/upload)?" if name in UPLOADS else ""
    return Method(
        name,
        verb,
        re.compile(f"{upload}/gmail/v1/users/(?P<user>[^/]+)/{pattern}"),
        frozenset({FULL, *(SCOPE + scope for scope in scopes.split())}),
        frozenset(query.split()),
        frozenset(body.split()),
    )


UPLOADS = frozenset({"send", "draft_create", "draft_update", "draft_send"})
_SEARCH = "q labelIds maxResults pageToken includeSpamTrash"
_MESSAGE = "id threadId labelIds snippet historyId internalDate payload sizeEstimate raw"
_LABEL = "id name messageListVisibility labelListVisibility type color"
METHODS = (
    _method("profile", "GET", "profile", "compose modify readonly"),
    _method("messages", "GET", "messages", "modify readonly", _SEARCH),
    _method("send", "POST", "messages/send", "compose modify send", "uploadType", _MESSAGE),
    _method("message", "GET", "messages/{id}", "modify readonly", "format metadataHeaders"),
    _method("modify", "POST", "messages/{id}/modify", "modify", "", "addLabelIds removeLabelIds"),
    _method("attachment", "GET", "messages/{id}/attachments/{file}", "modify readonly"),
    _method("thread", "GET", "threads/{id}", "modify readonly", "format metadataHeaders"),
    _method("drafts", "GET", "drafts", "compose modify readonly", _SEARCH.replace("labelIds ", "")),
    _method("draft_create", "POST", "drafts", "compose modify", "uploadType", "id message"),
    _method("draft_send", "POST", "drafts/send", "compose modify", "uploadType", "id message"),
    _method("draft", "GET", "drafts/{id}", "compose modify readonly", "format"),
    _method("draft_update", "PUT", "drafts/{id}", "compose modify", "uploadType", "id message"),
    _method("draft_delete", "DELETE", "drafts/{id}", "compose modify"),
    _method("labels", "GET", "labels", "labels modify readonly"),
    _method("label_create", "POST", "labels", "labels modify", "", _LABEL),
    _method(
        "history",
        "GET",
        "history",
        "modify readonly",
        "startHistoryId pageToken maxResults historyTypes labelId",
    ),
    _method("send_as", "GET", "settings/sendAs", "modify readonly settings.basic"),
)


class Gmail:
    """One person's Gmail; on a local port for as long as the context lasts."""

    def __init__(
        self,
        address: str = "you@example.org",
        *,
        name: str = "You",
        aliases: Iterable[str] = ("desk@example.org",),
        now: Callable[[], float] | None = None,
    ) -> None:
        self.address = address
        self.name = name
        self.aliases = tuple(aliases)
        self.now = now or time.time
        self.mailbox = Mailbox(address, self.aliases, self.now)
        self._move_to(NOWHERE)
        self.latency = 0.0  # seconds before each answer; a batch is one
        self.replaces_message_id = True  # of what is sent; the old one stays beside it
        self.rebuilds_plain = True  # of what is sent, the plain text is encoded anew
        self.lists_lag = 0  # of the newest messages, how many no list and no history shows yet
        self.draw_fault: Callable[[str], Fault | None] | None = None  # asked at each "METHOD /path"
        self.inner_limit = MAX_INNER  # requests in a batch beyond it are too many at once
        self.answers_profile = True
        self.batch = True
        self.denies = False  # at the consent page
        self.grants: tuple[str, ...] | None = (
            None  # scopes that consent gives; else those asked for
        )
        self.requests: list[Asked] = []
        self.connections = 0
        self.refreshes = 0
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self._faults: list[Fault] = []
        self._late: list[threading.Thread] = []
        self._clients = {CLIENT: SECRET}
        self._grants: dict[str, Grant] = {}  # by refresh token
        self._access: dict[str, Access] = {}
        self._codes: dict[str, Code] = {}

    def __enter__(self) -> "Gmail":
        self.stopping.clear()
        self._server = Server(self)
        self._move_to(self._server.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopping.set()
        self._server.stop()
        if error is None and self._server.crashes:
            raise self._server.crashes[0]

    def _move_to(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.token_uri = f"{endpoint}/token"
        self.auth_uri = f"{endpoint}/o/oauth2/auth"
        self.revoke_uri = f"{endpoint}/revoke"

    def transport(self) -> httpx2.BaseTransport:
        """Return a transport that brings requests here without a connection."""
        return InProcess(self)

    # What happens at Google's side

    @property
    def sent(self) -> list[Sent]:
        """What left, in order."""
        return self.mailbox.sent

    @property
    def lags(self) -> bool:
        """Whether searches are blind to what came since this was set."""
        return self.mailbox.horizon is not None

    @lags.setter
    def lags(self, lagging: bool) -> None:
        with self.lock:
            if not lagging:
                self.mailbox.horizon = None
            elif self.mailbox.horizon is None:
                self.mailbox.horizon = self.mailbox.number

    def catch_up(self) -> None:
        """Let searches see everything again."""
        self.lags = False

    def receive(self, raw: bytes, labels: Iterable[str] = frozenset({"INBOX", "UNREAD"})) -> str:
        """Let a mail arrive under these labels, by name, and return its id."""
        with self.lock:
            return self.mailbox.receive(raw, labels).id

    def forget_history(self) -> None:
        """Make every history id so far too old."""
        with self.lock:
            self.mailbox.forget_history()

    def client(self) -> Json:
        """Return the client's credentials file, as the console gives it out for a desktop program."""
        return {
            "installed": {
                "client_id": CLIENT,
                "project_id": "postroom",
                "auth_uri": self.auth_uri,
                "token_uri": self.token_uri,
                "auth_provider_x509_cert_url": f"{self.endpoint}/oauth2/v1/certs",
                "client_secret": SECRET,
                "redirect_uris": ["http://localhost"],
            }
        }

    def token(
        self,
        *,
        scopes: Iterable[str] = (f"{SCOPE}modify",),
        expires_in: float = 3600,
        client_id: str = CLIENT,
        client_secret: str = SECRET,
    ) -> Json:
        """Return a stored authorization of a person, as google-auth writes it."""
        with self.lock:
            self._clients[client_id] = client_secret
            grant = self._granted(client_id, tuple(scopes))
            access = self._opened(grant, grant.scopes, expires_in)
        until = datetime.fromtimestamp(self.now() + expires_in, UTC).replace(tzinfo=None)
        return {
            "token": access,
            "refresh_token": grant.refresh,
            "token_uri": self.token_uri,
            "client_id": client_id,
            "client_secret": client_secret,
            "scopes": list(grant.scopes),
            "universe_domain": "googleapis.com",
            "account": "",
            "expiry": f"{until.isoformat()}Z",
        }

    def expire(self) -> None:
        """End every access token issued so far."""
        with self.lock:
            self._access.clear()

    def revoke(self) -> None:
        """Void every grant, as the person does on their account's page."""
        with self.lock:
            for grant in self._grants.values():
                grant.void = True

    def fail(
        self,
        where: str,
        *,
        times: int = 1,
        status: int = 0,
        reason: str = "",
        message: str = "",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        lost: str = "",
        cut: bool = False,
        delay: float = 0.0,
        skip: int = 0,
        hold: threading.Event | None = None,
        done: bool = False,
        lag: int = 0,
    ) -> Fault:
        """Let requests whose "METHOD /path" has this pattern in it fail, after the first `skip` of them.

        With `done` the request is carried out before the false answer is given; with lost="late" it is
        carried out `delay` seconds after the connection was lost.
        """
        assert lost in ("", "before", "after", "late")
        fault = Fault(
            re.compile(where),
            times,
            status,
            reason,
            message,
            headers or {},
            body,
            lost,
            cut,
            delay,
            skip,
            hold,
            done,
            lag,
        )
        with self.lock:
            self._faults.append(fault)
        return fault

    @contextmanager
    def failing(self, where: str, **how: Any) -> Iterator[Fault]:
        """Let requests fail as `fail` does, every one of them until the context ends."""
        fault = self.fail(where, times=sys.maxsize, **how)
        try:
            yield fault
        finally:
            fault.times = 0

    # A request and its answer

    def respond(
        self, verb: str, target: str, headers: dict[str, str], body: bytes, *, inner: bool = False
    ) -> Answer:
        """Return the answer to a request; header names are in lower case."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query, True)
        fault = self._struck(f"{verb} {path}")

        def carry_out() -> Answer:
            if path.startswith("/batch/"):  # each of its requests comes here by itself
                return self._carried_out(verb, path, query, headers, body, inner=inner)
            with self.lock:
                self.mailbox.lag = self.lists_lag + (fault.lag if fault else 0)
                return self._carried_out(verb, path, query, headers, body, inner=inner)

        if fault is None:
            answer = carry_out()
        else:
            late = fault.lost == "after" or fault.cut or fault.done
            if not late:
                fault.struck.set()
            if fault.lost == "late":
                self._carry_out_late(carry_out, fault.delay)
            else:
                self.stopping.wait(fault.delay)
            if fault.lost in ("before", "late"):
                answer = Answer(0, lost=True)
            else:
                done = carry_out() if fault.done else None
                answer = fault.answer(path) or done or carry_out()
            if fault.lost == "after":
                answer = Answer(0, lost=True)
            elif fault.cut:
                answer = answer._replace(cut=True)
        with self.lock:
            self.requests.append(Asked(verb, path, query, answer.status, inner, body))
        if fault is not None:
            fault.struck.set()
            if fault.hold is not None:  # until whoever asked is dead
                fault.hold.wait(60)
        return answer

    def _carry_out_late(self, carry_out: Callable[[], Answer], delay: float) -> None:
        def wait() -> None:
            self.stopping.wait(delay)
            carry_out()

        thread = threading.Thread(target=wait, daemon=True)
        with self.lock:
            self._late = [one for one in self._late if one.is_alive()] + [thread]
            thread.start()

    def wait_for_late(self) -> None:
        """Wait until every request that was held up has been carried out."""
        for thread in list(self._late):
            thread.join()

    def _struck(self, where: str) -> Fault | None:
        with self.lock:
            if self.draw_fault and (drawn := self.draw_fault(where)):
                return drawn
            for fault in self._faults:
                if fault.seen >= fault.times or not fault.where.search(where):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.seen += 1
                return fault
        return None

    def _carried_out(
        self,
        verb: str,
        path: str,
        query: Query,
        headers: dict[str, str],
        body: bytes,
        *,
        inner: bool,
    ) -> Answer:
        form = {**query, **parse_qs(body.decode("latin-1"))} if _is_form(headers) else query
        values = {name: each[-1] for name, each in form.items()}
        if not inner:
            if path == "/o/oauth2/auth" and verb in ("GET", "POST"):
                return self._consent(values)
            if path == "/token" and verb == "POST":
                return self._exchanged(_basic(headers) | values)
            if path == "/revoke" and verb == "POST":
                return self._given_up(values.get("token", ""))
            if path == "/batch/gmail/v1" and verb == "POST" and self.batch:
                return self._batch(headers, body)
        for method in METHODS:
            found = method.path.fullmatch(path)
            if found and method.verb == verb:
                if inner and found.groupdict().get("upload"):
                    break
                try:
                    return self._called(method, found, query, headers, body)
                except Refused as refused:
                    return refusal(refused)
        return Answer(404, NOT_FOUND_PAGE, {"Content-Type": "text/html; charset=UTF-8"})

    # The API

    def _called(
        self,
        method: Method,
        found: re.Match[str],
        query: Query,
        headers: dict[str, str],
        body: bytes,
    ) -> Answer:
        ids = {name: unquote(text) for name, text in found.groupdict().items() if text}
        with self.lock:
            if refused := self._unauthorized(method, headers.get("authorization", "")):
                return refused
            if ids["user"] not in ("me", self.address):
                raise Refused(403, "forbidden", f"Delegation denied for {self.address}")
            if unknown := sorted(set(query) - method.query - ANY_METHOD):
                raise wrong(
                    f'Invalid JSON payload received. Unknown name "{unknown[0]}": '
                    "Cannot bind query parameter. Field could not be found in request message."
                )
            mask = query.get("fields", [""])[-1]
            chosen = _mask(mask) if mask else None
            given, raw = _handed_over("upload" in ids, query, headers, body)
            if unknown := sorted(set(given) - method.body):
                raise wrong(
                    f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.'
                )
            result = getattr(self, f"_api_{method.name}")(Ask(ids, query, given, raw))
        if result is None:
            # An answer without a body, as DELETE has it.
            return Answer(204)
        return answered(result if chosen is None else _masked(result, chosen))

    def _unauthorized(self, method: Method, header: str) -> Answer | None:
        scheme, _, token = header.partition(" ")
        challenge = 'Bearer realm="https://accounts.google.com/"'
        access = self._access.get(token.strip()) if scheme.lower() == "bearer" else None
        if access is None or access.grant.void or access.until <= self.now():
            said = (
                "Request had invalid authentication credentials."
                if header
                else ("Request is missing required authentication credential.")
            )
            message = f"{said} Expected OAuth 2 access token, login cookie or other valid authentication credential."
            shown = f'{challenge}, error="invalid_token"' if header else challenge
            refused = Refused(401, "authError" if header else "required", message)
            return refusal(refused, {"WWW-Authenticate": shown})
        if method.scopes.isdisjoint(access.scopes):
            refused = Refused(
                403, "insufficientPermissions", "Request had insufficient authentication scopes."
            )
            detail = {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
                "domain": "googleapis.com",
                "metadata": {"service": "gmail.googleapis.com", "method": method.name},
            }
            shown = f'{challenge}, error="insufficient_scope", scope="{" ".join(sorted(method.scopes))}"'
            return refusal(refused, {"WWW-Authenticate": shown}, [detail])
        return None

    def _api_profile(self, ask: Ask) -> Json:
        if not self.answers_profile:
            raise missing()
        return {
            "emailAddress": self.address,
            "messagesTotal": len(self.mailbox.messages),
            "threadsTotal": len(self.mailbox.threads),
            "historyId": str(self.mailbox.history),
        }

    def _found(self, ask: Ask, labels: list[str]) -> tuple[list[Stored], Json]:
        page, token = self.mailbox.search(
            ask.one("q"),
            labels,
            page_size(ask.one("maxResults", "100")),
            ask.one("pageToken"),
            spam_and_trash=ask.flag("includeSpamTrash"),
        )
        # Gmail's estimate is a poor one; nobody should build on it.
        rest: Json = {"nextPageToken": token} if token else {}
        return page, {**rest, "resultSizeEstimate": 201 if token else len(page)}

    def _api_messages(self, ask: Ask) -> Json:
        page, rest = self._found(ask, ask.query.get("labelIds", []))
        found = [{"id": each.id, "threadId": each.thread} for each in page]
        return {"messages": found, **rest} if found else rest

    def _api_message(self, ask: Ask) -> Json:
        message = self.mailbox.message(ask.ids["id"])
        form = _format(ask, "minimal full metadata raw")
        return self.mailbox.resource(message, form, ask.query.get("metadataHeaders", []))

    def _api_attachment(self, ask: Ask) -> Json:
        content = self.mailbox.attachment(self.mailbox.message(ask.ids["id"]), ask.ids["file"])
        return {
            "attachmentId": ask.ids["file"],
            "size": len(content),
            "data": base64url(content),
        }

    def _api_modify(self, ask: Ask) -> Json:
        add, remove = (ask.body.get(name, []) for name in ("addLabelIds", "removeLabelIds"))
        return self.mailbox.short(self.mailbox.modify(ask.ids["id"], add, remove))

    def _api_send(self, ask: Ask) -> Json:
        raw, thread = _mail(ask, ask.body)
        return self.mailbox.short(self.mailbox.send(raw, thread, **self._habits))

    @property
    def _habits(self) -> dict[str, bool]:
        return {"replaces_id": self.replaces_message_id, "rebuilds": self.rebuilds_plain}

    def _api_thread(self, ask: Ask) -> Json:
        messages = self.mailbox.thread(ask.ids["id"])
        form, wanted = _format(ask, "minimal full metadata"), ask.query.get("metadataHeaders", [])
        return {
            "id": ask.ids["id"],
            "historyId": str(max(each.history for each in messages)),
            "messages": [self.mailbox.resource(each, form, wanted) for each in messages],
        }

    def _api_drafts(self, ask: Ask) -> Json:
        page, rest = self._found(ask, ["DRAFT"])
        names = {message: id for id, message in self.mailbox.drafts.items()}
        found = [
            {"id": names[each.id], "message": {"id": each.id, "threadId": each.thread}}
            for each in page
            if each.id in names
        ]
        return {"drafts": found, **rest} if found else rest

    def _api_draft(self, ask: Ask) -> Json:
        message = self.mailbox.draft(ask.ids["id"])
        form = _format(ask, "minimal full metadata raw")
        return {"id": ask.ids["id"], "message": self.mailbox.resource(message, form)}

    def _api_draft_create(self, ask: Ask) -> Json:
        id = self.mailbox.create_draft(*_mail(ask, ask.body.get("message") or {}))
        return {"id": id, "message": self.mailbox.short(self.mailbox.draft(id))}

    def _api_draft_update(self, ask: Ask) -> Json:
        id = ask.ids["id"]
        self.mailbox.draft(id)
        self.mailbox.update_draft(id, *_mail(ask, ask.body.get("message") or {}))
        return {"id": id, "message": self.mailbox.short(self.mailbox.draft(id))}

    def _api_draft_delete(self, ask: Ask) -> None:
        self.mailbox.delete_draft(ask.ids["id"])

    def _api_draft_send(self, ask: Ask) -> Json:
        raw = ask.message(ask.body.get("message") or {})
        sent = self.mailbox.send_draft(str(ask.body.get("id", "")), raw, **self._habits)
        return self.mailbox.short(sent)

    def _api_labels(self, ask: Ask) -> Json:
        return {"labels": self.mailbox.label_resources()}

    def _api_label_create(self, ask: Ask) -> Json:
        label = self.mailbox.label(self.mailbox.create_label(str(ask.body.get("name", ""))))
        return {name: value for name, value in label.items() if name != "type"}

    def _api_history(self, ask: Ask) -> Json:
        return self.mailbox.changes_since(
            ask.one("startHistoryId"),
            ask.query.get("historyTypes", []),
            ask.one("labelId"),
            page_size(ask.one("maxResults", "100")),
            ask.one("pageToken"),
        )

    def _api_send_as(self, ask: Ask) -> Json:
        primary = {
            "sendAsEmail": self.address,
            "displayName": self.name,
            "replyToAddress": "",
            "signature": "",
            "isPrimary": True,
            "isDefault": True,
        }
        others = [
            {
                "sendAsEmail": each,
                "displayName": self.name,
                "replyToAddress": "",
                "signature": "",
                "treatAsAlias": True,
                "verificationStatus": "pending" if each == PENDING else "accepted",
            }
            for each in (*self.aliases, PENDING)
        ]
        return {"sendAs": [primary, *others]}

    # Many requests in one

    def _batch(self, headers: dict[str, str], body: bytes) -> Answer:
        boundary = _boundary(headers, "multipart/mixed")
        parts = [halves(body[begin:end]) for begin, end in between(body, boundary or "")]
        if not boundary or not parts:
            return refusal(Refused(400, "badRequest", "Failed to parse batch request."))
        if len(parts) > MAX_INNER:
            said = f"Received: {len(parts)}, Limit: {MAX_INNER}"
            refused = Refused(400, "badRequest", f"Inner request count exceeds the limit. {said}")
            return refusal(refused)
        inherited = {n: v for n, v in headers.items() if not n.startswith("content-")}
        answers = []
        for number, (head, _, request) in enumerate(parts):
            answer = self._inner(number, inherited, request)
            if answer.lost:
                return answer
            name = BytesHeaderParser().parsebytes(head).get("Content-ID", "").strip().strip("<>")
            answers.append((name, answer))
        mark = f"batch_{secrets.token_urlsafe(18)}"
        chunks = [b"--%s\r\n%s\r\n" % (mark.encode(), _part(*each)) for each in reversed(answers)]
        return Answer(
            200,
            b"".join(chunks) + b"--%s--\r\n" % mark.encode(),
            {"Content-Type": f"multipart/mixed; boundary={mark}"},
            cut=any(answer.cut for _, answer in answers),
        )

    def _inner(self, number: int, inherited: dict[str, str], request: bytes) -> Answer:
        first, _, rest = request.lstrip(b"\r\n").partition(b"\n")
        words = first.decode("latin-1").split()
        if len(words) < 2 or not words[1].startswith("/"):
            return refusal(Refused(400, "badRequest", "Failed to parse an inner request."))
        head, _, body = halves(rest)
        own = {n.lower(): str(v) for n, v in BytesHeaderParser().parsebytes(head).items()}
        if number >= self.inner_limit:
            split = urlsplit(words[1])
            query = parse_qs(split.query, True)
            with self.lock:
                self.requests.append(Asked(words[0], split.path, query, 429, True, body))
            said = "Too many concurrent requests for user."
            return refusal(Refused(429, "rateLimitExceeded", said))
        return self.respond(words[0], words[1], {**inherited, **own}, body, inner=True)

    # OAuth

    def _granted(self, client: str, scopes: tuple[str, ...]) -> Grant:
        grant = Grant(client, scopes, f"1//{secrets.token_urlsafe(32)}")
        self._grants[grant.refresh] = grant
        return grant

    def _opened(self, grant: Grant, scopes: tuple[str, ...], lasts: float) -> str:
        token = f"ya29.{secrets.token_urlsafe(32)}"
        self._access[token] = Access(grant, scopes, self.now() + lasts)
        return token

    def _consent(self, asked: dict[str, str]) -> Answer:
        redirect = asked.get("redirect_uri", "")
        if asked.get("client_id") not in self._clients:
            return _page(401, "Error 401: invalid_client")
        if not re.fullmatch(r"http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/.*)?", redirect):
            return _page(400, "Error 400: redirect_uri_mismatch")
        if asked.get("response_type") != "code" or not asked.get("scope"):
            return _page(400, "Error 400: invalid_request")
        back = {"state": asked["state"]} if "state" in asked else {}
        if self.denies:
            back["error"] = "access_denied"
        else:
            scopes = tuple(asked["scope"].split()) if self.grants is None else self.grants
            lasting = asked.get("access_type") == "offline" and asked.get("prompt") == "consent"
            code = f"4/{secrets.token_urlsafe(32)}"
            challenge = asked.get("code_challenge", "")
            method = asked.get("code_challenge_method", "plain")
            with self.lock:
                self._codes[code] = Code(
                    asked["client_id"], redirect, scopes, challenge, method, lasting
                )
            back |= {"code": code, "scope": " ".join(scopes)}
        joint = "&" if "?" in redirect else "?"
        return Answer(302, b"", {"Location": f"{redirect}{joint}{urlencode(back)}"})

    def _exchanged(self, form: dict[str, str]) -> Answer:
        with self.lock:
            client = form.get("client_id", "")
            if client not in self._clients:
                return _oauth(401, "invalid_client", "The OAuth client was not found.")
            if self._clients[client] != form.get("client_secret"):
                return _oauth(401, "invalid_client", "Unauthorized")
            match form.get("grant_type"):
                case "authorization_code":
                    return self._by_code(client, form)
                case "refresh_token":
                    return self._by_refresh(client, form)
        return _oauth(400, "unsupported_grant_type", "Invalid grant_type")

    def _by_code(self, client: str, form: dict[str, str]) -> Answer:
        code = self._codes.pop(form.get("code", ""), None)
        if code is None or code.client != client:
            return _oauth(400, "invalid_grant", "Malformed auth code.")
        if code.redirect != form.get("redirect_uri"):
            return _oauth(400, "redirect_uri_mismatch", "Bad Request")
        if code.challenge and "code_verifier" not in form:
            return _oauth(400, "invalid_grant", "Missing code verifier.")
        if code.challenge and _challenge(form["code_verifier"], code.method) != code.challenge:
            return _oauth(400, "invalid_grant", "Invalid code verifier.")
        grant = self._granted(client, code.scopes)
        lasting = {"refresh_token": grant.refresh} if code.lasting else {}
        return answered(self._token_answer(grant, grant.scopes) | lasting)

    def _by_refresh(self, client: str, form: dict[str, str]) -> Answer:
        grant = self._grants.get(form.get("refresh_token", ""))
        if grant is None:
            return _oauth(400, "invalid_grant", "Bad Request")
        if grant.client != client:
            return _oauth(401, "unauthorized_client", "Unauthorized")
        if grant.void:
            return _oauth(400, "invalid_grant", "Token has been expired or revoked.")
        scopes = tuple(form.get("scope", "").split()) or grant.scopes
        if not set(scopes) <= set(grant.scopes):
            return _oauth(400, "invalid_scope", "Some requested scopes were invalid.")
        self.refreshes += 1
        return answered(self._token_answer(grant, scopes))

    def _token_answer(self, grant: Grant, scopes: tuple[str, ...]) -> Json:
        return {
            "access_token": self._opened(grant, scopes, LIFETIME),
            "expires_in": LIFETIME,
            "scope": " ".join(scopes),
            "token_type": "Bearer",
        }

    def _given_up(self, token: str) -> Answer:
        with self.lock:
            access = self._access.get(token)
            grant = access.grant if access else self._grants.get(token)
            if grant is None or grant.void:
                return _oauth(400, "invalid_token", "Token expired or revoked")
            grant.void = True
        return answered({})


def _challenge(verifier: str, method: str) -> str:
    if method != "S256":
        return verifier
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def _basic(headers: dict[str, str]) -> dict[str, str]:
    """Return the client that names itself by HTTP's own means, which Google takes too."""
    kind, _, said = headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return {}
    id, _, secret = base64.b64decode(said).decode().partition(":")
    return {"client_id": unquote(id), "client_secret": unquote(secret)}


def _is_form(headers: dict[str, str]) -> bool:
    return headers.get("content-type", "").startswith("application/x-www-form-urlencoded")


def _oauth(status: int, error: str, description: str) -> Answer:
    return answered({"error": error, "error_description": description}, status)


def _page(status: int, text: str) -> Answer:
    page = f"<!DOCTYPE html>\n<title>{text}</title>\n<p>{text}\n".encode()
    return Answer(status, page, {"Content-Type": "text/html; charset=UTF-8"})


def answered(result: Json, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """Return an answer in JSON."""
    body = json.dumps(result, ensure_ascii=False, indent=2).encode()
    return Answer(
        status, body, {"Content-Type": "application/json; charset=UTF-8", **(headers or {})}
    )


def refusal(
    refused: Refused, headers: dict[str, str] | None = None, details: list[Json] | None = None
) -> Answer:
    """Return an error in Google's shape."""
    status = refused.status
    reason = refused.reason or REASONS.get(
        status, "backendError" if status >= 500 else "badRequest"
    )
    message = refused.message or reason_phrase(status)
    domain = "usageLimits" if status == 403 and "LimitExceeded" in reason else "global"
    error: Json = {
        "code": status,
        "message": message,
        "errors": [{"message": message, "domain": domain, "reason": reason}],
        "status": STATUS_NAMES.get(status, "UNKNOWN"),
    }
    if status == 401:
        where = {"location": "Authorization", "locationType": "header"}
        error["errors"][0] |= {"message": "Invalid Credentials", **where}
    if details:
        error["details"] = details
    return answered({"error": error}, status, headers)


def _format(ask: Ask, allowed: str) -> str:
    form = ask.one("format", "full").lower()
    if form not in allowed.split():
        raise wrong(f"Invalid value at 'format': \"{form}\"")
    return form


def _mail(ask: Ask, holder: Json) -> tuple[bytes, str]:
    """Return the mail that is handed over and the thread that it is for."""
    raw = ask.message(holder)
    if not raw:
        raise wrong(
            "'raw' RFC822 payload message string or uploading message via /upload/* URL required"
        )
    return raw, str(holder.get("threadId") or "")


def _boundary(headers: dict[str, str], kind: str) -> str | None:
    line = f"Content-Type: {headers.get('content-type', '')}\r\n\r\n".encode()
    told = BytesHeaderParser().parsebytes(line)
    return told.get_boundary() if told.get_content_type() == kind else None


def _handed_over(
    upload: bool, query: Query, headers: dict[str, str], body: bytes
) -> tuple[Json, bytes | None]:
    """Return the JSON of a request, and the mail beside it when it came by way of /upload."""
    if not upload:
        return (_json(body) if body else {}), None
    match query.get("uploadType", [""])[-1]:
        case "media":
            if not headers.get("content-type", "").startswith("message/"):
                raise Refused(400, "badContent", "Media type is not supported: message/* is.")
            return {}, body
        case "multipart":
            parts = [
                halves(body[begin:end])
                for begin, end in between(body, _boundary(headers, "multipart/related") or "")
            ]
            if len(parts) != 2:
                raise Refused(400, "badRequest", "Malformed multipart body.")
            told = BytesHeaderParser().parsebytes(parts[1][0] + b"\r\n\r\n" + parts[1][2])
            if told.get_content_maintype() != "message":
                raise Refused(400, "badContent", "Media type is not supported: message/* is.")
            coded = told.get("Content-Transfer-Encoding", "").strip().lower() == "base64"
            return _json(parts[0][2]), base64.b64decode(parts[1][2]) if coded else parts[1][2]
    raise Refused(400, "badRequest", "The double knows uploadType media and multipart.")


def _json(body: bytes) -> Json:
    try:
        found = json.loads(body)
    except ValueError as bad:
        raise Refused(400, "parseError", "Parse Error") from bad
    if not isinstance(found, dict):
        raise Refused(400, "parseError", "Invalid JSON payload received. Root is no object.")
    return found


def _part(name: str, answer: Answer) -> bytes:
    """Return an answer as a part of a batch's answer."""
    named = f"Content-ID: <response-{name}>\r\n" if name else ""
    return f"Content-Type: application/http\r\n{named}\r\n".encode() + http_bytes(
        answer._replace(cut=False)
    )


# Field masks: "a,b(c,d),e/f"

Mask = dict[str, Any]


def _mask(text: str) -> Mask:
    tokens = re.findall(r"[\w*.@-]+|[(),/]|.", text)
    found, at = _selection(tokens, 0)
    if at != len(tokens):
        raise wrong(f"Invalid field selection {text}")
    return found


def _selection(tokens: list[str], at: int) -> tuple[Mask, int]:
    found: Mask = {}
    while True:
        below = found
        while True:
            if at >= len(tokens) or not re.fullmatch(r"[\w*.@-]+", tokens[at]):
                raise wrong(f"Invalid field selection {''.join(tokens)}")
            name, at = tokens[at], at + 1
            if tokens[at : at + 1] != ["/"]:
                break
            below, at = below.setdefault(name, {}), at + 1
        inner: Mask = {}
        if tokens[at : at + 1] == ["("]:
            inner, at = _selection(tokens, at + 1)
            if tokens[at : at + 1] != [")"]:
                raise wrong(f"Invalid field selection {''.join(tokens)}")
            at += 1
        below.setdefault(name, {}).update(inner)
        if tokens[at : at + 1] != [","]:
            return found, at
        at += 1


def _masked(value: Any, mask: Mask) -> Any:
    if not mask or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [_masked(each, mask) for each in value]
    return {
        name: _masked(each, mask[name] if name in mask else mask["*"])
        for name, each in value.items()
        if name in mask or "*" in mask
    }
