"""Whom an answer goes to."""

import pytest

from postroom.core.errors import Invalid
from postroom.core.mail_view import answer, answer_subject, answered
from postroom.core.message import Mail, Message, Party
from tests.cases import for_each

ME = {"you@example.org", "alias@example.org"}
ANN, BOB, YOU = (Party(n, a) for n, a in (("Ann", "ann@example.com"), ("", "bob@example.net"), ("You", "You@Example.org")))  # fmt: skip


def whom(mail: Mail, *, sent: bool = False, everyone: bool = False) -> tuple[list[str], list[str]]:
    found = answer(mail, ME, sent=sent, everyone=everyone)
    return [a.spec for a in found.to], [a.spec for a in found.cc]


def test_the_sender_is_answered() -> None:
    assert whom(Mail(sender=ANN, to=(YOU, BOB))) == (["ann@example.com"], [])


def test_reply_to_is_over_the_sender() -> None:
    assert whom(Mail(sender=ANN, to=(YOU,), reply_to=(BOB,))) == (["bob@example.net"], [])


def test_everybody_is_everybody_but_oneself_each_once() -> None:
    mail = Mail(sender=ANN, to=(YOU, BOB), cc=(Party("", "ANN@example.com"), Party("", "alias@example.org"), BOB))  # fmt: skip
    assert whom(mail, everyone=True) == (["ann@example.com"], ["bob@example.net"])


def test_ones_own_mail_is_answered_to_whom_it_went() -> None:
    mail = Mail(sender=YOU, to=(ANN,), cc=(BOB,))
    assert whom(mail, sent=True, everyone=True) == (["ann@example.com"], ["bob@example.net"])


def test_a_mail_that_only_claims_to_be_ones_own_chooses_no_recipients() -> None:
    with pytest.raises(Invalid, match="nobody but this account"):
        whom(Mail(sender=YOU, to=(Party("", "eve@evil.example"),)))


def test_a_reply_to_that_is_oneself_leads_to_the_sender_alone() -> None:
    mail = Mail(sender=ANN, to=(YOU, BOB), cc=(BOB,), reply_to=(YOU,))
    assert whom(mail) == (["ann@example.com"], [])


def test_a_mail_to_oneself_names_nobody() -> None:
    with pytest.raises(Invalid, match="nobody but this account"):
        whom(Mail(sender=YOU, to=(YOU,)), sent=True)


def test_a_name_that_poses_as_an_address_is_not_passed_on() -> None:
    found = answer(
        Mail(sender=Party("boss@example.org", "eve@evil.example")), ME, sent=False, everyone=False
    )
    assert str(found.to[0]) == "eve@evil.example"


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match="cannot be written to"):
        whom(Mail(sender=Party("Ann", "ann at example")))


@for_each(
    ("before", "after"),
    [("Tea", "Re: Tea"), ("RE: Tea", "RE: Tea"), ("AW: Tee", "AW: Tee"), ("", "Re:"), ("a\r\nBcc: x", "Re: a Bcc: x"), ("x" * 2000, "Re: " + "x" * 994)],
)  # fmt: skip
def test_the_subject_is_marked_once_and_is_one_line(before: str, after: str) -> None:
    assert answer_subject(before) == after


def test_the_newest_that_came_in_is_answered() -> None:
    def message(id: str, *labels: str) -> Message:
        return Message(id, "t", 0, 0, frozenset(labels), Mail())

    assert answered([message("1", "INBOX"), message("2", "SENT"), message("3", "DRAFT")]).id == "1"
    assert answered([message("1", "SENT"), message("2", "DRAFT")]).id == "1"
