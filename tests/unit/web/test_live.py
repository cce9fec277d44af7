"""While nobody clicks: open pages are told of every change, and what is approved and due is sent."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC

import pytest
from starlette.requests import Request

from postroom.core.life import Sent
from postroom.desk.desk import Desk
from postroom.web.handlers import Handlers
from postroom.web.live import AutoDispatcher, ChangeFeed
from postroom.web.request import PageRequest
from postroom.web.sessions import BrowserSession, Sessions
from tests.desks import APPROVED, Office, state
from tests.narrow import present
from tests.providers import Courier
from tests.unit.web.browser import WORD, Browser, Site, fine, opened, parsed, until


class Stream:
    """The news that one page is told."""

    def __init__(self, browser: Browser) -> None:
        self.heard: list[str] = []
        self.ended = threading.Event()
        self.status = 0
        self._browser = browser
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        until(lambda: self.status)

    def _listen(self) -> None:
        headers = self._browser.headers
        try:
            with self._browser.client.stream("GET", "/events", headers=headers, timeout=60) as answer:  # fmt: skip
                self.status = answer.status_code
                self.kind = answer.headers["content-type"]
                for line in answer.iter_lines():
                    self.heard.append(line)
        except Exception as why:  # noqa: BLE001 - a line that is cut has ended too
            self.heard.append(repr(why))
        finally:
            self.status = self.status or -1
            self.ended.set()

    @property
    def changes(self) -> int:
        return sum(line == "event: change" for line in self.heard)

    def quiet(self) -> None:
        """Wait until the first look at the ledger was told, if it was."""
        until(lambda: any(line.startswith("retry") for line in self.heard))


def test_a_page_is_told_what_another_process_decided(office: Office) -> None:
    entry = office.propose()
    with opened(office) as site:
        stream = Stream(site.browser())
        assert (stream.status, stream.kind.partition(";")[0]) == (200, "text/event-stream")
        until(lambda: stream.changes)  # the first look
        before = stream.changes
        other = office.beside()
        other.desk.decide(entry.id, "reject", by="bob", reason="no")
        until(lambda: stream.changes > before)
        before = stream.changes
        other.propose(office.letter(subject="New"))
        until(lambda: stream.changes > before)
        other.close()
    assert stream.ended.wait(10)


def test_a_page_is_told_what_another_page_decided(office: Office) -> None:
    entry = office.propose()
    with opened(office) as site:
        streams = [Stream(site.browser()) for _ in range(3)]
        for stream in streams:
            stream.quiet()
        before = [stream.changes for stream in streams]
        site.browser().decide(entry.id, "approve")
        until(lambda: all(s.changes > b for s, b in zip(streams, before, strict=True)))
    assert all(stream.ended.wait(10) for stream in streams)


def test_what_changes_while_a_page_is_being_told_is_told_as_well(office: Office) -> None:
    feed = ChangeFeed(office.desk)

    async def told() -> list[str]:
        stream = feed.stream(lambda: True)
        assert isinstance(stream, AsyncGenerator)
        async with aclosing(stream):
            heard = [await anext(stream) for _ in range(2)]
            feed.notify()
            await asyncio.sleep(0)
            async with asyncio.timeout(5):
                heard.append(await anext(stream))
        return heard

    first, *rest = asyncio.run(told())
    assert first.startswith("retry")
    assert rest == ["event: change\ndata: \n\n"] * 2


def test_a_browser_that_signed_out_is_told_nothing_more(office: Office, site: Site) -> None:
    browser = site.browser()
    stream = Stream(browser)
    stream.quiet()
    browser.post("/out")
    other = office.beside()
    other.propose()
    assert stream.ended.wait(4)
    other.close()


def test_a_page_that_was_locked_is_told_nothing_more(office: Office) -> None:
    office.set_passphrase(WORD)
    office.reopen(trust="desk")
    with opened(office) as site:
        stream = Stream(site.browser(passphrase=WORD))
        stream.quiet()
        office.clock.go(1000)
        office.propose()
        ended = stream.ended.wait(4)
    assert ended


def test_it_ends_with_pages_open_and_they_with_it(office: Office) -> None:
    with opened(office) as site:
        streams = [Stream(site.browser()) for _ in range(8)]
    assert all(stream.ended.wait(5) for stream in streams)
    assert not any("Error" in line for stream in streams for line in stream.heard[:-1])


def test_it_ends_with_nobody_there_and_nobody_is_let_in_then(office: Office) -> None:
    with opened(office) as site:
        port = site.sessions.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


# Sending


def test_what_is_due_is_sent_while_a_page_is_open(office: Office, courier: Courier) -> None:
    with opened(office) as site:
        browser = site.browser()
        stream = Stream(browser)
        entry = office.propose()
        browser.decide(entry.id, "approve")
        assert courier.tried == 0
        office.clock.go(10)
        before = stream.changes
        until(lambda: office.state_of(entry.id) == "sent", 10)
        until(lambda: stream.changes > before)
        assert "Sent" in browser.get(f"/letter/{entry.id}").words
    assert len(courier.accepted) == 1


def test_what_is_not_due_is_not_sent(office: Office, courier: Courier) -> None:
    entry = office.propose()
    with opened(office) as site:
        site.browser().decide(entry.id, "approve")
    office.clock.go(9)
    with rounds(office, 3) as dispatcher:
        dispatcher.run()
    assert courier.tried == 0
    office.clock.go(1)
    with rounds(office, 1) as dispatcher:
        dispatcher.run()
    assert courier.tried == 1


class Paced(AutoDispatcher):
    """A dispatcher that goes round so often and no more."""

    def __init__(self, desk: Desk, many: int, between: Callable[[int], object]) -> None:
        super().__init__(desk)
        self.many, self.between = many, between
        self.waits: list[float] = []

    def run(self) -> None:
        for left in range(self.many, 0, -1):
            self.waits.append(self.run_once())
            self.between(left)


@contextmanager
def rounds(
    office: Office, many: int, between: Callable[[int], object] = lambda _left: None
) -> Iterator[Paced]:
    """Lend a dispatcher that goes round so often and no more."""
    yield Paced(office.desk, many, between)


def shown(
    office: Office,
    dispatcher: Paced,
    *,
    person: str = "ada",
    live: bool = False,
    path: str = "queue",
    id: str = "",
) -> str:
    """Return a page as it is drawn beside this dispatcher."""
    handlers = Handlers(
        services=office.services, sessions=Sessions(office.desk, 1), dispatcher=dispatcher, zone=UTC, checks=fine, mail_checks=fine,
    )  # fmt: skip
    headers = [(b"x-desk-live", b"1")] if live else []
    scope = {"type": "http", "method": "GET", "query_string": b"", "headers": headers, "path_params": {"id": id}}  # fmt: skip
    request = PageRequest(Request(scope), BrowserSession("s", person), {})
    answer = getattr(handlers, path)(request)
    return parsed(answer.body.decode()).words


def test_notes_that_were_moved_are_taken_in(office: Office, courier: Courier) -> None:
    entry = office.propose()
    office.move(entry.id, APPROVED)
    with rounds(office, 2, between=lambda _left: office.clock.go(10)) as dispatcher:
        dispatcher.run()
    assert office.state_of(entry.id) == "sent"
    assert len(courier.accepted) == 1


def test_a_vault_that_is_gone_for_a_while_is_said_and_then_all_goes_on(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()
    away = office.vault.with_name("away")
    office.vault.rename(away)
    with opened(office) as site:
        browser = site.browser()
        for path in ("/", "/history", f"/letter/{entry.id}"):
            answer = browser.get(path)
            assert str(office.vault) in answer.words, path
            assert "Traceback" not in answer.text
            assert answer.status != 500, path
        assert courier.tried == 0
        away.rename(office.vault)
        office.clock.go(60)
        until(lambda: office.state_of(entry.id) == "sent", 12)
        answer = browser.get("/")
        assert answer.status == 200
        assert "Nothing is being sent" not in answer.words


def test_what_keeps_letters_from_leaving_is_said_until_it_is_over(office: Office) -> None:
    office.approved()
    breaks = [RuntimeError("the disk is on fire")]

    def step(_name: str) -> None:
        if breaks:
            raise breaks.pop()

    office.step = step
    said = []

    with rounds(office, 2, between=lambda _left: said.append(dispatcher.problem)) as dispatcher:
        dispatcher.run()
        assert "the disk is on fire" in said[0]
        assert said[1] == ""


def test_trouble_stands_on_the_page_until_it_is_over(office: Office) -> None:
    with rounds(office, 0) as dispatcher:
        dispatcher.problem = "the disk is on fire"
        for _ in range(2):
            assert "Nothing is being sent: the disk is on fire" in shown(office, dispatcher)
        dispatcher.problem = ""
        assert "fire" not in shown(office, dispatcher)


def test_what_is_said_in_every_round_stands_on_the_page_once(office: Office) -> None:
    office.write("Approved/shopping.md", "Milk, bread\n")
    with rounds(office, 5) as dispatcher:
        dispatcher.run()
        assert shown(office, dispatcher).count("Approved/shopping.md is ignored") == 1


def test_what_a_person_should_know_is_not_lost_to_a_part_that_a_page_loads_by_itself(
    office: Office,
) -> None:
    office.write("Approved/shopping.md", "Milk, bread\n")
    with rounds(office, 1) as dispatcher:
        dispatcher.run()
        shown(office, dispatcher, live=True, path="mail_health")
        assert "Approved/shopping.md is ignored" in shown(office, dispatcher)


def test_what_a_look_at_a_letter_finds_in_the_folders_is_said(office: Office) -> None:
    office.set_passphrase(WORD)
    office.reopen(trust="desk")
    entry = office.propose()
    office.move(entry.id, APPROVED)
    with rounds(office, 1) as dispatcher:
        words = shown(office, dispatcher, path="letter", id=entry.id)
        dispatcher.run()
        words += shown(office, dispatcher)
    assert office.state_of(entry.id) == "pending"
    assert "level desk" in words


@pytest.mark.parametrize(("window", "looks"), [(0, 1), (3, 2)])
def test_a_letter_does_not_wait_long_after_it_is_due(
    office: Office, window: int, looks: int
) -> None:
    office.reopen(undo_seconds=window)
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    with rounds(office, looks, between=lambda _left: office.clock.go(window)) as dispatcher:
        dispatcher.run()
        assert max(dispatcher.waits[: looks - 1], default=0) <= window
    assert office.state_of(entry.id) == "sent"
    assert present(state(office, entry.id, Sent).verdict).by == "ada"
