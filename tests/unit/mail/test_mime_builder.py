"""The builder: one letter is one mail, to the octet, and no value can add a header."""

import email
import email.policy
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from html import escape
from typing import Any

import pytest

from postroom.core.address import Address
from postroom.core.errors import Invalid
from postroom.core.letter import Enclosure, Letter
from postroom.mail import mime
from tests.cases import for_each

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
ANN = Address("ann", "example.org", "Ann Example")
BOB = Address("bob", "example.org")
EVIL = "x\r\nBcc: evil@example.com\r\n\r\nbody"


def letter(**values: Any) -> Letter:
    return replace(Letter(id="abcdefghij", account="main", sender=ANN, to=(BOB,)), **values)


def built(*, date: datetime = NOON, **values: Any) -> bytes:
    return mime.build(letter(**values), date=date, bcc=False)


def head(raw: bytes) -> dict[str, str]:
    block = raw.partition(b"\r\n\r\n")[0].decode("ascii").replace("\r\n ", " ")
    return dict(line.split(": ", 1) for line in block.split("\r\n"))


def body(raw: bytes) -> bytes:
    return raw.partition(b"\r\n\r\n")[2]


def forced(**values: object) -> Letter:
    """Return a letter with values that `Letter` itself would refuse."""
    made = letter()
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def test_a_letter_of_plain_text_is_the_simplest_mail() -> None:
    assert built(subject="Lunch", text="At noon?\nAnn") == (
        b"From: Ann Example <ann@example.org>\r\n"
        b"To: bob@example.org\r\n"
        b"Subject: Lunch\r\n"
        b"Date: Mon, 01 Jan 2024 12:00:00 +0000\r\n"
        b"Message-ID: <abcdefghij@example.org>\r\n"
        b"X-Postroom-Letter: abcdefghij\r\n"
        b"MIME-Version: 1.0\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"Content-Transfer-Encoding: 7bit\r\n"
        b"\r\n"
        b"At noon?\r\nAnn\r\n"
    )


def test_hidden_recipients_are_named_only_where_there_is_no_envelope() -> None:
    hidden = (Address("carol", "example.org"),)
    assert "Bcc" not in head(built(bcc=hidden))
    raw = mime.build(letter(bcc=hidden), date=NOON, bcc=True)
    assert head(raw)["Bcc"] == "carol@example.org"


def test_the_whole_chain_of_references_goes_out_folded() -> None:
    chain = tuple(f"<{n}.{'x' * 40}@example.org>" for n in range(100))
    raw = built(references=chain, in_reply_to=chain[-1])
    assert head(raw)["References"].split() == list(chain)
    assert head(raw)["In-Reply-To"] == chain[-1]
    assert max(map(len, raw.split(b"\r\n"))) <= 78


@pytest.mark.parametrize(
    ("date", "written"),
    [
        (NOON.astimezone(timezone(timedelta(hours=-3, minutes=-30))), "Mon, 01 Jan 2024 08:30:00 -0330"),
        (NOON.replace(tzinfo=timezone(timedelta(minutes=53, seconds=28))), "Mon, 01 Jan 2024 11:06:32 +0000"),
    ],
)  # fmt: skip
def test_the_date_has_its_offset_from_utc(date: datetime, written: str) -> None:
    assert head(built(date=date))["Date"] == written


def test_a_date_without_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="offset"):
        built(date=datetime(2024, 1, 1))


@for_each(
    ("name", "written"),
    [
        ("Ann", "Ann <ann@example.org>"),
        ("Example, Ann", '"Example, Ann" <ann@example.org>'),
        ('A "B" \\ C', '"A \\"B\\" \\\\ C" <ann@example.org>'),
        ("Änn", "=?utf-8?b?w4Rubg==?= <ann@example.org>"),
        ("=?utf-8?q?x?=", "=?utf-8?b?PT91dGYtOD9xP3g/PQ==?= <ann@example.org>"),
        ("evil@example.com", '"evil@example.com" <ann@example.org>'),
    ],
)
def test_a_name_is_written_so_that_it_stays_a_name(name: str, written: str) -> None:
    assert head(built(sender=Address("ann", "example.org", name)))["From"] == written


def test_a_domain_goes_out_in_ascii() -> None:
    raw = built(to=(Address.parse("bob@bücher.example"),))
    assert head(raw)["To"] == "bob@xn--bcher-kva.example"


@for_each(
    "subject",
    ["ü" * 500, "word " * 199, "x" * 998, "日本語の件名 " * 60, "a  b", " a", "=?utf-8?q?x?=", "😀" * 200],
)  # fmt: skip
def test_every_line_of_a_header_is_short_enough(subject: str) -> None:
    raw = built(subject=subject.strip() if subject.endswith(" ") else subject)
    for line in raw.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        assert len(line) <= (76 if b"=?" in line else 78)
    parsed = email.message_from_bytes(raw, policy=email.policy.default)
    assert parsed["Subject"] == (subject.strip() if subject.endswith(" ") else subject)


