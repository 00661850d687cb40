//! Repositories in every layout, and what an attacker would write into them.

use std::path::{Path, PathBuf};

use super::rig::Sandbar;

/// A directory with a repository, and how it is attacked.
#[derive(Debug)]
pub(crate) struct Repository {
    pub(crate) work: PathBuf,
    /// What a command in the directory does.
    pub(crate) attack: String,
    layout: &'static Layout,
    dir: PathBuf,
}

/// A way to have one.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    script: &'static str,
    attack: Attack,
    /// Where git is used on the host afterwards, and how.
    at: &'static str,
    trigger: &'static [&'static str],
}

/// What is written, and into which file of the directory.
#[derive(Debug)]
enum Attack {
    /// A program into a configuration.
    Config(&'static str),
    /// A program where git runs it.
    Program(&'static str),
}

const STATUS: &[&str] = &["git", "status"];
const COMMIT: &[&str] = &["git", "commit", "--quiet", "--allow-empty", "--message", "x"];

const SETTINGS: &str = "rm -rf .git work marker lib; mkdir work
    git config --global user.email a@example.com; git config --global user.name a
    git config --global init.defaultBranch main; git config --global protocol.file.allow always";

pub(crate) const LAYOUTS: [Layout; 13] = [
    Layout {
        name: "directory",
        script: "git init -q work",
        attack: Attack::Config(".git/config"),
        at: "work",
        trigger: STATUS,
    },
    Layout {
        name: "separate",
        script: "mkdir -p work; cd work; git init -q --separate-git-dir=$PWD/.bare .",
        attack: Attack::Config(".bare/config"),
        at: "work",
        trigger: STATUS,
    },
    Layout {
        name: "worktrees",
        script: "git init -q --bare work/.bare; echo 'gitdir: ./.bare' > work/.git; cd work
            git commit-tree -m x $(git mktree </dev/null) > ../id; git branch main $(cat ../id); rm ../id
            git worktree add -q tree main",
        attack: Attack::Config(".bare/config"),
        at: "work/tree",
        trigger: STATUS,
    },
    Layout {
        name: "nested",
        script: "git init -q work/a/b",
        attack: Attack::Config("a/b/.git/config"),
        at: "work/a/b",
        trigger: STATUS,
    },
    Layout {
        name: "submodule",
        script: "git init -q lib; git -C lib commit -q --allow-empty -m x; git init -q work; cd work
            git submodule --quiet add ../lib sub; git commit -qm x",
        attack: Attack::Config(".git/modules/sub/config"),
        at: "work",
        trigger: STATUS,
    },
    Layout {
        name: "bare",
        script: "git init -q --bare work/store.git; cd work/store.git; git config core.bare false
            git config core.worktree ..",
        attack: Attack::Config("store.git/config"),
        at: "work/store.git",
        trigger: STATUS,
    },
    Layout {
        name: "hooks path",
        script: "git init -q work; mkdir work/.hooks; git -C work config core.hooksPath .hooks",
        attack: Attack::Program(".hooks/pre-commit"),
        at: "work",
        trigger: COMMIT,
    },
    Layout {
        name: "include",
        script: "git init -q work; touch work/.shared; git -C work config include.path ../.shared",
        attack: Attack::Config(".shared"),
        at: "work",
        trigger: STATUS,
    },
    Layout {
        name: "program",
        script: "git init -q work; cd work; mkdir tools; printf '#!/bin/sh\\nfalse\\n' > tools/watch
            chmod +x tools/watch; git config core.fsmonitor tools/watch",
        attack: Attack::Program("tools/watch"),
        at: "work",
        trigger: STATUS,
    },
    Layout {
        name: "husky",
        script: "git init -q work; cd work; mkdir -p .husky/_; git config core.hooksPath .husky/_
            printf '#!/bin/sh\\n. .husky/pre-commit\\n' > .husky/_/pre-commit; chmod +x .husky/_/pre-commit
            touch .husky/pre-commit",
        attack: Attack::Program(".husky/pre-commit"),
        at: "work",
        trigger: COMMIT,
    },
    Layout {
        name: "linked hook",
        script: "git init -q work; cd work; touch check; ln -s ../../check .git/hooks/pre-commit",
        attack: Attack::Program("check"),
        at: "work",
        trigger: COMMIT,
    },
    Layout {
        name: "worktree of another",
        script: "git init -q lib; cd lib; git commit -q --allow-empty -m x; git config core.hooksPath checks
            mkdir -p ../work; cd ../work; git -C ../lib worktree add -q $PWD/tree; mkdir tree/checks",
        attack: Attack::Program("tree/checks/pre-commit"),
        at: "work/tree",
        trigger: COMMIT,
    },
    Layout {
        name: "repository above",
        script: "git init -q .; mkdir work/checks; git config core.hooksPath work/checks",
        attack: Attack::Program("checks/pre-commit"),
        at: "",
        trigger: COMMIT,
    },
];

impl Repository {
    /// Makes `work` with a repository of this layout.
    pub(crate) fn make(sandbar: &Sandbar, name: &str) -> Self {
        static TABLE: [Layout; LAYOUTS.len()] = LAYOUTS;
        let layout = TABLE.iter().find(|layout| layout.name == name).expect("a layout");
        for script in [SETTINGS, layout.script] {
            let made = sandbar.host(sandbar.dir(), &["sh", "-ec", script]);
            assert_eq!(made.code, 0, "{name}: {made:?}");
        }
        let dir = sandbar.dir().to_owned();
        let marker = dir.join("marker");
        let attack = match layout.attack {
            Attack::Config(file) => setting(file, &marker),
            Attack::Program(file) => {
                format!("printf '#!/bin/sh\\ntouch {}\\n' > {file}; chmod +x {file}", marker.display())
            }
        };
        Self { work: dir.join("work"), attack, layout, dir }
    }

    /// Uses git on the host, as its owner would. Whether it ran what the sandbox wrote.
    pub(crate) fn is_taken_over(&self, sandbar: &Sandbar) -> bool {
        let used = sandbar.host(&self.dir.join(self.layout.at), self.layout.trigger);
        let found = self.dir.join("marker").exists();
        assert!(found || used.code == 0, "git works: {used:?}");
        found
    }
}

/// Puts a program into a configuration.
pub(crate) fn setting(file: &str, marker: &Path) -> String {
    format!("printf '[core]\\n\\tfsmonitor = \"touch {}; false\"\\n' >> {file}", marker.display())
}

/// Makes a directory a repository without calling anything `.git`.
pub(crate) fn bare_layout(sandbar: &Sandbar) -> String {
    let marker = sandbar.dir().join("marker");
    let config = format!(
        "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = \"touch {}; false\"\\n",
        marker.display()
    );
    format!("mkdir objects refs; echo ref: refs/heads/main > HEAD; printf '{config}' > config")
}
