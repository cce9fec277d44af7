"""Every limit, at its edge and through the desk; what is counted, what is given back, and whose clock counts."""

from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from postroom.core.address import Address
from postroom.core.errors import AuthRequired, Denied, Invalid, Limited, Unavailable
from postroom.core.life import Approved
from postroom.core.policy import Rules
from postroom.core.records import Entry
from postroom.core.stamp import DAY
from postroom.desk.recorder import Call
from postroom.mail.mailbox import Arrival
from tests.desks import ANN, SEND, YOU, Office, state
from tests.narrow import narrow
from tests.providers import BARRED, BUSY, Courier

HOUR = 3600.0
LIMITS = {
    "sends_per_hour": 3,
    "window_seconds": HOUR,
    "sends_per_pace": 100,
    "pace_seconds": 60,
    "recipients_per_letter": 4,
    "recipients_per_hour": 100,
    "open_letters": 100,
    "proposals_per_hour": 100,
    "replies_per_thread": 100,
    "moves_per_hour": 100,
}


@pytest.fixture
def office(office: Office) -> Office:
    office.reopen(**LIMITS)
    return office


def limit(office: Office, **rules: bool | float | tuple[str]) -> None:
    office.reopen(**(LIMITS | rules))


def people(count: int, start: int = 0) -> tuple[Address, ...]:
    return tuple(Address.parse(f"p{n}@example.com") for n in range(start, start + count))


def send(office: Office, **changes: str | tuple[Address, ...]) -> Entry:
    """Let a person approve a letter and a dispatcher try it; return what became of it."""
    entry = office.propose(office.letter(**changes))
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    return office.desk.dispatch(entry.id)


def held(office: Office, **changes: str) -> tuple[str, float]:
    """Return why the next letter may not leave, and the seconds until it may."""
    entry = send(office, **changes)
    assert entry.kind == "approved"
    state = narrow(entry.state, Approved)
    return state.held, state.wait


# The budget


def test_the_budget_lets_so_many_letters_out_in_its_window_and_no_more(office: Office) -> None:
    kinds = [send(office).kind for _ in range(4)]
    assert kinds == ["sent", "sent", "sent", "approved"]
    assert len(office.sent()) == 3


def test_the_budget_refuses_with_document_000s_words_and_the_time_left(office: Office) -> None:
    for _ in range(3):
        send(office)
    why, wait = held(office)
    assert why == "Rate limit exceeded (3 emails/hour)"
    assert wait == HOUR - 30


def test_there_is_room_again_at_the_moment_that_was_named_and_not_before(office: Office) -> None:
    for _ in range(3):
        send(office)
    entry = send(office)
    office.clock.go(narrow(entry.state, Approved).wait - 0.5)
    assert office.desk.send_approved() == []
    office.clock.go(0.5)
    assert [one.kind for one in office.desk.send_approved()] == ["sent"]


def test_the_window_slides(office: Office) -> None:
    send(office)
    office.clock.go(HOUR / 2)
    send(office)
    send(office)
    office.clock.go(HOUR / 2)
    assert send(office).kind == "sent"
    assert send(office).kind == "approved"


def test_the_meter_counts_what_was_sent_and_names_the_next_moment_with_room(
    office: Office,
) -> None:
    office.clock.go(-office.clock().wall % 86_400)  # midnight
    assert office.desk.meter().describe(UTC) == "0 of 3 letters this hour"
    for _ in range(3):
        send(office)  # 10 s each
    assert office.desk.meter().describe(UTC) == "3 of 3 letters this hour, next at 01:00"
    assert office.desk.meter().wait == HOUR - 20
    office.clock.go(office.desk.meter().wait - 0.5)
    assert office.desk.meter().sent == 3
    office.clock.go(0.5)
    assert office.desk.meter().describe(UTC) == "2 of 3 letters this hour"


def test_the_meter_names_no_next_moment_where_no_letter_may_ever_be_sent(office: Office) -> None:
    limit(office, sends_per_hour=0)
    assert office.desk.meter().describe(UTC) == "0 of 0 letters this hour"


