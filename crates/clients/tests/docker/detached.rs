//! Containers that outlive their creator: who can attach, what a handle must contain, and what happens if a container
//! is ended by other means.

use std::{sync::Arc, time::Duration};

use bollard::query_parameters::{KillContainerOptions, StopContainerOptions};
use futures::TryStreamExt;
use sandbar_clients::{
    Docker,
    docker::{Engine, InnerWalls},
};
use sandbar_machine::{Command, Lifetime, Machine, MachineHandle, MachineSpec, SandboxClient};
use serde_json::json;

use crate::bench::{BUSYBOX, DEBIAN, EMPTY, client, engine, has_engine, nothing_left, run, sh, soon};

fn detached() -> MachineSpec {
    MachineSpec::default().lifetime(Lifetime::Detached)
}

async fn create(client: &Docker) -> Arc<dyn Machine> {
    soon(client.create(detached())).await.expect("create")
}

fn with(handle: &MachineHandle, name: &str, value: serde_json::Value) -> MachineHandle {
    let mut other = handle.clone();
    other.state[name] = value;
    other
}

fn field<'a>(handle: &'a MachineHandle, name: &str) -> &'a str {
    handle.state.get(name).and_then(|value| value.as_str()).expect("it is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_handle_that_fits_finds_or_ends_a_machine() {
    if !has_engine().await {
        return;
    }
    let client = client(BUSYBOX).label("sandbar.test", "fits");
    let machine = create(&client).await;
    let handle = machine.handle();
    let mut bound = handle.clone();
    bound.state = json!({ "container": field(&handle, "container") });
    let table = [
        (with(&handle, "seal", "0".repeat(32).into()), "is not one of the machine"),
        (with(&handle, "engine", "ANOTHER".into()), "another Docker engine"),
        (with(&handle, "nonce", "0f".into()), "nonce"),
        (with(&handle, "nonce", json!(1)), "invalid type"),
        (with(&handle, "more", json!(1)), "unknown field"),
        (with(&handle, "container", "sandbar-x/../y".into()), "not one of a Docker machine"),
    ];
    for (bad, why) in &table {
        for refused in [soon(client.attach(bad)).await.map(drop), soon(client.delete(bad)).await] {
            let refused = refused.expect_err(why);
            assert_eq!(refused.code(), "invalid", "{refused}");
            assert!(refused.to_string().contains(why), "{refused}");
        }
    }
    // A handle with a wrong nonce reaches the door, and is refused there.
    let guessed = with(&handle, "nonce", "0".repeat(32).into());
    assert_eq!(soon(client.attach(&guessed)).await.map(drop).expect_err("a guess").code(), "invalid");
    // This client does not own the bound machine, and a handle of the bound form does not end a detached one.
    assert!(soon(client.attach(&bound)).await.expect("no error").is_none());
    assert_eq!(soon(client.delete(&bound)).await.expect_err("of another kind").code(), "invalid");
    assert_eq!(sh(&*machine, "echo unharmed").await, "unharmed\n");
    soon(client.delete(&handle)).await.expect("delete");
    nothing_left("sandbar.test=fits").await;
}

/// Tries every abstract socket with a nonce of zeros, and prints how many it reached and what they answered.
const BURGLAR: &str = r#"
import socket
doors = {line.split()[-1][1:] for line in open("/proc/net/unix") if "@sandbar-" in line}
told = []
for door in doors:
    try:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10)
        s.connect("\0" + door)
        s.sendall(b"\5\0\0\0\0" + bytes(16))
        told.append(len(s.recv(100)))
    except OSError as error:
        told.append(error.errno or 0)
