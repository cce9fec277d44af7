"""The server itself: both eras, both ways in, whatever arguments, and whatever a client does."""

import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
from mcp_types import CallToolResult

from postroom.core import errors
from postroom.core.errors import Limited, PostroomError
from postroom.tools.contracts.all import CONTRACT
from postroom.tools.listing import load
from postroom.tools.table import Contract, dump
from scripts.listings import NAMES
from tests.agents import (
    ERAS,
    Visitor,
    Wire,
    http_server,
    visiting,
    visiting_inside,
    visiting_over_http,
)
from tests.arrivals import sent
from tests.cases import for_each
from tests.conftest import Person
from tests.narrow import narrow, present

TOOLS = sorted(tool.name for tool in CONTRACT.tools)


def token(person: Person, name: str = "") -> str:
    arguments = ["--token", name] if name else []
    file = person.run("init", *arguments, "--json").json["token"]
    return Path(file).read_text().strip()


@pytest.fixture
def agent(robin: Person) -> Iterator[Visitor]:
    with visiting_inside(robin) as found:
        yield found


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return narrow(request.param, str)


@pytest.fixture(params=["stdio", "http"])
def anybody(request: pytest.FixtureRequest, robin: Person, era: str) -> Iterator[Visitor]:
    """An agent in each era, by each way."""
    if request.param == "stdio":
        with visiting(robin, era=era) as found:
            yield found
        return
    secret = token(robin)
    with http_server(robin, "--agent", "claude") as address, visiting_over_http(robin, address, secret, era=era) as found:  # fmt: skip
        yield found


# What a client is told


def test_the_whole_of_a_days_work_in_both_eras_by_both_ways(
    robin: Person, anybody: Visitor
) -> None:
    assert sorted(anybody.tools()) == TOOLS
    mail = anybody.first("from:dora in:inbox")
    assert "Dora Lindqvist" in anybody.call("get_email", id=mail).text
    assert "Dora Lindqvist" in anybody.read(f"message://{mail}")
    held = anybody.done("reply_email", id=mail, body="Thank you.")
    assert held["status"] == "pending"
    assert anybody.done("withdraw_letter", id=held["letter"])["status"] == "withdrawn"
    for wrong in ({"surprise": 1}, {"limit": "5"}, {"limit": 0}, {"query": None}):
        assert anybody.call("search_email", **wrong).refused == "invalid_input"
    with pytest.raises(Exception, match="Unknown tool: approve"):
        anybody.call("approve")


def test_the_list_of_tools_is_small_and_whole(agent: Visitor) -> None:
    found = agent.portal.call(agent.client.list_tools)
    assert len(found.model_dump_json(by_alias=True, exclude_none=True)) <= 20_000
    for tool in found.tools:
        assert tool.title
        assert tool.description
        assert tool.input_schema["additionalProperties"] is False
        assert present(tool.output_schema)["type"] == "object"
        hints = present(tool.annotations)
        assert hints.open_world_hint is not None
        assert (hints.destructive_hint is None) == bool(hints.read_only_hint)


def test_annotations_tell_the_truth(robin: Person, agent: Visitor) -> None:
    hints = {name: present(tool.annotations) for name, tool in agent.tools().items()}
    reads = {name for name, hint in hints.items() if hint.read_only_hint}
    notes = {"read_note", "list_notes", "search_notes"}
    others = {"list_agents", "search_messages"}
    assert reads == {"search_email", "get_email", "get_thread", "letter_status"} | notes | others
    assert {name for name, hint in hints.items() if hint.open_world_hint} == {"send_email", "reply_email"}  # fmt: skip
    before = robin.run("search", "--json").out
    files = sorted(robin.vault.rglob("*"))
    for name in reads - notes - others:
        agent.call(name, **({} if name in {"search_email", "letter_status"} else {"id": agent.first("")}))  # fmt: skip
    assert robin.run("search", "--json").out == before
    assert [f for f in sorted(robin.vault.rglob("*")) if "Logs" not in f.parts and ".postroom" not in f.parts] == [f for f in files if "Logs" not in f.parts and ".postroom" not in f.parts]  # fmt: skip


def test_no_tool_approves(agent: Visitor) -> None:
    words = json.dumps([tool.model_dump(by_alias=True) for tool in agent.tools().values()])
    names = {*agent.tools(), *(key for tool in agent.tools().values() for key in tool.input_schema["properties"])}  # fmt: skip
    assert not [name for name in names if "approv" in name or "digest" in name or "trust" in name]
    assert "approved exactly this letter" in words


