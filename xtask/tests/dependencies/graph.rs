//! The crates that the workspace links with all features, as `cargo tree` lists them.

use std::{
    collections::BTreeSet,
    env,
    path::Path,
    process::{Command, Output},
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: String,
    /// Where it comes from: a directory, a repository or another registry; empty for the default registry.
    pub(crate) origin: String,
}

/// Everything but what only tests use, on this system: the crates of other systems need not be on this machine.
pub(crate) fn linked() -> BTreeSet<Package> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--workspace", "--all-features", "--locked", "--edges", "normal,build"]);
    let Output { status, stdout, stderr } =
        cargo.args(["--prefix", "none", "--format", "{p}|{l}|"]).current_dir(root()).output().expect("cargo starts");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let packages = packages(&String::from_utf8_lossy(&stdout));
    assert!(packages.len() > 100, "only {} crates are linked", packages.len());
    packages
}

/// Of lines like `name v1.2.3 (origin)|licence|`; a crate whose dependencies were listed before has a mark at the end.
fn packages(lines: &str) -> BTreeSet<Package> {
    let packages = lines.lines().filter(|line| !line.is_empty()).map(|line| {
        let mut fields = line.split('|');
        let mut words = fields.next().expect("a package").splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default();
        let (name, version, rest) = (next().to_owned(), next().trim_start_matches('v').to_owned(), next());
        let origin = rest.replace("(proc-macro)", "").trim().to_owned();
        Package { name, version, licence: fields.next().expect("a licence").to_owned(), origin }
    });
    packages.collect()
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

#[test]
fn a_package_is_read_from_its_line() {
    let lines = "a v1.0.0 (/here/a)|MIT|\nb v2.0.0+c (proc-macro)|MIT OR ISC|\n\nb v2.0.0+c (proc-macro)|MIT OR ISC| (*)\n\
                 d v0.1.0 (https://example.org/d#1234)||\n";
    let packages = packages(lines);
    let fields: Vec<[&str; 4]> =
        packages.iter().map(|Package { name, version, licence, origin }| [&**name, version, licence, origin]).collect();
    assert_eq!(
        fields,
        [
            ["a", "1.0.0", "MIT", "(/here/a)"],
            ["b", "2.0.0+c", "MIT OR ISC", ""],
            ["d", "0.1.0", "", "(https://example.org/d#1234)"],
        ]
    );
}
