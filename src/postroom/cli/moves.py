"""`undo-moves`: what agents sorted, put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.printing import say
from postroom.core.errors import Invalid, NotFound, PostroomError

if TYPE_CHECKING:
    from postroom.core.records import LabelChange
    from postroom.services.services import Services

SHOWN = 50


@click.command("undo-moves")
@click.argument("numbers", nargs=-1, type=int, metavar="[NUMBER]...")
@click.option("--all", "every", is_flag=True, help="Undo all of them.")
@click.option("--agent", metavar="NAME", help="Only those of this agent.")
@printing.json_option
def undo_moves_command(
    numbers: tuple[int, ...], every: bool, agent: str | None, as_json: bool
) -> None:
    """List how agents have moved and labelled mail, and undo it.

    Without a NUMBER it lists, newest first, and changes nothing. The newest is undone first, so
    that labels end as they were.
    """
    from postroom.services.mailbox import find_move
    from postroom.services.services import Services
    from postroom.wiring.desk import desk

    if numbers and every:
        raise Invalid("NUMBER and --all exclude each other", remedy="Give one of them.")
    with desk(wiring.settings()) as found:
        known = found.ledger.moves(-1) if found else []
        moves = [move for move in known if agent is None or move.agent == agent]
        chosen = moves if every else [find_move(moves, number) for number in numbers]
        if found is None or not chosen:
            services = Services(found) if found else None
            shown = [_as_json(move, services) for move in moves[:SHOWN]] if services else []
            _list(shown, len(moves), as_json=as_json)
            return
        done = []
        for move in sorted(chosen, key=lambda move: -move.number):
            try:
                Services(found).mailbox.undo(move)
            except NotFound as gone:
                say(f"LabelChange {move.number}: {gone.message}.")
            else:
                done.append(move.number)
        found.publish()
    if as_json:
        printing.print_json({"undone": done})
    else:
        click.echo(f"Undone: {', '.join(map(str, done)) or 'none'}.")


def _as_json(move: LabelChange, services: Services) -> dict[str, Any]:
    try:
        subject = services.mailbox.box(move.account).message(move.message).mail.subject
    except PostroomError:
        subject = ""
    return {
        "number": move.number,
        "at": printing.short_date(int(move.at)),
        "agent": move.agent,
        "account": move.account,
        "message": move.message,
        "subject": subject,
        "added": sorted(move.added),
        "removed": sorted(move.removed),
    }


def _list(moves: list[dict[str, Any]], total: int, *, as_json: bool) -> None:
    if as_json:
        printing.print_json({"moves": moves})
        return
    for move in moves:
        change = " ".join([f"+{label}" for label in move["added"]] + [f"-{label}" for label in move["removed"]])  # fmt: skip
        head = f"{move['number']:>5}  {move['at']}  {printing.fit(move['agent'], 16)}  "
        click.echo(head + printing.fit(change, printing.width() - len(head) - 1).rstrip())
        click.echo(click.style(f"       {printing.fit(move['subject'] or '(gone)', printing.width() - 8)}".rstrip(), dim=True))  # fmt: skip
    if not moves:
        say("Nothing to undo: agents have moved and labelled no mail, or all of it was undone.")
    else:
        more = f" {total - len(moves)} older ones are not shown." if total > len(moves) else ""
        say(f"Undo one with `postroom undo-moves NUMBER`, all with --all.{more}")
