"""Letters in the terminal: `pending`, `show`, and the verdicts."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from postroom import wiring
from postroom.cli import ui
from postroom.cli.main import HELP
from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Conflict, Invalid, Limited, NotFound, Unavailable
from postroom.core.letter import Letter
from postroom.core.records import Entry, LetterSummary
from postroom.core.stamp import Stamp, elapsed
from postroom.core.text import clean, duration, one_line
from postroom.desk.desk import Desk
from postroom.desk.notes import difference, form
from postroom.desk.proposals import AUTHORS, normalize_text

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
MARKS = (" ", "?", "!")  # of the levels of a risk card
COLOURS = (None, "yellow", "red")
LIST_AUTHORS = {"person": "by hand", "vault": "a note in Drafts/"}  # where no agent is known
PAST = 50  # closed letters in a list of all
RESTORE_NOTE = "Restore the code block under *Letter* (``` before and after the text), or edit without --from-note."
PATIENCE = 60.0  # seconds for another dispatcher to finish

id_argument = click.argument("id")
yes_option = click.option("--yes", "digests", multiple=True, metavar="DIGEST", help="Do not ask; give the first eight digits of each letter's digest.")  # fmt: skip


@click.command("pending", help=HELP["pending"])
@click.option("--all", "everything", is_flag=True, help=f"Show rehearsals, and the last {PAST} closed letters too.")  # fmt: skip
@ui.json_option
def pending_command(everything: bool) -> None:
    states = tuple(HEADINGS) if everything else ORDER
    with ui.open_desk(make=True) as desk:
        letters = desk.reader.lists.summaries(*ORDER)
        if everything:
            letters += desk.reader.lists.summaries(*(set(states) - set(ORDER)), newest=PAST)
        now, rules = desk.clock(), desk.rules
        rehearsed = desk.reader.lists.count("rehearsal")
    rows: list[str] = []
    for state in states:
        if found := [letter for letter in letters if life.name(letter.state) == state]:
            rows.append(click.style(f"{HEADINGS[state]} ({len(found)})", bold=True))
            rows += [row for letter in found for row in _summary_rows(letter, now)]
    hints = []
    if not rules.live:
        hints.append(f"Postroom rehearses ({rules.source}): nothing can be approved or sent.")
        if rehearsed and not everything:
            hints.append(f"Rehearsed so far: {rehearsed}. `postroom pending --all` shows them.")
    summaries = [_summary_json(letter) for letter in letters]
    values = {"mode": rules.mode, "trust": rules.trust, "letters": summaries}
    ui.output(values, rows or ["Nothing waits."], *hints)


@click.command("show", help=HELP["show"])
@id_argument
@ui.json_option
def show_command(id: str) -> None:
    with ui.open_desk() as desk:
        entry = _find(desk, id)
        ui.output(_letter_json(desk, entry), _lines(desk, entry))


def _find(desk: Desk, id: str, event: str = "", digests: tuple[str, ...] = ()) -> Entry:
    """Return the letter whose id begins so; refuse it where its state does not allow the event, or its digest is another."""
    entry = desk.reader.letters.get(desk.reader.letters.find_id(id))
    if event and not life.allows(entry.state, event):
        raise life.refuse(entry.id, entry.state, life.EVENTS[event].participle)
    seen = "".join(digests[:1]).removeprefix("sha256:")
    if not entry.digest.removeprefix("sha256:").startswith(seen):
        raise Conflict(
            f"The letter {entry.id} is not what you saw: its digest is {entry.digest}",
            remedy=f"Look at it again with `postroom show {entry.id}`.",
        )
    return entry


def _lines(desk: Desk, entry: Entry) -> Iterator[str]:
    """Yield a letter as it will be sent, its risk card, what was changed in it, and its history."""
    letter = entry.letter
    yield from ui.envelope(letter.address_rows, letter.subject)
    agent = AUTHORS.get(entry.agent) or one_line(entry.agent)
    yield f"{ui.field_name('Agent')}{agent}, {ui.short_date(entry.created.wall)}, id {entry.id}"
    for at, file in enumerate(letter.attachments):
        origin = entry.origins[at] if at < len(entry.origins) else "agent"
        sha = hashlib.sha256(file.content).hexdigest()[:12]
        about = f"{file.type}, {ui.size(len(file.content))}, SHA-256 {sha}…, from the {origin}"
        yield ui.field("File", f"{file.name} ({about})")
    if letter.html:
        yield ui.field("HTML", letter.about_html)
    yield ""
    # Each line is marked, so that none passes for one of ours.
    mark = click.style("│ ", dim=True)
    for row in ui.wrapped(clean(letter.text.strip("\n") or "(no text)").text, ui.width() - 3):
        yield mark + row
    yield ""
    for finding in entry.card.warnings:
        text = ui.hanging(f"{MARKS[finding.level]} ", finding.text)
        yield click.style(text, fg=COLOURS[finding.level])
    for at, finding in enumerate(entry.card.facts):
        yield ui.field("" if at else "Facts", finding.text)
    yield ui.field_name("Digest") + entry.digest
    if entry.replaces:
        yield ui.field("Replaces", f"the letter {entry.replaces}")
    if former := desk.reader.letters.original(entry.id):
        yield click.style("\nWhat was changed:", bold=True)
        yield difference(form(former), form(entry.letter))
    if edited := desk.note_difference(entry):
        use_it = f"`postroom edit {entry.id} --from-note`"
        yield ui.folded(f"The note was edited and differs ({use_it}):") + f"\n{edited}"
    yield ""
    rows = _history(desk.reader.letters.past_states(entry.id), ui.local_time)
    match entry.state:
        case life.Pending():
            rows.append(life.describe(entry.state, when=ui.local_time))
        case life.Approved(code=Limited.code) if (meter := desk.meter()).wait:
            rows[-1] = f"Held: {meter.describe()}."  # in place of the same without the next moment
        case life.Approved(held=held) as state if (left := desk.dispatcher.due_in(state)) > 0:
            rows.append(f"{'Next try' if held else 'It may be sent'} in {duration(left)}.")
    yield from map(ui.folded, rows)
    yield ui.folded(f"Trust level {desk.rules.trust}, mode {desk.rules.mode}.")


def _show_unless_json(desk: Desk, entry: Entry) -> None:
    if not ui.wants_json():
        click.echo("\n".join(_lines(desk, entry)))


@ui.personal
@click.command("approve", help=HELP["approve"])
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@yes_option
@ui.json_option
def approve_command(ids: tuple[str, ...], digests: tuple[str, ...]) -> None:
    _check_digests(ids, digests)
    with ui.open_desk() as desk:
        outcomes = []
        for id, digest in zip(ids, digests or ("",) * len(ids), strict=True):
            entry = _find(desk, id, "approve")
            if not digest:
                _show_unless_json(desk, entry)
            try:
                outcomes.append(_approve_and_send(desk, entry, digest))
            except click.Abort:
                ui.say(f"The letter {entry.id} was not sent; it still waits.")
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


def _approve_and_send(desk: Desk, entry: Entry, digest: str) -> Entry:
    """Approve, wait out the undo window and dispatch; Ctrl-C recalls the letter."""
    desk.verdicts.refuse_rehearsal()
    try:
        if not digest:
            ui.require(f"Send this letter ({entry.id})?")
        digest, proof = digest or entry.digest, ui.passphrase_if_needed(desk)
        entry = desk.approve(entry.id, by=ui.login_name(), digest=digest, proof=proof)
        if isinstance(entry.state, life.Approved):
            ui.count_down(desk.dispatcher.due_in(entry.state), "It is sent", "recalls it")
        end = time.monotonic() + PATIENCE
        # Another process may have the claim.
        while (entry := desk.dispatch(entry.id)).kind == "sending" and time.monotonic() < end:
            time.sleep(0.1)
    except KeyboardInterrupt:
        if life.allows(desk.reader.letters.get(entry.id).state, "undo"):
            desk.decide(entry.id, "undo", by=ui.login_name())
            ui.say(f"The letter {entry.id} was recalled and waits again.")
        raise
    return entry


def _report(desk: Desk, entries: list[Entry]) -> None:
    """Write what became of these letters; exit with a code of its own where one is unknown or failed."""
    for sentence in desk.problems:
        ui.say(sentence)
    rows = []
    for entry in entries:
        rows.append(ui.folded(life.describe(entry.state, id=entry.id, when=ui.local_time)))
        if path := desk.reader.notes.location(entry.id).path:
            rows.append(f"  {path}")
    ui.output({"letters": [_letter_json(desk, entry) for entry in entries]}, rows)
    accounts = {entry.letter.account for entry in entries if entry.kind == "sent"}
    if any(wiring.settings().account(name).provider == "local" for name in accounts):
        ui.say("The embedded mailbox keeps it under Sent; it goes nowhere else.")
    if any(entry.kind == "approved" for entry in entries):
        ui.say("`postroom send-approved` tries again.")
    for entry in entries:
        if entry.kind in EXIT_CODES:
            raise click.exceptions.Exit(EXIT_CODES[entry.kind])


@ui.personal
@click.command("reject", help=HELP["reject"])
@id_argument
@click.option("--reason", default="", help="Why; the agent reads it.")
@ui.json_option
def reject_command(id: str, reason: str) -> None:
    _decide(id, "reject", reason)


@ui.personal
@click.command("revise", help=HELP["revise"])
@id_argument
@click.option("--ask", required=True, metavar="WISH", help="What should be different.")
@ui.json_option
def revise_command(id: str, ask: str) -> None:
    _decide(id, "revise", ask)


@ui.personal
@click.command("undo", help=HELP["undo"])
@id_argument
@ui.json_option
def undo_command(id: str) -> None:
    _decide(id, "undo")


def _decide(id: str, event: str, reason: str = "") -> None:
    with ui.open_desk() as desk:
        _report(desk, [desk.decide(_find(desk, id).id, event, by=ui.login_name(), reason=reason)])


@ui.personal
@click.command("edit", help=HELP["edit"])
@id_argument
@click.option("--from-note", is_flag=True, help="Take the text from the letter's note.")
@click.option("--file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Take the letter from this file instead of an editor.")  # fmt: skip
@click.option("--no-send", is_flag=True, help="Change it, and let it wait.")
@yes_option
@ui.json_option
def edit_command(
    id: str, from_note: bool, file: Path | None, no_send: bool, digests: tuple[str, ...]
) -> None:
    _check_digests((id,), digests)
    with ui.open_desk() as desk:
        entry = _find(desk, id, "edit", digests)
        letter = (
            _letter_from_note(desk, entry) if from_note else _letter_from_form(desk, entry, file)
        )
        letter = replace(letter, text=normalize_text(letter.text))
        if letter == entry.letter:
            ui.say("Nothing was changed.")
            return
        proof = ui.passphrase_if_needed(desk)
        if not digests:
            click.echo(difference(form(entry.letter), form(letter)))
            ui.require(f"Change the letter {entry.id} to this?")
        entry = desk.edit(entry.id, letter, proof=proof, from_note=from_note, by=ui.login_name())
        _show_unless_json(desk, entry)
        if not no_send and desk.rules.live and not digests:
            entry = _approve_and_send(desk, entry, "")
        _report(desk, [entry])


def _letter_from_note(desk: Desk, entry: Entry) -> Letter:
    """Return the letter with the text that is in its note; subject and recipients stay the letter's."""
    text = desk.display.text(entry)
    if text is None:
        problem = f"The text of the letter {entry.id} cannot be found in its note"
        raise NotFound(problem, remedy=RESTORE_NOTE)
    return replace(entry.letter, text=text)


