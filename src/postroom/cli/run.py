"""`postroom run`: the orchestrator, in a terminal or as a service."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.command import settings
from postroom.cli.printing import say
from postroom.cli.terminal import stopped_by_signals
from postroom.core.errors import AuthRequired, Invalid, PostroomError
from postroom.core.text import one_line

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.orchestrator.context import RunContext
    from postroom.orchestrator.model import Model

CALL_SECONDS: Final = 20.0  # for one answer of a server
FAILED_ROUND: Final = 8  # the exit code of `--once` where something went wrong
FEW: Final = 20  # mails of a round that are listed one by one
TEXTS: Final = {
    "watching": "Watching {account} from now on. The {there} mails that are there already are left"
    " alone (`postroom run --backlog QUERY` takes them too).",
    "found": "",  # also counts sent mail: what was noted is written instead
    "noted": "{mails} noted in Needs_Action/.",
    "triaged": "{name}: {decision}, by {by}.",
    "drafted": "{name}: answered by the letter {letter}, which waits for you.",
    "held": "{name}: waits. {why}",
    "instead": "{name}: {decision} after all. {why}",
    "letter": "The letter {letter} is {state}{said}.",
    "cursor_lost": "{account} has forgotten how far it was read: the whole inbox is searched.",
    "said": "{text}",
    "desk": "The desk is at {address}; `postroom desk` lets a browser in.",
    "stopped": "Stopped.",
}


class EventPrinter:
    """Prints what happens: a line for people in a terminal, a JSON object per line elsewhere."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._triaged = 0
        self._lock = threading.Lock()

    def __call__(self, event: str, /, **facts: object) -> None:
        """Print one event."""
        with self._lock:
            now = datetime.now(UTC)
            # A note's name has words of a mail in it, and other programs keep these lines.
            name = str(facts.pop("name", "") or facts.get("mail", ""))
            if self._json:
                row = {"time": f"{now:%Y-%m-%dT%H:%M:%SZ}", "event": event, **facts}
                click.echo(json.dumps(row))
            elif not self._count(event) and (text := _describe(event, facts, name)):
                row_text = printing.hanging(f"{now.astimezone():%H:%M:%S} ", text)
                colour = "yellow" if event == "trouble" else None
                click.echo(click.style(row_text, fg=colour))

    def _count(self, event: str) -> bool:
        """Return whether the event is only counted: one of many mails."""
        was_counting = self._triaged > FEW
        self._triaged = self._triaged + 1 if event == "triaged" else 0
        is_counting = self._triaged > FEW
        if sys.stderr.isatty() and (is_counting or was_counting):
            count = f"{self._triaged} mails triaged " if is_counting else f"{' ' * 30}\r"
            click.echo(f"\r{count}", nl=False, err=True)
        return is_counting


def _describe(event: str, facts: dict[str, object], name: str) -> str:
    """Return the sentence of an event; empty where there is none."""
    if event == "trouble":
        account = f"account {facts['account']}: " if "account" in facts else ""
        error = str(facts["error"]).rstrip(".")
        return f"{account}{error}. {facts.get('remedy', '')}".strip()
    reason = str(facts.get("said", "")).rstrip(".")
    values = facts | {"name": printing.fit(name, 60).rstrip(), "said": reason and f": {reason}"}
    return TEXTS[event].format_map({key: one_line(str(value)) for key, value in values.items()})


