"""`postroom` and `python -m postroom`: hooks and MCP clients take a short way; else to click."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run one command and exit with the code of its outcome."""
    gc.set_threshold(50_000)  # most commands end before there is anything to collect
    if sys.argv[1:2] == ["agentmail"]:
        from postroom.cli.agentmail import main as agentmail

        sys.exit(agentmail(sys.argv[2:]))
    if sys.argv[1:2] == ["mcp"]:
        from postroom.cli.server import main as serve

        serve(sys.argv[2:])  # returns where click must look at the arguments
    from postroom.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
