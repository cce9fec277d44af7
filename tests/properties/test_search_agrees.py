"""The embedded mailbox finds exactly the mails that `matches` says a query means."""

import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from postroom.core.address import Address
from postroom.core.language import MAX_DEPTH, MAX_TERMS, parse
from postroom.core.message import label_key
from postroom.core.query import (
    UNITS,
    Age,
    And,
    Dated,
    Fact,
    Field,
    Labelled,
    MessageId,
    Or,
    OwnAddress,
    Query,
    QueryContext,
    Size,
    Text,
    joined,
    opposite,
)
from postroom.mail.local import LocalMailbox
from postroom.mail.mailbox import Arrival
from tests.conftest import examples
from tests.queries import matches, show

YOU = Address.parse("you@example.org")
ZONE = timezone(timedelta(hours=-7))
NOW = int(datetime(2026, 11, 15, 3, tzinfo=UTC).timestamp())

# Few words, so that generated queries find something.
WORDS = [
    "invoice",
    "Größe",
    "grosse",
    "会議",
    "會",
    "a",
    "b",
    "é",
    "e",
    "x-y",
    "you",
    "example",
    "👍",
    "ﬃ" * 30,
]
ADDRESSES = ["you@example.org", "ann@example.com", "a.b@example.org", "bob@you.example"]
NAMES = ["", "Ann B", "You", "Bob Größe"]
LABELS = [
    "Work",
    "Work/Clients",
    "été",
    "INBOX",
    "UNREAD",
    "STARRED",
    "SPAM",
    "TRASH",
    "CATEGORY_SOCIAL",
]
IDS = ["a@example.com", "b@example.com", "A@example.com"]

sentences = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
people = st.builds(
    lambda name, address: f'"{name}" <{address}>' if name else address,
    st.sampled_from(NAMES),
    st.sampled_from(ADDRESSES),
)
several = st.lists(people, max_size=2).map(", ".join)


@st.composite
def mails(draw: DrawFn) -> bytes:
    lines = [f"From: {draw(people)}", f"Subject: {draw(sentences)}"]
    lines += [f"{name}: {draw(several)}" for name in ("To", "Cc", "Bcc")]
    lines.append(f"Message-ID: <{draw(st.sampled_from(IDS))}>")
    if draw(st.booleans()):
        lines.append(f"List-Id: <{draw(st.sampled_from(WORDS[:1] + ['news.example.com']))}>")
    if draw(st.booleans()):
        lines.append(f"Delivered-To: {draw(st.sampled_from(ADDRESSES))}")
    day = datetime(2026, 11, 15, tzinfo=UTC) - timedelta(hours=draw(st.integers(-20, 24 * 40)))
    lines.append(f"Date: {day:%a, %d %b %Y %H:%M:%S +0000}")
    text = draw(sentences)
    if draw(st.booleans()):
        lines += [
            "MIME-Version: 1.0",
            "Content-Type: multipart/mixed; boundary=x",
            "",
            "--x",
            "Content-Type: text/plain; charset=utf-8",
            "",
            text,
        ]
        name = draw(st.sampled_from(["invoice.pdf", "a b.txt", "x"]))
        lines += [
            "--x",
            f'Content-Type: application/pdf; name="{name}"',
            "Content-Disposition: attachment",
            "",
            "content",
            "--x--",
        ]
    else:
        lines += ["Content-Type: text/plain; charset=utf-8", "", text]
    return "\r\n".join(lines).encode()


phrases = st.lists(
    st.sampled_from([*WORDS, "org", "com", "pdf", "Ann", "missing"]), min_size=1, max_size=2
).map(" ".join)
phrases = st.one_of(
    phrases, st.sampled_from([*ADDRESSES, "YOU@example.org", "ann@example", "@example.com"])
)
days = st.one_of(
    st.dates(datetime(2026, 10, 1).date(), datetime(2026, 11, 17).date()),
    st.integers(NOW - 40 * 86_400, NOW + 86_400),
)
leaves = st.one_of(
    st.builds(Text, st.sampled_from(Field), phrases),
    st.builds(
        OwnAddress, st.sampled_from([Field.FROM, Field.TO, Field.CC, Field.BCC, Field.DELIVEREDTO])
    ),
    st.sampled_from([*LABELS, "missing", "DRAFT"]).map(lambda name: Labelled(label_key(name))),
    st.sampled_from([fact for fact in Fact if fact is not Fact.EVERYTHING]),
    st.builds(Dated, st.booleans(), days),
    st.builds(Age, st.booleans(), st.integers(1, 30), st.sampled_from(UNITS)),
    st.builds(Size, st.booleans(), st.integers(150, 700)),
    st.sampled_from(IDS).map(MessageId),
)


