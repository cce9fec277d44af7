"""`postroom service`: the file by which systemd or launchd runs the orchestrator for a person."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from postroom import wiring
from postroom.cli.exits import exit_code
from postroom.cli.printing import json_option, print_json, say
from postroom.core.errors import Conflict, Corrupt, Invalid, Unavailable
from postroom.store import files

if TYPE_CHECKING:
    from postroom.config import Config

NAME: Final = "postroom"
LABEL: Final = "org.postroom.run"
# What another try does not mend: a second orchestrator, wrong settings, a damaged file.
_COMMAND: Final = [sys.executable, "-P", "-m", "postroom", "run", "--json"]
_FINAL: Final = (Conflict(""), Invalid(""), Corrupt(""))


@click.group("service")
def service_command() -> None:
    """Let the system run `postroom run` for you.

    On Linux that is systemd, as a service of your own user; on macOS launchd. Nothing needs root.
    """


@service_command.command("install")
@click.option("--print", "printed", is_flag=True, help="Print the file, and write nothing.")
@click.option("--desk", "with_desk", is_flag=True, help="Serve the desk in the browser too.")
@json_option
def install_command(printed: bool, with_desk: bool, as_json: bool) -> None:
    """Write the service's file, and say how to start it.

    It runs with the settings that hold here and now: this folder, your settings file, and Postroom's
    variables of the environment. Keys of a model belong into the file `environment` beside your
    settings, one NAME=value a line, readable by you alone.
    """
    config = wiring.settings()
    command = [*_COMMAND, "--desk"] if with_desk else _COMMAND
    file, text = _written(config, command)
    if printed:
        click.echo(text, nl=False)
        return
    if not config.vault.path.is_dir():
        raise Invalid(
            f"There is no vault at {config.vault.path} yet", remedy="Run `postroom init`."
        )
    old = file.read_text() if file.is_file() else ""
    if old != text:
        try:
            files.replace(file, text.encode())
        except OSError as why:
            raise Unavailable(
                f"{file} cannot be written: {why.strerror}", remedy="Make its folder yours."
            ) from why
    if as_json:
        print_json({"file": str(file), "changed": old != text})
        return
    click.echo(f"{'Unchanged' if old == text else 'Wrote'} {file}")
    if sys.platform == "darwin":
        click.echo(f"Start it with:\n  launchctl bootstrap gui/{os.getuid()} {file}", err=True)
        return
    # Not folded: these are to be copied.
    click.echo("Start it with:", err=True)
    click.echo(
        f"  systemctl --user daemon-reload && systemctl --user enable --now {NAME}", err=True
    )
    click.echo(f"See what it does with:\n  journalctl --user -u {NAME} -f", err=True)
    click.echo("To have it run while you are logged out:\n  loginctl enable-linger", err=True)


@service_command.command("remove")
@json_option
def remove_command(as_json: bool) -> None:
    """Delete the service's file, and say how to stop it."""
    config = wiring.settings()
    file = _written(config, _COMMAND)[0]
    if not file.exists():
        raise Invalid(f"There is no service at {file}", remedy="There is nothing to remove.")
    file.unlink()
    if as_json:
        print_json({"file": str(file), "changed": True})
        return
    click.echo(f"Removed {file}")
    stop = f"launchctl bootout gui/{os.getuid()}/{LABEL}" if sys.platform == "darwin" else (
        f"systemctl --user disable --now {NAME}; systemctl --user daemon-reload"
    )  # fmt: skip
    say(f"If it still runs: {stop}")


def _written(config: Config, command: list[str]) -> tuple[Path, str]:
    return (_mac if sys.platform == "darwin" else _linux)(config, command)


def _environment(config: Config) -> dict[str, str]:
    """Return what makes the service find what this command found."""
    from postroom.config import PATH, SETTINGS

    found = {}
    for row in SETTINGS:
        if row.variable and (value := os.environ.get(row.variable)):
            path = row.kind is PATH and not value.startswith("~")
            found[row.variable] = str(Path(value).absolute()) if path else value
    if config.source("vault.path") == "default":
        found["VAULT_PATH"] = str(config.vault.path.absolute())
    return found


def _linux(config: Config, command: list[str]) -> tuple[Path, str]:
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(folder) if folder.startswith("/") else Path.home() / ".config"
    lines = [f'Environment="{_escaped(f"{k}={v}")}"' for k, v in _environment(config).items()]
    keys = wiring.settings_file().absolute().with_name("environment")
    words = " ".join(f'"{_escaped(word).replace("$", "$$")}"' for word in command)
    final = " ".join(sorted({str(exit_code(one)) for one in _FINAL}))
    rows = [
        "[Unit]",
        "Description=Postroom: watches mail, and sends what was approved",
        "After=network-online.target",
        "",
        "[Service]",
        f"ExecStart={words}",
        f"WorkingDirectory={_path(Path.cwd())}",
        *lines,
        f"EnvironmentFile=-{_path(keys)}",
        "Restart=on-failure",
        "RestartSec=10",
        f"RestartPreventExitStatus={final}",
        "TimeoutStopSec=90",
        "NoNewPrivileges=yes",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return home / "systemd" / "user" / f"{NAME}.service", "\n".join(rows) + "\n"


def _escaped(text: str) -> str:
    # systemd.syntax(7) and systemd.unit(5): C escapes within quotes, and % for specifiers.
    _refuse_lines(text)
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _path(path: Path) -> str:
    # These two are taken as they are, but for specifiers.
    _refuse_lines(str(path))
    if str(path).endswith("\\"):  # which would take the next line for its own
        raise Invalid(f"{path} ends in a backslash", remedy="Rename the folder.")
    return str(path).replace("%", "%%")


def _refuse_lines(text: str) -> None:
    if not text.isprintable():
        raise Invalid(
            f"{text!r} cannot stand in a service's file", remedy="Rename the folder, or the value."
        )


def _mac(config: Config, command: list[str]) -> tuple[Path, str]:
    import plistlib

    log = str(Path.home() / "Library" / "Logs" / f"{NAME}.log")
    text = plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": command,
            "WorkingDirectory": str(Path.cwd()),
            "EnvironmentVariables": _environment(config),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 30,
            "StandardOutPath": log,
            "StandardErrorPath": log,
        },
        sort_keys=False,
    ).decode()
    return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist", text
