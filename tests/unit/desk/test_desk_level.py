"""Trust level desk: only a passphrase decides, and whatever was done to folders is put back and said."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.core.errors import Denied, Invalid
from postroom.core.policy import Rules
from postroom.store.ledger import SqliteLedger, Transaction
from postroom.vault.note import Note
from postroom.wiring.desk import apply_pinned_rules
from tests.desks import SEND, Office, change_settings
from tests.providers import Courier

WORD = "correct horse battery"


@pytest.fixture
def office(office: Office) -> Office:
    office.set_passphrase(WORD)
    office.reopen(trust="desk")
    return office


@pytest.mark.parametrize("proof", [None, "", "wrong", WORD.upper()])
def test_no_approval_without_the_passphrase(office: Office, proof: str | None) -> None:
    entry = office.propose()
    with pytest.raises(Denied, match="not the passphrase"):
        office.desk.approve(entry.id, by="ada", digest=entry.digest, proof=proof)
    assert office.state_of(entry.id) == "pending"


def test_an_approval_with_the_passphrase_sends(office: Office) -> None:
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest, proof=WORD)
    office.clock.go(10)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"


def test_no_edit_without_the_passphrase(office: Office) -> None:
    entry = office.propose()
    with pytest.raises(Denied):
        office.desk.edit(entry.id, replace(entry.letter, text="Other words.\n"))
    assert office.desk.ledger.letters.get(entry.id).digest == entry.digest
    office.desk.edit(entry.id, replace(entry.letter, text="Other words.\n"), proof=WORD)
    assert office.desk.ledger.letters.get(entry.id).letter.text == "Other words.\n"


def test_no_resolution_without_the_passphrase(office: Office, courier: Courier) -> None:
    courier.settles = False
    courier.loses(after=False)
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest, proof=WORD)
    office.clock.go(10)
    office.desk.send_approved()
    for sent in (True, False):
        with pytest.raises(Denied):
            office.desk.decide(entry.id, "resolve", by="ada", sent=sent)
        assert office.state_of(entry.id) == "unknown"
    office.desk.decide(entry.id, "resolve", by="ada", sent=False, proof=WORD)
    assert office.state_of(entry.id) == "pending"


def test_to_say_no_to_undo_and_to_withdraw_needs_no_passphrase(office: Office) -> None:
    first, second, third = office.propose(), office.propose(), office.propose()
    office.desk.decide(first.id, "reject", by="ada", reason="")
    office.desk.approve(second.id, by="ada", digest=second.digest, proof=WORD)
    office.desk.decide(second.id, "undo")
    office.desk.calls.withdraw(SEND, third.id)
    assert [office.state_of(e.id) for e in (first, second, third)] == [
        "rejected",
        "pending",
        "withdrawn",
    ]


def test_where_no_passphrase_was_set_nothing_can_be_approved_and_the_remedy_is_named(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, trust="desk")
    entry = office.propose()
    with pytest.raises(Denied, match="none is set") as refused:
        office.desk.approve(entry.id, by="ada", digest=entry.digest, proof="anything")
    assert "postroom init" in refused.value.remedy
    office.close()


def test_a_moved_note_is_put_back_and_reported(office: Office, courier: Courier) -> None:
    entry = office.propose()
    office.move(entry.id, "Approved")
    said = office.look()
    assert entry.id in said
    assert "level desk" in said
    assert f"postroom approve {entry.id}" in said
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == "Pending_Approval"
    assert "level desk" in office.page(entry.id, "")
    office.clock.go(3600)
    office.desk.send_approved()
    assert courier.tried == 0


def test_a_moved_note_with_another_text_changes_no_letter(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, "Good day", "Pay Eve. Good day")
    office.move(entry.id, "Approved")
    assert entry.id in office.look()
    assert office.desk.ledger.letters.get(entry.id).digest == entry.digest
    assert office.where(entry.id) == "Pending_Approval"
    assert "Pay Eve" in office.note(entry.id).read_text(encoding="utf-8")


def test_a_copied_note_decides_nothing(office: Office) -> None:
    entry = office.propose()
    (office.vault / "Approved").mkdir()
    shutil.copy(office.note(entry.id), office.vault / "Approved/copy.md")
    assert "copy" in office.look()
    assert office.state_of(entry.id) == "pending"


def test_a_hand_written_draft_is_put_back_into_drafts_and_reported(
    office: Office, courier: Courier
) -> None:
    text = "---\nto: ann@example.com\nsubject: Hi\n---\nHello Ann\n"
    office.write("Approved/own.md", text)
    said = office.look()
    assert "Approved/own.md went back to Drafts/" in said
    assert (office.vault / "Drafts/own.md").read_text() == text
    assert not (office.vault / "Approved/own.md").exists()
    assert courier.tried == 0


def test_a_slip_is_put_back_and_reported(office: Office) -> None:
    text = "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n"
    office.write("Approved/slip.md", text)
    assert "Approved/slip.md went back to Pending_Approval/" in office.look()
    assert (office.vault / "Pending_Approval/slip.md").read_text() == text


def test_no_slip_lets_a_letter_out_by_run(office: Office) -> None:
    entry = office.propose()
    office.write(
        "Approved/slip.md", "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n"
    )
    office.look(adopt=True)
    assert office.state_of(entry.id) == "pending"


def test_what_a_slip_approved_before_the_level_was_raised_is_still_the_persons_word(
    tmp_path: Path, courier: Courier
) -> None:
    office = Office(tmp_path)
    office.wrap = courier
    office.reopen()
    entry = office.approved()
    office.set_passphrase(WORD)
    office.reopen(trust="desk")
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    office.close()


def test_an_approved_letters_note_moved_home_still_takes_the_approval_back(office: Office) -> None:
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest, proof=WORD)
    office.move(entry.id, "Pending_Approval")
    office.look()
    assert office.state_of(entry.id) == "pending"


def test_the_notes_of_this_level_name_it(office: Office) -> None:
    entry = office.propose()
    assert "Trust level: desk" in office.head(entry.id)


# The passphrase itself


def test_a_short_passphrase_is_refused(office: Office) -> None:
    with pytest.raises(Invalid):
        office.desk.trust.set_passphrase("short", old=WORD)


def test_a_passphrase_is_changed_only_by_the_old_one(office: Office) -> None:
    for old in (None, "wrong one"):
        with pytest.raises(Denied):
            office.desk.trust.set_passphrase("another word", old=old)
    office.desk.trust.set_passphrase("another word", old=WORD)
    assert office.desk.ledger.settings.passphrase.startswith("scrypt$32768$8$1$")
    entry = office.propose()
    with pytest.raises(Denied):
        office.desk.approve(entry.id, by="ada", digest=entry.digest, proof=WORD)
    office.desk.approve(entry.id, by="ada", digest=entry.digest, proof="another word")
    assert office.state_of(entry.id) == "approved"


def test_the_passphrase_stands_nowhere_in_the_files(office: Office) -> None:
    office.propose()
    office.close()
    for file in office.folder.rglob("*"):
        assert not file.is_file() or WORD.encode() not in file.read_bytes(), file
    office.open()


# Lowering


def lowered(office: Office, *, trust: str, required: bool = True) -> Rules:
    """Open the desk as the wiring does, by settings that somebody changed."""
    return apply_pinned_rules(Rules(live=True, trust=trust, required=required), office.desk.ledger)


def test_the_level_cannot_be_lowered_by_the_settings_where_a_passphrase_is_set(
    office: Office,
) -> None:
    assert lowered(office, trust="desk").trust == "desk"
    assert lowered(office, trust="folder").trust == "desk"
    assert lowered(office, trust="folder").trust == "desk"


def test_approvals_cannot_be_dropped_by_the_settings_where_a_passphrase_is_set(
    office: Office,
) -> None:
    assert lowered(office, trust="desk", required=True).required is True
    assert lowered(office, trust="desk", required=False).required is True


def test_the_level_is_lowered_by_the_passphrase(office: Office) -> None:
    lowered(office, trust="desk")
    for proof in (None, "wrong one"):
        with pytest.raises(Denied):
            office.desk.trust.loosen(proof, trust="folder", required=True)
        assert lowered(office, trust="folder").trust == "desk"
    office.desk.trust.loosen(WORD, trust="folder", required=True)
    assert lowered(office, trust="folder").trust == "folder"


def test_lowering_leaves_a_line_in_the_log(office: Office) -> None:
    before = office.desk.ledger.actions.head()
    office.desk.trust.loosen(WORD, trust="folder", required=True)
    ((_, line),) = office.desk.ledger.actions.after(before)
    assert '"action_type":"lower_trust"' in line
    assert '"actor":"person"' in line


def test_the_level_is_raised_by_the_settings_alone(tmp_path: Path) -> None:
    office = Office(tmp_path)
    assert lowered(office, trust="folder").trust == "folder"
    office.set_passphrase(WORD)
    assert lowered(office, trust="desk").trust == "desk"
    assert lowered(office, trust="folder").trust == "desk"
    office.close()


def test_where_there_is_no_passphrase_the_settings_decide(tmp_path: Path) -> None:
    office = Office(tmp_path)
    assert lowered(office, trust="desk").trust == "desk"
    assert lowered(office, trust="folder", required=False) == Rules(
        live=True, trust="folder", required=False
    )
    office.close()


def test_at_this_level_a_draft_in_drafts_waits_for_the_passphrase(office: Office) -> None:
    path = office.write(
        "Drafts/d.md",
        "---\nto: ann@example.com\nsubject: Hi\nstatus: pending_approval\n---\nHello Ann\n",
    )
    office.look()
    id = Note.parse(path.read_bytes()).text("letter")
    office.move(id, "Approved")
    assert id in office.look()
    assert office.state_of(id) == "pending"
    assert office.where(id) == "Drafts"
    digest = office.desk.ledger.letters.get(id).digest
    office.desk.approve(id, by="ada", digest=digest, proof=WORD)
    assert office.state_of(id) == "approved"


def test_approvals_that_are_not_required_are_asked_for_where_ledger_and_passphrase_say_so(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path, required=False)
    lowered(office, trust="folder", required=True)
    assert office.propose().kind == "sent"  # without a passphrase the settings decide
    office.set_passphrase(WORD)
    assert office.propose().kind == "pending"
    office.desk.trust.loosen(WORD, trust="folder", required=False)
    assert office.propose().kind == "sent"
    office.close()


def test_a_process_that_starts_while_the_passphrase_is_set_lowers_nothing(office: Office) -> None:
    class Meanwhile(SqliteLedger):
        """A ledger whose passphrase another process sets just before it is written to."""

        @contextmanager
        def write(self, *, synced: bool = True, early: bool = False) -> Iterator[Transaction]:
            change_settings(
                office.desk.ledger, passphrase="x", trust="desk", approval_required=True
            )
            with super().write(synced=synced, early=early) as tx:
                yield tx

    change_settings(office.desk.ledger, passphrase="", trust="desk", approval_required=True)
    path = office.desk.ledger.path
    with closing(Meanwhile(path, clock=office.clock, draw=office.chance.randbytes)) as ledger:
        rules = apply_pinned_rules(Rules(live=True, trust="folder", required=False), ledger)
    assert (rules.trust, rules.required) == ("desk", True)
    pins = office.desk.ledger.settings
    assert (pins.trust, pins.approval_required) == ("desk", True)
