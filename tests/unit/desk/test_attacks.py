"""What agents, hostile notes and sync clients try: each of these once got something sent, or lost."""

import json
import shutil
from dataclasses import replace
from typing import Any

import pytest

from postroom.core import audit, life
from postroom.core.address import Address
from postroom.core.errors import Conflict, Denied, Invalid, NotFound
from postroom.desk import verdicts
from postroom.desk.proposals import Proposal
from postroom.desk.recorder import Call
from postroom.mail.local.mailbox import LocalMailbox
from postroom.mail.mailbox import SearchPage
from tests.desks import SEND, Office, change_settings
from tests.narrow import present
from tests.posting import post
from tests.providers import BUSY, Courier

BOB = Address.parse("bob@else.example")
OWN = "---\nto: ann@example.com\nsubject: Offer\n---\nAn offer.\n"
SLIP = "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\n"


def sends(office: Office) -> list[str]:
    office.clock.go(3600)
    office.desk.send_approved()
    return office.sent()


def test_a_draft_that_comes_back_after_its_recall_is_not_another_word(office: Office) -> None:
    office.write("Approved/offer.md", OWN)
    office.look()
    (line,) = office.desk.ledger.lists.summaries()
    office.desk.decide(line.id, "undo")
    office.write("Approved/offer.md", OWN)
    office.look()
    assert office.state_of(line.id) == "pending"
    assert sends(office) == []


def test_a_slip_does_not_let_out_what_a_person_has_changed_since(office: Office) -> None:
    letter = office.letter()
    entry = office.propose(letter)
    office.desk.edit(entry.id, replace(letter, to=(BOB,), text="For Bob, not yet approved.\n"))
    office.write("Approved/ann.md", SLIP)
    again = post(office.desk, SEND, replace(letter, id="bbbbbbbbbb"), Proposal(), slips=True)
    assert again.kind == "pending"
    assert sends(office) == []


def test_a_moved_note_that_shows_other_recipients_approves_nothing(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, 'to: "ann@example.com"', 'to: "eve@example.com"')
    office.move(entry.id, "Approved")
    assert "to is not the letter's" in office.look()
    assert (office.state_of(entry.id), office.field(entry.id, "to")) == (
        "pending",
        "ann@example.com",
    )
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"


def test_an_old_version_of_a_note_approves_nothing(office: Office) -> None:
    entry = office.propose()
    old = office.note(entry.id).read_bytes()
    office.desk.edit(entry.id, replace(entry.letter, to=(BOB,), subject="Other"))
    office.note(entry.id).unlink()
    (office.vault / "Approved").mkdir()
    (office.vault / "Approved/old.md").write_bytes(old)
    office.look()
    assert office.state_of(entry.id) == "pending"
    assert sends(office) == []


def test_an_approved_note_that_a_sync_client_brings_back_after_an_undo_approves_nothing(
    office: Office,
) -> None:
    entry = office.propose()
    office.move(entry.id, "Approved")
    office.look()
    approved = office.note(entry.id).read_bytes()
    office.desk.decide(entry.id, "undo")
    office.note(entry.id).unlink()
    (office.vault / "Approved/back.md").write_bytes(approved)
    office.look()
    assert office.state_of(entry.id) == "pending"
    assert sends(office) == []


@pytest.mark.parametrize("verdict", ["Rejected", "Approved", ""])
def test_a_note_that_an_agent_writes_into_drafts_is_never_another_letters(
    office: Office, verdict: str
) -> None:
    entry = office.propose(office.letter(text="All our passwords.\n"))
    forged = (
        office.note(entry.id).read_text().replace("## What to do", "# Lunch\n<!--\n## What to do")
    )
    office.write("Drafts/Lunch.md", forged)
    note = next(p for p in office.notes(entry.id) if p.parent.name == "Pending_Approval")
    if verdict:
        (office.vault / verdict).mkdir(exist_ok=True)
        note.rename(office.vault / verdict / note.name)
    else:
        note.unlink()
    office.look()
    expected = {"Rejected": "rejected", "Approved": "approved", "": "pending"}[verdict]
    assert office.state_of(entry.id) == expected
    shown = [p for p in office.notes(entry.id) if p.parent.name != "Drafts"]
    assert len(shown) == 1
    assert "# Lunch" not in shown[0].read_text()


