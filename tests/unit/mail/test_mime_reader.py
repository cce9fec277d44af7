"""The reader: whatever arrives is read, mended and bounded, and nobody is taken for somebody else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.core.errors import NotFound
from postroom.core.message import Mail, Party
from postroom.mail import headers, mime, read, style, stylesheet
from postroom.mail.read import MAX_DEPTH, MAX_PARTS, MAX_TEXT, UNREADABLE
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear


def arrive(head: str, body: str | bytes = "", *, charset: str = "utf-8") -> Mail:
    """Read a mail with these headers, and see that it did not need the last resort."""
    octets = body if isinstance(body, bytes) else body.encode(charset)
    mail = mime.read(head.strip().encode(charset) + b"\n\n" + octets)
    assert UNREADABLE not in mail.damage
    return mail


def mixed(*parts: str, kind: str = "mixed", end: str = "--b--\n") -> Mail:
    return arrive(
        f"Content-Type: multipart/{kind}; boundary=b", "".join(f"--b\n{p}\n" for p in parts) + end
    )


PLAIN = "Content-Type: text/plain\n\nplain words"
HTML = "Content-Type: text/html\n\n<p>html words</p>"
FILE = "Content-Type: application/pdf; name=a.pdf\nContent-Disposition: attachment\n\nx"


def sender(value: str) -> Party | None:
    return arrive(f"From: {value}").sender


# --- headers


def test_a_plain_mail_says_who_when_and_what() -> None:
    mail = arrive(
        "From: Ann Example <ann@example.org>\nTo: bob@example.org, Carol <carol@example.org>\n"
        "Cc: dave@example.org\nReply-To: list@example.org\nSubject: Lunch\n"
        "Date: Mon, 01 Jan 2024 12:00:00 +0100\nMessage-ID: <1@example.org>\n"
        "In-Reply-To: <0@example.org>\nReferences: <r@example.org>\n <0@example.org>",
        "At noon?\n",
    )
    assert mail == Mail(
        subject="Lunch",
        sender=Party("Ann Example", "ann@example.org"),
        to=(Party("", "bob@example.org"), Party("Carol", "carol@example.org")),
        cc=(Party("", "dave@example.org"),),
        reply_to=(Party("", "list@example.org"),),
        date=1704106800,
        message_id="<1@example.org>",
        in_reply_to=("<0@example.org>",),
        references=("<r@example.org>", "<0@example.org>"),
        text="At noon?",
    )


@for_each(
    ("written", "read_as"),
    [
        ("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        ("=?utf-8?B?R3LDvMOfZQ==?=", "Grüße"),
        ("=?utf-8?B?R3LDvMOfZQ?=", "Grüße"),  # no padding
        ("=?utf-8?q?=C3?= =?utf-8?q?=BC?=", "ü"),  # a character in two words
        ("=?utf-8?q?a?= =?iso-8859-1?q?=E9?=", "aé"),
        ("=?utf-8?q?a?=\n =?utf-8?q?b?= c", "ab c"),
        ("=?utf-8?q?a?==?utf-8?q?b?=", "ab"),
        ("=?utf-8*en?q?Hi?=", "Hi"),
        ("=?x-nothing?q?caf=C3=A9?=", "café"),
        ("=?us-ascii?q?caf=E9?=", "café"),
        ("=?gb2312?b?xOO6ww==?=", "你好"),
        ("=?iso-2022-jp?B?GyRCRnxLXBsoQg==?=", "日本"),
        ("=?utf-8?q?not ended", "=?utf-8?q?not ended"),
        ("=?utf-8?z?x?=", "=?utf-8?z?x?="),
        ("a = b ? c", "a = b ? c"),
    ],
)
def test_encoded_words_are_read_also_when_damaged(written: str, read_as: str) -> None:
    assert arrive(f"Subject: {written}").subject == read_as


@for_each("charset", ["utf-8", "windows-1252"])
def test_raw_octets_in_a_subject_are_read(charset: str) -> None:
    assert arrive("Subject: Café für 5 €", charset=charset).subject == "Café für 5 €"


@for_each(
    ("written", "name", "address"),
    [
        ("a@example.org", "", "a@example.org"),
        ("Ann <a@example.org>", "Ann", "a@example.org"),
        ('"Example, Ann" <a@example.org>', "Example, Ann", "a@example.org"),
        ('"A \\"B\\" C" <a@example.org>', 'A "B" C', "a@example.org"),
        ("a@example.org (Ann)", "Ann", "a@example.org"),
        ("Ann a@example.org", "Ann", "a@example.org"),
        ('"a b"@example.org', "", '"a b"@example.org'),
        ("evil@example.com <a@example.org>", "evil@example.com", "a@example.org"),
        ('"evil@example.com" <a@example.org>', "evil@example.com", "a@example.org"),
        ("X <evil@example.com> <a@example.org>", "X <evil@example.com>", "a@example.org"),
        ("=?utf-8?q?Doe=2C_Ann_=3Cevil=40example=2Ecom=3E?= <a@example.org>",
         "Doe, Ann <evil@example.com>", "a@example.org"),
        ("=?utf-8?q?Doe,_Ann?= <a@example.org>", "Doe, Ann", "a@example.org"),
        ("=?utf-8?q?a=40example=2Eorg?=", "a@example.org", ""),
        ("Ann: the first <a@example.org>", "Ann: the first", "a@example.org"),
        ("<@relay.example:a@example.org>", "", "a@example.org"),
        ("Ann (unclosed <a@example.org>", "Ann (unclosed", "a@example.org"),
        ('"unclosed <a@example.org>', '"unclosed', "a@example.org"),
        ("<a@example.org", "", "a@example.org"),
        ("MAILER-DAEMON", "MAILER-DAEMON", ""),
        ("Ann <nobody>", "Ann", "nobody"),
        ("Ann\u202e\u200b <a@exam\u200bple.org>", "Ann", "a@example.org"),
    ],
)  # fmt: skip
def test_a_sender_is_who_the_structure_of_the_header_says(
    written: str, name: str, address: str
) -> None:
    assert sender(written) == Party(name, address)


def test_an_encoded_comma_makes_no_second_recipient() -> None:
    mail = arrive("To: =?utf-8?q?a=40example=2Ecom=2C_b?= <c@example.org>, d@example.org")
    assert [party.address for party in mail.to] == ["c@example.org", "d@example.org"]


def test_a_group_and_its_end_are_no_people() -> None:
    mail = arrive("To: Team: a@example.org, B <b@example.org>;\nCc: undisclosed-recipients:;")
    assert [party.address for party in mail.to] == ["a@example.org", "b@example.org"]
    assert mail.cc == ()


def test_of_very_many_recipients_the_first_are_kept_and_it_is_said() -> None:
    mail = arrive("To: " + ",".join(f"a{n}@example.org" for n in range(3000)))
    assert len(mail.to) == headers.MAX_PARTIES
    assert mail.damage


@for_each(
    ("written", "seconds"),
    [
        ("Thu, 01 Jan 1970 00:00:10 +0000", 10),
        ("Mon, 1 Jan 2024 12:00:00 GMT (comment)", 1704110400),
        ("1 Jan 24 12:00 -0500", 1704128400),
        ("2024-01-01T12:00:00Z", 1704110400),
        ("Mon, 1 Jan 2024 12:00:00 +9999999", 1704110400),
        ("Mon, 1 Jan 99999 12:00:00 +0000", None),
        ("Mon, 1 Jan 1900 12:00:00 +0000", None),
        ("Mon, 99 Jan 2024 12:00:00 +0000", None),
        ("Mon, 1 Jan 2024 99:00:00 +0000", None),
        ("yesterday", None),
        (", , , ,", None),
        ("9" * 5000, None),
    ],
)
def test_a_date_is_seconds_or_nothing(written: str, seconds: int | None) -> None:
    mail = arrive(f"Date: {written}")
    assert mail.date == seconds
    assert bool(mail.damage) == (seconds is None)


def test_of_a_long_chain_of_references_the_first_and_the_latest_stay() -> None:
    mail = arrive("References: " + " ".join(f"<{n}@example.org>" for n in range(300)))
    assert len(mail.references) == headers.MAX_IDS
    assert mail.references[0] == "<0@example.org>"
    assert mail.references[-1] == "<299@example.org>"


def test_ids_are_found_among_other_words_and_without_brackets() -> None:
    mail = arrive("Message-ID: bare@example.org\nIn-Reply-To: your note < 1@example.org > of today")
    assert (mail.message_id, mail.in_reply_to) == ("<bare@example.org>", ("<1@example.org>",))


@for_each(
    ("header", "automatic"),
    [
        ("Auto-Submitted: auto-replied; x=y", True),
        ("Auto-Submitted: no", False),
        ("Precedence: Bulk", True),
        ("Precedence: first-class", False),
        ("List-Id: Talk <talk.example.org>", True),
        ("List-Unsubscribe: <mailto:x@example.org>", True),
        ("X-Auto-Response-Suppress: All", True),
        ("Return-Path: <>", True),
        ("Return-Path: <a@example.org>", False),
    ],
)
def test_a_machine_is_told_from_a_person(header: str, automatic: bool) -> None:
    assert arrive(header).automatic is automatic


def test_a_list_and_the_mailbox_of_delivery_are_named() -> None:
    mail = arrive(
        "List-Id: =?utf-8?q?Talk?= <talk.example.org>\nDelivered-To: me@example.org\n"
        "X-Original-To: alias@example.org\nDelivered-To: me@example.org"
    )
    assert mail.list_id == "talk.example.org"
    assert mail.delivered_to == ("me@example.org", "alias@example.org")


def test_the_first_of_two_senders_counts_and_the_second_is_noted() -> None:
    mail = arrive("From: a@example.org\nFrom: b@example.org")
    assert mail.sender == Party("", "a@example.org")
    assert "There are several From headers" in mail.damage


def test_several_senders_in_one_header_are_noted() -> None:
    assert arrive("From: ceo@example.org, evil@example.com").damage == (
        "There are several senders",
    )
    assert arrive("From: Ann <a@example.org>").damage == ()


@for_each("name", ["Subject", "Content-Type", "Content-Transfer-Encoding"])
def test_a_header_that_should_stand_once_and_stands_twice_is_noted(name: str) -> None:
    mail = arrive(f"{name}: text/plain\n{name}: text/html", "x")
    assert mail.damage == (f"There are several {name} headers",)


# --- the shape of the bytes


@for_each("end", [b"\n", b"\r\n", b"\r", b"\r\r\n"])
def test_every_kind_of_line_end_is_understood(end: bytes) -> None:
    mail = mime.read(end.join([b"Subject: x", b"To: a@example.org", b"", b"one", b"two", b""]))
    assert (mail.subject, mail.to[0].address) == ("x", "a@example.org")
    assert mail.text.split() == ["one", "two"]


def test_a_line_of_an_mbox_before_the_mail_is_passed_over() -> None:
    mail = mime.read(b"From ann@example.org Mon Jan  1 00:00:00 2024\nSubject: x\n\ntext\n")
    assert (mail.subject, mail.text, mail.damage) == ("x", "text", ())


def test_text_that_follows_the_header_at_once_is_text() -> None:
    mail = mime.read(b"Subject: x\nHello there\n\nmore\n")
    assert (mail.subject, mail.text) == ("x", "Hello there\n\nmore")
    assert mail.damage


def test_a_strange_line_among_headers_costs_no_header() -> None:
    mail = mime.read(b"To: a@example.org\nstrange line\nSubject: x\n\ntext\n")
    assert (mail.subject, mail.text) == ("x", "text")
    assert mail.damage


@for_each("raw", [b"", b"\n", b"\r\n\r\n", b"\0", b":", b"\xff\xfe", b"Subject:"])
def test_almost_nothing_is_still_a_mail(raw: bytes) -> None:
    assert UNREADABLE not in mime.read(raw).damage


def test_bytes_that_are_no_mail_are_text() -> None:
    assert mime.read(b"just some words\nof nobody").text == "just some words\nof nobody"


# --- charsets and encodings


@for_each(
    ("declared", "octets", "text"),
    [
        ("utf-8", "naïve €".encode(), "naïve €"),
        ("iso-8859-1", b"5 \x80 \x93x\x94", "5 € “x”"),
        ("us-ascii", b"caf\xe9", "café"),
        ("utf-8", b"caf\xe9 and caf\xc3\xa9", "café and café"),
        ("utf-8", "日本語 and ".encode() * 20 + b"\xe9", "日本語 and " * 20 + "é"),
        ("x-unknown", b"caf\xc3\xa9", "café"),
        ("", b"caf\xe9", "café"),
        ("gb2312", "镕你好".encode("gb18030"), "镕你好"),
        ("iso-2022-jp", "日本".encode("iso-2022-jp"), "日本"),
        ("utf-16", "hello".encode("utf-16"), "hello"),
        ("utf-7", b"a+2AA-b", "a?b"),
        ("rot13", b"abc", "abc"),
        ("unicode_escape", b"\\ud800 x", "\\ud800 x"),
        ("punycode", b"mnchen-3ya", "mnchen-3ya"),
    ],
)
def test_no_text_is_lost_to_its_charset(declared: str, octets: bytes, text: str) -> None:
    assert arrive(f'Content-Type: text/plain; charset="{declared}"', octets).text == text


@for_each(
    ("encoding", "body", "text"),
    [
        ("base64", "SGVsbG8=", "Hello"),
        ("base64", "SGVs bG8", "Hello"),
        ("base64", "SGVsbG8", "Hello"),
        ("base64", "SGVsbG8=\nSGVsbG8=\n", "HelloHello"),
        ("BASE64 ", "SGVsb*G8=", "Hello"),
        ("base64", "SGVsbG8=X", "Hello"),
        ("quoted-printable", "caf=C3=A9 =\n=zz end", "café =zz end"),
        ("x-uuencode", "begin 644 x\n%2&5L;&\\`\n`\nend", "Hello"),
        ("unheard-of", "as it is", "as it is"),
    ],
)
def test_transfer_encodings_are_undone_also_when_damaged(
    encoding: str, body: str, text: str
) -> None:
    assert arrive(f"Content-Transfer-Encoding: {encoding}", body).text == text


def test_a_page_without_charset_may_name_it_itself() -> None:
    page = '<meta http-equiv="x" content="text/html; charset=koi8-r"><p>Привет'.encode("koi8-r")
    assert arrive("Content-Type: text/html", page).text == "Привет"


# --- parts


def test_plain_text_is_preferred_and_the_page_is_kept() -> None:
    mail = mixed(PLAIN, HTML, kind="alternative")
    assert (mail.text, mail.html) == ("plain words", "<p>html words</p>")


@for_each("blank", ["", " \n\t"])
def test_a_page_speaks_where_the_plain_text_is_blank(blank: str) -> None:
    mail = mixed(f"Content-Type: text/plain\n\n{blank}", HTML, kind="alternative")
    assert mail.text == "html words"


def test_a_page_speaks_where_the_plain_text_says_something_else() -> None:
    plain = "Content-Type: text/plain\n\nDear Ann,\nsend the money to evil@example.com today"
    page = "Content-Type: text/html\n\n<p>Dear Ann,<p>see you at <b hidden>never</b>lunch"
    mail = mixed(plain, page, kind="alternative")
    assert mail.text == "Dear Ann,\n\nsee you at lunch"
    assert mail.hidden == len("send the money to evil@example.com today") + len("never")
    assert mail.damage == (read.CONTRADICTED,)


def test_plain_text_that_says_what_the_page_shows_stays() -> None:
    plain = "Content-Type: text/plain\n\nDear Ann,\n\n  see https://example.org/menu\n-- \nBob"
    page = "Content-Type: text/html\n\nDear <b>Ann</b>, <a href='https://example.org/menu'>see</a>"
    mail = mixed(plain, page, kind="alternative")
    assert mail.text.startswith("Dear Ann,\n\n  see")
    assert (mail.hidden, mail.damage) == (0, ())


@for_each("kind", ["related", "signed"])
def test_only_the_root_of_related_parts_speaks(kind: str) -> None:
    mail = mixed(HTML, PLAIN, kind=kind)
    assert mail.text == "html words"
    assert [(a.part, a.type) for a in mail.attachments] == [("2", "text/plain")]


def test_the_root_of_related_parts_may_be_named() -> None:
    named = "Content-ID: <r>\n" + HTML
    mail = mixed(PLAIN, named, kind='related; start="<r>"')
    assert (mail.text, [a.part for a in mail.attachments]) == ("html words", ["1"])


def test_a_page_alone_is_readable_with_its_links() -> None:
    mail = arrive("Content-Type: text/html", '<p>See <a href="https://example.org/x">this</a></p>')
    assert mail.text == "See this <https://example.org/x>"


def test_texts_beside_each_other_are_one_text() -> None:
    assert mixed(PLAIN, FILE, HTML).text == "plain words\nhtml words"


def test_parts_have_paths_that_find_them_again() -> None:
    inner = (
        "Content-Type: multipart/alternative; boundary=c\n\n--c\n"
        + PLAIN
        + "\n--c\n"
        + HTML
        + "\n--c--"
    )
    raw = (
        f"Content-Type: multipart/mixed; boundary=b\n\n--b\n{inner}\n--b\n{FILE}\n--b--\n".encode()
    )
    mail = mime.read(raw)
    assert mail.text == "plain words"
    assert [(a.part, a.name, a.type, a.size) for a in mail.attachments] == [
        ("2", "a.pdf", "application/pdf", 1)
    ]
    assert mime.attachment(raw, "2").content == b"x"


@for_each("part", ["", "1", "3", "2.1", "-1", "x", "9" * 99])
def test_a_part_that_is_no_attachment_is_not_found(part: str) -> None:
    raw = (
        f"Content-Type: multipart/mixed; boundary=b\n\n--b\n{PLAIN}\n--b\n{FILE}\n--b--\n".encode()
    )
    with pytest.raises(NotFound):
        mime.attachment(raw, part)


@for_each(
    ("raw", "said"),
    [
        ("Content-Type: multipart/mixed; boundary=b\n\n--b\n\nwords", "is not closed"),
        ("Content-Type: multipart/mixed\n\n--zz\nContent-Type: text/plain\n\nwords\n--zz--", "guessed"),
        ("Content-Type: multipart/mixed; boundary=q\n\n--zz\nContent-Type: text/plain\n\nwords\n--zz--",
         "guessed"),
        ("Content-Type: multipart/mixed; boundary=b\n\nwords", "no parts"),
        ("Content-Type: multipart/mixed; boundary=\"b\n\n--b\n\nwords\n--b--", ""),
        ("Content-Type: multipart/mixed; boundary=b\n\npreamble\n--b\n\nwords\n--b--\nepilogue", ""),
        ("Content-Type: multipart/mixed; boundary=b\n\n--b  \n\nwords\n--b--  \n", ""),
        ("Content-Type: ;;; boundary=b\n\n--b\n\nwords\n--b--", "type could not be read"),
        ("Content-Type: multipart/mixed; boundary=b\nContent-Transfer-Encoding: base64\n\n--b\n\nwords\n--b--", ""),
    ],
)  # fmt: skip
def test_a_broken_multipart_still_gives_its_text(raw: str, said: str) -> None:
    mail = mime.read(raw.encode())
    assert mail.text.strip() == "words"
    assert said in " ".join(mail.damage)
    assert bool(mail.damage) == bool(said)


def test_a_boundary_that_begins_like_another_is_another() -> None:
    mail = arrive(
        "Content-Type: multipart/mixed; boundary=b",
        "--b\nContent-Type: multipart/mixed; boundary=bb\n\n--bb\n\none\n--bb\n\ntwo\n--bb--\n--b--\n",
    )
    assert (mail.text, mail.damage) == ("one\ntwo", ())


def test_an_attachment_behind_the_end_is_listed_and_said() -> None:
    mail = mixed(PLAIN, end=f"--b--\n\n--b\n{FILE}\n--b--\n")
    assert [a.name for a in mail.attachments] == ["a.pdf"]
    assert "Parts follow the end of a multipart" in mail.damage


def test_a_mail_in_a_mail_is_an_attachment_named_after_its_subject() -> None:
    mail = mixed(PLAIN, "Content-Type: message/rfc822\n\nSubject: Plan A/B\n\ninner words")
    (enclosed,) = mail.attachments
    assert (enclosed.name, enclosed.type) == ("Plan A-B.eml", "message/rfc822")
    assert "inner" not in mail.text


def test_a_digest_is_made_of_mails() -> None:
    mail = mixed("\nSubject: one\n\nx", "\nSubject: two\n\ny", kind="digest")
    assert [a.name for a in mail.attachments] == ["one.eml", "two.eml"]


def test_pictures_of_a_page_are_inline() -> None:
    mail = mixed(HTML, "Content-Type: image/png\nContent-ID: <1>\n\nx", kind="related")
    assert [(a.name, a.inline) for a in mail.attachments] == [("attachment-1.png", True)]


@for_each(
    ("header", "name"),
    [
        ('attachment; filename="report.pdf"', "report.pdf"),
        ("attachment; filename=a b.pdf", "a b.pdf"),
        ("attachment; filename*=utf-8''%E2%82%AC%20rates.pdf", "€ rates.pdf"),
        ("attachment; filename*0*=utf-8''%E2%82; filename*1*=%AC.pdf", "€.pdf"),
        ('attachment; filename*1="b.pdf"; filename*0="a"', "ab.pdf"),
        ("attachment; filename*=x-none'en'caf%E9.pdf", "café.pdf"),
        ('attachment; filename="=?utf-8?q?=E2=82=AC.pdf?="', "€.pdf"),
        ('attachment; filename="=?utf-8?q?=E2=82?= =?utf-8?q?=AC.pdf?="', "€.pdf"),
        ("attachment; filename=plain.pdf; filename*=utf-8''true.pdf", "true.pdf"),
        ('attachment; filename="../../etc/passwd"', "passwd"),
        ('attachment; filename="C:\\temp\\x.pdf"', "x.pdf"),
        ("attachment; filename*=utf-8''..%2F..%2Fx.pdf", "x.pdf"),
        ("attachment; filename*=utf-8''a%00b%0D%0Ac.pdf", "ab c.pdf"),
        ("attachment; filename*=utf-8''invoice%E2%80%AEfdp.exe", "invoicefdp.exe"),
        ("attachment; filename*=utf-8''x%E2%80%8B.pdf", "x.pdf"),
        ("attachment; filename*=utf-8''%ED%A0%80.pdf", "í\xa0€.pdf"),
        ('attachment; filename=".."', "attachment-1.pdf"),
        ('attachment; filename="/"', "attachment-1.pdf"),
        ('attachment; filename=""', "attachment-1.pdf"),
        ("attachment", "attachment-1.pdf"),
        ('attachment; filename="unclosed.pdf', "unclosed.pdf"),
        (f'attachment; filename="{"x" * 500}.pdf"', "x" * 196 + ".pdf"),
    ],
)
def test_an_attachment_has_its_true_and_harmless_name(header: str, name: str) -> None:
    mail = mixed(f"Content-Type: application/pdf\nContent-Disposition: {header}\n\nx")
    assert [a.name for a in mail.attachments] == [name]


def test_text_sent_as_a_file_is_a_file() -> None:
    mail = mixed(PLAIN, 'Content-Type: text/plain; name="notes.txt"\n\nnotes')
    assert (mail.text, [a.name for a in mail.attachments]) == ("plain words", ["notes.txt"])


def test_a_type_that_is_none_becomes_plain_octets() -> None:
    mail = mixed("Content-Type: pdf/../x y\nContent-Disposition: attachment; filename=a.pdf\n\nx")
    assert mail.attachments[0].type == "application/octet-stream"


# --- what the eye does not see


def test_invisible_characters_are_taken_out_and_counted() -> None:
    mail = arrive(
        "Subject: a\u200bb\nFrom: An\u2066n <a@example.org>", "one\u202etwo\U000e0041\U000e0042\x00"
    )
    assert (mail.subject, mail.sender, mail.text) == ("ab", Party("Ann", "a@example.org"), "onetwo")
    assert mail.hidden == 6


def test_hidden_text_of_a_page_is_taken_out_and_counted() -> None:
    page = '<p>shown</p><p style="display:none">secret</p>'
    mail = arrive("Content-Type: text/html", page)
    assert (mail.text, mail.hidden, mail.html) == ("shown", len("secret"), page)


# --- bounds


def test_ten_thousand_nested_parts_are_opened_to_the_bound() -> None:
    raw = b"Subject: deep\n" + b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n\nlevel %d\n--b%d\n" % (n, n, n, n)
        for n in range(10_000)
    )
    mail = mime.read(raw)
    assert mail.subject == "deep"
    assert mail.text.splitlines() == [f"level {n}" for n in range(MAX_DEPTH)]
    assert f"Parts nested deeper than {MAX_DEPTH} were not opened" in mail.damage
    (rest,) = mail.attachments
    assert b"level 9999" in mime.attachment(raw, rest.part).content


def test_very_many_nested_parts_are_read_to_the_bound() -> None:
    chain = "".join(f"Content-Type: multipart/mixed; boundary=c{n}\n\n--c{n}\n" for n in range(40))
    mail = mixed(*[chain] * 5000)
    assert len(mail.attachments) < MAX_PARTS
    assert "Only the first 1,000 parts were read" in mail.damage


def test_a_header_without_end_is_cut_and_what_is_there_is_read() -> None:
    mail = mime.read(b"Subject: x\n" + b"X-Line: y\n" * 100_000 + b"\nwords")
    assert (mail.subject, mail.text) == ("x", "words")
    assert mail.damage


def test_very_many_parts_are_read_to_the_bound() -> None:
    mail = mixed(*["Content-Type: image/gif\n\nx"] * 5000)
    assert len(mail.attachments) < MAX_PARTS
    assert mail.damage


@for_each(
    ("kind", "begin", "piece"),
    [
        (b"text/plain", b"", b"some words of a line\n"),
        (b"text/plain", b"", b"x"),
        (b"text/plain", b"", b"\xe9\x81\n"),
        (b"text/html", b"", b"<div>"),
        (b"multipart/mixed; boundary=b", b"", b"\n--b"),
        (b"multipart/mixed; boundary=b", b"--b\n", b"\n--bx"),
        (b"application/pdf", b"", b"x"),
    ],
)
def test_a_mail_that_is_larger_than_all_bounds_is_read_to_them(
    kind: bytes, begin: bytes, piece: bytes
) -> None:
    length = size(6 * read.MAX_SOURCE)
    assert length > read.MAX_SOURCE
    body = begin + piece * (length // len(piece))
    mail = mime.read(b"Subject: large\nContent-Type: " + kind + b"\n\n" + body)
    assert mail.subject == "large"
    assert len(mail.text) <= MAX_TEXT
    assert len(mail.html) <= read.MAX_HTML
    assert UNREADABLE not in mail.damage


def check_readable(raw: bytes) -> None:
    assert UNREADABLE not in mime.read(raw).damage


@for_each(
    ("begin", "piece", "end"),
    [
        (b"X: ", b"y", b""),
        (b"To: ", b'"\\', b""),
        (b"To: ", b"(", b""),
        (b"To: ", b"a@", b""),
        (b"To: ", b"<", b""),
        (b"To: a", b" ", b""),
        (b"Subject: ", b"=?utf-8?q?", b""),
        (b"Subject: ", b"=?", b""),
        (b"References: <", b" ", b""),
        (b"Content-Type: text/plain", b'; a="', b""),
        (b"Content-Type: text/plain", b"; a*1*=x", b""),
        (b"Content-Type: multipart/mixed; boundary=", b"b", b""),
        (b"Date: ", b"1 ", b""),
        (b"X: a\n", b" b\n", b""),
        (b"", b"x\n", b"Subject: y"),
        (b"", b"\r", b"\nSubject: y"),
    ],
)
def test_a_hostile_header_is_read_in_linear_time(begin: bytes, piece: bytes, end: bytes) -> None:
    def build(n: int) -> bytes:
        return begin + piece * (n // len(piece)) + end + b"\n\nwords\n"

    assert_linear(check_readable, build, size(200_000))


class Torn(bytes):
    """Bytes that no correct reader can read."""

    def __len__(self) -> int:
        raise RuntimeError("torn")


def test_a_mail_that_breaks_the_reader_is_shown_raw() -> None:
    mail = mime.read(Torn(b"Subject: x\n\nwords"))
    assert mail.damage == (UNREADABLE,)
    assert "words" in mail.text


def test_reading_plain_mail_loads_neither_nh3_nor_the_tables_of_html() -> None:
    script = (
        "import sys; from postroom.mail import mime; mime.read(b'Subject: x\\n\\ny');"
        "print([m for m in ('nh3', 'email_validator', 'idna', 'html', 'postroom.mail.html') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_bound_on_the_page_is_the_one_in_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs/mime.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| ([\d,]+) \| `(read|headers|style|stylesheet)\.(\w+)` \|", page)
    assert len(rows) == 11
    modules = {module.__name__.rpartition(".")[2]: module for module in (read, headers, style, stylesheet)}  # fmt: skip
    for number, module, name in rows:
        assert getattr(modules[module], name) == int(number.replace(",", ""))
