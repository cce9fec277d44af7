"""The HTML part of a letter, as its frame gets it: a picture of itself, which loads, runs and leads nowhere."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.web import part
from tests.unit.web.browser import parsed

TAGS = ("script iframe link meta base form object svg math embed style img a div p table td b i body html head title input button video audio source"
        " track textarea select option noscript template frame frameset applet portal marquee plaintext xmp image foreignObject animate use"
        " details summary area map nextid bgsound keygen isindex x-y").split()  # fmt: skip
ATTRIBUTES = ("href src srcset style onclick onerror onload action formaction background poster data xlink:href http-equiv content srcdoc name id class"
              " target ping rel title type width usemap dynsrc lowsrc manifest profile longdesc cite codebase archive").split()  # fmt: skip
VALUES = (
    "javascript:alert(1)", "https://evil.example/x.png", "//evil.example", "data:text/html,<script>", "data:image/svg+xml,<svg onload=x>",
    "data:image/png;base64,iVBORw0KGgo=", "background:url(https://evil.example)", "background:u\\72l(x)", "@import 'x'", "color:red",
    "expression(alert(1))", "image-set('x' 1x)", "cid:1", "ftp://x", "x' onerror='y", 'a"b', "--x:url(y)", "blob:x", "URL(x)", "behavior:url(x)",
)  # fmt: skip


@st.composite
def element(draw):
    tag = draw(st.sampled_from(TAGS))
    given_ = draw(st.lists(st.tuples(st.sampled_from(ATTRIBUTES), st.sampled_from(VALUES)), max_size=3))  # fmt: skip
    quote = draw(st.sampled_from(['"', "'", ""]))
    shown = "".join(f" {name}={quote}{value}{quote}" for name, value in given_)
    return draw(
        st.sampled_from(["<{t}{a}>", "<{t}{a}/>", "</{t}>", "<{t}{a}", "<{T}{a}>", "< {t}>", "<{t}\n{a}>", "<!--<{t}{a}>", "<{t}/{a}>"])
    ).format(t=tag, T=tag.upper(), a=shown)  # fmt: skip


SOUP = st.lists(
    st.one_of(element(), st.sampled_from(["<!--", "-->", "--!>", "<![CDATA[", "]]>", "<!doctype x>", "<?php", "&lt;script&gt;", "&#60;", "\0", "<", "</", "{body}", "%s", "{{", "</body></html>", "</style>", "\"'>"]), st.text(max_size=10)),
    max_size=20,
).map("".join)  # fmt: skip


def loads_nothing(style):
    """Assert that a style asks for nothing, however it is spelled."""
    read = re.sub(
        r"\\([0-9a-fA-F]{1,6})\s?", lambda found: chr(min(int(found[1], 16), 0x10FFFF)), style
    )
    assert not re.search(r"url\s*\(|@import|image-set\s*\(", read, re.IGNORECASE), style


def harmless(page):
    """Assert that nothing of a page, read by a browser, does anything; return its body."""
    root = parsed(page)
    heads = root.all("head")
    ours = set(map(id, heads[0]))
    for node in root:
        if id(node) in ours or node.tag in {"", "html", "body"}:
            continue
        assert node.tag in {*part._TAGS, "style"}, node.tag
        if node.tag == "style":
            assert not node.attrs
            assert "<" not in node.text
            loads_nothing(node.text)
        for name, value in node.attrs.items():
            assert not name.startswith("on"), name
            assert name != "href"
            if name == "src":
                assert re.fullmatch(r"data:image/(png|gif|jpeg|webp);base64,[A-Za-z0-9+/=\s]*", value, re.IGNORECASE)  # fmt: skip
                assert node.tag == "img"
            if name == "style":
                loads_nothing(value)
            assert name in {*part._ATTRIBUTES, "src", "alt"}
    assert len(root.all("body")) == len(root.all("html")) == len(heads) == 1
    return root.one("body")


@given(SOUP)
def test_no_soup_of_tags_yields_anything_that_acts(soup):
    harmless(str(part.page(soup)))


@given(st.text())
def test_no_text_yields_anything_that_acts(text):
    harmless(str(part.page(text)))


class Strict(HTMLParser):
    """Reads as an old browser might: what stands in a comment or a title counts too."""

    def __init__(self):
        super().__init__()
        self.said = []

    def handle_comment(self, data):
        self.said.append(f"comment {data}")

    def handle_decl(self, decl):
        self.said.append(f"declaration {decl}")

    def handle_pi(self, data):
        self.said.append(f"instruction {data}")


@given(SOUP)
def test_no_comment_or_instruction_comes_through(soup):
    reader = Strict()
    reader.feed(str(part.page(soup)))
    reader.close()
    assert reader.said == ["declaration doctype html"]


def test_what_a_person_should_see_stays():
    body = harmless(str(part.page('<h1 style="color:red" align="center">Hi</h1><p>a &amp; <b>b</b><br>c</p><table border=1><tr><td colspan=2>x</td></tr></table>')))  # fmt: skip
    assert body.one("h1").attrs == {"style": "color:red", "align": "center"}
    assert body.one("p").text == "a & bc"
    assert body.one("td").attrs == {"colspan": "2"}


def test_a_link_leads_nowhere_and_says_where_it_would():
    body = harmless(str(part.page('<a href="https://evil.example/?a=1&b" title="Bank">https://bank.example</a>')))  # fmt: skip
    (link,) = body.all("a")
    assert link.attrs == {"title": "https://evil.example/?a=1&b"}


def test_pictures_from_elsewhere_are_words_and_those_within_are_shown():
    inner = "data:image/png;base64,iVBORw0KGgo="
    body = harmless(str(part.page(f'<img src="https://evil.example/t.gif" alt="Logo"><img src="{inner}"><img src="data:image/svg+xml;base64,AAAA">')))  # fmt: skip
    first, second, third = body.all("img")
    assert first.attrs == {"alt": "Logo"}
    assert second.attrs["src"] == inner
    assert "src" not in third.attrs


@pytest.mark.parametrize("inside", ["<script>alert(1)</script>", "<title>t</title>", "<iframe srcdoc='<p>x'>x</iframe>"])  # fmt: skip
def test_what_nobody_sees_goes_whole_and_what_follows_stays(inside):
    body = harmless(str(part.page(f"<p>before</p>{inside}<p>after</p>")))
    assert body.words == "beforeafter"


@pytest.mark.parametrize("around", ["svg", "math", "object", "embed", "head", "select", "noscript", "video", "x-y", "template", "form", "details"])  # fmt: skip
def test_what_others_might_see_is_shown_whatever_it_stands_in(around):
    for inside in (f"<{around}><p>seen", f"<{around}>seen</{around}>", f"</{around}>seen"):
        body = harmless(str(part.page(f"<p>before</p>{inside}<p>after</p>")))
        assert body.words == "beforeseenafter"


def test_a_style_is_kept_since_it_says_what_a_reader_sees():
    body = harmless(str(part.page("<style>.x{display:block!important;background:u\\72l(http://evil.example/)}@import 'y';</style><p class=x id=y style='display:none'>Pay</p>")))  # fmt: skip
    assert "display:block!important" in body.one("style").text
    assert "evil.example" in body.one("style").text
    assert body.one("p").attrs == {"class": "x", "id": "y", "style": "display:none"}


def test_a_part_that_is_never_closed_ends_with_its_page():
    body = harmless(str(part.page("<div><table><tr><td><b>x</div></body></html><i>y")))
    assert body.words == "xy"


@pytest.mark.parametrize(
    "big",
    [
        "<p>word</p>" * 300_000,
        "<div>" * 100_000 + "x" + "</div>" * 100_000,
        "<b>" * 25_000 + "</i>" * 25_000,
        "<svg>" * 30_000 + "</svg>" * 30_000,
        "<svg>" * 20_000 + "</math>" * 20_000,
        "<svg><math>" + "<template>" * 30_000 + "</svg>" * 30_000,
        "<" * 300_000,
        "<!--" * 30_000,
        "<!" * 60_000,
        "</" * 100_000,
        "<?" * 100_000,
        "<a " * 9_000,
        "<a href='" + "x" * 3_000_000,
        "<a " + "b " * 60_000 + ">",
        "<p style='" + "a" * 900_000 + "'>",
        "&#" * 400_000,
        "&am" * 300_000,
        "<a b='>" * 30_000,
        '<a b="' + "'" * 500_000,
        "<script>" + "</scrip" * 60_000,
        "<textarea>" * 60_000,
        "<img src='data:image/png;base64," + "A" * 900_000 + "!'>",
    ],
    ids=lambda big: f"{big[:12]}…{big[-8:]}",
)
def test_a_huge_part_is_drawn_in_bounded_time(big):
    assert len(part.page(big)) < 20_000_000


@pytest.mark.parametrize(
    "odd",
    ["<![x", "<![x[y]]>", "<![ ]>", "<![if !mso]>a<![endif]>", "<![", "<![CDATA[x]]>", "<!x", "<!", "<!>", "<!ELEMENT a>", "<!doctype [<!x>]>", "<?", "<?x?>", "<!--", "<!-->", "<!--->", "<!--x--!>", "&#xD800;", "&#0;", "&#99999999999;", "<a\0b>", "<a b=\0>"],
)  # fmt: skip
def test_a_part_that_no_parser_expects_is_drawn_all_the_same(odd):
    body = harmless(str(part.page(f"<p>before</p>{odd}<p>after</p>")))
    assert body.words.startswith("before")


def test_more_than_is_shown_is_said_to_be_missing(office, browser):
    entry = office.propose(office.letter(html="<p>" + "x" * part.MAX_HTML))
    assert (
        "Only the first 1,000,000 of 1,000,003 characters"
        in browser.get(f"/letter/{entry.id}").words
    )


def test_the_frame_gets_a_page_that_may_do_nothing(office, browser):
    entry = office.propose(office.letter(text="Hi\n", html='<p onclick="x()">Hi<script>alert(1)</script><img src="http://evil.example/x"></p>'))  # fmt: skip
    answer = browser.get(f"/letter/{entry.id}/html")
    assert harmless(answer.text).words == "Hi"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert policy.endswith("sandbox")
    assert "img-src data:;" in policy
    frame = browser.get(f"/letter/{entry.id}").page.one("iframe")
    assert frame.attrs["src"] == f"/letter/{entry.id}/html"
    assert frame.attrs["sandbox"] == ""
    source = browser.get(f"/letter/{entry.id}/source")
    assert source.headers["content-type"] == "text/plain; charset=utf-8"
    assert source.text == entry.letter.html


WORDS = "Pay Mallory"
LURKING = [
    "<style>.z{display:none}a[href].z{display:block}</style><a class=z href=#>{}</a>",
    "<style>.z{display:none}form .z{display:block}</style><form><p class=z>{}</p></form>",
    "<style>.z{display:none}@media (width<5000px){.z{display:block}}</style><p class=z>{}</p>",
    "<style>.z{display:none}@media (max-width:500px){.z{display:block}}</style><p class=z>{}</p>",
    "<svg><script><p>{}</p></script></svg>",
    "<svg><style><p>{}</p></style></svg>",
    "<math><mi><![CDATA[{}]]></mi></math>",
    "<svg><text><![CDATA[{}]]></text></svg>",
    "<plaintext><style>{}",
    "<input type=submit value='{}'>",
    '<input placeholder="{}">',
    "<!--[if mso]>{}<![endif]-->",
    "<p style='display:none'>{}</p>",
    "<template><p>{}</p></template>",
    "<p hidden>{}</p>",
    "<option label='{}'>",
    "<style>p::after{content:'{}'}</style>",
]


@pytest.mark.parametrize("hidden", ["Pay Mallory.", "Do pay.", "Mallory, Mallory."])
def test_words_that_the_text_has_already_are_counted(office, hidden):
    text = "Do not pay Mallory."
    page = f"<p>{text}</p><p style='display:none'>{hidden}</p>"
    entry = office.propose(office.letter(text=f"{text}\n", html=page))
    assert "html_hides" in {line.kind for line in entry.card.lines}


@pytest.mark.parametrize("trick", LURKING)
def test_words_that_a_reader_may_be_shown_are_shown_to_the_person_and_red(office, browser, trick):
    page = f"<p>Hello Ann, see you on Friday.</p>{trick.replace('{}', WORDS)}"
    entry = office.propose(office.letter(text="Hello Ann, see you on Friday.\n", html=page))
    shown = browser.get(f"/letter/{entry.id}")
    assert {"html_hides", "html_varies"} & {line.kind for line in entry.card.lines}
    assert max(line.level for line in entry.card.lines) == 2
    assert "input" in {
        node.tag for node in shown.page.one(class_="approve")
    }  # which is to be ticked


def test_a_page_that_says_what_the_text_says_hides_nothing(office, browser):
    page = "<html><head><title>Hello</title><style>p { color: red; display: block }</style></head><body><p>Hello <b>Ann</b>, five &amp; more: <a href='https://example.com/x'>the list</a></p></body></html>"
    entry = office.propose(
        office.letter(text="Hello Ann, five & more: the list (https://example.com/x)\n", html=page)
    )
    assert not [line for line in entry.card.lines if line.kind.startswith("html_")]
    assert "holds words" not in browser.get(f"/letter/{entry.id}").words


MEDIA = "<style>.y{display:none}@media (min-width:900px){.y{display:block}}</style>"


@pytest.mark.parametrize("page", [
    MEDIA + "{}<!--<style>--><p class=y>Wire it to Eve</p><!--</style>-->",
    MEDIA + "{}<b title='<title>'></b><p class=y>Wire it to Eve</p><b title='</title'></b>",
    "<style>p::after{content:'; Wire it to Eve'}</style>{}",
    "<style>p::after{conten\\74:'Wire it to Eve'}</style>{}",
    "<style>p::after{content/**/:attr(open)}</style><p open='Wire it to Eve'></p>{}",
    "<style>ul{list-style:inside 'Wire it to Eve '}</style>{}",
    "{}<input size=40 value='<b Wire it to Eve'>",
    "<svg><p></p><style>/*<b x='*/ .y{display:none} /*'>*/</style>{}",
    "{}<svg width=9 height=9>not</svg>",
    "<canvas>{}</canvas>", "<details>{}</details>", "<frameset></frameset>{}", "<noscript>{}</noscript>",
    "<style>@supports (color:red){p{display:none}}</style>{}",
    "<style>div{p{display:none}}</style><div>{}</div>",
    "<style>p>b{color:red}</style>{}",
    "<p style='content-visibility:hidden'>{}</p>",
    "<p style='dis\\70lay:none'>{}</p>",
])  # fmt: skip
def test_a_part_that_others_may_see_differently_is_red(office, page):
    text = "Do not pay Mallory 5000. Pay Alice."
    entry = office.propose(
        office.letter(text=f"{text}\n", html=page.replace("{}", f"<p>{text}</p>"))
    )
    assert "html_varies" in {line.kind for line in entry.card.lines if line.level == 2}


@pytest.mark.parametrize("page", [
    "<p style='color: #333; justify-content: center'>{}</p>",
    "<style>p, .lead { color: #333; margin: 0 }\n#x{font-size:14px}</style><p class=lead>{}</p>",
    "<table border=0><tr><td>{}</td></tr></table><!-- signature -->",
])  # fmt: skip
def test_a_plain_part_is_not_called_different(office, page):
    text = "Do not pay Mallory 5000. Pay Alice."
    entry = office.propose(office.letter(text=f"{text}\n", html=page.replace("{}", text)))
    assert not [line for line in entry.card.lines if line.kind == "html_varies"]
