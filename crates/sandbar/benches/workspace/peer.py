"""The same workloads with the Python SDK; one line of JSON each: name and seconds, several samples."""
import asyncio
import io
import json
import sys
import time
from pathlib import Path

from agents import set_tracing_disabled
from agents.sandbox import Manifest, SandboxPathGrant
from agents.sandbox.entries import File, LocalDir
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient

set_tracing_disabled(True)


def say(name, samples):
    print(json.dumps({"name": name, "seconds": samples}), flush=True)


async def opened(manifest):
    client = UnixLocalSandboxClient()
    session = await client.create(manifest=manifest)
    await session.start()
    return client, session


async def closed(client, session):
    await session.aclose()
    await client.delete(session)


async def timed_open(make, rounds):
    samples = []
    for _ in range(rounds):
        manifest = make()
        begun = time.perf_counter()
        client, session = await opened(manifest)
        samples.append(time.perf_counter() - begun)
        await closed(client, session)
    return samples


async def patches(rounds):
    client, session = await opened(Manifest())
    lines = [f"line {at}" for at in range(10_000)]
    samples = []
    for _ in range(rounds * 3):
        await session.write(Path("big.txt"), io.BytesIO(("\n".join(lines) + "\n").encode()))
        hunks = [f"@@\n {lines[at - 1]}\n-{lines[at]}\n+changed {at}\n {lines[at + 1]}" for at in range(500, 9_600, 950)]
        begun = time.perf_counter()
        await session.apply_patch({"type": "update_file", "path": "big.txt", "diff": "\n".join(hunks) + "\n"})
        samples.append(time.perf_counter() - begun)
    say("patch_10k_lines", samples)
    text = "".join(f"line {at}\n" for at in range(20)).encode()
    samples = []
    for turn in range(rounds):
        for at in range(500):
            await session.write(Path(f"p{turn}/x{at}.txt"), io.BytesIO(text))
        diff = "@@\n line 9\n-line 10\n+line ten\n line 11\n"
        ops = [{"type": "update_file", "path": f"p{turn}/x{at}.txt", "diff": diff} for at in range(500)]
        begun = time.perf_counter()
        await session.apply_patch(ops)
        samples.append(time.perf_counter() - begun)
    say("patch_500_files", samples)
    await closed(client, session)


async def main(tree, rounds):
    inline = lambda: Manifest(entries={f"d{at % 20}/f{at}.txt": File(content=b"x" * 100) for at in range(1000)})
    grant = SandboxPathGrant(path=tree, read_only=True)
    local = lambda: Manifest(entries={"tree": LocalDir(src=Path(tree))}, extra_path_grants=(grant,))
    await patches(rounds)
    say("local_dir", await timed_open(local, rounds))
    say("inline_1000", await timed_open(inline, 1))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
