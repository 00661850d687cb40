//! Who may import whom, read from each crate's `Cargo.toml`. Development dependencies are exempt.

use super::{
    Breach,
    tree::{File, Tree},
};

/// Each crate's folder, and the folders of ours it may see.
const WALLS: &[(&str, &[&str])] = &[
    ("host-files", &[]),
    ("http", &[]),
    ("jsonl", &[]),
    ("machine", &[]),
    ("guest", &[]),
    ("macros", &[]),
    ("agent", &["http", "jsonl", "macros"]),
    ("mock", &[]),
    ("sandbox", &["host-files", "http", "jsonl", "machine"]),
    ("clients", &["http", "machine", "guest"]),
    // For tests: others have it as a development dependency only.
    ("fakes", &["machine", "clients"]),
    ("sandbar", &["machine", "clients", "sandbox", "agent", "mock"]),
    ("runs", &["host-files", "sandbar"]),
    ("mcp", &["sandbar"]),
    ("cli", &["mcp", "runs", "sandbar"]),
];

/// What makes connections with TLS, which only `http` does.
const CONNECTING: &[&str] = &["reqwest", "rustls", "rustls-platform-verifier", "tokio-rustls", "hyper-rustls"];

pub(super) fn dependencies(file: &File, _tree: &Tree) -> Vec<Breach> {
    let Some(name) = file.crate_name().filter(|name| file.path == format!("crates/{name}/Cargo.toml")) else {
        return Vec::new();
    };
    let Some((_, allowed)) = WALLS.iter().find(|(folder, _)| *folder == name) else {
        return vec![Breach::new(1, format!("say in xtask/src/tidy/walls.rs what {name} may import"))];
    };
    let mut breaches = Vec::new();
    for (line, package) in dependencies_of(&file.text) {
        if name != "http" && CONNECTING.contains(&package.as_str()) {
            breaches
                .push(Breach::new(line, format!("{name} may not import {package}; sandbar-http makes connections")));
        }
        if let Some(other) = folder(&package).filter(|other| !allowed.contains(&other.as_str()) && other != name) {
            breaches.push(Breach::new(line, format!("{name} may not import {other}")));
        }
    }
    breaches
}

/// The packages that are built into this one, with the line that names each.
fn dependencies_of(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (at, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            let parts: Vec<&str> = header.trim_end_matches(']').split('.').map(str::trim).collect();
            let table = parts.iter().position(|part| part.ends_with("dependencies"));
            inside = table.is_some_and(|table| parts[table] != "dev-dependencies");
            let named = table.filter(|_| inside).and_then(|table| parts.get(table + 1));
            found.extend(named.map(|name| (at + 1, unquoted(name))));
        } else if inside && let Some((key, value)) = line.split_once('=') {
            let key = key.split('.').next().unwrap_or_default();
            let renamed = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            let whole_value = (key.trim() == "package").then(|| value.trim());
            found.push((at + 1, unquoted(whole_value.or(renamed).unwrap_or(key))));
        }
    }
    found
}

fn unquoted(package: &str) -> String {
    package.trim().trim_matches('"').to_owned()
}

/// The folder of one of our packages.
fn folder(package: &str) -> Option<String> {
    if package == "sandbar" {
        return Some(package.to_owned());
    }
    package.strip_prefix("sandbar-").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use crate::tidy::tests::check;

    #[test]
    fn a_crate_may_import_what_is_below_it() {
        let manifest = "[dependencies]\nsandbar-machine.workspace = true\nsandbar-guest = { path = \"../guest\" }\n\
                        [dev-dependencies]\nsandbar = \"1\"\n[features]\nsandbar-cli = []\n";
        assert!(check("crates/clients/Cargo.toml", manifest).is_empty());
        assert!(check("crates/http/Cargo.toml", "[dependencies]\nreqwest = \"0.13\"\nrustls = \"0.23\"\n").is_empty());
        assert!(check("crates/cli/Cargo.toml", "[dependencies]\nsandbar.workspace = true\n").is_empty());
    }

    #[test]
    fn a_dependency_through_the_wall_is_found_however_it_is_written() {
        for (manifest, line) in [
            ("[dependencies]\nsandbar-guest.workspace = true\n", 2),
            ("[build-dependencies]\nsandbar-clients = { workspace = true }\n", 2),
            ("[dependencies.sandbar-clients]\nworkspace = true\n", 1),
            ("[target.'cfg(unix)'.dependencies]\nsandbar = \"1\"\n", 2),
            ("[dependencies]\nother = { package = \"sandbar-agent\", version = \"1\" }\n", 2),
            ("[dependencies.other]\npackage = \"sandbar-agent\"\n", 2),
            ("[dependencies]\nreqwest = { version = \"0.13\", features = [\"stream\"] }\n", 2),
            ("[dependencies]\nrustls.workspace = true\n", 2),
        ] {
            assert_eq!(check("crates/machine/Cargo.toml", manifest), [format!("{line} wall")], "{manifest}");
        }
    }

    #[test]
    fn a_crate_without_a_wall_is_found() {
        assert_eq!(check("crates/extra/Cargo.toml", "[package]\n"), ["1 wall"]);
    }
}
