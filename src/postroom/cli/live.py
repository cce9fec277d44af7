"""`postroom live` and `postroom rehearse`: whether what a person approves is sent.

The person's own settings file decides. Nothing here writes `false` anywhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from postroom import wiring
from postroom.cli import ui
from postroom.cli.client_files import (
    CLIENTS,
    ENTRIES,
    ClientFile,
    McpClient,
    TomlFile,
    as_object,
    changed_rows,
    show,
    write_all,
)
from postroom.cli.main import HELP
from postroom.config.loading import load
from postroom.config.settings import SETTINGS, Config, Mode
from postroom.core.errors import PostroomError
from postroom.core.text import plural
from postroom.desk.desk import Desk
from postroom.desk.recorder import Call
from postroom.wiring.desk import find_desk, require_desk, rules

SWITCHES = ("DRY_RUN", "DEV_MODE")
QUESTION = "Go live, so that what you approve is sent?"
QUESTION_UNAPPROVED = (
    "Go live, so that letters are sent without your approval (approvals.required = false)?"
)
OTHER_SWITCHES = (
    "A DRY_RUN or DEV_MODE that is true elsewhere, as in a client's own environment, still keeps"
    " its server in rehearsal; `postroom status` says what decides."
)
BY_HAND = "{why}. Take DRY_RUN and DEV_MODE out of its entry by hand."
STILL_LIVE = (
    "What runs already stays live until it is restarted. To stop all sending at once, make a file"
    " PAUSED in {folder}."
)


class ClientServer(NamedTuple):
    """An entry of a client's file that starts a server of Postroom."""

    client: McpClient
    file: ClientFile
    name: str
    env: dict[str, Any]  # part of the file's content, so that a change here changes the file

    def settings(self) -> Config:
        """Return the settings that the server will have, as far as its entry and the files say."""
        names = {row.variable for row in SETTINGS}
        inherited = {name: value for name, value in os.environ.items() if name not in names}
        own = {name: str(value) for name, value in self.env.items()}
        return load(inherited | own, Path.cwd(), Path.home())


def _describe(mode: Mode) -> str:
    return f"{'live' if mode.live else 'rehearsal'} ({mode.source})"


@ui.personal
@click.command("live", help=HELP["live"])
@ui.json_option
def live_command() -> None:
    config, notes = ui.settings(), list[str]()
    with require_desk(config, make=False) as desk:
        own = TomlFile(config.file)
        own.content["dry_run"] = False
        if own.content.get("dev_mode", False) is not False:
            own.content["dev_mode"] = False
        servers = [one for one in _client_servers(notes) if _has_same_desk(one, config, notes)]
        for server in servers:
            for switch in SWITCHES:
                server.env.pop(switch, None)
        files = {server.file.path: server.file for server in servers}.values()
        # The own file last: until it is written, everything rehearses.
        changes = [file for file in files if _can_change(file, notes)]
        changes += [own] if own.is_changed else []
        show(changes)
        if changes:
            if waiting := desk.reader.lists.count("approved"):
                ui.say(f"{plural(waiting, 'letter')} approved earlier will be sent.")
            question = QUESTION if desk.rules.required else QUESTION_UNAPPROVED
            if not ui.confirm(question, "Nothing was written. Run it in one."):
                ui.output({"changed": []}, [], "Nothing was written.")
                return
            if desk.reader.settings.passphrase:
                desk.trust.unlock(ui.ask_passphrase())
        written = write_all(changes)
        if written:
            _record(desk, "go_live")
        _report(desk, servers, written, [*notes, OTHER_SWITCHES])


@ui.personal
@click.command("rehearse", help=HELP["rehearse"])
@ui.json_option
def rehearse_command() -> None:
    config = ui.settings()
    own = TomlFile(config.file)
    own.content["dry_run"] = True
    changes = [own] if own.is_changed else []
    show(changes)
    written = write_all(changes)
    with find_desk(config) as desk:
        if desk is not None and written:
            _record(desk, "rehearse")
        note = STILL_LIVE.format(folder=config.vault.postroom_folder)
        _report(desk, list(_client_servers([])), written, [note] if written else [])


def _client_servers(notes: list[str]) -> Iterator[ClientServer]:
    """Yield the entries of ours in this folder's files and the user's; note what cannot be read."""
    for client in CLIENTS.values():
        for path in client.servers_files():
            try:
                is_other = path.is_file() and b"postroom" not in path.read_bytes()
                if is_other or not path.exists():
                    continue
                file = client.open(path)
                servers = as_object(file.content.get(client.table))
            except (PostroomError, OSError) as why:
                notes.append(BY_HAND.format(why=why))
                continue
            for name in sorted(servers.keys() & set(ENTRIES.values())):
                env = as_object(servers[name]).get("env")
                yield ClientServer(client, file, name, as_object(env))


def _can_change(file: ClientFile, notes: list[str]) -> bool:
    """Whether a file is to be written; note where its form does not let that be done."""
    try:
        return file.is_changed
    except PostroomError as why:
        notes.append(BY_HAND.format(why=why))
        return False


def _has_same_desk(server: ClientServer, config: Config, notes: list[str]) -> bool:
    """Whether a server has these settings, vault and state folder: another desk has its own passphrase."""
    place = f"{server.name} in {server.file.path}"
    try:
        other = server.settings()
    except PostroomError as why:
        notes.append(f"Left alone: {place}. {why.message}")
        return False
    both = ((each.file, each.vault.path, each.state or each.desks) for each in (config, other))
    here, there = ([os.path.realpath(path) for path in paths] for paths in both)
    if here != there:
        notes.append(
            f"Left alone: {place}. It has other settings, another vault or another state folder:"
            f" {there[0]}, {there[1]}, {there[2]}."
        )
    return here == there


def _record(desk: Desk, action: str) -> None:
    """Leave a line in the action log."""
    desk.recorder.write(Call(action, "", "person"))
    desk.flush_log()


def _report(
    desk: Desk | None, servers: list[ClientServer], written: list[dict[str, str]], notes: list[str]
) -> None:
    config = wiring.settings()
    restart = [server.client.title for server in servers]
    if desk is not None:
        restart += ["postroom run"] if desk.locks.has_orchestrator() else []
        restart += ["postroom desk"] if desk.locks.page_address() else []
    restart = list(dict.fromkeys(restart)) if written else []
    differing = list[str]()
    for server in servers:
        with suppress(PostroomError):  # which the server itself will show
            mode = server.settings().mode
            if mode.live != config.mode.live:
                place = f"{server.name} in {server.file.path}"
                differing.append(f"Unlike this terminal, {place} will be {_describe(mode)}.")
    notes = [*differing, *notes]
    values = {
        "mode": "live" if config.mode.live else "rehearsal",
        "mode_source": config.mode.source,
        "changed": written,
        "restart": restart,
        "notes": notes,
    }
    rows = [*changed_rows(written), ui.field("Mode", rules(config).mode)]
    rows += ui.field_list("Restart", restart) if restart else []
    ui.output(values, rows, *([] if written else ["Nothing to change."]), *notes)
