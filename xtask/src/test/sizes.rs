//! What the gate built, in bytes, and from nothing in how much time: a size that grows is seen where it grows.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::program;

/// What is known before the build.
pub(super) struct Sizes {
    was_empty: bool,
}

impl Sizes {
    pub(super) fn before_the_build() -> Self {
        Self { was_empty: !command().exists() }
    }

    /// One line for the table of a run.
    pub(super) fn report(&self, build: Duration) -> String {
        let guest = newest(guests(&program::target().join("debug/build")));
        let time = if self.was_empty {
            format!("built from nothing in {:.1} s", build.as_secs_f32())
        } else {
            "not built from nothing".to_owned()
        };
        format!("debug command {}, embedded guest {}; {time}", size(Some(command())), size(guest))
    }
}

fn command() -> PathBuf {
    program::target().join("debug/sandbar")
}

/// Every guest that a build script left; each set of features has its own.
fn guests(build: &Path) -> Vec<PathBuf> {
    let ours = children(build).into_iter().filter(|folder| named(folder, "sandbar-clients-"));
    let targets = ours.flat_map(|folder| children(&folder.join("out/guest-target")));
    targets.map(|target| target.join("release/sandbar-guest")).filter(|program| program.is_file()).collect()
}

fn newest(files: Vec<PathBuf>) -> Option<PathBuf> {
    files.into_iter().max_by_key(|file| file.metadata().and_then(|about| about.modified()).ok())
}

fn children(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn named(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

/// In decimal megabytes, as package managers show it.
fn size(file: Option<PathBuf>) -> String {
    match file.and_then(|file| file.metadata().ok()) {
        Some(about) => megabytes(about.len()),
        None => "absent".to_owned(),
    }
}

/// Bytes as megabytes with one digit after the point.
pub(crate) fn megabytes(bytes: u64) -> String {
    let tenths = bytes.saturating_add(50_000) / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_to_a_tenth_of_a_megabyte() {
        for (bytes, text) in [(0, "0.0 MB"), (949_999, "0.9 MB"), (950_000, "1.0 MB"), (118_296_232, "118.3 MB")] {
            assert_eq!(megabytes(bytes), text);
        }
    }

    #[test]
    fn the_guest_of_the_last_build_counts() {
        let build = tempfile::tempdir().expect("a directory");
        for (folder, bytes) in [("sandbar-clients-1", "old"), ("other-1", "no"), ("sandbar-clients-2", "newer")] {
            let release = build.path().join(folder).join("out/guest-target/t/release");
            fs::create_dir_all(&release).expect("a directory");
            fs::write(release.join("sandbar-guest"), bytes).expect("a file");
            std::thread::sleep(Duration::from_millis(20));
        }
        let found = guests(build.path());
        assert_eq!(found.len(), 2);
        assert_eq!(fs::read_to_string(newest(found).expect("one")).expect("readable"), "newer");
    }
}
