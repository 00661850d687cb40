//! All or nothing: what a patch does to files, and what it leaves when it fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use sandbar_machine::{
    Files, MachineError,
    tar::{self, Kind, Member},
};

use super::{
    watched::{Watch, Watched},
    *,
};
use crate::patch::{PatchLimits, files::Sites, plan::plan_within, undo};

/// The disk is full from the nth write or removal on, for so many of them.
#[derive(Debug)]
struct Failing {
    calls: AtomicUsize,
    from: usize,
    count: usize,
}

impl Watched<Failing> {
    fn failing(machine: MemoryMachine, from: usize, count: usize) -> Self {
        Self { machine, watch: Failing { calls: AtomicUsize::new(0), from, count } }
    }
}

#[async_trait]
impl Watch for Failing {
    async fn before_change(&self) -> sandbar_machine::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        if (self.from..self.from.saturating_add(self.count)).contains(&call) {
            return Err(MachineError::Exhausted { what: "disk space".to_owned(), reason: "none left".to_owned() });
        }
        Ok(())
    }
}

const FILES: &[(&str, &[u8])] = &[("a", b"1\n2\n"), ("dir/b", b"3\n"), ("bin", b"\xff\xfe"), ("gone", b"x\n")];

const EVERYTHING: &str = "*** Begin Patch
*** Add File: new/deep/n
+n
*** Update File: a
@@
-1
+one
*** Update File: dir/b
*** Move to: moved/b
@@
-3
+three
*** Delete File: gone
*** Update File: bin
*** Move to: moved/bin
*** Add File: new/deep/m
+m
*** End Patch";

fn texts(machine: &dyn Machine) -> Vec<String> {
    let kept = tree(machine).into_iter().filter(|(_, _, content)| content != b"Dir");
    kept.map(|(path, _, content)| format!("{path}={}", String::from_utf8_lossy(&content))).collect()
}

fn link(machine: &MemoryMachine, path: &str, to: &str) {
    let mut member = Member::new(Kind::Symlink, path.as_bytes(), 0o777);
    member.link = to.as_bytes().to_vec();
    let archive = [member.encode(), tar::end()].concat();
    wait(machine.unpack(&Target::from(MachinePath::workspace()), once(archive))).unwrap();
}

#[test]
fn a_patch_does_all_it_says_and_tells_it_in_both_ways() {
    let machine = machine(FILES);
    wait(machine.write(&at("dir/b").mode(0o755), once("3\n"))).unwrap();
    let applied = run(&machine, EVERYTHING, Profile::Codex).unwrap();
    let expected = ["a=one\n2\n", "moved/b=three\n", "moved/bin=\u{fffd}\u{fffd}", "new/deep/m=m\n", "new/deep/n=n\n"];
    assert_eq!(texts(&machine), expected);
    assert!(tree(&machine).iter().any(|(path, mode, _)| path == "moved/b" && *mode == 0o755));
    assert_eq!(
        applied.codex_text(),
        "Success. Updated the following files:\nA new/deep/n\nA new/deep/m\nM a\nM moved/b\nM moved/bin\nD gone\n"
    );
    assert_eq!(
        applied.sdk_text(),
        "Created new/deep/n\nUpdated a\nUpdated dir/b\nMoved dir/b to moved/b\nDeleted gone\nUpdated bin\nMoved bin to \
         moved/bin\nCreated new/deep/m"
    );
    let made: Vec<String> = applied.made.iter().map(|dir| dir.path.to_string()).collect();
    assert_eq!(made, ["/workspace/moved", "/workspace/new", "/workspace/new/deep"]);
    let change = applied.delta.iter().find(|change| change.path == "a").unwrap();
    assert_eq!(change.before.as_ref().unwrap().bytes, "1\n2\n");
    assert_eq!(change.after.as_ref().unwrap().bytes, "one\n2\n");
}

#[test]
fn a_patch_can_be_undone_unless_a_file_has_changed_since() {
    let machine = machine(FILES);
    wait(machine.write(&at("dir/b").mode(0o755), once("3\n"))).unwrap();
    let before = tree(&machine);
    let applied = run(&machine, EVERYTHING, Profile::Codex).unwrap();
    wait(machine.write(&at("new/deep/m"), once("other"))).unwrap();
    let changed = tree(&machine);
    let (code, message) = code_of(wait(undo(&machine, &applied)));
    assert_eq!(code, "apply_patch_invalid_diff");
    assert_eq!(message, "new/deep/m has changed since the patch was applied; nothing was undone");
    assert_eq!(tree(&machine), changed);
    wait(machine.write(&at("new/deep/m"), once("m\n"))).unwrap();
    wait(undo(&machine, &applied)).unwrap();
    assert_eq!(tree(&machine), before);
    assert_eq!(code_of(wait(undo(&machine, &applied))).0, "apply_patch_invalid_diff");
}

