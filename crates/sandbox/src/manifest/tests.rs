//! Every rule of the manifest as a table, and what a manifest tells about itself.

use serde_json::{Value, json};

use super::*;
use crate::{Credential, SandboxError, SecretStore};

mod generated;
mod origin;
mod text;

fn load(manifest: Value) -> Result<Manifest> {
    Manifest::from_json(&manifest.to_string())
}

fn entry(entry: Value) -> Result<Manifest> {
    load(json!({"entries": {"x": entry}}))
}

#[test]
fn an_empty_manifest_has_the_usual_values() {
    let manifest = load(json!({})).unwrap();
    assert_eq!(manifest, Manifest::new());
    assert_eq!(manifest.root, MachinePath::workspace());
    assert_eq!(manifest.remote_mount_command_allowlist.len(), 18);
    let written: Value = serde_json::from_str(&manifest.to_json().unwrap()).unwrap();
    assert_eq!(written["version"], 1);
    assert_eq!(written["environment"], json!({"value": {}}));
}

/// Each is refused with this code, in these words.
fn refused(table: impl IntoIterator<Item = (Value, &'static str, &'static str)>) {
    for (given, code, words) in table {
        let error = load(given.clone()).expect_err(&given.to_string());
        assert_eq!(error.code(), code, "{given} {error}");
        assert!(error.full_message().contains(words), "{given}\n{}", error.full_message());
    }
}

#[test]
fn paths_that_may_not_be_are_refused_and_named() {
    let file = json!({"type": "file", "content": ""});
    refused([
        (json!({"entries": {"/a": file}}), "invalid_manifest_path", "in entries[\"/a\"]"),
        (json!({"entries": {"../a": file}}), "invalid_manifest_path", "in entries[\"../a\"]"),
        (json!({"entries": {"a/../b": file}}), "invalid_manifest_path", "\"a/../b\" leads out of the workspace"),
        (json!({"entries": {"C:\\a": file}}), "invalid_manifest_path", "is a Windows path"),
        (json!({"entries": {"C:/a": file}}), "invalid_manifest_path", "is a Windows path"),
        (json!({"entries": {"": file}}), "invalid_manifest_path", "is empty"),
        (json!({"entries": {"a\u{0}": file}}), "invalid_manifest_path", "NUL"),
        (json!({"entries": {"a": file, "./a": file}}), "invalid_manifest_path", "in entries[\"./a\"]"),
        (
            json!({"entries": {"a/b": {"type": "dir", "children": {"../x": file}}}}),
            "invalid_manifest_path",
            "in entries[\"a/b\"].children[\"../x\"]",
        ),
        (
            json!({"entries": {"a": {"type": "dir", "children": {"b": file}}, "a/b": file}}),
            "invalid_manifest_path",
            "in entries[\"a/b\"]",
        ),
        (json!({"entries": {"a": file, "a/b/c": file}}), "invalid_manifest_path", "in entries[\"a/b/c\"]"),
        (json!({"entries": {"a": file, "a-b": file, "a/b": file}}), "invalid_manifest_path", "in entries[\"a/b\"]"),
    ]);
}

#[test]
fn entries_that_may_not_be_are_refused_and_named() {
    refused([
        (json!({"entries": []}), "manifest_invalid", "entries: must be an object"),
        (json!({"entries": {"a": "text"}}), "manifest_invalid", "entries[\"a\"]: must be an object"),
        (json!({"entries": {"a": {}}}), "manifest_invalid", "has no `type`; known are `file`, `inline_file`, `dir`"),
        (json!({"entries": {"a": {"type": "flie"}}}), "manifest_invalid", "unknown type \"flie\"; known are `file`"),
        (json!({"entries": {"a": {"type": 1}}}), "manifest_invalid", "`type` must be text"),
        (json!({"entries": {"a": {"type": "file"}}}), "manifest_invalid", "missing field `content`"),
        (
            json!({"entries": {"a": {"type": "local_file", "src": "a", "sources": 1}}}),
            "manifest_invalid",
            "unknown field `sources`, expected `src`; every entry also has `type`, `description`",
        ),
        (
            json!({"entries": {"a": {"type": "dir", "children": {"b": {"type": "nope"}}}}}),
            "manifest_invalid",
            "entries[\"a\"].children[\"b\"]: has the unknown type",
        ),
        (json!({"entries": {"a": {"type": "file", "content": "", "is_dir": true}}}), "manifest_invalid", "`is_dir`"),
        (
            json!({"entries": {"a": {"type": "dir", "children": 1}}}),
            "manifest_invalid",
            "].children: must be an object",
        ),
        (
            json!({"entries": {"a": {"type": "mount", "source": "/x", "readOnly": true, "read_only": true}}}),
            "manifest_invalid",
            "`read_only` twice",
        ),
        (
            json!({"entries": {"a": {"type": "file", "content": "", "permissions": 755}}}),
            "manifest_invalid",
            "write \"0644\" as text",
        ),
    ]);
}

