//! Number 18: entries, mounts and archives whose place leads through a planted link.

use std::{fs, os::unix::fs::symlink};

use sandbar_machine::once;
use sandbar_sandbox::{Dir, File, LocalDir, LocalFile, Manifest, Mount, Scope};

use super::{
    stage::{Canary, brief, open, plant, prompt, refused, soon},
    tarball::{DIR, FILE, HARD, LINK, Member, tar},
};
use crate::escape::{rig::Rig, tally::Tally};

pub(super) async fn run(rig: &Rig, tally: &mut Tally) {
    let workspace = rig.dir("places-workspace");
    let canary = Canary::new(rig.dir("places-canary"));
    let source = rig.dir("places-source");
    fs::create_dir_all(source.join("tree")).expect("a directory");
    fs::write(source.join("tree/file"), "x").expect("a file");
    symlink(&canary.dir, workspace.join("link")).expect("a link");
    symlink(format!("../../../../../..{}", canary.text()), workspace.join("climb")).expect("a link");
    symlink(canary.dir.join("f"), workspace.join("leaf")).expect("a link");
    let naive =
        fs::create_dir(workspace.join("link/naive")).is_ok() && fs::remove_dir(canary.dir.join("naive")).is_ok();
    tally.control("B18", naive, "a setup that makes the path makes it on the host");
    for (name, at) in [("absolute", "link"), ("climbing", "climb")] {
        let below = format!("{at}/new");
        let cases = [
            ("file", Manifest::new().entry(&below, File::new("x"))),
            ("file-over", Manifest::new().entry(format!("{at}/f"), File::new("x"))),
            ("dir", Manifest::new().dir(&below, Dir::new())),
            ("dir-with-file", Manifest::new().dir(at, Dir::new().file("new", "x"))),
            ("local-file", Manifest::new().local_file(&below, LocalFile::new("tree/file"))),
            ("local-dir", Manifest::new().local_dir(&below, LocalDir::new("tree"))),
            ("local-dir-over", Manifest::new().local_dir(at, LocalDir::new("tree"))),
            ("mount", Manifest::new().mount(&below, Mount::new("tree"))),
            ("mount-over", Manifest::new().mount(at, Mount::new("tree"))),
            ("mount-path", Manifest::new().mount("m", Mount::new("tree").mount_path(format!("/workspace/{below}")))),
        ];
        for (kind, manifest) in cases {
            let opened = prompt(open(rig, manifest.base_dir(&source), &workspace)).await;
            let held = refused(&opened) && canary.untouched();
            tally.expect(&format!("B18.entry-{kind}-below-{name}-link"), held, brief(&opened));
            if let Ok(session) = opened {
                soon(session.delete()).await.expect("delete");
            }
        }
    }
    let over = prompt(open(rig, Manifest::new().file("leaf", "x"), &workspace)).await;
    tally.expect("B18.entry-over-a-leaf", canary.untouched(), brief(&over));
    applied_again(rig, tally, &canary).await;
    hydrated(rig, tally, &canary).await;
}

/// The manifest is applied again, after its directories were replaced by links.
async fn applied_again(rig: &Rig, tally: &mut Tally, canary: &Canary) {
    let source = rig.dir("places-source");
    for (name, scope) in [("all", Scope::All), ("ephemeral", Scope::EphemeralOnly)] {
        let manifest = Manifest::new()
            .entry("a/b/file", File::new("x").ephemeral())
            .local_dir("c", LocalDir::new("tree").ephemeral())
            .base_dir(&source);
        let workspace = rig.dir(&format!("again-{name}"));
        for planted in ["a", "a/b", "c"] {
            let session = open(rig, manifest.clone(), &workspace).await.expect("a session");
            plant(&session, &format!("rm -rf {planted}; ln -s {} {planted}", canary.text())).await;
            let got = prompt(session.apply_manifest(scope)).await;
            let name = format!("B18.apply-{name}-after-planting-{}", planted.replace('/', "-"));
            tally.expect(&name, refused(&got) && canary.untouched(), brief(&got));
            plant(&session, &format!("rm {planted}")).await;
            soon(session.delete()).await.expect("delete");
        }
    }
}

/// Workspaces that come back from archives with links in them.
async fn hydrated(rig: &Rig, tally: &mut Tally, canary: &Canary) {
    let out = canary.text();
    let leaf = format!("{out}/f");
    let cases: [(&str, Vec<Member<'_>>); 7] = [
        ("link-then-file", vec![Member(LINK, "l", &out, 0o777, b""), Member(FILE, "l/new", "", 0o644, b"x")]),
        ("link-then-directory", vec![Member(LINK, "l", &out, 0o777, b""), Member(DIR, "l/new", "", 0o755, b"")]),
        ("link-then-itself", vec![Member(LINK, "l", &leaf, 0o777, b""), Member(FILE, "l", "", 0o644, b"x")]),
        ("climbing-link", vec![Member(LINK, "l", "../..", 0o777, b""), Member(FILE, "l/new", "", 0o644, b"x")]),
        ("hard-link-through-link", vec![Member(LINK, "l", &out, 0o777, b""), Member(HARD, "h", "l/f", 0o644, b"")]),
        ("hard-link-outside", vec![Member(HARD, "h", &leaf, 0o644, b"")]),
        ("climb", vec![Member(FILE, "../new", "", 0o644, b"x")]),
    ];
    let workspace = rig.dir("hydrate-workspace");
    let manifest = Manifest::new().dir("e", Dir::new().entry("kept", File::new("x").ephemeral()));
    let session = open(rig, manifest, &workspace).await.expect("a session");
    for (name, members) in cases {
        let got = prompt(session.hydrate_workspace(once(tar(&members)))).await;
        let held = refused(&got) && canary.untouched();
        tally.expect(&format!("B18.hydrate-{name}"), held, brief(&got));
    }
    // What is kept is below a directory that has become a link: emptying must not go through it.
    let good = tar(&[Member(FILE, "good", "", 0o644, b"x")]);
    for planted in [out.clone(), format!("../../../../../..{out}"), format!("/proc/self/root{out}")] {
        plant(&session, &format!("rm -rf e; ln -s {planted} e")).await;
        let got = prompt(session.hydrate_workspace(once(good.clone()))).await;
        let name = planted.replace(&out, "/CANARY").replace('/', "-");
        tally.expect(&format!("B18.hydrate-over-a-link{name}"), canary.untouched(), brief(&got));
    }
    soon(session.delete()).await.expect("delete");
}
