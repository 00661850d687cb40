//! Shared functions of these tests: the engine, if there is one, and the containers in it.
#![allow(dead_code, reason = "each test program needs a part of it")]

use std::{collections::HashMap, future::Future, time::Duration};

use bollard::query_parameters::{ListContainersOptions, ListVolumesOptions};
use sandbar_clients::{
    Docker,
    docker::{Build, Pull},
};
use sandbar_machine::{Command, Machine, Output};

pub(crate) const DEBIAN: &str = "sandbar-test:bookworm";
pub(crate) const BUSYBOX: &str = "sandbar-test:busybox";
pub(crate) const EMPTY: &str = "sandbar-test:empty";

/// Whether these tests can run. `cargo xtask setup` installs an engine and the images.
pub(crate) async fn has_engine() -> bool {
    if let Ok(docker) = bollard::Docker::connect_with_defaults() {
        let answers = tokio::time::timeout(Duration::from_secs(60), docker.inspect_image(DEBIAN)).await;
        if matches!(answers, Ok(Ok(_))) {
            return true;
        }
    }
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no engine with the test images: run `cargo xtask setup`");
    println!("LEFT OUT: no Docker engine with the image {DEBIAN}; `cargo xtask setup` puts both in place");
    false
}

/// A client for this image, which must be present.
pub(crate) fn client(image: &str) -> Docker {
    Docker::image(image).pull(Pull::Never)
}

/// A client for an image that the engine builds, whose user is an ordinary one without a name.
pub(crate) fn nonroot() -> Docker {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docker/nonroot");
    Docker::build(Build::from(place).arg("USER", "4321:1234").tag("sandbar-test:nonroot"))
}

pub(crate) fn engine() -> bollard::Docker {
    bollard::Docker::connect_with_defaults().expect("a connection")
}

/// Names of the containers and volumes with this label.
pub(crate) async fn left(label: &str) -> Vec<String> {
    let filters: HashMap<String, Vec<String>> = [("label".to_owned(), vec![label.to_owned()])].into();
    let docker = engine();
    let options =
        ListContainersOptions { all: true, filters: Some(filters.clone()), ..ListContainersOptions::default() };
    let containers = soon(docker.list_containers(Some(options))).await.expect("containers");
    let volumes =
        soon(docker.list_volumes(Some(ListVolumesOptions { filters: Some(filters) }))).await.expect("volumes");
    let volumes = volumes.volumes.unwrap_or_default().into_iter().map(|volume| volume.name);
    containers.into_iter().filter_map(|container| container.id).chain(volumes).collect()
}

/// Waits until no container and no volume with this label exists.
pub(crate) async fn nothing_left(label: &str) {
    soon(async {
        while !left(label).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("took longer than a minute")
}

/// Output and exit code of a command.
pub(crate) async fn run(machine: &dyn Machine, argv: &[&str]) -> (String, Option<i32>) {
    let mut process = soon(machine.spawn(Command::new(argv.iter().copied()))).await.expect("spawn");
    let mut text = Vec::new();
    // A background process of the command may keep the output open.
    let code = loop {
        match soon(process.output.recv()).await.transpose().expect("output") {
            Some(Output::Stdout(bytes) | Output::Stderr(bytes)) => text.extend_from_slice(&bytes),
            Some(Output::Omitted(count)) => panic!("{count} bytes were omitted"),
            Some(Output::Exit(exit)) => break Some(exit.code),
            None => break None,
        }
    };
    (String::from_utf8_lossy(&text).into_owned(), code)
}

/// Output of a script.
pub(crate) async fn sh(machine: &dyn Machine, script: &str) -> String {
    run(machine, &["sh", "-c", script]).await.0
}
