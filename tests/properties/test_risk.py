"""The risk card: whatever a letter holds, there is a bounded, printable card that repeats no secret."""

import json
from dataclasses import fields
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from postroom.core.address import Address
from postroom.core.letter import Enclosure, Letter
from postroom.core.records import (
    ITEM_KINDS,
    MAX_CARD_LINE,
    Card,
    CardLine,
    Exposure,
    LetterFacts,
    Level,
)
from postroom.core.text import clean, one_line
from postroom.review.links import all_text, links
from postroom.review.places import find_places
from postroom.review.risk import MAX_LINES, MAX_PLACES, assess
from postroom.review.tables import MAX_ABOUT
from postroom.review.tokens import MAX_TOKENS, letter_tokens, masked, secrets, tokens

SPICE = (
    "https:// http:// www. mailto: javascript: data:text/html, //evil.org \\\\host @ . / : ? # [ ]( ] [1]: ![ ( ) < >",
    '<a href= <img src= style="background:url( \' " = & &#106; &#0; &#99999999999; &colon; xn-- xn--\u00e9 p\u0430ypal.com',
    "paypal.com evil.org 4111111111111111 DE89370400440532013000 password: hunter2 code 482913 AKIAIOSFODNN7EXAMPLE",
    "ghp_ sk- eyJ -----BEGIN \u200b \u200d \u202e \U000e0041 \ufe0f 0x7f.1 [::1] %41 %ff hxxp [.] , ; | \u0130 \u00df \\41 \\ffff",
)
words = st.sampled_from([word for row in SPICE for word in row.split(" ")])
free = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
texts = st.lists(st.one_of(words, free, st.sampled_from([" ", "\n", "\t"])), max_size=30).map(
    "".join
)


def settled(text: str) -> str:
    for _ in range(9):
        text, before = one_line(text), text
        if text == before:
            return text
    return ""


names = texts.map(settled)
specs = st.from_regex(r"[a-zA-Z0-9.+_-]{1,20}", fullmatch=True)
domains = st.one_of(
    st.from_regex(r"[a-z0-9-]{1,12}(\.[a-z0-9-]{1,8}){1,3}", fullmatch=True),
    st.sampled_from(
        ["paypa1.com", "xn--pypal-4ve.com", "xn--.com", "xn--99999999.com", "a.b", "x"]
    ),
    free,
)
addresses = st.builds(Address, st.one_of(specs, free), domains, names)
people = st.lists(addresses, max_size=5).map(tuple)
file_names = (
    st.one_of(names, st.from_regex(r"[a-z.]{1,12}\.(pdf|exe|env|txt)", fullmatch=True))
    .map(lambda name: settled(name.replace("/", "").replace("\\", ""))[:200].strip())
    .filter(lambda name: name.strip(". ") and name == clean(name).text)
)
files = st.builds(
    Enclosure,
    file_names,
    st.sampled_from(["text/plain", "application/pdf", "image/png", "text/html"]),
    st.one_of(
        st.binary(max_size=50), texts.map(str.encode), texts.map(lambda t: t.encode("utf-16"))
    ),
)
letters = st.builds(
    Letter,
    id=st.just("abcdefghij"),
    account=st.just("default"),
    sender=addresses,
    to=st.lists(addresses, min_size=1, max_size=4).map(tuple),
    cc=people,
    bcc=people,
    reply_to=people,
    subject=names.map(lambda text: settled(text[:300])),
    text=texts,
    html=texts,
    attachments=st.lists(files, max_size=3).map(tuple),
)


exposures = st.builds(
    Exposure,
    sender=names,
    subject=st.one_of(names, st.just("\u202e “Hi”")),
    date=st.integers(0, 2**33),
    sent=st.booleans(),
    parts=st.frozensets(st.sampled_from(["from", "to", "reply_to", "body", "file", ""])),
    mail=st.just("default m1"),
)


@st.composite
def situations(draw: DrawFn) -> tuple[Letter, LetterFacts]:
    one = draw(letters)
    seen = draw(
        st.sampled_from(
            [{}, dict.fromkeys(letter_tokens(one), (draw(exposures),) * draw(st.integers(1, 3)))]
        )
    )
    own = draw(st.sampled_from([(), (one.sender,)]))
    thread = draw(st.sampled_from([None, frozenset(), frozenset({one.to[0].key})]))
    known = {f"@{domain}" for domain in (*draw(st.lists(domains, max_size=4)), "paypal.com")}
    return one, LetterFacts(
        own=own,
        written_to=frozenset(address.key for address in one.cc),
        contacts=frozenset(known).union(
            draw(st.lists(addresses.map(lambda one: one.key), max_size=3))
        ),
        wrote=draw(st.sampled_from([{}, {one.to[0].key: 1.5e9}])),
        thread=thread,
        answered=thread or frozenset(),
        seen=seen,
        repeats=draw(st.sampled_from([(), ("aaaaaaaaaa",)])),
        automatic=draw(st.booleans()),
    )


