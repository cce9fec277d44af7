"""The patterns that stand in a file: each compiles, and the code names each."""

import re
from pathlib import Path

import postroom.core.mail_view
import postroom.review.tables
from postroom.review.tables import pattern, sections

NAMED = re.compile(r'pattern\("(\w+)"\)')


def test_the_review_uses_each_pattern_of_its_file_and_no_other() -> None:
    room = Path(postroom.review.tables.__file__).parent
    used = {name for module in room.glob("*.py") for name in NAMED.findall(module.read_text())}
    assert used == set(sections("patterns.txt"))
    for name in used:
        assert pattern(name).pattern


def test_each_pattern_of_quotations_is_used() -> None:
    module = Path(postroom.core.mail_view.__file__)
    rows = module.with_name("quoting.txt").read_text().splitlines()
    names = [row.split(" ", 1)[0] for row in rows if row[0] != "#"]
    code = module.read_text()
    for name in names:
        assert f'"{name}"' in code
        assert postroom.core.mail_view._pattern(name).pattern
