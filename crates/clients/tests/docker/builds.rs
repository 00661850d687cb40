//! Images that the engine builds: which files of a directory it receives.

use std::fs;

use sandbar_clients::{Docker, docker::Build};
use sandbar_machine::{MachineSpec, SandboxClient};

use crate::bench::{has_engine, sh, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_in_a_dockerignore_are_not_sent() {
    if !has_engine().await {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let write = |path: &str, text: &str| {
        let path = place.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("create");
        fs::write(path, text).expect("write");
    };
    write("docker/Dockerfile", "FROM sandbar-test:busybox\nCOPY . /src\n");
    write(
        ".dockerignore",
        "# what is made, and what is secret\ntarget\n**/*.key\n!public.key\ndocker\n.dockerignore\n",
    );
    for path in ["a.txt", "deep/b.txt", "target/c", "target/deep/d", "e.key", "deep/f.key", "public.key", "docker/g"] {
        write(path, "x");
    }
    let client = Docker::build(Build::from(place.path()).dockerfile("docker/Dockerfile").tag("sandbar-test:ignored"));
    let machine = soon(client.create(MachineSpec::default())).await.expect("create");
    let found = sh(&*machine, "cd /src && find . -type f").await;
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    assert_eq!(found, ["./a.txt", "./deep/b.txt", "./public.key"]);
    soon(machine.stop()).await.expect("stop");
}
