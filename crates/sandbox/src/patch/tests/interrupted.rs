//! A patch that is interrupted after any of its steps: the next one finds the old tree or the new one, and nothing between.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{
    watched::{Watch, Watched},
    *,
};
use crate::patch::{PatchJournal, PatchLimits, Recovered, recover};

/// Never lets the nth write or removal happen, nor any later one.
#[derive(Debug)]
struct Dying {
    left: AtomicUsize,
    dead: Notify,
}

#[async_trait]
impl Watch for Dying {
    async fn before_change(&self) -> sandbar_machine::Result<()> {
        let lives = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if lives.is_err() {
            self.dead.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

impl Watched<Dying> {
    fn dying(machine: &MemoryMachine, after: usize) -> Self {
        let watch = Dying { left: AtomicUsize::new(after), dead: Notify::new() };
        Self { machine: machine.clone(), watch }
    }

    /// What came of some work on it; nothing if it was interrupted.
    async fn until_dead<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.watch.dead.notified() => None,
        }
    }
}

const FILES: &[(&str, &[u8])] = &[("a", b"1\n2\n"), ("dir/b", b"3\n"), ("bin", b"\xff\xfe"), ("gone", b"x\n")];

const PATCH: &str = "*** Begin Patch
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
*** End Patch";

/// A directory with its journal.
struct JournaledDir {
    temp: tempfile::TempDir,
}

impl JournaledDir {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("work")).unwrap();
        Self { temp }
    }

    fn work(&self) -> std::path::PathBuf {
        self.temp.path().join("work")
    }

    fn journals(&self) -> std::path::PathBuf {
        self.temp.path().join("journals")
    }

    fn journal(&self) -> PatchJournal {
        PatchJournal::open(self.journals(), &self.work()).unwrap()
    }

    fn options(&self) -> PatchOptions {
        PatchOptions { journal: Some(self.journal()), ..PatchOptions::default() }
    }

    /// Applies the patch until the machine dies; whether it came to its end.
    fn apply(&self, machine: &MemoryMachine, steps: usize) -> bool {
        let (dying, patch, options) = (Watched::dying(machine, steps), Patch::parse(PATCH).unwrap(), self.options());
        let applied = wait(dying.until_dead(apply(&dying, &paths(), &patch, &options)));
        applied.is_some_and(|applied| applied.is_ok())
    }

    fn recover(&self, machine: &dyn Machine) -> Option<Recovered> {
        wait(recover(machine, &paths(), &self.journal(), &PatchLimits::default())).unwrap()
    }
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn patched() -> Vec<(String, u32, Vec<u8>)> {
    let machine = machine(FILES);
    run(&machine, PATCH, Profile::Codex).unwrap();
    tree(&machine)
}

#[test]
fn a_patch_that_is_interrupted_anywhere_is_taken_back_by_the_next() {
    let (old, new) = (tree(&machine(FILES)), patched());
    let mut mixed = 0;
    for steps in 0.. {
        let (place, machine) = (JournaledDir::new(), machine(FILES));
        if place.apply(&machine, steps) {
            assert!(steps >= 5 && tree(&machine) == new, "{steps}");
            assert_eq!(names(&place.journals()), Vec::<String>::new());
            break;
        }
        let left = tree(&machine);
        mixed += usize::from(left != old && left != new);
        assert_eq!(names(&place.journals()).len(), 1, "the record stays");
        if steps % 2 == 0 {
            let recovered = place.recover(&machine).unwrap();
            assert_eq!(recovered.changed_since, Vec::<String>::new());
            assert_eq!(tree(&machine), old, "after {steps} steps");
            assert_eq!(place.recover(&machine), None);
        }
        // The same patch fits again, which it only does on the old tree.
        assert!(place.apply(&machine, usize::MAX));
        assert_eq!(tree(&machine), new, "after {steps} steps");
        assert_eq!(names(&place.journals()), Vec::<String>::new());
    }
    assert!(mixed >= 3, "the interruption leaves a mixed tree where nothing takes it back: {mixed}");
}

#[test]
fn taking_back_may_itself_be_interrupted() {
    let old = tree(&machine(FILES));
    for steps in 0..6 {
        let (place, machine) = (JournaledDir::new(), machine(FILES));
        assert!(!place.apply(&machine, 4));
        let dying = Watched::dying(&machine, steps);
        let limits = PatchLimits::default();
        wait(dying.until_dead(recover(&dying, &paths(), &place.journal(), &limits)));
        place.recover(&machine);
        assert_eq!(tree(&machine), old, "after {steps} steps");
    }
}

#[test]
fn a_patch_that_came_to_its_end_stays() {
    let (place, machine) = (JournaledDir::new(), machine(FILES));
    assert!(!place.apply(&machine, 4));
    let record = fs::read(place.journals().join(&names(&place.journals())[0])).unwrap();
    let name = names(&place.journals()).remove(0);
    assert!(place.apply(&machine, usize::MAX));
    // As if it had been interrupted right before the record was removed.
    fs::write(place.journals().join(name), record).unwrap();
    assert_eq!(place.recover(&machine), Some(Recovered::default()));
    assert_eq!(tree(&machine), patched());
}

