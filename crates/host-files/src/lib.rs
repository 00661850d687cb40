//! Files of the host, read by handle below a root: opened, walked with ignore rules, and removed. No link is followed.
//!
//! [`ConfinedDir`] opens paths that cannot lead out of a directory, [`walk`] visits a tree in sorted order with its ignore
//! rules applied, and [`remove_tree`] removes a tree whose contents are hostile.

mod confined_dir;
mod ignore_rules;
#[cfg(target_os = "linux")]
mod removal;
mod walk;

pub use self::{
    confined_dir::{
        ConfinedDir, DIRECTORY, READING, as_path, at_and_above, name_of, parent_of, permissions, read_up_to, regular,
        stat_in,
    },
    ignore_rules::{Dialect, OuterRules, Patterns, RuleFileError, RuleProblem, Rules, Trust, outer_rules},
    walk::{Descend, Refusal, Visitor, WalkEntry, WalkOptions, walk},
};
#[cfg(target_os = "linux")]
pub use removal::{remove_at, remove_tree};
