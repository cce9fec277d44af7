"""A move takes along every link that means the file, touches no other byte, and names what it cannot decide."""

import json
from collections.abc import Callable
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from postroom.vault.links import (
    MAX_TARGET,
    Moved,
    NoteLink,
    Rewritten,
    key,
    links,
    mentions,
    rewrite,
    rewrite_canvas,
    stem,
)
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear

MOVED = Moved("Projects/Old name.md", "Archive/New name.md")
VAULT = (
    "Index.md",
    "Projects/Old name.md",
    "Projects/Plan.md",
    "Projects/img.png",
    "Home/Other.md",
)


def vault(*paths: str) -> Callable[[str], list[str]]:
    return lambda name: [path for path in paths if key(stem(path)) == name]


def targets(text: str, frontmatter: int = 0) -> list[str]:
    return [link.target for link in links(text, frontmatter=frontmatter)]


def after(text: str, moved: Moved = MOVED, *others: str, at: str = "Index.md") -> Rewritten:
    files = vault(*dict.fromkeys([*(others or VAULT), moved.source]))
    return rewrite(text, moved, files, at=at)


@for_each(
    ("path", "name"),
    [
        ("A/Note.md", "Note"),
        ("Note.MD", "Note"),
        ("A/b/img.png", "img.png"),
        ("v1.2.md", "v1.2"),
        ("A/plain", "plain"),
        ("", ""),
    ],
)
def test_a_note_goes_by_its_name_without_md_and_an_attachment_by_its_whole_name(
    path: str, name: str
) -> None:
    assert stem(path) == name


def test_names_are_compared_without_case_and_however_their_accents_are_made() -> None:
    assert key("E\u0301tude STRASSE") == key("\u00e9tude straße")


@for_each(
    ("text", "found"),
    [
        ("[[a]] ![[b.png]] [[c#h]] [[d#^e|f]] [[ g |h]]", ["a", "b.png", "c", "d", "g"]),
        ("| [[a\\|b]] | [[c#d\\|e]] |", ["a", "c"]),
        ("[[a|b [c]]] [[d|x]y]]", ["a", "d"]),
        ("[[a\nb]] [[#h]] [[]] [[|x]] [[a[b]] [[a]b]]", []),
        ("[[Meeting: one]] [[https://example.org/a]]", ["Meeting: one"]),
        (
            "[t](a.md) ![](b.png) [t](<c d.md>) [t](e%20f.md#g)",
            ["a.md", "b.png", "c d.md", "e f.md"],
        ),
        (
            "[t](a.md \"x\") [t](b.md 'y') [t](c.md (z)) [t]( d.md )",
            ["a.md", "b.md", "c.md", "d.md"],
        ),
        ("[t](a\\_b.md) [t](a(b(c)).md) [t](d\\(.md)", ["a_b.md", "a(b(c)).md", "d(.md"]),
        ("[one\ntwo](\na.md)", ["a.md"]),
        ("[a [b] c](d.md) [![x](e.png)](f.md)", ["d.md", "e.png", "f.md"]),
        ("[a [b](c.md) d](e.md) [f](g.md)", ["c.md", "g.md"]),
        ("[a `]` b](c.md) [[d]](e.md)", ["c.md", "d"]),
        ("[t](a b.md) [t](a.md x) [t](a(.md) t](a.md) [t] (a.md)", []),
        (
            "[t](https://a.org) [t](mailto:a@example.org) [t](//a.org/b) [t](#h) [t](data:x) [t]()",
            [],
        ),
        ("[t](obsidian://open?vault=a) [t](<https://a.org/b c>)", []),
        ('[r]: a.md "title"\n[s]: <b c.md>\n\n> - [t]: d.md\n', ["a.md", "b c.md", "d.md"]),
        ("[r]: a.md and more\n[^1]: b.md\n2024 [c]: d.md", []),
        ("text\n[r]: a.md", []),
        ("[^1]: See [[a]].\n\n[x]: [[b]]", ["a", "b"]),
        ("\\[[a]] \\\\[[b]] \\[t](c.md) !\\[t](d.md) [t\\](e.md)", ["b"]),
        ("- [ ] [[a]]\n- [x] [t](b.md)\n> [!note] [[c]]", ["a", "b.md", "c"]),
        ("# [[a]]\n%% [[b]] %%\n***\n[[c]]\n===\n[[d]]", ["a", "b", "c", "d"]),
        (
            f"[[{'a' * MAX_TARGET}]] [[{'b' * (MAX_TARGET + 1)}]] [t]({'c' * 2000})",
            ["a" * MAX_TARGET],
        ),
    ],
)
def test_links_to_files_are_found_and_what_only_looks_like_one_is_not(
    text: str, found: list[str]
) -> None:
    assert targets(text) == found