@given(situations(), st.lists(st.sampled_from(["person", "agent", "mail", "else"]), max_size=3))
def test_every_letter_has_a_bounded_and_printable_card(
    situation: tuple[Letter, LetterFacts], origins: list[str]
) -> None:
    card = assess(*situation, origins)
    assert card == assess(*situation, origins)
    assert len(card.lines) <= MAX_LINES
    assert [one.level for one in card.lines] == sorted(
        (one.level for one in card.lines), reverse=True
    )
    for one in card.lines:
        assert one.text == one_line(one.text)
        assert 0 < len(one.text) <= MAX_CARD_LINE
        assert one.text.endswith((".", "…"))
        assert one.kind.replace("_", "").islower()
    letter, _ = situation
    for item in card.items:
        assert item.kind in ITEM_KINDS
        assert item.what
        assert len(item.what) <= MAX_CARD_LINE
        assert len(item.places) <= MAX_PLACES
        assert all(0 <= start < end <= len(letter.text) for start, end in item.places)
        assert item.mail == ("default m1" if item.where else "")
    named = {item.what.casefold() for item in card.items}
    named |= {file.name.casefold() for file in letter.attachments}
    for one in card.lines:
        assert len(one.about) <= MAX_ABOUT
        if one.kind not in ("attachment", "secrets"):  # a file's name may be covered
            assert {what.casefold() for what in one.about} <= named
    assert Card.from_json(json.loads(json.dumps(card.to_json()))) == card
    assert card.level == max((one.level for one in card.lines), default=0)


@given(situations())
def test_no_card_repeats_a_secret(situation: tuple[Letter, LetterFacts]) -> None:
    card = assess(*situation)
    for text in (*(one.text for one in card.lines), *(one.what for one in card.items)):
        assert not secrets(text) - {"A long random-looking string"}, text


YOU = Address("you", "example.org")
TOKEN = "ghp_" + "aB3dE6gH9" * 4


@given(situations(), texts, texts, st.sampled_from(["subject", "text", "name", "file", "link"]))
def test_a_planted_secret_is_found_and_not_repeated(
    situation: tuple[Letter, LetterFacts], before: str, after: str, place: str
) -> None:
    one, facts = situation
    planted = f"{before} {TOKEN} {after}"
    changes: dict[str, dict[str, Any]] = {
        "subject": {"subject": f"about {TOKEN}"},
        "text": {"text": planted},
        "name": {"to": (Address("ann", "example.com", f"Ann {TOKEN}"),)},
        "file": {"attachments": (Enclosure(f"{TOKEN}.txt", "text/plain", b"x"),)},
        "link": {"text": f"{before} https://{TOKEN}.evil.org/{TOKEN}"},
    }
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    card = assess(Letter(**{**values, **changes[place]}), facts)
    assert any(one.kind == "secrets" and "GitHub" in one.text for one in card.lines)
    assert TOKEN[:16].lower() not in json.dumps(card.to_json()).lower()


@given(texts, texts)
@example("&#" + "9" * 5_000 + ";", "<a href='&#" + "0" * 5_000 + "106;'>")
@example(f"password {'x ' * 25}4111111111111111", "")
def test_tokens_are_bounded_strings_of_what_is_there(text: str, html: str) -> None:
    found = tokens(text, html)
    assert len(found) <= MAX_TOKENS
    assert all(found)
    # The links and codes that a mail gives are found again in a letter that repeats it.
    one = Letter(id="abcdefghij", account="a", sender=YOU, to=(YOU,), text=text)
    assert {token for token in tokens(text) if ":" in token} <= letter_tokens(one)


@given(texts, texts)
def test_links_are_found_whatever_stands_around_them(before: str, after: str) -> None:
    text = f"{before} https://evil.org/a {after}"
    assert any(link.host == "evil.org" for link in links(text))
    page = f"{before}> https://evil.org/a <{after}"
    assert any(link.host == "evil.org" for link in links("", page, all_text(page)))


@given(texts, texts)
def test_places_lie_within_the_text_and_hold_what_they_name(before: str, after: str) -> None:
    text = f"{before} https://evil.org/a ann\u200b@evil.org €4,500. {after}"
    found = list(find_places(text))
    assert all(0 <= one.start < one.end <= len(text) for one in found)
    shown = {(one.kind, text[one.start : one.end]) for one in found}
    assert ("link", "https://evil.org/a") in shown
    assert ("address", "ann\u200b@evil.org") in shown
    assert ("amount", "€4,500") in shown


@given(texts)
def test_what_is_masked_stays_masked(text: str) -> None:
    once = masked(text)
    assert masked(masked(once)) == masked(once)


@given(st.text())
def test_a_line_is_settled(text: str) -> None:
    one = CardLine(Level.PLAIN, "x", text)
    assert one.text == one_line(one.text)
    assert len(one.text) <= MAX_CARD_LINE
