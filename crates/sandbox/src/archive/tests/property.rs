//! Property tests: no archive writes outside of the directory it is unpacked in.

use proptest::prelude::*;
use sandbar_machine::{EntryKind, Files as _, ScanOptions};

use super::{
    build::{Given, ordinary_zip},
    *,
};

/// Names made of components that are known to mislead programs.
fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just("l".to_owned()),
        Just("..".to_owned()),
        Just(".".to_owned()),
        Just(String::new()),
        Just("C:".to_owned()),
        Just("..\\".to_owned()),
        Just("ü".to_owned()),
        "[a-c]{1,3}",
    ];
    prop::collection::vec(part, 0..4).prop_map(|parts| parts.join("/"))
}

fn given() -> impl Strategy<Value = Given> {
    let kind = prop_oneof![
        4 => Just(Kind::File), 2 => Just(Kind::Dir), 2 => Just(Kind::Symlink), 1 => Just(Kind::HardLink),
        1 => Just(Kind::Other(b'6')),
    ];
    (kind, name(), name(), prop::collection::vec(any::<u8>(), 0..700), 0u32..0o10000).prop_map(
        |(kind, path, link, data, mode)| {
            let data = if kind == Kind::File { data } else { Vec::new() };
            Given { kind, path: path.into(), link: link.into(), data, mode }
        },
    )
}

fn format() -> impl Strategy<Value = Format> {
    prop::sample::select(FORMATS.to_vec())
}

fn links() -> impl Strategy<Value = Links> {
    prop::sample::select(vec![Links::Refuse, Links::KeepInside, Links::KeepAll])
}

/// Whether the target of a link at this path is inside, judged by its text alone.
fn inside(path: &[u8], link: &[u8]) -> bool {
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    !link.starts_with(b"/")
        && link.split(|byte| *byte == b'/').all(|part| match part {
            b"" | b"." => true,
            b".." => depth.checked_sub(1).is_some_and(|up| {
                depth = up;
                true
            }),
            _ => {
                depth += 1;
                true
            }
        })
}

/// Unpacks a cleaned archive next to a file that must not change.
async fn judge(tar: Vec<u8>, policy: &Policy) {
    for (member, _) in members(&tar) {
        let path = String::from_utf8_lossy(&member.path).into_owned();
        let parts: Vec<_> = path.trim_end_matches('/').split('/').collect();
        assert!(!path.starts_with('/') && !path.contains('\0'), "{path:?}");
        assert!(parts.iter().all(|part| !matches!(*part, "" | "." | "..")), "{path:?}");
        assert!(matches!(member.kind, Kind::File | Kind::Dir | Kind::Symlink | Kind::HardLink));
        assert_eq!(member.mode & !0o777, 0);
        if member.kind == Kind::Symlink && policy.links == Links::KeepInside {
            assert!(inside(&member.path, &member.link), "{path} -> {:?}", member.link);
        }
        assert!(policy.links != Links::Refuse || matches!(member.kind, Kind::File | Kind::Dir));
    }
    let machine = MemoryMachine::new();
    let at = |path: &str| Target::from(MachinePath::new(path).unwrap());
    machine.write(&at("/workspace/a"), once("kept")).await.unwrap();
    machine
        .unpack(&at("/workspace/box").beneath(MachinePath::workspace()), once(tar))
        .await
        .expect("a machine takes it");
    let index = machine.scan(&at("/"), &ScanOptions::default()).await.unwrap();
    for entry in index.entries {
        let path = entry.path.to_string_lossy().into_owned();
        let known = matches!(path.as_str(), "workspace" | "workspace/a" | "workspace/box");
        assert!(known || path.starts_with("workspace/box/"), "{path}");
        assert!(path != "workspace/a" || entry.entry.kind == EntryKind::File);
    }
    assert_eq!(collect(machine.read(&at("/workspace/a")).await.unwrap(), 10).await.unwrap(), "kept");
}

fn attempt(archive: &[u8], format: Format, policy: &Policy) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if let Ok((tar, _)) = run(archive, format, &ArchiveLimits::default(), policy).await {
            judge(tar, policy).await;
        }
    });
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn no_member_escapes(
        given in prop::collection::vec(given(), 0..6), format in format(), links in links(), strip in 0usize..2,
    ) {
        let policy = Policy { links, strip_components: strip, ..Policy::default() };
        if let Some(archive) = build(&given, format) {
            attempt(&archive, format, &policy);
        }
    }

    #[test]
    fn no_sequence_of_bytes_escapes(
        given in prop::collection::vec(given(), 1..4),
        format in format(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        if let Some(mut archive) = build(&given, format) {
            for (at, value) in flips {
                let at = at.index(archive.len());
                archive[at] = value;
            }
            attempt(&archive, format, &Policy { links: Links::KeepAll, ..Policy::default() });
        }
    }

    #[test]
    fn random_bytes_are_refused(noise in prop::collection::vec(any::<u8>(), 0..2000), format in format()) {
        attempt(&noise, format, &keep());
    }

    #[test]
    fn an_archive_of_an_ordinary_program_is_accepted(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 1..5),
    ) {
        let given: Vec<Given> =
            contents.iter().enumerate().map(|(at, data)| build::file(&format!("dir/{at}"), data)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let zip = ordinary_zip(&given);
        let (tar, _) = runtime.block_on(run(&zip, Format::Zip, &ArchiveLimits::default(), &keep())).unwrap();
        let found: Vec<Vec<u8>> = members(&tar).into_iter().map(|(_, data)| data).collect();
        prop_assert_eq!(found, contents);
    }
}
