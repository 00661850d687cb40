//! The rule about proxies, as tables.

use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).expect("an address")
}

fn read(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
    Proxies::from_variables(&|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    })
}

fn way(variables: &[(&str, &str)], target: &str, key: Key) -> String {
    let proxies = read(variables).expect("usable variables");
    match proxies.route(&url(target), key) {
        Route::Direct => "direct".to_owned(),
        Route::Through(proxy) => proxy.to_string(),
    }
}

#[test]
fn the_variables_say_which_targets_go_through_which_proxy() {
    const P: &str = "http://p:1";
    let cgi = ("REQUEST_METHOD", "GET");
    for (variables, http, https) in [
        (&[][..], "direct", "direct"),
        (&[("HTTPS_PROXY", P)], "direct", P),
        (&[("https_proxy", P)], "direct", P),
        (&[("HTTP_PROXY", P)], P, "direct"),
        (&[("http_proxy", P)], P, "direct"),
        (&[("ALL_PROXY", P)], P, P),
        (&[("all_proxy", P)], P, P),
        (&[("HTTPS_PROXY", "http://upper:1"), ("https_proxy", P)], "direct", P),
        (&[("HTTP_PROXY", "http://upper:1"), ("http_proxy", P)], P, "direct"),
        (&[("ALL_PROXY", "http://upper:1"), ("all_proxy", P)], P, P),
        (&[("HTTPS_PROXY", P), ("ALL_PROXY", "http://all:1")], "http://all:1", P),
        (&[("HTTPS_PROXY", ""), ("ALL_PROXY", " ")], "direct", "direct"),
        (&[("https_proxy", ""), ("HTTPS_PROXY", P)], "direct", P),
        (&[("HTTP_PROXY", P), cgi], "direct", "direct"),
        (&[("http_proxy", P), cgi], P, "direct"),
        (&[("HTTPS_PROXY", P), cgi], "direct", P),
        (&[("ALL_PROXY", " p:1 ")], P, P),
        (&[("ALL_PROXY", "https://user:hunter2@p:1/ignored")], "https://p:1", "https://p:1"),
        (&[("ALL_PROXY", "http://[fd00::1]:3128")], "http://[fd00::1]:3128", "http://[fd00::1]:3128"),
        (&[("ALL_PROXY", "socks5h://p")], "socks5h://p", "socks5h://p"),
        (&[("ALL_PROXY", P), ("NO_PROXY", "*")], "direct", "direct"),
        (&[("ALL_PROXY", P), ("no_proxy", "a.example"), ("NO_PROXY", "*")], P, P),
    ] {
        let found = ["http://x.example/", "https://x.example/"].map(|target| way(variables, target, Key::Absent));
        assert_eq!(found, [http, https], "{variables:?}");
    }
}

#[test]
fn this_host_is_reached_directly_and_so_is_a_plain_target_that_gets_a_key() {
    let proxied = [("ALL_PROXY", "http://p:1")];
    for (target, with_key, without) in [
        ("https://x.example/", "http://p:1", "http://p:1"),
        ("http://x.example/", "direct", "http://p:1"),
        ("http://10.0.0.1:8000/v1", "direct", "http://p:1"),
        ("https://localhost:1/", "direct", "direct"),
        ("https://a.localhost/", "direct", "direct"),
        ("http://127.0.0.1/", "direct", "direct"),
        ("http://127.255.0.9/", "direct", "direct"),
        ("https://[::1]/", "direct", "direct"),
        ("https://[::ffff:127.0.0.1]/", "direct", "direct"),
        ("ftp://x.example/", "direct", "direct"),
    ] {
        assert_eq!(way(&proxied, target, Key::Carried), with_key, "{target}");
        assert_eq!(way(&proxied, target, Key::Absent), without, "{target}");
    }
}

