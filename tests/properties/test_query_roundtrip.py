"""Whatever is asked: what is shown is read back the same, and any text is a query or a clear refusal."""

import re
from collections.abc import Iterable
from datetime import date, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from postroom.core.errors import Invalid
from postroom.core.language import MAX_AGE, MAX_SIZE, parse
from postroom.core.message import (
    CATEGORIES,
    SYSTEM_LABELS,
    Mail,
    Message,
    Party,
    label_key,
    system_label,
)
from postroom.core.query import (
    UNITS,
    Age,
    And,
    Dated,
    Fact,
    Field,
    Labelled,
    MessageId,
    Not,
    Or,
    OwnAddress,
    Query,
    QueryContext,
    Size,
    Text,
    restricted,
)
from postroom.core.text import words
from tests.queries import matches, show

UNWRITABLE = re.compile('["\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]')
NASTY = (
    "OR AND NOT AROUND me ME or -a -- +a from: from:a a:b (a b) {a} 10:30 http://x.org <a@b.org>"
)
NASTY_TEXTS = [
    *NASTY.split(),
    " a ",
    "a\tb",
    "a b",
    "in:spam",
    "ﬁ",
    "ǅ",
    "ΐ",
    "日本語",
    "😀",
    "e\u0301",
]
texts = st.one_of(st.sampled_from(NASTY_TEXTS), st.text(max_size=12)).filter(
    lambda text: not UNWRITABLE.search(text)
)
phrases = texts.filter(words)
labels = st.one_of(
    st.sampled_from(sorted(SYSTEM_LABELS)),
    st.sampled_from(["drafts", "archive", "anywhere", "a/b c", *CATEGORIES]),
    texts.filter(str.strip),
).map(lambda name: Labelled(label_key(system_label(name) or name)))
days = st.one_of(st.dates(date(1, 1, 1), date(9999, 12, 31)), st.integers(0, 10**11 - 1))
people = st.sampled_from([Field.FROM, Field.TO, Field.CC, Field.BCC, Field.DELIVEREDTO])
leaves = st.one_of(
    st.builds(Text, st.sampled_from(Field), phrases),
    st.builds(OwnAddress, people),
    labels,
    st.sampled_from([fact for fact in Fact if fact is not Fact.EVERYTHING]),
    st.builds(Dated, st.booleans(), days),
    st.builds(Age, st.booleans(), st.integers(1, MAX_AGE), st.sampled_from(UNITS)),
    st.builds(
        Size,
        st.booleans(),
        st.one_of(st.integers(0, MAX_SIZE), st.sampled_from([0, 1024, 2**20, 2**40])),
    ),
    texts.map(lambda text: text.strip("<> \t\r\n")).filter(bool).map(MessageId),
)


def joined(kind: type[And | Or], parts: Iterable[Query]) -> Query:
    flat: tuple[Query, ...] = ()
    for part in parts:
        flat += part.parts if isinstance(part, kind) else (part,)
    return kind(flat)


def branches(children: SearchStrategy[Query]) -> SearchStrategy[Query]:
    several = st.lists(children, min_size=2, max_size=4)
    return st.one_of(
        several.map(lambda parts: joined(And, parts)),
        several.map(lambda parts: joined(Or, parts)),
        children.map(lambda part: part.part if isinstance(part, Not) else Not(part)),
    )


queries: SearchStrategy[Query] = st.one_of(
    st.just(Fact.EVERYTHING), st.recursive(leaves, branches, max_leaves=20)
)
PIECES = (
    "a - + : from: is: is:read label: me after: 2024/01/31 newer_than: 2d larger: 10M in: spam x:y"
)
pieces = st.sampled_from([*PIECES.split(), *'"(){}<> \t', "rfc822msgid:", " OR ", " AND ", "b c"])


@given(queries)
def test_what_is_shown_is_read_back_the_same(query: Query) -> None:
    assert parse(show(query)) == query


@given(st.one_of(st.text(), st.lists(pieces, max_size=20).map("".join)))
@example('from:(a OR "b c") -{is:read after:2024/01/31}')
@example("a\u2028b")
@example("label:İ label:ẞ")
def test_any_text_is_a_query_or_a_refusal(text: str) -> None:
    try:
        query = parse(text)
    except Invalid as refused:
        assert refused.message
        assert refused.remedy
    else:
        assert parse(show(query)) == query


@given(queries)
def test_what_a_mailbox_answers_can_be_shown_too(query: Query) -> None:
    assert parse(show(restricted(query))) == restricted(query)


parties = st.builds(Party, texts, st.sampled_from(["amy@example.org", "bob@example.org", ""]))
mails = st.builds(
    Mail,
    subject=texts,
    sender=st.none() | parties,
    to=st.lists(parties, max_size=2).map(tuple),
    text=texts,
)
messages = st.builds(
    Message,
    id=st.just("1"),
    thread=st.just("1"),
    date=st.integers(0, 2**32),
    size=st.integers(0, 10**6),
    labels=st.frozensets(st.sampled_from([*sorted(SYSTEM_LABELS), "a/b c", "Archive"]), max_size=4),
    mail=mails,
)
zones = st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours)))
views = st.builds(
    QueryContext, now=st.integers(0, 2**32), me=st.just(("amy@example.org",)), zone=zones
)


@given(queries.filter(lambda query: query != Fact.EVERYTHING), messages, views)
def test_a_mail_is_found_by_a_query_or_by_its_negation(
    query: Query, message: Message, view: QueryContext
) -> None:
    negation = query.part if isinstance(query, Not) else Not(query)
    found = [
        matches(joined(And, (Fact.ANYWHERE, each)), message, view) for each in (query, negation)
    ]
    assert sorted(found) == [False, True]


@given(phrases, phrases, views)
def test_a_mail_is_found_by_its_own_words(first: str, second: str, view: QueryContext) -> None:
    mail = Mail(subject=f"{first} {second}", text=f"{second} {first}")
    message = Message("1", "1", 0, 0, frozenset(), mail)
    for where in (Field.ANY, Field.SUBJECT):
        assert matches(Text(where, first), message, view)
        assert matches(Text(where, second), message, view)
