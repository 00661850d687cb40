//! Copies bytes between the standard streams of an engine's exec and the door of the container it runs in, without
//! interpreting them.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixStream},
        },
    },
    process::ExitCode,
};

use crate::{
    door::own,
    sys::{
        process::exit_now,
        security::{self, Caps},
    },
};

/// Bytes copied at a time.
const PIECE: usize = 128 << 10;

/// Copies until either side closes; writes an error to standard error.
pub(crate) fn main(id: Option<OsString>) -> ExitCode {
    match carry(&id.unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _host_gone = writeln!(io::stderr(), "cannot connect to the machine: {error}");
            ExitCode::from(125)
        }
    }
}

fn carry(id: &OsString) -> io::Result<()> {
    // Commands inside may run as the same user.
    security::close_memory()?;
    security::set_caps(Caps::NONE)?;
    let mut input = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    let mut output = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?);
    let address = SocketAddr::from_abstract_name(own::name(id.as_bytes()))?;
    let mut door = UnixStream::connect_addr(&address)?;
    let mut inwards = door.try_clone()?;
    let carrier = std::thread::Builder::new().spawn(move || {
        let _either_hung_up = pass_on(&mut input, &mut inwards);
        exit_now(0)
    });
    drop(carrier?);
    let _either_hung_up = pass_on(&mut door, &mut output);
    Ok(())
}

/// Not `io::copy`: it splices, and the kernel may hold bytes back until more arrive.
fn pass_on(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = vec![0; PIECE];
    loop {
        match from.read(&mut bytes)? {
            0 => return Ok(()),
            count => to.write_all(bytes.get(..count).unwrap_or_default())?,
        }
    }
}