def _letter_from_form(desk: Desk, entry: Entry, file: Path | None) -> Letter:
    """Return the letter as the person changed it in an editor, or in `file`."""
    desk.refuse_edited_note(entry)
    before = form(entry.letter)
    text = file.read_text("utf-8") if file else _open_editor(before)
    if text is None or text == before:
        return entry.letter
    head, blank, body = text.replace("\r\n", "\n").partition("\n\n")
    fields = dict.fromkeys(("to", "cc", "bcc", "subject"), "")
    for row in head.split("\n"):
        name, colon, value = row.partition(":")
        if not colon or name.strip().lower() not in fields:
            raise Invalid(
                f"This line does not belong in a letter's head: {row[:60]}",
                remedy="Keep To, Cc, Bcc and Subject, a blank line, then the text.",
            )
        fields[name.strip().lower()] = value.strip()
    if not blank:
        raise Invalid("The blank line after the subject is gone", remedy="Put it back.")
    to, cc, bcc = (Address.parse_list(fields[name]) for name in ("to", "cc", "bcc"))
    return replace(entry.letter, to=to, cc=cc, bcc=bcc, subject=fields["subject"], text=body)


def _open_editor(text: str) -> str | None:
    try:
        return click.edit(text, extension=".txt")
    except click.ClickException as why:
        raise Unavailable(
            f"No editor: {why.format_message()}",
            remedy="Set EDITOR to the command of yours, or give the letter with --file.",
        ) from why


