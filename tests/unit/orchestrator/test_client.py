"""The line to an MCP server, against real processes: one of ours, and one that misbehaves as told."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, Never

import anyio
import anyio.lowlevel
import pytest
from anyio.from_thread import start_blocking_portal

from postroom.core import errors
from postroom.core.errors import Invalid, PostroomError, Unavailable, Uncertain
from postroom.orchestrator.client import MCPClient
from tests.conftest import Person
from tests.narrow import narrow, present
from tests.unit.orchestrator.servers import SECRET

SERVER = Path(__file__).with_name("servers.py")
SOON = 1.0  # seconds after which a server that does not answer is given up
ALWAYS = 1_000_000
NIGHT = datetime(2026, 3, 2, 0, 30, tzinfo=timezone(timedelta(hours=2)))  # in UTC, the day before


class Place:
    """A vault, a server, and what became of them."""

    def __init__(self, folder: Path) -> None:
        self.vault = folder / "vault"
        self.vault.mkdir()
        self.folder = folder

    def client(
        self,
        mode: str = "well",
        *,
        times: int = ALWAYS,
        timeout: float = 30.0,
        **options: Any,
    ) -> MCPClient:
        command = [sys.executable, "-I", "-S", str(SERVER), str(self.folder), mode, str(times)]
        return MCPClient("gmail", command, self.vault, timeout=timeout, **options)

    @asynccontextmanager
    async def opened(self, mode: str = "well", **options: Any) -> AsyncIterator[MCPClient]:
        client = self.client(mode, **options)
        try:
            yield client
        finally:
            await client.close()

    def answers(self, **result: object) -> None:
        (self.folder / "answer").write_text(json.dumps(result))

    @property
    def calls(self) -> list[str]:
        return self._noted("calls")

    @property
    def starts(self) -> list[int]:
        return list(map(int, self._noted("starts")))

    @property
    def overlaps(self) -> list[str]:
        return self._noted("overlaps")

    @property
    def log(self) -> list[dict[str, Any]]:
        files = sorted(self.vault.glob("Logs/orchestrator_*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def _noted(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Place]:
    found = Place(tmp_path)
    with caplog.at_level(logging.DEBUG):
        yield found
    assert not any(map(there, found.starts)), "a server was left behind"
    written = [file.read_text() for file in found.vault.rglob("*") if file.is_file()]
    logged = map(logging.Formatter().format, caplog.get_records("call"))
    assert SECRET not in "".join([*written, *logged])


def there(pid: int) -> bool:
    """Whether there is such a process, if only as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.01)


def failing(
    kind: type[PostroomError], place: Place, tool: str, mode: str, **options: Any
) -> PostroomError:
    """Call a tool that must fail so, and return the error."""

    async def main() -> PostroomError:
        async with place.opened(mode, **options) as client:
            with pytest.raises(kind) as caught:
                await client.call_tool(tool, {"note": SECRET})
            return caught.value

    return anyio.run(main)


# Answers


def test_the_vaults_own_server_writes_and_reads_a_note(person: Person) -> None:
    person.vault.mkdir()
    environ = person.environment | {"POSTROOM_CONFIG": str(person.folder / "postroom.toml")}
    (person.folder / "postroom.toml").touch()

    async def main() -> None:
        command = [sys.executable, "-m", "postroom", "mcp", "vault"]
        client = MCPClient("obsidian", command, person.vault, environ=environ)
        try:
            note = {"path": "Inbox/Plan.md", "frontmatter": {"status": "new"}, "body": "Call Ann."}
            await client.call_tool("write_note", note)
            read = await client.call_tool("read_note", {"path": "Inbox/Plan.md"})
            assert "Call Ann." in json.dumps(read)
            with pytest.raises(errors.NotFound, match="nowhere") as missing:
                await client.call_tool("read_note", {"path": "nowhere.md"})
            assert missing.value.remedy
            with pytest.raises(Invalid, match="Unknown tool"):
                await client.call_tool("delete_note", {})
        finally:
            await client.close()

    anyio.run(main)
    assert "Call Ann." in (person.vault / "Inbox" / "Plan.md").read_text()
    (file,) = person.vault.glob("Logs/orchestrator_*")
    codes = [json.loads(line)["error"] for line in file.read_text().splitlines()]
    assert codes == ["not_found", "invalid_input"]


