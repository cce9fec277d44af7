"""Mail in the terminal: `import`, `search`, `read`, `thread`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom import wiring
from postroom.cli import printing
from postroom.cli.printing import say
from postroom.core.errors import Invalid, NotFound
from postroom.core.language import parse
from postroom.core.message import SYSTEM_LABELS, UNREAD, Message, Party, Summary
from postroom.core.stamp import Stamp
from postroom.core.text import clean, one_line
from postroom.mail.mailbox import SearchPage

if TYPE_CHECKING:
    from postroom.config import Config
    from postroom.mail.mailbox import Mailbox

SHOWN_REFUSALS = 5
HEAD_WIDTH = 42  # unread mark, date, sender
ID_WIDTH = 13  # of an id of the embedded mailbox
FIRST_STEPS = (
    "Run `postroom import PATH`, or `postroom demo` to try it with sample mail. If your mail is in"
    " another vault, set VAULT_PATH, or path under [vault] in your settings. If it is at Gmail,"
    ' write provider = "gmail" at the top of them, and run `postroom auth gmail`.'
)

_account = click.option("--account", metavar="NAME", help="The account, where there are several.")


def _empty(config: Config, account: str | None) -> str:
    place = config.state or config.vault.path
    return f"There is no mail of the account {config.account(account).name} at {place}."


@contextmanager
def _opened(account: str | None) -> Iterator[Mailbox]:
    config = printing.settings()
    found = wiring.mailbox(config, account)
    if found is None:
        raise NotFound(_empty(config, account), remedy=FIRST_STEPS)
    with closing(found):
        yield found


class Search(click.Command):
    """A command whose arguments may start with a minus, as `-from:amy` does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take a single minus for the query's, unless it is an option of ours."""
        known = {"-h", *(option for parameter in self.params for option in parameter.opts)}
        negations = [
            f" {arg}" if arg[:1] == "-" and arg[:2] != "--" and arg not in known else arg
            for arg in args
        ]
        return super().parse_args(ctx, negations)


@click.command("search", cls=Search)
@click.argument("query", nargs=-1)
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="How many mails at most.",
)
@click.option("--cursor", default="", metavar="CURSOR", help="Go on where an earlier answer ended.")
@_account
@printing.json_option
def search_command(
    query: tuple[str, ...], limit: int, cursor: str, account: str | None, as_json: bool
) -> None:
    """Search mail, newest first, in Gmail's search language.

    \b
    postroom search from:ann invoice
    postroom search 'is:unread in:inbox newer_than:7d'
    postroom search 'subject:(dinner OR lunch) -label:work has:attachment'

    Put the query in single quotes where it holds brackets, quotes or spaces that matter: the shell
    would take them. `*` marks unread mail, `[2]` counts attachments. docs/search.md has the whole
    language.
    """
    text = " ".join(query).strip()
    config = printing.settings()
    box = wiring.mailbox(config, account)
    if box is None:
        parse(text)
        page = SearchPage((), notes=(_empty(config, account), FIRST_STEPS))
    else:
        with closing(box):
            page = box.search(text, limit=limit, cursor=cursor)
    if as_json:
        messages = [_summary_json(item) for item in page.items]
        printing.print_json(
            {"messages": messages, "cursor": page.cursor, "notes": list(page.notes)}
        )
        return
    for item in page.items:
        for row in _summary_lines(item):
            click.echo(row)
    if box is not None and not page.items:
        say(f"No mail matches: {text}" if text else "The mailbox is empty.")
    for note in page.notes:
        say(note)
    if page.cursor:
        say(f"There are more: add --cursor {page.cursor}")