@ui.personal
@click.command("resolve", help=HELP["resolve"])
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--sent/--not-sent", "was_sent", default=None, help="What you found out.")
@yes_option
@ui.json_option
def resolve_command(ids: tuple[str, ...], was_sent: bool | None, digests: tuple[str, ...]) -> None:
    if was_sent is None:
        raise Invalid("Was it sent or not?", remedy="Give --sent or --not-sent.")
    _check_digests(ids, digests)
    word = "was sent" if was_sent else "was not sent"
    with ui.open_desk() as desk:
        chosen = []
        for id, digest in zip(ids, digests or ("",) * len(ids), strict=True):
            entry = _find(desk, id, "resolve", (digest,))
            if not digest:
                _show_unless_json(desk, entry)
            if digest or ui.confirm(f"Are you sure that the letter {entry.id} {word}?"):
                chosen.append(entry.id)
        if not chosen:
            raise click.Abort
        by, proof = ui.login_name(), ui.passphrase_if_needed(desk)
        _report(
            desk,
            [desk.decide(id, "resolve", by=by, sent=was_sent, proof=proof) for id in chosen],
        )


@ui.personal
@click.command("send-approved", help=HELP["send-approved"])
@click.option("--wait", is_flag=True, help="Wait out the undo windows first.")
@ui.json_option
def send_approved_command(wait: bool) -> None:
    with ui.open_desk(make=True, adopt=True) as desk:
        if wait:
            longest = max((left for _, _, left in _approved(desk)), default=0.0)
            seconds = min(longest, desk.rules.undo_seconds)
            ui.count_down(seconds, "What is approved is sent", "sends nothing and recalls nothing")
        changed = desk.send_approved()
        later = _approved(desk)
        if not changed and not ui.wants_json():
            click.echo("Nothing is approved and due." if later else "Nothing is approved.")
        for id, state, left in later:
            why = f" ({state.held})" if state.held else ""
            ui.say(f"The letter {id} may be sent in {duration(left)}{why}.")
        _report(desk, changed)


