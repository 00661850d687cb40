//! Numbers 13 and 14 while they happen: a directory and a link to the canary change places as fast as they can.

use std::{collections::BTreeMap, fs, time::Instant};

use sandbar_machine::{Process, collect, once};
use sandbar_sandbox::{
    Extract, LocalDir, LocalFile, Manifest, Mount, SandboxSession, Scope, Symlinks,
    image::{ImageOutcome, ViewImageArgs},
    patch::{PatchOptions, Profile},
};

use super::{
    stage::{Canary, Stage, everything, open, prompt, soon},
    tarball::{FILE, Member, tar},
};
use crate::escape::{
    rig::{SOON, inside, works_once},
    tally::Tally,
};

/// Each is about a dozen operations of a session.
const ROUNDS: usize = 400;
/// Whole sessions that copy the swapped directory from the host.
const COPIES: usize = 60;
/// How often a session may be refused because the link was there when it looked.
const TRIES: usize = 5000;

pub(super) async fn run(stage: &Stage<'_>, tally: &mut Tally) {
    stage.plant(&format!("mkdir d && echo inside > d/f && ln -s {} l", stage.canary.text())).await;
    let storm = swap(stage).await;
    let naive =
        works_once(|| fs::read_to_string(stage.workspace.join("d/f")).is_ok_and(|text| text == stage.canary.secret));
    tally.control("B13", naive, "a harness that opens the path is fooled");
    let naive = works_once(|| {
        let wrote = fs::write(stage.workspace.join("d/naive"), "x").is_ok();
        wrote && fs::remove_file(stage.canary.dir.join("naive")).is_ok()
    });
    let _not_left = fs::remove_file(stage.canary.dir.join("naive"));
    tally.control("B14", naive, "a patch that opens its paths is fooled");
    let entry = open(stage.rig, Manifest::new().file("d/entry", "x"), &stage.workspace).await;
    let (mut score, mut round) = (Score::default(), 0);
    let start = Instant::now();
    // A storm that is held up is waited for, here and below: without both ends nothing was raced.
    while round < ROUNDS || !score.is_raced() && start.elapsed() < SOON {
        files(&stage.session, &mut score, &stage.canary).await;
        patched(&stage.session, &mut score, round).await;
        if let Ok(session) = &entry {
            score.count("manifest", prompt(session.apply_manifest(Scope::All)).await.is_ok());
        }
        round += 1;
    }
    let untouched = stage.canary.untouched();
    let detail = format!("in {:?}: {score}", start.elapsed());
    let raced = score.is_raced();
    tally.expect("B13.session-swap-race", score.hits == 0 && untouched && raced, detail.clone());
    tally.expect("B14.patch-swap-race", untouched && raced, detail);
    copies(stage, tally).await;
    mounts(stage, tally).await;
    drop(storm);
    soon(stage.session.delete()).await.expect("delete");
}

async fn swap(stage: &Stage<'_>) -> Process {
    soon(stage.machine().spawn(inside("swap", ["dir=/workspace".to_owned()]))).await.expect("the storm starts")
}

/// What a race came to.
#[derive(Default)]
struct Score {
    done: usize,
    refused: usize,
    hits: usize,
    by_kind: BTreeMap<&'static str, (usize, usize)>,
}

impl Score {
    fn is_raced(&self) -> bool {
        self.done > 0 && self.refused > 0
    }

    fn count(&mut self, kind: &'static str, done: bool) {
        let (made, refused) = self.by_kind.entry(kind).or_default();
        if done {
            *made += 1;
            self.done += 1;
        } else {
            *refused += 1;
            self.refused += 1;
        }
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} done inside, {} refused, {} on the host; {:?}", self.done, self.refused, self.hits, self.by_kind)
    }
}

async fn files(session: &SandboxSession, score: &mut Score, canary: &Canary) {
    let got = prompt(session.read("d/f")).await;
    score.hits += usize::from(got.as_ref().is_ok_and(|bytes| canary.is_in(bytes)));
    score.count("read", got.is_ok());
    let streamed = async {
        let stream = session.read_stream("d/f").await?;
        Ok(collect(stream, 1 << 20).await.unwrap_or_default())
    };
    let got = prompt(streamed).await;
    score.hits += usize::from(got.as_ref().is_ok_and(|bytes| canary.is_in(bytes)));
    score.count("stream", got.is_ok());
    let got = prompt(session.list("d")).await;
    score.hits += usize::from(got.as_ref().is_ok_and(|all| all.iter().any(|entry| entry.name == "sub")));
    score.count("list", got.is_ok());
    let got = prompt(session.stat("d/sub")).await;
    score.hits += usize::from(got.as_ref().is_ok_and(Option::is_some));
    score.count("stat", got.is_ok());
    let got = prompt(session.view_image(&ViewImageArgs::new("d/f"))).await;
    score.hits += usize::from(matches!(got, Ok(ImageOutcome::Image(_))));
    score.count("write", prompt(session.write("d/w", "written")).await.is_ok());
    score.count("make-dir", prompt(session.make_dir("d/made/deep")).await.is_ok());
    score.count("remove", prompt(session.remove("d/made")).await.is_ok());
    let archive = Extract::new("a.tar", once(tar(&[Member(FILE, "x/y", "", 0o644, b"x")])));
    score.count("extract", prompt(session.extract("d", archive)).await.is_ok());
}

