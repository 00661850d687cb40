//! Numbers 11, 12, 15 and 16: links that are there before a session comes by.

use std::fs;

use sandbar_machine::collect;
use sandbar_sandbox::{
    Exec, Extract, LocalDir, Manifest, SandboxSession, Symlinks,
    image::{ImageOutcome, ViewImageArgs},
};

use super::{
    stage::{Stage, brief, open, prompt, refused, soon},
    tarball::{FILE, Member, tar},
};
use crate::escape::tally::Tally;

pub(super) async fn run(stage: &Stage<'_>, tally: &mut Tally) {
    plant_all(stage).await;
    controls(stage, tally);
    for (name, parent) in WAYS {
        reads(stage, tally, name, parent).await;
        changes(stage, tally, name, parent).await;
    }
    leaves(stage, tally).await;
    magic(stage, tally).await;
    out_again(stage, tally).await;
    removal(stage, tally).await;
    tally.expect("B12.session-canary-unchanged", stage.canary.untouched(), "the canary directory is as it was");
    soon(stage.session.delete()).await.expect("delete");
}

/// Ways to the canary's directory, each by the name of its link.
pub(super) const WAYS: [(&str, &str); 5] = [
    ("absolute", "evildir"),
    ("climbing", "climb"),
    ("chained", "chain"),
    ("nested", "deep/er/evildir"),
    ("through-proc", "magic"),
];

/// Links of every kind, planted by a command inside.
pub(super) async fn plant_all(stage: &Stage<'_>) {
    let out = stage.canary.text();
    stage
        .plant(&format!(
            "ln -s {out} evildir; ln -s ../../../../../../../..{out} climb; ln -s step chain; ln -s evildir step; \
             mkdir -p deep/er; ln -s {out} deep/er/evildir; ln -s /proc/self/root{out} magic; \
             ln -s {out}/f leaf; ln -s ../../../../../../../..{out}/f climbing-leaf; ln -s leaf chained-leaf; \
             ln -s /proc/self/root{out}/f magic-leaf; ln -s {out}/not-there dangling; ln -s loop loop"
        ))
        .await;
}

fn controls(stage: &Stage<'_>, tally: &mut Tally) {
    let (workspace, canary) = (&stage.workspace, &stage.canary);
    let all = |works: &dyn Fn(&str) -> bool| WAYS.iter().all(|(_, parent)| works(parent));
    let reads = all(&|parent| {
        let at = workspace.join(parent);
        fs::read_to_string(at.join("f")).is_ok_and(|text| text == canary.secret)
            && fs::metadata(at.join("f")).is_ok()
            && fs::read_dir(at).is_ok_and(|found| found.count() == 2)
    });
    tally.control("B11", reads, "a harness that opens, looks at or lists the path is led to the host");
    let writes = all(&|parent| {
        let at = workspace.join(parent);
        fs::write(at.join("naive"), "x").is_ok()
            && fs::remove_file(canary.dir.join("naive")).is_ok()
            && fs::create_dir(at.join("naive")).is_ok()
            && fs::remove_dir(canary.dir.join("naive")).is_ok()
    });
    tally.control("B12", writes, "a harness that writes to or makes the path does so on the host");
    fs::write(canary.dir.join("naive"), "x").expect("a file to lose");
    let removes =
        fs::remove_file(workspace.join("evildir/naive")).is_ok() && fs::metadata(canary.dir.join("naive")).is_err();
    tally.control("B15", removes, "a harness that removes the path removes it on the host");
    let proc =
        fs::read_to_string(format!("/proc/self/root{}/f", canary.text())).is_ok_and(|text| text == canary.secret);
    tally.control("B16", proc, "on the host the kernel's links are followed");
}