def _approved(desk: Desk) -> list[tuple[str, life.Approved, float]]:
    """Return id, state and seconds left of each letter that is approved and waits."""
    return [
        (letter.id, letter.state, desk.dispatcher.due_in(letter.state))
        for letter in desk.reader.lists.summaries("approved")
        if isinstance(letter.state, life.Approved)
    ]


def _summary_rows(summary: LetterSummary, now: Stamp) -> Iterator[str]:
    age = duration(max(1, elapsed(summary.created, now)))
    match summary.state:
        case life.Approved(held=about) | life.Unknown(why=about) | life.Rejected(reason=about) | life.Failed(reason=about):  # fmt: skip
            pass
        case life.Sent(at=at):
            about = f"sent {ui.short_date(at.wall)}"
        case _:
            about = summary.warning
    mark = click.style(MARKS[summary.level], fg=COLOURS[summary.level], bold=True)
    head = f"{mark} {click.style(summary.id, fg='cyan')}"
    yield ui.table_row(head, ui.fit(summary.recipients, 26), last=summary.subject or "(no subject)")
    author = LIST_AUTHORS.get(summary.agent, summary.agent)
    yield ui.table_row(" " * 12, last=f"{author}, {age} ago{f': {about}' if about else ''}")


def _summary_json(summary: LetterSummary) -> dict[str, Any]:
    return {
        "id": summary.id,
        "state": life.name(summary.state),
        "agent": summary.agent,
        "recipients": summary.recipients.split(", "),
        "subject": summary.subject,
        "level": summary.level,
        "warning": summary.warning,
        "created": summary.created.iso,
    }


def _history(states: Sequence[life.State], when: Callable[[Stamp], str]) -> list[str]:
    before = (None, *states)
    return [life.describe_step(*step, when=when) for step in zip(states, before, strict=False)]


def _letter_json(desk: Desk, entry: Entry) -> dict[str, Any]:
    letter, history = entry.letter, desk.reader.letters.past_states(entry.id)
    people = ("to", "cc", "bcc", "reply_to")
    return {
        "id": entry.id,
        "state": entry.kind,
        "description": life.describe(entry.state, id=entry.id),
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
        "history": _history(history, lambda stamp: stamp.iso),
    }
