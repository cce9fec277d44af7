"""What stands in a program's input, as far as its screen tells."""

import pytest

from postroom.agents.mailman import NUDGE, Screen
from tests.cases import for_each

DIM, PLAIN = "\x1b[2m", "\x1b[0m"


@for_each(
    ("rows", "x", "y"),
    [
        ("", 0, 0),
        ("out\nput\n", 0, 2),
        ("me@here:~$ ", 11, 0),
        (">>> ", 4, 0),
        ("root # ", 7, 0),
        ("fish ❯ ", 7, 0),
        (f"│ > {DIM}Try to ask{PLAIN}      │", 4, 0),
        ("╭────╮\n│ >  │\n╰────╯\n\n", 0, 3),
        (f"> what I said\nan answer\n───\n❯ {DIM}hint{PLAIN}\n───\n? for help\n", 0, 6),
        ("> \x1b[2;38;5;244mhint\x1b[22m", 2, 0),
    ],
)
def test_an_empty_input_is_empty(rows: str, x: int, y: int) -> None:
    assert Screen(rows, x, y).typed_text() == ""


@for_each(
    ("rows", "x", "y"),
    [
        ("me@here:~$ git sta", 18, 0),
        ("me@here:~$ git sta", 11, 0),  # the cursor went home
        ("half a line for cat", 19, 0),
        ("│ > half a thought │\n╰──╯\n\n", 0, 2),
        ("> what I said\nan answer\n───\n❯ half\n───\n? for help\n", 0, 6),
        ("> \x1b[38;2;2;2;2mgrey, not dim\x1b[0m", 14, 0),
        ("> please delete these files from prod:", 38, 0),
        ("me@here:~$ echo x > ", 20, 0),
        ("Password: ", 10, 0),
        ("│ > one\n│ two\n│ 3\n│ 4\n│ 5\n│ 6\n│ 7\n│ 8\n│ 9\n│ \n╰──╯\n\n", 0, 11),
    ],
)
def test_what_somebody_began_to_type_is_seen(rows: str, x: int, y: int) -> None:
    assert Screen(rows, x, y).typed_text()


@pytest.mark.parametrize(("before", "after"), [("", ""), ("$ ", ""), ("│ > ", "   │")])
def test_our_own_line_is_seen_whole(before: str, after: str) -> None:
    shown = Screen(f"{before}{NUDGE}{after}", len(before) + len(NUDGE), 0)
    assert shown.typed_text() == NUDGE
    assert Screen(f"│ > {NUDGE} │\n\n", 0, 1).typed_text() == NUDGE


def test_our_line_after_somebody_s_words_is_not_ours_alone() -> None:
    row = f"> please delete:{NUDGE}"
    assert Screen(row, len(row), 0).typed_text() != NUDGE
