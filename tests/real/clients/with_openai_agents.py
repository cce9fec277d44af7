# mypy: ignore-errors
"""Make the calls of plan.py with an agent of OpenAI's Agents SDK and its scripted model.

Argument: the server's entry as JSON. Prints as JSON the tools and the results that the model was shown.
"""

import asyncio
import json
import sys

from agents.mcp import MCPServerStdio
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from plan import LAST_WORDS, PROMPT, next_call

from agents import Agent, Runner

TURNS = 5  # four calls, and the last words
seen = {}


def scripted(request):
    items = request.input if isinstance(request.input, list) else []
    outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
    results = [output if isinstance(output, str) else json.dumps(output) for output in outputs]
    seen.update(tools=[tool.name for tool in request.tools], results=results)
    call = next_call(results)
    return [function_call(*call, call_id=call[0]) if call else assistant_message(LAST_WORDS)]


async def main() -> None:
    model = ScriptedModel([ModelStep.respond(scripted)] * TURNS)
    server = MCPServerStdio(json.loads(sys.argv[1]), client_session_timeout_seconds=60)
    async with server:
        config = {"convert_schemas_to_strict": False}  # as docs/clients.md says
        agent = Agent("Robin's agent", model=model, mcp_servers=[server], mcp_config=config)
        done = await Runner.run(agent, PROMPT)
    assert done.final_output == LAST_WORDS
    json.dump(seen, sys.stdout)


asyncio.run(main())
