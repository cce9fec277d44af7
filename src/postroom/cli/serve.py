"""`postroom desk` and `postroom mcp`: the page for people and the server for agents, on this machine."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from postroom import wiring
from postroom.cli import ui
from postroom.cli.main import HELP
from postroom.cli.server import ConfiguredDesk, Options, load_calls, load_listing, load_server
from postroom.config.settings import ORIGIN_PATTERN, Config
from postroom.core.errors import AuthRequired, Conflict, Invalid, Unavailable
from postroom.core.stop import StopEvent
from postroom.core.text import one_line
from postroom.tools.listing import SERVERS
from postroom.wiring.desk import require_desk

CONTRACTS = sorted({name for contracts in SERVERS.values() for name in contracts})
SCREENS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")  # a browser can be opened where one is set


class DeskPage(NamedTuple):
    """A page that this process serves, or another one (`is_served` is then None)."""

    address: str
    sign_in: str
    person: str
    state: Path
    is_remote: bool = False  # whether browsers reach it by the person's own proxy
    is_served: Callable[[], bool] | None = None


@ui.personal
@click.command("desk", help=HELP["desk"])
@click.option("--port", metavar="N", type=click.IntRange(0, 65_535), help="The port; 0 takes a free one.  [default: 8766]")  # fmt: skip
@click.option("--host", metavar="ADDRESS", help="Listen on this address instead of 127.0.0.1.")
@click.option("--origin", metavar="URL", help="The address by which your own proxy or tunnel shows the page.")  # fmt: skip
@click.option("--as", "person", metavar="NAME", help="The name that your decisions carry.  [default: your login name]")  # fmt: skip
@click.option("--open/--no-open", "opens", default=None, help="Open the browser.  [default: in a terminal]")  # fmt: skip
@ui.json_option
def desk_command(opens: bool | None, **options: str | int | None) -> None:
    config, as_json = ui.settings(), ui.wants_json()
    opens = sys.stdout.isatty() and not as_json if opens is None else opens
    with serve_page(config, **options) as page, ExitStack() as stack:  # type: ignore[arg-type]
        values = {"address": page.address, "sign_in": page.sign_in, "person": page.person}
        about = "This address lets one browser in, once, within ten minutes."
        ui.output(values, [page.sign_in], about)
        sys.stdout.flush()
        if opens and not page.is_remote:
            open_browser(stack, page)
        if page.is_served is None:
            ui.say("Another process serves the page.")
            if opens:
                threading.Event().wait(2)  # for the browser to read the file
            return
        if not as_json:
            ui.say("Ctrl-C ends it.")
        stopping = StopEvent()
        stack.enter_context(ui.stopped_by_signals(stopping))
        while page.is_served() and not stopping.wait(0.5):
            pass


@contextmanager
def serve_page(
    config: Config,
    *,
    host: str | None = None,
    port: int | None = None,
    origin: str | None = None,
    person: str | None = None,
) -> Iterator[DeskPage]:
    """Serve the page of these settings in threads until the block ends, unless another process does.

    Host, port and origin override the settings; `person` decides on the page, by default whoever is logged in.
    """
    from postroom.cli.health import check_mail, check_page
    from postroom.services.services import Services
    from postroom.web import handlers, live
    from postroom.web.serve import serve_desk
    from postroom.web.sessions import Sessions, new_sign_in_address

    person = ui.login_name() if person is None else person
    is_plain = person == one_line(person) and person.strip() and len(person) <= 64
    if not is_plain or person == "nobody":
        raise Invalid(
            "That is not a name", remedy="Give one of 1 to 64 plain characters with --as."
        )
    with ExitStack() as stack:
        desk = stack.enter_context(require_desk(config))
        if not stack.enter_context(desk.locks.hold_page()):
            address = desk.locks.page_address()
            if not address or (host, port, origin) != (None, None, None):
                raise Conflict(
                    f"The page is served already{f' at {address}' if address else ''}",
                    remedy="End that one first, or leave out --host, --port and --origin.",
                )
            yield DeskPage(address, new_sign_in_address(desk, person, address), person, desk.state)
            return
        host = host or config.desk.host
        # Browsers may resolve the name differently.
        host = "127.0.0.1" if host == "localhost" else host
        where = ListenAddress(host, config.desk.port if port is None else port)
        proxy = _parse_origin(config.desk.origin if origin is None else origin)
        listener = stack.enter_context(listen(where, "--host"))
        if not where.is_loopback and not proxy.startswith("https:"):
            ui.say("Letters and your passphrase are sent unencrypted: put TLS in front of this.")
        sessions = Sessions(
            desk,
            listener.getsockname()[1],
            origin=proxy,
            host=where.url_host,
            is_exposed=bool(proxy) or not where.is_loopback,
            idle_seconds=config.desk.idle_minutes * 60.0,
        )
        is_served = stack.enter_context(
            serve_desk(
                handlers.Handlers(
                    services=Services(desk),
                    sessions=sessions,
                    dispatcher=live.AutoDispatcher(desk),
                    zone=wiring.local_zone(),
                    checks=lambda: check_page(desk, config),
                    mail_checks=lambda: check_mail(desk, config),
                ),
                listener,
            )
        )
        desk.locks.set_page_address(sessions.address)
        sign_in = new_sign_in_address(desk, person, sessions.address)
        yield DeskPage(sessions.address, sign_in, person, desk.state, bool(proxy), is_served)


def _parse_origin(text: str) -> str:
    """Return the address of the person's proxy as browsers write it: without a slash or the usual port."""
    if text and not re.fullmatch(f"{ORIGIN_PATTERN}/?", text):
        raise Invalid(
            "--origin is not the address that a browser shows",
            remedy="Give scheme and host, such as https://desk.example.org.",
        )
    return text.rstrip("/").removesuffix(":443" if text.startswith("https:") else ":80")


