"""The command line as a person and as a script meet it."""

import json
import os
import stat
import subprocess
import sys
from datetime import timedelta

import pytest

from postroom.cli.main import COMMANDS
from tests.conftest import Person
from tests.mails import DAY, mail, mbox


@pytest.fixture
def reader(person: Person) -> Person:
    """A person with a small mailbox."""
    person.environment["COLUMNS"] = "80"
    chain = "In-Reply-To: <a@example.com>\r\nReferences: <a@example.com>\r\n"
    quoted = "Yes, please.\r\n\r\nOn Sun, 1 Nov 2026 at 09:00, Ann Example wrote:\r\n> Shall I send the plan?\r\n> Ann"
    mails = [
        mail(
            subject="The plan", text="Shall I send the plan?\r\nAnn", message_id="<a@example.com>"
        ),
        mail(
            subject="Re: The plan",
            sender="Bob Größe <bob@example.net>",
            text=quoted,
            message_id="<b@example.com>",
            more=chain,
            date=DAY + timedelta(hours=1),
        ),
        mail(
            subject="=?utf-8?q?Gru=1B[31mss=E2=80=AE?=",
            sender='"Eve\x07" <eve@example.com>',
            text="pay\u200bload \x1b]0;title\x07 here",
            date=DAY + timedelta(days=1),
        ),
    ]
    (person.folder / "mail.mbox").write_bytes(mbox(*mails))
    outcome = person.run("import", "mail.mbox")
    assert (outcome.code, outcome.out) == (
        0,
        "3 new, 0 already here, 0 not read, 0 other files passed over.\n",
    )
    return person


def ids(reader: Person, *query: str) -> list[str]:
    return [item["id"] for item in reader.run("search", *query, "--json").json["messages"]]


def test_a_search_shows_who_when_what_and_how_it_begins_in_eighty_columns(reader: Person) -> None:
    outcome = reader.run("search", "plan")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "* 2026-11-01 10:00  Bob Größe             Re: The plan"
    assert lines[1].endswith("    Yes, please. On Sun, 1 Nov 2026 at 09:00, Ann Example wrote:")
    assert lines[2] == "* 2026-11-01 09:00  Ann Example           The plan"
    assert all(len(line) <= 80 for line in lines)


def test_a_search_without_words_lists_the_newest_mail(reader: Person) -> None:
    assert len(ids(reader)) == 3


def test_json_of_a_search_has_all_that_a_script_needs(reader: Person) -> None:
    document = reader.run("search", "from:bob", "--json").json
    (message,) = document["messages"]
    assert message["from"] == {"name": "Bob Größe", "address": "bob@example.net"}
    assert message["date"] == "2026-11-01T10:00:00Z"
    assert message["labels"] == ["INBOX", "UNREAD"]
    assert message["unread"] is True
    assert (document["cursor"], document["notes"]) == ("", [])


def test_pages_continue_by_the_cursor_that_is_printed(reader: Person) -> None:
    first = reader.run("search", "--limit", "2")
    assert len(first.out.splitlines()) == 4
    cursor = first.err.strip().rpartition(" ")[2]
    rest = reader.run("search", "--limit", "2", "--cursor", cursor)
    assert rest.out.splitlines()[0].endswith("The plan")
    assert rest.err == ""


def test_nothing_found_is_said_and_no_failure(reader: Person) -> None:
    outcome = reader.run("search", "zebra")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "No mail matches: zebra\n")


def test_a_mail_is_read_without_its_quoted_history_unless_that_is_asked_for(reader: Person) -> None:
    (id,) = ids(reader, "from:bob")
    shown = reader.run("read", id).out
    assert "From:    Bob Größe <bob@example.net>" in shown
    assert "Subject: Re: The plan" in shown
    assert "Yes, please." in shown
    assert "Shall I" not in shown
    assert "quoted lines left out" in shown
    assert "> Shall I send the plan?" in reader.run("read", id, "--quotes").out


def test_no_mail_can_send_controls_to_the_terminal(reader: Person) -> None:
    (id,) = ids(reader, "from:eve")
    for outcome in (
        reader.run("search", "from:eve"),
        reader.run("read", id),
        reader.run("thread", id),
    ):
        shown = outcome.out.replace("\n", "")
        assert shown.isprintable(), shown
    assert "hidden characters removed" in reader.run("read", id).out
    assert reader.run("read", id, "--json").json["hidden_characters"] >= 4


def test_the_bytes_of_a_mail_come_out_as_they_came(reader: Person) -> None:
    (id,) = ids(reader, "subject:plan from:ann")
    assert reader.run("read", id, "--raw").out.encode() == mail(
        subject="The plan", text="Shall I send the plan?\r\nAnn", message_id="<a@example.com>"
    )


