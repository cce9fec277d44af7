"""The server for stdio: what it imports, how it begins and ends, and what a client cannot do to it."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from postroom.cli.server import Options, parse
from postroom.core.errors import Invalid
from postroom.tools import protocol
from postroom.tools.calls import PIECE, PUBLISH, Calls
from postroom.tools.listing import load
from postroom.tools.protocol import MAX_LINE
from postroom.tools.stdio import END_OF_INPUT, GRACE, MAX_UNREAD, LineBuffer, Output, read_lines
from postroom.tools.table import CHANGES, Contract, Failure, Reply, Tool, ToolContext, Wait
from postroom.tools.wire import (
    MAX_OPEN,
    MAX_QUEUED,
    THREADS,
    Server,
    Workers,
)
from tests.agents import Wire, wait_for_line
from tests.cases import for_each
from tests.conftest import Person
from tests.narrow import present

SLOW = ("asyncio", "anyio", "click", "jinja2", "mcp", "mcp_types", "pydantic", "typing_extensions")
SEARCH = ("search_email", {"query": "tea"})
# A call of each server and contract that succeeds.
CALLS = {
    ("all", "postroom"): SEARCH,
    ("email", "postroom"): SEARCH,
    ("email", "approval"): SEARCH,
    ("email", "dry-run"): ("search_emails", {"query": "tea"}),
    ("email", "gmail"): ("list_emails", {}),
    ("vault", "postroom"): ("read_note", {"path": "Tea.md"}),
    ("agents", "postroom"): ("list-recipients", {}),
}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "wire", "version": "1"},
}

ENVELOPE = {
    protocol.VERSION_KEY: protocol.ENVELOPE_VERSION,
    protocol.CAPABILITIES_KEY: dict[str, Any](),
}


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)


def run_server(
    person: Person, given: bytes, *arguments: str, options: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], str]:
    """Start a server as a client does, with all of its input; return its messages and stderr."""
    done = subprocess.run(
        [sys.executable, *options, "-m", "postroom", "mcp", *arguments],
        input=given,
        cwd=person.folder,
        env=person.environment,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


# Starting


@for_each(("server", "contract"), CALLS)
def test_no_server_imports_what_is_slow_to_import(
    person: Person, server: str, contract: str
) -> None:
    person.vault.mkdir(exist_ok=True)
    (person.vault / "Tea.md").write_text("At four.\n")
    tool, arguments = CALLS[server, contract]
    given = lines(
        {"id": 1, "method": "initialize", "params": HELLO},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
    )
    answers, imported = run_server(
        person, given, server, "--contract", contract, options=["-X", "importtime"]
    )
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    # There is no repository, and so nobody who could be written to.
    assert answers[2]["result"]["isError"] is (server == "agents"), answers[2]
    modules = {row.rpartition("|")[2].strip() for row in imported.splitlines()}
    assert "postroom.desk.desk" in modules
    assert modules.isdisjoint(SLOW)


def test_what_calls_need_is_imported_when_the_client_is_silent(person: Person) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "postroom", "mcp"]
    with subprocess.Popen(
        command,
        cwd=person.folder,
        env=person.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        given = lines(
            {"id": 1, "method": "initialize", "params": HELLO}, {"id": 2, "method": "tools/list"}
        )
        present(process.stdin).write(given)
        wait_for_line(process.stderr, "postroom.tools.contracts.vault")
        assert not (person.folder / "state").exists()  # the desk is opened at the first call
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_what_is_listed_needs_neither_the_contract_nor_the_desk(person: Person) -> None:
    code = (
        "import sys; from postroom.cli.server import ConfiguredDesk, load_listing;"
        "import postroom.tools.stdio; load_listing('all', ConfiguredDesk());"
        "print([name for name in sys.modules if name.startswith('postroom.')])"
    )
    found = person.run_program([sys.executable, "-c", code]).out
    assert "postroom.config" in found
    found = found.replace("'postroom.store', 'postroom.store.files'", "")  # how streams are written
    for room in ("desk", "mail", "vault", "store", "agents.mailbox", "tools.contracts", "wiring"):
        assert f"postroom.{room}" not in found


def test_the_short_way_takes_what_clients_give_and_leaves_the_rest_to_the_command() -> None:
    assert parse([]) == Options()
    assert parse(["email", "--agent", "claude"]) == Options("email", agent="claude")
    assert parse(["--agent=claude", "email", "--contract=dry-run"]) == Options("email", "dry-run", "claude")  # fmt: skip
    for other in (
        ["--help"],
        ["--http", "1"],
        ["mail"],
        ["email", "vault"],
        ["--contract"],
        ["--agent"],
        ["--agent="],
        ["--server", "email"],
        ["--server=email"],
        ["--server=x"],
        ["--agent", "a", "--agent", "b"],
        ["--", "email"],
    ):
        assert parse(other) is None, other
    for wrong in (["vault", "--contract", "gmail"], ["--agent", "person"]):
        with pytest.raises(Invalid):
            present(parse(wrong)).check()


def test_what_the_short_way_leaves_is_refused_in_words(person: Person) -> None:
    assert "Name the server email" in person.run("mcp", "vault", "--contract", "gmail").err
    assert "Choose another" in person.run("mcp", "--agent", "person").err
    assert person.run("mcp", "--agent").code == 2
    assert "Usage" in person.run("mcp", "--help").out
    assert "No such option" in person.run("mcp", "--server=email").err


def test_a_server_in_a_folder_that_is_gone_says_so(person: Person) -> None:
    command = f"mkdir gone && cd gone && rmdir ../gone && exec {sys.executable} -m postroom mcp"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=person.folder,
        env=person.environment,
        stdin=subprocess.PIPE,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr


# Ending


def test_calls_whose_client_has_closed_its_end_are_answered_before_the_server_ends(
    person: Person,
) -> None:
    given = lines(
        {"id": 1, "method": "initialize", "params": HELLO},
        *(
            {"id": number, "method": "tools/call", "params": {"name": "letter_status"}}
            for number in range(2, 40)
        ),
    )
    answers, err = run_server(person, given)
    assert sorted(answer["id"] for answer in answers) == list(range(1, 40))
    assert all("result" in answer for answer in answers)
    assert err == ""


def test_a_call_that_waits_for_work_of_ours_is_answered_before_the_server_ends(
    person: Person,
) -> None:
    person.vault.mkdir()
    (person.vault / "Tea.md").write_text("At four.\n")
    call = {"name": "search_notes", "arguments": {"query": "four"}}  # waits for the index
    given = lines(
        {"id": 1, "method": "initialize", "params": HELLO},
        {"id": 2, "method": "tools/call", "params": call},
    )
    answers, _ = run_server(person, given, "vault")
    assert answers[1]["result"]["structuredContent"]["total"] == 1


def test_a_last_line_that_nothing_ends_is_a_line(person: Person) -> None:
    answers, err = run_server(person, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    assert (answers, err) == ([{"jsonrpc": "2.0", "id": 1, "result": {}}], "")


def test_a_call_that_waits_when_the_client_closes_its_end_is_told_that_it_will_not_be_answered(
    person: Person,
) -> None:
    person.live()
    assert person.run("init").code == 0
    with Wire(person) as wire:
        wire.greet()
        sent = wire.answer(wire.call("send_email", to=["ann@example.com"], body="x"))
        id = sent["result"]["structuredContent"]["letter"]
        waiting = wire.call("letter_status", id=id, wait=20)
        wire.answer(wire.call("letter_status"))
        wire.process.stdin.close()
        found = wire.answer(waiting)
        assert found["error"] == {"code": -32000, "message": "Connection closed"}
        assert wire.wait_for_exit() == (0, "")


def test_a_signal_that_comes_with_the_end_of_input_is_not_lost() -> None:
    server = Server(load("all"), no_calls, Output(2), "")
    for signalled, seconds in ((b"", END_OF_INPUT), (b"\x0f", GRACE), (b"\0", END_OF_INPUT)):
        pipes = [os.pipe() for _ in range(3)]
        (incoming, at_client), (_, outgoing), (wakeup, waker) = pipes
        os.close(at_client)
        os.write(waker, signalled)
        assert read_lines(server, incoming, outgoing, wakeup) == seconds
        for end in {end for pipe in pipes for end in pipe} - {at_client}:
            os.close(end)


def test_a_server_without_streams_says_so(person: Person) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m postroom mcp 0<&-"],
        cwd=person.folder,
        env=person.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert b"Standard input or output is closed" in done.stderr


def test_other_code_neither_eats_nor_adds_messages(person: Person) -> None:
    """It has no input, and what it or its children print goes to standard error."""
    code = (
        "import os, sys; from postroom.tools.stdio import take_streams;"
        "incoming, outgoing = take_streams();"
        "print('printed', repr(sys.stdin.read()), flush=True);"
        "os.system('cat; echo child');"
        "os.write(outgoing, os.read(incoming, 100))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"message\n", capture_output=True, check=True
    )
    assert done.stdout == b"message\n"
    assert done.stderr == b"printed ''\nchild\n"


def test_answers_that_cannot_be_written_are_reported(person: Person) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "postroom", "mcp"],
            input=lines({"id": 1, "method": "ping"}),
            cwd=person.folder,
            env=person.environment,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=True,
        )
    assert b"Answers cannot be written: No space left on device" in done.stderr


def test_the_log_file_shows_a_call_while_the_server_runs(person: Person) -> None:
    with Wire(person) as wire:
        wire.greet()
        wire.answer(wire.call("letter_status"))
        folder, deadline = person.vault / "Logs" / "actions", time.monotonic() + 30
        while not any("letter_status" in file.read_text() for file in folder.glob("*")):
            assert time.monotonic() < deadline, "the line is not shown"
            wire.answer(wire.ask("ping"))


def test_the_log_file_shows_every_call_of_a_client_that_leaves_at_once(person: Person) -> None:
    with Wire(person) as wire:
        wire.greet()
        wire.answer(wire.call("letter_status"))
        wire.answer(wire.call("search_email", query="tea"))
        assert wire.end() == (0, "")
    files = (person.vault / "Logs" / "actions").glob("*")
    text = "".join(file.read_text() for file in files)
    assert ('"letter_status"' in text, '"search_email"' in text) == (True, True)


# What a client cannot do to it


def test_a_client_that_does_not_read_is_served_when_it_does(person: Person) -> None:
    with Wire(person) as wire:
        wire.greet()
        count = 2 * MAX_UNREAD // 20_000
        asked = [{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in range(100, count)]
        whole = b"".join(json.dumps(each).encode() + b"\n" for each in asked)
        writer = threading.Thread(target=wire.send, args=[whole])
        writer.start()
        found = [wire.line()["id"] for _ in asked]
        writer.join()
        assert found == [each["id"] for each in asked]
        assert wire.end() == (0, "")


def test_nothing_more_is_read_from_a_client_that_has_too_much_to_read() -> None:
    reading, writing = os.pipe()
    relieved = threading.Event()
    server = Server(load("all"), no_calls, Output(writing, relieved.set), "")
    server.receive(lines({"id": 0, "method": "initialize", "params": HELLO}))
    asked = 0
    is_congested = partial(getattr, server, "is_congested")
    while not is_congested():
        asked += 1
        server.receive(lines({"id": asked, "method": "tools/list"}))
    assert asked < 2 * MAX_UNREAD // 20_000
    assert not relieved.is_set()
    buffer, answered = LineBuffer(), 0
    while answered <= asked:
        answered += len(list(buffer.feed(os.read(reading, 1 << 16))))
    assert relieved.wait(10)
    assert not is_congested()
    server.close()
    os.close(reading)
    os.close(writing)


def no_calls() -> Calls:
    raise AssertionError("nothing is called")


def test_nothing_more_is_read_from_a_client_with_too_many_open_requests() -> None:
    reading, writing = os.pipe()
    relieved, may_work = threading.Event(), threading.Event()

    def wait_then_fail() -> Calls:
        assert may_work.wait(30)
        raise LookupError("of a mail")

    server = Server(load("all"), wait_then_fail, Output(writing, relieved.set), "")
    server.receive(lines({"id": 0, "method": "initialize", "params": HELLO}))
    is_congested = partial(getattr, server, "is_congested")
    call = {"method": "tools/call", "params": {"name": "letter_status"}}
    asked = 0
    while not is_congested():
        asked += 1
        server.receive(lines({"id": asked, **call}))
    assert asked == MAX_OPEN + 1
    may_work.set()
    buffer, answers = LineBuffer(), list[dict[str, Any]]()
    while len(answers) <= asked:
        read = buffer.feed(os.read(reading, 1 << 16))
        answers += [json.loads(present(line)) for line in read]
    assert relieved.wait(10)
    assert not is_congested()
    assert {answer["error"]["code"] for answer in answers[1:]} == {-32603}
    assert "of a mail" not in str(answers)
    server.close()
    os.close(reading)
    os.close(writing)


def test_a_client_that_does_not_read_is_sent_no_progress() -> None:
    reading, writing = os.pipe()
    call, made = Waiting(60.0), [0]
    output = Output(writing)
    calls: Any = WaitingCalls(call)
    server = Server(load("all"), lambda: calls, output, "")
    server.receive(lines({"id": 0, "method": "initialize", "params": HELLO}))
    while output.unwritten < 200_000:  # more than a pipe holds
        made[0] += 1
        server.receive(lines({"id": made[0], "method": "tools/list"}))
    server.receive(lines({"id": "call", "method": "tools/call", "params": CALL}))
    server.workers.settle(10)
    assert len(call.steps) == 1
    assert b"notifications/progress" not in drained(output, reading)
    server.close()
    os.close(reading)
    os.close(writing)


def test_a_call_held_back_while_nobody_read_begins_when_somebody_does() -> None:
    (incoming, at_client), (reading, writing), (wakeup, waker) = (os.pipe() for _ in range(3))

    def wake_reader() -> None:
        os.write(waker, b"\0")

    output = Output(writing, wake_reader)
    made: Any = WaitingCalls(Waiting())
    server = Server(load("all"), lambda: made, output, "")
    ended = threading.Thread(target=read_lines, args=(server, incoming, writing, wakeup))
    ended.start()
    os.write(at_client, lines({"id": 0, "method": "initialize", "params": HELLO}) + b"\n")
    answers = LineBuffer()
    while not list(answers.feed(os.read(reading, 1 << 16))):
        pass
    while not output.is_full:  # while the reader waits for a line
        server.receive(lines({"id": 1, "method": "tools/list"}))
    server.receive(lines({"id": "call", "method": "tools/call", "params": CALL}))
    server.workers.settle(10)
    assert made.begun == 0
    found = b""
    while b'"call"' not in found[-200:]:
        ready, _, _ = select.select([reading], [], [], 10)
        assert ready, "the call was never begun"
        found = found[-200:] + os.read(reading, 1 << 20)
    os.close(at_client)
    ended.join(10)
    server.close()
    for end in (incoming, reading, writing, wakeup, waker):
        os.close(end)


def drained(output: Output, reading: int) -> bytes:
    """Read and return all that an output has to write."""
    found = b""
    while output.unwritten or select.select([reading], [], [], 0)[0]:
        if select.select([reading], [], [], 0.05)[0]:
            found += os.read(reading, 1 << 20)
    return found


class Waiting:
    """A call that waits so long at each step, and notes when it was abandoned."""

    def __init__(self, *waits: float) -> None:
        self._waits = iter(waits)
        self._left = 0.0
        self.steps: list[float] = []
        self.abandoned = threading.Event()

    def step(self) -> Reply | Wait:
        if self._left <= 0:
            self.steps.append(time.monotonic())
            wait = next(self._waits, None)
            if wait is None:
                return Reply("done", Failure(error={}))
            self._left = wait
        piece = min(self._left, PIECE)
        self._left -= piece
        return Wait(piece, 0.0)

    def abandon(self) -> None:
        self.abandoned.set()


class WaitingCalls:
    """Begins the calls that a test has made, one after the other."""

    def __init__(self, *calls: Waiting) -> None:
        self._calls = iter(calls)
        self.begun = 0

    def begin(self, *_: object) -> Waiting:
        self.begun += 1
        return next(self._calls)

    def close(self) -> None:
        """Do nothing: there is no desk."""


@contextmanager
def serve_calls(made: Any) -> Iterator[tuple[Callable[..., None], Callable[[], Any]]]:
    """Yield functions to send a message to a server with these calls, and to read its next one."""
    reading, writing = os.pipe()
    server = Server(load("all"), lambda: made, Output(writing), "")
    server.receive(lines({"id": 0, "method": "initialize", "params": HELLO}))
    with os.fdopen(reading, "rb") as stream:
        stream.readline()
        yield (
            lambda **message: server.receive(lines(message)),
            lambda: json.loads(stream.readline()),
        )
        server.close()
    os.close(writing)


class Blocked(Waiting):
    """A call whose step lasts until an event is set."""

    def __init__(self, begun: threading.Semaphore, may_end: threading.Event) -> None:
        super().__init__()
        self._begun, self._may_end = begun, may_end

    def step(self) -> Reply | Wait:
        self._begun.release()
        assert self._may_end.wait(30)
        return super().step()


def test_calls_that_no_worker_has_begun_leave_their_lines_when_the_server_ends() -> None:
    """A call that was begun leaves its line when the calls are closed; so each must have been."""
    begun, may_end = threading.Semaphore(0), threading.Event()
    null = os.open(os.devnull, os.O_WRONLY)
    made: Any = WaitingCalls(*(Blocked(begun, may_end) for _ in range(THREADS + 3)))
    server = Server(load("all"), lambda: made, Output(null), "claude")
    server.receive(lines({"id": 0, "method": "server/discover", "params": {"_meta": ENVELOPE}}))
    for number in range(THREADS + 3):
        call = {"name": "letter_status", "_meta": ENVELOPE}
        server.receive(lines({"id": number, "method": "tools/call", "params": call}))
    for _ in range(THREADS):
        assert begun.acquire(timeout=10)
    assert made.begun == THREADS
    server.close()
    may_end.set()
    assert made.begun == THREADS + 3
    os.close(null)


def test_nothing_more_is_read_while_too_many_bytes_of_calls_are_not_begun() -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()
    null, relieved = os.open(os.devnull, os.O_WRONLY), threading.Event()
    made: Any = WaitingCalls(*(Blocked(begun, may_end) for _ in range(100)))
    server = Server(load("all"), lambda: made, Output(null, relieved.set), "claude")
    is_congested = partial(getattr, server, "is_congested")
    large = {"name": "letter_status", "arguments": {"id": "x" * 1_000_000}, "_meta": ENVELOPE}
    asked = 0
    while not is_congested():
        asked += 1
        server.receive(lines({"id": asked, "method": "tools/call", "params": large}))
    assert asked <= THREADS + MAX_QUEUED // 1_000_000 + 1
    may_end.set()
    assert relieved.wait(10)
    server.workers.settle(10)
    assert not is_congested()
    assert made.begun == asked
    server.close()
    os.close(null)


def test_a_call_of_a_client_that_has_too_much_to_read_is_begun_when_it_has_read() -> None:
    reading, writing = os.pipe()
    made: Any = WaitingCalls(Waiting())
    output = Output(writing)
    server = Server(load("all"), lambda: made, output, "claude")
    meta = {"_meta": ENVELOPE}
    while not output.is_full:
        server.receive(lines({"id": 0, "method": "tools/list", "params": meta}))
    call = {"name": "letter_status", **meta}
    server.receive(lines({"id": 1, "method": "tools/call", "params": call}))
    server.workers.settle(10)
    assert made.begun == 0
    drained(output, reading)
    server.resume()
    server.workers.settle(10)
    assert made.begun == 1
    server.close()
    os.close(reading)
    os.close(writing)


CALL: dict[str, Any] = {"name": "letter_status", "_meta": {"progressToken": "t"}}


def test_a_long_wait_is_waited_out_and_reported_in_pieces() -> None:
    steps: list[float] = []

    def letter_status(_: ToolContext) -> Generator[float, None, Failure]:
        steps.append(time.monotonic())
        yield 1.2
        steps.append(time.monotonic())
        return Failure(error={})

    def no_desk() -> Any:
        return None

    tool = Tool(letter_status, "Rest", Failure, CHANGES)
    calls = Calls(Contract("all", (tool,)), {tool.name: {}}, no_desk, lambda: None)
    with serve_calls(calls) as (send, read):
        send(id=1, method="tools/call", params=CALL)
        told = [read(), read()]
        assert read()["id"] == 1
    assert [each["params"]["progress"] for each in told] == [0.0, 1.0]
    began, ended = steps
    assert ended - began >= 1.2


class FlushedDesk:
    """Counts how often its log was brought up to its ledger."""

    def __init__(self) -> None:
        self.flushed = threading.Semaphore(0)

    def flush_log(self) -> None:
        self.flushed.release()


def test_the_log_is_published_after_a_call_that_has_waited() -> None:
    """And not only after its first step."""

    def letter_status(_: ToolContext) -> Generator[float, None, Failure]:
        yield PUBLISH + 0.1
        return Failure(error={})

    desk: Any = FlushedDesk()
    tool = Tool(letter_status, "Rest", Failure, CHANGES)
    contract = Contract("all", (tool,))
    calls = Calls(contract, {tool.name: {}}, lambda: desk, lambda: None)
    with serve_calls(calls) as (send, _):
        send(id=1, method="tools/call", params=CALL)
        assert desk.flushed.acquire(timeout=10)
        assert desk.flushed.acquire(timeout=10)


def test_the_log_is_published_after_a_call_that_was_given_up() -> None:
    def letter_status(_: ToolContext) -> Generator[float, None, Failure]:
        yield 60.0
        return Failure(error={})

    desk: Any = FlushedDesk()
    tool = Tool(letter_status, "Rest", Failure, CHANGES)
    calls = Calls(Contract("all", (tool,)), {tool.name: {}}, lambda: desk, lambda: None)
    call = calls.begin(tool.name, {}, protocol.Caller("claude"))
    call.step()
    assert desk.flushed.acquire(timeout=10)
    call.abandon()
    assert desk.flushed.acquire(timeout=10)
    calls.close()


def test_an_id_that_was_cancelled_as_text_is_the_number() -> None:
    call = Waiting(60.0)
    with serve_calls(WaitingCalls(call)) as (send, read):
        send(id=7, method="tools/call", params=CALL)
        read()
        send(method="notifications/cancelled", params={"requestId": "7"})
        assert call.abandoned.wait(10)


def test_of_two_requests_with_one_id_the_newer_one_is_cancelled_and_the_older_one_answered() -> (
    None
):
    older, newer = Waiting(0.2), Waiting(60.0)
    with serve_calls(WaitingCalls(older, newer)) as (send, read):
        send(id=1, method="tools/call", params=CALL)
        read()
        send(id=1, method="tools/call", params=CALL)
        read()
        assert read()["id"] == 1
        send(method="notifications/cancelled", params={"requestId": 1})
        assert newer.abandoned.wait(10)
        assert not older.abandoned.is_set()


def test_every_method_of_the_protocol_is_served() -> None:
    server = Server(load("all"), no_calls, Output(2), "")
    assert set(server._methods) == {*protocol.HANDSHAKE_METHODS, *protocol.ENVELOPE_METHODS}


def test_a_client_that_never_reads_cannot_keep_a_signal_waiting(person: Person) -> None:
    with Wire(person) as wire:
        wire.greet()
        for _ in range(200):
            wire.ask("tools/list")
        os.kill(wire.process.pid, signal.SIGTERM)
        assert wire.process.wait() == 0


def test_a_line_that_is_too_long_is_refused_and_the_next_one_served(person: Person) -> None:
    with Wire(person) as wire:
        wire.greet()
        writer = threading.Thread(target=wire.send, args=[b"x" * (MAX_LINE + 1) + b"\n"])
        writer.start()
        refused = wire.line()
        writer.join()
        assert refused["id"] is None
        assert "16,000,000 bytes" in refused["error"]["message"]
        assert wire.answer(wire.ask("ping"))["result"] == {}
        assert wire.end() == (0, "")


def test_what_is_no_message_does_not_end_the_server(person: Person) -> None:
    junk = [
        *(b"\x00" * 100, b"[" * 100_000, b'{"a":' * 100_000, b'"' * 9_999, b"\xff" * 9_999, b"9" * 9_999),
        *(b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}', b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}'),
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        b'{"jsonrpc":"2.0","id":"' + b"9" * 5_000 + b'","method":"ping"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"' + b"9" * 5_000 + b'"}}',
    ]  # fmt: skip
    with Wire(person) as wire:
        for each in junk:
            wire.send(each + b"\n")
        wire.greet()
        assert wire.answer(wire.ask("ping"))["result"] == {}
        assert wire.end() == (0, "")


# Its parts


def test_lines_come_out_whole_however_they_arrive() -> None:
    whole = b"one\n\ntwo\r\nthree\n"
    for size in range(1, len(whole) + 1):
        buffer = LineBuffer()
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        found = [line for piece in pieces for line in buffer.feed(piece)]
        assert found == [b"one", b"", b"two\r", b"three"], size


def test_a_long_line_is_dropped_once_and_not_kept() -> None:
    buffer = LineBuffer(max_bytes=5)
    assert list(buffer.feed(b"12345\n123456\n")) == [b"12345", None]
    assert [found for _ in range(9) for found in buffer.feed(b"abc")] == [None]
    assert list(buffer.feed(b"d\nok\n")) == [b"ok"]


def test_jobs_run_in_order_and_later_ones_at_their_time() -> None:
    workers, done, ready = Workers(1), list[str](), threading.Event()

    def last() -> None:
        done.append("later")
        ready.set()

    workers.submit(last, 0.05)
    for number in range(20):
        workers.submit(partial(done.append, str(number)))
    assert ready.wait(10)
    assert done == [*map(str, range(20)), "later"]
    workers.stop()


def test_no_more_jobs_run_at_once_than_there_are_threads_for() -> None:
    workers, at_work, most, lock = Workers(3), 0, 0, threading.Lock()
    barrier = threading.Barrier(3)

    def job() -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        barrier.wait(10)
        with lock:
            at_work -= 1

    workers.submit(partial(barrier.reset))  # so that a thread is idle, and not yet awake
    workers.settle(10)
    for _ in range(9):
        workers.submit(job)
    workers.settle(10)
    assert (most, at_work) == (3, 0)
    workers.stop()


def test_a_job_that_fails_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    workers, done = Workers(1), threading.Event()

    def fail() -> None:
        raise IndexError("of a mail")

    workers.submit(fail)
    workers.submit(done.set)
    assert done.wait(10)
    assert caplog.messages == ["IndexError in a job"]
    workers.stop()


def test_messages_to_a_client_that_is_gone_are_dropped() -> None:
    reading, writing = os.pipe()
    output = Output(writing)
    os.close(reading)
    output.send({"id": 1})
    output.send({"id": 2, "text": "x" * 100_000})
    output.flush(10)
    assert output.unwritten == 0
    output.close()
    output.send({"id": 3})
    os.close(writing)


def test_large_messages_keep_their_order_with_small_ones() -> None:
    reading, writing = os.pipe()
    output, found = Output(writing), bytearray()

    def read() -> None:
        while piece := os.read(reading, 1 << 16):
            found.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        output.send({"id": number, "text": "x" * (100_000 if number % 3 else 1)})
    output.flush(30)
    os.close(writing)
    reader.join()
    os.close(reading)
    assert [json.loads(line)["id"] for line in bytes(found).splitlines()] == list(range(200))
