# mypy: ignore-errors
"""Make the calls of plan.py with FastMCP's client; it has no model.

Arguments: the server's entry as JSON, and the mode of the client ("auto" or "legacy").
Prints as JSON the names of the tools, the results, and the version of the protocol.
"""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from plan import next_call


async def main() -> None:
    results = []
    transport = StdioTransport(**json.loads(sys.argv[1]), keep_alive=False)
    async with Client(transport, mode=sys.argv[2], timeout=60, init_timeout=60) as client:
        tools = [tool.name for tool in await client.list_tools()]
        while call := next_call(results):
            answer = await client.call_tool(*call)
            results.append(json.dumps(answer.structured_content))
        version = client.session.protocol_version
    json.dump({"tools": tools, "results": results, "protocol": version}, sys.stdout)


asyncio.run(main())