def test_one_server_answers_all_calls(place: Place) -> None:
    async def main() -> None:
        async with place.opened() as client:
            assert not place.starts
            for n in range(3):
                assert await client.call_tool("stir", {"n": n}) == {"tool": "stir", "n": n}

    anyio.run(main)
    assert len(place.starts) == 1
    assert not place.log


def test_calls_of_several_tasks_wait_for_the_server_together(place: Place) -> None:
    async def main() -> dict[int, dict[str, Any]]:
        answers = {}

        async def call(client: MCPClient, n: int) -> None:
            answers[n] = await client.call_tool("stir", {"n": n})

        async with place.opened("pairs") as client, anyio.create_task_group() as group:
            group.start_soon(call, client, 1)
            group.start_soon(call, client, 2)
        return answers

    assert anyio.run(main) == {n: {"tool": "stir", "n": n} for n in (1, 2)}
    assert len(place.starts) == 1


def test_a_loop_without_async_calls_through_a_portal(place: Place) -> None:
    client = place.client()
    with start_blocking_portal() as portal:
        for n in range(2):
            assert portal.call(client.call_tool, "look", {"n": n}) == {"tool": "look", "n": n}
        portal.call(client.close)
    assert len(place.starts) == 1


def test_a_server_that_nobody_closed_ends_with_the_loop(place: Place) -> None:
    anyio.run(place.client().call_tool, "look", {})
    assert len(place.starts) == 1


@pytest.mark.parametrize(
    ("text", "structured", "expected"),
    [
        ("ignored", {"a": 1}, {"a": 1}),
        ('{"a": 2}', None, {"a": 2}),
        ("[3]", None, {"text": "[3]"}),
        ("Sent.", None, {"text": "Sent."}),
    ],
)
def test_an_answer_is_its_values_or_its_text(
    place: Place, text: str, structured: dict[str, int] | None, expected: dict[str, Any]
) -> None:
    more = {} if structured is None else {"structuredContent": structured}
    place.answers(content=[{"type": "text", "text": text}], **more)

    async def main() -> dict[str, Any]:
        async with place.opened("as told") as client:
            return await client.call_tool("look", {})

    assert anyio.run(main) == expected


# Refusals

REFUSALS = [
    ("auth_required", errors.AuthRequired),
    ("not_found", errors.NotFound),
    ("rate_limited", errors.Limited),
    ("permission_denied", errors.Denied),
    ("parse_error", errors.Corrupt),
    ("conflict", errors.Conflict),
    ("invalid_input", Invalid),
    ("uncertain", Uncertain),
    ("send_failed", Uncertain),
    ("internal_error", Uncertain),
]


@pytest.mark.parametrize(("code", "kind"), REFUSALS)
def test_a_tools_error_is_raised_as_what_its_code_says_and_logged(
    place: Place, code: str, kind: type[PostroomError]
) -> None:
    details = {"remedy": "Do that.", "retry_after_seconds": 7.5, "etag": "e1"}
    document = {"error": code, "message": "Not\nso.", "details": details}
    ours = {"error": {"code": code, "message": "Not\nso.", **details}}
    shapes: list[dict[str, object]] = [
        {"content": [{"type": "text", "text": json.dumps(document)}]},
        {"content": [], "structuredContent": ours},
        {"content": [{"type": "text", "text": f"Error ({code}): Not\nso."}]},
    ]

    async def main() -> list[PostroomError]:
        raised = []
        async with place.opened("as told") as client:
            for shape in shapes:
                place.answers(isError=True, **shape)
                with pytest.raises(kind) as caught:
                    await client.call_tool("stir", {})
                assert type(caught.value) is kind
                assert caught.value.message == "Not so."
                raised.append(caught.value)
        return raised

    found, again, bare = anyio.run(main)
    assert found.remedy == again.remedy == "Do that."
    if kind is errors.Limited:
        assert [narrow(one, errors.Limited).seconds for one in (found, again)] == [7.5, 7.5]
        assert narrow(bare, errors.Limited).seconds > 0
    if kind is errors.Conflict:
        assert [narrow(one, errors.Conflict).etag for one in (found, again)] == ["e1", "e1"]
    assert place.calls == ["stir"] * 3
    assert [line["error"] for line in place.log] == [code] * 3
    assert "Not" not in json.dumps(place.log)  # a tool's words may quote a mail


