"""What is documented exists, and what exists is documented."""

import re
from pathlib import Path

import click

from postroom.cli.main import COMMANDS, EXITS, HELP, cli
from postroom.core.errors import PostroomError
from postroom.core.language import _OPERATORS, parse
from postroom.review.tables import FINDINGS, ROWS
from tests.cases import for_each
from tests.narrow import narrow, present

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def command(name: str) -> click.Command:
    return present(cli.get_command(click.Context(cli), name))


def test_every_command_is_on_the_page_of_the_terminal_and_no_other() -> None:
    shown = set(re.findall(r"^postroom ([a-z-]+)", page("docs/terminal.md"), re.MULTILINE))
    assert shown == set(COMMANDS)


def test_the_first_line_of_a_commands_help_is_its_line_in_the_list() -> None:
    listed = cli.get_help(click.Context(cli, terminal_width=78))  # as in 80 columns
    rows = dict(re.findall(r"^  ([a-z][a-z-]*)  +(.+)$", listed, re.MULTILINE))
    assert rows == {name: (command(name).help or "").splitlines()[0] for name in COMMANDS}


@for_each("name", sorted(set(COMMANDS) - {"agentmail"}))
def test_the_help_of_a_command_fits_80_columns(name: str) -> None:
    rows = command(name).get_help(click.Context(command(name), terminal_width=78)).splitlines()
    assert all(len(row) <= 78 for row in rows)
    assert not any("INTEGER" in row for row in rows)


def test_every_help_text_belongs_to_a_command() -> None:
    service = narrow(command("service"), click.Group).commands
    assert set(HELP) == {*COMMANDS, *(f"service {name}" for name in service)}


@for_each("name", sorted(set(COMMANDS) - {"demo", "mcp", "agentmail"}))
def test_every_command_writes_json(name: str) -> None:
    found = command(name)
    several = narrow(found, click.Group).commands.values() if name == "service" else [found]
    for one in several:
        assert "--json" in {option for parameter in one.params for option in parameter.opts}


def test_the_table_of_exit_codes_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", page("docs/terminal.md"), re.MULTILINE)
    assert {kind: int(code) for code, kind in rows} == {
        kind.__name__: code for kind, code in EXITS.items()
    }
    assert all(issubclass(kind, PostroomError) for kind in EXITS)


def test_every_operator_of_the_search_language_is_explained() -> None:
    text = page("docs/search.md")
    assert [name for name in _OPERATORS if name and f"{name}:" not in text] == []


def test_every_example_query_in_the_help_parses() -> None:
    text = command("search").help or ""
    lines = [
        line.strip() for line in text.splitlines() if line.strip().startswith("postroom search")
    ]
    examples = [line.removeprefix("postroom search ").strip("'") for line in lines]
    assert len(examples) == 3
    for example in examples:
        parse(example)


def test_the_defaults_on_the_page_of_questions_are_those_of_the_settings() -> None:
    from postroom.config.settings import SETTINGS

    defaults = {setting.key: setting.default for setting in SETTINGS}
    table = page("docs/faq.md").partition("## Limits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)[1:]
    shown = {
        key: int(number)
        for numbers, keys in rows
        for key, number in zip(
            re.findall(r"`([\w.]+)`", keys), re.findall(r"\d+", numbers), strict=True
        )
    }
    assert len(shown) == 7
    assert shown == {key: defaults[key] for key in shown}


@for_each("path", PAGES)
def test_every_link_between_pages_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_readmes_commands_are_tasks() -> None:
    tasks = set(re.findall(r"^([a-z-]+):", page("Makefile"), re.MULTILINE))
    assert (
        set(re.findall(r"^make ([a-z-]+)", page("README.md"), re.MULTILINE))
        == {"demo", "test"}
        <= tasks
    )


def test_locks_name_no_registry_and_hash_everything() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        assert "://" not in text
        assert "index-url" not in text
        pinned = re.findall(r"^[a-z0-9.\[\]-]+==", text, re.MULTILINE)
        assert pinned
        assert len(pinned) == len(re.findall(r"^\S+==[^\n]*\\\n +--hash", text, re.MULTILINE))


def test_every_tool_and_every_argument_is_on_the_page_of_the_tools_and_no_other() -> None:
    from postroom.tools.contracts.postroom import CONTRACT
    from postroom.tools.listing import load

    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", page("docs/tools.md"), re.MULTILINE)
    shown = {name: set(re.findall(r"`(\w+)`", arguments)) for name, arguments in rows}
    for tool in CONTRACT.tools:
        assert shown.pop(tool.name) == set(load("postroom")["arguments"][tool.name]), tool.name
    assert not [name for name in shown if shown[name]]


def test_every_tool_of_the_vault_and_every_argument_is_on_its_page_and_no_other() -> None:
    from postroom.tools.listing import load

    rows = re.findall(r"^\| `(\w+_notes?)` \| ([^|]*) \|", page("docs/vault.md"), re.MULTILINE)
    shown = {name: re.findall(r"`(\w+)`", arguments) for name, arguments in rows}
    assert shown == {name: list(checks) for name, checks in load("vault")["arguments"].items()}


def test_every_tool_of_agent_mail_and_every_argument_is_on_its_page_and_no_other() -> None:

    from postroom.tools.contracts.agents import MESSAGE_TOOLS
    from postroom.tools.listing import load

    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) ?\|", page("docs/agents.md"), re.MULTILINE)
    shown = {name: re.findall(r"`(\w+)`", arguments) for name, arguments in rows}
    listed = load("all")["arguments"]
    assert shown == {tool.name: list(listed[tool.name]) for tool in MESSAGE_TOOLS}