def test_a_copy_of_an_unknown_letters_note_never_comes_into_approved(office: Office) -> None:
    entry = office.approved()
    with office.desk.ledger.write() as tx:
        now = office.clock()
        tx.letters.swap(tx.letters.get(entry.id), life.Unknown(now, "lost", now))
    office.look()
    (office.vault / "Pending_Approval").mkdir(exist_ok=True)
    shutil.copy(office.note(entry.id), office.vault / "Pending_Approval/copy.md")
    assert "copy.md is a copy of the letter" in office.look()
    assert office.look() == ""
    assert [p.name for p in (office.vault / "Approved").iterdir()] == [
        next(p for p in office.notes(entry.id) if p.parent.name == "Approved").name
    ]


@pytest.mark.parametrize("folder", ["Drafts", "Approved"])
def test_a_draft_that_cannot_be_marked_is_no_letter(office: Office, folder: str) -> None:
    office.write(
        f"{folder}/d.md",
        "---\n{to: ann@example.com, subject: S, status: pending_approval}\n---\nHi\n",
    )
    assert "not taken as a letter" in office.look()
    assert office.desk.ledger.lists.summaries() == []


def test_a_process_that_was_started_at_level_folder_obeys_the_ledger(office: Office) -> None:
    entry = office.propose()
    sealed = verdicts.hash_passphrase("open sesame", b"0" * 16, cost=2)
    change_settings(office.desk.ledger, trust="desk", passphrase=sealed)
    office.move(entry.id, "Approved")
    office.write("Approved/own.md", OWN)
    office.write("Approved/ann.md", SLIP)
    office.look(adopt=True)
    assert {line.state.__class__ for line in office.desk.ledger.lists.summaries()} == {life.Pending}
    assert sends(office) == []


def test_a_slip_approves_nothing_once_the_ledger_is_at_level_desk(office: Office) -> None:
    entry = office.propose()
    change_settings(office.desk.ledger, trust="desk")
    office.set_passphrase("open sesame")
    office.write("Approved/ann.md", SLIP)
    assert "not a verdict" in office.look(adopt=True)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "pending"
    assert sends(office) == []


def forge(office: Office, **record: int | str) -> None:
    """Write a line into the log that fits the chain, as anybody with file tools can."""
    (log,) = (office.vault / "Logs/actions").iterdir()
    last = present(audit.read(log.read_text().splitlines()[-1]))
    fields = last.record | {"seq": last.seq + 1, "previous": last.digest} | record
    with log.open("a") as stream:
        stream.write(json.dumps(fields) + "\n")


@pytest.mark.parametrize("state", ["sent", "rejected", "pending"])
def test_a_forged_line_of_the_log_is_believed_by_nobody(office: Office, state: str) -> None:
    waiting, sent = office.propose(), office.approved()
    office.desk.send_approved()
    for entry in (waiting, sent):
        forge(office, letter=entry.id, state=state, action_type="send_letter")
    forge(office, seq=2**53 - 1, action_type="claim_letter", timestamp="2099-01-01T00:00:00Z")
    assert office.look() == ""
    assert (office.state_of(waiting.id), office.state_of(sent.id)) == ("pending", "sent")
    office.propose()
    assert any(fault.what for fault in office.desk.log.verify())


def test_a_slip_that_is_taken_away_before_the_claim_sends_nothing(office: Office) -> None:
    slip = office.write("Approved/ann.md", SLIP)
    (office.vault / "PAUSED").touch()
    entry = post(office.desk, SEND, office.letter(), Proposal(), slips=True)
    assert entry.kind == "approved"
    slip.unlink()
    (office.vault / "PAUSED").unlink()
    office.look()
    assert office.state_of(entry.id) == "pending"
    assert sends(office) == []


def test_a_request_of_an_agents_says_what_it_would_let_out(office: Office) -> None:
    office.write(
        "Plans/Lunch.md",
        "---\ntype: email_send\nto: eve@example.com\n---\n# Lunch with Ann\n![x](https://evil.example)\n",
    )
    office.look(adopt=True)
    shown = (office.vault / "Pending_Approval/Lunch.md").read_text()
    assert "approves the next letter to `eve@example.com`" in shown
    assert "```text\n# Lunch with Ann" in shown
    assert "adopt_request" in (next(iter((office.vault / "Logs/actions").glob("*")))).read_text()


