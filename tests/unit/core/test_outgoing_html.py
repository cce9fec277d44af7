"""A letter's HTML part is built from a strict subset, and the plain part from it: both have the same words."""

import html
import re
from contextlib import suppress

import nh3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from postroom.core.errors import Invalid
from postroom.core.outgoing_html import (
    MAX_DEPTH,
    MAX_HTML,
    MAX_TAGS,
    Reduced,
    reduce_html,
)
from postroom.core.text import words
from postroom.desk.proposals import normalize_text
from tests.cases import for_each
from tests.conftest import size
from tests.growth import assert_linear

TAGS = "p br div strong b em i u s a ul ol li blockquote pre code h1 h2 h3 h4 hr table thead tbody tr th td".split()


def refusal(page: str) -> str:
    """Return why a page is refused."""
    with pytest.raises(Invalid) as refused:
        reduce_html(page)
    return refused.value.message.removeprefix("The HTML is refused: ")


PLAIN = {
    "<p>Good <b>day</b>, <i>Ann</i>.</p>": "Good day, Ann.",
    "<p>One</p>\n\n<p>two<br>three</p>": "One\n\ntwo\nthree",
    "<p>I do <s>not</s> agree.</p>": "I do ~~not~~ agree.",
    "<div>One</div><div>two</div>": "One\ntwo",
    "<div>One</div><div><br></div><div>two</div>": "One\n\ntwo",
    "One<br>two<br/>three<BR />four": "One\ntwo\nthree\nfour",
    "<p>The\n  <a href='https://example.com/x'>list\n</a></p>": "The list (https://example.com/x)",
    "<a href=https://example.com/x>the list </a>of <a href=https://example.com/y>item</a>s": "the list (https://example.com/x) of item (https://example.com/y)s",
    '<a href="https://example.com/?a=1&amp;b=2">x</a>': "x (https://example.com/?a=1&b=2)",
    '<a href="https://example.com/?a=1&copy=2&ampersand=3">x</a>': "x (https://example.com/?a=1&copy=2&ampersand=3)",
    "<a href=http://example.com/>x</a>": "x (http://example.com/)",
    "<a href=https://a.example/1 href=https://b.example/2>x</a>": "x (https://a.example/1)",
    '<a href="https://example.com/x">https://example.com/x</a>': "https://example.com/x",
    '<a href="mailto:ann@example.com">ann@example.com</a>': "ann@example.com",
    '<a href="https://bücher.example/ä">x</a>': "x (https://bücher.example/ä)",
    "<a name=top>x</a>": "x",
    "<ul><li>one</li><li>two<ol><li>three</li></ol></li></ul>": "- one\n- two\n  - three",
    "<ul>\n <li><p>a</p><p>b</p></li>\n</ul>": "- a\n  b",
    "<blockquote><p>a</p><p>b</p></blockquote>c": "> a\n>\n> b\n\nc",
    "<blockquote>a<blockquote>b</blockquote></blockquote>": "> a\n>\n> > b",
    "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>": "a | b\n1 | 2",
    "<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>": "a\n1",
    "<h1>Title</h1>text<hr>more": "Title\n\ntext\n\n---\n\nmore",
    "<pre>\n a\n  b\n</pre>": " a\n  b",
    "<p> a <b> b </b> c </p>": "a b c",
    "<p>5 &lt; 6 &amp;&amp; &quot;x&quot; &amp;lt; &euro; &#8364;</p>": '5 < 6 && "x" &lt; € €',
    "<!DOCTYPE html><html><head><meta charset=utf-8></head><body><p>x</p></body></html>": "x",
    "a<center>b</center>c": "a b c",
    "x<sup>2</sup> <span style='display:none'>not</span> <font size=1>small</font>": "x2 not small",
    "<P CLASS=x ONCLICK='y()' STYLE='display:none' HIDDEN>a</P >": "a",
    "<p title='<b>'>x</p>": "x",
    "a\r\nb\rc\fd\te": "a b c d e",
    "<p></p>": "",
    "": "",
}


