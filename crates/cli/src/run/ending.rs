//! How a run ends: what came of it, what is kept, and what to do next.

use std::{sync::Arc, time::Duration};

use sandbar::{AgentError, Exec, RunError, RunResult, RunState, SandboxSession, Signal, Usage, takes_an_account};
use serde_json::Value;
use tokio::time::timeout;

use super::{Begun, Ground, status, watch::Meter};
use crate::{
    failure::{self, Failure},
    making::Halt,
    render::{self, Render},
    runs::{self, RunDir, RunRecord, RunStatus, Summary},
    signals::{self, Signals},
    view::{self, Finished, Mode, Status, View},
};

/// How long the machine may take to be removed.
const REMOVAL: Duration = Duration::from_secs(60);

/// As much of an id as tells runs apart.
const SHORT: usize = 8;

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) status: RunStatus,
    pub(crate) output: Option<Value>,
    pub(crate) message: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<f64>,
    /// The run itself, where it could be gone on with.
    pub(crate) state: Option<RunState>,
    /// The signal that stopped it.
    pub(crate) signal: Option<Signal>,
}

impl Outcome {
    /// Of a run that nobody waited for any more.
    pub(super) fn abandoned(signal: Signal, meter: &Meter) -> Self {
        let usage = meter.read();
        Self {
            status: RunStatus::Cancelled,
            output: None,
            message: Some("stopped in the middle".to_owned()),
            cost: meter.cost(&usage),
            usage,
            state: None,
            signal: Some(signal),
        }
    }

    pub(super) fn of(ended: Result<RunResult, RunError>, signal: Option<Signal>, meter: &Meter) -> Self {
        match ended {
            Ok(result) => {
                let status = status(result.stop());
                let message = match status {
                    RunStatus::Budget => Some(format!("the budget is spent: {}", spent(&result))),
                    RunStatus::Interrupted => Some(waiting(&result)),
                    _ => None,
                };
                Self {
                    status,
                    output: result.output().cloned(),
                    message,
                    cost: meter.cost(result.usage()),
                    usage: result.usage().clone(),
                    state: (status != RunStatus::Completed).then(|| result.to_state()),
                    signal: signal.filter(|_| status == RunStatus::Cancelled),
                }
            }
            Err(error) => {
                let usage = error.run().usage().clone();
                let status = match error.error() {
                    AgentError::MaxTurns(_) => RunStatus::MaxTurns,
                    _ => RunStatus::Failed,
                };
                let message = match error.error() {
                    AgentError::MaxTurns(most) => {
                        format!("it has taken all of its turns ({most}); give it more with --max-turns")
                    }
                    other => {
                        let failure = Failure::new(failure::without_number(&other.to_string()));
                        failure.causes_of(other).to_string()
                    }
                };
                Self {
                    status,
                    output: None,
                    message: Some(message),
                    cost: meter.cost(&usage),
                    usage,
                    state: Some(error.state()),
                    signal: None,
                }
            }
        }
    }
}

fn spent(result: &RunResult) -> String {
    use sandbar::{Spent, Stop};
    match result.stop() {
        Stop::Budget(Spent::Tokens { spent, of }) => format!("{spent} of {of} tokens"),
        Stop::Budget(Spent::Dollars { spent, of }) => format!("${spent:.6} of ${of}"),
        Stop::Budget(Spent::Time { spent, of }) => format!("{spent:?} of {of:?}"),
        _ => String::new(),
    }
}

fn waiting(result: &RunResult) -> String {
    let calls = result.interruptions();
    let tools: Vec<&str> = calls.iter().map(|call| call.tool.as_str()).collect();
    format!(
        "an approval is needed for {}, and nobody can be asked here; run it on a terminal, or with --ask never",
        tools.join(", ")
    )
}

/// Opens what users of the machine made in the run's own workspace: on the host it belongs to ids that are nobody's there,
/// and whoever ran this is to read and remove it.
async fn hand_over(session: &SandboxSession) {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let (manifest, root) = (session.manifest(), session.paths().root().to_string());
    for name in manifest.all_users().into_iter().filter(|name| takes_an_account(name)) {
        // Directories one by one, because only then what is in them can be seen.
        let words = ["find", &root, "-user", name, "-type", "d", "-exec", "chmod", "a+rwx", "{}", ";"];
        let more = ["-o", "-user", name, "-type", "f", "-exec", "chmod", "a+r", "{}", "+"];
        let _where_there_is_such_a_program = session.user(name).exec(Exec::new(words.into_iter().chain(more))).await;
    }
}

