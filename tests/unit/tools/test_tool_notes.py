"""What a tool wrote never counts as the person's: drafts, slips and requests of agents that a person moves."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from postroom.config.loading import load
from postroom.core.life import Approved
from postroom.core.records import Entry
from postroom.desk.desk import Desk
from postroom.vault.markdown import sections
from postroom.vault.note import Note
from postroom.wiring.desk import adopt
from postroom.wiring.desk import find_desk as open_desk
from tests.agents import ToolAnswer, Visitor, visiting, visiting_inside
from tests.arrivals import attached
from tests.conftest import Person
from tests.desks import change_settings
from tests.fences import fenced
from tests.narrow import narrow, present

ANN = "ann@example.com"
DRAFT = {"to": ANN, "subject": "Lunch"}
SLIP = {"type": "email_send", "status": "pending", "to": ANN}
LETTER = {"to": [ANN], "subject": "Money", "body": "Please pay 9000 EUR."}


class Site:
    """A person at a vault, and an agent with all tools."""

    def __init__(self, person: Person, agent: Visitor | None) -> None:
        self.person, self._agent, self.vault = person, agent, person.vault

    @property
    def agent(self) -> Visitor:
        return present(self._agent)

    @contextmanager
    def desk(self) -> Iterator[Desk]:
        config = load(self.person.environment, self.person.folder, self.person.folder)
        with open_desk(config, make=True) as found:
            yield present(found)

    def look(self) -> str:
        """Look at the folders as `postroom run` does; return what the person is told."""
        with self.desk() as desk:
            return " ".join(desk.reconcile(adopt=True))

    def states(self) -> dict[str, str]:
        """Return the state of each letter, by its subject."""
        with self.desk() as desk:
            return {one.subject: type(one.state).__name__ for one in desk.ledger.lists.summaries()}

    def ids(self) -> dict[str, str]:
        with self.desk() as desk:
            return {one.subject: one.id for one in desk.ledger.lists.summaries()}

    def entry(self, id: str) -> Entry:
        with self.desk() as desk:
            return desk.ledger.letters.get(id)

    def write(
        self, path: str, fields: Mapping[str, object], body: str = "How about noon?\n"
    ) -> ToolAnswer:
        return self.agent.call("write_note", path=path, frontmatter=fields, body=body)

    def move(self, path: str, target: str = "Approved") -> Path:
        """Move a note as a person does."""
        there = self.vault / target
        there = there if target.endswith(".md") else there / path.rpartition("/")[2]
        there.parent.mkdir(parents=True, exist_ok=True)
        return (self.vault / path).rename(there)

    def note(self, path: str) -> Note:
        return Note.parse((self.vault / path).read_bytes())

    def folder(self, name: str) -> list[str]:
        return sorted(path.name for path in (self.vault / name).glob("*.md"))


@pytest.fixture
def site(person: Person) -> Iterator[Site]:
    person.live(undo_seconds=10)
    person.vault.mkdir(exist_ok=True)
    with visiting_inside(person) as agent:
        yield Site(person, agent)


# Drafts


def test_a_draft_of_a_tool_that_is_moved_to_approved_comes_back_once_with_its_card(
    site: Site,
) -> None:
    assert not site.write("Drafts/Lunch.md", DRAFT).refused
    site.move("Drafts/Lunch.md")
    said = site.look()
    assert site.states() == {"Lunch": "Pending"}
    assert "Approved/Lunch.md is the letter" in said
    assert "again to approve it" in said
    assert (site.folder("Approved"), site.folder("Pending_Approval")) == ([], ["Lunch.md"])
    note = site.note("Pending_Approval/Lunch.md")
    assert note.text("agent") == "claude"
    assert all(
        f"\n{one}" in note.body for one in ("> [!important] Notice", "> #### Risk assessment")
    )
    assert present(fenced(dict(sections(note.body))["Letter"])).strip() == "How about noon?"
    site.move("Pending_Approval/Lunch.md")
    site.look()
    assert site.states() == {"Lunch": "Approved"}


def test_a_draft_of_a_tool_is_a_letter_of_that_agent_with_its_limits(site: Site) -> None:
    settings = site.person.folder / ".config" / "postroom" / "postroom.toml"
    settings.write_text(f"{settings.read_text()}[limits]\nopen_letters = 1\n")
    site.agent.done("send_email", **LETTER)
    site.write("Notes/Lunch.md", DRAFT)
    site.move("Notes/Lunch.md")
    assert "was not taken as a letter" in site.look()
    assert site.states() == {"Money": "Pending"}


@pytest.mark.parametrize("way", ["renamed", "renamed and edited", "copied", "copied and edited", "saved anew"])  # fmt: skip
def test_a_draft_of_a_tool_is_known_by_its_file_its_text_or_its_name(site: Site, way: str) -> None:
    site.write("Notes/Lunch.md", DRAFT)
    note, approved = site.vault / "Notes/Lunch.md", site.vault / "Approved"
    approved.mkdir(exist_ok=True)
    text = note.read_text()
    if way == "renamed":
        note.rename(approved / "Other.md")
    elif way == "renamed and edited":  # in place, as Obsidian does
        there = note.rename(approved / "Other.md")
        there.write_text(text.replace("noon", "one"))
    elif way == "copied":
        (approved / "Other.md").write_text(text)
    elif way == "copied and edited":
        (approved / "lunch.md").write_text(text.replace("noon", "one"))
    else:
        note.unlink()
        (approved / "Lunch.md").write_text(text.replace("noon", "one"))
    site.look()
    assert site.states() == {"Lunch": "Pending"}
    assert len(site.folder("Pending_Approval")) == 1


def test_what_a_tool_edited_moved_or_rewrote_a_link_in_is_a_tools_note(site: Site) -> None:
    head = "---\nto: ann@example.com\nsubject: {}\n---\n"
    for name, body in (
        ("edited", "x\n"),
        ("moved", "x\n"),
        ("linking", "See [[target]].\n"),
        ("own", "x\n"),
    ):
        path = site.vault / f"Notes/{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(head.format(name) + body)
    (site.vault / "Notes/target.md").write_text("x\n")
    site.agent.done("read_note", path="Notes/edited.md")
    site.agent.done("edit_note", path="Notes/edited.md", append="y")
    site.agent.done("move_note", source="Notes/moved.md", destination="Notes/elsewhere.md")
    moved = site.agent.done("move_note", source="Notes/target.md", destination="Notes/goal.md")
    assert moved["links"] == 1
    for name in ("edited", "elsewhere", "linking", "own"):
        site.move(f"Notes/{name}.md", f"Approved/{name} by hand.md")
    site.look()
    assert site.states() == {
        "edited": "Pending",
        "moved": "Pending",
        "linking": "Pending",
        "own": "Approved",
    }


def test_an_attachment_that_a_tool_saved_is_a_tools_note(robin: Person) -> None:
    text = f"---\nto: {ANN}\nsubject: Lunch\n---\nHi\n"
    id = attached(robin, "Lunch.md", text)
    with visiting_inside(robin) as agent:
        site = Site(robin, agent)
        part = agent.done("get_email", id=id)["files"][0]["part"]
        agent.done("get_attachment", id=id, part=part)
        (saved,) = (robin.vault / "Mail_Files").rglob("*.md*")
        site.move(str(saved.relative_to(robin.vault)), "Approved/Lunch.md")
        site.look()
        assert site.states() == {"Lunch": "Pending"}


def test_a_note_that_a_tool_replaced_with_another_program_at_its_name_stays_a_tools(
    site: Site,
) -> None:
    """The row of what stood at a path before is not lost when the path is written again."""
    site.write("Notes/Lunch.md", DRAFT)
    kept = site.move("Notes/Lunch.md", "Elsewhere/kept.md")
    site.write("Notes/Lunch.md", DRAFT)  # the same text at the same path: another file
    kept.write_text(kept.read_text().replace("noon", "one"))
    site.move("Elsewhere/kept.md")
    site.look()
    assert site.states() == {"Lunch": "Pending"}


def test_a_file_of_the_persons_with_the_inode_of_a_tools_note_needs_a_second_move_and_stays_theirs(
    site: Site,
) -> None:
    site.write("Notes/a.md", DRAFT)
    own = site.vault / "Notes/a.md"
    text = f"---\ntype: email_send\nstatus: approved\nto: {ANN}\n---\n"
    own.write_text(text)  # in place: the same inode
    site.move("Notes/a.md", "Approved/mine.md")
    assert "Approved/mine.md went back to Pending_Approval/" in site.look()
    site.agent.done("send_email", **LETTER)
    assert (site.vault / "Pending_Approval/mine.md").read_text() == text
    site.move("Pending_Approval/mine.md")
    site.look()
    assert site.states() == {"Money": "Approved"}
    with site.desk() as desk:
        found = desk.ledger.letters.get(site.ids()["Money"]).state
    assert narrow(found, Approved).verdict.via == "slip"


def test_a_request_with_nothing_but_the_inode_of_a_tools_note_needs_a_second_move(
    site: Site,
) -> None:
    """The person renames an agent's request, and Obsidian rewrites the link to itself in it."""
    site.write("Plans/Lunch.md", SLIP, "See [[Lunch]].")
    renamed = site.move("Plans/Lunch.md", "Plans/Ann.md")
    renamed.write_text(renamed.read_text().replace("[[Lunch]]", "[[Ann]]"))
    site.agent.done("send_email", **LETTER)
    site.look()
    assert "A tool may have written this note" in site.note("Pending_Approval/Ann.md").body
    for expected in ("Pending", "Approved"):
        site.move("Pending_Approval/Ann.md")
        site.look()
        assert site.states() == {"Money": expected}