/// Everything that looks.
async fn looks(session: &SandboxSession, path: &str, dir: &str) -> Vec<(&'static str, Result<Vec<u8>, String>)> {
    let streamed = async {
        let stream = session.read_stream(path).await?;
        Ok(collect(stream, 1 << 20).await.map(|bytes| bytes.to_vec()).unwrap_or_default())
    };
    let image = async {
        match session.view_image(&ViewImageArgs::new(path)).await? {
            ImageOutcome::Image(view) => Ok(view.bytes.to_vec()),
            ImageOutcome::Refused(refusal) => {
                Err(sandbar_sandbox::SandboxError::workspace_archive_read_error(path, format!("{refusal:?}")))
            }
        }
    };
    vec![
        ("read", prompt(async { Ok(session.read(path).await?.to_vec()) }).await),
        ("read-stream", prompt(streamed).await),
        ("view-image", prompt(image).await),
        ("stat", prompt(async { Ok(format!("{:?}", session.stat(path).await?).into_bytes()) }).await),
        ("list", prompt(async { Ok(format!("{:?}", session.list(dir).await?).into_bytes()) }).await),
    ]
}

async fn reads(stage: &Stage<'_>, tally: &mut Tally, name: &str, parent: &str) {
    for (action, got) in looks(&stage.session, &format!("{parent}/f"), parent).await {
        tally.expect(&format!("B11.session-{action}-{name}"), refused(&got), brief(&got));
    }
}

/// Everything that changes.
async fn alters(session: &SandboxSession, parent: &str) -> Vec<(&'static str, Result<(), String>)> {
    let packed = tar(&[Member(FILE, "unpacked", "", 0o644, b"x")]);
    let archive = || Extract::new("a.tar", sandbar_machine::once(packed.clone()));
    let streamed = sandbar_machine::once("x");
    vec![
        ("write-new", prompt(session.write(format!("{parent}/new"), "x")).await),
        ("write-old", prompt(session.write(format!("{parent}/f"), "x")).await),
        ("write-deeper", prompt(session.write(format!("{parent}/sub/more/new"), "x")).await),
        ("write-stream", prompt(session.write_stream(format!("{parent}/new"), streamed)).await),
        ("make-dir", prompt(session.make_dir(format!("{parent}/made"))).await),
        ("remove", prompt(session.remove(format!("{parent}/f"))).await),
        ("remove-tree", prompt(session.remove(format!("{parent}/sub"))).await),
        ("extract", prompt(session.extract(parent, archive())).await),
        ("extract-below", prompt(session.extract(format!("{parent}/into"), archive())).await),
    ]
}

async fn changes(stage: &Stage<'_>, tally: &mut Tally, name: &str, parent: &str) {
    for (action, got) in alters(&stage.session, parent).await {
        let number = if action.starts_with("remove") { "B15" } else { "B12" };
        let held = refused(&got) && stage.canary.untouched();
        tally.expect(&format!("{number}.session-{action}-{name}"), held, brief(&got));
    }
}

/// Links that are themselves what is read or written.
async fn leaves(stage: &Stage<'_>, tally: &mut Tally) {
    for leaf in ["leaf", "climbing-leaf", "chained-leaf", "magic-leaf", "loop"] {
        let got = prompt(stage.session.read(leaf)).await;
        tally.expect(&format!("B11.session-read-{leaf}"), refused(&got), brief(&got));
        let got = prompt(stage.session.write(leaf, "x")).await;
        tally.expect(&format!("B12.session-write-{leaf}"), refused(&got) && stage.canary.untouched(), brief(&got));
        let got = prompt(stage.session.make_dir(leaf)).await;
        tally.expect(&format!("B12.session-make-dir-{leaf}"), refused(&got) && stage.canary.untouched(), brief(&got));
    }
    let got = prompt(stage.session.write("dangling", "x")).await;
    tally.expect("B12.session-write-dangling", refused(&got) && stage.canary.untouched(), brief(&got));
    // Looking at a link tells about the link.
    let got = prompt(stage.session.stat("leaf")).await;
    let own = matches!(&got, Ok(Some(entry)) if entry.kind == sandbar_machine::EntryKind::Symlink);
    tally.expect("B11.session-stat-leaf", own, format!("{got:?}"));
}

