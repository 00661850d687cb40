//! Where the time of a test run went: for each stage the time that passed and the processor time of what it started.

use std::{
    fmt::Write as _,
    fs,
    time::{Duration, Instant},
};

use crate::program::Result;

/// Ticks a second in `/proc`, part of the kernel's interface.
const TICKS: u64 = 100;

/// The stages so far.
#[derive(Default)]
pub(crate) struct Times {
    stages: Vec<Stage>,
    notes: Vec<String>,
}

struct Stage {
    name: &'static str,
    passed: Duration,
    processor: Duration,
}

impl Times {
    /// Runs a stage and notes what it took, which is also returned.
    pub(crate) fn stage(&mut self, name: &'static str, work: impl FnOnce() -> Result) -> Result<Duration> {
        println!("== {name}");
        let clock = Clock::start();
        let result = work();
        let stage = clock.stop(name);
        let outcome = if result.is_ok() { "ok" } else { "FAILED" };
        println!("== {name} {outcome} in {:.1} s", stage.passed.as_secs_f32());
        let passed = stage.passed;
        self.stages.push(stage);
        result.map(|()| passed)
    }

    /// A line that is printed below the table.
    pub(crate) fn note(&mut self, line: String) {
        println!("== {line}");
        self.notes.push(line);
    }

    /// Runs the last stage, which prints the table itself, before its own last words.
    pub(crate) fn stage_with_summary(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut dyn FnMut() -> String) -> Result,
    ) -> Result {
        println!("== {name}");
        let clock = Clock::start();
        work(&mut || {
            self.stages.push(clock.stop(name));
            self.table()
        })
    }

    /// A line for each stage and one for their sum. Engines and what they run are not children, and so not in it.
    fn table(&self) -> String {
        let sum = |part: fn(&Stage) -> Duration| self.stages.iter().map(part).sum::<Duration>();
        let all = Stage { name: "all", passed: sum(|stage| stage.passed), processor: sum(|stage| stage.processor) };
        let mut table = format!("{:<10} {:>9} {:>11}\n", "stage", "passed", "processor");
        for Stage { name, passed, processor } in self.stages.iter().chain([&all]) {
            let (passed, processor) = (passed.as_secs_f32(), processor.as_secs_f32());
            let _infallible = writeln!(table, "{name:<10} {passed:>7.1} s {processor:>9.1} s");
        }
        self.notes.iter().fold(table, |table, note| table + note + "\n")
    }
}

struct Clock {
    begun: Instant,
    processor: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { begun: Instant::now(), processor: children() }
    }

    fn stop(&self, name: &'static str) -> Stage {
        let processor = children().saturating_sub(self.processor);
        Stage { name, passed: self.begun.elapsed(), processor }
    }
}

/// Processor time of all children that have ended; zero where the system does not tell.
fn children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Duration::from_millis(children_ticks(&stat).unwrap_or(0) * 1000 / TICKS)
}

/// Fields 16 and 17. The second field is a name in parentheses, in which anything can stand.
fn children_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_children_is_read_past_any_name() {
        let stat = "7 (a ) 1 b) S 1 7 7 0 -1 4194560 10 20 0 0 3 4 150 25 20 0 1 0 5 6";
        assert_eq!(children_ticks(stat), Some(175));
        assert_eq!(children_ticks("nonsense"), None);
    }

    #[test]
    fn a_table_ends_with_the_sum_and_then_the_notes() {
        let stage = |name, seconds| Stage {
            name,
            passed: Duration::from_secs(seconds),
            processor: Duration::from_secs(2 * seconds),
        };
        let mut times = Times { stages: vec![stage("fmt", 1), stage("tests", 20)], notes: Vec::new() };
        let table = times.table();
        assert_eq!(table.lines().last(), Some("all           21.0 s      42.0 s"), "{table}");
        times.note("a size".to_owned());
        assert_eq!(times.table(), table + "a size\n");
    }
}
