"""Agents in the windows of a real tmux: who they are, what they say, and how the mailman tells them."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import visiting
from tests.conftest import Outcome, Person
from tests.real.tmux import Agent, Server, Window, counting, until

NUDGE = "Check your agentmail"
NONE = "No unread messages\n"
OLD = "2020-01-01T00:00:00Z"
USAGE = "usage: agentmail send <recipient> <message>"
NO_WINDOW = Outcome(1, "", "error: current window '' not found in tmux session\n")
NOT_FOUND = Outcome(1, "", "error: recipient not found\n")
NAMES = ("the planner", "api.v2", "end.", "Zoë", "секретарь", "係", "-m", "$HOME", "a;b")
COMMANDS = {
    "send": ("send", "bob", "hello"),
    "receive": ("receive",),
    "recipients": ("recipients",),
    "status": ("status", "work"),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.end()


@pytest.fixture
def alice(server: Server) -> Window:
    return server.window("alice")


@pytest.fixture
def bob(server: Server) -> Window:
    return server.window("bob")


def states(server: Server) -> dict[str, str]:
    """Return the status of each agent that has one."""
    found = map(json.loads, server.states.read_text().splitlines())
    return {state["recipient"]: state["status"] for state in found}


def write_states(server: Server, **times: str) -> None:
    """Write states that were set at these times."""
    server.states.parent.mkdir(exist_ok=True)
    zero = "0001-01-01T00:00:00Z"
    rows = [
        {"recipient": name, "status": "ready", "updated_at": at, "notified_at": zero}
        for name, at in times.items()
    ]
    server.states.write_text("".join(json.dumps(row) + "\n" for row in rows))


def told(agent: Agent) -> None:
    """Wait until an agent has taken the mailman's line, and see that it was the only one."""
    until(lambda: agent.heard, "a line for the agent")
    assert agent.heard == [NUDGE]


# Who is who


def test_a_message_goes_from_one_window_to_another(alice: Window, bob: Window) -> None:
    id = alice.send("bob", "the build is green")
    assert bob.received() == f"From: alice\nID: {id}\n\nthe build is green"
    assert bob.received() == NONE


def test_two_panes_of_one_window_are_one_agent(alice: Window, bob: Window) -> None:
    beside = bob.split()
    first, second = alice.send("bob", "one"), alice.send("bob", "two")
    assert beside.received() == f"From: alice\nID: {first}\n\none"
    assert bob.received() == f"From: alice\nID: {second}\n\ntwo"
    id = beside.send("alice")
    assert alice.received() == f"From: bob\nID: {id}\n\nhello"


def test_two_windows_of_one_name_share_a_mailbox(
    server: Server, alice: Window, bob: Window
) -> None:
    again = server.window("bob")
    assert alice.mail("recipients").out == "hall\nalice [you]\nbob\nbob\n"
    alice.send("bob", "one")
    alice.send("bob", "two")
    assert again.received().endswith("\n\none")
    assert bob.received().endswith("\n\ntwo")
    assert again.mail("send", "bob", "hello") == NOT_FOUND


def test_a_window_that_is_renamed_is_another_agent(alice: Window, bob: Window) -> None:
    alice.send("bob", "for bob")
    bob.rename("carol")
    assert bob.received() == NONE
    assert alice.mail("send", "bob", "hello") == NOT_FOUND
    id = bob.send("alice")
    assert alice.received() == f"From: carol\nID: {id}\n\nhello"
    bob.rename("bob")
    assert bob.received().endswith("\n\nfor bob")


@pytest.mark.parametrize("language", ["C.UTF-8", "C"])
def test_a_name_may_have_spaces_dots_and_any_letters(
    server: Server, alice: Window, language: str
) -> None:
    alice.environment["LANG"] = language
    alice.environment["LC_ALL"] = language
    windows = [server.window(name) for name in NAMES]
    assert alice.mail("recipients").out.splitlines()[2:] == list(NAMES)
    for name, window in zip(NAMES, windows, strict=True):
        window.environment |= {"LANG": language, "LC_ALL": language}
        id = alice.mail("send", "--", name, f"to {name}").out[9:17]
        assert server.box(name).exists()
        assert window.received() == f"From: alice\nID: {id}\n\nto {name}"
        window.send("alice")
        assert alice.received().startswith(f"From: {name}\n")


