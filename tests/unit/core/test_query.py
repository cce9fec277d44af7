"""The search language: what each operator means, what is refused and where, what a query finds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from itertools import permutations
from typing import Any

import pytest

from postroom.core.errors import Invalid
from postroom.core.language import MAX_DEPTH, MAX_QUERY, MAX_TERMS, parse
from postroom.core.message import CATEGORIES, Attachment, Mail, Message, Party
from postroom.core.query import (
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
    bounds,
    restricted,
    terms,
)
from postroom.core.text import words
from tests.cases import for_each
from tests.narrow import present
from tests.queries import matches, show


def word(text: str, where: Field = Field.ANY) -> Text:
    return Text(where, text)


A, B, C, D = map(word, "abcd")
UNREAD = Labelled("unread")
NOW = int(datetime(2024, 3, 31, 12, 0, tzinfo=UTC).timestamp())
VIEW = QueryContext(now=NOW, me=("amy@example.org", "amy.lee@example.com"), zone=UTC)


# --- Terms and their order


@for_each(
    ("text", "tree"),
    [
        ("a b", And((A, B))),
        ("a AND b", And((A, B))),
        ("a OR b", Or((A, B))),
        ("a b OR c", And((A, Or((B, C))))),
        ("a OR b c OR d", And((Or((A, B)), Or((C, D))))),
        ("a AND b OR c", And((A, Or((B, C))))),
        ("(a b) OR c", Or((And((A, B)), C))),
        ("a (b c)", And((A, B, C))),
        ("a OR (b OR c)", Or((A, B, C))),
        ("{a b c}", Or((A, B, C))),
        ("{a OR b}", Or((A, B))),
        ("{(a b) c}", Or((And((A, B)), C))),
        ("((a))", A),
        ("a(b)", And((A, B))),
        ("(a)OR(b)", Or((A, B))),
        ("-a", Not(A)),
        ("a -b", And((A, Not(B)))),
        ("-a OR b", Or((Not(A), B))),
        ("-(a b)", Not(And((A, B)))),
        ("-{a b}", Not(Or((A, B)))),
        ("--a", A),
        ("-(-a)", A),
        ("a\tb\r\n c", And((A, B, C))),
    ],
)
def test_or_binds_tighter_than_and_and_brackets_bind_tightest(
    text: str, tree: And | Not | Or | Text
) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_an_empty_query_asks_for_everything(text: str) -> None:
    assert parse(text) == Fact.EVERYTHING
    assert show(Fact.EVERYTHING) == ""


@for_each("text", ["or", "and", "Or", "not", "Around", "ORANGE", "ANDES", "OR-gate"])
def test_only_a_whole_upper_case_word_is_a_connective(text: str) -> None:
    assert parse(f"a {text}") == And((A, word(text)))


@for_each(
    "text",
    ["foo-bar", "a@b.org", "10:30", "http://x.org/a:b", "C++", "3.14", ":x", "o'neil"],
)
def test_a_word_with_inner_punctuation_is_one_term(text: str) -> None:
    assert parse(text) == word(text)


def test_a_quoted_phrase_is_taken_as_it_is_written() -> None:
    assert parse('"dinner (tonight) OR -never from:me"') == word(
        "dinner (tonight) OR -never from:me"
    )
    assert parse('-"a b" "OR"') == And((Not(word("a b")), word("OR")))


# --- Operators


@for_each("where", [each for each in Field if each is not Field.ANY])
def test_each_field_takes_a_word_a_phrase_and_a_group(where: Field) -> None:
    name = where.value
    assert parse(f"{name}:amy") == word("amy", where)
    assert parse(f"{name.upper()}:amy") == word("amy", where)
    assert parse(f"{name}: amy") == word("amy", where)
    assert parse(f'{name}:"amy lee"') == word("amy lee", where)
    assert parse(f'{name}: "amy lee"') == word("amy lee", where)
    assert parse(f"-{name}:amy") == Not(word("amy", where))
    assert parse(f"{name}:(a b)") == And((word("a", where), word("b", where)))
    assert parse(f"{name}:(a OR b)") == Or((word("a", where), word("b", where)))
    assert parse(f"-{name}:{{a b}}") == Not(Or((word("a", where), word("b", where))))
    assert parse(f"{name}:(a -(b c))") == And(
        (word("a", where), Not(And((word("b", where), word("c", where)))))
    )


def test_a_field_ends_with_its_group() -> None:
    assert parse("from:(a) b") == And((word("a", Field.FROM), B))
    assert parse("from:a b") == And((word("a", Field.FROM), B))


def test_a_value_may_look_like_an_operator_when_it_touches_the_colon() -> None:
    assert parse("subject:Re:hello") == word("Re:hello", Field.SUBJECT)
    assert parse("subject:OR") == word("OR", Field.SUBJECT)
    assert parse("to:+4930123") == word("+4930123", Field.TO)


@for_each("where", [Field.FROM, Field.TO, Field.CC, Field.BCC, Field.DELIVEREDTO])
def test_me_means_ones_own_addresses_where_people_are_named(where: Field) -> None:
    assert parse(f"{where.value}:me") == OwnAddress(where)
    assert parse(f"{where.value}:(ME OR bob)") == Or((OwnAddress(where), word("bob", where)))
    assert parse(f'{where.value}:"me"') == word("me", where)


def test_me_is_a_word_everywhere_else() -> None:
    assert parse("me subject:me") == And((word("me"), word("me", Field.SUBJECT)))


@for_each(
    ("text", "tree"),
    [
        ("label:work", Labelled("work")),
        ('label:"Work / Clients"', Labelled("work-clients")),
        ("label:work-clients", Labelled("work-clients")),
        ("in:inbox", Labelled("inbox")),
        ("in:Work", Labelled("work")),
        ("in:drafts", Labelled("draft")),
        ("in:draft", Labelled("draft")),
        ("label:DRAFT", Labelled("draft")),
        ("label:anywhere", Labelled("anywhere")),
        ("label:snoozed", Labelled("snoozed")),
        ("in:anywhere", Fact.ANYWHERE),
        ("is:unread", UNREAD),
        ("IS:Unread", UNREAD),
        ("is:read", Not(UNREAD)),
        ("-is:read", UNREAD),
        ("is:starred", Labelled("starred")),
        ("is:important", Labelled("important")),
        ("label:(a OR b)", Or((Labelled("a"), Labelled("b")))),
        ("label:category_social", Labelled("category_social")),
        ("has:attachment", Fact.ATTACHMENT),
        ("has:userlabels", Fact.USERLABELS),
        ("has:nouserlabels", Not(Fact.USERLABELS)),
        ("rfc822msgid:<x.1@example.org>", MessageId("x.1@example.org")),
        ("RFC822MSGID:X.1@Example.org", MessageId("X.1@Example.org")),
        ("after:2024/1/31", Dated(newer=True, when=date(2024, 1, 31))),
        ("newer:2024-01-31", Dated(newer=True, when=date(2024, 1, 31))),
        ("before:01/31/2024", Dated(newer=False, when=date(2024, 1, 31))),
        ("older:2024/02/29", Dated(newer=False, when=date(2024, 2, 29))),
        ("after:1700000000", Dated(newer=True, when=1_700_000_000)),
        ("before:000000005", Dated(newer=False, when=5)),
        ("newer_than:2d", Age(newer=True, count=2, unit="d")),
        ("older_than:3M", Age(newer=False, count=3, unit="m")),
        ("older_than:1y", Age(newer=False, count=1, unit="y")),
        ("newer_than:12h", Age(newer=True, count=12, unit="h")),
        ("larger:10M", Size(larger=True, bytes=10 * 2**20)),
        ("size:1000000", Size(larger=True, bytes=1_000_000)),
        ("smaller:5kb", Size(larger=False, bytes=5 * 2**10)),
        ("larger:1G", Size(larger=True, bytes=2**30)),
        ("larger:0", Size(larger=True, bytes=0)),
        ("larger:7B", Size(larger=True, bytes=7)),
    ],
)
def test_every_other_operator_is_read(text: str, tree: Any) -> None:
    assert parse(text) == tree
    assert parse(show(tree)) == tree


@for_each("name", CATEGORIES)
def test_a_category_is_the_system_label_of_that_name(name: str) -> None:
    assert parse(f"category:{name}") == Labelled(f"category_{name}")
    assert show(Labelled(f"category_{name}")) == f"category:{name}"


@for_each(
    ("typed", "shown"),
    [
        ("a b OR c", "a b OR c"),
        ("{(a b) -(c d)}", "(a b) OR -(c d)"),
        ("from:{amy me}", "from:amy OR from:me"),
        ("label:draft is:read category:social", "in:draft -is:unread category:social"),
        ('subject:"a b" 10:30', 'subject:"a b" "10:30"'),
        ("larger:2048 smaller:0 size:1500", "larger:2K smaller:0 larger:1500"),
        ("newer:1/31/2024 before:1700000000", "after:2024-01-31 before:1700000000"),
    ],
)
def test_a_query_is_shown_as_one_would_type_it(typed: str, shown: str) -> None:
    assert show(parse(typed)) == shown
    assert parse(shown) == parse(typed)


# --- What is refused


@for_each(
    ("text", "operator", "place"),
    [
        ("foo:bar", '"foo:"', 1),
        ("a -Sender:amy", '"Sender:"', 4),
        ("(a OR größe:5)", '"größe:"', 7),
        ("Re: hello", '"Re:"', 1),
        ("subject:(Re: hello)", '"Re:"', 10),
        ("mailto:amy@example.org", '"mailto:"', 1),
        ('body:"a b"', '"body:"', 1),
        ("is:purple", 'is:"purple"', 4),
        ("a has:sheep", 'has:"sheep"', 7),
        ("has:(attachment yellow-star)", 'has:"yellow-star"', 17),
        ("category:spam", 'category:"spam"', 10),
        ("in:snoozed", "in:snoozed", 4),
        ("in:Archive", "in:archive", 4),
        ("a AROUND 5 b", "AROUND", 3),
        ("a NOT b", "NOT", 3),
        ("a +b", '"+"', 3),
        ("-+b", '"+"', 2),
    ],
)
def test_an_unknown_operator_or_value_is_named_with_its_place(
    text: str, operator: str, place: int
) -> None:
    with pytest.raises(Invalid, match=r"^Search does not know") as caught:
        parse(text)
    assert f"{operator} at character {place}" in caught.value.message
    assert caught.value.remedy


def test_the_remedy_for_an_unknown_operator_quotes_the_text_and_lists_what_is_known() -> None:
    with pytest.raises(Invalid, match=r"^Search does not know") as caught:
        parse("foo:bar")
    assert '"foo:bar"' in caught.value.remedy
    assert "rfc822msgid:" in caught.value.remedy
    assert parse('"foo:bar"') == word("foo:bar")


def test_the_remedy_for_an_unknown_value_lists_the_values() -> None:
    with pytest.raises(Invalid, match=r"^Search does not know") as caught:
        parse("is:purple")
    for value in ("is:unread", "is:read", "is:starred", "is:important"):
        assert value in caught.value.remedy


@for_each(
    ("text", "what", "place"),
    [
        ("after:2024", "is not a date", 7),
        ("after:20240131", "is not a date", 7),
        ("after:1700000000000", "is not a date", 7),
        ("after:yesterday", "is not a date", 7),
        ("after:2024/01-31", "is not a date", 7),
        ("after:٢٠٢٤/01/31", "is not a date", 7),
        ("before:2023/02/29", "is not a day of the calendar", 8),
        ("a older:31/01/2024", "is not a day of the calendar", 9),
        ("before:0000/01/01", "is not a day of the calendar", 8),
        ("newer_than:2w", "is not an age", 12),
        ("newer_than:0d", "is not an age", 12),
        ("older_than:100000d", "is not an age", 12),
        ("older_than:d", "is not an age", 12),
        ("larger:big", "is not a size", 8),
        ("larger:1.5M", "is not a size", 8),
        ("size:999999999G", "is not a size", 6),
        ("smaller:9999999999999999", "is not a size", 9),
        ('label:" "', "is not a label", 7),
        ('in:""', "is not a label", 4),
        ("rfc822msgid:<>", "is not a Message-ID", 13),
        ("a !!!", "has no letter or digit", 3),
        ('from:"--"', "has no letter or digit", 6),
        ('""', "has no letter or digit", 1),
        ("a & b", "has no letter or digit", 3),
        ("a (b", "is never closed", 3),
        ("((a)", "is never closed", 1),
        ("a) b", "closes nothing", 2),
        ("(a}", 'cannot close "(" at character 1', 3),
        ("a {b c)", 'cannot close "{" at character 3', 7),
        ('a "b c', "is never closed", 3),
        ("a ()", "is empty", 3),
        ("from:{ }", "is empty", 6),
        ("OR a", "has no term on its left", 1),
        ("a OR", "has no term on its right", 3),
        ("(a AND) b", "has no term on its right", 4),
        ("(OR a)", "has no term on its left", 2),
        ("a OR OR b", "has no term on its left", 6),
        ("a AND OR b", "has no term on its left", 7),
        ("{a AND b}", "stands in braces", 4),
        ("a - b", "has nothing to negate", 3),
        ("a -", "has nothing to negate", 3),
        ("(a -)", "has nothing to negate", 4),
        ("a -OR b", "has nothing to negate", 3),
        ("from:", "has no value", 1),
        ("(from: )", "has no value", 2),
        ("a from: subject:b", "has no value", 3),
        ("from: OR b", "has no value", 1),
        ("from:-amy", "stands between from: and its value", 6),
        ("from:(subject:a)", "stands in the brackets of from:", 7),
        ("a\0b", "U+0000", 2),
        ("a\x1fb", "U+001F", 2),
        ("a \ud800", "U+D800", 3),
    ],
)
def test_a_mistake_is_refused_with_its_place_and_a_remedy(text: str, what: str, place: int) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text)
    assert not caught.value.message.startswith("Search does not know")
    assert what in caught.value.message
    assert f"at character {place}" in caught.value.message
    assert caught.value.remedy


def test_a_long_text_is_not_repeated_whole_in_the_error() -> None:
    with pytest.raises(Invalid) as caught:
        parse("!" * 5000)
    assert len(caught.value.message) < 200


@for_each(
    "text",
    [
        "a" * (MAX_QUERY + 1),
        "word " * 20_000,
        "(" * 10_000,
        "(" * 5_000 + "a" + ")" * 5_000,
        "from:(" * 2_000,
        "-(" * 5_000,
        "{" * 100_000,
        '"' * 16_000,
        "a OR " * 3_000,
        "a:" * 8_000,
        "x" * 16_000 + ":",
        "-" * 16_000,
        "from: " * 2_500,
        "a " * (MAX_TERMS + 1),
        "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
    ],
)
def test_a_hostile_query_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text)
    assert caught.value.remedy
    assert len(caught.value.message) < 200


def test_a_query_at_its_limits_is_read_and_shown() -> None:
    for text in (
        "a" * MAX_QUERY,
        "a " * MAX_TERMS,
        "(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH,
        "-(a b OR " * MAX_DEPTH + "c" + ")" * MAX_DEPTH,
        "-" * (MAX_QUERY - 1) + "a",
        "subject:(" + "a " * MAX_TERMS + ")",
    ):
        assert parse(show(parse(text))) == parse(text)


# --- What the relative parts mean


class Berlin(tzinfo):
    """Central Europe in early 2024: summer time begins on March 31, at two in the morning."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        winter = when is None or (when.year, when.month, when.day, when.hour) < (2024, 3, 31, 3)
        return timedelta(hours=1 if winter else 2)

    def dst(self, when: datetime | None) -> timedelta:
        return self.utcoffset(when) - timedelta(hours=1)

    def tzname(self, when: datetime | None) -> str:
        return "Berlin"