#[test]
fn a_manifest_has_known_fields_and_a_root_of_its_own() {
    refused([
        (json!([]), "manifest_invalid", "must be an object"),
        (json!({"version": 2}), "manifest_invalid", "version: must be 1"),
        (json!({"root": "workspace"}), "manifest_invalid", "must be absolute"),
        (json!({"root": "/a/../b"}), "manifest_invalid", "root: "),
        (json!({"root": "/"}), "manifest_invalid", "root: cannot be `/`"),
        (json!({"root": "C:\\x"}), "manifest_invalid", "Windows"),
        (json!({"root": 1}), "manifest_invalid", "root: must be an absolute path"),
        (json!({"file": {}}), "manifest_invalid", "unknown field `file`; known are `version`, `root`"),
    ]);
}

#[test]
fn accounts_are_named_once_and_soundly() {
    refused([
        (json!({"users": ["a", {"name": "a"}]}), "manifest_invalid", "users[1]: is named twice"),
        (json!({"groups": [{"name": "a"}, "a"]}), "manifest_invalid", "groups[1]: is named twice"),
        (json!({"users": ["a:b"]}), "manifest_invalid", "users[0]: "),
        (json!({"users": {}}), "manifest_invalid", "users: must be a list"),
        (json!({"users": [{"uid": 1}]}), "manifest_invalid", "users[0]: unknown field `uid`"),
        (json!({"groups": [{"name": "g", "users": ["-x"]}]}), "manifest_invalid", "groups[0].users[0]: "),
    ]);
}

#[test]
fn grants_are_sound_and_say_nothing_about_the_host() {
    refused([
        (json!({"extra_path_grants": [{"path": "data"}]}), "manifest_invalid", "extra_path_grants[0]: "),
        (json!({"extra_path_grants": [{"path": "/"}]}), "manifest_invalid", "`/` cannot be granted"),
        (json!({"extra_path_grants": [{"path": "/a"}, {"path": "/a/"}]}), "manifest_invalid", "[1]: is granted twice"),
        (
            json!({"extra_path_grants": [{"path": "/a", "host_path": "/srv"}]}),
            "manifest_invalid",
            "extra_path_grants[0].host_path: cannot be given in a manifest that is read; give it on the command line with `--grant`",
        ),
        (json!({"extraPathGrants": [{"path": "/a", "hostPath": "/srv"}]}), "manifest_invalid", "--grant"),
        (json!({"extra_path_grants": [{"path": "/a", "host_path": 5}]}), "manifest_invalid", "--grant"),
    ]);
}

#[test]
fn mounts_show_up_where_they_may() {
    refused([
        (json!({"entries": {"a": {"type": "mount"}}}), "mount_config_invalid", "entries[\"a\"].source: must be given"),
        (
            json!({"entries": {"a": {"type": "mount", "source": "/x", "mount_path": "../b"}}}),
            "mount_config_invalid",
            "contains `..`",
        ),
        (
            json!({"entries": {"a": {"type": "mount", "source": "/x", "mount_path": "/"}}}),
            "mount_config_invalid",
            "hide",
        ),
        (
            json!({"entries": {"a": {"type": "mount", "source": "/x", "mount_path": "C:/"}}}),
            "mount_config_invalid",
            "Win",
        ),
        (json!({"entries": {"a": {"type": "s3_mount", "bucket": ""}}}), "mount_config_invalid", "].bucket: is empty"),
    ]);
}

