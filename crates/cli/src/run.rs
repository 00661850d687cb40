//! `sandbar run`: runs an agent on a machine of its own, from the prompt to the diff.

mod approve;
mod config;
mod ending;
mod keyboard;
mod model;
mod prompt;
mod watch;
mod workspace;

use std::{ffi::OsString, sync::Arc, time::Duration};

use sandbar::{
    Budget, Network, RunConfig, SandboxAgent, SandboxError, SandboxRun as _, Stop,
    agent::{
        Prices, RunInput,
        trace::{Batched, Tracer},
    },
    agent_file::{AgentFile, Asking, ManifestEntry},
};
use sandbar_runs::{RunDir, RunStatus};

use self::{
    approve::{ApprovalPrompt, Verdict},
    ending::Outcome,
    watch::{Meter, Watched},
    workspace::RunWorkspace,
};
pub(crate) use self::{
    config::words,
    ending::{halted, never_began},
    model::ModelChoice,
    workspace::{RunOrder, StartedRun, WorkspaceChoice, make},
};
use crate::{
    args::{AskArg, RunArgs},
    failure::Failure,
    render::Render,
    streams::signals::Signals,
    view::{Mode, Reader, Started, View},
};

/// Default maximum of turns.
const TURNS: u32 = 100;

/// Timeout for writing the last spans.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// Exit code of invalid arguments.
pub(crate) const USAGE: u8 = 2;

pub(crate) async fn run(args: Box<RunArgs>, render: &Render) -> Result<u8, (Failure, u8)> {
    let is_for_programs = args.json;
    match begin(args, render).await {
        Err((failure, code)) if is_for_programs => {
            never_began(&failure.to_string(), RunStatus::Failed, render);
            Ok(code)
        }
        other => other,
    }
}

/// Prints the last line of `--json` for an invalid command line: programs always get a last line.
pub(crate) fn misused(message: &str, words: impl Iterator<Item = OsString>) {
    let mut words = words.skip(1).skip_while(|word| word.as_encoded_bytes().starts_with(b"-"));
    let is_run = words.next().is_some_and(|task| task == "run" || task == "demo");
    if is_run && words.take_while(|word| word != "--").any(|word| word == "--json") {
        never_began(message, RunStatus::Failed, &Render::default());
    }
}

async fn begin(args: Box<RunArgs>, render: &Render) -> Result<u8, (Failure, u8)> {
    let prompt = prompt::read(&args.prompt).map_err(|failure| (failure, USAGE))?;
    let failed = |failure| (failure, 1);
    let (file, agent) = agent_file(&args).map_err(failed)?;
    let model_choice = model::resolve(&args, file.model.as_deref()).await.map_err(failed)?;
    let budget = budget(&args, &model_choice).map_err(|failure| (failure, USAGE))?;
    let prices = budget.prices.clone();
    let mut signals = Signals::listen().map_err(failed)?;
    let mode = mode(render, args.json);
    let view = View::new(render, mode);
    let begun = match workspace::begin(&args, &file, &prompt, &mut signals, render).await {
        Ok(begun) => begun,
        Err(halt) => return halted(halt, mode, render),
    };
    let turns = args.max_turns.or(file.max_turns).unwrap_or(TURNS);
    let config = RunConfig::new().model(Arc::clone(&model_choice.model)).budget(budget).max_turns(Some(turns));
    let config = config.tell_unknown_tools();
    let job = Job { agent, config, model_choice, prompt, approver: Approver::Terminal, prices };
    Ok(job.work(begun, view, &mut signals, render).await)
}

/// Loads the file that `--agent` names. Every error contains the name.
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

/// The text of an error without the name of the file, which the message already contains.
fn told(error: &SandboxError, name: &str) -> String {
    let text = error.to_string();
    text.strip_prefix(name).map_or(text.as_str(), |rest| rest.trim_start_matches(": ")).trim_end().to_owned()
}

