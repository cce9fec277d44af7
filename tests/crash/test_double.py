"""The Gmail double keeps to Google's published contract, and breaks it only where it is told to."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from httpx2 import Client

from tests.gmail.double import SCOPE, Failure, Gmail
from tests.gmail.store import Json
from tests.mails import DAY, mail

NOW = DAY.timestamp() + 3600
ME = "/gmail/v1/users/me"


@pytest.fixture
def gmail() -> Iterator[Gmail]:
    with Gmail(now=lambda: NOW) as gmail:
        yield gmail


@contextmanager
def user(
    gmail: Gmail, *, scopes: Iterable[str] = (f"{SCOPE}modify",), expires_in: float = 3600
) -> Iterator[Client]:
    """A client of the API with a token of its own."""
    headers = {
        "Authorization": f"Bearer {gmail.token(scopes=scopes, expires_in=expires_in)['token']}"
    }
    with httpx2.Client(base_url=gmail.endpoint, headers=headers, trust_env=False) as client:
        yield client


@pytest.fixture
def api(gmail: Gmail) -> Iterator[Client]:
    with user(gmail) as client:
        yield client


def coded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


def read(text: str) -> bytes:
    return base64.urlsafe_b64decode(text)


def reason(answer: httpx2.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return answer.status_code, error["errors"][0]["reason"]


def batched(api: httpx2.Client, *paths: str) -> tuple[httpx2.Response, dict[str, tuple[int, Json]]]:
    """Ask for many paths in one request; return the answers by Content-ID, in the order given."""
    parts = [
        f"--b\r\nContent-Type: application/http\r\nContent-ID: <{n}>\r\n\r\nGET {path}\r\n\r\n"
        for n, path in enumerate(paths)
    ]
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    answer = api.post("/batch/gmail/v1", content="".join(parts) + "--b--", headers=headers)
    found = re.findall(
        r"Content-ID: <(.+?)>\r\n\r\nHTTP/1\.1 (\d+).*?\r\n\r\n(.*?)\r\n--batch",
        answer.text,
        re.DOTALL,
    )
    return answer, {name: (int(status), json.loads(body)) for name, status, body in found}


def test_a_mail_is_the_same_in_every_format(gmail: Gmail, api: Client) -> None:
    boundary = 'multipart/mixed; boundary="x"'
    words = "Tom & Jérôme’s it's"
    raw = (
        "From: =?utf-8?q?J=C3=BCrg?= <j@example.com>\r\nTo: you@example.org\r\n"
        "Subject: Tom's\r\n\tplan\r\nDate: Sun, 01 Nov 2026 09:00:00 +0000\r\n"
        f"MIME-Version: 1.0\r\nContent-Type: {boundary}\r\n\r\n"
        "--x\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        f"{base64.b64encode(words.encode()).decode()}\r\n"
        "--x\r\nContent-Type: application/pdf\r\nContent-Transfer-Encoding: base64\r\n"
        'Content-Disposition: attachment; filename="a.pdf"\r\n\r\nJVBERi0=\r\n--x--\r\n'
    ).encode()
    id = gmail.receive(raw, frozenset({"INBOX", "Work/Now"}))
    assert re.fullmatch("[0-9a-f]{16}", id)

    assert read(api.get(f"{ME}/messages/{id}", params={"format": "raw"}).json()["raw"]) == raw
    full = api.get(f"{ME}/messages/{id}").json()
    assert full["threadId"] == id
    assert full["labelIds"] == ["INBOX", "Label_1"]
    assert full["internalDate"] == str(int(DAY.timestamp()) * 1000)
    assert full["snippet"] == "Tom &amp; Jérôme’s it&#39;s"
    assert {"name": "Subject", "value": "Tom's\tplan"} in full["payload"]["headers"]
    text, file = full["payload"]["parts"]
    assert (text["partId"], file["partId"]) == ("0", "1")
    assert read(text["body"]["data"]).decode() == words
    assert file["filename"] == "a.pdf"
    assert "data" not in file["body"]

    again = api.get(f"{ME}/messages/{id}").json()["payload"]["parts"][1]["body"]["attachmentId"]
    assert again != file["body"]["attachmentId"]
    for token in (again, file["body"]["attachmentId"]):
        found = api.get(f"{ME}/messages/{id}/attachments/{token}").json()
        assert (found["size"], read(found["data"])) == (5, b"%PDF-")

    asked = {"format": "metadata", "metadataHeaders": ["from", "TO"]}
    headers = api.get(f"{ME}/messages/{id}", params=asked).json()["payload"]["headers"]
    assert [each["name"] for each in headers] == ["From", "To"]
    assert "payload" not in api.get(f"{ME}/messages/{id}", params={"format": "minimal"}).json()


def test_a_list_comes_in_pages_newest_first_and_hides_spam_and_trash(
    gmail: Gmail, api: Client
) -> None:
    ids = [
        gmail.receive(mail(subject=f"n{n}", date=DAY.replace(minute=n, day=1 if n else 2)))
        for n in range(5)
    ]
    gmail.receive(mail(), frozenset({"SPAM"}))
    newest = [ids[0], *reversed(ids[1:])]

    found, token = [], ""
    while True:
        asked = {"maxResults": 2} | ({"pageToken": token} if token else {})
        page = api.get(f"{ME}/messages", params=asked).json()
        found += [each["id"] for each in page["messages"]]
        token = page.get("nextPageToken")
        if not token:
            break
        gmail.receive(mail(date=DAY.replace(minute=59)))  # does not shift the pages to come
    assert found == newest

    everything = api.get(f"{ME}/messages", params={"includeSpamTrash": "true"}).json()
    assert len(everything["messages"]) == 8
    assert len(api.get(f"{ME}/messages", params={"labelIds": "SPAM"}).json()["messages"]) == 1
    empty = api.get(f"{ME}/messages", params={"q": "nowhere"}).json()
    assert empty == {"resultSizeEstimate": 0}
    wrong = api.get(f"{ME}/messages", params={"pageToken": "x"})
    assert reason(wrong) == (400, "invalidArgument")


def test_a_search_means_what_the_project_means_by_it(gmail: Gmail, api: Client) -> None:
    work = gmail.receive(mail(subject="Plan", message_id="<p@x>"), frozenset({"To Do", "TRASH"}))
    gmail.receive(mail(subject="Other"), frozenset({"INBOX", "CATEGORY_PRIMARY"}))

    def found(q: str, **more: str) -> list[str]:
        answer = api.get(f"{ME}/messages", params={"q": q, **more}).json()
        return [each["id"] for each in answer.get("messages", [])]

    assert found("subject:plan") == []
    assert found("subject:plan in:anywhere") == [work]
    assert found("subject:plan", includeSpamTrash="true") == [work]
    assert found("subject:plan", labelIds="TRASH") == [work]
    assert found("label:to-do in:trash") == [work]
    assert found("rfc822msgid:p@x in:anywhere") == [work]
    assert len(found("category:primary")) == 1
    # DAY is nine o'clock in Greenwich, an hour into the day of Google's searches.
    assert len(found("after:2026/11/01")) == 1
    assert found("before:2026/11/01") == []


def test_mails_that_refer_to_each_other_are_one_thread_whichever_comes_first(
    gmail: Gmail, api: Client
) -> None:
    first = gmail.receive(mail(message_id="<a@x>"))
    answer = gmail.receive(mail(message_id="<c@x>", more="In-Reply-To: <b@x>\r\n"))
    thread = {id: api.get(f"{ME}/messages/{id}").json()["threadId"] for id in (first, answer)}
    assert thread == {first: first, answer: answer}

    between = gmail.receive(mail(message_id="<b@x>", more="References: <a@x>\r\n"))
    whole = api.get(f"{ME}/threads/{first}", params={"format": "minimal"}).json()
    assert {each["id"] for each in whole["messages"]} == {first, answer, between}
    assert {each["threadId"] for each in whole["messages"]} == {first}
    assert reason(api.get(f"{ME}/threads/{answer}")) == (404, "notFound")


def test_a_mail_leaves_under_a_message_id_of_gmails_with_its_words_unchanged(
    gmail: Gmail, api: Client
) -> None:
    text = "Grüße, " + "w" * 100 + "\r\n.\r\nend "
    more = "X-Postroom-Letter: L-1\r\nBcc: b@example.net\r\n"
    raw = mail(to="Ann <ann@example.com>", text=text, message_id="<mine@x>", more=more)
    answer = api.post(f"{ME}/messages/send", json={"raw": coded(raw)}).json()
    assert answer["labelIds"] == ["SENT"]

    (sent,) = gmail.sent
    assert (sent.id, sent.letter) == (answer["id"], "L-1")
    assert b"Bcc" not in sent.raw
    copy = read(api.get(f"{ME}/messages/{sent.id}", params={"format": "raw"}).json()["raw"])
    assert b"Bcc: b@example.net" in copy
    assert b"X-Google-Original-Message-ID: <mine@x>" in copy
    assert re.search(rb"\r\nMessage-ID: <[\w-]+@mail\.gmail\.com>", copy)
    assert b"Content-Transfer-Encoding: quoted-printable" in copy
    body = api.get(f"{ME}/messages/{sent.id}").json()["payload"]["body"]
    assert read(body["data"]).decode() == f"{text}\r\n"

    gmail.replaces_message_id = gmail.rebuilds_plain = False
    api.post(f"{ME}/messages/send", json={"raw": coded(raw)})
    assert gmail.sent[1].raw == raw.replace(b"Bcc: b@example.net\r\n", b"")


def test_a_mail_is_taken_by_every_way_of_upload(gmail: Gmail, api: Client) -> None:
    raw = mail(to="desk@example.org", subject="Re: Hello")
    parent = gmail.receive(mail())
    media = {"Content-Type": "message/rfc822"}
    path = f"/upload{ME}/messages/send"
    pieces = iter([raw[:40], raw[40:]])  # which httpx sends in chunks
    answer = api.post(path, params={"uploadType": "media"}, content=pieces, headers=media).json()
    assert answer["labelIds"] == ["INBOX", "SENT", "UNREAD"]
    assert answer["threadId"] == answer["id"]

    related = (
        b"--q\r\nContent-Type: application/json\r\n\r\n"
        + json.dumps({"threadId": parent}).encode()
        + b"\r\n--q\r\nContent-Type: message/rfc822\r\n\r\n"
        + raw
        + b"\r\n--q--"
    )
    kind = {"Content-Type": 'multipart/related; boundary="q"'}
    asked = {"uploadType": "multipart"}
    answer = api.post(path, params=asked, content=related, headers=kind).json()
    assert answer["threadId"] == parent
    assert b"X-Google-Original" not in gmail.sent[1].raw  # for there was none
    stranger = related.replace(b"Re: Hello", b"Re: Quite another thing")
    answer = api.post(path, params=asked, content=stranger, headers=kind).json()
    assert answer["threadId"] == answer["id"]
    assert len(gmail.sent) == 3


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"Subject: x\r\n\r\nhi", "Recipient address required"),
        (b"To: undisclosed-recipients:;\r\n\r\nhi", "Recipient address required"),
        (b"To: not an address\r\n\r\nhi", "Invalid To header"),
        (b"To: a@\r\n\r\nhi", "Invalid To header"),
        (b"To: a@example.com\r\nCc: <<>\r\n\r\nhi", "Invalid Cc header"),
    ],
)
def test_a_mail_to_nobody_stays(gmail: Gmail, api: Client, raw: bytes, message: str) -> None:
    answer = api.post(f"{ME}/messages/send", json={"raw": coded(raw)})
    assert (*reason(answer), answer.json()["error"]["message"]) == (400, "invalidArgument", message)
    draft = api.post(f"{ME}/drafts", json={"message": {"raw": coded(raw)}}).json()["id"]
    assert api.post(f"{ME}/drafts/send", json={"id": draft}).status_code == 400
    assert api.get(f"{ME}/drafts/{draft}").status_code == 200
    assert gmail.sent == []


def test_a_draft_is_sent_once_however_many_ask(gmail: Gmail, api: Client) -> None:
    raw = mail(to="ann@example.com")
    draft = api.post(f"{ME}/drafts", json={"message": {"raw": coded(raw)}}).json()
    assert re.fullmatch(r"r\d+", draft["id"])
    path = f"{ME}/drafts/{draft['id']}"
    other = mail(to="ann@example.com", subject="Better")
    updated = api.put(path, json={"message": {"raw": coded(other)}}).json()
    assert updated["id"] == draft["id"]
    assert updated["message"]["id"] != draft["message"]["id"]
    assert api.get(f"{ME}/messages/{draft['message']['id']}").status_code == 404

    def send() -> None:
        statuses.append(api.post(f"{ME}/drafts/send", json={"id": draft["id"]}).status_code)

    statuses: list[int] = []
    senders = [threading.Thread(target=send) for _ in range(4)]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    assert sorted(statuses) == [200, 404, 404, 404]
    assert b"Subject: Better" in gmail.sent[0].raw
    assert len(gmail.sent) == 1
    assert reason(api.get(path)) == (404, "notFound")
    assert "drafts" not in api.get(f"{ME}/drafts").json()
    lost = {"message": {"raw": coded(raw), "threadId": "00000000000000ff"}}
    assert reason(api.post(f"{ME}/drafts", json=lost)) == (404, "notFound")


def test_a_deleted_draft_is_gone_without_a_word(api: Client) -> None:
    draft = api.post(f"{ME}/drafts", json={"message": {"raw": coded(mail())}}).json()["id"]
    listed = api.get(f"{ME}/drafts").json()["drafts"]
    assert [each["id"] for each in listed] == [draft]
    gone = api.delete(f"{ME}/drafts/{draft}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert api.delete(f"{ME}/drafts/{draft}").status_code == 404


def test_labels_are_kept_apart_by_name_whatever_their_case(gmail: Gmail, api: Client) -> None:
    made = api.post(f"{ME}/labels", json={"name": "Work"}).json()
    assert made["id"] == "Label_1"
    assert reason(api.post(f"{ME}/labels", json={"name": "wORK"})) == (409, "aborted")
    assert reason(api.post(f"{ME}/labels", json={"name": "inbox"})) == (400, "invalidArgument")

    id = gmail.receive(mail())
    path = f"{ME}/messages/{id}/modify"
    asked = {"addLabelIds": ["Label_1", "Label_1"], "removeLabelIds": ["INBOX", "UNREAD"]}
    assert api.post(path, json=asked).json()["labelIds"] == ["Label_1"]
    bare = api.post(path, json={"removeLabelIds": ["Label_1"]}).json()
    assert "labelIds" not in bare
    for label in ("SENT", "DRAFT", "Label_9"):
        answer = api.post(path, json={"addLabelIds": [label]})
        assert reason(answer) == (400, "invalidArgument")
    kinds = {each["id"]: each["type"] for each in api.get(f"{ME}/labels").json()["labels"]}
    assert (kinds["CATEGORY_PERSONAL"], kinds["Label_1"]) == ("system", "user")


def test_the_history_tells_each_change_once_until_it_is_forgotten(
    gmail: Gmail, api: Client
) -> None:
    start = api.get(f"{ME}/profile").json()["historyId"]
    since = {"startHistoryId": start}
    assert api.get(f"{ME}/history", params=since).json() == {"historyId": start}
    id = gmail.receive(mail())
    api.post(f"{ME}/messages/{id}/modify", json={"removeLabelIds": ["UNREAD"]})
    api.post(f"{ME}/messages/{id}/modify", json={"removeLabelIds": ["UNREAD"]})

    first = api.get(f"{ME}/history", params={**since, "maxResults": 1}).json()
    rest = {**since, "pageToken": first["nextPageToken"]}
    second = api.get(f"{ME}/history", params=rest).json()
    added, removed = first["history"] + second["history"]
    assert added["messagesAdded"][0]["message"]["id"] == id
    assert removed["labelsRemoved"][0]["labelIds"] == ["UNREAD"]
    assert int(start) < int(added["id"]) < int(removed["id"])
    assert api.get(f"{ME}/messages/{id}").json()["historyId"] == removed["id"]
    only = api.get(f"{ME}/history", params={**since, "historyTypes": "labelRemoved"}).json()
    assert len(only["history"]) == 1

    for bad in ("0", "99999999"):
        answer = api.get(f"{ME}/history", params={"startHistoryId": bad})
        assert reason(answer) == (404, "notFound")
    assert api.get(f"{ME}/history", params={"startHistoryId": "x"}).status_code == 400
    latest = second["historyId"]
    gmail.forget_history()
    assert api.get(f"{ME}/history", params={"startHistoryId": latest}).status_code == 404
    fresh = api.get(f"{ME}/profile").json()["historyId"]
    assert api.get(f"{ME}/history", params={"startHistoryId": fresh}).status_code == 200


def test_a_lagging_search_is_blind_to_what_is_new(gmail: Gmail, api: Client) -> None:
    old = gmail.receive(mail(text="needle"))
    gmail.lags = True
    new = gmail.receive(mail(text="needle"))

    def found(**asked: str) -> set[str]:
        return {each["id"] for each in api.get(f"{ME}/messages", params=asked).json()["messages"]}

    assert found(q="needle") == {old}
    assert found() == {old, new}
    gmail.catch_up()
    assert found(q="needle") == {old, new}


def test_a_batch_is_answered_in_any_order_and_refuses_by_the_piece(
    gmail: Gmail, api: Client
) -> None:
    ids = [gmail.receive(mail(subject=f"n{n}")) for n in range(3)]
    gmail.inner_limit = 3
    paths = [f"{ME}/messages/{id}?fields=id,payload(headers/name)" for id in ids]
    gmail.fail(f"GET {ME}/messages/{ids[1]}", status=500)
    answer, found = batched(api, *paths, f"{ME}/profile")
    assert list(found) == ["response-3", "response-2", "response-1", "response-0"]
    assert [found[f"response-{n}"][0] for n in range(4)] == [200, 500, 200, 429]
    whole = found["response-0"][1]
    assert set(whole) == {"id", "payload"}
    assert whole["payload"]["headers"][0] == {"name": "From"}
    assert [each.status for each in gmail.requests if each.inner] == [200, 500, 200, 429]
    assert gmail.requests[-1].path == "/batch/gmail/v1"

    gmail.fail(f"{ME}/labels", lost="after")
    with pytest.raises(httpx2.RemoteProtocolError):
        batched(api, f"{ME}/profile", f"{ME}/labels")
    assert batched(api, *[f"{ME}/profile"] * 101)[0].status_code == 400
    gmail.expire()
    answer, found = batched(api, f"{ME}/profile")
    assert (answer.status_code, found["response-0"][0]) == (200, 401)
    gmail.batch = False
    assert batched(api, f"{ME}/profile")[0].status_code == 404


def test_a_token_opens_what_its_scopes_say_for_as_long_as_it_lasts(gmail: Gmail) -> None:
    with user(gmail, scopes=[f"{SCOPE}readonly"]) as reader:
        id = gmail.receive(mail())
        assert reader.get(f"{ME}/messages/{id}").status_code == 200
        answer = reader.post(f"{ME}/messages/{id}/modify", json={})
        assert reason(answer) == (403, "insufficientPermissions")
        error = answer.json()["error"]
        assert error["details"][0]["reason"] == "ACCESS_TOKEN_SCOPE_INSUFFICIENT"
        assert error["status"] == "PERMISSION_DENIED"
        gmail.expire()
        late = reader.get(f"{ME}/profile")
        assert reason(late) == (401, "authError")
        assert "invalid_token" in late.headers["www-authenticate"]
    with user(gmail, scopes=[f"{SCOPE}send"]) as sender:
        letter = {"raw": coded(mail(to="ann@example.com"))}
        assert sender.post(f"{ME}/messages/send", json=letter).status_code == 200
        assert sender.get(f"{ME}/messages").status_code == 403
    with user(gmail, expires_in=0) as expired:
        assert expired.get(f"{ME}/profile").status_code == 401


def test_a_refresh_token_is_good_until_it_is_revoked(gmail: Gmail) -> None:
    stored = gmail.token(expires_in=0)
    assert stored["expiry"] == "2026-11-01T10:00:00Z"
    form = {
        "grant_type": "refresh_token",
        **{name: stored[name] for name in ("refresh_token", "client_id", "client_secret")},
    }
    with httpx2.Client(trust_env=False) as web:
        wrong = web.post(stored["token_uri"], data={**form, "client_secret": "no"})
        assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
        fresh = web.post(stored["token_uri"], data=form).json()
        assert set(fresh) == {"access_token", "expires_in", "scope", "token_type"}
        assert gmail.refreshes == 1
        url, headers = (
            f"{gmail.endpoint}{ME}/profile",
            {"Authorization": f"Bearer {fresh['access_token']}"},
        )
        assert web.get(url, headers=headers).status_code == 200
        assert web.post(gmail.revoke_uri, data={"token": fresh["access_token"]}).status_code == 200
        assert web.post(gmail.revoke_uri, data={"token": "unknown"}).status_code == 400
        assert web.get(url, headers=headers).status_code == 401
        void = web.post(stored["token_uri"], data=form)
        said = {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
        assert (void.status_code, void.json()) == (400, said)


def test_consent_gives_a_code_that_is_good_once_and_only_with_its_verifier(gmail: Gmail) -> None:
    client = gmail.client()["installed"]
    verifier = "v" * 43
    digest = hashlib.sha256(verifier.encode()).digest()
    asked = {
        "response_type": "code",
        "client_id": client["client_id"],
        "redirect_uri": "http://localhost:5000/",
        "scope": f"{SCOPE}modify {SCOPE}labels",
        "state": "s",
        "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        "access_type": "offline",
        "prompt": "consent",
    }

    def back(**changes: str) -> dict[str, list[str]]:
        answer = web.get(client["auth_uri"], params={**asked, **changes})
        assert answer.status_code == 302
        return parse_qs(urlsplit(answer.headers["location"]).query)

    def exchange(code: str, **changes: str) -> httpx2.Response:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": client["client_id"],
            "client_secret": client["client_secret"],
            "redirect_uri": asked["redirect_uri"],
            "code_verifier": verifier,
        }
        return web.post(client["token_uri"], data={**form, **changes})

    with httpx2.Client(trust_env=False) as web:
        given = back()
        assert given["state"] == ["s"]
        first = exchange(given["code"][0])
        assert first.json()["refresh_token"]
        assert first.json()["scope"] == asked["scope"]
        assert exchange(given["code"][0]).json()["error"] == "invalid_grant"
        assert exchange(back()["code"][0], code_verifier="w" * 43).status_code == 400
        assert exchange(back()["code"][0], redirect_uri="http://localhost:5001/").status_code == 400
        gmail.grants = (f"{SCOPE}labels",)
        online = exchange(back(prompt="none")["code"][0]).json()
        assert online["scope"] == f"{SCOPE}labels"
        assert "refresh_token" not in online
        gmail.denies = True
        assert back() == {"state": ["s"], "error": ["access_denied"]}


def test_a_fault_strikes_where_and_as_often_as_it_is_told(gmail: Gmail, api: Client) -> None:
    limit = gmail.fail(
        r"GET .*/labels$",
        status=429,
        message="Slow down",
        headers={"Retry-After": "2"},
        times=2,
        skip=1,
    )
    answers = [api.get(f"{ME}/labels") for _ in range(4)]
    assert [each.status_code for each in answers] == [200, 429, 429, 200]
    assert answers[1].headers["retry-after"] == "2"
    assert reason(answers[1]) == (429, "rateLimitExceeded")
    assert (limit.seen, limit.struck.is_set()) == (2, True)

    letter = {"raw": coded(mail(to="ann@example.com"))}
    for lost, count in (("before", 0), ("after", 1)):
        gmail.fail("POST .*/send", lost=lost)
        with pytest.raises(httpx2.RemoteProtocolError):
            api.post(f"{ME}/messages/send", json=letter)
        assert len(gmail.sent) == count
        assert gmail.requests[-1].status == 0
    gmail.fail("POST .*/send", cut=True)
    with pytest.raises(httpx2.RemoteProtocolError):
        api.post(f"{ME}/messages/send", json=letter)
    assert len(gmail.sent) == 2
    gmail.fail("profile", body=b"<html>", status=200)
    assert api.get(f"{ME}/profile").content == b"<html>"
    assert api.get(f"{ME}/profile").status_code == 200


def outcome(ask: Callable[[], httpx2.Response]) -> object:
    """Return what a caller gets: the answer's parts, or the error and its text."""
    try:
        answer = ask()
    except httpx2.RequestError as error:
        return type(error), str(error)
    return answer.status_code, dict(answer.headers), answer.content


