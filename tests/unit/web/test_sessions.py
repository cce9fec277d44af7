"""The sessions: an address that works once, the cookie that it is changed for, and how long that counts."""

import re
from collections.abc import Callable
from functools import partial
from http.cookies import SimpleCookie

import pytest

from postroom.store.sql.desk import MAX_SESSIONS
from postroom.web.sessions import Sessions
from tests.desks import Clock, Office
from tests.unit.web.browser import PROXY, WORD, Answer, Browser, Site, at_once, opened

DAY = 86_400.0


def secret(browser: Browser) -> str:
    (value,) = browser.cookies.values()
    return value


def turned_away(answer: Answer) -> None:
    """Assert that somebody was not let in, and told how to be."""
    assert answer.status == 403
    assert "older than ten minutes" in answer.words
    assert "postroom desk" in answer.words
    assert "set-cookie" not in answer.headers


def test_the_address_lets_a_browser_in_for_the_person_that_it_was_made_for(site: Site) -> None:
    browser = site.stranger()
    answer = browser.sign_in("Grace H.")
    assert answer.page.one("main").words
    assert answer.page.one(class_="me").text == "Grace H."


def test_of_twenty_that_use_one_address_at_once_one_gets_in(site: Site, office: Office) -> None:
    address = site.sign_in_address("ada")
    browsers = [site.stranger() for _ in range(20)]
    ticket = address.rpartition("/")[2]
    answers = at_once(*[partial(one.send, "/in", {"ticket": ticket}) for one in browsers])
    assert sorted(answer.status for answer in answers) == [200] + [403] * 19
    assert sum(bool(one.cookies) for one in browsers) == 1
    turned_away(browsers[0].send("/in", {"ticket": ticket}))


def test_an_address_that_was_used_is_refused_before_anything_is_asked(site: Site) -> None:
    address = site.sign_in_address("ada")
    site.stranger().enter(address)
    turned_away(site.stranger().get(address.removeprefix(site.address)))


@pytest.mark.parametrize(
    ("pass_time", "works"),
    [
        (lambda clock: clock.go(599), True),
        (lambda clock: clock.go(600), False),
        (lambda clock: clock.jump(-601), False),
        (lambda clock: (clock.go(86_400), clock.jump(-86_400 - 700)), False),
    ],
    ids=["in time", "too late", "the clock set back", "a day later, the clock set back"],
)
def test_an_address_works_for_ten_minutes_whatever_is_done_to_the_clock(
    site: Site, office: Office, pass_time: Callable[[Clock], object], works: bool
) -> None:
    address = site.sign_in_address("ada")
    browser = site.stranger()
    ticket = address.rpartition("/")[2]
    pass_time(office.clock)
    if works:
        assert browser.enter(address).status == 200
    else:
        turned_away(browser.get(f"/in/{ticket}"))
        turned_away(browser.send("/in", {"ticket": ticket}))
        assert not browser.cookies


def test_an_address_that_nobody_made_lets_nobody_in(site: Site) -> None:
    browser = site.stranger()
    for ticket in ("x", "a" * 43, "%00", "%27%20OR%201=1", "%2e%2e", "a" * 5000):
        answer = browser.get(f"/in/{ticket}")
        assert answer.status in {403, 404}, ticket
    for ticket in ("", "x", "a" * 43, "\0", "' OR 1=1 --"):
        turned_away(browser.send("/in", {"ticket": ticket}))
    turned_away(browser.send("/in", {}, {"content_type": "text/plain"}))
    assert not browser.cookies


def test_a_cookies_secret_is_no_address(site: Site) -> None:
    browser = site.browser()
    turned_away(site.stranger().send("/in", {"ticket": secret(browser)}))


def test_to_look_at_an_address_does_not_use_it_up(site: Site) -> None:
    address = site.sign_in_address("ada")
    path = address.removeprefix(site.address)
    browser = site.stranger()
    for method in ("GET", "HEAD", "GET", "HEAD"):
        answer = browser.ask(method, path)
        assert answer.status == 200
        assert "set-cookie" not in answer.headers
    assert browser.get("/").status == 401
    assert browser.enter(address).status == 200


def test_the_cookie_is_for_this_desk_alone_and_no_script_reads_it(site: Site) -> None:
    browser = site.stranger()
    answer = browser.sign_in()
    (line,) = answer.passed[0].headers.get_list("set-cookie")
    ((name, cookie),) = SimpleCookie(line).items()
    assert name == f"postroom-{site.sessions.port}"
    assert cookie["httponly"] is True
    assert cookie["samesite"].lower() == "strict"
    assert cookie["path"] == "/"
    assert cookie["domain"] == ""
    assert not cookie["secure"]  # it is plain HTTP, to this machine
    assert int(cookie["max-age"]) == 30 * DAY
    assert len(cookie.value) >= 40