def test_an_agent_that_has_no_name_goes_by_its_clients(robin: Person) -> None:
    from mcp_types import Implementation

    for era in ERAS:
        info = Implementation(name="zed", version="1")
        with visiting_inside(robin, agent="", era=era, client_info=info) as zed:
            id = zed.done("send_email", to=["ann@example.com"], body="x")["letter"]
        assert robin.show(id)["agent"] == "zed"


@pytest.mark.parametrize("name", ["pers0n", "ᴘᴇʀꜱᴏɴ"])
def test_an_agent_cannot_take_our_names(robin: Person, name: str) -> None:
    from mcp_types import Implementation

    id = robin.draft()  # a letter of the vault's
    assert robin.run("mcp", "--agent", name).code == 2
    assert robin.run("init", "--token", name).code == 2
    assert robin.run("install", "claude-code", "--agent", name, "--yes").code == 2
    with visiting_inside(
        robin, agent="", client_info=Implementation(name=name, version="1")
    ) as agent:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("search_email", {}),
            ("letter_status", {}),
            ("letter_status", {"id": id}),
        ]
        calls += [("withdraw_letter", {"id": id}), ("send_email", {"to": ["a@example.com"]})]
        for tool, arguments in calls:
            assert agent.call(tool, **arguments).refused == "invalid_input", tool
        for uri in ("resources", f"letter://{id}"):
            with pytest.raises(Exception, match="none of ours"):
                agent.read(uri) if "://" in uri else agent.portal.call(agent.client.list_resources)
    assert robin.show(id)["state"] == "pending"


def test_a_vault_that_cannot_be_made_is_told_by_each_call(robin: Person) -> None:
    (robin.folder / "file").write_text("")
    robin.environment["VAULT_PATH"] = str(robin.folder / "file")
    del robin.environment["POSTROOM_STATE"]
    with visiting_inside(robin) as agent:
        for _ in range(2):
            said = agent.call("search_email")
            assert said.refused == "unavailable"
            assert "VAULT_PATH" in said.text


def test_nothing_in_the_working_folder_is_run(robin: Person) -> None:
    (robin.folder / "anyio.py").write_text("open('RAN', 'w')")
    assert robin.run("install", "claude-code", "--yes").code == 0
    entry = json.loads((robin.folder / ".mcp.json").read_text())["mcpServers"]["postroom"]
    started = robin.run_program([entry["command"], *entry["args"]])
    assert started.code == 0, started.err
    assert robin.run("init").code == 0
    script = str(Path(sys.executable).with_name("postroom"))
    assert robin.run_program([script, "run", "--once", "--backlog", "from:dora"]).code == 0
    assert '"agent": "watcher"' in robin.run("audit", "--json").out  # it started a server itself
    assert not (robin.folder / "RAN").exists()


def test_wrong_settings_are_told_by_each_call(person: Person) -> None:
    file = person.folder / ".config" / "postroom" / "postroom.toml"
    file.parent.mkdir(parents=True)
    file.write_text("dry_rum = true\n")
    with visiting_inside(person) as agent:
        assert len(agent.tools()) == len(TOOLS)
        said = agent.call("search_email")
        assert said.refused == "invalid_input"
        assert "dry_rum" in said.text
        file.write_text("")
        assert agent.done("search_email")["mails"] == []


# Over HTTP


def test_a_token_carries_its_agents_name(robin: Person) -> None:
    secrets = {name: token(robin, name) for name in ("first", "second")}
    with http_server(robin) as address:
        with visiting_over_http(robin, address, secrets["first"]) as first:
            id = first.done("send_email", to=["ann@example.com"], body="x")["letter"]
        with visiting_over_http(robin, address, secrets["second"], era="legacy") as second:
            assert second.call("letter_status", id=id).refused == "not_found"
    assert robin.show(id)["agent"] == "first"


def test_nobody_goes_by_a_name_that_a_token_carries(robin: Person) -> None:
    from mcp_types import Implementation

    anybody, named = token(robin), token(robin, "claude")
    with http_server(robin, "--agent", "shared") as address:
        with visiting_over_http(robin, address, named) as claude:
            id = claude.done("send_email", to=["ann@example.com"], body="x")["letter"]
        with visiting_over_http(robin, address, anybody) as other:
            assert other.call("letter_status", id=id).refused == "not_found"
    assert robin.show(id)["agent"] == "claude"
    info = Implementation(name="Claude", version="1")
    for era in ERAS:
        with (
            http_server(robin) as address,
            visiting_over_http(robin, address, anybody, era=era, client_info=info) as other,
            pytest.raises(Exception, match="needs the token of that name"),
        ):
            other.call("letter_status", id=id)


