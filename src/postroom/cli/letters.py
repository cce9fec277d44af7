"""Letters in the terminal: `pending`, `show`, and the verdicts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.printing import say
from postroom.core import life
from postroom.core.errors import Conflict, Invalid, NotFound, Unavailable
from postroom.core.stamp import elapsed
from postroom.core.text import duration

if TYPE_CHECKING:
    from postroom.core.letter import Letter
    from postroom.core.records import Entry, LetterSummary
    from postroom.desk.desk import Desk

ORDER = ("unknown", "pending", "approved", "sending")
HEADINGS = {
    "unknown": "May or may not have been sent: look, then `postroom resolve ID`",
    "pending": "Waiting for your word",
    "approved": "Approved",
    "sending": "Being sent",
    "rehearsal": "Rehearsals, which are never sent",
    "sent": "Sent",
    "rejected": "Rejected",
    "withdrawn": "Withdrawn",
    "expired": "Expired",
    "failed": "Failed",
}
PAST = 50  # letters that are no longer open, in a list of all
PATIENCE = 60.0  # seconds for another dispatcher to finish

_yes = click.option(
    "--yes",
    "digests",
    multiple=True,
    metavar="DIGEST",
    help="Do not ask: the first eight digits of the letter's digest, for each letter.",
)


@contextmanager
def opened(*, make: bool = False, adopt: bool = False) -> Iterator[Desk]:
    """Lend the desk, up to date with its folders; what people should know is said."""
    from postroom.wiring.desk import needed

    with needed(printing.settings(), make=make) as found:
        for sentence in found.reconcile(adopt=adopt):
            say(sentence)
        yield found


def person() -> str:
    """Return whose word it is, for the records."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"


@click.command("pending")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"Show rehearsals, and the last {PAST} closed letters too.",
)
@printing.json_option
def pending_command(everything: bool, as_json: bool) -> None:
    """List the letters that wait, newest last.

    `!` marks a letter with a red line on its risk card, `?` one that is worth a look. `postroom show
    ID` shows all of it; the first letters of an id are enough.
    """
    states = tuple(HEADINGS) if everything else ORDER
    with opened(make=True) as desk:
        lines = desk.ledger.lines(*ORDER)
        if everything:
            lines += desk.ledger.lines(*(set(states) - set(ORDER)), newest=PAST)
        now = desk.clock()
        rules = desk.rules
        rehearsed = 0 if rules.live else len(desk.ledger.lines("rehearsal"))
    if as_json:
        printing.print_json(
            {
                "mode": rules.mode,
                "trust": rules.trust,
                "letters": [_line_json(line) for line in lines],
            }
        )
        return
    rows: list[str] = []
    for state in states:
        chosen = [line for line in lines if life.name(line.state) == state]
        if chosen:
            rows.append(click.style(f"{HEADINGS[state]} ({len(chosen)})", bold=True))
            for line in chosen:
                rows += _rows(line, duration(max(1, elapsed(line.created, now))))
    # One write: a line at a time costs more than finding them.
    click.echo("\n".join(rows) if rows else "Nothing waits.")
    if not rules.live:
        say(f"Postroom rehearses ({rules.source}): nothing can be approved or sent.")
        if rehearsed and not everything:
            say(f"Rehearsed so far: {rehearsed}. `postroom pending --all` shows them.")


def _rows(line: LetterSummary, age: str) -> list[str]:
    columns = printing.width()
    mark = click.style(
        printing.MARKS[line.level], fg="red" if line.level == 2 else "yellow", bold=True
    )
    whom = printing.fit(line.recipients, 26)
    subject = printing.fit(line.subject or "(no subject)", columns - 44).rstrip()
    match line.state:
        case life.Approved(held=held):
            about = held or "`postroom send-approved` sends it after the undo window"
        case life.Sent(at=at):
            about = f"sent {printing.short_date(int(at.wall))}"
        case life.Rejected(reason=about) | life.Failed(reason=about):
            pass
        case _:
            about = line.warning
    who = {"person": "by hand", "vault": "a note in Drafts/"}.get(line.agent, line.agent)
    detail = printing.fit(f"{who}, {age} ago{f': {about}' if about else ''}", columns - 14)
    return [
        f"{mark} {click.style(line.id, fg='cyan')}  {whom}  {subject}",
        f"              {detail.rstrip()}",
    ]


def _line_json(line: LetterSummary) -> dict[str, Any]:
    return {
        "id": line.id,
        "state": life.name(line.state),
        "agent": line.agent,
        "recipients": line.recipients.split(", "),
        "subject": line.subject,
        "level": line.level,
        "warning": line.warning,
        "created": line.created.iso,
    }