BERLIN = Berlin()


def at(year: int, month: int, day: int, hour: int = 0, *, zone: tzinfo = UTC) -> int:
    return int(datetime(year, month, day, hour, tzinfo=zone).timestamp())


def age(text: str, zone: tzinfo = UTC) -> tuple[int | None, int | None]:
    node = parse(text)
    assert isinstance(node, Age | Dated)
    return bounds(node, replace(VIEW, zone=zone))


def test_a_day_begins_at_midnight_where_the_reader_is() -> None:
    assert age("after:2024/03/31", BERLIN) == (at(2024, 3, 30, 23), None)
    assert age("before:2024/04/01", BERLIN) == (None, at(2024, 3, 31, 22))
    assert age("after:1700000000", BERLIN) == (1_700_000_000, None)
    assert age("before:1700000000", BERLIN) == (None, 1_700_000_000)


def test_hours_and_days_are_counted_in_seconds() -> None:
    assert age("newer_than:12h") == (NOW - 12 * 3600, None)
    assert age("older_than:2d") == (None, NOW - 2 * 86_400)


def test_months_and_years_follow_the_calendar_and_end_with_the_month() -> None:
    assert age("newer_than:1m") == (at(2024, 2, 29, 12), None)
    assert age("older_than:3m") == (None, at(2023, 12, 31, 12))
    assert age("older_than:4m") == (None, at(2023, 11, 30, 12))
    assert age("newer_than:15m") == (at(2022, 12, 31, 12), None)
    leap_day = replace(VIEW, now=at(2024, 2, 29, 12))
    assert bounds(Age(newer=True, count=1, unit="y"), leap_day) == (at(2023, 2, 28, 12), None)


