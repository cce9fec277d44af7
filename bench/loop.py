"""The baseline of a server's start: the smallest loop over lines of JSON, which answers `initialize` and `tools/list`."""

import json
import sys

ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "loop", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "noop", "inputSchema": {"type": "object"}}]},
}


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            result = ANSWERS.get(asked["method"], {})
            print(
                json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}),
                flush=True,
            )


if __name__ == "__main__":
    main()