def test_a_name_that_another_begins_with_is_its_own(server: Server, alice: Window) -> None:
    carol, car = server.windows("carol", "car")
    alice.send("car", "for car")
    assert carol.received() == NONE
    assert car.received().endswith("\n\nfor car")
    assert alice.mail("send", "caro", "hello") == NOT_FOUND


def test_windows_of_other_sessions_are_not_there(server: Server, alice: Window) -> None:
    server.do("new-session", "-d", "-s", "other", "-n", "dora", "cat")
    assert alice.mail("recipients").out == "hall\nalice [you]\n"
    assert alice.mail("send", "dora", "hello") == NOT_FOUND


# One process of tmux for each


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_asks_tmux_once(
    server: Server, alice: Window, bob: Window, words: tuple[str, ...]
) -> None:
    bob.send("alice")
    alice.environment["PATH"], calls = counting(server.folder)
    assert alice.mail(*words).code == 0
    assert len(calls.read_text().splitlines()) == 1


def test_a_tool_asks_tmux_once(server: Server, alice: Window, bob: Window) -> None:
    bob.send("alice")
    alice.environment["PATH"], calls = counting(server.folder)
    with visiting(alice, "agents") as agent:
        agent.tools()
        assert not calls.exists()
        agent.done("send", recipient="bob", message="hello")
        assert len(calls.read_text().splitlines()) == 1
        agent.done("receive")
        assert len(calls.read_text().splitlines()) == 2
        agent.done("list-recipients")
        assert len(calls.read_text().splitlines()) == 3
        agent.done("status", status="work")
        assert len(calls.read_text().splitlines()) == 4


# Texts and exit codes


@pytest.mark.parametrize("name", ["nobody", "alice", "bob"], ids=["unknown", "self", "ignored"])
def test_whoever_cannot_be_written_to_is_not_found(
    server: Server, alice: Window, bob: Window, name: str
) -> None:
    (server.folder / ".agentmailignore").write_text("\n  bob \n")
    assert alice.mail("send", name, "hello") == NOT_FOUND
    assert not server.box(name).exists()


def test_the_recipients_are_the_windows_without_those_that_are_ignored(
    server: Server, alice: Window, bob: Window
) -> None:
    (server.folder / ".agentmailignore").write_text("bob\nhall\n")
    assert alice.mail("recipients") == Outcome(0, "alice [you]\n", "")
    assert bob.mail("recipients") == Outcome(0, "alice\nbob [you]\n", "")


def test_one_who_is_ignored_still_receives_and_sends(
    server: Server, alice: Window, bob: Window
) -> None:
    alice.send("bob")
    (server.folder / ".agentmailignore").write_text("bob\n")
    assert bob.received().endswith("\n\nhello")
    bob.send("alice")


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_pane_that_is_gone_is_nobody(alice: Window, bob: Window, words: tuple[str, ...]) -> None:
    alice.close()
    assert alice.mail(*words) == NO_WINDOW


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("pane", "why"),
    [
        ("", "TMUX_PANE environment variable not set"),
        ("%1;x", "TMUX_PANE contains invalid format"),
        ("alice", "TMUX_PANE contains invalid format"),
        ("%1\n", "TMUX_PANE contains invalid format"),
    ],
)
def test_a_pane_that_is_none_is_refused_unseen(
    alice: Window, bob: Window, words: tuple[str, ...], pane: str, why: str
) -> None:
    alice.environment["TMUX_PANE"] = pane
    said = alice.mail(*words)
    assert said == Outcome(1, "", f"error: failed to get current window: {why}\n")


def test_a_server_that_is_gone_is_told_in_its_own_words(alice: Window, bob: Window) -> None:
    alice.environment["TMUX"] = f"{alice.folder}/nothing,1,0"
    said = alice.mail("receive")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("error: failed to get current window: error connecting to ")
    assert alice.mail("receive", "--hook") == Outcome(0, "", "")


def test_a_message_without_a_recipient_or_a_text_is_refused(alice: Window, bob: Window) -> None:
    missing = Outcome(1, "", "error: missing required arguments: recipient message\n")
    empty = Outcome(1, "", f"error: no message provided\n{USAGE}\n")
    assert alice.mail("send") == missing
    assert alice.mail("send", "bob") == empty
    assert alice.mail("send", "bob", "") == empty
    assert alice.mail("send", "bob", piped="\n") == empty


