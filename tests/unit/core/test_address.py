"""Addresses: what may be written to, and what is refused because it could mean somebody else."""

from email.utils import getaddresses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.core.address import Address
from postroom.core.errors import Invalid
from tests.cases import for_each


@for_each(
    ("text", "name", "spec"),
    [
        ("ann@example.org", "", "ann@example.org"),
        ("  ann@example.org  ", "", "ann@example.org"),
        ("<ann@example.org>", "", "ann@example.org"),
        ("Ann Example <ann@example.org>", "Ann Example", "ann@example.org"),
        ('"Example, Ann" <ann@example.org>', "Example, Ann", "ann@example.org"),
        ('"Ann \\"A\\" Example" <ann@example.org>', 'Ann "A" Example', "ann@example.org"),
        ("Änne Müller <anne@bücher.example>", "Änne Müller", "anne@xn--bcher-kva.example"),
        ("ann+tag@EXAMPLE.org", "", "ann+tag@example.org"),
        ("田中 <tanaka@example.com>", "田中", "tanaka@example.com"),
    ],
)
def test_an_address_is_read_with_its_name_and_its_domain_in_ascii(
    text: str, name: str, spec: str
) -> None:
    address = Address.parse(text)
    assert (address.name, address.spec) == (name, spec)


@for_each(
    "text",
    [
        "",
        "ann",
        "@example.org",
        "ann@",
        "ann@localhost",
        "ann@[192.0.2.1]",
        "ann@192.0.2.1",
        "ann@example..org",
        ".ann@example.org",
        '"a b"@example.org',
        "ü@example.org",
        "a" * 65 + "@example.org",
        "ann@" + "a" * 250 + ".org",
        "ann@example.org, bob@example.org",
        "evil@example.com <ann@example.org>",
        "Ann <ann@example.org> <bob@example.org>",
        "Ann (comment) <ann@example.org>",
        "ann@example.org (comment)",
        "group: ann@example.org;",
        "Ann <ann@example.org",
        "ann@exam\u200bple.org",
        "Ann\u202egro.elpmaxe <ann@example.org>",
        "ann@example.org\0",
        "=?utf-8?q?victim=40example.com=2C?=@example.org",
        "user%example.com@example.org",
        "example.com!user@example.org",
        '"security@example.com" <eve@example.org>',
        '"Ann <ann@example.com>, Bob" <eve@example.org>',
        "security＠example.com <eve@example.org>",
        " " * 5_000 + "x",
        "x " * 450,
    ],
)
def test_what_is_no_single_plain_address_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Address.parse(text)
    assert refusal.value.message.startswith("Invalid email address format:")
    assert "name@example.org" in refusal.value.remedy


@for_each("break_", ["\n", "\r", "\r\n", "\u2028", "\x85", "\x0b"])
@for_each("form", ["Ann{}Bcc: <ann@example.org>", "ann@example.org{}Bcc: x", "{}ann@example.org"])
def test_a_line_break_anywhere_in_an_address_is_refused(form: str, break_: str) -> None:
    with pytest.raises(Invalid):
        Address.parse(form.format(break_))


def test_a_list_keeps_its_order_and_names_each_mailbox_once() -> None:
    found = Address.parse_list('Ann <ann@example.org>, "B, C" <bob@example.org>, ANN@example.org,')
    assert [str(address) for address in found] == [
        "Ann <ann@example.org>",
        '"B, C" <bob@example.org>',
    ]


def test_one_bad_address_refuses_the_whole_list() -> None:
    with pytest.raises(Invalid, match="not-an-email"):
        Address.parse_list("ann@example.org, not-an-email")


def test_a_list_without_end_is_refused() -> None:
    with pytest.raises(Invalid, match="too long"):
        Address.parse_list("ann@example.org," * 10_000)


names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=40)


@given(names)
def test_an_address_that_is_accepted_is_the_same_after_a_round_trip_and_to_another_reader(
    name: str,
) -> None:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    try:
        address = Address.parse(f'"{escaped}" <ann@example.org>')
    except Invalid:
        return
    assert Address.parse(str(address)) == address
    assert getaddresses([str(address)]) == [(address.name, "ann@example.org")]


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_invalid_and_nothing_else(text: str) -> None:
    try:
        address = Address.parse(text)
    except Invalid:
        return
    assert Address.parse(str(address)) == address
