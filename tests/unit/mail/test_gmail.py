"""Gmail's answers and failures, each as what the caller does next."""

import json
import re
import ssl
import threading
import time
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Denied,
    Invalid,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
)
from postroom.core.message import INBOX, UNREAD
from postroom.mail.gmail import open_gmail
from postroom.mail.gmail.api import PATIENCE
from postroom.mail.gmail.mailbox import GmailMailbox
from tests.cases import for_each
from tests.gmail.boxes import NOW, SENDING, asked, box_on, gmail_box, letter, token_file
from tests.gmail.double import Gmail
from tests.mails import mail

LIST = r"GET /gmail/v1/users/me/messages$"
ACT = r"POST /gmail/v1/users/me/(drafts|messages)/send$"


# Refusals


@for_each(
    ("status", "reason", "error", "tries"),
    [
        (400, "invalidArgument", Invalid, 1),
        (403, "insufficientPermissions", AuthRequired, 1),
        (403, "accessNotConfigured", Denied, 1),
        (403, "domainPolicy", Denied, 1),
        (403, "forbidden", Denied, 1),
        (403, "rateLimitExceeded", Limited, 4),
        (403, "userRateLimitExceeded", Limited, 4),
        (403, "dailyLimitExceeded", Limited, 1),
        (404, "notFound", NotFound, 1),
        (409, "aborted", Conflict, 1),
        (412, "conditionNotMet", Conflict, 1),
        (429, "rateLimitExceeded", Limited, 4),
        (500, "backendError", Unavailable, 4),
        (502, "", Unavailable, 4),
        (503, "", Unavailable, 4),
        (504, "", Unavailable, 4),
        (418, "", Invalid, 1),
    ],
)
def test_a_refusal_is_classed_by_what_to_do_next_and_tried_again_where_that_helps(
    box: GmailMailbox,
    service: Gmail,
    pauses: list[float],
    status: int,
    reason: str,
    error: type[PostroomError],
    tries: int,
) -> None:
    service.requests.clear()
    pauses.clear()
    with (
        service.failing(LIST, status=status, reason=reason, message="No."),
        pytest.raises(error) as refused,
    ):
        box.search("x")
    assert refused.value.remedy
    assert asked(service, LIST) == tries
    assert len(pauses) == tries - 1


def test_pauses_grow_and_are_scattered(
    box: GmailMailbox, service: Gmail, pauses: list[float]
) -> None:
    service.fail(LIST, status=503, times=99)
    for _ in range(20):
        with suppress(Unavailable):
            box.search("x")
    for turn, (low, high) in enumerate([(0.25, 0.5), (0.5, 1), (1, 2)]):
        waited = pauses[turn::3]
        assert all(low <= pause <= high for pause in waited)
        assert len(set(waited)) == 20


def test_a_failure_that_passes_is_not_noticed(box: GmailMailbox, service: Gmail) -> None:
    id = service.receive(mail())
    service.fail(LIST, status=503, times=2)
    service.fail(LIST, lost="before")
    assert [item.id for item in box.search("hello").items] == [id]


@for_each("said", ["3", "header date", "in its words"])
def test_how_long_to_wait_is_done_as_gmail_says(
    box: GmailMailbox, service: Gmail, pauses: list[float], said: str
) -> None:
    later = datetime.fromtimestamp(NOW + 3, UTC)
    headers, message = {"Retry-After": "3"}, ""
    if said == "header date":
        headers = {"Retry-After": f"{later:%a, %d %b %Y %H:%M:%S} GMT"}
    elif said == "in its words":
        headers = {}
        message = f"User-rate limit exceeded.  Retry after {later:%Y-%m-%dT%H:%M:%S}.000Z"
    pauses.clear()
    service.fail(LIST, status=429, headers=headers, message=message)
    box.search("x")
    assert pauses == [3.0]


def test_a_wait_that_is_too_long_is_told_instead(
    box: GmailMailbox, service: Gmail, pauses: list[float]
) -> None:
    service.fail(LIST, status=429, headers={"Retry-After": "900"}, times=9)
    with pytest.raises(Limited) as refused:
        box.search("x")
    assert refused.value.seconds == 900 > PATIENCE
    assert not pauses


@for_each("renewed", [False, True])
def test_the_waits_of_one_read_are_bounded_together(
    box: GmailMailbox, service: Gmail, pauses: list[float], renewed: bool
) -> None:
    wait: dict[str, Any] = {"status": 429, "headers": {"Retry-After": "3"}}
    service.fail(LIST, **wait, times=2)
    if renewed:
        service.fail(LIST, status=401)
    with service.failing(LIST, **wait), pytest.raises(Limited):
        box.search("x")
    assert sum(pauses) == 6 <= PATIENCE
    pauses.clear()


