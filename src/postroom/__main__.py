"""`postroom` and `python -m postroom`: to agent mail the short way, which hooks take; else to click."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run one command and exit with the code of its outcome."""
    if sys.argv[1:2] == ["agentmail"]:
        from postroom.cli.agentmail import main as agentmail

        sys.exit(agentmail(sys.argv[2:]))
    from postroom.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
