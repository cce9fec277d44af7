"""Mail in the terminal: `import`, `search`, `read`, `thread`, `undo-moves`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom import wiring
from postroom.cli.command import account_option, json_option, output, settings, wants_json
from postroom.cli.printing import (
    fit,
    mail_json,
    mail_lines,
    mail_rows,
    mail_summary_json,
    say,
    short_date,
    table_row,
    width,
)
from postroom.core.errors import Invalid, NotFound, PostroomError

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.core.records import LabelChange
    from postroom.desk.desk import Desk
    from postroom.mail.mailbox import Mailbox

MOST_REFUSALS = 5  # mails that were not read, by name
MOST_MOVES = 50  # moves in a list
FIRST_STEPS = (
    "Run `postroom import PATH`, or `postroom demo` to try it with sample mail. If your mail is in"
    " another vault, set VAULT_PATH, or path under [vault] in your settings. If it is at Gmail,"
    ' write provider = "gmail" at the top of them, and run `postroom auth gmail`.'
)


def _no_mail(config: Config, account: str | None) -> str:
    place = config.state or config.vault.path
    return f"There is no mail of the account {config.account(account).name} at {place}."


@contextmanager
def _open_mailbox(account: str | None) -> Iterator[Mailbox]:
    config = settings()
    box = wiring.mailbox(config, account)
    if box is None:
        raise NotFound(_no_mail(config, account), remedy=FIRST_STEPS)
    with closing(box):
        yield box


class SearchCommand(click.Command):
    """A command whose arguments may start with a minus, as `-from:amy` does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take a single minus as the query's, unless it is an option of the command."""
        known = {"-h", *(option for parameter in self.params for option in parameter.opts)}
        escaped = [
            f" {arg}" if arg[:1] == "-" and arg[:2] != "--" and arg not in known else arg
            for arg in args
        ]
        return super().parse_args(ctx, escaped)


@click.command("search", cls=SearchCommand)
@click.argument("query", nargs=-1)
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="How many mails at most.",
)
@click.option("--cursor", default="", metavar="CURSOR", help="Go on where an earlier answer ended.")
@account_option
@json_option
def search_command(query: tuple[str, ...], limit: int, cursor: str, account: str | None) -> None:
    """Search mail, newest first, in Gmail's search language.

    \b
    postroom search from:ann invoice
    postroom search 'is:unread in:inbox newer_than:7d'
    postroom search 'subject:(dinner OR lunch) -label:work has:attachment'

    Put the query in single quotes if it contains brackets, quotes or spaces that matter: the shell
    would interpret them. `*` marks unread mail, `[2]` counts attachments. docs/search.md describes
    the whole language.
    """
    from postroom.core.language import parse
    from postroom.mail.mailbox import SearchPage

    text = " ".join(query).strip()
    config = settings()
    box = wiring.mailbox(config, account)
    if box is None:
        parse(text)
        page = SearchPage((), notes=(_no_mail(config, account), FIRST_STEPS))
    else:
        with closing(box):
            page = box.search(text, limit=limit, cursor=cursor)
    hints = list(page.notes)
    if box is not None and not page.items:
        hints.insert(0, f"No mail matches: {text}" if text else "The mailbox is empty.")
    if page.cursor:
        hints.append(f"There are more: add --cursor {page.cursor}")
    messages = [mail_summary_json(item) for item in page.items]
    rows = [row for item in page.items for row in mail_rows(item)]
    values = {"messages": messages, "cursor": page.cursor, "notes": list(page.notes)}
    output(values, rows, *hints)


@click.command("read")
@click.argument("id")
@click.option("--quotes", is_flag=True, help="Show quoted history too.")
@click.option("--raw", is_flag=True, help="Write the bytes of the mail as they came.")
@click.option("--part", metavar="PART", help="Write the bytes of this attachment.")
@account_option
@json_option
def read_command(id: str, quotes: bool, raw: bool, part: str | None, account: str | None) -> None:
    """Show one mail.

    ID is the one that `postroom search` prints. Text is shown as a reader of the mail would see
    it: hidden parts and control characters are removed and counted. `--part 2 > FILE` saves the
    attachment that is listed as part 2.
    """
    if (raw or part) and (wants_json() or (raw and part)):
        raise Invalid("--raw, --part and --json exclude each other", remedy="Give one of them.")
    with _open_mailbox(account) as box:
        if raw or part:
            for piece in box.attachment(id, part).pieces if part else [box.raw(id)]:
                sys.stdout.buffer.write(piece)
            return
        message = box.message(id)
    output(mail_json(message), mail_lines(message, quotes=quotes))


@click.command("thread")
@click.argument("id")
@click.option("--quotes", is_flag=True, help="Show quoted history too.")
@account_option
@json_option
def thread_command(id: str, quotes: bool, account: str | None) -> None:
    """Show a whole conversation, oldest mail first.

    ID is that of the thread, or of any mail in it.
    """
    with _open_mailbox(account) as box:
        thread = box.thread(id)
    rows = []
    for at, message in enumerate(thread.messages, 1):
        rule = f"── {at} of {len(thread.messages)} "
        rows.append(click.style(rule + "─" * (width() - len(rule) - 1), dim=True))
        rows += [*mail_lines(message, quotes=quotes), ""]
    messages = [mail_json(message) for message in thread.messages]
    output({"id": thread.id, "subject": thread.subject, "messages": messages}, rows)