def test_an_inode_that_a_tool_frees_is_nobodys(site: Site) -> None:
    site.write("Notes/a.md", DRAFT)
    freed = (site.vault / "Notes/a.md").stat().st_ino
    site.agent.done("edit_note", path="Notes/a.md", append="more")
    with site.desk() as desk:
        assert desk.ledger.tool_notes.match("Approved/x.md", freed, "") is None
        kept = (site.vault / "Notes/a.md").stat().st_ino
        assert present(desk.ledger.tool_notes.match("Approved/x.md", kept, "")).inode_only


def test_what_the_person_wrote_is_approved_as_before(site: Site) -> None:
    site.write("Notes/Other.md", {}, "x")
    own = site.vault / "Approved/Lunch.md"
    own.parent.mkdir(exist_ok=True)
    own.write_text(f"---\nto: {ANN}\nsubject: Lunch\n---\nHow about noon?\n")
    site.look()
    assert site.states() == {"Lunch": "Approved"}
    note = Note.parse(own.read_bytes())
    assert note.body == "How about noon?\n"


def test_notes_from_before_the_table_count_as_a_tools(site: Site) -> None:
    own = site.vault / "Approved/Lunch.md"
    own.parent.mkdir(exist_ok=True)
    own.write_text(f"---\nto: {ANN}\nsubject: Lunch\n---\nHow about noon?\n")
    with site.desk() as desk:
        change_settings(desk.ledger, tool_notes_since=time.time() + 60)
    os.utime(own)
    site.look()
    assert site.states() == {"Lunch": "Pending"}
    site.move("Pending_Approval/Lunch.md")
    site.look()
    assert site.states() == {"Lunch": "Approved"}


