//! Which session an agent works in: the documented order, as a function of what there is.

/// Where an agent's session comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source<Live, State, Declared> {
    /// This one, which the caller made and ends.
    Live(Live),
    /// The one that the run was left in.
    RunState(State),
    /// The one whose saved state the caller gave.
    SessionState(State),
    /// A new one, as declared for the run.
    PerRun(Declared),
    /// A new one, as the agent declares it.
    Default(Declared),
    /// A new one, with nothing in it.
    Empty,
}

/// What there is to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers<Live, State, Declared> {
    /// A live session that the caller gave to the run.
    pub live: Option<Live>,
    /// What the run's own saved state says about this agent's session.
    pub saved: Option<State>,
    /// The saved state of a session that the caller gave to the run.
    pub given: Option<State>,
    /// The workspace declared for this run.
    pub per_run: Option<Declared>,
    /// The workspace that the agent declares.
    pub default: Option<Declared>,
}

/// The first there is: the live session, the run's own, the given state, then a fresh workspace as the run, the agent, or
/// nobody declares it.
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
    fn the_first_there_is_wins_in_every_combination() {
        let order =
            [Source::Live(0), Source::RunState(1), Source::SessionState(2), Source::PerRun(3), Source::Default(4)];
        for there in 0..32_u32 {
            let offer = |place: u32| (there & (1 << place) != 0).then_some(place);
            let offers =
                Offers { live: offer(0), saved: offer(1), given: offer(2), per_run: offer(3), default: offer(4) };
            let expected = match there {
                0 => Source::Empty,
                _ => order[usize::try_from(there.trailing_zeros()).unwrap()].clone(),
            };
            assert_eq!(choose(offers), expected, "{there:05b}");
        }
    }
}