#[test]
fn operations_see_what_those_before_them_did() {
    let table: &[(&str, &[&str])] = &[
        ("*** Add File: n\n+a\n*** Update File: n\n@@\n-a\n+b", &["f=1\n2\n", "n=b\n"]),
        ("*** Update File: f\n*** Move to: g\n*** Update File: ./g\n@@\n-1\n+x", &["g=x\n2\n"]),
        ("*** Update File: f\n@@\n-1\n+x\n*** Update File: f\n@@\n x\n-2\n+y", &["f=x\ny\n"]),
        ("*** Delete File: f\n*** Add File: f\n+new", &["f=new\n"]),
        ("*** Add File: n\n+a\n*** Delete File: n", &["f=1\n2\n"]),
        ("*** Update File: f\n*** Move to: f\n@@\n-1\n+x", &["f=x\n2\n"]),
        ("*** Update File: f\n*** Move to: g\n*** Add File: f\n+2", &["f=2\n", "g=1\n2\n"]),
        ("*** Add File: f\n+over", &["f=over\n"]),
        ("*** Add File: n\n+a\n*** Update File: f\n*** Move to: n", &["n=1\n2\n"]),
    ];
    for (sections, expected) in table {
        let machine = machine(&[("f", b"1\n2\n")]);
        run(&machine, &enveloped(sections), Profile::Codex).unwrap();
        assert_eq!(texts(&machine), *expected, "{sections}");
    }
}

#[test]
fn a_patch_that_fails_changes_nothing_and_says_why() {
    let escape = "apply_patch path must not escape root: ";
    let long = format!("*** Add File: new/{}\n+x", "n".repeat(256));
    let table: &[(&str, &str, String)] = &[
        ("*** Update File: none\n@@\n-x", "apply_patch_file_not_found", "apply_patch missing file: none".into()),
        ("*** Update File: a/b\n@@\n-x", "apply_patch_file_not_found", "apply_patch missing file: a/b".into()),
        ("*** Delete File: none/x", "apply_patch_file_not_found", "apply_patch missing file: none/x".into()),
        (
            "*** Delete File: gone\n*** Delete File: gone",
            "apply_patch_file_not_found",
            "apply_patch missing file: gone".into(),
        ),
        ("*** Update File: bin\n@@\n-x", "apply_patch_decode_error", "apply_patch could not decode file: bin".into()),
        ("*** Add File: ../x\n+x", "apply_patch_invalid_path", format!("{escape}../x")),
        ("*** Add File: /etc/x\n+x", "apply_patch_invalid_path", format!("{escape}/etc/x")),
        ("*** Add File: a/../../x\n+x", "apply_patch_invalid_path", format!("{escape}a/../../x")),
        ("*** Add File: ..\\x\n+x", "apply_patch_invalid_path", format!("{escape}..\\x")),
        ("*** Update File: a\n*** Move to: ../x", "apply_patch_invalid_path", format!("{escape}../x")),
        (&long, "apply_patch_invalid_path", format!("apply_patch path {:?} contains", &long[14..274])),
        ("*** Add File: a/b\n+x", "apply_patch_invalid_path", "apply_patch path \"a/b\" is given twice".into()),
        ("*** Add File: n\n+x\n*** Add File: n/m\n+x", "apply_patch_invalid_path", "apply_patch path \"n/m\"".into()),
    ];
    check_refusals(table);
}

#[test]
fn only_files_are_changed_and_never_through_links() {
    let escape = "apply_patch path must not escape root: ";
    let table: &[(&str, &str, String)] = &[
        (
            "*** Add File: dir\n+x",
            "apply_patch_invalid_diff",
            "apply_patch cannot change dir: it is a directory".into(),
        ),
        ("*** Delete File: dir", "apply_patch_invalid_diff", "apply_patch cannot change dir: it is a directory".into()),
        ("*** Delete File: .", "apply_patch_invalid_diff", "apply_patch cannot change .: it is a directory".into()),
        (
            "*** Delete File: link",
            "apply_patch_invalid_diff",
            "apply_patch cannot change link: it is a symbolic link".into(),
        ),
        (
            "*** Update File: link\n@@\n-1\n+x",
            "apply_patch_invalid_diff",
            "apply_patch cannot change link: it is a".into(),
        ),
        (
            "*** Add File: link\n+x",
            "apply_patch_invalid_diff",
            "apply_patch cannot change link: it is a symbolic".into(),
        ),
        (
            "*** Update File: a\n*** Move to: link",
            "apply_patch_invalid_diff",
            "apply_patch cannot change link: it".into(),
        ),
        ("*** Add File: out/x\n+x", "apply_patch_invalid_path", format!("{escape}out/x")),
        ("*** Add File: up/x\n+x", "apply_patch_invalid_path", format!("{escape}up/x")),
        ("*** Add File: loop/x\n+x", "apply_patch_invalid_path", format!("{escape}loop/x")),
    ];
    check_refusals(table);
}