def test_what_is_piped_in_wins_over_the_argument(alice: Window, bob: Window) -> None:
    assert alice.mail("send", "bob", "argument", piped="piped\n\n").code == 0
    assert bob.received().endswith("\n\npiped\n")
    assert alice.mail("send", "bob", "argument", piped="").code == 0
    assert bob.received().endswith("\n\nargument")


def test_flags_end_at_the_first_word(alice: Window, bob: Window) -> None:
    assert alice.mail("send", "bob", "-m", "hi").code == 0
    assert bob.received().endswith("\n\n-m")
    assert alice.mail("send", "-m", "hi", "-r=bob", "ignored").code == 0
    assert bob.received().endswith("\n\nhi")


def test_a_hook_brings_mail_on_stderr_and_is_else_silent(alice: Window, bob: Window) -> None:
    id = alice.send("bob", "look here")
    said = bob.mail("receive", "--hook")
    assert said == Outcome(2, "", f"You got new mail\nFrom: alice\nID: {id}\n\nlook here")
    assert bob.mail("receive", "--hook") == Outcome(0, "", "")
    bob.close()
    assert bob.mail("receive", "--hook") == Outcome(0, "", "")


def test_a_status_is_one_of_three(server: Server, alice: Window) -> None:
    usage = "usage: agentmail status <ready|work|offline>"
    missing = f"error: missing required argument: status\n{usage}\n"
    assert alice.mail("status") == Outcome(1, "", missing)
    wrong = Outcome(1, "", "Invalid status: Ready. Valid: ready, work, offline\n")
    assert alice.mail("status", "Ready") == wrong
    assert not server.states.exists()
    for status in ("work", "offline", "ready"):
        alice.becomes(status)
        assert states(server) == {"alice": status}


def test_who_has_received_is_ready(server: Server, alice: Window, bob: Window) -> None:
    alice.send("bob")
    bob.received()
    assert states(server) == {"bob": "ready"}


@pytest.mark.parametrize("words", [COMMANDS["send"], COMMANDS["receive"], COMMANDS["status"]])
def test_without_a_repository_there_is_no_mail(
    server: Server, alice: Window, bob: Window, words: tuple[str, ...]
) -> None:
    (server.folder / ".git").rmdir()
    no = "error: not in a git repository: not in a git repository\n"
    assert alice.mail(*words) == Outcome(1, "", no)
    assert not (server.folder / ".agentmail").exists()


def test_without_a_repository_windows_are_still_listed(
    server: Server, alice: Window, bob: Window
) -> None:
    (server.folder / ".git").rmdir()
    assert alice.mail("recipients") == Outcome(0, "hall\nalice [you]\nbob\n", "")
    assert alice.mail("receive", "--hook") == Outcome(0, "", "")


# Tools


def test_the_tools_do_in_tmux_what_the_commands_do(
    server: Server, alice: Window, bob: Window
) -> None:
    with visiting(alice, "agents") as agent:
        id = agent.done("send", recipient="bob", message="hello")["message_id"]
        assert bob.received() == f"From: alice\nID: {id}\n\nhello"
        answer = bob.send("alice", "and to you")
        said = agent.call("receive")
        assert said.text == f'{{"from":"bob","id":"{answer}","message":"and to you"}}'
        assert agent.call("receive").text == '{"status":"No unread messages"}'
        assert agent.done("list-recipients")["recipients"] == [
            {"name": "hall", "is_current": False},
            {"name": "alice", "is_current": True},
            {"name": "bob", "is_current": False},
        ]
        assert agent.call("status", status="work").text == '{"status":"ok"}'
        assert states(server)["alice"] == "work"


def test_the_tools_refuse_in_the_same_words(server: Server, alice: Window, bob: Window) -> None:
    (server.folder / ".agentmailignore").write_text("bob\n")
    with visiting(alice, "agents") as agent:
        for name, why in (
            ("nobody", "recipient not found"),
            ("bob", "recipient not found"),
            ("alice", "cannot send message to self"),
        ):
            said = agent.call("send", recipient=name, message="hello")
            assert (bool(said.refused), said.text) == (True, why)
        said = agent.call("status", status="busy")
        assert said.text == "Invalid status: busy. Valid: ready, work, offline"
        alice.close()
        assert agent.call("receive").text == "current window '' not found in tmux session"


