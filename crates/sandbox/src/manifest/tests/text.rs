//! Manifests as people and other programs write them, and texts that are none.

use super::*;

#[test]
fn variables_are_read_in_every_shape() {
    let table = [
        (json!("x"), Some("x")),
        (json!(""), Some("")),
        (json!({"type": "str", "value": "x"}), Some("x")),
        (json!({"value": "x"}), Some("x")),
        (json!({"value": "x", "ephemeral": true, "description": "d"}), Some("x")),
        (json!({"value": {"type": "str", "value": "x"}, "description": null}), Some("x")),
        (json!({"value": {"value": "x"}}), Some("x")),
        (json!({"type": "secret", "name": "VAULT"}), Some("hunter22")),
        (json!({"type": "secret", "name": "VAULT", "ephemeral": true}), Some("hunter22")),
        (json!({"value": {"type": "secret", "name": "VAULT"}, "ephemeral": false}), Some("hunter22")),
        (json!({"type": "secret", "name": ""}), None),
        (json!({"type": "vault", "name": "x"}), None),
        (json!({"type": "str"}), None),
        (json!({"type": "str", "value": "x", "more": 1}), None),
        (json!({"value": {"type": "str", "value": "x", "more": 1}}), None),
        (json!({"value": 1}), None),
        (json!({"value": "x", "ephemeral": "yes"}), None),
        (json!(1), None),
        (json!(null), None),
        (json!(["x"]), None),
        (json!("a\u{0}b"), None),
    ];
    let secrets = SecretStore::new().with("VAULT", "hunter22");
    for (given, expected) in table {
        for environment in [json!({"NAME": given, "B": "c"}), json!({"value": {"NAME": given, "B": "c"}})] {
            let manifest = load(json!({"environment": environment}));
            let resolved = manifest.as_ref().ok().map(|manifest| manifest.environment.resolve(&secrets).unwrap());
            assert_eq!(resolved.as_ref().map(|resolved| resolved["NAME"].as_str()), expected, "{given}");
            if let Ok(manifest) = manifest {
                assert_eq!(load(serde_json::to_value(&manifest).unwrap()).unwrap(), manifest, "{given}");
            }
        }
    }
    let error = load(json!({"environment": {"A": {"type": "x"}}})).unwrap_err();
    assert_eq!(error.to_string(), "environment[\"A\"]: has the unknown type \"x\"; known are `secret`, `str`");
    let unknown = Manifest::new().env("A", EnvValue::secret("UNKNOWN")).environment.resolve(&secrets).unwrap_err();
    assert_eq!(unknown.code(), "secret_not_found");
}

#[test]
fn the_spelling_of_the_javascript_sdk_loads_too() {
    let theirs = load(json!({
        "entries": {
            "camelCase.txt": {"type": "file", "content": {"type": "base64", "data": "/w=="}},
            "data": {"type": "mount", "source": "/srv", "mountPath": "/mnt/x", "readOnly": false,
                "mountStrategy": {"type": "local_bind"}},
            "s3": {"type": "s3_mount", "bucket": "b", "accessKeyId": "k", "s3Provider": "AWS", "mountStrategy":
                {"type": "in_container", "pattern": {"type": "rclone", "remoteName": "r", "extraArgs": []}}},
            "az": {"type": "azure_blob_mount", "accountName": "a", "container": "c", "endpointUrl": "https://x"},
            "fs": {"type": "s3_files_mount", "fileSystemId": "f", "extraOptions": {"aB": null}},
            "d": {"type": "dir", "children": {"aB": {"type": "file", "content": "x", "permissions": 420}}},
        },
        "environment": {"aB": {"value": "x", "ephemeral": true}},
        "groups": [{"name": "g"}],
        "extraPathGrants": [{"path": "/data", "readOnly": true}],
        "remoteMountCommandAllowlist": ["ls"],
    }))
    .unwrap();
    let ours = load(json!({
        "entries": {
            "camelCase.txt": {"type": "file", "content": {"encoding": "base64", "data": "/w=="}},
            "data": {"type": "mount", "source": "/srv", "mount_path": "/mnt/x", "read_only": false,
                "mount_strategy": {"type": "local_bind"}},
            "s3": {"type": "s3_mount", "bucket": "b", "access_key_id": "k", "s3_provider": "AWS", "mount_strategy":
                {"type": "in_container", "pattern": {"type": "rclone", "remote_name": "r", "extra_args": []}}},
            "az": {"type": "azure_blob_mount", "account": "a", "container": "c", "endpoint": "https://x"},
            "fs": {"type": "s3_files_mount", "file_system_id": "f", "extra_options": {"aB": null}},
            "d": {"type": "dir", "children": {"aB": {"type": "file", "content": "x", "permissions": "0644"}}},
        },
        "environment": {"value": {"aB": {"value": {"type": "str", "value": "x"}, "ephemeral": true}}},
        "groups": [{"name": "g", "users": []}],
        "extra_path_grants": [{"path": "/data", "read_only": true}],
        "remote_mount_command_allowlist": ["ls"],
    }))
    .unwrap();
    assert_eq!(theirs, ours);
}