@pytest.mark.parametrize("text", ["", "It is late. " * 1000, '{"error": 3}', '{"error": {}}', "[]"])
def test_an_error_without_a_code_is_bounded_and_says_what_may_have_happened(
    place: Place, text: str
) -> None:
    place.answers(isError=True, content=[{"type": "text", "text": text}])
    assert 0 < len(failing(Uncertain, place, "stir", "as told").message) <= 500
    assert 0 < len(failing(Unavailable, place, "look", "as told").message) <= 500
    assert [line["error"] for line in place.log] == ["internal_error"] * 2


@pytest.mark.parametrize(("code", "kind"), REFUSALS)
def test_a_fallback_stands_in_for_an_error_of_a_tool_that_only_reads(
    place: Place, code: str, kind: type[PostroomError]
) -> None:
    error = {"error": code, "message": "Not so.", "details": {}}
    place.answers(isError=True, content=[], structuredContent=error)

    async def main() -> None:
        async with place.opened("as told") as client:
            instead = {"from": "the fallback"}
            assert await client.call_tool("look", {}, lambda: instead) == instead
            with pytest.raises(kind):
                await client.call_tool("stir", {}, lambda: pytest.fail("it was run"))

    anyio.run(main)
    rows = [(line["tool"], line["error"], line["fallback"]) for line in place.log]
    assert rows == [("look", code, True), ("stir", code, False)]


def test_a_call_that_the_server_does_not_know_is_wrong(place: Place) -> None:
    failing(Invalid, place, "stir", "does not know")
    assert place.calls == ["stir"]
    assert [line["error"] for line in place.log] == ["invalid_input"]


@pytest.mark.parametrize("wrong", [{"a": "\ud800"}, {"a": {1, 2}}, {"a": float("nan")}])
def test_arguments_that_are_no_json_hurt_nobody(place: Place, wrong: dict[str, Any]) -> None:
    async def main() -> None:
        async with place.opened() as client:
            await client.call_tool("look", {})
            with pytest.raises(Invalid):
                await client.call_tool("stir", wrong)
            await client.call_tool("look", {})

    anyio.run(main)
    assert place.calls == ["look", "look"]
    assert len(place.starts) == 1


# Failures

BROKEN = ["dies", "dies midway", "no result", "a list", "modern list", "huge"]


@pytest.mark.parametrize("mode", BROKEN)
def test_a_call_that_may_write_is_made_once_and_its_fate_is_unknown(
    place: Place, mode: str
) -> None:
    error = failing(Uncertain, place, "stir", mode)
    assert place.calls == ["stir"]
    assert "gmail" in error.message
    assert "stir" in error.message
    assert error.remedy
    assert SECRET not in error.message + error.remedy
    (line,) = place.log
    assert line["attempts"] == 1


@pytest.mark.parametrize("mode", BROKEN[:-1])
def test_a_call_that_only_reads_is_made_once_more_on_a_fresh_server(
    place: Place, mode: str
) -> None:
    async def main() -> dict[str, Any]:
        async with place.opened(mode, times=1) as client:
            return await client.call_tool("look", {"n": 1})

    assert anyio.run(main) == {"tool": "look", "n": 1}
    assert place.calls == ["look", "look"]
    assert len(place.starts) == 2
    assert not place.log


def test_a_tool_on_the_second_page_of_the_list_only_reads_too(place: Place) -> None:
    failing(Unavailable, place, "peek", "dies")
    assert place.calls == ["peek", "peek"]


def test_a_tool_that_is_not_listed_may_write(place: Place) -> None:
    failing(Uncertain, place, "dance", "dies")
    assert place.calls == ["dance"]


def test_a_call_that_only_reads_is_made_twice_at_most(place: Place) -> None:
    failing(Unavailable, place, "look", "dies")
    assert place.calls == ["look", "look"]
    (line,) = place.log
    assert line["attempts"] == 2


def test_a_tool_that_only_read_before_the_restart_is_not_called_again(place: Place) -> None:
    failing(Unavailable, place, "look", "changes its mind", times=1)
    assert place.calls == ["look"]
    assert len(place.starts) == 2
    assert len(place.log) == 1


def test_a_server_that_gives_no_answer_that_fits_is_given_up(place: Place) -> None:
    async def give_up(mode: str) -> None:
        async with place.opened(mode, timeout=SOON) as client:
            with pytest.raises(Uncertain, match="no answer within"):
                await client.call_tool("stir", {})

    async def main() -> None:
        async with anyio.create_task_group() as group:  # at once, as each takes its time
            for mode in ("hangs", "garbage", "wrong id"):
                group.start_soon(give_up, mode)

    anyio.run(main)
    assert place.calls == ["stir"] * 3
    assert len(place.starts) == 3


