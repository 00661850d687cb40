"""The Agents SDK against a mock server: `agents_client.py CHECK,CHECK… BASE_URL`. Says `ok` if everything held."""

import asyncio
import sys

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

CHECKS, URL = sys.argv[1].split(","), sys.argv[2]
set_tracing_disabled(True)
CLIENT = AsyncOpenAI(base_url=URL, api_key="key", max_retries=0, timeout=60)
MODELS = {
    "responses": OpenAIResponsesModel("m", openai_client=CLIENT),
    "chat": OpenAIChatCompletionsModel("m", openai_client=CLIENT),
}


class Answer(BaseModel):
    city: str
    degrees: int | None


@function_tool
def weather(city: str, unit: str = "C") -> str:
    """The weather in a city."""
    return f"7 {unit} in {city}"


def agents(model):
    """A front desk that hands over to a forecaster, who asks a translator as a tool."""
    translator = Agent(name="translator", instructions="You translate.", model=model)
    tool = translator.as_tool("translate", "Translates a text.")
    forecaster = Agent(
        name="forecaster", instructions="You forecast.", model=model, tools=[weather, tool], output_type=Answer
    )
    return Agent(name="desk", instructions="You sort.", model=model, handoffs=[forecaster])


async def run(model, streamed, **options):
    if not streamed:
        return await Runner.run(agents(model), "How warm is it in Oslo?", **options)
    result = Runner.run_streamed(agents(model), "How warm is it in Oslo?", **options)
    async for _ in result.stream_events():
        pass
    return result


async def check(name):
    model = MODELS["chat" if name == "chat" else "responses"]
    for streamed in (False, True):
        options = {}
        if name == "previous":
            options["auto_previous_response_id"] = True
        if name == "conversation":
            options["conversation_id"] = (await CLIENT.conversations.create()).id
        if name == "session":
            options["session"] = OpenAIConversationsSession(openai_client=CLIENT)
        result = await run(model, streamed, run_config=RunConfig(tracing_disabled=True), **options)
        assert result.final_output == Answer(city="Oslo", degrees=7), (name, result.final_output)
        assert result.last_agent.name == "forecaster"
        assert result.context_wrapper.usage.requests == 4, result.context_wrapper.usage


async def main():
    for name in CHECKS:
        await check(name)


asyncio.run(main())
print("ok")
