//! Manifests made at random: whatever is written is read again as the same, in every format, and nothing read can panic.

use proptest::{collection::vec, option, prelude::*, strategy::Union};
use serde_json::{Map, Value, json};

use super::*;

fn word() -> impl Strategy<Value = String> {
    prop_oneof!["[a-zA-Z_][a-z0-9_]{0,6}", "[a-zA-Z][a-zA-Z0-9._ üß-]{0,6}"]
}

/// Text that formats disagree about: line breaks of every kind, quotes, numbers, words that mean something.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ \\n\\r\\t#:'\"\\\\{}\\[\\]&*!|>%@`,?-]{0,12}",
        Just("\u{85}\u{2028}\u{feff}\u{7f}".to_owned()),
        proptest::sample::select(vec![
            "null",
            "~",
            "yes",
            "0644",
            "1e3",
            ".inf",
            "0x1f",
            "---",
            "<<",
            "=",
            "2020-01-01"
        ])
        .prop_map(str::to_owned),
    ]
}

fn entry_of(depth: u32) -> BoxedStrategy<Entry> {
    let leaf = prop_oneof![
        vec(any::<u8>(), 0..20).prop_map(|bytes| File::new(bytes).into()),
        text().prop_map(|text| File::new(text).into()),
        word().prop_map(|src| LocalFile::new(src).into()),
        (word(), vec(text().prop_map(|text| text.replace(['\0', '\n'], "")), 0..3), option::of(0..i64::MAX as u64))
            .prop_map(
                |(src, ignore, max_bytes)| LocalDir { ignore, max_bytes, ..LocalDir::new(src).obey_gitignore() }.into()
            ),
        (0..9u32).prop_map(|depth| GitRepo::new("a/b").at("v1").depth(depth).sparse("x").auth("T").into()),
        text().prop_map(|value| {
            let value = value.replace(|c: char| c.is_control(), "");
            RemoteFile::new("https://x/y").header("X-y", value).header("z", Credential::prefixed("B ", "T")).into()
        }),
        any::<bool>().prop_map(|read_only| Mount { read_only, ..Mount::new("/x").mount_path("/mnt") }.into()),
        text().prop_map(|key| {
            let given = json!({"type": "s3_mount", "bucket": "b", "access_key_id": key, "mount_strategy":
                {"type": "in_container", "pattern": {"type": "rclone", "extra_args": [key], "n": 5, "on": true}}});
            serde_json::from_value(given).expect("a mount")
        }),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let dir = vec((word(), entry_of(depth - 1)), 0..3)
        .prop_map(|children| children.into_iter().fold(Dir::new(), |dir, (path, entry)| dir.entry(path, entry)).into());
    Union::new([leaf.boxed(), dir.boxed()]).boxed()
}

fn attributed() -> impl Strategy<Value = Entry> {
    (entry_of(2), option::of(text()), any::<bool>(), 0..=0o1777u32, option::of(word())).prop_map(
        |(mut entry, description, ephemeral, mode, group)| {
            let directory = entry.shape().is_dir();
            let attributes = entry.attributes_mut();
            attributes.description = description;
            attributes.ephemeral = ephemeral;
            attributes.permissions = Permissions { directory, ..Permissions::new(mode) };
            attributes.group = group.map(|name| Group::new(name.replace(' ', "_")).user("ada").into());
            entry
        },
    )
}

fn variable() -> impl Strategy<Value = EnvValue> {
    let plain = || text().prop_map(|text| EnvValue::new(text.replace('\0', "")));
    prop_oneof![
        plain(),
        (plain(), text()).prop_map(|(value, about)| value.description(about).ephemeral()),
        Just(EnvValue::secret("T")),
        Just(EnvValue::secret("T").ephemeral()),
    ]
}

prop_compose! {
    fn manifest()(
        entries in vec((word(), attributed()), 0..5),
        variables in vec(("[A-Z_][A-Z0-9_]{0,5}", variable()), 0..4),
        about in option::of(text()),
    ) -> Manifest {
        let mut manifest = Manifest::new().root("/srv/x").user(User::new("ada")).group(Group::new("g").user("bob"));
        for (path, entry) in entries {
            manifest = manifest.entry(path, entry);
        }
        for (name, value) in variables {
            manifest = manifest.env(name, value);
        }
        let grant = PathGrant { description: about, ..PathGrant::new(MachinePath::new("/data").expect("a path")) };
        manifest.grant(grant.read_only())
    }
}

/// Values that look like a manifest here and there.
fn nonsense() -> impl Strategy<Value = Value> {
    let names = || {
        proptest::sample::select(vec![
            "entries",
            "type",
            "children",
            "content",
            "environment",
            "value",
            "users",
            "name",
            "root",
            "permissions",
            "group",
            "extraPathGrants",
            "path",
            "hostPath",
            "mountStrategy",
            "src",
            "url",
            "headers",
            "secret",
            "a",
            "../b",
            "is_dir",
        ])
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::sample::select(Entry::TYPES).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((names(), inner), 0..6).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_again(manifest in manifest()) {
        // Words may meet: then the manifest is at fault, and the reader must say so too.
        prop_assume!(manifest.check().is_ok());
        prop_assert_eq!(&Manifest::from_json(&manifest.to_json().unwrap()).unwrap(), &manifest);
        let yaml = manifest.to_yaml().unwrap();
        prop_assert_eq!(&Manifest::from_yaml(&yaml).unwrap_or_else(|error| panic!("{}\n{yaml}", error.full_message())), &manifest);
        let toml = manifest.to_toml().unwrap();
        prop_assert_eq!(&Manifest::from_toml(&toml).unwrap_or_else(|error| panic!("{}\n{toml}", error.full_message())), &manifest);
        prop_assert!(manifest.describe(3).chars().count() <= 5000);
    }

    #[test]
    fn nothing_read_can_panic(tree in nonsense()) {
        let manifest = Format::Json.manifest_unchecked(&tree.to_string()).unwrap();
        prop_assert_eq!(manifest.faults().is_empty(), manifest.check().is_ok());
        if manifest.check().is_ok() {
            prop_assert_eq!(&Manifest::from_json(&manifest.to_json().unwrap()).unwrap(), &manifest);
        }
    }
}