/// The display mode of a run.
pub(crate) fn mode(render: &Render, json: bool) -> Mode {
    Mode::choose(render, if json { Reader::Program } else { Reader::Human })
}

fn asking(ask: AskArg) -> Asking {
    match ask {
        AskArg::Never => Asking::Never,
        AskArg::Always => Asking::Always,
        AskArg::OnRule => Asking::ByRule,
    }
}

fn budget(args: &RunArgs, model_choice: &ModelChoice) -> Result<Budget, Failure> {
    let prices = args.prices.iter().fold(Prices::default(), |prices, given| prices.with(&given.model, given.price));
    if args.max_cost.is_some() && !model_choice.scripted && prices.of(model_choice.model.name()).is_none() {
        let what = format!("cannot enforce --max-cost; the price of {} is not known", model_choice.model.name());
        return Err(Failure::new(what).next(format!("set it with --price {}=IN/OUT", model_choice.model.name())));
    }
    let mut budget = Budget::new().prices(prices);
    budget.tokens = args.max_tokens;
    budget.dollars = args.max_cost;
    Ok(budget)
}

/// Everything a run needs besides its workspace.
pub(crate) struct Job {
    pub(crate) agent: SandboxAgent,
    pub(crate) config: RunConfig,
    pub(crate) model_choice: ModelChoice,
    pub(crate) prompt: String,
    pub(crate) approver: Approver,
    pub(crate) prices: Prices,
}

/// The source of approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approver {
    /// The user at the terminal.
    Terminal,
    /// The demo, which approves its own calls.
    Demo,
}

impl Job {
    /// Runs the agent to the end and shows the run. Only the directory of the run is left.
    pub(crate) async fn work(&self, begun: StartedRun, mut view: View, signals: &mut Signals, render: &Render) -> u8 {
        let view = &mut view;
        let isolation = begun.session.machine().features().isolation;
        let isolation = match begun.network {
            Network::Off => isolation.name().to_owned(),
            Network::Host => format!("{}, with the host's network", isolation.name()),
            _ => format!("{}, with a network", isolation.name()),
        };
        let model = match &self.model_choice.address {
            Some(address) => format!("{} at {address}", self.model_choice.model.name()),
            None => self.model_choice.model.name().to_owned(),
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
            scripted: self.model_choice.scripted,
        });
        let clock = std::time::Instant::now();
        let tracer = tracer(&begun.run, render);
        let config = self.config.clone().tracer(tracer.clone()).workflow("sandbar run");
        let outcome = self.drive(&begun, config, view, signals).await;
        tracer.shutdown(LAST_SPANS);
        ending::conclude(begun, outcome, clock.elapsed(), view, (signals, render)).await
    }

    /// Runs the agent, asks for approvals, and continues.
    async fn drive(&self, begun: &StartedRun, config: RunConfig, view: &mut View, signals: &mut Signals) -> Outcome {
        let approvals =
            ApprovalPrompt { approver: self.approver, mode: view.mode(), keyboard: begun.keyboard.as_ref() };
        let meter = Meter::new(&self.prices, self.model_choice.model.name());
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
            match approvals.decide(state, view, signals).await {
                Verdict::GoOn(state) => input = RunInput::from(*state),
                Verdict::NoTerminal => return outcome,
                Verdict::Cancelled(signal) => {
                    return Outcome { status: RunStatus::Cancelled, message: None, signal, ..outcome };
                }
            }
        }
    }
}

/// Writes the trace of the run. If that fails, the run continues without one.
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

/// The status in the record of a run that stopped.
fn status(stop: &Stop) -> RunStatus {
    match stop {
        Stop::Finished => RunStatus::Completed,
        Stop::Interrupted => RunStatus::Interrupted,
        Stop::Budget(_) => RunStatus::Budget,
        Stop::MaxTurns(_) => RunStatus::MaxTurns,
        _ => RunStatus::Cancelled,
    }
}
