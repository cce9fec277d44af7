"""The source itself: its size by room, its file lengths, and names that say what they mean."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "postroom"
MAX_LINES = 500
# Words that a reader must guess at: past participles and pronouns for values, household words for technical things.
BANNED = frozenset(
    "said told heard came theirs mine whom whoever whose errand amiss doorkeeper".split()
)


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def room(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else "(top)"


def statements() -> Counter[str]:
    count: Counter[str] = Counter()
    for path, tree in modules().items():
        count[room(path)] += sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    return count


def identifiers(tree: ast.Module) -> set[str]:
    """Return the names that a module gives: to classes, functions, parameters, variables and attributes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def test_each_room_keeps_to_the_budget_that_the_architecture_page_argues_for() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `([\w()]+)` \| ([\d,]+) \|", page, re.M)
    budget = {name: int(number.replace(",", "")) for name, number in rows}
    actual = statements()
    assert budget.keys() == actual.keys()
    assert {name: count for name, count in actual.items() if count > budget[name]} == {}


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    long = [path for path in modules() if len(path.read_text().splitlines()) > MAX_LINES]
    assert [str(path.relative_to(ROOT)) for path in long] == []


def test_each_class_has_a_name_of_its_own() -> None:
    names = [
        node.name
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_no_identifier_holds_a_banned_word() -> None:
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in modules().items()
        for name in identifiers(tree)
        if BANNED & set(re.findall("[a-z]+", re.sub("([A-Z])", r"_\1", name).lower()))
    }
    assert wrong == set()
