"""Each noun of the ledger, on every engine: what is kept, in which order, and who of two is refused."""

from contextlib import closing
from dataclasses import replace

import pytest

from postroom.core import audit, life
from postroom.core.address import Address
from postroom.core.audit import Action, LogPosition, Value
from postroom.core.errors import Conflict, Denied, NotFound
from postroom.core.records import (
    ANY_LETTER,
    NOWHERE,
    ApprovalRequest,
    Card,
    DecidedBy,
    DeskSettings,
    Entry,
    ExpectedNote,
    InboxItem,
    InboxState,
    LabelChange,
    LetterFacets,
    LetterFilter,
    LetterState,
    ListOrder,
    MailboxCursor,
    NoteStatus,
    ProviderProof,
    ShownMail,
    ToolNote,
)
from postroom.core.stamp import Stamp
from tests.contract.store.conftest import START, Bench, attachment
from tests.narrow import present

SEND = Action(actor="email_mcp", action_type="send_email")


# Transactions


def test_a_transaction_that_fails_keeps_nothing(bench: Bench) -> None:
    with pytest.raises(ZeroDivisionError), bench.ledger.write() as tx:
        tx.letters.insert(bench.entry())
        tx.actions.append(SEND)
        tx.save_settings(replace(tx.settings, trust="desk"))
        raise ZeroDivisionError
    assert bench.ledger.letters.states() == {}
    assert bench.ledger.actions.after() == []
    assert bench.ledger.settings == DeskSettings()


def test_what_is_committed_early_stays_whatever_comes_after(bench: Bench) -> None:
    with pytest.raises(ZeroDivisionError), bench.ledger.write(early=True) as tx:
        tx.actions.append(SEND)
        tx.commit()
        raise ZeroDivisionError
    assert bench.ledger.actions.head() == 1


def test_nothing_is_written_outside_of_a_transaction(bench: Bench) -> None:
    with bench.ledger.write() as tx:
        pass
    for act in (
        lambda: tx.letters.insert(bench.entry()),
        lambda: tx.actions.append(SEND),
        lambda: tx.inbox.add("default", MailboxCursor("1"), ["m"]),
    ):
        with pytest.raises(RuntimeError, match="transaction"):
            act()
    assert bench.ledger.letters.states() == {}


def test_all_is_there_when_the_ledger_is_opened_again(bench: Bench) -> None:
    entry = bench.insert(attachments=(attachment("a.txt", b"\0\xff"),))
    bench.ledger.close()
    bench.ledger = bench.open()
    assert bench.ledger.letters.get(entry.id) == entry


# Letters


def test_a_letter_is_read_as_it_was_entered_with_its_attachments_in_order(bench: Bench) -> None:
    files = tuple(attachment(name, name.encode()) for name in ("b", "a", "c"))
    entry = replace(bench.entry(attachments=files), fields={"priority": "urgent"}, pre_send='"m1"')
    with bench.ledger.write() as tx:
        tx.letters.insert(entry)
    assert bench.ledger.letters.get(entry.id) == entry
    assert bench.ledger.letters.find("zzzzzzzzzz") is None
    with pytest.raises(NotFound):
        bench.ledger.letters.get("zzzzzzzzzz")


def test_of_two_who_change_one_version_the_second_is_refused_and_changes_nothing(
    bench: Bench,
) -> None:
    entry = bench.insert()
    first = bench.swap(entry, life.Withdrawn(bench.now))
    with pytest.raises(Conflict):
        bench.swap(entry, life.Expired(bench.now))
    with pytest.raises(Conflict), bench.ledger.write() as tx:
        tx.letters.swap(entry, entry.state, letter=replace(entry.letter, text="Other.\n"))
    assert bench.ledger.letters.get(entry.id) == first
    assert [life.name(state) for state in bench.ledger.letters.past_states(entry.id)] == [
        "pending",
        "withdrawn",
    ]
    assert bench.ledger.letters.original(entry.id) is None


