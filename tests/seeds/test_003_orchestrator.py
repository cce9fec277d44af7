"""Document 003, the orchestrator: its client, its state machine and its folders, clause by clause."""

import inspect
import json
import sys

import anyio
import pytest

from postroom.core.errors import Unavailable
from postroom.core.triage import DECISIONS
from postroom.orchestrator.client import MCPClient
from postroom.tools.mcperror import MCPErrorCode
from postroom.vault.folders import FOLDERS
from postroom.vault.markdown import sections
from tests.providers import BUSY, Courier
from tests.rounds import Rounds


@pytest.fixture
def courier():
    return Courier()


@pytest.fixture
def rounds(tmp_path, courier):
    rounds = Rounds(tmp_path)
    rounds.wrap = courier
    rounds.restart(undo_seconds=0)
    rounds.round()
    yield rounds
    rounds.close()


def decided(rounds, decision, text=""):
    rounds.handbook(f"anything: {decision} {text}".strip())
    id = rounds.deliver("Tea")
    rounds.round()
    return id


def test_mcpclient_has_the_documents_interface(tmp_path):
    """003 §6 MCPClient"""
    made = inspect.signature(MCPClient)
    positional = [n for n, p in made.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == ["server_name", "command", "vault_path"]
    client = MCPClient("obsidian", ["python3", "server.py"], tmp_path)
    assert (client.server_name, client.command) == ("obsidian", ["python3", "server.py"])
    assert client.vault_path == tmp_path
    called = inspect.signature(client.call_tool)
    assert list(called.parameters) == ["tool_name", "arguments", "fallback"]
    assert called.parameters["fallback"].default is None
    assert inspect.iscoroutinefunction(MCPClient.call_tool)


def test_call_tool_returns_a_dict(person):
    """003 §6 call_tool"""
    (person.vault / "Plans").mkdir(parents=True)
    (person.vault / "Plans" / "a.md").write_text("---\nstatus: new\n---\nHello.\n")

    async def call():
        command = [sys.executable, "-m", "postroom", "mcp", "vault"]
        client = MCPClient("obsidian", command, person.vault, environ=person.environment)
        try:
            return await client.call_tool("read_note", {"path": "Plans/a.md"})
        finally:
            await client.close()

    said = anyio.run(call)
    assert (said["frontmatter"], said["body"]) == ({"status": "new"}, "Hello.\n")


def test_on_failure_the_error_is_logged_and_the_fallback_executed(tmp_path):
    """003 §6 call_tool, On failure: log error, execute fallback if provided"""

    async def call(fallback):
        client = MCPClient("gmail", [str(tmp_path / "missing")], tmp_path)
        try:
            return await client.call_tool("list_emails", {"query": "secret words"}, fallback)
        finally:
            await client.close()

    assert anyio.run(call, lambda: {"emails": []}) == {"emails": []}
    with pytest.raises(Unavailable):
        anyio.run(call, None)
    (log,) = (tmp_path / "Logs").iterdir()
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["fallback"] for row in rows] == [True, False]
    assert {(row["server"], row["tool"]) for row in rows} == {("gmail", "list_emails")}
    assert "secret" not in log.read_text()


def test_mcp_unavailable_is_the_code_of_a_server_that_does_not_respond(tmp_path):
    """003 §5 mcp_unavailable"""
    assert "mcp_unavailable" in MCPErrorCode.__args__

    async def call():
        client = MCPClient("gmail", [sys.executable, "-c", ""], tmp_path)
        try:
            await client.call_tool("list_emails", {}, dict)
        finally:
            await client.close()

    anyio.run(call)
    (log,) = (tmp_path / "Logs").iterdir()
    assert json.loads(log.read_text())["error"] == "mcp_unavailable"


def test_a_new_mail_is_pending_in_needs_action(rounds):
    """003 State Machine, Needs_Action/email.md [status: pending]"""
    rounds.handbook("anything: no decision")  # so that nothing is triaged
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "pending")


def test_the_decisions_are_the_documents():
    """003 State Machine, five decisions"""
    assert set(DECISIONS) == {"draft_reply", "archive", "needs_info", "urgent", "delegate"}


def test_draft_reply(rounds):
    """003 State Machine, draft_reply"""
    id = decided(rounds, "draft_reply", "Yes.")
    path, draft = rounds.letter_note(id)
    assert (path.partition("/")[0], draft.text("status")) == ("Drafts", "pending_approval")
    assert draft.text("reply_to_message_id") == id


def test_an_approved_draft_is_sent_and_done(rounds):
    """003 State Machine, Approved/reply.md, Orchestrator polls, Done/ [status: done]"""
    id = decided(rounds, "draft_reply", "Yes.")
    rounds.carry(rounds.letter_note(id)[0], "Approved")
    rounds.round()
    path, draft = rounds.letter_note(id)
    assert (path.partition("/")[0], draft.text("status")) == ("Done", "done")
    assert rounds.sent() == ["Re: Tea"]


def test_a_draft_that_a_person_wrote_into_approved_is_sent(rounds):
    """003 §6 ApprovedDraft"""
    rounds.handbook("anything: needs_info")
    id = rounds.deliver("Tea")
    rounds.round()
    rounds.write(
        "Approved/reply.md",
        f"---\nto: ann@example.com\nsubject: 'Re: Tea'\nreply_to_message_id: '{id}'\n"
        "status: pending_approval\n---\n\nGladly.\n",
    )
    rounds.round()
    assert rounds.sent() == ["Re: Tea"]
    assert (rounds.vault / "Done" / "reply.md").exists()


def test_on_failure_it_stays_in_approved_for_retry(rounds, courier):
    """003 State Machine, on failure: stays in Approved/ for retry"""
    id = decided(rounds, "draft_reply", "Yes.")
    courier.refuses(BUSY)
    rounds.carry(rounds.letter_note(id)[0], "Approved")
    rounds.round()
    assert rounds.letter_note(id)[0].startswith("Approved/")
    rounds.clock.go(3600)
    rounds.round()
    assert rounds.letter_note(id)[0].startswith("Done/")


def test_archive(rounds):
    """003 State Machine, archive"""
    assert rounds.status(decided(rounds, "archive")) == ("Done", "done")


def test_needs_info(rounds):
    """003 State Machine, needs_info"""
    assert rounds.status(decided(rounds, "needs_info")) == ("Needs_Action", "needs_info")


def test_urgent(rounds):
    """003 State Machine, urgent"""
    path, draft = rounds.letter_note(decided(rounds, "urgent", "On my way."))
    assert path.startswith("Drafts/")
    assert (draft.text("status"), draft.text("priority")) == ("pending_approval", "urgent")


def test_delegate(rounds):
    """003 State Machine, delegate"""
    id = decided(rounds, "delegate", "Bob knows.")
    assert rounds.status(id) == ("Needs_Action", "pending_approval")
    body = rounds.mail_note(id)[1].body
    assert "Bob knows." in dict(sections(body))["Delegation"]
    assert body.index("## Mail") < body.index("## Delegation")


def test_the_folders_and_logs_are_the_documents(rounds):
    """003 Vault Directory Structure"""
    asked = {"Needs_Action", "Drafts", "Approved", "Done", "Logs"}
    assert asked <= {folder.name for folder in FOLDERS}
    decided(rounds, "archive")
    state = rounds.vault / "Logs" / "orchestrator_state.json"
    assert json.loads(state.read_text())["mails"] == {"done": 1}