#[test]
fn what_was_changed_since_stays_and_is_named() {
    let (place, machine) = (JournaledDir::new(), machine(FILES));
    assert!(!place.apply(&machine, 4));
    wait(machine.write(&at("a"), once("mine\n"))).unwrap();
    wait(machine.write(&at(".sandbar-0123456789abcdef"), once("on"))).unwrap();
    wait(machine.write(&at(".sandbar-fedcba9876543210"), once("mine too\n"))).unwrap();
    let recovered = place.recover(&machine).unwrap();
    assert_eq!(recovered.changed_since, ["a"]);
    assert!(!recovered.undone.is_empty());
    let left: Vec<_> = tree(&machine).into_iter().map(|(path, ..)| path).collect();
    // What was staged for the patch is gone, what only has such a name is not.
    assert_eq!(left, [".sandbar-fedcba9876543210", "a", "bin", "dir", "dir/b", "gone"]);
    assert_eq!(wait(async { collect(machine.read(&at("a")).await.unwrap(), 99).await }).unwrap(), "mine\n");
}

#[test]
fn what_a_power_cut_left_of_new_bytes_is_taken_back_too() {
    for (torn, is_torn) in [("", true), ("on", true), ("one\0\0\0", true), ("one\n2\n!", false)] {
        for rebooted in [true, false] {
            let (place, machine) = (JournaledDir::new(), machine(FILES));
            assert!(!place.apply(&machine, 4));
            wait(machine.write(&at("a"), once(torn))).unwrap();
            wait(async {
                let lock = place.journal().lock().await.unwrap();
                let mut record = lock.read().await.unwrap().unwrap();
                if rebooted {
                    record.boot = "another".to_owned();
                }
                lock.write(&record).await.unwrap();
            });
            let recovered = place.recover(&machine).unwrap();
            assert_eq!(recovered.changed_since.is_empty(), is_torn && rebooted, "{torn:?} {rebooted}");
            assert_eq!(tree(&machine) == tree(&super::machine(FILES)), is_torn && rebooted, "{torn:?} {rebooted}");
        }
    }
}

#[test]
fn a_record_of_another_directory_or_a_damaged_one_changes_nothing() {
    let (place, machine) = (JournaledDir::new(), machine(FILES));
    assert!(!place.apply(&machine, 4));
    let left = tree(&machine);
    let file = place.journals().join(&names(&place.journals())[0]);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let refused = wait(recover(&machine, &paths(), &place.journal(), &PatchLimits::default())).unwrap_err();
    assert_eq!(refused.code(), "apply_patch_write_error");
    assert!(refused.full_message().contains("is damaged"), "{}", refused.full_message());
    assert_eq!(tree(&machine), left);
    fs::write(&file, whole).unwrap();
    fs::create_dir(place.temp.path().join("other")).unwrap();
    fs::rename(place.work(), place.temp.path().join("moved")).unwrap();
    fs::rename(place.temp.path().join("other"), place.work()).unwrap();
    assert_eq!(place.recover(&machine), None);
    assert_eq!(tree(&machine), left);
    assert_eq!(names(&place.journals()), Vec::<String>::new());
}

#[test]
fn two_patches_to_one_directory_wait_for_each_other() {
    let (place, machine) = (JournaledDir::new(), machine(FILES));
    let one = Patch::parse("*** Begin Patch\n*** Update File: a\n@@\n-1\n+one\n*** End Patch").unwrap();
    let two = Patch::parse("*** Begin Patch\n*** Update File: a\n@@\n-2\n+two\n*** End Patch").unwrap();
    let options = place.options();
    let (first, second) = wait(async {
        let paths = paths();
        tokio::join!(apply(&machine, &paths, &one, &options), apply(&machine, &paths, &two, &options))
    });
    first.unwrap();
    second.unwrap();
    assert_eq!(wait(async { collect(machine.read(&at("a")).await.unwrap(), 99).await }).unwrap(), "one\ntwo\n");
}

#[test]
fn a_journal_is_kept_where_others_cannot_write() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = JournaledDir::new();
    fs::create_dir(place.journals()).unwrap();
    fs::set_permissions(place.journals(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = PatchJournal::open(place.journals(), &place.work()).unwrap_err();
    assert_eq!(refused.code(), "session_store_error");
}

#[test]
fn what_was_left_long_ago_is_swept_by_the_next_patch_there() {
    let (place, machine) = (JournaledDir::new(), machine(FILES));
    // The clock of this machine begins in 1970.
    for name in [".sandbar-0123456789abcdef", "dir/.sandbar-0123456789abcdef", "other/.sandbar-0123456789abcdef"] {
        wait(machine.write(&at(name), once("left"))).unwrap();
    }
    wait(machine.write(&at(".sandbar-notes"), once("mine"))).unwrap();
    assert!(place.apply(&machine, usize::MAX));
    let left: Vec<_> =
        tree(&machine).into_iter().map(|(path, ..)| path).filter(|path| path.contains("sandbar")).collect();
    assert_eq!(left, [".sandbar-notes", "other/.sandbar-0123456789abcdef"]);
}