def test_every_command_of_agent_mail_is_on_its_page() -> None:
    from postroom.cli.agentmail import COMMANDS as words

    shown = re.findall(r"^postroom agentmail (\w+)", page("docs/agents.md"), re.MULTILINE)
    assert set(shown) == set(words)


def test_the_help_of_each_command_of_agent_mail_has_its_flags_and_no_others() -> None:
    from postroom.cli.agentmail import COMMANDS as table

    sections = page("src/postroom/cli/texts/agentmail.txt").split("\n# ")[1:]
    shown = {part.split("\n")[0]: re.findall(r"^  --([a-z-]+)", part, re.M) for part in sections}
    assert shown == {name: flags.split() for name, (_, flags) in table.items()}


def test_what_tools_may_do_where_is_on_the_page_of_the_vault() -> None:
    from postroom.vault.folders import FILES, FOLDERS

    words = {"do everything": "all", "make notes": "create", "read": "read", "nothing": "none"}
    rows = re.findall(r"^\| (`[^|]*`) \| ([a-z ]+)", page("docs/vault.md"), re.MULTILINE)
    table = {name: words[right.strip()] for names, right in rows for name in re.findall("`([^`]+)`", names) if right.strip() in words}  # fmt: skip
    expected = {f"{row.name}/": row.tools for row in FOLDERS} | {row.name: row.tools for row in FILES}  # fmt: skip
    assert table == expected


def test_every_example_query_on_the_page_of_the_vault_is_one() -> None:
    from postroom.vault.index import _TERM, expression

    table = page("docs/vault.md").partition("| query |")[2].partition("\n\n")[0]
    examples = [example for row in re.findall(r"^\| (`.*`) \|", table, re.MULTILINE) for example in re.findall("`([^`]+)`", row)]  # fmt: skip
    assert len(examples) == 12
    assert all(map(expression, examples))
    operators = {found[2].lower() for example in examples for found in _TERM.finditer(example) if found[2]}  # fmt: skip
    assert operators == {"title", "tag", "heading", "field", "link"}


def test_every_code_of_an_error_is_on_the_page_of_the_tools() -> None:
    from postroom.core import errors

    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.PostroomError)
    ]
    assert kinds
    text = page("docs/tools.md")
    assert [kind.code for kind in kinds if f"| `{kind.code}` |" not in text] == []


def test_every_quirk_of_a_provider_has_a_test() -> None:
    from tests.gmail.emulator import GAPS

    rows = [row for row in page("docs/providers.md").splitlines() if re.search(r"`test_\w+` \|$", row)]  # fmt: skip
    named = {test for row in rows for test in re.findall(r"`(test_\w+)`", row)}
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) > 25
    assert [name for name in sorted(named) if f"\ndef {name}(" not in tests] == []
    assert {test for gap in GAPS.values() for test in gap.tests} <= named


def test_every_scope_level_is_on_the_page_of_gmail() -> None:
    (levels,) = (
        narrow(p.type, click.Choice).choices for p in command("auth").params if p.name == "scopes"
    )
    table = re.findall(r"^\| `(\w+)`(?: \(default\))? \| `gmail|^\| `(\w+)` \| the same", page("docs/gmail.md"), re.MULTILINE)  # fmt: skip
    assert [one or other for one, other in table] == list(levels)


def test_the_table_of_findings_is_the_one_in_the_code() -> None:
    table = page("docs/risk.md").partition("## Every finding\n")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ") and "| Finding |" not in row]
    assert rows == ROWS.strip().splitlines()
    assert len(FINDINGS) == len(rows)
    # Each row is used, and no line of a card is made in another way.
    code = "".join(
        page(f"src/postroom/{name}.py")
        for name in ("review/risk", "desk/exposure", "desk/verdicts")
    )
    made = {"link_returned", "link_from_mail", "number_returned", "number_from_mail"}
    used = made | {name for name in FINDINGS if f'"{name}"' in code or f"{name}=" in code}
    assert used == set(FINDINGS)
    assert code.count("Line(") == code.count("Line(rest[0].level, ") == 2


@for_each("name", ["states", "invariants"])
def test_every_state_and_every_rule_names_tests_that_exist(name: str) -> None:
    rows = [row for row in page(f"docs/{name}.md").splitlines() if re.match(r"\| [a-zA-Z]+-\d+ \|", row)]  # fmt: skip
    ids = [row.split(" | ")[0] for row in rows]
    assert len(ids) == len(set(ids)) > 10
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert [one for one in named if f"\ndef {one}(" not in tests] == [], row


def test_a_decision_has_at_most_thirty_lines() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert pages
    assert [path.name for path in pages if len(path.read_text().splitlines()) > 30] == []


def test_the_page_about_performance_stays_short() -> None:
    assert len(page("docs/performance.md").splitlines()) < 120
