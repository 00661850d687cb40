//! Parsers for option values: sizes, durations, directories, mounts and variables.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    time::Duration,
};

use sandbar::{Access, Signal, agent::Price, machine::account_name_fault};

/// A user of a machine: an account name or a number.
pub(crate) fn user(text: &str) -> Result<String, String> {
    let is_number = text.parse::<u16>().is_ok_and(|number| number.to_string() == text);
    match account_name_fault(text) {
        Some(_) if !is_number && text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() => {
            Err("a user number must be at most 65535, without leading zeros".to_owned())
        }
        Some(fault) if !is_number => Err(fault.to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// A user that a new machine creates if needed: a name, because a number has no home directory.
pub(crate) fn account(text: &str) -> Result<String, String> {
    account_name_fault(text).map_or_else(|| Ok(text.to_owned()), |fault| Err(fault.to_owned()))
}

/// A directory of the host that becomes the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkspaceDir {
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
}

/// A file or directory of the host, and its path on the machine; `None` is the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) host: PathBuf,
    pub(crate) inside: Option<PathBuf>,
}

/// A variable for the command; `None` copies the caller's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: OsString,
    pub(crate) value: Option<OsString>,
}

/// A granted file or directory of the host, and its path on the machine; `None` is the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantArg {
    pub(crate) shown: Shown,
    pub(crate) access: Access,
}

/// A path in a session; an empty path is the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionPath {
    pub(crate) session: String,
    pub(crate) path: OsString,
}

/// Source or destination of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopyPath {
    Session(SessionPath),
    Host(PathBuf),
}

/// Price of a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PriceArg {
    pub(crate) model: String,
    pub(crate) price: Price,
}

/// `MODEL=IN/OUT`, in dollars per million tokens; cached tokens have the same price.
pub(crate) fn price(text: &str) -> Result<PriceArg, String> {
    let parts = text.rsplit_once('=').and_then(|(model, price)| Some((model, price.split_once('/')?)));
    let Some((model, (input, output))) = parts.filter(|(model, _)| !model.is_empty()) else {
        return Err("must have the form MODEL=IN/OUT, for example qwen3=0.10/0.40".to_owned());
    };
    let (input, output) = (dollars(input)?, dollars(output)?);
    Ok(PriceArg { model: model.to_owned(), price: Price { input, cached: input, output } })
}

/// An amount of dollars.
pub(crate) fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.trim().trim_start_matches('$').parse::<f64>().ok();
    amount
        .filter(|amount| amount.is_finite() && *amount >= 0.0)
        .ok_or_else(|| "must be an amount in dollars, such as 0.50".to_owned())
}

/// `1` to `65535`.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| "use a number from 1 to 65535; sandbar chooses the port of the host, and prints it".to_owned())
}

/// `500ms`, `10s`, `5m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("use a number and a unit, like 500ms, 10s, 5m or 1h".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "use a whole number and a unit, like 500ms, 10s, 5m or 1h")?;
    match number.checked_mul(millis) {
        None => Err("is too long".to_owned()),
        Some(0) => Err("must be greater than zero".to_owned()),
        Some(millis) => Ok(Duration::from_millis(millis)),
    }
}

/// `TERM`, `SIGTERM`, `term` or `15`.
pub(crate) fn signal(text: &str) -> Result<Signal, String> {
    const NAMES: [(&str, Signal); 7] = [
        ("HUP", Signal::Hangup),
        ("INT", Signal::Interrupt),
        ("QUIT", Signal::Quit),
        ("KILL", Signal::Kill),
        ("USR1", Signal::User1),
        ("USR2", Signal::User2),
        ("TERM", Signal::Terminate),
    ];
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = NAMES.iter().find(|(known, signal)| *known == name || signal.number().to_string() == name);
    found.map(|(_, signal)| *signal).ok_or_else(|| "use HUP, INT, QUIT, KILL, USR1, USR2 or TERM".to_owned())
}

