//! Runs one command on a new machine, with the current directory as its workspace.
//!
//! Run with `cargo run -p sandbar --example exec -- ls -la`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use sandbar::{client::UnixLocal, prelude::*};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let argv: Vec<_> = std::env::args_os().skip(1).collect();
    let workspace = Workspace::Host { path: std::env::current_dir()?, access: Access::ReadOnly };
    let machine = UnixLocal::new().create(MachineSpec::default().workspace(workspace)).await?;
    let mut process = machine.spawn(Command::new(argv)).await?;
    let mut code = 1;
    while let Some(output) = process.output.recv().await {
        match output? {
            Output::Stdout(bytes) => io::stdout().write_all(&bytes)?,
            Output::Stderr(bytes) => io::stderr().write_all(&bytes)?,
            Output::Omitted(_) => {}
            Output::Exit(exit) => code = exit.code,
        }
    }
    machine.stop().await?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