def test_what_google_says_is_one_clean_line(box: GmailMailbox, service: Gmail) -> None:
    service.fail(LIST, status=400, message="Wrong\n\x1b[31m\u202eevil\u200b " + "x" * 500)
    with pytest.raises(Invalid) as refused:
        box.search("x")
    assert re.fullmatch(r"Gmail refuses: Wrong \[31mevil x{100,200}", refused.value.message)


def test_a_token_that_runs_out_on_the_last_try_is_still_renewed(
    box: GmailMailbox, service: Gmail
) -> None:
    service.fail(LIST, status=503, times=3)
    service.fail(LIST, status=401)
    box.search("x")
    assert service.refreshes == 1


@for_each(
    ("headers", "message", "seconds"),
    [
        ({"Retry-After": "999999999"}, "", 86_400),
        ({"Retry-After": "Fri, 99 Foo 2026 99:99:99 GMT"}, "", 1),
        ({}, "Retry after 2026-99-99T00:00:00.000Z", 1),
        ({}, "Retry after 9999-01-01T00:00:00.000Z", 86_400),
    ],
)
def test_a_time_to_wait_that_makes_no_sense_is_bounded(
    box: GmailMailbox, service: Gmail, headers: dict[str, str], message: str, seconds: int
) -> None:
    with (
        service.failing(LIST, status=429, headers=headers, message=message),
        pytest.raises(Limited) as refused,
    ):
        box.search("x")
    assert refused.value.seconds == seconds


def test_a_mailbox_that_was_closed_is_unavailable(box: GmailMailbox) -> None:
    box.close()
    with pytest.raises(Unavailable, match="closed"):
        box.search("x")


# No answer, or none that makes sense


