"""The baseline of the server's bench: the smallest server of the same SDK, with one tool that does nothing."""

from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

NOOP = types.Tool(name="noop", description="Does nothing.", input_schema={"type": "object"})


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    """Return the one tool."""
    return types.ListToolsResult(tools=[NOOP])


async def call_tool(_ctx: Any, _params: Any) -> types.CallToolResult:
    """Do nothing."""
    return types.CallToolResult(content=[types.TextContent(type="text", text="done")])


async def main() -> None:
    """Serve on standard input and output."""
    server: Server[Any] = Server("minimal", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
