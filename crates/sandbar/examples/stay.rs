//! A detached session, which outlives its client: attaches to it by its saved state, and sends input to a program in it.
//!
//! Run with `cargo run -p sandbar --example stay`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use sandbar::{
    Lifetime,
    client::UnixLocal,
    prelude::*,
    sandbox::processes::{ExecCommandArgs, WriteStdinArgs},
};

#[tokio::main]
async fn main() -> Result<(), SandboxError> {
    let client = Arc::new(UnixLocal::new());
    let options = SessionOptions::new(Manifest::new().file("note.txt", "stays\n")).lifetime(Lifetime::Detached);
    let state = SandboxSession::open(client.clone(), options).await?.state();

    // The state is plain data: another process needs only this JSON.
    let Some(session) = SandboxSession::attach(client, state, SessionOptions::default()).await? else {
        return Ok(());
    };
    print!("{}", session.read_text("note.txt").await?);

    let update = session
        .processes()
        .exec_command(ExecCommandArgs::new("read name; echo \"hello, $name\"").tty().yield_time_ms(250))
        .await?;
    if let Some(process) = update.process_id {
        let answer =
            session.processes().write_stdin(WriteStdinArgs::new(process, "world\n").yield_time_ms(5_000)).await?;
        print!("{}", answer.output);
    }
    session.delete().await
}
