"""The README's way from nothing to an agent at work, and the tutorial's to an approved letter, as they are written there."""

import json
import re
import shlex
from contextlib import AbstractContextManager
from pathlib import Path

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.agents import SAMPLE, Visitor, connected
from tests.conftest import Person

ROOT = Path(__file__).parents[3]
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
TEXT_OF_HELD = """\
Not sent. Letter … waits for a person to approve it.
Do not send it again: letter_status has the outcome.
"""


def blocks(page: Path, heading: str = "") -> list[str]:
    """Return the blocks of commands on a page, or those under one heading."""
    part = page.read_text().partition(f"\n## {heading}\n" if heading else "\n")[2]
    part = part.partition("\n## ")[0] if heading else part
    return re.findall(r"^```sh\n(.*?)^```", part, re.MULTILINE | re.DOTALL)


def words_of(line: str, person: Person) -> list[str]:
    """Return the words of a command as a shell in this person's home would have them."""
    return [word.replace("~", person.environment["HOME"]) for word in shlex.split(line, comments=True)]  # fmt: skip


def agent_of(person: Person) -> AbstractContextManager[Visitor]:
    """Return an agent whose client starts the server in the project's `.mcp.json` as clients do."""
    entry = json.loads((person.folder / ".mcp.json").read_text())["mcpServers"]["postroom"]
    home = {"HOME": person.environment["HOME"]}  # as every client passes it on
    server = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=entry["env"] | home, cwd=person.folder
    )
    return connected(Client(stdio_client(server)))


def test_the_readmes_way_connects_an_agent_that_finds_the_mail(person: Person) -> None:
    for name in ("VAULT_PATH", "POSTROOM_STATE"):
        del person.environment[name]
    typed = [words_of(line, person) for line in blocks(README, "Connect your agent")[0].splitlines()]  # fmt: skip
    assert [words[1] for words in typed if words[0] == "postroom"] == ["init", "import", "install"]
    for words in typed:
        match words:
            case ["cd", folder]:
                person.folder = Path(folder)
                person.folder.mkdir()
            case ["postroom", "import", _]:
                assert person.run("import", str(SAMPLE)).code == 0
            case ["postroom", *arguments]:
                more = ["--yes"] if arguments[0] == "install" else []
                assert person.run(*arguments, *more).code == 0
    with agent_of(person) as agent:
        mail = agent.first("from:dora in:inbox")
        held = agent.done("reply_email", id=mail, body="Thank you.")
    assert held["status"] == "rehearsal"
    shown = person.run("pending", "--all", "--json").json["letters"]
    assert [(letter["id"], letter["agent"]) for letter in shown] == [
        (held["letter"], "claude-code")
    ]


def test_the_tutorials_way_ends_with_the_letters_that_were_approved(person: Person) -> None:
    for name in ("VAULT_PATH", "POSTROOM_STATE"):
        del person.environment[name]
    install, vault, connect, live, note, page, after = blocks(TUTORIAL)
    assert re.findall(r"^(make demo|export PATH)", install, re.MULTILINE) == ["make demo", "export PATH"]  # fmt: skip
    for line in vault.splitlines():
        words = [str(SAMPLE) if "mail.mbox" in word else word for word in words_of(line, person)]
        outcome = person.run(*words[1:])
        assert outcome.code == 0
    assert outcome.out.count("Dora Lindqvist") == 3
    assert person.run_program(["sh", "-c", "\n".join(connect.splitlines()[:-1])]).code == 0
    person.folder /= "postroom-tutorial"
    outcome = person.at_terminal(*words_of(connect.splitlines()[-1], person)[1:], answers=[("[y/N]", "y\n")])  # fmt: skip
    assert outcome.code == 0
    reply = {"body": "Thank you, Dora."}
    with agent_of(person) as agent:
        reply["id"] = agent.first("from:dora VAT")
        assert agent.done("reply_email", **reply)["status"] == "rehearsal"
    pending, go_live = (words_of(line, person)[1:] for line in live.splitlines())
    assert "dora@lindqvist.example" in person.run(*pending).out
    assert person.at_terminal(*go_live, answers=[("[y/N]", "y\n")]).code == 0
    settings = Path(person.environment["HOME"], ".config/postroom/postroom.toml")
    settings.write_text(settings.read_text() + "\n[approvals]\nundo_seconds = 0\n")
    with agent_of(person) as agent:
        told = agent.call("reply_email", **reply).text
    patterns = [re.escape(line).replace("…", r"\w{10}") for line in TEXT_OF_HELD.splitlines()]
    assert re.fullmatch("\n".join(patterns), told), told
    assert TEXT_OF_HELD in TUTORIAL.read_text()
    assert person.run_program(["sh", "-c", note]).code == 0
    letters = person.run("pending", "--json").json["letters"]
    assert sorted(letter["agent"] for letter in letters) == ["claude-code", "vault"]
    assert words_of(page, person) == ["postroom", "desk"]
    for letter in letters:
        approved = person.at_terminal("approve", letter["id"], answers=[("[y/N]", "y\n")])
        assert "was sent at" in approved.out
    sent, audit = (person.run(*words_of(line, person)[1:]).out for line in after.splitlines())
    assert len(re.findall("To: Dora Lindqvist|To: dora@", sent)) == 2
    assert "approve_letter" in audit


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
