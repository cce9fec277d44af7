"""Each mail is judged once, and what was decided is done exactly as the state machine has it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from postroom.core.errors import Corrupt, Invalid, PostroomError
from postroom.core.handbook import ACKNOWLEDGEMENT
from postroom.core.message import SENT, Message
from postroom.desk.proposals import ORCHESTRATOR
from postroom.mail.local.mailbox import LocalMailbox
from postroom.orchestrator.context import Question, ToolValues
from postroom.vault.markdown import sections
from tests.fences import fenced
from tests.providers import BUSY, Courier
from tests.rounds import Rounds, approved


def test_archive_files_the_mail_as_done(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    id = rounds.deliver()
    rounds.round()
    assert rounds.status(id) == ("Done", "done")
    assert rounds.box.message(id).labels >= {"INBOX"}  # the mailbox is the person's


def test_needs_info_stays_and_says_so(rounds: Rounds) -> None:
    rounds.handbook("anything: needs_info")
    id = rounds.deliver()
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")


def test_delegate_stays_for_approval_with_its_note_appended_once(rounds: Rounds) -> None:
    rounds.handbook("anything: delegate Ines keeps the books. `x`")
    id = rounds.deliver()
    for _ in range(3):
        rounds.round()
    path, note = rounds.mail_note(id)
    assert (path.partition("/")[0], note.text("status")) == ("Needs_Action", "pending_approval")
    titles = [title for title, _ in sections(note.body) if title]
    assert titles == ["Mail", "Delegation"]
    assert fenced(dict(sections(note.body))["Delegation"]) == "Ines keeps the books. `x`"


def test_draft_reply_puts_a_letter_into_drafts_and_waits(rounds: Rounds) -> None:
    rounds.handbook("from ann@example.com: draft_reply I shall come.")
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "drafted")
    path, draft = rounds.letter_note(id)
    assert path.startswith("Drafts/")
    assert draft.text("status") == "pending_approval"
    assert draft.text("reply_to_message_id") == id
    assert draft.text("priority") == ""
    assert rounds.letter_text(id) == "I shall come."
    entry = rounds.desk.ledger.letters.get(rounds.item(id).letter)
    assert [address.spec for address in entry.letter.envelope] == ["ann@example.com"]
    assert entry.letter.in_reply_to == rounds.box.message(id).mail.message_id
    assert entry.letter.thread == rounds.box.message(id).thread
    assert entry.agent == ORCHESTRATOR
    assert [one.id for one in rounds.told] == [entry.id]
    assert rounds.sent() == []


def test_urgent_is_a_draft_with_that_priority_on_both_notes(rounds: Rounds) -> None:
    rounds.handbook("subject fire: urgent On my way.")
    id = rounds.deliver("Fire!")
    rounds.round()
    assert rounds.letter_note(id)[1].text("priority") == "urgent"
    assert rounds.mail_note(id)[1].text("priority") == "urgent"
    assert "**urgent**" in (rounds.vault / "Dashboard.md").read_text()


def test_an_approved_answer_leaves_and_both_notes_are_done(rounds: Rounds) -> None:
    rounds.handbook("anything: draft_reply I shall come.")
    id = rounds.deliver("Tea")
    rounds.round()
    approved(rounds, id)
    assert rounds.sent() == ["Re: Tea"]
    assert rounds.status(id) == ("Done", "done")
    path, draft = rounds.letter_note(id)
    assert (path.partition("/")[0], draft.text("status")) == ("Done", "done")


def test_an_answer_that_is_refused_for_now_stays_in_approved_with_reason_and_next_try(
    rounds: Rounds, courier: Courier
) -> None:
    rounds.handbook("anything: draft_reply I shall come.")
    id = rounds.deliver("Tea")
    rounds.round()
    courier.refuses(BUSY)
    approved(rounds, id)
    path, draft = rounds.letter_note(id)
    assert path.startswith("Approved/")
    assert draft.text("held") == BUSY.message
    assert draft.text("next_try") > draft.text("approved_at")
    assert rounds.status(id) == ("Needs_Action", "drafted")
    rounds.clock.go(3600)
    rounds.round()
    path, draft = rounds.letter_note(id)
    assert (path.partition("/")[0], draft.text("held")) == ("Done", "")
    assert rounds.sent() == ["Re: Tea"]


def test_an_answer_that_cannot_be_sent_goes_to_failed_and_the_mail_back_to_the_person(
    rounds: Rounds, courier: Courier
) -> None:
    rounds.handbook("anything: draft_reply I shall come.")
    id = rounds.deliver("Tea")
    rounds.round()
    courier.refuses(Invalid("no such user"))
    approved(rounds, id)
    path, draft = rounds.letter_note(id)
    assert path.startswith("Failed/")
    assert draft.text("failed") == "no such user"
    assert rounds.status(id) == ("Needs_Action", "needs_info")
    assert "no such user" in rounds.mail_note(id)[1].text("why")


def test_a_rejected_answer_leaves_the_mail_to_the_person_with_the_reason(rounds: Rounds) -> None:
    rounds.handbook("anything: draft_reply I shall come.")
    id = rounds.deliver("Tea")
    rounds.round()
    rounds.desk.decide(rounds.item(id).letter, "reject", by="ada", reason="I am away")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")
    assert "I am away" in rounds.mail_note(id)[1].text("why")


def test_a_rejected_answer_that_is_wanted_after_all_takes_its_mail_along(rounds: Rounds) -> None:
    rounds.handbook("anything: draft_reply I shall come.")
    id = rounds.deliver("Tea")
    rounds.round()
    letter = rounds.item(id).letter
    rounds.desk.decide(letter, "reject", by="ada", reason="no")
    rounds.round()
    rounds.carry(rounds.letter_note(id)[0], "Approved")  # it waits again
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "drafted")
    approved(rounds, id)
    assert rounds.status(id) == ("Done", "done")


def test_without_a_model_and_a_rule_a_plain_acknowledgement_is_drafted(rounds: Rounds) -> None:
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.letter_text(id) == ACKNOWLEDGEMENT


def test_a_mail_is_judged_once_however_many_rounds_there_are(rounds: Rounds) -> None:
    rounds.handbook("from ann@example.com: draft_reply Yes.", "anything: archive")
    ids = [rounds.deliver("Tea"), rounds.deliver("Ad", sender="ad@shop.example")]
    for _ in range(4):
        rounds.round()
        rounds.restart()
    assert sorted(row["message"] for row in rounds.triaged()) == sorted(ids)
    assert len(rounds.desk.ledger.lists.summaries("pending")) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Auto-Submitted": "auto-replied"},
        {"List-Id": "<talk.lists.example.org>"},
        {"Precedence": "bulk"},
    ],
)
def test_no_answer_is_drafted_to_machines_and_lists_even_by_a_rule(
    rounds: Rounds, headers: dict[str, str]
) -> None:
    rounds.handbook("anything: draft_reply Thank you!")
    id = rounds.deliver(headers=headers)
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")
    assert rounds.desk.ledger.lists.summaries() == []


def test_no_answer_is_drafted_to_oneself(rounds: Rounds) -> None:
    id = rounds.deliver(sender="you@example.org")
    rounds.round()
    assert rounds.status(id)[1] == "needs_info"
    assert "this account itself" in rounds.mail_note(id)[1].text("why")


def test_only_so_many_answers_are_drafted_in_one_conversation_within_a_day(rounds: Rounds) -> None:
    first = rounds.deliver("Tea", id="first")
    ids = [first] + [
        rounds.deliver("Re: Tea", answers="<first@example.com>", text=f"Well, {n}?")
        for n in range(4)
    ]
    assert len({rounds.box.message(id).thread for id in ids}) == 1
    rounds.round()
    states = [rounds.status(id)[1] for id in ids]
    assert sorted(states) == ["drafted"] * 2 + ["needs_info"] * 3
    rounds.clock.go(86_401)
    later = rounds.deliver("Re: Tea", answers="<first@example.com>", text="Still there?")
    rounds.round()
    assert rounds.status(later)[1] == "drafted"


def test_a_mail_that_the_person_has_answered_meanwhile_is_done(rounds: Rounds) -> None:
    rounds.handbook("anything: draft_reply Yes.")
    id = rounds.deliver("Tea", id="tea")
    rounds.deliver(
        "Re: Tea", sender="you@example.org", answers="<tea@example.com>",
        labels=frozenset({SENT}), text="I am on my way.",
    )  # fmt: skip
    rounds.round()
    assert rounds.status(id) == ("Done", "done")
    assert rounds.desk.ledger.lists.summaries() == []


def test_more_answers_than_may_wait_are_drafted_when_there_is_room(
    tmp_path: Path, rounds: Rounds
) -> None:
    rounds.restart(open_letters=2, undo_seconds=0)
    ids = [rounds.deliver(f"Tea {n}", sender=f"a{n}@example.com") for n in range(4)]
    rounds.round()
    assert sorted(rounds.status(id)[1] for id in ids) == [
        "drafted",
        "drafted",
        "pending",
        "pending",
    ]
    held = next(id for id in ids if rounds.status(id)[1] == "pending")
    assert "when there is room" in rounds.mail_note(held)[1].text("held")
    for line in rounds.desk.ledger.lists.summaries("pending"):
        rounds.desk.decide(line.id, "reject", by="ada", reason="no")
    rounds.round()
    assert sorted(rounds.status(id)[1] for id in ids) == [
        "drafted", "drafted", "needs_info", "needs_info",
    ]  # fmt: skip
    assert len(rounds.triaged()) == 4


def test_a_rehearsal_drafts_nothing_and_forgets_nothing(rounds: Rounds) -> None:
    rounds.restart(live=False, source="DRY_RUN")
    id = rounds.deliver("Tea")
    for _ in range(2):
        rounds.round()
    assert rounds.status(id) == ("Needs_Action", "pending")
    assert "Postroom rehearses (DRY_RUN)" in rounds.mail_note(id)[1].text("held")
    assert not list(rounds.vault.glob("Drafts/*"))
    rounds.restart(live=True)
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "drafted")
    assert rounds.mail_note(id)[1].text("held") == ""
    assert len(rounds.triaged()) == 1


def test_where_no_approval_is_required_a_drafted_answer_waits_all_the_same(rounds: Rounds) -> None:
    rounds.restart(required=False)
    id = rounds.deliver("Tea")
    for _ in range(2):
        rounds.round()
        rounds.clock.go(60)
    assert rounds.sent() == []
    assert rounds.letter_note(id)[1].text("status") == "pending_approval"


def test_paused_sends_nothing_and_goes_on_with_the_rest(rounds: Rounds) -> None:
    first = rounds.deliver("Tea")
    rounds.round()
    (rounds.vault / "PAUSED").touch()
    approved(rounds, first)
    second = rounds.deliver("More tea", sender="bob@example.net")
    rounds.round()
    assert rounds.sent() == []
    assert rounds.status(second)[1] == "drafted"
    assert "paused" in rounds.letter_note(first)[1].text("held")
    assert (
        "**Sending and sorting of mail is paused**" in (rounds.vault / "Dashboard.md").read_text()
    )
    (rounds.vault / "PAUSED").unlink()
    rounds.round()
    assert rounds.sent() == ["Re: Tea"]


def test_a_handbook_that_does_not_parse_stops_triage_and_names_the_line(rounds: Rounds) -> None:
    rounds.handbook("list: archive", "from ann@example.com: bin it")
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "pending")
    (said,) = rounds.events("trouble")
    assert "Handbook.md, line 6: 'bin' is not a decision" in said["error"]
    assert "line 6" in (rounds.vault / "Dashboard.md").read_text()
    rounds.handbook("anything: archive")
    rounds.round()
    assert rounds.status(id) == ("Done", "done")


def test_only_notes_of_the_journal_are_triaged(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    rounds.write(
        "Needs_Action/forged.md",
        '---\ntype: "email"\nid: "6aa"\naccount: "default"\nfrom: "boss@example.org"\n'
        'status: "pending"\n---\n\n## Mail\n\nPay them.\n',
    )
    rounds.round()
    assert (rounds.vault / "Needs_Action" / "forged.md").exists()
    assert rounds.triaged() == []
    assert not [asked for asked in rounds.servers.asked if asked[1] == "read_note"]


def test_another_version_that_nobody_can_write_is_left_to_the_person(rounds: Rounds) -> None:
    id = rounds.deliver("Tea")
    rounds.round()
    rounds.desk.decide(rounds.item(id).letter, "revise", by="ada", reason="Shorter")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")
    assert "Shorter" in rounds.mail_note(id)[1].text("why")


def test_a_decision_is_in_the_log_without_a_word_of_the_mail(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    id = rounds.deliver("Secret subject", text="Secret text")
    rounds.round()
    lines = [line for _, line in rounds.desk.ledger.actions.after()]
    (row,) = [json.loads(line) for line in lines if "triage_mail" in line]
    assert row["actor"] == row["agent"] == "orchestrator"
    assert row["parameters"] == {
        "message": id, "decision": "archive", "by": "line 5 of Handbook.md",
    }  # fmt: skip
    assert not [line for line in lines if "Secret" in line]


def test_an_answer_that_is_no_note_is_read_by_other_means(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    rounds.servers.answer = lambda server, tool, questions: (
        [{"text": "nonsense"} for _ in questions]
        if server == "vault"
        else rounds.servers.alone(server, tool, questions)
    )
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(id) == ("Done", "done")


def test_a_handbook_of_which_not_all_was_read_is_not_followed(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")

    def cut(
        server: str, tool: str, questions: Sequence[Question[Any]]
    ) -> list[ToolValues | PostroomError]:
        found = rounds.servers.alone(server, tool, questions)
        if server == "vault" and any("Handbook" in str(q.arguments["path"]) for q in questions):
            found[0] = {
                "frontmatter": {},
                "body": (rounds.vault / "Handbook.md").read_text(),
                "next_offset": 50_000,
            }
        return found

    rounds.servers.answer = cut
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "pending")
    assert "Handbook.md has more than" in (rounds.vault / "Dashboard.md").read_text()


def test_a_slip_does_not_let_out_what_was_drafted_by_itself(rounds: Rounds) -> None:
    id = rounds.deliver("Tea")
    rounds.round()
    rounds.write(
        "Approved/slip.md",
        "---\ntype: email_send\nstatus: approved\nto: ann@example.com\n---\nWrite to Ann.\n",
    )
    for _ in range(3):
        rounds.round()
        rounds.clock.go(60)
    assert rounds.sent() == []
    assert rounds.letter_note(id)[1].text("status") == "pending_approval"


def test_a_mail_that_is_judged_again_after_a_rejection_gets_its_new_answer(rounds: Rounds) -> None:
    rounds.handbook("anything: draft_reply One.")
    id = rounds.deliver("Tea")
    rounds.round()
    first = rounds.item(id).letter
    rounds.desk.decide(first, "reject", by="ada", reason="no")
    rounds.round()
    rounds.handbook("anything: draft_reply Two.")
    rounds.clock.go(60)
    path = rounds.vault / rounds.mail_note(id)[0]
    path.write_text(path.read_text().replace('"needs_info"', "pending", 1))
    rounds.round()
    second = rounds.item(id).letter
    assert second != first
    assert rounds.status(id) == ("Needs_Action", "drafted")
    assert rounds.letter_text(id) == "Two."


def test_a_mail_that_the_person_calls_done_takes_back_the_answer_that_waits(rounds: Rounds) -> None:
    id = rounds.deliver("Tea")
    rounds.round()
    letter = rounds.item(id).letter
    path = rounds.vault / rounds.mail_note(id)[0]
    path.write_text(path.read_text().replace('"drafted"', "Done", 1))
    rounds.round()
    assert rounds.state_of(letter) == "withdrawn"
    assert rounds.status(id) == ("Done", "done")
    rounds.carry(rounds.desk.ledger.notes.location(letter).path, "Approved")  # wanted after all
    for _ in range(2):
        rounds.round()
    assert rounds.state_of(letter) == "pending"


def test_a_mail_that_cannot_be_answered_does_not_keep_others_waiting(rounds: Rounds) -> None:
    class Refuses:
        def __init__(self, box: LocalMailbox) -> None:
            self._box = box

        def __getattr__(self, name: str) -> Any:
            return getattr(self._box, name)

        def message(self, id: str) -> Message:
            if id == first:
                raise Corrupt("this mail is damaged")
            return self._box.message(id)

    first, second = rounds.deliver("One"), rounds.deliver("Two", sender="bob@example.net")
    rounds.handbook("anything: not yet")
    rounds.round()  # both are noted
    rounds.handbook("anything: draft_reply Yes.")
    rounds.wrap = Refuses
    rounds.restart()
    rounds.round()
    assert rounds.status(second)[1] == "drafted"
    for _ in range(4):
        rounds.clock.go(7200)
        rounds.round()
    assert rounds.status(first)[1] == "needs_info"


def test_urgent_answers_have_the_room_where_there_is_not_enough(rounds: Rounds) -> None:
    rounds.handbook("subject fire: urgent On my way.", "anything: draft_reply Yes.")
    rounds.restart(open_letters=1)
    rounds.deliver("Tea")
    fire = rounds.deliver("Fire", sender="bob@example.net")
    rounds.round()
    assert rounds.status(fire)[1] == "drafted"


def test_without_a_handbook_nothing_is_answered(rounds: Rounds) -> None:
    (rounds.vault / "Handbook.md").unlink()
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")


def test_no_acknowledgement_is_drafted_where_its_card_would_be_red(rounds: Rounds) -> None:
    id = rounds.deliver("Your mailbox is full", sender="Support <support@examp1e.org>")
    rounds.round()
    assert rounds.desk.ledger.lists.summaries() == []
    assert rounds.status(id)[1] == "needs_info"
    assert "its risk card would be red" in rounds.mail_note(id)[1].text("why")
    rounds.handbook("from examp1e.org: draft_reply I know you.")
    path = rounds.vault / rounds.mail_note(id)[0]
    path.write_text(path.read_text().replace('"needs_info"', "pending", 1))
    rounds.round()
    assert rounds.status(id)[1] == "drafted"  # a person's rule asks for it


@pytest.mark.parametrize(
    "text",
    [
        "# Handbook\n\n# Rules\n\n- list: archive\n",
        "# Handbook\n\n## rules\n\n- list: archive\n",
        "# Handbook\n\n- list: archive\n\n## Rules\n\n- automatic: archive\n",
        "# Handbook\n\nNo rules at all.\n",
    ],
)
def test_rules_that_stand_elsewhere_are_not_passed_over(rounds: Rounds, text: str) -> None:
    (rounds.vault / "Handbook.md").write_text(text)
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "pending")
    assert "## Rules" in rounds.events("trouble")[0]["error"]


def test_the_handbook_that_init_writes_is_one() -> None:
    from postroom.cli.ui import read_text
    from postroom.orchestrator.triage import parse_rules

    handbook = read_text("Handbook.md")
    assert [rule.written for rule in parse_rules(handbook)] == [
        "- automatic: archive",
        "- list: archive",
    ]


def test_a_letter_that_is_wanted_after_its_mail_was_done_stays(rounds: Rounds) -> None:
    id = rounds.deliver("Tea")
    rounds.round()
    letter = rounds.item(id).letter
    rounds.desk.decide(letter, "reject", by="ada", reason="no")
    rounds.round()
    path = rounds.vault / rounds.mail_note(id)[0]
    path.write_text(path.read_text().replace('"needs_info"', "done", 1))
    rounds.round()
    rounds.carry(rounds.desk.ledger.notes.location(letter).path, "Approved")
    for _ in range(2):
        rounds.round()
    assert rounds.state_of(letter) == "pending"


def test_a_decision_is_answered_by_one_letter_however_the_clock_goes(rounds: Rounds) -> None:
    rounds.handbook("anything: draft_reply One.")
    id = rounds.deliver("Tea")
    rounds.round()
    first = rounds.item(id).letter
    item = rounds.item(id)
    with rounds.desk.ledger.write() as tx:  # as if it had ended before it was written down
        tx.inbox.change(item, state="decided", letter="")
    rounds.clock.jump(-86_400)
    rounds.round()
    assert rounds.item(id).letter == first
    assert len(rounds.desk.ledger.lists.summaries()) == 1
