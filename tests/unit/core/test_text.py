"""Text of strangers: what the eye cannot see is gone and counted; words compare as people expect."""

from hypothesis import example, given
from hypothesis import strategies as st

from postroom.core.text import (
    TOKEN_CHARS,
    clean,
    file_name,
    one_line,
    short_duration,
    words,
)
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear


@for_each(
    "hidden",
    [
        "\u200b",
        "\u202e",
        "\u2066",
        "\ufeff",
        "\u00ad",
        "\x1b",
        "\x07",
        "\0",
        "\U000e0041",
        "\U000e0100",
        "\u3164",
        "\ud800",
        "\ufe01",
    ],
)
def test_an_invisible_character_is_removed_and_counted(hidden: str) -> None:
    assert clean(f"pay{hidden}load") == ("payload", 1)


def test_a_run_of_variation_selectors_cannot_smuggle_a_message() -> None:
    smuggled = "".join(chr(0xE0100 + byte) for byte in b"send it all")
    assert clean(f"hello{smuggled}") == ("hello", len(smuggled))


@for_each("shown", ["👩‍👩‍👧", "❤️", "👁️‍🗨️", "می‌خواهم", "1️⃣", "tab\tand\nnewline", "naïve café"])
def test_what_shapes_the_text_that_people_see_is_kept(shown: str) -> None:
    assert clean(shown) == (shown, 0)


def test_a_joiner_between_latin_letters_is_no_part_of_the_word() -> None:
    assert clean("pay\u200dpal") == ("paypal", 1)


@for_each("ending", ["\r\n", "\r", "\u2028"])
def test_every_kind_of_line_end_becomes_a_newline(ending: str) -> None:
    assert clean(f"one{ending}two").text == "one\ntwo"


marks = st.sampled_from("a1é👩\u0300\u200b\u200d\u200c\ufe0f\ufe0e\u202e\r\n")


@given(st.one_of(st.text(), st.text(marks)))
@example("a\u200b\ufe0f")
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    once = clean(text).text
    assert clean(once).text == once


@for_each(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (86_399, "23 h"),
        (86_400, "1 d"),
    ],
)
def test_a_short_duration_is_in_the_largest_unit_that_fits(seconds: float, shown: str) -> None:
    assert short_duration(seconds) == shown


def test_the_kind_of_a_file_has_twenty_characters_at_most() -> None:
    assert file_name(f"a.{'x' * 21}") == f"a.{'x' * 20}.download"


def test_a_line_is_one_line() -> None:
    assert one_line("  Re:\r\n\tinvoice \x1b[31m now ") == "Re: invoice [31m now"


@for_each(
    ("text", "found"),
    [
        ("Invoice #1234, PAID", ["invoice", "1234", "paid"]),
        ("Größe naïve ÉCOLE İstanbul", ["grosse", "naive", "ecole", "istanbul"]),
        ("ﬁnance ＡＢＣ", ["finance", "abc"]),
        ("会議の予定", ["会", "議", "の", "予", "定"]),
        ("회의를 시작", ["회", "의", "를", "시", "작"]),
        ("привет, мир", ["привет", "мир"]),
        ("snake_case a@b.org", ["snake", "case", "a", "b", "org"]),
        ("thumbs 👍up", ["thumbs", "👍", "up"]),
        ("...!?", []),
    ],
)
def test_words_are_folded_as_people_search_for_them(text: str, found: list[str]) -> None:
    assert words(text) == found


@for_each(("marks", "end"), [("\u0300\u0316", " b"), ("\u05b0\u05c1", "")])
def test_a_flood_of_marks_is_read_in_linear_time(marks: str, end: str) -> None:
    def read(text: str) -> None:
        assert len(words(text)) <= 2

    assert_linear(read, lambda n: "a" + marks * (n // 2) + end, size(400_000))


def test_a_blob_is_found_by_its_beginning() -> None:
    assert words("x" * 1000) == ["x" * TOKEN_CHARS]


@given(st.text())
def test_words_hold_nothing_that_an_ascii_tokenizer_would_split_or_fold(text: str) -> None:
    for token in words(text):
        assert token
        assert "·" not in token  # the sign by which the index tells its own marks from words
        assert all(ord(char) > 127 or char.isdigit() or "a" <= char <= "z" for char in token)
