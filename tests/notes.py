"""An agent at the vault server for tests, and the folder that it writes to."""

import json
import time
from pathlib import Path
from typing import Any

from tests.agents import Visitor
from tests.conftest import Person


class Notes:
    """An agent at the vault server, and the folder on the disk."""

    def __init__(self, person: Person, agent: Visitor) -> None:
        self.person, self.agent, self.root = person, agent, person.vault

    def call(self, tool: str, **arguments: object) -> tuple[dict[str, Any], bool]:
        answer = self.agent.call(tool, **arguments)
        assert json.loads(answer.text) == answer.values
        return answer.values, answer.raw.is_error

    def done(self, tool: str, **arguments: object) -> dict[str, Any]:
        said, refused = self.call(tool, **arguments)
        assert not refused, said
        return said

    def refused(self, tool: str, **arguments: object) -> dict[str, Any]:
        said, refused = self.call(tool, **arguments)
        assert refused, said
        return said

    def file(self, path: str, text: bytes | str) -> Path:
        there = self.root / path
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(text if isinstance(text, bytes) else text.encode())
        return there

    def found(self, query: str, expected: list[str] | None = None, **more: object) -> list[str]:
        """Return the paths that a search finds, once they are these: edits outside are seen soon."""
        return self._until("search_notes", expected, query=query, **more)

    def listed(
        self, directory: str = "", expected: list[str] | None = None, **more: object
    ) -> list[str]:
        return self._until("list_notes", expected, directory=directory, **more)

    def _until(self, tool: str, expected: list[str] | None, **arguments: object) -> list[str]:
        deadline = time.monotonic() + 10
        while True:
            paths = [note["path"] for note in self.done(tool, **arguments)["notes"]]
            if expected is None or paths == expected or time.monotonic() > deadline:
                assert expected is None or paths == expected
                return paths
