"""Where a text has headings and code, and what of it is left alone."""

from hypothesis import given
from hypothesis import strategies as st

from postroom.vault.markdown import (
    fenced_sections,
    headings,
    inert,
    numbered,
    outside_code,
    sections,
    titles,
)
from tests.cases import for_each
from tests.fences import fenced


@for_each(
    "text",
    [
        "[list] Hello",
        "Ann <ann@example.com>",
        "a < b",
        "50% [x] done",
        "https://example.org",
        r"a\b",
        "",
    ],
)
def test_an_ordinary_text_stays_as_it_is(text: str) -> None:
    assert inert(text) == text


@for_each(
    ("text", "becomes"),
    [
        ("![x](http://e.example/p)", r"!\[x\](http://e.example/p)"),
        ("[[Handbook]]", r"\[\[Handbook\]\]"),
        ("[a](b)", r"\[a\](b)"),
        (r"\[a\](b)", r"\\\[a\\\](b)"),
        ("<img src=x>", r"\<img src=x>"),
        ("<https://e.example>", r"\<https://e.example>"),
        ("<!-- x", r"\<!-- x"),
    ],
)
def test_links_images_and_html_are_escaped(text: str, becomes: str) -> None:
    assert inert(text) == becomes


@given(st.lists(st.sampled_from(["# a", "## b #", "c", "", " # d", "- # e", "> # f", "====", "---", "```", "#g", "#", "<div>", "$$", "[x]: y", "h `#` i"])))  # fmt: skip
def test_titles_are_the_same_with_and_without_the_parser(lines: list[str]) -> None:
    body = "\n".join(lines)
    assert titles(body) == [one.title for one in headings(body)]


@for_each(
    ("body", "found"),
    [
        ("# One\n\ntext\n\nTwo\nlines\n---\n", [(1, "One"), (2, "Two\nlines")]),
        ("```\n# code\n```\n> # quoted\n\n- # listed\n\n# ä #\n", [(1, "ä")]),
        ("<!--\n# comment\n-->\n## After", [(2, "After")]),
        ("#\n##  ##\n#no", [(1, ""), (2, "")]),
    ],
)
def test_headings_are_found_where_commonmark_has_them(
    body: str, found: list[tuple[int, str]]
) -> None:
    assert [one[:2] for one in headings(body)] == found


def test_offsets_are_characters_whatever_the_bytes() -> None:
    body = "ä漢😀\n\n## Ünder\n\ntext `ö` ä\n\n## Next\n"
    (heading, after) = headings(body)
    assert body[heading.start : heading.text] == "## Ünder\n"
    assert body[heading.text : heading.end] == "\ntext `ö` ä\n\n"
    assert body[after.start :] == "## Next\n"
    assert outside_code(body) == body.replace("`ö`", " ")


def test_lines_are_numbered_with_the_heading_over_them() -> None:
    body = "a\n## B\nc\n```\n## d\n```\n# E\nf"
    assert list(numbered(body)) == [
        (1, "", "a"),
        (2, "B", "## B"),
        (3, "B", "c"),
        (7, "", "# E"),
        (8, "", "f"),
    ]


@given(st.lists(st.sampled_from(["## a", "# b", "```", "text", "~~~", "- ```", "  ```", "> ```", "", "<!--", "-->"])))  # fmt: skip
def test_the_fence_of_a_section_is_the_same_in_the_whole_and_alone(lines: list[str]) -> None:
    body = "\n".join(lines)
    assert "".join(text for _, text in sections(body)) == body
    whole = fenced_sections(body)
    assert [title for title, _ in whole] == [title for title, _ in sections(body)]
    # A comment that is closed in a later section makes no fence of its lines there.
    if "<!--" not in body:
        assert whole == [(title, fenced(text)) for title, text in sections(body)]


def test_a_lone_surrogate_is_no_failure() -> None:
    assert [one.title for one in headings("# a\ud800\n\n# b")] == ["a\ud800", "b"]
