//! Attacks without a proof that they work unsandboxed, by name, with the reason.

/// One attack that has no control in some mode.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// Which attack.
    pub attack: &'static str,
    /// `root`, `user`, or `both`.
    pub mode: &'static str,
    /// Why no control can be had.
    pub reason: &'static str,
}

/// All of them. A control that works although it is listed here is fine: hosts differ.
pub const EXCEPTIONS: &[Exception] = &[];
