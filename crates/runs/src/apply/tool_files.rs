//! Files that tools on the host run or obey by themselves, so that applying a change to one can be enough to run it.
//!
//! The list has files that take effect when a directory is entered or opened, a commit is made or pushed, a package manager is
//! called, or an agent starts. Files that run only when the project is built, tested or run (`Makefile`, `build.rs`) are not in
//! it: a reader expects them to be code.

use sandbar_host_files::{ConfinedDir, read_up_to};
use serde_json::Value;

/// A larger `package.json` counts as changed.
const LIMIT: u64 = 4 << 20;

/// Names of files and directories anywhere in the tree, by tool. A `*` stands for the start of a name.
const TOOL_FILES: [(&str, &[&str]); 9] = [
    ("the shell obeys it", &[".envrc", ".direnv", ".mise.toml", "mise.toml", ".mise", ".tool-versions", ".autoenv"]),
    (
        "an editor obeys it",
        &[
            ".vscode",
            "*.code-workspace",
            ".idea",
            ".fleet",
            ".zed",
            ".devcontainer",
            ".devcontainer.json",
            ".exrc",
            ".nvimrc",
            ".vimrc",
            ".nvim.lua",
            ".lvimrc",
            ".dir-locals.el",
            ".projectile",
            "*.sublime-project",
            ".venv",
        ],
    ),
    (
        "git obeys it",
        &[
            ".husky",
            ".githooks",
            ".gitattributes",
            ".gitmodules",
            ".gitconfig",
            ".lfsconfig",
            ".pre-commit-config.yaml",
            "lefthook.yml",
            ".lefthook.yml",
            "lefthook.yaml",
            ".overcommit.yml",
            ".hg",
            ".jj",
        ],
    ),
    (
        "a build server runs it",
        &[
            ".github/workflows",
            ".github/actions",
            ".gitea",
            ".forgejo",
            ".gitlab-ci.yml",
            ".gitlab",
            ".circleci",
            ".travis.yml",
            ".buildkite",
            ".drone.yml",
            ".woodpecker",
            ".woodpecker.yml",
            "azure-pipelines.yml",
            "bitbucket-pipelines.yml",
            "Jenkinsfile",
            "appveyor.yml",
            ".ci",
        ],
    ),
    (
        "an agent obeys it",
        &[
            ".agents",
            ".codex",
            ".claude",
            ".cursor",
            ".cursorrules",
            ".gemini",
            ".windsurf",
            ".windsurfrules",
            ".continue",
            ".aider.conf.yml",
            ".clinerules",
            ".roo",
            ".kiro",
            ".mcp.json",
            "mcp.json",
            "AGENTS.md",
            "CLAUDE.md",
            "GEMINI.md",
            ".github/copilot-instructions.md",
        ],
    ),
    ("cargo obeys it", &[".cargo/config", ".cargo/config.toml", "rust-toolchain", "rust-toolchain.toml"]),
    (
        "npm obeys it",
        &[".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/releases", ".yarn/plugins", ".pnpmfile.cjs", "bunfig.toml"],
    ),
    ("python obeys it", &["sitecustomize.py", "usercustomize.py", "*.pth"]),
    ("gradle or maven obeys it", &[".mvn", "gradle/wrapper", "gradlew", "mvnw"]),
];

/// The tool that runs or obeys a path by itself. For `package.json`, the scripts of both trees are compared.
pub(super) fn tool(path: &[u8], target: &ConfinedDir, copy: &ConfinedDir) -> Option<&'static str> {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let is_named = |pattern: &&&str| {
        let names: Vec<&str> = pattern.split('/').collect();
        parts.windows(names.len()).any(|window| window.iter().zip(&names).all(|(part, name)| is_like(part, name)))
    };
    let named = TOOL_FILES.iter().find(|(_, patterns)| patterns.iter().any(|pattern| is_named(&pattern)));
    let scripts = || {
        let is_manifest = parts.last().is_some_and(|name| name.eq_ignore_ascii_case(b"package.json"));
        (is_manifest && has_other_scripts(path, target, copy)).then_some("npm runs its scripts")
    };
    named.map(|(who, _)| *who).or_else(scripts)
}

/// Compares without case: some file systems ignore it.
fn is_like(part: &[u8], name: &str) -> bool {
    match name.strip_prefix('*') {
        Some(end) => part.len() >= end.len() && part[part.len() - end.len()..].eq_ignore_ascii_case(end.as_bytes()),
        None => part.eq_ignore_ascii_case(name.as_bytes()),
    }
}

fn has_other_scripts(path: &[u8], target: &ConfinedDir, copy: &ConfinedDir) -> bool {
    let scripts = |tree: &ConfinedDir| {
        let text = tree.file(path).and_then(|(file, _)| read_up_to(file, LIMIT)).ok()?;
        let document: Value = serde_json::from_slice(&text).ok()?;
        Some(document.get("scripts").cloned().unwrap_or_default())
    };
    match (scripts(target), scripts(copy)) {
        (None, Some(Value::Null)) => false,
        (old, new) => new.is_none() || old != new,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_tools_obey_is_known_wherever_it_is_and_the_projects_own_code_is_not_in_it() {
        let temp = tempfile::tempdir().unwrap();
        let empty = ConfinedDir::open(temp.path()).unwrap();
        for path in [
            ".envrc",
            "sub/.envrc",
            ".VSCODE/tasks.json",
            ".husky/pre-commit",
            ".github/workflows/ci.yml",
            ".mcp.json",
            "a/.claude/settings.json",
            ".cargo/config.toml",
            "all.code-workspace",
            "AGENTS.md",
            "x/Jenkinsfile",
        ] {
            assert!(tool(path.as_bytes(), &empty, &empty).is_some(), "{path}");
        }
        for path in [
            "src/main.rs",
            "Makefile",
            "build.rs",
            "envrc",
            ".github/README.md",
            "workflows/ci.yml",
            "cargo/config.toml",
        ] {
            assert_eq!(tool(path.as_bytes(), &empty, &empty), None, "{path}");
        }
    }

    #[test]
    fn a_package_is_tool_file_when_its_scripts_change() {
        let temp = tempfile::tempdir().unwrap();
        let tree = |name: &str, text: Option<&str>| {
            let dir = temp.path().join(name);
            fs::create_dir_all(&dir).unwrap();
            let _there_was_none = fs::remove_file(dir.join("package.json"));
            if let Some(text) = text {
                fs::write(dir.join("package.json"), text).unwrap();
            }
            ConfinedDir::open(&dir).unwrap()
        };
        let plain = r#"{"version": "1"}"#;
        let scripts = r#"{"version": "2", "scripts": {"postinstall": "x"}}"#;
        for (old, new, is_tool_file) in [
            (Some(plain), Some(r#"{"version": "2"}"#), false),
            (None, Some(plain), false),
            (Some(scripts), Some(scripts), false),
            (Some(plain), Some(scripts), true),
            (None, Some(scripts), true),
            (Some(scripts), Some(plain), true),
            (Some(plain), Some("{"), true),
        ] {
            let found = tool(b"package.json", &tree("old", old), &tree("new", new));
            assert_eq!(found.is_some(), is_tool_file, "{old:?} {new:?}");
        }
    }
}
