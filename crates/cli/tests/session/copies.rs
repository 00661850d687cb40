//! Copies into and out of a session; files from a session are hostile, and are written only to the destination.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    made::Made,
    rig::{PATIENCE, Sandbar, each, finish, until},
};

/// Every path below a directory, with what is in its files.
fn tree(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).expect("read_dir") {
            let path = entry.expect("entry").path();
            let name = path.strip_prefix(root).expect("below").display().to_string();
            let meta = fs::symlink_metadata(&path).expect("metadata");
            if meta.is_dir() {
                found.push(format!("{name}/"));
                waiting.push(path);
            } else if meta.is_symlink() {
                found.push(format!("{name} -> {}", fs::read_link(&path).expect("link").display()));
            } else {
                let mode = meta.permissions().mode() & 0o777;
                found.push(format!("{name} {mode:o} {}", fs::read_to_string(&path).expect("text")));
            }
        }
    }
    found.sort();
    found
}

/// A directory of this user with a little of everything in it.
fn sample(sandbar: &Sandbar) -> String {
    let dir = sandbar.make_dir("sample");
    fs::create_dir_all(dir.join("sub/empty")).expect("create");
    fs::write(dir.join("sub/run"), "run").expect("write");
    fs::set_permissions(dir.join("sub/run"), fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::write(dir.join("odd:name"), "odd").expect("write");
    fs::set_permissions(dir.join("odd:name"), fs::Permissions::from_mode(0o644)).expect("chmod");
    symlink("sub/run", dir.join("link")).expect("symlink");
    dir.display().to_string()
}

const SAMPLE: [&str; 5] = ["link -> sub/run", "odd:name 644 odd", "sub/", "sub/empty/", "sub/run 755 run"];

#[test]
fn a_directory_is_copied_in_and_out_unchanged() {
    each(|sandbar| {
        let (sample, out) = (sample(sandbar), sandbar.make_dir("out"));
        let made = Made::new(sandbar, &[]);
        let cp = |from: &str, to: &str| assert_eq!(made.does(&["cp", from, to]), "", "{from} {to}");
        let to = |name: &str| out.join(name).display().to_string();
        cp(&sample, &made.at(""));
        cp(&sample, &made.at("renamed"));
        cp(&sample, &made.at("renamed"));
        cp(&format!("{sample}/."), &made.at("renamed/contents"));
        assert_eq!(made.does(&["ls", &made.id]), "renamed/\nsample/\n");
        assert_eq!(made.does(&["ls", &made.at("renamed")]), "contents/\nlink\nodd:name\nsample/\nsub/\n");
        cp(&made.at("sample"), &to(""));
        assert_eq!(tree(&out.join("sample")), SAMPLE);
        cp(&made.at("sample"), &to("other"));
        assert_eq!(tree(&out.join("other")), SAMPLE);
        cp(&made.at("sample/."), &to("other"));
        assert_eq!(tree(&out.join("other")), SAMPLE);
        cp(&made.at("renamed/sample"), &to("other"));
        assert_eq!(tree(&out.join("other/sample")), SAMPLE);
        let odd = format!("{sample}/odd:name");
        cp(&odd, &made.at("sample/sub/"));
        cp(&format!("{sample}/sub/run"), &made.at("tool"));
        cp(&made.at("sample/sub/odd:name"), &to("one"));
        cp(&made.at("tool"), &to(""));
        cp(&made.at("tool"), &to("one"));
        let mode = |name: &str| fs::metadata(out.join(name)).expect("metadata").permissions().mode() & 0o777;
        assert_eq!((mode("tool"), fs::read_to_string(out.join("one")).expect("one").as_str()), (0o755, "run"));
        assert!(sandbar.dir().read_dir().expect("dir").all(|entry| {
            let name = entry.expect("entry").file_name();
            !name.to_string_lossy().starts_with(".tmp")
        }));
    });
}

#[test]
fn a_copy_that_fails_reports_why() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        assert_eq!(made.sh("echo x > file").code, 0);
        let (file, missing) = (made.at("file"), made.at("missing"));
        let table: [(&str, &str, &str); 6] = [
            ("/no/such", &file, "No such file"),
            ("/dev/null", &file, "not a file or a directory"),
            (&missing, ".", "does not exist"),
            (&file, "no/such/place", "create the directory first"),
            (&file, "no/", "no such directory; create it first"),
            ("/etc/passwd", &made.at("../../etc/x"), "leads out"),
        ];
        for (from, to, word) in table {
            let run = sandbar.run(&["session", "cp", from, to]);
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{from} {to}: {run:?}");
            assert!(run.stderr.contains(word), "{from} {to}: {run:?}");
        }
        let usage = sandbar.run(&["session", "cp", "a", "b"]);
        assert!(usage.code == 2 && usage.stderr.contains("ID:PATH"), "{usage:?}");
        assert_eq!(sandbar.run(&["session", "cp", &file, &missing]).code, 2);
    });
}

