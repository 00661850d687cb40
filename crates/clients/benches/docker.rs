//! The Docker client against the engine's own calls and against local machines: the middle of several turns each.
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a benchmark")]

use std::{
    future::Future,
    time::{Duration, Instant},
};

use bollard::{
    body_full,
    models::{ContainerCreateBody, HostConfig},
    query_parameters::{CreateContainerOptions, RemoveContainerOptions, UploadToContainerOptions},
};
use sandbar_clients::{Docker, GUEST, UnixLocal, docker::Pull};
use sandbar_machine::{
    Command, Machine, MachinePath, MachineSpec, Output, SandboxClient, Target, collect, once,
    tar::{self, Kind, Member},
};

const IMAGE: &str = "sandbar-test:bookworm";

#[tokio::main]
async fn main() {
    let client = Docker::image(IMAGE).pull(Pull::Never);
    let raw = bollard::Docker::connect_with_defaults().expect("an engine");
    lives(&client, &raw).await;
    let docker = client.create(MachineSpec::default()).await.expect("a container");
    let local = UnixLocal::new().create(MachineSpec::default()).await.expect("a local machine");
    for (name, machine) in [("docker", &docker), ("local", &local)] {
        works(name, &**machine).await;
        machine.stop().await.expect("stop");
    }
}

fn told(name: &str, mut turns: Vec<Duration>) {
    turns.sort_unstable();
    println!("{name:<44} {:>9.2} ms", turns[turns.len() / 2].as_secs_f64() * 1e3);
}

async fn timed<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let begun = Instant::now();
    let done = work.await;
    (begun.elapsed(), done)
}

/// Coming and going, beside what the engine takes for the same without us.
async fn lives(client: &Docker, raw: &bollard::Docker) {
    let (mut up, mut down, mut raw_up, mut raw_down) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for turn in 0..11 {
        let (took, machine) = timed(async {
            let machine = client.create(MachineSpec::default()).await.expect("create");
            run(&*machine, &["true"]).await;
            machine
        })
        .await;
        up.push(took);
        down.push(timed(async { machine.stop().await.expect("stop") }).await.0);
        let name = format!("sandbar-bench-{}-{turn}", std::process::id());
        raw_up.push(timed(raw_create(raw, &name)).await.0);
        let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        raw_down.push(timed(raw.remove_container(&name, Some(force))).await.0);
    }
    told("create to first exec", up);
    told("  engine: create, upload, start", raw_up);
    told("stop and delete", down);
    told("  engine: forced removal", raw_down);
}

async fn raw_create(raw: &bollard::Docker, name: &str) {
    let body = ContainerCreateBody {
        image: Some(IMAGE.to_owned()),
        entrypoint: Some(vec!["/bin/sleep".to_owned(), "1000".to_owned()]),
        volumes: Some(vec!["/workspace".to_owned()]),
        host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    let named = CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
    raw.create_container(Some(named), body).await.expect("create");
    let root = UploadToContainerOptions { path: "/".to_owned(), ..UploadToContainerOptions::default() };
    let archive = archive([("guest".to_owned(), GUEST.to_vec())]);
    raw.upload_to_container(name, Some(root), body_full(archive.into())).await.expect("upload");
    raw.start_container(name, None).await.expect("start");
}

fn archive(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, contents) in files {
        let size = contents.len() as u64;
        bytes.extend_from_slice(&Member { size, ..Member::new(Kind::File, name.as_bytes(), 0o644) }.encode());
        bytes.extend_from_slice(&contents);
        bytes.resize(bytes.len() + tar::padding(size), 0);
    }
    bytes.extend_from_slice(&tar::end());
    bytes
}

async fn run(machine: &dyn Machine, argv: &[&str]) -> usize {
    let mut process = machine.spawn(Command::new(argv.iter().copied())).await.expect("spawn");
    let mut printed = 0;
    while let Some(output) = process.output.recv().await {
        if let Output::Stdout(bytes) = output.expect("output") {
            printed += bytes.len();
        }
    }
    printed
}

/// What an agent does all day.
async fn works(name: &str, machine: &dyn Machine) {
    let at = |name: &str| Target::from(MachinePath::workspace().join(name).expect("a path"));
    let (mut exec, mut write, mut read, mut unpack, mut out) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..101 {
        exec.push(timed(run(machine, &["true"])).await.0);
        write.push(timed(async { machine.write(&at("file"), once(vec![7; 1024])).await.expect("write") }).await.0);
        let one = async { collect(machine.read(&at("file")).await.expect("read"), 4096).await.expect("bytes") };
        read.push(timed(one).await.0);
    }
    let files = archive((0..100).map(|n| (format!("many/{n}"), vec![b'x'; 512])));
    for _ in 0..11 {
        let root = Target::from(MachinePath::workspace());
        unpack.push(timed(async { machine.unpack(&root, once(files.clone())).await.expect("unpack") }).await.0);
    }
    for _ in 0..5 {
        let (took, printed) = timed(run(machine, &["head", "-c", "67108864", "/dev/zero"])).await;
        assert_eq!(printed, 64 << 20);
        out.push(took);
    }
    told(&format!("{name}: exec of true"), exec);
    told(&format!("{name}: write 1 KB"), write);
    told(&format!("{name}: read 1 KB"), read);
    told(&format!("{name}: 100 files in one archive"), unpack);
    told(&format!("{name}: 64 MB of output"), out);
}
