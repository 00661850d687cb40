//! A machine without a manifest or session: writes a file and runs a command that counts its bytes.
//!
//! Run with `cargo run -p sandbar --example machine`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use sandbar::{client::UnixLocal, prelude::*};

#[tokio::main]
async fn main() -> sandbar::Result<()> {
    let machine = UnixLocal::new().create(MachineSpec::default()).await?;

    let note = Target::from(MachinePath::workspace().join("note.txt")?);
    machine.write(&note, once("hello")).await?;

    let mut process = machine.spawn(Command::new(["wc", "-c", "note.txt"])).await?;
    while let Some(output) = process.output.recv().await {
        match output? {
            Output::Stdout(bytes) => print!("{}", String::from_utf8_lossy(&bytes)),
            Output::Stderr(bytes) => eprint!("{}", String::from_utf8_lossy(&bytes)),
            Output::Omitted(_) => {}
            Output::Exit(exit) => println!("exit {}", exit.code),
        }
    }
    machine.stop().await?;
    Ok(())
}
