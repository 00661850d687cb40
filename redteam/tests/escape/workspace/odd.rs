//! Number 17: things that are no regular files, and one that is too big, for everything that reads or writes.

use std::{
    fs,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use futures::StreamExt;
use sandbar_machine::once;
use sandbar_sandbox::{
    Extract, LocalDir, Manifest, SandboxError,
    image::{ImageOutcome, ViewImageArgs},
    patch::PatchOptions,
};

use super::{
    stage::{Stage, brief, open, prompt, refused, soon},
    tarball::{FILE, Member, tar},
};
use crate::escape::{
    rig::{inside, run as run_inside},
    tally::Tally,
};

pub(super) async fn run(stage: &Stage<'_>, tally: &mut Tally) {
    run_inside(stage.machine().as_ref(), inside("plant", ["dir=/workspace".to_owned()])).await;
    let session = &stage.session;
    tally.control("B17", hangs(stage), "a harness that opens the FIFO waits, and the large file is that large");
    for name in ["fifo", "socket", "sparse"] {
        let image = async {
            match session.view_image(&ViewImageArgs::new(name)).await? {
                ImageOutcome::Image(_) => Ok(()),
                ImageOutcome::Refused(why) => {
                    Err(SandboxError::workspace_archive_read_error(name, format!("{:?}", why.reason)))
                }
            }
        };
        let start = Instant::now();
        let mut tried = vec![
            ("read", prompt(async { session.read(name).await.map(drop) }).await),
            ("list", prompt(async { session.list(name).await.map(drop) }).await),
            ("view-image", prompt(image).await),
            ("make-dir", prompt(session.make_dir(name)).await),
        ];
        let archive = Extract::new("a.tar", once(tar(&[Member(FILE, "x", "", 0o644, b"x")])));
        tried.push(("extract", prompt(session.extract(name, archive)).await));
        for (action, body) in [
            ("update", format!("*** Update File: {name}\n@@\n-x\n+y\n")),
            ("delete", format!("*** Delete File: {name}\n")),
            ("add", format!("*** Add File: {name}\n+y\n")),
            ("move", format!("*** Update File: {name}\n*** Move to: there\n@@\n-x\n+y\n")),
            ("below", format!("*** Add File: {name}/below\n+y\n")),
        ] {
            let patch = format!("*** Begin Patch\n{body}*** End Patch\n");
            let got = prompt(async { session.apply_patch(&patch, PatchOptions::default()).await.map(drop) }).await;
            tried.push((action, got));
        }
        for (action, got) in tried {
            tally.expect(&format!("B17.session-{action}-{name}"), refused(&got), brief(&got));
        }
        println!("{name}: everything answered after {:?}", start.elapsed());
    }
    whole(stage, tally).await;
    let got = prompt(session.write("fifo", "x")).await;
    tally.expect("B17.session-write-fifo", got != Err("HANGS".to_owned()), brief(&got));
    let got = prompt(session.remove("sparse")).await;
    tally.expect("B17.session-lives-on", got.is_ok() && session.running().await.unwrap_or(false), brief(&got));
    soon(session.delete()).await.expect("delete");
}

/// Whether a reader that just opens these files is held up.
fn hangs(stage: &Stage<'_>) -> bool {
    let fifo = stage.workspace.join("fifo");
    let (told, answer) = mpsc::channel();
    let opening = thread::spawn({
        let fifo = fifo.clone();
        move || told.send(fs::read(fifo).is_ok())
    });
    let waits = answer.recv_timeout(Duration::from_millis(500)).is_err();
    // Opens the FIFO for writing until the reader returns: the reader may start to wait only now.
    while !opening.is_finished() {
        drop(fs::File::options().read(true).write(true).open(&fifo));
        thread::sleep(Duration::from_millis(10));
    }
    let _told = opening.join();
    waits && fs::metadata(stage.workspace.join("sparse")).is_ok_and(|found| found.len() == 1 << 40)
}

/// Whole trees with such things in them.
async fn whole(stage: &Stage<'_>, tally: &mut Tally) {
    let saved = async {
        let mut stream = stage.session.persist_workspace().await?;
        let mut bytes = 0;
        while let Some(Ok(piece)) = stream.next().await {
            bytes += piece.len();
            if bytes > 1 << 20 {
                break;
            }
        }
        Ok(bytes)
    };
    let got = prompt(saved).await;
    tally.expect("B17.session-persist", got != Err("HANGS".to_owned()), format!("stopped after {got:?} bytes"));
    let manifest = Manifest::new().local_dir("copy", LocalDir::new(".")).base_dir(&stage.workspace);
    let start = Instant::now();
    let opened = open(stage.rig, manifest, &stage.rig.dir("odd-copy")).await;
    let told = opened.as_ref().map_or_else(SandboxError::full_message, |_| "it was copied".to_owned());
    tally.expect("B17.local-dir", opened.is_err(), format!("{told} after {:?}", start.elapsed()));
}
