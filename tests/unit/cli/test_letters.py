"""Letters at the terminal: what a person sees, answers and undoes."""

import json
import re
import signal
from datetime import datetime, timedelta
from signal import Handlers

import pytest

from postroom.cli.main import COMMANDS
from tests.conftest import Person
from tests.narrow import narrow


@pytest.fixture
def live(person: Person) -> Person:
    person.live(undo_seconds=0)
    assert person.run("init").code == 0
    return person


def digest(person: Person, id: str) -> str:
    return narrow(person.show(id)["digest"], str).removeprefix("sha256:")


def sent(person: Person) -> list[str]:
    return [m["subject"] for m in person.run("search", "in:sent", "--json").json["messages"]]


def test_approve_shows_the_whole_letter_and_its_card_asks_and_sends(live: Person) -> None:
    id = live.draft(bcc="boss@example.net", text="The secret plan.\n\nBest, me")
    seen = live.at_terminal("approve", id, answers=[("[y/N]", "y\n")])
    assert seen.code == 0
    for part in ("ann@example.com", "boss@example.net", "The secret plan.", "Bcc:", "sha256:"):
        assert part in seen.out
    assert "You have never written to" in seen.out
    assert f"The letter {id} was sent" in seen.out
    assert sent(live) == ["Hello"]
    assert (live.vault / "Done" / "hello.md").exists()


def test_no_is_the_answer_to_anything_but_yes(live: Person) -> None:
    id = live.draft()
    refused = live.at_terminal("approve", id, answers=[("[y/N]", "\n")])
    assert "was not sent; it still waits" in refused.out
    assert live.show(id)["state"] == "pending"
    assert sent(live) == []


def test_a_yes_on_stdin_is_nobodys_word(live: Person) -> None:
    id = live.draft()
    piped = live.run_as_process("approve", id, start_new_session=True)
    assert piped.code == 4
    assert "--yes" in piped.err
    assert live.show(id)["state"] == "pending"


def test_show_says_once_why_a_letter_is_held(live: Person) -> None:
    id = live.draft()
    (live.vault / "PAUSED").touch()
    live.run("approve", id, "--yes", digest(live, id)[:8])
    shown = live.run("show", id).out
    assert shown.count("aused") == 1, shown
    assert shown.count("Approved") == 1, shown


def test_show_says_once_that_a_letter_is_approved_and_when_it_may_be_sent(live: Person) -> None:
    live.live(undo_seconds=60)
    id = live.draft()
    (live.vault / "Approved").mkdir(exist_ok=True)
    (live.vault / "Drafts" / "hello.md").rename(live.vault / "Approved" / "hello.md")
    shown = live.run("show", id).out
    assert shown.count("Approved by") == 1, shown
    assert re.search(r"^It may be sent in \d\d seconds\.$", shown, re.MULTILINE), shown


def test_show_says_when_a_letter_that_waits_for_the_budget_may_leave(live: Person) -> None:
    live.environment["POSTROOM_SENDS_PER_HOUR"] = "1"
    for name in ("one", "two"):
        id = live.draft(name, subject=name)
        assert live.run("approve", id, "--yes", digest(live, id)[:8]).code == 0
    shown = live.run("show", id)
    assert re.search(
        r"^Held: 1 of 1 letter this hour, next at \d\d:\d\d( on \d{4}-\d\d-\d\d)?\.$",
        shown.out,
        re.MULTILINE,
    )
    assert "Rate limit" not in shown.out


def test_show_says_when_a_letter_under_another_limit_is_tried_again(live: Person) -> None:
    own = live.folder / ".config/postroom/postroom.toml"
    own.write_text(f"{own.read_text()}[limits]\nrecipients_per_hour = 1\n")
    for name in ("one", "two"):
        id = live.draft(name, subject=name)
        live.run("approve", id, "--yes", digest(live, id)[:8])
    shown = live.run("show", id).out
    assert "1 recipients/hour" in shown
    assert re.search(r"^Next try in (60 minutes|1 hour)\.$", shown, re.MULTILINE), shown
    assert "of 10 letters" not in shown


