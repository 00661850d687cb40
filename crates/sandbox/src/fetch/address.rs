//! Addresses as they may be shown: without user names, passwords, and the values of queries.

use reqwest::Url;

/// More of an address helps nobody.
const SHOWN_LIMIT: usize = 500;

/// The address without what may be secret in it.
pub(super) fn shown(url: &Url) -> String {
    let query: Vec<String> = url.query().into_iter().flat_map(|query| query.split('&')).map(hidden).collect();
    let origin = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let mark = if query.is_empty() { "" } else { "?" };
    short(&format!("{origin}{port}{}{mark}{}", url.path(), query.join("&")))
}

/// The same for a text that is no address, or not yet known to be one.
pub(crate) fn shown_text(text: &str) -> String {
    if let Ok(url) = Url::parse(text)
        && url.has_host()
    {
        return shown(&url);
    }
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let rest = rest.rsplit('@').next().unwrap_or_default();
    let mark = if scheme.is_empty() { "" } else { "://" };
    short(&format!("{scheme}{mark}{rest}"))
}

/// A parameter's name stays, for it says what the address is for.
fn hidden(parameter: &str) -> String {
    // A token in base64 may end in `=`, and is no name.
    let named = parameter.split_once('=').filter(|(_, value)| !value.trim_start_matches('=').is_empty());
    named.map_or_else(|| "…".to_owned(), |(name, _)| format!("{name}=…"))
}

fn short(text: &str) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter });
    clean.take(SHOWN_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_around_a_secret_makes_it_shown(
            scheme in "[a-z+]{1,6}", user in "[^/?#\\\\]{0,5}", rest in ".{0,20}", query in "[^=&]{0,9}",
        ) {
            let addresses = [
                format!("{scheme}://{user}SECRET@{rest}"),
                format!("{scheme}://host/path?{query}=SECRET"),
                format!("{scheme}://host/path?{query}SECRET"),
                format!("{rest}?{query}#SECRET"),
            ];
            for address in addresses {
                prop_assert!(!shown_text(&address).contains("SECRET"), "{:?}", address);
            }
        }
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        let table = [
            ("https://example.org/a/b.tar", "https://example.org/a/b.tar"),
            ("http://me:hunter2@example.org:8080/a", "http://example.org:8080/a"),
            ("https://h/a?X-Signature=hunter2&y=hunter2#hunter2", "https://h/a?X-Signature=…&y=…"),
            ("https://h/a?hunter2", "https://h/a?…"),
            ("https://h/a?hunter2==&x=", "https://h/a?…&…"),
            ("http://[::1]:80/a", "http://[::1]/a"),
            ("git@host:repo", "host:repo"),
            ("no address?hunter2", "no address"),
            ("x://a:hunter2@h:port/x", "x://h:port/x"),
            ("a\nb", "a\u{fffd}b"),
        ];
        for (given, expected) in table {
            assert_eq!(shown_text(given), expected);
        }
        assert_eq!(shown_text(&"x".repeat(9000)).len(), SHOWN_LIMIT);
    }
}
