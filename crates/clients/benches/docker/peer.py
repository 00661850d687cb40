"""The same workloads with the Python SDK on the same engine; one line of JSON each: name and seconds, several samples."""
import asyncio
import io
import json
import sys
import time
from pathlib import Path

import docker
from agents import set_tracing_disabled
from agents.sandbox import Manifest
from agents.sandbox.entries import File
from agents.sandbox.sandboxes.docker import DockerSandboxClient, DockerSandboxClientOptions
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient

set_tracing_disabled(True)
LARGE = 64 << 20


def say(name, samples):
    print(json.dumps({"name": name, "seconds": samples}), flush=True)


async def timed(samples, work):
    begun = time.perf_counter()
    result = await work
    samples.append(time.perf_counter() - begun)
    return result


async def lives(make, rounds):
    up, down, raw = [], [], []
    for _ in range(rounds):
        async def opened():
            session = await make(Manifest())
            assert (await session.exec("true", shell=False)).exit_code == 0
            return session

        session = await timed(up, opened())
        await timed(down, closed(session))
        container = docker.from_env().containers.run(sys.argv[1], ["sleep", "1000"], detach=True, network_mode="none")
        begun = time.perf_counter()
        container.remove(force=True, v=True)
        raw.append(time.perf_counter() - begun)
    say("up", up)
    say("down", down)
    say("raw_down", raw)


async def closed(session):
    await session.aclose()
    await session.client.delete(session)


async def opened(client, manifest, **options):
    session = await client.create(manifest=manifest, **options)
    await session.start()
    session.client = client
    return session


async def works(session, rounds):
    execs, writes, reads = [], [], []
    for _ in range(rounds * 10):
        assert (await timed(execs, session.exec("true", shell=False))).exit_code == 0
    for _ in range(rounds):
        await timed(writes, session.write(Path("small"), io.BytesIO(b"x" * 1024)))
        assert len((await timed(reads, session.read(Path("small")))).read()) == 1024
    return execs, writes, reads


async def bulk(session):
    out, read = [], []
    printed = await timed(out, session.exec("head", "-c", str(LARGE), "/dev/zero", shell=False))
    assert len(printed.stdout) == LARGE
    await session.exec("sh", "-c", f"head -c {LARGE} /dev/zero > large", shell=False)
    say("out_64", out)
    assert len((await timed(read, session.read(Path("large")))).read()) == LARGE
    say("read_64", read)


async def main(image, rounds):
    client = DockerSandboxClient(docker.from_env())
    options = DockerSandboxClientOptions(image, network_mode="none", labels={"sandbar.bench": "peer"})
    make = lambda manifest: opened(client, manifest, options=options)
    await lives(make, rounds)
    session, local = await make(Manifest()), await opened(UnixLocalSandboxClient(), Manifest())
    for name, each in [("docker", session), ("local", local)]:
        for kind, samples in zip(["exec", "write", "read"], await works(each, rounds)):
            say(f"{name}_{kind}", samples)
    await closed(local)
    await bulk(session)
    await closed(session)
    filled = []
    files = {f"d{at % 10}/f{at}.txt": File(content=b"x" * 512) for at in range(100)}
    session = await timed(filled, make(Manifest(entries=files)))
    say("inline_100", filled)
    await closed(session)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
