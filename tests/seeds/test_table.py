"""The table in docs/contracts.md and these tests say the same."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

from tests.narrow import present
from tests.seeds.conftest import Site

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "contracts.md"


def test_every_clause_has_its_row_and_every_row_its_test() -> None:
    """The table itself"""
    shown = re.findall(r"^\| (.+?) \| `(test_\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    trees = [ast.parse(file.read_text()) for file in sorted(HERE.glob("test_*.py"))]
    tests = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    there = [(ast.get_docstring(t) or "", t.name) for t in tests if t.name.startswith("test_")]
    there = [(clause, test) for clause, test in there if not clause.startswith("The table")]
    assert [(clause, test) for clause, test, _ in shown] == there
    assert len(there) > 120


def test_every_tool_and_argument_of_a_contract_is_on_its_page() -> None:
    """The tables of tools"""
    from postroom.tools.listing import load

    text = PAGE.read_text()
    for name, module in (("approval", "approval"), ("dry-run", "dry_run"), ("gmail", "gmail")):
        section = present(re.search(rf"^## `{name}`\n(.*?)^## ", text, re.MULTILINE | re.DOTALL))[1]
        rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section, re.MULTILINE)
        shown = {tool: re.findall(r"`(\w+)`", arguments) for tool, arguments in rows}
        listed = load(module)["arguments"]
        assert shown == {tool: list(checks) for tool, checks in listed.items()}


def test_the_slip_on_the_page_lets_its_letter_out(shared_site: Callable[..., Site]) -> None:
    """The tables and the sample beside them"""
    live = shared_site("approval", "live")
    sample = present(re.search(r"```markdown\n(---\n.*?---\n)```", PAGE.read_text(), re.DOTALL))[1]
    (live.person.vault / "Approved" / "sample.md").write_text(sample)
    said = live.text("send_email", to="ann@example.com", subject="Meeting notes", body="Hello.")
    assert said.startswith("Email sent successfully.")
    assert (live.person.vault / "Done" / "sample.md").exists()
