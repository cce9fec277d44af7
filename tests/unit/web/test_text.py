"""Text of others on the page: it is shown as text, and hidden characters are named."""

import re
import unicodedata
from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from postroom.core.stamp import Stamp
from postroom.web.templates import ENVIRONMENT, isolate, mark_code, reveal, time_left
from tests.cases import for_each
from tests.desks import START
from tests.narrow import narrow
from tests.unit.web.browser import Node, parsed, unseen

HOSTILE = ('"><script>alert(1)</script>', "{x}", "{0.__class__}", "%s", "&amp;lt;", "' onload='x", "</title>", "<!--", "]]>", "\\", "&#60;")  # fmt: skip
HIDDEN = (
    "\u200b\u200c\u200d\u202e\u2066\u2069\u00ad\u2028\ufeff\u061c\u180e\x1b\x00\x85\u3164\U000e0041"
)
TEXT = st.lists(
    st.one_of(st.text(), st.sampled_from(HOSTILE), st.sampled_from(list(HIDDEN)), st.text(alphabet="<>&\"'{}%/=! ab")),
    max_size=8,
).map("".join)  # fmt: skip


@given(TEXT)
def test_a_value_in_a_template_is_that_text_and_no_element(text: str) -> None:
    template = ENVIRONMENT.from_string('<p title="{{ text }}">{{ text }}</p>')
    page = parsed(template.render(text=text))
    (child,) = page.children
    node = narrow(child, Node)
    assert node.tag == "p"
    assert list(node.attrs) == ["title"]
    assert node.attrs["title"] == text
    assert node.text == text
    assert len(list(page)) == 2


@given(TEXT)
def test_foreign_text_is_in_a_box_of_its_own_and_all_of_it_can_be_read(text: str) -> None:
    page = parsed(isolate(text))
    (child,) = page.children
    box = narrow(child, Node)
    assert (box.tag, box.attrs) == ("bdi", {"dir": "auto"})
    said = ""
    for one in box.children:
        if isinstance(one, str):
            said += one
        else:
            assert (one.tag, one.attrs["class"], set(one.attrs)) == ("b", "hidden-char", {"class", "title"})  # fmt: skip
            said += unseen(one)
    assert said == text


def test_of_a_row_of_selectors_only_the_first_can_shape_what_is_before_it() -> None:
    marks = [node.text for node in parsed(reveal("☂" + "\ufe0f" * 5)).all(class_="hidden-char")]
    assert marks == ["U+FE0F × 4"]


def test_a_row_of_one_hidden_character_is_one_mark() -> None:
    page = parsed(reveal("a" + "\u200b" * 200_000 + "b\u200b\u200bc"))
    marks = [node.text for node in page.all(class_="hidden-char")]
    assert marks == ["U+200B × 200,000", "U+200B × 2"]


@given(TEXT)
def test_nothing_that_turns_or_hides_text_reaches_the_page_unnamed(text: str) -> None:
    out = str(reveal(text))
    for at, char in enumerate(out):
        if char in "\u200c\u200d":
            # Joiners stay where they shape letters, never beside ASCII.
            assert out[at - 1] > "\u02ff"
            assert out[at + 1] > "\u02ff"
        else:
            assert unicodedata.category(char) not in {"Cf"} or char in "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd" or char > "\U00010000", hex(ord(char))  # fmt: skip
            assert char not in HIDDEN


@for_each(
    ("text", "names"),
    [
        ("invoice\u202efdp.exe", ["right-to-left override"]),
        ("pay\u200bpal", ["zero width space"]),
        ("a\u00adb\ufeff", ["soft hyphen", "zero width no-break space"]),
        ("a\u200db", ["zero width joiner"]),
        ("x\x1b[31m", ["a control character"]),
        ("a\rb", ["a control character"]),
        ("\u2066a\u2069", ["left-to-right isolate", "pop directional isolate"]),
        ("\U000e0041", ["tag latin capital letter a"]),
    ],
)
def test_hidden_characters_are_named(text: str, names: list[str]) -> None:
    marks = parsed(reveal(text)).all("b")
    assert [mark.attrs["title"] for mark in marks] == names
    assert all(re.fullmatch(r"U\+[0-9A-F]{4,6}", mark.text) for mark in marks)


@for_each("text", ["👩\u200d💻", "می\u200cخواهم", "क\u094d\u200dष", "Äpfel", "日本語", "a\n\tb", "☂\ufe0f"])  # fmt: skip
def test_what_shapes_a_script_or_an_emoji_stays(text: str) -> None:
    assert reveal(text) == text


def test_words_between_backticks_are_code_and_everything_is_escaped() -> None:
    assert mark_code("Run `a <b>` & `c`.") == "Run <code>a &lt;b&gt;</code> &amp; <code>c</code>."
    assert mark_code("One ` <alone>") == "One ` &lt;alone&gt;"
    assert mark_code("a'\"&") == "a&#39;&#34;&amp;"


@given(st.floats(0, 10**9))
def test_a_time_is_short(seconds: float) -> None:
    assert re.fullmatch(r"\d+ (min|h|d)", time_left(seconds))


def test_times_are_told_in_the_desks_zone_and_for_the_readers() -> None:
    moment = ENVIRONMENT.from_string("{{ stamp|moment(zone) }}")
    for stamp in (START, Stamp(START, "b", 0.0)):
        node = narrow(parsed(moment.render(stamp=stamp, zone=UTC)).children[0], Node)
        assert (node.tag, node.text) == ("time", "2026-11-15 00:00 UTC")
        assert node.attrs["datetime"] == "2026-11-15T00:00:00Z"


def test_what_is_left_of_a_time_is_never_said_to_be_less_than_it_is() -> None:
    shown = [time_left(seconds) for seconds in (0, 59, 61, 3600, 3601, 7200, 96 * 3600, 97 * 3600)]
    assert shown == ["1 min", "1 min", "2 min", "60 min", "2 h", "2 h", "96 h", "5 d"]
