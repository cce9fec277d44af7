"""What a person's own command is given about a letter that waits."""

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.web.browser import until

PROPOSE_AND_DIE = """
import os, sys
from pathlib import Path
from postroom.desk.notify import Notifier
from tests.desks import Office

entry = Office(Path("desk")).propose()
Notifier(desktop=False, command=["sh", "-c", "cat > told.new && mv told.new told.json"])(entry)
os._exit(0)
"""


def test_a_command_gets_the_whole_message_though_the_server_ends_at_once(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    path = [str(root), str(root / "src")]
    subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {path}{PROPOSE_AND_DIE}"], cwd=tmp_path, check=True)  # fmt: skip
    told = tmp_path / "told.json"
    until(told.exists)
    message = json.loads(told.read_text())
    assert message["to"] == ["ann@example.com"]
    assert message["agent"] == "claude"
