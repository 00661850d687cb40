//! Files of a session as streams: complete and in order; a partial stream is an error.

use std::{io::Write, process::Stdio, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    made::Made,
    rig::{PATIENCE, collect, each, finish, until},
};

#[test]
fn written_bytes_are_read_back_unchanged() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        for content in [b"".as_slice(), b"text\n", b"\0\xff\n\r\xfe"] {
            let written = sandbar.feed(&["session", "write", &made.at("deep/er/file")], content);
            assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
            let read = collect(sandbar.command(&["session", "read", &made.at("deep/er/file")]).spawn().expect("spawn"));
            assert_eq!((read.status.code(), read.stdout.as_slice()), (Some(0), content));
        }
    });
}

#[test]
fn large_files_pass_through_unchanged() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        assert_eq!(made.sh("head -c 50000000 /dev/urandom > big").code, 0);
        let mut reader = sandbar.command(&["session", "read", &made.at("big")]).spawn().expect("spawn");
        let mut writer = sandbar.command(&["session", "write", &made.at("copy")]);
        let writer = writer.stdin(Stdio::from(reader.stdout.take().expect("stdout"))).spawn().expect("spawn");
        assert_eq!((finish(writer).code, finish(reader).code), (0, 0));
        let same = made.sh("cmp big copy && stat -c %s copy");
        assert_eq!((same.code, same.stdout.as_str()), (0, "50000000\n"), "{same:?}");
    });
}

#[test]
fn a_write_that_is_cut_off_changes_nothing() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        assert_eq!(made.sh("echo old > file").code, 0);
        let mut writer = sandbar.command(&["session", "write", &made.at("file")]);
        let mut writer = writer.stdin(Stdio::piped()).spawn().expect("spawn");
        let mut input = writer.stdin.take().expect("stdin");
        input.write_all(&vec![b'n'; 300_000]).expect("write");
        thread::sleep(Duration::from_millis(200));
        kill_process(Pid::from_child(&writer), Signal::INT).expect("kill");
        drop(input);
        assert_ne!(finish(writer).code, 0);
        until("what was begun is gone", PATIENCE, || made.sh("ls -A").stdout == "file\n");
        assert_eq!(made.does(&["read", &made.at("file")]), "old\n");
    });
}

#[test]
fn a_reader_that_has_enough_is_not_an_error() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        assert_eq!(made.sh("head -c 5000000 /dev/zero > big").code, 0);
        let mut reader = sandbar.command(&["session", "read", &made.at("big")]).spawn().expect("spawn");
        drop(reader.stdout.take());
        let run = finish(reader);
        assert_eq!((run.code, run.stderr.as_str()), (141, ""));
    });
}

#[test]
fn directories_are_listed_for_people_and_for_programs() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let script =
            "mkdir d; printf 12345 > d/f; chmod 640 d/f; ln -s f d/l; mkdir d/sub; touch \"d/$(printf 'o\\033dd')\"";
        assert_eq!(made.sh(script).code, 0);
        assert_eq!(made.does(&["ls", &made.id]), "d/\n");
        assert_eq!(made.does(&["ls", &made.at("d")]), "f\nl\no?dd\nsub/\n");
        let long = made.does(&["ls", "-l", &made.at("d")]);
        assert!(long.starts_with("-0640") && long.contains("5B") && long.contains("l -> f"), "{long}");
        let list: serde_json::Value = serde_json::from_str(&made.does(&["ls", "--json", &made.at("d")])).expect("json");
        assert_eq!((list["id"].as_str(), list["path"].as_str()), (Some(made.id.as_str()), Some("d")));
        let entry = &list["entries"][0];
        assert_eq!(
            (entry["name"].as_str(), entry["kind"].as_str(), entry["size"].as_u64()),
            (Some("f"), Some("file"), Some(5))
        );
        assert_eq!((entry["mode"].as_str(), list["entries"][1]["link"].as_str()), (Some("0640"), Some("f")));
        assert_eq!(made.does(&["ls", &made.at("d/f")]), "f\n");
    });
}

#[test]
fn what_is_not_there_or_elsewhere_is_refused() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        assert_eq!(made.sh("ln -s /etc/passwd out; mkdir dir").code, 0);
        let table = [
            ("read", "missing", "does not exist"),
            ("read", "dir", "dir"),
            ("read", "/etc/passwd", "/etc/passwd"),
            ("read", "../etc/passwd", "leads out"),
            ("read", "out", "out"),
            ("ls", "missing", "does not exist"),
            ("ls", "/etc", "/etc"),
            ("write", "/etc/x", "/etc/x"),
            ("write", "out", "out"),
            ("write", "dir", "dir"),
        ];
        for (task, path, word) in table {
            let run = sandbar.run(&["session", task, &made.at(path)]);
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{task} {path}: {run:?}");
            assert!(run.stderr.starts_with("sandbar: ") && run.stderr.contains(word), "{task} {path}: {run:?}");
        }
        let slash = sandbar.run(&["session", "write", &made.at("new/")]);
        assert!(slash.code == 2 && slash.stderr.contains("slash"), "{slash:?}");
        assert_eq!(made.does(&["ls", &made.id]), "dir/\nout\n");
    });
}
