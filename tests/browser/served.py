"""A desk that a real process serves, and those who come to it: people in a browser, an agent over MCP."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypedDict, Unpack

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    StorageState,
    ViewportSize,
    expect,
)

from scripts.scenes import Desk as StagedDesk
from tests.agents import SAMPLE, Visitor, visiting_inside, wait_for_line
from tests.conftest import Person
from tests.narrow import narrow, present
from tests.unit.web.browser import Site

PASSPHRASE = "open sesame"
# Tests propose and send more than an agent should.
LIMITS = ("open_letters", "proposals_per_hour", "sends_per_hour", "sends_per_pace", "recipients_per_hour")  # fmt: skip
# What a browser says by itself of a page that was refused, which the page explains.
REFUSED = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")


class Options(TypedDict, total=False):
    """Options of a browser's window that tests set."""

    bypass_csp: bool
    color_scheme: Literal["dark", "light"]
    has_touch: bool
    is_mobile: bool
    java_script_enabled: bool
    reduced_motion: Literal["reduce"]
    storage_state: StorageState
    timezone_id: str
    viewport: ViewportSize


UTC: Options = {"timezone_id": "UTC"}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDE: Options = {"viewport": {"width": 1280, "height": 800}}
PHONE: Options = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


class Room:
    """A person's desk, served."""

    def __init__(self, folder: Path, **approvals: object) -> None:
        self.person = Person(folder)
        self.person.live(**approvals)
        with (folder / ".config/postroom/postroom.toml").open("a") as settings:
            settings.write("[limits]\n" + "".join(f"{limit} = 1000\n" for limit in LIMITS))
        if approvals.get("trust") == "desk":
            asked = [("A new passphrase:", f"{PASSPHRASE}\n"), ("Once more:", f"{PASSPHRASE}\n")]
            assert self.person.at_terminal("init", answers=asked).code == 0
        else:
            assert self.person.run("init").code == 0
        assert self.person.run("import", str(SAMPLE)).code == 0
        self.agent: Visitor
        self._cookies: dict[str, StorageState] = {}
        self._letters = 0
        self.port = 0
        self.start()

    def start(self) -> None:
        """Serve the page, at the port that it had before."""
        self.process = self.person.start("desk", "--no-open", "--port", str(self.port), "--json", "--as", "Ada")  # fmt: skip
        told = "{"
        stdout = present(self.process.stdout)
        wait_for_line(stdout, "{")
        while not told.rstrip().endswith("}"):
            told += stdout.readline().decode()
        found = json.loads(told)
        self.address, self.sign_in = found["address"], found["sign_in"]
        self.port = int(self.address.rpartition(":")[2])

    def end(self, sign: int = signal.SIGINT) -> int:
        """End it as a person does, and return how it ended."""
        self.process.send_signal(sign)
        self.process.communicate(timeout=30)
        return self.process.returncode

    def restart(self) -> None:
        """End it and serve it again."""
        self.end()
        self.start()

    def invite(self, name: str = "Ada") -> str:
        """Return a new address that lets one browser in for somebody."""
        done = self.person.run("desk", "--no-open", "--json", "--as", name)
        assert done.code == 0, done.err
        return narrow(done.json["sign_in"], str)

    def cookies(self, browser: Browser, name: str) -> StorageState:
        """Return what a browser keeps that was let in for somebody."""
        if name not in self._cookies:
            context = browser.new_context(java_script_enabled=False)
            page = context.new_page()
            page.goto(self.invite(name))
            if page.get_by_label("Your passphrase").count():
                page.get_by_label("Your passphrase").fill(PASSPHRASE)
            page.get_by_role("button", name="Open the desk").click()
            page.wait_for_url(f"{self.address}/")
            self._cookies[name] = context.storage_state()
            context.close()
        return self._cookies[name]

    def propose(self, **changes: object) -> str:
        """Have an agent ask for a letter to be sent, and return its id."""
        self._letters += 1
        usual: dict[str, object] = {"to": ["ann@example.com"], "subject": f"Hello {self._letters}"}
        if "html" not in changes:
            usual["body"] = f"Good day, Ann. This is letter {self._letters}."
        return narrow(self.agent.done("send_email", **(usual | changes))["letter"], str)

    def state(self, id: str) -> str:
        """Return what the agent is told of its letter."""
        return narrow(self.agent.done("letter_status", id=id)["status"], str)

    def sent(self) -> list[str]:
        """Return the subjects in the Sent mailbox."""
        found = self.person.run("search", "in:sent", "--limit", "100", "--json").json["messages"]
        return [mail["subject"] for mail in found]

    def url(self, id: str, rest: str = "") -> str:
        return f"{self.address}/letter/{id}{rest}"


