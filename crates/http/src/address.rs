//! Addresses: how they are displayed without secrets, the credentials in them, and which of them are this host.

use std::net::IpAddr;

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use reqwest::Url;

/// Maximum length of a displayed address, in characters.
const SHOWN_LIMIT: usize = 500;

/// The host of an address: an IP address or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Ip(IpAddr),
    /// The name in lower case, without a trailing dot.
    Name(String),
}

impl Host {
    pub(crate) fn of(url: &Url) -> Self {
        Self::parse(url.host_str().unwrap_or_default())
    }

    pub(crate) fn parse(text: &str) -> Self {
        let literal = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match literal {
            Ok(ip) => Self::Ip(ip.to_canonical()),
            Err(_) => Self::Name(text.trim_end_matches('.').to_ascii_lowercase()),
        }
    }
}

/// Whether an address is this host: 127.0.0.0/8, `::1`, the unspecified addresses, `localhost` and the names below it.
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    match Host::of(url) {
        Host::Ip(ip) => ip.is_loopback() || ip.is_unspecified(),
        Host::Name(name) => name == "localhost" || name.ends_with(".localhost"),
    }
}

/// Scheme, host and port: the part of an address that contains no secret.
#[must_use]
pub fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// A user and a password. They are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Vec<u8>,
    password: Vec<u8>,
}

impl Credentials {
    /// Removes the user and the password from an address and returns them.
    pub fn take(url: &mut Url) -> Option<Self> {
        let found = Self::of(url)?;
        forget_user(url);
        Some(found)
    }

    /// The user and the password of an address.
    pub(crate) fn of(url: &Url) -> Option<Self> {
        if url.username().is_empty() && url.password().is_none() {
            return None;
        }
        let decoded = |text: &str| percent_decode_str(text).collect();
        Some(Self { user: decoded(url.username()), password: decoded(url.password().unwrap_or_default()) })
    }

    /// The value of the `Authorization` header.
    #[must_use]
    pub fn basic(&self) -> String {
        format!("Basic {}", self.encoded())
    }

    fn encoded(&self) -> String {
        BASE64_STANDARD.encode([self.user.as_slice(), b":", &self.password].concat())
    }

    /// The texts that must not appear in any message. A user without a password is a token.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let secret = if self.password.is_empty() { &self.user } else { &self.password };
        vec![self.encoded(), String::from_utf8_lossy(secret).into_owned()]
    }
}

/// Removes user and password from an address. Every address with a host allows that.
pub fn forget_user(url: &mut Url) {
    let _has_host = (url.set_username(""), url.set_password(None));
}

/// An address without its user, its password, and the values of its query.
#[must_use]
pub fn shown(url: &Url) -> String {
    let query: Vec<String> = url.query().into_iter().flat_map(|query| query.split('&')).map(hidden).collect();
    let origin = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let mark = if query.is_empty() { "" } else { "?" };
    short(&format!("{origin}{port}{}{mark}{}", url.path(), query.join("&")))
}

/// The same for a text that may not be an address.
#[must_use]
pub fn shown_text(text: &str) -> String {
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

/// The parameter with its value hidden. The name stays, because it says what the address is for.
fn hidden(parameter: &str) -> String {
    // A token in base64 may end in `=`, and is not a name.
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
    fn secrets_in_addresses_are_not_shown() {
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

    #[test]
    fn credentials_in_an_address_become_a_header() {
        let mut url = Url::parse("https://m%40e:p%C3%BC%2@example.org/x").expect("an address");
        let found = Credentials::take(&mut url).expect("credentials");
        assert_eq!(found.basic(), format!("Basic {}", BASE64_STANDARD.encode("m@e:pü%2")));
        assert_eq!(url.as_str(), "https://example.org/x");
        assert!(Credentials::take(&mut url).is_none());
    }

    #[test]
    fn this_host_is_known_however_it_is_written() {
        for (text, expected) in [
            ("http://127.0.0.1/", true),
            ("http://127.9.8.7:80/", true),
            ("http://127.1/", true),
            ("http://2130706433/", true),
            ("http://[::1]:8080/", true),
            ("http://[::ffff:127.0.0.1]/", true),
            ("http://0.0.0.0/", true),
            ("http://localhost/", true),
            ("http://LocalHost.:1/", true),
            ("https://api.localhost/", true),
            ("http://notlocalhost/", false),
            ("http://localhost.example/", false),
            ("http://128.0.0.1/", false),
            ("http://[::2]/", false),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(text).expect("an address")), expected, "{text}");
        }
    }
}
