//! The guest program: built with this crate, embedded in it, started from memory.

/// The static guest program, for copying to a place where this process cannot start it. Empty if the build target is
/// not Linux.
pub static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sandbar-guest"));

#[cfg(target_os = "linux")]
pub(crate) use sealed::{prepare, sealed};

#[cfg(target_os = "linux")]
mod sealed {
    use std::{
        fs::File,
        io::{self, Write},
        os::fd::{AsFd, BorrowedFd},
        sync::OnceLock,
    };

    use parking_lot::Mutex;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::GUEST;

    static PROGRAM: OnceLock<File> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());

    /// The guest program as a sealed memfd, created once per process. It is executable and cannot be changed.
    pub(crate) fn sealed() -> io::Result<BorrowedFd<'static>> {
        let _one_at_a_time = MAKING.lock();
        if PROGRAM.get().is_none() {
            let program = make()?;
            return Ok(PROGRAM.get_or_init(|| program).as_fd());
        }
        PROGRAM.get().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Creates the memfd in a short-lived thread. A caller that needs the program earlier waits for it.
    pub(crate) fn prepare() {
        // A failure shows again where the program is needed.
        let _made_later = std::thread::Builder::new().name("guest-program".to_owned()).spawn(|| sealed().is_ok());
    }

    fn make() -> io::Result<File> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = match memfd_create("sandbar-guest", flags | MemfdFlags::EXEC) {
            // Kernels before 6.3 do not know this flag and do not need it.
            Err(rustix::io::Errno::INVAL) => memfd_create("sandbar-guest", flags)?,
            made => made?,
        };
        let mut program = File::from(memory);
        program.write_all(GUEST)?;
        fcntl_add_seals(&program, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(program)
    }
}