def test_a_month_ago_is_the_same_time_of_day_in_the_readers_zone() -> None:
    assert age("newer_than:1m", BERLIN) == (at(2024, 2, 29, 14, zone=BERLIN), None)


@for_each("zone", [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12)), BERLIN])
def test_dates_at_the_ends_of_the_calendar_do_not_overflow(zone: Berlin | timezone) -> None:
    for text in ("newer_than:99999y", "newer_than:99999m", "newer_than:2023y", "newer_than:99999d"):
        since, until = age(text, zone)
        assert since is not None
        assert since < 0
        assert until is None
    since, until = age("after:0001/01/01", zone)[0], age("before:9999/12/31", zone)[1]
    assert present(since) < present(until)


# --- What a query finds

MAIL = Mail(
    subject="Café menu for Friday",
    sender=Party("Bob Stone", "bob@example.net"),
    to=(Party("Amy", "amy@example.org"), Party("", "carl@example.com")),
    cc=(Party("Dora", "dora@example.org"),),
    bcc=(Party("", "eve@example.org"),),
    message_id="<m1@example.net>",
    list_id="Cooks <cooks.lists.example.org>",
    delivered_to=("amy.lee@example.com",),
    text="The soup is ready.\nBring bread.",
    attachments=(Attachment("2", "Menu_final.PDF", "application/pdf", 900),),
)
MESSAGE = Message(
    id="1",
    thread="1",
    date=at(2024, 3, 30, 0),
    size=2048,
    labels=frozenset({"INBOX", "UNREAD", "CATEGORY_FORUMS", "Work/Clients"}),
    mail=MAIL,
)


