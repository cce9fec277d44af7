"""No tool changes what stands in a workflow folder, nor approves, by any spelling of either."""

import hashlib

from postroom.tools.contracts.postroom import CONTRACT
from postroom.tools.listing import load
from postroom.vault.folders import FILES, FOLDERS
from tests.agents import Wire
from tests.conftest import Person

# Where a tool may leave something: attachments, and the log of what it did.
THEIRS = ("Mail_Files", "Logs")


def spellings(name: str) -> list[str]:
    """Every way to write a folder or a file of the vault."""
    plain = [name, name.lower(), f"./{name}", f"/{name}", f"{name}/x.md", f"{name}\\x.md"]
    return [*plain, f"Outgoing/../{name}/x.md", f"{name}%2fx.md", f"{name}\u200b"]


def state_of(person: Person, letter: str) -> tuple[dict[str, str], str, str]:
    """Return all that a person's decision hangs on: the notes as they are, and the letter."""
    files = {
        str(path.relative_to(person.vault)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(person.vault.rglob("*"))
        if path.is_file() and path.relative_to(person.vault).parts[0] not in (*THEIRS, ".postroom")
    }
    return files, person.show(letter)["state"], person.run("status", "--json").json["trust"]


def test_every_tool_with_every_spelling_of_the_folders_and_of_approval_changes_nothing(
    robin: Person, wire: Wire
) -> None:
    assert robin.run("init").code == 0
    wire.greet()
    held = wire.answer(wire.call("send_email", to=["ann@example.com"], subject="Tea", body="x"))
    letter = held["result"]["structuredContent"]["letter"]
    digest = robin.show(letter)["digest"]
    mail = wire.answer(wire.call("search_email", query="has:attachment", limit=1))
    mail = mail["result"]["structuredContent"]["mails"][0]["id"]
    # The note of the waiting letter, and what a moved one would be called.
    note = next((robin.vault / "Pending_Approval").glob("*.md")).name
    words = [word for folder in (*FOLDERS, *FILES) for word in spellings(folder.name)]
    words += spellings(f"Approved/{note}") + spellings(f"Pending_Approval/{note}")
    words += ["approve", "APPROVED", f"approve {letter}", f"postroom approve {letter}", digest]
    words += [f"letter://{letter}/approve", "status: approved", f"{letter} approved", "PAUSED.md"]
    before = state_of(robin, letter)
    asked = []
    for tool in CONTRACT.tools:
        fields = load("postroom")["arguments"][tool.name]
        known = {"id": mail, "part": "2", "body": "x", "destination": "Later", "label": "Later"}
        needed = {name: known.get(name, "x") for name, check in fields.items() if "default" not in check}  # fmt: skip
        if "to" in needed:
            needed["to"] = ["ann@example.com"]
        if tool.name in {"send_email", "draft_email", "reply_email"}:
            # What they write is a letter of its own; where a word stands as a path, it is refused.
            names = ["attachments"]
        elif tool.name == "withdraw_letter":
            names = ["id"]
        else:
            names = [name for name, check in fields.items() if check["type"] == "string"]
        for name in names:
            for word in words:
                value = [word] if name == "attachments" else word
                asked.append(wire.call(tool.name, **{**needed, name: value}))
    for word in words:
        asked.append(wire.ask("resources/read", uri=f"letter://{word}"))
        asked.append(wire.ask("resources/read", uri=f"message://{word}"))
        asked.append(wire.ask("resources/read", uri=f"file://{robin.vault}/{word}"))
    left = set(asked)
    while left:
        left.discard(wire.line().get("id"))
    after = state_of(robin, letter)
    assert after == before
    assert len(asked) > 2000
    assert robin.run("search", "in:sent newer_than:1d", "--json").json["messages"] == []
    saved = robin.vault / "Mail_Files"
    assert {path.parent.name for path in saved.rglob("*") if path.is_file()} <= {mail}
