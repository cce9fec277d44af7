"""The address cases of isemail: none that it calls invalid is accepted for sending."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from postroom.core.address import Address
from postroom.core.errors import Invalid

CASES = Path(__file__).parents[2] / ".cache/collections/isemail/tests.xml"


def cases() -> list[tuple[str, str]]:
    """Return address and category of each case; control characters stand as their pictures."""
    assert CASES.is_file(), f"isemail is not in {CASES.parent}: `make test-real` installs it"
    found = []
    for case in ElementTree.parse(CASES).getroot().iter("test"):
        address = "".join(
            chr(ord(char) - 0x2400) if 0x2400 <= ord(char) <= 0x2420 else char
            for char in case.findtext("address") or ""
        )
        found.append((address, case.findtext("category") or ""))
    return found


def accepted(address: str) -> bool:
    try:
        Address.parse(address)
    except Invalid:
        return False
    return True


def test_no_invalid_address_is_accepted_for_sending() -> None:
    invalid = [address for address, category in cases() if category == "ISEMAIL_ERR"]
    assert len(invalid) >= 60
    assert [address for address in invalid if accepted(address)] == []


def test_no_invalid_address_is_accepted_with_a_name() -> None:
    invalid = [address for address, category in cases() if category == "ISEMAIL_ERR"]
    assert [address for address in invalid if accepted(f"Ann <{address}>")] == []


@pytest.mark.parametrize("address", ["test@iana.org", "test@iana.com", "a@example.org"])
def test_everyday_addresses_are_accepted(address: str) -> None:
    assert accepted(address)