print(len(doors), all(count in (0, 1, 13, 32, 104, 111) for count in told))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_inside_knows_the_nonce_or_gets_in_without_it() {
    if !has_engine().await {
        return;
    }
    for client in [client(DEBIAN), client(DEBIAN).user("root"), client(DEBIAN).read_only()] {
        let client = client.label("sandbar.test", "burglar");
        let machine = create(&client).await;
        let handle = machine.handle();
        let other = soon(client.attach(&handle)).await.expect("attach").expect("it lives");
        let nonce = field(&handle, "nonce");
        assert_eq!(run(&*machine, &["python3", "-c", BURGLAR]).await.0, "1 True\n");
        assert_eq!(sh(&*machine, "ls -A /.sandbar").await, "guest\n");
        let visible =
            sh(&*machine, "tr '\\0' ' ' < /proc/1/cmdline; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; env").await;
        assert!(visible.contains("guest serve") && visible.contains("bridge"), "{visible}");
        assert!(!visible.contains(nonce), "{visible}");
        for closed in ["environ", "mem", "maps", "fd/0"] {
            let script = format!(
                "for p in /proc/[0-9]*; do case $(cat $p/cmdline 2>/dev/null | tr '\\0' ' ') in /.sandbar/guest*) \
                 head -c1 $p/{closed} >/dev/null 2>&1 && echo open; esac; done; true"
            );
            assert_eq!(sh(&*machine, &script).await, "", "{closed}");
        }
        let about = soon(engine().inspect_container(field(&handle, "container"), None)).await.expect("inspect");
        assert!(!serde_json::to_string(&about).expect("json").contains(nonce), "the engine knows it");
        drop(other);
        soon(machine.stop()).await.expect("stop");
        nothing_left("sandbar.test=burglar").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nonce_is_nowhere_in_the_containers_files() {
    if !has_engine().await {
        return;
    }
    let machine = create(&client(BUSYBOX)).await;
    let handle = machine.handle();
    let nonce = field(&handle, "nonce").to_owned();
    let raw: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&nonce[at * 2..at * 2 + 2], 16).expect("digits")).collect();
    let docker = engine();
    let files: Vec<_> =
        soon(docker.export_container(field(&handle, "container")).try_collect()).await.expect("its files");
    let files: Vec<u8> = files.concat();
    let holds = |what: &[u8]| files.windows(what.len()).any(|window| window == what);
    assert!(holds(b"root:x:0:0"), "these are its files");
    assert!(!holds(&raw) && !holds(nonce.as_bytes()));
    soon(machine.stop()).await.expect("stop");
}

/// Watches for bridges, tries to read their data and to kill them, and prints what it got. It ends when it is told to
/// and has seen one.
const HIGHWAYMAN: &str = r#"
import os, signal, time
def lives(pid):
    # One that is ending has no memory any more, and nothing in it that could be closed.
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[20] != "0"
got, seen, end = set(), set(), time.time() + 50
print("ready", flush=True)
while time.time() < end and not (seen and os.path.exists("end")):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if b"guest\0bridge" not in open(f"/proc/{pid}/cmdline", "rb").read():
                continue
            seen.add(pid)
        except OSError:
            continue
        for way in ("mem", "fd/0", "fd/1", "environ", "maps"):
            try:
                os.open(f"/proc/{pid}/{way}", os.O_RDONLY | os.O_NONBLOCK)
                if lives(pid):
                    got.add(way)
            except OSError:
                pass
        try:
            os.kill(int(pid), signal.SIGKILL)
            got.add("kill")
        except OSError:
            pass