def test_a_request_has_the_same_outcome_in_process_and_over_http(gmail: Gmail, api: Client) -> None:
    headers = dict(api.headers)
    requests = [
        ("GET", f"{ME}/profile", None),
        ("GET", f"{ME}/messages?q=a%20b&labelIds=INBOX&labelIds=UNREAD", None),
        ("GET", "/nowhere", None),
        ("POST", f"{ME}/labels", {"name": "inbox"}),
        ("DELETE", f"{ME}/drafts/r1", None),
        ("POST", "/token", {"grant_type": "none"}),
    ]
    faults: list[Failure] = [
        {},
        {"lost": "before"},
        {"lost": "after"},
        {"cut": True},
        {"status": 429, "headers": {"Retry-After": "2"}, "message": "Slöw"},
        {"status": 302, "headers": {"Location": "https://example.com/"}},
        {"body": b""},
        {"body": b"<html>" * 20_000, "status": 502},
        {"body": b"<html>" * 20_000, "cut": True},
    ]
    with httpx2.Client(
        base_url=gmail.endpoint, headers=headers, transport=gmail.transport()
    ) as inside:
        for (method, path, body), fault in product(requests, faults):
            found = []
            for client in (inside, api):
                if fault:
                    gmail.fail("", **fault)
                found.append(outcome(partial(client.request, method, path, json=body)))
            assert found[0] == found[1], (method, path, fault)
            first, second = gmail.requests[-2:]
            assert first == second, (method, path, fault)


