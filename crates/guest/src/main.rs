//! The guest program. By its first argument it is the supervisor outside the namespaces (`supervise`), the server in a
//! container (`serve`), the bridge to that server (`bridge`), the remover of leftovers of dead machines (`sweep`), or a
//! query for the Landlock version (`landlock`).

#[cfg(target_os = "linux")]
mod confine;
#[cfg(target_os = "linux")]
mod door;
#[cfg(target_os = "linux")]
mod handles;
#[cfg(target_os = "linux")]
mod identity;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod remove;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod sys;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    // A program started from a memory file would otherwise be named after a descriptor number.
    let _only_a_name = rustix::thread::set_name(c"sandbar-guest");
    sys::process::forget_ignored_signals();
    match std::env::args().nth(1).as_deref() {
        Some("supervise") => machine::supervisor::main(),
        Some("serve") => machine::container::main(),
        Some("bridge") => door::bridge::main(std::env::args_os().nth(2)),
        // Used by `sandbar doctor`: the exit code is the kernel's Landlock version, or 0 without Landlock.
        Some("landlock") => sys::security::landlock_abi().map_or(0, |abi| u8::try_from(abi).unwrap_or(u8::MAX)).into(),
        Some("sweep") => machine::state::sweep_all(std::env::args_os().nth(2)),
        _ => std::process::ExitCode::from(125),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(125)
}
