"""Draws the pictures of the terminal in docs/: the desk as the demo leaves it, and the tutorial. Run by `make picture`."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from postroom.config.settings import SETTINGS

COLUMNS, ROW, CHAR = 80, 18, 8.43
DOCS = Path(__file__).parents[1] / "docs"
SAMPLE = DOCS.parent / "src/postroom/sample/mail.mbox"
BIN = Path(sys.executable).parent
STYLED = re.compile(r"\x1b\[[0-9;]*m")
HOME = "~"  # is shown for the folder in which the pictures are made
COLOURS = {"31": "red", "32": "green", "33": "yellow", "36": "cyan", "1": "bold", "2": "dim"}
STYLE = """
svg { background: #fbfaf7 } text { fill: #23211d; font: 14px ui-monospace, Menlo, Consolas, monospace; white-space: pre }
.red { fill: #b3261e } .green { fill: #2b6b36 } .yellow { fill: #8a5a00 } .cyan { fill: #1b6c7d } .dim { fill: #6f6a60 } .bold { font-weight: 700 }
@media (prefers-color-scheme: dark) {
  svg { background: #1d1f21 } text { fill: #e6e3da }
  .red { fill: #ff8f86 } .green { fill: #93d39b } .yellow { fill: #e8c06a } .cyan { fill: #7ccfe0 } .dim { fill: #9a958a }
}
"""


def run(arguments: list[str], environment: dict[str, str], *, cwd: str, typed: str = "") -> str:
    """Return what a command writes to a terminal of 80 columns; `typed` answers its question."""
    process, terminal = pty.fork()
    if not process:
        os.chdir(cwd)
        os.execve(sys.executable, [sys.executable, "-m", "postroom", *arguments], environment)
    output = b""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:
            break
        if not piece:
            break
        output += piece
        if typed and b"[y/N]" in output:
            os.write(terminal, typed.encode())
            typed = ""
    os.waitpid(process, 0)
    os.close(terminal)
    return output.decode().replace("\r\n", "\n")


def svg_rows(text: str) -> list[str]:
    """Return the lines of a terminal as lines of SVG."""
    rows: list[str] = []
    classes: set[str] = set()
    for at, line in enumerate(text.rstrip("\n").split("\n")):
        spans = []
        # What a count-down overwrites is not seen at its end.
        for code, words in re.findall(r"(?:\x1b\[([0-9;]*)m)|([^\x1b]+)", line.rpartition("\r")[2]):
            if words:
                spans.append(f'<tspan class="{" ".join(sorted(classes))}">{escape(words)}</tspan>')
            for part in code.split(";"):
                if part in {"", "0"}:
                    classes = set() if not words else classes
                elif part in COLOURS:
                    classes.add(COLOURS[part])
        rows.append(f'<text x="14" y="{24 + at * ROW}">{"".join(spans)}</text>')
    return rows


def draw(name: str, label: str, *commands: tuple[str, str]) -> None:
    """Draw commands, each with its output, as a terminal."""
    rows = svg_rows("\n".join(f"\x1b[32m$ postroom {typed}\x1b[0m\n{output}" for typed, output in commands))  # fmt: skip
    width, height = int(COLUMNS * CHAR) + 28, len(rows) * ROW + 24
    (DOCS / name).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
        f' aria-label="{label}"><style>{STYLE}</style>\n' + "\n".join(rows) + "\n</svg>\n"
    )


def draw_desk(folder: str, environment: dict[str, str]) -> None:
    """Draw the letters that the demo leaves, and the red one."""
    demo = [sys.executable, "-m", "postroom", "demo", "--keep", f"{folder}/demo"]
    subprocess.run(demo, env=environment, check=True, capture_output=True)
    environment = environment | {"POSTROOM_CONFIG": f"{folder}/demo/postroom.toml"}
    pending = run(["pending"], environment, cwd=folder)
    bad = re.search(r"! ([a-z2-7]{10})", STYLED.sub("", pending))
    assert bad
    letter = run(["show", bad[1]], environment, cwd=folder).partition("\nProposed")[0]
    draw(
        "desk.svg", "Three letters that wait; the one that a mail asked for is red",
        ("pending", pending), (f"show {bad[1]}", letter),
    )  # fmt: skip


def draw_tutorial(folder: str, environment: dict[str, str]) -> None:
    """Draw what `install` shows, and how a letter is approved, in a home as the tutorial makes it."""
    from postroom.tools.client import connect

    project = f"{folder}/postroom-tutorial"
    Path(project).mkdir()
    for words in (["init", f"{folder}/Postroom"], ["import", str(SAMPLE)]):
        run(words, environment, cwd=project)
    installed = run(["install", "claude-code"], environment, cwd=project, typed="y\n")
    installed = installed.replace(str(BIN), f"{HOME}/postroom/.venv/bin").replace(folder, HOME)
    draw(
        "tutorial-install.svg", "What install shows before it writes, and after",
        ("install claude-code", installed.partition("What remains")[0]),
    )  # fmt: skip
    run(["live"], environment, cwd=project, typed="y\n")
    server = [sys.executable, "-m", "postroom", "mcp", "--agent", "claude-code"]
    with connect(server, environment) as agent:
        mail = agent("search_email", {"query": "from:dora", "limit": 1})[1]["mails"][0]["id"]
        body = "Hello Dora,\n\nthank you, that is a relief.\n\nKind regards,\nRobin"
        letter = agent("reply_email", {"id": mail, "body": body})[1]["letter"][:4]
    pending = run(["pending"], environment, cwd=project)
    approved = run(["approve", letter], environment, cwd=project, typed="y\n").replace(folder, HOME)
    draw(
        "tutorial-approve.svg", "The letter to Dora, and the question before it is sent",
        ("pending", pending), (f"approve {letter}", approved),
    )  # fmt: skip


def main() -> None:
    """Draw all pictures."""
    with TemporaryDirectory() as folder:
        settings = {row.variable for row in SETTINGS}
        environment = {name: value for name, value in os.environ.items() if name not in settings}
        environment |= {"HOME": folder, "COLUMNS": str(COLUMNS), "LANG": "C.UTF-8"}
        draw_desk(folder, environment)
        draw_tutorial(folder, environment)


if __name__ == "__main__":
    main()
