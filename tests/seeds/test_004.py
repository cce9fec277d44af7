"""Document 004, agent mail: `postroom mcp agents`, clause by clause; with tmux it is in tests/real."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.agents.record import AgentMessage, write_message
from postroom.tools import models as agents_models
from postroom.tools.contracts import agents
from postroom.tools.table import Result, dump
from tests.agents import ERAS, ToolAnswer, Visitor, Wire, visiting_inside
from tests.conftest import Person
from tests.mates import logged, mates, member, messages

SCHEMAS: dict[str, dict[str, dict[str, object]]] = {
    "list-recipients": {},
    "receive": {},
    "send": {
        "recipient": {"type": "string", "description": "The tmux window name of the recipient agent"},
        "message": {"type": "string", "description": "The message content to send (max 64KB)", "maxLength": 65_536},
    },
    "status": {
        "status": {"type": "string", "description": "The availability status to set", "enum": ["ready", "work", "offline"]}
    },
}  # fmt: skip
TEXTS = {
    "list-recipients": "List all available agents that can receive messages",
    "receive": "Read the oldest unread message from your mailbox",
    "send": "Send a message to another agent in a tmux window",
    "status": "Set your agent's availability status",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repository")


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[list[Visitor]]:
    with mates(folder, "alice", "bob") as found:
        yield found


@pytest.fixture
def alice(pair: list[Visitor]) -> Visitor:
    return pair[0]


@pytest.fixture
def bob(pair: list[Visitor]) -> Visitor:
    while pair[1].done("receive").get("id"):  # what another test left
        pass
    return pair[1]


def refused(said: ToolAnswer) -> str:
    assert said.raw.is_error
    return said.text


def test_the_four_tools_and_their_parameters(alice: Visitor) -> None:
    """004 Tool Invocation Request"""
    tools = alice.tools()
    assert list(tools) == list(SCHEMAS)
    for name, tool in tools.items():
        assert tool.description == TEXTS[name]
        assert tool.input_schema["properties"] == SCHEMAS[name]
        assert tool.input_schema.get("required", []) == list(SCHEMAS[name])
        assert tool.input_schema["additionalProperties"] is False


def test_models_have_the_names_and_fields_of_the_data_model() -> None:
    """004 Tool Response Formats, models"""
    assert list(agents_models.SendParams.model_fields) == ["recipient", "message"]
    assert list(agents_models.StatusParams.model_fields) == ["status"]
    fields: dict[type[Result], list[str]] = {
        agents.SendResponse: ["message_id"],
        agents.ReceiveEmptyResponse: ["status"],
        agents.StatusResponse: ["status"],
        agents.ListRecipientsResponse: ["recipients"],
        agents.RecipientInfo: ["name", "is_current"],
    }
    for model, names in fields.items():
        assert list(model._fields) == names
    received = agents.ReceiveResponse(sender="ann", id="m1", message="Hello.")
    assert list(dump(received)) == ["from", "id", "message"]


def test_send_answers_with_the_id_of_the_message_in_the_file(
    alice: Visitor, bob: Visitor, folder: Path
) -> None:
    """004 SendResponse, Message"""
    said = alice.call("send", recipient="bob", message="hello")
    written = messages(folder, "bob")[-1]
    assert json.loads(said.text) == said.values == {"message_id": written.id}
    assert written._replace(created="") == AgentMessage(
        written.id, "alice", "bob", "hello", False, ""
    )


def test_receive_answers_with_sender_id_and_message(alice: Visitor, bob: Visitor) -> None:
    """004 ReceiveResponse"""
    id = alice.done("send", recipient="bob", message="hello")["message_id"]
    said = bob.call("receive")
    assert said.text == f'{{"from":"alice","id":"{id}","message":"hello"}}'
    assert said.values == {"from": "alice", "id": id, "message": "hello"}


def test_receive_says_so_when_there_is_nothing(bob: Visitor) -> None:
    """004 ReceiveEmptyResponse"""
    said = bob.call("receive")
    assert (said.text, said.values) == ('{"status":"No unread messages"}', {"status": "No unread messages"})  # fmt: skip


def test_status_confirms(alice: Visitor, folder: Path) -> None:
    """004 StatusResponse"""
    for status in ("ready", "work", "offline"):
        assert alice.call("status", status=status).text == '{"status":"ok"}'
        kept = (folder / ".agentmail" / "recipients.jsonl").read_text().splitlines()
        assert [json.loads(row)["status"] for row in kept if '"alice"' in row] == [status]


def test_list_recipients_tells_who_asks(alice: Visitor, bob: Visitor) -> None:
    """004 ListRecipientsResponse, RecipientInfo"""
    said = bob.call("list-recipients")
    listed = [{"name": "alice", "is_current": False}, {"name": "bob", "is_current": True}]
    assert json.loads(said.text) == {"recipients": listed}


@pytest.mark.parametrize(
    ("text", "fits"),
    [("x" * 65_536, True), ("x" * 65_537, False), ("é" * 32_768, True), ("é" * 32_769, False), ("", None)],
)  # fmt: skip
def test_a_message_has_at_most_65_536_bytes(
    alice: Visitor, bob: Visitor, folder: Path, text: str, fits: bool | None
) -> None:
    """004 Validation Rules, Message Content (FR-013)"""
    before = len(messages(folder, "bob"))
    said = alice.call("send", recipient="bob", message=text)
    assert len(messages(folder, "bob")) == before + bool(fits)
    if fits is None:
        assert refused(said) == "no message provided"
    elif not fits:
        assert refused(said) == "message exceeds maximum size of 64KB"


@pytest.mark.parametrize("status", ["Ready", "WORK", "", "away"])
def test_statuses_are_told_apart_by_their_case(alice: Visitor, status: str) -> None:
    """004 Validation Rules, Status Values"""
    said = alice.call("status", status=status)
    assert refused(said) == f"Invalid status: {status}. Valid: ready, work, offline"


def test_a_recipient_must_be_there(alice: Visitor) -> None:
    """004 Validation Rules, Recipient Names"""
    for name in ("nobody", "", "Bob", "../bob"):
        assert refused(alice.call("send", recipient=name, message="x")) == "recipient not found"


def test_a_recipient_must_not_be_ignored(alice: Visitor, bob: Visitor, folder: Path) -> None:
    """004 Validation Rules, Recipient Names, ignored"""
    ignore = folder / ".agentmailignore"
    ignore.write_text("bob\n")
    try:
        assert refused(alice.call("send", recipient="bob", message="x")) == "recipient not found"
        assert [one["name"] for one in alice.done("list-recipients")["recipients"]] == ["alice"]
        assert bob.call("receive").values == {"status": "No unread messages"}
    finally:
        ignore.unlink()


def test_nobody_writes_to_themselves(alice: Visitor) -> None:
    """004 Validation Rules, Recipient Names, no self-send"""
    said = alice.call("send", recipient="alice", message="x")
    assert refused(said) == "cannot send message to self"


def test_a_message_goes_from_unread_to_read(alice: Visitor, bob: Visitor, folder: Path) -> None:
    """004 State Transitions, Message Lifecycle"""
    id = alice.done("send", recipient="bob", message="hello")["message_id"]
    assert [m.read for m in messages(folder, "bob") if m.id == id] == [False]
    bob.done("receive")
    # It is read when the answer was written, which is before the next one.
    assert bob.done("receive") == {"status": "No unread messages"}
    assert [m.read for m in messages(folder, "bob") if m.id == id] == [True]


def test_who_is_busy_or_gone_counts_as_not_nudged(alice: Visitor, folder: Path) -> None:
    """004 State Transitions, Recipient Status Lifecycle"""
    file = folder / ".agentmail" / "recipients.jsonl"
    for status, kept in (("ready", True), ("work", False), ("offline", False)):
        file.write_text('{"recipient":"alice","status":"ready","updated_at":"2026-01-01T00:00:00Z","notified_at":"2026-01-01T00:00:00Z"}\n')  # fmt: skip
        alice.done("status", status=status)
        assert ("2026-01-01T00:00:00Z" in file.read_text()) is kept


def test_the_older_record_of_a_state_is_read_too(alice: Visitor, folder: Path) -> None:
    """004 RecipientEntry"""
    file = folder / ".agentmail" / "recipients.jsonl"
    file.write_text('{"name":"alice","status":"work","notified":true,"last_read_at":5}\n')
    alice.done("status", status="ready")
    (row,) = map(json.loads, file.read_text().splitlines())
    assert (row["recipient"], row["status"], row["last_read_at"]) == ("alice", "ready", 5)


def test_receiving_by_a_tool_changes_no_state(alice: Visitor, bob: Visitor, folder: Path) -> None:
    """004 Storage Locations"""
    file = folder / ".agentmail" / "recipients.jsonl"
    file.write_text("")
    alice.done("send", recipient="bob", message="x")
    bob.done("receive")
    assert file.read_text() == ""


def test_the_sender_is_no_argument(alice: Visitor, bob: Visitor, folder: Path) -> None:
    """004 SendParams, and no other"""
    said = alice.call("send", recipient="bob", message="x", **{"from": "carol"})
    assert refused(said).startswith("failed to parse arguments: ")
    assert refused(alice.call("send", recipient=["bob"], message="x")).startswith("failed to parse")
    assert "carol" not in {m.sender for m in messages(folder, "bob")}


def test_what_is_missing_is_named_in_the_programs_words(alice: Visitor) -> None:
    """004 SendParams, missing ones"""
    assert refused(alice.call("send")) == "no message provided"
    assert refused(alice.call("send", message="x")) == "recipient not found"
    assert refused(alice.call("status")) == "Invalid status: . Valid: ready, work, offline"


def test_what_others_wrote_is_cleaned(bob: Visitor, folder: Path) -> None:
    """004 ReceiveResponse, untrusted"""
    with open(folder / ".agentmail" / "mailboxes" / "bob.jsonl", "ab") as file:
        file.write(
            write_message(AgentMessage("aaaaaaaa", "al\u202eice", "bob", "a\x1b[2J\U000e0041b"))
        )
    assert bob.done("receive") == {"from": "alice", "id": "aaaaaaaa", "message": "a[2Jb"}


def test_each_call_leaves_one_line_without_the_message(tmp_path: Path) -> None:
    """004, audit"""
    with mates(tmp_path, "alice", "bob") as (alice, bob):
        id = alice.done("send", recipient="bob", message="the secret word")["message_id"]
        bob.done("receive")
        bob.done("receive")
        alice.call("send", recipient="nobody", message="the secret word")
        alice.done("status", status="ready")
    lines = logged(tmp_path)
    found = [(row["action_type"], row["result"], row["target"]) for row in lines]
    assert found[2:] == [
        ("send", "success", "bob"),
        ("receive", "success", "alice"),
        ("receive", "success", ""),
        ("send", "error", ""),
        ("status", "success", ""),
    ]
    assert all(row["actor"] == "agents" for row in lines)
    assert lines[2]["parameters"] == {"name": "alice", "id": id}
    assert "secret" not in json.dumps(lines)


def test_with_neither_tmux_nor_a_name_the_server_starts_and_explains(person: Person) -> None:
    """004, without tmux"""
    with visiting_inside(person, agent="", contract=agents.CONTRACT) as nobody:
        assert len(nobody.tools()) == 4
        said = nobody.call("receive")
        assert refused(said) == "agentmail must run inside a tmux session"
        assert "AGENTMAIL_NAME" in said.values["error"]["remedy"]
    with visiting_inside(person, agent="alice", contract=agents.CONTRACT) as alice:
        said = alice.call("send", recipient="bob", message="x")
        assert refused(said) == "not in a git repository: not in a git repository"


def test_malformed_lines_do_not_end_the_server(tmp_path: Path) -> None:
    """004, protocol"""
    wire = Wire(member(tmp_path, "alice"), "agents").greet()
    try:
        for raw in (b"{nonsense\n", b"\n", b"\xff\xfe\n", b"[1]\n", b'{"jsonrpc":"2.0","id":7}\n'):
            wire.send(raw)
        answer = wire.answer(wire.call("list-recipients"))
        assert (
            json.loads(answer["result"]["content"][0]["text"])["recipients"][0]["name"] == "alice"
        )
    finally:
        wire.kill()


def test_the_list_of_tools_is_small(folder: Path) -> None:
    """004, size of tools/list"""
    for era in ERAS:
        alice = member(folder, "alice")
        with visiting_inside(alice, agent="", era=era, contract=agents.CONTRACT) as agent:
            found = agent.portal.call(agent.client.list_tools)
        assert len(found.tools) == 4
        assert len(found.model_dump_json(by_alias=True, exclude_none=True)) <= 2_000, era
