//! Memory of a process tree; shared pages are counted once.

use std::{collections::HashMap, fs};

/// Current memory of the tree, in megabytes.
pub(crate) fn of_tree(root: u32) -> f64 {
    let mut parents = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if let Some(parent) = parent(pid) {
            parents.insert(pid, parent);
        }
    }
    let below = |pid: u32| std::iter::successors(Some(pid), |pid| parents.get(pid).copied()).any(|pid| pid == root);
    parents.keys().filter(|pid| below(**pid)).map(|pid| share(*pid)).sum()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Proportional set size of a process, in megabytes.
fn share(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap_or(0.0) / 1024.0
}