@pytest.mark.parametrize("name", ["person", "Vault", "dispatcher", "", " x", "a\nb", "x" * 65])
def test_an_agent_cannot_call_itself_what_we_call_ourselves(office: Office, name: str) -> None:
    with pytest.raises(Invalid):
        office.propose(call=Call("send_email", name))


def test_an_agent_with_a_name_of_ours_rehearses_nothing(office: Office) -> None:
    office.reopen(live=False)
    before = office.desk.ledger.actions.head()
    with pytest.raises(Invalid, match="name"):
        office.desk.calls.rehearse(Call("send_email", "person"), office.letter())
    ((_, line),) = office.desk.ledger.actions.after(before)
    assert '"result":"error"' in line


def test_whether_another_agents_letter_exists_is_not_told(office: Office) -> None:
    entry = office.propose()
    for id in (entry.id, "zzzzzzzzzz"):
        with pytest.raises(NotFound, match="of yours to replace"):
            office.propose(call=Call("send_email", "other"), replaces=id)


def test_what_cannot_be_seen_is_not_sent(office: Office) -> None:
    entry = office.propose(office.letter(text="pay \u202e0001\u202c to \u200bme\n"))
    assert entry.letter.text == "pay 0001 to me\n"


def test_a_file_whose_name_is_no_text_stops_nobody(office: Office) -> None:
    entry = office.propose()
    (office.vault / "Drafts").mkdir()
    raw = bytes(office.vault / "Drafts") + b"/caf\xe9.md"
    with open(raw, "wb") as stream:
        stream.write(OWN.encode().replace(b"subject", b"status: pending_approval\nsubject"))
    office.look()
    assert [line.id for line in office.desk.ledger.lists.summaries()] == [entry.id]


@pytest.mark.parametrize("folder", ["Pending_Approval", "Rejected"])
@pytest.mark.parametrize("way", ["dispatch", "send_approved"])
def test_a_note_taken_back_while_the_undo_window_passes_is_not_sent(
    office: Office, folder: str, way: str
) -> None:
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(5)
    office.move(entry.id, folder)
    office.clock.go(5)
    office.desk.dispatch(entry.id) if way == "dispatch" else office.desk.send_approved()
    assert office.state_of(entry.id) == ("rejected" if folder == "Rejected" else "pending")
    assert office.sent() == []


def test_a_note_taken_back_while_a_call_waits_out_the_undo_window_is_not_sent(
    office: Office,
) -> None:
    letter = office.letter()
    entry = office.propose(letter)
    office.move(entry.id, "Approved")

    def sleep(seconds: float) -> None:
        office.move(entry.id, "Pending_Approval")
        office.clock.go(seconds)

    office.sleep = sleep
    assert post(office.desk, SEND, replace(letter, id="bbbbbbbbbb")).kind == "pending"
    assert office.sent() == []


@pytest.mark.parametrize("head", ["? agent\n: x\n", f"long: {'x' * 64_000}\n"])
def test_a_draft_that_cannot_be_marked_keeps_no_other_waiting(office: Office, head: str) -> None:
    office.write(
        "Drafts/odd.md",
        f"---\nto: ann@example.com\nsubject: Hi\nstatus: pending_approval\n{head}---\nHello\n",
    )
    entry = office.approved()
    assert "Drafts/odd.md" in office.look()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert len(office.desk.ledger.lists.summaries()) == 0


def test_a_letter_to_very_many_has_a_note(office: Office) -> None:
    many = tuple(Address.parse(f"{'x' * 60}{number}@{'y' * 60}.example") for number in range(600))
    office.reopen(recipients_per_letter=1000)
    entry = office.propose(office.letter(to=many))
    assert many[-1].spec in office.page(entry.id, "")
    assert "back in Pending_Approval" not in office.look()


def test_a_clock_that_was_behind_for_a_while_refills_no_budget(
    office: Office, courier: Courier
) -> None:
    office.reopen(sends_per_hour=10, open_letters=100, proposals_per_hour=1000)

    def sent(times: int) -> int:
        for _ in range(times):
            office.desk.dispatch(office.approved().id)
        return len(courier.accepted)

    assert sent(5) == 5
    office.clock.reboot()
    office.clock.jump(-10 * 3600)
    assert sent(5) == 10
    office.clock.reboot()
    office.clock.jump(10 * 3600)
    assert sent(5) == 10


