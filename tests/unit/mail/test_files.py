"""Mail in files: each kind is recognised, each mail read once, each flag understood."""

import os
from pathlib import Path

import pytest

from postroom.core.errors import Invalid, NotFound
from postroom.core.message import DRAFT, IMPORTANT, INBOX, SENT, SPAM, STARRED, TRASH, UNREAD
from postroom.mail import files
from postroom.mail.mailbox import Arrival
from tests.mails import mail, mbox
from tests.narrow import present


def arrivals(path: Path) -> list[Arrival]:
    return [present(read.arrival) for source in files.sources(path) for read in files.read(source)]


def labels(path: Path) -> list[frozenset[str]]:
    return [arrival.labels for arrival in arrivals(path)]


def raws(path: Path) -> list[bytes]:
    return [arrival.raw for arrival in arrivals(path)]


def maildir(folder: Path, **contents: bytes) -> Path:
    for part in ("cur", "new", "tmp"):
        (folder / part).mkdir(parents=True)
    for name, raw in contents.items():
        part, _, rest = name.partition("__")
        (folder / part / rest.replace("_2", ":2,")).write_bytes(raw)
    return folder


def test_an_mbox_gives_its_mails_byte_for_byte(tmp_path: Path) -> None:
    first, second = (
        mail(subject="one"),
        mail(subject="two", text="line\r\n\r\nFromage is no separator\r\nFrom"),
    )
    path = tmp_path / "mail.mbox"
    path.write_bytes(mbox(first, second))
    assert raws(path) == [first, second]


def test_lines_that_an_mbox_had_to_quote_are_restored(tmp_path: Path) -> None:
    path = tmp_path / "inbox"
    path.write_bytes(mbox(b"Subject: x\n\n>From here\n>>From there\n> From quoted\n"))
    assert raws(path) == [b"Subject: x\n\nFrom here\n>From there\n> From quoted\n"]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", {INBOX, UNREAD}),
        ("Status: O", {INBOX, UNREAD}),
        ("Status: RO", {INBOX}),
        ("Status: RO\nX-Status: F", {INBOX, STARRED}),
        ("Status: RO\nX-Status: AD", {TRASH}),
        ("X-Status: T", {INBOX, UNREAD}),
        ("X-Gmail-Labels: Inbox,Opened,Category Promotions", {INBOX, "CATEGORY_PROMOTIONS"}),
        ("X-Gmail-Labels: Sent,Important,Opened", {SENT, IMPORTANT}),
        ("X-Gmail-Labels: Archived,Unread,Work/Clients,Starred", {UNREAD, "Work/Clients", STARRED}),
        ("X-GM-THRID: 17\nX-Gmail-Labels: Spam,\n Unread", {SPAM, UNREAD}),
        ("X-Gmail-Labels: =?UTF-8?Q?Inbox,B=C3=BCcher?=", {INBOX, "Bücher"}),
    ],
)
def test_flags_and_exported_labels_of_an_mbox_decide_where_a_mail_stands(
    tmp_path: Path, header: str, expected: set[str]
) -> None:
    path = tmp_path / "x"
    path.write_bytes(mbox(f"{header}\nSubject: x\n\nbody\nStatus: RO\n".lstrip().encode()))
    assert labels(path) == [expected]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("new__a", {INBOX, UNREAD}),
        ("cur__a", {INBOX, UNREAD}),
        ("cur__a_2", {INBOX, UNREAD}),
        ("cur__a_2S", {INBOX}),
        ("cur__a_2FRS", {INBOX, STARRED}),
        ("cur__a_2ST", {TRASH}),
        ("cur__a_2DS", {DRAFT}),
    ],
)
def test_flags_of_a_maildir_decide_where_a_mail_stands(
    tmp_path: Path, name: str, expected: set[str]
) -> None:
    assert labels(maildir(tmp_path / "Maildir", **{name: mail()})) == [expected]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        (".Sent", {SENT}),
        (".Junk", {SPAM}),
        (".Work.Clients", {"Work/Clients"}),
        (".Archive", set()),
        (".Trash", {TRASH}),
    ],
)
def test_folders_of_a_maildir_become_labels(
    tmp_path: Path, folder: str, expected: set[str]
) -> None:
    top = maildir(tmp_path / "Maildir")
    maildir(top / folder, cur__a_2S=mail())
    assert labels(top) == [expected]


