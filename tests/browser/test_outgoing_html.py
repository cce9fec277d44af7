"""What Chromium draws of a letter's HTML part has the words of its plain part, in their order."""

import random
import re
from collections.abc import Iterable

from postroom.core.errors import Invalid
from postroom.core.outgoing_html import reduce_html
from postroom.core.text import words
from tests.browser.served import Visits
from tests.html_tricks import SECRET, tricks

# The text as it is drawn, the tags as the browser took them, and how many texts have no box.
DRAWN = """pages => pages.map(page => {
  document.body.innerHTML = page;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let unseen = 0;
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(node);
    unseen += /[^\\s]/.test(node.data) && !range.getClientRects().length;
  }
  const tags = [...document.body.querySelectorAll("*")].map(one => one.localName);
  return [document.body.innerText, tags, unseen];
})"""
BLOCKS = "div p blockquote pre h1 h2 h3 h4 ul ol table".split()
INLINE = "b strong em i u s code span sub a".split()
TEXTS = ["Hello", "Ann,", " ", "\n", "pay", "9000", "&euro;", "&amp;", "שלום", "مرحبا", "\u202eabc", "x\u200by", "&nbsp;", "5 &lt; 6", "<br>", "क्\u200dष", "👩\u200d💻"]  # fmt: skip


def page(draw: random.Random, depth: int = 5, *, blocks: bool = True) -> str:
    """Draw a page, mostly of the subset."""
    pieces: list[str] = []
    for _ in range(draw.randint(1, 4)):
        name = draw.choice([*BLOCKS, *INLINE]) if blocks and depth > 0 else draw.choice(INLINE)
        if depth <= 0 or draw.random() < 0.4:
            pieces.append(draw.choice(TEXTS))
        elif name in ("ul", "ol"):
            items = "".join(f"<li>{page(draw, depth - 1)}</li>" for _ in range(draw.randint(0, 3)))
            pieces.append(f"<{name}>{items}</{name}>")
        elif name == "table":
            rows = [
                "".join(f"<td>{page(draw, depth - 2)}</td>" for _ in range(draw.randint(1, 3)))
                for _ in range(draw.randint(1, 3))
            ]
            head = "<thead><tr><th>Head</th></tr></thead>" if draw.random() < 0.3 else ""
            pieces.append(f"<table>{head}{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
        elif name == "a":
            label = page(draw, 0)
            pieces.append(f'<a href="https://example.com/{draw.randint(1, 99)}">{label}</a>')
        else:
            inner = page(draw, depth - 1, blocks=blocks and name in ("div", "blockquote"))
            pieces.append(f"<{name} style='display:none'>{inner}</{name}>")
    return "".join(pieces)


def agree(visits: Visits, pages: Iterable[str]) -> int:
    """Check each page that is not refused against the browser; return how many there are."""
    reduced = []
    for given in pages:
        try:
            reduced.append(reduce_html(given))
        except Invalid:
            continue
    drawn = visits.window().new_page().evaluate(DRAWN, [one.html for one in reduced])
    for one, (text, tags, unseen) in zip(reduced, drawn, strict=True):
        assert words(text) == words(one.words), one.html
        assert tags == re.findall("<([a-z0-9]+)", one.html), one.html
        assert unseen == 0, one.html
    return len(reduced)


def test_a_generated_page_says_in_a_browser_what_its_plain_text_says(visits: Visits) -> None:
    draw = random.Random(22)
    assert agree(visits, [page(draw) for _ in range(600)]) > 400


def test_every_trick_is_refused_or_shows_its_words_in_both_parts(visits: Visits) -> None:
    every = tricks()
    assert len(every) > 250
    assert agree(visits, every) > 100
    for given in every:
        try:
            reduced = reduce_html(given)
        except Invalid:
            continue
        shown = words(reduced.text)
        # What was hidden is shown; what stood in an attribute is not sent at all.
        kept = words(SECRET)[0] in shown or "9000" in reduced.text
        assert kept or SECRET not in reduced.html, given