def branches(children: SearchStrategy[Query]) -> SearchStrategy[Query]:
    parts = st.lists(children, min_size=2, max_size=3)
    return st.one_of(
        parts.map(lambda found: joined(And, found)),
        parts.map(lambda found: joined(Or, found)),
        children.map(opposite),
    )


queries: SearchStrategy[Query] = st.one_of(
    st.just(Fact.EVERYTHING), st.recursive(leaves, branches, max_leaves=6)
)
label_sets = st.frozensets(st.sampled_from(LABELS), max_size=3)


def mailbox(folder: str) -> LocalMailbox:
    return LocalMailbox(Path(folder, "mail.sqlite"), (YOU,), now=lambda: NOW, zone=ZONE)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.tuples(mails(), label_sets), max_size=8),
    st.lists(st.tuples(st.integers(0, 7), label_sets, label_sets), max_size=6),
    st.lists(queries, min_size=1, max_size=12),
)
def test_compiled_sql_and_matches_agree_on_every_mail(
    arrivals: list[tuple[bytes, frozenset[str]]],
    changes: list[tuple[int, frozenset[str], frozenset[str]]],
    asked: list[Query],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        box = mailbox(folder)
        try:
            for raw, labels in arrivals:
                box.add_mails([Arrival(raw, labels, NOW)])
            ids = list(box.changes("".join([box.changes().cursor.split("-")[0], "-0"])).added)
            for at, add, remove in changes:
                if at < len(ids):
                    box.relabel(ids[at], add=add, remove=remove - add)
            messages = sorted(
                (box.message(id) for id in ids),
                key=lambda message: int(message.id, 16),
                reverse=True,
            )
            view = QueryContext(now=NOW, me=(YOU.spec,), zone=ZONE)
            for query in asked:
                found = [item.id for item in box.search(show(query), limit=100).items]
                assert found == [
                    message.id for message in messages if matches(query, message, view)
                ], show(query)
            assert [message.date for message in messages] == sorted(
                (m.date for m in messages), reverse=True
            )
        finally:
            box.close()


def nested(leaf: str, other: str) -> str:
    """Return as deep a query as may be: every bracket holds a NOT, an AND and an OR."""
    text = leaf
    for level in range(MAX_DEPTH):
        text = f"-(b{level} OR {text} {other})"
    return text


def test_the_deepest_and_the_longest_query_that_parse_accepts_is_answered(tmp_path: Path) -> None:
    box = mailbox(str(tmp_path))
    box.add_mails([Arrival(b"Subject: a\r\n\r\nb\r\n", frozenset({"INBOX"}), NOW)])
    (id,) = (item.id for item in box.search("").items)
    view = QueryContext(now=NOW, me=(YOU.spec,), zone=ZONE)
    many = [f"w{n}" for n in range(MAX_TERMS)]
    for text in (
        nested("a", "c"),
        nested("a", "-c"),
        nested("a", "-after:2020/01/01"),
        nested("larger:1", "-c"),
        "-(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH,
        " OR ".join(many[:-1] + ["a"]),
        " ".join(f"-{word}" for word in many),
        "a -(" + " OR ".join(many[:-1]) + ")",
        " ".join(["a"] * MAX_TERMS),
        " OR ".join(f"larger:{n}" for n in range(MAX_TERMS)),
        "a" + " b" * 50,
    ):
        expected = [id] if matches(parse(text), box.message(id), view) else []
        assert [item.id for item in box.search(text).items] == expected, text[:80]
    box.close()
