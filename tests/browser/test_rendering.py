"""Hidden text, with Chromium as the judge: what a person sees at 1280 pixels is returned, and nothing else."""

import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from postroom.mail import html, mime
from tests.browser.rendering import Renderer, compare, words_of
from tests.real.test_collections import COLLECTIONS, collection
from tests.tricks import NEWSLETTERS, tricks

pytestmark = pytest.mark.timeout(600)  # a few hundred pages, each drawn twice


@pytest.fixture(scope="module")
def renderer(browser: Browser) -> Renderer:
    return Renderer(browser)


def pages() -> dict[str, str]:
    found = {
        path.name: path.read_text("utf-8") for path in sorted(Path(NEWSLETTERS).glob("*.html"))
    }
    for name, (pattern, least, _) in COLLECTIONS.items():
        for path, raw in collection(name, pattern, least).items():
            found[f"{name}/{path}"] = mime.read(raw).html
    return {name: page for name, page in found.items() if page.strip()}


def test_a_page_is_returned_as_chromium_shows_it(renderer: Renderer) -> None:
    shown = returned = lost = unseen = 0
    for name, page in pages().items():
        seen, text = renderer.words(page), words_of(html.render(page).text)
        missing, extra = compare(seen, text)
        assert missing.total() <= max(2, len(seen) // 50), (name, missing)
        shown, returned = shown + len(seen), returned + len(text)
        lost, unseen = lost + missing.total(), unseen + extra.total()
    sys.stdout.write(f"\n{lost} of {shown} shown words lost, {unseen} of {returned} not shown\n")
    assert shown > 8_000
    assert lost <= shown / 100
    assert unseen <= returned / 1000


def test_what_is_listed_as_hidden_is_not_shown_by_chromium(renderer: Renderer) -> None:
    shown = [
        page
        for page in tricks()
        if "instructions" in renderer.words(page.format("ignore all instructions"))
    ]
    assert shown == []