/// `64k`, `512m`, `1g`, or plain bytes; in powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err("use bytes or a unit, like 64k, 512m or 1g".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "use a whole number and a unit, like 64k, 512m or 1g")?;
    match number.checked_mul(1 << shift) {
        None => Err("is too large".to_owned()),
        Some(0) => Err("must be greater than zero".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `DIR`, `DIR:ro` or `DIR:rw`.
pub(crate) fn workspace(text: OsString) -> Result<WorkspaceDir, String> {
    let bytes = text.as_bytes();
    let (path, access) = match bytes.strip_suffix(b":ro") {
        Some(path) => (path, Access::ReadOnly),
        None => (bytes.strip_suffix(b":rw").unwrap_or(bytes), Access::ReadWrite),
    };
    if path.is_empty() {
        return Err("names no directory; use `.` for the current one".to_owned());
    }
    Ok(WorkspaceDir { path: OsStr::from_bytes(path).into(), access })
}

/// `HOST` or `HOST:INSIDE`, where `INSIDE` is absolute; a colon without a slash after it is part of the name.
pub(crate) fn shown(text: OsString) -> Result<Shown, String> {
    let bytes = text.as_bytes();
    let cut = bytes.windows(2).rposition(|pair| pair == b":/");
    let (host, inside) = match cut {
        Some(at) => (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]).into())),
        None => (bytes, None),
    };
    if host.is_empty() {
        return Err("has no path of the host; use HOST or HOST:INSIDE".to_owned());
    }
    Ok(Shown { host: OsStr::from_bytes(host).into(), inside })
}

/// `NAME=VALUE` or `NAME`.
pub(crate) fn variable(text: OsString) -> Result<Variable, String> {
    let bytes = text.into_vec();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (bytes[..at].to_vec(), Some(OsString::from_vec(bytes[at + 1..].to_vec()))),
        None => (bytes, None),
    };
    if name.is_empty() {
        return Err("has no name; use NAME=VALUE, or NAME to copy your value".to_owned());
    }
    Ok(Variable { name: OsString::from_vec(name), value })
}

/// `HOST`, `HOST:INSIDE`, and either with `:ro` or `:rw`.
pub(crate) fn grant(text: OsString) -> Result<GrantArg, String> {
    let bytes = text.as_bytes();
    let (rest, access) = match bytes.strip_suffix(b":rw") {
        Some(rest) => (rest, Access::ReadWrite),
        None => (bytes.strip_suffix(b":ro").unwrap_or(bytes), Access::ReadOnly),
    };
    Ok(GrantArg { shown: shown(OsStr::from_bytes(rest).to_owned())?, access })
}

/// `ID:PATH` is in a session, every other path on the host; a colon after a slash is part of a name.
pub(crate) fn place(text: OsString) -> Result<CopyPath, String> {
    if text.is_empty() {
        return Err("is empty; use ID:PATH, or a path of the host".to_owned());
    }
    let bytes = text.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':');
    let slash = bytes.iter().position(|byte| *byte == b'/').unwrap_or(bytes.len());
    match colon {
        Some(colon) if colon < slash => inside(text).map(CopyPath::Session),
        _ => Ok(CopyPath::Host(text.into())),
    }
}

/// `ID` or `ID:PATH`.
pub(crate) fn inside(text: OsString) -> Result<SessionPath, String> {
    let bytes = text.as_bytes();
    let (session, path) = match bytes.iter().position(|byte| *byte == b':') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, [].as_slice()),
    };
    let session = std::str::from_utf8(session).ok().filter(|session| !session.is_empty());
    let session = session.ok_or("has no session; use ID:PATH")?.to_owned();
    Ok(SessionPath { session, path: OsStr::from_bytes(path).to_owned() })
}

/// `ID:PATH`, with both.
pub(crate) fn file_inside(text: OsString) -> Result<SessionPath, String> {
    let inside = inside(text)?;
    match inside.path.as_bytes().last() {
        None => Err("has no file; use ID:PATH".to_owned()),
        Some(b'/') => Err("names a directory, not a file; remove the slash at the end".to_owned()),
        Some(_) => Ok(inside),
    }
}