@click.command("run")
@click.option("--once", is_flag=True, help="Look once, do what there is to do, and end.")
@click.option("--interval", type=click.IntRange(1, 86_400), metavar="SECONDS", help="How often to look for new mail.  [default: 30]")  # fmt: skip
@click.option("--backlog", metavar="QUERY", default="", help="Also take mail of the inbox that is there already and matches.")  # fmt: skip
@click.option("--desk", "with_desk", is_flag=True, help="Serve the desk in the browser too.")
@click.option("--json/--text", "as_json", default=None, help="Write JSON lines or sentences.  [default: sentences in a terminal]")  # fmt: skip
def run_command(
    once: bool, interval: int | None, backlog: str, with_desk: bool, as_json: bool | None
) -> None:
    """Watch for mail, triage it, and send what you approved.

    New mail of the inbox becomes a note in Needs_Action/. Your rules in Handbook.md decide what is
    done about it, then a model, if one is set; answers wait in Drafts/ until you approve them. An
    approved letter is sent after its undo window; a file PAUSED.md in the vault stops that.
    Dashboard.md shows all of it. Ctrl-C ends it; you can stop it at any moment without losing
    anything. With --desk, the page of `postroom desk` is served too.
    """
    from postroom.orchestrator.run import Orchestrator

    if once and with_desk:
        raise Invalid("--desk serves until it is ended", remedy="Leave out --once, or --desk.")
    stopping = threading.Event()
    as_json = not sys.stdout.isatty() if as_json is None else as_json
    with ExitStack() as stack:
        tell = EventPrinter(as_json=as_json)
        setup = stack.enter_context(_set_up(settings(), interval, stopping, tell))
        stack.enter_context(stopped_by_signals(stopping))
        if not once and not as_json:
            desk = setup.desk
            say(
                f"The vault {desk.vault.root}, every {setup.interval:g} seconds; {desk.rules.mode}."
            )
            say("Ctrl-C ends it.")
        if with_desk:
            _serve_desk(stack, tell, as_json=as_json)
        worked = Orchestrator(setup).run(once=once, backlog=backlog)
    if once and not worked:
        raise click.exceptions.Exit(FAILED_ROUND)


def _serve_desk(stack: ExitStack, tell: EventPrinter, *, as_json: bool) -> None:
    """Serve the page beside the orchestrator, which goes on where that fails."""
    from postroom.cli.desk import PageOptions, page_in_background

    try:
        page = stack.enter_context(page_in_background(wiring.settings(), PageOptions()))
    except PostroomError as why:
        tell("trouble", error=why.message, remedy=why.remedy)
        return
    tell("desk", address=page.address)
    if not as_json:  # what is kept in a log must let nobody in
        say(f"To sign in, once: {page.sign_in}")


@contextmanager
def _set_up(
    config: Config, interval: int | None, stopping: threading.Event, tell: EventPrinter
) -> Iterator[RunContext]:
    from postroom.orchestrator.context import RunContext
    from postroom.orchestrator.run import AGENT
    from postroom.orchestrator.servers import Servers
    from postroom.services.services import Services
    from postroom.wiring.desk import needed

    model = _open_model(config, stopping)
    command = [sys.executable, "-P", "-m", "postroom", "mcp"]
    commands = {name: [*command, name, "--agent", AGENT] for name in ("email", "vault")}
    with (
        needed(config) as desk,
        desk.orchestrating(),
        Servers(commands, desk.vault.root, timeout=CALL_SECONDS) as servers,
    ):
        yield RunContext(
            services=Services(desk),
            accounts=[account.name for account in config.accounts],
            servers=servers,
            room=config.vault.room_prefix,
            model=model,
            model_name=config.triage.model or " ".join(config.triage.command[:1]),
            most_drafts=config.triage.drafts_per_thread,
            interval=interval or config.run.interval_seconds,
            zone=wiring.local_zone(),
            emit=tell,
            stopping=stopping,
        )


def _open_model(config: Config, stopping: threading.Event) -> Model | None:
    """Return the model; one that is set up wrongly answers with its error, so that the rest goes on."""
    if config.triage.endpoint and not (config.triage.model or config.triage.command):
        raise Invalid(
            "triage.endpoint names a service, but triage.model no model",
            remedy='Set triage.model too, such as "openai:NAME".',
        )
    try:
        return open_triage_model(config, stopping)
    except (Invalid, AuthRequired) as why:
        from postroom.orchestrator.model import MisconfiguredModel

        return MisconfiguredModel(why)


def open_triage_model(config: Config, stopping: threading.Event) -> Model | None:
    """Return the model that the settings name, if any."""
    triage = config.triage
    if not triage.model and not triage.command:
        return None
    from postroom.orchestrator.model import open_model

    return open_model(
        triage.model,
        triage.command,
        endpoint=triage.endpoint,
        timeout=triage.timeout_seconds,
        stopping=stopping,
    )
