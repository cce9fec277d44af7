"""The passphrase on the page: when it is asked for, how often it may be wrong, and that nothing is lost while it is missing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from postroom.core import life
from postroom.core.errors import Denied
from postroom.core.stamp import Stamp
from postroom.desk.desk import Desk
from postroom.desk.verdicts import Trust, Unlocked
from postroom.web.sessions import FREE_TRIES, LONGEST_DELAY, BrowserSession, Sessions
from tests.desks import Office, change_settings
from tests.providers import Courier
from tests.unit.web.browser import PROXY, WORD, Answer, Browser, Node, Site, at_once, opened

NEW = "another horse entirely"


@pytest.fixture
def office(office: Office) -> Office:
    office.set_passphrase(WORD)
    office.reopen(trust="desk")
    return office


@pytest.fixture
def site(office: Office) -> Iterator[Site]:
    with opened(office, idle=900) as site:
        yield site


@pytest.fixture
def browser(site: Site) -> Browser:
    return site.browser(passphrase=WORD)


def locked(answer: Answer) -> Node:
    """Assert that the passphrase is asked for, and nothing shown; return the form that asks."""
    assert answer.status == 401
    (form,) = answer.page.all("form")
    assert "passphrase" in form.fields
    assert "Hello" not in answer.text
    return form


# Coming in


def test_a_wrong_passphrase_lets_nobody_in_and_does_not_use_the_address_up(site: Site) -> None:
    browser = site.stranger()
    address = site.sign_in_address("ada")
    for wrong in ("", "wrong", WORD.upper(), WORD + " "):
        answer = browser.enter(address, passphrase=wrong)
        assert answer.status == 403
        assert "not the passphrase" in answer.words
        assert not browser.cookies
    assert browser.submit(answer.page.form("/in"), passphrase=WORD).status == 200
    assert browser.get("/").status == 200


def test_an_address_without_the_passphrase_is_refused(site: Site) -> None:
    browser = site.stranger()
    ticket = site.sign_in_address("ada").rpartition("/")[2]
    assert browser.send("/in", {"ticket": ticket}).status == 403
    assert not browser.cookies


@pytest.mark.parametrize("where", [{"origin": PROXY}, {"remote": True}])
def test_where_others_can_reach_it_the_passphrase_is_asked_for_at_every_trust_level(
    office: Office, where: dict[str, Any]
) -> None:
    office.reopen(trust="folder")
    entry = office.propose()
    with opened(office, **where) as site:
        browser = site.stranger(proxied="origin" in where)
        address = site.sign_in_address("ada")
        assert browser.enter(address, passphrase="wrong").status == 403
        assert browser.enter(address, passphrase=WORD).status == 200
        assert browser.decide(entry.id, "approve").status == 200
        office.clock.go(1000)
        locked(browser.get(f"/letter/{entry.id}"))
    assert office.state_of(entry.id) == "approved"


@pytest.mark.parametrize("where", [{"origin": PROXY}, {"remote": True}])
def test_where_others_could_reach_it_and_no_passphrase_is_set_nothing_is_served(
    tmp_path: Path, where: dict[str, Any]
) -> None:
    from tests.desks import Office

    office = Office(tmp_path)
    with pytest.raises(Denied, match="needs your passphrase") as refused, opened(office, **where):
        pass
    assert "postroom init --passphrase" in refused.value.remedy
    office.close()


def test_at_level_desk_without_a_passphrase_nobody_gets_in_and_the_remedy_is_named(
    tmp_path: Path,
) -> None:
    from tests.desks import Office

    office = Office(tmp_path, trust="desk")
    with pytest.raises(Denied) as refused, opened(office):
        pass
    assert "needs your passphrase, and none is set" in refused.value.message
    assert "postroom init" in refused.value.remedy
    office.close()


# Guessing


class FastTrust(Trust):
    """Compares the passphrase without scrypt, so that many can be tried."""

    tried: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.tried.clear()

    def unlock(self, passphrase: str) -> Unlocked:
        self.tried.append(passphrase)
        if passphrase != WORD:
            raise Denied("That is not the passphrase")
        return Unlocked(WORD)


class Guessed(Desk):
    """A desk of which only the trust and the time are asked for."""

    def __init__(self, now: list[float]) -> None:
        self.trust = FastTrust()
        self.clock = lambda: Stamp(0, "boot", now[0])


def guesser() -> tuple[Sessions, list[float]]:
    """Return sessions over such a desk, and their time."""
    now = [1000.0]
    return Sessions(Guessed(now), 1), now


def guess(sessions: Sessions, given: str = "wrong") -> str:
    try:
        sessions.unlock(BrowserSession("secret", "ada"), given)
    except Exception as why:  # noqa: BLE001 - which it is, is what is asked
        return type(why).__name__
    return "unlocked"


def test_after_five_wrong_passphrases_each_further_one_waits_longer() -> None:
    sessions, now = guesser()
    assert [guess(sessions) for _ in range(FREE_TRIES)] == ["Denied"] * 5
    waits = []
    for _ in range(12):
        assert guess(sessions, WORD) == "Limited"  # the right one too: it could be a guess
        began = now[0]
        while guess(sessions) == "Limited":
            now[0] += 1
        waits.append(now[0] - began)
    assert waits[:4] == [5, 10, 20, 40]
    assert waits == sorted(waits)
    assert max(waits) == LONGEST_DELAY


def test_the_right_passphrase_ends_the_counting() -> None:
    sessions, now = guesser()
    for _ in range(FREE_TRIES - 1):
        guess(sessions)
    assert guess(sessions, WORD) == "unlocked"
    assert [guess(sessions) for _ in range(FREE_TRIES)] == ["Denied"] * FREE_TRIES
    assert guess(sessions) == "Limited"
    now[0] += 5
    assert guess(sessions, WORD) == "unlocked"
    assert guess(sessions) == "Denied"


def test_who_waits_is_told_for_how_long(site: Site) -> None:
    browser = site.stranger()
    address = site.sign_in_address("ada")
    site.sessions._wrong_tries = FREE_TRIES - 1
    assert browser.enter(address, passphrase="wrong").status == 403
    answer = browser.enter(address, passphrase=WORD)
    assert "5 seconds" in answer.words
    assert not browser.cookies
    site.sessions._delayed_until = 0
    assert browser.enter(address, passphrase=WORD).status == 200


def test_guessing_many_at_once_is_no_way_around_the_waiting() -> None:
    sessions, _ = guesser()
    found = at_once(*[lambda: guess(sessions)] * 40)
    assert sorted(found) == ["Denied"] * FREE_TRIES + ["Limited"] * 35
    assert len(FastTrust.tried) == FREE_TRIES


def test_guesses_at_the_door_and_at_the_lock_count_together(site: Site, office: Office) -> None:
    browser = site.browser(passphrase=WORD)
    office.clock.go(1000)
    site.sessions._wrong_tries = FREE_TRIES - 2
    assert site.stranger().enter(site.sign_in_address("ada"), passphrase="wrong").status == 403
    form = locked(browser.get("/"))
    assert "not the passphrase" in browser.submit(form, passphrase="wrong").words
    assert "Too many" in browser.submit(form, passphrase=WORD).words


# Staying


def test_after_a_while_without_a_word_the_page_is_locked_and_opens_where_it_was(
    site: Site, office: Office, browser: Browser
) -> None:
    entry = office.propose()
    office.clock.go(900)
    assert browser.get("/").status == 200
    office.clock.go(901)
    form = locked(browser.get(f"/letter/{entry.id}?page=1"))
    assert "not the passphrase" in browser.submit(form, passphrase="wrong").words
    answer = browser.submit(form, passphrase=WORD)
    assert answer.status == 200
    assert str(answer.raw.request.url).endswith(f"/letter/{entry.id}?page=1")


def test_whoever_does_something_now_and_then_is_not_asked_again(
    site: Site, office: Office, browser: Browser
) -> None:
    for _ in range(3):
        office.clock.go(600)
        assert browser.get("/").status == 200


def test_what_the_page_asks_by_itself_does_not_keep_it_open(
    site: Site, office: Office, browser: Browser
) -> None:
    for _ in range(9):
        office.clock.go(100)
        assert browser.get("/", x_desk_live="1").status == 200
    office.clock.go(100)
    locked(browser.get("/", x_desk_live="1"))
    locked(browser.get("/"))


def test_no_news_are_told_while_it_is_locked(site: Site, office: Office, browser: Browser) -> None:
    office.clock.go(1000)
    answer = browser.get("/events")
    assert answer.status == 401
    assert not answer.text


def test_every_address_is_locked(site: Site, office: Office, browser: Browser) -> None:
    entry = office.propose()
    office.clock.go(1000)
    for path in ("/", "", "/edit", "/source", "/text", "/thread", "/file/0"):
        locked(browser.get(f"/letter/{entry.id}{path}" if path != "/" else "/"))
    for path in ("/history", "/history/chain", "/agents", "/health", "/health/mail"):
        locked(browser.get(path))


def test_a_verdict_given_while_it_is_locked_counts_once_the_passphrase_is_given(
    site: Site, office: Office, browser: Browser
) -> None:
    entry = office.propose()
    form = browser.get(f"/letter/{entry.id}").page.form("/approve")
    office.clock.go(1000)
    asked = locked(browser.submit(form))
    assert office.state_of(entry.id) == "pending"
    again = browser.submit(asked, passphrase="wrong")
    assert office.state_of(entry.id) == "pending"
    answer = browser.submit(locked(again), passphrase=WORD)
    assert answer.status == 200
    assert office.state_of(entry.id) == "approved"


def test_an_edit_made_while_it_is_locked_is_not_lost(
    site: Site, office: Office, browser: Browser
) -> None:
    entry = office.propose()
    form = browser.get(f"/letter/{entry.id}/edit").page.form("/preview")
    typed = {
        "text": '\n  Dear "Ann" & <co>,\n\n\tquite long\n\n',
        "subject": "Ä {x} %s",
        "cc": '"Bob, the other" <bob@example.net>',
    }
    office.clock.go(1000)
    asked = locked(browser.submit(form, typed))
    for name, value in typed.items():
        assert asked.fields[name].replace("\r\n", "\n") == value
    shown = browser.submit(asked, passphrase=WORD)
    office.clock.go(1000)
    asked = locked(browser.submit(shown.page.form("/change"), then="approve"))
    assert browser.submit(asked, passphrase=WORD).status == 200
    found = office.desk.ledger.letters.get(entry.id)
    assert found.kind == "approved"
    assert found.letter.text == '  Dear "Ann" & <co>,\n\n\tquite long\n'
    assert found.letter.subject == "Ä {x} %s"
    assert [one.spec for one in found.letter.cc] == ["bob@example.net"]


def test_the_passphrase_never_comes_back_in_a_page(
    site: Site, office: Office, browser: Browser
) -> None:
    entry = office.propose()
    office.clock.go(1000)
    for given in ("wrong wrong", WORD):
        form = browser.get(f"/letter/{entry.id}").page.all("form")[0]
        answer = browser.submit(form, passphrase=given)
        assert given not in answer.text


def test_a_passphrase_that_was_changed_in_the_terminal_must_be_given_anew(
    site: Site, office: Office, browser: Browser
) -> None:
    entry = office.propose()
    form = browser.get(f"/letter/{entry.id}").page.form("/approve")
    other = office.beside()
    other.desk.trust.set_passphrase(NEW, old=WORD)
    other.close()
    asked = locked(browser.submit(form))
    again = locked(browser.submit(asked, passphrase=WORD))
    assert office.state_of(entry.id) == "pending"
    browser.submit(again, passphrase=NEW)
    assert office.state_of(entry.id) == "approved"


def test_who_was_let_in_before_a_restart_gives_the_passphrase_again(office: Office) -> None:
    with opened(office) as site:
        (secret,) = site.browser(passphrase=WORD).cookies.values()
        port = site.sessions.port
    with opened(office, port=port) as site:
        browser = site.stranger()
        browser.cookies = {site.sessions.cookie: secret}
        locked(browser.get("/"))


def test_a_trust_level_that_is_raised_meanwhile_asks_at_once(office: Office) -> None:
    office.reopen(trust="folder")
    entry = office.propose()
    with opened(office) as site:
        browser = site.browser()
        form = browser.get(f"/letter/{entry.id}").page.form("/approve")
        other = office.beside()
        change_settings(other.desk.ledger, trust="desk")
        other.close()
        locked(browser.get("/"))
        assert browser.get("/events").status == 401
        asked = locked(browser.submit(form))
        assert office.state_of(entry.id) == "pending"
        browser.submit(asked, passphrase=WORD)
        assert office.state_of(entry.id) == "approved"
        assert site.stranger().enter(site.sign_in_address("ada"), passphrase="wrong").status == 403


def test_signing_out_needs_no_passphrase(site: Site, office: Office, browser: Browser) -> None:
    kept = dict(browser.cookies)
    office.clock.go(1000)
    browser.send("/out", {"token": BrowserSession(next(iter(kept.values())), "ada").token})
    browser.cookies = kept
    answer = browser.get("/")
    assert "not signed in" in answer.words


# The desk itself


def test_whatever_the_page_says_the_desk_asks_for_proof(office: Office, courier: Courier) -> None:
    entry = office.propose()
    for proof in (None, "", "wrong"):
        with pytest.raises(Denied):
            office.desk.approve(
                entry.id, by="ada", digest=entry.digest, proof=proof, via=life.Channel.PAGE
            )
        with pytest.raises(Denied):
            office.desk.edit(entry.id, replace(entry.letter, text="x\n"), proof=proof)
        with pytest.raises(Denied):
            office.desk.decide(entry.id, "resolve", by="ada", sent=False, proof=proof)
    unlocked = office.desk.trust.unlock(WORD)
    office.desk.trust.set_passphrase(NEW, old=WORD)
    with pytest.raises(Denied, match="changed since"):
        office.desk.approve(
            entry.id, by="ada", digest=entry.digest, proof=unlocked, via=life.Channel.PAGE
        )
    assert office.state_of(entry.id) == "pending"


def test_a_proof_counts_for_its_own_browser_alone(office: Office) -> None:
    sessions = Sessions(office.desk, 1)
    own, other = BrowserSession("own", "ada"), BrowserSession("other", "bob")
    sessions.unlock(own, WORD)
    assert not sessions.is_locked(own)
    assert sessions.is_locked(other)
    assert sessions.proof(other) is None
    sessions.sign_out(own)
    assert sessions.is_locked(own)
