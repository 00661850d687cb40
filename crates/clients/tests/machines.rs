//! Promises of local machines only: they leave nothing behind, however they end.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use std::{path::Path, time::Duration};

use sandbar_clients::{UnixLocal, doctor};
use sandbar_guest::protocol::MARK;
use sandbar_machine::{
    Access, Command, Demand, HostMount, Machine, MachineError, MachineHandle, MachinePath, MachineSpec, Network,
    NetworkPolicy, Output, SandboxClient, Target, Workspace, collect,
    conformance::{as_ordinary_user, as_ordinary_user_with},
    once,
    tar::{self, Kind, Member},
};

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("took longer than a minute")
}

/// The standard output of a script.
async fn printed(machine: &dyn Machine, script: &str) -> String {
    let mut process = soon(machine.spawn(Command::new(["sh", "-c", script]))).await.expect("spawn");
    let mut text = Vec::new();
    while let Some(output) = soon(process.output.recv()).await {
        if let Output::Stdout(bytes) = output.expect("output") {
            text.extend_from_slice(&bytes);
        }
    }
    String::from_utf8(text).expect("text")
}

fn shown(host: &Path, inside: MachinePath, access: Access) -> HostMount {
    HostMount { host: host.to_owned(), inside, access, identity: None }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("read the state directory").next().is_none()
}

#[tokio::test]
async fn a_stopped_machine_leaves_nothing_in_the_state_directory() {
    let temp = tempfile::tempdir().expect("tempdir");
    let state = temp.path().join("state");
    let client = UnixLocal::new().state_dir(&state);
    let machine = soon(client.create(MachineSpec::default())).await.expect("create");
    assert!(!is_empty(&state));
    soon(machine.stop()).await.expect("stop");
    assert!(is_empty(&state));
}

