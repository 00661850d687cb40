//! What a person wants to be asked about, as rules that are written down.

use std::sync::Arc;

use sandbar_agent::{Approval, ToolExt as _};
use sandbar_sandbox::patch;
use serde::Deserialize;
use serde_json::Value;

use crate::{Filesystem, Shell, Workplace, capability::filesystem::touched_from};

/// Calls of one tool that a person wants to be asked about.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskRule {
    /// The tool.
    pub tool: String,
    /// Which calls: those whose command line (or any command in it), whose input, or any of whose files match; `*` stands for
    /// anything. Files are as they are from the root of the workspace. All calls if nothing is said. Text can be written in
    /// many ways: a rule is a convenience, and no wall.
    #[serde(default)]
    pub matches: Option<String>,
}

/// When a person is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asking {
    /// About nothing.
    Never,
    /// About every call that does something.
    Always,
    /// About what the rules name.
    #[default]
    ByRule,
}

impl Asking {
    pub(super) fn shell(self, rules: &[AskRule]) -> Shell {
        let rules = Arc::new(rules.to_vec());
        Shell::new().configure_tools(move |tools| {
            let exec = self.approval(&rules, &["exec_command", "apply_patch"], &tools.place, is_about_command);
            tools.exec_command = Arc::new(Arc::clone(&tools.exec_command).approval(exec));
            if let Some(tool) = tools.write_stdin.take() {
                let typing = |rule: &AskRule, _: &Workplace, arguments: &Value| {
                    rule.tool == "write_stdin" && rule.matches(text(arguments, "chars"))
                };
                let typing = self.approval(&rules, &["write_stdin"], &tools.place, typing);
                tools.write_stdin = Some(Arc::new(tool.approval(typing)));
            }
        })
    }

    pub(super) fn filesystem(self, rules: &[AskRule]) -> Filesystem {
        let rules: Vec<AskRule> = rules.iter().filter(|rule| rule.tool == "apply_patch").cloned().collect();
        match self {
            Self::Never => Filesystem::new(),
            Self::Always => Filesystem::new().approval(Approval::Always),
            Self::ByRule if rules.iter().any(|rule| rule.matches.is_none()) => {
                Filesystem::new().approval(Approval::Always)
            }
            Self::ByRule => Filesystem::new().ask_about(move |path| rules.iter().any(|rule| rule.matches(path))),
        }
    }

    fn approval(
        self,
        rules: &Arc<Vec<AskRule>>,
        tools: &[&str],
        place: &Workplace,
        is_about: fn(&AskRule, &Workplace, &Value) -> bool,
    ) -> Approval {
        match self {
            Self::Never => Approval::Never,
            Self::Always => Approval::Always,
            // Nobody wants to be asked about arguments that cannot be read, where there is no rule.
            Self::ByRule if !rules.iter().any(|rule| tools.contains(&rule.tool.as_str())) => Approval::Never,
            Self::ByRule => {
                let (rules, place) = (Arc::clone(rules), place.clone());
                Approval::when(move |_call, arguments| {
                    let asked = rules.iter().any(|rule| is_about(rule, &place, &arguments));
                    async move { asked }
                })
            }
        }
    }
}

/// Whether a rule is about a command: about its line, any of the commands in it, or the files of a patch typed into it.
fn is_about_command(rule: &AskRule, place: &Workplace, arguments: &Value) -> bool {
    let cmd = text(arguments, "cmd");
    match rule.tool.as_str() {
        "exec_command" => rule.matches.is_none() || commands(cmd).any(|command| rule.matches(&command)),
        "apply_patch" => patch::from_script(cmd).is_some_and(|found| {
            let workdir = Some(text(arguments, "workdir").trim()).filter(|dir| !dir.is_empty());
            let workdir =
                workdir.map(|dir| place.anchored(dir)).or_else(|| place.directory().map(|dir| dir.to_string()));
            let cwd = found.directory(workdir.as_deref());
            rule.matches.is_none()
                || touched_from(place, cwd.as_deref(), &found.patch).iter().any(|path| rule.matches(path))
        }),
        _ => false,
    }
}

/// A command line as a whole, and each of the commands that it is made of, with one space between words. Quotes are not
/// understood: what is asked about too often is asked about.
fn commands(line: &str) -> impl Iterator<Item = String> + '_ {
    let parts = line.split(['\n', ';', '|', '&', '(', ')', '`', '{', '}']);
    std::iter::once(line).chain(parts).map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
}

impl AskRule {
    fn matches(&self, text: &str) -> bool {
        self.matches.as_deref().is_none_or(|pattern| matches(pattern, text))
    }
}

fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a text matches a pattern as a whole; `*` stands for anything, also for nothing.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for piece in pieces {
        if let Some(found) = last.replace(piece) {
            match rest.find(found) {
                Some(at) => rest = &rest[at + found.len()..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |end| rest.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, expected) in [
            ("git push*", "git push origin", true),
            ("git push*", "git push", true),
            ("git push*", "echo git push", false),
            ("*git push*", "cd x && git push", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("ab", "abc", false),
            ("a*a", "a", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_command_is_found_in_a_longer_line() {
        let rule = AskRule { tool: "exec_command".to_owned(), matches: Some("git push*".to_owned()) };
        for (line, expected) in [
            ("git push", true),
            ("  git   push\torigin", true),
            ("cd src && git push origin", true),
            ("true; git push", true),
            ("(git push)", true),
            ("echo `git push`", true),
            ("git pull", false),
            ("echo git push", false),
        ] {
            assert_eq!(commands(line).any(|command| rule.matches(&command)), expected, "{line}");
        }
    }
}