def found(query: str, message: Message = MESSAGE, view: QueryContext = VIEW) -> bool:
    return matches(parse(query), message, view)


def test_the_words_of_each_field_are_listed_in_order() -> None:
    fields = terms(MAIL)
    assert set(fields) == set(Field) - {Field.ANY}
    assert fields[Field.TO] == ["amy", "amy", "example", "org", "carl", "example", "com"]
    assert fields[Field.FILENAME] == ["menu", "final", "pdf"]
    assert fields[Field.SUBJECT] == ["cafe", "menu", "for", "friday"]
    assert words(MAIL.text) == ["the", "soup", "is", "ready", "bring", "bread"]
    assert terms(Mail())[Field.FROM] == []


@for_each(
    "query",
    [
        "",
        "soup",
        "CAFE",
        '"soup is ready"',
        '"ready. bring"',
        "friday bread",
        "bob eve dora carl",
        "Menu_final.pdf",
        "from:bob",
        'from:"bob stone"',
        "from:bob@example.net",
        "from:@example.net",
        "to:carl",
        "to:me",
        "deliveredto:me",
        "cc:dora",
        "bcc:eve",
        "subject:café",
        "subject:(menu friday)",
        "filename:pdf",
        "list:cooks.lists.example.org",
        "deliveredto:amy.lee@example.com",
        "label:work-clients",
        'label:"work/clients"',
        "in:inbox is:unread category:forums",
        "has:attachment has:userlabels",
        "in:anywhere",
        "rfc822msgid:m1@example.net",
        "after:2024/03/30",
        "before:2024/03/31",
        "newer_than:2d",
        "older_than:1d",
        "larger:2047 smaller:2049",
        "-soap",
        "soap OR soup",
        "-(soup soap)",
    ],
)
def test_a_mail_that_fits_is_found(query: str) -> None:
    assert found(query)


