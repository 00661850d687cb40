//! The signals that ask sandbar to end, as one stream; signals that the caller ignores stay ignored.

use std::{
    fs,
    future::poll_fn,
    io,
    task::{Context, Poll},
};

use sandbar::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;

/// Handlers for these signals, which no longer end this process.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        Self::streams().map_err(|error| Failure::new("cannot listen for signals").because(error))
    }

    fn streams() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = [Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit];
        let heard = wanted.into_iter().filter(|signal| ignored & (1 << (signal.number() - 1)) == 0);
        let streams = heard.map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(i32::from(signal.number())))?)));
        Ok(Self { streams: streams.collect::<io::Result<_>>()? })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.streams {
            if matches!(stream.poll_recv(context), Poll::Ready(Some(()))) {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

/// Bit mask of the signals that the caller ignores, as `nohup` and shells with background jobs do.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Exit code of a command that a signal ended, as shells report it.
pub(crate) fn code(signal: Signal) -> u8 {
    128 + signal.number()
}
