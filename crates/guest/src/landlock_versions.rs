//! What each Landlock version can do, and what it means for machines.
//!
//! The table of `SECURITY.md` says the same; a test compares them.

/// Since this version, files can be renamed and linked between directories.
pub const RENAMES: u32 = 2;
/// Since this version, truncating can be refused.
pub const TRUNCATION: u32 = 3;
/// Since this version, device ioctls can be refused.
pub const DEVICES: u32 = 5;
/// Since this version, signals and abstract sockets can be confined.
pub const SCOPES: u32 = 6;

/// Effect of a version on each kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Local machines of level `full`.
    pub full: &'static str,
    /// Containers.
    pub containers: &'static str,
    /// Local machines of level `landlock`.
    pub landlock: &'static str,
}

/// Effect of a version; `None` is a kernel without Landlock.
#[must_use]
pub fn meaning(version: Option<u32>) -> Meaning {
    match version.unwrap_or(0) {
        0 => Meaning { full: "refused", containers: "refused, unless `InnerWalls::EngineOnly`", landlock: "refused" },
        1 => Meaning {
            full: "goes without it, and says so: version 1 refuses every rename between directories; namespaces, mounts \
                   and seccomp hold what it holds",
            containers: "goes without it, and says so, unless commands own the guest's files in the image's tree (they are \
                         root, or `/` is theirs): then with it, and says so; renames between directories are refused",
            landlock: "refused: signals would reach the host",
        },
        RENAMES..SCOPES => Meaning {
            full: "with it; below 3 it does not refuse truncating, below 5 no calls on devices, which mounts and the \
                   device list hold; with `--network host` there are no unix sockets but pairs, and the layers say so: \
                   nothing else would keep the host's abstract sockets out of reach",
            containers: "with it; commands can connect to a detached container's door, which asks for the nonce",
            landlock: "refused: signals would reach the host",
        },
        SCOPES.. => Meaning {
            full: "with it; signals and abstract sockets stay inside, also with `--network host`",
            containers: "with it",
            landlock: "works",
        },
    }
}

/// Name of the layer, with what only newer versions refuse and other layers must.
#[must_use]
pub fn layer(version: u32) -> String {
    if version < RENAMES {
        return format!("landlock {version} (which refuses to rename between directories)");
    }
    let later = [(TRUNCATION, "truncating"), (DEVICES, "calls on devices"), (SCOPES, "signals and abstract sockets")];
    let missing: Vec<&str> = later.iter().filter(|(since, _)| version < *since).map(|(_, what)| *what).collect();
    match missing.is_empty() {
        true => format!("landlock {version}"),
        false => format!("landlock {version} (which leaves {} to other layers)", missing.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_names_what_its_version_leaves_to_others() {
        let layers = [1, 2, 4, 5, 6, 9].map(layer);
        assert_eq!(
            layers,
            [
                "landlock 1 (which refuses to rename between directories)",
                "landlock 2 (which leaves truncating, calls on devices, signals and abstract sockets to other layers)",
                "landlock 4 (which leaves calls on devices, signals and abstract sockets to other layers)",
                "landlock 5 (which leaves signals and abstract sockets to other layers)",
                "landlock 6",
                "landlock 9",
            ]
        );
    }

    #[test]
    fn every_version_has_a_meaning_and_the_weakest_are_refused() {
        assert_eq!(meaning(None), meaning(Some(0)));
        let refused = |version| meaning(Some(version)).landlock.starts_with("refused");
        assert!((0..SCOPES).all(refused) && !refused(SCOPES) && !refused(u32::MAX));
        assert!(meaning(None).full.starts_with("refused") && !meaning(Some(1)).full.starts_with("refused"));
    }
}
