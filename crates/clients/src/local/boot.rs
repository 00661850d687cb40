//! Boot of a local machine: start the supervisor from memory, send it the launch message, wait for the guest or for an
//! error.

use std::{
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream as StdStream,
    },
    process::Stdio,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sandbar_guest::protocol::{BootFailure, LET_GO, Launch, USERS_STAGE};
use sandbar_machine::{BoxError, MachineError, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::{Child, Command},
    time::timeout,
};

use crate::{GuestMachine, GuestSetup, Teardown, guest_binary};

/// How long a supervisor may take to report why it failed, once its guest is gone.
const EXPLANATION: Duration = Duration::from_secs(5);

/// How long a supervisor may take to remove everything.
const REMOVAL: Duration = Duration::from_secs(30);

/// Maximum length of a failure report.
const MAX_FAILURE: u64 = 64 * 1024;

/// Starts a machine and waits until its guest is ready. Dropping this future ends everything that it started. A machine
/// that outlives this process is released in the last step, after it is recorded.
pub(super) async fn boot(
    launch: &Launch,
    setup: GuestSetup,
    record: impl FnOnce() -> Result<()>,
) -> Result<GuestMachine> {
    let at = |stage: &'static str| move |source: io::Error| failed(stage, source);
    let (mut leash, control, child) = start_supervisor().map_err(at("starting the supervisor"))?;
    let sent = launch.encode_framed().map_err(|error| failed("describing the machine", error))?;
    // A supervisor that is already gone has sent its report, or nothing; both are handled below.
    let _explained_below = leash.write_all(&sent).await;
    let (reader, writer) = control.into_split();
    let mut failure = Vec::new();
    let connected = tokio::select! {
        connected = GuestMachine::connect(reader, writer, setup) => connected,
        _ended = read_report(&mut leash, &mut failure) => Err(MachineError::Gone),
    };
    if connected.is_ok()
        && let Err(error) = record()
    {
        drop(connected);
        let mut leash = Leash { leash, child, directory: directory(launch) };
        // The caller needs the first error; a failed removal is less important.
        let _lesser = leash.wait().await;
        return Err(error);
    }
    match connected {
        Ok(machine) if launch.detached.is_some() => match leash.try_write(&[LET_GO]) {
            Ok(_) => Ok(machine),
            Err(error) => Err(explain(MachineError::transport("detach from it", error), leash, failure).await),
        },
        Ok(machine) => Ok(machine.teardown(Leash { leash, child, directory: directory(launch) })),
        Err(error) => Err(explain(error, leash, failure).await),
    }
}

/// The machine's directory, for messages.
fn directory(launch: &Launch) -> String {
    String::from_utf8_lossy(&[&launch.state, b"/".as_slice(), &launch.id].concat()).into_owned()
}

/// Starts a supervisor that inherits only two sockets.
fn start_supervisor() -> io::Result<(UnixStream, UnixStream, Child)> {
    let (leash, leash_end) = pair()?;
    let (control, control_end) = pair()?;
    // The largest buffer that the system allows, so that a large file takes fewer writes.
    let _system_default = rustix::net::sockopt::set_socket_send_buffer_size(&control, 1 << 20);
    let program = guest_binary::sealed()?;
    let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0("sandbar-guest")
        .arg("supervise")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(leash_end))
        .stdout(Stdio::from(control_end))
        .stderr(Stdio::null())
        .spawn()?;
    Ok((leash, control, child))
}

fn pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let ours = StdStream::from(ours);
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs))
}

/// Reads everything until the supervisor closes its end; it writes only a failure report. A broken socket ends the read
/// too.
async fn read_report(leash: &mut UnixStream, report: &mut Vec<u8>) {
    let _broken = leash.take(MAX_FAILURE).read_to_end(report).await;
}

/// The supervisor's own error if it sent one, otherwise the error that was seen here.
async fn explain(error: MachineError, mut leash: UnixStream, mut report: Vec<u8>) -> MachineError {
    // A report that does not arrive in time is ignored.
    let _late = timeout(EXPLANATION, read_report(&mut leash, &mut report)).await;
    let Ok(failure) = BootFailure::decode(&report) else {
        return match error {
            MachineError::Gone => failed("waiting for the guest", "the guest ended before it was ready"),
            other => failed("waiting for the guest", other),
        };
    };
    if failure.stage == USERS_STAGE {
        return MachineError::Users { missing: failure.missing, fix: failure.fix };
    }
    if !failure.missing.is_empty() {
        return MachineError::Isolation { missing: failure.missing, fix: failure.fix };
    }
    let source = cause(&failure);
    MachineError::Start { stage: failure.stage, source }
}

fn cause(failure: &BootFailure) -> BoxError {
    match failure.errno {
        0 => "the supervisor gave no reason".into(),
        errno => io::Error::from_raw_os_error(errno).into(),
    }
}

fn failed(stage: &str, source: impl Into<BoxError>) -> MachineError {
    MachineError::Start { stage: stage.to_owned(), source: source.into() }
}

/// This process's end of the leash: the machine may live while it is open.
struct Leash {
    leash: UnixStream,
    child: Child,
    directory: String,
}

impl Teardown for Leash {
    fn wait(&mut self) -> BoxFuture<'_, Result<()>> {
        async {
            // The supervisor removes everything when this end closes, and closes its own end when that is done. A
            // supervisor that is already gone cannot be shut down.
            let _gone_already = self.leash.shutdown().await;
            let mut report = Vec::new();
            let gone = async {
                read_report(&mut self.leash, &mut report).await;
                self.child.wait().await
            };
            let what = format!("machine {}", self.directory);
            if timeout(REMOVAL, gone).await.is_err() {
                return Err(MachineError::StillBeingRemoved { what, waited: REMOVAL });
            }
            match BootFailure::decode(&report) {
                Err(_no_report) => Ok(()),
                Ok(failure) if failure.errno != 0 && failure.stage.starts_with("remove ") => {
                    Err(MachineError::NotRemoved { what, source: io::Error::from_raw_os_error(failure.errno) })
                }
                Ok(failure) => {
                    let left = format!("{} and its mounts may remain: {}", self.directory, cause(&failure));
                    Err(MachineError::transport("remove it", left))
                }
            }
        }
        .boxed()
    }
}
