//! What a git configuration makes git read or run besides itself.

use std::{env, fs::File, io::Read, path::PathBuf};

/// A larger configuration is read so far.
const LIMIT: u64 = 1 << 20;

/// Something that a configuration names, as it is written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// More configuration, from the directory of the file that names it.
    Include(String),
    /// Where hooks are, from the top of the working tree.
    Hooks(String),
    /// A word of a command that git runs from the top of the working tree.
    Word(String),
}

/// The last parts of keys whose values git runs.
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

/// Everything of that kind in the text of a configuration.
pub(super) fn named(text: &[u8]) -> Vec<Named> {
    let text = String::from_utf8_lossy(text).replace("\\\r\n", "").replace("\\\n", "");
    let mut section = String::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            // A subsection is quoted, and may hold anything but a line's end.
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

fn of_entry(section: &str, key: &str, value: &str, found: &mut Vec<Named>) {
    let whole = || plain(value).to_owned();
    match (section, key) {
        ("include" | "includeif", "path") => found.push(Named::Include(whole())),
        ("core", "hookspath") => found.push(Named::Hooks(whole())),
        ("alias", _) | (_, "update") if !plain(value).starts_with('!') => {}
        (section, key) if matches!(section, "alias" | "pager") || key == "update" || COMMANDS.contains(&key) => {
            let words = value.split([' ', '\t', '"', '\'', '\\', '!', ';', '|', '&', '(', ')', '<', '>', '=']);
            found.extend(words.filter(|word| !word.is_empty()).map(|word| Named::Word(word.to_owned())));
        }
        _ => {}
    }
}

/// A value without its quotes and what is said after it.
fn plain(value: &str) -> &str {
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().unwrap_or_default(),
        None => value.split(['#', ';']).next().unwrap_or_default().trim(),
    }
}

/// The same of the configuration that holds in every repository of the user. Includes are not followed there: what they
/// name lies beside them.
pub(super) fn of_the_user() -> Vec<Named> {
    let home = env::home_dir();
    let own = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| Some(home.clone()?.join(".config")));
    let files = [
        Some(PathBuf::from("/etc/gitconfig")),
        home.map(|home| home.join(".gitconfig")),
        own.map(|own| own.join("git/config")),
    ];
    let texts = files.into_iter().flatten().filter_map(|file| {
        let mut text = Vec::new();
        File::open(file).ok()?.take(LIMIT).read_to_end(&mut text).ok()?;
        Some(text)
    });
    texts.flat_map(|text| named(&text)).filter(|named| !matches!(named, Named::Include(_))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_would_read_or_run_is_found_in_a_configuration() {
        let text = b"[core]\n\tbare = false\n\tHooksPath = \".githooks\" ; here\n\tfsmonitor = ./tools/watch --fast\n\
            [include] path = ../.gitconfig\n[includeIf \"gitdir:~/a]b/\"]\n\tpath = more.inc # c\n\
            [filter \"x\"]\n\tclean = 'scripts/cl\\\nean.sh' %f\n[alias]\n\tst = status\n\trun = !sh run.sh\n\
            [remote \"origin\"]\n\turl = ../other\n# editor = no\n[submodule \"a\"]\n\tupdate = checkout\n";
        let word = |text: &str| Named::Word(text.to_owned());
        let expected = [
            Named::Hooks(".githooks".to_owned()),
            word("./tools/watch"),
            word("--fast"),
            Named::Include("../.gitconfig".to_owned()),
            Named::Include("more.inc".to_owned()),
            word("scripts/clean.sh"),
            word("%f"),
            word("sh"),
            word("run.sh"),
        ];
        assert_eq!(named(text), expected);
        assert!(named(b"\xff[[[=\n=\n]").is_empty());
    }
}
