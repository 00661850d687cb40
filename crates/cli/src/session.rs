//! `sandbar session`: sessions that outlive the command, found again by any process of the same user.

mod attach;
mod copy;
mod create;
mod end;
mod files;
mod list;
mod ports;
mod processes;
mod removal;
mod run;

use sandbar_runs::{StateDir, sessions::Sessions};

use crate::{args::SessionTask, failure::Failure, machine::client, render::Render};

pub(crate) async fn run(task: SessionTask, render: &Render) -> Result<u8, Failure> {
    let sessions = Sessions::open(&StateDir::from_env()?, client::registry())?;
    match task {
        SessionTask::Create(args) => create::run(*args, &sessions, render).await,
        SessionTask::Ls(args) => match &args.place {
            None => list::sessions(&args, &sessions, render).await,
            Some(place) => list::files(&args, place, &sessions, render).await,
        },
        SessionTask::Exec(args) => run::exec(*args, &sessions, render).await,
        SessionTask::Attach(args) => attach::run(&args, &sessions, render).await,
        SessionTask::Ps(args) => processes::list(&args, &sessions, render).await,
        SessionTask::Kill(args) => processes::kill(&args, &sessions, render).await,
        SessionTask::Shell(args) => run::shell(args, &sessions, render).await,
        SessionTask::Read(args) => files::read(&args.file, &sessions).await,
        SessionTask::Write(args) => files::write(&args.file, &sessions).await,
        SessionTask::Cp(args) => copy::run(args, &sessions, render).await,
        SessionTask::Ports(args) => ports::run(&args, &sessions, render).await,
        SessionTask::Stop(args) => end::stop(&args, &sessions, render).await,
        SessionTask::Rm(args) => end::remove(&args, &sessions, render).await,
    }
}

/// Prints what the commands of a session changed in git repositories since the last report.
fn report_repositories(sessions: &Sessions, id: &str, render: &Render) {
    if let Err(error) = sessions.report_repositories(id, |finding| render.note(finding)) {
        render.failure(&error.into());
    }
}
