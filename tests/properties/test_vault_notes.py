"""Whatever a person's note looks like, a tool changes what it was asked to change, and not a byte more."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from postroom.core.errors import Corrupt, Invalid, NotFound
from postroom.vault.edit import Edit
from postroom.vault.links import key, links, mentions, stem
from postroom.vault.markdown import headings
from postroom.vault.note import Note, Typed
from tests.cases import for_each
from tests.properties.test_note_roundtrip import Pieces, bodies, notes, words, written

numbers = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False))
scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=12), words)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=4).filter(lambda k: k != "<<"), inner, max_size=3),
    ),
    max_leaves=6,
)
keys = st.text(max_size=8).filter(lambda name: name != "<<")


def whole(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)


def equal(one: Mapping[str, Typed], other: Mapping[str, Typed]) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(st.dictionaries(keys, values, max_size=5), st.text("ab-\n#: ", max_size=20))
def test_a_new_note_is_read_as_it_was_written(fields: dict[str, Typed], body: str) -> None:
    assume(whole(json.dumps(fields, ensure_ascii=False)))
    start = Note.parse(b"---\n---\n")
    note = start.revise(fields, body=body)
    assert equal(Note.parse(note.raw).values, fields)
    assert note.body == body


@given(notes(), st.integers(0, 6), values)
def test_one_value_is_changed_in_its_own_lines(made: Pieces, which: int, new: Typed) -> None:
    assume(whole(json.dumps(new, ensure_ascii=False)))
    names, blocks, gaps, newline, mark, body = made
    raw = written(blocks, gaps, newline, mark, body)
    note = Note.parse(raw)
    which %= len(names) + 1
    name = names[which].strip("\"'") if which < len(names) else "added"
    try:
        after = note.revise({name: new})
    except Corrupt:
        # An empty line behind a list or a block text would belong to what is put there.
        assert "|+" in "".join(blocks) or "\n" in gaps[min(which + 1, len(gaps) - 1)]
        return
    assert equal(after.values, {**note.values, name: new})
    assert list(after.values) == list({**note.values, name: new})
    before = "".join(b + g for b, g in zip(blocks[:which], gaps[1:], strict=False))
    behind = "".join(g + b for g, b in zip(gaps[which + 1 :], [*blocks[which + 1 :], ""], strict=False))  # fmt: skip
    text = after.raw.decode()
    assert text.startswith((mark + "---\n" + gaps[0] + before).replace("\n", newline))
    assert text.endswith(behind.replace("\n", newline) + f"---{newline}{body}")
    assert after.revise({name: new}).raw == after.raw


@given(notes())
def test_writing_back_what_was_read_changes_nothing(made: Pieces) -> None:
    _, blocks, gaps, newline, mark, body = made
    note = Note.parse(written(blocks, gaps, newline, mark, body))
    assert note.revise(note.values, [], note.body).raw == note.raw
    shuffled = dict(reversed(json.loads(json.dumps(note.values)).items()))
    assert note.revise(shuffled, [], note.body).raw == note.raw


class Core(yaml.SafeLoader):
    """YAML 1.2's core schema, by the words of its section 10.3.2."""


Core.yaml_implicit_resolvers = {}
for tag, pattern, first in (
    ("null", r"null|Null|NULL|~|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+0123456789.")),
):
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"), first)
Core.add_constructor("tag:yaml.org,2002:int", lambda loader, node: whole_number(node.value))
Core.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))


def whole_number(text: str) -> int:
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


@example("0o17")
@example("0x1F")
@example("18e51234")
@example("1e3")
@example("-.5")
@example("+12")
@example("08")
@example("12:30")
@example("2026-01-02")
@example("no")
@example("Yes")
@example(".inf")
@example("9007199254740993")
@given(st.text("0123456789abcdefoxNnutrsleTFYy.+-_:eE~", min_size=1, max_size=8))
def test_values_are_what_yamls_core_rules_say(text: str) -> None:
    assume(not re.match(r"[-:]( |$)|---|.*:$", text) and text[0] not in ":")
    try:
        expected = yaml.load(f"k: {text}", Core)["k"]
    except (yaml.YAMLError, TypeError):
        return
    found = Note.parse(f"---\nk: {text}\n---\n".encode()).values["k"]
    if isinstance(expected, float) and abs(expected) == float("inf"):
        expected = text  # which JSON cannot say
    if isinstance(expected, int) and abs(expected) > 2**53:
        expected = text
    assert (found, type(found)) == (expected, type(expected))


