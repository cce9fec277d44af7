"""`postroom audit`: what was done, when and by whom; and whether the log is unchanged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.command import json_option, open_desk, output
from postroom.cli.printing import fit, table_row
from postroom.core.audit import ACTORS, RESULTS
from postroom.core.errors import Invalid

if TYPE_CHECKING:
    from postroom.desk.desk import Desk

MOST_FAULTS = 100  # that are listed


@click.command("audit")
@click.argument("what", required=False, type=click.Choice(["verify"]), metavar="[verify]")
@click.option("--letter", default="", metavar="ID", help="Only this letter.")
@click.option("--since", default="", metavar="DATE", help="From this day or moment (UTC) on.")
@click.option("--until", default="", metavar="DATE", help="Up to this day or moment (UTC).")
@click.option("--actor", type=click.Choice(ACTORS), help="Only by this actor.")
@click.option("--result", type=click.Choice(RESULTS), help="Only with this result.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many."
)
@json_option
def audit_command(what: str | None, letter: str, limit: int, **options: str | None) -> None:
    """Show what was done, when and by whom.

    The newest come last. `postroom audit verify` compares the log files with the ledger's chain. It
    finds edited, deleted, moved and cut-off lines, and a ledger that is older than the log.
    """
    filters = {name: given or "" for name, given in options.items()}
    for moment in filter(None, (filters["since"], filters["until"])):
        if not re.fullmatch(r"\d{4}(-\d\d(-\d\d(T[\d:.]{2,15}Z?)?)?)?", moment):
            raise Invalid(f"{moment!r} is no date", remedy="Write it as 2026-11-15, or 2026-11.")
    with open_desk(make=True) as desk:
        if what == "verify":
            _verify(desk)
            return
        letter = desk.ledger.letters.find_id(letter) if letter else ""
        records = list(desk.log.records(letter=letter, **filters))[-limit:]
    rows = [_row(record) for record in records]
    output({"actions": records}, rows or ["No action fits."])


def _row(record: dict[str, Any]) -> str:
    def part(name: str) -> str:
        return str(record.get(name, ""))

    # Anybody may have written to the files: `fit` cleans what they hold.
    moment = fit(part("timestamp")[:19].replace("T", " "), 19)
    # As a call, a held letter is `rejected`: its state says more.
    outcome = part("state") if part("result") in {"rejected", "success"} else ""
    cells = [moment, fit(part("actor"), 12), fit(part("action_type"), 15)]
    cells.append(fit(outcome or part("result"), 9))
    return table_row(*cells, last=" ".join(filter(None, map(part, ("letter", "target", "error")))))


def _verify(desk: Desk) -> None:
    faults, head = desk.log.verify(), desk.ledger.actions.head()
    rows = [
        f"{f'Logs/actions/{fault.file}:{fault.line}: ' if fault.file else ''}{fault.what}"
        for fault in faults[:MOST_FAULTS]
    ]
    whole = f"All {head:,} actions are in the log as they were written."
    rows.append(f"The log was changed: {len(faults)} faults." if faults else whole)
    found = [{"file": fault.file, "line": fault.line, "what": fault.what} for fault in faults]
    output({"actions": head, "whole": not faults, "faults": found}, rows)
    if faults:
        raise click.exceptions.Exit(10)