#[test]
fn sources_are_sound() {
    refused([
        (json!({"entries": {"a": {"type": "local_file", "src": ""}}}), "manifest_invalid", "].src: is empty"),
        (json!({"entries": {"a": {"type": "local_dir", "src": ""}}}), "manifest_invalid", "].src: is empty"),
        (json!({"entries": {"a": {"type": "git_repo"}}}), "manifest_invalid", "].repo: or `url` must be given"),
        (
            json!({"entries": {"a": {"type": "git_repo", "repo": "a/b", "subpath": "../x"}}}),
            "git_subpath_error",
            "leads out of the repository",
        ),
        (
            json!({"entries": {"a": {"type": "remote_file", "url": "ftp://x/y"}}}),
            "manifest_invalid",
            "].url: must begin",
        ),
        (
            json!({"entries": {"a": {"type": "remote_dir", "url": "https://x/y"}}}),
            "manifest_invalid",
            "].format: is not given",
        ),
    ]);
}

#[test]
fn a_password_in_an_address_is_refused_and_not_repeated() {
    for kind in ["git_repo", "remote_file"] {
        let error = entry(json!({"type": kind, "url": "https://u:hunter22@example.com/x"})).unwrap_err();
        assert!(error.to_string().contains("name a secret"), "{error}");
        assert!(!error.full_message().contains("hunter22"), "{error}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let text = json!({"version": 3, "entries": {"../a": {"type": "file", "content": ""}, "b": {"type": "x"}, "c": 1},
        "environment": {"1": "a"}, "users": ["", ""]})
    .to_string();
    let error = Manifest::from_json(&text).unwrap_err();
    assert_eq!(error.to_string(), "version: must be 1 (and 6 more faults)");
    let faults = Format::Json.manifest_unchecked(&text).unwrap().faults();
    let codes: Vec<_> = faults.iter().map(SandboxError::code).collect();
    assert_eq!(codes.len(), 7);
    assert_eq!(codes.iter().filter(|code| **code == "invalid_manifest_path").count(), 1);
    let many: serde_json::Map<String, Value> = (0..3000).map(|n| (format!("/{n}"), json!({"type": "dir"}))).collect();
    let faults = Format::Json.manifest_unchecked(&json!({"entries": many}).to_string()).unwrap().faults();
    assert_eq!(faults.len(), 1000);
    assert!(faults[999].full_message().contains("(and 2000 more faults)"));
}

#[test]
fn a_builder_call_with_a_bad_path_is_neither_a_panic_nor_lost() {
    let manifest = Manifest::new().file("../x", "").root("relative").dir("d", Dir::new().file("/y", "").file("ok", ""));
    let faults: Vec<_> = manifest.faults().iter().map(SandboxError::full_message).collect();
    assert_eq!(faults.len(), 3, "{faults:?}");
    assert!(faults[0].starts_with("root: "), "{faults:?}");
    assert!(faults[1].contains("in entries[\"../x\"]"), "{faults:?}");
    assert!(faults[2].contains("in entries[\"d\"].children[\"/y\"]"), "{faults:?}");
    assert!(manifest.check().unwrap_err().to_string().ends_with("(and 2 more faults)"));
    assert!(Manifest::new().file("a", "").file("./a", "").check().is_err());
    assert!(Manifest::new().grant(PathGrant::new(MachinePath::workspace()).host_path("relative")).check().is_err());
}

#[test]
fn host_paths_come_from_code() {
    let grant = PathGrant::new(MachinePath::new("/data").unwrap()).host_path("/srv/data").read_only();
    let manifest = Manifest::new().grant(grant);
    manifest.check().unwrap();
    assert!(Manifest::from_json(&manifest.to_json().unwrap()).is_err());
    let saved = manifest.for_saving();
    assert_eq!(saved.redacted_grants, [MachinePath::new("/data").unwrap()]);
    let text = serde_json::to_string(&saved).unwrap();
    assert!(!text.contains("srv"));
    assert_eq!(serde_json::from_str::<SavedManifest>(&text).unwrap(), saved);
}

