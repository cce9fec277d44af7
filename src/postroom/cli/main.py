"""The command `postroom`: imports only the command that is called, and turns errors into messages and exit codes."""

from __future__ import annotations

import gc
import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from postroom import __version__
from postroom.core import errors
from postroom.core.errors import Invalid, PostroomError, Unavailable

OK, UNEXPECTED, INTERRUPTED, BROKEN_PIPE = 0, 1, 130, 141
# What a script does next follows from the class of the error.
EXITS: dict[type[PostroomError], int] = {
    errors.Invalid: 2,
    errors.NotFound: 3,
    errors.Denied: 4,
    errors.Limited: 5,
    errors.AuthRequired: 6,
    errors.Conflict: 7,
    errors.Unavailable: 8,
    errors.Uncertain: 9,
    errors.Corrupt: 10,
}

# fmt: off
# group → command → its module, which is imported when the command is called.
GROUPS = {
    "Everyday": {
        "desk": "serve", "status": "health", "pending": "letters", "show": "letters", "approve": "letters",
        "edit": "letters", "reject": "letters", "revise": "letters", "undo": "letters",
        "send-approved": "letters", "run": "run", "search": "mail", "read": "mail", "thread": "mail",
    },
    "Set-up": {
        "demo": "demo", "init": "setup", "install": "install", "live": "live", "rehearse": "live",
        "service": "run",
    },
    "Accounts": {"auth": "setup", "import": "mail"},
    "Agents": {"mcp": "serve", "agentmail": "main"},
    "Repair": {
        "doctor": "health", "audit": "health", "resolve": "letters", "undo-moves": "mail",
        "adopt": "setup",
    },
}
# fmt: on
COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}
_TEXT = Path(__file__).with_name("texts").joinpath("help.txt").read_text("utf-8")
# By command; click does not fold a paragraph below a backspace.
HELP = dict(part.split("\n", 1) for part in _TEXT.replace("\\b", "\b").split("\n# ")[1:])


class Commands(click.Group):
    """The commands of the table, each imported when it is called; `--help` lists them and imports none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Clients' rules forbid an agent a command by its first words: it must have no other spelling.
        if args[:1] == ["--"]:
            ctx.fail("The command comes first, and `--` after it.")
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"postroom.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            rows = [(name.ljust(widest), HELP[name].partition("\n")[0]) for name in group]
            with formatter.section(title):
                formatter.write_dl(rows)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="postroom %(version)s")
def cli() -> None:
    """The post room for AI agents.

    Agents read mail and write letters; nothing is sent until a person has approved it.

    Try it with `postroom demo`. Begin with `postroom init`.
    """


@click.command(
    "agentmail",
    help=HELP["agentmail"],
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def agentmail_command(context: click.Context, arguments: tuple[str, ...]) -> None:
    from postroom.cli.agentmail import main as agentmail

    context.exit(agentmail(arguments))


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command and exit with the code of its outcome."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character gets its number, not an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # or the interpreter, at its end, looks through all objects once more
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return the code of its outcome; errors are written to stderr."""
    as_json = "--json" in arguments
    try:
        # Not `cli.main`, which would make every broken pipe an error of its own.
        with cli.make_context("postroom", list(arguments), obj=as_json, color=_colour()) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as help_text:
        click.echo(help_text.format_message())
    except click.exceptions.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nStopped.", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, and nothing more can be written to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as why:  # noqa: BLE001 - cells of a damaged ledger may hold anything
        return _report(_as_error(why, arguments), as_json=as_json)
    return OK


def _as_error(why: Exception, arguments: list[str]) -> PostroomError:
    match why:
        case PostroomError():
            return why
        case click.ClickException():
            return Invalid(why.format_message(), remedy=_hint(why, arguments))
        case OSError():
            place = f"{why.filename}: " if why.filename else ""
            remedy = "Check that it exists and that you may use it."
            return Unavailable(f"{place}{why.strerror or why}", remedy=remedy)
    damaged = "If something else has changed the state folder, put a backup in its place."
    return errors.unexpected(why, remedy=f"{damaged} Else report this.")


def exit_code(error: PostroomError) -> int:
    """Return the exit code of an error: that of its nearest class in the table."""
    return next((EXITS[kind] for kind in type(error).__mro__ if kind in EXITS), UNEXPECTED)


def _hint(usage: click.ClickException, arguments: list[str]) -> str:
    if isinstance(usage, click.exceptions.UsageError) and "No such command" in usage.message:
        from difflib import get_close_matches

        for near in get_close_matches(usage.message.split("'")[1], COMMANDS, n=1):
            return f"Did you mean `postroom {near}`?"
    # Click gives no context with an option that lacks its argument.
    context = getattr(usage, "ctx", None)
    command = [each for each in arguments[:1] if each in COMMANDS]
    path = context.command_path if context else " ".join(["postroom", *command])
    return f"See `{path} --help`."


def _colour() -> bool | None:
    """Return no colour where the person wants none (no-color.org); else let click decide."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _report(error: PostroomError, *, as_json: bool) -> int:
    if as_json:
        import json

        # In ASCII: a message may quote what somebody else wrote, for a terminal to misread.
        body = {"code": error.code, "message": error.message, "remedy": error.remedy}
        click.echo(json.dumps({"error": body}), err=True)
    else:
        from postroom.cli import ui

        message = ui.folded(f"error: {error.message}").removeprefix("error:")
        click.echo(click.style("error:", fg="red", bold=True) + message, err=True, color=_colour())
        if error.remedy:
            click.echo(ui.folded(error.remedy, "  "), err=True)
    return exit_code(error)
