"""A client that calls the tools of a server over MCP, one call after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mcp_types as types
from anyio.from_thread import start_blocking_portal
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

# Calls a tool with these arguments, and returns its text and its values.
CallTool = Callable[[str, Mapping[str, Any]], tuple[str, dict[str, Any]]]


@contextmanager
def connect(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[CallTool]:
    """Start a server by this command, and yield a function that calls its tools."""
    program, *rest = command
    server = StdioServerParameters(command=program, args=rest, env=dict(environment))
    connection = Client(stdio_client(server, errlog=sys.stderr))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(connection) as client:

        def call(tool: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
            result = portal.call(client.call_tool, tool, dict(arguments))
            texts = (each.text for each in result.content if isinstance(each, types.TextContent))
            return "\n".join(texts), result.structured_content or {}

        yield call