#[test]
fn what_is_saved_holds_no_secret() {
    let manifest = Manifest::new()
        .env("PLAIN", "stays")
        .env("GONE", EnvValue::new("hunter22").ephemeral())
        .env("TOKEN", EnvValue::secret("VAULT"))
        .dir("d", Dir::new().entry("f", RemoteFile::new("https://x/y").header("Authorization", "hunter22")))
        .entry("r", RemoteFile::new("https://x/y").header("Authorization", Credential::prefixed("Bearer ", "VAULT")))
        .entry("s3", crate::S3Mount { secret_access_key: Some("hunter22".into()), ..crate::S3Mount::new("b") });
    manifest.check().unwrap();
    assert!(!format!("{manifest:?}").contains("hunter22"));
    let saved = manifest.for_saving();
    let text = serde_json::to_string(&saved).unwrap();
    assert!(!text.contains("hunter22"), "{text}");
    assert!(text.contains("VAULT") && text.contains("stays"));
    assert_eq!(saved.redacted_environment, ["GONE"]);
    let entries: Vec<_> = saved.redacted_entries.iter().map(WorkspacePath::as_str).collect();
    assert_eq!(entries, ["d/f", "s3"]);
}

#[test]
fn names_of_variables_are_plain() {
    for (name, fine) in
        [("A", true), ("_a1", true), ("", false), ("1A", false), ("A-B", false), ("A B", false), ("Ä", false)]
    {
        assert_eq!(load(json!({"environment": {name: "x"}})).is_ok(), fine, "{name:?}");
        assert_eq!(Manifest::new().env(name, "x").check().is_ok(), fine, "{name:?}");
    }
}

#[test]
fn every_entry_has_its_usual_values() {
    let table = [
        (json!({"type": "inline_file", "content": "x"}), Entry::from(File::new("x"))),
        (json!({"type": "dir"}), Dir::new().into()),
        (json!({"type": "local_file", "src": "a"}), LocalFile::new("a").into()),
        (json!({"type": "local_dir", "src": "a"}), LocalDir::new("a").into()),
        (
            json!({"type": "local_dir", "src": "a", "ignore": ["*.o"], "gitignore": true, "symlinks": "reject", "max_bytes": 9}),
            LocalDir::new("a").ignore("*.o").obey_gitignore().symlinks(crate::Symlinks::Reject).max_bytes(9).into(),
        ),
        (json!({"type": "git_repo", "repo": "a/b"}), GitRepo::new("a/b").into()),
        (
            json!({"type": "git_repo", "repo": "a/b", "ref": "v1", "depth": 0, "sparse": ["x"], "subpath": "y",
                "submodules": true, "auth": "TOKEN", "host": "h"}),
            GitRepo::new("a/b").at("v1").depth(0).sparse("x").subpath("y").submodules().auth("TOKEN").host("h").into(),
        ),
        (json!({"type": "remote_file", "url": "https://x"}), RemoteFile::new("https://x").into()),
        (
            json!({"type": "remote_dir", "url": "https://x", "format": "tar.zst", "strip_components": 1}),
            RemoteDir::new("https://x").format(crate::ArchiveFormat::TarZst).strip_components(1).into(),
        ),
        (json!({"type": "mount", "source": "/x"}), Mount::new("/x").into()),
        (json!({"type": "mount", "source": "/x", "strategy": {"type": "local_bind"}}), Mount::new("/x").into()),
        (json!({"type": "file", "content": "", "permissions": "0600"}), File::new("").mode(0o600).into()),
        (json!({"type": "file", "content": "", "group": "staff"}), File::new("").group("staff").into()),
    ];
    for (given, expected) in table {
        let manifest = entry(given.clone()).unwrap();
        assert_eq!(manifest.entries.values().next(), Some(&expected), "{given}");
        assert_eq!(expected.attributes().ephemeral, expected.shape() == crate::Shape::Mount);
        assert_eq!(serde_json::from_value::<Entry>(given).unwrap(), expected);
        let written = serde_json::to_value(&expected).unwrap();
        assert_eq!(serde_json::from_value::<Entry>(written).unwrap(), expected);
    }
    assert!(serde_json::from_value::<Entry>(json!({"type": "x"})).is_err());
}

#[test]
fn only_what_can_be_mounted_is_not_refused() {
    assert_eq!(Entry::from(Mount::new("/x")).refusal(), None);
    assert_eq!(Entry::from(File::new("")).refusal(), None);
    let other = serde_json::from_value::<Entry>(json!({"type": "mount", "mountStrategy": {"type": "x"}})).unwrap();
    assert!(other.refusal().unwrap().contains("`x`"));
    for kind in Entry::TYPES.iter().filter(|kind| kind.ends_with("_mount")) {
        let all = json!({"type": kind, "bucket": "b", "account_id": "a", "account": "a", "container": "c", "file_system_id": "f"});
        let read = [
            vec!["bucket"],
            vec!["bucket", "account_id"],
            vec!["account", "container"],
            vec![],
            vec!["file_system_id"],
        ]
        .iter()
        .find_map(|fields| {
            let mut given = all.clone();
            given.as_object_mut()?.retain(|name, _| name == "type" || fields.contains(&name.as_str()));
            serde_json::from_value::<Entry>(given).ok()
        });
        assert!(read.unwrap().refusal().is_some(), "{kind}");
    }
}

