//! Hostile images: whatever they contain, the isolation holds or the machine does not start, and nothing is left
//! behind.

use std::{fs, time::Duration};

use bollard::{models::ContainerInspectResponse, query_parameters::RemoveImageOptions};
use futures::StreamExt;
use sandbar_clients::{Docker, docker::Build};
use sandbar_machine::{Machine, MachinePath, MachineSpec, SandboxClient, Target, once};
use tokio::time::{sleep, timeout};

use crate::bench::{engine, has_engine, nothing_left, run, sh, soon};

/// The expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Must {
    /// The machine works like any other.
    Work,
    /// The machine is refused with a reason.
    Refuse,
    /// Either result.
    Either,
}

/// Name, Dockerfile lines added to an image with a shell, and the expected result.
const IMAGES: &[(&str, &str, Must)] = &[
    ("long-passwd", "RUN busybox yes x:x:7:7::/:/bin/sh | busybox head -c 20000000 > /etc/passwd", Must::Work),
    ("binary-passwd", "RUN busybox head -c 1000000 /dev/urandom > /etc/passwd", Must::Work),
    ("passwd-as-directory", "RUN rm /etc/passwd && mkdir /etc/passwd", Must::Refuse),
    ("passwd-as-link", "RUN rm /etc/passwd && busybox ln -s /proc/self/environ /etc/passwd", Must::Work),
    ("agent-is-root", "RUN echo agent:x:0:0::/:/bin/sh > /etc/passwd", Must::Work),
    ("a-thousand-is-root", "RUN echo root:x:1000:0::/:/bin/sh > /etc/passwd", Must::Work),
    ("guest-dir-as-link", "RUN mkdir /evil && busybox ln -s /evil /.sandbar", Must::Work),
    ("guest-dir-as-file", "RUN echo x > /.sandbar", Must::Work),
    ("guest-as-link", "RUN mkdir /.sandbar && busybox ln -s /bin/busybox /.sandbar/guest", Must::Work),
    ("guest-as-directory", "RUN mkdir -p /.sandbar/guest/x /.sandbar/launch/x", Must::Work),
    ("workspace-as-file", "RUN echo x > /workspace", Must::Either),
    ("workspace-as-link", "RUN busybox ln -s /etc /workspace", Must::Either),
    ("workspace-over-the-guest", "RUN busybox ln -s /.sandbar /workspace", Must::Either),
    ("workspace-climbs", "RUN busybox ln -s ../../../../../../proc/1/root /workspace", Must::Either),
    ("home-as-link", "RUN busybox ln -s /etc /home", Must::Either),
    ("tmp-as-link", "RUN rm -r /tmp && busybox ln -s /.sandbar /tmp", Must::Either),
    ("entrypoint", "ENTRYPOINT [\"/bin/sh\", \"-c\", \"echo evil\"]\nCMD [\"evil\"]\nWORKDIR /evil", Must::Work),
    ("loader", "ENV LD_PRELOAD=/evil.so LD_LIBRARY_PATH=/evil LD_AUDIT=/evil.so GLIBC_TUNABLES=x=y", Must::Work),
    ("variables", "ENV HOME=/evil BASH_ENV=/evil ENV=/evil IFS=/ PATH=/bin", Must::Work),
    ("long-variables", "", Must::Work),
    ("health", "HEALTHCHECK --interval=1s --timeout=1s CMD [\"/bin/touch\", \"/tmp/evil\"]", Must::Work),
    ("signal", "STOPSIGNAL SIGSTOP", Must::Work),
    ("no-such-user", "USER unknown-user", Must::Refuse),
    ("last-user", "USER 4294967295", Must::Refuse),
    ("too-large-a-user", "USER 99999999999", Must::Refuse),
    ("root-by-another-name", "RUN echo toor:x:0:0::/:/bin/sh >> /etc/passwd\nUSER toor", Must::Refuse),
    ("root-s-group", "USER 1000:0", Must::Work),
    ("volumes", "VOLUME [\"/.sandbar\", \"/workspace\", \"/tmp\", \"/home/agent\", \"/evil\"]", Must::Either),
    (
        "labels",
        "LABEL sandbar.session=evil sandbar.owner=evil sandbar.pid=1 sandbar.boot=evil sandbar.pid-started=1",
        Must::Work,
    ),
];

