"""A browser for tests: it keeps its cookie, fills in the forms that it is shown, and says where it comes from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from typing import TypeVar
from urllib.parse import urlencode, urljoin

import httpx2

from postroom.cli.serve import ListenAddress, listen
from postroom.core.records import Check
from postroom.web.handlers import Handlers
from postroom.web.live import AutoDispatcher
from postroom.web.serve import serve_desk
from postroom.web.sessions import Sessions, new_sign_in_address
from postroom.web.templates import ENVIRONMENT
from tests.desks import Office

T = TypeVar("T")
VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
WORD = "correct horse battery"
PROXY = "https://desk.example.org"


@dataclass
class Node:
    """An element as a browser has it."""

    tag: str
    attrs: dict[str, str]
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(one if isinstance(one, str) else one.text for one in self.children)

    @property
    def words(self) -> str:
        """Its text in one line."""
        return " ".join(self.text.split())

    def __iter__(self) -> Iterator[Node]:
        """Yield all that is in it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += [one for one in reversed(node.children) if isinstance(one, Node)]

    def all(self, tag: str = "", **attrs: str) -> list[Node]:
        """Return the elements of this kind; a class may be one of several."""
        wanted = {name.rstrip("_"): value for name, value in attrs.items()}

        def fits(node: Node) -> bool:
            return (not tag or node.tag == tag) and all(
                value in node.attrs.get(name, "").split()
                if name == "class"
                else node.attrs.get(name) == value
                for name, value in wanted.items()
            )

        return [node for node in self if fits(node)]

    def one(self, tag: str = "", **attrs: str) -> Node:
        (found,) = self.all(tag, **attrs)
        return found

    def form(self, action: str) -> Node:
        """Return the form that leads there; its beginning may be left out."""
        (found, *_) = [
            one for one in self.all("form") if one.attrs.get("action", "").endswith(action)
        ]
        return found

    @property
    def boxes(self) -> dict[str, str]:
        """What the boxes of a page post once all of them are ticked; they belong to the form of the approval."""
        ticks = [one for one in self.all("input", type="checkbox") if one.attrs.get("form")]
        assert all({**one.attrs, "required": ""} == one.attrs for one in ticks)
        assert {one.attrs["form"] for one in ticks} <= {"verdict"}
        found = {one.attrs["name"]: one.attrs["value"] for one in ticks}
        assert len(found) == len(ticks)
        return found

    @property
    def fields(self) -> dict[str, str]:
        """What a form would post, without its buttons and what is not ticked."""
        found = {}
        for node in self:
            name = node.attrs.get("name", "")
            if node.tag == "textarea":
                found[name] = node.text.removeprefix("\n")
            elif node.tag == "input" and name and node.attrs.get("type") != "checkbox":
                found[name] = node.attrs.get("value", "")
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        for at in range(len(self.open) - 1, 0, -1):
            if self.open[at].tag == tag:
                del self.open[at:]
                return

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def unseen(mark: Node) -> str:
    """Return the hidden characters that a mark names."""
    sign, _, many = mark.text.removeprefix("U+").partition(" × ")
    return chr(int(sign, 16)) * int(many.replace(",", "") or 1)


def macro(template: str, name: str) -> Callable[..., str]:
    """Return a macro of a template, to be called as the page does."""
    found = getattr(ENVIRONMENT.get_template(template).module, name)
    return lambda *values: str(found(*values))


def parsed(text: str) -> Node:
    """Return a page as a tree."""
    reader = _Reader()
    reader.feed(str(text))  # a piece of Markup would be Markup too
    reader.close()
    return reader.root


class Answer:
    """What the desk answered, in the end."""

    def __init__(self, raw: httpx2.Response, passed: list[httpx2.Response]) -> None:
        self.raw = raw
        self.passed = passed
        self.status = raw.status_code
        self.headers = raw.headers
        self.text = raw.text

    @property
    def page(self) -> Node:
        return parsed(self.text)

    @property
    def words(self) -> str:
        return self.page.words