def test_an_edit_keeps_the_agents_letter_and_is_found_by_its_new_words(bench: Bench) -> None:
    entry = bench.insert(text="Before.\n")
    letter = replace(entry.letter, text="After.\n")
    with bench.ledger.write() as tx:
        edited = tx.letters.swap(entry, entry.state, letter=letter)
    assert edited.is_edited
    assert bench.ledger.letters.get(entry.id) == edited
    assert (edited.letter, edited.digest) == (letter, letter.digest)
    assert bench.ledger.letters.original(entry.id) == entry.letter
    assert [one.id for one in bench.ledger.lists.summaries(matching=LetterFilter(("AFTER",)))] == [
        entry.id
    ]
    assert bench.ledger.lists.summaries(matching=LetterFilter(("before",))) == []


def test_a_beginning_of_an_id_names_one_letter_or_none(bench: Bench) -> None:
    entry = bench.insert(id="abcaaaaaaa")
    bench.insert(id="abdaaaaaaa")
    assert bench.ledger.letters.find_id(" ABC") == entry.id
    for unclear in ("ab", "abz", "", "abcaaaaaaab"):
        with pytest.raises(NotFound):
            bench.ledger.letters.find_id(unclear)


def test_the_open_letter_of_a_content_comes_before_a_later_closed_one(bench: Bench) -> None:
    entry = bench.entry()
    with bench.ledger.write() as tx:
        first = tx.letters.insert(entry)
        later = replace(
            entry,
            letter=replace(entry.letter, id="zaaaaaaaaa"),
            state=life.Withdrawn(bench.now),
        )
        tx.letters.insert(later)
    assert bench.ledger.letters.latest("claude", first.content_key) == first
    assert bench.ledger.letters.latest("other", first.content_key) is None
    bench.swap(first, life.Withdrawn(bench.now))
    assert present(bench.ledger.letters.latest("claude", first.content_key)).id == later.id


def test_an_idempotency_key_names_its_first_letter_for_ever(bench: Bench) -> None:
    first, second = bench.insert(), bench.insert()
    with bench.ledger.write() as tx:
        tx.letters.bind_key("claude", "k", first)
        tx.letters.bind_key("claude", "k", second)
    assert bench.ledger.letters.by_key("claude", "k") == (first.id, first.content_key)
    assert bench.ledger.letters.by_key("other", "k") is None


def test_an_agents_load_counts_open_letters_and_times_of_the_newest(bench: Bench) -> None:
    for _ in range(3):
        entry = bench.insert()
        bench.go(10)
    bench.insert("other")
    bench.swap(entry, life.Withdrawn(bench.now))
    waiting, times = bench.ledger.letters.load_of("claude", 2)
    assert waiting == 2
    assert [at.wall - START for at in times] == [20, 10]
    assert bench.ledger.letters.load_of("claude", 4) == (2, [])


def test_a_removed_rehearsal_leaves_nothing_and_no_other_state_is_removed(bench: Bench) -> None:
    rehearsal = bench.insert(state=life.Rehearsal(bench.now))
    pending = bench.insert()
    with bench.ledger.write() as tx:
        tx.letters.remove_rehearsal(rehearsal.id)
    assert bench.ledger.letters.find(rehearsal.id) is None
    assert bench.ledger.letters.past_states(rehearsal.id) == []
    assert bench.ledger.letters.get(pending.id) == pending


def test_who_takes_a_claim_over_leaves_its_former_owner_without_a_proof(bench: Bench) -> None:
    entry = bench.insert()
    with bench.ledger.write() as tx:
        taken = tx.letters.take_over(entry)
    with pytest.raises(Conflict), bench.ledger.write() as tx:
        tx.proofs.keep(entry, "late")
    with pytest.raises(Conflict), bench.ledger.write() as tx:
        tx.letters.take_over(entry)
    assert taken.version == entry.version + 1
    assert bench.ledger.proofs.orphans() == {entry.id: (bench.now, None)}


# Lists