@for_each(
    ("text", "found"),
    [
        ("```\n[[a]]\n```\n[[b]]", ["b"]),
        ("~~~ md\n[[a]]\n```\n[[b]]\n~~~~\n[[c]]", ["c"]),
        ("````\n```\n[[a]]\n    ````\n[[b]]\n````\n[[c]]", ["c"]),
        ("``` a`b\n[[a]]", ["a"]),
        ("text\n```\n[[a]]", []),
        ("> ```\n> [[a]]\n[[b]]", ["b"]),
        ("> > ~~~\n> > [[a]]\n> [[b]]", ["b"]),
        ("- ```\n  [[a]]\n\n  [[b]]\n  ```\n  [[c]]\n", ["c"]),
        ("1. x\n   ```\n   [[a]]\nout [[b]]", ["b"]),
        ("-\t```\n\t[[a]]\n\t```\n\t[[b]]", ["b"]),
        ("> - ```\n>   [[a]]\n>   ```\n> - [[b]]", ["b"]),
        ("x\n\n    [[a]]\n\ny", []),
        ("x\n\n\t[[a]]", []),
        ("# x\n    [[a]]", []),
        ("x\n    [[a]]", ["a"]),
        ("- x\n    [[a]]\n\n    [[b]]\n\n      [[c]]\n", ["a", "b"]),
        ("- x\n\t- [[a]]\n\t\t- [[b]]\n", ["a", "b"]),
        ("1. x\n\n   [[a]]\n\n[[b]]\n\n    [[c]]", ["a", "b"]),
        ("- - -\n    [[a]]", []),
        ("-\n  [[a]]", ["a"]),
        ("`[[a]]` `` ` [[b]] `` [[c]] ` [[d]]", ["c", "d"]),
        ("one `two\nthree [[a]]` [[b]]", ["b"]),
        ("one `two\n\nthree [[a]]` [[b]]", ["a", "b"]),
        ("- one `two\n- three [[a]]`", ["a"]),
        ("|x|y|\n|-|-|\n| ` | [[a]] |\n| ` | [[b]] |", ["a", "b"]),
        ("| ` | [[a]] |\n| ` | [[b]] |", ["b"]),
        ("\\`[[a]]` [[b]]`", ["a"]),
        ("> one `two\n> [[a]]` [[b]]\nlazy [[c]]", ["b", "c"]),
        ("a <!-- [[a]]\n[[b]] --> [[c]] <!--> [[d]]", ["c", "d"]),
        ("<!--\n\n[[a]]\n\n--> [[b]]\n[[c]]", ["c"]),  # its last line is HTML to the end
        ("> <!--\n> [[a]]\n\n[[b]]", ["b"]),
        ("<!--\n[[a]]\n-->\n    [[b]]", []),
        ("a <!-- [[a]]\n\n[[b]]", ["a", "b"]),
        ("$$[[a]]$$ [[b]]\n\n$$\nx [[c]]\n\n[[d]]\n$$ [[e]]\n\nfor $$ [[f]]", ["b", "e", "f"]),
        ("> $$ is a price [[a]]\n\n    [[b]]", ["a"]),
        ("`$$` [[a]] `$$` `<!--` [[b]]", ["a", "b"]),
    ],
)
@for_each("newline", ["\n", "\r\n", "\r"])
def test_code_and_comments_and_formulas_hold_no_links(
    text: str, found: list[str], newline: str
) -> None:
    assert targets(text.replace("\n", newline)) == found


