"""The walls: no page is shown and no post is taken but from a browser that was let in, by a page of the desk."""

import re
import socket
from collections.abc import Iterator
from datetime import UTC
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from postroom.core.letter import Enclosure
from postroom.core.records import Entry
from postroom.web.handlers import Handlers
from postroom.web.live import AutoDispatcher
from postroom.web.request import MAX_FORM
from postroom.web.serve import build_app
from tests.desks import Office
from tests.narrow import narrow, present
from tests.unit.web.browser import PROXY, WORD, Browser, Site, fine, opened, until

SECRET = "the secret of the letter"
OPEN = ("/in", "/in/{ticket}", "/static/{name}")  # what must be reached to be let in


@pytest.fixture
def entry(office: Office) -> Entry:
    file = Enclosure("plan.txt", "text/plain", SECRET.encode())
    return office.propose(
        office.letter(subject=f"{SECRET} 1", html=f"<p>{SECRET} 2</p>", attachments=(file,))
    )  # fmt: skip


def routes(office: Office, site: Site, method: str) -> list[str]:
    """Return every address of the page that takes this method, as it is written."""
    handlers = Handlers(
        services=office.services, sessions=site.sessions, dispatcher=AutoDispatcher(office.desk), zone=UTC,
        checks=fine, mail_checks=fine,
    )  # fmt: skip
    inner = narrow(build_app(handlers).inner, Starlette)
    routes = [narrow(route, Route) for route in inner.routes]
    return [route.path for route in routes if method in present(route.methods)]


def guarded(office: Office, site: Site, entry: Entry, method: str) -> list[str]:
    """Return the addresses behind the door, for this letter."""
    found = [path for path in routes(office, site, method) if path not in OPEN]
    return [path.replace("{id}", entry.id).replace("{at:int}", "0") for path in found]


def said(site: Site, request: bytes) -> tuple[int, str, str]:
    """Return what is answered to these very bytes."""
    with socket.create_connection(("127.0.0.1", site.sessions.port), timeout=20) as line:
        line.sendall(request)
        found = b""
        while piece := line.recv(65_536):
            found += piece
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body.decode()


def asked(site: Site, *lines: str, method: str = "GET", path: str = "/") -> tuple[int, str, str]:
    head = [f"{method} {path} HTTP/1.1", *lines, "Connection: close", "", ""]
    return said(site, "\r\n".join(head).encode("latin-1"))


# Who is not let in


def test_a_stranger_is_shown_no_page_and_nothing_of_the_letters(
    office: Office, site: Site, entry: Entry
) -> None:
    stranger = site.stranger()
    paths = guarded(office, site, entry, "GET")
    assert len(paths) >= 13
    for path in paths:
        for method in ("GET", "HEAD"):
            answer = stranger.ask(method, path)
            assert answer.status == 401, path
            assert SECRET not in answer.text
            assert entry.id not in answer.text


def test_a_stranger_can_post_nothing(office: Office, site: Site, entry: Entry) -> None:
    stranger = site.stranger()
    paths = guarded(office, site, entry, "POST")
    assert len(paths) >= 11
    before = office.desk.ledger.actions.head()
    for path in paths:
        answer = stranger.send(path, {"token": "", "digest": entry.digest, "reason": "no"})
        assert answer.status == 401, path
        assert SECRET not in answer.text
    assert office.state_of(entry.id) == "pending"
    assert office.desk.ledger.actions.head() == before


def test_every_address_that_is_open_to_strangers_is_known() -> None:
    assert set(OPEN) == {"/in", "/in/{ticket}", "/static/{name}"}


# Posts that no page of ours made


def refusals(
    browser: Browser, other: Browser
) -> Iterator[tuple[str, dict[str, str | None], dict[str, str]]]:
    """Yield what is wrong with a post: its fields and headers, as they differ from a right one."""
    foreign = [
        "null", "http://evil.example", f"http://evil.example:{browser.site.sessions.port}", "",
        browser.origin + ".evil.example", browser.origin + "/", browser.origin.replace("http:", "https:"),
        f"http://127.0.0.1:{browser.site.sessions.port + 1}", "http://127.0.0.1", browser.origin.upper() + "x",
    ]  # fmt: skip
    yield "no token", {"token": None}, {}
    yield "an empty token", {"token": ""}, {}
    yield "a wrong token", {"token": "0" * 64}, {}
    yield "half a token", {"token": browser.token[:32]}, {}
    yield "a token of other letters", {"token": "é" * 64}, {}
    yield "another browser's token", {"token": other.token}, {}
    yield "the cookie itself", {"token": next(iter(browser.cookies.values()))}, {}
    for origin in foreign:
        yield f"from {origin!r}", {}, {"origin": origin}
    for site in ("cross-site", "same-site", "none", "nonsense"):
        yield f"a fetch that is {site}", {}, {"sec_fetch_site": site}


