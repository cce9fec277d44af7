"""`postroom run`: the orchestrator, in a terminal or under the system's care."""

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
from postroom.cli.printing import say
from postroom.cli.signals import stopped_by_signals
from postroom.core.errors import AuthRequired, Invalid, PostroomError
from postroom.core.text import one_line

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.orchestrator.context import RunContext
    from postroom.orchestrator.model import Model

CALL_SECONDS: Final = 20.0  # for one answer of a server
AMISS: Final = 8  # the exit code of a single round after which something is amiss
FEW: Final = 20  # mails of a round that are told one by one
TEXTS: Final = {
    "watching": "Watching {account} from now on. {there} mails are there already, and are left alone"
    " (`postroom run --backlog QUERY` takes them too).",
    "found": "",  # which counts what we sent, too: what was noted is told
    "noted": "{mails} noted in Needs_Action/.",
    "triaged": "{name}: {decision}, by {by}.",
    "drafted": "{name}: answered by the letter {letter}, which waits for you.",
    "held": "{name}: waits. {why}",
    "instead": "{name}: {decision} after all. {why}",
    "letter": "The letter {letter} is {state}{said}.",
    "cursor_lost": "{account} does not know any more how far we were: its inbox is looked through.",
    "said": "{text}",
    "desk": "The desk is at {address}; `postroom desk` lets a browser in.",
    "stopped": "Stopped.",
}


class Teller:
    """Says what happens: a line for people in a terminal, a JSON object a line elsewhere."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._told = 0
        self._turn = threading.Lock()

    def __call__(self, event: str, /, **facts: object) -> None:
        """Tell one event."""
        with self._turn:
            now = datetime.now(UTC)
            # The name of a note holds words of a mail, and these lines are kept by other programs.
            name = facts.pop("name", "")
            if self._json:
                row = {"time": f"{now:%Y-%m-%dT%H:%M:%SZ}", "event": event, **facts}
                click.echo(json.dumps(row))
                return
            self._say(event, facts, str(name or facts.get("mail", "")), now)

    def _say(self, event: str, facts: dict[str, object], name: str, now: datetime) -> None:
        """Say it to a person."""
        shown = self._told > FEW and sys.stderr.isatty()
        self._told = self._told + 1 if event == "triaged" else 0
        if self._told > FEW:  # of many, how many
            if sys.stderr.isatty():
                click.echo(f"\r{self._told} mails triaged ", nl=False, err=True)
            return
        if shown:
            click.echo(f"\r{' ' * 30}\r", nl=False, err=True)
        if event == "trouble":
            account = [f"account {facts['account']}"] if "account" in facts else []
            error = str(facts["error"]).rstrip(".")
            text = f"{': '.join([*account, error])}. {facts.get('remedy', '')}"
        elif TEXTS[event]:
            facts["name"] = printing.fit(name, 60).rstrip()
            if said := str(facts.get("said", "")):
                facts["said"] = f": {said.rstrip('.')}"
            text = TEXTS[event].format_map({k: one_line(str(v)) for k, v in facts.items()})
        else:
            return
        row = printing.hanging(f"{now.astimezone():%H:%M:%S} ", text.strip())
        click.echo(click.style(row, fg="yellow") if event == "trouble" else row)


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
    done about it, then a model, if one is set; answers wait in Drafts/ until you approve them. What
    is approved leaves once its undo window has passed; a file PAUSED.md in the vault stops that.
    Dashboard.md shows all of it. Ctrl-C ends it; nothing is lost, whenever it ends. With --desk, the
    page of `postroom desk` is served from here, where your settings say.
    """
    from postroom.orchestrator.run import Orchestrator

    if once and with_desk:
        raise Invalid("--desk serves until it is ended", remedy="Leave out --once, or --desk.")
    stopping = threading.Event()
    as_json = not sys.stdout.isatty() if as_json is None else as_json
    with ExitStack() as stack:
        tell = Teller(as_json=as_json)
        setup = stack.enter_context(_setup(printing.settings(), interval, stopping, tell))
        stack.enter_context(stopped_by_signals(stopping))
        if not once and not as_json:
            desk = setup.desk
            say(
                f"The vault {desk.vault.root}, every {setup.interval:g} seconds; {desk.rules.mode}."
            )
            say("Ctrl-C ends it.")
        if with_desk:
            from postroom.cli.desk import Wish, beside

            try:
                page = stack.enter_context(beside(wiring.settings(), Wish()))
            except PostroomError as why:
                # Mail is watched, and letters leave, all the same.
                tell("trouble", error=why.message, remedy=why.remedy)
            else:
                tell("desk", address=page.address)
                if not as_json:  # what stands in a log must let nobody in
                    say(f"To sign in, once: {page.sign_in}")
        well = Orchestrator(setup).run(once=once, backlog=backlog)
    if once and not well:
        raise click.exceptions.Exit(AMISS)


@contextmanager
def _setup(
    config: Config, interval: int | None, stopping: threading.Event, tell: Teller
) -> Iterator[RunContext]:
    from postroom.orchestrator.context import RunContext
    from postroom.orchestrator.run import AGENT
    from postroom.orchestrator.servers import Servers
    from postroom.services.services import Services
    from postroom.wiring.desk import needed

    model = _model(config, stopping)
    with needed(config) as found:
        commands = {
            name: [sys.executable, "-P", "-m", "postroom", "mcp", name, "--agent", AGENT]
            for name in ("email", "vault")
        }
        with (
            found.orchestrating(),
            Servers(commands, found.vault.root, timeout=CALL_SECONDS) as asked,
        ):
            yield RunContext(
                services=Services(found),
                accounts=[account.name for account in config.accounts],
                servers=asked,
                room=config.vault.room_prefix,
                model=model,
                model_name=config.triage.model or " ".join(config.triage.command[:1]),
                most_drafts=config.triage.drafts_per_thread,
                interval=interval or config.run.interval_seconds,
                zone=wiring.local_zone(),
                emit=tell,
                stopping=stopping,
            )


def _model(config: Config, stopping: threading.Event) -> Model | None:
    given = config.triage
    if not given.model and not given.command:
        if given.endpoint:
            raise Invalid(
                "triage.endpoint names a service, but triage.model no model",
                remedy='Set triage.model too, such as "openai:NAME".',
            )
        return None
    from postroom.orchestrator.model import MisconfiguredModel, open_model

    try:
        return open_model(
            given.model,
            given.command,
            endpoint=given.endpoint,
            timeout=given.timeout_seconds,
            stopping=stopping,
        )
    except (Invalid, AuthRequired) as why:  # mail is still noted, and what was approved still sent
        return MisconfiguredModel(why)