print(len(seen) > 0, sorted(got))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bridge_is_closed_to_commands_from_its_first_moment() {
    if !has_engine().await {
        return;
    }
    for client in [client(DEBIAN), client(DEBIAN).user("root")] {
        let client = client.label("sandbar.test", "bridge");
        let machine = create(&client).await;
        let mut lurking = soon(machine.spawn(Command::new(["python3", "-c", HIGHWAYMAN]))).await.expect("spawn");
        let first = soon(lurking.output.recv()).await.expect("output").expect("output");
        assert!(format!("{first:?}").contains("ready"), "{first:?}");
        let mut last = None;
        for _ in 0..8 {
            let found = soon(client.attach(&machine.handle())).await.expect("attach").expect("it lives");
            assert_eq!(sh(&*found, "echo well").await, "well\n");
            last = Some(found);
        }
        let end = sandbar_machine::Target::from(sandbar_machine::MachinePath::workspace().join("end").expect("a path"));
        soon(machine.write(&end, sandbar_machine::once(""))).await.expect("write");
        let mut said = String::new();
        while let Some(output) = soon(lurking.output.recv()).await {
            if let sandbar_machine::Output::Stdout(bytes) = output.expect("output") {
                said.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
        assert_eq!(said, "True []\n");
        drop(last);
        soon(machine.stop()).await.expect("stop");
        nothing_left("sandbar.test=bridge").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_ended_by_other_means_is_gone() {
    if !has_engine().await {
        return;
    }
    let client = client(EMPTY).label("sandbar.test", "ended");
    for way in 0..2 {
        let handle = create(&client).await.handle();
        let name = field(&handle, "container");
        match way {
            0 => {
                let kill = KillContainerOptions { signal: "KILL".to_owned() };
                soon(engine().kill_container(name, Some(kill))).await.expect("kill");
            }
            _ => {
                let stop = StopContainerOptions { t: Some(0), ..StopContainerOptions::default() };
                soon(engine().stop_container(name, Some(stop))).await.expect("stop");
            }
        }
        assert!(soon(client.attach(&handle)).await.expect("gone is no error").is_none());
        soon(client.delete(&handle)).await.expect("delete");
        nothing_left("sandbar.test=ended").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_container_says_so_and_can_be_ended() {
    if !has_engine().await {
        return;
    }
    let client = client(BUSYBOX).label("sandbar.test", "paused-detached");
    for way in 0..2 {
        let machine = create(&client).await;
        let handle = machine.handle();
        soon(engine().pause_container(field(&handle, "container"))).await.expect("pause");
        let paused = soon(client.attach(&handle)).await.map(drop).expect_err("a paused guest does not answer");
        assert_eq!(paused.code(), "transport");
        assert!(std::error::Error::source(&paused).is_some_and(|why| why.to_string().contains("docker unpause")));
        match way {
            0 => soon(client.delete(&handle)).await.expect("delete"),
            _ => soon(machine.stop()).await.expect("stop"),
        }
        nothing_left("sandbar.test=paused-detached").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_is_full_of_processes_says_so_and_can_be_ended() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).pids(20).label("sandbar.test", "full");
    let machine = create(&client).await;
    let forks = "import os, signal\ntry:\n  while True:\n    if os.fork() == 0: signal.pause()\nexcept OSError: \
                 print('full', flush=True); signal.pause()";
    let mut process = soon(machine.spawn(Command::new(["python3", "-c", forks]))).await.expect("spawn");
    assert!(soon(process.output.recv()).await.expect("output").is_ok());
    let full = soon(client.attach(&machine.handle())).await.map(drop).expect_err("no room for a bridge");
    assert!(matches!(full.code(), "transport" | "start"), "{full}");
    soon(client.delete(&machine.handle())).await.expect("delete");
    nothing_left("sandbar.test=full").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_detached_machine_needs_the_inner_walls() {
    if !has_engine().await {
        return;
    }
    let weak = client(EMPTY).inner_walls(InnerWalls::EngineOnly).label("sandbar.test", "weak");
    let refused = soon(weak.create(detached())).await.map(drop).expect_err("commands inside could take over the door");
    assert_eq!(refused.code(), "isolation", "{refused}");
    assert!(refused.to_string().contains("InnerWalls::Required"), "{refused}");
    nothing_left("sandbar.test=weak").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_distinguish_detached_from_bound_machines() {
    if !has_engine().await {
        return;
    }
    for (spec, expected) in [(detached(), "detached"), (MachineSpec::default(), "bound")] {
        let machine = soon(client(EMPTY).create(spec)).await.expect("create");
        let about = soon(engine().inspect_container(field(&machine.handle(), "container"), None)).await;
        let labels = about.expect("inspect").config.and_then(|config| config.labels).expect("labels");
        assert_eq!(labels["sandbar.lifetime"], expected);
        assert!(labels.contains_key("sandbar.pid-started") && labels.contains_key("sandbar.session"));
        soon(machine.stop()).await.expect("stop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_the_same_wherever_it_is_reached() {
    if !has_engine().await {
        return;
    }
    let client = client(BUSYBOX).label("sandbar.test", "same");
    let handle = create(&client).await.handle();
    let by_another_way = client.clone().engine(Engine::at("unix:///run/docker.sock").expect("an address"));
    let found = soon(by_another_way.attach(&handle)).await.expect("attach").expect("it lives");
    assert_eq!(sh(&*found, "echo the same").await, "the same\n");
    let nowhere = client.clone().engine(Engine::at("unix:///no/such.sock").expect("an address"));
    assert_eq!(soon(nowhere.attach(&handle)).await.map(drop).expect_err("no engine").code(), "start");
    soon(found.stop()).await.expect("stop");
    assert!(soon(client.attach(&handle)).await.expect("attach").is_none());
    nothing_left("sandbar.test=same").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_goes_over_a_bridge_in_both_directions() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).label("sandbar.test", "much");
    let handle = create(&client).await.handle();
    let machine = soon(client.attach(&handle)).await.expect("attach").expect("it lives");
    let at = sandbar_machine::Target::from(sandbar_machine::MachinePath::workspace().join("large").expect("a path"));
    let large: Vec<u8> = (0..24_u32 << 20).map(|at| (at / 7) as u8).collect();
    soon(machine.write(&at, sandbar_machine::once(large.clone()))).await.expect("write");
    let both = tokio::join!(
        async { sandbar_machine::collect(soon(machine.read(&at)).await.expect("read"), 32 << 20).await.expect("read") },
        sh(&*machine, "head -c 20000000 /dev/zero | wc -c"),
        soon(machine.write(&at, sandbar_machine::once(large.clone()))),
    );
    assert!(both.0 == large);
    assert_eq!(both.1, "20000000\n");
    both.2.expect("write");
    soon(client.delete(&handle)).await.expect("delete");
    nothing_left("sandbar.test=much").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_goes_takes_its_bridge_along() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).label("sandbar.test", "goes");
    let machine = create(&client).await;
    let bridges = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'guest bridg[e]' | wc -l";
    for _ in 0..3 {
        let visitor = soon(client.attach(&machine.handle())).await.expect("attach").expect("it lives");
        assert_eq!(sh(&*machine, bridges).await, "1\n");
        drop(visitor);
        soon(async {
            while sh(&*machine, bridges).await != "0\n" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
    soon(machine.stop()).await.expect("stop");
    nothing_left("sandbar.test=goes").await;
}