def test_no_post_is_taken_without_its_token_and_from_elsewhere(
    office: Office, site: Site, entry: Entry
) -> None:
    browser, other = site.browser(), site.browser("bob")
    paths = guarded(office, site, entry, "POST")
    before = office.desk.ledger.actions.head()
    right = {"digest": entry.digest, "reason": "no", "sent": "yes", "next": "/", "text": "x"}
    for wrong, fields, headers in refusals(browser, other):
        for path in paths:
            whole = {**right, "token": browser.token, **fields}
            posted = {name: value for name, value in whole.items() if value is not None}
            answer = browser.send(path, posted, headers, follow=False)
            assert answer.status == 403, (wrong, path)
            assert "oad the page again" in answer.words, wrong
    assert office.state_of(entry.id) == "pending"
    assert office.desk.ledger.actions.head() == before
    assert browser.get("/").status == 200  # nobody was signed out


def test_a_post_that_does_not_say_where_it_comes_from_is_refused(
    office: Office, site: Site, entry: Entry
) -> None:
    browser = site.browser()
    fields = urlencode({"token": browser.token, "digest": entry.digest})
    for path in (*guarded(office, site, entry, "POST"), "/in"):
        form = "application/x-www-form-urlencoded"
        answer = browser.ask("POST", path, content=fields, headers={"content_type": form})
        assert answer.status == 403, path
    assert office.state_of(entry.id) == "pending"


def test_a_page_from_elsewhere_cannot_sign_a_browser_in(site: Site) -> None:
    ticket = site.sign_in_address("mallory").rpartition("/")[2]
    browser = site.stranger()
    for headers in ({"origin": "null"}, {"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}):  # fmt: skip
        assert browser.send("/in", {"ticket": ticket}, headers).status == 403
    assert not browser.cookies
    assert site.sessions.desk.reader.sessions.is_ticket_valid(ticket)


def test_methods_that_the_page_does_not_have_do_nothing(
    office: Office, site: Site, entry: Entry
) -> None:
    browser = site.browser()
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"):
        for path in ("/", f"/letter/{entry.id}", f"/letter/{entry.id}/approve", "/in"):
            assert browser.ask(method, path).status == 403
            assert browser.ask(method, path, browser.from_here).status == 404
    for path in guarded(office, site, entry, "POST"):
        answer = browser.get(path)
        assert answer.status == (200 if path.endswith("/edit") else 404)
    assert office.state_of(entry.id) == "pending"


# Hosts


def test_a_request_for_another_host_is_refused_and_shown_nothing(
    office: Office, site: Site, entry: Entry
) -> None:
    browser = site.browser()
    port = site.sessions.port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "localhost", f"127.0.0.1:{port + 1}",
                 f"127.0.0.1:{port}.evil.example", f"evil.example@127.0.0.1:{port}", f"127.0.0.2:{port}",
                 f"0.0.0.0:{port}", f"127.1:{port}", f"2130706433:{port}", f"127.0.0.1.:{port}", "desk.example.org"):  # fmt: skip
        for path in ("/", f"/letter/{entry.id}", "/static/desk.css", "/in/x", "/nowhere"):
            answer = browser.get(path, host=host)
            assert answer.status == 403, host
            assert SECRET not in answer.text
            assert site.address in answer.text
        assert browser.send("/in", {"ticket": "x"}, {"host": host}).status == 403


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST"])
def test_this_machine_has_two_names(office: Office, site: Site, name: str) -> None:
    browser = site.browser()
    assert browser.get("/", host=f"{name}:{site.sessions.port}").status == 200


def test_a_request_for_no_host_or_for_two_is_refused(
    office: Office, site: Site, entry: Entry
) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in site.browser().cookies.items())
    right = f"Host: 127.0.0.1:{site.sessions.port}"
    assert asked(site, right, f"Cookie: {cookie}")[0] == 200
    for hosts in ([], [right, "Host: evil.example"], ["Host: evil.example", right], [right, right], ["Host:"]):  # fmt: skip
        status, _, body = asked(site, *hosts, f"Cookie: {cookie}")
        assert status in {400, 403}, hosts
        assert SECRET not in body
    status, _, body = said(site, f"GET / HTTP/1.0\r\nCookie: {cookie}\r\n\r\n".encode())
    assert status == 403
    assert SECRET not in body
    status, _, body = asked(site, "Host: evil.example", f"Cookie: {cookie}", path=f"http://127.0.0.1:{site.sessions.port}/")  # fmt: skip
    assert status in {400, 403, 404}


