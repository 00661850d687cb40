//! Progress of filling a workspace: one line on the terminal, updated in place and removed at the end.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sandbar::sandbox::{Progress, ProgressEvent};
use sandbar_runs::format_size;

use crate::render::{self, Render};

/// Minimum interval between updates of the line.
const PACE: Duration = Duration::from_millis(100);

/// The progress line; dropping this removes the line.
pub(crate) struct Meter {
    seen: Arc<Mutex<MeterState>>,
}

#[derive(Default)]
struct MeterState {
    bytes: HashMap<String, u64>,
    done: usize,
    total: usize,
    latest: String,
    shown: Option<Instant>,
}

impl Meter {
    /// A meter, if standard error is a terminal.
    pub(crate) fn choose(render: &Render) -> Option<Self> {
        render.has_terminal().then(|| Self { seen: Arc::default() })
    }

    /// Callback for progress events.
    pub(crate) fn listener(&self) -> Progress {
        let seen = self.seen.clone();
        Arc::new(move |event| {
            let mut seen = seen.lock();
            seen.hear(event);
            if seen.shown.is_none_or(|shown| shown.elapsed() >= PACE) {
                seen.shown = Some(Instant::now());
                render::status(&seen.line());
            }
        })
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.seen.lock().shown.is_some() {
            render::status("");
        }
    }
}

impl MeterState {
    fn hear(&mut self, event: ProgressEvent) {
        match event {
            ProgressEvent::Begun { path, .. } => self.latest = path,
            ProgressEvent::Moved { path, bytes } => {
                self.latest.clone_from(&path);
                self.bytes.insert(path, bytes);
            }
            ProgressEvent::Done { done, total, .. } => (self.done, self.total) = (done.max(self.done), total),
            _ => {}
        }
    }

    fn line(&self) -> String {
        let bytes = format_size(self.bytes.values().sum());
        let count = if self.total == 0 { String::new() } else { format!("{}/{} entries, ", self.done, self.total) };
        let latest: String = render::inert_line(&self.latest).chars().take(40).collect();
        format!("filling the workspace: {count}{bytes}  {latest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_progress_without_control_characters() {
        let mut seen = MeterState::default();
        seen.hear(ProgressEvent::Begun { path: "a\x1b[2Jb".to_owned(), kind: "file" });
        seen.hear(ProgressEvent::Done { path: "x".to_owned(), done: 1, total: 3 });
        seen.hear(ProgressEvent::Moved { path: "repo".to_owned(), bytes: 2048 });
        assert_eq!(seen.line(), "filling the workspace: 1/3 entries, 2.0K  repo");
        seen.hear(ProgressEvent::Begun { path: "a\x1b[2Jb".to_owned(), kind: "file" });
        assert!(!seen.line().contains('\x1b'));
    }
}
