//! The rules for addresses in a manifest: http or https, a host, and no password in plain sight.

/// Why an address cannot be used, if it cannot. The address itself is not repeated: it may hold a password.
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

/// Takes out what may open what is at an address: a user, a password, a query. Whether there was any. The fragment goes
/// too, and is not missed: it is never sent.
pub(super) fn forget(url: &mut String) -> bool {
    let mut gone = false;
    if let Some(end) = url.find(['?', '#']) {
        gone = url.as_bytes().get(end) == Some(&b'?');
        url.truncate(end);
    }
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    if let Some(at) = url[start..end].rfind('@') {
        url.replace_range(start..=start + at, "");
        gone = true;
    }
    gone
}

/// A name or an address, and maybe a port.
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
    fn what_opens_an_address_is_forgotten() {
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
        for (given, left, gone) in table {
            let mut url = given.to_owned();
            assert_eq!((forget(&mut url), url.as_str()), (gone, left), "{given}");
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
