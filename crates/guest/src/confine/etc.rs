//! A synthetic `/etc`: what programs need to run, and nothing that identifies the host.

use std::{
    ffi::{CString, OsStr},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use sandbar_guest::{
    account_files::{Written, add},
    protocol::{Accounts, BootFailure},
};

use super::root::{self, Source};
use crate::{
    handles::NEW_FILE,
    machine::failure::{Setup, Step, refuse},
    sys::{
        files::{BENEATH, NO_SYMLINKS, open_how},
        security::Token,
    },
};

const PASSWD: &str = concat!(
    "root:x:0:0:root:/root:/bin/sh\n",
    "agent:x:1000:1000:agent:/home/agent:/bin/sh\n",
    // tidy: allow(pronoun) — the name of an account
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
);
const GROUP: &str = "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1\tlocalhost sandbar\n::1\tlocalhost ip6-localhost ip6-loopback\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n\
                        protocols: files\nnetworks: files\n";

/// Taken from the host unchanged: alternatives, linker configuration, certificates, time zone, terminals.
const FROM_HOST: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "rpc",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// Prefixes of directories with configuration that language runtimes need to start.
const FROM_HOST_BY_PREFIX: &[&str] = &["java-", "python2", "python3", "perl"];

/// Files up to this size are copied: cheaper than a mount, now and when the machine ends.
const COPY_AT_MOST: u64 = 8 * 1024;

/// Fills `new_root/etc`; returns the users that were added.
pub(crate) fn build(new_root: BorrowedFd<'_>, host_network: bool, accounts: &Accounts) -> Setup<Made> {
    root::directory(new_root, b"etc", 0o755)?;
    let mut from_host: Vec<String> = FROM_HOST.iter().map(|name| (*name).to_owned()).collect();
    from_host.extend(by_prefix());
    if host_network {
        from_host.extend(["resolv.conf".to_owned(), "hosts".to_owned()]);
    } else {
        put(new_root, "resolv.conf", "")?;
        put(new_root, "hosts", HOSTS)?;
    }
    for name in from_host {
        bring(new_root, &name)?;
    }
    let Written { passwd, group, made } = add(PASSWD, GROUP, accounts).ok_or_else(no_numbers)?;
    put(new_root, "passwd", &passwd)?;
    put(new_root, "group", &group)?;
    put(new_root, "nsswitch.conf", NSSWITCH)?;
    put(new_root, "hostname", "sandbar\n")?;
    put(new_root, "shells", "/bin/sh\n/bin/bash\n")?;
    put(new_root, "profile", "export PATH\n")?;
    Ok(made)
}

/// Added users: name, uid and gid.
pub(crate) type Made = Vec<(String, u32, u32)>;

fn no_numbers() -> BootFailure {
    refuse("give the machine's accounts numbers: there are too many", "", "")
}

/// Adds accounts to those of a complete file tree. The tree is read-only, so its account files are covered by mounts.
pub(crate) fn cover(new_root: BorrowedFd<'_>, accounts: &Accounts) -> Setup<Made> {
    let Written { passwd, group, made } =
        add(&look(new_root, "passwd")?, &look(new_root, "group")?, accounts).ok_or_else(no_numbers)?;
    for (name, text) in [("passwd", passwd), ("group", group)] {
        let step = format!("cover /etc/{name}");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(new_root, COVER, flags, Mode::from_raw_mode(0o644)).step(&step)?;
        let source = Source::open(file.as_fd()).step(&step)?;
        std::fs::File::from(file).write_all(text.as_bytes()).step(&step)?;
        rustix::fs::unlinkat(new_root, COVER, AtFlags::empty()).step(&step)?;
        source.read_only().step(&step)?.show(new_root, format!("etc/{name}").as_bytes())?;
    }
    Ok(made)
}

/// Temporary name of a covering file.
const COVER: &str = ".sandbar-account-file";
/// Most bytes of an account file of a file tree.
const LONGEST: u64 = 1 << 20;

/// Reads an account file of a file tree, which must exist to be covered.
fn look(new_root: BorrowedFd<'_>, name: &str) -> Setup<String> {
    let step = format!("read /etc/{name}");
    let path = CString::new(format!("etc/{name}")).map_err(|_| refuse(step.as_str(), "", ""))?;
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = open_how(new_root, &path, flags, BENEATH | NO_SYMLINKS, Token([0; 2]));
    let mut text = Vec::new();
    let file = file.map(std::fs::File::from).needs(
        &step,
        "account files in the machine's file tree",
        "make etc/passwd and etc/group in it, as plain files",
    )?;
    file.take(LONGEST + 1).read_to_end(&mut text).step(&step)?;
    if text.len() as u64 > LONGEST {
        return Err(refuse(format!("{step}: it is too long"), "", ""));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn by_prefix() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/etc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| FROM_HOST_BY_PREFIX.iter().any(|prefix| name.starts_with(prefix))).collect()
}

fn put(new_root: BorrowedFd<'_>, name: &str, text: &str) -> Setup<()> {
    write(new_root, name, text.as_bytes()).step(&format!("write /etc/{name}"))
}

fn write(new_root: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = rustix::fs::openat(new_root, format!("etc/{name}"), NEW_FILE, Mode::from_raw_mode(0o644))?;
    std::fs::File::from(file).write_all(bytes)
}

/// Brings one entry of the host's `/etc` into the tree: a link as a link, a small file as a copy, anything else as a
/// mount. Missing or unreadable entries are skipped.
fn bring(new_root: BorrowedFd<'_>, name: &str) -> Setup<()> {
    let host = format!("/etc/{name}");
    let follow = if name == "resolv.conf" { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let Ok(stat) = rustix::fs::statat(CWD, host.as_str(), follow) else { return Ok(()) };
    let inside = format!("etc/{name}");
    if let Some((parent, _)) = inside.rsplit_once('/') {
        root::directory(new_root, parent.as_bytes(), 0o755)?;
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let Ok(target) = std::fs::read_link(&host) else { return Ok(()) };
            let target = target.into_os_string().into_vec();
            rustix::fs::symlinkat(OsStr::from_bytes(&target), new_root, inside.as_str())
                .step(&format!("link /etc/{name}"))
        }
        FileType::RegularFile if stat.st_size as u64 <= COPY_AT_MOST => {
            let Ok(bytes) = std::fs::read(&host) else { return Ok(()) };
            write(new_root, name, &bytes).step(&format!("copy /etc/{name}"))
        }
        FileType::RegularFile | FileType::Directory => {
            let Ok(source) = Source::named(&host) else { return Ok(()) };
            source.read_only().step(&format!("protect /etc/{name}"))?.show(new_root, inside.as_bytes())
        }
        _ => Ok(()),
    }
}

/// Files of the host's `/etc` that machines see; for level `landlock`, where `/etc` is the real one.
pub(crate) fn visible() -> impl Iterator<Item = String> {
    let fixed = FROM_HOST.iter().map(|name| format!("/etc/{name}"));
    let accounts = ["passwd", "group", "nsswitch.conf", "hosts", "hostname", "resolv.conf", "host.conf", "profile"];
    fixed
        .chain(by_prefix().into_iter().map(|name| format!("/etc/{name}")))
        .chain(accounts.into_iter().map(|name| format!("/etc/{name}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_secret_is_on_the_list() {
        for secret in ["/etc/shadow", "/etc/ssl/private", "/etc/ssl", "/etc/ssh", "/etc/sudoers", "/etc/gshadow"] {
            assert!(super::visible().all(|name| name != secret), "{secret}");
        }
    }
}