@click.command("read")
@click.argument("id")
@click.option("--quotes", is_flag=True, help="Show quoted history too.")
@click.option("--raw", is_flag=True, help="Write the bytes of the mail as they came.")
@click.option("--part", metavar="PART", help="Write the bytes of this attachment.")
@_account
@printing.json_option
def read_command(
    id: str, quotes: bool, raw: bool, part: str | None, account: str | None, as_json: bool
) -> None:
    """Show one mail.

    ID is the one that `postroom search` prints. Text is shown as a reader of the mail would see
    it: hidden parts and control characters are taken out and counted. `--part 2 > FILE` saves the
    attachment that is listed as part 2.
    """
    if (raw or part) and (as_json or (raw and part)):
        raise Invalid("--raw, --part and --json exclude each other", remedy="Give one of them.")
    with _opened(account) as box:
        if raw or part:
            for piece in box.attachment(id, part).pieces if part else [box.raw(id)]:
                sys.stdout.buffer.write(piece)
            return
        message = box.message(id)
    if as_json:
        printing.print_json(_message_json(message))
        return
    for row in _message_lines(message, quotes=quotes):
        click.echo(row)


@click.command("thread")
@click.argument("id")
@click.option("--quotes", is_flag=True, help="Show quoted history too.")
@_account
@printing.json_option
def thread_command(id: str, quotes: bool, account: str | None, as_json: bool) -> None:
    """Show a whole conversation, oldest mail first.

    ID is that of the thread, or of any mail in it.
    """
    with _opened(account) as box:
        found = box.thread(id)
    if as_json:
        messages = [_message_json(message) for message in found.messages]
        printing.print_json({"id": found.id, "subject": found.subject, "messages": messages})
        return
    for at, message in enumerate(found.messages, 1):
        rule = f"── {at} of {len(found.messages)} "
        click.echo(click.style(rule + "─" * (printing.width() - len(rule) - 1), dim=True))
        for row in _message_lines(message, quotes=quotes):
            click.echo(row)
        click.echo()


@click.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@_account
@printing.json_option
def import_command(paths: tuple[str, ...], account: str | None, as_json: bool) -> None:
    """Import mail from mbox, Maildir or .eml files.

    PATH is such a file or folder, or a folder of them. Mail that is there already is left as it is,
    so an import that was stopped goes on when it is run again. Flags decide what is read, starred,
    a draft or in the trash; labels come from Maildir folders and from Gmail's export.
    """
    from postroom.mail import files

    if "" in paths:
        raise Invalid("One of the paths is empty", remedy="Name a file or folder; `.` is this one.")
    sources = [source for path in paths for source in files.sources(Path(path))]
    others = sum(source.kind == "other" for source in sources)
    report = files.Report()
    config = printing.settings()
    known = wiring.local_mailbox(config, account)
    box = known or wiring.local_mailbox(config, account, make=True)
    assert box is not None
    total = sum(source.size for source in sources)
    with closing(box), _progress(total, quiet=as_json) as on_progress:
        files.load(box, sources, report, on_progress)
    if as_json:
        counts = {"added": report.added, "known": report.known, "others": others}
        printing.print_json({**counts, "refused": report.refused})
        return
    kept = f"{report.added:,} new, {report.known:,} already here"
    click.echo(f"{kept}, {len(report.refused):,} not read, {others:,} other files passed over.")
    for reason in report.refused[:SHOWN_REFUSALS]:
        click.echo(f"  {reason}", err=True)
    if len(report.refused) > SHOWN_REFUSALS:
        click.echo(
            f"  and {len(report.refused) - SHOWN_REFUSALS:,} more; --json lists all", err=True
        )
    unnamed = config.source("vault.path") == "default"
    if known is None and config.state is None and unnamed:
        say(
            f"The mailbox belongs to the vault {config.vault.path}; search from here, or set VAULT_PATH."
        )


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show click's progress bar on a terminal, and nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda _bytes: None
        return
    with click.progressbar(length=total, label="Importing", file=sys.stderr, width=0) as bar:
        yield bar.update


# What is printed


def _summary_lines(summary: Summary) -> Iterator[str]:
    """Yield two lines: who, when and what; then how it begins."""
    columns = printing.width()
    unread = UNREAD in summary.labels
    who = one_line(summary.sender.shown) or "(nobody)"
    subject = one_line(summary.subject) or "(no subject)"
    about = f"[{summary.attachments}] {subject}" if summary.attachments else subject
    head = (
        f"{'*' if unread else ' '} {printing.short_date(summary.date)}  {printing.fit(who, 20)}  "
    )
    yield click.style((head + printing.fit(about, columns - HEAD_WIDTH - 1)).rstrip(), bold=unread)
    yield click.style(f"  {summary.id:<{ID_WIDTH}}    ", fg="cyan") + click.style(
        printing.fit(summary.snippet, columns - ID_WIDTH - 7).rstrip(), dim=True
    )


