//! `sandbar run`: an agent at work on a machine of its own, from the prompt to the diff.

mod approve;
mod config;
mod ending;
mod ground;
mod keyboard;
mod model;
mod prompt;
mod watch;

use std::{ffi::OsString, sync::Arc, time::Duration};

use sandbar::{
    Budget, Network, Prices, RunConfig, SandboxAgent, SandboxError, SandboxRun as _, Stop,
    agent::{
        RunInput,
        trace::{Batched, Tracer},
    },
    agent_file::{AgentFile, Asking, ManifestEntry},
};

use self::{
    approve::{Desk, Verdict},
    ending::Outcome,
    ground::Ground,
    watch::{Meter, Watched},
};
pub(crate) use self::{
    config::words,
    ending::{halted, never_began},
    ground::{Begun, Order, Wanted, make},
    model::Thinker,
};
use crate::{
    args::{AskArg, RunArgs},
    failure::Failure,
    render::Render,
    runs::{RunDir, RunStatus},
    signals::Signals,
    view::{For, Mode, Started, Status, View},
};

/// The most turns unless somebody says otherwise.
const TURNS: u32 = 100;

/// How long the last spans may take to be written.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// What a usage mistake exits with that only shows once the arguments are put together.
pub(crate) const USAGE: u8 = 2;

pub(crate) async fn run(args: Box<RunArgs>, render: &Render) -> Result<u8, (Failure, u8)> {
    let is_for_programs = args.json;
    match begin(args, render).await {
        Err((failure, code)) if is_for_programs => {
            never_began(&failure.to_string(), Status::Failed, render);
            Ok(code)
        }
        other => other,
    }
}

/// Tells programs about a command line that nobody understands: they read a last line whatever happens.
pub(crate) fn misused(message: &str, words: impl Iterator<Item = OsString>) {
    let mut words = words.skip(1).skip_while(|word| word.as_encoded_bytes().starts_with(b"-"));
    let is_run = words.next().is_some_and(|task| task == "run" || task == "demo");
    if is_run && words.take_while(|word| word != "--").any(|word| word == "--json") {
        never_began(message, Status::Failed, &Render::default());
    }
}

async fn begin(args: Box<RunArgs>, render: &Render) -> Result<u8, (Failure, u8)> {
    let prompt = prompt::read(&args.prompt).map_err(|failure| (failure, USAGE))?;
    let failed = |failure| (failure, 1);
    let (file, agent) = agent_file(&args).map_err(failed)?;
    let thinker = model::resolve(&args, file.model.as_deref()).await.map_err(failed)?;
    let budget = budget(&args, &thinker).map_err(|failure| (failure, USAGE))?;
    let prices = budget.prices.clone();
    let mut signals = Signals::listen().map_err(failed)?;
    let mode = mode(render, args.json);
    let view = View::new(render, mode).map_err(failed)?;
    let begun = match ground::begin(&args, &file, &prompt, &mut signals, render).await {
        Ok(begun) => begun,
        Err(halt) => return halted(halt, mode, render),
    };
    let turns = args.max_turns.or(file.max_turns).unwrap_or(TURNS);
    let config = RunConfig::new().model(Arc::clone(&thinker.model)).budget(budget).max_turns(Some(turns));
    let config = config.tell_unknown_tools();
    let job = Job { agent, config, thinker, prompt, approver: Approver::Person, prices };
    Ok(job.work(begun, view, &mut signals, render).await)
}

/// What `--agent` names; whatever is wrong with it, its name is said.
fn agent_file(args: &RunArgs) -> Result<(AgentFile, SandboxAgent), Failure> {
    let Some(path) = &args.agent else {
        let mut file = AgentFile::default();
        file.run_as.clone_from(&args.user);
        let agent = file.agent(asking(args.ask))?;
        return Ok((file, agent));
    };
    let name = path.display();
    let wrong = |error: SandboxError| {
        let what = match error.code() {
            "local_file_read_error" => format!("cannot use the agent file {name}"),
            _ => format!("cannot use the agent file {name}; {}", told(&error, &name.to_string())),
        };
        Failure::new(what).causes_of(&error).code("agent_file")
    };
    let mut file = AgentFile::load(path).map_err(wrong)?;
    file.run_as = args.user.clone().or(file.run_as);
    if file.max_turns == Some(0) {
        let what = format!("cannot use the agent file {name}; max_turns must be at least 1");
        return Err(Failure::new(what).code("agent_file"));
    }
    let agent = file.agent(asking(args.ask)).map_err(|error| match &file.manifest {
        Some(ManifestEntry::Path(manifest)) if error.code() == "local_file_read_error" => {
            wrong(error).saying(format!("cannot use the agent file {name}; its manifest {}", manifest.display()))
        }
        _ => wrong(error),
    })?;
    Ok((file, agent))
}

/// An error in its own words, without the file's name that was said already.
fn told(error: &SandboxError, name: &str) -> String {
    let text = error.to_string();
    text.strip_prefix(name).map_or(text.as_str(), |rest| rest.trim_start_matches(": ")).trim_end().to_owned()
}

