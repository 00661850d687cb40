//! The git commands of a clone, as data, with the settings that restrict git.

use base64::{Engine, prelude::BASE64_STANDARD};
use sandbar_machine::{Command, MachinePath};

use super::{
    GitRequest,
    source::{Reference, Source, is_commit},
};

/// Settings of every command; they override the repository's own settings.
const SETTINGS: &[&str] = &[
    "advice.detachedHead=false",
    "core.askPass=",
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "core.excludesFile=/dev/null",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.logAllRefUpdates=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.symlinks=true",
    "credential.helper=",
    "fetch.fsckObjects=true",
    // Errors of old programs that are common in real histories.
    "fetch.fsck.badTimezone=ignore",
    "fetch.fsck.missingSpaceBeforeDate=ignore",
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "gc.auto=0",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=30",
    "init.defaultBranch=main",
    "init.templateDir=",
    "maintenance.auto=false",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
];

/// Environment of every command. Git must not prompt for a password: no user is there to answer.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("GIT_ASKPASS", ""),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_LFS_SKIP_SMUDGE", "1"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("HOME", "/nonexistent"),
    ("SSH_ASKPASS", ""),
    ("XDG_CONFIG_HOME", "/nonexistent"),
];

/// A clone, step by step.
#[derive(Debug)]
pub(super) struct Plan {
    url: String,
    /// Directory for the clone; git creates it.
    pub(super) clone: MachinePath,
    workspace: MachinePath,
    depth: Option<u32>,
    sparse: Vec<String>,
    object_format: &'static str,
    protocols: &'static str,
    /// Name and value of the setting with the credentials. Never an argument: other processes can read arguments.
    credentials: Option<(String, String)>,
    /// Settings that restrict git to the checked addresses; empty if every address is allowed.
    pins: Vec<String>,
}

impl Plan {
    pub(super) fn new(request: &GitRequest, source: &Source, (workspace, clone): (MachinePath, MachinePath)) -> Self {
        let credentials = request.auth.as_ref().map(|secret| {
            let pair = secret.expose();
            let pair = if pair.contains(':') { pair.to_owned() } else { format!("x-access-token:{pair}") };
            let header = format!("Authorization: Basic {}", BASE64_STANDARD.encode(pair));
            (format!("http.{}/.extraHeader", source.url.origin().ascii_serialization()), header)
        });
        let long = matches!(&source.reference, Reference::Whole(name) if is_commit(name) && name.len() == 64);
        Self {
            url: source.url.to_string(),
            clone,
            workspace,
            depth: request.depth,
            sparse: request.sparse.clone(),
            object_format: if long { "sha256" } else { "sha1" },
            // Redirects and submodules must not lead to a less secure protocol.
            protocols: match source.url.scheme() {
                "https" => "https",
                "http" => "http:https",
                _ => "git:https",
            },
            credentials,
            pins: Vec::new(),
        }
    }

    /// The same with settings that restrict git to some addresses.
    pub(super) fn with_pins(self, pins: Vec<String>) -> Self {
        Self { pins, ..self }
    }

    /// Clones the branch that the server's `HEAD` names.
    pub(super) fn clone_head(&self) -> Command {
        self.cloning(&[])
    }

    /// Clones a branch or a tag.
    pub(super) fn clone_named(&self, name: &str) -> Command {
        self.cloning(&[&format!("--branch={name}")])
    }

    fn cloning(&self, options: &[&str]) -> Command {
        let depth = self.depth_option();
        let fixed = ["clone", "--quiet", "--no-checkout", "--no-tags", "--single-branch", "--template="];
        let operands = ["--", &self.url, "clone"];
        let args = fixed.into_iter().chain(depth.as_deref()).chain(options.iter().copied()).chain(operands);
        self.online(args).cwd(self.workspace.clone())
    }

    /// Fetches exactly this name, which does not have to be a branch or tag.
    pub(super) fn fetch_exactly(&self, name: &str) -> [Command; 4] {
        let format = format!("--object-format={}", self.object_format);
        let depth = self.depth_option();
        let fixed = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"];
        let fetch = fixed.into_iter().chain(depth.as_deref()).chain(["--", "origin", name]);
        [
            self.offline(["init", "--quiet", "--template=", &format, "clone"]).cwd(self.workspace.clone()),
            self.inside(self.offline(["remote", "add", "--", "origin", &self.url])),
            self.inside(self.online(fetch)),
            self.inside(self.offline(["update-ref", "--no-deref", "HEAD", "FETCH_HEAD^{commit}"])),
        ]
    }

    /// Prints the commit id.
    pub(super) fn resolve(&self) -> Command {
        self.inside(self.offline(["rev-parse", "--verify", "HEAD^{commit}"]))
    }

    /// Selects the files to check out.
    pub(super) fn sparse(&self) -> Command {
        let patterns = self.sparse.iter().map(String::as_str);
        self.inside(self.offline(["sparse-checkout", "set", "--no-cone"].into_iter().chain(patterns)))
    }

    /// Checks out the files.
    pub(super) fn fill(&self) -> Command {
        self.inside(self.offline(["reset", "--quiet", "--hard", "HEAD"]))
    }

    /// Clones submodules, recursively.
    pub(super) fn submodules(&self) -> Command {
        let depth = self.depth_option();
        let fixed = ["submodule", "--quiet", "update", "--init", "--recursive", "--force"];
        self.inside(self.online(fixed.into_iter().chain(depth.as_deref())))
    }

    fn depth_option(&self) -> Option<String> {
        self.depth.map(|depth| format!("--depth={depth}"))
    }

