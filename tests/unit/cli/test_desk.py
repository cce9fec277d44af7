"""`postroom desk`: what it prints, how it ends, and that its secret stays with the person."""

import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals

import httpx2
import pytest

from postroom.cli.main import run
from tests.agents import visiting
from tests.conftest import Person
from tests.narrow import narrow, present
from tests.unit.web.browser import until


@pytest.fixture
def made(person: Person) -> Person:
    person.live(undo_seconds=0)
    assert person.run("init").code == 0
    return person


@contextmanager
def desk(
    person: Person, *options: str, ends: Signals = signal.SIGINT
) -> Iterator[tuple[dict[str, str], subprocess.Popen[bytes]]]:
    """Let a desk be served; lend what it printed, and the process."""
    process = person.start("desk", "--json", "--port", "0", *options)
    try:
        text = b""
        while b"}" not in text:
            line = present(process.stdout).readline()
            assert line, present(process.stderr).read().decode()
            text += line
        yield json.loads(text), process
    finally:
        if process.poll() is None:
            process.send_signal(ends)
        process.communicate(timeout=30)


def enter(printed: dict[str, str]) -> str:
    """Sign in as a browser does; return what the queue says."""
    address, origin = printed["sign_in"], printed["address"]
    with httpx2.Client(base_url=origin, follow_redirects=True, trust_env=False) as client:
        assert client.get(address).status_code == 200
        ticket = address.rpartition("/")[2]
        answer = client.post("/in", data={"ticket": ticket}, headers={"origin": origin})
        assert answer.status_code == 200, answer.text
        return answer.text + client.get("/health").text


def free(person: Person) -> bool:
    """Whether no process serves the page."""
    for file in (person.folder / "state").rglob("page.lock"):
        with file.open() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return True


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end_and_leaves_nothing_behind(
    made: Person, ends: Signals
) -> None:
    made.draft(subject="For the desk")
    with desk(made, "--as", "Grace H.", ends=ends) as (printed, process):
        assert set(printed) == {"address", "sign_in", "person"}
        assert printed["person"] == "Grace H."
        assert printed["sign_in"].startswith(printed["address"] + "/in/")
        assert printed["address"].startswith("http://127.0.0.1:")
        said = enter(printed)
        assert "For the desk" in said
        assert "Grace H." in said
        assert "postroom run" in said
        assert not free(made)
    assert process.returncode == 0
    assert free(made)
    with desk(made) as (again, _):
        assert enter(again)


def test_who_asks_a_second_time_gets_a_new_address_of_the_page_that_is_served(made: Person) -> None:
    with desk(made) as (first, _):
        again = made.run("desk", "--json", "--as", "bob")
        assert again.code == 0, again.err
        assert again.json["address"] == first["address"]
        assert again.json["sign_in"] != first["sign_in"]
        assert "bob" in enter(again.json)
        assert enter(first)
        refused = made.run("desk", "--json", "--port", "0")
        assert refused.code == 7
        assert first["address"] in refused.err


