//! The order of precedence of the sessions that an agent can work in.

/// Source of the session that an agent works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source<Live, State, Declared> {
    /// A live session, which the caller created and ends.
    Live(Live),
    /// The session that the saved run names.
    RunState(State),
    /// The session whose saved state the caller passed.
    SessionState(State),
    /// A new session with the manifest of the run.
    PerRun(Declared),
    /// A new session with the manifest of the agent.
    Default(Declared),
    /// A new session with an empty workspace.
    Empty,
}

/// Sources that are available, of which [`choose`] picks one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers<Live, State, Declared> {
    /// Live session that the caller passed to the run.
    pub live: Option<Live>,
    /// State of this agent's session in the saved run.
    pub saved: Option<State>,
    /// Saved state of a session that the caller passed to the run.
    pub given: Option<State>,
    /// Manifest of the run.
    pub per_run: Option<Declared>,
    /// Manifest of the agent.
    pub default: Option<Declared>,
}

/// Picks the first source that is available: the live session, the session of the saved run, the state that the caller
/// passed, the manifest of the run, the manifest of the agent. If none is available, the workspace is empty.
///
/// ```
/// use sandbar::choice::{Offers, Source, choose};
///
/// let nothing: Offers<&str, &str, &str> = Offers { live: None, saved: None, given: None, per_run: None, default: None };
/// assert_eq!(choose(nothing.clone()), Source::Empty);
/// let resumed = Offers { saved: Some("run"), given: Some("caller"), per_run: Some("manifest"), ..nothing };
/// assert_eq!(choose(resumed), Source::RunState("run"));
/// ```
pub fn choose<Live, State, Declared>(offers: Offers<Live, State, Declared>) -> Source<Live, State, Declared> {
    match offers {
        Offers { live: Some(live), .. } => Source::Live(live),
        Offers { saved: Some(saved), .. } => Source::RunState(saved),
        Offers { given: Some(given), .. } => Source::SessionState(given),
        Offers { per_run: Some(declared), .. } => Source::PerRun(declared),
        Offers { default: Some(declared), .. } => Source::Default(declared),
        Offers { .. } => Source::Empty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_available_source_wins_in_every_combination() {
        let order =
            [Source::Live(0), Source::RunState(1), Source::SessionState(2), Source::PerRun(3), Source::Default(4)];
        for available in 0..32_u32 {
            let offer = |index: u32| (available & (1 << index) != 0).then_some(index);
            let offers =
                Offers { live: offer(0), saved: offer(1), given: offer(2), per_run: offer(3), default: offer(4) };
            let expected = match available {
                0 => Source::Empty,
                _ => order[usize::try_from(available.trailing_zeros()).unwrap()].clone(),
            };
            assert_eq!(choose(offers), expected, "{available:05b}");
        }
    }
}