def test_a_session_is_its_tokens_alone(robin: Person) -> None:
    from httpx2 import Client

    secrets = [token(robin, name) for name in ("alice", "bob")]
    start = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}  # fmt: skip
    headers = [{"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {secret}"} for secret in secrets]  # fmt: skip
    with http_server(robin) as address, Client() as http:
        session = {"Mcp-Session-Id": http.post(address, json=start, headers=headers[0]).headers["mcp-session-id"]}  # fmt: skip
        other = {"Mcp-Session-Id": http.post(address, json=start, headers=headers[1]).headers["mcp-session-id"]}  # fmt: skip
        twice = [*headers[1].items(), *session.items(), *other.items()]
        assert http.delete(address, headers=twice).status_code == 404
        assert http.delete(address, headers=headers[1] | session).status_code == 404
        assert http.delete(address, headers=headers[1] | {"Mcp-Session-Id": "x"}).status_code == 404
        assert http.delete(address, headers=headers[0] | session).status_code == 200


def test_nobody_comes_in_without_a_token_or_by_another_name(robin: Person) -> None:
    from httpx2 import Client

    secret = token(robin)
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}  # fmt: skip
    plain = {"Accept": "application/json, text/event-stream"}
    good = plain | {"Authorization": f"Bearer {secret}"}
    with http_server(robin) as address, Client() as http:

        def status(headers: dict[str, str]) -> int:
            return http.post(address, json=body, headers=headers).status_code

        assert status(good) == 200
        assert status(good | {"Origin": address.removesuffix("/mcp")}) == 200
        assert status(plain) == 401
        assert status(plain | {"Authorization": "Bearer"}) == 401
        assert status(plain | {"Authorization": f"Basic {secret}"}) == 401
        assert status(plain | {"Authorization": f"Bearer {secret[:-1]}"}) == 401
        assert status(plain | {"Authorization": f"Bearer {secret} {secret}"}) == 401
        assert status(good | {"Host": "evil.example"}) == 421
        assert status(good | {"Host": "127.0.0.1:1"}) == 421
        assert status(good | {"Origin": "http://evil.example"}) == 403
        assert status(good | {"Origin": "null"}) == 403


def test_a_server_without_a_token_or_on_all_addresses_does_not_start(person: Person) -> None:
    assert "postroom init" in person.run("mcp", "--http", "0").err
    assert person.run("init").code == 0
    for wrong in ("0.0.0.0:0", "::0:0", "²", "127.0.0.1:99999"):
        assert person.run("mcp", "--http", wrong).code == 2, wrong


def test_a_token_is_for_its_owner_alone_and_is_never_printed(person: Person) -> None:
    made = person.run("init", "--token", "cursor")
    file = person.folder / "state" / "tokens" / "cursor"
    assert file.stat().st_mode & 0o777 == 0o600
    assert str(file) in made.out
    secret = file.read_text().strip()
    assert secret not in made.out + made.err
    assert person.run("init", "--token", "cursor").code == 0
    assert file.read_text().strip() == secret
    assert person.run("init", "--token", "../up").code == 2


# Whatever arguments


def odd_values() -> list[Any]:
    return ["", "x" * 5000, -1, 10**30, 1.5, True, None, [], {}, ["x" * 5000], [None], "\x00", "\ud800", "../../etc", "'; DROP TABLE letter; --"]  # fmt: skip