def test_the_plain_part_shows_every_word_and_where_each_link_leads() -> None:
    for page, plain in PLAIN.items():
        reduced = reduce_html(page)
        assert reduced.text == (f"{plain}\n" if plain else ""), page
        assert bool(reduced.html) == bool(plain)
        assert reduce_html(reduced.html)[:2] == reduced[:2], page


def test_nothing_of_the_markup_is_passed_on() -> None:
    page = "<DIV Class=x onclick=y><A Href='https://a.example/\"&amp;' rel=z>a</A><table><tr><td colspan=2>b</td></tr></table></DIV>"
    wanted = "<table><tbody><tr><td>b</td></tr></tbody></table></div>"
    assert refusal(page).startswith("The link")  # a quote
    page = page.replace('"&amp;', "'&amp;".replace("'", "%27"))
    assert reduce_html(page).html == f'<div><a href="https://a.example/%27&amp;">a</a>{wanted}'


def test_bidirectional_and_invisible_characters_are_removed_and_what_shapes_a_letter_stays() -> (
    None
):
    for given_, left in {
        "a\u202eb\u200bc\u2066d\u00ade\ufefff\U000e0041": "abcdef",
        "a&#8238;b&rlm;c&zwj;d&shy;e&#xE0041;": "abcde",
        "a\0b&#0;c": "ab\ufffdc",
        "क्\u200dष می\u200cخواهم ❤\ufe0f 1\ufe0f\u20e3 👩\u200d💻": "क्\u200dष می\u200cخواهم ❤\ufe0f 1\ufe0f\u20e3 👩\u200d💻",
    }.items():
        assert reduce_html(f"<p>{given_}</p>").text == f"{left}\n"


REFUSED = {
    **{f"<{tag}>x</{tag}>": f"<{tag}> is not allowed" for tag in
       "script style svg math title img input button textarea select option form label iframe object embed template noscript video audio canvas"
       " details summary dialog marquee link base rp rt ruby bdo bdi tfoot caption colgroup col h5 h6 xmp plaintext noembed frameset dl dd dt"
       " section article header footer main nav address figure q cite abbr mark ins del big tt kbd wbr slot custom-tag o:p image".split()},
    "<!-- x -->": "A comment is not allowed",
    "<!--[if mso]>x<![endif]-->": "A comment is not allowed",
    "<![CDATA[x]]>": "A < begins no tag", "<?xml?>": "A < begins no tag", "a < b": "A < begins no tag", "</>": "A < begins no tag",
    "<p": "<p> is not written as a whole tag", "<p class='x>y</p>": "<p> is not written as a whole tag",
    "<p x=1y='2'>a</p>": "<p> is not written", "<p/class=x>a</p>": "<p> is not written", "</p x>": "<p> is not written",
    "<b\u00a0>x</b>": "<b", "<b>x</b\u00a0>": "</b", "<b\0>x</b>": "<b", "<scr\u200bipt>": "<scr",
    "<p>x": "<p> is not closed", "<p>x<p>y": "<p> stands in <p>, which holds no blocks", "<ul><li>a<li>b</ul>": "<li> stands in <li>",
    "<table><tr><td>x": "<td> is not closed", "<table><tr><td>x</td>": "<tr> is not closed", "<table><tr><td>x</td></tr>": "<table> is not closed",
    "<b><i>x</b></i>": "</b> closes nothing: the open tag is <i>", "</p>": "</p> closes nothing: no tag is open", "</br>": "</br> closes nothing",
    "<div/>": "<div/> closes nothing",
    "<p><div>x</div></p>": "<div> stands in <p>, which holds no blocks", "<h1><b><ul></ul></b></h1>": "<ul> stands in <h1>",
    "<pre><p>x</p></pre>": "<p> stands in <pre>", "<p><hr></p>": "<hr> stands in <p>", "<p><table></table></p>": "<table> stands in <p>",
    "<a href=https://a.example><b><a href=https://b.example>x</a></b></a>": "<a> stands in another <a>",
    "<a href=https://a.example><a>x</a></a>": "<a> stands in another <a>",
    "<table>x<tr><td>y</td></tr></table>": "Text stands in <table> itself: 'x'", "<table><tr>x<td>y</td></tr></table>": "Text stands in <tr> itself: 'x'",
    "<table>&nbsp;<tr><td>y</td></tr></table>": "Text stands in <table>", "<ul>x<li>y</li></ul>": "Text stands in <ul>",
    "<table><td>x</td></table>": "<td> stands in <table>", "<table><p>x</p></table>": "<p> stands in <table>", "<table><tr><b>x</b></tr></table>": "<b> stands in <tr>",
    "<table><tr><tr></tr></tr></table>": "<tr> stands in <tr>", "<td>x</td>": "<td> stands outside of a table or list", "<div><li>x</li></div>": "<li> stands in <div>",
    "<table><tr><td>x</td></tr><thead><tr><td>y</td></tr></thead></table>": "<thead> ",
    "<table><tbody><tr><td>x</td></tr></tbody><thead><tr><td>y</td></tr></thead></table>": "<thead> does not come first",
    "<table><thead></thead><thead></thead></table>": "<thead> does not come first",
    "&#" + "9" * 5_000 + ";": "A character is written as a number", "<a href='&#" + "0" * 5_000 + "65;'>x</a>": "A character is written as a number",
    "<div>" * (MAX_DEPTH + 1): "It has more than 5,000 tags, or is deeper than 30", "<span>" * (MAX_DEPTH + 1): "It has more than 5,000 tags",
    "<br>" * (MAX_TAGS + 1): "It has more than 5,000 tags", "<span></span>" * (MAX_TAGS + 1): "It has more than 5,000 tags",
    "x" * (MAX_HTML + 1): "The HTML part has 200,001 characters", "<" * 9: "A < begins no tag",
    "&" * MAX_HTML: "The HTML part grows to more than 200,000 characters",
}  # fmt: skip