@click.command("show")
@click.argument("id")
@printing.json_option
def show_command(id: str, as_json: bool) -> None:
    """Show one letter with its risk card and history."""
    with opened() as desk:
        entry = desk.ledger.entry(desk.ledger.find(id))
        if as_json:
            printing.print_json(_entry_json(desk, entry))
            return
        _show(desk, entry)


def _show(desk: Desk, entry: Entry) -> None:
    """Write a whole letter: every recipient, every byte of its text, its card, what it went through."""
    for row in printing.letter_lines(entry):
        click.echo(row)
    if entry.replaces:
        click.echo(f"{printing.field('Instead')}of the letter {entry.replaces}")
    if former := desk.ledger.former(entry.id):
        from postroom.desk.notes import difference, form

        click.echo(click.style("\nWhat was changed:", bold=True))
        click.echo(difference(form(former), form(entry.letter)))
    if edited := desk.edited(entry):
        say(f"The note was edited and differs (`postroom edit {entry.id} --from-note`):")
        click.echo(edited)
    click.echo()
    for state in desk.ledger.history(entry.id):
        click.echo(printing.folded(life.describe(state)))
    click.echo(printing.folded(f"Trust level {desk.rules.trust}, mode {desk.rules.mode}."))


def _entry_json(desk: Desk, entry: Entry) -> dict[str, Any]:
    letter = entry.letter
    people = ("to", "cc", "bcc", "reply_to")
    return {
        "id": entry.id,
        "state": entry.kind,
        "said": life.describe(entry.state, id=entry.id),
        "agent": entry.agent,
        "account": letter.account,
        "from": str(letter.sender),
        **{name: [str(address) for address in getattr(letter, name)] for name in people},
        "subject": letter.subject,
        "text": letter.text,
        "html": letter.html,
        "attachments": [
            {"name": a.name, "type": a.type, "size": len(a.content)} for a in letter.attachments
        ],
        "digest": entry.digest,
        "replaces": entry.replaces,
        "risk": [
            {"level": int(line.level), "kind": line.kind, "text": line.text}
            for line in entry.card.lines
        ],
        "created": entry.created.iso,
        "history": [life.describe(state) for state in desk.ledger.history(entry.id)],
    }


@click.command("approve")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@_yes
@printing.json_option
def approve_command(ids: tuple[str, ...], digests: tuple[str, ...], as_json: bool) -> None:
    """Approve letters, after a look at each, and send them.

    Shows the whole letter and its risk card and asks on this terminal. Then it waits out the undo
    window (Ctrl-C recalls the letter) and sends it. `--yes 1a2b3c4d` says that you have seen the
    letter with this digest.
    """
    _check_digests(ids, digests)
    with opened() as desk:
        outcomes = []
        for at, id in enumerate(ids):
            entry = desk.ledger.entry(desk.ledger.find(id))
            if not digests and not as_json:
                _show(desk, entry)
            try:
                entry = _approved_and_sent(desk, entry, digests[at] if digests else "")
            except click.Abort:
                say(f"The letter {entry.id} was not sent; it still waits.")
                continue
            outcomes.append(entry)
        _tell(desk, outcomes, as_json=as_json)


def _check_digests(ids: tuple[str, ...], digests: tuple[str, ...]) -> None:
    if digests and len(digests) != len(ids):
        raise Invalid("--yes is needed once for each letter", remedy="Give them in the same order.")
    for digest in digests:
        if not re.fullmatch(r"(?:sha256:)?[0-9a-f]{8,64}", digest):
            raise Invalid(
                "--yes takes at least the first eight hexadecimal digits of the letter's digest",
                remedy="`postroom show ID` shows it.",
            )


def _refuse_another(entry: Entry, digests: tuple[str, ...]) -> None:
    seen = "".join(digests[:1]).removeprefix("sha256:")
    if not entry.digest.removeprefix("sha256:").startswith(seen):
        raise Conflict(
            f"The letter {entry.id} is not what you saw: its digest is {entry.digest}",
            remedy=f"Look at it again with `postroom show {entry.id}`.",
        )


def _approve(desk: Desk, entry: Entry, digest: str) -> Entry:
    from postroom.cli import terminal

    if not isinstance(entry.state, life.Pending):
        raise life.refuse(entry.id, entry.state, "approved")
    desk.outbox.refuse_rehearsal()
    if not digest and not terminal.agrees(f"Send this letter ({entry.id})?"):
        raise click.Abort
    proof = terminal.passphrase() if desk.rules.trust == "desk" else None
    return desk.approve(entry.id, by=person(), digest=digest or entry.digest, proof=proof)


