//! Files and commands that a git configuration names.

use std::{env, fs::File, io::Read, path::PathBuf};

/// Bytes of a configuration that are read.
const LIMIT: u64 = 1 << 20;

/// A path in a configuration, as it is written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConfigPath {
    /// Another configuration, relative to the file that includes it.
    Include(String),
    /// The directory of hooks, relative to the working tree.
    Hooks(String),
    /// A word of a command that git runs in the working tree.
    Word(String),
}

/// Last components of keys whose values git runs.
const COMMANDS: [&str; 19] = [
    "askpass",
    "clean",
    "cmd",
    "command",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "helper",
    "packobjectshook",
    "pager",
    "process",
    "program",
    "receivepack",
    "smudge",
    "sshcommand",
    "textconv",
    "tool",
    "uploadpack",
];

/// All paths in the text of a configuration.
pub(super) fn paths(text: &[u8]) -> Vec<ConfigPath> {
    let text = String::from_utf8_lossy(text).replace("\\\r\n", "").replace("\\\n", "");
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            // A subsection is quoted and may contain any character but a line end.
            let end = if rest.split(']').next().is_some_and(|start| start.contains('"')) { "\"]" } else { "]" };
            let (header, rest) = rest.split_once(end).unwrap_or((rest, ""));
            section = header.split([' ', '\t', '.', '"']).next().unwrap_or_default().to_ascii_lowercase();
            line = rest.trim();
        }
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with(['#', ';'])) else { continue };
        of_entry(&section, &key.trim().to_ascii_lowercase(), value.trim(), &mut found);
    }
    found
}

fn of_entry(section: &str, key: &str, value: &str, found: &mut Vec<ConfigPath>) {
    let whole = || plain(value).to_owned();
    match (section, key) {
        ("include" | "includeif", "path") => found.push(ConfigPath::Include(whole())),
        ("core", "hookspath") => found.push(ConfigPath::Hooks(whole())),
        ("alias", _) | (_, "update") if !plain(value).starts_with('!') => {}
        (section, key) if matches!(section, "alias" | "pager") || key == "update" || COMMANDS.contains(&key) => {
            let words = value.split([' ', '\t', '"', '\'', '\\', '!', ';', '|', '&', '(', ')', '<', '>', '=']);
            found.extend(words.filter(|word| !word.is_empty()).map(|word| ConfigPath::Word(word.to_owned())));
        }
        _ => {}
    }
}

/// A value without quotes and without a comment.
fn plain(value: &str) -> &str {
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().unwrap_or_default(),
        None => value.split(['#', ';']).next().unwrap_or_default().trim(),
    }
}

/// The directories that the user's own configuration is in.
#[derive(Clone, Debug, Default)]
pub(super) struct UserDirs {
    pub(super) home: Option<PathBuf>,
    config: Option<PathBuf>,
}

impl UserDirs {
    /// `HOME` and `XDG_CONFIG_HOME`, as git reads them.
    pub(super) fn from_env() -> Self {
        let home = env::home_dir();
        let config = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        Self { config: config.or_else(|| Some(home.clone()?.join(".config"))), home }
    }

    /// The paths in the configuration that applies to every repository of the user. Includes are not followed: they lie
    /// beside it.
    pub(super) fn config_paths(&self) -> Vec<ConfigPath> {
        let files = [
            Some(PathBuf::from("/etc/gitconfig")),
            self.home.as_ref().map(|home| home.join(".gitconfig")),
            self.config.as_ref().map(|config| config.join("git/config")),
        ];
        let texts = files.into_iter().flatten().filter_map(|file| {
            let mut text = Vec::new();
            File::open(file).ok()?.take(LIMIT).read_to_end(&mut text).ok()?;
            Some(text)
        });
        texts.flat_map(|text| paths(&text)).filter(|path| !matches!(path, ConfigPath::Include(_))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_git_reads_or_runs_are_found_in_a_configuration() {
        let text = b"[core]\n\tbare = false\n\tHooksPath = \".githooks\" ; here\n\tfsmonitor = ./tools/watch --fast\n\
            [include] path = ../.gitconfig\n[includeIf \"gitdir:~/a]b/\"]\n\tpath = more.inc # c\n\
            [filter \"x\"]\n\tclean = 'scripts/cl\\\nean.sh' %f\n[alias]\n\tst = status\n\trun = !sh run.sh\n\
            [remote \"origin\"]\n\turl = ../other\n# editor = no\n[submodule \"a\"]\n\tupdate = checkout\n";
        let word = |text: &str| ConfigPath::Word(text.to_owned());
        let expected = [
            ConfigPath::Hooks(".githooks".to_owned()),
            word("./tools/watch"),
            word("--fast"),
            ConfigPath::Include("../.gitconfig".to_owned()),
            ConfigPath::Include("more.inc".to_owned()),
            word("scripts/clean.sh"),
            word("%f"),
            word("sh"),
            word("run.sh"),
        ];
        assert_eq!(paths(text), expected);
        assert!(paths(b"\xff[[[=\n=\n]").is_empty());
    }
}
