//! Resource limits of a machine: processes, memory, processors, disk, time.

use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

use crate::{MachineError, Result};

/// Smallest memory limit in which a machine and a command fit.
const MIN_MEMORY: u64 = 16 << 20;
/// Smallest disk limit.
const MIN_DISK: u64 = 1 << 20;
/// More bytes than any host has: the caller probably used a wrong unit.
const ABSURD: u64 = 1 << 50;

/// Resource limits of a machine.
///
/// Enforcement differs from host to host: [`crate::Features::limits`] says how each limit is enforced. Memory, processors and
/// disk are not limited unless requested, because suitable values depend on the work; a client may have its own defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of processes and threads.
    pub pids: u64,
    /// Maximum number of open files of one process.
    pub open_files: u64,
    /// Size in bytes of `/tmp`, and of `/dev/shm`. Both use memory, so each gets at most a third of [`Self::memory`].
    pub tmp_bytes: u64,
    /// Deadline for commands without their own.
    pub time: Option<Duration>,
    /// Bytes of one process's output that may wait for a reader before the process is blocked.
    pub output_buffer: u32,
    /// Bytes of memory for all processes together. A command that exceeds the limit is killed and ends with
    /// [`crate::ExitReason::Memory`].
    pub memory: Option<u64>,
    /// Share of the processors for all processes together.
    pub cpus: Option<Cpus>,
    /// Bytes on disk for the workspace and the home directories together, and maximum size of a single file anywhere. A
    /// command that exceeds the limit is killed and ends with [`crate::ExitReason::Disk`]; its files stay and can be removed.
    pub disk: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pids: 1024,
            open_files: 4096,
            tmp_bytes: 1 << 30,
            time: None,
            output_buffer: 1 << 20,
            memory: None,
            cpus: None,
            disk: None,
        }
    }
}

/// Builder methods; each sets the field of the same name.
impl Limits {
    /// Maximum number of processes and threads.
    #[must_use]
    pub fn pids(self, pids: u64) -> Self {
        Self { pids, ..self }
    }

    /// Maximum number of open files of one process.
    #[must_use]
    pub fn open_files(self, open_files: u64) -> Self {
        Self { open_files, ..self }
    }

    /// Size in bytes of `/tmp`, and of `/dev/shm`.
    #[must_use]
    pub fn tmp_bytes(self, tmp_bytes: u64) -> Self {
        Self { tmp_bytes, ..self }
    }

    /// Deadline for commands without their own.
    #[must_use]
    pub fn time(self, time: impl Into<Option<Duration>>) -> Self {
        Self { time: time.into(), ..self }
    }

    /// Bytes of one process's output that may wait for a reader.
    #[must_use]
    pub fn output_buffer(self, output_buffer: u32) -> Self {
        Self { output_buffer, ..self }
    }

    /// Bytes of memory for all processes together.
    #[must_use]
    pub fn memory(self, memory: impl Into<Option<u64>>) -> Self {
        Self { memory: memory.into(), ..self }
    }

    /// Share of the processors for all processes together.
    #[must_use]
    pub fn cpus(self, cpus: impl Into<Option<Cpus>>) -> Self {
        Self { cpus: cpus.into(), ..self }
    }

    /// Bytes on disk for the workspace and the home directories together.
    #[must_use]
    pub fn disk(self, disk: impl Into<Option<u64>>) -> Self {
        Self { disk: disk.into(), ..self }
    }
}

impl Limits {
    /// Effective size in bytes of `/tmp`, and of `/dev/shm`: their files are in memory that cannot be reclaimed, so each gets
    /// at most a third of the memory limit.
    #[must_use]
    pub fn tmp_room(&self) -> u64 {
        self.memory.map_or(self.tmp_bytes, |memory| self.tmp_bytes.min(memory / 3))
    }

    /// Refuses limits that are too small to run anything, or too large to limit anything.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] that names the limit and the reason.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str, reason: &str| Err(MachineError::invalid(format!("limit {what}"), reason));
        let zero = |what: &str| bad(what, "is 0; must be 1 or more");
        match self {
            Self { pids: 0, .. } => zero("pids"),
            Self { open_files: 0, .. } => zero("open_files"),
            Self { tmp_bytes: 0, .. } => zero("tmp_bytes"),
            Self { output_buffer: 0, .. } => zero("output_buffer"),
            Self { time: Some(time), .. } if time.is_zero() => zero("time"),
            Self { memory: Some(bytes), .. } if *bytes < MIN_MEMORY => {
                bad("memory", "is less than 16 MiB, too little to run anything")
            }
            Self { disk: Some(bytes), .. } if *bytes < MIN_DISK => bad("disk", "is less than 1 MiB"),
            Self { memory: Some(ABSURD..), .. } => bad("memory", "is more than any host has; leave it out instead"),
            Self { disk: Some(ABSURD..), .. } => bad("disk", "is more than any host has; leave it out instead"),
            _ => Ok(()),
        }
    }
}

