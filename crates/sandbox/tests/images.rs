//! Looking at images on a real machine of this host, where paths are not always files.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use std::{io::Cursor, sync::Arc, time::Duration};

use image::{DynamicImage, ImageFormat as Format, RgbImage};
use sandbar_clients::UnixLocal;
use sandbar_machine::{Command, Machine, MachinePath, MachineSpec, SandboxClient, once};
use sandbar_sandbox::{
    Intent, Paths,
    image::{ImageOutcome, ImageViewer, ViewImageArgs},
};

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("took longer than a minute")
}

async fn sh(machine: &dyn Machine, script: &str) {
    let mut process = soon(machine.spawn(Command::new(["sh", "-c", script]))).await.expect("spawn");
    while soon(process.output.recv()).await.is_some() {}
}

async fn look(machine: &dyn Machine, path: &str) -> String {
    let paths = Paths::new(MachinePath::workspace());
    let viewed = soon(ImageViewer::new().view(machine, &paths, &ViewImageArgs::new(path), None)).await;
    match viewed.expect("inside the workspace") {
        ImageOutcome::Image(image) => format!("{} {}x{}", image.format.mime(), image.width, image.height),
        ImageOutcome::Refused(refusal) => refusal.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_regular_file_inside_is_read() {
    let machine: Arc<dyn Machine> = soon(UnixLocal::new().create(MachineSpec::default())).await.expect("create");
    let mut png = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(RgbImage::new(3000, 20)).write_to(&mut png, Format::Png).expect("encode");
    let paths = Paths::new(MachinePath::workspace());
    let target = paths.target("a.png", Intent::Write).expect("inside");
    soon(machine.write(&target, once(png.into_inner()))).await.expect("write");
    let script = "mkfifo fifo.png; mkdir dir.png; ln -s a.png link.png; ln -s fifo.png lure.png; ln -s dir.png way.png; \
        cp a.png /tmp/b.png; ln -s /tmp/b.png out.png; ln -s /dev/zero zero.png; ln -s self.png self.png; \
        cp a.png locked.png; chmod 0 locked.png; truncate -s 1T sparse.png; ln -s sparse.png long.png";
    sh(machine.as_ref(), script).await;
    let table = [
        ("a.png", "image/png 2048x14"),
        ("link.png", "image/png 2048x14"),
        ("fifo.png", "image path `fifo.png` is not a file"),
        ("dir.png", "image path `dir.png` is not a file"),
        ("sparse.png", "image path `sparse.png` is too large: the limit is 10MB; resize it first"),
        ("long.png", "image path `long.png` is too large: the limit is 10MB; resize it first"),
        ("missing.png", "image path `missing.png` was not found"),
        ("locked.png", "unable to read image at `locked.png`: denied"),
        ("out.png", "unable to read image at `out.png`: denied"),
        ("zero.png", "unable to read image at `zero.png`: denied"),
    ];
    for (path, expected) in table {
        assert_eq!(look(machine.as_ref(), path).await, expected, "{path}");
    }
    for path in ["lure.png", "way.png", "self.png"] {
        let text = look(machine.as_ref(), path).await;
        assert!(text.starts_with("unable to read image at"), "{path}: {text}");
    }
    soon(machine.stop()).await.expect("stop");
}
