//! Where manifests come from: what text may ask of the host, what is saved of them, and what comes back.

use super::*;

const TEXT: &str = r#"{"entries": {"data": {"type": "mount", "source": "data", "read_only": false}}}"#;

fn code(manifest: &Manifest) -> Option<&'static str> {
    check_sources(manifest).err().map(|error| error.code())
}

#[test]
fn text_cannot_mount_writable_or_name_sources_without_a_directory() {
    let sources = [
        (json!({"type": "local_file", "src": "a"}), "manifest_invalid"),
        (json!({"type": "local_dir", "src": "a"}), "manifest_invalid"),
        (json!({"type": "mount", "source": "a"}), "mount_config_invalid"),
    ];
    for (given, expected) in sources {
        let nested = json!({"type": "dir", "children": {"y": given}});
        for manifest in [entry(given).unwrap(), entry(nested).unwrap()] {
            assert!(manifest.is_read());
            assert_eq!(code(&manifest), Some(expected));
            assert_eq!(code(&manifest.clone().trust_mounts()), Some(expected), "trust gives no directory");
            assert_eq!(code(&manifest.base_dir("/srv")), None);
        }
    }
    for harmless in [json!({"type": "file", "content": ""}), json!({"type": "local_dir"}), json!({"type": "dir"})] {
        assert_eq!(code(&entry(harmless).unwrap()), None);
    }
    let read = Format::Json.manifest(TEXT).unwrap().base_dir("/srv");
    let error = check_sources(&read).unwrap_err();
    assert_eq!(error.code(), "mount_config_invalid");
    assert!(error.to_string().contains("--allow-mounts") && error.to_string().contains("trust_mounts"), "{error}");
    assert_eq!(code(&read.clone().trust_mounts()), None);
    let built = Manifest::new().mount("data", Mount::new("data").writable()).local_file("x", LocalFile::new("y"));
    assert_eq!((code(&built), built.is_read()), (None, false));
    assert!(!built.trust_mounts().is_read());
}

#[test]
fn every_way_of_reading_is_reading() {
    let read = [
        Manifest::from_json(TEXT).unwrap(),
        Manifest::from_yaml(TEXT).unwrap(),
        Manifest::from_toml("[entries.data]\ntype = \"mount\"\nsource = \"data\"\nread_only = false\n").unwrap(),
        Format::Json.manifest_unchecked(TEXT).unwrap(),
        serde_json::from_str::<Manifest>(TEXT).unwrap(),
        Manifest::new().base_dir("/srv").merge(Manifest::from_json(TEXT).unwrap()),
        Manifest::from_json("{}").unwrap().merge(Manifest::from_json(TEXT).unwrap().trust_mounts()).base_dir("/srv"),
    ];
    for manifest in read {
        assert!(manifest.is_read() && code(&manifest).is_some(), "{manifest:?}");
        assert_eq!(manifest, manifest.clone().trust_mounts(), "where it comes from is not what it says");
    }
}

fn host() -> Manifest {
    Manifest::new()
        .local_file("f", LocalFile::new("/home/ada/f"))
        .dir("d", Dir::new().entry("g", LocalDir::new("/home/ada/g").ignore("*.o")))
        .mount("m", Mount::new("/home/ada/m").writable())
        .remote_file("r", RemoteFile::new("https://x/y?sig=hunter22").header("Authorization", "hunter22"))
        .remote_dir("a", RemoteDir::new("https://x/y.tar?sig=hunter22"))
        .git_repo("git", GitRepo::new("https://u:hunter22@x/y?token=hunter22"))
        .grant(PathGrant::new(MachinePath::new("/data").unwrap()).host_path("/home/ada/data"))
        .env("GONE", EnvValue::new("hunter22").ephemeral())
        .file("plain", "stays")
        .base_dir("/home/ada")
}

#[test]
fn what_is_saved_names_no_place_of_the_host_and_opens_nothing() {
    let manifest = host();
    let printed = format!("{manifest:?} {:?}", manifest.for_saving());
    assert!(!printed.contains("hunter22"), "{printed}");
    let saved = manifest.for_saving();
    let text = serde_json::to_string(&saved).unwrap();
    assert!(!text.contains("hunter22") && !text.contains("ada"), "{text}");
    let entries: Vec<_> = saved.redacted_entries.iter().map(WorkspacePath::as_str).collect();
    assert_eq!(entries, ["f", "d/g", "m", "r", "a", "git"]);
    let loaded: SavedManifest = serde_json::from_str(&text).unwrap();
    assert_eq!(loaded.clone().restore(None).for_saving(), saved, "what is not put back stays redacted");
    let redacted = loaded.restore(None);
    redacted.check().unwrap();
    check_sources(&redacted).unwrap();
    let left: Vec<_> = redacted.flatten().into_iter().filter(|(_, entry)| entry.is_redacted()).collect();
    assert_eq!(left.len(), 6);
}

