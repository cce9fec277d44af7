"""MIME: what was built is read back as it was meant, and nothing that arrives makes the reader fail."""

import re
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.core.address import Address
from postroom.core.letter import Enclosure, Letter
from postroom.core.message import Mail, Party
from postroom.core.text import clean, one_line
from postroom.mail import mime
from postroom.mail.read import CONTRADICTED, MAX_HTML, MAX_PARTS, MAX_TEXT, UNREADABLE
from tests.conftest import examples

SPICE = ", ; : \" \\ ( ) < > @ = ? _ =?utf-8?q?x?= ' % é ß 日本 😀 👩‍👩‍👧 \u00a0 - . From".split(
    " "
)


def settled(text: str) -> str:
    """Return a text that cleaning leaves as it is."""
    for _ in range(5):
        text, before = clean(text).text, text
        if text == before:
            return text
    return ""


def spiced(most: int) -> st.SearchStrategy[str]:
    pieces = st.one_of(st.sampled_from(SPICE), st.text(st.characters(codec="utf-8"), max_size=12))
    return st.lists(pieces, max_size=most).map(" ".join)


names = (
    st.one_of(st.just(""), spiced(6))
    .map(lambda name: one_line(settled(name))[:200].strip())
    .map(one_line)
)
labels = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
addresses = st.builds(
    Address,
    st.from_regex(r"[a-z0-9]([a-z0-9.+_-]{0,10}[a-z0-9])?", fullmatch=True).filter(
        lambda local: ".." not in local
    ),
    st.builds("{}.{}".format, labels, st.sampled_from(["org", "example", "xn--p1ai"])),
    names,
)
people = st.lists(addresses, max_size=4).map(tuple)
subjects = spiced(12).map(lambda subject: one_line(settled(subject))[:300].strip()).map(one_line)
bodies = st.one_of(
    st.just(""),
    st.lists(
        st.one_of(
            spiced(6),
            st.sampled_from(
                [
                    "From here",
                    ".",
                    "..",
                    "-- ",
                    "trailing \t",
                    "--=_abcdefghij_m",
                    "",
                    "x" * 2000,
                    "é" * 500,
                ]
            ),
        ),
        max_size=6,
    ).map("\n".join),
).map(settled)
files = st.builds(
    Enclosure,
    spiced(5)
    .map(lambda name: re.sub(r"[/\\\n\t]", "-", settled(name))[:180].strip())
    .map(lambda name: settled(name) if name.strip(". ") else "report.pdf")
    .map(lambda name: name if name.strip() == name and name.strip(". ") else "x.bin"),
    st.sampled_from(
        [
            "application/pdf",
            "text/plain",
            "text/html",
            "message/rfc822",
            "image/png",
            "multipart/mixed",
        ]
    ),
    st.one_of(st.binary(max_size=300), st.just(b"Subject: inner\r\n\r\nHello\r\n")),
)
ids = st.from_regex(r"<[a-z0-9.$+]{1,60}@[a-z0-9.-]{1,60}>", fullmatch=True)
letters = st.builds(
    Letter,
    id=st.from_regex(r"[a-z2-7]{10}", fullmatch=True),
    account=st.just("main"),
    sender=addresses,
    to=st.lists(addresses, min_size=1, max_size=3).map(tuple),
    cc=people,
    bcc=people,
    reply_to=people,
    subject=subjects,
    text=bodies,
    html=bodies.map(lambda html: html if html.strip() else ""),  # a blank page counts as none
    in_reply_to=st.one_of(st.just(""), ids),
    references=st.lists(ids, max_size=12, unique=True).map(tuple),
    attachments=st.lists(files, max_size=3).map(tuple),
)
dates = st.datetimes(min_value=datetime(1975, 1, 1), max_value=datetime(2099, 1, 1)).flatmap(
    lambda moment: st.integers(-12 * 60, 14 * 60).map(
        lambda minutes: moment.replace(tzinfo=timezone(timedelta(minutes=minutes)), microsecond=0)
    )
)