def test_what_a_proxy_says_of_the_host_is_not_believed(site: Site) -> None:
    browser = site.browser()
    ours = site.address.removeprefix("http://")
    for name in ("x-forwarded-host", "forwarded", "x-host", "x-original-host"):
        assert browser.get("/", host="evil.example", **{name: ours}).status == 403


def test_behind_a_proxy_its_address_and_this_machines_are_answered(office: Office) -> None:
    office.set_passphrase(WORD)
    with opened(office, origin=PROXY) as site:
        browser = site.browser(proxied=True, passphrase=WORD)
        assert browser.get("/").status == 200
        assert browser.get("/", host=f"localhost:{site.sessions.port}").status == 200
        assert browser.get("/", host="evil.example").status == 403
        assert browser.send("/out", {"token": browser.token}, {"origin": "http://desk.example.org"}).status == 403  # fmt: skip
        assert site.sign_in_address("ada").startswith(f"{PROXY}/in/")


# What every answer says


def test_every_answer_says_what_a_browser_may_do_with_it(
    office: Office, site: Site, entry: Entry
) -> None:
    browser, stranger = site.browser(), site.stranger()
    paths = guarded(office, site, entry, "GET")
    paths.remove("/events")
    answers = [one.get(path) for path in paths for one in (browser, stranger)]
    answers += [stranger.get("/events")]
    answers += [browser.post(path, follow=False) for path in guarded(office, site, entry, "POST") if path != "/out"]  # fmt: skip
    answers += [
        browser.get(path)
        for path in ("/nowhere", "/in/x", "/letter/zzzzzzzzzz", "/static/nothing", "/static/desk.css", "/static/icon.svg", "/static/desk.js")
    ]  # fmt: skip
    answers += [
        browser.get("/", host="evil.example"),
        browser.send("/in", {}),
        browser.ask("PUT", "/", browser.from_here),
        browser.send("/", {}),
        browser.get(f"/letter/{entry.id}/file/7"),
        browser.ask("POST", "/unlock", browser.from_here, content=b"\xff"),
    ]
    for answer in answers:
        headers, where = answer.headers, (answer.raw.request.url, answer.status)
        parts = [part.strip().partition(" ") for part in headers["content-security-policy"].split(";")]  # fmt: skip
        policy = {name: value for name, _, value in parts}
        assert policy["default-src"] == "'none'", where
        assert policy["base-uri"] == "'none'", where
        assert "unsafe-eval" not in str(policy), where
        assert "*" not in str(policy), where
        assert headers["x-content-type-options"] == "nosniff", where
        assert headers["referrer-policy"] == "same-origin", where
        assert headers["cross-origin-opener-policy"] == "same-origin", where
        assert headers["cross-origin-resource-policy"] == "same-origin", where
        assert headers["x-frame-options"] == "DENY", where
        assert policy["frame-ancestors"] == "'none'", where
        assert "unsafe-inline" not in str(policy), where
        kept = "/static/" in str(answer.raw.request.url) and answer.status == 200
        wanted = "public, max-age=31536000, immutable" if kept else "no-store"
        assert headers["cache-control"] == wanted, where
        assert "set-cookie" not in headers, where
        assert "server" not in headers, where
        for name in headers:
            assert not name.startswith("access-control-"), where


def test_the_page_has_no_script_or_style_of_its_own_and_nothing_from_elsewhere(
    office: Office, site: Site, entry: Entry
) -> None:
    browser = site.browser()
    for path in ("/", f"/letter/{entry.id}", f"/letter/{entry.id}/edit", f"/letter/{entry.id}/print", f"/letter/{entry.id}/thread", "/history", "/agents", "/health", "/in/x"):  # fmt: skip
        page = browser.get(path).page
        own = {f"#{node.attrs['id']}" for node in page if "id" in node.attrs}
        for node in page:
            assert not [name for name in node.attrs if name.startswith("on") or name == "style"]
            assert not (node.tag in {"script", "style"} and node.text.strip()), path
            for name in ("src", "href", "action", "formaction", "data-load", "data-beside", "data-source"):  # fmt: skip
                to = node.attrs.get(name)
                assert to is None or to in own or re.fullmatch(r"/(?!/).*", to), (path, to)  # fmt: skip


# Forms


def refused_form(browser: Browser, body: bytes, **headers: str) -> str:
    answer = browser.ask("POST", "/unlock", browser.from_here | headers, content=body, follow=False)  # fmt: skip
    assert answer.status in {400, 403}, body[:80]
    assert answer.page.one("strong").text  # what to do
    return answer.words