@for_each(
    "body",
    [
        b"{", b"[]", b"null", b"<html>Sign in</html>", b"\xff\xfe", b'{"messages": 3}',
        b'{"messages": [3]}', b'{"messages": [{"id": 3}]}', b'{"messages": [{}]}',
        b'{"messages": [{"id": "../../x"}]}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_an_answer_that_makes_no_sense_is_unavailable(
    box: GmailMailbox, service: Gmail, body: bytes
) -> None:
    with service.failing(LIST, body=body), pytest.raises(Unavailable):
        box.search("x")


def test_an_answer_without_a_body_is_an_empty_list(box: GmailMailbox, service: Gmail) -> None:
    with service.failing(LIST, body=b""):
        assert not box.search("x").items


@pytest.mark.parametrize("carrier", ["box", "http_box"])
@for_each("how", [{"lost": "before"}, {"lost": "after"}, {"cut": True}])
def test_an_answer_that_is_lost_or_cut_off_is_asked_for_again(
    request: pytest.FixtureRequest, service: Gmail, carrier: str, how: dict[str, Any]
) -> None:
    box = request.getfixturevalue(carrier)
    id = service.receive(mail(subject=f"Hello {how}"))
    service.fail(LIST, times=3, **how)
    found = [item.id for item in box.search("hello").items]
    assert (found.count(id), len(found)) == (1, len(set(found)))
    service.fail(LIST, times=4, **how)
    with pytest.raises(Unavailable, match="cannot be reached"):
        box.search("hello")


def test_a_machine_that_nobody_answers_on_is_unavailable(
    token: Path, service: Gmail, pauses: list[float]
) -> None:
    with closing(gmail_box("http://127.0.0.1:1", service.token_uri, token, pauses)) as box:
        with pytest.raises(Unavailable, match="cannot be reached") as refused:
            box.search("x")
        assert "network" in refused.value.remedy
        with pytest.raises(Unavailable):  # nothing was written, so nothing happened
            box.create_draft(letter(), date=SENDING)


def test_a_certificate_that_nobody_vouches_for_is_not_tried_again(
    token: Path, service: Gmail, pauses: list[float], tmp_path: Path
) -> None:
    with (
        distrusted(tmp_path) as endpoint,
        closing(gmail_box(endpoint, service.token_uri, token, pauses)) as box,
        pytest.raises(Unavailable, match="certificate") as refused,
    ):
        box.search("x")
    assert "clock" in refused.value.remedy
    assert not pauses


class distrusted:
    """A server whose certificate is signed by nobody but itself."""

    def __init__(self, folder: Path) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
            .sign(key, hashes.SHA256())
        )  # fmt: skip
        pem = serialization.Encoding.PEM
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / "both.pem").write_bytes(
            key.private_bytes(pem, *plain) + certificate.public_bytes(pem)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "both.pem")

        class Quiet(HTTPServer):
            def handle_error(self, *_: Any) -> None:
                pass

        self.server = Quiet(("127.0.0.1", 0), BaseHTTPRequestHandler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        self.thread.start()
        return f"https://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_: None) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


# Tokens


def test_a_spent_token_is_renewed_once_and_kept_for_all(
    box: GmailMailbox, service: Gmail, token: Path
) -> None:
    before = json.loads(token.read_text())["token"]
    service.expire()
    box.search("x")
    box.search("x")
    after = json.loads(token.read_text())
    assert service.refreshes == 1
    assert after["token"] != before
    with closing(box_on(service, token)) as other:
        other.search("x")
    assert service.refreshes == 1


def test_a_token_whose_time_is_over_is_renewed_before_it_is_used(
    tmp_path: Path, service: Gmail
) -> None:
    file = token_file(tmp_path, service.token(expires_in=30))
    with closing(box_on(service, file)) as box:
        box.search("x")
    assert service.refreshes == 1
    assert all(one.status != 401 for one in service.requests)


def test_a_token_that_is_renewed_and_refused_again_needs_the_person(
    box: GmailMailbox, service: Gmail, token: Path
) -> None:
    service.fail(LIST, status=401, times=99)
    with pytest.raises(AuthRequired) as refused:
        box.search("x")
    assert "postroom auth gmail" in refused.value.remedy
    assert service.refreshes == 1


def test_a_revoked_token_is_set_aside_and_the_person_is_told_what_to_run(
    box: GmailMailbox, service: Gmail, token: Path
) -> None:
    content = token.read_text()
    service.revoke()
    with pytest.raises(AuthRequired) as refused:
        box.search("x")
    assert "postroom auth gmail" in refused.value.remedy
    assert "seven days" in refused.value.remedy
    assert not token.exists()
    assert (token.parent / "token.json.revoked").read_text() == content
    with pytest.raises(AuthRequired, match="no longer accepts"):
        box.search("x")


def test_a_second_revoked_token_does_not_replace_the_first(
    service: Gmail, token: Path, tmp_path: Path
) -> None:
    for _ in range(3):
        token_file(tmp_path, service.token())
        service.revoke()
        with (
            closing(box_on(service, token)) as box,
            pytest.raises(AuthRequired),
        ):
            box.search("x")
    assert len(list(token.parent.glob("token.json.revoked*"))) == 3


@for_each("how", [{"status": 503}, {"lost": "after"}, {"body": b"<html>"}])
def test_a_renewal_that_fails_for_now_keeps_the_token(
    box: GmailMailbox, service: Gmail, token: Path, how: dict[str, Any]
) -> None:
    service.expire()
    with service.failing("POST /token", **how), pytest.raises(Unavailable):
        box.search("x")
    assert token.exists()


def test_a_client_that_google_does_not_know_is_said_and_the_token_kept(
    service: Gmail, tmp_path: Path
) -> None:
    content = service.token(expires_in=-5) | {"client_secret": "wrong"}
    file = token_file(tmp_path, content)
    with (
        closing(box_on(service, file)) as box,
        pytest.raises(AuthRequired, match="invalid_client") as refused,
    ):
        box.search("x")
    assert "credentials.json" in refused.value.remedy
    assert file.exists()


def test_a_token_without_a_readable_secret_is_renewed_with_the_clients(
    service: Gmail, tmp_path: Path
) -> None:
    client = tmp_path / "credentials.json"
    client.write_text(json.dumps(service.client()))
    client.chmod(0o600)
    file = token_file(tmp_path, service.token(expires_in=-5) | {"client_secret": None})
    box = open_gmail(
        service.endpoint, service.token_uri, tokens=[file], clients=[client], now=lambda: NOW, transport=service.transport()
    )  # fmt: skip
    with closing(box):
        box.search("x")
    assert service.refreshes == 1


def test_many_threads_that_find_the_token_spent_renew_it_once(
    box: GmailMailbox, service: Gmail
) -> None:
    service.expire()
    threads = [threading.Thread(target=box.search, args=("x",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert service.refreshes == 1


def test_batches_that_find_the_token_spent_renew_it_once(box: GmailMailbox, service: Gmail) -> None:
    for number in range(5):
        service.receive(mail(subject=f"number {number}"))
    box.search("number")
    late = service.fail("POST /batch/", delay=0.5, times=2)
    threads = [threading.Thread(target=box.search, args=("number",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 10
    while late.seen < 2:  # both lists were answered, both batches are on their way
        assert time.monotonic() < deadline
    service.expire()
    for thread in threads:
        thread.join()
    assert service.refreshes == 1


def test_no_token_stands_in_any_error_or_in_how_a_thing_prints(
    box: GmailMailbox, service: Gmail, token: Path
) -> None:
    secrets = [json.loads(token.read_text())[key] for key in ("token", "refresh_token")]
    service.revoke()
    with pytest.raises(AuthRequired) as refused:
        box.search("x")
    told = f"{refused.value!r} {refused.value.message} {refused.value.remedy} {vars(box)}"
    assert not any(secret in told for secret in secrets)


def test_scopes_that_do_not_allow_it_name_the_ones_that_do(service: Gmail, tmp_path: Path) -> None:
    scope = "https://www.googleapis.com/auth/gmail.readonly"
    file = token_file(tmp_path, service.token(scopes=(scope,)))
    id = service.receive(mail())
    with closing(box_on(service, file)) as box:
        assert box.search("hello").items
        for change in (
            lambda: box.create_draft(letter(), date=SENDING),
            lambda: box.relabel(id, add=frozenset({"Work"})),
            lambda: box.prepare(letter(), box.wire(letter(), date=SENDING)),
        ):
            with pytest.raises(AuthRequired, match="does not allow") as refused:
                change()
            assert "--scopes modify" in refused.value.remedy


# Many at once


@for_each("limit", [100, 20, 7])
def test_a_list_is_whole_however_few_requests_gmail_takes_at_once(
    box: GmailMailbox, service: Gmail, limit: int
) -> None:
    ids = [service.receive(mail(subject=f"number {n}")) for n in range(50)]
    service.inner_limit = limit
    assert {item.id for item in box.search("number", limit=50).items} == set(ids[-50:])


def test_fifty_results_take_two_requests_and_the_names_of_labels_one_more_at_first(
    box: GmailMailbox, service: Gmail
) -> None:
    for n in range(50):
        service.receive(mail(subject=f"number {n}"), frozenset({INBOX, UNREAD, "Work"}))
    for most in (3, 2):
        service.requests.clear()
        page = box.search("number", limit=50)
        assert all("Work" in item.labels for item in page.items)
        assert len([one for one in service.requests if not one.inner]) == most


def test_what_is_gone_between_the_list_and_its_lines_is_left_out(
    box: GmailMailbox, service: Gmail
) -> None:
    ids = [service.receive(mail(subject=f"number {n}")) for n in range(3)]
    service.fail(f"GET /gmail/v1/users/me/messages/{ids[1]}", status=404, reason="notFound")
    assert {item.id for item in box.search("number").items} == {ids[0], ids[2]}


def test_a_service_without_batches_or_profile_is_asked_one_by_one(
    box: GmailMailbox, service: Gmail
) -> None:
    service.batch = service.answers_profile = False
    ids = [service.receive(mail(subject=f"number {n}")) for n in range(30)]
    assert {item.id for item in box.search("number", limit=50).items} == set(ids)
    cursor = box.changes().cursor
    new = service.receive(mail())
    assert box.changes(cursor).added == (new,)


def test_a_batch_whose_token_is_spent_in_between_is_asked_again(
    box: GmailMailbox, service: Gmail
) -> None:
    ids = [service.receive(mail(subject=f"number {n}")) for n in range(3)]
    service.fail("GET /gmail/v1/users/me/messages/", status=401)
    assert {item.id for item in box.search("number").items} == set(ids)
    assert service.refreshes == 1


def test_a_thousand_labels_are_known_by_their_names(box: GmailMailbox, service: Gmail) -> None:
    id = service.receive(mail(), frozenset({INBOX, *(f"Label {n}" for n in range(1000))}))
    assert len(box.message(id).labels) == 1001
    assert len(box.labels()) >= 1000
    assert box.relabel(id, remove=frozenset({"label-7"})).removed == {"Label 7"}


# Mails


def test_a_mail_without_headers_is_a_line_and_a_mail(box: GmailMailbox, service: Gmail) -> None:
    id = service.receive(b"\r\nOnly words.\r\n")
    service.fail(f"GET /gmail/v1/users/me/messages/{id}", body=json.dumps(
        {"id": id, "threadId": id}).encode())  # fmt: skip
    (line,) = box.search("").items
    assert (line.id, line.subject, line.sender.address) == (id, "", "")
    assert "Only words." in box.message(id).mail.text


def test_two_mails_of_one_message_id_and_one_without_are_three(
    box: GmailMailbox, service: Gmail
) -> None:
    ids = [service.receive(mail(message_id="<same@example.com>", text=text)) for text in "ab"]
    ids.append(service.receive(b"From: ann@example.com\r\nSubject: bare\r\n\r\nhi\r\n"))
    assert {item.id for item in box.search("").items} == set(ids)
    assert [box.message(id).mail.text.strip() for id in ids] == ["a", "b", "hi"]


def test_a_snippet_is_text_and_not_html(box: GmailMailbox, service: Gmail) -> None:
    service.receive(mail(text="Tom & Jerry's <b> \u200b\u202e x"))
    (line,) = box.search("").items
    assert line.snippet.startswith("Tom & Jerry's <b>")
    assert "\u202e" not in line.snippet
    assert "\u200b" not in line.snippet


def test_addresses_that_are_not_confirmed_are_not_own(box: GmailMailbox) -> None:
    assert "pending@example.net" not in {address.spec for address in box.own_addresses()}


def test_gmails_name_for_the_primary_category_is_ours(box: GmailMailbox, service: Gmail) -> None:
    id = service.receive(mail())
    box.relabel(id, add=frozenset({"CATEGORY_PRIMARY"}))
    assert "CATEGORY_PRIMARY" in box.message(id).labels


LARGE = 4_640_000


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/mixed",
        'multipart/mixed; boundary="nobody-uses-this"',
        "multipart/alternative",
        "text/plain",
        "application/octet-stream",
        "message/rfc822",
    ],
)
def test_a_large_mail_of_whatever_shape_hides_neither_itself_nor_its_conversation(
    box: GmailMailbox, service: Gmail, kind: str
) -> None:
    first = service.receive(mail(subject="Plan", message_id="<plan@example.com>"))
    hostile = (
        "From: eve@example.net\r\nSubject: Re: Plan\r\nMessage-ID: <evil@example.net>\r\n"
        f"In-Reply-To: <plan@example.com>\r\nContent-Type: {kind}\r\n\r\n"
    )
    large = service.receive(hostile.encode() + b"x" * 70 + b"\r\n" * (LARGE // 2))
    assert box.message(large).mail.subject == "Re: Plan"
    assert [one.id for one in box.thread(first).messages] == [first, large]


def test_a_large_mail_is_read_by_its_texts_and_its_files_are_the_ones_that_are_listed(
    box: GmailMailbox, service: Gmail
) -> None:
    from postroom.core.letter import Enclosure

    files = (
        Enclosure("a.bin", "application/octet-stream", b"a" * 3_000_000),
        Enclosure("b.txt", "text/plain", b"b" * 2_000_000),
    )
    one = letter(text="Grüße, see files.\n", html="<p>Grüße, see files.</p>", attachments=files)
    id = service.receive(box.wire(one, date=SENDING))
    found = box.message(id).mail
    assert found.text.strip() == "Grüße, see files."
    assert [(file.name, file.size) for file in found.attachments] == [
        ("a.bin", 3_000_000),
        ("b.txt", 2_000_000),
    ]
    for listed, sent in zip(found.attachments, files, strict=True):
        assert box.attachment(id, listed.part).read_all() == sent
    with pytest.raises(NotFound):
        box.attachment(id, "1.1")


# What is asked


def test_a_query_is_passed_on_as_it_is_typed(box: GmailMailbox, service: Gmail) -> None:
    typed = 'from:(amy OR bob) "exact  words" AROUND 5 holiday has:yellow-star {a b} -c'
    page = box.search(typed)
    (request,) = [one for one in service.requests if re.search(LIST, f"GET {one.path}")]
    assert request.query["q"] == [typed]
    assert "AROUND" in page.notes[0]
    assert "as it stands" in page.notes[0]


def test_a_query_that_is_understood_needs_no_note(box: GmailMailbox) -> None:
    assert box.search("from:amy newer_than:7d").notes == ()


@for_each("cursor", ["nonsense", "x" * 3000, "a b", "\u00fc"])
def test_a_cursor_that_gmail_did_not_give_is_refused(box: GmailMailbox, cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor is not valid"):
        box.search("x", cursor=cursor)


def test_history_that_gmail_has_forgotten_starts_again(box: GmailMailbox, service: Gmail) -> None:
    service.receive(mail())
    cursor = box.changes().cursor
    service.receive(mail(message_id="<two@example.com>"))
    service.forget_history()
    with pytest.raises(NotFound) as gone:
        box.changes(cursor)
    assert "search" in gone.value.remedy


def test_connections_are_kept(http_box: GmailMailbox, service: Gmail) -> None:
    for _ in range(10):
        http_box.search("x")
    assert service.connections == 1