def test_letters_that_may_have_been_sent_are_decided_several_at_once(live: Person) -> None:
    ids = [live.draft(name, subject=name) for name in ("one", "two", "three")]
    adopted = live.at_terminal("adopt", answers=[("[y/N]", "y\n")])
    assert adopted.code == 0
    assert {live.show(id)["state"] for id in ids} == {"unknown"}
    answers = [(f"{id} was not sent? [y/N]", answer) for id, answer in zip(ids, ("y\n", "n\n", "y\n"), strict=True)]  # fmt: skip
    assert live.at_terminal("resolve", *ids, "--not-sent", answers=answers).code == 0
    assert [live.show(id)["state"] for id in ids] == ["pending", "unknown", "pending"]
    whole = live.run("resolve", ids[1], "--sent", "--yes", digest(live, ids[1])[:8])
    assert (whole.code, live.show(ids[1])["state"]) == (0, "sent")


def test_yes_takes_the_first_eight_digits_of_the_digest(live: Person) -> None:
    id = live.draft()
    assert live.run("approve", id, "--yes", digest(live, id)[:7]).code == 2
    assert live.run("approve", id, "--yes", "00000000").code == 7
    assert sent(live) == []
    done = live.run("approve", id, "--yes", digest(live, id)[:8], "--json")
    assert done.code == 0
    assert done.json["letters"][0]["state"] == "sent"
    assert sent(live) == ["Hello"]


def test_several_letters_need_a_digest_each(live: Person) -> None:
    ids = [live.draft("one", subject="One"), live.draft("two", subject="Two")]
    digests = [digest(live, id)[:8] for id in ids]
    assert live.run("approve", *ids, "--yes", digests[0]).code == 2
    done = live.run("approve", *ids, "--yes", digests[0], "--yes", digests[1])
    assert done.code == 0
    assert sorted(sent(live)) == ["One", "Two"]


def test_an_approved_letter_can_be_recalled_during_the_undo_window(person: Person) -> None:
    person.live(undo_seconds=600)
    person.run("init")
    id = person.draft()
    (person.vault / "Drafts/hello.md").rename(person.vault / "Approved/hello.md")
    assert "may be sent in" in person.run("send-approved").err
    undone = person.run("undo", id)
    assert undone.code == 0
    assert "waits for your decision" in undone.out
    assert "Drafts/hello.md" in undone.out
    assert (person.vault / "Drafts/hello.md").exists()
    assert person.run("undo", id).code == 7


@pytest.mark.parametrize("inherited", [signal.SIG_DFL, signal.SIG_IGN])
def test_ctrl_c_during_the_count_down_recalls(person: Person, inherited: Handlers) -> None:
    person.live(undo_seconds=600)
    person.run("init")
    id = person.draft()
    before = signal.signal(signal.SIGINT, inherited)
    try:
        stopped = person.at_terminal("approve", id, answers=[("[y/N]", "y\n"), ("Ctrl-C", "\x03")])
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.code == 130
    assert "recalled" in stopped.out
    assert person.show(id)["state"] == "pending"


def test_ctrl_c_while_send_approved_waits_sends_nothing_and_says_so(person: Person) -> None:
    person.live(undo_seconds=600)
    person.run("init")
    id = person.draft()
    (person.vault / "Drafts/hello.md").rename(person.vault / "Approved/hello.md")
    stopped = person.at_terminal("send-approved", "--wait", answers=[("Ctrl-C", "\x03")])
    assert stopped.code == 130
    assert "Ctrl-C sends nothing and recalls nothing" in stopped.out
    assert person.show(id)["state"] == "approved"


def test_a_letter_is_rejected_with_its_reason_and_revised_with_its_wish(live: Person) -> None:
    one, two = live.draft("one"), live.draft("two", subject="Other")
    assert live.run("reject", one, "--reason", "too long").code == 0
    assert live.run("revise", two, "--ask", "be kinder").code == 0
    assert "too long" in live.show(one)["description"]
    assert re.search(r"another version by .*: be kinder", live.show(two)["description"])
    assert {p.name for p in (live.vault / "Rejected").iterdir()} == {"one.md", "two.md"}


def test_times_are_local_in_the_terminal_and_utc_in_json(live: Person) -> None:
    id = live.draft()
    (proposed,) = live.show(id)["history"]
    moment = datetime.fromisoformat(proposed.removeprefix("Proposed at ").removesuffix("."))
    live.environment["TZ"] = "XYZ-5"  # five hours east of Greenwich
    local = f"{moment + timedelta(hours=5):%Y-%m-%d %H:%M}"
    assert f"\nProposed at {local}.\n" in live.run("show", id).out
    assert live.show(id)["history"] == [proposed]
    rejected = live.run("reject", id).out
    assert re.search(rf" at {local[:-2]}\d\d\.\n", rejected)


