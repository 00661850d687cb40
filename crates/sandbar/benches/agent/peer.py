"""One workload with the Python SDK; a line of JSON: name, and seconds of each round."""
import asyncio
import json
import sys
import time

from agents import Runner, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.run import RunConfig
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from agents.testing import assistant_message, function_call
from agents.usage import Usage

set_tracing_disabled(True)


class Bare(Model):
    """Wants the same command each turn, and says a word after the last; remembers nothing."""

    def __init__(self, commands):
        self.commands, self.done = commands, 0

    async def get_response(self, *args, **kwargs):
        self.done += 1
        if self.done <= self.commands:
            output = [function_call("exec_command", {"cmd": "true"}, call_id=f"c{self.done}")]
        else:
            output = [assistant_message("done")]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


async def one(commands):
    agent = SandboxAgent(
        name="x", model=Bare(commands), instructions="bench", default_manifest=Manifest(), capabilities=[Shell()]
    )
    sandbox = SandboxRunConfig(client=UnixLocalSandboxClient())
    result = await Runner.run(agent, "go", max_turns=commands + 5, run_config=RunConfig(sandbox=sandbox))
    assert result.final_output == "done", result.final_output
    outputs = [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]
    worked = sum("exited with code 0" in output for output in outputs)
    assert worked == commands, outputs[:1]


async def many():
    await asyncio.gather(*(one(3) for _ in range(200)))


async def main(name, rounds):
    work = {"turns": lambda: one(100), "many": many}[name]
    await one(1)
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - begun)
    print(json.dumps({"name": name, "seconds": seconds}))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