@for_each(
    "query",
    [
        "sou",
        '"soup ready"',
        '"friday the"',
        "lists.example.org",
        "from:amy",
        "from:me",
        "cc:me",
        "to:bob",
        "subject:soup",
        "filename:soup",
        "label:work",
        "is:read",
        "is:starred",
        "has:nouserlabels",
        "rfc822msgid:M1@example.net",
        "rfc822msgid:m1",
        "after:2024/03/31",
        "before:2024/03/30",
        "newer_than:1d",
        "larger:2K",
        "smaller:2K",
        "-soup",
        "-in:anywhere",
        "soup soap",
        "-{soup soap}",
    ],
)
def test_a_mail_that_does_not_fit_is_not_found(query: str) -> None:
    assert not found(query)


def test_a_phrase_never_runs_from_one_field_into_another() -> None:
    message = replace(MESSAGE, mail=Mail(subject="red", text="blue", sender=Party("green", "")))
    for first, second in permutations(("red", "blue", "green"), 2):
        assert found(f"{first} {second}", message)
        assert not found(f'"{first} {second}"', message)


def test_system_labels_are_not_ones_own() -> None:
    message = replace(MESSAGE, labels=frozenset({"INBOX", "CATEGORY_SOCIAL", "DRAFT"}))
    assert found("has:nouserlabels in:drafts", message)
    assert not found("has:userlabels", message)


