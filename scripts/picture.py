"""Draws docs/desk.svg: the desk in the terminal as the demo leaves it. Run by `make picture`."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

COLUMNS, ROW, CHAR = 80, 18, 8.43
COLOURS = {"31": "red", "32": "green", "33": "yellow", "36": "cyan", "1": "bold", "2": "dim"}
STYLE = """
svg { background: #fbfaf7 } text { fill: #23211d; font: 14px ui-monospace, Menlo, Consolas, monospace; white-space: pre }
.red { fill: #b3261e } .green { fill: #2b6b36 } .yellow { fill: #8a5a00 } .cyan { fill: #1b6c7d } .dim { fill: #6f6a60 } .bold { font-weight: 700 }
@media (prefers-color-scheme: dark) {
  svg { background: #1d1f21 } text { fill: #e6e3da }
  .red { fill: #ff8f86 } .green { fill: #93d39b } .yellow { fill: #e8c06a } .cyan { fill: #7ccfe0 } .dim { fill: #9a958a }
}
"""


def shown(arguments: list[str], environment: dict[str, str]) -> str:
    """Return what a command writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    os.environ["COLUMNS"] = str(COLUMNS)
    subprocess.run(["stty", "cols", str(COLUMNS)], stdin=theirs, check=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "postroom", *arguments],
        env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:
            break
        if not piece:
            break
        said += piece
    process.wait()
    return said.decode().replace("\r\n", "\n")


def drawn(text: str) -> list[str]:
    """Return the lines of a terminal as lines of SVG."""
    rows: list[str] = []
    classes: set[str] = set()
    for at, line in enumerate(text.rstrip("\n").split("\n")):
        spans = []
        for code, words in re.findall(r"(?:\x1b\[([0-9;]*)m)|([^\x1b]+)", line):
            if words:
                spans.append(f'<tspan class="{" ".join(sorted(classes))}">{escape(words)}</tspan>')
            for part in code.split(";"):
                if part in {"", "0"}:
                    classes = set() if not words else classes
                elif part in COLOURS:
                    classes.add(COLOURS[part])
        rows.append(f'<text x="14" y="{24 + at * ROW}">{"".join(spans)}</text>')
    return rows


def main() -> None:
    """Run the demo, look at the desk, draw it."""
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "HOME": folder, "COLUMNS": str(COLUMNS)}
        demo = [sys.executable, "-m", "postroom", "demo", "--keep", f"{folder}/demo"]
        subprocess.run(demo, env=environment, check=True, capture_output=True)
        environment["POSTROOM_CONFIG"] = f"{folder}/demo/postroom.toml"
        pending = shown(["pending"], environment)
        bad = re.search(r"! ([a-z2-7]{10})", re.sub(r"\x1b\[[0-9;]*m", "", pending))
        assert bad
        letter = shown(["show", bad[1]], environment).partition("\nProposed")[0]
    prompt = "\x1b[32m$ postroom {}\x1b[0m\n"
    text = f"{prompt.format('pending')}{pending}\n{prompt.format('show ' + bad[1])}{letter}"
    rows = drawn(text)
    width, height = int(COLUMNS * CHAR) + 28, len(rows) * ROW + 24
    Path(__file__).parents[1].joinpath("docs", "desk.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
        f' aria-label="Three letters that wait; the one that a mail asked for is red">'
        f"<style>{STYLE}</style>\n" + "\n".join(rows) + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