def test_behind_https_the_cookie_never_leaves_it(office: Office) -> None:
    office.set_passphrase(WORD)
    with opened(office, origin=PROXY) as site:
        browser = site.stranger(proxied=True)
        answer = browser.sign_in(passphrase=WORD)
        (line,) = answer.passed[0].headers.get_list("set-cookie")
        ((name, cookie),) = SimpleCookie(line).items()
        assert name == "__Host-postroom"
        assert cookie["secure"] is True
        assert cookie["httponly"] is True
        assert cookie["samesite"].lower() == "strict"
        assert (cookie["path"], cookie["domain"]) == ("/", "")
        (line,) = browser.post("/out", follow=False).headers.get_list("set-cookie")
        assert "__Host-postroom=" in line
        assert "secure" in line.lower()


def test_the_ledger_keeps_no_secret_that_lets_anybody_in(site: Site, office: Office) -> None:
    address = site.sign_in_address("ada")
    browser = site.browser()
    for file in office.state.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert secret(browser).encode() not in content
            assert address.rpartition("/")[2].encode() not in content


def test_who_signs_out_is_out_on_the_server_too(site: Site, office: Office) -> None:
    entry = office.propose()
    browser, other = site.browser(), site.browser("bob")
    kept = dict(browser.cookies)
    token = browser.token
    answer = browser.post("/out")
    assert answer.status == 401
    assert not browser.cookies
    browser.cookies = kept
    assert browser.get(f"/letter/{entry.id}").status == 401
    refused = browser.send(f"/letter/{entry.id}/reject", {"token": token, "digest": entry.digest})
    assert refused.status == 401
    assert office.state_of(entry.id) == "pending"
    assert other.get("/").status == 200


def test_who_was_let_in_still_is_after_a_restart(office: Office) -> None:
    with opened(office) as site:
        kept, port = secret(site.browser("grace")), site.sessions.port
    office.reopen()
    with opened(office, port=port) as site:
        browser = site.stranger()
        browser.cookies = {site.sessions.cookie: kept}
        answer = browser.get("/")
        assert answer.status == 200
        assert answer.page.one(class_="me").text == "grace"


def test_a_cookie_that_another_program_was_sent_counts_at_no_other_port(office: Office) -> None:
    with opened(office) as site:
        kept = secret(site.browser("grace"))
    with opened(office) as site:
        browser = site.stranger()
        browser.cookies = {site.sessions.cookie: kept}
        assert browser.get("/").status == 401


def test_the_cookie_of_another_desks_port_lets_nobody_in(site: Site) -> None:
    browser = site.browser()
    browser.cookies = {f"postroom-{site.sessions.port + 1}": secret(browser)}
    assert browser.get("/").status == 401


@pytest.mark.parametrize("back", [False, True])
def test_after_thirty_days_a_browser_must_be_let_in_again(
    site: Site, office: Office, back: bool
) -> None:
    browser = site.browser()
    office.clock.jump(-29 * DAY if back else 29 * DAY)
    assert browser.get("/").status == 200
    office.clock.jump(-DAY if back else DAY)
    assert browser.get("/").status == 401


def test_a_cookie_that_nobody_gave_lets_nobody_in(site: Site) -> None:
    browser = site.stranger()
    for value in ("x", "", "a" * 43, "%00", "' OR 1=1 --", "a=b", "a" * 10_000):
        browser.cookies = {site.sessions.cookie: value}
        assert browser.get("/").status == 401, value


def test_addresses_that_were_made_and_never_used_are_not_kept_for_ever(site: Site) -> None:
    tickets = site.sessions.desk.reader.sessions
    first = site.sign_in_address("ada")
    for _ in range(MAX_SESSIONS):
        last = site.sign_in_address("ada")
    assert not tickets.is_ticket_valid(first.rpartition("/")[2])
    assert tickets.is_ticket_valid(last.rpartition("/")[2])


def test_each_address_and_each_cookie_is_another(site: Site) -> None:
    addresses = {site.sign_in_address("ada") for _ in range(20)}
    assert len(addresses) == 20
    assert all(re.fullmatch(rf"{site.address}/in/[\w-]{{43}}", one) for one in addresses)
    cookies = {secret(site.browser()) for _ in range(2)}
    assert len(cookies) == 2
    assert all(re.fullmatch(r"[\w-]{43}", one) for one in cookies)


def test_at_port_80_a_browser_names_no_port_and_at_other_ports_it_does(office: Office) -> None:
    named = {80: ("127.0.0.1", "localhost"), 79: ("127.0.0.1:79", "localhost:79")}
    for port, hosts in named.items():
        sessions = Sessions(office.desk, port)
        for host in (host for hosts in named.values() for host in hosts):
            assert sessions.is_own_host(host) == (host in hosts), (port, host)
            assert sessions.is_own_form({"origin": f"http://{host}"}) == (host in hosts), (
                port,
                host,
            )
