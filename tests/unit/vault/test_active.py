"""A note that an agent wrote does nothing when it is opened."""

import string
from collections.abc import Callable
from math import isqrt

from hypothesis import given
from hypothesis import strategies as st

from postroom.vault.active import MAX_TEXT, RUNNING, Active, _find_all, added
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear

EMBED, HTML, RUNS, TEMPLATE = "a remote embed", "raw HTML", "code that runs", "template code"
IMAGE = "![](https://example.org/a.png)"
PLAIN = st.text(string.ascii_letters + string.digits + " #*_-.,:;()'\"\n")


def active(text: str) -> list[Active]:
    """Return all that would act if this text were a note, from top to bottom."""
    return list(_find_all(text))


def kinds(text: str) -> set[str]:
    return {found.kind for found in active(text)}


@for_each(
    "text",
    [
        "",
        "# Title\n\nA paragraph, *with* emphasis.\n",
        "[text](https://example.org) and <https://example.org/a?b=c> and <a@example.org>",
        "https://example.org/a.png",
        "![[image.png]] ![[a b.png|100]] ![[Note#Part: one]] ![[note|see: this]]",
        "![](img/a.png) ![alt](a b.png) ![alt](a%20b.png 'a title: here')",
        "![[image.png]] and [text](https://example.org)",
        "![alt](a.png) and [text](https://example.org)",
        "![`code`](a.png) and [text](https://example.org)",
        "[![alt](a.png)](https://example.org)",
        "![open\n\n[text](https://example.org)",
        "![pic]\n\n[pic]: img/a.png\n[page]: https://example.org\n\n[page]",
        "\\![text] (https://example.org)",
        "\\![text](https://example.org)",
        "a < b, 1 <3, x -> y, <= and <- and <>",
        "\\<div> and 2 \\< 3",
        "`<div>` and `` a ` <b> `` and `![](https://example.org)`",
        "```\n<div>\n![](https://example.org)\n```\n",
        "~~~html\n```\n<div>\n~~~~\n",
        "   ```html\n   <div>\n\n   ```",
        "- a\n  ```html\n  <div>\n  ```\n\n```\n<div>\n```",
        "> ```\n> x\n> ```\n\n```\n<div>\n```",
        "1. ```\n   x\n   ```\n\n```\n<div>\n```",
        "```\nunclosed <div>",
        "`a\n\n`<div>`",
        "costs $5\n\n`<div>`",
        "---\nsource: <b>\nimage: 'https://example.org/a.png'\n---\ntext",
        "Press <kbd>Ctrl</kbd> and a<br>b, H<sub>2</sub>O",
        "- <b>bold</b> words",
        "---\na: 1\n---\n```\n<div>\n```",
        "```js\ndataviewjs\n```",
        "```dataview\nLIST\n```",
        "```mermaid\nflowchart\nA[one<br/>two] --> B\n```",
        "```mermaid\nA --> B\n```\nhttps://example.org",
        "```tasks\nnot done\n```\nA function.",
        "`= this.file.name` and `a $= b`",
        "50 % < 60 %>",
    ],
)
def test_what_only_shows_itself_is_fine(text: str) -> None:
    assert active(text) == []


@for_each(
    "text",
    [
        IMAGE,
        "![alt](http://example.org)",
        "![alt|100](HTTPS://example.org 'title')",
        "![](ftp://example.org) ",
        "![](file:///etc/passwd)",
        "![](app://local/x)",
        "![](data:image/png;base64,AAAA)",
        "![](//example.org/a.png)",
        "![](\\\\example.org\\a.png)",
        "![](/\\example.org/a.png)",
        "![](<https://example.org/a b.png>)",
        "![]( \n https://example.org)",
        "> ![](\n> https://example.org)",
        "![a\nb](https://example.org)",
        "![a [b] c](https://example.org)",
        "![a [b](c.md) d](https://example.org)",
        "![a\\]b](https://example.org)",
        "[![alt](https://example.org/a.png)](https://example.org)",
        "Wow![alt](https://example.org)",
        "\\\\![alt](https://example.org)",
        "![[https://example.org/a.png]]",
        "![[ https://example.org/a.png|100]]",
        "![[a]](https://example.org)",
        "![alt][ref]\n\n[ref]: https://example.org",
        "![ref][]\n\n[ref]: <https://example.org>",
        "![ref]\n\n> [REF]:\n> https://example.org",
        "![a [b] c][ref]\n\n[ref]: https://example.org",
        "![Re \n F]\n\n[re f]: https://example.org",
        "![ref](a b)\n\n[ref]: https://example.org",
        "![ß]\n\n[SS]: https://example.org",
        "    " + IMAGE,
        "> " + IMAGE,
        "- [ ] " + IMAGE,
        "| a |\n|---|\n| " + IMAGE + " |",
        '```mermaid\nA@{ img: "https://example.org/a.png" }\n```',
        "```dataview\nLIST '![](https://example.org)'\n```",
        "$$x$$\n````mermaid\n%% ````\nA(//example.org)\n````",
    ],
)
def test_what_is_fetched_from_elsewhere_is_a_remote_embed(text: str) -> None:
    assert kinds(text) >= {EMBED}


