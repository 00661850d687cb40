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

const fn e(attack: &'static str, mode: &'static str, reason: &'static str) -> Exception {
    Exception { attack, mode, reason }
}


/// All of them. A control that works although it is listed here is fine: hosts differ.
pub const EXCEPTIONS: &[Exception] = &[
    e("C21.modprobe", "both", "kernels without loadable modules have no such file"),
    e("C21.sysrq", "both", "kernels without CONFIG_MAGIC_SYSRQ have no such file"),
    e("C22.kernel-memory", "both", "kernels without CONFIG_PROC_KCORE have no such file"),
    e("D31.out-of-memory-immunity", "both", "takes CAP_SYS_RESOURCE in the first user namespace, which not every root has"),
    e("E38.x32-call", "both", "most kernels have no x32 table"),
    e("G52.kernel-crypto", "both", "kernels without AF_ALG answer as the filter does"),
    e("J74.raise-process-limit", "both", "takes CAP_SYS_RESOURCE in the first user namespace, which not every root has"),
    e("J74.raise-file-limit", "both", "takes CAP_SYS_RESOURCE in the first user namespace, which not every root has"),
    e("C21.core-pattern", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("C22.keys", "user", "an ordinary user may have no keys to list; proven as root"),
    e("D31.real-time", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("D31.nice", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E37.kernel-messages", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E37.accounting", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E37.swap", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E37.kexec", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E37.load-a-module", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E37.load-a-module-from-memory", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E37.unload-a-module", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E37.ports", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E41.make-a-block-device", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E41.make-a-character-device", "user", "an ordinary user may not do it on the host either; proven as root"),
];