def test_a_hanging_call_that_only_reads_is_answered_by_a_fresh_server(place: Place) -> None:
    async def main() -> None:
        async with place.opened("hangs", times=1, timeout=SOON) as client:
            assert await client.call_tool("look", {}) == {"tool": "look"}

    anyio.run(main)
    assert place.calls == ["look", "look"]
    assert len(place.starts) == 2
    assert not place.overlaps


def test_an_error_of_the_server_is_a_failure_but_no_reason_to_ask_again(place: Place) -> None:
    failing(Unavailable, place, "look", "fails")
    failing(Uncertain, place, "stir", "fails")
    assert place.calls == ["look", "stir"]
    assert [line["attempts"] for line in place.log] == [1, 1]


def test_garbage_beside_an_answer_is_passed_over(place: Place) -> None:
    async def main() -> None:
        async with place.opened("garbage between") as client:
            for _ in range(2):
                assert await client.call_tool("stir", {}) == {"tool": "stir"}

    anyio.run(main)
    assert len(place.starts) == 1


def test_a_server_that_has_died_is_started_again_even_for_what_writes(place: Place) -> None:
    async def main() -> None:
        async with place.opened("dies after") as client:
            for _ in range(3):
                assert await client.call_tool("stir", {}) == {"tool": "stir"}
                await until(lambda: present(client._connection).cause)

    anyio.run(main)
    assert place.calls == ["stir"] * 3
    assert len(set(place.starts)) == 3
    assert not place.log


def test_a_server_that_is_killed_between_two_calls_is_started_again(place: Place) -> None:
    async def main() -> None:
        async with place.opened() as client:
            await client.call_tool("stir", {})
            os.kill(place.starts[0], 9)
            await until(lambda: present(client._connection).cause)
            await client.call_tool("stir", {})

    anyio.run(main)
    assert len(place.starts) == 2


@pytest.mark.parametrize("mode", ["exits", "refuses to begin", "speaks another version"])
def test_a_server_that_does_not_start_has_done_nothing(place: Place, mode: str) -> None:
    error = failing(Unavailable, place, "stir", mode)
    assert not place.calls
    assert SECRET not in error.message
    (line,) = place.log
    assert line["attempts"] == 1


@pytest.mark.parametrize("mode", ["silent", "babbles"])
def test_a_server_that_never_begins_is_given_up(place: Place, mode: str) -> None:
    error = failing(Unavailable, place, "stir", mode, timeout=0.5)
    assert "did not start within 0.5 seconds" in error.message
    assert not place.calls


@pytest.mark.parametrize("command", [["/nowhere/server"], [], [str(SERVER)], ["a\0b"]])
def test_a_command_that_cannot_be_run_has_done_nothing(place: Place, command: list[str]) -> None:
    async def main() -> None:
        client = MCPClient("gmail", command, place.vault)
        with pytest.raises(Unavailable):
            await client.call_tool("stir", {})
        await client.close()

    anyio.run(main)
    assert len(place.log) == 1


def test_calls_beside_one_that_hangs_fare_each_by_its_own_kind(place: Place) -> None:
    outcomes: dict[str, object] = {}

    async def main() -> None:
        async def call(client: MCPClient, tool: str) -> None:
            try:
                outcomes[tool] = await client.call_tool(tool, {})
            except errors.PostroomError as error:
                outcomes[tool] = type(error)

        opened = place.opened("hangs", times=1, timeout=SOON)
        async with opened as client, anyio.create_task_group() as group:
            for tool in ("look", "stir", "peek"):
                group.start_soon(call, client, tool)

    anyio.run(main)
    assert outcomes == {"look": {"tool": "look"}, "stir": Uncertain, "peek": {"tool": "peek"}}
    assert place.calls.count("stir") == 1
    assert len(place.starts) == 2


# The log and the fallback


def test_a_failure_is_one_line_in_the_log_that_repeats_nothing(place: Place) -> None:
    failing(Uncertain, place, "stir", "dies", clock=lambda: NIGHT)
    (file,) = place.vault.rglob("*.jsonl")
    assert file.relative_to(place.vault) == Path("Logs/orchestrator_2026-03-01.jsonl")
    (line,) = place.log
    message = line.pop("message")
    assert "it ended" in message
    assert line == {
        "event": "mcp_unavailable",
        "timestamp": "2026-03-01T22:30:00+00:00",
        "server": "gmail",
        "tool": "stir",
        "error": "mcp_unavailable",
        "attempts": 1,
        "fallback": False,
        "severity": "ERROR",
    }