#[tokio::test]
async fn a_dropped_machine_leaves_nothing_either_and_neither_does_a_cancelled_create() {
    let temp = tempfile::tempdir().expect("tempdir");
    let state = temp.path().join("state");
    let client = UnixLocal::new().state_dir(&state);
    drop(soon(client.create(MachineSpec::default())).await.expect("create"));
    let cancelled = tokio::time::timeout(Duration::from_micros(300), client.create(MachineSpec::default())).await;
    drop(cancelled);
    soon(async {
        while !is_empty(&state) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_host_directory_is_used_in_place_and_read_only_means_it() {
    let host = tempfile::tempdir().expect("tempdir");
    std::fs::write(host.path().join("in"), "from the host").expect("write");
    let client = UnixLocal::new();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let workspace = Workspace::Host { path: host.path().to_owned(), access };
        let machine = soon(client.create(MachineSpec::default().workspace(workspace))).await.expect("create");
        assert_eq!(printed(machine.as_ref(), "cat in").await, "from the host");
        let target = Target::from(MachinePath::new("/workspace/out").expect("path"));
        let written = soon(machine.write(&target, once("from inside"))).await;
        match access {
            Access::ReadOnly => assert_eq!(written.expect_err("read-only").code(), "denied"),
            Access::ReadWrite => written.expect("write"),
        }
        soon(machine.stop()).await.expect("stop");
    }
    assert_eq!(std::fs::read_to_string(host.path().join("out")).expect("read"), "from inside");
}

#[tokio::test]
async fn mounts_appear_where_they_were_declared() {
    let host = tempfile::tempdir().expect("tempdir");
    std::fs::write(host.path().join("note"), "mounted").expect("write");
    let mount = HostMount {
        host: host.path().to_owned(),
        inside: MachinePath::new("/data/here").expect("path"),
        access: Access::ReadOnly,
        identity: None,
    };
    let spec = MachineSpec::default().mounts([mount]);
    let machine = soon(UnixLocal::new().create(spec)).await.expect("create");
    let note = Target::from(MachinePath::new("/data/here/note").expect("path"));
    let bytes = soon(collect(soon(machine.read(&note)).await.expect("read"), 100)).await.expect("collect");
    assert_eq!(bytes, "mounted");
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn handles_of_others_are_refused_and_unknown_ones_are_gone() {
    let client = UnixLocal::new();
    let handle = |client: &str, state: serde_json::Value| MachineHandle { client: client.to_owned(), state };
    let others = handle("docker", serde_json::json!({"id": "x"}));
    assert_eq!(client.attach(&others).await.expect_err("other").code(), "invalid");
    let malformed = handle("local", serde_json::json!(7));
    assert_eq!(client.delete(&malformed).await.expect_err("malformed").code(), "invalid");
    let unknown = handle("local", serde_json::json!({"id": "0000000000000000"}));
    assert!(client.attach(&unknown).await.expect("attach").is_none());
    client.delete(&unknown).await.expect("delete");
}

#[tokio::test]
async fn a_faulty_specification_is_refused_by_name() {
    let refused = |spec: MachineSpec| async { UnixLocal::new().create(spec).await.map(drop).expect_err("refused") };
    let error = refused(MachineSpec::default().ports([0])).await;
    assert!(matches!(error, MachineError::Invalid { what, .. } if what.contains("port 0")));
    let policy = Network::Policy(NetworkPolicy::default().into());
    for (network, words) in [(policy, "enforce a network policy"), (Network::Open, "a network of its own")] {
        let error = refused(MachineSpec::default().network(network)).await;
        assert!(error.code() == "unsupported" && error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_hundred_megabytes_pass_through_without_filling_the_memory() {
    let machine = soon(UnixLocal::new().create(MachineSpec::default())).await.expect("create");
    let mut process = soon(machine.spawn(Command::new(["head", "-c", "100000000", "/dev/zero"]))).await.expect("spawn");
    let before = resident();
    let (mut total, mut peak) = (0, 0);
    while let Some(output) = soon(process.output.recv()).await {
        if let Output::Stdout(bytes) = output.expect("output") {
            total += bytes.len();
            peak = peak.max(resident());
        }
    }
    assert_eq!(total, 100_000_000);
    // It may even have less memory than before, if the host reclaimed some.
    let grown = peak.saturating_sub(before);
    assert!(grown < 16 << 20, "grew by {grown} bytes");
    soon(machine.stop()).await.expect("stop");
}

/// Resident memory of this process in bytes; other tests of this program share it.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: usize = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}

#[tokio::test]
async fn the_doctor_finds_a_level_that_works_or_says_what_to_do() {
    let report = doctor::probe(&UnixLocal::new()).await;
    assert!(report.kernel.starts_with("Linux "));
    for level in &report.levels {
        assert_eq!(level.works, level.exec_us.is_some(), "{level:?}");
        assert_eq!(level.works, level.missing.is_none(), "{level:?}");
    }
    assert_eq!(report.levels.len(), 3);
    let json = serde_json::to_value(&report).expect("json");
    assert!(json.get("levels").is_some_and(serde_json::Value::is_array));
}

/// The host's process id of the machine's PID 1: the child of the only supervisor that this process started.
fn guest_of_this_process() -> u32 {
    let parent_of = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let pids = std::fs::read_dir("/proc").expect("proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let me = std::process::id();
    pids.into_iter().find(|pid| parent_of(*pid).and_then(parent_of) == Some(me)).expect("a guest")
}

#[test]
fn the_guest_holds_nothing_of_the_host_open() {
    if !rustix::process::geteuid().is_root() {
        // Only root may inspect the guest, which is not dumpable.
        return;
    }
    // Runs in its own process, because the test inspects the grandchildren of this process.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        let machine = soon(UnixLocal::new().create(MachineSpec::default())).await.expect("create");
        let dir = std::fs::read_dir(format!("/proc/{}/fd", guest_of_this_process())).expect("its descriptors");
        let open: Vec<_> = dir.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
        assert!(open.len() > 3, "{open:?}");
        for target in &open {
            let name = target.to_string_lossy();
            let is_own = ["socket:", "pipe:", "anon_inode:"].iter().any(|kind| name.starts_with(kind));
            assert!(is_own || name == "/dev/null" || name == "/proc", "{name} is open in the guest: {open:?}");
        }
        soon(machine.stop()).await.expect("stop");
    });
}

#[tokio::test]
async fn a_planted_link_does_not_show_what_only_the_guest_may_see() {
    let machine = soon(UnixLocal::new().create(MachineSpec::default())).await.expect("create");
    let script = "ln -s /proc/1/maps planted; ln -s /proc/self/environ own; cat planted 2>&1 || true";
    assert!(printed(&*machine, script).await.contains("denied"), "a command cannot read it");
    for name in ["planted", "own"] {
        let target = Target::from(MachinePath::workspace().join(name).expect("path"));
        let refused = soon(machine.read(&target)).await.err().expect("neither can the host through a link");
        assert_eq!(refused.code(), "denied", "{refused}");
    }
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn other_files_beside_machines_are_not_swept() {
    let temp = tempfile::tempdir().expect("tempdir");
    let state = temp.path().join("state");
    std::fs::create_dir_all(state.join("precious/photos")).expect("something precious");
    std::fs::create_dir_all(state.join("fedcba9876543210/photos")).expect("something precious with an odd name");
    std::fs::create_dir_all(state.join("0123456789abcdef/home")).expect("what a dead machine left");
    std::fs::write(state.join("0123456789abcdef").join(MARK), "").expect("its mark");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&state, private).expect("a private directory");
    let machine = soon(UnixLocal::new().state_dir(&state).create(MachineSpec::default())).await.expect("create");
    assert!(state.join("precious/photos").exists() && state.join("fedcba9876543210/photos").exists());
    assert!(!state.join("0123456789abcdef").exists());
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn a_tree_of_its_own_replaces_the_hosts_programs() {
    let temp = tempfile::tempdir().expect("tempdir");
    std::fs::set_permissions(temp.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("open to all");
    let rootfs = temp.path().join("rootfs");
    for dir in ["bin", "etc", "opt", "dev", "proc"] {
        std::fs::create_dir_all(rootfs.join(dir)).expect("a directory");
    }
    std::fs::copy("/bin/busybox", rootfs.join("bin/busybox")).expect("busybox: `cargo xtask setup` installs it");
    for name in ["sh", "ls", "cat", "echo"] {
        std::os::unix::fs::symlink("busybox", rootfs.join("bin").join(name)).expect("a link");
    }
    std::fs::write(rootfs.join("opt/here"), "only here").expect("a file");
    let spec = MachineSpec::default().rootfs(rootfs.clone());
    let machine = soon(UnixLocal::new().create(spec)).await.expect("create");
    assert_eq!(printed(&*machine, "cat /opt/here").await, "only here");
    assert_eq!(printed(&*machine, "ls /usr 2>/dev/null || echo none").await, "none\n", "the host's programs");
    assert_eq!(printed(&*machine, "(echo x >/opt/new) 2>/dev/null || echo refused").await, "refused\n");
    assert_eq!(
        printed(&*machine, "echo mine >file; cat file; echo x >/dev/null; ls /proc/1/status").await,
        "mine\n/proc/1/status\n"
    );
    soon(machine.stop()).await.expect("stop");
    assert!(!rootfs.join("opt/new").exists());
}

#[tokio::test]
async fn a_mount_can_stand_inside_a_shown_directory() {
    let temp = tempfile::tempdir().expect("tempdir");
    let (work, out) = (temp.path().join("work"), temp.path().join("out"));
    for dir in [&work, &out] {
        std::fs::create_dir(dir).expect("a directory");
    }
    let inside = |path: &str| MachinePath::new(path).expect("path");
    let spec = MachineSpec::default().workspace(Workspace::Host { path: work, access: Access::ReadWrite }).mounts([
        shown(&out, inside("/workspace/a/out"), Access::ReadWrite),
        shown(Path::new("/etc/hostname"), inside("/workspace/name"), Access::ReadOnly),
    ]);
    let machine = soon(UnixLocal::new().create(spec)).await.expect("create");
    assert_eq!(printed(&*machine, "echo made >a/out/file; test -s name && echo named").await, "named\n");
    soon(machine.stop()).await.expect("stop");
    assert_eq!(std::fs::read_to_string(out.join("file")).expect("the file"), "made\n");
}

#[tokio::test]
async fn directories_are_unpacked_with_their_exact_modes_again_and_again() {
    let members = |names: &[(&str, Kind, u32)]| {
        let mut bytes = Vec::new();
        for (name, kind, mode) in names {
            bytes.extend_from_slice(&Member::new(*kind, name.as_bytes(), *mode).encode());
        }
        bytes.extend_from_slice(&tar::end());
        once(bytes)
    };
    // The archive declares the inner directory before the outer one, which is closed. A closed directory must be opened
    // from outside.
    let odd = [
        ("sealed/inner", Kind::Dir, 0o500),
        ("sealed/inner/file", Kind::File, 0o444),
        ("sealed", Kind::Dir, 0o000),
        ("plain", Kind::Dir, 0o755),
        ("plain/shut", Kind::Dir, 0o555),
        ("plain/shut/file", Kind::File, 0o644),
    ];
    let mut tidy = odd;
    tidy.sort_by_key(|(name, ..)| *name);
    let place = tempfile::tempdir().expect("tempdir");
    for isolation in [Demand::Full, Demand::Landlock] {
        let client = UnixLocal::new().state_dir(place.path().join("state"));
        let spec = MachineSpec::default().isolation(isolation);
        let machine = soon(client.create(spec)).await.expect("create");
        let root = machine.features().workspace.clone();
        let whole = Target::from(root.clone());
        let at = |name: &str| Target::from(root.join(name).expect("path"));
        for tree in [odd, tidy] {
            soon(machine.unpack(&whole, members(&tree))).await.expect("unpack");
            for (name, mode) in [("sealed", 0o000), ("plain", 0o755), ("plain/shut", 0o555), ("plain/shut/file", 0o644)]
            {
                let found = soon(machine.stat(&at(name))).await.expect("stat").expect("it is there");
                assert_eq!(found.mode & 0o7777, mode, "{name}");
            }
        }
        // Adding a file to a read-only directory that the archive does not contain is refused, unless the user is root.
        let late = members(&[("plain/shut/late", Kind::File, 0o644)]);
        match soon(machine.unpack(&whole, late)).await {
            Err(error) => assert_eq!(error.code(), "denied", "{error}"),
            Ok(()) => assert_eq!(isolation, Demand::Landlock),
        }
        soon(machine.remove(&at("sealed"))).await.expect("remove");
        assert_eq!(soon(machine.stat(&at("sealed"))).await.expect("stat"), None);
        soon(machine.stop()).await.expect("stop");
        assert!(is_empty(&place.path().join("state")));
    }
}

#[tokio::test]
async fn renames_elsewhere_on_the_host_do_not_disturb_a_machine() {
    let machine = soon(UnixLocal::new().create(MachineSpec::default())).await.expect("create");
    printed(machine.as_ref(), "mkdir -p dir/deep; echo found > dir/deep/file; ln -s ../dir/deep dir/back").await;
    let elsewhere = tempfile::tempdir().expect("a directory");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let renaming = std::thread::spawn({
        let (stop, place) = (stop.clone(), elsewhere.path().to_owned());
        move || {
            std::fs::write(place.join("a"), "x").expect("a file");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::rename(place.join("a"), place.join("b")).expect("renamed");
                std::fs::rename(place.join("b"), place.join("a")).expect("and back");
            }
        }
    });
    let path = MachinePath::workspace().join("dir/back/file").expect("a path");
    let target = Target::from(path).beneath(MachinePath::workspace());
    for _ in 0..3000 {
        let found = soon(machine.stat(&target)).await.expect("the file is beneath the workspace");
        assert!(found.is_some());
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    renaming.join().expect("the renaming thread");
    soon(machine.stop()).await.expect("stop");
}

/// Connects from a command to a service of the host in a mounted directory, and returns what the command prints.
async fn connects(access: Access) -> (String, Vec<String>) {
    let host = tempfile::tempdir().expect("a directory");
    let deep = host.path().join("a/b");
    std::fs::create_dir_all(&deep).expect("directories");
    let service = std::os::unix::net::UnixListener::bind(deep.join("service.sock")).expect("a socket");
    let workspace = Workspace::Host { path: host.path().to_owned(), access };
    let spec = MachineSpec::default().workspace(workspace);
    let machine = soon(UnixLocal::new().create(spec)).await.expect("create");
    let script = "exec python3 -c 'import socket; s = socket.socket(socket.AF_UNIX)\ntry:\n \
                  s.connect(\"/workspace/a/b/service.sock\"); print(\"connected\")\nexcept OSError as e: print(e.strerror)'";
    let said = printed(machine.as_ref(), script).await;
    let layers = machine.features().layers.clone();
    soon(machine.stop()).await.expect("stop");
    drop(service);
    (said.trim().to_owned(), layers)
}

#[tokio::test]
async fn services_below_a_read_only_place_cannot_be_used() {
    let (said, layers) = connects(Access::ReadOnly).await;
    assert_eq!(said, "Connection refused");
    assert!(layers.iter().any(|layer| layer == "read-only sockets covered"), "{layers:?}");
    assert_eq!(connects(Access::ReadWrite).await.0, "connected");
}

#[tokio::test]
async fn a_machine_is_made_in_the_usual_place_or_in_the_users_own() {
    let machine = soon(UnixLocal::new().create(MachineSpec::default())).await.expect("create");
    assert_eq!(printed(machine.as_ref(), "echo made").await, "made\n");
    soon(machine.stop()).await.expect("stop");
}

#[test]
fn another_user_cannot_take_the_place_of_the_state_directory() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        return;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").expect("accounts");
    let user =
        passwd.lines().find(|line| line.starts_with("sandbar-test:")).expect("`cargo xtask setup` makes the user");
    let uid: u32 = user.split(':').nth(2).and_then(|uid| uid.parse().ok()).expect("a number");
    let place = tempfile::tempdir().expect("a directory");
    let [tmp, home] = ["tmp", "home"].map(|name| place.path().join(name));
    for (dir, mode) in [(place.path(), 0o755), (&tmp, 0o1777), (&home, 0o700)] {
        std::fs::create_dir_all(dir).expect("a directory");
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).expect("its mode");
    }
    chown(&home, Some(uid), Some(uid)).expect("it is given away");
    std::fs::create_dir(tmp.join(format!("sandbar-{uid}"))).expect("taken by root");
    let variables = [("TMPDIR", tmp.as_os_str()), ("HOME", home.as_os_str())];
    as_ordinary_user_with(&["--exact", "a_machine_is_made_in_the_usual_place_or_in_the_users_own"], &variables);
    assert!(home.join(".local/state/sandbar/machines").is_dir());
}

#[test]
fn an_ordinary_user_cannot_use_services_either() {
    as_ordinary_user(&["--exact", "services_below_a_read_only_place_cannot_be_used"]);
}
