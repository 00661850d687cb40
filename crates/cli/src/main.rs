//! The `sandbar` command: reads its arguments, does the one thing they ask for, and leaves with the right code.

mod args;
mod completions;
mod doctor;
mod exec;
mod failure;
mod plan;
mod relay;
mod render;
mod signals;
mod terminal;
mod values;

use std::process::ExitCode;

use clap::Parser;

use self::{
    args::{Args, Task},
    failure::Failure,
    render::Render,
};

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return ExitCode::from(Render::default().usage(&error, args::usage_code())),
    };
    let render = Render::new(args.color);
    render.trace(args.verbose);
    let code = match args.task {
        Task::Exec(exec) => on_runtime(exec::run(exec, &render), failure::OWN),
        Task::Doctor(doctor) => on_runtime(doctor::run(&doctor, &render), 1),
        Task::Completions { shell } => completions::write(shell, &render).map_err(|failure| (failure, 1)),
    };
    ExitCode::from(code.unwrap_or_else(|(failure, code)| {
        render.failure(&failure);
        code
    }))
}

/// One thread: everything that could block has a thread of its own, and those that do are left behind at the end.
fn on_runtime(task: impl Future<Output = Result<u8, Failure>>, failed: u8) -> Result<u8, (Failure, u8)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| (Failure::new("cannot start").because(error), failed))?;
    let code = runtime.block_on(task).map_err(|failure| (failure, failed));
    runtime.shutdown_background();
    code
}
