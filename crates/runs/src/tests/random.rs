//! Random trees and random edits: what git makes of the diff, and what `apply` makes of the changes, is the working copy.

use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::{returning::applied, *};

#[derive(Clone, Debug)]
enum Thing {
    Nothing,
    File(String, bool),
    Link(String),
}

fn thing() -> impl Strategy<Value = Thing> {
    // Few different lines, with and without an end, so that there is something to find in common.
    let text = prop::collection::vec(prop::sample::select(vec!["a\n", "b\n", "c\r\n", "\n", "d", "-- x\n"]), 0..12);
    prop_oneof![
        1 => Just(Thing::Nothing),
        4 => (text, any::<bool>()).prop_map(|(lines, program)| Thing::File(lines.concat(), program)),
        1 => prop::sample::select(vec!["ü", "nowhere", "also nowhere"]).prop_map(|to| Thing::Link(to.to_owned())),
    ]
}

/// Few names, some inside of others: what is a file now may be a directory then.
const NAMES: [&str; 8] = ["x", "x/y", "x/y/z", "a", "a/b", "a b", "a\"\t", "ü/ö"];

fn some_tree() -> impl Strategy<Value = Vec<Thing>> {
    prop::collection::vec(thing(), NAMES.len())
}

fn put(root: &Path, things: &[Thing]) {
    if root.exists() {
        for entry in fs::read_dir(root).unwrap() {
            let path = entry.unwrap().path();
            let is_dir = fs::symlink_metadata(&path).unwrap().is_dir();
            if is_dir { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
    }
    for (name, thing) in NAMES.iter().zip(things) {
        let path = root.join(name);
        // Something that is no directory is in the way.
        let above: Vec<&Path> = Path::new(name).ancestors().skip(1).collect();
        let blocked = above.iter().any(|above| fs::symlink_metadata(root.join(above)).is_ok_and(|meta| !meta.is_dir()));
        if blocked || matches!(thing, Thing::Nothing) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match thing {
            Thing::Nothing => {}
            Thing::File(text, program) => {
                fs::write(&path, text).unwrap();
                mode(&path, if *program { 0o755 } else { 0o644 });
            }
            Thing::Link(to) => symlink(to, &path).unwrap(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_git_makes_of_a_diff_is_the_working_copy(before in some_tree(), after in some_tree()) {
        let world = World::new();
        put(&world.source(), &before);
        let run = world.run();
        put(&run.workspace(), &after);
        let other = world.temp.path().join("other");
        fs::create_dir(&other).unwrap();
        put(&other, &before);
        let text = diff(&run);
        if !text.is_empty() {
            let done = git_apply(&world.source(), &text);
            prop_assert!(done.is_ok(), "{:?}\n{}", done, String::from_utf8_lossy(&text));
        }
        prop_assert_eq!(tree(&world.source()), tree(&run.workspace()));
        let status = applied(&run, &ApplyOptions::default().destination(&other));
        prop_assert!(["applied", "nothing"].contains(&status.as_str()), "{}", status);
        prop_assert_eq!(tree(&other), tree(&run.workspace()));
    }
}