def test_a_thread_is_shown_oldest_first_by_the_id_of_any_of_its_mails(reader: Person) -> None:
    reply, first = ids(reader, "plan")
    for id in (reply, first):
        shown = reader.run("thread", id).out
        assert (
            shown.index("1 of 2")
            < shown.index("Shall I send")
            < shown.index("2 of 2")
            < shown.index("Yes, please.")
        )
    document = reader.run("thread", reply, "--json").json
    assert document["subject"] == "The plan"
    assert [message["id"] for message in document["messages"]] == [first, reply]


def test_importing_again_adds_nothing(reader: Person) -> None:
    assert reader.run("import", "mail.mbox", "--json").json == {
        "added": 0,
        "known": 3,
        "others": 0,
        "refused": [],
    }


def test_state_and_mailbox_are_private(reader: Person) -> None:
    state = reader.folder / "state"
    for path in (state, state / "mail"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (state / "mail").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["search", "foo:bar"], 2, "foo:"),
        (["search", "(a"], 2, "never closed"),
        (["search", "x" * 100_000], 2, "16,384"),
        (["search", "(" * 10_000], 2, "10 levels of brackets"),
        (["search", "--limit", "0"], 2, "--limit"),
        (["search", "--cursor", "zz", "x"], 2, "This cursor is not valid"),
        (["search", "--account", "work", "x"], 3, "There is no account work"),
        (["read", "nope"], 3, "There is no mail nope"),
        (["read", "6ab27c9f00000"], 3, "There is no mail 6ab27c9f00000"),
        (["thread", "6ab27c9f00000"], 3, "There is no conversation 6ab27c9f00000"),
        (["read"], 2, "Missing argument"),
        (["frobnicate"], 2, "No such command"),
        (["import", "missing.mbox"], 3, "does not exist"),
    ],
)
def test_every_mistake_is_answered_with_its_code_what_is_wrong_and_what_to_do(
    reader: Person, arguments: list[str], code: int, said: str
) -> None:
    outcome = reader.run(*arguments)
    assert outcome.code == code, outcome
    assert outcome.err.startswith("error: ")
    assert said in outcome.err.replace("\n ", "")
    assert outcome.out == ""
    assert all(len(line) <= 80 for line in outcome.err.splitlines())
    if len(arguments) > 1:
        as_json = reader.run(*arguments, "--json")
        assert as_json.code == code
        error = json.loads(as_json.err)["error"]
        assert error["message"]
        assert error["remedy"]


def test_an_option_without_its_value_is_answered_with_the_help_of_its_command(
    person: Person,
) -> None:
    for command, option in (("run", "--backlog"), ("search", "--limit")):
        outcome = person.run(command, option)
        assert outcome.code == 2
        assert f"See `postroom {command} --help`." in outcome.err


def test_a_text_without_a_mail_header_is_not_imported(person: Person) -> None:
    (person.folder / "users").write_text("root:x:0:0:root:/root:/bin/bash\n")
    outcome = person.run("import", "users")
    assert outcome.code == 2
    assert outcome.err.startswith("error: users was not imported: no mail header\n")
    assert not (person.folder / "state").exists()


def test_every_command_works_before_anything_was_set_up(person: Person) -> None:
    outcome = person.run("search", "hello")
    assert (outcome.code, outcome.out) == (0, "")
    assert "postroom import PATH" in outcome.err
    assert person.run("search", "hello", "--json").json["messages"] == []
    for command in ("read", "thread"):
        outcome = person.run(command, "1")
        assert outcome.code == 3
        assert "postroom import PATH" in outcome.err
    assert sorted(path.name for path in person.folder.iterdir()) == []


def test_without_a_state_folder_the_vaults_desk_names_it(person: Person) -> None:
    del person.environment["POSTROOM_STATE"]
    (person.folder / "mail.mbox").write_bytes(mbox(mail(subject="found")))
    assert person.run("import", "mail.mbox").code == 0
    desk = (person.folder / "vault" / ".postroom" / "desk").read_text().strip()
    assert (person.folder / ".local/state/postroom" / desk / "mail" / "default.sqlite").exists()
    assert "found" in person.run("search", "found").out


def test_a_term_may_start_with_a_minus(reader: Person) -> None:
    for query in (["-from:bob", "plan"], ["-has:attachment", "from:ann"], ["from:ann", "-is:read"]):
        assert ids(reader, *query) == ids(reader, "from:ann"), query
    assert "Usage:" in reader.run("search", "-h").out
    assert "No such option" in reader.run("search", "--limt", "3").err


