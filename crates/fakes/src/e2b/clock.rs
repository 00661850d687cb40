//! Times as the service writes them, and random names.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Random lower-case letters and digits.
pub(super) fn random_name(length: usize) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
    random_bytes(length).map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
}

/// Random hexadecimal digits.
pub(super) fn random_hex(length: usize) -> String {
    random_bytes(length).map(|byte| char::from(b"0123456789abcdef"[usize::from(byte % 16)])).collect()
}

/// Random bits that suffice for names in tests: the standard library seeds each hasher from the random source of the system.
fn random_bytes(length: usize) -> impl Iterator<Item = u8> {
    std::iter::repeat_with(|| RandomState::new().hash_one(0_u8).to_le_bytes()).flatten().take(length)
}

/// A time as RFC 3339 in UTC, with as many decimals as protobuf's JSON has: none, three, six or nine.
pub(super) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let nanos = since.subsec_nanos();
    let fraction = match nanos {
        0 => String::new(),
        _ if nanos.is_multiple_of(1_000_000) => format!(".{:03}", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1000) => format!(".{:06}", nanos / 1000),
        _ => format!(".{nanos:09}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from 1 March of year 0, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_service_writes_them() {
        let at = |seconds, nanos| rfc3339(UNIX_EPOCH + Duration::new(seconds, nanos));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400, 500_000_000), "2000-02-29T00:00:00.500Z");
        assert_eq!(at(1_767_225_599, 1000), "2025-12-31T23:59:59.000001Z");
        assert_eq!(at(4_107_542_400, 123_456_789), "2100-03-01T00:00:00.123456789Z");
    }

    #[test]
    fn names_differ_and_have_their_length() {
        assert_eq!(random_name(20).len(), 20);
        assert_ne!(random_name(20), random_name(20));
        assert!(random_hex(40).bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