class Browser:
    """One browser, with a cookie of its own."""

    def __init__(self, site: Site, *, host: str = "", origin: str = "") -> None:
        self.site = site
        self.cookies: dict[str, str] = {}
        self.host = host or site.address.partition("://")[2]
        self.origin = origin or f"http://{self.host}"
        self._token = ""
        self.client = httpx2.Client(base_url=site.address, timeout=30, trust_env=False)

    @property
    def headers(self) -> dict[str, str]:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {"host": self.host} | ({"cookie": cookie} if cookie else {})

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] = {},
        *,
        follow: bool = True,
        content: str | bytes = b"",
    ) -> Answer:
        """Ask for an address; sent on, it goes there."""
        given = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        passed: list[httpx2.Response] = []
        while True:
            raw = self.client.request(method, path, headers=given, content=content)
            for line in raw.headers.get_list("set-cookie"):
                for name, morsel in SimpleCookie(line).items():
                    self.cookies[name] = morsel.value
                    if morsel["max-age"] == "0":
                        del self.cookies[name]
            if not (follow and raw.is_redirect):
                return Answer(raw, passed)
            passed.append(raw)
            path = urljoin(path, raw.headers["location"])
            assert path.startswith("/"), path
            method, content, given = "GET", b"", self.headers

    def get(self, path: str = "/", **headers: str) -> Answer:
        return self.ask("GET", path, headers)

    @property
    def from_here(self) -> dict[str, str]:
        """What a browser says of a post that a page of the desk makes."""
        form = "application/x-www-form-urlencoded"
        return {"origin": self.origin, "sec_fetch_site": "same-origin", "content_type": form}

    def send(
        self,
        path: str,
        fields: Mapping[str, str],
        headers: Mapping[str, str] = {},
        *,
        follow: bool = True,
    ) -> Answer:
        """Post these fields, as a form of the page does."""
        lines = {name: "\r\n".join(value.splitlines() + [""] * value.endswith("\n")) if "\n" in value else value for name, value in fields.items()}  # fmt: skip
        given = {**self.from_here, **headers}
        return self.ask("POST", path, given, follow=follow, content=urlencode(lines))

    def post(
        self, path: str, fields: Mapping[str, str] = {}, *, follow: bool = True, **more: str
    ) -> Answer:
        """Post these fields with the token of this browser."""
        return self.send(path, {"token": self.token, **fields, **more}, follow=follow)

    def submit(
        self, form: Node, changes: Mapping[str, str] = {}, *, follow: bool = True, **more: str
    ) -> Answer:
        """Post a form that was shown, with these changes."""
        return self.send(form.attrs["action"], {**form.fields, **changes, **more}, follow=follow)

    @property
    def token(self) -> str:
        if not self._token:
            self._token = self.get("/health").page.form("/out").fields["token"]
        return self._token

    def decide(self, id: str, verb: str, **fields: str) -> Answer:
        """Look at a letter, and use a form of it."""
        return self.submit(self.get(f"/letter/{id}").page.form(f"/{verb}"), fields)

    def enter(self, address: str, **fields: str) -> Answer:
        """Use an address that works once."""
        path = address.removeprefix(self.site.sessions.address)
        return self.submit(self.get(path).page.form("/in"), fields)

    def sign_in(self, person: str = "ada", **fields: str) -> Answer:
        answer = self.enter(self.site.sign_in_address(person), **fields)
        assert answer.status == 200, answer.words
        return answer


def fine() -> list[Check]:
    return [Check("vault", "ok", "all is well")]


class Site:
    """A desk that is served."""

    def __init__(self, sessions: Sessions, stack: ExitStack) -> None:
        self.sessions = sessions
        self.address = f"http://127.0.0.1:{self.sessions.port}"
        self._stack = stack

    def sign_in_address(self, person: str) -> str:
        """Return an address that signs one browser in as this person."""
        return new_sign_in_address(self.sessions.desk, person, self.sessions.address)

    def stranger(self, *, proxied: bool = False) -> Browser:
        """Return a browser that nobody has let in."""
        host = PROXY.removeprefix("https://") if proxied else ""
        browser = Browser(self, host=host, origin=PROXY if proxied else "")
        self._stack.callback(browser.client.close)
        return browser

    def browser(self, person: str = "ada", *, proxied: bool = False, **fields: str) -> Browser:
        """Return a browser that was let in."""
        browser = self.stranger(proxied=proxied)
        browser.sign_in(person, **fields)
        return browser


@contextmanager
def opened(
    office: Office,
    *,
    health: Callable[[], list[Check]] = fine,
    mail_health: Callable[[], list[Check]] = fine,
    port: int = 0,
    origin: str = "",
    remote: bool = False,
    idle: float = 900,
) -> Iterator[Site]:
    """Serve an office's desk, on a port of its own unless one is given."""
    listener = listen(ListenAddress("127.0.0.1", port), "--host")
    is_exposed = bool(origin) or remote
    port = listener.getsockname()[1]
    sessions = Sessions(office.desk, port, origin=origin, is_exposed=is_exposed, idle_seconds=idle)
    with ExitStack() as stack:
        stack.callback(listener.close)
        handlers = Handlers(
            services=office.services, sessions=sessions, dispatcher=AutoDispatcher(office.desk), zone=UTC,
            checks=health, mail_checks=mail_health,
        )  # fmt: skip
        stack.enter_context(serve_desk(handlers, listener))
        yield Site(sessions, stack)


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until it is so, but not for ever."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        threading.Event().wait(0.02)


def at_once(*acts: Callable[[], T]) -> list[T]:
    """Let all act at the same moment; return what came of each. An error is raised here."""
    start = threading.Barrier(len(acts))

    def one(act: Callable[[], T]) -> T:
        start.wait(20)
        return act()

    with ThreadPoolExecutor(len(acts)) as threads:
        running = [threads.submit(one, act) for act in acts]
        return [act.result(60) for act in running]
