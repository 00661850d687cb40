//! What a machine may use up: processes, memory, processors, disk, time.

use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

use crate::{MachineError, Result};

/// The least memory in which a machine and a command have room.
const LEAST_MEMORY: u64 = 16 << 20;
/// The least a workspace can be held to.
const LEAST_DISK: u64 = 1 << 20;
/// More than any host has: a request for it mistook the unit.
const ABSURD: u64 = 1 << 50;

/// What the machine may use up.
///
/// How strongly each is held differs from host to host, and [`crate::Features::limits`] says how it turned out. Memory,
/// processors and disk are not limited unless asked for: what is right depends on the work, and a client may have a
/// default of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Processes and threads.
    pub pids: u64,
    /// Open files in one process.
    pub open_files: u64,
    /// Bytes in `/tmp`, and again in `/dev/shm`; at most a third of [`Self::memory`], which they are a part of.
    pub tmp_bytes: u64,
    /// How long a command without its own deadline may run.
    pub time: Option<Duration>,
    /// Bytes of one process's output that may wait for a reader before the process is held up.
    pub output_buffer: u32,
    /// Bytes of memory of all processes together. A command that goes past it is killed and ends with
    /// [`crate::ExitReason::Memory`].
    pub memory: Option<u64>,
    /// Processors of all processes together.
    pub cpus: Option<Cpus>,
    /// Bytes on disk in the workspace and the homes together. No single file may be larger, wherever it is. A command that
    /// goes past it is killed and ends with [`crate::ExitReason::Disk`]; what it wrote stays, and can be removed.
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

/// Each sets the field of its name.
impl Limits {
    /// Processes and threads.
    #[must_use]
    pub fn pids(self, pids: u64) -> Self {
        Self { pids, ..self }
    }

    /// Open files in one process.
    #[must_use]
    pub fn open_files(self, open_files: u64) -> Self {
        Self { open_files, ..self }
    }

    /// Bytes in `/tmp`, and again in `/dev/shm`.
    #[must_use]
    pub fn tmp_bytes(self, tmp_bytes: u64) -> Self {
        Self { tmp_bytes, ..self }
    }

    /// How long a command without its own deadline may run.
    #[must_use]
    pub fn time(self, time: impl Into<Option<Duration>>) -> Self {
        Self { time: time.into(), ..self }
    }

    /// Bytes of one process's output that may wait for a reader.
    #[must_use]
    pub fn output_buffer(self, output_buffer: u32) -> Self {
        Self { output_buffer, ..self }
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory(self, memory: impl Into<Option<u64>>) -> Self {
        Self { memory: memory.into(), ..self }
    }

    /// Processors.
    #[must_use]
    pub fn cpus(self, cpus: impl Into<Option<Cpus>>) -> Self {
        Self { cpus: cpus.into(), ..self }
    }

    /// Bytes on disk.
    #[must_use]
    pub fn disk(self, disk: impl Into<Option<u64>>) -> Self {
        Self { disk: disk.into(), ..self }
    }
}

impl Limits {
    /// Bytes in `/tmp` and in `/dev/shm` as they are really given: what is there is in memory and cannot be taken back, so
    /// that neither is more than a third of it.
    #[must_use]
    pub fn tmp_room(&self) -> u64 {
        self.memory.map_or(self.tmp_bytes, |memory| self.tmp_bytes.min(memory / 3))
    }

    /// Refuses limits under which nothing could run, or that limit nothing.
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
            Self { memory: Some(bytes), .. } if *bytes < LEAST_MEMORY => {
                bad("memory", "is less than 16 MiB, in which nothing runs")
            }
            Self { disk: Some(bytes), .. } if *bytes < LEAST_DISK => bad("disk", "is less than 1 MiB"),
            Self { memory: Some(ABSURD..), .. } => bad("memory", "is more than any host has; leave it out instead"),
            Self { disk: Some(ABSURD..), .. } => bad("disk", "is more than any host has; leave it out instead"),
            _ => Ok(()),
        }
    }
}

/// A share of the host's processors, in thousandths of one: exact, where a fraction would not be.
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
    /// The least the kernel can hold anything to.
    const LEAST: u32 = 10;
    const MOST: u32 = 4096 * 1000;

    /// A share in thousandths of a processor.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] below 0.01 and above 4096 processors.
    pub fn thousandths(count: u32) -> Result<Self> {
        match NonZeroU32::new(count).filter(|_| (Self::LEAST..=Self::MOST).contains(&count)) {
            Some(count) => Ok(Self(count)),
            None => Err(Self::unfit(&format!("{}", f64::from(count) / 1000.0))),
        }
    }

    /// How many thousandths of a processor.
    #[must_use]
    pub fn as_thousandths(self) -> u32 {
        self.0.get()
    }

    fn unfit(text: &str) -> MachineError {
        let reason = "must be between 0.01 and 4096 processors, with at most three decimals, as 2 or 1.5";
        MachineError::invalid(format!("cpus {text:?}"), reason)
    }
}

impl FromStr for Cpus {
    type Err = MachineError;

    fn from_str(text: &str) -> Result<Self> {
        let unfit = || Self::unfit(text);
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !digits(whole, 4) || !digits(part, 3) {
            return Err(unfit());
        }
        let whole: u32 = whole.parse().map_err(|_| unfit())?;
        let part: u32 = format!("{part:0<3}").parse().map_err(|_| unfit())?;
        Self::thousandths(whole * 1000 + part).map_err(|_| unfit())
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
    fn a_share_of_processors_is_exact_and_survives_being_written_down() {
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
    fn limits_under_which_nothing_runs_are_refused_by_name() {
        Limits::default().check().expect("the default");
        type Change = fn(&mut Limits);
        let table: [(&str, Change); 8] = [
            ("pids", |limits| limits.pids = 0),
            ("open_files", |limits| limits.open_files = 0),
            ("time", |limits| limits.time = Some(Duration::ZERO)),
            ("memory", |limits| limits.memory = Some(0)),
            ("memory", |limits| limits.memory = Some(LEAST_MEMORY - 1)),
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