/// Number of images that are tried at the same time.
const AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_image_gets_in_the_way_of_its_machine() {
    if !has_engine().await {
        return;
    }
    let tried = IMAGES.iter().map(|(name, lines, must)| async move {
        (*name, tokio::spawn(attempt(name, (*lines).to_owned(), *must)).await.is_ok())
    });
    let outcomes: Vec<_> = futures::stream::iter(tried).buffer_unordered(AT_ONCE).collect().await;
    let broken: Vec<_> = outcomes.iter().filter(|(_, fine)| !fine).map(|(name, _)| *name).collect();
    nothing_left("sandbar.test=hostile").await;
    for (name, ..) in IMAGES {
        let image = format!("sandbar-test:hostile-{name}");
        let _never_built = soon(engine().remove_image(&image, None::<RemoveImageOptions>, None)).await;
    }
    assert!(broken.is_empty(), "{broken:?}");
}

async fn attempt(name: &'static str, mut lines: String, must: Must) {
    if name == "long-variables" {
        lines = (0..4).map(|number| format!("ENV V{number}={}\n", "x".repeat(50_000))).collect();
    }
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("Dockerfile"), format!("FROM sandbar-test:busybox\n{lines}\n")).expect("a file");
    let build = Build::from(directory.path()).tag(format!("sandbar-test:hostile-{name}"));
    let client = Docker::build(build).label("sandbar.test", "hostile");
    // The image is built first, at the same time as others.
    let created = timeout(Duration::from_secs(300), client.create(MachineSpec::default())).await;
    let machine = match created.expect("took longer than five minutes") {
        Ok(machine) => machine,
        Err(error) => {
            let reason = std::error::Error::source(&error).map(ToString::to_string);
            println!("{name}: refused: {error} ({reason:?})");
            assert!(matches!(error.code(), "start" | "invalid" | "isolation"), "{name}: {error}");
            return assert_ne!(must, Must::Work, "{name}: {error}");
        }
    };
    assert_ne!(must, Must::Refuse, "{name} is let in");
    let container = machine.handle().state["container"].as_str().expect("a name").to_owned();
    let found = soon(engine().inspect_container(&container, None)).await.expect("it is there");
    walls_stand((name, must), &*machine, &found).await;
    soon(machine.stop()).await.expect("stop");
    drop(machine);
    // Volumes that the image declares have no label; they must end with the container.
    for volume in found.mounts.into_iter().flatten().filter_map(|mount| mount.name) {
        soon(async {
            while engine().inspect_volume(&volume).await.is_ok() {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
    println!("{name}: works");
}

async fn walls_stand((name, must): (&str, Must), machine: &dyn Machine, found: &ContainerInspectResponse) {
    let config = found.config.clone().unwrap_or_default();
    let labels = config.labels.unwrap_or_default();
    assert!(labels.iter().all(|(key, value)| !key.starts_with("sandbar.") || value != "evil"), "{name}: {labels:?}");
    let health = config.healthcheck.and_then(|health| health.test).unwrap_or_default();
    assert!(health.is_empty() || health == ["NONE"], "{name}: {health:?}");
    let status = run(machine, &["/bin/busybox", "cat", "/proc/self/status"]).await.0;
    let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned();
    for (key, value) in
        [("CapEff:", "0000000000000000"), ("CapPrm:", "0000000000000000"), ("NoNewPrivs:", "1"), ("Seccomp:", "2")]
    {
        assert_eq!(line(key), value, "{name}: {status}");
    }
    let root = line("Uid:").split_whitespace().any(|uid| uid == "0");
    assert!(!root, "{name}: commands run as root, which was not requested: {status}");
    for refused in [
        "echo x > /.sandbar/guest",
        "echo x > /.sandbar/launch",
        "echo x > /.sandbar/new",
        "rm /.sandbar/guest",
        "busybox mv /.sandbar /moved",
        "echo x > /proc/sys/kernel/core_pattern",
        "busybox mount -t tmpfs none /mnt",
        "test -e /tmp/evil",
    ] {
        let script = format!("({refused}) >/dev/null 2>&1 && echo done || echo refused");
        assert_eq!(sh(machine, &script).await, "refused\n", "{name}: {refused}");
    }
    let first = run(machine, &["/bin/busybox", "cat", "/proc/1/cmdline"]).await.0;
    assert!(first.starts_with("/.sandbar/guest\0serve"), "{name}: {first:?}");
    let file = Target::from(MachinePath::new("/workspace/file").expect("a path"));
    // If the image redirects the workspace, the permissions of its target apply.
    match soon(machine.write(&file, once("x"))).await {
        Ok(()) => {}
        Err(error) if must == Must::Either => println!("{name}: {error}"),
        Err(error) => panic!("{name}: {error}"),
    }
    if name == "health" {
        sleep(Duration::from_secs(3)).await;
        assert_eq!(sh(machine, "test -e /tmp/evil || echo none").await, "none\n", "{name}");
    }
}
