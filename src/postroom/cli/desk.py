"""`postroom desk`: the page on which a person decides, served on this machine."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.listening import Place, listening
from postroom.cli.printing import say
from postroom.cli.signals import stopped_by_signals
from postroom.core.errors import Conflict, Invalid
from postroom.core.text import one_line

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.desk.desk import Desk
    from postroom.web.serve import DeskServer

SCREENS = (
    "BROWSER",
    "DISPLAY",
    "WAYLAND_DISPLAY",
)  # where one of them is set, a browser can be opened
ORIGIN = re.compile(r"https?://[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[0-9]{1,5})?/?")


class Wish(NamedTuple):
    """Where the page shall be, beside what the settings say; and whose word is given on it."""

    host: str | None = None
    port: int | None = None
    origin: str | None = None
    person: str | None = None


@click.command("desk")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port; 0 takes a free one.  [default: 8766]")  # fmt: skip
@click.option("--host", metavar="ADDRESS", help="Listen on this address instead of 127.0.0.1.")  # fmt: skip
@click.option("--origin", metavar="URL", help="The address by which your own proxy or tunnel shows the page.")  # fmt: skip
@click.option("--as", "person", metavar="NAME", help="Whose word is given on it.  [default: your login name]")  # fmt: skip
@click.option("--open/--no-open", "opens", default=None, help="Open the browser.  [default: in a terminal]")  # fmt: skip
@printing.json_option
def desk_command(
    port: int | None,
    host: str | None,
    origin: str | None,
    person: str | None,
    opens: bool | None,
    as_json: bool,
) -> None:
    """Open the desk in the browser: read, decide, look back.

    Prints an address that lets one browser in, once, and opens it. Served on this machine alone, until
    Ctrl-C; what you approve is sent from here. Where the page is served already, it prints and opens a
    new address for it. From your phone: put your own proxy or tunnel in front and give its address with
    --origin; your passphrase is then asked for. Two people give their word apart with --as.
    """
    config = printing.settings()
    opens = sys.stdout.isatty() and not as_json if opens is None else opens
    with served(config, Wish(host, port, origin, person)) as page:
        report = {"address": page.address, "sign_in": page.sign_in, "person": page.person}
        if as_json:
            printing.print_json(report)
        else:
            click.echo(page.sign_in)
            say("This address lets one browser in, once, within ten minutes.")
        sys.stdout.flush()
        with ExitStack() as stack:
            if opens and not page.remote:
                _opened(stack, page, config)
            if page.server is None:
                say("The page was served already.")
                if opens:
                    threading.Event().wait(2)  # for the browser to read the file
                return
            if not as_json:
                say("Ctrl-C ends it.")
            from postroom.web.serve import run_in_thread

            stopping = threading.Event()
            stack.enter_context(stopped_by_signals(stopping))
            serves = stack.enter_context(run_in_thread(page.server))
            while serves() and not stopping.wait(0.5):
                pass


@contextmanager
def beside(config: Config, wish: Wish, *, opens: bool = False) -> Iterator[Page]:
    """Lend the page while something else is done, served in a thread of its own."""
    with served(config, wish) as page, ExitStack() as stack:
        if page.server is not None:
            from postroom.web.serve import run_in_thread

            stack.enter_context(run_in_thread(page.server))
        if opens:
            _opened(stack, page, config)
        yield page


class Page(NamedTuple):
    """A page that is served, by us or by another process of ours."""

    address: str
    sign_in: str
    person: str
    remote: bool
    server: DeskServer | None


@contextmanager
def served(config: Config, wish: Wish) -> Iterator[Page]:
    """Lend the page of these settings: served from here, unless another process does."""
    from postroom.wiring.desk import needed

    person = _person(wish.person)
    with ExitStack() as stack:
        found = stack.enter_context(needed(config))
        from postroom.web.sessions import new_sign_in_address

        if not stack.enter_context(found.serving()):
            address = found.served()
            if not address or any(part is not None for part in wish[:3]):
                raise Conflict(
                    f"The page is served already{f' at {address}' if address else ''}",
                    remedy="End that one first, or leave out --host, --port and --origin.",
                )
            yield Page(address, new_sign_in_address(found, person, address), person, False, None)
            return
        page = stack.enter_context(_served(found, config, wish))
        found.serves_at(page.sessions.address)
        yield Page(
            page.sessions.address,
            page.sessions.new_address(person),
            person,
            bool(page.sessions.origin),
            page,
        )


@contextmanager
def _served(found: Desk, config: Config, wish: Wish) -> Iterator[DeskServer]:
    from postroom.cli.doctor import of_the_mail, on_the_page
    from postroom.services.services import Services
    from postroom.web import serve

    given = config.desk
    host = wish.host or given.host
    host = "127.0.0.1" if host == "localhost" else host  # of which a browser may know another one
    origin = given.origin if wish.origin is None else wish.origin
    if origin and not ORIGIN.fullmatch(origin):
        raise Invalid(
            "--origin is not the address that a browser shows",
            remedy="Give scheme and host, such as https://desk.example.org.",
        )
    where = Place(host, given.port if wish.port is None else wish.port)
    with listening(where, "--host") as listener:
        if not where.is_loopback and not origin.startswith("https:"):
            say("Letters and your passphrase travel in the clear: put TLS in front of this.")
        with serve.desk_server(
            Services(found),
            serve.ListenOptions(
                listener=listener,
                host=host,
                origin=_as_browsers_write(origin),
                is_remote=not where.is_loopback,
                idle_seconds=config.desk.idle_minutes * 60.0,
            ),
            zone=wiring.local_zone(),
            health=lambda: on_the_page(found, config),
            mail_health=lambda: of_the_mail(found, config),
        ) as page:
            yield page


def _as_browsers_write(origin: str) -> str:
    usual = ":443" if origin.startswith("https:") else ":80"
    return origin.rstrip("/").removesuffix(usual)


def _person(given: str | None) -> str:
    from postroom.cli.letters import person

    name = person() if given is None else given
    if not name.strip() or name != one_line(name) or len(name) > 64 or name in {"nobody"}:
        raise Invalid("That is no name", remedy="Give one of 1 to 64 plain characters with --as.")
    return name


def _opened(stack: ExitStack, page: Page, config: Config) -> None:
    """Open the browser, if there is one; its address stays out of the list of processes."""
    import webbrowser

    from postroom.store.desk import desk_id
    from postroom.web.serve import redirect_file

    # Without a screen there may still be a browser for the terminal, which is in use.
    screen = sys.platform == "darwin" or any(map(os.environ.get, SCREENS))
    try:
        browser = webbrowser.get() if screen else None
    except webbrowser.Error:
        browser = None
    if browser is None:
        say("No browser was found to open it in: open the address yourself.")
        return
    state = config.state_for(desk_id(config.vault.path) or "")
    file = stack.enter_context(redirect_file(state, page.sign_in))
    threading.Thread(target=browser.open, args=(file,), daemon=True).start()
