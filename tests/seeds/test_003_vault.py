"""Document 003, the vault server of a data model: `postroom mcp vault`, clause by clause."""

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from postroom.tools import models as vault_models
from postroom.tools.contracts import vault
from postroom.tools.table import Reply, Result, ToolContext
from tests.narrow import narrow
from tests.seeds.conftest import Site, TimedSite
from tests.seeds.test_003 import both, kinds_of_errors, wrong

INPUTS: dict[str, dict[str, str | None]] = {
    "read_note": {"path": "string"},
    "write_note": {"path": "string", "frontmatter": "object", "body": "string"},
    "list_notes": {"directory": "string", "filter": None},
    "move_note": {"source": "string", "destination": "string"},
    "search_notes": {"query": "string"},
}


@pytest.fixture
def site(shared_site: Callable[..., Site]) -> Site:
    return shared_site("vault", "live")


@pytest.fixture
def place(site: Site, request: pytest.FixtureRequest) -> str:
    """A folder of this test's own."""
    name = re.sub(r"\W+", "_", request.node.name.removeprefix("test_"))[:60]
    (site.person.vault / name).mkdir(exist_ok=True)
    return name


def seen(site: Site, tool: str, expected: list[str], **arguments: str) -> dict[str, Any]:
    """Return what a list says once it has these paths: what others write is seen a moment later."""
    deadline = time.monotonic() + 10
    while True:
        said = both(site.call(tool, **arguments))
        found = [note["path"] for note in said["notes"]]
        if found == expected or time.monotonic() > deadline:
            assert found == expected
            return narrow(said, dict)


def file(site: Site, path: str, text: str) -> Path:
    there = site.person.vault / path
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(text.encode())
    return there


# 3. Inputs


def test_the_five_tools_of_the_vault_and_their_inputs(site: Site) -> None:
    """003 §3 Input Models"""
    tools = site.agent.tools()
    for name, fields in INPUTS.items():
        schema = tools[name].input_schema
        shown = {field: schema["properties"][field].get("type") for field in fields}
        assert shown == fields
        assert set(schema.get("required", [])) == set(fields) - {"filter"}
    assert tools["list_notes"].input_schema["properties"]["filter"]["anyOf"][1] == {"type": "null"}
    assert set(tools) == {*INPUTS, "edit_note"}


def optional_fields(model: type[BaseModel | Result]) -> dict[str, bool]:
    """Return the fields of a model or a result, and whether each may be left out."""
    if issubclass(model, Result):
        return {name: name in model._field_defaults for name in model._fields}
    return {name: not field.is_required() for name, field in model.model_fields.items()}


def test_the_vaults_models_have_the_documents_names_and_fields() -> None:
    """003 §3, §4 models"""
    documented = {
        "ReadNoteInput": ["path"],
        "WriteNoteInput": ["path", "frontmatter", "body"],
        "ListNotesInput": ["directory", "filter"],
        "MoveNoteInput": ["source", "destination"],
        "SearchNotesInput": ["query"],
        "NoteContent": ["path", "frontmatter", "body"],
        "NoteList": ["notes"],
        "NoteMatch": ["path", "snippet"],
    }
    for name, fields in documented.items():
        model = getattr(vault_models if name.endswith("Input") else vault, name)
        optional = optional_fields(model)
        assert [field for field in optional if field in fields] == fields
        # What goes beyond the document may be left out.
        more = [field for field in optional if field not in fields]
        assert not [f for f in more if f not in ("etag", "total") and not optional[f]]
    assert vault.NoteMatch._field_defaults["snippet"] is None
    assert vault_models.ListNotesInput.model_fields["filter"].default is None


# 4. Outputs


def test_write_note_makes_a_note(site: Site, place: str) -> None:
    """003 §3 WriteNoteInput, created if not exists"""
    path = f"{place}/deep/er/new.md"
    said = both(
        site.call("write_note", path=path, frontmatter={"status": "pending"}, body="# Hi\n")
    )
    assert (said["path"], said["frontmatter"], said["body"]) == (path, {"status": "pending"}, "# Hi\n")  # fmt: skip
    assert (site.person.vault / path).read_text() == "---\nstatus: pending\n---\n# Hi\n"


@pytest.mark.parametrize("fields", [{}, {"a": 1, "b": 1.5, "c": True, "d": None, "e": "no", "f": "2026-01-01", "g": ["x", 2, []], "h": {"i": {"j": "012"}}, "k": "#: '\"\n", "ü: 1": ""}])  # fmt: skip
@pytest.mark.parametrize(
    "body", ["", "text", "\n\ntwo\n", "---\nnot: yaml\n---\n", "日本 😀 \\ `x`\n"]
)
def test_read_note_gives_back_what_was_written(
    site: Site, place: str, fields: dict[str, Any], body: str
) -> None:
    """003 Vault Note State, round-trips correctly"""
    path = f"{place}/{abs(hash((str(fields), body))) % sys.maxsize}.md"
    written = both(site.call("write_note", path=path, frontmatter=fields, body=body))
    read = both(site.call("read_note", path=path))
    assert read == written
    assert (read["path"], read["frontmatter"], read["body"]) == (path, fields, body)


