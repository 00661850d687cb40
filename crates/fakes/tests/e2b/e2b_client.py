"""Uses the fake through the official E2B SDK. Arguments: the check, the version the SDK must have."""

import io
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from importlib.metadata import version

from e2b import (
    AuthenticationException,
    CommandExitException,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def wait_until(condition, what):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"never: {what}")


def fetch(sandbox, port, path="/"):
    """A request to a port, by its host."""
    request = urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + path, headers={"Host": sandbox.get_host(port)})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()


def commands(sandbox):
    result = sandbox.commands.run("echo out; echo err >&2; echo $A$B; pwd; whoami", envs={"B": "2"}, cwd="/tmp")
    assert result.stdout == "out\n12\n/tmp\nuser\n", result
    assert (result.stderr, result.exit_code) == ("err\n", 0) and not result.error, result
    assert sandbox.commands.run("pwd; echo $HOME $E2B_SANDBOX_ID").stdout == f"/home/user\n/home/user {sandbox.sandbox_id}\n"
    assert sandbox.commands.run("id -un", user="root").stdout == "root\n"
    fails(AuthenticationException, lambda: sandbox.commands.run("true", user="unknown"))
    fails(InvalidArgumentException, lambda: sandbox.commands.run("true", cwd="/no/such"))
    failed = fails(CommandExitException, lambda: sandbox.commands.run("echo no >&2; exit 7"))
    assert (failed.exit_code, failed.stderr) == (7, "no\n"), failed
    # The number is the process's own, and everything of a large output arrives.
    handle = sandbox.commands.run("echo $$; sleep 100", background=True)
    heard = next(iter(handle))
    assert heard[0] == f"{handle.pid}\n", heard
    handle.kill()
    assert len(sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3_000_000
    heard = []
    sandbox.commands.run("for i in 1 2 3; do echo $i; sleep 0.05; done", on_stdout=heard.append)
    assert "".join(heard) == "1\n2\n3\n", heard
    # What is left in the background does not hold up the end.
    began = time.monotonic()
    assert sandbox.commands.run("sleep 100 & echo left").stdout == "left\n"
    assert time.monotonic() - began < 50


def timeouts(sandbox):
    fails(TimeoutException, lambda: sandbox.commands.run("echo $$ > /tmp/pid; sleep 100", timeout=1))
    wait_until(lambda: not sandbox.commands.list(), "the command is killed when its time is over")
    # A command whose stream was closed lives on.
    handle = sandbox.commands.run("sleep 1; touch /tmp/done; sleep 100", background=True, timeout=0)
    handle.disconnect()
    wait_until(lambda: sandbox.files.exists("/tmp/done"), "it goes on alone")
    assert [process.pid for process in sandbox.commands.list()] == [handle.pid]
    assert sandbox.commands.kill(handle.pid) is True


def background(sandbox):
    handle = sandbox.commands.run("cat; echo done", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "hello\n")
    listed = sandbox.commands.list()
    assert [(p.pid, p.cmd, p.args) for p in listed] == [(handle.pid, "/bin/bash", ["-l", "-c", "cat; echo done"])], listed
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "hello\ndone\n"
    assert sandbox.commands.list() == []
    assert sandbox.commands.kill(handle.pid) is False
    fails(NotFoundException, lambda: sandbox.commands.send_stdin(handle.pid, "x"))

    handle = sandbox.commands.run("echo first; read x; echo got:$x", background=True, stdin=True)
    other = sandbox.commands.connect(handle.pid)
    heard = []
    thread = threading.Thread(target=lambda: heard.append(other.wait()))
    thread.start()
    handle.send_stdin("more\n") if hasattr(handle, "send_stdin") else sandbox.commands.send_stdin(handle.pid, "more\n")
    assert handle.wait().stdout == "first\ngot:more\n"
    thread.join(30)
    assert "got:more\n" in heard[0].stdout, heard

    handle = sandbox.commands.run("sleep 100", background=True)
    assert handle.kill() is True
    killed = fails(CommandExitException, handle.wait)
    assert (killed.exit_code, killed.error) == (-1, "signal: killed"), killed
    # A signal reaches the process alone, not what it has started.
    handle = sandbox.commands.run("sleep 100 & echo $! > /tmp/child; wait", background=True)
    wait_until(lambda: sandbox.files.exists("/tmp/child"), "the child runs")
    assert handle.kill() is True
    fails(CommandExitException, handle.wait)
    sandbox.commands.run("kill $(cat /tmp/child)")
    if hasattr(sandbox.commands, "stream_input"):
        handle = sandbox.commands.run("head -c 6; echo", background=True, stdin=True)
        sandbox.commands.stream_input(handle.pid, ["abc", b"def"])
        assert handle.wait().stdout == "abcdef\n"
        fails(SandboxException, lambda: sandbox.commands.stream_input(handle.pid, ["x"]))


def pty(sandbox):
    heard = bytearray()
    handle = sandbox.pty.create(PtySize(rows=24, cols=80), cwd="/tmp", envs={"PS1": "$ "}, timeout=60)
    sandbox.pty.resize(handle.pid, PtySize(rows=30, cols=100))
    sandbox.pty.send_stdin(handle.pid, b"stty size; tty; exit 3\n")
    ended = fails(CommandExitException, lambda: handle.wait(on_pty=heard.extend))
    assert ended.exit_code == 3, ended
    assert b"30 100" in heard and b"/dev/pts/" in heard, heard
    handle = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=60)
    assert sandbox.pty.kill(handle.pid) is True
    assert sandbox.pty.kill(handle.pid + 100000) is False
    fails(SandboxException, lambda: sandbox.commands.send_stdin(handle.pid + 100000, "x"))