def test_a_typing_error_is_met_with_what_was_meant(reader: Person) -> None:
    assert "Did you mean `postroom search`?" in reader.run("serch", "x").err
    assert "Did you mean from:?" in reader.run("search", "fromm:ann").err
    assert "Here, me is you@example.org." in reader.run("search", "from:me").err


def test_an_attachment_is_saved_by_its_part(person: Person) -> None:
    from importlib.resources import files

    (person.folder / "s.mbox").write_bytes((files("postroom.sample") / "mail.mbox").read_bytes())
    assert person.run("import", "s.mbox").code == 0
    (id,) = ids(person, "invoice", "has:attachment", "from:harrow", "-subject:re")
    (listed,) = person.run("read", id, "--json").json["attachments"]
    process = person.start("read", id, "--part", listed["part"])
    content, _ = process.communicate(timeout=60)
    assert content.startswith(b"%PDF")
    assert len(content) == listed["size"]
    assert person.run("read", id, "--part", "99").code == 3
    assert person.run("read", id, "--raw", "--json").code == 2


def test_a_person_who_wants_no_colour_gets_none(reader: Person) -> None:
    import pty

    for wish in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {}):
        master, slave = pty.openpty()
        environment = {"TERM": "xterm"} | reader.environment | wish
        command = [sys.executable, "-m", "postroom", "search"]
        subprocess.run(
            command, cwd=reader.folder, env=environment, stdout=slave, check=True, timeout=60
        )
        os.close(slave)
        shown = os.read(master, 10_000)
        os.close(master)
        assert (b"\x1b[" in shown) == (not wish)


def test_wide_characters_fit_the_terminal_too(person: Person) -> None:
    import unicodedata

    (person.folder / "m.mbox").write_bytes(
        mbox(
            mail(
                subject="製本ワークショップについてのお問い合わせ製本ワーク",
                sender="田中田中田中田中田中田中田中 <t@example.com>",
            )
        )
    )
    assert person.run("import", "m.mbox").code == 0
    for line in person.run("search").out.splitlines():
        assert sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line) <= 80


def test_what_is_no_mail_is_not_imported_as_one(person: Person) -> None:
    (person.folder / "takeout.zip").write_bytes(b"PK\x03\x04" + bytes(range(256)) * 20)
    outcome = person.run("import", "takeout.zip")
    assert outcome.code == 2
    assert "unpack archives" in " ".join(outcome.err.split())
    (person.folder / "box").mkdir()
    (person.folder / "box" / "a.EML").write_bytes(mail(subject="a"))
    (person.folder / "box" / "7").write_bytes(mail(subject="b"))
    (person.folder / "box" / "fake.eml").write_bytes(b"\xff\xd8\xff\xe0JFIF")
    (person.folder / "box" / "Inbox").write_bytes(mbox(mail(subject="c")))
    (person.folder / "box" / "todo.txt").write_text("Milk: two")
    assert person.run("import", "box", "--json").json == {
        "added": 3,
        "known": 0,
        "others": 2,
        "refused": [],
    }
    assert person.run("import", "").code == 2


def test_a_mail_that_was_read_since_the_last_export_is_the_same_mail(person: Person) -> None:
    exports = [
        mbox(
            b"X-GM-THRID: 1\nX-Gmail-Labels: Inbox,Unread\n" + mail(),
            b"Status: O\n" + mail(subject="two"),
        ),
        mbox(
            b"X-GM-THRID: 1\nX-Gmail-Labels: Inbox,Opened\n" + mail(),
            b"Status: RO\n" + mail(subject="two"),
        ),
    ]
    for export, added in zip(exports, (2, 0), strict=True):
        (person.folder / "All.mbox").write_bytes(export)
        assert person.run("import", "All.mbox", "--json").json["added"] == added


def test_a_mode_that_cannot_be_read_is_said(reader: Person) -> None:
    reader.environment["DRY_RUN"] = "nein"
    assert "DRY_RUN is neither true nor false" in reader.run("search", "plan").err


def test_no_file_name_can_send_controls_to_the_terminal(person: Person) -> None:
    folder = person.folder / "in"
    (folder / "cur").mkdir(parents=True)
    (folder / "new").mkdir()
    (folder / "cur" / "x\x1b[2J\x1b]0;pwned\x07\u202egpj:2,S").write_bytes(b"")
    (folder / "cur" / "y:2,S").write_bytes(mail())
    outcome = person.run("import", "in")
    assert outcome.code == 0
    assert (outcome.out + outcome.err).replace("\n", "").isprintable()
    hostile = "no\x1b[2Jthing\u202e\x9b"
    for flags in ([], ["--json"]):
        err = person.run("import", hostile, *flags).err
        assert err.replace("\n", "").isprintable(), err


