//! One provider of cryptography for TLS in everything that is built: two make rustls panic when it has to choose.

#![allow(clippy::expect_used, reason = "a test")]

use std::{fs, path::Path};

/// Other providers for rustls, and other implementations of TLS.
const OTHERS: [&str; 12] = [
    "aws-lc-fips-sys",
    "aws-lc-rs",
    "aws-lc-sys",
    "boring",
    "native-tls",
    "openssl",
    "openssl-sys",
    "rustls-graviola",
    "rustls-mbedcrypto-provider",
    "rustls-openssl",
    "rustls-rustcrypto",
    "s2n-tls",
];

/// The names of all packages that a lock file holds, once for each version.
fn packages(lock: &str) -> Vec<&str> {
    lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect()
}

#[test]
fn ring_is_the_only_provider() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let lock = fs::read_to_string(root.join("Cargo.lock")).expect("the lock file");
    let packages = packages(&lock);
    for only in ["ring", "rustls", "reqwest"] {
        assert_eq!(packages.iter().filter(|package| **package == only).count(), 1, "versions of {only}");
    }
    let others: Vec<_> = packages.iter().filter(|package| OTHERS.contains(package)).collect();
    assert!(others.is_empty(), "{others:?} would be linked beside ring");
    if let Ok(lock) = fs::read_to_string(root.join("fuzz/Cargo.lock")) {
        assert!(!self::packages(&lock).iter().any(|package| OTHERS.contains(package)), "in the fuzz targets");
    }
}