def test_list_notes_lists_a_folder(site: Site, place: str) -> None:
    """003 §4 NoteList"""
    for name in ("b", "a"):
        file(site, f"{place}/{name}.md", "x")
    file(site, f"{place}/picture.png", "x")
    said = seen(site, "list_notes", [f"{place}/a.md", f"{place}/b.md"], directory=place)
    assert said["notes"] == [{"path": f"{place}/a.md"}, {"path": f"{place}/b.md"}]
    assert said["total"] == 2


def test_list_notes_filters_by_a_field(site: Site, place: str) -> None:
    """003 §3 Filter syntax, field:value"""
    for name, head in {
        "plain": "status: pending",
        "quoted": 'status: "pending"',
        "other": "status: done",
        "longer": "status: pending_approval",
        "list": "status: [pending, x]",
        "none": "title: pending",
    }.items():
        file(site, f"{place}/{name}.md", f"---\n{head}\n---\npending\n")
    expected = [f"{place}/{name}.md" for name in ("list", "plain", "quoted")]
    seen(site, "list_notes", expected, directory=place, filter="status:pending")


def test_several_conditions_are_joined_by_and(site: Site, place: str) -> None:
    """003 §3 Filter syntax, several"""
    file(site, f"{place}/both.md", "---\nstatus: pending\ntags: [work, tea]\nn: 012\n---\n")
    file(site, f"{place}/one.md", "---\nstatus: pending\ntags: home\nid: 18e51234\n---\n")
    for wanted, found in {
        "status:pending AND tags:work": ["both"],
        "tags:tea AND n:012": ["both"],
        "id:18e51234": ["one"],
        "n:12": ["both"],
        'status : "pending"': ["both", "one"],
        "status:pending AND tags:none": [],
    }.items():
        expected = [f"{place}/{name}.md" for name in found]
        seen(site, "list_notes", expected, directory=place, filter=wanted)


def test_move_note_moves(site: Site, place: str) -> None:
    """003 Vault Note State, move_note"""
    for name, body in (("old", "x\n"), ("other", f"See [[{place}/old]].\n")):
        both(site.call("write_note", path=f"{place}/{name}.md", frontmatter={"a": 1}, body=body))
    said = both(site.call("move_note", source=f"{place}/old.md", destination=f"{place}/to/new.md"))
    assert (said["moved"], said["links"]) == (True, 1)
    assert both(site.call("read_note", path=f"{place}/to/new.md"))["body"] == "x\n"
    assert wrong(site.call("read_note", path=f"{place}/old.md"))["error"] == "not_found"
    assert not (site.person.vault / place / "old.md").exists()
    other = both(site.call("read_note", path=f"{place}/other.md"))
    assert other["body"] == f"See [[{place}/to/new]].\n"


def test_search_notes_finds_bodies_and_fields_with_a_snippet(site: Site, place: str) -> None:
    """003 §3 SearchNotesInput, §4 NoteMatch"""
    file(site, f"{place}/body.md", f"Before.\n{'long ' * 60}the Zürich word {'tail ' * 60}\n")
    file(site, f"{place}/field.md", "---\ncity: Zürich\n---\nNothing here.\n")
    said = seen(
        site, "search_notes", [f"{place}/{name}.md" for name in ("field", "body")], query="zurich"
    )
    found = {note["path"]: note["snippet"] for note in said["notes"]}
    assert set(found) == {f"{place}/body.md", f"{place}/field.md"}
    assert "Zürich" in found[f"{place}/body.md"]
    assert found[f"{place}/field.md"] == "city: Zürich"
    assert max(map(len, found.values())) <= 160


def test_search_notes_looks_into_bodies_and_into_every_frontmatter_value(
    site: Site, place: str
) -> None:
    """003 §3 SearchNotesInput, text to search for in note body or frontmatter values"""
    file(site, f"{place}/text.md", "Oleander stands here.\n")
    file(site, f"{place}/value.md", "---\ntitle: The oleander\n---\nNothing.\n")
    file(site, f"{place}/list.md", "---\ntags: [rose, oleander]\n---\nNothing.\n")
    file(site, f"{place}/other.md", "---\ntags: [rose]\n---\nNothing.\n")
    ranked = [f"{place}/{name}.md" for name in ("value", "list", "text")]
    seen(site, "search_notes", ranked, query="oleander")