def test_every_tool_refuses_what_it_does_not_take(robin: Person, wire: Wire) -> None:
    wire.greet()
    for tool in CONTRACT.tools:
        fields = load("all")["arguments"][tool.name]
        needed: dict[str, Any] = {
            name: "x" for name, check in fields.items() if "default" not in check
        }
        if "to" in needed:
            needed["to"] = ["ann@example.com"]
        cases: list[dict[str, Any]] = [{**needed, "surprise": 1}, {**needed, "__class__": "x"}, {**needed, "account": "default"}]  # fmt: skip
        if needed:
            cases.append({})
        cases += [{**needed, name: value} for name in fields for value in odd_values()]
        for case in cases:
            answer = wire.answer(wire.call(tool.name, **case))
            if "\ud800" in map(str, case.values()):  # half a character is no JSON
                assert answer["error"]["code"] == -32600
                continue
            found = answer["result"]
            assert len(json.dumps(found)) < 60_000
            if "surprise" in case or "__class__" in case or "account" in case or not case:
                assert found["isError"], (tool.name, case)
            if found["isError"]:
                error = found["structuredContent"]["error"]
                assert error["code"] != "internal_error", (tool.name, case, error)
                assert error["message"]
    assert wire.end() == (0, "")
    assert robin.run("search", "in:sent newer_than:1d", "--json").json["messages"] == []


def test_arguments_that_are_no_object_are_refused(wire: Wire) -> None:
    wire.greet()
    several: tuple[object, ...] = ([], "x", 1)
    for wrong in several:
        found = wire.answer(wire.ask("tools/call", name="search_email", arguments=wrong))
        assert found["error"]["code"] == -32602


# Whatever a client does


def test_before_the_handshake_no_call_is_executed(robin: Person, wire: Wire) -> None:
    letter = {"to": ["ann@example.com"], "body": "x"}
    early = [wire.answer(wire.call("send_email", **letter))]
    # A client that only says that it has shaken hands has not.
    wire.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    early += [wire.answer(wire.call("send_email", **letter)) for _ in range(2)]
    early.append(wire.answer(wire.ask("resources/list")))
    assert all("error" in answer for answer in early), early
    assert "initialize" in early[1]["error"]["message"]
    assert not (robin.folder / "state/ledger.sqlite").exists()
    wire.greet()
    assert "error" not in wire.answer(wire.call("send_email", **letter))


def test_a_call_that_is_cancelled_has_left_its_line(robin: Person, wire: Wire) -> None:
    wire.greet()
    held = wire.answer(wire.call("send_email", to=["ann@example.com"], body="x"))
    id = held["result"]["structuredContent"]["letter"]
    waiting = wire.ask("tools/call", name="letter_status", arguments={"id": id, "wait": 20}, _meta={"progressToken": 1})  # fmt: skip
    while wire.line().get("method") != "notifications/progress":
        pass
    cancel(wire, waiting)
    wire.answer(wire.call("search_email", limit=1))
    assert wire.end()[0] == 0
    found = robin.run("audit", "--limit", "100", "--json").json["actions"]
    assert [line["action_type"] for line in found] == ["send_email", "letter_status", "search_email"]  # fmt: skip


def cancel(wire: Wire, id: int) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
    wire.send(json.dumps(note).encode() + b"\n")


def test_calls_that_are_cancelled_at_once_leave_a_line_each(robin: Person, wire: Wire) -> None:
    wire.greet()
    wire.answer(wire.call("search_email", limit=1))
    for number in range(40):
        cancel(wire, wire.call("send_email", to=["ann@example.com"], body=f"No. {number}"))
    wire.answer(wire.call("search_email", limit=1))
    assert wire.end()[0] == 0
    found = robin.run("audit", "--limit", "100", "--json").json["actions"]
    assert [line["action_type"] for line in found].count("send_email") == 40


@pytest.mark.parametrize("how", ["cancelled", "signal", "gone"])
def test_a_call_that_waits_for_an_undo_window_leaves_its_line_however_it_ends(
    robin: Person, how: str
) -> None:
    robin.live(undo_seconds=25)  # the server reads the settings when it starts
    with Wire(robin) as wire:
        wire.greet()
        asked = {"to": ["ann@example.com"], "subject": "Tea", "body": "x"}
        id = wire.answer(wire.call("send_email", **asked))["result"]["structuredContent"]["letter"]
        (note,) = (robin.vault / "Pending_Approval").iterdir()
        (robin.vault / "Approved").mkdir(exist_ok=True)
        note.rename(robin.vault / "Approved" / note.name)
        call = wire.ask(
            "tools/call", name="send_email", arguments=asked, _meta={"progressToken": 1}
        )
        while wire.line().get("method") != "notifications/progress":
            pass
        if how == "cancelled":
            cancel(wire, call)
            wire.answer(wire.call("letter_status", id=id))
        if how == "signal":
            os.kill(wire.process.pid, signal.SIGTERM)
            assert wire.wait_for_exit()[0] == 0
        else:
            assert wire.end()[0] == 0
    found = robin.run("audit", "--limit", "100", "--json").json["actions"]
    lines = [
        (line["result"], line["state"]) for line in found if line["action_type"] == "send_email"
    ]
    assert lines == [("rejected", "pending"), ("rejected", "approved")]
    assert sent(robin) == []


