"""Setting up, looking after it, and moving to another machine."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from postroom.vault.folders import FOLDERS
from tests.conftest import Outcome, Person


@pytest.fixture
def live(person: Person) -> Person:
    person.live(undo_seconds=0)
    assert person.run("init").code == 0
    return person


def approve(person: Person, id: str) -> Outcome:
    digest = person.show(id)["digest"].removeprefix("sha256:")
    return person.run("approve", id, "--yes", digest[:8])


def sent(person: Person) -> list[str]:
    return [m["subject"] for m in person.run("search", "in:sent", "--json").json["messages"]]


def change_setting(person: Person, key: str, value: str) -> None:
    with closing(sqlite3.connect(person.folder / "state/ledger.sqlite")) as ledger, ledger:
        ledger.execute(f"UPDATE desk SET {key} = ?", [value])


def test_init_makes_the_folders_a_dashboard_and_a_private_state(person: Person) -> None:
    made = person.run("init", "--json").json
    assert {f"{folder.name}/" for folder in FOLDERS} | {"Dashboard.md", "Handbook.md"} == set(
        made["made"]
    )
    assert "Pending_Approval" in (person.vault / "Dashboard.md").read_text()
    assert (person.folder / "state").stat().st_mode & 0o077 == 0
    assert (person.folder / "state/ledger.sqlite").stat().st_mode & 0o077 == 0


def test_init_names_the_next_step(person: Person) -> None:
    made = " ".join(person.run("init").err.split())
    assert "Next: `postroom import PATH` brings mail in, then `postroom install CLIENT`" in made
    person.environment["POSTROOM_PROVIDER"] = "gmail"
    assert "Next: `postroom auth gmail` signs in" in person.run("init").err


def test_status_and_doctor_name_a_missing_vault_and_what_to_do(person: Person) -> None:
    status, doctor = person.run("status"), person.run("doctor")
    assert (status.code, doctor.code) == (3, 3)
    for shown in (status.err, doctor.out):
        words = " ".join(shown.split())
        assert f"There is no vault at {person.vault} (VAULT_PATH)" in words
        assert "Run `postroom init`" in words
    assert person.run("doctor", "--json").json["checks"][-1]["part"] == "vault"


def test_init_again_changes_nothing(person: Person) -> None:
    person.run("init")
    (person.vault / "Dashboard.md").write_text("mine now\n")
    assert person.run("init", "--json").json["made"] == []
    assert (person.vault / "Dashboard.md").read_text() == "mine now\n"


def test_in_a_vault_with_notes_all_goes_into_a_room_of_its_own(person: Person) -> None:
    person.vault.mkdir()
    (person.vault / "Diary.md").write_text("dear diary\n")
    made = person.run("init")
    assert made.code == 0, made.err
    assert "postroom.toml" in made.err
    assert (person.vault / "Postroom/Approved").is_dir()
    assert not (person.vault / "Approved").exists()
    assert person.run("init", "--json").json["room"] == "Postroom"


def test_a_settings_file_that_is_there_is_left_to_the_person(person: Person) -> None:
    person.live()
    person.vault.mkdir()
    (person.vault / "Diary.md").write_text("dear diary\n")
    refused = person.run("init")
    assert refused.code == 2
    assert 'room = "Postroom"' in " ".join(refused.err.split())
    assert not (person.vault / "Approved").exists()


def test_status_names_the_mode_the_level_and_where_they_come_from(live: Person) -> None:
    live.draft()
    shown = live.run("status")
    assert "live (dry_run = false in " in shown.out.replace("\n", " ")
    assert "folder (default)" in shown.out
    assert "1 pending" in shown.out
    assert "Sent:" in shown.out
    assert "0 of 10 letters this hour" in shown.out
    assert "postroom approve ID" in shown.err
    facts = live.run("status", "--json").json
    assert (facts["letters"]["pending"], facts["sends_allowed"]) == (1, 10)


def test_doctor_finds_nothing_wrong_with_a_new_desk(live: Person) -> None:
    shown = live.run("doctor")
    assert shown.code == 0, shown.out
    assert "FAIL" not in shown.out


def test_doctor_names_each_fault_with_its_remedy(live: Person) -> None:
    live.draft()
    (live.folder / "state").chmod(0o755)
    (log,) = (live.vault / "Logs/actions").iterdir()
    log.write_text("")
    found = {c["part"]: c for c in live.run("doctor", "--json").json["checks"]}
    assert live.run("doctor").code == 8
    assert found["state"]["verdict"] == found["log"]["verdict"] == "fail"
    assert "chmod 700" in found["state"]["remedy"]
    assert "audit verify" in found["log"]["remedy"]


def test_doctor_says_what_is_wrong_with_the_settings(person: Person) -> None:
    person.environment["POSTROOM_SENDS_PER_HOUR"] = "many"
    shown = person.run("doctor")
    assert shown.code == 8
    assert "POSTROOM_SENDS_PER_HOUR" in shown.out


def test_a_vault_that_was_synced_to_a_second_machine_is_only_read_until_it_is_adopted(
    live: Person,
) -> None:
    id = live.draft()
    (live.vault / "Drafts/hello.md").rename(live.vault / "Approved/hello.md")
    live.environment["POSTROOM_STATE"] = str(live.folder / "second")
    refused = live.run("send-approved")
    assert refused.code == 4
    assert "postroom adopt" in " ".join(refused.err.split())
    assert sent(live) == []
    adopted = live.at_terminal("adopt", answers=[("[y/N]", "y\n")])
    assert adopted.code == 0, adopted.out
    seen = live.run("send-approved")
    assert "another desk" in " ".join(seen.err.split())
    assert sent(live) == []
    live.environment["POSTROOM_STATE"] = str(live.folder / "state")
    former = live.run("approve", id, "--yes", "0" * 8)
    assert former.code == 4
    assert "adopted by another machine" in " ".join(former.err.split())


def test_drafts_that_stand_in_approved_when_a_vault_is_adopted_wait_and_slips_count(
    live: Person,
) -> None:
    assert live.run("init").code == 0
    (live.vault / "Approved").mkdir(exist_ok=True)
    own = "---\nto: ann@example.com\nsubject: {}\n---\nHello.\n"
    (live.vault / "Approved/before.md").write_text(own.format("Before"))
    (live.vault / "Approved/slip.md").write_text(
        "---\ntype: email_send\nstatus: approved\nto: bob@example.com\n---\n"
    )
    live.environment["POSTROOM_STATE"] = str(live.folder / "second")
    assert live.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code == 0
    (live.vault / "Approved/after.md").write_text(own.format("After"))
    assert live.run("send-approved").code == 0
    letters = live.run("pending", "--json").json["letters"]
    assert [(one["subject"], one["state"]) for one in letters] == [("Before", "pending")]
    assert (live.vault / "Pending_Approval/before.md").exists()
    assert (live.vault / "Approved/slip.md").exists()
    assert live.run("status", "--json").json["slips"] == 1
    assert sent(live) == ["After"]


def test_a_state_folder_that_was_copied_to_another_machine_sends_nothing(live: Person) -> None:
    live.draft()
    change_setting(live, "machine", "another")
    refused = live.run("send-approved")
    assert refused.code == 4
    assert "copied from another machine" in " ".join(refused.err.split())


def test_state_and_vault_copied_together_send_a_letter_once(live: Person) -> None:
    id = live.draft()
    for folder in ("state", "vault"):
        shutil.copytree(live.folder / folder, live.folder / f"copied-{folder}")
    assert approve(live, id).code == 0
    live.environment["POSTROOM_STATE"] = str(live.folder / "copied-state")
    live.environment["VAULT_PATH"] = str(live.folder / "copied-vault")
    refused = live.run("approve", id, "--yes", "0" * 8)
    assert refused.code == 4
    assert "is a copy" in " ".join(refused.err.split())
    assert "`postroom adopt`" in " ".join(refused.err.split())
    assert live.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code == 0
    assert live.show(id)["state"] == "unknown"
    live.environment["POSTROOM_STATE"] = str(live.folder / "state")
    live.environment["VAULT_PATH"] = str(live.folder / "vault")
    assert live.show(id)["state"] == "sent"
    assert sent(live) == ["Hello"]


def test_a_copied_state_folder_does_not_send_from_the_same_vault(live: Person) -> None:
    id = live.draft()
    shutil.copytree(live.folder / "state", live.folder / "copied")
    live.environment["POSTROOM_STATE"] = str(live.folder / "copied")
    assert live.run("send-approved").code == 4
    assert live.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code == 0
    live.environment["POSTROOM_STATE"] = str(live.folder / "state")
    assert live.run("approve", id, "--yes", "0" * 8).code == 4


def test_a_moved_state_folder_and_one_of_an_older_version_are_no_copies(live: Person) -> None:
    id = live.draft()
    (live.folder / "state").rename(live.folder / "moved")
    (live.folder / "moved").rename(live.folder / "state")
    assert live.run("pending").code == 0
    with closing(sqlite3.connect(live.folder / "state/ledger.sqlite")) as ledger, ledger:
        assert ledger.execute("UPDATE desk SET state_inode = ''").rowcount == 1
    shutil.copytree(live.folder / "state", live.folder / "backup")
    (live.folder / "state").rename(live.folder / "lost")
    (live.folder / "backup").rename(live.folder / "state")
    assert live.show(id)["state"] == "pending"
    inode = (live.folder / "state").stat().st_ino
    with closing(sqlite3.connect(live.folder / "state/ledger.sqlite")) as ledger:
        kept = ledger.execute("SELECT state_inode FROM desk").fetchone()
    assert kept == (str(inode),)


def test_an_adoption_that_was_interrupted_leaves_no_letter_that_could_be_sent(live: Person) -> None:
    id = live.draft()
    digest = live.show(id)["digest"].removeprefix("sha256:")[:8]
    change_setting(live, "machine", "another")
    file = live.vault / ".postroom/ledger"  # the mark cannot be written: nobody sends from here
    file.unlink()
    file.mkdir()
    assert live.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code != 0
    file.rmdir()
    assert live.show(id)["state"] == "unknown"
    assert live.run("approve", id, "--yes", digest).code == 7
    assert sent(live) == []


def test_after_adoption_what_was_open_is_unknown_and_must_be_resolved(live: Person) -> None:
    id = live.draft()
    change_setting(live, "machine", "another")
    assert live.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code == 0
    assert live.show(id)["state"] == "unknown"
    assert "May or may not have been sent" in live.run("pending").out
    yes = live.show(id)["digest"].removeprefix("sha256:")[:8]
    assert live.run("resolve", id, "--yes", yes).code == 2
    assert live.run("resolve", id, "--not-sent", "--yes", "00000000").code == 7
    assert live.run("resolve", id, "--not-sent", "--yes", yes).code == 0
    assert live.show(id)["state"] == "pending"
    assert approve(live, id).code == 0
    assert sent(live) == ["Hello"]


def test_adoption_without_an_explicit_state_takes_the_mail_along(person: Person) -> None:
    del person.environment["POSTROOM_STATE"]
    person.live(undo_seconds=0)
    person.run("init")
    id = person.draft()
    assert approve(person, id).code == 0
    desks = person.folder / ".local/state/postroom"
    (before,) = {path.name for path in desks.iterdir()} - {"vaults"}
    shutil.rmtree(person.vault / ".postroom")
    assert person.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code == 0
    (after,) = {path.name for path in desks.iterdir()} - {"vaults"}
    assert before != after == (person.vault / ".postroom/desk").read_text().strip()
    assert sent(person) == ["Hello"]


def test_a_vault_whose_desk_was_deleted_begins_no_new_one(person: Person) -> None:
    del person.environment["POSTROOM_STATE"]
    person.live(undo_seconds=0)
    person.run("init")
    person.draft()
    shutil.rmtree(person.vault / ".postroom")
    refused = person.run("pending")
    assert refused.code == 4
    assert "has lost or changed it" in " ".join(refused.err.split())
    assert not (person.vault / ".postroom").exists()
    assert person.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code == 0
    assert person.run("pending", "--json").json["letters"][0]["state"] == "unknown"


def test_a_desk_that_is_whole_is_only_begun_anew_by_who_wants_that(live: Person) -> None:
    id = live.draft()
    asked = live.at_terminal("adopt", answers=[("all the same", "n\n")])
    assert asked.code != 0
    assert "already" in asked.out
    assert live.show(id)["state"] == "pending"


def test_the_log_is_whole_after_an_adoption(live: Person) -> None:
    live.draft()
    change_setting(live, "machine", "another")
    assert live.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code == 0
    live.draft("later", subject="Later")
    assert live.run("audit", "verify").code == 0
    assert live.run("audit", "verify", "--json").json["complete"] is True


def test_another_room_is_refused_until_the_person_has_moved_it(live: Person) -> None:
    live.draft()
    file = live.folder / ".config/postroom/postroom.toml"
    file.write_text(file.read_text() + '[vault]\nroom = "Post"\n')
    assert live.run("pending").code == 4
    assert live.run("init").code == 0
    assert live.run("pending").code == 0


def test_a_hostile_note_cannot_speak_to_the_terminal(live: Person) -> None:
    (live.vault / "Drafts/x.md").write_text(
        '---\nletter: "x\\e[8mhidden"\nto: a@example.com\nstatus: pending_approval\n---\nHi\n'
    )
    shown = live.run("pending")
    assert "does not know" in shown.err
    assert "\x1b" not in shown.err


@pytest.mark.parametrize("into_a_new_folder", [False, True])
def test_a_backup_of_the_state_put_back_after_letters_left_sends_none_of_them_again(
    live: Person, into_a_new_folder: bool
) -> None:
    ids = [live.draft(f"n{number}", subject=f"Letter {number}") for number in range(2)]
    shutil.copytree(live.folder / "state", live.folder / "backup")
    assert approve(live, ids[0]).code == 0
    if into_a_new_folder:
        (live.folder / "state").rename(live.folder / "lost")
        shutil.copytree(live.folder / "backup", live.folder / "state")
        refused = live.run("send-approved")
        assert refused.code == 4
        assert "put back from a backup" in " ".join(refused.err.split())
        assert "`postroom adopt`" in " ".join(refused.err.split())
        assert live.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code == 0
    else:
        for file in (live.folder / "state").glob("ledger.sqlite*"):
            file.unlink()
        shutil.copytree(live.folder / "backup", live.folder / "state", dirs_exist_ok=True)
        seen = live.run("send-approved")
        assert "put back from a backup" in " ".join(seen.err.split())
    assert [live.show(id)["state"] for id in ids] == ["sent", "unknown"]
    assert sent(live) == []  # the mailbox came from the backup too, and nothing was put into it
    assert live.run("audit", "verify").code == 0
    assert live.run("send-approved").err.count("backup") == 0


def test_a_damaged_ledger_is_left_alone_and_named(live: Person) -> None:
    ledger = live.folder / "state/ledger.sqlite"
    for leftover in (live.folder / "state").glob("ledger.sqlite-*"):
        leftover.unlink()
    ledger.write_bytes(b"not a database" * 1000)
    refused = live.run("pending")
    assert refused.code == 10
    assert "ledger.sqlite" in " ".join(refused.err.split())
    assert ledger.read_bytes() == b"not a database" * 1000


def test_a_missing_vault_is_said_not_made_again(live: Person) -> None:
    live.draft()
    live.vault.rename(live.folder / "elsewhere")
    refused = live.run("pending")
    assert refused.code == 8
    assert "VAULT_PATH" in " ".join(refused.err.split())
    assert not live.vault.exists()
    live.vault.mkdir()
    refused = live.run("pending")
    assert refused.code == 4
    assert "is not the one" in " ".join(refused.err.split())
    assert list(live.vault.iterdir()) == []


def test_a_vault_that_is_named_is_found_from_every_folder(person: Person) -> None:
    for name in ("VAULT_PATH", "POSTROOM_STATE"):
        del person.environment[name]
    made = person.run("init", "~/Post")
    assert made.code == 0, made.err
    settings = person.folder / ".config" / "postroom" / "postroom.toml"
    assert f'path = "{person.folder}/Post"' in settings.read_text()
    assert (person.folder / "Post" / "Pending_Approval").is_dir()
    assert person.run("status", "--json").json["vault"] == f"{person.folder}/Post"
    assert person.run("init", "~/Post").code == 0
    other = person.run("init", "~/Other")
    assert other.code == 2
    assert "names another vault" in other.err
    assert not (person.folder / "Other").exists()


def test_a_vault_is_not_named_over_settings_of_ones_own(person: Person) -> None:
    for name in ("VAULT_PATH", "POSTROOM_STATE"):
        del person.environment[name]
    person.live()
    settings = person.folder / ".config" / "postroom" / "postroom.toml"
    before = settings.read_text()
    refused = person.run("init", "~/Post")
    assert refused.code == 2
    remedy = f'Put path = "{person.folder}/Post" under [vault] there, then run it again.'
    assert remedy in " ".join(refused.err.split())
    assert settings.read_text() == before


def test_doctor_says_where_there_is_no_mail_and_that_letters_stay_here(person: Person) -> None:
    assert person.run("init").code == 0
    said = person.run("doctor").out
    assert "postroom import" in said
    assert "delivers to nobody" in said


def test_a_vault_with_notes_of_its_own_gets_a_room_when_it_is_named(person: Person) -> None:
    for name in ("VAULT_PATH", "POSTROOM_STATE"):
        del person.environment[name]
    mine = person.folder / 'My "Notes"' / "Diary.md"
    mine.parent.mkdir()
    mine.write_text("Dear diary")
    made = person.run("init", str(mine.parent))
    assert made.code == 0, made.err
    assert (mine.parent / "Postroom" / "Pending_Approval").is_dir()
    assert sorted(path.name for path in mine.parent.iterdir() if path.name[0] != ".") == ["Diary.md", "Postroom"]  # fmt: skip
    assert person.run("init", str(mine.parent)).code == 0


@pytest.mark.parametrize("name", ["a\nb", "a\x7fb", "file", "ok --token a/b"])
def test_an_init_that_is_refused_leaves_no_settings(person: Person, name: str) -> None:
    for variable in ("VAULT_PATH", "POSTROOM_STATE"):
        del person.environment[variable]
    (person.folder / "file").write_text("")
    vault, *more = name.split(" ")
    assert person.run("init", vault, *more).code == 2
    assert not (person.folder / ".config").exists()
    assert person.run("init", "Post").code == 0
    assert f'path = "{person.folder}/Post"' in (person.folder / ".config/postroom/postroom.toml").read_text()  # fmt: skip
