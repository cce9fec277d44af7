"""A server that misbehaves as it is told to: run as a script, over stdio, with nothing but Python.

Its arguments: a folder, how to misbehave, and in how many of its starts. It notes its starts and the
calls that reach it in that folder, so that a test can count them.
"""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

TOOLS = [[("look", True), ("stir", False)], [("peek", True)]]  # page by page: whether it only reads
SECRET = "the-mail-says-hunter2"  # in all that it says wrong: none of it may be repeated
GREETED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}  # fmt: skip
FRESH = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **FRESH}  # fmt: skip


def put(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def answer(id: int, result: Any) -> None:
    put(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}))


def wrong(id: int, code: int) -> None:
    put(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": SECRET}}))


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "resultType": "complete", **more}


class Server:
    def __init__(self, folder: str, mode: str, times: str) -> None:
        self.folder = Path(folder)
        starts = self.folder / "starts"
        earlier = starts.read_text().split() if starts.exists() else []
        for pid in earlier:
            with suppress(ProcessLookupError):
                os.kill(int(pid), 0)
                self.note("overlaps", pid)
        self.note("starts", str(os.getpid()))
        self.reads = mode != "changes its mind" or len(earlier) < int(times)
        self.mode = mode if len(earlier) < int(times) else "well"
        self.held: list[tuple[int, dict[str, Any]]] = []

    def note(self, name: str, what: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(f"{what}\n")

    def serve(self) -> None:
        if self.mode == "exits":
            sys.exit(3)
        for raw in sys.stdin:
            message = json.loads(raw)
            if "id" in message:
                self.heard(message["id"], message["method"], message.get("params") or {})
        while self.mode == "stubborn":
            time.sleep(60)
        if self.mode == "hangs":
            time.sleep(0.2)  # so that one who does not wait for its end meets it

    def heard(self, id: int, method: str, params: dict[str, Any]) -> None:
        if self.mode == "silent":
            pass
        elif self.mode == "babbles":
            put(SECRET)
        elif method == "server/discover" and self.mode.startswith("modern"):
            answer(id, MODERN)
        elif self.mode == "refuses to begin":
            wrong(id, -32603)
        elif self.mode == "speaks another version" and method == "initialize":
            answer(id, GREETED | {"protocolVersion": "1999-01-01"})
        elif method == "initialize":
            answer(id, GREETED)
        elif method == "tools/list":
            answer(id, self.page(params.get("cursor")))
        elif method == "tools/call":
            self.note("calls", params["name"])
            self.called(id, params["name"], params.get("arguments", {}))
        else:
            wrong(id, -32601)

    def page(self, cursor: str | None) -> dict[str, Any]:
        at = int(cursor or 0)
        tools = [
            {
                "name": name,
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": reads and self.reads},
            }
            for name, reads in TOOLS[at]
        ]
        more = {"nextCursor": str(at + 1)} if at + 1 < len(TOOLS) else {}
        return {"tools": tools, **FRESH, **more}

    def called(self, id: int, name: str, arguments: dict[str, Any]) -> None:
        good = said("done", structuredContent={"tool": name, **arguments})
        match self.mode:
            case "hangs":
                pass
            case "dies" | "changes its mind":
                os._exit(1)
            case "dies midway":
                put('{"jsonrpc": "2.0", "id": ', end="")
                os._exit(1)
            case "dies after":
                answer(id, good)
                os._exit(1)
            case "garbage":
                put(SECRET)
                put('{"jsonrpc": "1.0", "id": 1}')
                put("[" * 100_000)
            case "garbage between":
                put(SECRET)
                sys.stdout.buffer.write(b"\xff\xfe\x00\n")
                answer(id, good)
                put("{")
            case "wrong id":
                answer(id + 1000, good)
            case "no result":
                answer(id, {"unfit": SECRET})
            case "a list" | "modern list":
                answer(id, said("x", structuredContent=[SECRET]))
            case "huge":
                answer(id, said("x" * 10_000_001))
            case "fails":
                wrong(id, -32603)
            case "does not know":
                wrong(id, -32602)
            case "pairs":  # it answers the first when the second has come
                self.held.append((id, good))
                if len(self.held) == 2:
                    for waiting in reversed(self.held):
                        answer(*waiting)
            case "as told":
                answer(id, json.loads((self.folder / "answer").read_text()))
            case _:
                answer(id, good)


if __name__ == "__main__":
    Server(sys.argv[1], sys.argv[2], sys.argv[3]).serve()