def test_a_fallback_stands_in_for_a_server_that_does_not_answer(place: Place) -> None:
    threads = []

    def plain() -> dict[str, str]:
        threads.append(threading.current_thread())
        return {"from": "a function"}

    async def waiting() -> dict[str, str]:
        await anyio.sleep(0)
        threads.append(threading.current_thread())
        return {"from": "a coroutine"}

    async def main() -> None:
        async with place.opened("exits") as client:
            assert await client.call_tool("stir", {}, plain) == {"from": "a function"}
            assert await client.call_tool("stir", {}, waiting) == {"from": "a coroutine"}
            assert await client.call_tool("stir", {}, partial(waiting)) == {"from": "a coroutine"}

    anyio.run(main)
    assert threads[0] is not threading.current_thread()
    assert threads[1:] == [threading.current_thread()] * 2
    assert [line["fallback"] for line in place.log] == [True] * 3


def test_no_fallback_does_again_what_may_have_happened(place: Place) -> None:
    async def main() -> None:
        async with place.opened("dies") as client:
            with pytest.raises(Uncertain):
                await client.call_tool("stir", {}, lambda: pytest.fail("it was run"))

    anyio.run(main)
    assert place.calls == ["stir"]
    assert [line["fallback"] for line in place.log] == [False]


def test_what_a_fallback_raises_passes_through(place: Place) -> None:
    def broken() -> Never:
        raise KeyError("mine")

    async def main() -> None:
        async with place.opened("exits") as client:
            with pytest.raises(KeyError, match="mine"):
                await client.call_tool("stir", {}, broken)

    anyio.run(main)


def test_a_fallback_is_not_run_beside_an_answer(place: Place) -> None:
    async def main() -> dict[str, str]:
        async with place.opened() as client:
            return await client.call_tool("stir", {}, lambda: pytest.fail("it was run"))

    assert anyio.run(main) == {"tool": "stir"}


def test_a_log_that_cannot_be_written_hides_nothing(place: Place) -> None:
    (place.vault / "Logs").write_text("a file where the folder should be")
    failing(Uncertain, place, "stir", "dies")

    async def main() -> dict[str, str]:
        async with place.opened("exits") as client:
            place.vault = place.folder / "nowhere"
            client.vault_path = place.vault
            return await client.call_tool("stir", {}, lambda: {"from": "the fallback"})

    assert anyio.run(main) == {"from": "the fallback"}


# Ends


def test_a_call_that_is_cancelled_leaves_the_server_to_the_others(place: Place) -> None:
    async def main() -> None:
        async with place.opened("pairs") as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "stir", {"n": 1})
                await until(lambda: len(place.calls) == 1)
                group.cancel_scope.cancel()
            assert await client.call_tool("stir", {"n": 2}) == {"tool": "stir", "n": 2}

    anyio.run(main)
    assert len(place.starts) == 1


def test_a_call_that_is_cancelled_during_the_start_leaves_the_server_to_the_others(
    place: Place,
) -> None:
    async def main() -> None:
        async with place.opened() as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "stir", {"n": 1})
                await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            assert await client.call_tool("stir", {"n": 2}) == {"tool": "stir", "n": 2}

    anyio.run(main)
    assert place.calls == ["stir"]
    assert len(place.starts) == 1


def test_a_stubborn_server_is_killed_when_the_client_is_closed(place: Place) -> None:
    async def main() -> None:
        async with place.opened("stubborn") as client:
            await client.call_tool("look", {})
            assert there(place.starts[0])

    anyio.run(main)


def test_closing_ends_calls_that_wait_and_starts_nothing(place: Place) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as group:

            async def call(client: MCPClient) -> None:
                with pytest.raises(Unavailable, match="closed"):
                    await client.call_tool("look", {})

            async with place.opened("hangs") as client:
                group.start_soon(call, client)
                await until(lambda: place.calls)
            await call(client)
            await client.close()

    anyio.run(main)
    assert len(place.starts) == 1


def test_a_client_that_was_never_used_closes(place: Place) -> None:
    anyio.run(place.client().close)
    assert not place.starts