#[test]
fn pipes_sockets_and_devices_are_left_out_with_a_warning() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let script = "mkdir -p t/deep; echo x > t/file; mkfifo t/a t/b t/deep/c t/deep/d";
        assert_eq!(made.sh(script).code, 0);
        let run = sandbar.run(&["session", "cp", &made.at("t"), "."]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (0, "", 1), "{run:?}");
        assert!(run.stderr.starts_with("sandbar: left out 4 ") && run.stderr.contains("and 1 more"), "{run:?}");
        assert!(run.stderr.contains(" a, b, deep/c"), "{run:?}");
        assert!(sandbar.dir().join("t/file").exists() && !sandbar.dir().join("t/a").exists());
        let own = sandbar.dir().join("t/socket");
        let _listener = std::os::unix::net::UnixListener::bind(&own).expect("bind");
        let run = sandbar.run(&["session", "cp", "t", &made.at("u")]);
        assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
        assert!(run.stderr.contains("left out 1 ") && run.stderr.contains(": socket"), "{run:?}");
        let run = sandbar.run(&["session", "cp", "--json", "t", &made.at("v")]);
        let document: serde_json::Value = serde_json::from_str(&run.stdout).expect("json");
        assert_eq!(document, serde_json::json!({"id": made.id, "left_out": ["socket"]}), "{run:?}");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    });
}

#[test]
fn a_hostile_tree_writes_nothing_outside() {
    each(|sandbar| {
        let (out, victim) = (sandbar.make_dir("out"), sandbar.make_dir("victim"));
        let made = Made::new(sandbar, &[]);
        let target = victim.display().to_string();
        let script = format!(
            "mkdir hostile up; ln -s {target} hostile/link; ln -s /etc hostile/etc; echo x > hostile/file; ln -s .. up/link"
        );
        assert_eq!(made.sh(&script).code, 0);
        let to = out.display().to_string();
        for name in ["hostile", "up"] {
            let run = sandbar.run(&["session", "cp", &made.at(name), &to]);
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
            assert!(run.stderr.contains("symbolic link") && run.stderr.contains("--keep-links"), "{run:?}");
            assert!(tree(&out).is_empty(), "a refused tree left {:?}", tree(&out));
        }
        // Kept as they are, the links are there, and are not followed by what is copied after them.
        made.does(&["cp", "--keep-links", &made.at("hostile"), &to]);
        assert!(tree(&out).contains(&format!("hostile/link -> {target}")), "{:?}", tree(&out));
        let script = "rm -r hostile; mkdir -p hostile/link/deep; echo bad > hostile/link/file; echo bad > hostile/link/deep/file";
        assert_eq!(made.sh(script).code, 0);
        let through = sandbar.run(&["session", "cp", &made.at("hostile"), &to]);
        assert_ne!(through.code, 0, "{through:?}");
        assert!(tree(&victim).is_empty(), "written through a link: {:?}", tree(&victim));
        let into = out.join("hostile").display().to_string();
        let linked = format!("{into}/link");
        let file = sandbar.run(&["session", "cp", &made.at("hostile/link/file"), &linked]);
        assert!(file.code == 1 && file.stderr.contains("symbolic link"), "{file:?}");
        assert!(tree(&victim).is_empty(), "written through a link: {:?}", tree(&victim));
        assert_eq!(made.sh("rm -r hostile/link; echo bad > hostile/link").code, 0);
        let file = sandbar.run(&["session", "cp", &made.at("hostile/link"), &into]);
        assert!(tree(&victim).is_empty(), "{file:?}: {:?}", tree(&victim));
        // A link is followed only with a slash after it.
        symlink(&victim, out.join("mine")).expect("symlink");
        made.does(&["cp", &made.at("hostile/link"), &format!("{to}/mine/")]);
        assert_eq!(tree(&victim), ["link 644 bad\n"]);
    });
}

#[test]
fn a_source_above_the_size_limit_is_not_copied() {
    each(|sandbar| {
        let out = sandbar.make_dir("out");
        let made = Made::new(sandbar, &[]);
        assert_eq!(
            made.sh("mkdir dir; truncate -s 4T dir/sparse; mkdir small; head -c 5000 /dev/zero > small/f").code,
            0
        );
        let to = out.display().to_string();
        for (name, most) in [("dir", "8m"), ("dir/sparse", "16g"), ("small", "4k"), ("small/f", "4k")] {
            let run = sandbar.run(&["session", "cp", "--max-bytes", most, &made.at(name), &to]);
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{name}: {run:?}");
            assert!(run.stderr.contains("raise --max-bytes"), "{name}: {run:?}");
            assert!(tree(&out).is_empty(), "{name}: {:?}", fs::read_dir(&out).expect("out").collect::<Vec<_>>());
        }
        made.does(&["cp", "--max-bytes", "64k", &made.at("small"), &to]);
        assert_eq!(fs::metadata(out.join("small/f")).expect("metadata").len(), 5000);
    });
}

#[test]
fn an_interrupted_copy_leaves_no_partial_file() {
    each(|sandbar| {
        let out = sandbar.make_dir("out");
        let made = Made::new(sandbar, &[]);
        assert_eq!(made.sh("truncate -s 15G endless").code, 0);
        let words = ["session", "cp", &made.at("endless"), &out.display().to_string()];
        let fresh = ["env", "--default-signal=INT,TERM"];
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let child = sandbar.behind(&fresh, &words).spawn().expect("spawn");
            until("it has begun", PATIENCE, || fs::read_dir(&out).expect("out").next().is_some());
            kill_process(Pid::from_child(&child), signal).expect("kill");
            let run = finish(child);
            assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (code, "", ""), "{run:?}");
            assert!(tree(&out).is_empty(), "{:?}", fs::read_dir(&out).expect("out").collect::<Vec<_>>());
        }
    });
}
