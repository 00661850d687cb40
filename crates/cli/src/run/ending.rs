//! The end of a run: its outcome, its record, and the next steps.

use std::{sync::Arc, time::Duration};

use sandbar::{AgentError, RunError, RunResult, RunState, Signal, agent::Usage};
use sandbar_runs::{RunDir, RunRecord, RunStatus, describe, transfer::open_to_owner};
use serde_json::Value;
use tokio::time::timeout;

use super::{RunWorkspace, StartedRun, status, watch::Meter, workspace::Sharing};
use crate::{
    failure::Failure,
    machine::provision::Halt,
    render::{self, Render},
    runs::{self, Summary},
    streams::signals::{self, Signals},
    view::{self, Finished, Mode, View},
};

/// Time limit for the removal of the machine.
const REMOVAL: Duration = Duration::from_secs(60);

/// Number of characters of an id that identify a run.
const SHORT: usize = 8;

/// Outcome of a run.
pub(crate) struct Outcome {
    pub(crate) status: RunStatus,
    pub(crate) output: Option<Value>,
    pub(crate) message: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<f64>,
    /// State of the run, if it did not complete.
    pub(crate) state: Option<RunState>,
    /// The signal that stopped the run.
    pub(crate) signal: Option<Signal>,
}

impl Outcome {
    /// Outcome of a run that was stopped before its current turn ended.
    pub(super) fn abandoned(signal: Signal, meter: &Meter) -> Self {
        let usage = meter.read();
        Self {
            status: RunStatus::Cancelled,
            output: None,
            message: Some("stopped during a turn".to_owned()),
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
                        format!("the run used all of its {most} turns; allow more with --max-turns")
                    }
                    other => {
                        let failure = Failure::new(describe(other));
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
    use sandbar::{Stop, agent::Spent};
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
        "an approval is needed for {}, but there is no terminal to ask on; run sandbar on a terminal, or with --ask never",
        tools.join(", ")
    )
}

/// Removes the machine, saves the record, and shows the outcome.
pub(super) async fn conclude(
    begun: StartedRun,
    outcome: Outcome,
    elapsed: Duration,
    view: &mut View,
    (signals, render): (&mut Signals, &Render),
) -> u8 {
    // The echo stays off until the end.
    let StartedRun { run, mut record, session, ground, sharing, guard, keyboard: _keyboard, .. } = begun;
    // After a signal, the rest of the machine ends with this process.
    let ending = async {
        if sharing == Sharing::Sent
            && let Err(error) = run.fetch_workspace(&session).await
        {
            view.notice(&format!("{}; the changes of the run are lost", Failure::from(error)));
        } else if !matches!(ground, RunWorkspace::InPlace(_)) {
            let _as_much_as_can_be = timeout(REMOVAL, open_to_owner(&session)).await;
        }
        timeout(REMOVAL, session.delete()).await
    };
    tokio::select! {
        removed = ending => match removed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => view.notice(&Failure::from(error).to_string()),
            Err(_) => view.notice("the machine did not stop in time; it ends with this process"),
        },
        _again = signals.next() => view.hurry(),
    }
    let lost = session.audit().dropped() + session.audit().failed();
    if lost > 0 {
        view.notice(&format!("the audit log is incomplete; {lost} events could not be written"));
    }
    guard.findings().iter().for_each(|finding| view.notice(finding));
    record.status = outcome.status;
    record.final_output = outcome.output.as_ref().map(text);
    record.usage = serde_json::to_value(&outcome.usage).ok();
    if let Err(failure) = keep(&run, &record, outcome.state.as_ref()) {
        view.notice(&failure.to_string());
    }
    let next_steps = next_steps(&run, &ground, view, (signals, render)).await;
    view.finished(&Finished {
        id: run.id(),
        session_id: record.session_id.as_deref().unwrap_or_default(),
        status: outcome.status,
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
    // If the reader closed the pipe, the exit code is that of SIGPIPE.
    if view.is_closed() { render::CLOSED } else { code(&outcome) }
}

/// Writes the last JSON line of a run that never began.
pub(crate) fn never_began(message: &str, status: RunStatus, render: &Render) {
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

/// Shows the changes in a working copy, and returns the next steps.
async fn next_steps(
    run: &Arc<RunDir>,
    ground: &RunWorkspace,
    view: &mut View,
    (signals, render): (&mut Signals, &Render),
) -> Vec<String> {
    let mut steps = Vec::new();
    match ground {
        RunWorkspace::InPlace(_) => {}
        RunWorkspace::Empty | RunWorkspace::Declared => {
            steps.push(format!("its files are in {}", run.workspace().display()))
        }
        RunWorkspace::Copy(source) => {
            let (copy, paint) = (Arc::clone(run), *render);
            let is_read = view.is_text();
            let summing = tokio::task::spawn_blocking(move || runs::summary(&copy, is_read.then_some(&paint)));
            let summary = tokio::select! {
                summary = summing => summary.unwrap_or_else(|error| Err(Failure::new("cannot compare").because(error))),
                // Comparing a large tree takes time, and `sandbar diff` can do it later.
                _signal = signals.next() => Err(Failure::new("the changes were not compared")),
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

fn code(outcome: &Outcome) -> u8 {
    match outcome.status {
        RunStatus::Completed => 0,
        RunStatus::Interrupted => 3,
        RunStatus::MaxTurns | RunStatus::Budget => 4,
        RunStatus::Cancelled => outcome.signal.map_or(130, signals::code),
        _ => 1,
    }
}

/// Exit code of a run that never began.
pub(crate) fn halted(halt: Halt, mode: Mode, render: &Render) -> Result<u8, (Failure, u8)> {
    match halt {
        Halt::Signal(signal) => {
            if mode == Mode::Json {
                never_began("stopped before the run began", RunStatus::Cancelled, render);
            } else {
                render.note("stopped before the run began; nothing is left");
            }
            Ok(signals::code(signal))
        }
        Halt::Failed(failure) => Err((*failure, 1)),
    }
}