def test_a_post_that_is_no_form_is_refused_with_what_to_do(site: Site) -> None:
    browser = site.browser()
    token = f"token={browser.token}".encode()
    for body in (b'{"token": "x"}', b"token", b"\xff\xfe", token + b"&next=\xc3\xa9", token + b"&next=%FF", token + b"&next=%ED%A0%80", token + b"&&=&x"):  # fmt: skip
        assert "not a form" in refused_form(browser, body), body
    assert "not a form" in refused_form(browser, token + b"&x=1" * 100)
    assert "twice" in refused_form(browser, token + b"&next=/&next=/agents")
    assert "twice" in refused_form(browser, token + b"&" + token)
    part = (
        f'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n{browser.token}\r\n--x--\r\n'
    )
    refused_form(browser, part.encode(), content_type="multipart/form-data; boundary=x")
    refused_form(browser, b"")


def test_more_than_a_letter_can_hold_is_refused_with_what_to_do(site: Site) -> None:
    browser = site.browser()
    body = f"token={browser.token}&next=/&text=".encode() + b"a" * MAX_FORM
    assert "Shorten" in refused_form(browser, body)
    assert browser.get("/").status == 200


# Being sent elsewhere


def test_unlocking_leads_to_no_other_host(site: Site) -> None:
    browser = site.browser()
    hostile = (
        "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "http:evil.example",
        "%2f%2fevil.example", "/%2fevil.example", "%2F%2Fevil.example/%2e%2e", "/%5cevil.example", "///evil.example",
        "/\t/evil.example", "/%09/evil.example", "\t//evil.example", " //evil.example", "/\r\nLocation: //evil.example",
        "/%0d%0aSet-Cookie: a=b", "javascript:alert(1)", "data:text/html,x", "evil.example", "/.//evil.example",
        "/..//evil.example", "@evil.example", ":@evil.example", "/@evil.example", "", "?next=//evil.example",
        "/%252f%252fevil.example", "／／evil.example", "/／evil.example", "/./\\evil.example", "#//evil.example",
    )  # fmt: skip
    for wanted in hostile:
        answer = browser.post("/unlock", next=wanted, follow=False)
        assert answer.status == 303
        assert "set-cookie" not in answer.headers
        where = answer.headers["location"]
        assert where.isprintable()
        assert "\\" not in where
        assert not where.startswith("//"), (wanted, where)
        led = urlsplit(urljoin(f"{site.address}/unlock", where))
        assert (led.scheme, led.netloc) == ("http", f"127.0.0.1:{site.sessions.port}"), wanted


def test_unlocking_leads_back_to_where_one_was(site: Site, office: Office, entry: Entry) -> None:
    browser = site.browser()
    for wanted in (f"/letter/{entry.id}", "/history?q=a%20b&state=sent&page=2", "/?page=2", "/health", "/history?q=%C3%A9&agent="):  # fmt: skip
        answer = browser.post("/unlock", next=wanted, follow=False)
        assert answer.headers["location"] == wanted
    assert browser.post("/unlock", follow=False).headers["location"] == "/"


# Files of ours


def test_no_other_file_is_served(site: Site) -> None:
    host = f"Host: 127.0.0.1:{site.sessions.port}"
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/%2e%2e%2fapp.py", "/static//etc/passwd",
                 "/static/desk.css%00", "/static/./desk.css", "/static/desk.css/", "/static/", "/static", "/static/app.py", "/static/..",
                 "/static/....//app.py", "/static/%252e%252e%252fapp.py", "/static/DESK.CSS", "/../../etc/passwd"):  # fmt: skip
        status, _, body = asked(site, host, path=path)
        assert status in {307, 404}, path
        assert "import" not in body
        assert "root:" not in body


def test_the_files_of_the_page_are_of_their_type(site: Site) -> None:
    stranger = site.stranger()
    for name, kind in (("desk.css", "text/css"), ("desk.js", "text/javascript"), ("icon.svg", "image/svg+xml")):  # fmt: skip
        answer = stranger.get(f"/static/{name}")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(kind)


def test_who_comes_and_asks_for_nothing_keeps_nobody_out(office: Office, site: Site) -> None:
    idle = [socket.create_connection(("127.0.0.1", site.sessions.port)) for _ in range(400)]
    try:
        for one in idle:  # of the last, all are let go at once
            one.setblocking(False)
        until(lambda: sum(_ended(one) for one in idle) >= 100)
        for one in idle[:50]:
            one.close()
        until(lambda: site.browser().get("/").status == 200)
    finally:
        for one in idle:
            one.close()


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