@for_each(
    "target",
    [
        "ht&#116;ps://example.org",
        "ht&#x74;ps://example.org",
        "https&colon;//example.org",
        "&sol;&sol;example.org",
        "https\\://example.org",
        "\\/\\/example.org",
        "h&Tab;t&NewLine;tps://example.org",
        "&Tab;" * 2000 + "https://example.org",
        "https%3A//example.org",
        "<\tht\ttps://example.org>",
        "\ufeffhttps://example.org",
        "\x01https://example.org",
    ],
)
def test_no_spelling_hides_where_an_image_comes_from(target: str) -> None:
    assert kinds(f"![]({target})") >= {EMBED}
    assert kinds(f"![a]\n\n[a]: {target}") >= {EMBED}


@for_each(
    "text",
    [
        "<div>",
        "</div>",
        "a <div>c</div>",
        "<IMG SRC=x>",
        "<img/src=x@y>",
        "<div",
        "x\n<div\nclass=a>",
        "<!-- comment -->",
        "<!DOCTYPE html>",
        "<![CDATA[x]]>",
        "<?php ?>",
        "List<String>",
        "\\\\<div>",
        "<a:b>",
        "<script>\nx\n</script>",
        "    <div>",
        "> <div>",
        "- ```\n  <div>\n  ```",
        "> ```\n> <div>\n> ```",
        "```mermaid\nA[<img src=x>]\n```",
        "```ad-note\n<div>\n```",
    ],
)
def test_tags_outside_code_are_raw_html(text: str) -> None:
    assert kinds(text) == {HTML}


@for_each("word", RUNNING)
@for_each(
    "form",
    [
        "```{}\nx\n```",
        "~~~~ {}\nx\n~~~~",
        "```\t{} with more\nx",
        "```{{{}}}\nx\n```",
        "```{{.{}}}\nx\n```",
        "> - ```{}\n> x",
        "1)\t```{}\n",
        "        ```{}\n",
        "````markdown\n```{}\nx\n```\n````",
        "$$\n~~~{}\n",
    ],
)
def test_fences_that_run_are_found_wherever_they_stand(form: str, word: str) -> None:
    assert kinds(form.format(word)) == {RUNS}
    assert kinds(form.format(word.upper())) == {RUNS}


@for_each(
    "text",
    [
        "`$= 1 + 1`",
        "``\t $=dv.current()``",
        "`\n> $= x`",
        "```\n`$= x`\n```",
        "```dataview&#106;s\nx\n```",
        "```js\\-engine\nx\n```",
        "```tasks\nfilter by function true\n```",
    ],
)
def test_code_that_runs_is_found_in_any_spelling(text: str) -> None:
    assert kinds(text) == {RUNS}


@for_each(
    "text",
    ["<% x %>", "<%* x", "`<% x %>`", "```\n<% x %>\n```", "---\na: <% x %>\n---\n", "a\n\\<%x"],
)
def test_template_code_is_found_even_in_code_and_in_frontmatter(text: str) -> None:
    assert kinds(text) == {TEMPLATE}