    fn inside(&self, command: Command) -> Command {
        command.cwd(self.clone.clone())
    }

    /// A command that contacts a server, with the credentials.
    fn online<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let command = self.git(self.protocols, args);
        let Some((name, value)) = &self.credentials else { return command };
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", name).env("GIT_CONFIG_VALUE_0", value)
    }

    /// A command that must not contact a server.
    fn offline<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        self.git("none", args)
    }

    fn git<'a>(&self, protocols: &str, args: impl IntoIterator<Item = &'a str>) -> Command {
        // Git would send the credentials to every redirect target.
        let redirects = match self.credentials {
            None if self.pins.is_empty() => "http.followRedirects=initial",
            _ => "http.followRedirects=false",
        };
        let pins = self.pins.iter().map(String::as_str);
        let settings = SETTINGS.iter().copied().chain([redirects]).chain(pins).flat_map(|setting| ["-c", setting]);
        let argv = ["git"].into_iter().chain(settings).map(str::to_owned);
        let argv = argv.chain(args.into_iter().map(str::to_owned));
        let command = Command::new(argv).env("GIT_ALLOW_PROTOCOL", protocols);
        ENVIRONMENT.iter().fold(command, |command, (name, value)| command.env(*name, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    fn plan(request: &GitRequest) -> Plan {
        let workspace = MachinePath::workspace();
        let clone = workspace.join("clone").unwrap();
        Plan::new(request, &Source::check(request).unwrap(), (workspace, clone))
    }

    fn words(command: &Command) -> String {
        let words: Vec<_> = command.argv.iter().map(|word| word.to_string_lossy()).collect();
        let settings = words.iter().rposition(|word| *word == "-c").map_or(1, |at| at + 2);
        words[settings..].join(" ")
    }

    fn variable<'a>(command: &'a Command, name: &str) -> Option<&'a str> {
        command.env.iter().find(|(known, _)| known == name).and_then(|(_, value)| value.to_str())
    }

    #[test]
    fn each_kind_of_reference_has_its_commands() {
        let plan = plan(&GitRequest::new("https://h/r"));
        let clone = "clone --quiet --no-checkout --no-tags --single-branch --template= --depth=1";
        assert_eq!(words(&plan.clone_head()), format!("{clone} -- https://h/r clone"));
        assert_eq!(words(&plan.clone_named("v1")), format!("{clone} --branch=v1 -- https://h/r clone"));
        assert_eq!(
            plan.fetch_exactly("refs/x").map(|step| words(&step)),
            [
                "init --quiet --template= --object-format=sha1 clone",
                "remote add -- origin https://h/r",
                "fetch --quiet --no-tags --no-recurse-submodules --depth=1 -- origin refs/x",
                "update-ref --no-deref HEAD FETCH_HEAD^{commit}",
            ]
        );
    }

    #[test]
    fn a_secret_is_never_an_argument_and_only_online_commands_get_it() {
        let plan = plan(&GitRequest::new("https://h:8443/r").auth(Secret::new("hunter2")));
        let basic = BASE64_STANDARD.encode("x-access-token:hunter2");
        let online = [plan.clone_head(), plan.clone_named("x"), plan.fetch_exactly("x")[2].clone(), plan.submodules()];
        for command in online {
            assert_eq!(variable(&command, "GIT_CONFIG_KEY_0"), Some("http.https://h:8443/.extraHeader"));
            assert_eq!(variable(&command, "GIT_CONFIG_VALUE_0"), Some(&*format!("Authorization: Basic {basic}")));
            assert!(!format!("{:?}", command.argv).contains(&basic));
            assert!(command.argv.contains(&"http.followRedirects=false".into()));
        }
        for command in [plan.resolve(), plan.sparse(), plan.fill()] {
            assert!(!format!("{command:?}").contains(&basic));
            assert_eq!(variable(&command, "GIT_ALLOW_PROTOCOL"), Some("none"));
        }
    }

    #[tokio::test]
    async fn only_checked_addresses_are_contacted() {
        let request = GitRequest::new("https://1.1.1.1:8443/r");
        let pins = Source::check(&request).unwrap().pins().await.unwrap();
        assert_eq!(pins, ["http.proxy=http://only-public-addresses.invalid", "http.https://1.1.1.1:8443/.proxy="]);
        let plan = plan(&request).with_pins(pins.clone());
        for command in [plan.clone_head(), plan.fetch_exactly("x")[2].clone(), plan.submodules()] {
            for setting in pins.iter().map(String::as_str).chain(["http.followRedirects=false"]) {
                assert!(command.argv.contains(&setting.into()), "{setting}");
            }
            assert!(!command.argv.contains(&"http.followRedirects=initial".into()));
        }
        for url in [
            "http://127.0.0.1/r",
            "https://[::1]/r",
            "http://localhost:8080/r",
            "http://169.254.169.254/r",
            "git://1.1.1.1/r",
        ] {
            let refused = Source::check(&GitRequest::new(url)).unwrap().pins().await.unwrap_err();
            assert_eq!(refused.code(), "git_clone_error", "{url}");
            assert!(refused.full_message().contains("public"), "{}", refused.full_message());
        }
    }

    #[test]
    fn no_command_allows_a_less_secure_protocol() {
        for (url, protocols) in [("https://h/r", "https"), ("http://h/r", "http:https"), ("git://h/r", "git:https")] {
            let command = plan(&GitRequest::new(url)).submodules();
            assert_eq!(variable(&command, "GIT_ALLOW_PROTOCOL"), Some(protocols));
        }
    }
}
