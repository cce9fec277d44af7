"""`postroom mcp`, for clients that cannot send a token: each request is given the person's own.

The conformance suite has no option for headers. All else is the real server. Run as a script, with
the arguments of the command.
"""

import os
import sys
from pathlib import Path
from typing import Any

from starlette.types import Scope

from postroom.cli.serve import mcp_command
from postroom.tools import serve


class Introduced(serve.BearerAuth):
    """A door with somebody before it, who hands the token to everyone that comes."""

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            token = Path(os.environ["POSTROOM_STATE"], "token").read_bytes().strip()
            header = (b"authorization", b"Bearer " + token)
            scope = {**scope, "headers": [*scope["headers"], header]}
        await super().__call__(scope, receive, send)


if __name__ == "__main__":
    serve.BearerAuth = Introduced  # type: ignore[misc]  # replaced in this process on purpose
    mcp_command(sys.argv[1:])
