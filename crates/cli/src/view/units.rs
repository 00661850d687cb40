//! Formats durations, token counts and costs.

use std::time::Duration;

/// Formats a duration as short as possible.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

/// Formats the duration of a run in progress: whole seconds, so that the row does not flicker.
pub(super) fn clock(time: Duration) -> String {
    if time.as_secs() < 10 { format!("{}s", time.as_secs()) } else { duration(time) }
}

/// Formats seconds in the largest unit that is at least one.
pub(crate) fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Formats a number with thousands separators.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a token count, rounded.
pub(super) fn rough(tokens: u64) -> String {
    match tokens {
        0..1000 => tokens.to_string(),
        1000..100_000 => format!("{}.{}k", tokens / 1000, tokens % 1000 / 100),
        100_000..1_000_000 => format!("{}k", tokens / 1000),
        _ => format!("{}.{}M", tokens / 1_000_000, tokens % 1_000_000 / 100_000),
    }
}

/// Formats a cost in dollars.
pub(super) fn cost(dollars: f64) -> String {
    if dollars < 10.0 { format!("${dollars:.4}") } else { format!("${dollars:.2}") }
}

/// Formats a number with a noun in singular or plural.
pub(super) fn plural(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        for (seconds, text) in [(-5, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (86_400 * 400, "400d")] {
            assert_eq!(age(seconds), text);
        }
    }

    #[test]
    fn numbers_are_short() {
        let table =
            [(0, "0.0s"), (420, "0.4s"), (9_900, "9.9s"), (59_999, "59s"), (61_000, "1:01"), (3_661_000, "1:01:01")];
        for (milliseconds, text) in table {
            assert_eq!(duration(Duration::from_millis(milliseconds)), text);
        }
        assert_eq!(clock(Duration::from_millis(4_900)), "4s");
        let table =
            [(7, "7", "7"), (1_234, "1,234", "1.2k"), (123_456, "123,456", "123k"), (1_250_000, "1,250,000", "1.2M")];
        for (number, exact, about) in table {
            assert_eq!((count(number).as_str(), rough(number).as_str()), (exact, about));
        }
        assert_eq!(count(100), "100");
        assert_eq!((cost(0.01234).as_str(), cost(12.345).as_str()), ("$0.0123", "$12.35"));
        assert_eq!((plural(1, "line"), plural(2, "line")), ("1 line".to_owned(), "2 lines".to_owned()));
    }
}
