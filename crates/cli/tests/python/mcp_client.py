"""The official MCP client against `sandbar mcp`: `mcp_client.py MODE SANDBAR WORKSPACE`. Says `ok` if everything held."""

import base64
import os
import sys
from pathlib import Path

import anyio
from mcp import MCPError, StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

MODE, SANDBAR, WORKSPACE = sys.argv[1], sys.argv[2], Path(sys.argv[3])
SELF = os.path.abspath(__file__)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
PATCH = "*** Begin Patch\n*** Update File: notes.txt\n@@\n one\n-two\n+2\n*** End Patch\n"


async def main():
    server = StdioServerParameters(
        command=SANDBAR, args=["mcp", "--workspace", str(WORKSPACE)], env={"TMPDIR": os.environ["TMPDIR"]}
    )
    called = set()
    with anyio.fail_after(110):
        async with Client(stdio_client(server), mode=MODE) as client:

            async def call(tool, **arguments):
                called.add(tool)
                return await client.call_tool(tool, arguments)

            async def text(tool, **arguments):
                result = await call(tool, **arguments)
                assert not result.is_error, (tool, result)
                return result.content[0].text

            assert client.server_info.name == "sandbar", client.server_info
            assert "/workspace" in client.instructions, client.instructions
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools.values())
            assert tools["read_file"].annotations.read_only_hint is True

            assert "Wrote 8 bytes" in await text("write_file", path="notes.txt", content="one\ntwo\n")
            assert "M notes.txt" in await text("apply_patch", patch=PATCH)
            assert await text("read_file", path="notes.txt") == "one\n2\n"
            assert (WORKSPACE / "notes.txt").read_text() == "one\n2\n"
            assert await text("list_directory") == "notes.txt (6 bytes)"

            (WORKSPACE / "pixel.png").write_bytes(PNG)
            image = (await call("view_image", path="pixel.png")).content[0]
            assert (image.type, image.mime_type) == ("image", "image/png"), image
            assert base64.b64decode(image.data) == PNG

            ran = await text("exec_command", cmd="cat notes.txt; hostname; exit 5", yield_time_ms=30000)
            assert "Process exited with code 5" in ran and "one\n2\n" in ran, ran
            started = await text("exec_command", cmd="cat", tty=True, yield_time_ms=250)
            session = int(started.split("session ID ")[1].split("\n")[0])
            echoed = await text("write_stdin", session_id=session, chars="echo me\n", yield_time_ms=30000)
            assert "echo me" in echoed, echoed
            ended = await text("write_stdin", session_id=session, chars="\x04", yield_time_ms=30000)
            assert "Process exited with code 0" in ended, ended

            hidden = await call("read_file", path=SELF)
            assert hidden.is_error and "not inside the workspace" in hidden.content[0].text, hidden
            assert "No such file" in await text("exec_command", cmd=f"cat {SELF}", yield_time_ms=30000)
            try:
                await client.call_tool("no_such_tool", {})
                raise AssertionError("an unknown tool was called")
            except MCPError as error:
                assert error.error.code == -32602, error

            with anyio.move_on_after(0.5) as scope:
                await call("exec_command", cmd="sleep 30", yield_time_ms=30000)
            assert scope.cancelled_caught
            assert "still here" in await text("exec_command", cmd="echo still here", yield_time_ms=30000)

            assert called == set(tools), set(tools) ^ called
    print("ok")


anyio.run(main)