def test_one_connection_serves_many_requests_and_a_slow_one_holds_up_nobody(
    gmail: Gmail, api: Client
) -> None:
    for _ in range(3):
        api.get(f"{ME}/settings/sendAs")
    assert gmail.connections == 1
    addresses = api.get(f"{ME}/settings/sendAs").json()["sendAs"]
    assert [(each["sendAsEmail"], each.get("verificationStatus")) for each in addresses] == [
        ("you@example.org", None),
        ("desk@example.org", "accepted"),
        ("pending@example.net", "pending"),
    ]

    def hang() -> None:
        with user(slow_gmail) as client, suppress(httpx2.TransportError):
            client.get(f"{ME}/labels", timeout=60)

    with Gmail() as slow_gmail:
        slow = slow_gmail.fail("labels", delay=600)
        hung = threading.Thread(target=hang)
        hung.start()
        assert slow.struck.wait(10)
        with user(slow_gmail) as other:
            assert other.get(f"{ME}/profile").status_code == 200
    hung.join(10)  # leaving ends the delay
    assert not hung.is_alive()


def test_what_google_does_not_know_is_refused(gmail: Gmail, api: Client) -> None:
    page = api.get("/gmail/v1/users/me/nothing")
    assert page.status_code == 404
    assert page.text.startswith("<!DOCTYPE html>")
    assert reason(api.get("/gmail/v1/users/bob@example.org/profile")) == (403, "forbidden")
    assert api.get("/gmail/v1/users/you%40example.org/profile").status_code == 200
    assert reason(api.get(f"{ME}/messages", params={"query": "x"})) == (400, "invalidArgument")
    assert reason(api.get(f"{ME}/profile", params={"fields": "a(b"})) == (400, "invalidArgument")
    assert api.get(
        f"{ME}/profile", params={"fields": "emailAddress", "prettyPrint": "false"}
    ).json() == {"emailAddress": "you@example.org"}
    assert reason(api.get(f"{ME}/messages/nope")) == (400, "invalidArgument")
    assert reason(api.get(f"{ME}/messages/00000000000000ff")) == (404, "notFound")
    assert reason(api.post(f"{ME}/messages/send", json={"raw": "a+b/"})) == (400, "invalidArgument")
    gmail.answers_profile = False
    assert api.get(f"{ME}/profile").status_code == 404
