//! Rules of an agent file that say which calls need the approval of a person.

use std::sync::Arc;

use sandbar_agent::{Approval, ToolExt as _};
use sandbar_sandbox::patch;
use serde::Deserialize;
use serde_json::Value;

use crate::{AgentSession, Filesystem, Shell, capability::filesystem::touched_from};

/// Calls of one tool that need the approval of a person.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskRule {
    /// Name of the tool.
    pub tool: String,
    /// Pattern of the calls; `None` matches all calls. `*` matches any text. The pattern is compared with the command line
    /// and each command in it (`exec_command`), with the input (`write_stdin`), or with each path relative to the root of
    /// the workspace (`apply_patch`). The same command can be written in many ways: a rule is a convenience, not a security
    /// boundary.
    #[serde(default)]
    pub matches: Option<String>,
}

/// Which calls a person is asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asking {
    /// No call.
    Never,
    /// Every call that runs a command or changes a file.
    Always,
    /// Every call that matches a rule.
    #[default]
    ByRule,
}

impl Asking {
    pub(super) fn shell(self, rules: &[AskRule]) -> Shell {
        let rules = Arc::new(rules.to_vec());
        Shell::new().configure_tools(move |tools| {
            let exec = self.approval(&rules, &["exec_command", "apply_patch"], &tools.agent_session, is_about_command);
            tools.exec_command = Arc::new(Arc::clone(&tools.exec_command).approval(exec));
            if let Some(tool) = tools.write_stdin.take() {
                let typing = |rule: &AskRule, _: &AgentSession, arguments: &Value| {
                    rule.tool == "write_stdin" && rule.matches(text(arguments, "chars"))
                };
                let typing = self.approval(&rules, &["write_stdin"], &tools.agent_session, typing);
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
        agent_session: &AgentSession,
        is_about: fn(&AskRule, &AgentSession, &Value) -> bool,
    ) -> Approval {
        match self {
            Self::Never => Approval::Never,
            Self::Always => Approval::Always,
            // `Approval::When` always asks about arguments that are not valid JSON; without a rule, no call needs approval.
            Self::ByRule if !rules.iter().any(|rule| tools.contains(&rule.tool.as_str())) => Approval::Never,
            Self::ByRule => {
                let (rules, agent_session) = (Arc::clone(rules), agent_session.clone());
                Approval::when(move |_call, arguments| {
                    let must_ask = rules.iter().any(|rule| is_about(rule, &agent_session, &arguments));
                    async move { must_ask }
                })
            }
        }
    }
}

/// Whether a rule matches a call of `exec_command`: its command line, a command in it, or a file of a patch in it.
fn is_about_command(rule: &AskRule, agent_session: &AgentSession, arguments: &Value) -> bool {
    let cmd = text(arguments, "cmd");
    match rule.tool.as_str() {
        "exec_command" => rule.matches.is_none() || commands(cmd).any(|command| rule.matches(&command)),
        "apply_patch" => patch::from_script(cmd).is_some_and(|invocation| {
            let workdir = Some(text(arguments, "workdir").trim()).filter(|dir| !dir.is_empty());
            let workdir = workdir
                .map(|dir| agent_session.anchored(dir))
                .or_else(|| agent_session.directory().map(|dir| dir.to_string()));
            let cwd = invocation.directory(workdir.as_deref());
            rule.matches.is_none()
                || touched_from(agent_session, cwd.as_deref(), &invocation.patch).iter().any(|path| rule.matches(path))
        }),
        _ => false,
    }
}

/// The whole command line, and each command in it, with one space between words. Quotes are not parsed: a person is asked
/// too often rather than too rarely.
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

/// Whether the whole text matches a pattern; `*` matches any text, also an empty one.
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
    fn a_star_matches_any_text() {
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
    fn a_rule_finds_a_command_in_a_longer_line() {
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