def test_in_the_frontmatter_wikilinks_count_alone() -> None:
    head = '---\nup: "[[a|b]]"\nx: "[t](c.md)"\ny: `[[d]]`\n---\n'
    assert targets(head + "`[[e]]` [t](f.md)", len(head)) == ["a", "d", "f.md"]


def test_a_link_tells_where_its_file_is_named() -> None:
    text = "x ![[ a b#c|d]] [t](<e f.md#g>)"
    assert links(text) == [
        NoteLink(6, 9, "a b", wiki=True),
        NoteLink(21, 27, "e f.md", wiki=False, angle=True),
    ]


@for_each(
    ("before", "expected"),
    [
        ("[[Old name]]", "[[New name]]"),
        ("![[old NAME#h|x]]", "![[New name#h|x]]"),
        ("| [[Old name\\|x]] |", "| [[New name\\|x]] |"),
        ("[[Old name.md]]", "[[New name.md]]"),
        ("[[Projects/Old name]]", "[[Archive/New name]]"),
        ("[[/Projects/Old name.md#^b]]", "[[/Archive/New name.md#^b]]"),
        ("[[./Projects/Old name]]", "[[./Archive/New name]]"),
        ("[x](Projects/Old%20name.md#h)", "[x](Archive/New%20name.md#h)"),
        ("[x](Projects/Old%20name)", "[x](Archive/New%20name)"),
        ("[x](<Projects/Old name.md> 'T')", "[x](<Archive/New name.md> 'T')"),
        ("[x](./Projects/Old%20name.md)", "[x](./Archive/New%20name.md)"),
        ("[x](/Projects/Old%20name.md)", "[x](/Archive/New%20name.md)"),
        ("[x](Old%20name.md)", "[x](New%20name.md)"),
        ("[x][r]\n\n[r]: Projects/Old%20name.md 'T'", "[x][r]\n\n[r]: Archive/New%20name.md 'T'"),
        ("a [[Old name]]\r\nb [[Old name]]\r\n", "a [[New name]]\r\nb [[New name]]\r\n"),
    ],
)
def test_a_link_to_the_moved_note_follows_it_and_keeps_its_style(
    before: str, expected: str
) -> None:
    assert after(before) == (expected, len(links(before)), ())


@for_each(
    "text",
    [
        "[[Plan]] [[Other name]] [[Home/Old name]] [[../Old name]] [[/Old name]]",
        "[x](Home/Old%20name.md) [x](../Projects/Old%20name.md)",
        "`[[Old name]]` \\[[Old name]] Old name.md",
        "[[Old name.png]] [x](https://a.org/Old%20name.md)",
    ],
)
def test_a_link_that_cannot_mean_the_moved_note_stays(text: str) -> None:
    assert after(text) == (text, 0, ())


@for_each(
    ("before", "expected", "at"),
    [
        ("[x](Old%20name.md)", "[x](../Archive/New%20name.md)", "Projects/Plan.md"),
        ("[x](../Projects/Old%20name.md)", "[x](../Archive/New%20name.md)", "Home/Other.md"),
        ("[x](Projects/Old%20name.md)", "[x](Archive/New%20name.md)", "Home/Other.md"),
        ("[x](Old%20name.md)", "[x](New%20name.md)", "Home/Other.md"),
        ("[x](../Projects/Old%20name.md)", "[x](New%20name.md)", "Archive/A.md"),
        ("[[../Projects/Old name]]", "[[./New name]]", "Archive/A.md"),
        ("[[./Old name]]", "[[../Archive/New name]]", "Projects/Plan.md"),
    ],
)
def test_a_relative_link_is_made_relative_again_and_others_keep_their_way(
    before: str, expected: str, at: str
) -> None:
    assert after(before, at=at) == (expected, 1, ())