/// How a run is shown.
pub(crate) fn mode(render: &Render, json: bool) -> Mode {
    Mode::choose(render, if json { For::Programs } else { For::People })
}

fn asking(ask: AskArg) -> Asking {
    match ask {
        AskArg::Never => Asking::Never,
        AskArg::Always => Asking::Always,
        AskArg::OnRule => Asking::ByRule,
    }
}

fn budget(args: &RunArgs, thinker: &Thinker) -> Result<Budget, Failure> {
    let prices = args.prices.iter().fold(Prices::default(), |prices, given| prices.with(&given.model, given.price));
    if args.max_cost.is_some() && !thinker.scripted && prices.of(thinker.model.name()).is_none() {
        let what = format!("cannot keep to --max-cost; nobody knows what {} costs", thinker.model.name());
        return Err(Failure::new(what).next(format!("say it: --price {}=IN/OUT", thinker.model.name())));
    }
    let mut budget = Budget::new().prices(prices);
    budget.tokens = args.max_tokens;
    budget.dollars = args.max_cost;
    Ok(budget)
}

/// Everything a run needs besides a place to work.
pub(crate) struct Job {
    pub(crate) agent: SandboxAgent,
    pub(crate) config: RunConfig,
    pub(crate) thinker: Thinker,
    pub(crate) prompt: String,
    pub(crate) approver: Approver,
    pub(crate) prices: Prices,
}

/// Who answers where an approval is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approver {
    /// Whoever sits at the terminal.
    Person,
    /// The demo, which says so.
    Itself,
}

impl Job {
    /// Works to the end, shows it, and leaves nothing but the run's own directory.
    pub(crate) async fn work(&self, begun: Begun, mut view: View, signals: &mut Signals, render: &Render) -> u8 {
        let view = &mut view;
        let isolation = begun.session.features().isolation;
        let isolation = match begun.network {
            Network::Off => isolation.name().to_owned(),
            Network::Host => format!("{}, with the host's network", isolation.name()),
            _ => format!("{}, with a network", isolation.name()),
        };
        let model = match &self.thinker.address {
            Some(address) => format!("{} at {address}", self.thinker.model.name()),
            None => self.thinker.model.name().to_owned(),
        };
        let workspace = match &begun.worktree {
            Some(worktree) => format!("{}, {worktree}", begun.ground),
            None => begun.ground.to_string(),
        };
        view.started(&Started {
            id: begun.run.id(),
            prompt: &self.prompt,
            agent: self.agent.name(),
            model: &model,
            workspace: &workspace,
            isolation: &isolation,
            scripted: self.thinker.scripted,
        });
        let clock = std::time::Instant::now();
        let tracer = tracer(&begun.run, render);
        let config = self.config.clone().tracer(tracer.clone()).workflow("sandbar run");
        let outcome = self.drive(&begun, config, view, signals).await;
        tracer.shutdown(LAST_SPANS);
        ending::conclude(begun, outcome, clock.elapsed(), view, (signals, render)).await
    }

    /// Runs, asks a person where that is needed, and runs on.
    async fn drive(&self, begun: &Begun, config: RunConfig, view: &mut View, signals: &mut Signals) -> Outcome {
        let desk = Desk { approver: self.approver, mode: view.mode(), keyboard: begun.keyboard.as_ref() };
        let meter = Meter::new(&self.prices, self.thinker.model.name());
        let mut input = RunInput::from(self.prompt.as_str());
        loop {
            let run = sandbar::run(&self.agent, input).config(config.clone()).sandbox(&begun.session);
            let (ended, stopped_by) = match watch::watch(run, &meter, view, signals).await {
                Watched::Over(ended, stopped_by) => (*ended, stopped_by),
                Watched::Abandoned(signal) => return Outcome::abandoned(signal, &meter),
            };
            let outcome = Outcome::of(ended, stopped_by, &meter);
            if outcome.status != RunStatus::Interrupted {
                return outcome;
            }
            let Some(state) = outcome.state.clone() else { return outcome };
            match desk.decide(state, view, signals).await {
                Verdict::GoOn(state) => input = RunInput::from(*state),
                Verdict::Nobody => return outcome,
                Verdict::Cancelled(signal) => {
                    return Outcome { status: RunStatus::Cancelled, message: None, signal, ..outcome };
                }
            }
        }
    }
}

/// Writes down how the run went, as a tree of spans; a run goes on without it.
fn tracer(run: &RunDir, render: &Render) -> Tracer {
    match Batched::jsonl(run.trace_path()) {
        Ok(file) => Tracer::new(file),
        Err(error) => {
            let what = format!("cannot write {}", run.trace_path().display());
            render.failure(&Failure::new(what).because(error));
            Tracer::off()
        }
    }
}

/// Why a run stopped, in the words of its record.
fn status(stop: &Stop) -> RunStatus {
    match stop {
        Stop::Finished => RunStatus::Completed,
        Stop::Interrupted => RunStatus::Interrupted,
        Stop::Budget(_) => RunStatus::Budget,
        Stop::MaxTurns(_) => RunStatus::MaxTurns,
        _ => RunStatus::Cancelled,
    }
}
