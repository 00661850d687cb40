//! Large copies and full disks.

use std::{fs, path::Path, process::Command, time::Instant};

use rustix::process::Signal;

use super::{
    play::{count, listed, run, say, script, shell, told},
    rig::{PATIENCE, Sandbar, until},
};

#[test]
fn a_copy_of_a_hundred_thousand_files_works_and_can_be_cancelled() {
    let sandbar = Sandbar::own();
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let source = memory.path().join("source");
    for dir in 0..100 {
        let dir = source.join(dir.to_string());
        fs::create_dir_all(&dir).expect("dir");
        for file in 0..1000 {
            fs::write(dir.join(file.to_string()), []).expect("file");
        }
    }
    let source = source.to_str().unwrap();
    let model =
        script(&sandbar, "count.json", [vec![shell("find . -type f | wc -l; echo x > 7/7")], vec![say("done")]]);
    let words = ["run", "do it", "--json", "--model", &model, "--workspace", source];
    let state = memory.path().join("state");
    let begun = Instant::now();
    let all = told(sandbar.command(&words).env("XDG_STATE_HOME", &state).spawn().expect("spawn"));
    println!("100,000 files: {:?}", begun.elapsed());
    assert_eq!((all.run.code, all.status()), (0, "completed"), "{all:?}");
    assert!(all.outputs().contains("100000"), "{all:?}");
    let diff =
        sandbar.command(&["diff", all.id(), "--name-only"]).env("XDG_STATE_HOME", &state).output().expect("diff");
    assert_eq!(String::from_utf8_lossy(&diff.stdout).trim(), "7/7");
    let runs = || fs::read_dir(state.join("sandbar/runs")).map_or(0, Iterator::count);
    // However late the signal comes, it is not over: it waits for a file that never comes.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/x", silent.local_addr().expect("address"));
    sandbar.make_file("slow.yaml", format!("entries:\n  x: {{type: remote_file, url: \"{url}\"}}\n"));
    let words = [words.as_slice(), &["--manifest", "slow.yaml", "--allow-private-addresses"]].concat();
    let command = &mut sandbar.behind(&["env", "--default-signal=INT"], &words);
    let child = command.env("XDG_STATE_HOME", &state).spawn().expect("spawn");
    until("it copies", PATIENCE, || runs() == 2);
    super::stops::send(&child, Signal::INT);
    let given_up = told(child);
    assert_eq!((given_up.run.code, given_up.status()), (130, "cancelled"), "{given_up:?}");
    assert_eq!(runs(), 1);
}

/// A small disk of its own, for as long as this lives.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(at: &'a Path, size: &str) -> Self {
        let options = format!("size={size},mode=0777");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).status();
        assert!(mounted.expect("mount").success(), "this test mounts, which needs root");
        Self(at)
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _said_by_itself = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_left() {
    let sandbar = Sandbar::own();
    let source = sandbar.make_dir("source");
    for name in 0..8 {
        fs::write(source.join(name.to_string()), vec![b'x'; 1 << 20]).expect("write");
    }
    let state = sandbar.make_dir("state");
    let disk = Disk::mount(&state, "4m");
    // To the last byte: what fits into no page any more fits byte by byte.
    let fill = "head -c 9m /dev/zero > f; for i in 1 2 3 4 5 6 7 8; do head -c 4096 /dev/zero > f$i; done; echo $?";
    let model = script(&sandbar, "done.json", [vec![shell(fill)], vec![say("done")]]);
    let full = run(&sandbar, &["--model", &model, "--workspace", "source"]);
    assert_eq!((full.run.code, full.status()), (1, "failed"), "{full:?}");
    assert!(full.message().contains("space"), "{full:?}");
    assert_eq!(count(&sandbar), 0);
    // An agent that fills the disk itself is told so by its own command.
    let filled = run(&sandbar, &["--model", &model]);
    assert!(filled.outputs().contains("No space left on device"), "{filled:?}");
    assert_eq!((filled.run.code, filled.status()), (0, "completed"), "{filled:?}");
    // What is written about it at its end has room that was set aside.
    assert_eq!(listed(&sandbar, filled.id()), "completed");
    sandbar.leaves_nothing("no such words");
    drop(disk);
}

#[test]
fn a_state_directory_that_cannot_be_written_is_named() {
    let sandbar = Sandbar::unprivileged();
    let model = script(&sandbar, "done.json", [vec![say("done")]]);
    for words in [["run", "do it", "--model", &model].as_slice(), &["demo"]] {
        let child = sandbar.command(words).env("XDG_STATE_HOME", "/proc/nowhere").spawn().expect("spawn");
        let ended = super::rig::finish(child);
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains("/proc/nowhere") && ended.stderr.contains("XDG_STATE_HOME"), "{ended:?}");
    }
}
