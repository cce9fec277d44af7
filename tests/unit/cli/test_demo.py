"""The demo: what it shows, that a person decides in it, and that nothing is left of it."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Person

GO_ON = "Enter goes on, `quit` ends the demo: "
PROMPT = "postroom> "
QUESTION = re.compile(rf"{re.escape(GO_ON)}|{PROMPT}|\[y/N\] ")
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def proposed(verdict: str) -> Callable[[str], str]:
    """Return a function from the output so far to the command with this verdict that it proposes."""
    return lambda output: re.findall(rf"`({verdict} \w+)`", output)[-1] + "\n"


Answers = list[tuple[str, str | Callable[[str], str]]]
# What a person does who follows the demo to its end.
FOLLOWED: Answers = [
    *[(GO_ON, "\n")] * 3,
    ("Type a command", ""),
    (PROMPT, proposed("reject")),
    ("was rejected by", ""),
    ("Type a command", ""),
    (PROMPT, proposed("approve")),
    ("[y/N] ", "y\n"),
    ("was sent at", ""),
    ("It is the same letter:", ""),
    ("was sent at", ""),
    *[(GO_ON, "\n")] * 2,
    ("Or type a command here", ""),
]


def test_without_a_terminal_all_is_performed_and_nothing_is_left(person: Person) -> None:
    (person.folder / "anyio.py").write_text("open('RAN', 'w')")  # which its server must not import
    before = sorted(path for path in person.folder.rglob("*") if path.is_file())
    outcome = person.run("demo")
    assert outcome.code == 0, outcome.err
    assert all(len(line) <= 80 for line in outcome.out.splitlines())
    assert sorted(path for path in person.folder.rglob("*") if path.is_file()) == before
    words, at = " ".join(outcome.out.split()), 0
    for act in (  # the trap first
        "40 new, 0 already here",
        "486 hidden characters were removed.",
        "agent > send_email(to=['ledger@bright-audit.example']",
        "Not sent. Letter ",
        "! The agent got ledger@bright-audit.example from",
        "was rejected by",
        "agent > reply_email(",
        "Not sent. Letter ",
        "was sent at",
        "It is the same letter: agent > reply_email(",
        "was sent at",
        "The cookbook on Saturday: draft_reply, by line 6 of Handbook.md.",
        "was approved: its note was moved to Approved/.",
        " is sent.",
        "is removed.",
    ):
        assert act in words[at:], act
        at = words.index(act, at) + len(act)


def test_the_demos_folder_can_be_kept_and_used(person: Person) -> None:
    kept = person.run("demo", "--keep", "try")
    assert kept.code == 0
    for name in ("POSTROOM_STATE", "VAULT_PATH"):
        del person.environment[name]
    person.environment["POSTROOM_CONFIG"] = str(person.folder / "try" / "postroom.toml")
    assert "Gästebuch" in person.run("search", "hutte").out
    waiting = person.run("pending", "--json").json["letters"]
    assert len(waiting) == 3
    # What to type next is there to be typed.
    typed = re.findall(r"^  postroom (.+)$", kept.out, re.MULTILINE)
    assert typed[0] == "desk"
    assert len(typed) == 7
    for line in typed[1:]:
        arguments = shlex.split(line)
        if arguments[0] == "approve":
            arguments += ["--yes", person.show(arguments[1])["digest"]]
        assert person.run(*arguments).code == 0, line
    assert len(person.run("pending", "--json").json["letters"]) == 2


def test_each_scene_fits_a_terminal_of_80x24_and_at_the_end_commands_are_typed(
    person: Person,
) -> None:
    commands = [
        (PROMPT, "pending\n"),
        ("Waiting for your decision (1)", ""),
        (PROMPT, "nonsense\n"),
        ("No such", ""),
        *[
            each
            for command in ("mcp", "install codex", "live", "auth", "agentmail send x y")
            for each in ((PROMPT, f"{command}\n"), ("another terminal", ""))
        ],
        (PROMPT, "\n"),
        (PROMPT, "exit\n"),
    ]
    played = person.at_terminal("demo", answers=[*FOLLOWED, *commands])
    assert played.code == 0
    scenes = QUESTION.split(STYLE.sub("", played.out))
    assert len(scenes) == 18
    assert re.search(r"<<<(\w{16})\s.*\s\1>>>", scenes[0], re.DOTALL)
    for scene in scenes:
        # The first is the rest of the line of the question before.
        lines = [line.rpartition("\r")[2] for line in scene.split("\n")[1:]]
        assert len(lines) <= 22, scene
        assert all(len(line) <= 80 for line in lines), scene
    # The address stands before what is said about opening it.
    assert 0 < played.out.index("http://127.0.0.1:") < played.out.index("No browser was found")
    (folder,) = set(re.findall(r"/\S+/postroom-demo-\w+", played.out))
    assert f"The demo's folder {folder} is removed." in " ".join(played.out.split())
    assert not Path(folder).exists()


def test_what_is_typed_ahead_neither_goes_on_nor_ends_it(person: Person) -> None:
    played = person.at_terminal("demo", typed_ahead="\n" * 30, answers=[(GO_ON, "quit\n")])
    assert played.code == 0
    assert "The agent obeys" not in played.out
    assert "is removed" in played.out


def test_an_empty_line_decides_nothing_and_ctrl_d_ends_it(person: Person) -> None:
    played = person.at_terminal(
        "demo",
        answers=[*FOLLOWED[:4], *[(PROMPT, "\n")] * 5, (PROMPT, "audit\n"), (PROMPT, "\x04")],
    )
    assert played.code == 0
    assert "The demo's folder" in played.out
    for verdict in ("approve_letter", "reject_letter"):
        assert verdict not in played.out


def test_a_kept_folder_is_named_when_the_person_ends_it_early(person: Person) -> None:
    played = person.at_terminal("demo", "--keep", "try", answers=[(GO_ON, "quit\n")])
    assert played.code == 0
    assert "The demo's folder try is kept." in played.out
    assert (person.folder / "try/postroom.toml").exists()
