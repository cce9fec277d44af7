"""Mail in the terminal: `import`, `search`, `read`, `thread`, `undo-moves`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom import wiring
from postroom.cli import ui
from postroom.cli.main import HELP
from postroom.config.settings import Config
from postroom.core.errors import Invalid, NotFound, PostroomError
from postroom.core.message import DRAFT, SENT, SYSTEM_LABELS, UNREAD, Mail, Message, Party, Summary
from postroom.core.stamp import Stamp
from postroom.core.text import clean, one_line

if TYPE_CHECKING:
    from postroom.core.records import LabelChange
    from postroom.desk.desk import Desk
    from postroom.mail.mailbox import Mailbox

MOST_REFUSALS = 5  # mails that were not read, by name
MOST_MOVES = 50  # moves in a list
ID_COLUMNS = 13  # of an id of the embedded mailbox
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
    config = ui.settings()
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


@click.command("search", help=HELP["search"], cls=SearchCommand)
@click.argument("query", nargs=-1)
@click.option("--limit", metavar="N", type=click.IntRange(1, 100), default=20, show_default=True, help="How many mails at most.")  # fmt: skip
@click.option("--cursor", default="", metavar="CURSOR", help="Go on where an earlier answer ended.")
@ui.account_option
@ui.json_option
def search_command(query: tuple[str, ...], limit: int, cursor: str, account: str | None) -> None:
    from postroom.core.language import parse
    from postroom.mail.mailbox import SearchPage

    text = " ".join(query).strip()
    config = ui.settings()
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
    messages = [
        _common_json(item, item) | {"snippet": item.snippet, "attachments": item.attachments}
        for item in page.items
    ]
    rows = [row for item in page.items for row in _summary_rows(item)]
    values = {"messages": messages, "cursor": page.cursor, "notes": page.notes}
    ui.output(values, rows, *hints)


@click.command("read", help=HELP["read"])
@click.argument("id")
@click.option("--quotes", is_flag=True, help="Show quoted history too.")
@click.option("--raw", is_flag=True, help="Write the bytes of the mail as they came.")
@click.option("--part", metavar="PART", help="Write the bytes of this attachment.")
@ui.account_option
@ui.json_option
def read_command(id: str, quotes: bool, raw: bool, part: str | None, account: str | None) -> None:
    if (raw or part) and (ui.wants_json() or (raw and part)):
        raise Invalid("--raw, --part and --json exclude each other", remedy="Give one of them.")
    with _open_mailbox(account) as box:
        if raw or part:
            for piece in box.attachment(id, part).pieces if part else [box.raw(id)]:
                sys.stdout.buffer.write(piece)
            return
        message = box.message(id)
    ui.output(_mail_json(message), _mail_lines(message, quotes=quotes))


@click.command("thread", help=HELP["thread"])
@click.argument("id")
@click.option("--quotes", is_flag=True, help="Show quoted history too.")
@ui.account_option
@ui.json_option
def thread_command(id: str, quotes: bool, account: str | None) -> None:
    with _open_mailbox(account) as box:
        thread = box.thread(id)
    rows = []
    for at, message in enumerate(thread.messages, 1):
        rule = f"── {at} of {len(thread.messages)} "
        rows.append(click.style(rule + "─" * (ui.width() - len(rule) - 1), dim=True))
        rows += [*_mail_lines(message, quotes=quotes), ""]
    messages = [_mail_json(message) for message in thread.messages]
    ui.output({"id": thread.id, "subject": thread.subject, "messages": messages}, rows)


@ui.personal
@click.command("import", help=HELP["import"])
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@ui.account_option
@ui.json_option
def import_command(paths: tuple[str, ...], account: str | None) -> None:
    from postroom.mail import files

    if "" in paths:
        raise Invalid("One of the paths is empty", remedy="Name a file or folder; `.` is this one.")
    sources = [source for path in paths for source in files.sources(Path(path))]
    others = sum(source.kind == "other" for source in sources)
    report = files.ImportReport()
    config = ui.settings()
    known = wiring.local_mailbox(config, account)
    box = known or wiring.local_mailbox(config, account, make=True)
    assert box is not None
    total = sum(source.size for source in sources)
    with closing(box), _progress(total) as on_progress:
        files.load(box.add_batches, sources, report, on_progress)
    refused = report.refused
    counts = f"{report.added:,} new, {report.known:,} already here, {len(refused):,} not read"
    values = {"added": report.added, "known": report.known, "others": others, "refused": refused}
    hints = [f"  {reason}" for reason in refused[:MOST_REFUSALS]]
    if len(refused) > MOST_REFUSALS:
        hints.append(f"  and {len(refused) - MOST_REFUSALS:,} more; --json lists all")
    if known is None and config.state is None and config.source("vault.path") == "default":
        hints.append(
            f"The mailbox belongs to the vault {config.vault.path}; search from here, or set VAULT_PATH."
        )
    ui.output(values, [f"{counts}, {others:,} other files passed over."], *hints)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    if ui.wants_json() or not sys.stderr.isatty():
        yield lambda _bytes: None
        return
    with click.progressbar(length=total, label="Importing", file=sys.stderr, width=0) as bar:
        yield bar.update


@ui.personal
@click.command("undo-moves", help=HELP["undo-moves"])
@click.argument("numbers", nargs=-1, type=int, metavar="[NUMBER]...")
@click.option("--all", "every", is_flag=True, help="Undo all of them.")
@click.option("--agent", metavar="NAME", help="Only those of this agent.")
@ui.json_option
def undo_moves_command(numbers: tuple[int, ...], every: bool, agent: str | None) -> None:
    from postroom.services.services import Services
    from postroom.wiring.desk import find_desk

    if numbers and every:
        raise Invalid("NUMBER and --all exclude each other", remedy="Give one of them.")
    with find_desk(wiring.settings()) as desk:
        known = desk.reader.label_changes.newest() if desk else []
        moves = [move for move in known if agent is None or move.agent == agent]
        chosen = [move for move in moves if every or move.number in numbers]
        if unknown := set(numbers) - {move.number for move in moves}:
            problem = f"There is no move {min(unknown)} to undo"
            raise NotFound(problem, remedy="`postroom undo-moves` lists what there is.")
        if desk is None or not chosen:
            _list_moves(desk, moves)
            return
        undone = []
        for move in sorted(chosen, key=lambda move: -move.number):
            try:
                Services(desk).mailbox.undo(move)
            except NotFound as gone:
                ui.say(f"Move {move.number}: {gone.message}.")
            else:
                undone.append(move.number)
        desk.flush_log()
    ui.output({"undone": undone}, [f"Undone: {', '.join(map(str, undone)) or 'none'}."])


def _list_moves(desk: Desk | None, moves: list[LabelChange]) -> None:
    values = [_move_json(move, desk) for move in moves[:MOST_MOVES]] if desk else []
    rows = []
    for move in values:
        signed = [f"+{label}" for label in move["added"]] + [f"-{label}" for label in move["removed"]]  # fmt: skip
        head = f"{move['number']:>5}", move["at"], ui.fit(move["agent"], 16)
        subject = ui.table_row(" " * 5, last=move["subject"] or "(gone)")
        rows += [ui.table_row(*head, last=" ".join(signed)), click.style(subject, dim=True)]
    hint = "Nothing to undo: agents have moved and labelled no mail, or you have undone all of it."
    if values:
        hint = "Undo one with `postroom undo-moves NUMBER`, all with --all."
    if more := len(moves) - len(values):
        hint += f" {more} older ones are not shown."
    ui.output({"moves": values}, rows, hint)


def _move_json(move: LabelChange, desk: Desk) -> dict[str, Any]:
    from postroom.services.services import Services

    try:
        subject = Services(desk).mailbox.box(move.account).message(move.message).mail.subject
    except PostroomError:
        subject = ""
    return {
        "number": move.number,
        "at": ui.short_date(move.at),
        "agent": move.agent,
        "account": move.account,
        "message": move.message,
        "subject": subject,
        "added": sorted(move.added),
        "removed": sorted(move.removed),
    }


def _mail_lines(message: Message, *, quotes: bool) -> Iterator[str]:
    from postroom.core.mail_view import split_quoted

    mail = message.mail
    people = [("From", [mail.sender] if mail.sender else []), ("To", mail.to)]
    people += [("Cc", mail.cc), ("Bcc", mail.bcc)]
    yield from ui.envelope(people, mail.subject)
    yield ui.field_name("Date") + ui.short_date(message.date)
    own = sorted(message.labels - SYSTEM_LABELS)
    yield from ui.field_list("Labels", [*own, *sorted(message.labels & SYSTEM_LABELS)] or ["none"])
    yield f"{ui.field_name('Id')}{message.id}   thread {message.thread}"
    for attachment in mail.attachments:
        kind = f"{attachment.type}, {ui.size(attachment.size)}, part {attachment.part}"
        yield f"{ui.field_name('File')}{one_line(attachment.name)} ({kind})"
    yield ""
    fresh, quoted = split_quoted(mail.text)
    yield from ui.wrapped(clean(mail.text if quotes else fresh).text.strip("\n") or "(no text)")
    if quoted.strip() and not quotes:
        count = len(quoted.strip().split("\n"))
        yield click.style(f"\n[{count} quoted lines left out; --quotes shows them]", dim=True)
    if mail.hidden:
        yield click.style(f"\n[{mail.hidden} hidden characters removed]", fg="yellow")
    for sentence in mail.damage:
        yield click.style(f"[{one_line(sentence)}]", fg="yellow")


def _summary_rows(summary: Summary) -> Iterator[str]:
    unread = UNREAD in summary.labels
    head = f"{'*' if unread else ' '} {ui.short_date(summary.date)}"
    is_outgoing = not summary.labels.isdisjoint((SENT, DRAFT))
    people = summary.to if is_outgoing else (summary.sender,)
    shown = ", ".join(one_line(party.shown) for party in people) or "(nobody)"
    other = ui.fit(f"To: {shown}" if is_outgoing else shown, 20)
    files = f"[{summary.attachments}] " if summary.attachments else ""
    subject = one_line(summary.subject) or "(no subject)"
    yield click.style(ui.table_row(head, other, last=files + subject), bold=unread)
    id = click.style(f"  {summary.id:<{ID_COLUMNS}}  ", fg="cyan")
    columns = ui.width() - ID_COLUMNS - 7
    yield id + ui.GAP + click.style(ui.fit(summary.snippet, columns).rstrip(), dim=True)


def _common_json(message: Message | Summary, head: Mail | Summary) -> dict[str, Any]:
    return {
        "id": message.id,
        "thread": message.thread,
        "date": Stamp(message.date).iso,
        "from": _party_json(head.sender),
        "to": [_party_json(party) for party in head.to],
        "subject": head.subject,
        "labels": sorted(message.labels),
        "unread": UNREAD in message.labels,
        "size": message.size,
        "message_id": head.message_id,
    }


def _mail_json(message: Message) -> dict[str, Any]:
    from postroom.core.mail_view import split_quoted

    mail = message.mail
    fresh, quoted = split_quoted(mail.text)
    people = ("cc", "bcc", "reply_to")
    files = ("part", "name", "type", "size", "inline")
    return _common_json(message, mail) | {
        **{name: [_party_json(party) for party in getattr(mail, name)] for name in people},
        "text": fresh,
        "quoted": quoted,
        "attachments": [{name: getattr(a, name) for name in files} for a in mail.attachments],
        "references": list(mail.references),
        "hidden_characters": mail.hidden,
        "damage": list(mail.damage),
    }


def _party_json(party: Party | None) -> dict[str, str]:
    return {"name": party.name, "address": party.address} if party else {"name": "", "address": ""}
