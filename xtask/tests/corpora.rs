//! The kept corpora of the fuzz targets, replayed on the stable compiler.
//!
//! A file there is a valid message, an edge case, or what a fuzz target once failed at. `FUZZ_CORPUS=write` writes those of the guest
//! protocol anew, from its own types.

#![allow(clippy::expect_used, reason = "a test")]

// In the fuzz targets' own crate they are public.
#[allow(unreachable_pub, reason = "included")]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

mod corpora {
    pub(crate) mod protocol;
}

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use self::targets::TARGETS;

/// The most files of one corpus and the most bytes of one file: a corpus is kept by hand.
const FILES: usize = 30;
const BYTES: u64 = 8 * 1024;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("fuzz")
}

/// What is in a folder, sorted; nothing if it is not there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn every_decoder_survives_its_corpus() {
    if env::var("FUZZ_CORPUS").is_ok_and(|wish| wish == "write") {
        corpora::protocol::write(&fuzz().join("corpus"));
    }
    for (name, accepts) in TARGETS {
        let mut answers = Vec::new();
        for file in files(&fuzz().join("corpus").join(name)) {
            // The last line of a failure names its file.
            println!("{}", file.display());
            answers.push(accepts(&fs::read(&file).expect("a file")));
        }
        // If nothing is accepted, the corpus is of an older format, and what comes after the first check is not tested.
        assert!(answers.contains(&true), "{name} accepts no file of its corpus; write new ones, or FUZZ_CORPUS=write");
        assert!(answers.contains(&false), "{name} refuses no file of its corpus");
    }
}

#[test]
fn every_target_has_a_small_corpus_and_nothing_else_has_one() {
    let stems = |folder: &str| -> Vec<String> {
        let files = files(&fuzz().join(folder));
        files.iter().map(|file| file.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
    };
    let names = TARGETS.map(|(name, _)| name);
    assert_eq!(stems("fuzz_targets"), names);
    assert_eq!(stems("corpus"), names);
    for name in names {
        let files = files(&fuzz().join("corpus").join(name));
        assert!(files.len() <= FILES, "{name} has {} files", files.len());
        for file in files {
            let bytes = file.metadata().expect("a file").len();
            assert!(
                bytes <= BYTES,
                "{} has {bytes} bytes; keep the smallest input that shows the same",
                file.display()
            );
        }
    }
}