def test_a_sender_whose_name_poses_as_an_address_is_shown_by_the_real_one(person: Person) -> None:
    forged = [
        mail(subject="one", sender='"security@example.com" <eve@example.net>'),
        mail(
            subject="two", sender="=?utf-8?q?CEO_=3Cceo=40example.com=3E=2C_Bob?= <eve@example.net>"
        ),
    ]
    (person.folder / "m.mbox").write_bytes(mbox(*forged))
    assert person.run("import", "m.mbox").code == 0
    assert person.run("search").out.count("eve@example.net") == 2
    (id,) = ids(person, "subject:two")
    assert 'From:    "CEO <ceo@example.com>, Bob" <eve@example.net>' in person.run("read", id).out


def test_accounts_have_mailboxes_of_their_own(person: Person) -> None:
    config = person.folder / "own.toml"
    config.write_text(
        'default_account = "home"\n[accounts.home]\naddress = "you@example.org"\n[accounts.work]\naddress = "me@example.net"\n'
    )
    person.environment["POSTROOM_CONFIG"] = str(config)
    (person.folder / "mail.mbox").write_bytes(mbox(mail(subject="for work", to="me@example.net")))
    assert person.run("import", "mail.mbox", "--account", "work").code == 0
    assert "for work" in person.run("search", "to:me", "--account", "work").out
    assert person.run("search", "to:me").out == ""


def test_a_reader_that_goes_away_is_no_error(reader: Person) -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "postroom", "search"],
        cwd=reader.folder,
        env=reader.environment,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(write)
    assert process.returncode == 141
    assert process.stderr == b""


def test_an_argument_that_is_no_text_is_answered_in_words(reader: Person) -> None:
    for command in ("search", "read", "thread", "import"):
        outcome = reader.run(command, os.fsdecode(b"caf\xe9"))
        assert outcome.code in {2, 3}
        assert outcome.err.startswith("error: ")
        assert "Traceback" not in outcome.err


def test_a_terminal_that_lacks_a_character_still_shows_the_mail(person: Person) -> None:
    (person.folder / "mail.mbox").write_bytes(mbox(mail(subject="=?utf-8?b?5Lya6K2w?=")))
    assert person.run("import", "mail.mbox").code == 0
    person.environment |= {"PYTHONIOENCODING": "latin-1"}
    outcome = person.run_as_process("search")
    assert outcome.code == 0, outcome.err
    assert "\\u4f1a\\u8b70" in outcome.out


def test_a_long_import_shows_its_progress_on_a_terminal(person: Person) -> None:
    import pty

    (person.folder / "mail.mbox").write_bytes(mbox(*(mail(subject=str(n)) for n in range(10))))
    master, slave = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "postroom", "import", "mail.mbox"],
        cwd=person.folder,
        env=person.environment | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=slave,
        check=True,
        timeout=60,
    )
    os.close(slave)
    shown = os.read(master, 10_000).decode()
    os.close(master)
    assert "Importing" in shown
    assert "100%" in shown


@pytest.mark.parametrize("command", [[], ["import"], ["search"], ["read"], ["thread"], ["demo"]])
def test_help_fits_the_terminal_and_names_every_option(person: Person, command: list[str]) -> None:
    outcome = person.run(*command, "--help")
    assert outcome.code == 0
    assert all(len(line) <= 80 for line in outcome.out.splitlines())
    if command and command != ["demo"]:
        assert "--json" in outcome.out


def test_the_version_is_the_packages(person: Person) -> None:
    from postroom import __version__

    assert person.run("--version").out == f"postroom {__version__}\n"


ALONE = {
    "init": ["init"],
    "status": ["status"],
    "doctor": ["doctor"],
    "pending": ["pending"],
    "audit": ["audit", "verify"],
    "send-approved": ["send-approved"],
    "undo-moves": ["undo-moves"],
    "show": ["show", "nothing"],
    "reject": ["reject", "nothing", "--reason", "No."],
}


def test_each_command_starts_in_a_process_that_has_imported_nothing(person: Person) -> None:
    person.live(undo_seconds=0)
    for name in [*ALONE, *(COMMANDS.keys() - ALONE.keys() - {"agentmail"})]:
        outcome = person.run_as_process(*ALONE.get(name, [name, "--help"]))
        assert outcome.code == (3 if "nothing" in ALONE.get(name, []) else 0), (name, outcome)
        assert "Traceback" not in outcome.err
