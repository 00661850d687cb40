//! The `sandbar` command: parses its arguments, runs one subcommand, and exits with its code.

mod args;
mod completions;
mod demo;
mod doctor;
mod exec;
mod failure;
mod gc;
mod machine;
mod manifest;
mod mcp;
mod patch;
mod render;
mod run;
mod runs;
mod session;
mod streams;
mod view;

use std::process::ExitCode;

use self::{
    args::{Args, SessionTask, Task},
    failure::Failure,
    machine::client,
    render::Render,
};

fn main() -> ExitCode {
    client::prepare(std::env::args_os());
    let words = match run::words(std::env::args_os().collect()) {
        Ok(words) => words,
        Err(failure) => {
            Render::default().failure(&failure);
            run::misused(&failure.to_string(), std::env::args_os());
            return ExitCode::from(run::USAGE);
        }
    };
    let args = match Args::read(words) {
        Ok(args) => args,
        Err(error) => {
            let code = Render::default().usage(&error, args::usage_code(std::env::args_os()));
            if error.use_stderr() {
                run::misused("used wrongly; standard error says how", std::env::args_os());
            }
            return ExitCode::from(code);
        }
    };
    let render = Render::new(args.color);
    render.trace(args.verbose);
    let json = args.json();
    let code = match args.task {
        Task::Run(args) => on_runtime(run::run(args, &render)),
        Task::Demo(args) => on_runtime(demo::run(args, &render)),
        Task::Exec(exec) => on_runtime(coded(exec::run(exec, &render), failure::OWN)),
        Task::Session(task) => {
            let runs_a_command = matches!(task, SessionTask::Exec(_) | SessionTask::Shell(_) | SessionTask::Attach(_));
            on_runtime(coded(session::run(task, &render), if runs_a_command { failure::OWN } else { 1 }))
        }
        Task::Manifest(task) => manifest::run(&task, &render),
        Task::Patch(args) => on_runtime(patch::run(args, &render)),
        Task::Mcp(args) => on_runtime(coded(mcp::run(args, &render), 1)),
        Task::Diff(args) => runs::diff(&args, &render).map_err(|failure| (failure, 1)),
        Task::Apply(args) => on_runtime(coded(runs::apply(args, &render), 1)),
        Task::Runs(task) => runs::run(task, &render).map_err(|failure| (failure, 1)),
        Task::Gc(args) => on_runtime(coded(gc::run(&args, &render), 1)),
        Task::Doctor(doctor) => on_runtime(coded(doctor::run(&doctor, &render), 1)),
        Task::Completions { shell } => completions::write(shell, &render).map_err(|failure| (failure, 1)),
    };
    ExitCode::from(code.unwrap_or_else(|(failure, code)| {
        // A handler may have replaced the default action of signals, so a blocked write must not keep the process.
        let render = render.hurried();
        if json {
            render.failure_document(&failure)
        } else {
            render.failure(&failure)
        }
        code
    }))
}

/// Runs a task on one thread. Blocking work has its own threads, which are abandoned at the end.
fn on_runtime(task: impl Future<Output = Result<u8, (Failure, u8)>>) -> Result<u8, (Failure, u8)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| (Failure::new("cannot start").because(error), failure::OWN))?;
    let code = runtime.block_on(task);
    runtime.shutdown_background();
    code
}

/// Adds the exit code to failures: `failed`, or the failure's own code.
async fn coded(task: impl Future<Output = Result<u8, Failure>>, failed: u8) -> Result<u8, (Failure, u8)> {
    task.await.map_err(|failure| {
        let code = failure.exit(failed);
        (failure, code)
    })
}
