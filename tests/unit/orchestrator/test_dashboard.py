"""What a person finds in the vault: the dashboard, the briefings, and how far the orchestrator is."""

import json

from postroom.vault.markdown import sections
from tests.rounds import Rounds


def board(rounds: Rounds) -> str:
    return (rounds.vault / "Dashboard.md").read_text()


def test_the_dashboard_has_what_waits_what_left_the_budget_and_the_trust_level(
    rounds: Rounds,
) -> None:
    rounds.handbook("from ann@example.com: draft_reply Yes.", "anything: needs_info")
    first = rounds.deliver("Tea")
    rounds.deliver("A question", sender="bob@example.net")
    rounds.round()
    said = board(rounds)
    assert "### Waiting for your decision (1)" in said
    assert "`ann@example.com`, `Re: Tea`, by `orchestrator`" in said
    assert "### Mail that needs you (1)" in said
    assert "`bob@example.net`, `A question`" in said
    assert "Trust level: folder." in said
    assert "Sent: 0 of 10 letters this hour." in said
    assert "- `Handbook.md`: `2 rules`" in said
    rounds.carry(rounds.letter_note(first)[0], "Approved")
    rounds.round()
    rounds.clock.go(10)
    rounds.round()
    said = board(rounds)
    assert "Waiting for your decision" not in said
    left = said.partition("### Sent today (1)\n\n- [[")[2]
    assert left.splitlines()[0].endswith("]] `ann@example.com`, `Re: Tea`")
    assert "Sent: 1 of 10 letters this hour." in said


def test_what_a_person_wrote_into_the_dashboard_stays(rounds: Rounds) -> None:
    text = "# Mine\n\nHello.\n\n## Now\n\nmy own list\n\n## Links\n\n- [[Home]]\n"
    (rounds.vault / "Dashboard.md").write_bytes(text.replace("\n", "\r\n").encode())
    for number in range(2):
        rounds.deliver(f"Tea {number}", sender=f"a{number}@example.com")
        rounds.round()
    raw = (rounds.vault / "Dashboard.md").read_bytes()
    assert raw.count(b"\n") == raw.count(b"\r\n")
    parts = sections(board(rounds))
    assert [title for title, _ in parts] == ["", "Now", "Links", "Now"]
    assert "".join(part for _, part in parts[:3]).startswith(text)
    assert "Waiting for your decision (2)" in parts[3][1]


def test_its_part_of_the_dashboard_stays_where_the_person_puts_it(rounds: Rounds) -> None:
    rounds.round()
    mine = board(rounds).replace("# Postroom\n\n", "") + "\n## Mine\n\n- [[Home]]\n"
    (rounds.vault / "Dashboard.md").write_text(mine)
    rounds.deliver("Tea")
    rounds.round()
    parts = sections(board(rounds))
    assert [title for title, _ in parts if title] == ["Now", "Mine"]
    assert parts[-1][1] == "## Mine\n\n- [[Home]]\n"


def test_a_draft_that_was_changed_says_in_the_vault_why_it_came_back(rounds: Rounds) -> None:
    id = rounds.deliver("Tea")
    rounds.round()
    path, note = rounds.letter_note(id)
    (rounds.vault / path).write_text(note.raw.decode().replace("Thank you", "Many thanks"))
    rounds.carry(path, "Approved")
    rounds.round()
    path, note = rounds.letter_note(id)
    assert path.startswith("Drafts/")
    assert "You changed the text" in dict(sections(note.body))[""]
    assert "You changed the text" in board(rounds)
    rounds.carry(path, "Approved")
    rounds.round()
    assert "[!important] Notice" not in rounds.letter_note(id)[1].body


def test_what_counts_for_nothing_is_on_the_dashboard(rounds: Rounds) -> None:
    rounds.write("Approved/milk.md", "buy milk\n")
    rounds.round()
    assert "Approved/milk.md is ignored" in board(rounds)


def test_health_knows_the_rules_also_where_no_mail_came(rounds: Rounds) -> None:
    rounds.handbook("list: archive", "anything: bogus")
    rounds.round()
    assert "- `Handbook.md`: **amiss**, `Handbook.md, line 6: 'bogus' is not a decision" in board(
        rounds
    )
    assert not [one for one in rounds.servers.asked if one[0] == "vault"]


def test_nothing_of_a_mail_is_rendered_in_the_dashboard(rounds: Rounds) -> None:
    rounds.handbook("anything: needs_info")
    rounds.deliver("![](http://evil.example/x) [[Handbook]] `=1` <b>x</b>", sender="a@example.com")
    rounds.round()
    said = board(rounds)
    assert "``![](http://evil.example/x) [[Handbook]] `=1` <b>x</b>``" in said
    assert said.count("evil.example/x") == 1


def test_the_dashboard_is_not_written_again_where_nothing_changed(rounds: Rounds) -> None:
    rounds.deliver("Tea")
    rounds.round()
    before = (rounds.vault / "Dashboard.md").stat().st_mtime_ns
    for _ in range(3):
        rounds.clock.go(30)
        rounds.round()
    assert (rounds.vault / "Dashboard.md").stat().st_mtime_ns == before


def test_a_briefing_is_written_once_a_day_and_never_over_the_persons(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    rounds.deliver("Tea")
    rounds.round()
    (first,) = (rounds.vault / "Briefings").iterdir()
    assert first.name == "2026-11-15.md"
    first.write_text("mine")
    rounds.clock.go(86_400)
    rounds.restart()
    for _ in range(2):
        rounds.round()
    assert first.read_text() == "mine"
    second = (rounds.vault / "Briefings" / "2026-11-16.md").read_text()
    assert "- Mail dealt with: 1" in second
    assert "- Letters that left: 0" in second


def test_the_state_file_says_how_far_it_is(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    rounds.deliver("Tea")
    rounds.round()
    file = rounds.vault / "Logs" / "orchestrator_state.json"
    said = json.loads(file.read_text())
    assert said["accounts"]["default"]["cursor"] == rounds.box.changes().cursor
    assert said["mails"]["done"] == 1
    assert file.stat().st_mode & 0o077 == 0


def test_a_state_file_that_somebody_broke_changes_nothing(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    rounds.deliver("Tea")
    rounds.round()
    (rounds.vault / "Logs" / "orchestrator_state.json").write_text('{"accounts": {"default": ')
    second = rounds.deliver("More tea")
    rounds.restart()
    rounds.round()
    assert rounds.status(second) == ("Done", "done")
    assert len(rounds.triaged()) == 2
