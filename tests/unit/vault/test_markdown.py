"""Text for properties, and what of it is left alone."""

from postroom.vault.markdown import inert
from tests.cases import for_each


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