def test_what_the_subset_has_no_place_for_is_refused_by_name() -> None:
    for page, why in REFUSED.items():
        assert refusal(page).startswith(why), page[:80]


def test_a_link_that_is_no_absolute_address_of_a_page_or_a_person_is_refused() -> None:
    for href in (
        "javascript:alert(1)", "java&#10;script:alert(1)", "&#1;javascript:alert(1)", "JaVaScRiPt:x", "data:text/html,x", "vbscript:x",
        "//evil.example/x", "/x", "x", "#x", "", "?x", "ftp://a.example/", "file:///etc/passwd", "cid:1", "tel:1", "http:/a.example", "https:a.example",
        "https://", "https:///x", "https://ann@evil.example/", "https://bank.example:x@evil.example/", "https://a.example\\@evil.example/",
        "https://a.example:123456/", "https://a.exam ple/", "https://a.example/a b", "https://a.example/&#10;x", "https://a.example/\u202egpj",
        "https://a.example/\u200b", "https://a.example&#8260;evil.example/", "https://a.example\uff0fevil.example/", "https://a%2eexample/",
        "https://a.example/&lt;x&gt;", "mailto:", "mailto:a b@example.com", "https://a.example/" + "x" * 2_000, "h&#9;ttps://a.example/",
    ):  # fmt: skip
        assert refusal(f'<a href="{href}">x</a>').startswith(("The link", "A link")), href
    for href in ("https://a.example", "HTTPS://A.example:8443/x?y#z", "http://[2001:db8::1]/x", "https://a.example/(x)", " https://a.example/ ", "mailto:a@b.example?subject=x"):  # fmt: skip
        assert reduce_html(f'<a href="{href}">x</a>').html


# What anybody may write

NAMES = [*TAGS, "span", "font", "center", "body", "A", "script"]
ATTRIBUTES = ["", " style='display:none'", " href=https://a.example/x", ' href="mailto:a@b.example"', " hidden"]  # fmt: skip
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["a", " ", "\n", "&amp;", "&lt;", "&", "&#8238;", "&zwj;", "\u200d", "\ufe0f", "क", "❤", "1\ufe0f\u20e3", "\xa0", ">", '"', "\u2028", "\f"]))  # fmt: skip


