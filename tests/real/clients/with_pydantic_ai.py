# mypy: ignore-errors
"""Make the calls of plan.py with an agent of Pydantic AI, whose model is a function.

Argument: the server's entry as JSON. Prints as JSON the tools and the results that the model was shown.
"""

import asyncio
import json
import sys

from fastmcp.client.transports import StdioTransport
from plan import LAST_WORDS, PROMPT, next_call
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

seen = {}


def scripted(messages, info):
    parts = [part for message in messages for part in message.parts]
    results = [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)]
    seen.update(tools=[tool.name for tool in info.function_tools], results=results)
    call = next_call(results)
    return ModelResponse(parts=[ToolCallPart(*call) if call else TextPart(LAST_WORDS)])


async def main() -> None:
    transport = StdioTransport(**json.loads(sys.argv[1]), keep_alive=False)
    toolset = MCPToolset(transport, init_timeout=60, read_timeout=60)
    async with Agent(FunctionModel(scripted), toolsets=[toolset]) as agent:
        done = await agent.run(PROMPT)
    assert done.output == LAST_WORDS
    json.dump(seen, sys.stdout)


asyncio.run(main())