@for_each("newline", ["\n", "\r\n", "\r"])
@for_each(
    "before",
    [
        # a fence that has ended, or that never was one
        "```\nx\n`````\n",
        "```\nx\n   ```\n",
        "~~~\n```\n~~~\n",
        "``` a`b\n```\n",
        "~~~ a`b\n~~~\n",
        "   ```\nx\n```\n",
        "- a\n  ```\n",
        "- ```\n",
        "> ```\n",
        ">   ```\n>   x\n> ",
        "[^1]: ```\n",
        "    ```\n",
        "a ```\n",
        "\\```\n",
        "%%\n```\n%%\n",
        "$$\n```\n$$\n",
        "<!--\n```\n-->\n",
        "<pre>\n```\n\n",
        "<div>\n```\n",
        "<div>\n`",
        # frontmatter
        "---\na: |\n  ```\n---\n",
        "---\n```\n---\n",
        "\ufeff---\n```\n---\n",
        "--- \n```\n---\n",
        "---\n```\n--- \n",
        "---\n...\n",
        "---\na: 1\n--- \n```\n---\n",
        "x\u2028```\n",
        "```\nx\u2028```\u2028",
        # backticks that pair otherwise
        "`a\n`",
        "a ` b\n- `",
        "\\`",
        "$`$ `",
        "%%`%% `",
        "[[a`b]] `",
        "<https://example.org/`> `",
        "<a`b@example.org> `",
        "$`$ `\n`",
        "| ` | ",
        "| `a` | ` | `",
        "> ``",
        "[a](b`) ",
        "[a](b 'c) `') ",
        "[a](b\n'`') ",
        "[b`]: c\n\n[a][b`] ",
        "~~~ a | b\n|---|---|\n",
    ],
)
def test_nothing_before_it_makes_an_embed_or_a_tag_look_like_code(
    before: str, newline: str
) -> None:
    text = f"{before}{IMAGE}<img src=x>`` ` |".replace("\n", newline)
    assert kinds(text) >= {EMBED, HTML}


@for_each(
    "text",
    [
        "$5 ![ `]` ](https://example.org)",
        "$5 ![ `[` ](https://example.org)",
        "$5 ![ `](a) [` ](https://example.org)",
        "![ [a](x '[') ](https://example.org)",
        "![a$](b$ ](https://example.org)",
        "![ ![a](b.png) ](https://example.org)",
        "![a`]\n\n[a`]: https://example.org '`'",
    ],
)
def test_no_bracket_hides_an_image_from_its_target(text: str) -> None:
    assert kinds(text) >= {EMBED}


def test_a_finding_says_its_line_and_what_it_is() -> None:
    text = "---\r\na: 1\r\n---\r\none\rtwo <a>\n\n![a\nb](https://example.org) <%\nx"
    assert [(found.kind, found.line, found.text) for found in active(text)] == [
        (HTML, 5, "<a>"),
        (EMBED, 7, "![a b](https://example.org)"),
        (TEMPLATE, 8, "<% x"),
    ]


def test_a_finding_is_one_short_line() -> None:
    (found,) = active("<a\n" + "title " * 100 + ">")
    assert len(found.text) == MAX_TEXT
    assert "\n" not in found.text


def test_a_number_too_long_for_python_is_no_failure() -> None:
    assert active(f"![](&#{'1' * 9000};)\n\n```&#{'1' * 9000};") == []


PERSONS = f"one\n\n{IMAGE}\n<a>two</a>\n\n```dataviewjs\ncode()\n```\nthree <% now %>\n"


@for_each(
    ("old", "new"),
    [
        ("one", "another"),
        ("two", "another"),
        ("three", "another"),
        (IMAGE, ""),
        (PERSONS, ""),
        ("one\n", "`<b>`\n"),
        (f"one\n\n{IMAGE}", f"{IMAGE}\n\none"),
        ("\n", "\r\n"),
    ],
)
def test_a_person_s_own_may_stay_and_move_and_go(old: str, new: str) -> None:
    assert added(PERSONS, PERSONS.replace(old, new)) is None


@for_each(
    ("old", "new", "kind", "line"),
    [
        ("one", IMAGE, EMBED, 3),
        ("a.png", "a.png?secret", EMBED, 3),
        ("one", "<a>", HTML, 4),
        ("<a>", "<a onclick=x>", HTML, 4),
        ("code()", "code();other()", RUNS, 6),
        ("now", "now()", TEMPLATE, 9),
        ("<a>two</a>", "<a>two</a>\n\\<img>", HTML, 5),
        ("<a>two</a>", "<a>two</a>\n```\n<img>\n```", HTML, 6),
    ],
)
def test_what_an_agent_adds_or_changes_is_found(old: str, new: str, kind: str, line: int) -> None:
    found = added(PERSONS, PERSONS.replace(old, new))
    assert found is not None
    assert (found.kind, found.line) == (kind, line)


