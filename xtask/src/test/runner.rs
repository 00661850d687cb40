//! The test runner: nextest where it is installed, cargo's own otherwise, and the slowest suites, told before its summary.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, IsTerminal as _, Read},
    process::{Command, Stdio},
};

use super::{EVERYTHING, Tier, scratch::Scratch};
use crate::program::{self, Failure, Result};

/// Where nextest writes how long each test took, below the build directory; `.config/nextest.toml` names the same file.
const REPORT: &str = "nextest/default/junit.xml";
/// How many suites the report names.
const SLOWEST: usize = 12;

/// All tests in one invocation: one runner, one summary. `table` says where the time of the whole run went.
pub(crate) fn run(tier: Tier, scratch: &Scratch, table: &mut dyn FnMut() -> String) -> Result {
    let nextest = program::succeeds(program::cargo().args(["nextest", "--version"]));
    let mut command = if nextest { with_nextest(tier) } else { with_cargo(tier) };
    program::without_proxies(&mut command).env("TMPDIR", scratch.path());
    let mut child =
        command.stderr(Stdio::piped()).spawn().map_err(|error| Failure::new(format!("cannot start cargo: {error}")))?;
    // cargo's own runner prints a summary for each program, on standard output: nothing to hold back.
    let summary = child.stderr.take().map(|lines| pass_until_summary(lines, |line| eprintln!("{line}")));
    let status = child.wait().map_err(|error| Failure::new(format!("cannot wait for cargo: {error}")))?;
    let report = program::target().join(REPORT);
    let suites = if nextest { fs::read_to_string(report).unwrap_or_default() } else { String::new() };
    eprint!("{}\n{}", slowest(&suites), table());
    summary.into_iter().flatten().for_each(|line| eprintln!("{line}"));
    // The runner has the last word, on failure too.
    program::judge(status, "cargo").map_err(Failure::silent)
}

fn with_nextest(tier: Tier) -> Command {
    let mut command = program::cargo();
    let color = if std::io::stderr().is_terminal() { "always" } else { "never" };
    command.args(["nextest", "run", "--color", color]).args(EVERYTHING).args(targets(tier));
    // Tests wait for about half of their time. More of them at once would leave less to those that start storms of processes.
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    command.arg("--test-threads").arg((processors + processors / 2).to_string());
    if tier == Tier::All {
        command.args(["--run-ignored", "all"]);
    }
    command
}

fn with_cargo(tier: Tier) -> Command {
    let mut command = program::cargo();
    command.args(["test", "--no-fail-fast"]).args(EVERYTHING).args(targets(tier));
    if tier == Tier::All {
        command.args(["--", "--include-ignored"]);
    }
    command
}

/// `--tests` keeps cargo's own runner from running the doc tests a second time.
fn targets(tier: Tier) -> &'static [&'static str] {
    if tier == Tier::Quick { &["--lib", "--bins"] } else { &["--tests"] }
}

/// Passes lines on as they come, up to the runner's summary, which is returned with all that follows it.
fn pass_until_summary(lines: impl Read, mut pass: impl FnMut(&str)) -> Vec<String> {
    let mut summary = Vec::new();
    for line in BufReader::new(lines).split(b'\n').map_while(std::io::Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if !summary.is_empty() || plain(&line).trim_start().starts_with("Summary [") {
            summary.push(line.into_owned());
        } else {
            pass(&line);
        }
    }
    summary
}

/// The line without colours.
fn plain(line: &str) -> String {
    let mut pieces = line.split("\u{1b}[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| all + piece.split_once('m').map_or("", |(_, rest)| rest))
}

/// The suites whose tests took longest, added up, from nextest's report.
fn slowest(report: &str) -> String {
    let mut suites: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for test in report.split("<testcase ").skip(1) {
        let (Some(suite), Some(time)) = (attribute(test, "classname"), attribute(test, "time")) else { continue };
        let (seconds, tests) = suites.entry(suite).or_default();
        *seconds += time.parse::<f64>().unwrap_or(0.0);
        *tests += 1;
    }
    let mut suites: Vec<_> = suites.into_iter().collect();
    suites.sort_by(|(_, (one, _)), (_, (other, _))| other.total_cmp(one));
    let mut table = String::new();
    for (suite, (seconds, tests)) in suites.into_iter().take(SLOWEST) {
        let _infallible = writeln!(table, "{seconds:>8.1} s in {tests:>4} tests of {suite}");
    }
    table
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!("{name}=\""))?;
    Some(rest.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_held_back_and_nothing_else() {
        let text = "   Starting 2 tests\n\u{1b}[32m     Summary\u{1b}[0m [   1.0s] 2 tests run\n        FAIL one\n";
        let mut passed = Vec::new();
        let summary = pass_until_summary(text.as_bytes(), |line| passed.push(line.to_owned()));
        assert_eq!(passed, ["   Starting 2 tests"]);
        assert_eq!(summary.len(), 2);
        assert!(summary[1].contains("FAIL one"));
    }

    #[test]
    fn suites_are_added_up_and_sorted() {
        let report = r#"<testcase name="a" classname="one" time="1.5"/><testcase name="b" classname="two" time="4"/>
            <testcase name="c" classname="one" time="1.0">"#;
        assert_eq!(slowest(report), "     4.0 s in    1 tests of two\n     2.5 s in    2 tests of one\n");
        assert_eq!(slowest(""), "");
    }
}