/// Ends the machine, keeps what must be kept, and says how it went.
pub(super) async fn conclude(
    begun: Begun,
    outcome: Outcome,
    elapsed: Duration,
    view: &mut View,
    (signals, render): (&mut Signals, &Render),
) -> u8 {
    // The keyboard is hushed to the end.
    let Begun { run, mut record, session, ground, guard, keyboard: _keyboard, .. } = begun;
    // Whatever is left of the machine when somebody cannot wait ends with this process.
    let ending = async {
        if !matches!(ground, Ground::InPlace(_)) {
            let _as_much_as_can_be = timeout(REMOVAL, hand_over(&session)).await;
        }
        timeout(REMOVAL, session.delete()).await
    };
    tokio::select! {
        removed = ending => match removed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => view.notice(&Failure::from(error).to_string()),
            Err(_) => view.notice("the machine does not end; it is left to end with this process"),
        },
        _again = signals.next() => view.hurry(),
    }
    let lost = session.audit().dropped() + session.audit().failed();
    if lost > 0 {
        view.notice(&format!("the audit is not complete: {lost} events could not be written"));
    }
    guard.findings().iter().for_each(|finding| view.notice(finding));
    record.status = outcome.status;
    record.final_output = outcome.output.as_ref().map(text);
    record.usage = serde_json::to_value(&outcome.usage).ok();
    if let Err(failure) = keep(&run, &record, outcome.state.as_ref()) {
        view.notice(&failure.to_string());
    }
    let next_steps = next_steps((&run, &record), &ground, view, (signals, render)).await;
    view.finished(&Finished {
        id: run.id(),
        session_id: record.session_id.as_deref().unwrap_or_default(),
        status: shown(outcome.status),
        final_output: outcome.output.as_ref(),
        message: outcome.message.as_deref(),
        usage: &outcome.usage,
        cost: outcome.cost,
        elapsed,
        next_steps: &next_steps,
    });
    if outcome.signal.is_some() {
        view.hurry();
    }
    let is_signalled = tokio::select! {
        () = view.settle() => false,
        _signal = signals.next() => true,
    };
    if is_signalled {
        view.hurry();
        view.settle().await;
    }
    // Without a reader, how it ended is told in the way of other programs.
    if view.is_closed() { render::CLOSED } else { code(&outcome) }
}

/// The last line for programs, of a run that there never was.
pub(crate) fn never_began(message: &str, status: Status, render: &Render) {
    let line = view::last_line(&Finished {
        id: "",
        session_id: "",
        status,
        final_output: None,
        message: Some(message),
        usage: &Usage::default(),
        cost: None,
        elapsed: Duration::ZERO,
        next_steps: &[],
    });
    let _reader_gone = render.result(line.as_bytes());
}

fn keep(run: &RunDir, record: &RunRecord, state: Option<&RunState>) -> Result<(), Failure> {
    run.save(record)?;
    if let Some(state) = state {
        let text = state.to_json().map_err(|error| Failure::new("cannot save the run").because(error))?;
        run.save_state(&text)?;
    }
    Ok(())
}

/// What somebody may want to do next; what changed in a copy is shown first.
async fn next_steps(
    (run, record): (&Arc<RunDir>, &RunRecord),
    ground: &Ground,
    view: &mut View,
    (signals, render): (&mut Signals, &Render),
) -> Vec<String> {
    let mut steps = Vec::new();
    match ground {
        Ground::InPlace(_) => {}
        Ground::Empty | Ground::Declared => steps.push(format!("its files are in {}", run.workspace().display())),
        Ground::Copy(source) => {
            let (copy, known, paint) = (Arc::clone(run), record.clone(), *render);
            let is_read = view.is_for_people();
            let summing = tokio::task::spawn_blocking(move || runs::summary(&copy, &known, is_read.then_some(&paint)));
            let summary = tokio::select! {
                summary = summing => summary.unwrap_or_else(|error| Err(Failure::new("cannot compare").because(error))),
                // A large tree takes a while, and can be looked at later.
                _signal = signals.next() => Err(Failure::new("what it changed was not looked at")),
            };
            match &summary {
                Err(failure) => view.notice(&failure.to_string()),
                Ok(summary) => {
                    view.changes(&summary.text);
                    summary.notes.iter().for_each(|note| view.notice(note));
                }
            }
            if let Ok(Summary { is_empty: true, notes, .. }) = summary {
                let what = if notes.is_empty() { "nothing was changed" } else { "nothing else was changed" };
                steps.push(what.to_owned());
            } else {
                let short = &run.id()[run.id().len().saturating_sub(SHORT)..];
                steps.push(format!("sandbar diff {short}   shows what it changed"));
                steps.push(format!("sandbar apply {short}  brings it to {}", source.display()));
            }
        }
    }
    steps.push(format!("everything it did is in {}", run.audit_path().display()));
    steps
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn shown(status: RunStatus) -> Status {
    match status {
        RunStatus::Completed => Status::Completed,
        RunStatus::Interrupted => Status::Interrupted,
        RunStatus::MaxTurns => Status::MaxTurns,
        RunStatus::Budget => Status::Budget,
        RunStatus::Cancelled => Status::Cancelled,
        RunStatus::Failed | RunStatus::Running | RunStatus::Lost => Status::Failed,
    }
}

fn code(outcome: &Outcome) -> u8 {
    match outcome.status {
        RunStatus::Completed => 0,
        RunStatus::Interrupted => 3,
        RunStatus::MaxTurns | RunStatus::Budget => 4,
        RunStatus::Cancelled => outcome.signal.map_or(130, signals::code),
        RunStatus::Failed | RunStatus::Running | RunStatus::Lost => 1,
    }
}

/// What a run that never began exits with.
pub(crate) fn halted(halt: Halt, mode: Mode, render: &Render) -> Result<u8, (Failure, u8)> {
    match halt {
        Halt::Signal(signal) => {
            if mode == Mode::Json {
                never_began("stopped before it began", Status::Cancelled, render);
            } else {
                render.note("stopped before it began; nothing is left");
            }
            Ok(signals::code(signal))
        }
        Halt::Failed(failure) => Err((*failure, 1)),
    }
}