#[test]
fn a_list_of_exceptions_holds_hosts_domains_addresses_networks_and_ports() {
    for (list, target, direct) in [
        ("x.example", "https://x.example/", true),
        ("X.Example", "https://x.EXAMPLE./", true),
        ("x.example", "https://a.b.x.example/", true),
        ("x.example", "https://ax.example/", false),
        ("x.example", "https://x.example.org/", false),
        (".x.example", "https://a.x.example/", true),
        (".x.example", "https://x.example/", true),
        ("*.x.example", "https://a.x.example/", true),
        ("*.x.example", "https://other.example/", false),
        ("a.example, x.example", "https://x.example/", true),
        ("a.example x.example", "https://x.example/", true),
        (" , ,x.example,", "https://x.example/", true),
        ("", "https://x.example/", false),
        ("*", "https://x.example/", true),
        ("*:443", "https://x.example/", true),
        ("*:443", "https://x.example:8443/", false),
        ("x.example:443", "https://x.example/", true),
        ("x.example:8443", "https://x.example/", false),
        ("x.example:8443", "https://x.example:8443/", true),
        ("x.example:port", "https://x.example/", false),
        ("10.0.0.1", "http://10.0.0.1/", true),
        ("10.0.0.1", "http://10.0.0.10/", false),
        ("10.0.0.1:81", "http://10.0.0.1/", false),
        ("10.0.0.1:81", "http://10.0.0.1:81/", true),
        ("10.0.0.0/8", "http://10.200.3.4:99/", true),
        ("10.0.0.0/8", "http://11.0.0.1/", false),
        ("10.0.0.0/8", "http://10.example/", false),
        ("10.0.0.0/33", "http://10.0.0.1/", false),
        ("10.0.0.0/8:81", "http://10.0.0.1:81/", true),
        ("fd00::1", "http://[fd00::1]/", true),
        ("[fd00::1]", "http://[fd00::1]/", true),
        ("[fd00::1]:81", "http://[fd00::1]:81/", true),
        ("[fd00::1]:81", "http://[fd00::1]/", false),
        ("fd00::/8", "http://[fd12::1]/", true),
        ("fd00::/8", "http://[fe80::1]/", false),
        ("10.0.0.1", "http://[::ffff:10.0.0.1]/", true),
        ("0.1", "http://10.0.0.1/", false),
    ] {
        let found = way(&[("ALL_PROXY", "http://p:1"), ("NO_PROXY", list)], target, Key::Absent);
        assert_eq!(found == "direct", direct, "{list:?} {target}: {found}");
    }
}

#[test]
fn a_malformed_variable_is_named_and_its_value_is_not() {
    for (value, expected) in [
        ("http://", "malformed"),
        ("://hunter2@", "malformed"),
        ("http://me:hunter2@", "malformed"),
        ("http://me:hunter2@h:port", "malformed"),
        ("http://me:hunter2@h:99999", "malformed"),
        ("hunter2 hunter2", "malformed"),
        ("ftp://me:hunter2@h", "unsupported"),
        ("socks4://me:hunter2@h", "unsupported"),
        ("hunter2://h", "unsupported"),
    ] {
        for name in ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"] {
            let error = read(&[(name, value)]).expect_err(value);
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(name) && shown.contains(expected), "{shown}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
    let error = read(&[("HTTPS_PROXY", "http://fine:1"), ("ALL_PROXY", "bad bad")]).expect_err("one is enough");
    assert_eq!(error, ProxyError::Malformed { setting: "ALL_PROXY".to_owned() });
}

#[test]
fn a_password_of_a_proxy_is_kept_and_printed_nowhere() {
    let proxies = read(&[("ALL_PROXY", "http://me:hunter%402@p:1")]).expect("proxies");
    let target = url("https://x.example/");
    let Route::Through(proxy) = proxies.route(&target, Key::Carried) else { panic!("not proxied") };
    assert_eq!(proxy.secrets(), ["bWU6aHVudGVyQDI=", "hunter@2"]);
    assert!(!format!("{proxies:?} {proxy} {proxy:?}").contains("hunter"));
}

#[test]
fn proxies_can_be_set_by_code() {
    let proxy = |text: &str| text.parse::<Proxy>().expect("a proxy");
    let proxies = Proxies::new().all(proxy("http://a:1")).https(proxy("b:2")).except("x.example");
    let route = |target: &str| proxies.route(&url(target), Key::Absent).to_string();
    assert_eq!(route("http://y.example/"), "through the proxy http://a:1");
    assert_eq!(route("https://y.example/"), "through the proxy http://b:2");
    assert_eq!(route("https://x.example/"), "directly");
    assert_eq!(Proxies::none().route(&url("https://y.example/"), Key::Absent), Route::Direct);
    assert!("no proxy".parse::<Proxy>().expect_err("none").to_string().starts_with("the address of the proxy"));
}