@for_each(
    ("before", "after"),
    [
        ("![a]\n\n[a]: https://example.org", "![a]\n\n[a]: https://example.org/secret"),
        ("![a]\n\n[a]: a.png", "![a]\n\n[a]: https://example.org"),
        ("[a]\n\n[a]: https://example.org", "![a]\n\n[a]: https://example.org"),
        ("```\n<b>\n```", "<b>"),
        ("<style>\na\n</style>", "<style>\nb\n</style>"),
        ("<a\nhref=x>", "<a\nhref=y>"),
        (f"$ {IMAGE}", f"$ ![ {IMAGE} ](https://example.net)"),
        (f"![{'a' * 90}](https://a.example)", f"![{'a' * 90}](https://b.example)"),
        ("", "<b>"),
    ],
)
def test_a_change_within_what_was_there_is_an_addition(before: str, after: str) -> None:
    assert added(before, after) is not None
    assert added(before, before) is None


@for_each("piece", ["![", "<", "`", "![[", "[a]: ", "&"])
def test_any_piece_repeated_is_read_in_linear_time(piece: str) -> None:
    assert_linear(active, lambda n: piece * (n // len(piece)), size(50_000))


PIECES = [
    *("[", "]", "](", "][", "\\", "<a", "<a ", "<!", "<%", "![a](b:c)", "![](", "](a:b ", "![a]"),
    *("```", "~~~ ", "` ", "`` ` ", "```tasks\n", "```dataviewjs\n", "```mermaid\n", "> ", "- "),
    *("[a]: b:c\n", "<script", "<a '\" ", "&#1", "$", "\n", "` \n", "<a@", "<a:`", "{", " "),
    *("---\n", "`$=", "``$=", "1. ", "<pre\n\n", "%%", "\\`", "![ ", "<%\n%>", "``` ```\n"),
]


@for_each("piece", PIECES)
def test_what_is_repeated_after_an_open_image_is_read_in_linear_time(piece: str) -> None:
    assert_linear(active, lambda n: "[a]: b:c\n\n![" + piece * (n // len(piece)), size(50_000))


ENDS: dict[str, Callable[[int], str]] = {
    "images": lambda n: "![ " * (n // 6) + "](a:b) " * (n // 14),
    "references": lambda n: "![a]" * (n // 8) + "\n\n" + "[a]: b:c\n" * (n // 18),
    "spans": lambda n: "".join("`" * k + " " for k in range(isqrt(2 * n))),
    "drawings": lambda n: "```mermaid\n" * (n // 22) + "(//a)\n" * (n // 12),
}


@for_each("name", ENDS)
def test_as_many_ends_as_beginnings_are_read_in_linear_time(name: str) -> None:
    assert_linear(active, ENDS[name], size(200_000))


@given(PLAIN)
def test_plain_text_is_never_refused(text: str) -> None:
    assert active(text) == []


@given(PLAIN, PLAIN)
def test_an_embed_that_begins_a_paragraph_is_always_found(before: str, after: str) -> None:
    lines = f"{before}\n\n".count("\n") + 1
    found = active(f"{before}\n\n{IMAGE}{after}")
    assert [(each.kind, each.line) for each in found] == [(EMBED, lines)]


@for_each("start", ["<b>", "- <b>", "1. <b>", "* </u>", "- - <b>", "> - <b>", "[^1]: <b>", ": <b>", "> <br>"])  # fmt: skip
def test_a_tag_that_is_alone_in_its_line_or_item_makes_no_code_of_what_follows(start: str) -> None:
    assert [each.kind for each in active(f"{start}\n  `<img src=x>`\n")][-1] == HTML


def test_an_embed_in_a_field_counts_since_some_show_it() -> None:
    found = active("---\nimg: '![](https://example.org/x.png)'\n---\n`= this.img`\n")
    assert [(each.kind, each.line) for each in found] == [(EMBED, 2)]
