//! How ignore rules are used for working copies, and how those from above a source are saved.

use sandbar_host_files::{Dialect, OuterRules, RuleProblem, Rules, Trust, WalkOptions};

use crate::{describe, format_size};

/// Maximum nesting of directories in a source or a working copy.
const DEPTH_LIMIT: usize = 200;

/// Options of a walk that applies the rules of a repository.
pub(crate) fn walk_options(entries: usize, trust: Trust, outer: &[OuterRules]) -> WalkOptions<'_> {
    let rules = Rules { dialect: Dialect::Repository, trust, outer, patterns: None };
    WalkOptions { entries, depth: DEPTH_LIMIT, rules }
}

/// Why an ignore file cannot be followed, as text.
pub(crate) fn reason(problem: &RuleProblem) -> String {
    match problem {
        RuleProblem::Unreadable(error) => describe(error),
        RuleProblem::TooLarge(limit) => format!("it is larger than {}", format_size(*limit)),
        RuleProblem::TooManyFiles => "there are too many".to_owned(),
        RuleProblem::Patterns => "its patterns are too large or too many".to_owned(),
    }
}

/// The saved form of the rules above a source.
pub(crate) mod saved {
    use sandbar_host_files::OuterRules;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::PathBytes;

    #[derive(Serialize, Deserialize)]
    struct Saved {
        below: PathBytes,
        rules: String,
    }

    pub(crate) fn serialize<S: Serializer>(outer: &[OuterRules], serializer: S) -> Result<S::Ok, S::Error> {
        let saved = |outer: &OuterRules| Saved { below: PathBytes(outer.below.clone()), rules: outer.rules.clone() };
        serializer.collect_seq(outer.iter().map(saved))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<OuterRules>, D::Error> {
        let saved = Vec::<Saved>::deserialize(deserializer)?;
        Ok(saved.into_iter().map(|Saved { below, rules }| OuterRules { below: below.0, rules }).collect())
    }
}
