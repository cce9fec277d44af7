"""`postroom run`: the orchestrator, in a terminal or as a service."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from postroom import wiring
from postroom.cli.command import json_option, output, settings, stopped_by_signals, wants_json
from postroom.cli.main import EXITS
from postroom.cli.printing import fit, hanging, say
from postroom.core.errors import (
    AuthRequired,
    Conflict,
    Corrupt,
    Invalid,
    PostroomError,
    Unavailable,
)
from postroom.core.text import one_line
from postroom.wiring import files

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
                row_text = hanging(f"{now.astimezone():%H:%M:%S} ", text)
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
    values = facts | {"name": fit(name, 60).rstrip(), "said": reason and f": {reason}"}
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
    from postroom.wiring.desk import require_desk

    model = _open_model(config, stopping)
    command = [sys.executable, "-P", "-m", "postroom", "mcp"]
    commands = {name: [*command, name, "--agent", AGENT] for name in ("email", "vault")}
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


NAME: Final = "postroom"
LABEL: Final = "org.postroom.run"
_COMMAND: Final = [sys.executable, "-P", "-m", "postroom", "run", "--json"]
# Errors that another try does not repair: a second orchestrator, wrong settings, a damaged file.
_FINAL: Final = (Invalid, Conflict, Corrupt)
UNIT: Final = """\
[Unit]
Description=Postroom: watches mail, and sends what was approved
After=network-online.target

[Service]
ExecStart={command}
WorkingDirectory={folder}
{environment}EnvironmentFile=-{secrets}
Restart=on-failure
RestartSec=10
RestartPreventExitStatus={final}
TimeoutStopSec=90
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""
LINUX_STEPS: Final = f"""\
Start it with:
  systemctl --user daemon-reload && systemctl --user enable --now {NAME}
See what it does with:
  journalctl --user -u {NAME} -f
To have it run while you are logged out:
  loginctl enable-linger"""


@click.group("service")
def service_command() -> None:
    """Let the system run `postroom run` for you.

    On Linux that is systemd, as a service of your own user; on macOS launchd. Nothing needs root.
    """


@service_command.command("install")
@click.option("--print", "only_print", is_flag=True, help="Print the file, and write nothing.")
@click.option("--desk", "with_desk", is_flag=True, help="Serve the desk in the browser too.")
@json_option
def install_command(only_print: bool, with_desk: bool) -> None:
    """Write the service's file, and say how to start it.

    It runs with the settings that hold here and now: this folder, your settings file, and Postroom's
    variables of the environment. Put the model's API keys in the file `environment` next to your
    settings, one NAME=value per line, readable by you alone.
    """
    config = wiring.settings()
    command = [*_COMMAND, "--desk"] if with_desk else _COMMAND
    file, text = _service_file(config, command)
    if only_print:
        click.echo(text, nl=False)
        return
    if not config.vault.path.is_dir():
        raise Invalid(
            f"There is no vault at {config.vault.path} yet", remedy="Run `postroom init`."
        )
    is_changed = not file.is_file() or file.read_text() != text
    if is_changed:
        try:
            files.replace(file, text.encode())
        except OSError as why:
            raise Unavailable(
                f"{file} cannot be written: {why.strerror}", remedy="Make its folder yours."
            ) from why
    output(
        {"file": str(file), "changed": is_changed},
        [f"{'Wrote' if is_changed else 'Unchanged'} {file}"],
    )
    steps = LINUX_STEPS
    if sys.platform == "darwin":
        steps = f"Start it with:\n  launchctl bootstrap gui/{os.getuid()} {file}"
    if not wants_json():
        click.echo(steps, err=True)  # not folded: the commands are to be copied


@service_command.command("remove")
@json_option
def remove_command() -> None:
    """Delete the service's file, and say how to stop it."""
    file, _ = _service_file(wiring.settings(), _COMMAND)
    if not file.exists():
        raise Invalid(f"There is no service at {file}", remedy="There is nothing to remove.")
    file.unlink()
    stop = f"systemctl --user disable --now {NAME}; systemctl --user daemon-reload"
    if sys.platform == "darwin":
        stop = f"launchctl bootout gui/{os.getuid()}/{LABEL}"
    output({"file": str(file), "changed": True}, [f"Removed {file}"], f"If it still runs: {stop}")


def _service_file(config: Config, command: list[str]) -> tuple[Path, str]:
    """Return the service's file and its text."""
    return (_launchd if sys.platform == "darwin" else _systemd)(config, command)


def _environment(config: Config) -> dict[str, str]:
    """Return the variables by which the service finds what this command found."""
    from postroom.config import PATH, SETTINGS

    found = {}
    for row in SETTINGS:
        if row.variable and (value := os.environ.get(row.variable)):
            is_path = row.kind is PATH and not value.startswith("~")
            found[row.variable] = str(Path(value).absolute()) if is_path else value
    if config.source("vault.path") == "default":
        found["VAULT_PATH"] = str(config.vault.path.absolute())
    return found


def _systemd(config: Config, command: list[str]) -> tuple[Path, str]:
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(folder) if folder.startswith("/") else Path.home() / ".config"
    variables = _environment(config).items()
    text = UNIT.format(
        command=" ".join(f'"{_escape(word).replace("$", "$$")}"' for word in command),
        folder=_escape_path(Path.cwd()),
        environment="".join(f'Environment="{_escape(f"{k}={v}")}"\n' for k, v in variables),
        secrets=_escape_path(wiring.settings_file().absolute().with_name("environment")),
        final=" ".join(sorted(str(EXITS[kind]) for kind in _FINAL)),
    )
    return home / "systemd" / "user" / f"{NAME}.service", text


def _escape(text: str) -> str:
    # systemd.syntax(7) and systemd.unit(5): C escapes within quotes, and % for specifiers.
    _refuse_unprintable(text)
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _escape_path(path: Path) -> str:
    # systemd takes these two literally, except for specifiers.
    _refuse_unprintable(str(path))
    if str(path).endswith("\\"):  # which would join the next line
        raise Invalid(f"{path} ends in a backslash", remedy="Rename the folder.")
    return str(path).replace("%", "%%")


def _refuse_unprintable(text: str) -> None:
    if not text.isprintable():
        raise Invalid(
            f"{text!r} cannot be written into a service's file",
            remedy="Rename the folder, or change the value.",
        )


def _launchd(config: Config, command: list[str]) -> tuple[Path, str]:
    import plistlib

    log = str(Path.home() / "Library" / "Logs" / f"{NAME}.log")
    service = {
        "Label": LABEL,
        "ProgramArguments": command,
        "WorkingDirectory": str(Path.cwd()),
        "EnvironmentVariables": _environment(config),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 30,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    text = plistlib.dumps(service, sort_keys=False).decode()
    return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist", text