def test_a_server_without_tmux_or_git_begins_and_explains(person: Person) -> None:
    person.environment["PATH"] = str(person.folder)
    with visiting(person, "agents", agent="") as agent:
        assert sorted(agent.tools()) == ["list-recipients", "receive", "send", "status"]
        said = agent.call("receive")
        assert said.text == "agentmail must run inside a tmux session"
        assert "AGENTMAIL_NAME" in said.values["error"]["remedy"]
    person.environment["AGENTMAIL_NAME"] = "alice"
    with visiting(person, "agents", agent="") as agent:
        said = agent.call("receive")
        assert said.text == "not in a git repository: not in a git repository"


# Cleaning up


def test_cleanup_drops_who_is_gone_and_who_is_silent(server: Server, alice: Window) -> None:
    dora = server.window("dora")
    dora.becomes("ready")
    fresh = json.loads(server.states.read_text())["updated_at"]
    dora.close()
    write_states(server, alice=OLD, dora=fresh, hall=fresh)
    assert alice.mail("cleanup", "--dry-run").out == (
        "Cleanup preview (dry-run):\n  Recipients to remove: 2 (1 offline, 1 stale)\n"
        "  Messages to remove: 0\n  Mailboxes to remove: 0\n"
    )
    assert set(states(server)) == {"alice", "dora", "hall"}
    assert alice.mail("cleanup") == Outcome(
        0,
        "Cleanup complete:\n  Recipients removed: 2 (1 offline, 1 stale)\n"
        "  Messages removed: 0\n  Mailboxes removed: 0\n",
        "",
    )
    assert set(states(server)) == {"hall"}


def test_cleanup_removes_what_was_read_and_nothing_else(
    server: Server, alice: Window, bob: Window
) -> None:
    alice.send("bob", "read")
    alice.send("bob", "unread")
    bob.received()
    said = alice.mail("cleanup", "--delivered-hours", "0")
    assert "Messages removed: 1\n  Mailboxes removed: 0\n" in said.out
    assert bob.received().endswith("\n\nunread")
    said = alice.mail("cleanup", "--delivered-hours=0")
    assert "Messages removed: 1\n  Mailboxes removed: 1\n" in said.out


def test_cleanup_in_a_subfolder_touches_nothing(server: Server, alice: Window, bob: Window) -> None:
    alice.send("bob")
    bob.received()
    write_states(server, alice=OLD, dora=OLD)
    (server.folder / "sub").mkdir()
    before = (server.states.read_bytes(), server.box("bob").read_bytes())
    said = alice.mail("cleanup", "--delivered-hours", "0", folder="sub")
    assert said.code == 0
    assert "Recipients removed: 0 (0 offline, 0 stale)\n  Messages removed: 0\n" in said.out
    assert (server.states.read_bytes(), server.box("bob").read_bytes()) == before
    assert not (server.folder / "sub" / ".agentmail").exists()


def test_a_window_whose_name_is_rows_of_windows_is_nobody(
    server: Server, alice: Window, bob: Window
) -> None:
    pane = alice.pane
    server.do("new-window", "-d", "-n", f"x\n{pane} $0 1 @1 1 0 0 0 0 0 24 mallory\na b c", "cat")
    said = alice.mail("send", "bob", "as somebody else")
    assert said.code == 1
    assert "a window's name has a line end in it" in said.err
    assert bob.received() == NONE


# The mailman


def test_the_mailman_tells_one_at_rest_who_is_ready(server: Server, alice: Window) -> None:
    carol = server.agent("carol")
    carol.becomes("ready")
    with server.mailman() as mailman:
        alice.send("carol")
        mailman.tells("carol")
        told(carol)
    state = json.loads(server.states.read_text())
    assert state["notified_at"] > state["updated_at"]


def test_the_mailman_tells_nobody_twice_within_a_minute(server: Server, alice: Window) -> None:
    carol, dora = server.agent("carol"), server.agent("dora")
    carol.becomes("ready")
    alice.send("carol", "one")
    with server.mailman() as mailman:
        mailman.tells("carol")
        carol.becomes("ready")
        alice.send("carol", "two")
        dora.becomes("ready")
        alice.send("dora")
        mailman.tells("dora")
        told(dora)
    told(carol)
    assert mailman.lines.count("[mailman] told carol of its mail") == 1


