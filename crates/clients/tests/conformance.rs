//! The conformance page agrees with the suites' findings, the facets of machines, and what each provider supports.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::print_stdout, reason = "tests")]

#[path = "docker/bench.rs"]
mod docker;
#[path = "e2b/bench.rs"]
#[allow(dead_code, reason = "each test program needs a part of it")]
mod e2b;
#[path = "conformance/page.rs"]
mod page;

use std::fs;

use sandbar_clients::{Registry, UnixLocal, registry::Provider};
use sandbar_fakes::e2b::Server;
use sandbar_machine::{Machine, MachineSpec, SandboxClient, Support, conformance::Group};

use crate::page::{BROKEN, Finding, Findings, LACKING, Suite};

const INTRODUCTION: &str = "\
# Conformance

<!-- Written by `cargo xtask conformance`. -->

Every provider is checked by the same suites: each promise about machines, and about sessions on them, is one test. This page
says what they find. The tests fail when it says something else.

- **kept**: the promise was checked and holds.
- **lacks**: machines do not have what the promise is about. Asking for it is refused by name.
- **broken**: the promise does not hold.

`local` is checked as root and as an ordinary user, `docker` on an image of Debian (and in parts on others), and `e2b` against a
fake of the service, **not against the live service**. [Where machines come from](providers.md) says how to choose among them.
";

const OF_FACETS: &str = "\
Where a facet is absent, files are handled by POSIX tools instead, commands end with their client, and ports and snapshots are
refused.";

/// The facets that the page names, with the isolation before them.
const FACETS: [&str; 5] = ["isolation", "files", "commands", "ports", "snapshots"];

/// The cells of a machine's provider in the table of facets.
fn facets(machine: &dyn Machine) -> [String; 5] {
    let is_there = |there: bool| if there { "there" } else { "absent" }.to_owned();
    [
        machine.features().isolation.to_string(),
        is_there(machine.files().is_some()),
        is_there(machine.commands().is_some()),
        is_there(machine.ports().is_some()),
        is_there(machine.snapshots().is_some()),
    ]
}

/// The facets of a machine that this client creates.
async fn facets_of(client: &dyn SandboxClient) -> [String; 5] {
    let machine = client.create(MachineSpec::default().ports([8080])).await.expect("a machine");
    let found = facets(&*machine);
    machine.stop().await.expect("it ends");
    found
}

/// The page's cells about Docker, for a host without an engine.
fn facets_on_page(page: &str) -> [String; 5] {
    FACETS.map(|facet| {
        let row = page.lines().filter_map(page::cells).find(|cells| cells[0] == facet);
        row.and_then(|cells| cells.get(2).map(|cell| (*cell).to_owned())).unwrap_or_default()
    })
}

fn table(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(columns.len()));
    rows.into_iter().fold(line(&head) + &rule, |text, row| text + &line(&row))
}

/// The promises of a suite, with their groups.
fn promises(suite: Suite) -> Vec<(String, &'static str)> {
    match suite {
        Suite::Machines => {
            let title = |group: Group| format!("{group:?}");
            let all = sandbar_machine::conformance::promises().into_iter();
            all.map(|promise| (title(promise.group), promise.name)).collect()
        }
        Suite::Sessions => {
            let title = |group: &str| group[..1].to_uppercase() + &group[1..];
            let all = sandbar_sandbox::conformance::promises().into_iter();
            all.map(|promise| (title(promise.group), promise.name)).collect()
        }
    }
}

/// The page, made from the findings at E2B and the facets of each provider. The other suites require that promises are
/// kept.
struct Report {
    providers: Vec<&'static str>,
    facets: [[String; 5]; 3],
    e2b: Findings,
}

impl Report {
    fn e2b(&self, suite: Suite, name: &str) -> &Finding {
        let found = self.e2b.get(&(suite, name.to_owned()));
        found.unwrap_or_else(|| panic!("{name} is not on the page: run `cargo xtask conformance`"))
    }