def files(sandbox):
    content = bytes(range(256)) * 300
    written = sandbox.files.write("dir/sub/f.bin", content)
    assert (written.name, written.path, written.type) == ("f.bin", "/home/user/dir/sub/f.bin", FileType.FILE), written
    assert bytes(sandbox.files.read("/home/user/dir/sub/f.bin", format="bytes")) == content
    assert b"".join(sandbox.files.read("dir/sub/f.bin", format="stream")) == content
    sandbox.files.write("text.txt", "grüße")
    sandbox.files.write("text.txt", "grüße 2")
    assert sandbox.files.read("~/text.txt") == "grüße 2"
    assert sandbox.commands.run("stat -c '%U %a' text.txt").stdout == "user 644\n"
    assert len(sandbox.files.write_files([{"path": "/tmp/a", "data": "a"}, {"path": "b", "data": b"b"}])) == 2
    assert sandbox.files.read("/tmp/a") + sandbox.files.read("/home/user/b") == "ab"
    sandbox.files.write("streamed", io.BytesIO(content))
    assert bytes(sandbox.files.read("streamed", format="bytes")) == content
    sandbox.files.write("packed", content, gzip=True)
    assert bytes(sandbox.files.read("packed", format="bytes", gzip=True)) == content
    missing = fails(NotFoundException, lambda: sandbox.files.read("/home/user/none"))
    assert "path '/home/user/none' does not exist" in str(missing), missing
    fails(InvalidArgumentException, lambda: sandbox.files.read("dir"))
    fails(InvalidArgumentException, lambda: sandbox.files.write("dir", "x"))

    assert sandbox.files.make_dir("made/deep") is True
    assert sandbox.files.make_dir("made/deep") is False
    listed = sandbox.files.list("dir", depth=2)
    assert [(e.path, e.type) for e in listed] == [
        ("/home/user/dir/sub", FileType.DIR),
        ("/home/user/dir/sub/f.bin", FileType.FILE),
    ], listed
    assert [e.name for e in sandbox.files.list("dir")] == ["sub"]
    assert sandbox.files.list("made/deep") == []
    fails(NotFoundException, lambda: sandbox.files.list("nowhere"))
    fails(InvalidArgumentException, lambda: sandbox.files.list("text.txt"))
    info = sandbox.files.get_info("dir/sub/f.bin")
    assert (info.size, info.mode, info.permissions, info.owner, info.group) == (76800, 0o644, "-rw-r--r--", "user", "user"), info
    assert abs(info.modified_time.timestamp() - time.time()) < 3600, info
    sandbox.commands.run("ln -s dir/sub link")
    info = sandbox.files.get_info("link")
    assert (info.type, info.symlink_target) == (FileType.DIR, "/home/user/dir/sub"), info
    assert [e.path for e in sandbox.files.list("link")] == ["/home/user/link/f.bin"]
    moved = sandbox.files.rename("dir/sub/f.bin", "new/place/g.bin")
    assert moved.path == "/home/user/new/place/g.bin", moved
    assert sandbox.files.exists("new/place/g.bin") and not sandbox.files.exists("dir/sub/f.bin")
    fails(NotFoundException, lambda: sandbox.files.rename("nothing", "x"))
    sandbox.files.remove("new")
    sandbox.files.remove("new")
    assert not sandbox.files.exists("new")
    # A signed address needs no token.
    address = sandbox.download_url("text.txt", use_signature_expiration=60)
    request = urllib.request.Request(address, headers={"Host": sandbox.get_host(49983)})
    assert urllib.request.urlopen(request, timeout=30).read().decode() == "grüße 2"
    request = urllib.request.Request(address.replace("v1_", "v1_x"), headers={"Host": sandbox.get_host(49983)})
    assert fails(urllib.error.HTTPError, lambda: urllib.request.urlopen(request, timeout=30)).code == 401