# 5. Errors


def test_a_note_that_is_not_there(site: Site, place: str) -> None:
    """003 §5 not_found, note"""
    for tool, more in {
        "read_note": {"path": f"{place}/none.md"},
        "edit_note": {"path": f"{place}/none.md", "append": "x"},
        "move_note": {"source": f"{place}/none.md", "destination": f"{place}/b.md"},
        "list_notes": {"directory": f"{place}/none"},
    }.items():
        error = wrong(site.call(tool, **more))
        assert error["error"] == "not_found", tool
        assert "none" in error["message"]


@pytest.mark.parametrize("path", ["../out.md", "/etc/passwd", "a/../../out.md", "C:\\x.md"])
def test_a_path_outside_the_vault(site: Site, path: str) -> None:
    """003 §5 permission_denied, outside VAULT_PATH"""
    calls: dict[str, dict[str, object]] = {
        "read_note": {"path": path},
        "write_note": {"path": path, "frontmatter": {}, "body": "x"},
        "move_note": {"source": path, "destination": "x.md"},
        "list_notes": {"directory": path},
    }
    for tool, more in calls.items():
        error = wrong(site.call(tool, **more))
        assert error["error"] == "permission_denied", tool
        assert error["details"]["remedy"]


@pytest.mark.parametrize(
    ("head", "where"),
    [
        ("a: 1\na: 2", "Line 3, column 1"),
        ("a: &x 1\nb: *x", "Line 3, column 4"),
        ("a: [1, 2", "Line 3, column 1"),
        ("a: 1\n b: 2", "Line 3, column 3"),
        ("- a\n- b", "Line 2, column 1"),
        ("a: {", "Line 3, column 1"),
        ("a: \x01", "Line 2, column 4"),
    ],
)
def test_corrupt_frontmatter(site: Site, place: str, head: str, where: str) -> None:
    """003 §5 parse_error"""
    path = f"{place}/broken.md"
    there = file(site, path, f"---\n{head}\n---\nBody.\n")
    before = there.read_bytes()
    for tool, more in {
        "read_note": {},
        "write_note": {"frontmatter": {}, "body": "x", "if_match": "x"},
        "edit_note": {"set": {"a": 1}, "if_match": "x"},
    }.items():
        error = wrong(site.call(tool, path=path, **more))
        assert error["error"] == "parse_error"
        assert where in error["message"]
        assert there.read_bytes() == before
    assert seen(site, "list_notes", [path], directory=place)["unreadable"] == [path]


def test_conflict_tells_the_etag_of_what_is_there(site: Site, place: str) -> None:
    """003 write_note takes no version"""
    path = f"{place}/note.md"
    there = file(site, path, "one\n")
    error = wrong(site.call("write_note", path=path, frontmatter={}, body="mine"))
    assert error["error"] == "conflict"
    assert there.read_text() == "one\n"
    tag = error["details"]["etag"]
    there.write_text("two\n")  # a person types
    assert wrong(site.call("write_note", path=path, frontmatter={}, body="mine", if_match=tag))["error"] == "conflict"  # fmt: skip
    read = both(site.call("read_note", path=path))
    both(site.call("write_note", path=path, frontmatter={}, body="mine\n"))
    both(site.call("write_note", path=path, frontmatter={}, body="again\n"))
    assert wrong(site.call("edit_note", path=path, append="x", if_match=read["etag"]))["error"] == "conflict"  # fmt: skip
    assert there.read_text() == "again\n"


def test_every_error_of_the_vault_has_one_of_the_documents_codes_or_conflict(
    start_office_site: Callable[..., TimedSite],
) -> None:
    """003 §5 MCPErrorCode, Error Taxonomy, vault"""
    problems = kinds_of_errors()

    def read_note(_context: ToolContext, *, path: str, **_more: object) -> Reply:
        """Fail as the path says."""
        raise problems[path]

    (tool,) = (one for one in vault.CONTRACT.tools if one.name == "read_note")
    failing = vault.CONTRACT._replace(tools=(tool._replace(function=read_note),))
    site = start_office_site(failing, lambda box: box)
    codes = {name: wrong(site.call("read_note", path=name))["error"] for name in problems}
    assert codes == {
        "a bug": "internal_error",
        "PostroomError": "internal_error",
        "Invalid": "parse_error",
        "NotFound": "not_found",
        "Denied": "permission_denied",
        "Limited": "rate_limited",
        "AuthRequired": "auth_required",
        "Conflict": "conflict",
        "Unavailable": "internal_error",
        "Uncertain": "internal_error",
        "Corrupt": "parse_error",
    }
