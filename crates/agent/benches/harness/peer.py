"""One workload with the Python SDK; a line of JSON: name, seconds of each round, and the most memory it took."""
import asyncio
import json
import resource
import sys
import time

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.testing import assistant_message, function_call
from agents.usage import Usage
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def noop() -> str:
    """Does nothing."""
    return "ok"


class Bare(Model):
    """Answers with a call each turn, and a word after the last; remembers nothing."""

    def __init__(self, turns):
        self.turns, self.done = turns, 0

    async def get_response(self, *args, **kwargs):
        self.done += 1
        if self.done <= self.turns:
            output = [function_call("noop", {}, call_id=f"c{self.done}")]
        else:
            output = [assistant_message("done")]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


def model(url):
    client = AsyncOpenAI(api_key="x", base_url=url, max_retries=0)
    return OpenAIResponsesModel(model="bench", openai_client=client)


async def drained(agent, turns=10):
    result = Runner.run_streamed(agent, "go", max_turns=turns)
    deltas = 0
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            deltas += 1
    return result, deltas


async def turns():
    agent = Agent(name="x", model=Bare(100), tools=[noop])
    result = await Runner.run(agent, "go", max_turns=105)
    assert result.final_output == "done"


async def deltas(url):
    _, seen = await drained(Agent(name="x", model=model(url)))
    assert seen == 10_000, seen


async def http(url):
    result, _ = await drained(Agent(name="x", model=model(url), tools=[noop]), 105)
    assert result.final_output == "done", result.final_output


async def many(shared):
    async def one():
        result, _ = await drained(Agent(name="x", model=shared, tools=[noop]))
        assert result.final_output == "done", result.final_output

    await asyncio.gather(*(one() for _ in range(200)))


async def main(name, rounds, calling, few, talking):
    shared = model(few)
    work = {
        "turns": turns,
        "deltas": lambda: deltas(talking),
        "http": lambda: http(calling),
        "many": lambda: many(shared),
    }[name]
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"name": name, "seconds": seconds, "peak_mb": peak}))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]))
