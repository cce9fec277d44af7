"""Document 003, the orchestrator: its client, its state machine and its folders, clause by clause."""

import inspect
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from postroom.core.errors import NotFound, Unavailable, Uncertain
from postroom.core.message import INBOX, UNREAD
from postroom.orchestrator.client import Fallback, MCPClient
from postroom.vault.markdown import sections
from postroom.vault.note import Note
from tests.conftest import Person
from tests.providers import BUSY, Courier
from tests.rounds import Rounds
from tests.unit.orchestrator import servers

DAY = datetime(2026, 2, 24, 12, tzinfo=UTC)


@pytest.fixture
def courier() -> Courier:
    return Courier()


@pytest.fixture
def rounds(tmp_path: Path, courier: Courier) -> Iterator[Rounds]:
    rounds = Rounds(tmp_path)
    rounds.wrap = courier
    rounds.restart(undo_seconds=0)
    rounds.round()
    yield rounds
    rounds.close()


def decided(rounds: Rounds, decision: str, text: str = "") -> str:
    rounds.handbook(f"anything: {decision} {text}".strip())
    id = rounds.deliver("Tea")
    rounds.round()
    return id


def test_mcpclient_has_the_documents_interface(tmp_path: Path) -> None:
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


def test_call_tool_returns_a_dict(person: Person) -> None:
    """003 §6 call_tool"""
    (person.vault / "Plans").mkdir(parents=True)
    (person.vault / "Plans" / "a.md").write_text("---\nstatus: new\n---\nHello.\n")

    async def call() -> dict[str, Any]:
        command = [sys.executable, "-m", "postroom", "mcp", "vault"]
        client = MCPClient("obsidian", command, person.vault, environ=person.environment)
        try:
            return await client.call_tool("read_note", {"path": "Plans/a.md"})
        finally:
            await client.close()

    said = anyio.run(call)
    assert (said["frontmatter"], said["body"]) == ({"status": "new"}, "Hello.\n")


class Place:
    """A vault, a server that misbehaves as it is told to, and what both of them say afterwards."""

    def __init__(self, folder: Path) -> None:
        self.vault = folder / "vault"
        self.vault.mkdir()
        self._folder = folder

    def call(self, mode: str, tool: str, fallback: Fallback | None = None) -> dict[str, Any]:
        """Call a tool of the server: `look` only reads, `stir` may change something."""
        server = [sys.executable, "-I", "-S", servers.__file__, str(self._folder), mode, "100"]

        async def call() -> dict[str, Any]:
            client = MCPClient("gmail", server, self.vault, clock=lambda: DAY)
            try:
                return await client.call_tool(tool, {"query": "secret words"}, fallback)
            finally:
                await client.close()

        return anyio.run(call)

    def answers(self, text: str) -> None:
        """Have the mode `as told` answer with this error."""
        error = {"isError": True, "content": [{"type": "text", "text": text}]}
        (self._folder / "answer").write_text(json.dumps(error))

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the day's log."""
        (file,) = (self.vault / "Logs").iterdir()
        assert file.name == "orchestrator_2026-02-24.jsonl"
        assert "secret" not in file.read_text()
        return [json.loads(line) for line in file.read_text().splitlines()]

    def calls(self) -> list[str]:
        """Return the calls that reached the server since this was last asked."""
        file = self._folder / "calls"
        found = file.read_text().split()
        file.write_text("")
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_on_failure_the_error_is_logged_and_the_fallback_executed(place: Place) -> None:
    """003 §6 call_tool, On failure: log error, execute fallback if provided"""

    async def later() -> dict[str, Any]:
        return {"lines": len(place.log())}  # the error is in the log before the fallback is run

    assert place.call("dies", "look", lambda: {"lines": len(place.log())}) == {"lines": 1}
    assert place.calls() == ["look", "look"]
    assert place.call("exits", "stir", later) == {"lines": 2}
    rows = [(row["server"], row["tool"], row["attempts"], row["fallback"]) for row in place.log()]
    assert rows == [("gmail", "look", 2, True), ("gmail", "stir", 1, True)]


