"""Mails that others have collected: each is read, within its bounds, and says something plausible."""

from pathlib import Path

import pytest

from postroom.core.message import Mail
from postroom.mail import mime
from postroom.mail.read import MAX_HTML, MAX_PARTS, MAX_TEXT, UNREADABLE

STORE = Path(__file__).parents[2] / ".cache/collections"


def collection(name: str, pattern: str, least: int) -> dict[str, bytes]:
    """Return the mails of a collection; one that is missing is a failure, not a reason to skip."""
    found = {
        path.relative_to(STORE / name).as_posix(): path.read_bytes()
        for path in sorted((STORE / name).glob(pattern))
        if path.is_file()
    }
    assert len(found) >= least, f"{name} is not in {STORE}: `make test-real` installs it"
    return found


COLLECTIONS = {
    "cpython": ("msg_*.txt", 47, 0.8),  # 3.11.2 has one less than later ones
    "mail-parser": ("mail_*", 23, 0.95),
    "enmime": ("**/*.raw", 75, 0.85),
}


@pytest.fixture(params=COLLECTIONS)
def mails(request: pytest.FixtureRequest) -> tuple[str, dict[str, bytes]]:
    pattern, least, _ = COLLECTIONS[request.param]
    return request.param, collection(request.param, pattern, least)


def bounded(mail: Mail) -> bool:
    return (
        len(mail.text) <= MAX_TEXT
        and len(mail.html) <= MAX_HTML
        and len(mail.attachments) <= MAX_PARTS
        and UNREADABLE not in mail.damage
    )


def test_every_mail_is_read_within_its_bounds(mails: tuple[str, dict[str, bytes]]) -> None:
    for name, raw in mails[1].items():
        assert bounded(mime.read(raw)), name


def test_nearly_every_mail_says_something(mails: tuple[str, dict[str, bytes]]) -> None:
    name, raws = mails
    telling = [
        mail for mail in map(mime.read, raws.values()) if mail.text.strip() or mail.attachments
    ]
    assert len(telling) / len(raws) >= COLLECTIONS[name][2]


def test_every_attachment_is_found_again_under_a_harmless_name(
    mails: tuple[str, dict[str, bytes]],
) -> None:
    for name, raw in mails[1].items():
        for listed in mime.read(raw).attachments:
            found = mime.attachment(raw, listed.part)
            assert (found.name, found.type) == (listed.name, listed.type), name
            assert len(found.content) == listed.size, name
            assert not set(listed.name) & set("/\\\0\n\t\u202e"), name


def test_every_mail_is_read_when_it_is_cut_anywhere(mails: tuple[str, dict[str, bytes]]) -> None:
    for name, raw in mails[1].items():
        for place in range(0, min(len(raw), 40_000), max(1, min(len(raw), 40_000) // 20)):
            assert bounded(mime.read(raw[:place])), (name, place)


def test_known_mails_are_read_as_people_read_them() -> None:
    mails = collection("mail-parser", "mail_*", 23)
    disguised = mime.read(mails["mail_malformed_1"])
    assert [a.name for a in disguised.attachments] == ["20160523_916527.jpg_.zip"]
    assert "Parts follow the end of a multipart" in disguised.damage
    two_addresses = mime.read(mails["mail_test_19"]).sender
    assert two_addresses is not None
    assert (two_addresses.name, two_addresses.address) == ("alice@example.com", "bob@example.com")
    chinese = mime.read(mails["mail_test_12"])
    assert "增值税发票" in chinese.text
