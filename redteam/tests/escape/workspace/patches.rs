//! Number 14: patches through links, at either end, in both profiles.

use std::fs;

use sandbar_sandbox::patch::{PatchOptions, Profile};

use super::{
    links::{WAYS, plant_all},
    stage::{Stage, brief, prompt, refused, soon},
};
use crate::escape::tally::Tally;

pub(super) async fn run(stage: &Stage<'_>, tally: &mut Tally) {
    plant_all(stage).await;
    stage.plant("echo own > own.txt").await;
    control(stage, tally);
    let out = stage.canary.text();
    let mut sites: Vec<(String, String)> =
        WAYS.iter().map(|(name, parent)| (format!("parent-{name}"), format!("{parent}/f"))).collect();
    for leaf in ["leaf", "climbing-leaf", "chained-leaf", "magic-leaf"] {
        sites.push((leaf.to_owned(), leaf.to_owned()));
    }
    for profile in [Profile::Codex, Profile::Sdk] {
        for (name, path) in &sites {
            each(stage, tally, profile, ("B14", name, path)).await;
        }
        for path in [
            format!("/proc/self/root{out}/f"),
            format!("/proc/1/root{out}/f"),
            format!("../proc/self/root{out}/f"),
            "/proc/self/fd/3".to_owned(),
            "/dev/fd/3".to_owned(),
            format!("..\\..\\..{}\\f", out.replace('/', "\\")),
            format!("{out}/f"),
        ] {
            let name =
                path.replace(&out, "/CANARY").replace(&out.replace('/', "\\"), "-CANARY").replace(['/', '\\'], "-");
            each(stage, tally, profile, ("B16", name.trim_start_matches('-'), &path)).await;
        }
        elsewhere(stage, tally, profile).await;
        undone(stage, tally, profile).await;
    }
    tally.expect("B14.session-canary-unchanged", stage.canary.untouched(), "the canary directory is as it was");
    soon(stage.session.delete()).await.expect("delete");
}

fn control(stage: &Stage<'_>, tally: &mut Tally) {
    let (workspace, canary) = (&stage.workspace, &stage.canary.dir);
    let add = fs::write(workspace.join("evildir/naive"), "x").is_ok();
    let update = fs::write(workspace.join("evildir/naive"), "y").is_ok();
    let moved = fs::rename(workspace.join("evildir/naive"), workspace.join("climb/moved")).is_ok();
    let delete = canary.join("moved").exists() && fs::remove_file(workspace.join("magic/moved")).is_ok();
    let all = add && update && moved && delete && stage.canary.untouched();
    tally.control("B14", all, "a patch that opens its paths adds, changes, moves and deletes on the host");
    let proc = fs::read_to_string(format!("/proc/self/root{}/f", stage.canary.text()));
    tally.control("B16", proc.is_ok_and(|text| text == stage.canary.secret), "the kernel's links are followed");
}

/// Every operation that names this path, each in a patch that also makes a file of its own.
fn operations(path: &str, secret: &str) -> [(&'static str, String); 6] {
    [
        ("add", format!("*** Add File: {path}\n+x\n")),
        ("add-beside", format!("*** Add File: {path}.new\n+x\n")),
        ("update", format!("*** Update File: {path}\n@@\n-{secret}\n+x\n")),
        ("delete", format!("*** Delete File: {path}\n")),
        ("move-from", format!("*** Update File: {path}\n*** Move to: taken.txt\n@@\n-{secret}\n+x\n")),
        ("move-to", format!("*** Update File: own.txt\n*** Move to: {path}\n@@\n-own\n+x\n")),
    ]
}

async fn each(stage: &Stage<'_>, tally: &mut Tally, profile: Profile, site: (&str, &str, &str)) {
    let (number, name, path) = site;
    for (operation, body) in operations(path, &stage.canary.secret) {
        // Beside a link that is a leaf is the workspace itself, which is fine.
        if operation == "add-beside" && !path.contains('/') {
            continue;
        }
        let patch = format!("*** Begin Patch\n*** Add File: first.txt\n+x\n{body}*** End Patch\n");
        let options = PatchOptions { profile, ..PatchOptions::default() };
        let got = prompt(stage.session.apply_patch(&patch, options)).await;
        let nothing = !stage.workspace.join("first.txt").exists() && !stage.workspace.join("taken.txt").exists();
        let own = fs::read_to_string(stage.workspace.join("own.txt")).is_ok_and(|text| text == "own\n");
        let held = refused(&got) && nothing && own && stage.canary.untouched();
        tally.expect(&format!("{number}.patch-{operation}-{name}-{profile:?}"), held, brief(&got));
    }
}

/// A patch whose own directory leads out.
async fn elsewhere(stage: &Stage<'_>, tally: &mut Tally, profile: Profile) {
    let out = stage.canary.text();
    for cwd in ["evildir".to_owned(), "climb".to_owned(), out.clone(), format!("../../..{out}"), "magic/sub".to_owned()]
    {
        let options = PatchOptions { profile, cwd: Some(cwd.clone()), ..PatchOptions::default() };
        let patch = "*** Begin Patch\n*** Add File: new.txt\n+x\n*** End Patch\n";
        let got = prompt(stage.session.apply_patch(patch, options)).await;
        let name = cwd.replace(&out, "/CANARY").replace('/', "-");
        let inside =
            got.is_ok() && stage.session.remove(format!("{}/new.txt", cwd.trim_start_matches('/'))).await.is_ok();
        // An absolute directory may be taken as one of the workspace's own.
        let held = (refused(&got) || inside) && stage.canary.untouched();
        tally.expect(&format!("B14.patch-in-directory-{name}-{profile:?}"), held, brief(&got));
    }
}

/// A patch is taken back after its directory was replaced by a link to one that looks the same.
async fn undone(stage: &Stage<'_>, tally: &mut Tally, profile: Profile) {
    let (canary, secret) = (&stage.canary, &stage.canary.secret);
    stage.plant("rm -rf u; mkdir u; printf 'old' > u/f").await;
    let patch = format!(
        "*** Begin Patch\n*** Update File: u/f\n@@\n-old\n+{secret}\n*** Add File: u/made/new\n+x\n*** End Patch\n"
    );
    let applied = prompt(stage.session.apply_patch(&patch, PatchOptions { profile, ..PatchOptions::default() })).await;
    let applied = applied.expect("a patch inside is fine");
    let made = fs::read(stage.workspace.join("u/f")).expect("what the patch wrote");
    fs::write(canary.dir.join("f"), &made).expect("the same outside");
    stage.plant(&format!("mv u u.away; ln -s {} u", canary.text())).await;
    let got = prompt(stage.session.patches().undo(&applied)).await;
    let same = fs::read(canary.dir.join("f")).is_ok_and(|bytes| bytes == made);
    fs::write(canary.dir.join("f"), secret).expect("as it was");
    stage.plant("rm -rf u u.away").await;
    tally.expect(&format!("B14.undo-through-a-link-{profile:?}"), refused(&got) && same, brief(&got));
}
