//! Directory trees of the host, reached by handles: opened, walked with ignore rules, removed. No link is followed.

pub(crate) mod confined_dir;
pub(crate) mod ignore_rules;
pub(crate) mod removal;
pub(crate) mod walk;

pub use self::confined_dir::ConfinedDir;
