"""`postroom desk`: the page on which a person decides, served on this machine."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from postroom import wiring
from postroom.cli.command import (
    json_option,
    login_name,
    output,
    settings,
    stopped_by_signals,
    wants_json,
)
from postroom.cli.printing import say
from postroom.config import ORIGIN_PATTERN
from postroom.core.errors import Conflict, Invalid, PostroomError, Unavailable
from postroom.core.text import one_line

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.desk.desk import Desk
    from postroom.web.serve import DeskServer


SCREENS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")  # a browser can be opened where one is set


class PageOptions(NamedTuple):
    """Where to serve the page, where that differs from the settings; and who decides on it."""

    host: str | None = None
    port: int | None = None
    origin: str | None = None
    person: str | None = None


class DeskPage(NamedTuple):
    """A page that is served, by this process or by another one (`server` is then None)."""

    address: str
    sign_in: str
    person: str
    state: Path
    is_remote: bool = False
    server: DeskServer | None = None


@click.command("desk")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port; 0 takes a free one.  [default: 8766]")  # fmt: skip
@click.option("--host", metavar="ADDRESS", help="Listen on this address instead of 127.0.0.1.")
@click.option("--origin", metavar="URL", help="The address by which your own proxy or tunnel shows the page.")  # fmt: skip
@click.option("--as", "person", metavar="NAME", help="The name of who decides.  [default: your login name]")  # fmt: skip
@click.option("--open/--no-open", "opens", default=None, help="Open the browser.  [default: in a terminal]")  # fmt: skip
@json_option
def desk_command(opens: bool | None, **options: str | int | None) -> None:
    """Open the desk in the browser: read, decide, look back.

    Prints an address that lets one browser in, once, and opens it. The page is served on this
    machine only, until Ctrl-C; what you approve is sent from here. If another process serves the
    page already, a new address for it is printed and opened. For your phone, put your own proxy or
    tunnel in front and give its address with --origin; you are then asked for your passphrase. Two
    people decide under their own names with --as.
    """
    config = settings()
    opens = sys.stdout.isatty() and not wants_json() if opens is None else opens
    with open_page(config, PageOptions(**options)) as page, ExitStack() as stack:  # type: ignore[arg-type]
        values = {"address": page.address, "sign_in": page.sign_in, "person": page.person}
        output(
            values, [page.sign_in], "This address lets one browser in, once, within ten minutes."
        )
        sys.stdout.flush()
        if opens and not page.is_remote:
            _open_browser(stack, page)
        if page.server is None:
            say("Another process serves the page.")
            if opens:
                threading.Event().wait(2)  # for the browser to read the file
            return
        if not wants_json():
            say("Ctrl-C ends it.")
        from postroom.web.serve import run_in_thread

        stopping = threading.Event()
        stack.enter_context(stopped_by_signals(stopping))
        is_serving = stack.enter_context(run_in_thread(page.server))
        while is_serving() and not stopping.wait(0.5):
            pass


@contextmanager
def page_in_background(
    config: Config, options: PageOptions, *, opens: bool = False
) -> Iterator[DeskPage]:
    """Lend the page, served by a thread of its own."""
    with open_page(config, options) as page, ExitStack() as stack:
        if page.server is not None:
            from postroom.web.serve import run_in_thread

            stack.enter_context(run_in_thread(page.server))
        if opens:
            _open_browser(stack, page)
        yield page


@contextmanager
def open_page(config: Config, options: PageOptions) -> Iterator[DeskPage]:
    """Lend the page of these settings, to be served from here unless another process does."""
    from postroom.wiring.desk import require_desk

    person = login_name() if options.person is None else options.person
    is_plain = person == one_line(person) and person.strip() and len(person) <= 64
    if not is_plain or person == "nobody":
        raise Invalid("That is no name", remedy="Give one of 1 to 64 plain characters with --as.")
    with ExitStack() as stack:
        desk = stack.enter_context(require_desk(config))
        from postroom.web.sessions import new_sign_in_address

        if not stack.enter_context(desk.locks.hold_page()):
            address = desk.locks.page_address()
            if not address or any(part is not None for part in options[:3]):
                raise Conflict(
                    f"The page is served already{f' at {address}' if address else ''}",
                    remedy="End that one first, or leave out --host, --port and --origin.",
                )
            sign_in = new_sign_in_address(desk, person, address)
            yield DeskPage(address, sign_in, person, desk.state)
            return
        server = stack.enter_context(_serve(desk, config, options))
        address, is_remote = server.sessions.address, bool(server.sessions.origin)
        desk.locks.set_page_address(address)
        sign_in = new_sign_in_address(desk, person, address)
        yield DeskPage(address, sign_in, person, desk.state, is_remote, server)


@contextmanager
def _serve(desk: Desk, config: Config, options: PageOptions) -> Iterator[DeskServer]:
    from postroom.cli.health import check_mail, check_page
    from postroom.services.services import Services
    from postroom.web import serve

    host = options.host or config.desk.host
    host = "127.0.0.1" if host == "localhost" else host  # which browsers may resolve differently
    origin = config.desk.origin if options.origin is None else options.origin
    if origin and not re.fullmatch(f"{ORIGIN_PATTERN}/?", origin):
        raise Invalid(
            "--origin is not the address that a browser shows",
            remedy="Give scheme and host, such as https://desk.example.org.",
        )
    # As browsers write it: without a slash, and without the usual port.
    usual_port = ":443" if origin.startswith("https:") else ":80"
    origin = origin.rstrip("/").removesuffix(usual_port)
    where = ListenAddress(host, config.desk.port if options.port is None else options.port)
    with listen(where, "--host") as listener:
        if not where.is_loopback and not origin.startswith("https:"):
            say("Letters and your passphrase are sent unencrypted: put TLS in front of this.")
        with serve.desk_server(
            Services(desk),
            serve.ListenOptions(
                listener=listener,
                host=host,
                origin=origin,
                is_remote=not where.is_loopback,
                idle_seconds=config.desk.idle_minutes * 60.0,
            ),
            zone=wiring.local_zone(),
            health=lambda: check_page(desk, config),
            mail_health=lambda: check_mail(desk, config),
        ) as server:
            yield server


def _open_browser(stack: ExitStack, page: DeskPage) -> None:
    """Open the browser, if there is one; the sign-in address stays out of the list of processes."""
    import webbrowser

    from postroom.web.serve import redirect_file

    # Without a screen there may still be a browser for the terminal, which is in use.
    has_screen = sys.platform == "darwin" or any(map(os.environ.get, SCREENS))
    try:
        browser = webbrowser.get() if has_screen else None
    except webbrowser.Error:
        browser = None
    if browser is None:
        say("No browser was found to open it in: open the address yourself.")
        return
    file = stack.enter_context(redirect_file(page.state, page.sign_in))
    threading.Thread(target=browser.open, args=(file,), daemon=True).start()


class ListenAddress(NamedTuple):
    """The host and port that a server listens on."""

    host: str
    port: int

    @property
    def url_host(self) -> str:
        """The host as a URL has it."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> ListenAddress:
    """Return what `[HOST:]PORT` means; without a host it is the loopback address."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise Invalid(
            "--http needs a port, as in 8765 or 127.0.0.1:8765", remedy="0 takes a free one."
        )
    return ListenAddress(host, int(port))


def listen(where: ListenAddress, option: str) -> socket.socket:
    """Return a listening socket; refuse to listen on all addresses of the machine at once.

    `option` is the one that the person gave the address with, for the message.
    """
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    # Named as TCP: asyncio then sends the end of an answer without waiting for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((where.host, where.port))
        if ipaddress.ip_address(listener.getsockname()[0]).is_unspecified:
            raise Invalid(
                f"{option} on all addresses would let in anybody who finds this machine",
                remedy="Name the one address that is used, and put TLS in front of it.",
            )
        listener.listen(128)  # before the address is printed
    except (OSError, Invalid) as why:
        listener.close()
        raise _explain(where, why) from why
    return listener


def _explain(where: ListenAddress, why: OSError | PostroomError) -> PostroomError:
    if isinstance(why, PostroomError):
        return why
    if isinstance(why, socket.gaierror):
        problem = f"{where.host[:60]} is no address of this machine"
        return Invalid(problem, remedy="Give one such as 127.0.0.1.")
    return Unavailable(
        f"Cannot listen on {where.url_host}:{where.port}: {why.strerror}",
        remedy="Name another port; 0 takes a free one.",
    )
