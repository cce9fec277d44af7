"""The demo in a real terminal of 80x24, before somebody who is in a hurry."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.tmux import Server, Window, until


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    """A shell in a terminal of 80x24."""
    server = Server(tmp_path)
    window = server.window("demo", "sh")
    server.do("resize-window", "-t", window.pane, "-x", "80", "-y", "24")
    yield window
    server.end()


def test_who_presses_enter_all_the_time_ends_nothing_and_decides_nothing(window: Window) -> None:
    window.type(f"{shlex.quote(sys.executable)} -m postroom demo; echo CODE=$?", "Enter")
    until(lambda: "This is Postroom" in window.screen, "the first scene")

    def is_asked_to_decide() -> bool:
        window.type("Enter")
        return "Type a command, such as `reject" in window.screen

    until(is_asked_to_decide, "the first letter to decide")
    window.type(*["Enter"] * 20)
    window.types("audit --limit 9")
    window.type("Enter")
    until(lambda: "send_email" in window.screen, "the log")
    assert "reject_letter" not in window.screen
    assert "approve_letter" not in window.screen
    window.type("quit", "Enter")
    until(lambda: "CODE=0" in window.screen, "its end")
    assert "is removed." in " ".join(window.screen.split())


def test_a_first_scene_is_seen_whole_however_much_is_typed_meanwhile(window: Window) -> None:
    window.type(f"clear; {shlex.quote(sys.executable)} -m postroom demo", "Enter")
    until(lambda: "This is Postroom" in window.screen, "the first scene")
    window.type(*["x"] * 50)
    until(lambda: "Enter goes on" in window.screen, "its end")
    rows = window.screen.splitlines()
    assert any("This is Postroom" in row for row in rows)
    assert "xxx" not in window.screen
