"""The README's way from nothing to an agent at work, as it is written there."""

import json
import re
import shlex
from pathlib import Path

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.agents import SAMPLE, connected
from tests.conftest import Person
from tests.narrow import present

README = Path(__file__).parents[3] / "README.md"


def commands(heading: str) -> list[list[str]]:
    """Return the commands of the first block under a heading."""
    block = re.search(rf"^## {heading}\n```sh\n(.*?)```", README.read_text(), re.MULTILINE | re.DOTALL)  # fmt: skip
    return [shlex.split(line, comments=True) for line in present(block)[1].splitlines()]


def test_the_readmes_way_connects_an_agent_that_finds_the_mail(person: Person) -> None:
    for name in ("VAULT_PATH", "POSTROOM_STATE"):
        del person.environment[name]
    typed = commands("Connect your agent")
    assert [words[:2] for words in typed if words[0] == "postroom"] == [
        ["postroom", "init"],
        ["postroom", "import"],
        ["postroom", "install"],
    ]
    for words in typed:
        match words:
            case ["cd", folder]:
                person.folder = Path(folder.replace("~", str(person.folder)))
                person.folder.mkdir()
            case ["postroom", "import", _]:
                assert person.run("import", str(SAMPLE)).code == 0
            case ["postroom", *arguments]:
                more = ["--yes"] if arguments[0] == "install" else []
                plain = [word.replace("~", str(person.folder)) for word in arguments]
                assert person.run(*plain, *more).code == 0
    entry = json.loads((person.folder / ".mcp.json").read_text())["mcpServers"]["postroom"]
    home = {"HOME": person.environment["HOME"]}  # as every client passes it on
    server = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=entry["env"] | home, cwd=person.folder
    )
    with connected(Client(stdio_client(server))) as agent:
        mail = agent.first("from:dora in:inbox")
        held = agent.done("reply_email", id=mail, body="Thank you.")
    assert held["status"] == "rehearsal"
    shown = person.run("pending", "--all", "--json").json["letters"]
    assert [(letter["id"], letter["agent"]) for letter in shown] == [
        (held["letter"], "claude-code")
    ]


def test_going_live_is_what_the_readme_says(person: Person) -> None:
    assert "postroom live  " in README.read_text()
    for name in ("VAULT_PATH", "POSTROOM_STATE"):
        del person.environment[name]
    assert person.run("init", str(person.folder / "Postroom")).code == 0
    assert person.run("install", "claude-code", "--yes").code == 0
    assert person.at_terminal("live", answers=[("[y/N]", "y\n")]).code == 0
    entry = json.loads((person.folder / ".mcp.json").read_text())["mcpServers"]["postroom"]
    environments: list[dict[str, str]] = [{}, entry["env"]]
    for environment in environments:  # the person's own terminal, and the server
        person.environment |= environment
        found = person.run("status", "--json").json
        assert (found["mode"], found["vault"]) == ("live", str(person.folder / "Postroom"))