#[test]
fn texts_that_are_no_manifest_are_refused_within_bounds() {
    let deep_json = format!(r#"{{"entries":{}"#, "[".repeat(100_000));
    let bomb = (0..20).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |bomb, n| {
        let aliases = vec![format!("*a{n}"); 8].join(", ");
        format!("{bomb}a{}: &a{} [{aliases}]\n", n + 1, n + 1)
    });
    let table = [
        (Format::Json, "{".to_owned(), "EOF"),
        (Format::Json, "{} {}".to_owned(), "trailing"),
        (Format::Json, r#"{"root": "/a", "root": "/b"}"#.to_owned(), "given twice"),
        (Format::Json, deep_json, "recursion"),
        (Format::Yaml, "a: [".to_owned(), "manifest: "),
        (Format::Yaml, "root: /a\nroot: /b\n".to_owned(), "twice"),
        (Format::Yaml, "root: !tag /a\n".to_owned(), "manifest: "),
        (Format::Yaml, bomb, "manifest: "),
        (Format::Yaml, "[".repeat(100_000), "manifest: "),
        (Format::Toml, "root = ".to_owned(), "manifest: "),
        (Format::Toml, "root = \"/a\"\nroot = \"/b\"\n".to_owned(), "duplicate key"),
        (Format::Toml, format!("a = {}", "[".repeat(100_000)), "manifest: "),
    ];
    for (format, text, words) in table {
        let error = format.manifest_unchecked(&text).expect_err(&text[..text.len().min(80)]);
        assert!(error.to_string().contains(words), "{error}");
    }
    let long = format!("{{}}{}", " ".repeat(64 << 20));
    assert_eq!(Manifest::from_json(&long).unwrap_err().code(), "limit_exceeded");
}

#[test]
fn directories_nest_as_deep_as_a_document_can() {
    let nested = |levels: usize| (0..levels).fold(Dir::new().file("x", "y"), |inner, _| Dir::new().entry("d", inner));
    let deep = Manifest::new().dir("d", nested(59));
    deep.check().unwrap();
    assert_eq!(Manifest::from_json(&deep.to_json().unwrap()).unwrap(), deep);
    assert_eq!(Manifest::from_yaml(&deep.to_yaml().unwrap()).unwrap(), deep);
    // TOML readers stop at 80 levels.
    assert!(Manifest::from_toml(&deep.to_toml().unwrap()).unwrap_err().to_string().contains("recursion limit"));
    let shallow = Manifest::new().dir("d", nested(34));
    assert_eq!(Manifest::from_toml(&shallow.to_toml().unwrap()).unwrap(), shallow);
    let deeper = Manifest::new().dir("d", nested(61));
    assert!(deeper.check().unwrap_err().to_string().contains("nested deeper than 60"));
    let long = Manifest::new().dir("a".repeat(255), nested(2000));
    assert!(long.check().is_err());
}

#[test]
fn yaml_reads_as_people_write_it() {
    let manifest = Manifest::from_yaml(
        "entries:\n  run.sh:\n    type: file\n    permissions: 0755\n    content: |\n      #!/bin/sh\n      true\n  1:\n    type: dir\n\
         environment:\n  ON: \"1\"\n  NO: no\n",
    )
    .unwrap();
    let expected = Manifest::new()
        .entry("run.sh", File::new("#!/bin/sh\ntrue\n").mode(0o755))
        .dir("1", Dir::new())
        .env("ON", "1")
        .env("NO", "no");
    assert_eq!(manifest, expected);
    let error = Manifest::from_yaml("environment: {DEBUG: 1}").unwrap_err();
    assert_eq!(error.to_string(), "environment[\"DEBUG\"]: must be text; put it in quotes");
}