def test_what_goes_wrong_while_a_call_waits_adds_no_line(robin: Person, wire: Wire) -> None:
    wire.greet()
    held = wire.answer(wire.call("send_email", to=["ann@example.com"], body="x"))
    id = held["result"]["structuredContent"]["letter"]
    asked = {"id": id, "wait": 20}
    waiting = wire.ask("tools/call", name="letter_status", arguments=asked, _meta={"progressToken": 1})  # fmt: skip
    while wire.line().get("method") != "notifications/progress":
        pass
    (robin.vault / ".postroom" / "desk").write_text("another desk\n")
    assert wire.answer(waiting)["result"]["isError"]
    assert wire.end()[0] == 0
    with closing(sqlite3.connect(robin.folder / "state" / "ledger.sqlite")) as book:
        lines = [json.loads(line) for (line,) in book.execute("SELECT line FROM action")]
    assert [line["action_type"] for line in lines] == ["send_email", "letter_status"]


@pytest.mark.parametrize("name", ["postroom", "approval", "dry_run", "gmail"])
def test_what_goes_wrong_is_within_the_schema_that_is_listed(robin: Person, name: str) -> None:
    """Some clients hold errors to it too, and would show their own error instead of ours."""
    from importlib import import_module

    import jsonschema

    contract = import_module(f"postroom.tools.contracts.{name}").CONTRACT
    schemas = {tool["name"]: tool["outputSchema"] for tool in load(name)["tools"]}
    for tool in contract.tools:
        for kind in kinds():
            reply = contract.refuse(tool.name, made(kind, "It is wrong", "Mend it."))
            jsonschema.validate(dump(reply.result), schemas[tool.name])


def test_lines_that_are_no_messages_are_passed_over(wire: Wire) -> None:
    wire.greet()
    rubbish = [b"\n", b"{\n", b"[]\n", b"null\n", b'"x"\n', b'{"jsonrpc": "1.0"}\n', b"\xff\xfe\x00\n", b"[" * 5000 + b"\n", b'{"jsonrpc": "2.0", "id": 1}\n', b"x" * 1_000_000 + b"\n"]  # fmt: skip
    for raw in rubbish:
        wire.send(raw)
    assert wire.answer(wire.call("search_email", limit=1))["result"]["isError"] is False
    assert wire.end()[0] == 0


def test_half_a_line_at_the_end_is_no_error(wire: Wire) -> None:
    wire.greet()
    wire.send(b'{"jsonrpc": "2.0", "id": 99, "method": "tools/')
    assert wire.end()[0] == 0


def test_a_client_that_goes_at_once_ends_the_server(wire: Wire) -> None:
    assert wire.end() == (0, "")


def test_a_client_that_dies_in_the_middle_of_a_call_ends_the_server_and_loses_nothing(
    robin: Person, wire: Wire
) -> None:
    wire.greet()
    wire.call("send_email", to=["ann@example.com"], subject="Tea", body="x")
    wire.process.stdout.close()  # what it writes now breaks the pipe
    assert wire.end()[0] == 0
    assert robin.run("audit", "verify").code == 0
    assert len(robin.run("pending", "--json").json["letters"]) <= 1


def test_a_client_that_no_longer_listens_ends_the_server(wire: Wire) -> None:
    wire.greet()
    wire.process.stdout.close()
    with suppress(BrokenPipeError):  # it may have ended already
        wire.call("search_email", limit=1)
    assert wire.wait_for_exit() == (0, "")


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_server_after_the_calls_at_work(
    robin: Person, wire: Wire, sign: Signals
) -> None:
    wire.greet()
    wire.answer(wire.call("send_email", to=["ann@example.com"], subject="Tea", body="x"))
    os.kill(wire.process.pid, sign)
    assert wire.wait_for_exit() == (0, "")
    assert len(robin.run("pending", "--json").json["letters"]) == 1
    assert robin.run("audit", "verify").code == 0


def test_a_signal_while_the_ledger_is_held_ends_the_server(robin: Person, wire: Wire) -> None:
    wire.greet()
    wire.answer(wire.call("search_email", limit=1))
    with closing(sqlite3.connect(robin.folder / "state" / "ledger.sqlite")) as held:
        held.execute("BEGIN IMMEDIATE")
        wire.call("search_email", limit=1)
        os.kill(wire.process.pid, signal.SIGTERM)
        code, _ = wire.wait_for_exit()
    assert code == 0


