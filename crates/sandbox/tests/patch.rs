//! Patches on a real machine: links, permissions, pipes and a disk that is full.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use std::{sync::Arc, time::Duration};

use sandbar_clients::UnixLocal;
use sandbar_machine::{Command, Machine, MachinePath, MachineSpec, Output, SandboxClient, Target, collect, once};
use sandbar_sandbox::{
    Paths, Result,
    patch::{Applied, Patch, PatchOptions, apply, undo},
};

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("took longer than a minute")
}

async fn machine() -> Arc<dyn Machine> {
    soon(UnixLocal::new().create(MachineSpec::default())).await.expect("create")
}

/// What a command prints, run in the workspace.
async fn printed(machine: &dyn Machine, script: &str) -> String {
    let mut process = soon(machine.spawn(Command::new(["sh", "-c", script]))).await.expect("spawn");
    let mut text = Vec::new();
    while let Some(output) = soon(process.output.recv()).await {
        if let Output::Stdout(bytes) = output.expect("output") {
            text.extend_from_slice(&bytes);
        }
    }
    String::from_utf8(text).expect("text")
}

async fn patched(machine: &dyn Machine, sections: &str) -> Result<Applied> {
    let patch = Patch::parse(&format!("*** Begin Patch\n{sections}\n*** End Patch"))?;
    let paths = Paths::new(MachinePath::workspace());
    soon(apply(machine, &paths, &patch, &PatchOptions::default())).await
}

/// Every file with its kind, mode and content.
const STATE: &str =
    "cd /workspace && find . -printf '%p %y %m %l\\n' | sort && find . -type f | sort | xargs sha256sum";

#[tokio::test]
async fn a_patch_keeps_modes_and_can_be_undone() {
    let machine = machine().await;
    let setup = "cd /workspace && mkdir d && printf '1\\n2\\n' > d/run && chmod 751 d/run && printf 'x\\n' > old && chmod 600 old \
                 && printf '\\377' > bin && printf 'k\\n' > keep && chmod 640 keep";
    printed(&*machine, setup).await;
    let before = printed(&*machine, STATE).await;
    let sections = "*** Update File: d/run\n*** Move to: e/f/run\n@@\n-1\n+one\n*** Update File: keep\n@@\n+more\n*** Delete File: \
                    old\n*** Add File: e/new\n+new\n*** Update File: bin\n*** Move to: e/bin";
    let applied = patched(&*machine, sections).await.expect("apply");
    let modes =
        printed(&*machine, "cd /workspace && stat -c '%n %a' e/f/run keep e/new && cat e/f/run keep e/new && ls").await;
    assert_eq!(modes, "e/f/run 751\nkeep 640\ne/new 644\none\n2\nk\nmore\nnew\nd\ne\nkeep\n");
    soon(undo(&*machine, &applied)).await.expect("undo");
    assert_eq!(printed(&*machine, STATE).await, before);
}

#[tokio::test]
async fn links_pipes_and_directories_are_refused_and_nothing_changes() {
    let machine = machine().await;
    let setup = "cd /workspace && printf 'a\\n' > a && mkdir d && printf 'b\\n' > d/b && ln -s a link && ln -s /tmp out && ln -s ../tmp up \
                 && ln -s d in && ln -s nowhere dangling && mkfifo pipe && printf 'secret\\n' > /tmp/secret";
    printed(&*machine, setup).await;
    let before = printed(&*machine, STATE).await;
    let table = [
        ("*** Update File: link\n@@\n-a\n+x", "apply_patch cannot change link: it is a symbolic link"),
        ("*** Delete File: link", "apply_patch cannot change link: it is a symbolic link"),
        ("*** Add File: dangling\n+x", "apply_patch cannot change dangling: it is a symbolic link"),
        ("*** Update File: out/secret\n@@\n-secret\n+x", "apply_patch path must not escape root: out/secret"),
        ("*** Add File: up/new\n+x", "apply_patch path must not escape root: up/new"),
        ("*** Delete File: out/secret", "apply_patch path must not escape root: out/secret"),
        ("*** Update File: pipe\n@@\n-a", "apply_patch cannot change pipe: it is not a regular file"),
        ("*** Add File: pipe\n+x", "apply_patch cannot change pipe: it is not a regular file"),
        ("*** Delete File: d", "apply_patch cannot change d: it is a directory"),
        ("*** Add File: a/b\n+x", "apply_patch path \"a/b\" is given twice"),
    ];
    for (section, message) in table {
        let sections = format!("*** Add File: first/new\n+x\n*** Update File: d/b\n@@\n-b\n+x\n{section}");
        let error = patched(&*machine, &sections).await.expect_err(section).to_string();
        assert!(error.starts_with(message), "{section}: {error}");
        assert_eq!(printed(&*machine, STATE).await, before, "{section}");
    }
    patched(&*machine, "*** Update File: in/b\n@@\n-b\n+c\n*** Update File: d/b\n@@\n-c\n+e")
        .await
        .expect("a link inside");
    assert_eq!(
        printed(&*machine, "cat /workspace/d/b; readlink /workspace/in; cat /tmp/secret").await,
        "e\nd\nsecret\n"
    );
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_leaves_everything_as_it_was() {
    let machine = machine().await;
    let setup =
        "cd /workspace && printf 'a\\n' > a && chmod 600 a && printf 'b\\n' > b && mkdir closed && chmod 555 closed";
    printed(&*machine, setup).await;
    let before = printed(&*machine, STATE).await;
    let sections =
        "*** Update File: a\n@@\n-a\n+x\n*** Add File: dir/ok\n+x\n*** Add File: closed/x\n+x\n*** Delete File: b";
    let error = patched(&*machine, sections).await.expect_err("closed");
    assert_eq!(error.code(), "apply_patch_write_error", "{error:?}");
    assert_eq!(error.context()["undone"], true, "{error:?}");
    assert_eq!(printed(&*machine, STATE).await, before);
}

#[tokio::test]
async fn many_files_are_patched_at_once() {
    let machine = machine().await;
    let root = MachinePath::workspace();
    let mut sections = Vec::new();
    for n in 0..200 {
        let target = Target::from(root.join(format!("d{}/f{n}", n % 7)).expect("path"));
        soon(machine.write(&target, once(format!("head\n{n}\n")))).await.expect("write");
        sections.push(format!("*** Update File: d{}/f{n}\n@@\n head\n-{n}\n+new {n}", n % 7));
    }
    let applied = patched(&*machine, &sections.join("\n")).await.expect("apply");
    assert_eq!(applied.delta.len(), 200);
    for n in [0, 99, 199] {
        let target = Target::from(root.join(format!("d{}/f{n}", n % 7)).expect("path"));
        let content = soon(machine.read(&target)).await.expect("read");
        assert_eq!(collect(content, 1024).await.expect("bytes"), format!("head\nnew {n}\n"));
    }
}