def adopt_elsewhere(site: Site) -> None:
    """Adopt the vault with a new state folder, as on a second machine."""
    site.person.environment["POSTROOM_STATE"] = str(site.person.folder / "second")
    adopt(load(site.person.environment, site.person.folder, site.person.folder))


def restore_a_backup(site: Site) -> None:
    """Put the ledger back as it was before the tools wrote."""
    shutil.copy(site.person.folder / "backup.sqlite", site.person.folder / "state/ledger.sqlite")


@pytest.mark.parametrize("lost", [adopt_elsewhere, restore_a_backup])
def test_what_tools_wrote_before_their_rows_were_lost_is_a_tools(
    person: Person, lost: Callable[[Site], None]
) -> None:
    person.live(undo_seconds=10)
    person.vault.mkdir(exist_ok=True)
    with visiting_inside(person) as agent:
        Site(person, agent).write("Notes/first.md", {})
    with closing(sqlite3.connect(person.folder / "state/ledger.sqlite")) as ledger:
        ledger.execute("VACUUM INTO ?", [str(person.folder / "backup.sqlite")])
    with visiting_inside(person) as agent:
        Site(person, agent).write("Notes/Lunch.md", DRAFT)
        Site(person, agent).write("Plans/Slip.md", SLIP)
    site = Site(person, None)
    site.look()
    lost(site)
    site.move("Notes/Lunch.md")
    site.move("Pending_Approval/Slip.md")
    site.look()
    own = site.vault / "Approved/own.md"
    own.write_text(f"---\nto: {ANN}\nsubject: Own\n---\nHello.\n")
    site.look()
    assert site.states() == {"Lunch": "Pending", "Own": "Approved"}
    assert site.folder("Pending_Approval") == ["Lunch.md", "Slip.md"]


# Notes that pass for a letter's


