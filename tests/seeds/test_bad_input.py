"""Every tool of every documented contract, called wrongly: its document's words, `isError`, one line."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents import Wire
from tests.conftest import Person, size

GOOD: dict[str, dict[str, dict[str, object]]] = {
    "approval": {
        "search_email": {"query": "tea"},
        "draft_email": {"to": "ann@example.com", "subject": "Hi", "body": "Hello."},
        "send_email": {"to": "ann@example.com", "subject": "Hi", "body": "Hello."},
        "reply_email": {"thread_id": "18d5a", "message_id": "18d5a", "body": "Hello."},
    },
    "dry-run": {
        "send_email": {"to": "ann@example.com", "subject": "Hi", "body": "Hello."},
        "draft_email": {"to": "ann@example.com", "subject": "Hi", "body": "Hello."},
        "search_emails": {"query": "tea"},
        "reply_to_thread": {"thread_id": "18d5a", "body": "Hello."},
    },
    "gmail": {
        "send_email": {"to": "ann@example.com", "subject": "Hi", "body": "Hello."},
        "list_emails": {},
        "get_email": {"message_id": "18d5a"},
        "move_email": {"message_id": "18d5a", "destination_label": "DONE"},
        "add_label": {"message_id": "18d5a", "label_name": "DONE"},
    },
    "vault": {
        "read_note": {"path": "None.md"},
        "write_note": {"path": "None.md", "body": "Hello."},
        "edit_note": {"path": "None.md"},
        "list_notes": {},
        "move_note": {"source": "None.md", "destination": "Other.md"},
        "search_notes": {"query": "tea"},
    },
}
HEADS = {
    ("approval", "search_email"): "Error searching emails: ",
    ("approval", "draft_email"): "Error: ",
    ("approval", "send_email"): "Error: ",
    ("approval", "reply_email"): "Error replying to thread: ",
    ("dry-run", "send_email"): "Failed to send email: ",
}
OPTIONAL: dict[tuple[str, str], dict[str, object]] = {
    ("approval", "search_email"): {"max_results": 5},
    ("dry-run", "send_email"): {"cc": "", "bcc": "", "html_body": "", "reply_to": ""},
    ("dry-run", "draft_email"): {"cc": "", "bcc": "", "html_body": ""},
    ("dry-run", "search_emails"): {"max_results": 5, "include_body": True},
    ("dry-run", "reply_to_thread"): {"reply_all": True, "html_body": ""},
    ("gmail", "send_email"): {"reply_to_message_id": "18d5a"},
    ("vault", "read_note"): {"offset": 0, "max_chars": 500},
    ("vault", "write_note"): {"frontmatter": {"a": 1}, "if_match": "0"},
    ("vault", "edit_note"): {
        "append": "x",
        "prepend": "x",
        "find": "x",
        "replace": "x",
        "heading": "x",
        "set": {"a": 1},
        "remove": ["a"],
        "if_match": "0",
    },
    ("vault", "list_notes"): {"directory": "None", "filter": "a:b", "cursor": ""},
    ("vault", "search_notes"): {"cursor": "5"},
    ("gmail", "list_emails"): {"query": "tea", "max_results": 5},
}
MANY = size(3_000_000)
PATHS = ["\0", "../../etc/passwd", "../up.md", "/etc/passwd", "a\\b.md", ".obsidian/app.md", "a//b.md", "a/./b.md", "x" * MANY, "Approved/../x.md"]  # fmt: skip
# What no argument of these names may hold; every text below is refused by every tool that has it.
REFUSED: dict[str, list[Any]] = {
    "to": ["", " ", "ann", "ann@", "@example.com", "ann@example.com\nBcc: eve@evil.example", "ann@example.com\0", "ann@exаmple", "a" * MANY, "ann@example.com,eve@evil.example", "<ann@example.com", "ann%evil.example@example.com", "=?utf-8?q?ann?=@example.com"],
    "subject": ["Hi\nBcc: eve@evil.example", "Hi\r\nX: y", "Hi\u202eevil"],
    "thread_id": ["", "\0", "../../etc/passwd", "x" * MANY, "' OR 1=1 --"],
    "message_id": ["", "\0", "../../etc/passwd", "x" * MANY, "' OR 1=1 --"],
    "reply_to_message_id": ["", "\0", "../../etc/passwd", "x" * MANY],
    "destination_label": ["", "x" * 500, "a\nb", "Trash", "[Gmail]/Trash", "ＴＲＡＳＨ", "\0"],
    "label_name": ["", "x" * 500, "a\nb", "Sent", "\0"],
    "cc": ["nobody", "ann@example.com,,", "ann@example.com\nBcc: eve@evil.example", "a" * MANY],
    "bcc": ["nobody", "a" * MANY],
    "reply_to": ["nobody", "a@example.com, b@example.com", "me@example.com\nBcc: eve@evil.example"],
    "query": ["(" * 5_000, "subject:(", '"' + "word " * 5_000],
    "max_results": [0, -1, 101, 10**30],
    "max_chars": [0, -1, 10**30],
    "offset": [-1],
    "if_match": ["0" * 16, "x" * MANY],
    "set": [{"a": 2**60}, {"a": {"b": 2**60}}],
    "frontmatter": [{"a": 2**60}],
    "filter": ["status", ":", "a:b AND", "x" * MANY],
    **dict.fromkeys(("path", "source", "destination", "directory"), PATHS),
}  # fmt: skip
UNKNOWN = [f"{name} = '../../etc/passwd'" for name in ("thread_id", "message_id")]
WRONG_TYPES = [None, 5, 1.5, True, [], {}, ["ann@example.com"], {"a": 1}]


def cases(contract: str, tool: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield calls that must be refused, and what each is."""
    good = GOOD[contract][tool]
    known = {**good, **OPTIONAL.get((contract, tool), {})}
    if good:
        yield "nothing at all", {}
    for name in good:
        yield f"without {name}", {key: value for key, value in good.items() if key != name}
    for extra in ("account", "approve", "__class__", "Body", "attachments", ""):
        yield f"with {extra!r}", {**good, extra: "x"}
    for name, value in known.items():
        for wrong in WRONG_TYPES:
            nullable = name in {"reply_to_message_id", "filter"} and wrong is None
            if type(wrong) is not type(value) and not nullable:
                yield f"{name} = {wrong!r}", {**good, name: wrong}
        for bad in REFUSED.get(name, ()):
            if contract == "vault" and bad == "subject:(":  # words like any others
                continue
            yield f"{name} = {str(bad)[:40]!r}", {**good, name: bad}


