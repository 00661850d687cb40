//! Rows of results, each with the goal it must meet.

use std::{process::ExitCode, time::Duration};

/// What to measure, and how to print it.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) json: bool,
    pub(crate) quick: bool,
    pub(crate) check: bool,
    pub(crate) only: Option<String>,
}

impl Options {
    pub(crate) fn from_args(mut args: impl Iterator<Item = String>) -> Self {
        let mut options = Self::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--json" => options.json = true,
                "--quick" => options.quick = true,
                "--check" => options.check = true,
                "--only" => options.only = args.next(),
                _ => {}
            }
        }
        options
    }

    /// Number of repetitions.
    pub(crate) fn times(&self, full: usize) -> usize {
        if self.quick { (full / 10).max(3) } else { full }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }
}

/// The median and the 95th percentile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
}

impl Spread {
    pub(crate) fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |share: f64| samples[((samples.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        Self { p50: at(0.5), p95: at(0.95) }
    }

    fn text(self) -> String {
        format!("{:.3} ms (p95 {:.3})", self.p50, self.p95)
    }
}

/// One result and its goal, a maximum or a minimum.
#[derive(Debug)]
struct Row {
    name: &'static str,
    ours: String,
    floor: String,
    value: f64,
    goal: f64,
    unit: &'static str,
    met: bool,
}

/// All results of a run.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Row>);

impl Table {
    /// A ratio to the floor, both measured in this run.
    pub(crate) fn ratio(&mut self, name: &'static str, ours: Spread, floor: Spread, goal: f64) {
        let value = ours.p50 / floor.p50;
        self.push(Row { name, ours: ours.text(), floor: floor.text(), value, goal, unit: "x", met: value <= goal });
    }

    /// A result with its own maximum.
    pub(crate) fn bound(&mut self, name: &'static str, value: f64, goal: f64, unit: &'static str) {
        self.push(Row { name, ours: String::new(), floor: String::new(), value, goal, unit, met: value <= goal });
    }

    /// A result with a minimum.
    #[allow(dead_code, reason = "not every benchmark has one")]
    pub(crate) fn at_least(&mut self, name: &'static str, value: f64, goal: f64, unit: &'static str) {
        self.push(Row { name, ours: String::new(), floor: String::new(), value, goal, unit, met: value >= goal });
    }

    /// A ratio of another program, for comparison.
    #[allow(dead_code, reason = "not every benchmark has one")]
    pub(crate) fn aside(&self, name: &'static str, theirs: Spread, floor: Spread) {
        eprintln!("{name:<38} {:>9.3} x   {} | {}", theirs.p50 / floor.p50, theirs.text(), floor.text());
    }

    fn push(&mut self, row: Row) {
        let met = if row.met { "ok" } else { "MISS" };
        eprintln!(
            "{:<38} {:>9.3} {:<4} goal {:>7.3}  {met:<5} {} | {}",
            row.name, row.value, row.unit, row.goal, row.ours, row.floor
        );
        self.0.push(row);
    }

    /// Prints the table, or JSON; fails if `--check` was given and a goal was missed.
    pub(crate) fn finish(&self, options: &Options) -> ExitCode {
        if options.json {
            for Row { name, ours, floor, value, goal, unit, met } in &self.0 {
                let line = serde_json::json!({
                    "suite": env!("CARGO_CRATE_NAME"), "workload": name, "value": value, "unit": unit, "goal": goal, "met": met,
                    "ours": ours, "floor": floor,
                });
                println!("{line}");
            }
        }
        let missed = self.0.iter().filter(|row| !row.met).count();
        eprintln!("{} of {} goals met", self.0.len() - missed, self.0.len());
        if options.check && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