def test_a_folder_is_searched_for_mail_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one.eml").write_bytes(mail(subject="one"))
    (tmp_path / "two.mbox").write_bytes(mbox(mail(subject="two")))
    maildir(tmp_path / "box", new__x=mail(subject="three"))
    (tmp_path / "notes.txt").write_text("From here on, no mail")
    assert sorted(raw.split(b"Subject: ")[1].split()[0] for raw in raws(tmp_path)) == [
        b"one",
        b"three",
        b"two",
    ]


def test_an_eml_file_is_unread_in_the_inbox_with_its_files_date_to_fall_back_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.eml"
    path.write_bytes(b"Subject: undated\n\nhello\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    (arrival,) = arrivals(path)
    assert arrival.labels == {INBOX, UNREAD}
    assert arrival.date == 1_700_000_000


def test_an_mbox_line_gives_the_date_of_a_mail_that_has_none(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(mbox(b"Subject: undated\n\nhello\n"))
    assert arrivals(path)[0].date == 1_793_523_600


def test_what_cannot_be_read_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = maildir(tmp_path / "box", cur__a_2S=b"", cur__b_2S=mail(), cur__d_2S=b"\n\n")
    os.mkfifo(folder / "cur" / "pipe:2,S")
    (folder / "cur" / "c:2,S").symlink_to("/nonexistent/mail")
    found = [read for source in files.sources(folder) for read in files.read(source)]
    assert [read.arrival is None for read in found] == [True, False, True]
    assert found[0].refused.endswith("a:2,S: empty")


def test_a_mail_beyond_the_limit_is_counted_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.write(b"From a@example.com Sun Nov  1 09:00:00 2026\nSubject: huge\n\n")
        file.truncate(files.MAX_MAIL + 1000)
        file.seek(0, 2)
        file.write(b"\n\n" + mbox(mail(subject="after")))
    huge, after = (read for source in files.sources(path) for read in files.read(source))
    assert huge.arrival is None
    assert "larger than 150,000,000 bytes" in huge.refused
    assert b"Subject: after" in present(after.arrival).raw


def test_a_path_without_mail_is_refused_with_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(Invalid, match="no mail in") as refusal:
        files.sources(tmp_path)
    assert "Maildir" in refusal.value.remedy
    with pytest.raises(NotFound, match="does not exist"):
        files.sources(tmp_path / "missing")


def test_a_sender_cannot_label_a_mail_by_writing_the_exports_header(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(
        mbox(b"From: eve@example.com\nX-Gmail-Labels: Sent,Starred\nSubject: x\n\nbody\n")
    )
    assert labels(path) == [{INBOX, UNREAD}]


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "token").write_bytes(b"token: abc")
    (secret / "diary.eml").write_bytes(mail(subject="diary"))
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "invoice.eml").symlink_to(secret / "token")
    (folder / "box").mkdir()
    (folder / "box" / "cur").symlink_to(secret)
    (folder / "box" / "new").mkdir()
    maildir(folder / "real", cur__a_2S=mail(subject="mine"))
    (folder / "real" / "cur" / "b:2,S").symlink_to(secret / "diary.eml")
    assert [raw.split(b"Subject: ")[1].split()[0] for raw in raws(folder)] == [b"mine"]


def test_folders_are_named_in_the_persons_language(tmp_path: Path) -> None:
    top = maildir(tmp_path / "Maildir")
    maildir(top / ".Gr&APw-&AN8-e.R&-D", cur__a_2S=mail())
    maildir(top / "Work" / "Clients", cur__a_2S=mail(subject="b"))
    assert labels(top) == [{"Grüße/R&D"}, {"Work/Clients"}]


def test_a_label_with_a_comma_stays_one_label(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(mbox(b'X-Gmail-Labels: Inbox,"Smith, Jones"\nSubject: x\n\nbody\n'))
    assert labels(path) == [{INBOX, "Smith, Jones"}]


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path: Path) -> None:
    source = files.MailSource(tmp_path / "gone.mbox", "mbox", 1)
    (refused,) = files.read(source)
    assert refused.refused.endswith("gone.mbox: No such file or directory")


def test_a_text_whose_first_line_has_a_colon_is_not_imported(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/:/bin/sh\n")
    with pytest.raises(Invalid, match="no mail header"):
        files.sources(file)