@for_each(
    ("text", "encoding"),
    [
        ("plain\nwords", "7bit"),
        ("", "7bit"),
        ("caf\u00e9 and more words", "quoted-printable"),
        ("日本語" * 30, "base64"),
        ("From here", "quoted-printable"),
        (".", "quoted-printable"),
        ("trailing ", "quoted-printable"),
        ("x" * 79, "quoted-printable"),
        ("--=_abcdefghij_m", "quoted-printable"),
        ("From " + "x" * 71, "base64"),
    ],
)
def test_a_text_goes_out_so_that_no_gateway_changes_it(text: str, encoding: str) -> None:
    raw = built(text=text)
    assert f"Content-Transfer-Encoding: {encoding}".encode() in raw
    assert not re.search(rb"(?m)^From |^\.|[ \t]\r$|[^\r\n -~]", body(raw))
    assert max(map(len, body(raw).split(b"\r\n"))) <= 78
    parsed = email.message_from_bytes(raw, policy=email.policy.default)
    assert parsed.get_content().replace("\r\n", "\n").rstrip("\n") == text.rstrip("\n")


@for_each("end", ["", "\n", "\n\n\n"])
@for_each("words", ["plain", "café", "日本" * 40])
def test_the_end_of_a_text_stays_as_it_is(words: str, end: str) -> None:
    assert mime.read(built(text=words + end)).text == words + end


def test_text_and_page_are_alternatives_and_files_stand_beside_them() -> None:
    raw = built(
        text="plain",
        html="<p>page</p>",
        attachments=(Enclosure("a.pdf", "application/pdf", b"%PDF"),),
    )
    parsed = email.message_from_bytes(raw, policy=email.policy.default)
    shape = [part.get_content_type() for part in parsed.walk()]
    assert shape == [
        "multipart/mixed",
        "multipart/alternative",
        "text/plain",
        "text/html",
        "application/pdf",
    ]
    assert not [defect for part in parsed.walk() for defect in part.defects]
    (enclosed,) = parsed.iter_attachments()
    assert (enclosed.get_filename(), enclosed.get_content()) == ("a.pdf", b"%PDF")


@for_each(
    "name",
    ["a.pdf", "Ärger.pdf", 'q"uote;.pdf', "日本語" * 60 + ".pdf", "=?utf-8?q?x?=.pdf", "a'b%20.pdf", "😀.pdf"],
)  # fmt: skip
def test_other_readers_find_the_true_name_of_a_file(name: str) -> None:
    raw = built(attachments=(Enclosure(name, "application/pdf", b"x"),))
    assert max(map(len, raw.split(b"\r\n"))) <= 78
    (enclosed,) = email.message_from_bytes(raw, policy=email.policy.default).iter_attachments()
    assert enclosed.get_filename() == name


@for_each("name", ['" "', '"x"', '"é"', "'x'", "<x>", '"', " a.pdf"])
def test_quotes_that_are_part_of_a_files_name_are_not_taken_for_others(name: str) -> None:
    enclosed = letter(attachments=(Enclosure(name, "application/pdf", b"x"),))
    assert mime.find_difference(enclosed, mime.build(enclosed, date=NOON, bcc=False)) == ""


def test_old_readers_find_the_name_beside_the_type() -> None:
    raw = built(attachments=(Enclosure("Ä.pdf", "application/pdf", b"x"),))
    assert b'name="=?utf-8?b?w4QucGRm?="' in raw


def test_a_mail_goes_out_in_a_mail_as_it_is_where_it_can() -> None:
    inner = b"Subject: inner\r\n\r\nwords\r\n"
    raw = built(attachments=(Enclosure("a.eml", "message/rfc822", inner),))
    assert inner in raw
    assert mime.attachment(raw, "1").content == inner


def test_the_same_letter_and_date_give_the_same_octets() -> None:
    values: dict[str, Any] = {
        "text": "a",
        "html": "<p>b",
        "attachments": (Enclosure("c", "text/plain", b"d"),),
    }
    assert built(**values) == built(**values)
    assert built(**values) != built(**values, id="bbbbbbbbbb")


@for_each(
    "values",
    [
        {"subject": EVIL},
        {"subject": "x\nBcc: evil@example.com"},
        {"subject": "x\u2028Bcc: evil@example.com"},
        {"sender": Address("ann", "example.org", EVIL)},
        {"sender": Address("ann\r\nBcc: evil", "example.org")},
        {"sender": Address("ann", "example.org\r\nBcc: evil@example.com")},
        {"to": (Address("a", "example.org", EVIL),)},
        {"cc": (Address("a\r\n b", "example.org"),)},
        {"reply_to": (Address("a", f"example.org{EVIL}"),)},
        {"to": (Address("a", "bücher.example"),)},
        {"to": (Address("a@example.org>, <evil", "example.com"),)},
        {"to": (Address("a", "example.org, evil@example.com"),)},
        {"in_reply_to": f"<a@b>{EVIL}"},
        {"references": ("<a@b>", EVIL)},
        {"id": EVIL},
        {"subject": "\ud800"},
    ],
)
def test_no_header_can_be_injected_through_any_field(values: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        mime.build(forced(**values), date=NOON, bcc=True)


@pytest.mark.parametrize("field", ["name", "type"])
def test_no_header_can_be_injected_through_a_file(field: str) -> None:
    enclosed = Enclosure("a.pdf", "application/pdf", b"x")
    object.__setattr__(enclosed, field, EVIL)
    with pytest.raises(Invalid):
        mime.build(forced(attachments=(enclosed,)), date=NOON, bcc=True)


def test_a_text_cannot_end_its_part() -> None:
    evil = "x\n--=_abcdefghij_m\nContent-Type: text/html\n\n<p>evil\n--=_abcdefghij_a--"
    page = f"<pre>{escape(evil)}"
    raw = built(text=evil, html=page, attachments=(Enclosure("a", "text/plain", b"z"),))
    mail = mime.read(raw)
    assert (mail.text, mail.html, len(mail.attachments)) == (evil, page, 1)
