//! The conformance page, `docs/conformance.md`: a suite's findings are compared with it, or recorded for it.
//!
//! The page holds the findings of the suites at E2B, promise by promise. The rest of it is generated from the code.
#![allow(dead_code, reason = "each test program needs a part of it")]

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use sandbar_machine::conformance::Verdict;

/// Variable with the directory that findings are recorded in, for `cargo xtask conformance`.
const RECORD: &str = "SANDBAR_CONFORMANCE_RECORD";

/// Promises that are broken at E2B, and why.
pub(crate) const BROKEN: [(&str, &str); 1] = [(
    "the_exit_does_not_wait_for_background_children",
    "the service follows a command up to its exit: what its children print later is lost",
)];

/// What is lacking at E2B, and why.
pub(crate) const LACKING: [(&str, &str); 7] = [
    ("several users", "a sandbox has one user beside root, and makes no others"),
    ("the client cannot limit processes", "the template sets the limits"),
    ("the client cannot limit memory", "the template sets the limits"),
    ("the client cannot limit the disk", "the template sets the limits"),
    ("ports that carry any protocol over TCP", "the edge forwards HTTP, and nothing else"),
    ("commands that outlive their client", "output that no client reads is lost"),
    ("the client cannot show directories of the host", "the sandbox is on another host"),
];

/// A list of promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suite {
    Machines,
    Sessions,
}

impl Suite {
    pub(crate) const ALL: [Self; 2] = [Self::Machines, Self::Sessions];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Machines => "machines",
            Self::Sessions => "sessions",
        }
    }

    /// Heading of the suite's part of the page.
    pub(crate) fn heading(self) -> String {
        format!("## Promises of {}", self.name())
    }
}

/// The finding of a provider's suite about one promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    Kept,
    Lacks(String),
    Broken(String),
}

impl Finding {
    /// The finding about the promise of this name; without a verdict the promise is broken.
    pub(crate) fn new(name: &str, verdict: Option<Verdict>) -> Self {
        match verdict {
            Some(Verdict::Kept) => Self::Kept,
            Some(Verdict::Lacking(what)) => Self::Lacks(what),
            None => {
                let why = BROKEN.iter().find(|(broken, _)| *broken == name).map(|(_, why)| *why);
                Self::Broken(why.unwrap_or("for no reason that is known").to_owned())
            }
        }
    }

    pub(crate) fn cell(&self) -> String {
        match self {
            Self::Kept => "kept".to_owned(),
            Self::Lacks(what) => format!("lacks: {what}"),
            Self::Broken(why) => format!("broken: {why}"),
        }
    }

    fn parse(cell: &str) -> Self {
        match cell.split_once(": ") {
            None if cell == "kept" => Self::Kept,
            Some(("lacks", what)) => Self::Lacks(what.to_owned()),
            Some(("broken", why)) => Self::Broken(why.to_owned()),
            _ => panic!("{cell:?} is neither kept, lacks nor broken"),
        }
    }
}

/// The findings at E2B, by suite and name of the promise.
pub(crate) type Findings = BTreeMap<(Suite, String), Finding>;

pub(crate) fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md")
}

pub(crate) fn text() -> String {
    fs::read_to_string(path()).unwrap_or_default()
}

/// The directory to record in, if findings are recorded.
pub(crate) fn record() -> Option<PathBuf> {
    env::var_os(RECORD).map(PathBuf::from)
}

/// The cells of a line of a table.
pub(crate) fn cells(line: &str) -> Option<Vec<&str>> {
    Some(line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect())
}

/// The page's findings about E2B.
pub(crate) fn findings(page: &str) -> Findings {
    let (mut found, mut suite) = (Findings::new(), None);
    for line in page.lines() {
        if line.starts_with("## ") {
            suite = Suite::ALL.into_iter().find(|suite| line == suite.heading());
        }
        let (Some(suite), Some(cells)) = (suite, cells(line)) else { continue };
        if let [name, .., e2b] = cells[..]
            && name != "promise"
        {
            found.insert((suite, name.replace(' ', "_")), Finding::parse(e2b));
        }
    }
    found
}

/// The recorded findings about E2B.
pub(crate) fn recorded(directory: &Path) -> Findings {
    let mut found = Findings::new();
    for suite in Suite::ALL {
        let entries = fs::read_dir(directory.join(suite.name())).expect("the suites were run before");
        for entry in entries {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            found.insert((suite, name), Finding::parse(&fs::read_to_string(path).expect("a cell")));
        }
    }
    found
}

/// Compares the findings at E2B with the page, or records them.
pub(crate) fn judge(suite: Suite, found: &[(&str, Finding)]) {
    if let Some(directory) = record() {
        let directory = directory.join(suite.name());
        fs::create_dir_all(&directory).expect("a directory");
        for (name, finding) in found {
            fs::write(directory.join(name), finding.cell()).expect("recorded");
        }
        return;
    }
    let page = findings(&text());
    let differing = found.iter().filter_map(|(name, finding)| {
        let said = page.get(&(suite, (*name).to_owned())).map(Finding::cell);
        (said != Some(finding.cell())).then(|| format!("{name}: the page says {said:?}; found {:?}", finding.cell()))
    });
    let differing: Vec<String> = differing.collect();
    assert!(differing.is_empty(), "`cargo xtask conformance` writes the page anew; read its diff. {differing:#?}");
}
