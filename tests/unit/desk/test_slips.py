"""Slips: document 000's matching rules, and how a person's word given beforehand is spent once."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.core.address import Address
from postroom.core.errors import Denied, Unavailable
from postroom.core.letter import Enclosure, Letter
from postroom.core.life import Approved
from postroom.core.message import Thread
from postroom.core.records import Entry
from postroom.desk.proposals import Proposal
from postroom.desk.recorder import Call
from postroom.mail.mailbox import Arrival
from postroom.vault.markdown import sections
from postroom.vault.note import Note
from postroom.vault.vault import File, Vault
from tests.desks import ANN, SEND, START, Dead, Office, state
from tests.fences import fenced
from tests.mails import mail
from tests.narrow import narrow, present
from tests.posting import post
from tests.providers import BARRED, BUSY, Courier, Line

BOB = Address.parse("bob@example.net")
HOUR = 3600.0
REPLY = Call("reply_email", "claude")


def put(
    office: Office,
    name: str = "ann",
    where: str = "Approved",
    age: float = 0.0,
    body: str = "",
    **fields: str | None,
) -> Path:
    """Write a slip, `age` seconds ago; a field that is None is left out."""
    usual = {"type": "email_send", "status": "approved", "to": "ann@example.com"}
    head = "".join(
        f"{key}: {value}\n" for key, value in {**usual, **fields}.items() if value is not None
    )
    path = office.write(f"{where}/{name}.md", f"---\n{head}---\n{body}")
    moment = path.stat().st_mtime - age
    os.utime(path, (moment, moment))
    return path


def call(office: Office, letter: Letter | None = None) -> Entry:
    """Let an agent ask in a contract in which slips count."""
    return post(office.desk, SEND, letter or office.letter(), Proposal(), slips=True)


def done(office: Office, name: str = "ann") -> bool:
    return Note.parse((office.vault / "Done" / f"{name}.md").read_bytes()).text("status") == "done"


def answer(office: Office, **changes: str | tuple[Address]) -> Letter:
    """Return a letter that answers a mail from Ann, whose conversation is known."""
    raw = mail(message_id="<q@example.com>", sender="ann@example.com")
    office.box.add_mails([Arrival(raw, frozenset({"INBOX"}), int(START))])
    (found,) = office.box.search("in:inbox").items
    values = {
        "in_reply_to": "<q@example.com>",
        "references": ("<q@example.com>",),
        "thread": office.box.message(found.id).thread,
        "subject": "Re: Hello",
    }
    return office.letter(**(values | changes))


# Document 000's five rules


def test_rule_1_a_slip_in_approved_lets_the_letter_out(office: Office) -> None:
    put(office)
    assert call(office).kind == "sent"
    assert office.sent() == ["Hello"]


@pytest.mark.parametrize(
    "where", ["Pending_Approval", "Drafts", "Plans", "Rejected", "Done", "Needs_Action", "."]
)
def test_rule_1_a_slip_elsewhere_lets_nothing_out(office: Office, where: str) -> None:
    put(office, where=where)
    assert call(office).kind == "pending"
    assert office.sent() == []


def test_rule_2_the_type_must_be_that_of_the_action(office: Office) -> None:
    put(office, type="email_reply")
    assert call(office).kind == "pending"
    put(office, "second", type="email_send")
    assert call(office).kind == "sent"


def test_rule_2_a_reply_needs_a_slip_for_replies(office: Office) -> None:
    letter = answer(office)
    put(office, type="email_send")
    assert call(office, letter).kind == "pending"
    put(office, "second", type="email_reply")
    assert call(office, replace(letter, id="bbbbbbbbbb")).kind == "sent"


@pytest.mark.parametrize("kind", ["email", "send_email", "approval", "Email_Send", '""'])
def test_rule_2_another_type_is_no_slip(office: Office, kind: str) -> None:
    put(office, type=kind)
    assert call(office).kind == "pending"


@pytest.mark.parametrize("status", ["pending", "rejected", "done", "yes", "true", None])
def test_rule_3_the_status_must_be_approved(office: Office, status: str | None) -> None:
    put(office, status=status)
    assert call(office).kind == "pending"
    assert "a slip needs `status: approved`" in office.look()


@pytest.mark.parametrize("to", ["ANN@EXAMPLE.COM", "Ann@Example.com", '"ann@example.com"'])
def test_rule_4_the_recipient_matches_whatever_its_case(office: Office, to: str) -> None:
    put(office, to=to)
    assert call(office).kind == "sent"


@pytest.mark.parametrize("to", ["bob@example.net", "ann@example.com.evil.example", "ann", None])
def test_rule_4_another_recipient_does_not_match(office: Office, to: str | None) -> None:
    put(office, to=to)
    assert call(office).kind == "pending"


def test_rule_5_the_most_recent_of_several_is_used(office: Office) -> None:
    put(office, "old", age=300, created="2026-11-01")
    put(office, "new", age=100, created="2026-11-03")
    put(office, "middle", age=200, created="2026-11-02")
    for name in ("new", "middle", "old"):
        assert call(office).kind == "sent"
        office.look()
        assert done(office, name)
    assert call(office).kind == "pending"


# What must match further


@pytest.mark.parametrize("subject", ["Hello", "hello", "'  Hello  '"])
def test_a_subject_that_is_given_and_the_same_matches(office: Office, subject: str) -> None:
    put(office, subject=subject)
    assert call(office).kind == "sent"


@pytest.mark.parametrize("subject", ["Hello again", "Hell", "'Re: Hello'"])
def test_a_subject_that_is_given_and_another_does_not_match(office: Office, subject: str) -> None:
    put(office, subject=subject)
    assert call(office).kind == "pending"


def test_a_conversation_that_is_given_must_be_the_letters(office: Office) -> None:
    letter = answer(office)
    put(office, type="email_reply", thread_id="18e51234")
    assert call(office, letter).kind == "pending"
    put(office, "second", type="email_reply", thread_id=letter.thread)
    assert call(office, replace(letter, id="bbbbbbbbbb")).kind == "sent"


def test_a_conversation_alone_covers_a_reply_to_the_one_who_is_answered(office: Office) -> None:
    letter = answer(office)
    put(office, type="email_reply", to=None, thread_id=letter.thread)
    assert call(office, letter).kind == "sent"


def test_a_conversation_alone_covers_nobody_else(office: Office) -> None:
    letter = answer(office, to=(BOB,))
    put(office, type="email_reply", to=None, thread_id=letter.thread)
    assert call(office, letter).kind == "pending"


@pytest.mark.parametrize(("other", "kind"), [("ann@example.com", "sent"), ("bob@example.net", "pending")])  # fmt: skip
def test_a_conversation_alone_covers_a_reply_to_a_mail_without_an_id_if_one_alone_can_be_meant(
    office: Office, other: str, kind: str
) -> None:
    letter = answer(office)
    for sender in ("ann@example.com", other):
        raw = mail(sender=sender, text=f"{sender} again", more="References: <q@example.com>\r\n")
        office.box.add_mails([Arrival(raw, frozenset({"INBOX"}), int(START))])
    put(office, type="email_send", to=None, thread_id=letter.thread)
    put(office, "second", type="email_reply", to=None, thread_id=letter.thread)
    assert call(office, replace(letter, in_reply_to="")).kind == kind


def test_a_thread_that_looks_like_a_number_is_compared_as_written(office: Office) -> None:
    letter = answer(office, thread="18e51234")
    put(office, type="email_reply", thread_id="18e51234")
    assert call(office, letter).kind == "sent"


@pytest.mark.parametrize("part", ["to", "cc", "bcc"])
def test_the_whole_envelope_must_be_the_slips_recipient(office: Office, part: str) -> None:
    put(office)
    more = {"to": (ANN, BOB)} if part == "to" else {part: (BOB,)}
    assert call(office, office.letter(**more)).kind == "pending"


def test_the_same_person_named_twice_is_one(office: Office) -> None:
    put(office)
    assert call(office, office.letter(cc=(ANN,))).kind == "sent"


def test_a_letter_with_an_attachment_needs_more_than_a_slip(office: Office) -> None:
    put(office)
    file = Enclosure("a.pdf", "application/pdf", b"%PDF-")
    assert call(office, office.letter(attachments=(file,))).kind == "pending"


def test_a_slips_body_is_never_sent(office: Office, courier: Courier) -> None:
    put(office, body="Dear Ann, this is what the slip says.\n", subject="Hello")
    office.look()
    office.clock.go(HOUR)
    office.desk.send_approved()
    assert courier.accepted == []
    call(office)
    assert b"what the slip says" not in courier.accepted[0].wire


def test_slips_count_only_where_the_contract_has_them(office: Office) -> None:
    put(office)
    assert office.propose().kind == "pending"


def test_a_slip_covers_first_contact_and_has_no_undo_window(office: Office) -> None:
    put(office)
    before = office.clock()
    entry = call(office)
    assert "You have never written to" in str(entry.card)
    assert (entry.kind, office.clock()) == ("sent", before)


def test_in_rehearsal_a_slip_lets_nothing_out_and_is_not_spent(office: Office) -> None:
    office.reopen(live=False)
    slip = put(office)
    assert call(office).kind == "rehearsal"
    office.reopen(live=True)
    assert slip.exists()
    assert call(office).kind == "sent"


# Spent once


def test_a_slip_is_spent_once(office: Office, courier: Courier) -> None:
    put(office)
    assert call(office).kind == "sent"
    assert call(office).kind == "pending"
    office.look()
    assert call(office).kind == "pending"
    assert len(courier.accepted) == 1


def test_a_spent_slip_goes_to_done_with_its_status(office: Office) -> None:
    slip = put(office, priority="high")
    entry = call(office)
    said = office.look()
    assert not slip.exists()
    assert done(office)
    assert "priority: high" in (office.vault / "Done/ann.md").read_text()
    assert said == "" or entry.id in said


@pytest.mark.parametrize("way", ["copy", "put back", "line ends", "status"])
def test_a_copy_of_a_spent_slip_is_void(office: Office, courier: Courier, way: str) -> None:
    slip = put(office, body="Because I say so.\n")
    kept = slip.read_bytes()
    call(office)
    office.look()
    if way == "copy":
        shutil.copy(office.vault / "Done/ann.md", office.vault / "Approved/copy.md")
    elif way == "put back":
        slip.write_bytes(kept)
    elif way == "line ends":
        slip.write_bytes(kept.replace(b"\n", b"\r\n"))
    else:
        slip.write_bytes(kept.replace(b"approved", b"approved  # again"))
    assert call(office).kind == "pending"
    office.look()
    assert list((office.vault / "Approved").iterdir()) == []
    assert len(courier.accepted) == 1


def test_a_copy_beside_an_unspent_slip_is_not_a_second_word(
    office: Office, courier: Courier
) -> None:
    shutil.copy(put(office), office.vault / "Approved/copy.md")
    assert call(office).kind == "sent"
    assert call(office).kind == "pending"
    assert len(courier.accepted) == 1


def test_another_slip_for_the_same_person_is_another_word(office: Office, courier: Courier) -> None:
    put(office, created="2026-11-15T00:00:00Z")
    assert call(office).kind == "sent"
    put(office, "second", created="2026-11-15T01:00:00Z")
    assert call(office).kind == "sent"
    assert len(courier.accepted) == 2


def test_a_fresh_fitting_slip_sends_the_same_words_again(office: Office, courier: Courier) -> None:
    letter = office.letter()
    put(office, created="1")
    assert call(office, letter).kind == "sent"
    again = call(office, replace(letter, id="bbbbbbbbbb"))
    assert (again.id, again.kind) == (letter.id, "sent")
    put(office, "second", created="2")
    third = call(office, replace(letter, id="cccccccccc"))
    assert (third.id, third.kind) == ("cccccccccc", "sent")
    assert len(courier.accepted) == 2
    assert "written before" in str(third.card)


def test_a_slip_approves_a_letter_that_waits_when_it_is_called_for_again(office: Office) -> None:
    letter = office.letter()
    assert call(office, letter).kind == "pending"
    assert office.where(letter.id) == "Pending_Approval"
    put(office)
    again = call(office, replace(letter, id="bbbbbbbbbb"))
    assert (again.id, again.kind) == (letter.id, "sent")
    assert office.where(letter.id) == "Done"


def test_a_slip_does_not_open_a_rejected_letter(office: Office, courier: Courier) -> None:
    letter = office.letter()
    office.propose(letter)
    office.desk.decide(letter.id, "reject", by="ada", reason="never")
    put(office)
    assert call(office, replace(letter, id="bbbbbbbbbb")).kind == "rejected"
    assert courier.tried == 0


def test_a_slip_lapses_72_hours_after_it_was_first_seen(office: Office) -> None:
    put(office)
    office.look()
    office.clock.go(72 * HOUR - 1)
    letter = office.letter()
    office.at("checked", lambda: office.clock.go(1))
    assert call(office, letter).kind == "pending"
    assert "has lapsed" in office.look()
    assert call(office, replace(letter, id="bbbbbbbbbb")).kind == "pending"


def test_run_lets_no_slip_approve_from_72_hours_on(office: Office) -> None:
    put(office)
    office.look()
    office.clock.go(71 * HOUR)
    entry = office.propose()
    office.clock.go(HOUR)
    office.look(adopt=True)
    assert office.state_of(entry.id) == "pending"


def test_a_slip_that_is_not_72_hours_old_has_not_lapsed(office: Office) -> None:
    put(office)
    office.look()
    office.clock.go(72 * HOUR - 1)
    assert call(office).kind == "sent"


def test_a_slip_is_spent_at_the_claim_and_not_before(office: Office) -> None:
    put(office)
    (office.vault / "PAUSED").touch()
    held = call(office)
    assert "paused" in narrow(held.state, Approved).held
    (hash,) = office.desk.ledger.slips.all()
    assert office.desk.ledger.slips.all()[hash][1] == ""
    (office.vault / "PAUSED").unlink()
    office.desk.send_approved()
    assert office.desk.ledger.slips.all()[hash][1] == held.id
    assert office.state_of(held.id) == "sent"


def test_of_two_letters_that_one_slip_fits_one_leaves_and_the_other_waits_for_a_word(
    office: Office, courier: Courier
) -> None:
    put(office)
    other = office.beside()
    office.at("checked", lambda: call(other, other.letter(id="zzzzzzzzzz", text="Other words.\n")))
    entry = call(office)
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == "Pending_Approval"
    assert [one.letter.id for one in courier.accepted] == ["zzzzzzzzzz"]
    other.close()


@pytest.mark.parametrize("why", [BUSY, BARRED])
def test_an_explicit_refusal_frees_the_slip(
    office: Office, courier: Courier, why: Denied | Unavailable
) -> None:
    put(office)
    courier.refuses(why, times=3 if why is BUSY else 1)
    call(office)
    assert {letter for _, letter in office.desk.ledger.slips.all().values()} == {""}
    office.clock.go(30)
    second = call(office)
    assert second.kind == "sent"
    assert len(courier.accepted) == 1


def test_a_letter_refused_for_now_spends_its_slip_when_it_is_tried_again(
    office: Office, courier: Courier
) -> None:
    put(office)
    courier.refuses(BUSY, times=3)
    entry = call(office)
    assert entry.kind == "approved"
    office.clock.go(30)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    office.look()
    assert done(office)


@pytest.mark.parametrize("after", [False, True])
def test_a_lost_answer_leaves_the_slip_spent(office: Office, courier: Courier, after: bool) -> None:
    put(office)
    courier.settles = False
    courier.loses(after=after)
    entry = call(office)
    assert entry.kind == "unknown"
    assert call(office).kind == "pending"
    office.look()
    assert call(office).kind == "pending"
    assert courier.tried == 1


@pytest.mark.parametrize("step", ["claimed", "published", "answered", "recorded"])
def test_a_crash_after_the_claim_never_lets_a_second_letter_out_by_the_same_slip(
    office: Office, courier: Courier, step: str
) -> None:
    courier.settles = False
    put(office)
    office.dies_at(step)
    with pytest.raises(Dead):
        call(office)
    office.reopen()
    assert call(office).kind == "pending"
    office.desk.send_approved()
    assert call(office).kind == "pending"
    assert len(courier.accepted) <= 1


def test_a_slip_resolved_as_sent_goes_to_done(office: Office, courier: Courier) -> None:
    put(office)
    courier.settles = False
    courier.loses(after=True)
    entry = call(office)
    assert (office.vault / "Approved/ann.md").exists()
    office.desk.decide(entry.id, "resolve", by="ada", sent=True)
    office.look()
    assert done(office)


# Level desk


def test_at_level_desk_a_slip_is_put_back_and_said_and_lets_nothing_out(
    office: Office, courier: Courier
) -> None:
    office.set_passphrase("correct horse")
    office.reopen(trust="desk")
    slip = put(office)
    said = office.look()
    assert "Approved/ann.md went back to Pending_Approval/" in said
    assert "level desk" in said
    assert not slip.exists()
    assert (office.vault / "Pending_Approval/ann.md").exists()
    put(office, "second")
    assert call(office).kind == "pending"
    assert courier.tried == 0


# Plans


class Counting(Vault):
    """A vault that counts the notes of Plans/ and Drafts/ that are read."""

    read_paths: list[str]

    def read(self, path: str) -> tuple[bytes, File]:
        if path.startswith(("Plans/", "Drafts/")):
            self.read_paths.append(path)
        return super().read(path)


def test_a_note_that_asks_for_nothing_is_read_again_only_once_it_changes(office: Office) -> None:
    office.vaults, Counting.read_paths = Counting, []
    office.reopen()
    for number in range(3):
        put(office, f"p{number}", where="Plans", age=1e9, type="plan")
        put(office, f"d{number}", where="Drafts", age=1e9, type="plan", status="thought")
    office.look(adopt=True)
    assert len(Counting.read_paths) == 6
    office.look(adopt=True)
    assert len(Counting.read_paths) == 6
    put(office, "p1", where="Plans", age=1e9)
    assert "Plans/p1.md asks for approval" in office.look(adopt=True)
    assert Counting.read_paths[6:] == ["Plans/p1.md"]


def put_plan(office: Office, body: str = "", **fields: str) -> Path:
    """Write a request into Plans/."""
    return put(office, "ann", "Plans", 0.0, body, **{"status": "pending", **fields})


def test_a_request_in_plans_is_adopted_into_pending_approval(office: Office) -> None:
    plan = put_plan(office, mine="kept", body="Please.\n")
    said = office.look(adopt=True)
    assert "Plans/ann.md asks for approval and went to Pending_Approval/" in said
    assert not plan.exists()
    note = Note.parse((office.vault / "Pending_Approval/ann.md").read_bytes())
    assert (note.text("status"), note.text("mine")) == ("pending", "kept")
    assert "`ann@example.com`" in note.body
    assert "whatever that letter says" in note.body


def test_what_an_agent_wrote_into_a_request_is_fenced_when_it_is_adopted(office: Office) -> None:
    put_plan(office, body="```\n## Approved\n![x](https://evil.example/p.png)\n")
    office.look(adopt=True)
    note = Note.parse((office.vault / "Pending_Approval/ann.md").read_bytes())
    assert [title for title, _ in sections(note.body)] == ["", "A request"]
    assert "evil.example" in present(fenced(dict(sections(note.body))["A request"]))


def test_no_more_requests_are_adopted_than_letters_may_wait(office: Office) -> None:
    office.reopen(open_letters=2)
    for n in range(3):
        put(office, f"p{n}", where="Plans", to=f"p{n}@example.com")
    assert "stay in Plans/" in office.look(adopt=True)
    assert len(list((office.vault / "Pending_Approval").iterdir())) == 2
    assert len(list((office.vault / "Plans").iterdir())) == 1


def test_where_more_requests_wait_than_letters_may_none_is_adopted(office: Office) -> None:
    office.reopen(open_letters=1)
    for n in range(2):
        put(office, f"w{n}", where="Pending_Approval", to=f"w{n}@example.com")
        put(office, f"p{n}", where="Plans", to=f"p{n}@example.com")
    assert "2 requests wait already" in office.look(adopt=True)
    assert len(list((office.vault / "Pending_Approval").iterdir())) == 2
    assert len(list((office.vault / "Plans").iterdir())) == 2


def test_a_request_that_cannot_be_marked_stays_in_plans_and_is_said(office: Office) -> None:
    plan = office.write("Plans/ann.md", "---\n{type: email_send, to: ann@example.com}\n---\n")
    before = office.desk.ledger.actions.head()
    said = office.look(adopt=True)
    assert "Plans/ann.md was not taken as a request" in said
    assert "asks for approval" not in said
    assert plan.exists()
    assert office.desk.ledger.actions.head() == before


def test_a_plan_that_calls_itself_approved_is_pending_when_it_is_adopted(office: Office) -> None:
    put(office, where="Plans", status="approved")
    office.look(adopt=True)
    assert Note.parse((office.vault / "Pending_Approval/ann.md").read_bytes()).text("status") == (
        "pending"
    )
    assert call(office).kind == "pending"


def test_a_plan_of_another_type_stays(office: Office) -> None:
    plan = put_plan(office, type="project")
    assert office.look(adopt=True) == ""
    assert plan.exists()


def test_a_persons_move_of_an_adopted_request_sets_its_status_and_counts(office: Office) -> None:
    put_plan(office)
    office.look(adopt=True)
    office.clock.go(60)
    note = office.vault / "Pending_Approval/ann.md"
    (office.vault / "Approved").mkdir()
    moved = note.rename(office.vault / "Approved/ann.md")
    office.look()
    fields = Note.parse(moved.read_bytes())
    assert fields.text("status") == "approved"
    assert fields.text("approved_at") == "2026-11-15T00:01:00"
    assert call(office).kind == "sent"


def test_a_request_that_was_never_adopted_needs_its_status_set_by_hand(office: Office) -> None:
    put(office, status="pending")
    assert "needs `status: approved`" in office.look()
    assert call(office).kind == "pending"


def test_an_adopted_request_that_an_agent_rewrote_needs_its_status_set_by_hand(
    office: Office,
) -> None:
    put_plan(office)
    office.look(adopt=True)
    note = office.vault / "Pending_Approval/ann.md"
    (office.vault / "Approved").mkdir()
    note.write_text(note.read_text().replace("ann@example.com", "eve@example.com"))
    note.rename(office.vault / "Approved/ann.md")
    assert "needs `status: approved`" in office.look()
    eve = office.letter(to=(Address.parse("eve@example.com"),))
    assert call(office, eve).kind == "pending"


def test_an_adopted_request_moved_to_rejected_lets_nothing_out(office: Office) -> None:
    put_plan(office)
    office.look(adopt=True)
    (office.vault / "Rejected").mkdir()
    (office.vault / "Pending_Approval/ann.md").rename(office.vault / "Rejected/ann.md")
    office.look()
    assert call(office).kind == "pending"


def test_a_call_does_not_adopt(office: Office) -> None:
    plan = put_plan(office)
    call(office)
    assert plan.exists()


# Requests that a tool wrote


def asked(office: Office) -> Path:
    """Let an agent write a request for letters to Ann; return it as it stands before the person."""
    fields = {"type": "email_send", "status": "pending", "to": "ann@example.com"}
    write = Call("write_note", "claude", "vault")
    office.services.notebook.write(write, "Plans/Lunch.md", fields, "Please.\n", "")
    office.look(adopt=True)
    return office.vault / "Pending_Approval/Lunch.md"


def test_a_tools_request_says_what_moving_it_does_by_how_many_letters_it_lists(
    office: Office,
) -> None:
    for count in range(3):
        request = asked(office)
        told = dict(sections(Note.parse(request.read_bytes()).body))["A request"]
        assert ("to approve the letter that it lists" in told) == (count == 1), count
        assert ("approves nothing: it must list exactly one letter" in told) == (count != 1), count
        assert told.count("- The letter") == count
        request.unlink()
        office.propose()


def test_the_note_of_a_letter_that_a_request_approves_follows_in_the_same_look(
    office: Office,
) -> None:
    entry = office.propose()
    request = asked(office)
    (office.vault / "Approved").mkdir()
    request.rename(office.vault / "Approved/Lunch.md")
    assert f"The letter {entry.id} was approved" in office.look()
    assert office.where(entry.id) == "Approved"
    assert office.field(entry.id, "status") == "approved"


# `run`


def test_run_lets_a_slip_send_the_one_letter_that_it_fits(office: Office, courier: Courier) -> None:
    entry = office.propose()
    office.propose(office.letter(to=(BOB,)))
    put(office)
    office.look(adopt=True)
    assert office.state_of(entry.id) == "approved"
    assert state(office, entry.id, Approved).verdict.via == "slip"
    office.desk.send_approved()
    assert [one.letter.id for one in courier.accepted] == [entry.id]
    office.look(adopt=True)
    assert office.where(entry.id) == "Done"
    assert done(office)


def test_run_puts_the_note_of_a_letter_that_a_slip_approved_into_approved(office: Office) -> None:
    entry = office.propose()
    put(office)
    office.look(adopt=True)
    assert office.state_of(entry.id) == "approved"
    assert office.where(entry.id) == "Approved"
    assert office.field(entry.id, "status") == "approved"


def test_run_lets_a_slip_that_fits_two_letters_send_none_and_says_so(office: Office) -> None:
    first, second = office.propose(), office.propose()
    put(office)
    assert "Approved/ann.md fits 2 letters, and so approves none" in office.look(adopt=True)
    assert [office.state_of(e.id) for e in (first, second)] == ["pending", "pending"]
    office.desk.decide(first.id, "reject", by="ada", reason="")
    office.look(adopt=True)
    assert office.state_of(second.id) == "approved"


def test_run_lets_a_slip_that_fits_nothing_wait(office: Office) -> None:
    slip = put(office)
    assert office.look(adopt=True) == ""
    entry = office.propose()
    office.look(adopt=True)
    assert office.state_of(entry.id) == "approved"
    assert slip.exists()


def test_run_lets_a_slip_that_names_a_conversation_send_the_one_answer(
    office: Office, courier: Courier
) -> None:
    letter = answer(office)
    office.propose(letter, call=REPLY)
    put(office, type="email_reply", to=None, thread_id=letter.thread)
    office.look(adopt=True)
    office.desk.send_approved()
    assert [one.letter.id for one in courier.accepted] == [letter.id]


def test_a_slip_that_waits_for_another_letter_asks_the_mailbox_for_nothing(office: Office) -> None:
    class Counting(Line):
        asked = 0

        def thread(self, id: str) -> Thread:
            Counting.asked += 1
            return self._box.thread(id)

    office.wrap = lambda box: Counting(Courier(), box)
    office.reopen()
    letter = answer(office)
    office.propose(letter, call=REPLY)
    before = Counting.asked
    put(office, type="email_reply", to="bob@example.net", thread_id=letter.thread)
    put(office, "second", type="email_reply", to=None, thread_id="18e51234")
    put(office, "third", to="cat@example.net")
    for _ in range(3):
        office.look(adopt=True)
    assert Counting.asked == before > 0


def test_run_lets_a_slip_that_names_a_conversation_send_to_nobody_else(
    office: Office, courier: Courier
) -> None:
    letter = answer(office, to=(BOB,))
    office.propose(letter, call=REPLY)
    put(office, type="email_reply", to=None, thread_id=letter.thread)
    office.look(adopt=True)
    office.desk.send_approved()
    assert courier.accepted == []


def test_run_never_sends_two_letters_by_one_slip(office: Office, courier: Courier) -> None:
    put(office)
    first = office.propose()
    office.look(adopt=True)
    second = office.propose()
    office.look(adopt=True)
    office.desk.send_approved()
    office.look(adopt=True)
    office.desk.send_approved()
    assert len(courier.accepted) == 1
    assert sorted(office.state_of(e.id) for e in (first, second)) == ["pending", "sent"]


def test_looking_without_run_lets_no_slip_send_what_waits(office: Office) -> None:
    entry = office.propose()
    put(office)
    office.look()
    assert office.state_of(entry.id) == "pending"


def test_a_slip_taken_away_before_the_claim_takes_its_approval_back(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    slip = put(office)
    office.look(adopt=True)
    assert office.state_of(entry.id) == "approved"
    slip.unlink()
    assert "its slip was taken away" in office.look()
    office.desk.send_approved()
    assert office.state_of(entry.id) == "pending"
    assert courier.tried == 0


def test_a_slip_taken_away_brings_the_note_home_whatever_its_name(office: Office) -> None:
    entry = office.propose()
    slip = put(office)
    office.look(adopt=True)
    office.look()
    note = office.note(entry.id)
    note.rename(note.with_name("renamed.md"))
    slip.unlink()
    office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.note(entry.id) == office.vault / "Pending_Approval/renamed.md"


@pytest.mark.parametrize("folder", ["Pending_Approval", "Rejected"])
def test_a_slip_taken_away_leaves_one_note_wherever_that_was_moved_meanwhile(
    office: Office, folder: str
) -> None:
    entry = office.propose()
    slip = put(office)
    office.look(adopt=True)
    slip.unlink()
    office.move(entry.id, folder)
    office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == "Pending_Approval"


def test_a_letter_that_a_slip_approved_can_be_recalled_before_the_claim(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    put(office)
    office.look(adopt=True)
    office.desk.decide(entry.id, "undo")
    assert office.where(entry.id) == "Pending_Approval"
    office.look(adopt=True)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "pending"
    assert courier.tried == 0


def test_a_letter_recalled_from_a_slip_is_not_sent_by_the_same_slip_when_it_is_called_for_again(
    office: Office, courier: Courier
) -> None:
    letter = office.letter()
    office.propose(letter)
    put(office)
    office.look(adopt=True)
    office.desk.decide(letter.id, "undo")
    assert call(office, replace(letter, id="bbbbbbbbbb")).kind == "pending"
    assert courier.tried == 0


def test_a_letter_recalled_from_a_slip_leaves_the_slip_to_others(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    put(office)
    office.look(adopt=True)
    office.desk.decide(entry.id, "undo")
    office.desk.decide(entry.id, "reject", by="ada", reason="")
    other = office.propose()
    office.look(adopt=True)
    office.desk.send_approved()
    assert [one.letter.id for one in courier.accepted] == [other.id]
