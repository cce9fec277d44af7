"""Takes the screenshots of the page in docs/ in a real browser, with the letters of the demo. Run by `make screens`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
FLAGS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
WIDE = ViewportSize(width=1180, height=760)
PHONE = ViewportSize(width=390, height=780)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the page of a demo; yield its sign-in address."""
    command = [sys.executable, "-m", "postroom"]
    subprocess.run([*command, "demo", "--keep", str(folder)], check=True, stdout=subprocess.DEVNULL)
    settings = folder / "postroom.toml"
    settings.write_text(settings.read_text().replace("undo_seconds = 5", "undo_seconds = 30"))
    environment = os.environ | {"POSTROOM_CONFIG": str(settings)}
    arguments = ["desk", "--no-open", "--port", "0", "--as", "Robin", "--json"]
    with subprocess.Popen([*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True) as process:  # fmt: skip
        assert process.stdout
        text = ""
        while "}" not in text:
            text += process.stdout.readline()
        try:
            yield json.loads(text)["sign_in"]
        finally:
            process.terminate()


def take(page: Page, name: str) -> None:
    """Save a screenshot of the page."""
    page.wait_for_timeout(300)  # for parts that load later, and fonts
    page.screenshot(path=DOCS / f"{name}.png")


def take_all(browser: Browser, address: str) -> None:
    """Read, edit and approve letters, with a screenshot of each step."""
    light = browser.new_context(viewport=WIDE, color_scheme="light")
    page = light.new_page()
    page.goto(address)
    page.locator("#queue a.stop").click()
    page.locator("#letter").wait_for()
    take(page, "desk-letter")
    page.get_by_role("link", name="dora@").click()
    page.get_by_role("heading", name="RE: Q3 figures").wait_for()
    take(page, "tutorial-desk")
    page.go_back()
    state = light.storage_state()
    phone = browser.new_context(viewport=PHONE, storage_state=state, device_scale_factor=2)
    small = phone.new_page()
    small.goto(page.url)
    take(small, "desk-phone")
    dark = browser.new_context(viewport=WIDE, color_scheme="dark", storage_state=state)
    page = dark.new_page()
    page.goto(f"{address.partition('/in/')[0]}/")
    page.get_by_role("link", name="dora@").click()
    page.locator("#edit").click()
    text = page.locator("#text")
    text.fill(text.input_value().replace("a relief", "good news").replace("Kind regards", "Best"))
    page.get_by_role("button", name="Review the changes").click()
    page.get_by_role("button", name="Approve and send").wait_for()
    take(page, "desk-edit")
    page.locator("#approve").click()
    page.locator(".postmark").wait_for()
    take(page, "desk-postmark")


def main() -> None:
    """Take all screenshots."""
    with TemporaryDirectory(prefix="postroom-screens-") as folder, served(Path(folder) / "demo") as address, sync_playwright() as play:  # fmt: skip
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS.split())
        take_all(browser, address)
        browser.close()


if __name__ == "__main__":
    main()