    fn columns(&self, first: &'static str) -> Vec<&'static str> {
        [first].into_iter().chain(self.providers.iter().copied()).collect()
    }

    fn write(&self, registry: &Registry) -> String {
        let mut text = format!("{INTRODUCTION}\n{}", self.summary());
        text += &format!("\n## Facets\n\n{OF_FACETS}\n\n{}", self.facets());
        let supports = self.supports(registry);
        text += &format!("\n## What a specification can ask for\n\nEverything else is refused by name.\n\n{supports}");
        text += &format!("\n## What is not kept at E2B\n\n{}", self.reasons());
        for suite in Suite::ALL {
            text += &format!("\n{}\n{}", suite.heading(), self.promises(suite));
        }
        text
    }

    /// The number of promises that each provider keeps.
    fn summary(&self) -> String {
        let rows = Suite::ALL.map(|suite| {
            let promises = promises(suite);
            let (mut lacks, mut broken) = (0, 0);
            for (_, name) in &promises {
                match self.e2b(suite, name) {
                    Finding::Kept => {}
                    Finding::Lacks(_) => lacks += 1,
                    Finding::Broken(_) => broken += 1,
                }
            }
            let (all, kept) = (promises.len(), promises.len() - lacks - broken);
            let whole = format!("{all} kept, 0 lack something, 0 broken");
            let e2b = format!("{kept} kept, {lacks} lack something, {broken} broken");
            vec![format!("{all} promises of {}", suite.name()), whole.clone(), whole, e2b]
        });
        table(&self.columns(""), rows)
    }

    fn facets(&self) -> String {
        let of = |at: usize| self.facets.iter().map(move |facets| facets[at].clone());
        let rows =
            FACETS.iter().enumerate().map(|(at, facet)| [(*facet).to_owned()].into_iter().chain(of(at)).collect());
        table(&self.columns("facet"), rows)
    }

    fn supports(&self, registry: &Registry) -> String {
        let gives = |provider: &dyn Provider, support| if provider.supports().give(support) { "yes" } else { "no" };
        let of = |support| registry.providers().map(move |provider| gives(provider, support).to_owned());
        let rows =
            Support::ALL.iter().map(|support| [support.name().to_owned()].into_iter().chain(of(*support)).collect());
        table(&self.columns("what"), rows)
    }

    /// What is lacking or broken, how often, and why. A reason without a promise, or a promise without a reason, fails
    /// the test.
    fn reasons(&self) -> String {
        let count = |finding: &Finding| self.e2b.values().filter(|found| *found == finding).count();
        let lacks = LACKING.map(|(what, why)| (format!("lacks: {what}"), Finding::Lacks(what.to_owned()), why));
        let broken = BROKEN.map(|(name, why)| (name.replace('_', " "), Finding::Broken(why.to_owned()), why));
        let reasons: Vec<_> = lacks.into_iter().chain(broken).collect();
        for ((_, name), finding) in &self.e2b {
            let is_known = *finding == Finding::Kept || reasons.iter().any(|(_, known, _)| known == finding);
            assert!(is_known, "say in page.rs why: {name} {}", finding.cell());
        }
        let rows = reasons.iter().map(|(words, finding, why)| {
            let count = count(finding);
            assert_ne!(count, 0, "nothing {} any more: remove it from page.rs", finding.cell());
            vec![words.clone(), count.to_string(), (*why).to_owned()]
        });
        table(&["what", "promises", "why"], rows)
    }

    fn promises(&self, suite: Suite) -> String {
        let promises = promises(suite);
        let mut text = String::new();
        for group in promises.chunk_by(|one, next| one.0 == next.0) {
            let row = |name: &str| {
                let kept = Finding::Kept.cell();
                vec![name.replace('_', " "), kept.clone(), kept, self.e2b(suite, name).cell()]
            };
            let rows = group.iter().map(|(_, name)| row(name));
            text += &format!("\n### {}\n\n{}", group[0].0, table(&self.columns("promise"), rows));
        }
        text
    }
}

#[tokio::test]
async fn the_page_says_what_is_found() {
    let (registry, said) = (Registry::builtin(), page::text());
    let server = Server::start().expect("a server");
    let docker = match docker::has_engine().await {
        true => facets_of(&docker::client(docker::DEBIAN)).await,
        false => facets_on_page(&said),
    };
    let report = Report {
        providers: registry.providers().map(Provider::name).collect(),
        facets: [facets_of(&UnixLocal::new()).await, docker, facets_of(&e2b::client(&server)).await],
        e2b: page::record().map_or_else(|| page::findings(&said), |directory| page::recorded(&directory)),
    };
    assert_eq!(report.providers, ["local", "docker", "e2b"]);
    let found = report.write(&registry);
    if page::record().is_some() {
        fs::write(page::path(), found).expect("written");
        return;
    }
    for (at, (said, found)) in said.lines().zip(found.lines()).enumerate() {
        assert_eq!(said, found, "docs/conformance.md:{}: `cargo xtask conformance` writes it anew", at + 1);
    }
    assert_eq!(said, found, "docs/conformance.md: `cargo xtask conformance` writes it anew");
}
