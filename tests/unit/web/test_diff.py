"""What an edit changed: both texts can be read out of it, whatever they hold, in a time that is bounded."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from postroom.core.address import Address
from postroom.core.letter import Letter
from postroom.web.templates import MAX_WORDS, letter_changes, text_changes
from tests.cases import for_each
from tests.conftest import size
from tests.desks import ANN, BOB, CAT, YOU
from tests.growth import assert_linear
from tests.unit.web.browser import Node, macro, parsed, unseen

WORDS = st.lists(
    st.sampled_from(["a", "b", "word", " ", "  ", "\n", "\t", ".", "<b>", "&amp;", "é", "\u2028", "\u202e", "-", "日本", "\x0b"]),
    max_size=40,
).map("".join)  # fmt: skip


def words(old: str, new: str) -> str:
    """Return the difference between two texts as a page shows it."""
    return macro("parts.html", "pieces")(text_changes(old, new))


def changes(before: Letter, after: Letter) -> str:
    """Return the difference between two letters as a page shows it."""
    return macro("parts.html", "changes")(letter_changes(before, after))


def sides(marked: str) -> tuple[str, str]:
    """Return the text before and after that a page of changes shows."""
    before, after = "", ""
    for one in parsed(marked).children:
        kind = getattr(one, "tag", "")
        said = read(one)
        before += said if kind != "ins" else ""
        after += said if kind != "del" else ""
    return before, after


def read(node: Node | str) -> str:
    if isinstance(node, str):
        return node
    if node.attrs.get("class") == "hidden-char":
        return unseen(node)
    assert node.tag in {"ins", "del"}
    return "".join(map(read, node.children))


@given(WORDS, WORDS)
def test_both_texts_can_be_read_out_of_what_changed(old: str, new: str) -> None:
    assert sides(words(old, new)) == (old, new)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_can_be(old: str, new: str) -> None:
    assert sides(words(old, new)) == (old, new)


def test_what_changed_in_a_long_text_is_marked_and_what_did_not_is_left_out() -> None:
    lines = [f"Line {n} of a letter that is long\n" for n in range(50_000)]
    old = "".join(lines)
    new = "".join([*lines[:20_000], "Another line altogether\n", *lines[20_001:]])
    page = parsed(words(old, new))
    assert "20000" in "".join(node.text for node in page.all("del"))
    assert "Another" in "".join(node.text for node in page.all("ins"))
    assert sum(len(node.text) for node in page.all("ins")) < 1000


def test_words_that_changed_side_by_side_are_one_phrase() -> None:
    marked = words("That is a relief, Dora.\nBest", "That is good news, Dora.\nBest")
    assert "<del>a relief</del><ins>good news</ins>" in marked


def test_two_long_texts_that_have_nothing_in_common_are_shown_apart() -> None:
    many = size(100_000)
    page = parsed(words("one two\n" * many, "three four\n" * many))
    assert "three" not in "".join(node.text for node in page.all("del"))
    assert "three" in "".join(node.text for node in page.all("ins"))


# Texts of `n` words or lines that comparing could take long for, before and after an edit.
REPEATING: dict[str, Callable[[int], tuple[str, str]]] = {
    "empty lines": lambda n: ("x" + "\n" * (2 * n), "y\n" * n + "z"),
    "one word": lambda n: ("x" + "a " * (2 * n), "".join(f"a {k} " for k in range(n)) + "y"),
    "cycles": lambda n: ("x" + "".join(f"{k % 7} " for k in range(n)), "".join(f"{k % 5} " for k in range(n)) + "y"),
    "other lines": lambda n: ("x\n" + "line\n" * n, "y\n" + "other\n" * n),
    "only empty lines": lambda n: ("x" + "\n" * n, "\n" * (n - 1) + "y"),
}  # fmt: skip


def compare(texts: tuple[str, str]) -> None:
    kinds = {kind for kind, _ in text_changes(*texts)}
    assert {"del", "ins"} <= kinds


@for_each("kind", REPEATING)
def test_no_text_makes_comparing_slow(kind: str) -> None:
    assert_linear(compare, REPEATING[kind], MAX_WORDS // 8)  # which are compared word by word
    assert_linear(compare, REPEATING[kind], size(40_000))


def letter(**changed: Any) -> Letter:
    plain = Letter(
        id="aaaaaaaaaa", account="default", sender=YOU, to=(ANN,), subject="Hello", text="Hi\n"
    )
    return replace(plain, **changed)


def rows(before: Letter, after: Letter) -> dict[str, Node]:
    page = parsed(changes(before, after))
    return {node.one("dt").text: node.one("dd") for node in page.all(class_="change")}


def test_nothing_is_said_where_nothing_changed() -> None:
    assert letter_changes(letter(), letter()) == []


def test_each_recipient_that_goes_comes_or_stays_is_shown() -> None:
    found = rows(letter(to=(ANN, BOB)), letter(to=(BOB, CAT), bcc=(ANN,)))
    assert set(found) == {"To", "Bcc"}
    assert [n.text for n in found["To"].all("del")] == [str(ANN)]
    assert [n.text for n in found["To"].all("ins")] == [str(CAT)]
    assert str(BOB) in found["To"].text
    assert [n.text for n in found["Bcc"].all("ins")] == [str(ANN)]


def test_another_name_for_the_same_address_is_a_change() -> None:
    found = rows(letter(), letter(to=(Address.parse("Boss <ann@example.com>"),)))
    assert [n.text for n in found["To"].all("ins")] == ["Boss <ann@example.com>"]


def test_hostile_words_are_words() -> None:
    found = rows(letter(), letter(subject="<script>{x}%s", text="</dd><script>\n"))
    assert found["Subject"].one("ins").text == "<script>{x}%s"
    assert "</dd><script>" in found["Text"].text


def test_that_the_html_part_goes_is_said() -> None:
    found = rows(letter(html="<p>Hi</p>"), letter(text="Ho\n"))
    assert "The HTML part is dropped" in found["HTML"].text