def test_an_edit_is_looked_at_and_sent(live: Person) -> None:
    id = live.draft(cc="carl@example.com")
    form = live.folder / "form.txt"
    form.write_text("To: ann@example.com\nCc: dora@example.com\nSubject: Better\n\nGood evening.\n")
    seen = live.at_terminal(
        "edit", id, "--file", str(form), answers=[("to this?", "y\n"), ("Send this", "y\n")]
    )
    assert seen.code == 0, seen.out
    assert "-Good day, Ann." in seen.out
    assert "+Good evening." in seen.out
    assert sent(live) == ["Better"]
    assert live.show(id)["cc"] == ["dora@example.com"]
    note = (live.vault / "Done/hello.md").read_text()
    assert "Good evening." in note


def test_an_editor_is_opened_where_no_file_is_given(live: Person) -> None:
    id = live.draft()
    editor = live.folder / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/Good day/Good night/' \"$1\"\n")
    editor.chmod(0o755)
    live.environment["EDITOR"] = str(editor)
    seen = live.at_terminal("edit", id, "--no-send", answers=[("to this?", "y\n")])
    assert seen.code == 0, seen.out
    assert live.show(id)["text"] == "Good night, Ann.\n"
    assert live.show(id)["state"] == "pending"


def test_without_an_editor_the_remedy_is_named(live: Person) -> None:
    id = live.draft()
    live.environment["EDITOR"] = "/no/such/editor"
    refused = live.run("edit", id)
    assert refused.code == 8
    assert "Set EDITOR" in refused.err
    assert "--file" in refused.err


def test_closed_letters_are_listed_where_all_are_asked_for(live: Person) -> None:
    one, two = live.draft("one", subject="One"), live.draft("two", subject="Two")
    live.run("reject", one, "--reason", "too long")
    assert live.run("approve", two, "--yes", digest(live, two)[:8]).code == 0
    assert live.run("pending").out == "Nothing waits.\n"
    shown = live.run("pending", "--all").out
    assert "Rejected (1)" in shown
    assert "too long" in shown
    assert "Sent (1)" in shown
    states = {
        line["id"]: line["state"] for line in live.run("pending", "--all", "--json").json["letters"]
    }
    assert states == {one: "rejected", two: "sent"}


def test_a_digest_may_be_given_with_its_name(live: Person) -> None:
    id = live.draft()
    assert live.run("approve", id, "--yes", f"sha256:{digest(live, id)}").code == 0
    assert sent(live) == ["Hello"]


def test_a_note_edited_in_place_stops_approve_until_its_text_is_taken(live: Person) -> None:
    id = live.draft()
    note = live.vault / "Drafts/hello.md"
    note.write_text(note.read_text().replace("Good day", "Bad day"))
    refused = live.run("approve", id, "--yes", digest(live, id)[:8])
    assert refused.code == 7
    assert "+Bad day, Ann." in " ".join(refused.err.split())
    assert "--from-note" in " ".join(refused.err.split())
    before = digest(live, id)[:8]
    assert live.run("edit", id, "--from-note", "--yes", before).code == 0
    assert live.run("approve", id, "--yes", digest(live, id)[:8]).code == 0
    assert live.show(id)["text"] == "Bad day, Ann.\n"


def test_an_edit_that_no_letter_can_have_is_refused(live: Person) -> None:
    id = live.draft()
    form = live.folder / "form.txt"
    for text, code in [
        ("To: nobody\nSubject: x\n\nHi\n", 2),
        ("Hi\n", 2),
        ("To: a@b.org\nX: y\n\nHi", 2),
    ]:
        form.write_text(text)
        yes = digest(live, id)[:8]
        assert live.run("edit", id, "--file", str(form), "--yes", yes).code == code
    assert live.show(id)["text"] == "Good day, Ann.\n"


def test_in_rehearsal_nothing_can_be_approved_and_every_command_says_why(person: Person) -> None:
    person.live(undo_seconds=0)
    person.run("init")
    id = person.draft()
    person.environment["DRY_RUN"] = "true"
    refused = person.run("approve", id, "--yes", digest(person, id)[:8])
    assert refused.code == 4
    assert "DRY_RUN" in " ".join(refused.err.split())
    assert "dry_run = false" in " ".join(refused.err.split())
    assert "rehearses (DRY_RUN)" in person.run("pending").err
    assert person.run("status", "--json").json["mode"] == "rehearsal"


