"""What the log may show of people, subjects and secrets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core import audit
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear


@for_each(
    ("spec", "shown"),
    [
        ("john.doe@example.com", "j***@example.com"),
        ("j@example.com", "j***@example.com"),
        ("John Doe <john.doe@example.com>", "j***@example.com"),
        ('"john doe"@example.com', "j***@example.com"),
        ('"a@b"@example.com', "a***@example.com"),
        ("ann@example.net <john.doe@example.com>", "j***@example.com"),
        ("john@münchen.example", "j***@münchen.example"),
        ("john＠example.com", "j***@example.com"),
        ("@example.com", "***@example.com"),
        ("john@", "j***@"),
        ("john@example.com and a secret", "j***@example.com"),
        ("john", "***"),
        (" ", ""),
        ("", ""),
    ],
)
def test_of_an_address_the_first_letter_and_the_domain_are_shown(spec: str, shown: str) -> None:
    assert audit.redact_address(spec) == shown


def test_of_many_addresses_five_are_shown_and_the_others_counted() -> None:
    people = [f"{name}@example.org" for name in ("ann", "bob", "cy", "dee", "eve", "fay", "gus")]
    assert audit.redact_addresses(people[:2]) == "a***@example.org, b***@example.org"
    assert audit.redact_addresses(people[:5]).count("***") == 5
    assert audit.redact_addresses(people).endswith("e***@example.org and 2 more")
    assert audit.redact_addresses([]) == ""


def test_a_subject_is_one_line_of_fifty_characters() -> None:
    assert audit.redact_subject("x" * 80) == "x" * 50
    assert audit.redact_subject("x" * 80_000) == "x" * 50
    assert audit.redact_subject("Re:\r\nBcc: all\u200b") == "Re: Bcc: all"
    assert audit.redact_subject("From john.doe@example.com") == "From j***@example.com"


@for_each(
    ("message", "shown"),
    [
        ("550 no such user <john.doe@example.com>", "550 no such user <j***@example.com>"),
        ('550 "john doe"@example.com is away', "550 j***@example.com is away"),
        ("mailto:john.doe@example.com?", "mailto:j***@example.com"),
        ("/users/john.doe%40example.com/messages", "***@example.com"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("token ya29.a0Af_x expired", "token *** expired"),
        ("eyJhbGciOi.eyJzdWIi.c2ln", "***"),
        ("key 0123456789abcdef0123456789abcdef.", "key ***."),
        ("key dGhpcyBpcyBhIHNlY3JldCBrZXkgb2Ygb3Vycw== here", "key *** here"),
        ("thread 18e5a1b2c3d4e5f6", "thread 18e5a1b2c3d4e5f6"),
        ("two\nlines @ once", "two lines @ once"),
        ("", ""),
    ],
)
def test_a_message_shows_neither_addresses_nor_secrets(message: str, shown: str) -> None:
    assert audit.redact_text(message) == shown


@pytest.mark.parametrize(
    "path",
    [
        "Needs_Action/2026-01-05-quarterly-numbers-for-the-board.md",
        "Projects/Q3_Planning/Meeting-notes-2026-01-05.md",
    ],
)
def test_a_long_path_of_words_is_no_secret(path: str) -> None:
    assert audit.redact_text(path) == path


@given(st.text(), st.from_regex(r"[a-z]{8}\.[a-z]{8}", fullmatch=True), st.integers(0, 5_000))
def test_a_local_part_never_survives_wherever_it_stands(
    around: str, local: str, padding: int
) -> None:
    message = f"{'a ' * padding}{local}@example.com {around} <{local}@example.org>"
    assert local[1:] not in audit.redact_text(message)
    assert local[1:] not in audit.redact_subject(message)


@given(st.text() | st.text('"@ .<%40a\n'))
def test_any_text_becomes_one_short_line(message: str) -> None:
    shown = audit.redact_text(message)
    assert len(shown) <= audit.MAX_REDACTED
    assert len(audit.redact_subject(message)) <= audit.MAX_SUBJECT
    assert len((shown + audit.redact_address(message)).splitlines()) <= 1


def test_of_a_long_text_the_beginning_is_shown_without_a_word_that_was_cut_in_two() -> None:
    assert audit.redact_text("word " * 1_000) == ("word " * 40)
    assert audit.redact_subject(f"Re: {'x' * 3_996}") == f"Re: {'x' * 46}"
    assert audit.redact_subject(f"Re: {'x' * 3_997}") == "Re:"


def test_a_message_of_megabytes_is_looked_at_in_its_beginning_only() -> None:
    assert audit.redact_text("a" * size(1_000_000)) == "***"


@for_each("piece", ['"@', "a@", "a", "a.", "a ", "token=", "<", "%40"])
def test_a_hostile_message_is_read_in_linear_time(piece: str) -> None:
    assert_linear(audit.redact_text, lambda n: piece * (n // len(piece)), 1_000)  # read to its end
    assert_linear(audit.redact_text, lambda n: piece * (n // len(piece)), size(500_000))