def test_the_meter_names_another_window_and_another_day(office: Office) -> None:
    limit(office, sends_per_hour=1, window_seconds=7200)
    office.clock.go(-office.clock().wall % 86_400 + 86_400 - 600)  # ten minutes to midnight
    day = datetime.fromtimestamp(office.clock().wall + 7200, UTC)
    send(office)
    expected = f"1 of 1 letter in 2 hours, next at 01:50 on {day:%Y-%m-%d}"
    assert office.desk.meter().describe(UTC) == expected


def test_the_budget_by_default_is_10_an_hour() -> None:
    assert (Rules().sends_per_hour, Rules().window_seconds) == (10, 3600)


def test_another_window_is_named_by_its_seconds(office: Office) -> None:
    limit(office, sends_per_hour=1, window_seconds=100)
    send(office)
    assert held(office) == ("Rate limit exceeded (1 emails/100 seconds)", 90)


def test_a_restart_does_not_refill_the_budget(office: Office) -> None:
    for _ in range(3):
        send(office)
    office.reopen()
    assert send(office).kind == "approved"


def test_all_agents_share_the_budget(office: Office) -> None:
    for agent in ("a", "b", "c", "d"):
        entry = office.propose(call=Call("send_email", agent))
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    office.desk.send_approved()
    assert len(office.sent()) == 3


def test_a_smaller_budget_counts_what_was_sent_before(office: Office) -> None:
    send(office)
    send(office)
    limit(office, sends_per_hour=2)
    assert send(office).kind == "approved"


def test_where_no_approval_is_required_the_budget_still_counts(office: Office) -> None:
    limit(office, required=False)
    assert [office.propose().kind for _ in range(4)] == ["sent", "sent", "sent", "approved"]


def test_a_rehearsal_costs_nothing(office: Office) -> None:
    limit(office, live=False)
    for _ in range(5):
        office.propose()
    limit(office)
    assert [send(office).kind for _ in range(3)] == ["sent"] * 3


# The pace


def test_the_pace_holds_back_what_is_too_fast(office: Office) -> None:
    limit(office, sends_per_hour=100, sends_per_pace=2, pace_seconds=60)
    assert [send(office).kind for _ in range(2)] == ["sent", "sent"]
    assert held(office) == ("Rate limit exceeded (2 emails/minute)", 40)
    office.clock.go(40)
    assert [one.kind for one in office.desk.send_approved()] == ["sent"]


def test_the_pace_by_default_is_10_a_minute() -> None:
    assert (Rules().sends_per_pace, Rules().pace_seconds) == (10, 60)


def test_the_budget_is_checked_before_the_pace(office: Office) -> None:
    limit(office, sends_per_hour=2, sends_per_pace=2, undo_seconds=0)
    send(office)
    send(office)
    why, wait = held(office)
    assert why == "Rate limit exceeded (2 emails/hour)"
    assert wait > 60


# Recipients


def test_a_letter_has_at_most_so_many_recipients(office: Office) -> None:
    assert office.propose(office.letter(to=people(4))).kind == "pending"
    with pytest.raises(Invalid, match="5 recipients; 4 is the most"):
        office.propose(office.letter(to=people(5)))
    with pytest.raises(Invalid):
        office.propose(office.letter(to=people(2), cc=people(2, 2), bcc=people(1, 4)))


def test_a_recipient_named_twice_counts_once(office: Office) -> None:
    assert (
        office.propose(office.letter(to=people(4), cc=people(4), bcc=people(2))).kind == "pending"
    )


def test_a_person_cannot_edit_a_letter_over_the_recipient_cap(office: Office) -> None:
    entry = office.propose()
    with pytest.raises(Invalid):
        office.desk.edit(entry.id, replace(entry.letter, to=people(5)))
    assert office.desk.ledger.letters.get(entry.id).letter == entry.letter


def test_a_cap_lowered_since_the_approval_fails_the_letter(office: Office) -> None:
    entry = office.approved(to=people(4))
    limit(office, recipients_per_letter=3)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "failed"
    assert office.where(entry.id) == "Failed"


def test_so_many_recipients_are_reached_in_an_hour(office: Office) -> None:
    limit(office, sends_per_hour=100, recipients_per_hour=5)
    assert send(office, to=people(3)).kind == "sent"
    assert send(office, to=people(2)).kind == "sent"
    why, wait = held(office)
    assert why == "Rate limit exceeded (5 recipients/hour)"
    assert wait == HOUR - 20


