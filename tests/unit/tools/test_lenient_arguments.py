"""Arguments that models write in another form than the listed one: they cost no turn."""

from email import message_from_string
from pathlib import Path
from typing import Any

import pytest

from postroom.tools.contracts import postroom
from postroom.tools.listing import load
from tests.agents import Visitor
from tests.agents import visiting_inside as visiting
from tests.arrivals import arrive, letter, sent
from tests.conftest import Person
from tests.notes import Notes

# Lists


def test_addresses_are_taken_as_one_text(robin: Person, agent: Visitor) -> None:
    people = 'Ann <ann@example.com>, "Lee, Bob" <bob@example.net>'
    held = agent.done("send_email", to=people, cc="cat@example.net", bcc="", subject="Tea", body="x")  # fmt: skip
    found = letter(robin, held["letter"])
    assert found["to"] == ["Ann <ann@example.com>", '"Lee, Bob" <bob@example.net>']
    assert (found["cc"], found["bcc"]) == (["cat@example.net"], [])
    listed = agent.done("send_email", to=["Ann <ann@example.com>", '"Lee, Bob" <bob@example.net>'], cc=["cat@example.net"], subject="Tea", body="x")  # fmt: skip
    assert listed["letter"] == held["letter"]


def test_one_wrong_address_of_a_text_refuses_all_of_it(robin: Person, agent: Visitor) -> None:
    refused = agent.call("send_email", to="ann@example.com, bob", subject="Tea", body="x")
    assert refused.refused == "invalid_input"
    assert "Invalid email address format: bob" in refused.text
    assert agent.call("send_email", to="", subject="Tea", body="x").refused == "invalid_input"
    many = ", ".join(f"someone.with.a.long.name{at}@mail.example.com" for at in range(26))
    assert len(many) > 1_000
    refused = agent.call("send_email", to=many, subject="Tea", body="x")
    assert "The letter has 26 recipients; 25 is the most" in refused.text
    assert robin.run("pending", "--json").json["letters"] == []


def test_the_texts_of_a_list_are_bounded_together_and_each_stands_for_itself(
    agent: Visitor,
) -> None:
    many = ["ann@example.com, " * 500] * 12
    refused = agent.call("send_email", to=many, subject="Tea", body="x")
    assert refused.refused == "invalid_input"
    assert "The list of addresses is too long" in refused.text
    halves = ['"Ann <ann@example.com>', 'Bob" <bob@example.net>']
    refused = agent.call("send_email", to=halves, subject="Tea", body="x")
    assert refused.refused == "invalid_input"


def test_attachments_as_a_text_are_one_path(robin: Person, agent: Visitor) -> None:
    for path in ("a.txt", "b.txt", "a.txt;b c.txt", "c.txt, Outgoing/d.txt"):
        file = robin.vault / "Outgoing" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    words = {"to": "ann@example.com", "subject": "Files"}
    for body, path, name in (
        ("1", "Outgoing/a.txt", "a.txt"),
        ("2", "Outgoing/c.txt, Outgoing/d.txt", "d.txt"),
        ("3", "Outgoing/a.txt;b c.txt", "a.txt;b c.txt"),
    ):
        held = agent.done("send_email", body=body, attachments=path, **words)
        (file,) = letter(robin, held["letter"])["attachments"]
        assert file["name"] == name
    assert agent.call("send_email", body="4", attachments="Outgoing/a.txt,Outgoing/b.txt", **words).refused == "not_found"  # fmt: skip
    bare = agent.done("send_email", body="5", attachments="", **words)
    assert letter(robin, bare["letter"])["attachments"] == []


# Names of other servers


def test_names_from_other_servers_are_taken_for_the_arguments_own(
    robin: Person, agent: Visitor
) -> None:
    found = agent.done("search_email", query="in:inbox", max_results=3)["mails"]
    assert len(found) == 3
    mail = agent.done("get_email", message_id=found[0]["id"])
    assert mail["id"] == found[0]["id"]
    for alias, id in (("message_id", mail["id"]), ("thread_id", mail["thread"])):
        assert agent.done("get_thread", **{alias: id})["thread"] == mail["thread"]
    ours = agent.done("reply_email", message_id=mail["id"], html_body="<p>Yes.</p>")
    assert letter(robin, ours["letter"])["html"] == "<p>Yes.</p>"
    assert agent.done("reply_email", thread_id=mail["thread"], html="<p>Yes.</p>") == ours
    assert agent.done("add_label", message_id=mail["id"], label="Seen")["added"] == ["Seen"]
    assert agent.done("move_email", message_id=mail["id"], destination="Seen")["removed"] == ["INBOX"]  # fmt: skip
    draft = agent.done("draft_email", to="ann@example.com", html_body="<p>Yes.</p>")
    assert draft["status"] == "draft"


@pytest.mark.parametrize(
    ("tool", "arguments", "names"),
    [
        ("search_email", {"limit": 3, "max_results": 3}, "limit and max_results"),
        ("get_email", {"id": "a", "message_id": "a"}, "id and message_id"),
        ("get_thread", {"thread_id": "a", "message_id": "b"}, "thread_id and message_id"),
        ("reply_email", {"id": "a", "html": "x", "html_body": "x"}, "html and html_body"),
    ],
)
def test_an_argument_under_two_names_is_refused(
    agent: Visitor, tool: str, arguments: dict[str, Any], names: str
) -> None:
    refused = agent.call(tool, **arguments)
    assert refused.refused == "invalid_input"
    assert f"{tool}: {names} are one argument: give " in refused.text