def test_me_is_nobody_where_no_address_is_ones_own() -> None:
    assert not found("to:me", view=replace(VIEW, me=()))
    assert not found("to:me", view=replace(VIEW, me=("",)))


@pytest.mark.parametrize("label", ["SPAM", "TRASH"])
def test_spam_and_trash_are_found_only_when_asked_for(label: str) -> None:
    message = replace(MESSAGE, labels=frozenset({label}))
    assert not found("", message)
    assert not found("soup", message)
    assert not found("soup OR soap", message)
    assert found("soup in:anywhere", message)
    assert found(f"in:{label.lower()}", message)
    assert found(f"soup (in:{label.lower()} OR in:inbox)", message)
    assert not found(f"soup -in:{label.lower()}", message)


@for_each(
    ("query", "answered"),
    [
        ("", "-in:spam -in:trash"),
        ("a", "a -in:spam -in:trash"),
        ("a b", "a b -in:spam -in:trash"),
        ("a OR b", "a OR b -in:spam -in:trash"),
        ("in:trash", "in:trash -in:spam"),
        ("in:trash OR in:spam", "in:trash OR in:spam"),
        ("a -in:trash", "a -in:trash -in:spam"),
        ("a -(b label:SPAM)", "a -(b in:spam) -in:spam -in:trash"),
        ("a OR in:anywhere", "a OR in:anywhere"),
        ("in:trash in:spam", "in:trash in:spam"),
    ],
)
def test_a_mailbox_leaves_out_spam_and_trash_unless_the_query_asks_for_them(
    query: str, answered: str
) -> None:
    whole: Query = restricted(parse(query))
    assert show(whole) == answered
    assert parse(answered) == whole
    assert restricted(whole) == whole
