"""A vault of fifty thousand notes, as people have them, over the server itself."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bench import notes
from tests.agents import Visitor, visiting
from tests.conftest import Person

COUNT = 50_000
Large = tuple[Person, Visitor]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    person = Person(tmp_path_factory.mktemp("large"))
    for _ in notes.write(person.vault, COUNT):
        pass
    with visiting(person, "vault", read_timeout_seconds=300) as agent:
        deadline = time.monotonic() + 240
        while (said := agent.call("list_notes", directory="")).raw.is_error:
            assert "is being made" in said.text
            assert time.monotonic() < deadline
        yield person, agent


def paths(said: Mapping[str, Any]) -> list[str]:
    return [note["path"] for note in said["notes"]]


@pytest.mark.timeout(400)
def test_all_are_listed_and_every_word_is_found_where_grep_finds_it(large: Large) -> None:
    person, agent = large
    assert agent.done("list_notes", directory="")["total"] == COUNT
    for words in (notes.RARE, notes.PHRASE, "quay"):
        grep = ["grep", "-rlw", "--include=*.md", words, str(person.vault)]
        lines = subprocess.run(grep, check=True, capture_output=True, text=True).stdout.splitlines()
        said = agent.done("search_notes", query=f'"{words}"')
        assert said["total"] == len(lines) > 10
        assert set(paths(said)) <= {line.removeprefix(f"{person.vault}/") for line in lines}


@pytest.mark.timeout(400)
def test_a_filter_leads_through_all_of_its_notes(large: Large) -> None:
    _, agent = large
    found: list[str] = []
    cursor = ""
    while True:
        said = agent.done("list_notes", directory="", filter=notes.FILTER, cursor=cursor)
        found += paths(said)
        cursor = said.get("cursor", "")
        if not cursor:
            break
    assert said["total"] == len(found) == len(set(found)) == COUNT // 100
    assert set(found) == {notes.note(n).path for n in range(3, COUNT, 100)}


@pytest.mark.timeout(400)
def test_a_move_takes_the_links_of_all_that_point_to_it(large: Large) -> None:
    person, agent = large
    target = notes.note(0)
    linking = [n for n in range(1, COUNT) if f"[[{target.title}]]" in notes.note(n).text]
    said = agent.done("move_note", source=target.path, destination="Moved/Elsewhere.md")
    assert said["links"] == len(linking) > 3
    for n in linking:
        text = (person.vault / notes.note(n).path).read_text()
        assert "[[Elsewhere]]" in text
        assert text == notes.note(n).text.replace(f"[[{target.title}]]", "[[Elsewhere]]")
    assert paths(agent.done("search_notes", query="title:elsewhere")) == ["Moved/Elsewhere.md"]