@pytest.mark.parametrize("state", ["Pending", "Approved"])
def test_a_tool_cannot_write_a_note_that_passes_for_a_letters(site: Site, state: str) -> None:
    """The person takes the letter's own note away, and moves the other one to Approved/."""
    site.agent.done("send_email", **LETTER)
    (name,) = site.folder("Pending_Approval")
    where = f"Pending_Approval/{name}"
    if state == "Approved":
        site.move(where)
        site.look()
        where = f"Approved/{name}"
    real = site.note(where)
    fields = {key: value for key, value in real.values.items() if key != "type"}
    forged = site.write("Notes/Lunch.md", fields, real.body)
    assert forged.refused == "permission_denied"
    site.write("Notes/Lunch.md", {}, real.body)
    site.agent.call("edit_note", path="Notes/Lunch.md", set=fields)
    site.move(where, f"Archive/{name}")
    site.move("Notes/Lunch.md")
    site.look()
    assert site.states() == {"Money": "Pending"}
    assert not site.write("Notes/own.md", {"letter": "to grandma", "digest": "x"}).refused


# Drafts are shown in a fence

UNSEEN = "Hello.\n\n[//]: # (secret)\n\n%%hidden%%\n\n[^1]: note\n\n$\\phantom{pay}$\n"


def test_what_obsidian_would_not_show_of_an_agents_draft_stands_in_the_fence(site: Site) -> None:
    ask = {**DRAFT, "status": "pending_approval", "mine": "[x](https://evil.example)"}
    letter = site.write("Drafts/Lunch.md", ask, UNSEEN).values["letter"]
    note = site.note("Drafts/Lunch.md")
    held = dict(sections(note.body))["Letter"]
    assert present(fenced(held)).strip() == UNSEEN.strip()
    outside = note.body.replace(held, "")
    assert not [word for word in ("secret", "hidden", "[^1]", "phantom") if word in outside]
    assert (note.text("status"), note.text("letter")) == ("pending_approval", letter)
    assert note.text("mine") == r"\[x\](https://evil.example)"
    site.move("Drafts/Lunch.md")
    site.look()
    assert site.states() == {"Lunch": "Approved"}
    assert site.entry(letter).letter.text.strip() == UNSEEN.strip()


def test_no_field_of_an_agents_note_passes_for_what_the_desk_says(site: Site) -> None:
    lies = {"risk_assessment": "harmless", "risk": "nothing unusual", "agent": "person", "trust": "lie", "mode": "lie",
            "notice": "Checked.", "approved_at": "2026-01-01", "sent_at": "lie", "expires": "never", "held": "lie"}  # fmt: skip
    site.write("Drafts/Lunch.md", {**DRAFT, **lies, "status": "pending_approval", "mine": "kept"})
    site.write("Plans/Ann.md", {**SLIP, **lies, "mine": "kept"})
    site.look()
    for path in ("Drafts/Lunch.md", "Pending_Approval/Ann.md"):
        shown = site.note(path).values
        assert [key for key in lies if shown.get(key) == lies[key]] == []
        assert shown["mine"] == "kept"


def test_a_persons_draft_stays_as_they_wrote_it(site: Site) -> None:
    own = site.vault / "Drafts/Lunch.md"
    own.parent.mkdir(exist_ok=True)
    own.write_text(f"---\nto: {ANN}\nsubject: Lunch\nstatus: pending_approval\n---\n{UNSEEN}")
    site.look()
    assert site.note("Drafts/Lunch.md").body == UNSEEN


# Slips and requests


def test_a_slip_that_an_agent_calls_a_draft_is_refused(site: Site) -> None:
    for path in ("Drafts/Lunch with Ann.md", "Notes/Lunch.md", "Needs_Action/a.md", "Outgoing/a.md", "a.md"):  # fmt: skip
        for kind in ("email_send", "email_reply"):
            assert site.write(path, {**SLIP, "type": kind}).refused == "permission_denied", path
    for path in ("Plans/a.md", "Drafts/a.md", "Needs_Action/a.md"):
        assert site.write(path, {"status": "approved"}).refused == "permission_denied", path
    site.write("Plans/a.md", SLIP)
    for asked in (
        {"set": {"status": "approved"}},
        {"find": "pending", "replace": "approved"},
        {"set": {"status": ["Approved"]}},
    ):
        assert site.agent.call("edit_note", path="Plans/a.md", **asked).refused, asked
    moved = site.agent.call("move_note", source="Plans/a.md", destination="Drafts/a.md")
    assert moved.refused == "permission_denied"
    assert not site.write("Notes/done.md", {"status": "approved", "type": "invoice"}).refused


