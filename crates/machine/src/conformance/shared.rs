//! Promises about files that commands and file operations both work on.

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use bytes::Bytes;

use super::{
    files::NAMES,
    rig::{Rig, pause, soon},
};
use crate::{Command, EntryKind, SandboxClient, once};

/// There is one file system, and both sides see all of it at once.
pub async fn commands_and_file_operations_see_the_same_files(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("written", "by us").await;
    assert_eq!(rig.sh("cat written; echo by them >theirs; mkdir d; ln -s d l").await.text(), "by us");
    assert_eq!(rig.get("theirs").await, "by them\n");
    assert_eq!(rig.stat("d").await.expect("it is there").kind, EntryKind::Dir);
    assert_eq!(rig.stat("l").await.expect("it is there").link, Some("d".into()));
    // Both sides are the same user, so each may change what the other made.
    rig.put("theirs", "ours now").await;
    rig.sh("echo more >>written && rm theirs").await;
    assert_eq!((rig.get("written").await, rig.stat("theirs").await), ("by usmore\n".into(), None));
}

/// A reader who comes in the middle of a write gets the old file or the new one, whole.
pub async fn a_reader_sees_the_old_or_the_new_never_a_mixture(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let contents = [b'a', b'b'].map(|letter| Bytes::from(vec![letter; 4 << 20]));
    rig.put("file", contents[0].clone()).await;
    rig.put("other", contents[1].clone()).await;
    let whole = rig.sh("sha256sum <file; sha256sum <other").await.text();
    let whole: Vec<&str> = whole.lines().collect();
    let write = async {
        for turn in 0..60 {
            // So that the readers get their turns, even on a machine that never has to wait.
            pause(10).await;
            rig.put("file", contents[turn % 2].clone()).await;
        }
        rig.put("done", "").await;
    };
    let read = async {
        while rig.stat("done").await.is_none() {
            let seen = rig.get("file").await;
            assert!(contents.contains(&seen), "{} bytes, a mixture", seen.len());
        }
    };
    // A command reads as well, at other moments.
    let ((), (), ran) = tokio::join!(write, read, rig.sh("while [ ! -e done ]; do sha256sum <file; done"));
    let mixture = ran.text().lines().find(|line| !whole.contains(line)).map(str::to_owned);
    assert_eq!(mixture, None, "a command saw something else than {whole:?}");
}

/// A FIFO without a writer would block its reader for ever, so reading one is refused.
pub async fn reading_a_fifo_fails_promptly(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.sh("mkfifo pipe").await;
    let refused = rig.read(&rig.at("pipe")).await.expect_err("a FIFO is no file");
    assert!(matches!(refused.code(), "file" | "denied" | "invalid"), "{refused}");
    assert_eq!(rig.stat("pipe").await.expect("it is there").kind, EntryKind::Other);
    rig.put_fails(&rig.at("pipe")).await;
    assert_eq!(rig.stat("pipe").await.expect("it is there").kind, EntryKind::Other);
    soon("remove", rig.machine.remove(&rig.at("pipe"))).await.expect("it is removed");
}

/// File operations have the rights of the machine's user, no more.
pub async fn what_the_user_may_not_do_is_denied(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    if rig.sh("id -u").await.text().trim() == "0" && rig.sh("mkdir -m 0 t; ls t 2>&1 || :").await.text().is_empty() {
        // Nothing is forbidden to this user.
        return;
    }
    rig.sh("mkdir locked && echo x >locked/file && chmod 0 locked && echo x >unreadable && chmod 0 unreadable").await;
    let codes = [
        rig.read(&rig.at("unreadable")).await.map(|_| ()),
        rig.read(&rig.at("locked/file")).await.map(|_| ()),
        soon("stat", rig.machine.stat(&rig.at("locked/file"))).await.map(|_| ()),
        soon("list", rig.machine.list(&rig.at("locked"))).await.map(|_| ()),
        soon("write", rig.machine.write(&rig.at("locked/new"), once("x"))).await,
        soon("make_dir", rig.machine.make_dir(&rig.at("locked/new"))).await,
        soon("remove", rig.machine.remove(&rig.at("locked/file"))).await,
        soon("rename", rig.machine.rename(&rig.at("locked/file"), &rig.at("mine"))).await,
    ]
    .map(|result| result.map_err(|error| error.code()));
    rig.sh("chmod 755 locked").await;
    assert_eq!(codes, [Err("denied"); 8]);
}

/// A name that is shell text stays a name, whatever tool works on it.
pub async fn hostile_names_never_become_shell_text(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let names =
        ["$(touch injected)", "`touch injected`", "; touch injected", "'; touch injected; '", "\"; touch injected"];
    for name in names {
        rig.put(format!("d/{name}/file"), name).await;
        rig.stat(format!("d/{name}/file")).await.expect("it is there");
        soon("scan", rig.machine.scan(&rig.at("d"), &crate::ScanOptions::default())).await.expect("it is scanned");
        let skip = [OsString::from(name)];
        drop(soon("pack", rig.machine.pack(&rig.at("d"), &skip)).await.expect("it is packed"));
        soon("remove", rig.machine.remove(&rig.at(format!("d/{name}")))).await.expect("it is removed");
    }
    for name in NAMES {
        let target = rig.at(std::ffi::OsStr::from_bytes(name));
        soon("make_dir", rig.machine.make_dir(&target)).await.expect("it is made");
        let ran = rig.run(Command::new(["pwd"]).cwd(target.path.clone())).await;
        assert_eq!(ran.stdout, [target.path.as_bytes(), b"\n"].concat());
    }
    let found = rig.sh("find / -xdev -name injected 2>/dev/null; :").await;
    assert_eq!(found.text(), "");
}