def open_browser(stack: ExitStack, page: DeskPage) -> None:
    """Open the browser, if there is one; the sign-in address stays out of the list of processes."""
    from postroom.web.serve import redirect_file

    # Without a screen there may still be a browser for the terminal, which is in use.
    has_screen = sys.platform == "darwin" or any(map(os.environ.get, SCREENS))
    try:
        browser = webbrowser.get() if has_screen else None
    except webbrowser.Error:
        browser = None
    if browser is None:
        ui.say("No browser was found to open it in: open the address yourself.")
        return
    file = stack.enter_context(redirect_file(page.state, page.sign_in))
    threading.Thread(target=browser.open, args=(file,), daemon=True).start()


contract_option = click.option("--contract", type=click.Choice(CONTRACTS), default="postroom", show_default=True, help="Which names and texts the tools have.")  # fmt: skip


@click.command("mcp", help=HELP["mcp"])
@click.argument("server", type=click.Choice(sorted(SERVERS)), default="all", metavar="[SERVER]")
@contract_option
@click.option("--agent", default="", metavar="NAME", help="The agent's name; by default the client's own, except in agent mail.")  # fmt: skip
@click.option("--http", metavar="[HOST:]PORT", help="Serve over HTTP, on this machine, instead of stdio.")  # fmt: skip
def mcp_command(server: str, contract: str, agent: str, http: str | None) -> None:
    options = Options(server, contract, agent)
    options.check()
    if http is not None:
        _serve_http(options, http)
        return
    # Python has none where the descriptor is closed.
    if not (sys.__stdin__ and sys.__stdout__):
        raise Invalid("Standard input or output is closed", remedy="Let a client start it.")
    if sys.stdin.isatty():
        ui.say("Serving MCP on standard input, for a client. Ctrl-C ends it.")
    load_server(options)()


def _serve_http(options: Options, http: str) -> None:
    from postroom.tools.serve import Service, run_http

    provider = ConfiguredDesk()
    where, known, agent = parse_address(http), provider.tokens(), options.agent
    if not known:
        problem = "There is no token that a client could sign in with"
        raise AuthRequired(problem, remedy="Run `postroom init` first.")
    if agent.casefold() in {name.casefold() for name in known.values() if name}:
        remedy = "Leave --agent out: that client has its own."
        raise Invalid(f"{agent} is the name of a token", remedy=remedy)
    listing = load_listing(options.module, provider)
    service = Service(listing, load_calls(options.module, listing, provider), agent=agent)
    listener = listen(where, "--http")
    if not where.is_loopback:
        ui.say("The token is sent unencrypted: put TLS in front of this.")
    run_http(service, listener, where.url_host, provider.tokens)


class ListenAddress(NamedTuple):
    host: str
    port: int

    @property
    def url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect; of another name than localhost nobody knows."""
        return bool(re.fullmatch(r"localhost|::1|127(\.[0-9]{1,3}){3}", self.host))


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
    with ExitStack() as stack:
        # Named as TCP: asyncio then sends the end of an answer without waiting for an acknowledgement.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        stack.enter_context(listener)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((where.host, where.port))
        except socket.gaierror as why:
            problem = f"{where.host[:60]} is not an address of this machine"
            raise Invalid(problem, remedy="Give one such as 127.0.0.1.") from why
        except OSError as why:
            raise Unavailable(
                f"Cannot listen on {where.url_host}:{where.port}: {why.strerror}",
                remedy="Name another port; 0 takes a free one.",
            ) from why
        if ipaddress.ip_address(listener.getsockname()[0]).is_unspecified:
            raise Invalid(
                f"{option} on all addresses would let in anybody who finds this machine",
                remedy="Name the one address that is used, and put TLS in front of it.",
            )
        listener.listen(128)  # before the address is printed
        stack.pop_all()
        return listener