def _approved_and_sent(desk: Desk, entry: Entry, digest: str) -> Entry:
    """Approve, wait out the undo window and dispatch; Ctrl-C on the way recalls the letter."""
    try:
        return _sent(desk, _approve(desk, entry, digest))
    except KeyboardInterrupt:
        if isinstance(desk.ledger.entry(entry.id).state, life.Approved):
            desk.recall(entry.id, by=person())
            say(f"The letter {entry.id} was recalled and waits again.")
        raise


def _sent(desk: Desk, entry: Entry) -> Entry:
    """Wait out the undo window and dispatch; whoever else has the claim is waited for."""
    from postroom.cli import terminal

    if isinstance(entry.state, life.Approved):
        terminal.count_down(desk.dispatcher.due_in(entry.state), "It leaves", "recalls it")
    end = time.monotonic() + PATIENCE
    while True:
        entry = desk.dispatch(entry.id)
        if not isinstance(entry.state, life.Sending) or time.monotonic() > end:
            return entry
        time.sleep(0.1)


def _tell(desk: Desk, entries: list[Entry], *, as_json: bool) -> None:
    for sentence in desk.trouble:
        say(sentence)
    if as_json:
        printing.print_json({"letters": [_entry_json(desk, entry) for entry in entries]})
    for entry in entries:
        if not as_json:
            click.echo(printing.folded(life.describe(entry.state, id=entry.id)))
            if path := desk.ledger.place(entry.id).path:
                click.echo(f"  {path}")
    if any(_is_kept(entry) for entry in entries):
        say("The embedded mailbox keeps it under Sent; it goes nowhere else.")
    if any(isinstance(entry.state, life.Approved) for entry in entries):
        say("`postroom send-approved` tries again.")
    worst = next((e for e in entries if isinstance(e.state, life.Failed | life.Unknown)), None)
    if worst is not None:
        raise click.exceptions.Exit(9 if isinstance(worst.state, life.Unknown) else 4)


def _is_kept(entry: Entry) -> bool:
    """Whether a letter was sent within the embedded mailbox, which delivers to nobody outside."""
    if not isinstance(entry.state, life.Sent):
        return False
    return wiring.settings().account(entry.letter.account).provider == "local"


@click.command("reject")
@click.argument("id")
@click.option("--reason", default="", help="Why; it reaches the agent.")
@printing.json_option
def reject_command(id: str, reason: str, as_json: bool) -> None:
    """Say no to a letter, with a reason that reaches the agent."""
    with opened() as desk:
        entry = desk.reject(desk.ledger.find(id), by=person(), reason=reason)
        _tell(desk, [entry], as_json=as_json)


@click.command("revise")
@click.argument("id")
@click.option("--ask", required=True, metavar="WISH", help="What should be different.")
@printing.json_option
def revise_command(id: str, ask: str, as_json: bool) -> None:
    """Ask the agent for another version of a letter."""
    with opened() as desk:
        entry = desk.reject(desk.ledger.find(id), by=person(), reason=ask, revise=True)
        _tell(desk, [entry], as_json=as_json)


@click.command("undo")
@click.argument("id")
@printing.json_option
def undo_command(id: str, as_json: bool) -> None:
    """Recall an approved letter that is not being sent yet."""
    with opened() as desk:
        _tell(desk, [desk.recall(desk.ledger.find(id), by=person())], as_json=as_json)


