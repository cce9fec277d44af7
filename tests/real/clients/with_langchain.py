# mypy: ignore-errors
"""Make the calls of plan.py with LangChain's tools for MCP, which answer as they would to a model.

Argument: the server's entry as JSON. Prints as JSON the names of the tools, and the results.
"""

import asyncio
import json
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from plan import next_call


async def main() -> None:
    results = []
    client = MultiServerMCPClient({"postroom": {"transport": "stdio", **json.loads(sys.argv[1])}})
    async with client.session("postroom") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        while call := next_call(results):
            name, arguments = call
            request = {"type": "tool_call", "id": name, "name": name, "args": arguments}
            results.append((await tools[name].ainvoke(request)).text)
    json.dump({"tools": list(tools), "results": results}, sys.stdout)


asyncio.run(main())
