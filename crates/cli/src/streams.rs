//! The standard streams, the terminal and the signals of this process.

pub(crate) mod consent;
pub(crate) mod foreground;
pub(crate) mod relay;
pub(crate) mod signals;
pub(crate) mod terminal;
pub(crate) mod writer;