def test_a_name_that_did_not_change_is_left_as_it_is_written() -> None:
    moved = Moved("A/Note.md", "B/Note.md")
    assert after("[[note]] [[Note.md|x]] [x](note.md)", moved) == (
        "[[note]] [[Note.md|x]] [x](note.md)",
        0,
        (),
    )
    assert after("[[A/Note]]", moved).text == "[[B/Note]]"
    assert after("[[A/note]]", Moved("A/note.md", "A/Note.md")).text == "[[A/Note]]"


def test_a_part_of_a_path_means_the_one_file_that_ends_so() -> None:
    moved = Moved("A/Sub/Note.md", "B/Note.md")
    assert after("[[Sub/Note]]", moved, "C/Note.md") == ("[[B/Note]]", 1, ())
    text = "[[Sub/Note]] [[ub/Note]]"
    assert after(text, moved, "C/Sub/Note.md") == (text, 0, ("Sub/Note",))


def test_a_name_of_several_notes_is_reported_once_and_left() -> None:
    text = "[[Old name]] [[Old name#h]] [x](Old%20name.md)"
    assert after(text, MOVED, "Home/Old name.md") == (text, 0, ("Old name", "Old%20name.md"))


def test_a_note_at_the_root_is_meant_by_its_bare_name() -> None:
    other = "Home/Note.md"
    assert after("[[Note]]", Moved("Note.md", "A/New.md"), other).text == "[[New]]"
    assert after("[[Note]]", Moved(other, "A/New.md"), "Note.md") == ("[[Note]]", 0, ())


def test_a_name_that_would_become_ambiguous_becomes_a_path() -> None:
    assert after("[[Old name]] [[Old name.md|x]]", MOVED, "Home/New name.md").text == (
        "[[Archive/New name]] [[Archive/New name.md|x]]"
    )
    assert (
        after("[x](Old%20name.md)", MOVED, "Home/New name.md").text == "[x](Archive/New%20name.md)"
    )
    assert after("[[Note]]", Moved("Note.md", "A/Note.md"), "B/Note.md").text == "[[A/Note]]"


def test_a_path_from_the_root_that_a_neighbour_would_hide_becomes_relative() -> None:
    near = "Home/Archive/New name.md"
    text = "[x](Projects/Old%20name.md)"
    assert after(text, MOVED, near, at="Home/Other.md").text == "[x](../Archive/New%20name.md)"


def test_an_attachment_keeps_its_extension() -> None:
    moved = Moved("Projects/img.png", "Files/pic.png")
    text = "![[img.png|100]] ![](Projects/img.png) [[img]]"
    assert after(text, moved).text == "![[pic.png|100]] ![](Files/pic.png) [[img]]"


def test_accents_are_found_however_they_are_made_and_percent_encoding_stays_in_style() -> None:
    moved = Moved("\u00c9tude.md", "\u00dcbung 100% (1) #2.md")
    made = after("[x](e\u0301tude.md) [x](%C3%89tude.md) [x](<\u00c9tude.md>)", moved)
    assert made.text == (
        "[x](\u00dcbung%20100%25%20%281%29%20%232.md) "
        "[x](%C3%9Cbung%20100%25%20%281%29%20%232.md) "
        "[x](<\u00dcbung 100%25 (1) %232.md>)"
    )
    assert targets(made.text) == [moved.target] * 3


@for_each("name", ["a[b", "a]b", "a|b", "a#b", "a^b", "a\\b", " a"])
def test_a_name_that_no_wikilink_can_hold_leaves_the_link_and_reports_it(name: str) -> None:
    moved = Moved("Old.md", f"{name}.md")
    assert after("[[Old|x]]", moved) == ("[[Old|x]]", 0, ("Old",))
    assert targets(after("[x](Old.md)", moved).text) == [moved.target]


@for_each("name", ['a"b', "a'b", "a: b", "a:"])
def test_a_name_that_would_break_the_frontmatter_is_written_in_the_body_alone(name: str) -> None:
    head = '---\nup: "[[Old]]"\n---\n'
    moved = Moved("Old.md", f"{name}.md")
    made = rewrite(f"{head}[[Old]]", moved, vault("Old.md"), at="A.md", frontmatter=len(head))
    assert made == (f"{head}[[{name}]]", 1, ("Old",))