def test_lists_are_oldest_first_and_pages_are_cut_from_the_newest(bench: Bench) -> None:
    ids = [bench.insert().id for _ in range(5)]
    summaries = bench.ledger.lists.summaries
    assert [one.id for one in summaries()] == ids
    assert [one.id for one in summaries(newest=2, skip=1)] == ids[2:4]
    assert [one.id for one in summaries("sent")] == []
    assert bench.ledger.lists.count() == 5


def test_outcomes_are_ordered_by_when_they_came(bench: Bench) -> None:
    first, second = bench.insert(), bench.insert()
    for entry in (second, first):
        bench.go(10)
        bench.swap(entry, life.Withdrawn(bench.now))
    found = bench.ledger.lists.summaries("withdrawn", order=ListOrder.OUTCOME)
    assert [one.id for one in found] == [second.id, first.id]


def test_letters_with_a_warning_come_first_by_risk_and_the_newest_of_each(bench: Bench) -> None:
    plain, amber, later, red = (bench.insert(level=level) for level in (0, 1, 0, 2))
    summaries = bench.ledger.lists.summaries
    shown = [one.id for one in summaries(order=ListOrder.RISK)]
    assert shown == [red.id, amber.id, later.id, plain.id]
    page = summaries(order=ListOrder.RISK, newest=2, skip=1)
    assert [one.id for one in page] == shown[1:3]


def test_a_summary_shows_recipient_opening_and_the_first_warning(bench: Bench) -> None:
    to = (Address.parse('"Ann Ö." <ann@example.com>'), Address.parse("Bob <bob@example.com>"))
    text = "\n \n Dear Ann,\n\n" + "it rains. \n" * 400_000
    entry = bench.insert(account="work", to=to, text=text, level=2)
    (found,) = bench.ledger.lists.summaries()
    assert (found.account, found.recipient_name, found.version) == ("work", "Ann Ö.", 1)
    assert found.opening == f"Dear Ann, {'it rains. ' * 20}"[:160]
    assert (found.level, found.reason, found.warning) == (2, "kind2", "Line 2.")
    letter = replace(entry.letter, to=to[1:], text="Sun.\n")
    with bench.ledger.write() as tx:
        tx.letters.swap(entry, entry.state, letter=letter, card=Card())
    (found,) = bench.ledger.lists.summaries()
    assert (found.recipient_name, found.opening, found.version) == ("Bob", "Sun.", 2)
    assert (found.level, found.reason, found.warning) == (0, "", "")


def test_a_filter_keeps_the_letters_that_have_all_of_it(bench: Bench) -> None:
    ann = bench.insert(to=(Address.parse("Ärzte 100% <Ann@example.com>"),), level=1)
    bob = bench.insert("codex", account="work", to=(Address.parse("bob@b.example"),), cc=(Address.parse("Cy <cy@c.example>"),), level=2)  # fmt: skip
    both = {ann.id, bob.id}
    for matching, expected in (
        (ANY_LETTER, both),
        (LetterFilter(agent="codex"), {bob.id}),
        (LetterFilter(account="default"), {ann.id}),
        (LetterFilter(account="default", agent="codex"), set()),
        (LetterFilter(levels=(2,)), {bob.id}),
        (LetterFilter(levels=(1, 2)), both),
        (LetterFilter(levels=(0,)), set()),
        (LetterFilter(recipient="ÄRZ"), {ann.id}),
        (LetterFilter(recipient="100%"), {ann.id}),
        (LetterFilter(recipient="%"), {ann.id}),
        (LetterFilter(recipient="aNN@"), {ann.id}),
        (LetterFilter(recipient="CY@c"), {bob.id}),
        (LetterFilter(recipient="example"), both),
        (LetterFilter(recipient="Text"), set()),
        (LetterFilter(recipient="\0"), set()),
        (LetterFilter(("ärzte", "text 1")), {ann.id}),
        (LetterFilter(("cy", "text 2")), {bob.id}),
    ):
        found = bench.ledger.lists.summaries(matching=matching)
        assert {one.id for one in found} == expected, matching
        assert bench.ledger.lists.count(matching=matching) == len(expected)


