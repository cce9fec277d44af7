"""The tool calls that the scripted model of each client makes, one after the other.

Standard library only: the scripts beside this file import it in virtual environments of their own.
"""

import re
from collections.abc import Sequence
from typing import Any

SEARCH: dict[str, Any] = {"query": "from:dora", "limit": 5}
LETTER: dict[str, Any] = {
    "to": ["ann@example.org"],
    "subject": "Hello",
    "body": "Good day, Ann.",
}
NOTE: dict[str, Any] = {
    "path": "Plans/Ann.md",
    "frontmatter": {"status": "open"},
    "body": "Ask Ann about the figures.",
}
PROMPT = "Search my mail, write to Ann, and make a note."
LAST_WORDS = "All done."


def next_call(results: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the arguments of the next tool to call, or None when all calls are made.

    `results` are the answers to the calls so far, as the client shows them to its model.
    """
    match len(results):
        case 0:
            return "search_email", SEARCH
        case 1:
            return "send_email", LETTER
        case 2:
            return "letter_status", {"id": letter_in(results[1])}
        case 3:
            return "write_note", NOTE
    return None


def letter_in(answer: str) -> str:
    """Return the id of the letter that send_email's answer names, or an empty text."""
    found = re.search(r"Letter ([a-z2-7]{10}) waits", answer)
    return found[1] if found else ""
