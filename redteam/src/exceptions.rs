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
    e(
        "D31.out-of-memory-immunity",
        "both",
        "takes CAP_SYS_RESOURCE in the first user namespace, which not every root has",
    ),
    e("D31.share-a-core", "both", "kernels without CONFIG_SCHED_CORE answer as the filter does"),
    e("E35.file-delegation", "both", "kernels before Linux 6.19 answer as the filter does"),
    e("E38.x32-call", "both", "most kernels have no x32 table"),
    e("G52.kernel-crypto", "both", "kernels without AF_ALG answer as the filter does"),
    e(
        "J74.raise-process-limit",
        "both",
        "takes CAP_SYS_RESOURCE in the first user namespace, which not every root has",
    ),
    e("J74.raise-file-limit", "both", "takes CAP_SYS_RESOURCE in the first user namespace, which not every root has"),
    e("A8.open-by-handle", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("C24.overwrite-a-shown-program", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("C21.core-pattern", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("C22.keys", "user", "an ordinary user may have no keys to list; proven as root"),
    e("C22.symbols", "user", "an ordinary user may see no addresses on the host either; proven as root"),
    e("D31.real-time", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("D31.nice", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("D31.slack-of-pid1", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("E33.users.join-a-group", "user", "an ordinary user may not do it on the host either; proven as root"),
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
    e("B15", "both", "a removal that follows links would destroy the canary to prove itself"),
    e("B17", "both", "a harness that opens a FIFO hangs, which proves nothing in finite time"),
    e("D26", "both", "stopping every process of a user on the host would stop the tests"),
    e("D30", "both", "a process without a deadline has nothing to outlive"),
    e("I66.character-device", "both", "making devices needs root; the refusal is the archive reader's"),
    e("I66.block-device", "both", "making devices needs root; the refusal is the archive reader's"),
    e("I66.fifo", "both", "a FIFO harms only who opens it; the refusal is the archive reader's"),
    e("I66.file-as-directory", "both", "no unpacker can put a file below a file"),
    e("I66.set-id-member", "both", "a naive unpacker's mode bits are the attack, and are tried by number E34"),
    e("I66.duplicate-names", "both", "two members of one name are no attack by themselves"),
    e("I67", "both", "a hang or an exhausted memory would be the tests' own"),
    e("J71.host-stays-responsive", "both", "a fork bomb on the host would be the tests' end"),
    e("J76.segment-of-huge-pages", "user", "an ordinary user may not do it on the host either; proven as root"),
    e("J76.descriptors-on-the-way", "both", "others here run as this user and need theirs"),
    e("J76.watches", "user", "others here run as this user and need theirs; proven as root, with another user"),
    e("J76.queued-signals", "user", "others here run as this user and need theirs; proven as root, with another user"),
    e("J76.terminals", "both", "a host without terminals would be the tests' end"),
    e("J76.spin", "both", "a host without processors would be the tests' end"),
    e("J75", "both", "the output of a host process has no bound"),
    e("K78", "both", "it is about sandbar's own machinery, and there is nothing to attack without it"),
    e("K79", "both", "it is about sandbar's own machinery, and there is nothing to attack without it"),
    e("K80", "both", "it is about sandbar's own machinery, and there is nothing to attack without it"),
];