#[test]
fn relative_sources_begin_at_the_manifests_directory() {
    let text = "[entries.repo]\ntype = \"local_dir\"\nsrc = \"./src\"\n";
    let manifest = Format::of_name(Path::new("x/m.TOML")).unwrap().manifest(text).unwrap().base_dir("/home/ada/x");
    let known = roots(&manifest).unwrap();
    assert_eq!(known.resolve(Path::new("./src")), Path::new("/home/ada/x/src"));
    assert_eq!(known.resolve(Path::new("/etc")), Path::new("/etc"));
    assert!(roots(&Manifest::new()).unwrap().resolve(Path::new("src")).ends_with("src"));
    assert_eq!(Format::of_name(Path::new("m.txt")), None);
}

#[test]
fn a_manifest_is_laid_flat_with_directories_first() {
    let manifest = Manifest::new()
        .dir("z", Dir::new().file("b", "").entry("a/c", Dir::new().file("d", "")))
        .file("a", "")
        .entry("m", Mount::new("/x"))
        .entry("m2", Mount::new("/x").mount_path("z/b2"))
        .entry("m3", Mount::new("/x").mount_path("/mnt"))
        .entry("tmp", File::new("").ephemeral());
    let flat = manifest.flatten();
    let paths: Vec<_> = flat.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["z", "z/b", "z/a/c", "z/a/c/d", "a", "m", "m2", "m3", "tmp"]);
    let mounts = manifest.mounts().unwrap();
    let targets: Vec<_> = mounts.iter().map(|(_, target, _)| target.to_string()).collect();
    assert_eq!(targets, ["/mnt", "/workspace/m", "/workspace/z/b2"]);
    let paths = manifest.ephemeral_paths();
    let ephemeral: Vec<_> = paths.iter().map(WorkspacePath::as_str).collect();
    assert_eq!(ephemeral, ["m", "m2", "m3", "tmp", "z/b2"]);
    let hiding = Manifest::new().entry("m", Mount::new("/x").mount_path("/workspace"));
    assert_eq!(hiding.mounts().unwrap_err().code(), "mount_config_invalid");
}

#[test]
fn two_manifests_become_one() {
    let mut one =
        Manifest::new().file("a", "1").env("K", "1").user(User::new("ada")).group(Group::new("g").user("ada"));
    one.add_user("ada");
    let two = Manifest::new().file("b", "2").env("K", "2").user(User::new("ada")).group(Group::new("g").user("bob"));
    let both = one.clone().merge(two);
    both.check().unwrap();
    assert_eq!(both.entries.len(), 2);
    assert_eq!(both.environment.get("K"), Some(&EnvValue::new("2")));
    assert_eq!((both.users.len(), both.groups[0].users.len()), (1, 2));
    assert!(one.clone().merge(one).check().is_err());
}

#[test]
fn a_manifest_is_described_as_a_tree() {
    let manifest = Manifest::new()
        .dir("src", Dir::new().description("code").file("main.rs", "").file("a/b.rs", ""))
        .entry("data", Mount::new("/x").mount_path("/mnt/data"))
        .entry("README.md", File::new("").description("read me"));
    assert_eq!(
        manifest.describe(2),
        "/workspace\n\
         ├── README.md    # /workspace/README.md — read me\n\
         ├── data/        # /mnt/data\n\
         └── src/         # /workspace/src — code\n\
         \u{20}   ├── a/       # /workspace/src/a\n\
         \u{20}   └── main.rs  # /workspace/src/main.rs\n"
    );
    assert_eq!(Manifest::new().describe(3), "/workspace\n");
    let many = (0..500).fold(Manifest::new(), |many, n| many.file(format!("ü{n}"), ""));
    let described = many.describe(1);
    assert!(described.chars().count() <= 5000);
    assert!(described.ends_with("Use `ls` to explore specific directories before relying on omitted paths.\n"));
}