def test_facets_are_the_agents_and_accounts_of_letters_in_these_states(bench: Bench) -> None:
    for agent, account in (("b", "work"), ("a", "home"), ("b", "home")):
        bench.insert(agent, account=account)
    bench.swap(bench.insert("c", account="old"), life.Withdrawn(bench.now))
    facets = bench.ledger.lists.facets
    assert facets() == LetterFacets(("a", "b"), ("home", "work"))
    assert facets("withdrawn") == LetterFacets(("c",), ("old",))
    assert facets("sent") == LetterFacets((), ())


def test_an_agents_letters_since_a_moment_count_by_what_a_person_did(bench: Bench) -> None:
    def activity(since: float, agent: str = "claude") -> tuple[int, ...]:
        (found,) = (one for one in bench.ledger.lists.agents(since) if one.agent == agent)
        return (found.proposed, found.approved, found.edited, found.rejected)

    def reject(entry: Entry, *, revise: bool = False) -> None:
        bench.swap(entry, life.Rejected(bench.now, "ada", "", revise))

    reject(bench.insert())
    bench.go(100)
    bench.insert(state=life.Rehearsal(bench.now))
    bench.insert("other")
    edited, undone, waiting = bench.insert(), bench.insert(), bench.insert()
    for n in range(2):
        with bench.ledger.write() as tx:
            changed = replace(edited.letter, text=f"{n}\n")
            edited = tx.letters.swap(edited, edited.state, letter=changed)
    held = bench.approved(bench.approved(edited))  # several rows of one verdict
    bench.swap(held, life.Sent(bench.now, "m", "t"))
    undone = bench.swap(bench.approved(undone), life.Pending(bench.now))
    reject(undone, revise=True)
    reject(waiting)
    bench.approved(bench.insert(), via=life.Channel.NOT_REQUIRED)
    assert activity(START + 50) == (4, 2, 1, 2)
    assert activity(START) == (5, 2, 1, 3)
    assert activity(START + 101) == (0, 0, 0, 0)
    assert activity(START, "other") == (1, 0, 0, 0)
    (claude, _) = sorted(bench.ledger.lists.agents(START + 101))
    assert (claude.states["rejected"], claude.last) == (3, START + 100)


@pytest.mark.parametrize("word", ["%", "_", "!", "100%", "ÄRGER", "straße", "'", "\0"])
def test_words_are_compared_without_case_and_without_meaning(bench: Bench, word: str) -> None:
    bench.insert(subject="plain")
    assert bench.ledger.lists.summaries(matching=LetterFilter((word,))) == []
    if word != "\0":
        entry = bench.insert(subject=f"a {word} b")
        for spelling in (word, word.lower(), word.upper()):
            assert [
                one.id for one in bench.ledger.lists.summaries(matching=LetterFilter((spelling,)))
            ] == [entry.id]


def test_the_change_token_changes_with_the_open_letters_and_only_then(bench: Bench) -> None:
    tokens = [bench.ledger.lists.change_token()]
    entry = bench.insert()
    tokens.append(bench.ledger.lists.change_token())
    bench.swap(entry, life.Withdrawn(bench.now))
    tokens.append(bench.ledger.lists.change_token())
    assert len(set(tokens)) == 3
    assert bench.ledger.lists.change_token() == tokens[-1]


