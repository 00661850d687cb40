//! Everything that is linked into sandbar, held to `deny.toml`: licences, bans, versions and sources.
//!
//! `cargo deny` reads the same file and knows more (texts of licences, advisories, other systems), but takes minutes to install.
//! Continuous integration runs it, and so does the gate where it is installed.

#![allow(clippy::expect_used, reason = "a test")]

mod dependencies {
    pub(crate) mod graph;
    pub(crate) mod licence;
}

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use toml::{Table, Value};

use self::dependencies::{
    graph::{Package, linked, root},
    licence::is_allowed,
};

struct Rules(Table);

impl Rules {
    fn read() -> Self {
        let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
        Self(text.parse().expect("TOML"))
    }

    fn list(&self, section: &str, name: &str) -> &[Value] {
        self.0[section][name].as_array().expect("a list")
    }

    fn licences(&self) -> Vec<&str> {
        self.list("licenses", "allow").iter().map(|licence| licence.as_str().expect("a name")).collect()
    }

    /// The crates that a list of `bans` names.
    fn crates(&self, list: &str) -> Vec<&str> {
        self.list("bans", list).iter().map(|entry| entry["crate"].as_str().expect("a crate")).collect()
    }
}

/// Whether `name` or `name@1.2`, as `deny.toml` writes crates, means this version. A version can be the beginning of one.
fn means(spec: &str, name: &str, version: &str) -> bool {
    let (wanted, beginning) = spec.split_once('@').unwrap_or((spec, ""));
    let rest = version.strip_prefix(beginning);
    wanted == name && rest.is_some_and(|rest| beginning.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

#[test]
fn every_licence_is_allowed() {
    let rules = Rules::read();
    let allowed = rules.licences();
    let refused: Vec<_> = linked().into_iter().filter(|package| !is_allowed(&package.licence, &allowed)).collect();
    assert!(refused.is_empty(), "deny.toml allows other licences only: {refused:#?}");
}

#[test]
fn every_crate_comes_from_the_registry_or_is_ours() {
    let sources = &Rules::read().0["sources"];
    assert_eq!((&sources["unknown-registry"], &sources["unknown-git"]), (&"deny".into(), &"deny".into()));
    let ours = format!("({}/", root().display());
    let strangers: Vec<_> = linked()
        .into_iter()
        .filter(|package| !package.origin.is_empty() && !package.origin.starts_with(&ours))
        .collect();
    assert!(strangers.is_empty(), "{strangers:#?}");
}

#[test]
fn no_banned_crate_is_linked() {
    let rules = Rules::read();
    let is_banned =
        |package: &Package| rules.crates("deny").iter().any(|spec| means(spec, &package.name, &package.version));
    let banned: Vec<_> = linked().into_iter().filter(is_banned).collect();
    assert!(banned.is_empty(), "deny.toml bans these: {banned:#?}");
}

#[test]
fn no_crate_is_linked_in_two_versions_without_a_reason() {
    let (linked, rules) = (linked(), Rules::read());
    assert_eq!(rules.0["bans"]["multiple-versions"].as_str(), Some("deny"));
    let skipped = rules.crates("skip");
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &linked {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    for (name, versions) in &versions {
        let left: Vec<_> =
            versions.iter().filter(|version| !skipped.iter().any(|spec| means(spec, name, version))).collect();
        assert!(
            left.len() < 2,
            "{name} is linked in the versions {left:?}; let its users agree on one, or add the older one with a reason to `skip` in \
             deny.toml",
        );
    }
    for spec in skipped {
        let mut twice =
            versions.iter().flat_map(|(name, versions)| versions.iter().map(move |version| (name, version)));
        let is_needed = twice.any(|(name, version)| means(spec, name, version));
        assert!(is_needed, "`skip` in deny.toml lists {spec}, of which there is one version now: remove it");
    }
}

#[test]
fn a_specification_means_a_crate_or_some_of_its_versions() {
    for (spec, is_meant) in [("a", true), ("a@0.22", true), ("a@0.22.1", true), ("a@0.2", false), ("b", false)] {
        assert_eq!(means(spec, "a", "0.22.1"), is_meant, "{spec}");
    }
}