def test_the_moved_note_takes_its_relative_links_along() -> None:
    text = (
        "[[Old name#h]] [[./Plan]] [[../Home/Other|o]] [p](Plan.md) ![](img.png) "
        "[o](../Home/Other.md#x) [i](Index.md) [o](Other.md) [[Plan]] [[Projects/Plan]] "
        "[gone](Gone.md) [self](Old%20name.md#h) [[./Old name]]"
    )
    made = after(text, Moved(MOVED.source, "Archive/2026/New.md"), at=MOVED.source)
    expected = (
        "[[New#h]] [[../../Projects/Plan]] [[../../Home/Other|o]] [p](../../Projects/Plan.md) "
        "![](../../Projects/img.png) [o](../../Home/Other.md#x) [i](Index.md) [o](Other.md) "
        "[[Plan]] [[Projects/Plan]] [gone](Gone.md) [self](New.md#h) [[./New]]"
    )
    assert made == (expected, 8, ())


def test_a_note_renamed_in_its_folder_keeps_its_relative_links() -> None:
    text = "[p](./x/../Plan.md) [[../Projects/Plan]]"
    assert after(text, Moved(MOVED.source, "Projects/New.md"), at=MOVED.source) == (text, 0, ())


def test_a_canvas_changes_where_it_names_the_file_and_nowhere_else() -> None:
    text = (
        '{ "nodes":[\n\t{"id":"1","type":"file","file":"Projects\\/Old name.md" , "x":1.50},\n'
        '\t{"text" : "\\ud83d\\ude00 \\u00e9 \\"q\\" [[Old name|x]]\\n`[[Old name]]` '
        '[t](Projects/Old%20name.md)"},\n'
        '\t{"file":"projects/old name.md","subpath":"#Old name"}, {"file":"Home/Other.md"},\n'
        '\t{"label":"[[Old name]]","file":["Projects/Old name.md"], "text":{"id":"[[Old name]]"}}],'
        '"edges":[]}\r\n'
    )
    made = rewrite_canvas(text, Moved(MOVED.source, 'B/"New".md'), vault(*VAULT), at="C.canvas")
    assert json.loads(made.text)
    assert made == (
        text.replace("Projects\\/Old name.md", 'B/\\"New\\".md')
        .replace("[[Old name|x]]", '[[\\"New\\"|x]]')
        .replace("[t](Projects/Old%20name.md)", '[t](B/\\"New\\".md)')
        .replace('"projects/old name.md"', '"B/\\"New\\".md"'),
        4,
        (),
    )


def test_a_canvas_reports_what_is_ambiguous() -> None:
    text = '{"nodes":[{"text":"[[Old name]]"},{"file":"projects/old name.md"}]}'
    files = vault(*VAULT, "Home/Old name.md", "projects/old name.md")
    assert rewrite_canvas(text, MOVED, files, at="C.canvas") == (text, 0, ("Old name",))


@for_each("text", ["", "{", '{"file":"Projects/Old name.md"', "[" * size(100_000)])
def test_a_canvas_that_is_no_json_is_left_as_it_is(text: str) -> None:
    assert rewrite_canvas(text, MOVED, vault(*VAULT), at="C.canvas") == (text, 0, ())


