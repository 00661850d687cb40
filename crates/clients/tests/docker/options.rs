//! The options of a container and its isolation, observed from inside.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    sync::Arc,
};

use parking_lot::Mutex;
use sandbar_clients::{
    Docker,
    docker::{Build, Engine, InnerWalls, Network},
};
use sandbar_machine::{
    Access, Enforcement, HostMount, Isolation, Machine, MachinePath, MachineSpec, SandboxClient, Workspace,
};
use tokio::net::{TcpListener, UnixStream};

use crate::bench::{BUSYBOX, DEBIAN, EMPTY, client, has_engine, left, nonroot, nothing_left, run, sh, soon};

fn at(path: &str) -> MachinePath {
    MachinePath::new(path).expect("a path")
}

async fn create(client: &dyn SandboxClient) -> Arc<dyn Machine> {
    soon(client.create(MachineSpec::default())).await.expect("create")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_hardened_and_says_so() {
    if !has_engine().await {
        return;
    }
    for client in [client(DEBIAN), client(DEBIAN).user("root"), client(DEBIAN).read_only()] {
        let machine = create(&client).await;
        let features = machine.features();
        assert_eq!(features.isolation, Isolation::Container);
        for layer in ["container", "no capabilities", "landlock", "no_new_privs", "seccomp"] {
            assert!(features.layers.iter().any(|found| found.starts_with(layer)), "{layer}: {features:?}");
        }
        assert_eq!((features.limits.memory, features.limits.pids), (Enforcement::Hard, Enforcement::Hard));
        let status = sh(&*machine, "grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status").await;
        assert_eq!(status.matches("0000000000000000").count(), 5, "{status}");
        assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
        for refused in [
            "unshare -U true",
            "mount -t tmpfs none /mnt",
            "echo x > /proc/sys/kernel/hostname",
            "echo x > /.sandbar/guest",
            "echo x > /.sandbar/new",
            "mknod /tmp/device c 1 3",
            "kill -9 1; test ! -d /proc/1",
            "cat /proc/1/environ",
        ] {
            let script = format!("({refused}) >/dev/null 2>&1 && echo done || echo refused");
            assert_eq!(sh(&*machine, &script).await, "refused\n", "{refused}");
        }
        assert_eq!(sh(&*machine, "ls /sys/class/net").await, "lo\n");
        soon(machine.stop()).await.expect("stop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_as_the_right_user() {
    if !has_engine().await {
        return;
    }
    let table = [
        (client(DEBIAN), "uid=1000(agent) gid=1000(agent) groups=1000(agent)\n"),
        (client(BUSYBOX), "uid=1000(agent) gid=1000(agent) groups=1000(agent)\n"),
        (client(DEBIAN).user("root"), "uid=0(root) gid=0(root) groups=0(root)\n"),
        (client(DEBIAN).user("www-data"), "uid=33(www-data) gid=33(www-data) groups=33(www-data)\n"),
        (nonroot(), "uid=4321(agent) gid=1234(agent) groups=1234(agent)\n"),
    ];
    for (client, expected) in table {
        let machine = create(&client).await;
        assert_eq!(run(&*machine, &["id"]).await.0, expected);
        assert_eq!(
            sh(&*machine, "touch /workspace/a ~/b /tmp/c /dev/shm/d && echo fine").await,
            "fine\n",
            "{expected}"
        );
        soon(machine.stop()).await.expect("stop");
    }
    let stranger = client(DEBIAN).user("unknown-user").label("sandbar.test", "stranger");
    let unknown = soon(stranger.create(MachineSpec::default())).await.expect_err("unknown");
    assert_eq!(left("sandbar.test=stranger").await, Vec::<String>::new(), "a failed create leaves nothing, at once");
    assert_eq!(unknown.code(), "invalid", "{unknown}");
    assert!(unknown.to_string().contains("unknown-user"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chosen_options_take_effect() {
    if !has_engine().await {
        return;
    }
    let host = tempfile::tempdir().expect("a directory");
    fs::set_permissions(host.path(), fs::Permissions::from_mode(0o755)).expect("open to all");
    fs::write(host.path().join("note"), "from the host").expect("a file");
    let label = "sandbar.test=chosen";
    let client = client(DEBIAN)
        .env("CHOSEN", "client")
        .env("BOTH", "client")
        .port(4000)
        .bind(host.path(), at("/shown"), Access::ReadOnly)
        .network(Network::Bridge)
        .memory(96 << 20)
        .cpus(0.5)
        .pids(40)
        .label("sandbar.test", "chosen");
    let env = [("BOTH", "machine")];
    let machine = soon(client.create(MachineSpec::default().env(env))).await.expect("create");
    assert_eq!(machine.features().limits.cpu, Enforcement::Hard);
    assert_eq!(sh(&*machine, "echo $CHOSEN $BOTH; cat /shown/note").await, "client machine\nfrom the host");
    assert_eq!(sh(&*machine, "echo x 2>/dev/null >/shown/new || echo refused").await, "refused\n");
    assert!(sh(&*machine, "ls /sys/class/net").await.contains("eth0"));
    assert_eq!(
        soon(machine.ports().expect("ports").open(4001)).await.map(drop).expect_err("undeclared").code(),
        "invalid"
    );
    soon(machine.ports().expect("ports").open(4000)).await.expect("declared");
    // A memory bomb is killed, and the machine survives.
    let bomb = "b = []\nwhile True: b.append(bytearray(1 << 20))";
    assert_eq!(run(&*machine, &["python3", "-c", bomb]).await.1, Some(137));
    let forks = "import os, signal\nfor n in range(200):\n  if os.fork() == 0: signal.pause()";
    let (said, code) = run(&*machine, &["python3", "-c", forks]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Resource temporarily unavailable"), "{said}");
    soon(machine.stop()).await.expect("stop");
    nothing_left(label).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_directories_are_mounted_as_they_were_checked() {
    if !has_engine().await {
        return;
    }
    let host = tempfile::tempdir().expect("a directory");
    let work = host.path().join("work");
    fs::create_dir(&work).expect("a directory");
    std::os::unix::fs::chown(&work, Some(1234), Some(1234)).expect("another owner");
    fs::write(host.path().join("note"), "mounted").expect("a file");
    let note = HostMount {
        host: host.path().join("note"),
        inside: at("/workspace/a/note"),
        access: Access::ReadOnly,
        identity: None,
    };
    let spec = MachineSpec::default()
        .workspace(Workspace::Host { path: work.clone(), access: Access::ReadWrite })
        .mounts([note]);
    let machine = soon(client(DEBIAN).create(spec.clone())).await.expect("create");
    assert_eq!(sh(&*machine, "id -u; cat a/note; echo x > made").await, "1234\nmounted");
    assert_eq!(fs::metadata(work.join("made")).expect("it is there").uid(), 1234);
    soon(machine.stop()).await.expect("stop");
    assert!(work.exists(), "what is the host's stays");
    for shown in ["/var/run/docker.sock", "/run", "/"] {
        let workspace = Workspace::Host { path: shown.into(), access: Access::ReadOnly };
        let refused = soon(client(DEBIAN).create(MachineSpec::default().workspace(workspace))).await;
        assert_eq!(refused.map(drop).expect_err("refused").code(), "invalid", "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_is_not_there_or_does_not_build_says_so() {
    if !has_engine().await {
        return;
    }
    let missing =
        soon(client("sandbar-test:no-such").create(MachineSpec::default())).await.map(drop).expect_err("missing");
    assert!(missing.to_string().contains("docker pull sandbar-test:no-such"), "{missing}");
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = said.clone();
    let built = nonroot().on_progress(move |progress| heard.lock().push(progress.status.clone()));
    soon(create(&built).await.stop()).await.expect("stop");
    assert!(said.lock().concat().contains("FROM sandbar-test:bookworm"), "{said:?}");
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("Dockerfile"), "FROM sandbar-test:busybox\nRUN false\n").expect("a file");
    let broken = Docker::build(Build::from(directory.path()));
    let broken = soon(broken.create(MachineSpec::default())).await.map(drop).expect_err("broken");
    assert_eq!(broken.code(), "start", "{broken}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_reached_over_tcp_too() {
    if !has_engine().await {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("tcp://{}", listener.local_addr().expect("its address"));
    let relay = tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.expect("a connection");
            tokio::spawn(async move {
                let mut far = UnixStream::connect("/var/run/docker.sock").await.expect("the engine");
                drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
            });
        }
    });
    let client = client(DEBIAN).engine(Engine::at(&address).expect("an address"));
    let machine = create(&client).await;
    assert_eq!(sh(&*machine, "head -c 3000000 /dev/zero | wc -c").await, "3000000\n");
    soon(machine.stop()).await.expect("stop");
    let workspace = Workspace::Host { path: "/usr/share".into(), access: Access::ReadOnly };
    let refused = soon(client.create(MachineSpec::default().workspace(workspace))).await.map(drop);
    assert!(refused.expect_err("elsewhere").to_string().contains("another host"));
    relay.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weaker_isolation_is_explicit_and_reported() {
    if !has_engine().await {
        return;
    }
    let machine = create(&client(EMPTY).inner_walls(InnerWalls::EngineOnly)).await;
    assert_eq!(machine.features().layers, ["container", "no_new_privs"]);
    soon(machine.stop()).await.expect("stop");
}
