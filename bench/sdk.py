"""The baseline of a server's calls: `postroom mcp SERVER --agent bench`, served on stdio by the MCP SDK."""

import sys

import anyio
from mcp.server.stdio import stdio_server

from postroom.cli.server import ConfiguredDesk, load_calls, load_listing
from postroom.tools.listing import SERVERS
from postroom.tools.serve import Service


async def main(server: str) -> None:
    """Serve this server's tools on standard input and output."""
    provider, name = ConfiguredDesk(), SERVERS[server]["postroom"]
    listing = load_listing(name, provider)
    service = Service(listing, load_calls(name, listing, provider), agent="bench")
    async with stdio_server() as (incoming, outgoing):
        options = service.server.create_initialization_options()
        await service.server.run(incoming, outgoing, options)
    service.close()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
