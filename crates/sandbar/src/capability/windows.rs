//! Context windows of models, by the names of the models.

/// Names of models by their context window in tokens. A name also covers its dated versions.
const WINDOWS: &[(u64, &[&str])] = &[
    (
        1_047_576,
        &[
            "gpt-5.4",
            "gpt-5.4-pro",
            "gpt-5.5",
            "gpt-5.5-pro",
            "gpt-5.6",
            "gpt-5.6-sol",
            "gpt-5.6-terra",
            "gpt-5.6-luna",
            "gpt-4.1",
            "gpt-4.1-mini",
            "gpt-4.1-nano",
        ],
    ),
    (
        400_000,
        &[
            "gpt-5",
            "gpt-5-codex",
            "gpt-5-mini",
            "gpt-5-nano",
            "gpt-5-pro",
            "gpt-5.1",
            "gpt-5.1-codex",
            "gpt-5.1-codex-max",
            "gpt-5.1-codex-mini",
            "gpt-5.2",
            "gpt-5.2-codex",
            "gpt-5.2-codex-cyber",
            "gpt-5.2-pro",
            "gpt-5.3-codex",
            "gpt-5.3-codex-spark",
            "gpt-5.4-mini",
            "gpt-5.4-nano",
        ],
    ),
    (
        200_000,
        &[
            "codex-mini-latest",
            "o1",
            "o1-pro",
            "o3",
            "o3-pro",
            "o3-mini",
            "o3-deep-research",
            "o4-mini",
            "o4-mini-deep-research",
        ],
    ),
    (
        128_000,
        &[
            "gpt-4o",
            "gpt-4o-mini",
            "gpt-5-chat-latest",
            "gpt-5.1-chat-latest",
            "gpt-5.2-chat-latest",
            "gpt-5.3-chat-latest",
        ],
    ),
];

/// Context window of a model in tokens; `None` if its name is unknown. The lookup ignores case, everything up to the last
/// slash, dots and hyphens, and a date at the end of the name.
///
/// ```
/// use sandbar::capability::context_window;
///
/// assert_eq!(context_window("openai/GPT-5.5"), Some(1_047_576));
/// assert_eq!(context_window("gpt-5-2025-08-07"), Some(400_000));
/// assert_eq!(context_window("qwen3:8b"), None);
/// ```
#[must_use]
pub fn context_window(model: &str) -> Option<u64> {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let plain = |name: &str| name.replace(['.', '-'], "");
    let known = |name: &str| {
        let wanted = plain(name);
        let named = |names: &[&str]| names.iter().any(|name| plain(name) == wanted);
        WINDOWS.iter().find(|(_, names)| named(names)).map(|(window, _)| *window)
    };
    known(&name).or_else(|| known(undated(&name)?))
}

/// The name without a date such as `-2025-08-07` at its end; `None` if it does not end with a date.
fn undated(name: &str) -> Option<&str> {
    let (rest, date) = name.split_at_checked(name.len().checked_sub(11)?)?;
    let shape =
        |(index, byte): (usize, u8)| if matches!(index, 0 | 5 | 8) { byte == b'-' } else { byte.is_ascii_digit() };
    date.bytes().enumerate().all(shape).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_every_spelling() {
        for (name, window) in [
            ("gpt-5.5", Some(1_047_576)),
            ("GPT55", Some(1_047_576)),
            ("openrouter/openai/gpt-4o-mini", Some(128_000)),
            ("o3-2025-04-16", Some(200_000)),
            ("gpt-5.4-mini-2026-01-01", Some(400_000)),
            ("gpt-5.5-20xx-01-01", None),
            ("", None),
            ("-2025-04-16", None),
            ("llama", None),
        ] {
            assert_eq!(context_window(name), window, "{name}");
        }
    }
}