class Rooms(Protocol):
    """Serves a desk with these settings of approval, or returns the one that is served already."""

    def __call__(self, **approvals: object) -> Room: ...


@contextmanager
def serving(folder: Path, **approvals: object) -> Iterator[Room]:
    """Serve a desk with sample mail and an agent at work, and end it."""
    with ExitStack() as stack:
        room = Room(folder, **approvals)
        stack.callback(room.end)
        room.agent = stack.enter_context(visiting_inside(room.person))
        yield room


class Staged(NamedTuple):
    """A desk with a clock that tests move, served by this process."""

    desk: StagedDesk
    site: Site


class Visits:
    """Makes browsers' windows, and keeps what goes wrong in them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.complaints: list[str] = []
        self.tolerated = ""  # a pattern of what may go wrong here, beside refusals

    def window(self, **options: Unpack[Options]) -> BrowserContext:
        """Return a browser of its own that nobody was let in with."""
        context = self._browser.new_context(**(UTC | options))
        self._contexts.append(context)
        context.on("console", self._heard)
        context.on("weberror", lambda wrong: self._complain(str(wrong.error)))
        return context

    def _heard(self, said: ConsoleMessage) -> None:
        # Our pages name an icon of their own; those of a trap have none, and may be gone when it is asked for.
        foreign = said.location["url"].endswith("/favicon.ico")
        if said.type in {"error", "warning"} and not foreign:
            self._complain(said.text)

    def page(
        self, room: Room, path: str = "/", *, name: str = "Ada", **options: Unpack[Options]
    ) -> Page:
        """Return a page of a desk in a browser that somebody was let in with."""
        state = room.cookies(self._browser, name)
        options["storage_state"] = state
        page = self.window(**options).new_page()
        page.goto(room.address + path)
        return page

    def staged(self, site: Site, path: str = "/", **options: Unpack[Options]) -> Page:
        """Return a page of a desk that this process serves, signed in as Ada."""
        page = self.window(**options).new_page()
        page.goto(site.sign_in_address("Ada"))
        page.locator("header.bar").wait_for()
        page.goto(site.address + path)
        return page

    def letter(self, room: Room, id: str, *, name: str = "Ada", **options: Unpack[Options]) -> Page:  # fmt: skip
        return self.page(room, f"/letter/{id}", name=name, **options)

    def _complain(self, what: str) -> None:
        if not (REFUSED.search(what) or (self.tolerated and re.search(self.tolerated, what))):
            self.complaints.append(what)

    def close(self) -> None:
        for context in self._contexts:
            context.close()


class Trap:
    """Listens where nobody should come, and counts who does: a connection is enough."""

    def __init__(self, page: Callable[[], str] = str) -> None:
        self._page = page
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.hits: list[str] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            with caller:
                caller.settimeout(1)
                self.hits.append("connected")
                try:
                    self.hits[-1] = caller.recv(4096).decode(errors="replace").partition("\r")[0]
                    body = self._page().encode()
                    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"  # fmt: skip
                    caller.sendall(head.encode() + body)
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=10)


@contextmanager
def trap(page: Callable[[], str] = str) -> Iterator[Trap]:
    """Lend a place that counts who comes, and answers with a page."""
    made = Trap(page)
    try:
        yield made
    finally:
        made.close()


def until(holds: Callable[[], object], within: float = 20) -> float:
    """Wait for a condition, within reason, and return the seconds that it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < within, f"not so within {within} seconds"
        threading.Event().wait(0.05)
    return time.monotonic() - began


def status(page: Page, address: str) -> int:
    """Open an address and return the status of the answer."""
    return present(page.goto(address)).status


def approve(page: Page) -> None:
    """Approve the letter that is open, once its button counts, and wait until the page confirms it."""
    page.get_by_role("button", name="Approve and send").click()
    expect(page.locator("#toast")).to_contain_text("pproved.")


def reject(page: Page, reason: str) -> None:
    """Reject the letter that is open, and wait until the page confirms it."""
    page.locator("button[popovertarget=reject]").first.click()
    page.get_by_label("Reason (the agent").fill(reason)
    page.get_by_role("button", name="Reject this letter").click()
    expect(page.locator("#toast")).to_contain_text("Rejected. The agent can see this.")


def tick(page: Page) -> None:
    """Tick the box at each place of a red letter."""
    boxes = page.get_by_role("checkbox", name="I checked this").all()
    assert boxes
    for box in boxes:
        box.check()


def red(room: Room, **changes: object) -> str:
    """Propose a letter whose card is red: it gives away a key."""
    return room.propose(**({"body": "The key is AKIAIOSFODNN7EXAMQLE, and the door is open."} | changes))  # fmt: skip