@click.command("edit")
@click.argument("id")
@click.option("--from-note", is_flag=True, help="Take the text that stands in its note.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take the letter from this file instead of an editor.",
)
@click.option("--no-send", is_flag=True, help="Change it, and let it wait.")
@_yes
@printing.json_option
def edit_command(
    id: str,
    from_note: bool,
    file: Path | None,
    no_send: bool,
    digests: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change a letter, look at the result, and send it.

    Opens $EDITOR on recipients, subject and text. What the agent wrote is kept beside it; an HTML
    part goes when the text changes. `--yes` names the digest of the letter as it is before.
    """
    from postroom.cli import terminal
    from postroom.desk.compose import settled
    from postroom.desk.notes import difference, form

    _check_digests((id,), digests)
    with opened() as desk:
        entry = desk.ledger.entry(desk.ledger.find(id))
        if not isinstance(entry.state, life.Pending):
            raise life.refuse(entry.id, entry.state, "edited")
        if from_note:
            text = desk.note_text(entry)
            if text is None:
                raise NotFound(
                    f"The text of the letter {entry.id} cannot be told from its note",
                    remedy="Mend the fence under *Letter*, or edit without --from-note.",
                )
            letter = replace(entry.letter, text=text)
        else:
            desk.refuse_edited(entry)
            letter = _reworded(entry.letter, file)
        letter = replace(letter, text=settled(letter.text))
        if letter == entry.letter:
            say("Nothing was changed.")
            return
        _refuse_another(entry, digests)
        proof = terminal.passphrase() if desk.rules.trust == "desk" else None
        if not digests:
            click.echo(difference(form(entry.letter), form(letter)))
            if not terminal.agrees(f"Change the letter {entry.id} to this?"):
                raise click.Abort
        entry = desk.edit(entry.id, letter, proof=proof, from_note=from_note, by=person())
        if not as_json:
            _show(desk, entry)
        if not no_send and desk.rules.live and not digests:
            entry = _approved_and_sent(desk, entry, "")
        _tell(desk, [entry], as_json=as_json)


def _reworded(letter: Letter, file: Path | None) -> Letter:
    from postroom.core.address import Address
    from postroom.desk.notes import form

    shown = form(letter)
    text = file.read_text("utf-8") if file else _typed(shown)
    if text is None or text == shown:
        return letter
    head, blank, body = text.replace("\r\n", "\n").partition("\n\n")
    fields: dict[str, str] = {}
    for row in head.split("\n"):
        name, colon, value = row.partition(":")
        if not colon or name.strip().lower() not in {"to", "cc", "bcc", "subject"}:
            raise Invalid(
                f"This is no line of a letter's head: {row[:60]}",
                remedy="Keep To, Cc, Bcc and Subject, a blank line, then the text.",
            )
        fields[name.strip().lower()] = value.strip()
    if not blank:
        raise Invalid("The blank line after the subject is gone", remedy="Put it back.")
    to, cc, bcc = (Address.parse_list(fields.get(name, "")) for name in ("to", "cc", "bcc"))
    return replace(letter, to=to, cc=cc, bcc=bcc, subject=fields.get("subject", ""), text=body)


def _typed(shown: str) -> str | None:
    try:
        return click.edit(shown, extension=".txt")
    except click.ClickException as why:
        raise Unavailable(
            f"No editor: {why.format_message()}",
            remedy="Set EDITOR to the command of yours, or give the letter with --file.",
        ) from why


@click.command("resolve")
@click.argument("id")
@click.option("--sent/--not-sent", "was_sent", default=None, help="What you found out.")
@_yes
@printing.json_option
def resolve_command(
    id: str, was_sent: bool | None, digests: tuple[str, ...], as_json: bool
) -> None:
    """Settle a letter of which nobody knows whether it was sent.

    Look into the mailbox's Sent folder first. A letter that was not sent waits for a new verdict.
    """
    from postroom.cli import terminal

    if was_sent is None:
        raise Invalid("Was it sent or not?", remedy="Give --sent or --not-sent.")
    _check_digests((id,), digests)
    with opened() as desk:
        entry = desk.ledger.entry(desk.ledger.find(id))
        if not isinstance(entry.state, life.Unknown):
            raise life.refuse(entry.id, entry.state, "resolved")
        word = "was sent" if was_sent else "was not sent"
        _refuse_another(entry, digests)
        if not digests:
            if not as_json:
                _show(desk, entry)
            if not terminal.agrees(f"Are you sure that the letter {entry.id} {word}?"):
                raise click.Abort
        proof = terminal.passphrase() if desk.rules.trust == "desk" else None
        resolved = desk.resolve(entry.id, by=person(), sent=was_sent, proof=proof)
        _tell(desk, [resolved], as_json=as_json)


@click.command("send-approved")
@click.option("--wait", is_flag=True, help="Wait out the undo windows first.")
@printing.json_option
def send_approved_command(wait: bool, as_json: bool) -> None:
    """Send what is approved and due; settle what was interrupted.

    Takes requests from Plans/ and slips in Approved/ too.
    """
    with opened(make=True, adopt=True) as desk:
        if wait:
            waiting = [line.state for line in desk.ledger.lines("approved")]
            longest = [desk.dispatcher.due_in(s) for s in waiting if isinstance(s, life.Approved)]
            from postroom.cli import terminal

            seconds = min(max(longest, default=0), desk.rules.undo_seconds)
            terminal.count_down(
                seconds, "What is approved leaves", "sends nothing and recalls nothing"
            )
        changed = desk.send_approved()
        later = desk.ledger.lines("approved")
        if not changed and not as_json:
            click.echo("Nothing is approved and due." if later else "Nothing is approved.")
        for line in later:
            if isinstance(line.state, life.Approved):
                left = duration(desk.dispatcher.due_in(line.state))
                why = f" ({line.state.held})" if line.state.held else ""
                say(f"The letter {line.id} may leave in {left}{why}.")
        _tell(desk, changed, as_json=as_json)
