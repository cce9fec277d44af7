"""`postroom run`: the orchestrator, in a terminal or as a service."""

from __future__ import annotations

import json
import os
import plistlib
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from postroom import wiring
from postroom.cli import ui
from postroom.cli.main import EXITS, HELP
from postroom.config.settings import Config
from postroom.core.errors import AuthRequired, Conflict, Corrupt, Invalid, PostroomError
from postroom.core.stop import StopEvent
from postroom.core.text import one_line
from postroom.wiring import files
from postroom.wiring.desk import require_desk

if TYPE_CHECKING:
    from postroom.orchestrator.context import Model, RunContext

PROGRAM: Final = (sys.executable, "-P", "-m", "postroom")
CALL_SECONDS: Final = 20.0  # for one answer of a server
AGENT: Final = "watcher"  # as which the servers are asked
REHEARSES: Final = (
    "In rehearsal, mail gets notes and decisions; answers are drafted once you are live."
)
FAILED_ROUND: Final = 8  # the exit code of `--once` where something went wrong
_IS_MAC: Final = sys.platform == "darwin"
_TEXTS: Final = tomllib.loads(ui.read_text("run.toml"))
_EVENTS: Final[dict[str, str]] = _TEXTS["events"]
_SERVICE: Final[dict[str, Any]] = _TEXTS["darwin" if _IS_MAC else "linux"]
_PRINTING: Final = threading.Lock()  # events come from several threads


def _print_event(event: str, /, *, as_json: bool, **facts: object) -> None:
    now = datetime.now(UTC)
    # A note's name has words of a mail in it, and other programs keep these lines.
    name = str(facts.pop("name", "") or facts.get("mail", ""))
    with _PRINTING:
        if as_json:
            click.echo(json.dumps({"time": f"{now:%Y-%m-%dT%H:%M:%SZ}", "event": event, **facts}))
        elif text := _describe(event, facts, name):
            row = ui.hanging(f"{now.astimezone():%H:%M:%S} ", text)
            click.echo(click.style(row, fg="yellow" if event == "trouble" else None))


def _describe(event: str, facts: dict[str, object], name: str) -> str:
    """Return the sentence of an event; empty where there is none."""
    if event == "trouble":
        account = f"account {facts['account']}: " if "account" in facts else ""
        error = str(facts["error"]).rstrip(".")
        return f"{account}{error}. {facts.get('remedy', '')}".strip()
    reason = str(facts.get("reason", "")).rstrip(".")
    values = facts | {"name": ui.fit(name, 60).rstrip(), "reason": reason and f": {reason}"}
    return _EVENTS[event].format_map({key: one_line(str(value)) for key, value in values.items()})


@ui.personal
@click.command("run", help=HELP["run"])
@click.option("--once", is_flag=True, help="Look once, do what there is to do, and end.")
@click.option("--interval", type=click.IntRange(1, 86_400), metavar="SECONDS", help="How often to look for new mail.  [default: 30]")  # fmt: skip
@click.option("--backlog", metavar="QUERY", default="", help="Also take mail that is in the inbox already and matches.")  # fmt: skip
@click.option("--desk", "with_desk", is_flag=True, help="Serve the desk in the browser too.")
@click.option("--json/--text", "as_json", default=None, help="Write JSON lines or sentences.  [default: sentences in a terminal]")  # fmt: skip
def run_command(
    once: bool, interval: int | None, backlog: str, with_desk: bool, as_json: bool | None
) -> None:
    from postroom.orchestrator.run import Orchestrator

    if once and with_desk:
        raise Invalid("--desk serves until it is ended", remedy="Leave out --once, or --desk.")
    stopping = StopEvent()
    as_json = not sys.stdout.isatty() if as_json is None else as_json
    with ExitStack() as stack:
        tell = partial(_print_event, as_json=as_json)
        setup = stack.enter_context(_set_up(ui.settings(), interval, stopping, tell))
        stack.enter_context(ui.stopped_by_signals(stopping))
        if not once and not as_json:
            vault, mode = setup.desk.vault.root, setup.desk.rules.mode
            ui.say(f"The vault {vault}, every {setup.interval:g} seconds; {mode}.")
            ui.say("Ctrl-C ends it.")
        if not as_json and not setup.desk.rules.live:
            ui.say(REHEARSES)
        if with_desk:
            _serve_desk(stack, tell, as_json=as_json)
        worked = Orchestrator(setup).run(once=once, backlog=backlog)
    if once and not worked:
        raise click.exceptions.Exit(FAILED_ROUND)


