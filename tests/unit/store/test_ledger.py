"""The ledger's file, as older versions of Postroom left it."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from postroom.core.audit import Action, LogPosition
from postroom.core.records import DeskSettings, Exposure, LetterFilter, MailboxCursor, ShownMail
from postroom.core.stamp import Stamp
from postroom.store.database import Database
from postroom.store.ledger import MIGRATIONS, Ledger, SqliteLedger, kernel_claims
from postroom.store.sql.rows import marks
from tests.desks import database_of

NOW = Stamp(1_794_700_800.0, "boot", 100.0)


def test_what_was_spent_before_an_upgrade_stays_spent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with closing(Database(path, MIGRATIONS[:1])) as old, old.write() as connection:
        for age in (7200, 10):
            at = json.dumps(Stamp(NOW.wall - age, "boot", NOW.steady - age))
            connection.execute("INSERT INTO spent VALUES ('aaaaaaaaaa', ?, 3, 't')", [at])
    ledger = SqliteLedger(path, clock=lambda: NOW, draw=bytes)
    with closing(ledger), ledger.write() as tx:
        (claim,) = tx.budget.spent(NOW, 3600)
    assert claim == (Stamp(NOW.wall - 10, "boot", 90.0), 3, "t")


def test_what_agents_were_shown_before_an_upgrade_keeps_its_time_and_counts_as_text(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite"
    added = next(at for at, step in enumerate(MIGRATIONS) if "CREATE TABLE exposure" in step)
    with closing(Database(path, MIGRATIONS[:added])) as old, old.write() as connection:
        connection.executemany(
            "INSERT INTO token VALUES (?, ?, ?)",
            [
                ("ann@example.com", "mail 6ac3 from ann@example.com", NOW.wall - 20),
                ("bob@example.com", "mail 6ac3 from a file of it, report.pdf", NOW.wall - 10),
            ],
        )
        connection.execute("INSERT INTO contact VALUES ('default', 'example.org')")
    ledger = SqliteLedger(path, clock=lambda: NOW, draw=bytes)
    mail = Exposure("ann@example.com", "", 0.0, False, frozenset({""}))
    with closing(ledger):
        tokens = frozenset({"ann@example.com", "bob@example.com"})
        assert ledger.exposure.find(tokens, NOW.wall - 30) == dict.fromkeys(tokens, (mail,))
        assert list(ledger.exposure.find(tokens, NOW.wall - 15)) == ["bob@example.com"]
        assert ledger.exposure.correspondents("default") == (frozenset({"@example.org"}), "")


def test_the_first_mail_stays_first_while_it_is_shown_again(tmp_path: Path) -> None:
    now = [NOW.wall]
    ledger = SqliteLedger(tmp_path / "ledger.sqlite", clock=lambda: Stamp(now[0]), draw=bytes)

    def show(id: str, sender: str, part: str = "body") -> None:
        now[0] += 10
        with ledger.write() as tx:
            tx.exposure.record(ShownMail("a", id, sender, "x", 1.0, False), {part: {"t"}})

    def senders() -> list[str]:
        found = ledger.exposure.find(frozenset({"t"}), now[0] - 35).get("t", ())
        return [mail.sender for mail in found]

    with closing(ledger):
        show("1", "eve")
        show("2", "dora")
        show("1", "eve", "subject")
        show("1", "eve")
        assert senders() == ["eve", "dora"]
        first, second = ledger.exposure.find(frozenset({"t"}), 0)["t"]
        assert first.parts == {"body", "subject"}
        assert (first.mail, second.mail) == ("a 1", "a 2")
        now[0] += 20  # Dora's is older than Eve's by now
        assert senders() == ["eve"]
        with ledger.write() as tx:
            tx.exposure.forget_before(now[0] + 1)
        assert senders() == []


def test_what_a_person_wrote_before_others_quoted_it_came_from_the_person(tmp_path: Path) -> None:
    now = [NOW.wall]
    ledger = SqliteLedger(tmp_path / "ledger.sqlite", clock=lambda: Stamp(now[0]), draw=bytes)
    mails = [  # in the order in which they are shown: token, sender, age in days, in Sent
        ("quoted", "dora", 1, False),
        ("quoted", "you", 5, True),
        ("brought", "eve", 5, False),
        ("brought", "you", 1, True),
        ("postdated", "eve", -9, False),  # it claims to be written later than the answer to it
        ("postdated", "you", -1, True),
        ("at once", "eve", 3, False),
        ("at once", "you", 3, True),
    ]
    with closing(ledger):
        for number, (token, sender, days, sent) in enumerate(mails):
            now[0] += 2 * 86_400 if token == "postdated" and sent else 1
            mail = ShownMail("a", str(number), sender, "x", NOW.wall - days * 86_400, sent)
            with ledger.write() as tx:
                tx.exposure.record(mail, {"body": {token}})
        found = ledger.exposure.find(frozenset(row[0] for row in mails), 0)
    first = {token: exposures[0].sender for token, exposures in found.items()}
    assert first == {"quoted": "you", "brought": "eve", "postdated": "eve", "at once": "eve"}


def test_what_was_kept_under_keys_before_an_upgrade_has_its_column_or_table(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    steps = MIGRATIONS
    before = next(at for at, step in enumerate(steps) if "DROP TABLE meta" in step)
    kept = {
        "desk": "a" * 16, "id": "b" * 16, "machine": "m", "inode": "7", "room": "/Post",
        "passphrase": "scrypt$", "trust": "desk", "required": "true", "page": "http://x",
        "key": "00ff", "log": '[12, "2026-11-15.json", 340, 99]', "noted": "folder",
        "rejected": "1795014556927724333", "distrusted": "restored", "tool notes since": "1794700800.5",
        "once": "move 1", "note aaaaaaaaaa": "hash Pending_Approval/a b.md", "note mail d m1": "h2 Inbox/m.md",
        "orphan aaaaaaaaaa": '[[1.5, "boot", 2.5], null]', "kept slip 00aa": "Approved/s.md", "filed 00bb": "Done/s.md",
        "watch default": '["cursor 9", 1794700000]', "contacts.default": "m9",
        "before.aaaaaaaaaa": '"m1"', "fields aaaaaaaaaa": '{"priority": "urgent"}',
    }  # fmt: skip
    with closing(Database(path, steps[:before])) as old, old.write() as connection:
        connection.executemany("INSERT INTO meta VALUES (?, ?)", kept.items())
        connection.execute("INSERT INTO slip VALUES ('00bb', '[1.5, \"boot\", 2.5]', '')")
        connection.execute(
            "INSERT INTO letter VALUES (NULL, 'aaaaaaaaaa', 'claude', 'c', 't', 'd', ?, '[]',"
            " 'Ä@x.example', 'Ärger', '[]', 'Pending_Approval', 'note', '', '[1.5, \"boot\", 2.5]',"
            " 'pending', '{\"since\": [1.5, \"boot\", 2.5]}', 1)",
            ['{"text": "GRÜSSE"}'],
        )
        connection.execute(
            "INSERT INTO history VALUES ('aaaaaaaaaa', 1, 'approved',"
            ' \'{"verdict": ["nobody", "required = false", [3.5, "boot", 4.5], "d", "00bb"]}\')'
        )
    with closing(SqliteLedger(path, clock=lambda: NOW, draw=bytes)) as ledger:
        assert ledger.settings == DeskSettings(
            desk_id="a" * 16, ledger_id="b" * 16, machine="m", state_inode="7", room="/Post",
            passphrase="scrypt$", trust="desk", approval_required=True, page_address="http://x",
            seal_key="00ff", notes_trust="folder", rejected_changed=1795014556927724333,
            restored="restored", tool_notes_since=1794700800.5, last_finished="move 1",
        )  # fmt: skip
        assert ledger.actions.backlog().position == LogPosition(12, "2026-11-15.json", 340, 99)
        assert ledger.notes.status("aaaaaaaaaa")[1:] == ("Pending_Approval/a b.md", "hash")
        assert ledger.notes.status("mail d m1")[1:] == ("Inbox/m.md", "h2")
        assert ledger.proofs.orphans() == {"aaaaaaaaaa": (Stamp(1.5, "boot", 2.5), None)}
        assert (ledger.slips.is_trusted("00aa"), ledger.slips.is_filed("00bb")) == (True, True)
        assert ledger.inbox.cursor("default") == MailboxCursor("cursor 9", 1794700000)
        assert ledger.exposure.correspondents("default") == (frozenset(), "m9")
        (found,) = ledger.lists.summaries(matching=LetterFilter(("ärger", "grüsse", "ä@X")))
        assert (found.id, found.fields) == ("aaaaaaaaaa", {"priority": "urgent"})
        assert ledger.letters.was_approved_by("aaaaaaaaaa", "00bb")
        assert ledger.lists.per_day(3, 0) == {0: {"approved": 1}}
        ((pre_send,),) = database_of(ledger).rows("SELECT pre_send FROM letter")
        assert pre_send == '"m1"'


def test_a_ledger_whose_log_was_never_written_is_upgraded(tmp_path: Path) -> None:
    path, steps = tmp_path / "ledger.sqlite", MIGRATIONS
    before = next(at for at, step in enumerate(steps) if "DROP TABLE meta" in step)
    with closing(Database(path, steps[:before])) as old, old.write() as connection:
        # The key was set to what it was, to sync the file; then the process ended.
        connection.execute("INSERT INTO meta VALUES ('log', ''), ('trust', 'desk')")
    with closing(SqliteLedger(path, clock=lambda: NOW, draw=bytes)) as ledger:
        assert ledger.actions.backlog().position == LogPosition()
        assert ledger.settings.trust == "desk"


def test_letters_of_any_older_ledger_get_the_columns_that_lists_show(tmp_path: Path) -> None:
    path, steps = tmp_path / "ledger.sqlite", MIGRATIONS
    before = next(at for at, step in enumerate(steps) if "recipient_search" in step)
    long = json.dumps({"account": "a", "to": [["b", "c"]], "text": "word \n" * 700_000})
    cases = [
        ('{"account": "work", "to": [["ann", "x.example", "Ann Ö"]], "text": "\\n \\t\\n Dear  Ann,\\n\\nit rains."}',
         '[[2, "from_mail", "Look."], [0, "fact", "F."]]', ("work", "Ann Ö", "Dear Ann, it rains.", 2, "from_mail", "Look.")),
        ('{"account": "a", "to": [], "cc": [["bob", "x.example", "Bob"]], "text": ""}',
         '[[0, "fact", "F."]]', ("a", "Bob", "", 0, "", "")),
        ('{"account": "a", "to": [["bob", "x.example", ""]], "cc": [["cy", "x.example", "Cy"]], "text": "x\u200by"}',
         '[["link", "https://x.example", "a mail"]]', ("a", "", "xy", 0, "", "")),
        (long, "[]", ("a", "", "word " * 32, 0, "", "")),
        ("{", "[[", ("", "", "", 0, "", "")),
    ]  # fmt: skip
    with closing(Database(path, steps[:before])) as old, old.write() as connection:
        for number, (frozen, card, _) in enumerate(cases):
            columns = {
                "id": f"{number}", "agent": "claude", "content_key": "c", "text_key": "t", "digest": "d", "frozen": frozen,
                "origins": "[]", "recipients": "bob@x.example", "subject": "S", "card": card, "home": "Pending_Approval",
                "form": "note", "replaces": "", "created": '[1.5, "boot", 2.5]', "state": "pending",
                "detail": '{"since": [1.5, "boot", 2.5]}', "version": 3,
            }  # fmt: skip
            sql = f"INSERT INTO letter ({', '.join(columns)}) VALUES ({marks(columns)})"
            connection.execute(sql, list(columns.values()))
    with closing(SqliteLedger(path, clock=lambda: NOW, draw=bytes)) as ledger:
        found = ledger.lists.summaries(matching=LetterFilter(recipient="BOB@"))
        assert [one.version for one in found] == [3] * len(cases)
        for one, (_, _, expected) in zip(found, cases, strict=True):
            name = (one.account, one.recipient_name, one.opening)
            assert (*name, one.level, one.reason, one.warning) == expected


def test_a_line_of_another_thread_does_not_count_as_synced_with_ours(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    database = InTurn(path, MIGRATIONS)
    ledger = Ledger(database, kernel_claims(tmp_path), path, clock=lambda: NOW, draw=bytes)

    def add_line(*, synced: bool) -> None:
        with ledger.write(synced=synced) as tx:
            tx.actions.append(Action(actor="desk", action_type="x"))

    database.next = lambda: add_line(synced=False)
    add_line(synced=True)
    assert ledger.actions.head() == 2
    count = "SELECT sync_count FROM desk"
    ledger.sync(2)  # which a power cut may still take away
    assert database.rows(count) == [(1,)]
    ledger.close()


class InTurn(Database):
    """A database whose next turn another thread has, as soon as it is free."""

    next: Callable[[], None] | None = None

    @contextmanager
    def write(self, *, synced: bool = True, early: bool = False) -> Iterator[sqlite3.Connection]:
        with super().write(synced=synced, early=early) as connection:
            yield connection
        act, self.next = self.next, None
        if act:
            act()