#[test]
fn a_trusted_manifest_puts_back_what_it_says_and_no_more() {
    let load = |saved: &SavedManifest| -> SavedManifest {
        serde_json::from_str(&serde_json::to_string(saved).unwrap()).unwrap()
    };
    let saved = load(&host().for_saving());
    let whole = saved.clone().restore(Some(&host()));
    assert_eq!(whole, host());
    assert_eq!(code(&whole), None, "its sources are those of trusted code");
    // Another type at the same path, another nesting of the same path, and nothing at all.
    let other = Manifest::new()
        .local_dir("f", LocalDir::new("/home/ada/f"))
        .local_dir("d/g", LocalDir::new("/home/ada/other"))
        .grant(PathGrant::new(MachinePath::new("/data").unwrap()).host_path("/home/ada/data").read_only());
    let partly = saved.restore(Some(&other));
    let redacted: Vec<_> = partly
        .flatten()
        .into_iter()
        .filter(|(_, entry)| entry.is_redacted())
        .map(|(path, _)| path.to_string())
        .collect();
    assert_eq!(redacted, ["f", "m", "r", "a", "git"]);
    assert_eq!(partly.flatten()[2].1, &LocalDir::new("/home/ada/other").into());
    assert!(partly.extra_path_grants[0].read_only && partly.extra_path_grants[0].host_path.is_some());
    assert_eq!(partly.environment.get("GONE"), None);
    assert_eq!(partly.for_saving().redacted_environment, ["GONE"]);
}

#[test]
fn a_saved_manifest_cannot_smuggle_sources_in() {
    let forged = json!({"manifest": {"entries": {"x": {"type": "local_file", "src": "/etc/passwd"}}}});
    let saved: SavedManifest = serde_json::from_value(forged).unwrap();
    for trusted in [None, Some(Manifest::new())] {
        let restored = saved.clone().restore(trusted.as_ref());
        assert!(restored.entries.values().all(Entry::is_redacted), "{restored:?}");
    }
}

#[test]
fn a_file_is_loaded_with_its_directory() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = home.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    for (name, text) in [("m.json", "{}"), ("m.YAML", "version: 1\n"), ("m.yml", "{}"), ("m.toml", "version = 1\n")] {
        let manifest = Manifest::load(write(name, text.as_bytes())).unwrap();
        assert_eq!((manifest.source_dir(), manifest.is_read()), (Some(home.path()), true), "{name}");
    }
    let directory = home.path().join("dir.json");
    std::fs::create_dir(&directory).unwrap();
    let pipe = home.path().join("pipe.json");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let long = write("long.json", b"{}");
    std::fs::File::options().write(true).open(&long).unwrap().set_len((64 << 20) + 1).unwrap();
    let table = [
        (write("m.txt", b"{}"), "manifest_invalid"),
        (write("m", b"{}"), "manifest_invalid"),
        (write("bytes.json", b"\"\xff\""), "manifest_invalid"),
        (write("broken.json", b"{"), "manifest_invalid"),
        (write("path.json", br#"{"entries": {"../x": {"type": "dir"}}}"#), "invalid_manifest_path"),
        (home.path().join("none.json"), "local_file_read_error"),
        (directory, "local_file_read_error"),
        (pipe, "local_file_read_error"),
        (long, "limit_exceeded"),
    ];
    for (path, code) in table {
        let error = Manifest::load(&path).unwrap_err();
        assert_eq!(error.code(), code, "{} {error}", path.display());
    }
}

#[test]
fn only_code_and_those_who_say_so_reach_private_addresses() {
    let read = || Manifest::from_json(r#"{"entries": {}}"#).unwrap();
    assert!(Manifest::new().may_use_private_addresses());
    assert!(!read().may_use_private_addresses());
    assert!(!read().trust_mounts().may_use_private_addresses());
    assert!(read().allow_private_addresses().may_use_private_addresses());
    // The whole is trusted no more than the less trusted of the two.
    assert!(!Manifest::new().merge(read()).may_use_private_addresses());
    assert!(!read().allow_private_addresses().merge(read()).may_use_private_addresses());
    assert!(!Manifest::new().merge(Manifest::new()).merge(read()).may_use_private_addresses());
    assert!(Manifest::new().merge(read().allow_private_addresses()).may_use_private_addresses());
    // What was saved is text again, and as trusted as what it is restored with.
    let saved = || Manifest::new().for_saving();
    assert!(saved().restore(Some(&Manifest::new())).may_use_private_addresses());
    assert!(!saved().restore(Some(&read())).may_use_private_addresses());
}