/// Each section, after others that are fine, fails with this code and message, and nothing changes.
fn check_refusals(table: &[(&str, &str, String)]) {
    let machine = machine(FILES);
    link(&machine, "link", "a");
    link(&machine, "out", "/etc");
    link(&machine, "up", "dir/../..");
    link(&machine, "loop", "loop");
    let before = tree(&machine);
    for (section, code, message) in table {
        for profile in BOTH {
            let first = "*** Add File: first\n+x\n*** Update File: a\n@@\n-1\n+one\n*** Delete File: dir/b\n";
            let (was, said) = code_of(run(&machine, &enveloped(&format!("{first}{section}")), profile));
            assert_eq!(was, *code, "{section}: {said}");
            assert!(said.starts_with(message.as_str()), "{section}: {said}");
            assert_eq!(tree(&machine), before, "{section}");
        }
    }
}

#[test]
fn two_names_for_one_file_are_one_file() {
    let machine = machine(&[("dir/f", b"1\n2\n")]);
    link(&machine, "same", "dir");
    let text = enveloped("*** Update File: same/f\n@@\n-1\n+x\n*** Update File: dir/./f\n@@\n-2\n+y");
    let applied = run(&machine, &text, Profile::Codex).unwrap();
    assert!(texts(&machine).contains(&"dir/f=x\ny\n".to_owned()));
    assert_eq!(applied.delta.len(), 1);
}

#[test]
fn paths_begin_where_the_caller_says() {
    let machine = machine(&[("sub/f", b"1\n")]);
    let patch = Patch::parse(&enveloped("*** Update File: f\n@@\n-1\n+2\n*** Add File: ../up\n+x\n*** Add File: /workspace/w\n+x\n*** Add File: a\\b\n+x")).unwrap();
    let options = PatchOptions { cwd: Some("sub".to_owned()), ..with(Profile::Codex) };
    let applied = wait(apply(&machine, &paths(), &patch, &options)).unwrap();
    assert_eq!(texts(&machine), ["sub/a/b=x\n", "sub/f=2\n", "up=x\n", "w=x\n"]);
    assert_eq!(applied.sdk_text(), "Updated f\nCreated ../up\nCreated /workspace/w\nCreated a\\b");
}

#[test]
fn a_write_that_fails_takes_back_what_was_written() {
    // Five writes, then three removals.
    for from in 0..8 {
        let disk = machine(FILES);
        let before = tree(&disk);
        let failing = Watched::failing(disk, from, 1);
        let error = run(&failing, EVERYTHING, Profile::Codex).unwrap_err();
        assert_eq!(error.code(), "apply_patch_write_error");
        assert_eq!(error.context()["undone"], true, "{from}");
        assert_eq!(error.retryable(), Some(true));
        assert_eq!(tree(&failing), before, "{from}");
    }
    let failing = Watched::failing(machine(FILES), 3, usize::MAX);
    let error = run(&failing, EVERYTHING, Profile::Codex).unwrap_err();
    assert_eq!(error.context()["undone"], false);
}

#[test]
fn an_undo_that_fails_changes_nothing_either() {
    let disk = machine(FILES);
    let applied = run(&disk, EVERYTHING, Profile::Codex).unwrap();
    let after = tree(&disk);
    let failing = Watched::failing(disk, 2, 1);
    let error = wait(undo(&failing, &applied)).unwrap_err();
    assert_eq!((error.code(), error.context()["undone"].clone()), ("apply_patch_write_error", true.into()));
    assert_eq!(tree(&failing), after);
}

#[test]
fn files_have_a_size_they_may_not_exceed() {
    let disk = machine(&[("f", b"0123456789\n"), ("g", b"0123456789\n")]);
    let limited = |file, total| PatchOptions {
        limits: PatchLimits { file, total, ..PatchLimits::default() },
        ..PatchOptions::default()
    };
    let patch = Patch::parse(&enveloped("*** Update File: f\n@@\n+1\n*** Delete File: g")).unwrap();
    for (file, total, fits) in [(10, 99, false), (11, 99, false), (13, 21, false), (13, 22, true)] {
        let result = wait(apply(&disk, &paths(), &patch, &limited(file, total)));
        assert_eq!(result.is_ok(), fits, "{file} {total}: {result:?}");
        assert_eq!(texts(&disk).len(), if fits { 1 } else { 2 });
    }
}