@click.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@account_option
@json_option
def import_command(paths: tuple[str, ...], account: str | None) -> None:
    """Import mail from mbox, Maildir or .eml files.

    PATH is such a file or folder, or a folder of them. Mail that was imported before is left as it
    is, so you can run an interrupted import again. Flags decide what is read, starred, a draft or in
    the trash; labels come from Maildir folders and from Gmail's export.
    """
    from postroom.mail import files

    if "" in paths:
        raise Invalid("One of the paths is empty", remedy="Name a file or folder; `.` is this one.")
    sources = [source for path in paths for source in files.sources(Path(path))]
    others = sum(source.kind == "other" for source in sources)
    report = files.ImportReport()
    config = settings()
    known = wiring.local_mailbox(config, account)
    box = known or wiring.local_mailbox(config, account, make=True)
    assert box is not None
    total = sum(source.size for source in sources)
    with closing(box), _progress(total) as on_progress:
        files.load(box, sources, report, on_progress)
    refused = report.refused
    counts = f"{report.added:,} new, {report.known:,} already here, {len(refused):,} not read"
    values = {"added": report.added, "known": report.known, "others": others, "refused": refused}
    output(values, [f"{counts}, {others:,} other files passed over."])
    if wants_json():
        return
    for reason in refused[:MOST_REFUSALS]:
        click.echo(f"  {reason}", err=True)
    if len(refused) > MOST_REFUSALS:
        click.echo(f"  and {len(refused) - MOST_REFUSALS:,} more; --json lists all", err=True)
    if known is None and config.state is None and config.source("vault.path") == "default":
        vault = config.vault.path
        say(f"The mailbox belongs to the vault {vault}; search from here, or set VAULT_PATH.")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, and nothing elsewhere."""
    if wants_json() or not sys.stderr.isatty():
        yield lambda _bytes: None
        return
    with click.progressbar(length=total, label="Importing", file=sys.stderr, width=0) as bar:
        yield bar.update


@click.command("undo-moves")
@click.argument("numbers", nargs=-1, type=int, metavar="[NUMBER]...")
@click.option("--all", "every", is_flag=True, help="Undo all of them.")
@click.option("--agent", metavar="NAME", help="Only those of this agent.")
@json_option
def undo_moves_command(numbers: tuple[int, ...], every: bool, agent: str | None) -> None:
    """List how agents have moved and labelled mail, and undo it.

    Without a NUMBER it lists, newest first, and changes nothing. The newest is undone first, so
    that the labels are as they were.
    """
    from postroom.services.mailbox import find_move
    from postroom.services.services import Services
    from postroom.wiring.desk import find_desk

    if numbers and every:
        raise Invalid("NUMBER and --all exclude each other", remedy="Give one of them.")
    with find_desk(wiring.settings()) as desk:
        known = desk.reader.label_changes.newest(-1) if desk else []
        moves = [move for move in known if agent is None or move.agent == agent]
        chosen = moves if every else [find_move(moves, number) for number in numbers]
        if desk is None or not chosen:
            _list_moves(desk, moves)
            return
        undone = []
        for move in sorted(chosen, key=lambda move: -move.number):
            try:
                Services(desk).mailbox.undo(move)
            except NotFound as gone:
                say(f"Move {move.number}: {gone.message}.")
            else:
                undone.append(move.number)
        desk.flush_log()
    output({"undone": undone}, [f"Undone: {', '.join(map(str, undone)) or 'none'}."])


def _list_moves(desk: Desk | None, moves: list[LabelChange]) -> None:
    values = [_move_json(move, desk) for move in moves[:MOST_MOVES]] if desk else []
    rows = []
    for move in values:
        signed = [f"+{label}" for label in move["added"]]
        signed += [f"-{label}" for label in move["removed"]]
        head = f"{move['number']:>5}", move["at"], fit(move["agent"], 16)
        rows.append(table_row(*head, last=" ".join(signed)))
        subject = table_row(" " * 5, last=move["subject"] or "(gone)")
        rows.append(click.style(subject, dim=True))
    more = len(moves) - len(values)
    hint = "Nothing to undo: agents have moved and labelled no mail, or you have undone all of it."
    if values:
        hint = "Undo one with `postroom undo-moves NUMBER`, all with --all."
        hint += f" {more} older ones are not shown." if more else ""
    output({"moves": values}, rows, hint)


def _move_json(move: LabelChange, desk: Desk) -> dict[str, Any]:
    from postroom.services.services import Services

    try:
        box = Services(desk).mailbox.box(move.account)
        subject = box.message(move.message).mail.subject
    except PostroomError:
        subject = ""
    return {
        "number": move.number,
        "at": short_date(move.at),
        "agent": move.agent,
        "account": move.account,
        "message": move.message,
        "subject": subject,
        "added": sorted(move.added),
        "removed": sorted(move.removed),
    }
