"""A server on stdio that is called very often holds no more memory for it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agents import SAMPLE, Wire, visiting
from tests.conftest import Person, examples
from tests.narrow import narrow

FULL = 100_000  # in `make nightly`
CALLS = examples(FULL // 10)
BATCH = 40  # requests under way at once: few enough that all of them fit into a pipe, whose reader may be busy writing
# Bytes from the first tenth of the calls to the last. At the full count, a leak of 100 bytes a call would be 9 MB. With
# fewer calls only a larger leak is seen: in the first 5,000 calls, caches and the threads' heaps still fill, by 10 MB.
MAY_GROW = 5e6 if CALLS >= FULL else 12e6


@pytest.fixture
def robin(person: Person) -> Person:
    person.live()
    assert person.run("import", str(SAMPLE)).code == 0
    return person


def memory(wire: Wire) -> int:
    """Return the bytes that the server holds in memory."""
    status = Path(f"/proc/{wire.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


class Caller:
    """Sends calls of every kind in batches, and checks each answer."""

    def __init__(self, wire: Wire, mail: str, letter: str) -> None:
        self._wire = wire
        self._letter = letter
        self._expected: dict[int, Callable[[dict[str, Any]], bool]] = {}
        self._cancelled: set[int] = set()
        self._kinds: tuple[Callable[[], None], ...] = (
            lambda: self._call(done, "letter_status"),
            lambda: self._call(done, "search_email", limit=1),
            lambda: self._call(done, "get_email", id=mail),
            lambda: self._call(refused, "get_email", id=mail, max_chars=1),
            lambda: self._call(unknown, "no_such_tool"),
            lambda: self._expect(lambda answer: bool(answer["result"]["tools"]), "tools/list"),
            lambda: self._expect(lambda answer: answer["result"] == {}, "ping"),
            self._cancel,
        )

    def _expect(
        self, check: Callable[[dict[str, Any]], bool], method: str, **params: object
    ) -> None:
        self._expected[self._wire.ask(method, **params)] = check

    def _call(
        self, check: Callable[[dict[str, Any]], bool], tool: str, **arguments: object
    ) -> None:
        self._expect(check, "tools/call", name=tool, arguments=arguments)

    def _cancel(self) -> None:
        """Ask for a decision that nobody makes, and give up at once."""
        id = self._wire.call("letter_status", id=self._letter, wait=20)
        note = {"method": "notifications/cancelled", "params": {"requestId": id}}
        self._wire.send(json.dumps({"jsonrpc": "2.0"} | note).encode() + b"\n")
        self._cancelled.add(id)

    def run(self, calls: int) -> None:
        """Make that many calls, and wait for the answers of those that have one."""
        for first in range(0, calls, BATCH):
            for number in range(first, min(first + BATCH, calls)):
                self._kinds[number % len(self._kinds)]()
            while self._expected:
                answer = self._wire.line()
                if (id := answer["id"]) not in self._cancelled:
                    assert self._expected.pop(id)(answer), answer


def done(answer: dict[str, Any]) -> bool:
    return not answer["result"].get("isError", False)


def refused(answer: dict[str, Any]) -> bool:
    return answer["result"]["isError"] is True


def unknown(answer: dict[str, Any]) -> bool:
    return narrow(answer["error"]["code"], int) == -32602


@pytest.mark.timeout(900)
def test_memory_stays_flat_over_many_calls(robin: Person) -> None:
    with visiting(robin) as agent:
        mail = agent.first("")
        letter = agent.done("send_email", to=["ann@example.org"], subject="Hi", body="Hello.")
    with Wire(robin) as wire:
        caller = Caller(wire.greet(), mail, letter["letter"])
        held = []
        for _ in range(10):
            caller.run(CALLS // 10)
            held.append(memory(wire))
        code, err = wire.end()
    assert (code, err) == (0, "")
    told = ", ".join(f"{size / 1e6:.1f}" for size in held)
    assert held[-1] - held[0] <= MAY_GROW, f"MB after each tenth of {CALLS:,} calls: {told}"