def test_a_letter_to_many_waits_until_enough_of_the_hour_is_free(office: Office) -> None:
    limit(office, sends_per_hour=100, recipients_per_hour=5)
    send(office, to=people(2))
    office.clock.go(590)
    send(office, to=people(2))
    entry = send(office, to=people(4))
    wait = narrow(entry.state, Approved).wait
    assert wait == HOUR - 10
    office.clock.go(wait)
    assert [one.kind for one in office.desk.send_approved()] == ["sent"]


# Conversations


def test_one_conversation_gets_so_many_letters_in_an_hour(office: Office) -> None:
    limit(office, sends_per_hour=100, replies_per_thread=2)
    reply = {"thread": "abc", "in_reply_to": "<a@example.com>"}
    assert [send(office, **reply).kind for _ in range(2)] == ["sent", "sent"]
    assert held(office, **reply)[0] == "Rate limit exceeded (2 letters in one conversation/hour)"
    assert send(office, thread="def", in_reply_to="<b@example.com>").kind == "sent"
    assert send(office).kind == "sent"


# Moves and labels


def test_agents_move_so_many_mails_in_a_window_whatever_the_clock_says(office: Office) -> None:
    limit(office, moves_per_hour=2)
    inbox = frozenset({"INBOX"})
    office.box.add_mails(
        [Arrival(f"Subject: {n}\r\n\r\nHi\r\n".encode(), inbox, n + 1) for n in range(3)]
    )
    ids = [found.id for found in office.box.search("in:inbox").items]
    move = Call("move_email", "claude")
    for id in ids[:2]:
        office.services.mailbox.move(move, "", id, "Taxes")
    for seconds in (0, DAY, -2 * DAY):
        office.clock.jump(seconds)
        limit(office, moves_per_hour=2)  # a new process
        with pytest.raises(Limited, match="2 moves and labels/hour"):
            office.services.mailbox.label(move, "", ids[2], "Later")
    office.clock.go(HOUR)
    assert office.services.mailbox.label(move, "", ids[2], "Later").number == 3


# Agents


def test_an_agent_has_at_most_so_many_open_letters(office: Office) -> None:
    limit(office, open_letters=3)
    entries = [office.propose() for _ in range(3)]
    with pytest.raises(Denied, match="3 letters of this agent wait already"):
        office.propose()
    assert office.propose(call=Call("send_email", "codex")).kind == "pending"
    office.desk.decide(entries[0].id, "reject", by="ada", reason="")
    assert office.propose().kind == "pending"


@pytest.mark.parametrize("kind", ["approved", "unknown"])
def test_a_letter_on_its_way_is_still_open(office: Office, courier: Courier, kind: str) -> None:
    limit(office, open_letters=1)
    courier.settles = False
    entry = office.approved()
    if kind == "unknown":
        courier.loses(after=False)
        office.desk.send_approved()
    assert office.state_of(entry.id) == kind
    with pytest.raises(Denied):
        office.propose()


def test_a_repeated_call_is_no_further_letter(office: Office) -> None:
    limit(office, open_letters=1, proposals_per_hour=1)
    letter = office.letter()
    office.propose(letter)
    for _ in range(3):
        assert office.propose(replace(letter, id="bbbbbbbbbb")).id == letter.id


def test_an_agent_proposes_at_most_so_many_letters_an_hour(office: Office) -> None:
    limit(office, proposals_per_hour=3)
    for _ in range(3):
        entry = office.propose()
        office.desk.calls.withdraw(SEND, entry.id)
    with pytest.raises(Limited, match=r"3 letters proposed/hour") as refused:
        office.propose()
    assert refused.value.seconds == HOUR
    assert office.propose(call=Call("send_email", "codex")).kind == "pending"
    office.clock.go(HOUR)
    assert office.propose().kind == "pending"


def test_rehearsals_are_proposals_too(office: Office) -> None:
    limit(office, live=False, proposals_per_hour=2)
    office.propose()
    office.propose()
    with pytest.raises(Limited):
        office.propose()


def test_a_rehearsed_letter_takes_no_place_among_the_open_ones(office: Office) -> None:
    limit(office, live=False, open_letters=1)
    assert [office.propose().kind for _ in range(2)] == ["rehearsal"] * 2