def test_a_thousand_calls_in_flight_are_all_answered(wire: Wire) -> None:
    wire.greet()
    sent = set()

    def ask() -> None:
        for at in range(1000):
            sent.add(wire.call("search_email", query=f"from:dora {at % 7}", limit=2))

    writer = threading.Thread(target=ask)
    writer.start()
    found: dict[int, bool] = {}
    while len(found) < 1000:
        message = wire.line()
        found[message["id"]] = message["result"]["isError"]
    writer.join()
    assert found.keys() == sent
    assert not any(found.values())
    assert wire.end() == (0, "")


def test_a_call_that_waits_keeps_nobody_else_waiting(wire: Wire) -> None:
    wire.greet()
    held = wire.answer(wire.call("send_email", to=["ann@example.com"], body="x"))
    id = held["result"]["structuredContent"]["letter"]
    waiting = {wire.call("letter_status", id=id, wait=3) for _ in range(20)}
    quick = {wire.call("search_email", limit=1) for _ in range(20)}
    order = [wire.line()["id"] for _ in range(40)]
    assert set(order[:20]) == quick
    assert set(order[20:]) == waiting


def test_twenty_searches_at_once_are_answered(agent: Visitor) -> None:
    import anyio

    async def all_at_once() -> list[CallToolResult]:
        found = []

        async def one(at: int) -> None:
            found.append(await agent.client.call_tool("search_email", {"query": "in:inbox", "limit": at + 1}))  # fmt: skip

        async with anyio.create_task_group() as group:
            for at in range(20):
                group.start_soon(one, at)
        return found

    sizes = sorted(len(one.structured_content["mails"]) for one in agent.portal.call(all_at_once))
    assert sizes == list(range(1, 21))


def test_stdout_carries_nothing_but_messages(robin: Person) -> None:
    """Even where a part of ours writes to it: here the notifier's program does."""
    settings = robin.folder / ".config" / "postroom" / "postroom.toml"
    settings.write_text(settings.read_text() + '\n[notify]\ncommand = ["echo", "a new letter"]\n')
    wire = Wire(robin)
    try:
        wire.greet()
        found = wire.answer(wire.call("send_email", to=["ann@example.com"], body="x"))
        assert found["result"]["structuredContent"]["status"] == "pending"
        assert wire.end()[0] == 0
    finally:
        wire.kill()


# Errors


def kinds() -> list[type[PostroomError]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, PostroomError)
    ]


def made(kind: type[PostroomError], message: str, remedy: str) -> PostroomError:
    if issubclass(kind, Limited):
        return kind(message, remedy=remedy, seconds=12.34)
    return kind(message, remedy=remedy)


@for_each("kind", kinds())
def test_every_kind_of_error_has_one_shape(kind: type[PostroomError]) -> None:
    from postroom.tools.table import Failure, refusal

    found = refusal("send_email", made(kind, "It is\nwrong\u200b", "Do that."))
    assert found.refused
    error = narrow(found.result, Failure).error
    assert (error["code"], error["message"], error["remedy"]) == (
        kind.code,
        "It is wrong",
        "Do that.",
    )
    assert error.get("retry_after_seconds") == (12.3 if kind is Limited else None)
    assert found.text == f"Error ({kind.code}): It is wrong. Do that."


@for_each("kind", kinds())
def test_every_kind_of_error_has_a_text_in_every_contract(kind: type[PostroomError]) -> None:
    error = made(kind, "It is wrong", "Do that.")
    for name in NAMES:
        contract: Contract = import_module(f"postroom.tools.contracts.{name}").CONTRACT
        for tool in contract.tools:
            reply = contract.refuse(tool.name, error)
            assert reply.refused
            assert "It is wrong" in reply.text
            assert "{" not in reply.text or reply.text.startswith('{"')


def test_a_fault_of_ours_is_told_without_what_a_mail_says() -> None:
    from postroom.core.errors import unexpected

    try:
        raise KeyError("what a mail says")
    except KeyError as bug:
        error = unexpected(bug, remedy="Tell the person.")
    assert error.code == "internal_error"
    assert "KeyError at test_a_fault" in error.message
    assert "what a mail says" not in error.message