/// A name for a session, which must not look like an option, a path or `ID:PATH`.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if text.len() > 64 || !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !text.chars().all(plain) {
        return Err(
            "use up to 64 letters, digits, dots, dashes and underscores, beginning with a letter or digit".into()
        );
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_and_a_number() {
        for text in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(signal(text), Ok(Signal::Terminate));
        }
        for text in ["", "SIG", "STOP", "0", "-9", "99"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_a_unit_and_are_not_zero() {
        let millis = |text| duration(text).map(|time| time.as_millis());
        assert_eq!(millis("500ms"), Ok(500));
        assert_eq!(millis("10s"), Ok(10_000));
        assert_eq!(millis("5m"), Ok(300_000));
        assert_eq!(millis("1h"), Ok(3_600_000));
        for bad in ["", "5", "s", "-1s", "1.5s", "1 s", "1d", "0s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("7"), Ok(7));
        assert_eq!(size("64k"), Ok(65_536));
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("1g"), Ok(1 << 30));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        for bad in ["", "k", "12x", "-1", "0", "0m", "1.5g", "99999999999999999999", "18446744073709551615t"] {
            assert!(size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_workspace_is_writable_by_default() {
        let parsed = |text: &str| workspace(text.into()).map(|dir| (dir.path, dir.access));
        assert_eq!(parsed("."), Ok((".".into(), Access::ReadWrite)));
        assert_eq!(parsed("/a:ro"), Ok(("/a".into(), Access::ReadOnly)));
        assert_eq!(parsed("/a:ro:rw"), Ok(("/a:ro".into(), Access::ReadWrite)));
        assert!(parsed("").is_err() && parsed(":ro").is_err());
    }

    #[test]
    fn a_mount_is_split_at_the_last_colon_before_a_slash() {
        let parsed = |text: &str| shown(text.into()).map(|shown| (shown.host, shown.inside));
        assert_eq!(parsed("/a"), Ok(("/a".into(), None)));
        assert_eq!(parsed("a:/b"), Ok(("a".into(), Some("/b".into()))));
        assert_eq!(parsed("/a:b"), Ok(("/a:b".into(), None)));
        assert_eq!(parsed("/a:/b:/c"), Ok(("/a:/b".into(), Some("/c".into()))));
        assert!(parsed("").is_err() && parsed(":/b").is_err());
    }

    #[test]
    fn a_variable_has_a_name_and_an_optional_value() {
        let parsed = |text: &str| variable(text.into()).map(|variable| (variable.name, variable.value));
        assert_eq!(parsed("A=b=c"), Ok(("A".into(), Some("b=c".into()))));
        assert_eq!(parsed("A="), Ok(("A".into(), Some("".into()))));
        assert_eq!(parsed("A"), Ok(("A".into(), None)));
        assert!(parsed("=b").is_err() && parsed("").is_err());
    }

    #[test]
    fn a_grant_is_read_only_by_default() {
        let parsed = |text: &str| grant(text.into()).map(|grant| (grant.shown.host, grant.shown.inside, grant.access));
        assert_eq!(parsed("/a"), Ok(("/a".into(), None, Access::ReadOnly)));
        assert_eq!(parsed("/a:ro"), Ok(("/a".into(), None, Access::ReadOnly)));
        assert_eq!(parsed("a:/b:rw"), Ok(("a".into(), Some("/b".into()), Access::ReadWrite)));
        assert!(parsed(":rw").is_err() && parsed("").is_err());
    }

    #[test]
    fn a_colon_before_any_slash_means_a_session() {
        let host = |text: &str| Ok(CopyPath::Host(text.into()));
        let session =
            |id: &str, path: &str| Ok(CopyPath::Session(SessionPath { session: id.into(), path: path.into() }));
        assert_eq!(place("work:a/b".into()), session("work", "a/b"));
        assert_eq!(place("work:".into()), session("work", ""));
        assert_eq!(place("work:/workspace/a:b".into()), session("work", "/workspace/a:b"));
        for text in ["a", "./a:b", "/a:b", "a/b:c"] {
            assert_eq!(place(text.into()), host(text));
        }
        assert!(place("".into()).is_err() && place(":a".into()).is_err());
        for bad in ["work", "work:", "work:dir/", "work:/"] {
            assert!(file_inside(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_session_name_cannot_look_like_an_option_or_a_path() {
        for good in ["work", "a", "2024.review_1-b"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "-x", ".x", "a b", "a:b", "a/b", "ü", "a\n", &"a".repeat(65)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
