//! A registry with a few small images on this host, for pulls without a network.

use std::{
    collections::HashMap,
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bollard::query_parameters::RemoveImageOptions;
use parking_lot::Mutex;
use sandbar_clients::{Docker, docker::Pull};
use sandbar_machine::{
    MachinePath, MachineSpec, SandboxClient, Target, collect,
    tar::{self, Kind, Member},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::bench::{engine, has_engine, left, nothing_left, soon};

fn digest(bytes: &[u8]) -> String {
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sha256sum");
    sum.stdin.take().expect("its input").write_all(bytes).expect("bytes");
    let said = String::from_utf8(sum.wait_with_output().expect("a sum").stdout).expect("text");
    format!("sha256:{}", said.split(' ').next().expect("a sum"))
}

/// Media type and content by path below `/v2/`.
type Shelf = HashMap<String, (&'static str, Vec<u8>)>;

/// Adds an image with one file.
fn shelve(shelf: &mut Shelf, name: &str, architecture: &str) {
    let text = format!("in {name}");
    let member = Member { size: text.len() as u64, ..Member::new(Kind::File, b"note", 0o644) };
    let mut layer = member.encode().to_vec();
    layer.extend_from_slice(text.as_bytes());
    layer.resize(layer.len() + tar::padding(text.len() as u64), 0);
    layer.extend_from_slice(&tar::end());
    let config = serde_json::json!({
        "os": "linux",
        "architecture": architecture,
        "config": { "Env": ["FROM_IMAGE=yes"] },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    let config = config.to_string().into_bytes();
    let part = |kind: &str, bytes: &[u8]| {
        serde_json::json!({
            "mediaType": format!("application/vnd.docker.{kind}"), "size": bytes.len(), "digest": digest(bytes),
        })
    };
    const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": part("container.image.v1+json", &config),
        "layers": [part("image.rootfs.diff.tar.gzip", &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    for place in ["1".to_owned(), digest(&manifest)] {
        shelf.insert(format!("{name}/manifests/{place}"), (MANIFEST, manifest.clone()));
    }
    for bytes in [config, layer] {
        shelf.insert(format!("{name}/blobs/{}", digest(&bytes)), ("application/octet-stream", bytes));
    }
}

async fn serve(stream: TcpStream, shelf: Arc<Shelf>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut asked = String::new();
    stream.read_line(&mut asked).await.ok()?;
    let mut line = String::new();
    while stream.read_line(&mut line).await.ok()? > 2 {
        line.clear();
    }
    let (method, path) = asked.split_once(' ')?;
    let path = path.split(' ').next()?.strip_prefix("/v2/")?;
    if path.starts_with("slow/blobs") {
        sleep(Duration::from_secs(30)).await;
    }
    let empty = ("text/plain", Vec::new());
    let (status, (kind, body)) = match shelf.get(path) {
        Some(found) => ("200 OK", found),
        None if path.is_empty() => ("200 OK", &empty),
        None => ("404 Not Found", &empty),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
         Docker-Distribution-Api-Version: registry/2.0\r\nConnection: close\r\n\r\n",
        body.len(),
        digest(body),
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    if method == "GET" {
        stream.write_all(body).await.ok()?;
    }
    stream.shutdown().await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_pulled_and_those_for_other_processors_refused() {
    if !has_engine().await {
        return;
    }
    let own = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let mut shelf = Shelf::new();
    for (name, architecture) in [("own", own), ("slow", own), ("foreign", "s390x")] {
        shelve(&mut shelf, name, architecture);
    }
    let (shelf, listener) = (Arc::new(shelf), TcpListener::bind("127.0.0.1:0").await.expect("a port"));
    let registry = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, shelf.clone()));
        }
    });
    let image = |name: &str| format!("{registry}/{name}:1");
    let client = |name: &str| Docker::image(image(name)).label("sandbar.test", "pulled");

    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let own = client("own").on_progress(move |progress| heard.lock().push(progress.clone()));
    let machine = soon(own.create(MachineSpec::default())).await.expect("create");
    let note = Target::from(MachinePath::new("/note").expect("a path"));
    assert_eq!(soon(collect(machine.read(&note).await.expect("read"), 99)).await.expect("bytes"), "in own");
    assert!(told.lock().iter().any(|progress| !progress.layer.is_empty()), "{told:?}");
    soon(machine.stop()).await.expect("stop");
    told.lock().clear();
    soon(soon(own.create(MachineSpec::default())).await.expect("create").stop()).await.expect("stop");
    assert!(told.lock().is_empty(), "it was there");
    soon(soon(own.pull(Pull::Always).create(MachineSpec::default())).await.expect("create").stop())
        .await
        .expect("stop");
    assert!(!told.lock().is_empty(), "it was asked for again");

    let foreign = soon(client("foreign").create(MachineSpec::default())).await.map(drop).expect_err("foreign");
    assert!(foreign.to_string().contains("is for s390x"), "{foreign}");
    let missing = soon(client("missing").create(MachineSpec::default())).await.map(drop).expect_err("missing");
    assert!(missing.code() == "start" && missing.to_string().contains("docker pull"), "{missing}");
    let slow = timeout(Duration::from_millis(700), client("slow").create(MachineSpec::default())).await;
    assert!(slow.is_err(), "it was to be slow");
    nothing_left("sandbar.test=pulled").await;
    for name in ["own", "foreign"] {
        let force = RemoveImageOptions { force: true, ..RemoveImageOptions::default() };
        soon(engine().remove_image(&image(name), Some(force), None)).await.expect("removed");
    }
    assert_eq!(left("sandbar.test=pulled").await, Vec::<String>::new());
}