def test_a_tools_error_is_logged_with_its_code_and_the_fallback_executed(place: Place) -> None:
    """003 §6 call_tool, On failure, CallToolResult(isError=True)"""
    error = {"error": "not_found", "message": "no such secret mail", "details": None}
    place.answers(json.dumps(error))
    instead = {"from": "the fallback"}
    assert place.call("as told", "look", lambda: instead) == instead
    assert place.calls() == ["look"]
    rows = [(row["event"], row["error"], row["tool"], row["fallback"]) for row in place.log()]
    assert rows == [("mcp_error", "not_found", "look", True)]


def test_what_may_have_happened_is_not_done_again_by_a_fallback(place: Place) -> None:
    """003 §6 call_tool, On failure, of a call that may have changed something"""

    def again() -> dict[str, Any]:
        pytest.fail("it was done twice")

    cases = [
        ("dies", "mcp_unavailable", Uncertain),
        ("as told", "send_failed", Uncertain),
        ("as told", "not_found", NotFound),
    ]
    for mode, code, kind in cases:
        place.answers(json.dumps({"error": code, "message": "Not so", "details": None}))
        with pytest.raises(kind):
            place.call(mode, "stir", again)
        assert place.calls() == ["stir"]
    assert [(row["error"], row["fallback"]) for row in place.log()] == [(code, False) for _, code, _ in cases]  # fmt: skip


def test_without_a_fallback_the_failure_is_logged_and_raised(place: Place) -> None:
    """003 §6 call_tool, On failure, if none is provided"""
    with pytest.raises(Unavailable):
        place.call("dies", "look")
    with pytest.raises(Uncertain):
        place.call("dies", "stir")
    assert [row["fallback"] for row in place.log()] == [False, False]


def test_the_fallback_of_a_call_that_succeeds_is_not_executed(place: Place) -> None:
    """003 §6 call_tool, fallback on failure alone"""
    ran: list[str] = []

    def fallback() -> dict[str, Any]:
        ran.append("fallback")
        return {}

    assert place.call("well", "look", fallback) == {"tool": "look", "query": "secret words"}
    assert (ran, list(place.vault.iterdir())) == ([], [])


def test_mcp_unavailable_is_the_code_of_a_server_that_does_not_respond(place: Place) -> None:
    """003 §5 mcp_unavailable"""
    fallback: dict[str, Any] = {"emails": []}
    for mode in ("exits", "refuses to begin", "no result"):
        assert place.call(mode, "look", lambda: fallback) == fallback, mode
    for row in place.log():
        assert (row["event"], row["error"], row["severity"]) == ("mcp_unavailable", "mcp_unavailable", "ERROR")  # fmt: skip
        assert row["timestamp"] == DAY.isoformat()
    assert len(place.log()) == 3


def test_a_new_mail_is_pending_in_needs_action(rounds: Rounds) -> None:
    """003 State Machine, Needs_Action/email.md [status: pending]"""
    rounds.handbook("anything: no decision")  # so that nothing is triaged
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "pending")


def test_the_decisions_are_the_documents(rounds: Rounds) -> None:
    """003 State Machine, five decisions"""
    words = ("draft_reply", "archive", "needs_info", "urgent", "delegate")
    others = ("reply", "forward", "delete")
    rounds.handbook(*(f"subject `{word}`: {word}" for word in words))
    mails = {rounds.deliver(word): word for word in words}
    rounds.round()
    assert {row["message"]: row["decision"] for row in rounds.triaged()} == mails
    for word in others:
        rounds.handbook(f"anything: {word}")
        id = rounds.deliver("Tea")
        rounds.round()
        assert rounds.status(id) == ("Needs_Action", "pending"), word
    assert len(rounds.triaged()) == len(words)