def test_a_refused_proposal_leaves_one_line_and_no_letter(office: Office) -> None:
    limit(office, proposals_per_hour=1)
    office.propose()
    before = office.desk.ledger.actions.head()
    with pytest.raises(Limited):
        office.propose()
    ((_, line),) = office.desk.ledger.actions.after(before)
    assert '"result":"rate_limited"' in line
    assert len(office.desk.ledger.lists.summaries()) == 1


def test_a_draft_that_found_no_room_is_taken_once_there_is_some(office: Office) -> None:
    limit(office, open_letters=1)
    for name in ("one", "two"):
        office.write(
            f"Drafts/{name}.md",
            f"---\nto: ann@example.com\nsubject: {name}\nstatus: pending_approval\n---\nHi\n",
        )
    assert "Drafts/two.md was not taken as a letter" in office.look()
    (first,) = office.desk.ledger.lists.summaries()
    office.desk.decide(first.id, "reject", by="ada", reason="no")
    office.look()
    assert [line.subject for line in office.desk.ledger.lists.summaries("pending")] == ["two"]


def test_a_persons_own_drafts_are_not_held_to_the_limits_of_agents(office: Office) -> None:
    limit(office, open_letters=1, proposals_per_hour=1)
    for n in range(3):
        office.write(
            f"Approved/{n}.md", f"---\nto: ann@example.com\nsubject: No. {n}\n---\nHello {n}\n"
        )
    office.look()
    assert len(office.desk.ledger.lists.summaries("approved")) == 3


def test_a_persons_own_drafts_are_held_to_the_budget(office: Office) -> None:
    for n in range(4):
        office.write(
            f"Approved/{n}.md", f"---\nto: ann@example.com\nsubject: No. {n}\n---\nHello {n}\n"
        )
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    assert len(office.sent()) == 3


# Given back


@pytest.mark.parametrize("why", [BUSY, BARRED, AuthRequired("sign in"), Limited("no", seconds=1)])
def test_an_explicit_refusal_gives_the_budget_back(
    office: Office, courier: Courier, why: AuthRequired | Denied | Limited | Unavailable
) -> None:
    limit(office, sends_per_hour=1)
    courier.refuses(why)
    send(office)
    assert send(office).kind == "sent"


def test_a_proof_that_nothing_was_sent_gives_the_budget_back(
    office: Office, courier: Courier
) -> None:
    limit(office, sends_per_hour=1)
    courier.loses(after=False)
    entry = send(office)
    assert entry.kind == "approved"
    assert office.desk.dispatch(entry.id).kind == "sent"


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("resolved", [None, True, False])
def test_a_letter_whose_fate_is_unknown_counts_whatever_a_person_finds_out(
    office: Office, courier: Courier, after: bool, resolved: bool | None
) -> None:
    limit(office, sends_per_hour=1)
    courier.settles = False
    courier.loses(after=after)
    entry = send(office)
    assert entry.kind == "unknown"
    if resolved is not None:
        office.desk.decide(entry.id, "resolve", by="ada", sent=resolved)
    assert send(office).kind == "approved"


def test_a_claim_whose_owner_died_counts(office: Office, courier: Courier) -> None:
    limit(office, sends_per_hour=1)
    courier.settles = False
    office.approved()
    office.killed_at("claimed")
    assert send(office).kind == "approved"


def test_a_letter_that_is_refused_again_and_again_costs_one(
    office: Office, courier: Courier
) -> None:
    limit(office, sends_per_hour=2)
    courier.refuses(times=5)
    entry = send(office)
    for _ in range(5):
        office.clock.go(state(office, entry.id, Approved).wait)
        office.desk.send_approved()
    assert office.state_of(entry.id) == "sent"
    assert send(office).kind == "sent"
    assert send(office).kind == "approved"


def test_a_letter_taken_back_in_the_moment_of_the_claim_costs_nothing(office: Office) -> None:
    limit(office, sends_per_hour=1)
    entry = office.approved()
    office.at("checked", lambda: office.desk.decide(entry.id, "undo"))
    office.desk.send_approved()
    assert office.state_of(entry.id) == "pending"
    assert send(office).kind == "sent"


def test_a_letter_that_may_not_leave_costs_nothing(office: Office) -> None:
    limit(office, sends_per_hour=1)
    entry = office.approved()
    limit(office, sends_per_hour=1, deny=("ann@example.com",))
    office.desk.send_approved()
    assert office.state_of(entry.id) == "failed"
    assert send(office, to=people(1)).kind == "sent"