@st.composite
def pages(draw: DrawFn, depth: int = 4) -> str:
    """Draw HTML that is mostly well nested."""
    pieces = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 3)) if depth else 0
        name, attribute = draw(st.sampled_from(NAMES)), draw(st.sampled_from(ATTRIBUTES))
        if kind == 0:
            pieces.append(draw(TEXTS))
        elif kind == 1:
            rows = [f"<tr><td>{draw(pages(depth - 1))}</td><th>{draw(TEXTS)}</th></tr>" for _ in range(draw(st.integers(0, 2)))]  # fmt: skip
            pieces.append(f"<table>{''.join(rows)}</table>")
        elif kind == 2:
            pieces.append(f"<ul><li>{draw(pages(depth - 1))}</li></ul>")
        elif name in ("br", "hr"):
            pieces.append(f"<{name}>")
        else:
            pieces.append(f"<{name}{attribute}>{draw(pages(depth - 1))}</{name}>")
    return "".join(pieces)


def plain_words(reduced: Reduced) -> list[str]:
    """Return the words of the plain part, without its marks and where its links lead."""
    left = reduced.text.replace("~~", "")
    for href in re.findall('<a href="([^"]*)">', reduced.html):
        left = re.sub(rf" ?\({re.escape(html.unescape(href))}\)", "", left, count=1)
    return words(left)


def unmarked(page: str) -> list[str]:
    """Return a page's tags, and its text with entities as characters."""
    return [html.unescape(piece) for piece in re.split("(<[^>]*>)", page) if piece]


@given(pages())
def test_what_was_built_here_comes_back_unchanged_and_another_sanitizer_agrees(page: str) -> None:
    try:
        reduced = reduce_html(page)
    except Invalid as why:
        assert why.message.startswith("The HTML is refused: ")
        return
    assert reduce_html(reduced.html)[:2] == reduced[:2]
    assert reduced.text == normalize_text(reduced.text)
    assert plain_words(reduced) == words(reduced.words)
    left = nh3.clean(
        reduced.html, tags=set(TAGS), attributes={"a": {"href"}}, link_rel=None,
        url_schemes={"http", "https", "mailto"}, clean_content_tags=set(),
    )  # fmt: skip
    assert unmarked(left) == unmarked(reduced.html)


@given(st.text(alphabet=st.sampled_from("<>/='\"&;#!-abpt \t\n\f\r\0\u202e\u200d"), max_size=60))
def test_any_text_is_reduced_or_refused(page: str) -> None:
    try:
        reduced = reduce_html(page)
    except Invalid:
        return
    assert reduce_html(reduced.html)[:2] == reduced[:2]


def reduce_or_refuse(page: str) -> None:
    with suppress(Invalid):
        reduce_html(page)


QUOTED = "<blockquote>" * 28 + "<pre>", "</pre>" + "</blockquote>" * 28


@for_each(
    ("begin", "piece", "end"),
    [
        ("", "<p ", ""), ("", "<p a", ""), ("<p ", "a ", ">"), ("<p ", "a=", ""), ("<p x='", "y", ""), ("", "<", ""), ("", "&a", ""),
        ("", "&#x", ""), ("<p", " ", ">"), (QUOTED[0], "\n", QUOTED[1]), (QUOTED[0], "x\n", QUOTED[1]), ("", "<!doctype", ""),
        ("", "\u202e", ""), ("", "क\u200d", ""), ("", "<a href='https://a.example/'>", ""), ("", "<table><tr><td>", ""),
    ],
)  # fmt: skip
def test_hostile_pages_take_linear_time(begin: str, piece: str, end: str) -> None:
    largest = size(MAX_HTML // 4)  # so that one of four times the size is not refused for its size
    assert_linear(reduce_or_refuse, lambda n: begin + piece * (n // len(piece)) + end, largest)


@for_each("piece", ["<br>", "<b></b>", "<a href='https://a.example/'>x</a>", "<p>x"])
def test_as_many_tags_as_a_page_may_have_take_linear_time(piece: str) -> None:
    assert_linear(reduce_or_refuse, lambda n: piece * n, MAX_TAGS // 4)