def test_draft_reply(rounds: Rounds) -> None:
    """003 State Machine, draft_reply"""
    id = decided(rounds, "draft_reply", "Yes.")
    path, draft = rounds.letter_note(id)
    assert (path.partition("/")[0], draft.text("status")) == ("Drafts", "pending_approval")
    assert draft.text("reply_to_message_id") == id


def test_an_approved_draft_is_sent_and_done(rounds: Rounds) -> None:
    """003 State Machine, Approved/reply.md, Orchestrator polls, Done/ [status: done]"""
    id = decided(rounds, "draft_reply", "Yes.")
    rounds.carry(rounds.letter_note(id)[0], "Approved")
    rounds.round()
    path, draft = rounds.letter_note(id)
    assert (path.partition("/")[0], draft.text("status")) == ("Done", "done")
    assert rounds.sent() == ["Re: Tea"]


def records(rounds: Rounds) -> list[dict[str, Any]]:
    """Return the pre-send records, oldest first."""
    files = sorted((rounds.vault / "Logs").glob("gmail_mcp_*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_an_answer_of_the_orchestrator_is_recorded_before_it_is_sent(
    rounds: Rounds, courier: Courier
) -> None:
    """003 §2 AuditLogEntry, written before every send, of an answer that the orchestrator drafted"""
    id = decided(rounds, "draft_reply", "Yes.")
    assert records(rounds) == []
    courier.refuses(BUSY)
    rounds.carry(rounds.letter_note(id)[0], "Approved")
    rounds.round()
    assert (courier.tried, rounds.sent()) == (1, [])
    (record,) = records(rounds)
    assert (record["event"], record["subject"], record["body_preview"]) == ("pre_send_audit", "Re: Tea", "Yes.")  # fmt: skip
    assert record["reply_to_message_id"] == id


def test_a_draft_that_a_person_wrote_into_approved_is_sent(rounds: Rounds) -> None:
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
    mail = rounds.box.message(rounds.box.search("in:sent").items[0].id).mail
    assert ([one.address for one in mail.to], mail.text.strip()) == (["ann@example.com"], "Gladly.")
    assert mail.in_reply_to == (rounds.box.message(id).mail.message_id,)
    done = Note.parse((rounds.vault / "Done" / "reply.md").read_bytes())
    assert done.text("status") == "done"


def test_a_draft_that_a_person_wrote_is_recorded_before_it_is_sent(rounds: Rounds) -> None:
    """003 §2 AuditLogEntry, written before every send, of an ApprovedDraft"""
    for folder in ("Approved", "Drafts"):
        head = f"---\nto: ann@example.com\nsubject: {folder}\nstatus: pending_approval\n---\n"
        rounds.write(f"{folder}/plan.md", head + "B" * 300)
    rounds.round()
    assert [record["subject"] for record in records(rounds)] == ["Approved"]
    rounds.carry("Drafts/plan.md", "Approved")
    rounds.round()
    assert [record["subject"] for record in records(rounds)] == ["Approved", "Drafts"]
    assert sorted(rounds.sent()) == ["Approved", "Drafts"]
    last = records(rounds)[-1]
    assert (last["to"], last["body_preview"], last["reply_to_message_id"]) == ("ann@example.com", "B" * 200, None)  # fmt: skip


def test_on_failure_it_stays_in_approved_for_retry(rounds: Rounds, courier: Courier) -> None:
    """003 State Machine, on failure: stays in Approved/ for retry"""
    id = decided(rounds, "draft_reply", "Yes.")
    courier.refuses(BUSY, times=4)
    rounds.carry(rounds.letter_note(id)[0], "Approved")
    rounds.round()
    for tries, seconds in enumerate((1, 4, 30, 60), 1):
        path, draft = rounds.letter_note(id)
        assert path.startswith("Approved/")
        assert draft.text("held") == "the server is busy"
        due = datetime.fromtimestamp(rounds.clock.wall + seconds, UTC)
        assert draft.text("next_try") == f"{due:%Y-%m-%dT%H:%M:%S}"
        rounds.clock.go(seconds - 1)
        rounds.round()
        assert courier.tried == tries
        rounds.clock.go(1)
        rounds.round()
        assert courier.tried == tries + 1
    path, draft = rounds.letter_note(id)
    assert path.startswith("Done/")
    assert (draft.text("held"), draft.text("next_try")) == ("", "")
    assert (len(courier.accepted), rounds.sent()) == (1, ["Re: Tea"])


def test_on_failure_a_draft_that_a_person_wrote_stays_in_approved(
    rounds: Rounds, courier: Courier
) -> None:
    """003 State Machine, on failure: stays in Approved/ for retry, of an ApprovedDraft"""
    courier.refuses(BUSY)
    file = rounds.write("Approved/plan.md", "---\nto: ann@example.com\nsubject: Plan\n---\nAt four.\n")  # fmt: skip
    rounds.round()
    assert (courier.tried, rounds.sent()) == (1, [])
    assert Note.parse(file.read_bytes()).text("held") == "the server is busy"
    rounds.clock.go(1)
    rounds.round()
    done = Note.parse((rounds.vault / "Done" / "plan.md").read_bytes())
    assert (rounds.sent(), done.text("status"), file.exists()) == (["Plan"], "done", False)


def test_archive(rounds: Rounds) -> None:
    """003 State Machine, archive"""
    id = decided(rounds, "archive")
    assert rounds.status(id) == ("Done", "done")
    assert rounds.box.message(id).labels == {INBOX, UNREAD}


def test_needs_info(rounds: Rounds) -> None:
    """003 State Machine, needs_info"""
    assert rounds.status(decided(rounds, "needs_info")) == ("Needs_Action", "needs_info")
    rounds.handbook("anything: draft_reply Yes.")
    id = rounds.deliver("Out of office", headers={"Auto-Submitted": "auto-replied"})
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")
    why = rounds.mail_note(id)[1].text("why")
    assert why == "No answer is drafted by itself: it was sent by a machine."


def test_urgent(rounds: Rounds) -> None:
    """003 State Machine, urgent"""
    id = decided(rounds, "urgent", "On my way.")
    path, draft = rounds.letter_note(id)
    assert path.startswith("Drafts/")
    assert (draft.text("status"), draft.text("priority")) == ("pending_approval", "urgent")
    assert rounds.mail_note(id)[1].text("priority") == "urgent"


def test_delegate(rounds: Rounds) -> None:
    """003 State Machine, delegate"""
    id = decided(rounds, "delegate", "Bob knows.")
    assert rounds.status(id) == ("Needs_Action", "pending_approval")
    body = rounds.mail_note(id)[1].body
    assert "Bob knows." in dict(sections(body))["Delegation"]
    assert body.index("## Mail") < body.index("## Delegation")


def test_init_makes_the_documents_folders(person: Person) -> None:
    """003 Vault Directory Structure"""
    assert person.run("init").code == 0
    made = {entry.name for entry in person.vault.iterdir() if entry.is_dir()}
    assert {"Needs_Action", "Drafts", "Approved", "Done", "Logs"} <= made


def test_the_state_file_shows_how_far_it_is_and_decides_nothing(rounds: Rounds) -> None:
    """003 Vault Directory Structure, orchestrator_state.json"""
    state = rounds.vault / "Logs" / "orchestrator_state.json"
    assert json.loads(state.read_text())["mails"] == {}
    id = decided(rounds, "archive")
    assert json.loads(state.read_text())["mails"] == {"done": 1}
    state.write_text('{"mails": {}}')  # as a damaged file, or one of another vault, would have it
    rounds.restart(undo_seconds=0)
    rounds.round()
    assert rounds.status(id) == ("Done", "done")
    assert json.loads(state.read_text())["mails"] == {"done": 1}
    assert len(rounds.triaged()) == 1
