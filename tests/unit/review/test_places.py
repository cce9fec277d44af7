"""Places: where a letter's text holds what its card speaks of, and the sentence of a mail that showed it."""

from postroom.core.letter import MAX_TEXT
from postroom.core.outgoing_html import reduce_html
from postroom.core.records import CardItem
from postroom.review.links import MAX_ADDRESS, edit
from postroom.review.places import MAX_FOUND, MAX_SENTENCE, find_places, sentence_about
from postroom.review.tables import pattern
from postroom.review.tokens import MAX_READ
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear
from tests.unit.review.test_findings import PIECES, SECRETS


def places(text: str, *kinds: str) -> list[tuple[str, str]]:
    """Return the key of each place and what stands there, in the order of the text."""
    every = sorted(find_places(text), key=lambda one: (one.start, one.end))
    return [(one.key, text[one.start : one.end]) for one in every if one.kind in kinds]


LINKS = {
    "(see https://Example.com/A).": ("https://example.com/A", "https://Example.com/A"),
    "So https://example.com/a_(b), yes": ("https://example.com/a_(b)", "https://example.com/a_(b)"),
    "www.example.com!": ("http://www.example.com", "www.example.com"),
    "to mailto:ann@example.com?subject=x.": ("mailto:ann@example.com", "mailto:ann@example.com?subject=x"),
    "at https[:]//example[.]com/a, ok": ("https://example.com/a", "https[:]//example[.]com/a"),
    "[{.}] example(.)com/a.": ("http://example.com/a", "example(.)com/a"),
    "x {dot} y hxxp://example.com/a)": ("http://example.com/a", "hxxp://example.com/a"),
    "[the plan](https://example.com/a)": ("https://example.com/a", "https://example.com/a"),
    "[the plan](//example.com/a 'x')": ("https://example.com/a", "//example.com/a"),
    "the plan (https://example.com/a)": ("https://example.com/a", "https://example.com/a"),
    "https://exa\u200bmple.com/\u2060a now": ("https://example.com/a", "https://exa\u200bmple.com/\u2060a"),
}  # fmt: skip


@for_each(("text", "place"), LINKS.items())
def test_a_link_stands_where_it_is_written(text: str, place: tuple[str, str]) -> None:
    assert set(places(text, "link")) == {place}


def test_a_picture_and_a_reference_have_places() -> None:
    assert places("![x](https://a.example/p.png)", "picture") == [
        ("https://a.example/p.png", "https://a.example/p.png")
    ]
    text = "See [the plan][1].\n\n[1]: https://a.example/b\n"
    assert places(text, "link") == [
        ("https://a.example/b", "[the plan][1]"),
        ("https://a.example/b", "https://a.example/b"),
        ("https://a.example/b", "https://a.example/b"),
    ]


def test_the_text_that_is_made_from_a_page_shows_where_its_links_lead() -> None:
    _, text, _ = reduce_html('<p>See <a href="https://evil.example/a">the plan</a> now.</p>')
    assert set(places(text, "link")) == {("https://evil.example/a", "https://evil.example/a")}


@for_each(
    ("text", "place"),
    {
        "To Ann.Smith+x@Example.COM, please.": ("ann.smith+x@example.com", "Ann.Smith+x@Example.COM"),
        "*ann@example.com*, _bob": ("ann@example.com", "ann@example.com"),
        "_ann@example.com_": ("ann@example.com", "ann@example.com"),
        "a\u200bnn@exam\u00adple.com": ("ann@example.com", "a\u200bnn@exam\u00adple.com"),
        "ann [at] example [dot] com.": ("ann@example.com", "ann [at] example [dot] com"),
        "ann@müller.de": ("ann@xn--mller-kva.de", "ann@müller.de"),
    }.items(),
)  # fmt: skip
def test_an_address_stands_where_it_is_written(text: str, place: tuple[str, str]) -> None:
    assert places(text, "address") == [place]


def test_a_name_in_a_link_and_a_handle_are_no_addresses() -> None:
    assert not places("https://u@evil.example/?to=ann@example.com and @ann.example", "address")


@for_each(
    ("text", "place"),
    {
        "pay 1234 5678 9012 now": ("number:123456789012", "1234 5678 9012"),
        "pay 1234\xa05678\u20119012.": ("number:123456789012", "1234\xa05678\u20119012"),
        "to DE89 3704 0044 0532 0130 00 by May": ("number:de89370400440532013000", "DE89 3704 0044 0532 0130 00"),
        "İ 12\u200b345678": ("number:12345678", "12\u200b345678"),
    }.items(),
)  # fmt: skip
def test_a_number_stands_where_it_is_written(text: str, place: tuple[str, str]) -> None:
    assert places(text, "number") == [place]


def test_a_code_stands_where_it_is_written() -> None:
    assert places("It is G-482 913!", "code") == [("code:482913", "482 913")]


@for_each(("kind", "text"), [(kind, text) for kind, texts in SECRETS.items() for text in texts])
def test_a_secret_stands_where_it_is_found(kind: str, text: str) -> None:
    for given in (f"Hello,\n{text}\n", f"\u2060Hello,\n{text[:1]}\u200b{text[1:]}\n"):
        found = [shown for key, shown in places(given, "secret") if key == kind]
        assert found, given
        assert all(shown.replace("\u200b", "") in f"{text}\n" for shown in found)