def test_a_desk_that_was_killed_is_served_again(made: Person) -> None:
    with desk(made, ends=signal.SIGKILL):
        pass
    with desk(made) as (printed, _):
        assert enter(printed)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--host", "0.0.0.0"], 2, "all addresses"),
        (["--host", "::"], 2, "all addresses"),
        (["--port", "65536"], 2, "65536"),
        (["--port", "-1"], 2, "-1"),
        (["--host", "no.such.host.example.invalid"], 2, "is not an address of this machine"),
        (["--as", ""], 2, "not a name"),
        (["--as", "  "], 2, "not a name"),
        (["--as", "nobody"], 2, "not a name"),
        (["--as", "a\nb"], 2, "not a name"),
        (["--as", "a\u202eb"], 2, "not a name"),
        (["--as", "\x1b[31mred"], 2, "not a name"),
        (["--as", "x" * 65], 2, "not a name"),
        (["--origin", "desk.example.org"], 2, "--origin"),
        (["--origin", "https://desk.example.org/path"], 2, "--origin"),
        (["--origin", "ftp://desk.example.org"], 2, "--origin"),
        (["--origin", "https://user@desk.example.org"], 2, "--origin"),
        (["--origin", "https://*"], 2, "--origin"),
        (["--origin", "null"], 2, "--origin"),
        (["--origin", "https://a.example\nX: y"], 2, "--origin"),
        (["--origin", "https://desk.example.org"], 4, "passphrase"),
    ],
    ids=lambda value: " ".join(value)[:40].encode("ascii", "backslashreplace").decode() if isinstance(value, list) else None,
)  # fmt: skip
def test_what_would_be_unsafe_or_means_nothing_is_refused(
    person: Person,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    said: str,
) -> None:
    for name, value in person.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(person.folder)
    person.vault.mkdir()
    if "--port" not in options:
        options = ["--port", "0", *options]
    assert run(["desk", "--json", *options]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    error = json.loads(shown.err.strip().splitlines()[-1])["error"]
    assert said in error["message"]
    assert error["remedy"]
    assert free(person)


def test_a_port_that_is_taken_is_said(made: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = made.run("desk", "--port", str(taken.getsockname()[1]))
    assert refused.code == 8
    assert "Cannot listen on" in refused.err
    assert free(made)


def test_without_a_desk_the_remedy_is_named(person: Person) -> None:
    refused = person.run("desk", "--json", "--port", "0")
    assert refused.code == 3
    assert "postroom init" in refused.err


def commands() -> bytes:
    """Return the command line of every process that can be looked at."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes())
        except OSError:
            continue
    return b"\n".join(found)


def test_the_address_that_works_once_stands_in_no_list_of_processes(made: Person) -> None:
    script = made.folder / "browser"
    seen = made.folder / "seen"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}.part\nmv {seen}.part {seen}\nwhile [ ! -e {seen}.done ]; do sleep 0.1; done\n')  # fmt: skip
    script.chmod(0o700)
    made.environment["BROWSER"] = str(script)
    with desk(made, "--open") as (printed, process):
        until(seen.exists)
        ticket = printed["sign_in"].rpartition("/")[2]
        assert ticket.encode() not in commands()
        (given,) = seen.read_text().split()
        assert given.startswith("file://")
        file = Path(given.removeprefix("file://"))
        assert ticket in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.stat().st_uid == os.getuid()
        assert ticket not in Path(f"/proc/{process.pid}/environ").read_text()
        (made.folder / "seen.done").touch()
    assert not file.exists()


def test_without_a_browser_the_address_is_printed_all_the_same(made: Person) -> None:
    made.environment["PATH"] = "/nonexistent"
    with desk(made, "--open") as (printed, _):
        assert enter(printed)


def test_doctor_has_all_its_checks_and_the_budget(made: Person) -> None:
    found = made.run("doctor", "--json")
    checks = {one["part"]: one for one in found.json["checks"]}
    parts = {"settings", "mode", "vault", "state", "ledger", "trust", "budget", "log", "account", "mail", "delivery", "handbook", "run"}  # fmt: skip
    assert parts <= set(checks)
    assert checks["budget"] == {"part": "budget", "verdict": "ok", "found": "0 of 10 letters this hour", "remedy": ""}  # fmt: skip
    assert all(set(one) == {"part", "verdict", "found", "remedy"} for one in found.json["checks"])


def test_doctor_says_in_rehearsal_that_nothing_is_sent(person: Person) -> None:
    assert person.run("init").code == 0
    for live in (False, True):
        if live:
            person.live()
        found = person.run("doctor", "--json").json["checks"][-1]["found"]
        assert ("rehearsal" in found) is not live
        assert ("postroom approve" in found) is live


def test_the_orchestrator_runs_on_where_the_pages_port_is_taken(person: Person) -> None:
    person.live()
    assert person.run("init").code == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = person.folder / ".config" / "postroom" / "postroom.toml"
        port = taken.getsockname()[1]
        settings.write_text(f"{settings.read_text()}\n[desk]\nport = {port}\n")
        process = person.start("run", "--desk", "--json")
        try:
            events = []
            while "watching" not in events:
                line = present(process.stdout).readline()
                assert line, present(process.stderr).read()
                events.append(json.loads(line)["event"])
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert "trouble" in events


def test_the_orchestrator_serves_the_page_and_its_log_lets_nobody_in(person: Person) -> None:
    person.live()
    assert person.run("init").code == 0
    settings = person.folder / ".config" / "postroom" / "postroom.toml"
    settings.write_text(f"{settings.read_text()}\n[desk]\nport = 0\n")
    process = person.start("run", "--desk", "--json")
    try:
        lines: list[str] = []
        while not any('"desk"' in line for line in lines):
            lines.append(present(process.stdout).readline().decode())
            assert lines[-1], present(process.stderr).read()
        address = json.loads(lines[-1])["address"]
        invited = person.run("desk", "--json")
        assert invited.code == 0
        assert invited.json["address"] == address
        assert person.run("status", "--json").json["desk"] == address
    finally:
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert "/in/" not in "".join(lines) + out.decode() + err.decode()


# Notices of new letters


def proposed(person: Person, body: str = "At four.") -> str:
    """Let an agent write a letter and return its id."""
    with visiting(person) as agent:
        done = agent.done("send_email", to=["ann@example.com"], subject="Tea?", body=body)
    return narrow(done["letter"], str)


def test_a_notice_leads_to_the_letter_where_the_page_is_served(made: Person) -> None:
    tell = ["sh", "-c", "cat > told.new && mv told.new told.json"]
    settings = made.folder / ".config" / "postroom" / "postroom.toml"
    settings.write_text(f"{settings.read_text()}\n[notify]\ncommand = {json.dumps(tell)}\n")
    told = made.folder / "told.json"
    with desk(made) as (printed, _):
        id = proposed(made)
        until(told.exists)
        found = json.loads(told.read_text())
        assert found == {
            "letter": id,
            "agent": "claude",
            "to": ["ann@example.com"],
            "subject": "Tea?",
            "page": f"{printed['address']}/letter/{id}",
        }
        with httpx2.Client(follow_redirects=True, trust_env=False) as stranger:
            page = stranger.get(found["page"])
            assert "Tea?" not in page.text  # it lets nobody in
            assert page.status_code == 401
    told.unlink()
    proposed(made, "At five.")
    until(told.exists)
    assert "page" not in json.loads(told.read_text())


def test_the_desktop_s_notice_names_the_page_and_never_what_the_letter_says(made: Person) -> None:
    programs = made.folder / "programs"
    programs.mkdir()
    shown = made.folder / "shown"
    (programs / "notify-send").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shown}.new\nmv {shown}.new {shown}\n')  # fmt: skip
    (programs / "notify-send").chmod(0o700)
    made.environment |= {"DISPLAY": ":9", "PATH": f"{programs}:{made.environment['PATH']}"}
    with desk(made, "--no-open") as (printed, _):
        id = proposed(made)
        until(shown.exists)
    text = shown.read_text()
    assert f"{printed['address']}/letter/{id}" in text
    assert "Tea?" in text
    assert "At four" not in text
