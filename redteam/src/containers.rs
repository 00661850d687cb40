//! Where a container keeps a promise in another way than a local machine, with the reason.

use libc::{EACCES, EPERM, EROFS};

/// One attack that ends otherwise in a container.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// Which attack.
    pub attack: &'static str,
    /// The errors a refusal may have there, beside those a local machine gives; 0 where the probe says it in words.
    pub errors: &'static [i32],
    /// What is different.
    pub reason: &'static str,
}

const fn d(attack: &'static str, errors: &'static [i32], reason: &'static str) -> Difference {
    Difference { attack, errors, reason }
}

/// Attacks that nothing stops in a container, with the reason.
pub const UNPROMISED: &[(&str, &str)] =
    &[("C22.boot-id", "not promised: an engine can cover the file, and programs that need one would find none")];

/// All of them.
pub const DIFFERENT: &[Difference] = &[
    d("A2.list-home", &[0, EACCES], "a directory of that name is the image's own"),
    d("A3.read-shadow", &[0, EACCES], "the image has a password file of its own"),
    d(
        "A4.write-usr",
        &[0, EACCES],
        "the programs are the image's, can be changed by whom its permissions let, and end with the machine",
    ),
    d("A4.write-passwd", &[0], "the file is the image's; its root may change it, and it ends with the machine"),
    d("A4.write-root", &[EACCES], "the root directory is the image's, and closed by Landlock"),
    d("C19.descriptors-of-pid1", &[0], "a user that asked for root sees their numbers, and can open none of them"),
    d("J77.control-groups", &[EROFS, EPERM, EACCES], "an engine shows the machine's own, read-only"),
];