def test_one_who_was_at_work_since_is_told_again(server: Server, alice: Window) -> None:
    carol = server.agent("carol")
    carol.becomes("ready")
    alice.send("carol")
    with server.mailman() as mailman:
        mailman.tells("carol")
        told(carol)
        carol.becomes("work")
        mailman.lines.clear()
        carol.becomes("ready")
        mailman.tells("carol")
        until(lambda: len(carol.heard) == 2, "a second line")
    assert carol.heard == [NUDGE, NUDGE]


def test_the_mailman_types_into_the_pane_that_is_ready(server: Server, alice: Window) -> None:
    carol = server.agent("carol")
    beside = carol.beside()
    dora = server.agent("dora")
    again = server.agent("dora")
    beside.becomes("ready")
    again.becomes("ready")
    alice.send("carol")
    alice.send("dora")
    with server.mailman() as mailman:
        mailman.tells("carol", "dora")
        told(beside)
        told(again)
    assert carol.heard == dora.heard == []
    assert NUDGE not in carol.screen + dora.screen


def test_the_mailman_finds_windows_by_their_whole_name(server: Server, alice: Window) -> None:
    carol, car, api, planner, zoe = map(
        server.agent, ("carol", "car", "api.v2", "the planner", "Zoë")
    )
    told_ones = (car, api, planner, zoe)
    for agent in (carol, *told_ones):
        agent.becomes("ready")
    for name in ("car", "api.v2", "the planner", "Zoë"):
        alice.send(name)
    with server.mailman() as mailman:
        mailman.tells("car", "api.v2", "the planner", "Zoë")
        for agent in told_ones:
            told(agent)
    assert carol.heard == []
    assert NUDGE not in carol.screen


def test_the_mailman_does_not_take_a_longer_name_for_one_that_is_gone(
    server: Server, alice: Window
) -> None:
    carol, car = server.agent("carol"), server.agent("car")
    car.becomes("ready")
    alice.send("car")
    car.close()
    with server.mailman() as mailman:
        mailman.spares("car", "it has no window here; hooks or its own tools bring it")
    assert NUDGE not in carol.screen


@pytest.mark.timeout(60)
def test_the_mailman_types_nowhere_but_where_it_may(server: Server, alice: Window) -> None:
    names = ("half", "copying", "moving", "working", "away", "rest")
    half, copying, working, away, rest = map(server.agent, names[:2] + names[3:])
    moving = server.window(
        "moving", "while :; do i=$((i+1)); echo step $i; sleep 0.05 || exit; done"
    )
    shell = server.window("shell", "exec sh")
    double = server.agent("double")
    double.beside()
    until(lambda: shell.screen.strip() != "", "the shell's prompt")
    until(lambda: "step" in moving.screen, "output")
    half.types("git push --fo")
    server.do("copy-mode", "-t", copying.pane)
    for agent in (half, copying, moving, rest):
        agent.becomes("ready")
    working.becomes("work")
    away.becomes("offline")
    for name in (*names, "shell", "double"):
        alice.send(name)
    with server.mailman() as mailman:
        mailman.spares("half", "something is typed there already")
        mailman.spares("copying", "its pane is not taking input of its own")
        mailman.spares("moving", "it is at work")
        mailman.spares("shell", "sh is in front, and no agent has said that it is ready")
        mailman.spares(
            "double", "its window has several panes, and it has not said yet in which one it is"
        )
        mailman.tells("rest")
        told(rest)
        # The look that left it alone is over once it looks again.
        half.type("Enter")
        until(lambda: half.heard, "the line that was half typed")
        half.becomes("ready")
        mailman.tells("half")
        until(lambda: len(half.heard) == 2, "a line of its own")
        for window in (copying, moving, working, away, shell, double):
            assert NUDGE not in window.screen
    assert half.heard == ["git push --fo", NUDGE]
    assert copying.heard == working.heard == away.heard == double.heard == []
    said = {line for line in mailman.lines if line.startswith("[mailman] told ")}
    assert said == {f"[mailman] told {name} of its mail" for name in ("rest", "half")}


