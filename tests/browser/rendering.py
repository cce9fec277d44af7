"""Which words of a page Chromium shows at 1280 pixels: those with a visible box that are not covered and differ from their ground."""

import base64
import re
from collections import Counter
from collections.abc import Iterable

from playwright.sync_api import Browser

WORD = re.compile(r"\w+")

# Every word of a text node with its boxes, unless they are empty, outside of the page, or not what is hit there.
_WORDS = r"""() => {
  for (const animation of document.getAnimations()) {
    try { animation.finish() } catch { animation.pause() }
    // As styles, so that no picture is taken before the compositor has them.
    try { animation.commitStyles(); animation.cancel() } catch { /* of a pseudo-element */ }
  }
  const page = document.scrollingElement || document.documentElement;
  const wide = 1280, high = Math.max(page.scrollHeight, 800);
  const found = [];
  const walker = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const paints = (element) => {
    const style = getComputedStyle(element);
    const ground = style.backgroundColor.match(/[\d.]+/g) || [];
    const clear = ground.length > 3 && +ground[3] < 0.5;
    return ['IMG', 'CANVAS', 'VIDEO', 'IFRAME', 'OBJECT'].includes(element.tagName) || !clear || style.backgroundImage !== 'none';
  };
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!parent || ['STYLE', 'SCRIPT', 'TITLE'].includes(parent.tagName)) continue;
    for (const match of node.data.matchAll(/[\p{L}\p{N}\p{M}_]+/gu)) {
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      for (const box of range.getClientRects()) {
        if (box.width < 1 || box.height < 3) continue;
        window.scrollTo(0, Math.max(0, box.top + window.scrollY - 400));
        range.setStart(node, match.index);
        const boxes = [...range.getClientRects()].filter((b) => b.width >= 1 && b.height >= 3);
        const seen = boxes.find((b) => [0.5, 0.2, 0.8].some((part) => {
          const x = b.left + b.width * part, y = b.top + b.height / 2;
          if (x < 0 || x > wide) return false;
          const hit = document.elementsFromPoint(x, y);
          const own = hit.indexOf(parent);
          return own >= 0 && !hit.slice(0, own).some(paints);
        }));
        if (seen && getComputedStyle(parent).visibility === 'visible') {
          found.push([match[0], seen.left + window.scrollX, seen.top + window.scrollY, seen.width, seen.height]);
        }
        break;
      }
    }
  }
  window.scrollTo(0, 0);
  return found;
}"""
_STYLE = "(css) => { const style = document.createElement('style'); style.textContent = css; document.documentElement.append(style) }"
_ALL = "* { pointer-events: auto !important; transition: none !important; user-select: auto !important }"
_NO_TEXT = "*, *::before, *::after { color: transparent !important; -webkit-text-fill-color: transparent !important; text-shadow: none !important; -webkit-text-stroke: 0 !important; text-decoration: none !important; caret-color: transparent !important }"
# How far the pixels of each box differ between two pictures, at most, summed over the three colours.
_DIFFER = """async ([one, two, boxes]) => {
  const pixels = async (data) => {
    const image = new Image();
    image.src = 'data:image/png;base64,' + data;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext('2d', { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const [a, b] = [await pixels(one), await pixels(two)];
  return boxes.map(([_, left, top, width, height]) => {
    let most = 0;
    for (let y = Math.max(0, Math.floor(top)); y < Math.min(a.height, top + height); y++)
      for (let x = Math.max(0, Math.floor(left)); x < Math.min(a.width, left + width); x++) {
        const at = 4 * (y * a.width + x);
        most = Math.max(most, Math.abs(a.data[at] - b.data[at]) + Math.abs(a.data[at + 1] - b.data[at + 1]) + Math.abs(a.data[at + 2] - b.data[at + 2]));
      }
    return most;
  });
}"""


class Renderer:
    """A browser without network or scripts of the page."""

    def __init__(self, browser: Browser) -> None:
        context = browser.new_context(
            viewport={"width": 1280, "height": 800}, java_script_enabled=False
        )
        context.set_offline(True)
        context.route("**", lambda route: route.abort())
        self.page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.canvas = browser.new_context().new_page()

    def words(self, html: str) -> list[str]:
        """Return the words that a person sees, in the order of the source."""
        self.page.set_content(html, wait_until="load")
        self.page.evaluate(_STYLE, _ALL)
        found = self.page.evaluate(_WORDS)
        shot = self._picture()
        self.page.evaluate(_STYLE, _NO_TEXT)
        bare = self._picture()
        contrast = self.canvas.evaluate(_DIFFER, [shot, bare, found])
        return [word[0] for word, most in zip(found, contrast, strict=True) if most > 30]

    def _picture(self) -> str:
        return base64.b64encode(self.page.screenshot(full_page=True, animations="allow")).decode()


_MARKS = re.compile(
    r"<(?:https?:|mailto:)[^>]*>|\[image: [^\]]*\]|^[> ]*(?:- |\d+\. )|^---$", re.MULTILINE
)


def words_of(text: str) -> list[str]:
    """Return the words of a page as text, without addresses of links, pictures and marks of lists."""
    return WORD.findall(_MARKS.sub(" ", text))


def compare(shown: Iterable[str], returned: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """Return how many shown words are missing, and how many returned ones are not shown."""
    seen, found = Counter(shown), Counter(returned)
    return seen - found, found - seen
