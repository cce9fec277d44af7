"""Letters in the terminal: `pending`, `show`, and the verdicts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom import wiring
from postroom.cli.command import (
    count_down,
    json_option,
    login_name,
    open_desk,
    output,
    passphrase_if_needed,
    require,
    wants_json,
)
from postroom.cli.printing import (
    field,
    folded,
    letter_json,
    letter_lines,
    letter_rows,
    letter_summary_json,
    say,
)
from postroom.core import life
from postroom.core.errors import Conflict, Invalid, NotFound, Unavailable
from postroom.core.stamp import elapsed
from postroom.core.text import duration

if TYPE_CHECKING:
    from postroom.core.letter import Letter
    from postroom.core.records import Entry
    from postroom.desk.desk import Desk

ORDER = ("unknown", "pending", "approved", "sending")
HEADINGS = {
    "unknown": "May or may not have been sent: check, then `postroom resolve ID`",
    "pending": "Waiting for your decision",
    "approved": "Approved",
    "sending": "Being sent",
    "rehearsal": "Rehearsals, which are never sent",
    "sent": "Sent",
    "rejected": "Rejected",
    "withdrawn": "Withdrawn",
    "expired": "Expired",
    "failed": "Failed",
}
EXIT_CODES = {"unknown": 9, "failed": 4}
PAST = 50  # closed letters in a list of all
PATIENCE = 60.0  # seconds for another dispatcher to finish
FORM_FIELDS = {"to", "cc", "bcc", "subject"}

id_argument = click.argument("id")
yes_option = click.option(
    "--yes",
    "digests",
    multiple=True,
    metavar="DIGEST",
    help="Do not ask: the first eight digits of the letter's digest, for each letter.",
)


@click.command("pending")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"Show rehearsals, and the last {PAST} closed letters too.",
)
@json_option
def pending_command(everything: bool) -> None:
    """List the letters that wait, newest last.

    `!` marks a letter with a red warning on its risk card, `?` one with an amber warning. `postroom
    show ID` shows the whole letter; the first three characters of an id are enough.
    """
    states = tuple(HEADINGS) if everything else ORDER
    with open_desk(make=True) as desk:
        letters = desk.reader.lists.summaries(*ORDER)
        if everything:
            letters += desk.reader.lists.summaries(*(set(states) - set(ORDER)), newest=PAST)
        now, rules = desk.clock(), desk.rules
        rehearsed = 0 if rules.live else len(desk.reader.lists.summaries("rehearsal"))
    rows: list[str] = []
    for state in states:
        chosen = [letter for letter in letters if life.name(letter.state) == state]
        if chosen:
            rows.append(click.style(f"{HEADINGS[state]} ({len(chosen)})", bold=True))
        for letter in chosen:
            rows += letter_rows(letter, duration(max(1, elapsed(letter.created, now))))
    hints = []
    if not rules.live:
        hints = [f"Postroom rehearses ({rules.source}): nothing can be approved or sent."]
        if rehearsed and not everything:
            hints += [f"Rehearsed so far: {rehearsed}. `postroom pending --all` shows them."]
    values = {
        "mode": rules.mode,
        "trust": rules.trust,
        "letters": [letter_summary_json(letter) for letter in letters],
    }
    output(values, rows or ["Nothing waits."], *hints)


@click.command("show")
@id_argument
@json_option
def show_command(id: str) -> None:
    """Show one letter with its risk card and history."""
    with open_desk() as desk:
        entry = _find(desk, id)
        output(letter_json(entry, desk.reader.history.states(entry.id)), _lines(desk, entry))


def _find(desk: Desk, id: str) -> Entry:
    return desk.reader.letters.get(desk.reader.letters.find_id(id))


def _lines(desk: Desk, entry: Entry) -> Iterator[str]:
    """Yield a whole letter: its sheet, what was changed in it, and its history."""
    from postroom.desk.notes import difference, form

    yield from letter_lines(entry)
    if entry.replaces:
        yield field("Replaces", f"the letter {entry.replaces}")
    if former := desk.reader.history.original(entry.id):
        yield click.style("\nWhat was changed:", bold=True)
        yield difference(form(former), form(entry.letter))
    if edited := desk.note_difference(entry):
        yield folded(f"The note was edited and differs (`postroom edit {entry.id} --from-note`):")
        yield edited
    yield ""
    for state in desk.reader.history.states(entry.id):
        yield folded(life.describe(state))
    yield folded(f"Trust level {desk.rules.trust}, mode {desk.rules.mode}.")


def _show_unless_json(desk: Desk, entry: Entry) -> None:
    if not wants_json():
        click.echo("\n".join(_lines(desk, entry)))


@click.command("approve")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@yes_option
@json_option
def approve_command(ids: tuple[str, ...], digests: tuple[str, ...]) -> None:
    """Approve letters, after a look at each, and send them.

    Shows the whole letter and its risk card and asks on this terminal. Then it waits out the undo
    window (Ctrl-C recalls the letter) and sends it. `--yes 1a2b3c4d` says that you have seen the
    letter with this digest.
    """
    _check_digests(ids, digests)
    with open_desk() as desk:
        outcomes = []
        for at, id in enumerate(ids):
            entry = _find(desk, id)
            if not digests:
                _show_unless_json(desk, entry)
            try:
                outcomes.append(_approve_and_send(desk, entry, digests[at] if digests else ""))
            except click.Abort:
                say(f"The letter {entry.id} was not sent; it still waits.")
        _report(desk, outcomes)


def _check_digests(ids: tuple[str, ...], digests: tuple[str, ...]) -> None:
    if digests and len(digests) != len(ids):
        raise Invalid("--yes is needed once for each letter", remedy="Give them in the same order.")
    for digest in digests:
        if not re.fullmatch(r"(?:sha256:)?[0-9a-f]{8,64}", digest):
            raise Invalid(
                "--yes takes at least the first eight hexadecimal digits of the letter's digest",
                remedy="`postroom show ID` shows it.",
            )


def _refuse_other_digest(entry: Entry, digests: tuple[str, ...]) -> None:
    seen = "".join(digests[:1]).removeprefix("sha256:")
    if not entry.digest.removeprefix("sha256:").startswith(seen):
        raise Conflict(
            f"The letter {entry.id} is not what you saw: its digest is {entry.digest}",
            remedy=f"Look at it again with `postroom show {entry.id}`.",
        )


def _refuse_event(entry: Entry, event: str) -> None:
    if not life.allows(entry.state, event):
        raise life.refuse(entry.id, entry.state, life.EVENTS[event].participle)


def _approve_and_send(desk: Desk, entry: Entry, digest: str) -> Entry:
    """Approve, wait out the undo window and dispatch; Ctrl-C recalls the letter."""
    _refuse_event(entry, "approve")
    desk.verdicts.refuse_rehearsal()
    try:
        if not digest:
            require(f"Send this letter ({entry.id})?")
        proof = passphrase_if_needed(desk)
        approved = desk.approve(
            entry.id, by=login_name(), digest=digest or entry.digest, proof=proof
        )
        return _send(desk, approved)
    except KeyboardInterrupt:
        if life.allows(desk.reader.letters.get(entry.id).state, "undo"):
            desk.decide(entry.id, "undo", by=login_name())
            say(f"The letter {entry.id} was recalled and waits again.")
        raise


def _send(desk: Desk, entry: Entry) -> Entry:
    """Wait out the undo window and dispatch; wait for another process that has the claim."""
    if isinstance(entry.state, life.Approved):
        count_down(desk.dispatcher.due_in(entry.state), "It is sent", "recalls it")
    end = time.monotonic() + PATIENCE
    while True:
        entry = desk.dispatch(entry.id)
        if not isinstance(entry.state, life.Sending) or time.monotonic() > end:
            return entry
        time.sleep(0.1)


def _report(desk: Desk, entries: list[Entry]) -> None:
    """Write what became of these letters; exit with a code of its own where one is unknown or failed."""
    for sentence in desk.problems:
        say(sentence)
    rows = []
    for entry in entries:
        rows.append(folded(life.describe(entry.state, id=entry.id)))
        if path := desk.reader.notes.location(entry.id).path:
            rows.append(f"  {path}")
    values = [letter_json(entry, desk.reader.history.states(entry.id)) for entry in entries]
    output({"letters": values}, rows)
    accounts = {entry.letter.account for entry in entries if isinstance(entry.state, life.Sent)}
    if any(wiring.settings().account(name).provider == "local" for name in accounts):
        say("The embedded mailbox keeps it under Sent; it goes nowhere else.")
    if any(isinstance(entry.state, life.Approved) for entry in entries):
        say("`postroom send-approved` tries again.")
    for entry in entries:
        if code := EXIT_CODES.get(entry.kind):
            raise click.exceptions.Exit(code)


@click.command("reject")
@id_argument
@click.option("--reason", default="", help="Why; the agent reads it.")
@json_option
def reject_command(id: str, reason: str) -> None:
    """Reject a letter, with a reason that the agent reads."""
    _decide(id, lambda desk, id: desk.decide(id, "reject", by=login_name(), reason=reason))


@click.command("revise")
@id_argument
@click.option("--ask", required=True, metavar="WISH", help="What should be different.")
@json_option
def revise_command(id: str, ask: str) -> None:
    """Ask the agent for another version of a letter."""
    _decide(id, lambda desk, id: desk.decide(id, "revise", by=login_name(), reason=ask))


@click.command("undo")
@id_argument
@json_option
def undo_command(id: str) -> None:
    """Recall an approved letter that is not being sent yet."""
    _decide(id, lambda desk, id: desk.decide(id, "undo", by=login_name()))


def _decide(id: str, verdict: Callable[[Desk, str], Entry]) -> None:
    with open_desk() as desk:
        _report(desk, [verdict(desk, _find(desk, id).id)])


@click.command("edit")
@id_argument
@click.option("--from-note", is_flag=True, help="Take the text from the letter's note.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take the letter from this file instead of an editor.",
)
@click.option("--no-send", is_flag=True, help="Change it, and let it wait.")
@yes_option
@json_option
def edit_command(
    id: str, from_note: bool, file: Path | None, no_send: bool, digests: tuple[str, ...]
) -> None:
    """Change a letter, look at the result, and send it.

    Opens $EDITOR on recipients, subject and text. The agent's version is kept; an HTML part is
    dropped when the text changes. `--yes` takes the digest of the letter before the change.
    """
    from postroom.desk.compose import normalize_text
    from postroom.desk.notes import difference, form

    _check_digests((id,), digests)
    with open_desk() as desk:
        entry = _find(desk, id)
        _refuse_event(entry, "edit")
        letter = _note_version(desk, entry) if from_note else _edited_version(desk, entry, file)
        letter = replace(letter, text=normalize_text(letter.text))
        if letter == entry.letter:
            say("Nothing was changed.")
            return
        _refuse_other_digest(entry, digests)
        proof = passphrase_if_needed(desk)
        if not digests:
            click.echo(difference(form(entry.letter), form(letter)))
            require(f"Change the letter {entry.id} to this?")
        entry = desk.edit(entry.id, letter, proof=proof, from_note=from_note, by=login_name())
        _show_unless_json(desk, entry)
        if not no_send and desk.rules.live and not digests:
            entry = _approve_and_send(desk, entry, "")
        _report(desk, [entry])


def _note_version(desk: Desk, entry: Entry) -> Letter:
    text = desk.note_text(entry)
    if text is None:
        raise NotFound(
            f"The text of the letter {entry.id} cannot be told from its note",
            remedy="Restore the fence under *Letter*, or edit without --from-note.",
        )
    return replace(entry.letter, text=text)


def _edited_version(desk: Desk, entry: Entry, file: Path | None) -> Letter:
    """Return the letter as the person changes it, in a file or an editor."""
    from postroom.core.address import Address
    from postroom.desk.notes import form

    desk.refuse_edited_note(entry)
    before = form(entry.letter)
    text = file.read_text("utf-8") if file else _open_editor(before)
    if text is None or text == before:
        return entry.letter
    head, blank, body = text.replace("\r\n", "\n").partition("\n\n")
    fields: dict[str, str] = {}
    for row in head.split("\n"):
        name, colon, value = row.partition(":")
        if not colon or name.strip().lower() not in FORM_FIELDS:
            raise Invalid(
                f"This line does not belong in a letter's head: {row[:60]}",
                remedy="Keep To, Cc, Bcc and Subject, a blank line, then the text.",
            )
        fields[name.strip().lower()] = value.strip()
    if not blank:
        raise Invalid("The blank line after the subject is gone", remedy="Put it back.")
    to, cc, bcc = (Address.parse_list(fields.get(name, "")) for name in ("to", "cc", "bcc"))
    subject = fields.get("subject", "")
    return replace(entry.letter, to=to, cc=cc, bcc=bcc, subject=subject, text=body)


def _open_editor(text: str) -> str | None:
    try:
        return click.edit(text, extension=".txt")
    except click.ClickException as why:
        raise Unavailable(
            f"No editor: {why.format_message()}",
            remedy="Set EDITOR to the command of yours, or give the letter with --file.",
        ) from why


@click.command("resolve")
@id_argument
@click.option("--sent/--not-sent", "was_sent", default=None, help="What you found out.")
@yes_option
@json_option
def resolve_command(id: str, was_sent: bool | None, digests: tuple[str, ...]) -> None:
    """Decide a letter that may or may not have been sent.

    Look into the mailbox's Sent folder first. A letter that was not sent waits for a new verdict.
    """
    if was_sent is None:
        raise Invalid("Was it sent or not?", remedy="Give --sent or --not-sent.")
    _check_digests((id,), digests)
    with open_desk() as desk:
        entry = _find(desk, id)
        _refuse_event(entry, "resolve")
        _refuse_other_digest(entry, digests)
        if not digests:
            _show_unless_json(desk, entry)
            word = "was sent" if was_sent else "was not sent"
            require(f"Are you sure that the letter {entry.id} {word}?")
        proof = passphrase_if_needed(desk)
        _report(
            desk, [desk.decide(entry.id, "resolve", by=login_name(), sent=was_sent, proof=proof)]
        )


@click.command("send-approved")
@click.option("--wait", is_flag=True, help="Wait out the undo windows first.")
@json_option
def send_approved_command(wait: bool) -> None:
    """Send what is approved and due; finish what was interrupted.

    Takes requests from Plans/ and slips in Approved/ too.
    """
    with open_desk(make=True, adopt=True) as desk:
        if wait:
            seconds = max((left for _, _, left in _approved(desk)), default=0.0)
            count_down(
                min(seconds, desk.rules.undo_seconds),
                "What is approved is sent",
                "sends nothing and recalls nothing",
            )
        changed = desk.send_approved()
        later = _approved(desk)
        if not changed and not wants_json():
            click.echo("Nothing is approved and due." if later else "Nothing is approved.")
        for id, held, left in later:
            say(f"The letter {id} may be sent in {duration(left)}{f' ({held})' if held else ''}.")
        _report(desk, changed)


def _approved(desk: Desk) -> list[tuple[str, str, float]]:
    """Return id, reason and seconds left of each letter that is approved and waits."""
    found = [(letter.id, letter.state) for letter in desk.reader.lists.summaries("approved")]
    return [
        (id, state.held, desk.dispatcher.due_in(state))
        for id, state in found
        if isinstance(state, life.Approved)
    ]