def _serve_desk(stack: ExitStack, tell: Callable[..., None], *, as_json: bool) -> None:
    """Serve the page beside the orchestrator, which goes on where that fails."""
    from postroom.cli.serve import serve_page

    try:
        page = stack.enter_context(serve_page(wiring.settings()))
    except PostroomError as why:
        tell("trouble", error=why.message, remedy=why.remedy)
        return
    tell("desk", address=page.address)
    if not as_json:  # what is kept in a log must let nobody in
        ui.say(f"To sign in, once: {page.sign_in}")


@contextmanager
def _set_up(
    config: Config, interval: int | None, stopping: threading.Event, tell: Callable[..., None]
) -> Iterator[RunContext]:
    from postroom.orchestrator.context import RunContext, Servers
    from postroom.services.services import Services

    model = _open_model(config, stopping)
    commands = {name: [*PROGRAM, "mcp", name, "--agent", AGENT] for name in ("email", "vault")}
    with (
        require_desk(config) as desk,
        desk.locks.hold_orchestrator(),
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


# Errors that another try does not repair: a second orchestrator, wrong settings, a damaged file.
_FINAL: Final = (Invalid, Conflict, Corrupt)


service_command = ui.personal(click.Group("service", help=HELP["service"]))


@service_command.command("install", help=HELP["service install"])
@click.option("--print", "only_print", is_flag=True, help="Print the file, and write nothing.")
@click.option("--desk", "with_desk", is_flag=True, help="Serve the desk in the browser too.")
@ui.json_option
def install_command(only_print: bool, with_desk: bool) -> None:
    config = wiring.settings()
    file, text = _service_file(), _service_text(config, with_desk=with_desk)
    if only_print:
        click.echo(text, nl=False)
        return
    if not config.vault.path.is_dir():
        raise Invalid(
            f"There is no vault at {config.vault.path} yet", remedy="Run `postroom init`."
        )
    is_changed = not file.is_file() or file.read_text() != text
    if is_changed:
        files.replace(file, text.encode())
    row = f"{'Wrote' if is_changed else 'Unchanged'} {file}"
    ui.output({"file": str(file), "changed": is_changed}, [row])
    if not ui.wants_json():
        # Not folded: the commands are to be copied.
        click.echo(_SERVICE["steps"].format(uid=os.getuid(), file=file), err=True)


@service_command.command("remove", help=HELP["service remove"])
@ui.json_option
def remove_command() -> None:
    file, stop = _service_file(), _SERVICE["stop"].format(uid=os.getuid())
    if not file.exists():
        raise Invalid(f"There is no service at {file}", remedy="There is nothing to remove.")
    file.unlink()
    ui.output(
        {"file": str(file), "changed": True}, [f"Removed {file}"], f"If it still runs: {stop}"
    )


def _service_file() -> Path:
    if _IS_MAC:
        return Path.home() / "Library/LaunchAgents/org.postroom.run.plist"
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(folder) if folder.startswith("/") else Path.home() / ".config"
    return home / "systemd/user/postroom.service"


def _service_text(config: Config, *, with_desk: bool) -> str:
    command = [*PROGRAM, "run", "--json", *(["--desk"] if with_desk else [])]
    here = ui.variables(config)
    if _IS_MAC:
        log = str(Path.home() / "Library/Logs/postroom.log")
        service = _SERVICE["agent"] | {
            "ProgramArguments": command,
            "WorkingDirectory": str(Path.cwd()),
            "EnvironmentVariables": here,
            "StandardOutPath": log,
            "StandardErrorPath": log,
        }
        return plistlib.dumps(service, sort_keys=False).decode()
    unit: str = _SERVICE["unit"]
    variables = (_escape(f"{name}={value}", quoted=True) for name, value in here.items())
    return unit.format(
        command=" ".join(f'"{_escape(word, quoted=True).replace("$", "$$")}"' for word in command),
        folder=_escape(str(Path.cwd())),
        environment="".join(f'Environment="{variable}"\n' for variable in variables),
        secrets=_escape(str(config.file.with_name("environment"))),
        final=" ".join(sorted(str(EXITS[kind]) for kind in _FINAL)),
    )


def _escape(text: str, *, quoted: bool = False) -> str:
    """Return a text that systemd takes literally, by systemd.syntax(7) and systemd.unit(5).

    Within quotes it knows C escapes, and everywhere % for specifiers.
    """
    remedy = "Rename the folder, or change the value."
    if not text.isprintable():
        raise Invalid(f"{text!r} cannot be written into a service's file", remedy=remedy)
    if quoted:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    elif text.endswith("\\"):  # which would join the next line
        raise Invalid(f"{text} ends in a backslash", remedy="Rename the folder.")
    return text.replace("%", "%%")
