"""What docs/operations.md says to do after something was lost, step by step."""

import json
from pathlib import Path

import pytest

from tests.conftest import Person

LETTER = "From ann@example.com Mon Nov 16 10:00:00 2026\nFrom: ann@example.com\nTo: you@example.org\nSubject: Tea\nMessage-ID: <tea@example.com>\n\nAt four?\n"


@pytest.fixture
def person(person: Person) -> Person:
    person.environment.pop("POSTROOM_STATE", None)
    person.live(trust="desk", undo_seconds=0)
    words = [("A new passphrase: ", "open sesame\n"), ("Once more: ", "open sesame\n")]
    assert person.at_terminal("init", answers=words).code == 0
    (person.folder / "all.mbox").write_text(LETTER)
    assert person.run("import", "all.mbox").code == 0
    return person


def state_folder(person: Person) -> Path:
    checks = json.loads(person.run("doctor", "--json").out)["checks"]
    (found,) = (check["found"] for check in checks if check["part"] == "state")
    return Path(found)


def test_after_a_lost_passphrase_a_new_ledger_begins_and_mail_stays(person: Person) -> None:
    id = person.draft()
    old = state_folder(person).rename(person.folder / "old")
    assert person.run("status").code == 4
    assert person.at_terminal("adopt", answers=[("[y/N]", "y\n")]).code == 0
    new = state_folder(person)
    (old / "mail").rename(new / "mail")
    words = [("A new passphrase: ", "another word\n"), ("Once more: ", "another word\n")]
    assert person.at_terminal("init", "--passphrase", answers=words).code == 0
    assert "Tea" in person.run("search", "from:ann").out
    # The letter that waited is a note that can no longer be approved.
    assert "belongs to another desk" in person.run("pending").err
    assert person.run("show", id).code == 3
    other = person.draft("other")
    wrong = person.at_terminal("approve", other, answers=[("[y/N]", "y\n"), ("Passphrase: ", "open sesame\n")])  # fmt: skip
    assert "not the passphrase" in wrong.out
    right = person.at_terminal("approve", other, answers=[("[y/N]", "y\n"), ("Passphrase: ", "another word\n")])  # fmt: skip
    assert (right.code, person.show(other)["state"]) == (0, "sent")