PIECES = st.sampled_from(
    "[[ ]] [ ] ( ) | # \\ ` `` ``` ~~~ $$ <!-- --> ! < > %20 .md / ../ ./ : [x]: - 1. Old Plan a "
    "[[Old]] ![[Plan#h|x]] [x](Old.md) [x](<../A/Old.md>)".split(" ")
    + [" ", "    ", "\t", "\n", "\r\n", "\r", "\n\n", '"', "é", "E\u0301", "\U0001f600"]
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@given(TEXTS, st.integers(0, 10))
def test_links_come_in_order_and_each_stands_where_it_says(text: str, frontmatter: int) -> None:
    end = 0
    for link in links(text, frontmatter=min(frontmatter, len(text))):
        assert end <= link.start < link.end <= len(text)
        end = link.end
        written = text[link.start : link.end]
        if link.wiki:
            assert written == link.target
            assert "[[" in text[: link.start]
        else:
            assert "%" in written or "\\" in written or written == link.target


def between(text: str, found: list[NoteLink]) -> list[str]:
    starts, ends = [0, *(link.end for link in found)], [*(link.start for link in found), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


@given(TEXTS)
@example("[[Old]] [x](Old.md)")
def test_rewriting_changes_only_what_links_name(text: str) -> None:
    moved, files = Moved("A/Old.md", "B/New.md"), vault("A/Old.md", "A/Plan.md")
    for at in ("A/Plan.md", "A/Old.md"):
        made = rewrite(text, moved, files, at=at)
        old, new = links(text), links(made.text)
        assert len(old) == len(new)
        changed = [(a, b) for a, b in zip(old, new, strict=True) if a.target != b.target]
        assert len(changed) == made.changed
        assert between(text, old) == between(made.text, new)


@given(st.text(alphabet=st.characters(exclude_characters="[")))
def test_a_text_without_brackets_stays(text: str) -> None:
    assert after(text) == (text, 0, ())


NAMES = st.text("abcß é%&()'!,~", min_size=1, max_size=8).filter(lambda name: name == name.strip())
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
STYLES = ["[[{0}]]", "[[{0}.md#h|x]]", "[[/{0}]]", "[x](</{1}.md>)", "[x](<{1}.md#h>)"]


@given(PATHS, PATHS, st.lists(st.sampled_from(STYLES), max_size=5), st.booleans())
def test_a_move_and_the_move_back_give_the_same_text(
    source: str, target: str, styles: list[str], own: bool
) -> None:
    source, target = f"old/{source}1", f"new/{target}2"
    there, back = Moved(f"{source}.md", f"{target}.md"), Moved(f"{target}.md", f"{source}.md")
    text = "\n\n".join(styles).format(source, source.replace("%", "%25"))
    before, then = (there.source, back.source) if own else ("Index.md", "Index.md")
    made = rewrite(text, there, vault(there.source), at=before)
    assert made.changed == len(styles)
    assert rewrite(made.text, back, vault(back.source), at=then) == (text, len(styles), ())


HOSTILE = [
    *(
        "[",
        "[[",
        "]",
        "`",
        "(",
        "![[a|",
        "[[a#",
        "<!--",
        "$$",
        "$$\n",
        "[a](",
        "[a](b ",
        "[a](<",
        "\\",
    ),
    *(
        "[a](b (",
        '[a](b "',
        "[a](b(",
        "[](",
        "](",
        "[a]: ",
        "[a]: b\n",
        "- ",
        "> ",
        ">\n",
        "-\n",
        "1. ",
    ),
    *(
        "[[a]]",
        "[a](b)",
        "![",
        "![a](",
        "` `` ",
        "`\n",
        "```\n",
        "~~~ `\n",
        "|`",
        "\t",
        "    a\n\n",
        "\r",
    ),
    *(
        "- a\n  ",
        "<!-- -->",
        "-->",
        "#",
        "[[\\|",
        "[[a|[",
        "]]",
        "- - - a\n\n",
        "[a](b\n",
        "\u0323\u0301",
    ),
]


AROUND = ["{text}", "{open}{text}", "{quotes}\n{text}", "[[{text}]]"]


def read(text: str) -> None:
    rewrite(text, MOVED, vault(*VAULT), at="Index.md")
    mentions(text)


@for_each(("piece", "around"), product(HOSTILE, AROUND))
def test_any_piece_repeated_is_rewritten_in_linear_time(piece: str, around: str) -> None:
    def build(n: int) -> str:
        return around.format(text=piece * (n // len(piece)), open="[" * n, quotes="> - " * 60)

    assert_linear(read, build, size(50_000))