def test_pending_fits_eighty_columns_and_marks_what_is_red(live: Person) -> None:
    live.draft("one", subject="日本語の件名 " * 12, to="ann@example.com")
    live.draft("two", subject="Key", text="My key: -----BEGIN RSA PRIVATE KEY-----\nabc\n")
    shown = live.run("pending").out
    assert "Waiting for your decision (2)" in shown
    assert re.search(r"^! [a-z2-7]{10}  ann@example.com +Key$", shown, re.MULTILINE)
    assert all(len(row) <= 80 for row in shown.splitlines())


def test_an_id_may_be_shortened_but_not_guessed(live: Person) -> None:
    id = live.draft()
    assert live.run("show", id[:4]).code == 0
    assert live.run("show", id[:2]).code == 3
    unknown = live.run("show", "zzzzzzzzzz")
    assert unknown.code == 3
    assert "postroom pending" in unknown.err


def test_without_a_desk_a_letters_command_says_how_to_begin(person: Person) -> None:
    refused = person.run("show", "abcdefghij")
    assert refused.code == 3
    assert "postroom init" in " ".join(refused.err.split())


def test_trust_level_desk_asks_for_the_passphrase(person: Person) -> None:
    person.live(undo_seconds=0, trust="desk")
    made = person.at_terminal(
        "init", answers=[("A new passphrase:", "open sesame\n"), ("Once more:", "open sesame\n")]
    )
    assert made.code == 0, made.out
    assert "sesame" not in made.out
    id = person.draft()
    yes = digest(person, id)[:8]
    (person.vault / "Drafts/hello.md").rename(person.vault / "Approved/hello.md")
    assert "not approved" in person.run("pending").err
    assert (person.vault / "Drafts/hello.md").exists()
    assert person.run("approve", id, "--yes", yes).code == 4
    wrong = person.at_terminal("approve", id, "--yes", yes, answers=[("Passphrase:", "guess it\n")])
    assert wrong.code == 4
    assert sent(person) == []
    right = person.at_terminal(
        "approve", id, "--yes", yes, answers=[("Passphrase:", "open sesame\n")]
    )
    assert right.code == 0, right.out
    assert sent(person) == ["Hello"]


def test_the_level_is_lowered_only_with_the_passphrase(person: Person) -> None:
    person.live(undo_seconds=0, trust="desk")
    answers = [("A new passphrase:", "open sesame\n"), ("Once more:", "open sesame\n")]
    person.at_terminal("init", answers=answers)
    person.live(undo_seconds=0, trust="folder", required=False)
    held = person.run("status")
    assert "kept by the ledger" in held.out
    assert person.run("status", "--json").json["approval_required"] is True
    assert person.at_terminal("init", answers=[("Passphrase:", "wrong one\n")]).code == 4
    assert person.run("status", "--json").json["trust"] == "desk"
    assert person.at_terminal("init", answers=[("Passphrase:", "open sesame\n")]).code == 0
    assert person.run("status", "--json").json["trust"] == "folder"


def test_audit_shows_and_verifies_and_finds_a_changed_line(live: Person) -> None:
    id = live.draft()
    live.run("approve", id, "--yes", digest(live, id)[:8])
    actions = live.run("audit", "--letter", id, "--json").json["actions"]
    assert [a["action_type"] for a in actions] == [
        "draft_note", "approve_letter", "claim_letter", "send_letter",
    ]  # fmt: skip
    assert "ann@example.com" not in json.dumps(actions)
    assert "Good day" not in json.dumps(actions)
    assert live.run("audit", "verify").code == 0
    assert all(len(row) <= 80 for row in live.run("audit").out.splitlines())
    (log,) = (live.vault / "Logs/actions").iterdir()
    log.write_text(log.read_text().replace("approve_letter", "approve_Letter"))
    changed = live.run("audit", "verify")
    assert changed.code == 10
    assert f"{log.name}:2: edited" in changed.out


def test_paused_stops_all_sending_until_it_is_gone(live: Person) -> None:
    id = live.draft()
    (live.vault / "PAUSED.md").touch()
    held = live.run("approve", id, "--yes", digest(live, id)[:8])
    assert "paused" in held.out
    assert sent(live) == []
    (live.vault / "PAUSED.md").unlink()
    assert live.run("send-approved").code == 0
    assert sent(live) == ["Hello"]


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"agentmail"}))
def test_every_command_has_help_that_fits_the_terminal(person: Person, name: str) -> None:
    shown = person.run(name, "--help")
    assert shown.code == 0
    assert all(len(row) <= 80 for row in shown.out.splitlines())