def test_a_verdict_counts_on_its_day_once_however_often_the_letter_is_held(bench: Bench) -> None:
    entry = bench.approved(bench.insert())
    assert isinstance(entry.state, life.Approved)
    bench.go(60)
    bench.swap(entry, life.hold(entry.state, bench.now, 5, "paused"))
    day = int(START // 86_400)
    assert bench.ledger.lists.per_day(START - 1, 0) == {day: {"approved": 1}}
    assert bench.ledger.lists.per_day(START + 1, 0) == {}


# Notes and slips


def test_a_planned_write_is_known_until_it_is_finished(bench: Bench) -> None:
    entry, location = bench.insert(), NOWHERE._replace(path="A/x.md", hash="h", version=1)
    unwritten = ExpectedNote(entry.id, NOWHERE, LetterState(entry.state, 1))
    assert bench.ledger.notes.expected("A") == [unwritten]
    with bench.ledger.write() as tx:
        tx.notes.plan_write(entry.id, "A/x.md", "h")
    assert bench.ledger.notes.status(entry.id) == NoteStatus(NOWHERE, "A/x.md", "h")
    assert bench.ledger.letters.get(entry.id).note == NoteStatus(NOWHERE, "A/x.md", "h")
    with bench.ledger.write() as tx, pytest.raises(Conflict):
        tx.notes.plan_write(entry.id, "A/y.md", "h", entry.note)
    with bench.ledger.write() as tx:
        tx.notes.finish_write(entry.id, location)
    assert bench.ledger.notes.status(entry.id) == NoteStatus(location)
    assert bench.ledger.notes.in_folders("A") == {"A/x.md": (entry.id, location)}
    assert bench.ledger.notes.in_folders("", "A0", "A/x.md") == {}


def test_the_note_of_a_mail_that_is_only_planned_is_no_letters(bench: Bench) -> None:
    with bench.ledger.write() as tx:
        tx.notes.plan_write("mail default m1", "Inbox/x.md", "h")
    assert bench.ledger.notes.expected("A") == []
    assert bench.ledger.notes.location("mail default m1") == NOWHERE


def test_of_files_that_tools_wrote_the_one_with_most_in_common_is_found(bench: Bench) -> None:
    with bench.ledger.write() as tx:
        tx.tool_notes.add("Notes/a.md", 7, "h1", "ann")
        tx.tool_notes.add("Notes/b.md", 8, "h2", "bob")
        tx.tool_notes.add("Other/A.md", 0, "h3", "eve")
    match, has = bench.ledger.tool_notes.match, bench.ledger.tool_notes.has
    assert match("Notes/a.md", 7, "h1") == ToolNote("ann", "Notes/a.md")
    assert match("Else/a.md", 0, "h2") == ToolNote("eve", "Other/A.md")  # of equals the newest
    assert match("Else/c.md", 8, "-") == ToolNote("bob", "Notes/b.md", inode_only=True)
    assert match("Else/c.md", 0, "-") is None
    assert (has("Notes/a.md"), has("Notes/a.md", "h2")) == (True, False)
    with bench.ledger.write() as tx:
        tx.tool_notes.free_inode(8)
    assert match("Else/c.md", 8, "-") is None


def test_a_slip_is_spent_once_while_it_is_fresh_and_given_back_unused(bench: Bench) -> None:
    first, second = bench.insert(), bench.insert()
    with bench.ledger.write() as tx:
        tx.slips.add("s")
        tx.slips.spend("s", first.id, lambda seen: seen == bench.now)
    for id, first_seen in ((second.id, bench.now), (first.id, Stamp(0.0))):
        with pytest.raises(Denied), bench.ledger.write() as tx:
            tx.slips.spend("s", id, first_seen.__eq__)
    assert bench.ledger.slips.all() == {"s": (bench.now, first.id)}
    with bench.ledger.write() as tx:
        tx.budget.refund(first.id, "s")
    assert bench.ledger.slips.is_unspent("s")
    with bench.ledger.write() as tx:
        tx.slips.mark_filed("s", "Done/s.md")
        tx.slips.trust("t", "Approved/t.md")
        tx.slips.add_request("r", ApprovalRequest(None, [("a", "d")]))
    assert (bench.ledger.slips.is_filed("s"), bench.ledger.slips.is_trusted("t")) == (True, True)
    assert bench.ledger.slips.request("r") == ApprovalRequest(None, [("a", "d")])
    assert bench.ledger.slips.request("-") is None


def test_a_letter_remembers_the_slips_that_approved_it(bench: Bench) -> None:
    entry = bench.approved(bench.insert(), slip="s")
    bench.swap(entry, life.Pending(bench.now))
    assert bench.ledger.letters.was_approved_by(entry.id, "s")
    assert not bench.ledger.letters.was_approved_by(entry.id, "t")


# Sending


def test_claims_count_until_their_window_has_passed_or_they_are_given_back(bench: Bench) -> None:
    entry = bench.insert()
    for _ in range(2):
        with bench.ledger.write() as tx:
            tx.budget.spend(entry.id, len(entry.letter.envelope), "", bench.now)
        bench.go(100)
    spent = bench.ledger.budget.spent
    assert [claim.at.wall - START for claim in spent(bench.now, 150)] == [100]
    assert len(spent(bench.now, 250)) == 2
    with bench.ledger.write() as tx:
        tx.budget.refund(entry.id, "")
    assert [claim.at.wall - START for claim in spent(bench.now, 250)] == [0]


def test_a_proof_counts_its_sends_without_an_answer(bench: Bench) -> None:
    entry = bench.insert()
    with bench.ledger.write() as tx:
        tx.proofs.keep(entry, "p")
        tx.proofs.keep(entry, "p")
    assert bench.ledger.proofs.get(entry.id) == ProviderProof("p", entry.digest, 2)
    with bench.ledger.write() as tx:
        tx.proofs.mark_answered(entry.id)
        assert not tx.proofs.drop(entry.id, "p", unanswered=False)
        assert not tx.proofs.drop(entry.id, "other")
        tx.proofs.keep(entry, "q")
    assert bench.ledger.proofs.before_send(entry.id) == (
        1,
        ProviderProof("q", entry.digest, 1),
        "",
    )
    bench.swap(entry, life.Withdrawn(bench.now))
    assert bench.ledger.proofs.unreleased() == [entry.id]
    with bench.ledger.write() as tx:
        assert tx.proofs.drop(entry.id)
    assert bench.ledger.proofs.unreleased() == []


def test_only_one_holds_the_claim_on_a_letter(bench: Bench) -> None:
    with bench.ledger.hold_claim("aaaaaaaaaa") as mine, closing(bench.open()) as other:
        assert mine
        with other.hold_claim("aaaaaaaaaa") as also, other.hold_claim("baaaaaaaaa") as free:
            assert (also, free) == (False, True)
    with bench.ledger.hold_claim("aaaaaaaaaa") as again:
        assert again


# Mail


def test_mail_is_recorded_once_and_with_its_cursor(bench: Bench) -> None:
    with bench.ledger.write() as tx:
        assert tx.inbox.add("default", MailboxCursor("7", 3), ["a", "b"]) == 2
        assert tx.inbox.add("default", MailboxCursor("8", 3), ["b", "c"], InboxState.ASIDE) == 1
    inbox = bench.ledger.inbox
    assert (inbox.cursor("default"), inbox.cursor("x")) == (MailboxCursor("8", 3), None)
    assert inbox.known_of("default", ["a", "z", "c"]) == {"a", "c"}
    assert [item.message for item in inbox.in_states("found", "aside")] == ["a", "b", "c"]
    (row, first), *rest = inbox.page("found", 5)
    assert (first.message, [item.message for _, item in rest]) == ("a", ["b"])
    assert [item.message for _, item in inbox.page("found", 5, row)] == ["b"]
    assert inbox.count_by_state() == {"found": 2, "aside": 1}
    with bench.ledger.write() as tx:
        assert tx.inbox.reopen_aside("default", ["a", "c"]) == 1
    assert inbox.count_by_state() == {"found": 3}


def test_of_two_who_change_a_mail_the_second_is_refused(bench: Bench) -> None:
    with bench.ledger.write() as tx:
        tx.inbox.add("default", MailboxCursor("1"), ["a"])
    item = present(bench.ledger.inbox.get("default", "a"))
    with bench.ledger.write() as tx:
        changed = tx.inbox.change(item, state=InboxState.PENDING, tries=2)
        tx.notes.save_location(item.key, NOWHERE._replace(path="Needs_Action/a.md"))
    assert bench.ledger.inbox.get("default", "a") == changed
    with pytest.raises(Conflict), bench.ledger.write() as tx:
        tx.inbox.change(item, state=InboxState.DONE)
    assert bench.ledger.inbox.with_stale_note() == [changed]
    with bench.ledger.write() as tx:
        tx.inbox.mark_note_current(item)  # an older version
    assert bench.ledger.inbox.with_stale_note() == [changed]
    with bench.ledger.write() as tx:
        tx.inbox.mark_note_current(changed)
    assert bench.ledger.inbox.with_stale_note() == []


def test_a_mail_whose_letter_came_to_an_end_is_found(bench: Bench) -> None:
    entry = bench.insert()

    def change(item: InboxItem, **changes: str) -> InboxItem:
        with bench.ledger.write() as tx:
            return tx.inbox.change(item, **changes)

    with bench.ledger.write() as tx:
        tx.inbox.add("default", MailboxCursor("1"), ["a"])
    item = present(bench.ledger.inbox.get("default", "a"))
    item = change(item, state=InboxState.DRAFTED, letter=entry.id)
    assert bench.ledger.inbox.with_changed_letter() == []
    closed = change(item, state=InboxState.DONE, by=DecidedBy.PERSON)
    assert bench.ledger.inbox.with_changed_letter() == [closed]
    item = change(closed, state=InboxState.DRAFTED, by="")
    bench.swap(entry, life.Withdrawn(bench.now))
    assert bench.ledger.inbox.with_changed_letter() == [item]


def test_drafts_of_a_conversation_are_counted_once_each(bench: Bench) -> None:
    with bench.ledger.write() as tx:
        for letter in ("a", "b", "a"):
            tx.inbox.add_draft_in_thread("default", "t", letter)
    assert bench.ledger.inbox.drafts_in_thread("default", "t", START - 1) == 2
    assert bench.ledger.inbox.drafts_in_thread("default", "t", START) == 0


def test_many_tokens_are_found_with_the_first_mail_that_showed_each(bench: Bench) -> None:
    tokens = [f"t{n}" for n in range(1200)]
    with bench.ledger.write() as tx:
        tx.exposure.record(
            ShownMail("default", "1", "eve", "x", START - 9, False), {"body": tokens}
        )
    bench.go(10)
    with bench.ledger.write() as tx:
        tx.exposure.record(ShownMail("default", "2", "dora", "x", START - 9, False), {"to": ["t5"]})
        tx.exposure.add_correspondents("default", {"ann@example.com"}, "m9")
    found = bench.ledger.exposure.find(tokens, 0)
    assert len(found) == 1200
    assert [mail.sender for mail in found["t5"]] == ["eve", "dora"]
    assert bench.ledger.exposure.correspondents("default") == (
        frozenset({"ann@example.com"}),
        "m9",
    )
    assert bench.ledger.exposure.correspondents("x") == (frozenset(), "")


def test_drafts_and_label_changes_of_agents_are_kept_until_they_are_gone(bench: Bench) -> None:
    change = LabelChange(0, START, "claude", "default", "m", frozenset({"A"}), frozenset())
    with bench.ledger.write() as tx:
        tx.drafts.save("default", "d", "1", "claude")
        tx.drafts.save("default", "d", "2", "claude")
        numbers = [tx.label_changes.add(change) for _ in range(2)]
    assert bench.ledger.drafts.get("default", "d") == ("2", "claude")
    assert bench.ledger.drafts.of_agent("default", "claude") == ["d"]
    found = bench.ledger.label_changes.newest()
    assert found == [change._replace(number=number) for number in reversed(numbers)]
    assert bench.ledger.label_changes.times(1) == [bench.now]
    with bench.ledger.write() as tx:
        tx.drafts.remove("default", "d")
        tx.label_changes.remove(numbers[0])
    assert bench.ledger.drafts.get("default", "d") is None
    assert [one.number for one in bench.ledger.label_changes.newest()] == numbers[1:]


# The desk


def test_a_ticket_opens_one_session_and_both_lapse(bench: Bench) -> None:
    with bench.ledger.write() as tx:
        tx.sessions.issue_ticket("t", "ada")
        assert tx.sessions.redeem_ticket("t", "s") == "ada"
        assert tx.sessions.redeem_ticket("t", "r") is None
        tx.sessions.issue_ticket("u", "ada")
    assert (bench.ledger.sessions.person("s"), bench.ledger.sessions.person("r")) == ("ada", None)
    bench.go(601)
    assert not bench.ledger.sessions.is_ticket_valid("u")
    with bench.ledger.write() as tx:
        tx.sessions.end("s")
    assert bench.ledger.sessions.person("s") is None


def test_settings_that_two_change_are_both_kept(bench: Bench) -> None:
    with closing(bench.open()) as other:
        with other.write() as tx:
            tx.save_settings(replace(tx.settings, trust="desk", approval_required=True))
        with bench.ledger.write() as tx:
            tx.save_settings(replace(tx.settings, page_address="http://x"))
        settings = other.settings
    assert (settings.trust, settings.approval_required) == ("desk", True)
    assert settings.page_address == "http://x"


def test_lines_of_two_ledgers_of_one_desk_are_one_chain(bench: Bench) -> None:
    with closing(bench.open()) as other:
        for ledger in (bench.ledger, other, other, bench.ledger, other):
            with ledger.write() as tx:
                tx.actions.append(SEND)
        with pytest.raises(ZeroDivisionError), bench.ledger.write() as tx:
            tx.actions.append(SEND)
            raise ZeroDivisionError
        with bench.ledger.write() as tx:
            tx.actions.append(SEND)
            tx.actions.append(SEND)
    lines = bench.ledger.actions.after()
    assert [number for number, _ in lines] == list(range(1, 8))
    digests = {number: audit.digest(line) for number, line in lines}
    files = [("f", number, line) for number, line in lines]
    assert audit.verify(files, desk="", head=7, known=digests.get) == []
    assert all(bench.ledger.is_sealed(line) for _, line in lines)


def test_a_line_names_the_desk_that_the_ledger_belongs_to_now(bench: Bench) -> None:
    for desk in ("a" * 16, "b" * 16):
        with bench.ledger.write() as tx:
            tx.save_settings(replace(tx.settings, desk_id=desk))
            tx.actions.append(SEND)
    with closing(bench.open()) as other, other.write() as tx:
        tx.save_settings(replace(tx.settings, desk_id="c" * 16))
    with bench.ledger.write() as tx:
        tx.actions.append(SEND)
    desks = [present(audit.read(line)).desk for _, line in bench.ledger.actions.after()]
    assert desks == ["a" * 16, "b" * 16, "c" * 16]


def test_the_backlog_is_what_the_log_lacks(bench: Bench) -> None:
    with bench.ledger.write() as tx:
        for _ in range(3):
            tx.actions.append(SEND)
        tx.actions.save_position(LogPosition(2, "2026-11-15.json", 10, 20))
    position, head, lines = bench.ledger.actions.backlog()
    assert (position, head) == (LogPosition(2, "2026-11-15.json", 10, 20), 3)
    assert lines == bench.ledger.actions.after(2)


def test_an_imported_claim_is_spent_here_too(bench: Bench) -> None:
    with closing(bench.open()) as other, other.write() as tx:
        about: dict[str, Value] = {"recipients": 2, "thread": "t", "slip": "s"}
        claim = replace(SEND, action_type="claim_letter", letter="a", parameters=about)
        tx.actions.append(claim)
        ((_, line),) = tx.actions.after()
        read = present(audit.read(line))._replace(seq=2)
        tx.actions.import_from_log(read)
    (spent,) = bench.ledger.budget.spent(Stamp(START + 1, "other"), 60)
    assert (spent.recipients, spent.thread) == (2, "t")
    assert bench.ledger.slips.all()["s"][1] == "a"
