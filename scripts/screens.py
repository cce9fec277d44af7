"""Takes the screenshots of the page in docs/ in a real browser. Run by `make screens`; `scripts/scenes.py` has the scenes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, sync_playwright

from scripts.scenes import FLAGS, SIZES, take_pictures

DOCS = Path(__file__).parents[1] / "docs"


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


def take_tutorial(browser: Browser, address: str) -> None:
    """Take the picture of the tutorial: the letter to Dora."""
    page = browser.new_context(viewport=SIZES["wide"], color_scheme="light").new_page()
    page.goto(address)
    page.locator("#queue a", has_text="dora@").first.click()
    page.get_by_role("heading", name="RE: Q3 figures").wait_for()
    page.wait_for_timeout(900)  # until verdicts count
    page.screenshot(path=DOCS / "tutorial-desk.png")


def main() -> None:
    """Take all screenshots."""
    with TemporaryDirectory(prefix="postroom-screens-") as folder, served(Path(folder) / "demo") as address, sync_playwright() as play:  # fmt: skip
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS.split())
        take_tutorial(browser, address)
        take_pictures(browser, DOCS)
        browser.close()


if __name__ == "__main__":
    main()