async fn patched(session: &SandboxSession, score: &mut Score, round: usize) {
    let profile = if round.is_multiple_of(2) { Profile::Codex } else { Profile::Sdk };
    for body in [
        "*** Add File: d/p\n+one\n",
        "*** Update File: d/p\n@@\n-one\n+two\n",
        "*** Update File: d/p\n*** Move to: q\n@@\n-two\n+three\n",
        "*** Update File: q\n*** Move to: d/r\n@@\n-three\n+four\n",
        "*** Delete File: d/r\n",
        "*** Delete File: d/f\n*** Add File: d/f.again\n+x\n",
    ] {
        let patch = format!("*** Begin Patch\n{body}*** End Patch\n");
        let options = PatchOptions { profile, ..PatchOptions::default() };
        let applied = prompt(session.apply_patch(&patch, options)).await;
        score.count("patch", applied.is_ok());
        if let (Ok(applied), true) = (applied, round.is_multiple_of(3)) {
            score.count("undo", prompt(session.patches().undo(&applied)).await.is_ok());
        }
    }
    // What the last patch removed is read again in the next round.
    score.count("write", prompt(session.write("d/f", "inside\n")).await.is_ok());
}

/// The host itself walks the swapped directory, to copy it into another session.
async fn copies(stage: &Stage<'_>, tally: &mut Tally) {
    let copy = stage.rig.dir("race-copy");
    let (start, mut opened, mut round) = (Instant::now(), 0, 0);
    while round < COPIES || opened == 0 && start.elapsed() < SOON {
        let manifest = match round % 3 {
            0 => Manifest::new().local_dir("c", LocalDir::new(".").symlinks(Symlinks::Preserve)),
            1 => Manifest::new().local_dir("c", LocalDir::new("d").symlinks(Symlinks::Drop)),
            _ => Manifest::new().local_file("c", LocalFile::new("d/f")),
        };
        if let Ok(session) = open(stage.rig, manifest.base_dir(&stage.workspace), &copy).await {
            opened += 1;
            soon(session.delete()).await.expect("delete");
        }
        let leaked = everything(&copy).iter().any(|(_, bytes)| stage.canary.is_in(bytes));
        if leaked {
            tally.expect("B13.copy-from-a-swapped-directory", false, format!("the secret is in copy {round}"));
            return;
        }
        fs::remove_dir_all(&copy).expect("the copy goes");
        fs::create_dir(&copy).expect("an empty one");
        round += 1;
    }
    let detail = format!("{opened} of {round} sessions got a copy, none with the secret");
    tally.expect("B13.copy-from-a-swapped-directory", opened > 0 && stage.canary.untouched(), detail);
}

/// The swapped directory is what another session mounts: judged without links, it must be mounted without links.
async fn mounts(stage: &Stage<'_>, tally: &mut Tally) {
    let other = stage.rig.dir("race-mount");
    let (mut opened, mut hits, mut written, mut refusals) = (0, 0, 0, BTreeMap::<String, usize>::new());
    let start = Instant::now();
    let may_go_on = |opened: usize, refused: usize| refused < TRIES || opened == 0 && start.elapsed() < SOON;
    while opened < COPIES && may_go_on(opened, refusals.values().sum::<usize>()) {
        let manifest = Manifest::new().mount("m", Mount::new("d").writable()).base_dir(&stage.workspace);
        let session = match open(stage.rig, manifest, &other).await {
            Ok(session) => session,
            Err(error) => {
                *refusals.entry(error.full_message()).or_default() += 1;
                continue;
            }
        };
        opened += 1;
        if session.read("m/f").await.is_ok_and(|bytes| stage.canary.is_in(&bytes)) {
            hits += 1;
            let wrote = session.write("m/planted", "x").await.is_ok();
            written += usize::from(wrote && fs::remove_file(stage.canary.dir.join("planted")).is_ok());
        }
        soon(session.delete()).await.expect("delete");
    }
    let detail =
        format!("{opened} sessions began, {hits} read the canary, {written} wrote beside it; refused: {refusals:?}");
    // Where nothing begins, nothing was raced.
    tally.expect("B13.mount-a-swapped-directory", hits == 0 && opened > 0, detail);
}
