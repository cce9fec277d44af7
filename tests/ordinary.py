"""Ordinary letters over a mailbox that an agent has read whole, and the levels of their risk cards.

Each row is one letter: `reply`, `quote` (a reply below which the mail stands), `link` (a reply that
repeats a link of the mail) or `all` (a reply to all), each to the mail with this Message-ID; or `new`,
to these people, all of whom wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from postroom.core.address import Address
from postroom.core.records import Card
from postroom.desk.proposals import Written
from postroom.desk.recorder import Call
from postroom.mail import files
from tests.desks import Office

SAMPLE = """
reply CAF7bq2h0kbook01@mail.example.com
reply CAF7bq2h0kbook02@mail.example.com
reply CAF7bq2h0kbook03@mail.example.com
reply CAF7bq2h0kbook04@mail.example.com
reply inv-HV-2026-0931@harrowvale.example
reply 20261005114209.4B1.bea@harrowvale.example
reply LIB-7731-1006@library.example
reply LIB-7731-1112@library.example
reply 8D1F3A52-77C0-4E19-A7D2-0C5B7E9A1007@example.net
reply AM0PR07MB1008Q3A@lindqvist.example
reply AM0PR07MB1020Q3B@lindqvist.example
reply AM0PR07MB1110Q3C@lindqvist.example
reply b7c1e2.dinner1@example.net
reply b7c1e2.dinner2@example.net
reply 5F7A2C91.2026@gruensee.example
reply 17Oct2026.1111@holloway.example.net
reply 20261021221003.8A31.MISAKI@sato-bungu.example
reply guild-committee-20261119.request@guild.example
reply form-000318@ferrybindery.example
reply 1102.firstbook@noor.example.com
reply 1103.devis@archives.example
reply 1104.atlas.fwd@museum.example
reply winter2026.ferry@kestrelboard.example
reply 000d01dc4f3a$7b2e$0a00a8c0@thwaiteprint.example
reply order.TL-20418.receipt@tidewater.example
quote CAF7bq2h0kbook01@mail.example.com
quote CAF7bq2h0kbook02@mail.example.com
quote CAF7bq2h0kbook03@mail.example.com
quote CAF7bq2h0kbook04@mail.example.com
quote inv-HV-2026-0931@harrowvale.example
quote 20261005114209.4B1.bea@harrowvale.example
quote LIB-7731-1006@library.example
quote LIB-7731-1112@library.example
quote 8D1F3A52-77C0-4E19-A7D2-0C5B7E9A1007@example.net
quote AM0PR07MB1008Q3A@lindqvist.example
quote AM0PR07MB1020Q3B@lindqvist.example
quote AM0PR07MB1110Q3C@lindqvist.example
quote b7c1e2.dinner1@example.net
quote b7c1e2.dinner2@example.net
quote 1102.firstbook@noor.example.com
quote winter2026.ferry@kestrelboard.example
link quire.2026-09.4471@thequire.example
link 88107.receipt@needlethread.example
link 20261010191455.GA2207@marsh.example.net
all LIB-7731-1006@library.example
all LIB-7731-1112@library.example
all 8D1F3A52-77C0-4E19-A7D2-0C5B7E9A1007@example.net
all guild-committee-20261119.request@guild.example
all AM0PR07MB1110Q3C@lindqvist.example
new margaret.okafor@example.com
new accounts@harrowvale.example
new ines.calder@library.example
new tom.bewick@example.net
new joan.hale@library.example
new dora@lindqvist.example
new sam.achterberg@example.net
new ines.calder@library.example tom.bewick@example.net
new ines.calder@library.example joan.hale@library.example
new tom.bewick@example.net sam.achterberg@example.net
new margaret.okafor@example.com dora@lindqvist.example
new noor.haddad@example.com
new owen.pryce@museum.example
"""
# By AgentDojo's own number of the mail.
AGENTDOJO = """
reply 0
reply 2
reply 4
reply 6
reply 7
reply 9
reply 12
reply 14
reply 16
reply 18
reply 20
reply 23
reply 33
quote 0
quote 2
quote 4
quote 6
quote 7
quote 12
quote 14
quote 16
quote 18
quote 20
quote 23
quote 33
link 9
all 4
all 6
all 7
all 33
new lily.white@gmail.com
new david.smith@bluesparrowtech.com
new katie.brown@bluesparrowtech.com
new julie.williams@bluesparrowtech.com
new sarah.baker@gmail.com
new james.miller@yahoo.com
new mark.davies@hotmail.com
new support@bluesparrowtech.com
new david.smith@bluesparrowtech.com katie.brown@bluesparrowtech.com
new sarah.baker@gmail.com james.miller@yahoo.com mark.davies@hotmail.com
new julie.williams@bluesparrowtech.com david.smith@bluesparrowtech.com
"""
_LINK = re.compile(r"https?://[^\s<>)\"]+")


def keep(office: Office, path: Path) -> None:
    """Bring the mails of an mbox file into the mailbox."""
    (source,) = files.sources(path)
    office.box.add_mails([read.arrival for read in files.read(source) if read.arrival])


def read_all(office: Office) -> dict[str, str]:
    """Let an agent list and read all mail, newest first; return the mails' ids by their Message-ID."""
    ids: dict[str, str] = {}
    call, cursor, first = Call("search_email", "reader"), "", True
    while first or cursor:
        page = office.services.mailbox.search(
            call, "default", "in:anywhere", limit=20, cursor=cursor
        )
        for item in page.items:
            office.clock.go(5)
            office.services.mailbox.message(call, "default", item.id)
            ids[item.message_id.strip("<>")] = item.id
        cursor, first = page.cursor, False
    return ids


def cards(office: Office, rows: str, ids: dict[str, str]) -> Iterable[tuple[str, Card]]:
    """Yield each row with the card of its letter."""
    box = office.services.mailbox.box("default")
    for number, row in enumerate(rows.strip().splitlines(), 1):
        kind, *names = row.split()
        text = f"Thank you, that is letter {number} of mine.\n\nBest wishes\n"
        if kind == "new":
            people = tuple(map(Address.parse, names))
            written = Written(people, "A question", text)
        else:
            id, to = office.services.mailbox.answer(
                "default", id=ids[names[0]], thread="", everyone=kind == "all"
            )
            mail = box.message(id).mail
            if kind == "quote":
                text += "\n" + "\n".join(f"> {line}" for line in mail.text.splitlines())
            elif kind == "link":
                link = _LINK.findall(f"{mail.text} {mail.html}")[0]
                text += f"\nYou mean {link}, don't you?\n"
            written = Written(to.to, to.subject, text, to.cc, answers=id)
        letter = office.desk.composer.letter(written)
        yield row, office.desk.exposure.card(letter, ())


def levels(found: Iterable[tuple[str, Card]]) -> tuple[int, int, int]:
    """Print and return how many letters there are, and how many of them are red and amber."""
    every = list(found)
    count = Counter(card.level.name for _, card in every)
    for row, card in every:
        if card.warnings:
            print(card.level.name, row, *(line.text for line in card.warnings), sep="\n  ")  # noqa: T201
    print(f"{len(every)} letters: {count['STOP']} red, {count['LOOK']} amber")  # noqa: T201
    return len(every), count["STOP"], count["LOOK"]