/// Another process does something as soon as `bin` was read.
#[derive(Debug)]
struct Meddling {
    /// What becomes of the file at a path: new content, another mode, or nothing.
    deed: (&'static str, Option<(&'static str, u32)>),
}

#[async_trait]
impl Watch for Meddling {
    async fn after_read(&self, machine: &MemoryMachine, target: &Target) -> sandbar_machine::Result<()> {
        let (path, content) = self.deed;
        match content {
            _ if target.path != at("bin").path => Ok(()),
            Some((content, mode)) => machine.write(&at(path).mode(mode), once(content)).await,
            None => machine.remove(&at(path)).await,
        }
    }
}

#[test]
fn a_change_by_another_process_is_never_overwritten() {
    let deeds = [
        // Longer, as long as before, with other permissions, gone.
        ("a", Some(("theirs, and longer", 0o644))),
        ("a", Some(("8\n9\n", 0o644))),
        ("a", Some(("1\n2\n", 0o755))),
        ("a", None),
        // What shall be removed or get another name.
        ("gone", Some(("y\n", 0o644))),
        ("dir/b", Some(("4\n", 0o644))),
        ("dir/b", None),
        // What was not there.
        ("new/deep/n", Some(("theirs", 0o644))),
        ("moved/b", Some(("theirs", 0o644))),
    ];
    for deed in deeds {
        let expected = machine(FILES);
        wait(async {
            match deed.1 {
                Some((content, mode)) => expected.write(&at(deed.0).mode(mode), once(content)).await,
                None => expected.remove(&at(deed.0)).await,
            }
        })
        .unwrap();
        let meddling = Watched { machine: machine(FILES), watch: Meddling { deed } };
        let (code, said) = code_of(run(&meddling, EVERYTHING, Profile::Codex));
        assert_eq!(code, "apply_patch_invalid_diff", "{deed:?}: {said}");
        assert_eq!(said, format!("{} changed while the patch was being applied; read it again", deed.0));
        assert_eq!(texts(&meddling), texts(&expected), "{deed:?}");
    }
}

#[test]
fn a_large_patch_lets_others_work_while_it_is_decided() {
    let turns = |lines: usize| {
        let text = format!("{}\n", "x".repeat(99)).repeat(lines) + "end\n";
        let machine = machine(&[("f", text.as_bytes())]);
        let patch = Patch::parse(&enveloped("*** Update File: f\n@@\n-end\n+END")).unwrap();
        wait(async {
            let others = tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
            let mut turns = 0_u32;
            let (paths, options) = (paths(), with(Profile::Codex));
            let mut applying = Box::pin(apply(&machine, &paths, &patch, &options));
            let applied = std::future::poll_fn(|waker| {
                turns += 1;
                applying.as_mut().poll(waker)
            });
            applied.await.unwrap();
            others.abort();
            turns
        })
    };
    assert_eq!(turns(100), 1, "a small one is not worth it");
    assert!(turns(20_000) > 1);
}

#[test]
fn operations_on_one_large_file_do_not_pay_for_all_of_it_each_time() {
    let line = "x".repeat(395);
    let text: String = (0..10_000).map(|n| format!("{n:05}{line}\n")).collect();
    let section = |n: usize| format!("*** Update File: f\n@@\n-{n:05}{line}\n+{n}\n");
    let one: String = (0..200).map(|n| section(n * 50)).collect();
    let machine = machine(&[("f", text.as_bytes()), ("g", text.as_bytes())]);
    let spent = |sections: &str, work: u64| {
        let patch = Patch::parse(&enveloped(sections)).unwrap();
        let options = with(Profile::Codex);
        let sites = wait(Sites::read(&machine, &paths(), &patch, &options)).unwrap();
        plan_within(sites, &patch, &options, Work::of(work))
    };
    let planned = spent(&one, 12_000_000).unwrap();
    let after = &planned.delta[0].after.as_ref().unwrap().bytes;
    assert!(after.starts_with(b"0\n") && after.len() < text.len() - 200 * 390);
    // From one file to the other and back is what costs.
    let zipped: String = (0..200).flat_map(|n| [section(n), section(n).replace("File: f", "File: g")]).collect();
    assert_eq!(code_of(spent(&zipped, 12_000_000)).0, "limit_exceeded");
}