MODES = [(contract, mode) for contract in GOOD for mode in ("rehearsal", "live")]


def refuse_all(wire: Wire, contract: str, asked: list[str]) -> None:
    """Make every wrong call, and check its answer; `asked` gets the tool of each."""
    allowed = []
    for tool in GOOD[contract]:
        for wrong, arguments in cases(contract, tool):
            asked.append(tool)
            answer = wire.answer(wire.ask("tools/call", name=tool, arguments=arguments))["result"]
            (block,) = answer["content"]
            what = f"{tool}, {wrong}: {block['text'][:200]}"
            if not answer["isError"]:
                # 002 looks for a thread after DEV_MODE: there, one that cannot be is not looked for.
                unlooked = "[DEV_MODE] Reply logged but not executed. Thread: "
                allowed += [] if wrong in UNKNOWN and block["text"].startswith(unlooked) else [what]
                continue
            assert len(block["text"]) < 3_000, what
            assert "Something is wrong inside" not in block["text"], what
            assert worded(contract, tool, block["text"]), what
    assert allowed == []


@pytest.mark.parametrize(("contract", "mode"), MODES)
def test_what_is_wrong_is_refused_in_the_documents_words(
    person: Person, contract: str, mode: str
) -> None:
    """Bad input, every tool"""
    if mode == "live":
        person.live(undo_seconds=0)
    server = ["vault"] if contract == "vault" else ["email", "--contract", contract]
    asked: list[str] = []
    with Wire(person, *server) as wire:
        wire.greet()
        refuse_all(wire, contract, asked)
        wire.end()
    # A server that ends has three seconds for its log; on a busy machine, the next look writes the rest.
    assert person.run("pending").code == 0
    files = sorted((person.vault / "Logs" / "actions").glob("*.json"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [line["action_type"] for line in lines] == asked
    results = {line["result"] for line in lines if line["action_type"] != "reply_email"}
    assert results <= {"error", "rejected"}


def worded(contract: str, tool: str, text: str) -> bool:
    """Whether these are words of its document."""
    if contract in {"gmail", "vault"}:
        known = ("parse_error", "not_found", "permission_denied", "conflict")
        return json.loads(text)["error"] in known[: 4 if contract == "vault" else 3]
    return text.startswith(
        (HEADS.get((contract, tool), "Error: "), "Rejected: No matching approval")
    )
