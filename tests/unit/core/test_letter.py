"""Letters: what a person approves is one value, and nothing can be slipped into it."""

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.core.letter import MAX_BYTES, MAX_SUBJECT, Enclosure, Letter, letter_id
from tests.cases import for_each

YOU = Address.parse("You <you@example.org>")
ANN = Address.parse("Ann <ann@example.com>")
BOB = Address.parse("bob@example.net")


def letter(**changes: Any) -> Letter:
    plain = Letter(
        id="abcdefghij",
        account="default",
        sender=YOU,
        to=(ANN,),
        subject="Hello",
        text="Good day.\n",
    )
    return replace(plain, **changes)


CHANGES = {
    "id": "bbcdefghij",
    "account": "work",
    "sender": Address.parse("Other <you@example.org>"),
    "to": (ANN, BOB),
    "cc": (BOB,),
    "bcc": (BOB,),
    "reply_to": (BOB,),
    "subject": "Hello!",
    "text": "Good day. \n",
    "html": "<p>Good day.</p>",
    "thread": "18d5a",
    "in_reply_to": "<a@example.com>",
    "references": ("<a@example.com>",),
    "attachments": (Enclosure("a.txt", "text/plain", b"x"),),
}


def test_every_field_of_a_letter_is_in_its_digest() -> None:
    assert {field.name for field in dataclasses.fields(Letter)} == set(CHANGES)
    digests = {letter(**{name: value}).digest for name, value in CHANGES.items()}
    assert len(digests | {letter().digest}) == len(CHANGES) + 1


def test_a_repeated_call_has_the_same_content_key_under_another_id() -> None:
    assert replace(letter(), id="bbcdefghij").content_key == letter().content_key
    others = {
        letter(**{name: value}).content_key for name, value in CHANGES.items() if name != "id"
    }
    assert len(others | {letter().content_key}) == len(CHANGES)


def test_the_digest_of_a_letter_never_changes_between_versions() -> None:
    # A letter approved before an upgrade must be sendable after it: this value is a promise.
    assert (
        letter().digest == "sha256:13c681cb00f841910ba09d8ae53bcbc431c4d5d3ffcfb697bc21d7ac3d0f5f01"
    )


def test_moving_a_recipient_from_cc_to_bcc_is_another_letter() -> None:
    assert letter(cc=(BOB,)).digest != letter(bcc=(BOB,)).digest


def test_an_attachment_whose_bytes_differ_is_another_letter() -> None:
    one, other = (
        letter(attachments=(Enclosure("a.txt", "text/plain", raw),)) for raw in (b"x", b"y")
    )
    assert one.digest != other.digest


def test_the_envelope_names_every_mailbox_once() -> None:
    assert letter(cc=(BOB, ANN), bcc=(BOB,)).envelope == (ANN, BOB)


def test_the_message_id_comes_from_the_letters_id_and_the_senders_domain() -> None:
    assert letter().message_id == "<abcdefghij@example.org>"


@for_each(
    "subject",
    [
        "a\nBcc: x@example.com",
        "a\r\nb",
        "a\0b",
        "a\u2028b",
        "a\x85b",
        "\ud800",
        "fdp\u202etxt",
        "a\u200bb",
        "\U000e0041",
    ],
)
def test_a_subject_that_is_not_one_line_is_refused(subject: str) -> None:
    with pytest.raises(Invalid, match="subject"):
        letter(subject=subject)


@for_each("field", ["text", "html"])
@for_each("text", ["a\0b", "a\rb", "\udfff", "a\x1b[2J"])
def test_a_body_that_is_no_plain_unicode_is_refused(field: str, text: str) -> None:
    with pytest.raises(Invalid, match=field):
        letter(**{field: text})


def test_a_subject_longer_than_a_header_line_is_refused_not_cut() -> None:
    assert letter(subject="x" * MAX_SUBJECT).subject == "x" * MAX_SUBJECT
    with pytest.raises(Invalid, match="998"):
        letter(subject="x" * (MAX_SUBJECT + 1))


def test_a_letter_to_nobody_is_refused() -> None:
    with pytest.raises(Invalid, match="recipient"):
        letter(to=())


def test_a_letter_larger_than_providers_take_is_refused_with_a_remedy() -> None:
    big = Enclosure("a.bin", "application/octet-stream", bytes(MAX_BYTES))
    with pytest.raises(Invalid, match="25,000,000") as refusal:
        letter(attachments=(big,))
    assert "attachments" in refusal.value.remedy


@for_each(
    "bad", ["no-brackets@x", "<a b@example.com>", "<a@example.com>\r\nBcc: x", "<a>", "<<a@b>>"]
)
def test_threading_headers_take_message_ids_only(bad: str) -> None:
    with pytest.raises(Invalid):
        letter(in_reply_to=bad)
    with pytest.raises(Invalid):
        letter(references=(bad,))


@for_each("name", ["", "..", " . ", "../x", "a/b", "a\\b", "a\nb", "exe\u202efdp.txt", "x" * 201])
def test_an_attachment_needs_a_plain_file_name(name: str) -> None:
    with pytest.raises(Invalid):
        Enclosure(name, "text/plain", b"")


@for_each("kind", ["", "text", "text/plain; charset=x", "text/pl ain", "a/b\r\nBcc: x"])
def test_an_attachment_needs_a_content_type(kind: str) -> None:
    with pytest.raises(Invalid):
        Enclosure("a.txt", kind, b"")


def test_an_id_is_ten_base32_characters_of_the_entropy_given() -> None:
    ids = {letter_id(bytes([n]) * 7) for n in range(256)}
    assert len(ids) == 256
    assert all(len(id) == 10 and set(id) <= set("abcdefghijklmnopqrstuvwxyz234567") for id in ids)
    with pytest.raises(Invalid):
        letter(id="ABCDEFGHIJ")


@for_each("field", ["account", "thread"])
@for_each("value", ["\ud83d\ude00", "😀", "a b", "a\nb", "x" * 201])
def test_names_in_a_letter_have_one_spelling(field: str, value: str) -> None:
    with pytest.raises(Invalid):
        letter(**{field: value})
