"""Prints the coverage of each room: a folder directly below src/postroom, or a module there.

coverage json --quiet -o - | python -m tests.rooms
"""

import json
import sys
from collections import Counter, defaultdict

COUNTED = (
    "num_statements", "missing_lines", "covered_lines", "num_branches", "missing_branches",
    "covered_branches",
)  # fmt: skip


def main() -> None:
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for path, file in json.load(sys.stdin)["files"].items():
        room = path.partition("src/postroom/")[2].partition("/")[0]
        for name in (room, "all"):
            rooms[name].update({key: file["summary"][key] for key in COUNTED})
    sys.stdout.write(f"{'room':16} lines missing  branches missing  covered\n")
    for name in sorted(rooms, key=lambda name: (name == "all", name)):
        sums = rooms[name]
        total = sums["num_statements"] + sums["num_branches"]
        covered = sums["covered_lines"] + sums["covered_branches"]
        sys.stdout.write(
            f"{name:16} {sums['num_statements']:5} {sums['missing_lines']:7}"
            f"  {sums['num_branches']:8} {sums['missing_branches']:7}  {100 * covered / max(1, total):6.2f}%\n"
        )


if __name__ == "__main__":
    main()
