//! What each fuzz target does with its bytes. The targets run it on the nightly compiler, and a test of the gate, which includes

//! this file, runs it over the kept corpora on the stable one.

pub mod archive;
pub mod boot_failure;
pub mod door;
pub mod event;
pub mod frames;
pub mod items;
pub mod launch;
pub mod manifest;
pub mod patch;
pub mod processes;
pub mod records;
pub mod request;
pub mod run_state;
pub mod sse;

/// Whether a decoder read these bytes to the end. A decoder that breaks a promise panics.
pub type Accepts = fn(&[u8]) -> bool;

/// Every target by its name.
pub const TARGETS: [(&str, Accepts); 14] = [
    ("archive", archive::accepts),
    ("boot_failure", boot_failure::accepts),
    ("door", door::accepts),
    ("event", event::accepts),
    ("frames", frames::accepts),
    ("items", items::accepts),
    ("launch", launch::accepts),
    ("manifest", manifest::accepts),
    ("patch", patch::accepts),
    ("processes", processes::accepts),
    ("records", records::accepts),
    ("request", request::accepts),
    ("run_state", run_state::accepts),
    ("sse", sse::accepts),
];
