// Uses the fake through the official E2B SDK. Arguments: the directory it is installed in, the check, the version it must have.

import assert from 'node:assert/strict'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [directory, check, wanted] = process.argv.slice(2)
const home = path.join(directory, 'node_modules', 'e2b')
const { version } = JSON.parse(fs.readFileSync(path.join(home, 'package.json')))
assert.equal(version, wanted)
const {
  Sandbox, CommandExitError, TimeoutError, NotFoundError, InvalidArgumentError, AuthenticationError, SandboxError, FileType,
} = await import(pathToFileURL(path.join(home, 'dist', 'index.mjs')))

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function waitUntil(condition, what) {
  for (const deadline = Date.now() + 60_000; Date.now() < deadline; await sleep(50)) {
    if (await condition()) return
  }
  assert.fail(`never: ${what}`)
}

async function fails(kind, call) {
  try {
    await call()
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error?.message}, not ${kind.name}`)
    return error
  }
  assert.fail(`no ${kind.name}`)
}

// A request to a port, by its host.
function fetchPort(sandbox, port, path = '/') {
  const { hostname, port: at } = new URL(process.env.E2B_SANDBOX_URL)
  return new Promise((resolve, reject) => {
    const request = http.get({ hostname, port: at, path, headers: { Host: sandbox.getHost(port) } }, async (response) => {
      let body = ''
      for await (const piece of response) body += piece
      resolve({ status: response.statusCode, body })
    })
    request.on('error', reject)
  })
}

const checks = {
  async commands(sandbox) {
    const run = (cmd, opts) => sandbox.commands.run(cmd, opts)
    const result = await run('echo out; echo err >&2; echo $A$B; pwd; whoami', { envs: { B: '2' }, cwd: '/tmp' })
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n12\n/tmp\nuser\n', 'err\n', 0])
    assert.equal((await run('id -un', { user: 'root' })).stdout, 'root\n')
    await fails(AuthenticationError, () => run('true', { user: 'unknown' }))
    await fails(InvalidArgumentError, () => run('true', { cwd: '/no/such' }))
    const failed = await fails(CommandExitError, () => run('echo no >&2; exit 7'))
    assert.deepEqual([failed.exitCode, failed.stderr], [7, 'no\n'])
    await fails(TimeoutError, () => run('sleep 100', { timeoutMs: 1000 }))
    await waitUntil(async () => (await sandbox.commands.list()).length === 0, 'the command is killed')
    assert.equal((await run("head -c 3000000 /dev/zero | tr '\\0' x")).stdout.length, 3_000_000)
    let heard = ''
    await run('for i in 1 2 3; do echo $i; sleep 0.05; done', { onStdout: (text) => { heard += text } })
    assert.equal(heard, '1\n2\n3\n')
  },

  async background(sandbox) {
    const handle = await sandbox.commands.run('cat; echo done', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, 'hello\n')
    const listed = await sandbox.commands.list()
    assert.deepEqual(listed.map(({ pid, cmd, args }) => ({ pid, cmd, args })), [
      { pid: handle.pid, cmd: '/bin/bash', args: ['-l', '-c', 'cat; echo done'] },
    ])
    await sandbox.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'hello\ndone\n')
    assert.equal(await sandbox.commands.kill(handle.pid), false)

    const reader = await sandbox.commands.run('read x; echo got:$x', { background: true, stdin: true })
    const other = await sandbox.commands.connect(reader.pid)
    await reader.sendStdin('more\n')
    assert.equal((await reader.wait()).stdout, 'got:more\n')
    assert.equal((await other.wait()).stdout, 'got:more\n')

    const sleeper = await sandbox.commands.run('sleep 100', { background: true })
    assert.equal(await sleeper.kill(), true)
    const killed = await fails(CommandExitError, () => sleeper.wait())
    assert.deepEqual([killed.exitCode, killed.error], [-1, 'signal: killed'])

    const left = await sandbox.commands.run('sleep 1; touch /tmp/done; sleep 100', { background: true, timeoutMs: 0 })
    await left.disconnect()
    await waitUntil(() => sandbox.files.exists('/tmp/done'), 'it goes on alone')
    assert.equal(await sandbox.commands.kill(left.pid), true)
  },

  async pty(sandbox) {
    let heard = ''
    const text = new TextDecoder()
    const handle = await sandbox.pty.create({
      cols: 80, rows: 24, cwd: '/tmp', timeoutMs: 60_000, onData: (bytes) => { heard += text.decode(bytes) },
    })
    await sandbox.pty.resize(handle.pid, { cols: 100, rows: 30 })
    await sandbox.pty.sendInput(handle.pid, new TextEncoder().encode('stty size; exit 3\n'))
    assert.equal((await fails(CommandExitError, () => handle.wait())).exitCode, 3)
    assert.match(heard, /30 100/)
    const other = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 60_000, onData: () => {} })
    assert.equal(await sandbox.pty.kill(other.pid), true)
    assert.equal(await sandbox.pty.kill(other.pid + 100_000), false)
  },

  async files(sandbox) {
    const { files } = sandbox
    const content = Uint8Array.from({ length: 76_800 }, (_, at) => at % 256)
    const written = await files.write('dir/sub/f.bin', content.buffer)
    assert.deepEqual([written.name, written.path, written.type], ['f.bin', '/home/user/dir/sub/f.bin', FileType.FILE])
    assert.deepEqual(await files.read('dir/sub/f.bin', { format: 'bytes' }), content)
    await files.write('text.txt', 'grüße')
    assert.equal(await files.read('~/text.txt'), 'grüße')
    assert.equal((await files.write([{ path: '/tmp/a', data: 'a' }, { path: 'b', data: 'b' }])).length, 2)
    assert.equal((await files.read('/tmp/a')) + (await files.read('/home/user/b')), 'ab')
    const stream = await files.read('text.txt', { format: 'stream' })
    assert.equal(await new Response(stream).text(), 'grüße')
    await fails(NotFoundError, () => files.read('/home/user/none'))
    await fails(InvalidArgumentError, () => files.read('dir'))
    assert.equal(await files.makeDir('made/deep'), true)
    assert.equal(await files.makeDir('made/deep'), false)
    const listed = await files.list('dir', { depth: 2 })
    assert.deepEqual(listed.map((entry) => [entry.path, entry.type]), [
      ['/home/user/dir/sub', FileType.DIR], ['/home/user/dir/sub/f.bin', FileType.FILE],
    ])
    await fails(NotFoundError, () => files.list('nowhere'))
    await fails(InvalidArgumentError, () => files.list('text.txt'))
    const info = await files.getInfo('dir/sub/f.bin')
    assert.deepEqual([info.size, info.mode, info.permissions, info.owner], [76_800, 0o644, '-rw-r--r--', 'user'])
    assert.ok(Math.abs(info.modifiedTime - Date.now()) < 3_600_000)
    const moved = await files.rename('dir/sub/f.bin', 'new/g.bin')
    assert.equal(moved.path, '/home/user/new/g.bin')
    assert.deepEqual([await files.exists('new/g.bin'), await files.exists('dir/sub/f.bin')], [true, false])
    await fails(NotFoundError, () => files.rename('nothing', 'x'))
    await files.remove('new')
    assert.equal(await files.exists('new'), false)
  },

  async life(sandbox) {
    const info = await sandbox.getInfo()
    assert.deepEqual([info.sandboxId, info.metadata, info.state], [sandbox.sandboxId, { k: 'v w', check }, 'running'])
    await sandbox.setTimeout(1_000_000)
    assert.ok((await sandbox.getInfo()).endAt > info.endAt)
    const listed = async (query) => (await Sandbox.list({ query }).nextItems()).map((item) => item.sandboxId)
    const other = await Sandbox.create({ metadata: { k: 'x' } })
    assert.deepEqual(await listed(), [other.sandboxId, sandbox.sandboxId])
    assert.deepEqual(await listed({ metadata: { k: 'v w' } }), [sandbox.sandboxId])
    assert.deepEqual([await other.kill(), await Sandbox.kill(other.sandboxId)], [true, false])
    assert.equal(await other.isRunning(), false)
    await fails(SandboxError, () => other.commands.run('true'))
    await fails(NotFoundError, () => other.getInfo())

    await sandbox.files.write('kept', 'here')
    await sandbox.commands.run('cd ~ && exec python3 -m http.server 8000', { background: true, timeoutMs: 0 })
    assert.equal((await fetchPort(sandbox, 8001)).status, 502)
    await waitUntil(async () => (await fetchPort(sandbox, 8000, '/kept')).body === 'here', 'the port is open')
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.isRunning(), false)
    assert.deepEqual(await listed({ state: ['paused'] }), [sandbox.sandboxId])
    const again = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await again.files.read('kept'), 'here')
    assert.equal((await fetchPort(again, 8000, '/kept')).body, 'here')
    const snapshot = await again.createSnapshot()
    await again.files.write('kept', 'changed')
    const clone = await Sandbox.create(snapshot.snapshotId)
    assert.equal(await clone.files.read('kept'), 'here')
    await clone.kill()
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
    await fails(SandboxError, () => Sandbox.create('no-such-template'))
    await fails(AuthenticationError, () => Sandbox.create({ apiKey: 'e2b_00' }))
    const short = await Sandbox.create({ timeoutMs: 2000 })
    await fails(SandboxError, () => short.commands.run('sleep 100'))
    assert.equal(await short.isRunning(), false)
  },
}

const sandbox = await Sandbox.create({ timeoutMs: 300_000, metadata: { k: 'v w', check }, envs: { A: '1' } })
assert.equal(await sandbox.isRunning(), true)
await checks[check](sandbox)
assert.equal(await sandbox.kill(), true)
assert.equal(await sandbox.isRunning(), false)
console.log('ok')
process.exit(0)
