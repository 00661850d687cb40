//! `sandbar gc`: removes what dead processes left, and nothing else.

mod report;

use sandbar_runs::{
    StateDir,
    gc::{self, GcEvent, GcOptions},
};

use self::report::Report;
use crate::{
    args::GcArgs,
    failure::Failure,
    machine::client,
    render::Render,
    streams::signals::{self, Signals},
};

pub(crate) async fn run(args: &GcArgs, render: &Render) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let mut report = Report::new(args, render);
    let options = GcOptions::default().dry_run(args.dry_run).provider(args.sandbox.clone());
    // Without a home directory there are neither sessions nor runs.
    let (state, registry) = (StateDir::from_env().ok(), client::registry());
    let mut observer = |event: GcEvent| report.event(event);
    let signal = tokio::select! {
        done = gc::collect(state.as_ref(), &registry, &options, &mut observer) => done.map(|()| None),
        // What is half removed is removed by the next `gc`.
        signal = signals.next() => Ok(Some(signal)),
    };
    report.quiet();
    let signal = signal.map_err(|error| Failure::from(error).without_machine())?;
    let code = report.end(signal)?;
    Ok(signal.map_or(code, signals::code))
}
