"""A client that calls the tools of a server over MCP, one call after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import mcp_types as types
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


class ToolAnswer(NamedTuple):
    """What a tool answered."""

    text: str
    values: dict[str, Any]
    refused: bool


class ToolClient:
    """A client of one server."""

    def __init__(self, client: Client, portal: BlockingPortal) -> None:
        self._client = client
        self._portal = portal

    def call(self, tool: str, /, **arguments: object) -> ToolAnswer:
        """Call a tool and return its answer."""
        result = self._portal.call(self._client.call_tool, tool, arguments)
        text = "\n".join(
            block.text for block in result.content if isinstance(block, types.TextContent)
        )
        return ToolAnswer(text, result.structured_content or {}, result.is_error)


@contextmanager
def connect(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[ToolClient]:
    """Start a server by this command, and yield a client of it."""
    program, *arguments = command
    server = StdioServerParameters(command=program, args=arguments, env=dict(environment))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(
            Client(stdio_client(server, errlog=sys.stderr))
        ) as client,
    ):
        yield ToolClient(client, portal)
