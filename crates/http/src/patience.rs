//! The waits between two attempts, and the random share that keeps many clients from retrying at the same time.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use futures::future::BoxFuture;

/// Waits between attempts. Tests use an implementation that records the waits and returns at once.
pub trait Patience: Send + Sync + fmt::Debug {
    /// Waits for this time.
    fn wait(&self, time: Duration) -> BoxFuture<'static, ()>;

    /// A random number from 0 to 1.
    fn chance(&self) -> f64;
}

/// The real clock and real randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealTime;

impl Patience for RealTime {
    fn wait(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn chance(&self) -> f64 {
        let [high, low, ..] = RandomState::new().hash_one(0).to_be_bytes();
        f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_between_zero_and_one_and_differ() {
        let chances: Vec<f64> = (0..50).map(|_| RealTime.chance()).collect();
        assert!(chances.iter().all(|chance| (0.0..=1.0).contains(chance)));
        assert!(chances.iter().any(|chance| (chance - chances[0]).abs() > f64::EPSILON));
    }
}