/// Number 16: the kernel's own links as paths of a session.
async fn magic(stage: &Stage<'_>, tally: &mut Tally) {
    let out = stage.canary.text();
    for dir in [
        format!("/proc/self/root{out}"),
        format!("/proc/1/root{out}"),
        format!("/proc/self/cwd/../../..{out}"),
        format!("../proc/self/root{out}"),
        "/proc/self/fd/3".to_owned(),
        "/dev/fd/3".to_owned(),
        "/proc/1/cwd".to_owned(),
    ] {
        let name = dir.replace(&out, "/CANARY").replace('/', "-");
        for (action, got) in looks(&stage.session, &format!("{dir}/f"), &dir).await {
            tally.expect(&format!("B16.session-{action}{name}"), refused(&got), brief(&got));
        }
        let tried = alters(&stage.session, &dir).await;
        let done: Vec<_> = tried.iter().filter(|(_, got)| !refused(got)).map(|(action, _)| *action).collect();
        tally.expect(
            &format!("B16.session-change{name}"),
            done.is_empty() && stage.canary.untouched(),
            format!("{} refused, done: {done:?}", tried.len() - done.len()),
        );
    }
    let got = prompt(stage.session.exec(Exec::new(["cat", "f"]).cwd(format!("/proc/self/root{out}")))).await;
    tally.expect("B16.session-exec-cwd", refused(&got), brief(&got));
}

/// What goes out of a workspace: saved whole, or copied into another session as a directory of the host.
async fn out_again(stage: &Stage<'_>, tally: &mut Tally) {
    let packed = prompt(async {
        let stream = stage.session.persist_workspace().await?;
        Ok(collect(stream, 64 << 20).await.map(|bytes| bytes.to_vec()).unwrap_or_default())
    })
    .await;
    let held = packed.as_ref().is_ok_and(|bytes| !bytes.is_empty() && !stage.canary.is_in(bytes));
    tally.expect("B11.session-persist", held, "the saved workspace holds the links and not what they lead to");
    for (name, symlinks) in [("reject", Symlinks::Reject), ("drop", Symlinks::Drop), ("preserve", Symlinks::Preserve)] {
        let entry = LocalDir::new(".").symlinks(symlinks);
        let manifest = Manifest::new().local_dir("copy", entry).base_dir(&stage.workspace);
        let copy = stage.rig.dir(&format!("copy-{name}"));
        let opened = open(stage.rig, manifest, &copy).await;
        let told = opened.as_ref().map_or_else(|error| error.full_message(), |_| "it was copied".to_owned());
        if let Ok(session) = opened {
            soon(session.delete()).await.expect("delete");
        }
        let leaked = super::stage::everything(&copy).iter().any(|(_, bytes)| stage.canary.is_in(bytes));
        tally.expect(&format!("B11.session-local-dir-{name}"), !leaked, told);
    }
    for source in ["leaf", "evildir/f", "climb/f", "magic/f"] {
        let manifest =
            Manifest::new().local_file("copy", sandbar_sandbox::LocalFile::new(source)).base_dir(&stage.workspace);
        let copy = stage.rig.dir("copy-file");
        let opened = open(stage.rig, manifest, &copy).await;
        let told = opened.as_ref().map_or_else(|error| error.full_message(), |_| "it was copied".to_owned());
        let leaked = super::stage::everything(&copy).iter().any(|(_, bytes)| stage.canary.is_in(bytes));
        let name = source.replace('/', "-");
        tally.expect(&format!("B11.session-local-file-{name}"), opened.is_err() && !leaked, told);
    }
}

/// Number 15: trees with links in them go, what the links lead to stays.
async fn removal(stage: &Stage<'_>, tally: &mut Tally) {
    let out = stage.canary.text();
    stage
        .plant(&format!("mkdir -p tree/a/b; ln -s {out} tree/a/b/out; ln -s {out}/f tree/leaf; ln -s .. tree/up"))
        .await;
    let got = prompt(stage.session.remove("tree")).await;
    let held = got.is_ok() && !stage.workspace.join("tree").exists() && stage.canary.untouched();
    tally.expect("B15.session-remove-a-tree-with-links", held, brief(&got));
    for link in ["evildir", "leaf", "climb", "magic"] {
        let got = prompt(stage.session.remove(link)).await;
        let gone = fs::symlink_metadata(stage.workspace.join(link)).is_err();
        tally.expect(
            &format!("B15.session-remove-only-the-link-{link}"),
            got.is_ok() && gone && stage.canary.untouched(),
            brief(&got),
        );
    }
    let got = prompt(stage.session.remove(".")).await;
    tally.expect("B15.session-remove-the-root", refused(&got), brief(&got));
}