def meant(addresses: tuple[Address, ...]) -> tuple[Party, ...]:
    return tuple(Party(address.name, address.spec) for address in addresses)


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(letter=letters, date=dates, bcc=st.booleans())
def test_a_built_letter_reads_as_it_was_meant(letter: Letter, date: datetime, bcc: bool) -> None:
    raw = mime.build(letter, date=date, bcc=bcc)
    mail = mime.read(raw)

    assert mime.find_difference(letter, raw) == ""
    # The two texts of these letters have nothing to do with each other, which may be noticed.
    assert set(mail.damage) <= {CONTRADICTED}
    assert mail.subject == letter.subject
    assert (mail.sender,) == meant((letter.sender,))
    assert (mail.to, mail.cc) == (meant(letter.to), meant(letter.cc))
    assert mail.bcc == (meant(letter.bcc) if bcc else ())
    assert mail.reply_to == meant(letter.reply_to)
    assert mail.date == int(date.timestamp())
    assert mail.message_id == letter.message_id
    assert mail.in_reply_to == tuple(filter(None, (letter.in_reply_to,)))
    assert mail.references == letter.references
    assert mail.html == letter.html
    if not mail.damage and (letter.text.strip() or not letter.html.strip()):
        assert mail.text == letter.text
    assert len(mail.attachments) == len(letter.attachments)
    for listed, enclosed in zip(mail.attachments, letter.attachments, strict=True):
        assert (listed.name, listed.type) == (enclosed.name, enclosed.type)
        assert listed.size == len(enclosed.content)
        assert mime.attachment(raw, listed.part) == enclosed


@settings(max_examples=examples(100))
@given(letter=letters, date=dates, bcc=st.booleans())
def test_the_wire_is_deterministic_and_fit_for_every_gateway(
    letter: Letter, date: datetime, bcc: bool
) -> None:
    raw = mime.build(letter, date=date, bcc=bcc)
    assert raw == mime.build(letter, date=date, bcc=bcc)
    assert raw.isascii()
    assert b"\0" not in raw
    assert raw.endswith(b"\r\n")
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)", raw)
    lines = raw.split(b"\r\n")
    assert max(map(len, lines)) <= 998
    assert not any(line.startswith(b"From ") for line in lines)


def bounded(mail: Mail) -> bool:
    return (
        len(mail.text) <= MAX_TEXT
        and len(mail.html) <= MAX_HTML
        and len(mail.attachments) <= MAX_PARTS
        and UNREADABLE not in mail.damage
    )


@settings(max_examples=examples(250))
@given(st.binary(max_size=2000))
def test_no_bytes_make_the_reader_fail(raw: bytes) -> None:
    assert bounded(mime.read(raw))


FRAGMENTS = [
    b"Content-Type: multipart/mixed; boundary=b\n",
    b'Content-Type: multipart/alternative; boundary="b\n',
    b"Content-Type: text/html; charset=utf-7\n",
    b"Content-Type: text/plain; charset=iso-2022-jp\n",
    b"Content-Type: message/rfc822\n",
    b"Content-Transfer-Encoding: base64\n",
    b"Content-Transfer-Encoding: quoted-printable\n",
    b"Content-Transfer-Encoding: x-uuencode\n",
    b"Content-Disposition: attachment; filename*0*=utf-16''%ff; filename*1=\"../x\n",
    b"Subject: =?utf-16?b?/w==?= =?hz?q?~{?= =?unknown?q?=ff?=\n",
    b'From: (a, <b@c>, "d\\\n',
    b"Date: Mon, 99 Foo 99999 99:99:99 +999999\n",
    b"References: <a@b> <<c@d>\n",
    b"\n",
    b"\r\n\r\n",
    b"--b\n",
    b"--b--\n",
    b"=\n",
    b"+2AA-\xff\xfe",
    b"<p style='color:#fff;font:0/0'>&#55296;<a href='https://x y'><li></p>",
    b"begin 644 x\n#0V%T\n`\nend\n",
]


@settings(max_examples=examples(250))
@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=20)), max_size=25))
def test_no_pile_of_fragments_makes_the_reader_fail(pieces: list[bytes]) -> None:
    raw = b"".join(pieces)
    mail = mime.read(raw)
    assert bounded(mail)
    mail.text.encode("utf-8")
    mail.html.encode("utf-8")
    for listed in mail.attachments:
        assert len(mime.attachment(raw, listed.part).content) == listed.size


@settings(max_examples=examples(150))
@given(
    letters,
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=8)), max_size=6),
)
def test_no_mutation_of_a_good_mail_makes_the_reader_fail(
    letter: Letter, cuts: list[tuple[float, int, bytes]]
) -> None:
    raw = mime.build(letter, date=datetime(2024, 5, 1, tzinfo=UTC), bcc=True)
    for place, length, instead in cuts:
        at = int(place * len(raw))
        raw = raw[:at] + instead + raw[at + length :]
    assert bounded(mime.read(raw))
