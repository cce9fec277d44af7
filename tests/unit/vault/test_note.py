"""A note keeps every byte that nobody asked to change, and what it cannot read it names and leaves alone."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import count

import pytest

from postroom.core.errors import Corrupt, Invalid
from postroom.vault.markdown import fence, quote, sections
from postroom.vault.note import Note, Typed, render
from tests.cases import for_each
from tests.fences import fenced
from tests.growth import assert_linear

NUMBERS = count()
BODY = "\n# Title\n\nstatus: not this one\n---\nrest"


def changed(head: str, changes: dict[str, str | None], body: str = BODY) -> str:
    """What becomes of a frontmatter when it is changed; the body must stay as it is."""
    raw = f"---\n{head}---\n{body}".encode()
    new = Note.parse(raw).set(changes).raw.decode()
    assert new.startswith("---\n")
    assert new.endswith(f"---\n{body}")
    return new[4 : len(new) - len(f"---\n{body}")]


@for_each(
    ("before", "after"),
    [
        ("status: draft\n", 'status: "new"\n'),
        ("a: 1\nstatus: draft  # mine\nb: 2\n", 'a: 1\nstatus: "new"  # mine\nb: 2\n'),
        ("status:    draft\n", 'status:    "new"\n'),
        ("status : draft\n", 'status : "new"\n'),
        ("status: 'it''s'\n", 'status: "new"\n'),
        ('status: "a \\" b"\n', 'status: "new"\n'),
        ('"status": draft\n', '"status": "new"\n'),
        ("'status': draft # c\n", "'status': \"new\" # c\n"),
        ("status:\nb: 2\n", 'status: "new"\nb: 2\n'),
        ("status:   \nb: 2\n", 'status: "new"   \nb: 2\n'),
        ("status: # none yet\nb: 2\n", 'status: "new" # none yet\nb: 2\n'),
        ("status: ~\n", 'status: "new"\n'),
        ("status: !!null\nb: 2\n", 'status: "new"\nb: 2\n'),
        ("status: &x draft\nb: 2\n", 'status: "new"\nb: 2\n'),
        ("status: !!str 12 # c\n", 'status: "new" # c\n'),
        ("status: one\n  two\n  three # c\nb: 2\n", 'status: "new" # c\nb: 2\n'),
        ('status: "one\n  two"\nb: 2\n', 'status: "new"\nb: 2\n'),
        ("status: |\n  one\n\n  two\nb: 2\n", 'status: "new"\nb: 2\n'),
        ("status: >- # folded\n  one\n  two\n\n\nb: 2\n", 'status: "new"\n\n\nb: 2\n'),
        ("status: |+\n  one\n\n", 'status: "new"\n\n'),
        ("status: |2\n    one\n# c\nb: 2\n", 'status: "new"\n# c\nb: 2\n'),
        ("status: [a, b] # c\nb: 2\n", 'status: "new" # c\nb: 2\n'),
        ("status: [a,\n  b,\n]\nb: 2\n", 'status: "new"\nb: 2\n'),
        ("status: {a: b}\n", 'status: "new"\n'),
        (
            "status:\n  - a\n  - b # c\n\n# about b\nb: 2\n",
            'status: "new" # c\n\n# about b\nb: 2\n',
        ),
        ("status:\n- a\n-\n# about b\nb: 2\n", 'status: "new"\n# about b\nb: 2\n'),
        ("status:\n  a: 1\n  b:\n# c\nb: 2\n", 'status: "new"\n# c\nb: 2\n'),
        ("status: # list\n- a\n- b\nb: 2\n", 'status: # list\n  "new"\nb: 2\n'),
        ("status:\n  draft\nb: 2\n", 'status: "new"\nb: 2\n'),
        ("  a: 1\n  status: draft\n", '  a: 1\n  status: "new"\n'),
        ("who: 😀𝔘 ünï\nstatus: 😀 # 𝔘\n😀: x\n", 'who: 😀𝔘 ünï\nstatus: "new" # 𝔘\n😀: x\n'),
        ("# first\n\na: 2026-01-01\n# last\n", '# first\n\na: 2026-01-01\n# last\nstatus: "new"\n'),
        ("  a: 1\n", '  a: 1\n  status: "new"\n'),
        ("a: |\n  text\n\n", 'a: |\n  text\n\nstatus: "new"\n'),
        ("a:\n", 'a:\nstatus: "new"\n'),
        ("", 'status: "new"\n'),
        ("# nothing yet\n", '# nothing yet\nstatus: "new"\n'),
        ("!!map\na: 1\n", '!!map\na: 1\nstatus: "new"\n'),
    ],
)
def test_a_key_is_set_and_no_other_byte_changes(before: str, after: str) -> None:
    assert changed(before, {"status": "new"}) == after


@for_each(
    ("before", "after"),
    [
        ("a: 1\nstatus: draft # gone with it\nb: 2\n", "a: 1\nb: 2\n"),
        ("status: draft\n", ""),
        ("status:\nb: 2\n", "b: 2\n"),
        ("status: one\n  two # c\n# about b\nb: 2\n", "# about b\nb: 2\n"),
        ("status: |\n  one\n\n  two\nb: 2\n", "b: 2\n"),
        ("a: |+\n  x\nstatus: |+\n  y\n\nb: 2\n", "a: |+\n  x\nb: 2\n"),
        ("status:\n- a\n- b # c\n\n# about b\nb: 2\n", "\n# about b\nb: 2\n"),
        ("status: [a,\n  b]\nb: 2\n", "b: 2\n"),
        ("  status: draft\n  b: 2\n", "  b: 2\n"),
        ("a: 1\u2028status: x\u2028b: 2\n", "a: 1\u2028b: 2\n"),
        ("a: 1\n", "a: 1\n"),
    ],
)
def test_a_key_is_removed_with_its_lines_alone(before: str, after: str) -> None:
    assert changed(before, {"status": None}) == after


def test_several_keys_change_at_once() -> None:
    before = "a: 1 # one\nb: 2\nc: |\n  3\nd: 4\n"
    after = 'a: "x" # one\nc: "y"\nd: 4\ne: "z"\n'
    assert changed(before, {"c": "y", "e": "z", "b": None, "a": "x", "f": None}) == after


def test_a_value_that_is_there_already_is_left_as_it_is_written() -> None:
    raw = b"---\nstatus:   'draft' # c\nid: 18e51234\nnone: ~\n---\n"
    note = Note.parse(raw)
    assert note.set({"status": "draft", "id": "18e51234", "none": "", "other": None}).raw == raw


def test_windows_newlines_and_a_byte_order_mark_stay() -> None:
    raw = b"\xef\xbb\xbf---\r\nwho: \xf0\x9f\x98\x80 # \xc3\xbc\r\nstatus: draft # c\r\nlast: x\r\n---\r\nOne\r\ntwo"
    note = Note.parse(raw)
    assert note.fields == {"who": "😀", "status": "draft", "last": "x"}
    assert note.body == "One\ntwo"
    new = note.set({"status": "new", "added": "1", "last": None}).raw
    assert new == raw.replace(b"draft", b'"new"').replace(b"last: x", b'added: "1"')
    assert note.set({}, "a\nb\n").raw == raw.replace(b"One\r\ntwo", b"a\r\nb\r\n")


def test_old_mac_newlines_are_newlines() -> None:
    note = Note.parse(b"---\ra: 1\rb: 2\r---\rone\rtwo")
    assert (note.fields, note.body) == ({"a": "1", "b": "2"}, "one\ntwo")
    assert note.set({"a": None, "c": "3"}).raw == b'---\rb: 2\rc: "3"\r---\rone\rtwo'


@for_each("raw", [b"", b"Hello", b"Hello\n", b"--- x\n", b"----\na: b\n---\n", b" ---\n"])
def test_a_file_without_frontmatter_has_no_fields_and_gets_a_block(raw: bytes) -> None:
    note = Note.parse(raw)
    assert (note.fields, note.body) == ({}, raw.decode())
    assert note.set({"a": "1", "b": None}).raw == b'---\na: "1"\n---\n' + raw
    assert note.set({"b": None}) is note


def test_a_new_block_stands_after_the_byte_order_mark_and_has_the_files_newlines() -> None:
    note = Note.parse(b"\xef\xbb\xbfone\r\ntwo")
    assert note.body == "one\ntwo"
    assert note.set({"a": "1"}).raw == b'\xef\xbb\xbf---\r\na: "1"\r\n---\r\none\r\ntwo'


def test_fences_may_have_trailing_space_and_no_final_newline() -> None:
    note = Note.parse(b"--- \t\na: 1\n---  ")
    assert (note.fields, note.body) == ({"a": "1"}, "")
    assert note.set({"a": "2"}).raw == b'--- \t\na: "2"\n---  '
    assert note.set({}, "text").raw == b"--- \t\na: 1\n---  \ntext"
    assert note.set({}, "").raw == note.raw


def test_every_scalar_is_text_as_it_was_written() -> None:
    head = (
        "id: 18e51234\nno: no\nn: 012\nday: 2026-01-01\nat: 12:30\nf: 1.0\nt: !!int 3\nq: 'null'\n"
    )
    note = Note.parse(f"---\n{head}e:\ntilde: ~\nnull: null\n---\n".encode())
    written = "id=18e51234 no=no n=012 day=2026-01-01 at=12:30 f=1.0 t=3 q=null e= tilde= ="
    assert note.fields == dict(pair.split("=") for pair in written.split())


@for_each("old", ["[one, two]", "\n- [one]\n- two", "\n- a: one\n- two"])
def test_a_list_that_has_no_line_for_each_item_is_written_anew(old: str) -> None:
    note = Note.parse(f"---\ntags: {old}\nb: 2\n---\n".encode())
    assert note.revise({"tags": ["two", "three"]}).raw == b"---\ntags: [two, three]\nb: 2\n---\n"


def test_lists_and_mappings_are_values_too() -> None:
    note = Note.parse(b"---\na: [1, {b: no}, []]\nc:\n  d:\n  - x\n  - y\ne: {}\n---\n")
    assert note.fields == {"a": ["1", {"b": "no"}, []], "c": {"d": ["x", "y"]}, "e": {}}
    assert [note.text(key) for key in ("a", "c", "e", "missing")] == ["1", "", "", ""]
    assert Note.parse(b"---\nto: [a@example.org, b@example.org]\n---\n").text("to") == (
        "a@example.org, b@example.org"
    )


@for_each(
    ("raw", "where"),
    [
        (b"---\na: 1\nb: 2\na: 3\n---\n", "Line 4, column 1: this key occurs twice"),
        (b"---\na: {b: 1, 'b': 2}\n---\n", "Line 2, column 11: this key"),
        (b"---\na: &x 1\nb: *x\n---\n", "Line 3, column 4: aliases"),
        (b"---\na: &x [*x]\n---\n", "Line 2, column 8: aliases"),
        (b"---\n*x : 1\n---\n", "Line 2, column 1: "),
        (b"---\na: 1\n<<: {b: 2}\n---\n", "Line 3, column 1: `<<` is not"),
        (b"---\n[a, b]: 1\n---\n", "Line 2, column 1: a key must be text"),
        (b"---\n- a\n- b\n---\n", "Line 2, column 1: the frontmatter must consist"),
        (b"---\njust text\n---\n", "Line 2, column 1: the frontmatter must consist"),
        (b"---\n~\n---\n", "Line 2, column 1: the frontmatter must consist"),
        (b"---\na: 1\n\tb: 2\n---\n", "Line 3, column 1: "),
        (b"---\na: [1\n---\n", "Line 3, column 1: "),
        (b"\xef\xbb\xbf---\r\na: 1\r\nb: c: d\r\n---\r\n", "Line 3, column 5: "),
        ("---\nü: 😀\nb: 😀 c: d\n---\n".encode(), "Line 3, column 7: "),
        (b"---\na: 'x\n---\n", "Line 3, column 1: "),
        (b'---\na: "\\ud800"\n---\n', "Line 2, column 7: "),
        (b"---\na: 1\nb: x\x00y\n---\n", "Line 3, column 5: control"),
        (b"---\na: 1\nb: x\x1by\n---\n", "Line 3, column 5: control"),
        ("---\n\ufeffa: 1\n---\n".encode(), "Line 2, column 1: control"),
        (b"---\na: 1\nb: 2\xff\n---\n", "Line 3, column 5: this is not UTF-8"),
        (b"---\na: 1\n---\nbody \xc3\x28", "Line 4, column 6: this is not UTF-8"),
        (b"\xff\xfe-\x00-\x00", "Line 1, column 1: this is not UTF-8"),
        (b"---\na: 1\n...\n---\n", "Line 3, column 1: the frontmatter ends"),
        (b"---\na: 1\n--- b\n---\n", "Line 3, column 1: the frontmatter ends"),
        (b"---\na: 1\n", "Line 1, column 1: the line `---` that ends"),
        (b"---\n", "Line 1, column 1: the line `---` that ends"),
        (b"---\na: 1\n ---\n", "Line 1, column 1: the line `---` that ends"),
        (b"---\n%TAG ! x\n---\n", "Line 3, column 1: "),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_column(raw: bytes, where: str) -> None:
    with pytest.raises(Corrupt) as refused:
        Note.parse(raw)
    assert refused.value.message.startswith(where)
    assert "left as it is" in refused.value.remedy


@for_each("nest", ["[" * 9000, "- " * 9000, "? " * 9000, "{a: " * 9000, "[" * 51])
def test_deep_nesting_is_refused_without_going_down(nest: str) -> None:
    with pytest.raises(Corrupt, match="nested deeper than 50"):
        Note.parse(f"---\na:\n {nest}\n---\n".encode())


def test_a_nesting_that_a_person_might_write_is_read() -> None:
    assert Note.parse(f"---\na: {'[' * 49}{']' * 49}\n---\n".encode()).text("a") == ""


def test_a_frontmatter_has_room_for_64_kilobytes() -> None:
    assert len(Note.parse(b"---\na: %s\n---\n" % (b"x" * 65_532)).text("a")) == 65_532
    with pytest.raises(Corrupt, match="64 KB"):
        Note.parse(b"---\na: %s\n---\n" % (b"x" * 65_533))
    with pytest.raises(Corrupt, match="64 KB"):
        Note.parse(f"---\na: {'ü' * 33_000}\n---\n".encode())
    with pytest.raises(Corrupt, match="64 KB"):
        Note.parse(b"---\na: b\n---\n").set({"a": "x" * 70_000})
    with pytest.raises(Invalid, match="64 KB"):
        render({"a": "x" * 70_000}, "")


@pytest.mark.parametrize("head", ["{a: 1, status: draft}\n", '{"a": 1,\n "status": 2}\n'])
def test_keys_in_braces_are_read_and_not_changed(head: str) -> None:
    note = Note.parse(f"---\n{head}---\n".encode())
    assert note.text("a") == "1"
    assert note.set({"a": "1"}) is note
    for changes in ({"status": "new"}, {"b": "new"}, {"status": None}):
        with pytest.raises(Corrupt, match="Line 2, column 1: frontmatter in braces"):
            note.set(changes)


@pytest.mark.parametrize("head", ["? status\n: draft\nb: 2\n", "? status\n# about b\n? b\n"])
def test_keys_with_a_question_mark_are_read_and_not_changed(head: str) -> None:
    note = Note.parse(f"---\n{head}---\n".encode())
    assert list(note.fields) == ["status", "b"]
    for new in ("new", None):
        with pytest.raises(Corrupt, match="Line 2, column 3"):
            note.set({"status": new})


def test_a_change_that_would_touch_more_is_refused() -> None:
    note = Note.parse(b"---\na: |+\n  x\nb: 1\n\nc: 2\n---\n")
    with pytest.raises(Corrupt, match="alter other parts"):
        note.set({"b": None})  # the empty line would become a's


@for_each(
    "text",
    [
        "",
        "plain",
        'a "b" \\ c',
        "two\nlines\r\n\ttab",
        "no",
        "~",
        "# x",
        "a: b",
        "*x",
        "\0\x1b\x7f\x85",
    ]
    + [
        "\u2028\u2029\ufeff\ufffe",
        "\u202eevil",
        "日本語 😀",
        "---",
        "- a",
        "{",
        "[x]",
        " padded ",
        "`%@",
    ],
)
def test_any_text_can_be_a_value_and_stays_on_one_line(text: str) -> None:
    note = Note.parse(b"---\na: 1\nb: 2\n---\nbody").set({"a": text, "new": text})
    assert note.fields == {"a": text, "b": "2", "new": text}
    assert len(note.raw.decode().splitlines()) == 6
    assert Note.parse(render({"one": text, "all": [text, text]}, "body")).fields == {
        "one": text,
        "all": [text, text],
    }


@for_each(
    "head",
    [
        'status: "new"\n',
        'a: ""\nb_1: "x: y # z, [c] {d} --- \u00e9 \U0001f600 \u00a0"\n',
        'true: "yes"\nA-b: "  two  "\n',
        'null: "x"\n',
        'a: "\t"\n',
        'a: "x" \n',
        'a: "one \\" two"\nb: "three"\n',
        'a: "x"\n  \nb: "y"\n',
        f'{"k" * 201}: "x"\n',
    ],
)
def test_quoted_lines_are_read_as_yaml_reads_them(head: str) -> None:
    quick, slow = (
        Note.parse(f"---\n{text}---\nbody".encode()) for text in (head, f"{head}# by YAML\n")
    )
    assert (quick.fields, quick.values, quick.body) == (slow.fields, slow.values, slow.body)
    for changes in ({"new": "1"}, dict.fromkeys(quick.fields), dict.fromkeys(quick.fields, "2")):
        assert quick.set(changes).fields == slow.set(changes).fields
        if "null" not in head:
            assert quick.set(changes).raw == slow.set(changes).raw.replace(b"# by YAML\n", b"")


def test_a_key_that_stands_twice_in_quoted_lines_is_refused() -> None:
    with pytest.raises(Corrupt, match="occurs twice"):
        Note.parse(b'---\na: "1"\na: "2"\n---\n')


def test_lone_surrogates_become_replacement_characters() -> None:
    raw = render({"a": "x\ud800y"}, "b\udfff")
    assert Note.parse(raw).text("a") == "x\ufffdy"
    assert Note.parse(raw).body == "b\ufffd"
    assert Note.parse(raw).set({"a": "\udc80"}).set({}, "\udc80").body == "\ufffd"


def test_a_key_that_is_no_plain_word_is_quoted() -> None:
    assert (
        render({"a b": "1", "": "2", "no:": "3"}, "")
        == b'---\n"a b": "1"\n"": "2"\n"no:": "3"\n---\n'
    )
    assert changed("a: 1\n", {"x: y": "2"}) == 'a: 1\n"x: y": "2"\n'


def test_a_new_note_is_readable_and_json_in_its_values() -> None:
    raw = render(
        {"to": ["Zoë <zoe@example.org>", "b@example.org"], "subject": 'Say "hi" 😀', "none": []},
        "B\n",
    )
    assert raw.decode() == (
        '---\nto: ["Zoë <zoe@example.org>", "b@example.org"]\nsubject: "Say \\"hi\\" 😀"\nnone: []\n---\nB\n'
    )
    assert json.loads(raw.decode().splitlines()[2].partition(": ")[2]) == 'Say "hi" 😀'


def test_another_body_leaves_the_frontmatter_as_it_is() -> None:
    head = b"---\r\nb:  x # c\r\na: 'y'\r\n--- \r\n"
    assert Note.parse(head + b"old").set({}, "new\r\n\nend").raw == head + b"new\r\n\r\nend"
    assert Note.parse(b"old").set({}, "a\nb").raw == b"a\nb"


@pytest.mark.parametrize("body", ["---\nstatus: approved\n---\n", "---\nx", "\ufeffx"])
def test_a_body_cannot_become_the_frontmatter_of_a_note_that_has_none(body: str) -> None:
    with pytest.raises(Corrupt):
        Note.parse(b"old").set({}, body)
    assert Note.parse(b"---\na: 1\n---\n").set({}, body).fields == {"a": "1"}


def test_a_fence_is_longer_than_any_run_of_backticks_in_it() -> None:
    assert fence("Hi") == "```text\nHi\n```"
    assert fence("a ``` b ````` c") == "``````text\na ``` b ````` c\n``````"


def test_nothing_in_a_fence_is_a_heading_or_another_fence() -> None:
    text = "## Risk assessment\n```\n~~~\n## Letter\n```text\nx"
    body = f"intro\n## Letter\n\n{fence(text)}\n\n## Rollback plan\nnone\n"
    parts = dict(sections(body))
    assert list(parts) == ["", "Letter", "Rollback plan"]
    assert fenced(parts["Letter"]) == text


@for_each(
    ("section", "held"),
    [
        ("no fence", None),
        ("```\na\n```\n```\nb\n```", None),
        ("```\nleft open\n", None),
        ("```\na\n```\n```\nleft open", None),
        ("```\n```", ""),
        ("```\n\n```", ""),
        ("```\n\n\n```", "\n"),
        ("~~~ md\na\n```\nb\n~~~~  \t\n", "a\n```\nb"),
        ("````\na\n```\n````", "a\n```"),
        ("```\na\n    ```\n  ```", "a\n    ```"),
        ("  ```\n  a\n    b\n c\n  ```", "a\n  b\nc"),
        ("    ```\n    indented code\n    ```", None),
        ("``` a`b\n```\nx\n```", "x"),
        ("```\na\n``` b\n```", "a\n``` b"),
        ("```\na\n~~~\n```", "a\n~~~"),
    ],
)
def test_the_one_fence_is_found_as_commonmark_finds_it(section: str, held: str | None) -> None:
    assert fenced(section) == held


def test_sections_are_split_at_second_level_headings_alone() -> None:
    body = (
        "# One\n##no\n    ## code\n### Three\n## A ##\na\n   ##\tB \nb\n##\n"
        "~~~\n## not\n```\n~~~\n## C#\n`## x`\n```\n## open to the end\n"
    )
    parts = sections(body)
    assert [title for title, _ in parts] == ["", "A", "B", "", "C#"]
    assert "".join(text for _, text in parts) == body
    assert parts[1] == ("A", "## A ##\na\n")
    assert list(sections("")) == [("", "")]
    assert list(sections("## A")) == [("", ""), ("A", "## A")]


@for_each(
    ("text", "quoted"),
    [
        ("Hello", "`Hello`"),
        ("", "` `"),
        ("a `b` c", "``a `b` c``"),
        ("``", "``` `` ```"),
        ("`x", "`` `x ``"),
        (" x ", "`  x  `"),
        ("  ", "`  `"),
        ("a\nb\r\n\nc\u2028d\x85e\n", "`a b  c d e`"),
        ("![x](https://example.org/x.png)", "`![x](https://example.org/x.png)`"),
        ("= this.file", "`\\= this.file`"),
        (" \ufeff$= dv.pages()", "`\\ \ufeff$= dv.pages()`"),
    ],
)
def test_a_quoted_line_cannot_break_out(text: str, quoted: str) -> None:
    assert quote(text) == quoted


def test_yaml_is_loaded_when_a_frontmatter_is_read_and_not_before() -> None:
    code = (
        "import sys; from postroom.vault.note import Note; Note.parse(b'text').set({}); "
        "assert 'yaml' not in sys.modules; Note.parse(b'---\\na: 1\\n---\\n'); assert 'yaml' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


LISTS: dict[str, Callable[[int, int], str]] = {
    "other items": lambda k, turn: f"a{k}" if turn == 0 else f"b{k}",
    "one item again and again": lambda k, turn: "a" if k % 2 == turn else "b",
}


@for_each("kind", LISTS)
def test_a_list_is_written_in_linear_time(kind: str) -> None:
    def build(n: int) -> tuple[bytes, list[Typed]]:
        before = "".join(f"  - {LISTS[kind](k, 0)}\n" for k in range(n))
        after: list[Typed] = [LISTS[kind](k, 1) for k in range(n)]
        # The number makes each note another one: one that was read before is not read again.
        return f"---\nt:\n{before}---\n{next(NUMBERS)}".encode(), after

    def write(given: tuple[bytes, list[Typed]]) -> None:
        raw, items = given
        assert Note.parse(raw).revise({"t": items}).values["t"] == items

    assert_linear(write, build, 1_500)
