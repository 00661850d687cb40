//! The guest program itself: built with this crate, carried inside it, started from memory.

/// The static program, for copying to places this process cannot start it in. Empty where the build host is not Linux.
pub static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sandbar-guest"));

#[cfg(target_os = "linux")]
pub(crate) use sealed::sealed;

#[cfg(target_os = "linux")]
mod sealed {
    use std::{
        fs::File,
        io::{self, Write},
        os::fd::{AsFd, BorrowedFd},
        sync::{Mutex, OnceLock, PoisonError},
    };

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::GUEST;

    static PROGRAM: OnceLock<File> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());

    /// The program as an executable file without a name that nobody can change, made once in a process.
    pub(crate) fn sealed() -> io::Result<BorrowedFd<'static>> {
        let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if PROGRAM.get().is_none() {
            let program = make()?;
            return Ok(PROGRAM.get_or_init(|| program).as_fd());
        }
        PROGRAM.get().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn make() -> io::Result<File> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = match memfd_create("sandbar-guest", flags | MemfdFlags::EXEC) {
            // Kernels before 6.3 do not know the flag and need no permission.
            Err(rustix::io::Errno::INVAL) => memfd_create("sandbar-guest", flags)?,
            made => made?,
        };
        let mut program = File::from(memory);
        program.write_all(GUEST)?;
        fcntl_add_seals(&program, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(program)
    }
}
