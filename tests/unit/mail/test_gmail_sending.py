"""Sending through Gmail: one request, and proof of what became of it."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroom.core.errors import (
    Denied,
    Invalid,
    Limited,
    NotFound,
    PostroomError,
    Unavailable,
    Uncertain,
)
from postroom.core.letter import Letter
from postroom.core.message import SENT
from postroom.mail.gmail.mailbox import GmailMailbox
from postroom.mail.mailbox import Accepted, NotSent, TokenRenewed, Unproven
from tests.cases import for_each
from tests.gmail.boxes import SENDING, asked, box_on, gmail_box, letter
from tests.gmail.double import Gmail

LIST = r"GET /gmail/v1/users/me/messages$"
ACT = r"POST /gmail/v1/users/me/(drafts|messages)/send$"


def prepared(box: GmailMailbox, one: Letter) -> tuple[bytes, str]:
    wire = box.wire(one, date=SENDING)
    return wire, box.prepare(one, wire)


def try_to_send(box: GmailMailbox, one: Letter | None = None) -> Accepted:
    one = one or letter()
    wire, proof = prepared(box, one)
    return box.send(one, wire, proof)


BROKEN = [{"lost": "before"}, {"lost": "after"}, {"cut": True}]  # ways that a connection fails


@for_each("by_draft", [True, False])
@for_each(
    ("how", "error"),
    [
        *((how, Uncertain) for how in BROKEN),
        ({"status": 500}, Uncertain),
        ({"status": 502}, Uncertain),
        ({"status": 503, "headers": {"Retry-After": "1"}}, Uncertain),
        ({"status": 504}, Uncertain),
        ({"body": b"{}"}, Uncertain),
        ({"body": b"<html>"}, Uncertain),
        ({"body": b'{"id": 3, "threadId": null}'}, Uncertain),
        ({"status": 429}, Limited),
        ({"status": 403, "reason": "userRateLimitExceeded"}, Limited),
        ({"status": 403, "reason": "forbidden"}, Denied),
        ({"status": 401}, TokenRenewed),
        ({"status": 400, "message": "Invalid To header"}, Invalid),
    ],
)
def test_a_send_is_one_request_whatever_becomes_of_it(
    service: Gmail, token: Path, by_draft: bool, how: dict[str, Any], error: type[PostroomError]
) -> None:
    pauses: list[float] = []
    service.requests.clear()
    with closing(box_on(service, token, pauses, by_draft=by_draft)) as box:
        with service.failing(ACT, **how), pytest.raises(error):
            try_to_send(box)
        assert asked(service, ACT) == 1
        assert not pauses


@for_each("how", BROKEN)
def test_a_send_over_a_connection_that_breaks_is_one_request(
    http_box: GmailMailbox, service: Gmail, pauses: list[float], how: dict[str, Any]
) -> None:
    service.requests.clear()
    with service.failing(ACT, **how), pytest.raises(Uncertain):
        try_to_send(http_box)
    assert asked(service, ACT) == 1
    assert not pauses


class Breaking(httpx2.BaseTransport):
    """A way to the service that breaks off, as this error says, instead of sending a letter."""

    def __init__(self, service: Gmail, error: type[httpx2.RequestError]) -> None:
        self._service = service.transport()
        self._error = error

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if re.search(ACT, f"{request.method} {request.url.path}"):
            raise self._error("broken", request=request)
        return self._service.handle_request(request)


@for_each(
    ("broken", "error"),
    [
        # Nothing can have been sent before there is a connection, and a request.
        (httpx2.ConnectError, Unavailable),
        (httpx2.ConnectTimeout, Unavailable),
        (httpx2.PoolTimeout, Unavailable),
        (httpx2.ProxyError, Unavailable),
        (httpx2.UnsupportedProtocol, Unavailable),
        (httpx2.LocalProtocolError, Unavailable),
        (httpx2.ReadTimeout, Uncertain),
        (httpx2.WriteTimeout, Uncertain),
        (httpx2.ReadError, Uncertain),
        (httpx2.WriteError, Uncertain),
        (httpx2.CloseError, Uncertain),
        (httpx2.RemoteProtocolError, Uncertain),
        (httpx2.DecodingError, Uncertain),
        (httpx2.TooManyRedirects, Uncertain),
    ],
)
def test_a_send_that_breaks_off_is_uncertain_unless_nothing_can_have_left(
    service: Gmail, token: Path, broken: type[httpx2.RequestError], error: type[PostroomError]
) -> None:
    where = service.endpoint, service.token_uri, token
    with closing(gmail_box(*where, transport=Breaking(service, broken))) as box:
        with pytest.raises(error):
            try_to_send(box)
        assert not service.sent


def test_what_is_sent_is_what_was_approved_even_if_its_draft_was_changed(
    box: GmailMailbox, service: Gmail
) -> None:
    one = letter(text="As approved.\n")
    wire, proof = prepared(box, one)
    (draft,) = box.drafts()
    box.revise_draft(
        draft, letter(2, text="Something else.\n"), version=box.drafts()[draft], date=SENDING
    )
    sent = box.send(one, wire, proof)
    assert "As approved." in box.message(sent.message).mail.text
    assert [left.letter for left in service.sent] == [one.id]
    assert not box.drafts()


def test_a_lost_answer_is_settled_by_the_draft_and_the_next_try_goes_by_the_same(
    box: GmailMailbox, service: Gmail
) -> None:
    one = letter()
    wire, proof = prepared(box, one)
    service.fail(ACT, lost="before")
    with pytest.raises(Uncertain):
        box.send(one, wire, proof)
    assert isinstance(box.find_outcome(one, proof), NotSent)
    assert isinstance(box.find_outcome(one, proof), NotSent)
    sent = box.send(one, wire, proof)
    assert box.find_outcome(one, proof) == sent
    with pytest.raises(NotFound):  # however often it is tried
        box.send(one, wire, proof)
    assert len(service.sent) == 1


@pytest.mark.parametrize("by_draft", [True, False])
@pytest.mark.parametrize("forgotten", [True, False])
def test_a_letter_that_was_sent_is_found_though_its_message_id_is_gone_and_search_lags(
    service: Gmail, token: Path, by_draft: bool, forgotten: bool
) -> None:
    with closing(box_on(service, token, by_draft=by_draft)) as box:
        one = letter()
        wire, proof = prepared(box, one)
        service.lags = True
        service.fail(ACT, lost="after")
        with pytest.raises(Uncertain):
            box.send(one, wire, proof)
        if forgotten:
            service.forget_history()
        assert not box.search("in:sent").items
        found = box.find_outcome(one, proof)
        assert isinstance(found, Accepted)
        assert SENT in box.message(found.message).labels


def test_not_finding_a_letter_is_never_proof_that_it_was_not_sent(
    service: Gmail, token: Path
) -> None:
    with closing(box_on(service, token, by_draft=False)) as box:
        one = letter()
        wire, proof = prepared(box, one)
        service.fail(ACT, lost="before")
        with pytest.raises(Uncertain):
            box.send(one, wire, proof)
        assert isinstance(box.find_outcome(one, proof), Unproven)


def test_a_draft_that_a_person_deleted_leaves_the_letter_unknown(box: GmailMailbox) -> None:
    one = letter()
    _, proof = prepared(box, one)
    for draft, version in box.drafts().items():
        box.discard_draft(draft, version=version)
    assert isinstance(box.find_outcome(one, proof), Unproven)


def test_before_anything_was_handed_over_nothing_was_sent_and_stray_drafts_go(
    box: GmailMailbox, service: Gmail
) -> None:
    service.fail(r"POST /gmail/v1/users/me/drafts$", lost="after")
    with pytest.raises(Uncertain, match="lost"):
        prepared(box, letter())
    _, proof = prepared(box, letter())
    prepared(box, letter(2))  # and the process dies here, before its proof was kept
    mine = box.create_draft(letter(3), date=SENDING)
    assert isinstance(box.find_outcome(letter(2), ""), NotSent)
    assert len(box.drafts()) == 4
    assert box.sweep(letter(), proof)
    assert box.sweep(letter(2))
    assert set(box.drafts()) == {mine.id, proof.split(":")[1]}


def test_a_letter_with_a_large_file_is_uploaded(box: GmailMailbox, service: Gmail) -> None:
    from postroom.core.letter import Enclosure

    one = letter(attachments=(Enclosure("a.bin", "application/octet-stream", b"\1" * 2_000_000),))
    sent = try_to_send(box, one)
    assert asked(service, r"POST /upload/gmail/v1/users/me/drafts/send$") == 1
    assert box.attachment(sent.message, "2").read_all().content == b"\1" * 2_000_000


def test_bcc_reaches_gmail_and_no_recipient(box: GmailMailbox, service: Gmail) -> None:
    from postroom.core.address import Address

    sent = try_to_send(box, letter(bcc=(Address.parse("hidden@example.net"),)))
    assert box.message(sent.message).mail.bcc[0].address == "hidden@example.net"
    assert b"hidden@example.net" not in service.sent[0].raw
