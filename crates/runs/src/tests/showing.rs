//! Diffs, and that git can apply them.

use std::os::unix::fs::symlink;

use super::*;

/// The source, changed by git as the diff says, is what the copy is.
fn agrees(world: &World, run: &RunDir) {
    let text = diff(run);
    git_apply(&world.source(), &text).unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(&text)));
    assert_eq!(tree(&world.source()), tree(&run.workspace()), "{}", String::from_utf8_lossy(&text));
}

#[test]
fn git_understands_every_kind_of_change() {
    let world = World::new();
    for (path, content) in [
        ("text", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n"),
        ("crlf", "a\r\nb\r\nc\r\n"),
        ("open end", "a\nb"),
        ("closed end", "a\nb\n"),
        ("empty", ""),
        ("fills", ""),
        ("empties", "x\n"),
        ("program", "#!/bin/sh\n"),
        ("goes", "x\ny\n"),
        ("becomes a link", "x\n"),
        ("becomes a directory", "x\n"),
        ("dir/becomes a file", "x\n"),
        ("moves", "1\n2\n3\n"),
        ("dir2/deep/er", "x\n"),
        ("same", "x\n"),
    ] {
        world.write(path, content);
    }
    let source = world.source();
    symlink("text", source.join("link")).unwrap();
    symlink("text", source.join("link that becomes a file")).unwrap();
    symlink("text", source.join("link that goes")).unwrap();
    let run = world.run();
    let copy = run.workspace();
    let put = |path: &str, content: &str| write(&copy, path, content);
    let remove = |path: &str| fs::remove_file(copy.join(path)).unwrap();
    put("text", "1\n2\nthree\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n");
    put("crlf", "a\r\nB\r\nc\r\n");
    put("open end", "a\nb\nc");
    put("closed end", "a\nb");
    put("fills", "x");
    put("empties", "");
    remove("empty");
    put("new empty", "");
    mode(&copy.join("program"), 0o755);
    remove("goes");
    remove("becomes a link");
    symlink("same", copy.join("becomes a link")).unwrap();
    remove("becomes a directory");
    put("becomes a directory/inner", "y\n");
    fs::remove_dir_all(copy.join("dir")).unwrap();
    put("dir", "z\n");
    fs::rename(copy.join("moves"), copy.join("moved")).unwrap();
    fs::remove_dir_all(copy.join("dir2")).unwrap();
    remove("link");
    symlink("dir", copy.join("link")).unwrap();
    remove("link that becomes a file");
    put("link that becomes a file", "x\n");
    remove("link that goes");
    put("new/deep/program", "#!/bin/sh");
    mode(&copy.join("new/deep/program"), 0o755);
    put("größe", "x\n");
    put("tab\tand \"quote\" and \\ and \n", "x\n");
    fs::write(copy.join(std::ffi::OsStr::from_bytes(b"not utf-8 \xff\xfe")), "x\n").unwrap();
    put("\x1b[2J", "\x1b]0;x\x07\n");
    agrees(&world, &run);
}

#[test]
fn what_is_not_text_or_too_large_is_only_named() {
    let world = World::new();
    world.write("binary", b"a\0b");
    world.write("text", "x\n");
    world.write("large", vec![b'x'; 9 << 20]);
    world.write("large program", vec![b'x'; 9 << 20]);
    let run = world.run();
    let copy = run.workspace();
    write(&copy, "binary", b"a\0c");
    write(&copy, "text", b"\0\0");
    write(&copy, "large", vec![b'y'; 9 << 20]);
    write(&copy, "many lines", vec![b'\n'; 2 << 20]);
    mode(&copy.join("large program"), 0o755);
    let text = String::from_utf8(diff(&run)).unwrap();
    for line in [
        "Binary files a/binary and b/binary differ\n",
        "Binary files a/text and b/text differ\n",
        "Binary files a/large and b/large differ\n",
        "Binary files /dev/null and b/many lines differ\n",
        "diff --git a/large program b/large program\nold mode 100644\nnew mode 100755\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(text.len() < 1000, "{text}");
}

#[test]
fn the_old_side_is_what_was_copied_whatever_became_of_the_source() {
    let world = World::new();
    world.write("a", "old\n");
    let run = world.run();
    world.write("a", "changed meanwhile\n");
    write(&run.workspace(), "a", "new\n");
    assert!(String::from_utf8(diff(&run)).unwrap().ends_with("-old\n+new\n"));
    fs::remove_dir_all(world.source()).unwrap();
    assert!(String::from_utf8(diff(&run)).unwrap().ends_with("-old\n+new\n"));
}

#[test]
fn the_repository_is_counted_and_build_output_left_out() {
    let world = World::new();
    world.write(".gitignore", "target/\n");
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    world.write("src/main.rs", "x\n");
    let run = world.run();
    let copy = run.workspace();
    write(&copy, ".git/HEAD", "ref: refs/heads/other\n");
    write(&copy, ".git/hooks/post-checkout", "#!/bin/sh\nevil\n");
    write(&copy, "target/debug/out", "x");
    write(&copy, "sub/.git/config", "x");
    // New ignore rules hide no file that existed before.
    write(&copy, ".gitignore", "target/\nsrc/\n*.new\n");
    write(&copy, "src/main.rs", "y\n");
    write(&copy, "src/other.rs", "y\n");
    write(&copy, "a.new", "y\n");
    let changes = run.changes(Scope::NotIgnored).unwrap();
    assert_eq!(verbs(&changes), ["modified .gitignore", "modified src/main.rs"]);
    assert_eq!((changes.in_git, changes.ignored), (3, 3));
    let all = run.changes(Scope::All).unwrap();
    let names =
        ["modified .gitignore", "added a.new", "modified src/main.rs", "added src/other.rs", "added target/debug/out"];
    assert_eq!((verbs(&all), all.ignored), (names.map(str::to_owned).to_vec(), 0));
}

#[test]
fn a_file_of_the_same_size_and_time_is_still_read() {
    let world = World::new();
    world.write("a", "one\n");
    let run = world.run();
    let path = run.workspace().join("a");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "two\n").unwrap();
    fs::File::open(&path).unwrap().set_modified(before).unwrap();
    assert_eq!(verbs(&run.changes(Scope::NotIgnored).unwrap()), ["modified a"]);
}