/// A share of the host's processors, as an integer number of thousandths of a processor; a float would not be exact.
///
/// ```
/// # use sandbar_machine::Cpus;
/// let share: Cpus = "1.5".parse()?;
/// assert_eq!(share, Cpus::thousandths(1500)?);
/// assert_eq!(share.to_string(), "1.5");
/// # Ok::<(), sandbar_machine::MachineError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(NonZeroU32);

impl Cpus {
    /// Smallest share that the kernel can enforce.
    const MIN: u32 = 10;
    const MAX: u32 = 4096 * 1000;

    /// A share of this many thousandths of a processor.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] below 0.01 and above 4096 processors.
    pub fn thousandths(count: u32) -> Result<Self> {
        match NonZeroU32::new(count).filter(|_| (Self::MIN..=Self::MAX).contains(&count)) {
            Some(count) => Ok(Self(count)),
            None => Err(Self::invalid(&format!("{}", f64::from(count) / 1000.0))),
        }
    }

    /// The share in thousandths of a processor.
    #[must_use]
    pub fn as_thousandths(self) -> u32 {
        self.0.get()
    }

    fn invalid(text: &str) -> MachineError {
        let reason = "must be between 0.01 and 4096 processors, with at most three decimals, as 2 or 1.5";
        MachineError::invalid(format!("cpus {text:?}"), reason)
    }
}

impl FromStr for Cpus {
    type Err = MachineError;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Self::invalid(text);
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !digits(whole, 4) || !digits(part, 3) {
            return Err(invalid());
        }
        let whole: u32 = whole.parse().map_err(|_| invalid())?;
        let part: u32 = format!("{part:0<3}").parse().map_err(|_| invalid())?;
        Self::thousandths(whole * 1000 + part).map_err(|_| invalid())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0.get() / 1000, self.0.get() % 1000);
        match part {
            0 => write!(f, "{whole}"),
            _ => f.write_str(format!("{whole}.{part:03}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_processors_is_exact_and_is_parsed_as_it_is_printed() {
        for (text, thousandths) in [("1.5", 1500), ("2", 2000), ("0.01", 10), ("0.125", 125), ("4096", 4_096_000)] {
            let share: Cpus = text.parse().expect(text);
            assert_eq!(share.as_thousandths(), thousandths);
            assert_eq!(share.to_string(), text);
        }
        assert_eq!("1.50".parse::<Cpus>().expect("1.50").to_string(), "1.5");
        for bad in ["", "0", "0.009", "-1", "1.", ".5", "1e3", "nan", "1.2345", "4096.001", "99999", "1,5", " 1"] {
            assert!(bad.parse::<Cpus>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn temporary_files_leave_most_of_the_memory() {
        assert_eq!(Limits::default().tmp_room(), 1 << 30);
        let limits = |memory| Limits { memory: Some(memory), ..Limits::default() };
        assert_eq!(limits(3 << 20).tmp_room(), 1 << 20);
        assert_eq!(limits(64 << 30).tmp_room(), 1 << 30);
    }

    #[test]
    fn limits_that_are_too_small_or_too_large_are_refused_by_name() {
        Limits::default().check().expect("the default");
        type Change = fn(&mut Limits);
        let table: [(&str, Change); 8] = [
            ("pids", |limits| limits.pids = 0),
            ("open_files", |limits| limits.open_files = 0),
            ("time", |limits| limits.time = Some(Duration::ZERO)),
            ("memory", |limits| limits.memory = Some(0)),
            ("memory", |limits| limits.memory = Some(MIN_MEMORY - 1)),
            ("memory", |limits| limits.memory = Some(u64::MAX)),
            ("disk", |limits| limits.disk = Some(0)),
            ("disk", |limits| limits.disk = Some(1 << 60)),
        ];
        for (name, change) in table {
            let mut limits = Limits::default();
            change(&mut limits);
            let error = limits.check().expect_err(name);
            assert!(error.to_string().contains(&format!("limit {name}")), "{error}");
        }
    }
}