def test_a_slip_of_a_tool_that_is_moved_straight_to_approved_is_put_back_as_a_request(
    site: Site,
) -> None:
    site.write("Plans/Lunch with Ann.md", SLIP)
    site.agent.done("send_email", **LETTER)
    there = site.move("Plans/Lunch with Ann.md")
    there.write_text(there.read_text().replace("pending", "approved"))  # even so
    said = site.look()
    assert "went back to Pending_Approval/ with a new list" in said
    assert site.states() == {"Money": "Pending"}
    assert "Lunch with Ann.md" in site.folder("Pending_Approval")
    assert site.folder("Approved") == []


def test_a_letter_proposed_after_the_request_was_moved_waits_for_its_own_verdict(
    site: Site,
) -> None:
    site.write("Plans/Lunch with Ann.md", SLIP)
    site.look()
    site.move("Pending_Approval/Lunch with Ann.md")
    held = site.agent.done("send_email", **LETTER)
    assert held["sent"] is False
    for _ in range(2):
        site.look()
    assert site.states() == {"Money": "Pending"}


def listed(site: Site, name: str = "Lunch with Ann.md") -> list[str]:
    body = site.note(f"Pending_Approval/{name}").body
    return re.findall(r"^- The letter `(\w+)`", body, re.M)


def test_a_request_lists_the_letters_of_its_agent_that_fit_and_approves_the_only_one(
    site: Site,
) -> None:
    site.write("Plans/Lunch with Ann.md", SLIP, "For **Ann**.\n")
    site.agent.done("send_email", **LETTER)
    site.agent.done("send_email", **{**LETTER, "to": ["bob@example.com"], "subject": "Other"})
    with visiting_inside(site.person, agent="other") as other:
        other.done("send_email", **{**LETTER, "subject": "Another agent's"})
    assert "asks for approval" in site.look()
    note = site.note("Pending_Approval/Lunch with Ann.md")
    id = site.ids()["Money"]
    assert listed(site) == [id]
    row = next(line for line in note.body.splitlines() if id in line)
    entry = site.entry(id)
    for part in (f"`{ANN}`", "`Money`", "**worth a look**", f"`{entry.digest}`"):
        assert part in row
    assert fenced(dict(sections(note.body))["What the agent wrote"]) == "For **Ann**."
    site.move("Pending_Approval/Lunch with Ann.md")
    assert f"The letter {id} was approved" in site.look()
    assert narrow(site.entry(id).state, Approved).wait == 10
    assert {s for n, s in site.states().items() if n != "Money"} == {"Pending"}


def test_a_request_that_lists_none_several_or_a_red_letter_approves_nothing(site: Site) -> None:
    site.write("Plans/none.md", {**SLIP, "to": "nobody@example.com"})
    site.write("Plans/red.md", {**SLIP, "to": "red@example.com"})
    site.write("Plans/two.md", SLIP)
    for number in (1, 2):
        site.agent.done("send_email", **{**LETTER, "subject": f"Money {number}"})
    red = {"to": ["red@example.com"], "subject": "Red", "body": "password: hunter2hunter2"}
    site.agent.done("send_email", **red)
    site.look()
    with site.desk() as desk:
        assert desk.ledger.letters.get(site.ids()["Red"]).card.level.name == "STOP"
    for name, fitting in (("none", 0), ("red", 1), ("two", 2)):
        assert len(listed(site, f"{name}.md")) == fitting
        site.move(f"Pending_Approval/{name}.md")
    said = site.look()
    assert said.count("with a new list") == 3
    assert set(site.states().values()) == {"Pending"}
    assert {"none.md", "red.md", "two.md"} <= set(site.folder("Pending_Approval"))


def test_a_request_whose_letter_changed_since_approves_nothing_and_lists_it_anew(
    site: Site,
) -> None:
    from dataclasses import replace

    site.write("Plans/Lunch with Ann.md", SLIP)
    site.agent.done("send_email", **LETTER)
    site.look()
    id = site.ids()["Money"]
    with site.desk() as desk:
        desk.edit(id, replace(desk.ledger.letters.get(id).letter, text="Other words.\n"))
    site.move("Pending_Approval/Lunch with Ann.md")
    assert "with a new list" in site.look()
    assert site.states() == {"Money": "Pending"}
    body = site.note("Pending_Approval/Lunch with Ann.md").body
    assert site.entry(id).digest in body
    assert body.count("## What the agent wrote") == 1