def ports(sandbox):
    sandbox.files.write("www/index.html", "served")
    sandbox.commands.run("cd www && exec python3 -m http.server 8000", background=True, timeout=0)
    refused = fails(urllib.error.HTTPError, lambda: fetch(sandbox, 8001))
    assert refused.code == 502 and b"port is not open" in refused.read()

    def served():
        try:
            return fetch(sandbox, 8000, "/index.html") == b"served"
        except urllib.error.HTTPError:
            return False

    wait_until(served, "the port is open")


def life(sandbox):
    info = sandbox.get_info()
    assert (info.sandbox_id, info.metadata, info.state) == (sandbox.sandbox_id, {"k": "v w", "check": "life"}, SandboxState.RUNNING)
    before = info.end_at
    sandbox.set_timeout(1000)
    assert sandbox.get_info().end_at > before
    listed = lambda query=None: [i.sandbox_id for i in Sandbox.list(query=query).next_items()]
    other = Sandbox.create(metadata={"k": "x"}, timeout=300)
    assert listed() == [other.sandbox_id, sandbox.sandbox_id]
    assert listed(SandboxQuery(metadata={"k": "v w"})) == [sandbox.sandbox_id]
    paginator = Sandbox.list(limit=1)
    pages = [paginator.next_items()[0].sandbox_id]
    while paginator.has_next:
        pages += [i.sandbox_id for i in paginator.next_items()]
    assert pages == [other.sandbox_id, sandbox.sandbox_id], pages
    assert other.kill() is True and other.kill() is False
    assert not other.is_running()
    fails(SandboxException, lambda: other.commands.run("true"))
    fails(SandboxException, lambda: other.files.read("x"))
    fails(NotFoundException, other.get_info)

    again = Sandbox.connect(sandbox.sandbox_id, timeout=500)
    again.files.write("kept", "here")
    # Processes stand still while it is paused, and go on after.
    handle = again.commands.run("while :; do date +%s%N > beat; sleep 0.02; done", background=True, timeout=0)
    wait_until(lambda: again.files.exists("beat"), "the process runs")
    again.pause()
    assert not again.is_running()
    fails(SandboxException, lambda: again.files.read("kept"))
    assert listed(SandboxQuery(state=[SandboxState.PAUSED])) == [sandbox.sandbox_id]
    assert listed(SandboxQuery(state=[SandboxState.RUNNING])) == []
    time.sleep(0.5)
    resumed_at = time.time_ns()
    resumed = Sandbox.connect(sandbox.sandbox_id)
    assert resumed.is_running() and resumed.files.read("kept") == "here"
    wait_until(lambda: int(resumed.files.read("beat") or 0) > resumed_at, "the process goes on")
    assert [p.pid for p in resumed.commands.list()] == [handle.pid]

    snapshot = resumed.create_snapshot()
    resumed.files.write("kept", "changed")
    clone = Sandbox.create(snapshot.snapshot_id)
    assert clone.files.read("kept") == "here"
    assert clone.files.get_info("kept").owner == "user"
    assert snapshot.snapshot_id in [s.snapshot_id for s in Sandbox.list_snapshots().next_items()]
    clone.kill()
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
    fails(SandboxException, lambda: Sandbox.create(snapshot.snapshot_id))
    fails(SandboxException, lambda: Sandbox.create("no-such-template"))
    fails(AuthenticationException, lambda: Sandbox.create(api_key="e2b_00"))

    # A sandbox ends when its time is over, and a command that runs in it then ends too.
    short = Sandbox.create(timeout=2)
    fails(SandboxException, lambda: short.commands.run("sleep 100", timeout=60))
    assert not short.is_running()
    short = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause", "auto_resume": True})
    short.files.write("x", "y")
    wait_until(lambda: short.get_info().state == SandboxState.PAUSED, "it is paused")
    assert short.files.read("x") == "y"


CHECKS = {f.__name__: f for f in (commands, timeouts, background, pty, files, ports, life)}

if __name__ == "__main__":
    check, wanted = sys.argv[1:]
    assert version("e2b") == wanted, f"the SDK is {version('e2b')}, not {wanted}"
    sandbox = Sandbox.create(timeout=300, metadata={"k": "v w", "check": check}, envs={"A": "1"})
    assert sandbox.is_running()
    CHECKS[check](sandbox)
    assert sandbox.kill() is True
    assert not sandbox.is_running()
    print("ok")