def test_a_refusal_frees_the_slip_of_its_own_claim_alone(office: Office, courier: Courier) -> None:
    courier.settles = False
    office.write("Approved/slip.md", SLIP)
    courier.loses(after=True)
    entry = post(office.desk, SEND, office.letter(subject="First"), slips=True)
    office.desk.decide(entry.id, "resolve", by="ada", sent=False)
    entry = office.desk.ledger.letters.get(entry.id)
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(20)
    courier.refuses(BUSY)
    assert office.desk.dispatch(entry.id).kind == "approved"
    second = post(office.desk, SEND, office.letter(subject="Second"), slips=True)
    assert second.kind == "pending"


def test_a_ledger_from_a_backup_knows_how_many_were_written_to(
    office: Office, courier: Courier
) -> None:
    office.reopen(recipients_per_hour=50)
    office.propose()
    office.close()
    shutil.copytree(office.state, office.folder / "backup")
    office.open()

    def sent(number: int) -> str:
        to = tuple(Address.parse(f"p{number}.{at}@example.com") for at in range(25))
        return office.desk.dispatch(office.approved(to=to).id).kind

    assert [sent(1), sent(2), sent(3)] == ["sent", "sent", "approved"]
    office.close()
    shutil.rmtree(office.state)
    shutil.copytree(office.folder / "backup", office.state)
    office.open()
    office.look()
    assert sent(4) == "approved"
    assert sum(len(got.letter.envelope) for got in courier.accepted) == 50


def test_what_is_typed_into_a_draft_while_the_terminal_edits_it_stays(office: Office) -> None:
    draft = office.write("Drafts/d.md", OWN.replace("---\nAn", "status: pending_approval\n---\nAn"))
    office.look()
    (line,) = office.desk.ledger.lists.summaries()
    entry = office.desk.ledger.letters.get(line.id)
    office.desk.verdicts.edit(entry.id, replace(entry.letter, text="From the terminal.\n"))
    draft.write_text(f"{draft.read_text()}\nTyped in Obsidian.\n")
    office.desk.sync_notes_and_log(office.desk.ledger.letters.get(entry.id), retext=True)
    assert "Typed in Obsidian." in draft.read_text()
    with pytest.raises(Conflict, match="Typed in Obsidian"):
        office.desk.approve(entry.id, by="ada", digest="")


def test_a_refusal_that_comes_late_does_not_take_a_rejection_back(
    office: Office, courier: Courier
) -> None:
    entry = office.approved()

    def meanwhile() -> None:
        office.desk.verdicts.reconcile_with_newer_log((), "put back from a backup")
        office.desk.decide(entry.id, "resolve", by="ada", sent=False)
        office.desk.decide(entry.id, "reject", by="ada", reason="never")

    office.at("published", meanwhile)
    courier.refuses(BUSY)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "rejected"
    assert sends(office) == []


def test_a_passphrase_set_meanwhile_is_asked_for_by_who_began_without(office: Office) -> None:
    entry = office.propose()
    began = office.desk
    began.trust.set_passphrase("correct horse")
    # As another process does that was opened at this level.
    change_settings(began.ledger, trust="desk")
    with pytest.raises(Denied):
        began.approve(entry.id, by="ada", digest=entry.digest)


class Fuzzy:
    """A mailbox that searches as Gmail does: by words, so that other addresses are found too."""

    def __init__(self, box: LocalMailbox) -> None:
        self.box = box

    def __getattr__(self, name: str) -> Any:
        return getattr(self.box, name)

    def search(self, query: str, *, limit: int = 20, cursor: str = "") -> SearchPage:
        found = "in:sent" if query.startswith("in:sent") else query
        return self.box.search(found, limit=limit, cursor=cursor)


def test_whom_you_have_written_to_is_read_in_the_sent_mail_itself(office: Office) -> None:
    office.wrap = Fuzzy
    office.reopen()
    ann, eve, joe = (Address.parse(f"{name}@example.com") for name in ("ann.lee", "lee", "joe.lee"))
    office.approved(to=(ann,), bcc=(joe,))
    office.desk.send_approved()
    for address, new in ((ann, False), (joe, False), (eve, True)):
        card = office.desk.exposure.card(office.letter(to=(address,)), ())
        assert ("first_contact" in {line.kind for line in card.lines}) == new, address