def test_a_list_that_an_agent_wrote_itself_counts_for_nothing(site: Site) -> None:
    site.agent.done("send_email", **LETTER)
    site.write("Plans/real.md", SLIP)
    site.look()
    forged = site.note("Pending_Approval/real.md")
    # The very text that the desk wrote, as a note of the agent's own.
    site.agent.done("write_note", path="Plans/forged.md", frontmatter=dict(forged.values), body=forged.body)  # fmt: skip
    site.move("Plans/forged.md")
    assert "with a new list" in site.look()
    assert site.states() == {"Money": "Pending"}


def test_an_approval_by_a_request_is_recalled_and_not_given_again_by_itself(site: Site) -> None:
    site.write("Plans/Lunch with Ann.md", SLIP)
    site.agent.done("send_email", **LETTER)
    site.look()
    site.move("Pending_Approval/Lunch with Ann.md")
    site.look()
    id = site.ids()["Money"]
    with site.desk() as desk:
        desk.decide(id, "undo")
    assert "was taken back" in site.look()
    assert site.states() == {"Money": "Pending"}
    site.move("Pending_Approval/Lunch with Ann.md")
    site.look()
    assert site.states() == {"Money": "Approved"}
    site.move("Approved/Lunch with Ann.md", "Pending_Approval")
    site.look()
    assert site.states() == {"Money": "Pending"}


def test_a_request_from_before_the_table_lists_the_letters_of_all_agents(site: Site) -> None:
    plan = site.vault / "Plans/Lunch.md"
    plan.parent.mkdir(exist_ok=True)
    plan.write_text(f"---\ntype: email_send\nto: {ANN}\n---\n")
    os.utime(plan, (1, 1))
    with site.desk() as desk:
        change_settings(desk.ledger, tool_notes_since=2.0)
    site.agent.done("send_email", **LETTER)
    with visiting_inside(site.person, agent="other") as other:
        other.done("send_email", **{**LETTER, "subject": "Another agent's"})
    site.look()
    assert sorted(listed(site, "Lunch.md")) == sorted(site.ids().values())


def test_over_stdio_no_note_of_an_agents_lets_a_letter_out_that_the_person_did_not_see(
    person: Person,
) -> None:
    person.live(undo_seconds=0)
    person.vault.mkdir(exist_ok=True)
    with visiting(person, "--agent", "claude", agent="") as agent:
        site = Site(person, agent)
        assert site.write("Drafts/Lunch with Ann.md", {**SLIP, "status": "approved"}).refused
        site.write("Plans/Lunch with Ann.md", {**SLIP, "subject": "Money"})
        site.write("Drafts/Tea.md", {**DRAFT, "subject": "Tea"})
        agent.done("send_email", **LETTER)
        site.move("Plans/Lunch with Ann.md")
        site.move("Drafts/Tea.md")
        assert person.run("send-approved").code == 0
        agent.done("send_email", **{**LETTER, "body": "Or 90000 EUR."})
        assert person.run("send-approved").code == 0
    states = {one["state"] for one in person.run("pending", "--json").json["letters"]}
    assert states == {"pending"}
    assert person.run("search", "in:sent", "--json").json["messages"] == []


def test_tools_read_the_attachments_of_a_waiting_letter_and_change_nothing_there(
    site: Site,
) -> None:
    out = site.vault / "Outgoing" / "prices.csv"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("tea,3\n")
    site.agent.done("send_email", **LETTER, attachments=["Outgoing/prices.csv"])
    (saved,) = (site.vault / "Pending_Approval/Files").rglob("prices.csv")
    path = str(saved.relative_to(site.vault))
    folder = path.rpartition("/")[0]
    assert "tea,3" in site.agent.call("read_note", path=path).text
    site.agent.done("write_note", path="Outgoing/new.md", body="x")
    calls: tuple[tuple[str, dict[str, str]], ...] = (
        ("write_note", {"path": path, "body": "tea,1\n"}),
        ("write_note", {"path": f"{folder}/new.md", "body": "x"}),
        ("write_note", {"path": f"pending approval/files/{saved.parent.name}/x.md", "body": "x"}),
        ("edit_note", {"path": path, "find": "3", "replace": "1"}),
        ("move_note", {"source": path, "destination": "Outgoing/gone.csv"}),
        ("move_note", {"source": "Outgoing/new.md", "destination": f"{folder}/new.md"}),
    )
    for name, arguments in calls:
        assert site.agent.call(name, **arguments).refused == "permission_denied", arguments
    assert [(one.name, one.read_text()) for one in saved.parent.iterdir()] == [
        ("prices.csv", "tea,3\n")
    ]
