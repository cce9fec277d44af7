"""`postroom service`: the file by which systemd or launchd runs `postroom run` for a person."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from postroom import wiring
from postroom.cli.command import json_option, output, wants_json
from postroom.cli.main import EXITS
from postroom.core.errors import Conflict, Corrupt, Invalid, Unavailable
from postroom.wiring import files

if TYPE_CHECKING:
    from postroom.config import Config

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