def test_a_shell_that_has_only_read_is_not_typed_into(server: Server, alice: Window) -> None:
    shell = server.window("shell", "exec sh")
    until(lambda: shell.screen.strip() != "", "the shell's prompt")
    alice.send("shell", "one")
    assert shell.received()
    assert states(server) == {"shell": "ready"}
    alice.send("shell", "two")
    with server.mailman() as mailman:
        mailman.spares("shell", "sh is in front, and no agent has said that it is ready")
        shell.becomes("ready")  # by its own word it is an agent
        mailman.tells("shell")


def test_the_mailman_tells_an_agent_without_a_status_that_is_no_shell(
    server: Server, alice: Window
) -> None:
    carol = server.agent("carol")
    alice.send("carol")
    with server.mailman() as mailman:
        mailman.tells("carol")
        told(carol)


def test_the_mailman_ends_by_a_signal_and_leaves_no_pid_behind(server: Server) -> None:
    with server.mailman() as mailman:
        assert server.pid.read_text() == f"{mailman.pid}\n"
        assert mailman.end() == Outcome(0, "", "")
    assert not server.pid.exists()


def test_a_mailman_that_is_told_to_end_types_nowhere_any_more(
    server: Server, alice: Window
) -> None:
    moving = server.window(
        "moving", "while :; do i=$((i+1)); echo step $i; sleep 0.3 || exit; done"
    )
    moving.becomes("ready")
    alice.send("moving")
    for _ in range(4):
        with server.mailman() as mailman:
            assert mailman.end().code == 0
        assert NUDGE not in moving.screen


def test_the_mailman_waits_for_somebody_who_types(server: Server, alice: Window) -> None:
    carol = server.agent("carol")
    carol.becomes("ready")
    server.do("select-window", "-t", carol.pane)
    with server.person() as typing:
        typing("a")  # and takes it back at once: nothing stands there, but somebody is at it
        until(lambda: "a" in carol.screen, "the key on the screen")
        typing("\x7f")
        until(lambda: "a" not in carol.screen, "that it was taken back")
        alice.send("carol")
        with server.mailman() as mailman:
            mailman.spares("carol", "somebody is typing there")
            assert NUDGE not in carol.screen


def test_there_is_one_mailman_for_a_repository(server: Server, alice: Window) -> None:
    (server.folder / "sub").mkdir()
    with server.mailman() as mailman:
        running = f"error: mailman daemon already running (PID: {mailman.pid})\n"
        assert alice.mail("mailman") == Outcome(2, "", running)
        assert alice.mail("mailman", "--daemon") == Outcome(2, "", running)
        assert alice.mail("mailman", folder="sub") == Outcome(2, "", running)
        assert server.pid.read_text() == f"{mailman.pid}\n"


def test_a_mailman_in_the_background_is_the_process_that_it_names(
    server: Server, alice: Window
) -> None:
    carol = server.agent("carol")
    carol.becomes("ready")
    alice.send("carol")
    said = alice.mail("mailman", "--daemon")
    pid = int(server.pid.read_text())
    try:
        assert said == Outcome(0, f"Mailman daemon started in background (PID: {pid})\n", "")
        assert b"mailman" in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert os.getsid(pid) == pid
        running = f"error: mailman daemon already running (PID: {pid})\n"
        assert alice.mail("mailman", "--daemon") == Outcome(2, "", running)
        told(carol)
    finally:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not server.pid.exists(), "the end of the mailman")


def test_a_pid_of_nobody_does_not_stop_the_mailman(server: Server) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    server.pid.parent.mkdir()
    server.pid.write_text(f"{gone.pid}\n")
    with server.mailman() as mailman:
        assert server.pid.read_text() == f"{mailman.pid}\n"
        assert mailman.end() == Outcome(0, "", "Warning: Stale PID file found, cleaning up\n")


def test_a_pid_that_is_none_stops_the_mailman(server: Server, alice: Window) -> None:
    server.pid.parent.mkdir()
    server.pid.write_text("nobody\n")
    why = 'invalid PID file content: strconv.Atoi: parsing "nobody": invalid syntax'
    for words in (["mailman"], ["mailman", "--daemon"]):
        assert alice.mail(*words) == Outcome(1, "", f"error: failed to read PID file: {why}\n")
    assert server.pid.read_text() == "nobody\n"