@given(bodies, st.integers(0, 40), st.integers(0, 40), st.text("ab\n\r", max_size=6))
def test_a_splice_touches_nothing_around_it(body: str, start: int, end: int, new: str) -> None:
    raw = f"---\na: 1\n---\n{body}".encode()
    note = Note.parse(raw)
    start, end = sorted((min(start, len(note.body)), min(end, len(note.body))))
    try:
        after = note.splice(start, end, new)
    except Corrupt:
        assert "\r" in body  # a newline put beside a lone return would make one of two
        return
    put = new.replace("\r\n", "\n").replace("\r", "\n")
    assert after.body == note.body[:start] + put + note.body[end:]
    lines, kept = re.split("\r\n|\r|\n", body), after.raw.decode().partition("---\na: 1\n---\n")[2]
    # Whole lines before and behind keep the newlines that they had.
    first = note.body[:start].count("\n")
    assert kept.startswith(body[: sum(map(len, lines[:first]))])


lines_of = st.lists(
    st.sampled_from(["# A", "## B", "## A b", "text", "", "- x", "```", "B\n===", "    ## no", "> ## q", "---"]),
    max_size=12,
).map("\n".join)  # fmt: skip


@given(lines_of, st.sampled_from(["", "A", "B", "## B", "A b"]), st.sampled_from(["append", "prepend"]))  # fmt: skip
def test_what_is_added_under_a_heading_stands_in_its_part_alone(
    body: str, heading: str, how: str
) -> None:
    note = Note.parse(body.encode()) if not body.startswith("---") else Note.parse(b"---\n---\n" + body.encode())  # fmt: skip
    edit = Edit(heading=heading)
    edit = replace(edit, append="NEW") if how == "append" else replace(edit, prepend="NEW")
    try:
        after = edit.apply(note)
    except (NotFound, Invalid):
        titles = [one.title for one in headings(note.body)]
        wanted = heading.lstrip("# ")
        assert titles.count(wanted) != 1 or heading.startswith("#")
        return
    rows = after.body.split("\n")
    assert rows.count("NEW") == 1
    rows.remove("NEW")
    assert "\n".join(rows).rstrip("\n") == note.body.rstrip("\n")
    if heading:
        title = heading.lstrip("# ")
        (part,) = [one for one in headings(note.body) if one.title == title and (not heading.startswith("#") or one.level == 2)]  # fmt: skip
        at = after.body.index("NEW")
        assert part.text <= at + 1
        behind = [one for one in headings(note.body) if one.start >= part.end]
        assert not behind or at < after.body.rindex(note.body[behind[0].start :].rstrip("\n") or "\0")  # fmt: skip


@given(st.text("[]()|#^<>: \\!`a/.%2md\n", max_size=60))
def test_the_quick_look_at_links_misses_none(text: str) -> None:
    found = {key(stem(link.target)) for link in links(text)}
    assert found <= {key(stem(name)) for name in mentions(text)}


@for_each(
    "text",
    ["[[a]]", "![[a/b.md#h|x]]", "[[a\\|b]]", "[t](a%20b.md)", "[t](<a b.md>)", "[t](a\\_b.md)", "[x]: a.md", "> [x]: a.md", "[a](x.md)[b](y.md)", "[t](a(b).md)", "[t](\na.md)"],
)  # fmt: skip
def test_the_quick_look_at_links_finds_every_form(text: str) -> None:
    found = {key(stem(link.target)) for link in links(text)}
    assert found
    assert found <= {key(stem(name)) for name in mentions(text)}
