//! The rules for addresses in a manifest: http or https, a host, and no password.

/// Why an address cannot be used, if it cannot. The message does not repeat the address: it may hold a password.
pub(super) fn fault(url: &str) -> Option<&'static str> {
    let lower = url.to_ascii_lowercase();
    let Some(rest) = lower.strip_prefix("https://").or_else(|| lower.strip_prefix("http://")) else {
        return Some("must begin with https:// or http://");
    };
    if url.len() > 8192 {
        return Some("is longer than 8192 bytes");
    }
    if url.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\') {
        return Some("contains a blank, a backslash or a control character");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Some(
            "contains a user or password; name a secret instead (`auth` or a header with {\"secret\": \"NAME\"})",
        );
    }
    if !is_host(authority) {
        return Some("names no valid host");
    }
    None
}

/// Removes everything from an address that may grant access: user, password and query. Returns whether there was any.
/// The fragment is removed too, but does not count: it is never sent.
pub(super) fn redact(url: &mut String) -> bool {
    let mut removed = false;
    if let Some(end) = url.find(['?', '#']) {
        removed = url.as_bytes().get(end) == Some(&b'?');
        url.truncate(end);
    }
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    if let Some(at) = url[start..end].rfind('@') {
        url.replace_range(start..=start + at, "");
        removed = true;
    }
    removed
}

/// Whether this is a host name or an IP address, with an optional port.
pub(super) fn is_host(authority: &str) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port_fits =
        port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok());
    let name = !host.is_empty()
        && !host.starts_with(['-', '.'])
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    let literal = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
    port_fits && (name || literal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_an_address_are_removed() {
        let table = [
            ("https://h/a?sig=hunter22", "https://h/a", true),
            ("https://u:hunter22@h:1/a@b", "https://h:1/a@b", true),
            ("https://u:hunter22@h", "https://h", true),
            ("https://h?x@y", "https://h", true),
            ("https://h/a#hunter22?x", "https://h/a", false),
            ("https://h/a", "https://h/a", false),
            ("u@h:a/b", "h:a/b", true),
            ("", "", false),
        ];
        for (given, expected, removed) in table {
            let mut url = given.to_owned();
            assert_eq!((redact(&mut url), url.as_str()), (removed, expected), "{given}");
        }
    }

    #[test]
    fn addresses_are_http_and_hold_no_password() {
        let table = [
            ("https://example.com/a?b=c#d", true),
            ("HTTP://127.0.0.1:8080", true),
            ("http://[::1]:80/x", true),
            ("ftp://example.com", false),
            ("file:///etc/passwd", false),
            ("example.com/a", false),
            ("https://", false),
            ("https:///a", false),
            ("https://user:hunter22@example.com", false),
            ("https://user@example.com", false),
            ("https://example.com:99999", false),
            ("https://example.com:+80", false),
            ("https://-x", false),
            ("https://exa mple.com", false),
            ("https://example.com\\@evil", false),
            ("https://example.com/a@b", true),
            ("", false),
        ];
        for (url, fine) in table {
            assert_eq!(fault(url).is_none(), fine, "{url}");
        }
        assert!(!fault("https://user:hunter22@example.com").unwrap().contains("hunter22"));
    }
}