# Clocks


@pytest.mark.parametrize("jump", [2 * HOUR, 10 * DAY, -2 * HOUR, -10 * DAY])
def test_a_wall_clock_that_is_set_does_not_move_the_budget(office: Office, jump: float) -> None:
    limit(office, sends_per_hour=1)
    send(office)
    office.clock.jump(jump)
    assert held(office) == ("Rate limit exceeded (1 emails/hour)", HOUR - 10)
    office.clock.go(HOUR - 10)
    assert [one.kind for one in office.desk.send_approved()] == ["sent"]


@pytest.mark.parametrize("jump", [100 * HOUR, -100 * HOUR])
def test_a_wall_clock_that_is_set_neither_expires_nor_keeps_a_letter(
    office: Office, jump: float
) -> None:
    entry = office.propose()
    office.clock.jump(jump)
    office.look()
    assert office.state_of(entry.id) == "pending"
    office.clock.go(72 * HOUR - 1)
    office.look()
    assert office.state_of(entry.id) == "pending"
    office.clock.go(1)
    office.look()
    assert office.state_of(entry.id) == "expired"


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_wall_clock_that_is_set_does_not_shorten_or_lengthen_the_undo_window(
    office: Office, jump: float
) -> None:
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.jump(jump)
    office.clock.go(9)
    assert office.desk.send_approved() == []
    office.clock.go(1)
    assert [one.kind for one in office.desk.send_approved()] == ["sent"]


def test_after_a_reboot_the_wall_clock_says_how_much_time_has_passed(office: Office) -> None:
    limit(office, sends_per_hour=1)
    send(office)
    office.close()
    office.clock.reboot()
    office.clock.jump(HOUR / 2)
    office.open()
    assert held(office)[1] == HOUR / 2 - 10
    office.clock.go(HOUR / 2)
    assert [one.kind for one in office.desk.send_approved()] == ["sent"]


def test_after_a_reboot_with_the_clock_set_back_no_time_has_passed(office: Office) -> None:
    limit(office, sends_per_hour=1)
    send(office)
    office.close()
    office.clock.reboot()
    office.clock.jump(-DAY)
    office.open()
    assert held(office)[1] == HOUR


def test_a_day_of_refusals_is_a_day_of_time_and_not_of_the_wall_clock(
    office: Office, courier: Courier
) -> None:
    courier.refuses(times=2)
    entry = send(office)
    office.clock.jump(3 * DAY)
    office.clock.go(30)
    office.desk.send_approved()
    assert office.state_of(entry.id) == "approved"


# Who may get mail


@pytest.mark.parametrize(
    ("rule", "address", "covered"),
    [
        ("eve@example.com", "eve@example.com", True),
        ("eve@example.com", "EVE@Example.COM", True),
        ("eve@example.com", "eve2@example.com", False),
        ("example.com", "eve@example.com", True),
        ("Example.COM", "eve@example.com", True),
        ("@example.com", "eve@example.com", True),
        ("example.com", "eve@mail.example.com", True),
        ("example.com", "eve@badexample.com", False),
        ("example.com", "eve@example.com.evil.example", False),
    ],
)
def test_a_rule_is_about_an_address_or_a_domain_with_all_below_it(
    office: Office, rule: str, address: str, covered: bool
) -> None:
    letter = office.letter(to=(Address.parse(address),))
    limit(office, deny=(rule,))
    if covered:
        with pytest.raises(Denied, match=r"recipients\.deny"):
            office.propose(letter)
    else:
        assert office.propose(letter).kind == "pending"
    limit(office, allow=(rule,))
    fresh = office.letter(to=(Address.parse(address),), text="Other words.\n")
    if covered:
        assert office.propose(fresh).kind == "pending"
    else:
        with pytest.raises(Denied, match=r"recipients\.allow"):
            office.propose(fresh)


@pytest.mark.parametrize("part", ["to", "cc", "bcc"])
def test_one_denied_recipient_anywhere_refuses_the_letter(office: Office, part: str) -> None:
    limit(office, deny=("eve@example.net",))
    eve = Address.parse("eve@example.net")
    more = {"to": (ANN, eve)} if part == "to" else {part: (eve,)}
    with pytest.raises(Denied):
        office.propose(office.letter(**more))


