"""`postroom audit`: what was done, when, by whose word; and whether the log is still what was written."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import click

from postroom.cli import printing
from postroom.cli.letters import opened
from postroom.core.audit import ACTORS, RESULTS
from postroom.core.errors import Invalid


@click.command("audit")
@click.argument("what", required=False, type=click.Choice(["verify"]), metavar="[verify]")
@click.option("--letter", default="", metavar="ID", help="Only this letter.")
@click.option("--since", default="", metavar="DATE", help="From this day or moment (UTC) on.")
@click.option("--until", default="", metavar="DATE", help="Up to this day or moment (UTC).")
@click.option("--actor", default=None, type=click.Choice(ACTORS), help="Only by this actor.")
@click.option("--result", default=None, type=click.Choice(RESULTS), help="Only with this result.")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many."
)
@printing.json_option
def audit_command(
    what: str | None,
    letter: str,
    since: str,
    until: str,
    actor: str | None,
    result: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show what was done, when, and by whose word.

    The newest come last. `postroom audit verify` compares the log files with the ledger's chain, and
    finds an edited, deleted, moved or cut-off line, and a ledger that is older than the log.
    """
    for moment in filter(None, (since, until)):
        if not re.fullmatch(r"\d{4}(-\d\d(-\d\d(T[\d:.]{2,15}Z?)?)?)?", moment):
            raise Invalid(f"{moment!r} is no date", remedy="Write it as 2026-11-15, or 2026-11.")
    with opened(make=True) as desk:
        letter = desk.ledger.find(letter) if letter else ""
        if what == "verify":
            _verify(desk.log.verify(), desk.ledger.head(), as_json=as_json)
            return
        found = desk.log.records(
            since=since, until=until, letter=letter, actor=actor or "", result=result or ""
        )
        records = list(found)[-limit:]
    if as_json:
        printing.print_json({"actions": records})
        return
    for record in records:
        click.echo(_row(record))
    if not records:
        click.echo("Nothing was done that fits.")


def _row(record: dict[str, Any]) -> str:
    def part(name: str) -> str:
        return str(record.get(name, ""))

    # The files are anybody's to write: what they say is fitted, and so cleaned.
    head = printing.fit(part("timestamp")[:19].replace("T", " "), 19)
    # A held letter is `rejected` as a call; what became of it says more.
    outcome = part("state") if part("result") in {"rejected", "success"} else ""
    outcome = outcome or part("result")
    about = " ".join(filter(None, (part("letter"), part("target"), part("error"))))
    row = f"{head}  {printing.fit(part('actor'), 10)} {printing.fit(part('action_type'), 15)} {printing.fit(outcome, 12)}"
    return f"{row} {printing.fit(about, max(10, printing.width() - len(row) - 2))}".rstrip()


def _verify(faults: list[Any], head: int, *, as_json: bool) -> None:
    if as_json:
        found = [{"file": f.file, "line": f.line, "what": f.what} for f in faults]
        printing.print_json({"actions": head, "whole": not faults, "faults": found})
    else:
        for fault in islice(faults, 100):
            place = f"Logs/actions/{fault.file}:{fault.line}: " if fault.file else ""
            click.echo(f"{place}{fault.what}")
        click.echo(
            f"The log is not what was written: {len(faults)} faults."
            if faults
            else f"All {head:,} actions are in the log as they were written."
        )
    if faults:
        raise click.exceptions.Exit(10)