def test_what_is_wrong_is_named_as_the_call_has_it(agent: Visitor) -> None:
    refused = agent.call("search_email", max_results=0)
    assert "max_results: input should be greater than or equal to 1" in refused.text
    assert "It takes: query, limit, cursor." in refused.text
    for tool in ("letter_status", "withdraw_letter"):  # what they take is no mail
        assert "message_id is not an argument" in agent.call(tool, message_id="a").text


@pytest.mark.parametrize("name", ["postroom", "all"])
def test_other_names_and_forms_are_not_listed(name: str) -> None:
    listing = load(name)
    tools = {tool["name"]: tool["inputSchema"]["properties"] for tool in listing["tools"]}
    for tool in postroom.TOOLS:
        for argument, check in listing["arguments"][tool.name].items():
            assert argument in tools[tool.name]
            assert not tools[tool.name].keys() & set(check.get("aliases", ()))
    assert tools["send_email"]["to"] == {"items": {"type": "string"}, "type": "array"}


# Notes


def test_a_list_without_a_folder_is_of_the_whole_vault(person: Person, notes: Notes) -> None:
    notes.file("deep/one.md", "x\n")
    notes.listed("", ["deep/one.md"])
    assert notes.done("list_notes") == notes.done("list_notes", directory="")
    with visiting(person) as agent:
        assert [note["path"] for note in agent.done("list_notes")["notes"]] == ["deep/one.md"]


FIELDS = "# mine\ntitle: 'Tea' # keep\ntags:\n  - one\n"


def test_a_note_that_is_written_without_frontmatter_keeps_its_own(notes: Notes) -> None:
    there = notes.file("n.md", f"---\n{FIELDS}---\nOld.\n")
    said = notes.refused("write_note", path="n.md", body="New.\n")
    assert said["error"] == "conflict"
    tag = notes.done("read_note", path="n.md")["etag"]
    said = notes.done("write_note", path="n.md", body="New.\n", if_match=tag)
    assert there.read_text() == f"---\n{FIELDS}---\nNew.\n"
    assert said["frontmatter"] == {"title": "Tea", "tags": ["one"]}
    there.write_text(f"---\n{FIELDS}---\nTheirs.\n")
    assert notes.refused("write_note", path="n.md", body="x")["error"] == "conflict"
    assert notes.refused("write_note", path="n.md", body="x", if_match=tag)["error"] == "conflict"
    notes.done("read_note", path="n.md")
    notes.done("write_note", path="n.md", frontmatter={}, body="Bare.\n")
    assert there.read_text() == "---\n# mine\n---\nBare.\n"


def test_a_new_note_without_frontmatter_has_none(notes: Notes) -> None:
    notes.done("write_note", path="new.md", body="Hello.\n")
    assert (notes.root / "new.md").read_text() == "Hello.\n"
    assert "body is missing" in notes.refused("write_note", path="new.md")["message"]


# Replies


def arrive_unnamed(person: Person, name: str, sender: str, headers: str = "") -> None:
    """Bring in a mail without a Message-ID."""
    file: Path = person.folder / f"{name}.eml"
    file.write_text(
        f"From: {sender}\nTo: you@example.org\nSubject: Tea\nDate: Sat, 14 Nov 2026 10:00:00 +0000\n"
        f"{headers}\nCome at {name}.\n"
    )
    assert person.run("import", str(file)).code == 0


@pytest.mark.parametrize("references", ["", "<first@example.com>"])
def test_a_mail_without_a_message_id_is_answered_in_its_conversation(
    robin: Person, references: str
) -> None:
    arrive(robin, "first", subject="Tea")
    headers = f"References: {references}\n" if references else ""
    arrive_unnamed(robin, "four", "Dan <dan@example.com>", headers)
    with visiting(robin) as agent:
        (mail,) = agent.done("search_email", query="from:dan@example.com")["mails"]
        thread = agent.done("get_email", id=mail["id"])["thread"]
        held = agent.done("reply_email", id=mail["id"], body="Gladly.")
    found = letter(robin, held["letter"])
    assert found["to"] == ["Dan <dan@example.com>"]
    assert robin.run("approve", held["letter"], "--yes", found["digest"]).code == 0
    (out,) = sent(robin)
    raw = message_from_string(robin.run("read", out["id"], "--raw").out)
    assert raw["In-Reply-To"] is None
    assert raw["References"] == (references or None)
    assert raw["Subject"] == "Re: Tea"
    with visiting(robin) as agent:
        assert out["id"] in {one["id"] for one in agent.done("get_thread", id=thread)["mails"]}


def test_an_answer_to_a_mail_without_a_message_id_is_guarded_as_any_other(robin: Person) -> None:
    arrive_unnamed(robin, "four", "noreply@shop.example")
    arrive_unnamed(robin, "five", "Eve <eve@evil.example>")
    with visiting(robin) as agent:
        machine, eve = (
            agent.done("search_email", query=f"from:{who}")["mails"][0]["id"]
            for who in ("noreply@shop.example", "eve@evil.example")
        )
        assert agent.call("reply_email", id=machine, body="Yes.").refused == "permission_denied"
        held = agent.call("reply_email", id=eve, body="Yes.")
        assert held.values["status"] == "pending"
        robin.run("reject", held.values["letter"], "--reason", "not to eve@evil.example")
        assert "evil.example" not in agent.call("letter_status", id=held.values["letter"]).text