def test_the_deny_list_is_over_the_allow_list(office: Office) -> None:
    limit(office, allow=("example.com",), deny=("ann@example.com",))
    with pytest.raises(Denied, match="deny"):
        office.propose()


def test_where_no_approval_is_required_the_deny_list_and_the_cap_still_count(
    office: Office, courier: Courier
) -> None:
    limit(office, required=False, deny=("ann@example.com",))
    with pytest.raises(Denied):
        office.propose()
    with pytest.raises(Invalid):
        office.propose(office.letter(to=people(5)))
    assert courier.tried == 0


def test_a_person_cannot_edit_a_letter_to_a_denied_recipient(office: Office) -> None:
    limit(office, deny=("eve@example.net",))
    entry = office.propose()
    with pytest.raises(Denied):
        office.desk.edit(entry.id, replace(entry.letter, to=(Address.parse("eve@example.net"),)))


# Loops


def test_an_answer_to_oneself_alone_is_refused(office: Office) -> None:
    for to, cc in [((YOU,), ()), ((Address.parse("YOU@example.org"),), (YOU,))]:
        with pytest.raises(Denied, match="loop"):
            office.propose(office.letter(to=to, cc=cc, in_reply_to="<a@example.com>"))


def test_document_001_section_13_a_letter_to_oneself_is_allowed(office: Office) -> None:
    assert office.propose(office.letter(to=(YOU,))).kind == "pending"


def test_a_copy_to_oneself_is_allowed(office: Office) -> None:
    assert office.propose(office.letter(cc=(YOU,))).kind == "pending"


@pytest.mark.parametrize(
    "who", ["mailer-daemon", "MAILER-DAEMON", "postmaster", "noreply", "no-reply", "do-not-reply"]
)
def test_a_machine_is_not_answered(office: Office, who: str) -> None:
    robot = Address.parse(f"{who}@example.com")
    with pytest.raises(Denied, match="machine"):
        office.propose(office.letter(to=(robot,), in_reply_to="<a@example.com>"))
    assert office.propose(office.letter(to=(robot,))).kind == "pending"


# Stopped


def test_paused_stops_what_needs_no_approval_too(office: Office, courier: Courier) -> None:
    limit(office, required=False)
    (office.vault / "PAUSED").touch()
    assert "paused" in narrow(office.propose().state, Approved).held
    assert courier.tried == 0
    (office.vault / "PAUSED").unlink()
    assert [one.kind for one in office.desk.send_approved()] == ["sent"]


def test_paused_is_looked_at_in_the_moment_of_sending(office: Office, courier: Courier) -> None:
    office.approved()
    office.at("locked", (office.vault / "PAUSED").touch)
    office.desk.send_approved()
    assert courier.tried == 0


def test_a_held_letter_is_not_written_again_at_every_look(office: Office) -> None:
    entry = office.approved()
    (office.vault / "PAUSED").touch()
    office.desk.send_approved()
    version = office.desk.ledger.letters.get(entry.id).version
    for _ in range(3):
        assert office.desk.send_approved() == []
    assert office.desk.ledger.letters.get(entry.id).version == version


def test_an_undo_window_of_no_seconds_is_none(office: Office) -> None:
    limit(office, undo_seconds=0)
    entry = office.propose()
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert office.desk.dispatch(entry.id).kind == "sent"


def test_a_repeated_call_does_not_wait_for_a_long_undo_window(office: Office) -> None:
    limit(office, undo_seconds=3600)
    letter = office.letter()
    office.propose(letter)
    office.desk.approve(letter.id, by="ada", digest=letter.digest)
    before = office.clock()
    assert office.propose(replace(letter, id="bbbbbbbbbb")).kind == "approved"
    assert office.clock() == before


def test_other_times_to_expire_count(office: Office) -> None:
    limit(office, expiry_seconds=HOUR)
    entry = office.propose()
    assert office.field(entry.id, "expires") == "2026-11-15T01:00:00"
    office.clock.go(HOUR)
    office.look()
    assert office.state_of(entry.id) == "expired"


def test_every_rule_has_a_test_here() -> None:
    tested = set(LIMITS) | {"live", "source", "required", "trust", "undo_seconds", "expiry_seconds"}
    assert {field.name for field in fields(Rules)} == tested | {"allow", "deny"}