def test_the_words_after_an_account_number_are_no_part_of_it() -> None:
    for number in ("DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"):
        assert places(f"Pay to {number} by Friday the 12th", "secret") == [("An IBAN", number)]


@for_each(
    "amount",
    ["€4,500", "4.500,00 EUR", "$120", "120 USD", "£5", "CHF 1'200.50", "1 500 kr", "US$ 12.50"]
    + ["€ 1.234.567,89", "1\u202f500\xa0€", "12€", "kr 1 500", "$3k", "€4.5 million", "120,- €"]
    + ["¥10000", "500 euros", "20 dollars", "Rs. 500", "1 Mio. €"],
)
def test_an_amount_of_money_is_found(amount: str) -> None:
    for text in (amount, f"It costs {amount}.", f"({amount})", f"Total:\n{amount}\n", f"**{amount}**"):  # fmt: skip
        assert [shown for _, shown in places(text, "amount")] == [amount], text


@for_each(
    "text",
    ["4500", "12.11.2026", "10:30", "page 12", "version 1.2.3", "$HOME", "PHP 8.3", "$1.2.3", "30 days"]
    + ["x$5y", "100%", "https://a.example/$5", "room EUR", "120 USDC", "24/7", "5 krypton", "1,2,3"]
    + ["EURO 2024", "NEUR 5", "a kr", "12 500 pieces"],
)  # fmt: skip
def test_what_is_no_amount_is_not_taken_for_one(text: str) -> None:
    assert not places(text, "amount")


def test_places_are_looked_for_in_what_a_page_shows_and_are_bounded() -> None:
    begin = "x " * (MAX_READ // 2 - 20)
    text = f"{begin} https://a.example/b "
    text += "." * (MAX_READ - len(text) - 6) + " €4,500 https://c.example/d"
    assert [shown for _, shown in places(text, "link", "amount")] == ["https://a.example/b"]
    assert len(places("€4 " * MAX_READ, "amount")) == MAX_FOUND


def test_an_edited_text_knows_where_its_characters_stood() -> None:
    text = "a[.]b(dot)c[:]//d"
    plain = edit(text, pattern("fenced_sign"), lambda found: found[2] or ".")
    assert plain.text == "a.b.c://d"
    for letter in "abcd":
        start, end = plain.span(at := plain.text.index(letter), at + 1)
        assert text[start:end] == letter


@for_each(
    "piece", [*PIECES, "$1", "1 000", "1,000 ", "€1.", "1'", "9", "\u200b", "[[", "(:", "a\u200b"]
)
def test_places_of_a_hostile_text_are_found_in_linear_time(piece: str) -> None:
    item = CardItem("link", "https://evil.example/a", "")

    def search(text: str) -> None:
        every = list(find_places(text))
        assert len(every) <= 7 * MAX_FOUND
        sentence_about(text, item)

    assert_linear(search, lambda n: (piece * n)[:n], size(40_000))


def test_only_the_beginning_of_the_longest_text_is_read() -> None:
    text = "https://a.example/" + "b" * (MAX_TEXT - 18)
    assert all(one.end <= MAX_ADDRESS + 100 for one in find_places(text))


MAIL = (
    "Hello Bob,\n\nour bank has changed. Please pay 4.500,00 EUR to DE89-3704-0044-0532-0130-00 "
    "(account 1234 5678 9012) by Friday. Write to Eve+pay@Evil.example\nor see https://evil.example/a?b=c.\n"
    "Your code: 482 913\n"
)


@for_each(
    ("kind", "what", "sentence"),
    [
        ("recipient", "eve+pay@evil.example", "Write to Eve+pay@Evil.example"),
        ("address", "Eve+Pay@Evil.Example", "Write to Eve+pay@Evil.example"),
        ("link", "https://evil.example/a?b=c", "or see https://evil.example/a?b=c."),
        ("picture", "https://evil.example/other.png", "or see https://evil.example/a?b=c."),
        ("link", "mailto:Eve+pay@evil.example", "Write to Eve+pay@Evil.example"),
        ("number", "123456789012", MAIL[MAIL.index("Please") : MAIL.index(" Write")]),
        ("code", "482913", "Your code: 482 913"),
        ("recipient", "mallory@evil.example", ""),
        ("link", "https://other.example/", ""),
        ("number", "a number", ""),
        ("secret", "An IBAN", ""),
    ],
)
def test_the_sentence_about_an_item_is_that_in_which_it_stands(
    kind: str, what: str, sentence: str
) -> None:
    assert sentence_about(MAIL, CardItem(kind, what, "")) == sentence


def test_an_address_with_a_tag_is_found_without_it() -> None:
    item = CardItem("recipient", "o'neil+tea@evil.example", "")
    assert sentence_about("Ask neil@evil.example.", item) == "Ask neil@evil.example."


def test_a_long_sentence_is_cut_around_its_item() -> None:
    for before, after in ((1_000, 1_000), (0, 1_000), (1_000, 0), (5, 5)):
        text = f"{'x ' * before}ann@evil.example{' y' * after}"
        found = sentence_about(text, CardItem("recipient", "ann@evil.example", ""))
        assert "ann@evil.example" in found
        assert len(found) <= MAX_SENTENCE
        assert len(found) > MAX_SENTENCE - 4 or found == text
    long = f"https://evil.example/{'a' * 900}"
    found = sentence_about(f"See {long} now", CardItem("link", long, ""))
    assert found == long[:MAX_SENTENCE]