def _summary_json(summary: Summary) -> dict[str, Any]:
    """Return a line of a list as JSON has it."""
    return {
        "id": summary.id,
        "thread": summary.thread,
        "date": Stamp(summary.date).iso,
        "from": _party_json(summary.sender),
        "to": [_party_json(party) for party in summary.to],
        "subject": summary.subject,
        "snippet": summary.snippet,
        "labels": sorted(summary.labels),
        "unread": UNREAD in summary.labels,
        "attachments": summary.attachments,
        "size": summary.size,
        "message_id": summary.message_id,
    }


def _party_json(party: Party | None) -> dict[str, str]:
    """Return a person as JSON has them."""
    return {"name": party.name, "address": party.address} if party else {"name": "", "address": ""}


def _message_json(message: Message) -> dict[str, Any]:
    """Return a whole mail as JSON has it."""
    from postroom.core.quoting import split

    mail = message.mail
    fresh, quoted = split(mail.text)
    return {
        "id": message.id,
        "thread": message.thread,
        "date": Stamp(message.date).iso,
        "from": _party_json(mail.sender),
        "to": [_party_json(party) for party in mail.to],
        "cc": [_party_json(party) for party in mail.cc],
        "bcc": [_party_json(party) for party in mail.bcc],
        "reply_to": [_party_json(party) for party in mail.reply_to],
        "subject": mail.subject,
        "text": fresh,
        "quoted": quoted,
        "attachments": [
            {"part": a.part, "name": a.name, "type": a.type, "size": a.size, "inline": a.inline}
            for a in mail.attachments
        ],
        "labels": sorted(message.labels),
        "unread": UNREAD in message.labels,
        "size": message.size,
        "message_id": mail.message_id,
        "references": list(mail.references),
        "hidden_characters": mail.hidden,
        "damage": list(mail.damage),
    }


def _message_lines(message: Message, *, quotes: bool) -> Iterator[str]:
    """Yield a mail as a person reads it: its head, its text, its attachments, and what was amiss."""
    from postroom.core.quoting import split

    mail = message.mail
    people = [
        ("From", (mail.sender,) if mail.sender else ()),
        ("To", mail.to),
        ("Cc", mail.cc),
        ("Bcc", mail.bcc),
    ]
    for name, parties in people:
        if parties:
            yield from printing.listed(name, [one_line(str(party)) for party in parties])
    yield f"{printing.field('Date')}{printing.short_date(message.date)}"
    yield f"{printing.field('Subject')}{click.style(one_line(mail.subject) or '(no subject)', bold=True)}"
    own = sorted(message.labels - SYSTEM_LABELS)
    yield f"{printing.field('Labels')}{', '.join([*own, *sorted(message.labels & SYSTEM_LABELS)]) or 'none'}"
    yield f"{printing.field('Id')}{message.id}   thread {message.thread}"
    for attachment in mail.attachments:
        kind = f"{attachment.type}, {printing.size(attachment.size)}, part {attachment.part}"
        yield f"{printing.field('File')}{one_line(attachment.name)} ({kind})"
    yield ""
    fresh, quoted = split(mail.text)
    yield from printing.wrapped(
        clean(mail.text if quotes else fresh).text.strip("\n") or "(no text)"
    )
    if quoted.strip() and not quotes:
        count = len(quoted.strip().split("\n"))
        yield click.style(f"\n[{count} quoted lines left out; --quotes shows them]", dim=True)
    if mail.hidden:
        yield click.style(f"\n[{mail.hidden} hidden characters removed]", fg="yellow")
    for sentence in mail.damage:
        yield click.style(f"[{one_line(sentence)}]", fg="yellow")
