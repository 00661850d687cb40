//! Tests of hiding and sealing secret values, in every encoding and across every split.

use proptest::prelude::*;

use super::*;

#[test]
fn a_secret_is_never_printed() {
    let store = SecretStore::new().with("TOKEN", "hunter22");
    assert!(!format!("{store:?}").contains("hunter22"));
    assert_eq!(store.redact("git said: hunter22 is wrong"), "git said: [secret] is wrong");
    assert_eq!(store.get("TOKEN").unwrap().expose(), "hunter22");
    let nested = store.with("A", "hunter22-and-more");
    assert_eq!(nested.redact("hunter22-and-more"), "[secret]");
}

#[test]
fn two_stores_become_one_that_hides_the_values_of_both() {
    let one = SecretStore::new().with("TOKEN", "hunter22").with("A", "only-here").with("B", "same-one");
    let other = SecretStore::new().with("TOKEN", "swordfish").with("B", "same-one").with("SHORT", "abc");
    let both = one.merged(&other);
    assert_eq!(both.get("TOKEN").unwrap().expose(), "swordfish");
    assert_eq!(both.get("A").unwrap().expose(), "only-here");
    let text = "hunter22 swordfish only-here same-one abc";
    assert_eq!(both.redact(text), "[secret] [secret] [secret] [secret] abc");
    assert_eq!(both.merged(&SecretStore::new()).redact(text), both.redact(text));
    assert_eq!(SecretStore::new().merged(&both).redact(text), both.redact(text));
}

#[test]
fn a_missing_secret_is_named() {
    let error = SecretStore::new().get("TOKEN").unwrap_err();
    assert_eq!(error.code(), "secret_not_found");
    assert!(error.to_string().contains("TOKEN"));
}

#[test]
fn a_secret_is_shown_by_name() {
    let store = SecretStore::new().with("TOKEN", "hunter22-a").with("REGION", "eu-central-1");
    let mask = store.mask().unwrap();
    assert_eq!(mask.hide("hunter22-a eu-central-1"), "[secret] [secret]");
    let shown = store.shown("REGION");
    assert_eq!(shown.mask().unwrap().hide("hunter22-a eu-central-1"), "[secret] eu-central-1");
    assert_eq!(shown.redact("hunter22-a eu-central-1"), "[secret] [secret]");
    // A shown value is not hidden, but a saved run can still refer to it.
    let only = SecretStore::new().with("REGION", "eu-central-1").shown("REGION");
    assert_eq!(only.mask().unwrap().hide("eu-central-1"), "eu-central-1");
    assert!(only.mask().unwrap().seal("eu-central-1", "m").is_some());
    assert!(SecretStore::new().with("PIN", "1234").mask().is_none());
}

#[test]
fn names_of_short_values_are_reported() {
    let store = SecretStore::new().with("PIN", "1234567").with("TOKEN", "12345678").with("LINES", "ab\ncd\nefgh\n");
    assert_eq!(store.too_short().collect::<Vec<_>>(), ["PIN"]);
}

#[test]
fn every_encoding_and_every_line_is_hidden() {
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\nAgEAAoIBAQC7VJTUt9Us8cKj\nab==\n-----END KEY-----\n";
    let store = SecretStore::new().with("A", "p/ä s\"w+rd~(1)").with("KEY", key);
    let mask = store.mask().unwrap();
    for (printed, shown) in [
        ("A=p/ä s\"w+rd~(1)\n", "A=[secret]\n"),
        (r#"{"a":"p/ä s\"w+rd~(1)"}"#, r#"{"a":"[secret]"}"#),
        (r#"{"a":"p/\u00e4 s\"w+rd~(1)"}"#, r#"{"a":"[secret]"}"#),
        ("?a=p%2F%C3%A4%20s%22w%2Brd~%281%29&b", "?a=[secret]&b"),
        ("a=p%2F%C3%A4+s%22w%2Brd%7E%281%29", "a=[secret]"),
        ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\r\n", "[secret]\r\n"),
        ("-----BEGIN KEY-----\r\nab==", "-----BEGIN KEY-----\r\nab=="),
        (key, "[secret]\n"),
        (r"AgEAAoIBAQC7VJTUt9Us8cKj\nab==", r"[secret]\nab=="),
    ] {
        assert_eq!(mask.hide(printed), shown);
    }
    let base64 = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    for before in ["", "u:", "user:"] {
        let printed = format!("Authorization: Basic {}", base64(&format!("{before}p/ä s\"w+rd~(1)")));
        let shown = mask.hide(&printed);
        let left = shown.len() - "Authorization: Basic [secret]".len();
        assert!(shown.contains("[secret]") && left <= before.len() * 4 / 3 + 5, "{shown}");
    }
    // As `base64` prints it, in lines.
    let wrapped: String =
        base64(key).as_bytes().chunks(76).map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect();
    let shown = mask.hide(&wrapped);
    assert!(shown.matches("[secret]").count() == wrapped.lines().count() && shown.len() < 40, "{shown}");
}

#[test]
fn secrets_that_overlap_are_hidden_together() {
    let mask = SecretStore::new().with("A", "abcdefgh").with("B", "efghijkl").with("C", "cdefghij").mask().unwrap();
    assert_eq!(mask.hide("-abcdefghijkl-"), "-[secret]-");
    assert_eq!(mask.hide("-abcdefghefghijkl-"), "-[secret]-");
    assert_eq!(mask.hide("-abcdefgh abcdefg-"), "-[secret] abcdefg-");
}

#[test]
fn a_long_value_is_hidden_whole_and_holds_back_little() {
    let value: String = (0..3000).map(|number| format!("{number:x}-")).collect();
    let mask = SecretStore::new().with("A", value.clone()).mask().unwrap();
    assert_eq!(mask.hide(&format!("<{value}>")), "<[secret]>");
    let mut stream = mask.stream();
    let mut shown = Vec::new();
    for piece in value.as_bytes().chunks(7) {
        shown.extend(stream.push(piece));
        assert!(stream.held() < 3 * 2048);
    }
    shown.extend(stream.finish());
    assert_eq!(shown, b"[secret]");
}

#[test]
fn a_reference_is_filled_with_the_current_value_of_the_secret() {
    let first = SecretStore::new().with("A b]", "p\"ssw/rd-1").with("KEY", "line-one-1\nline-two-2").shown("KEY");
    let mask = first.mask().unwrap();
    let text = r#"{"cmd":"curl -u p\"ssw/rd-1 x?p%22ssw%2Frd-1 p\"ssw/rd-1 line-two-2"}"#;
    let (sealed, names) = mask.seal(text, "m4rk").unwrap();
    assert!(!sealed.contains("ssw") && !sealed.contains("line-two"), "{sealed}");
    assert!(sealed.contains("[secret m4rk A%20b%5D 0 json]"), "{sealed}");
    assert!(serde_json::from_str::<serde_json::Value>(&sealed).is_ok(), "{sealed}");
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["A b]", "KEY"]);
    assert_eq!(mask.fill(&sealed, "m4rk").unwrap().as_deref(), Some(text));
    // A reference with another mark belongs to another text, or is forged.
    assert_eq!(mask.fill(&sealed, "m5rk"), Ok(None));
    assert_eq!(mask.seal("nothing here", "m4rk"), None);

    let rotated = SecretStore::new().with("A b]", "new+v\"lue").with("KEY", "line-one-1\nline-new-2").mask().unwrap();
    let filled = rotated.fill(&sealed, "m4rk").unwrap().unwrap();
    assert_eq!(filled, r#"{"cmd":"curl -u new+v\"lue x?new%2Bv%22lue new+v\"lue line-new-2"}"#);
    let fewer = SecretStore::new().with("A b]", "new+v\"lue").mask().unwrap();
    assert_eq!(fewer.fill(&sealed, "m4rk").unwrap_err(), "KEY");
    let shorter = SecretStore::new().with("A b]", "new+v\"lue").with("KEY", "only-one-line").mask().unwrap();
    assert_eq!(shorter.fill(&sealed, "m4rk").unwrap_err(), "KEY");
    assert!(mask.fill("[secret m4rk KEY 0", "m4rk").is_err());
}

/// Similar values: the end of one is the beginning of another.
fn any_store() -> impl Strategy<Value = SecretStore> {
    let value = proptest::collection::vec(prop_oneof!["[ab]{1,5}", Just("é".to_owned()), Just("\n".to_owned())], 2..7);
    proptest::collection::vec(value, 1..4).prop_map(|values| {
        let values = values.into_iter().enumerate();
        values.fold(SecretStore::new(), |store, (at, value)| {
            store.with(format!("S{at}"), format!("{}abab", value.concat()))
        })
    })
}

fn any_text(store: &SecretStore) -> impl Strategy<Value = String> + use<> {
    let values: Vec<String> = store.values().map(str::to_owned).collect();
    let whole = proptest::sample::select(values.clone());
    let cut = (proptest::sample::select(values), 0..12_usize).prop_map(|(value, at)| value.chars().skip(at).collect());
    let start = whole.clone().prop_map(|value| value.chars().take(7).collect::<String>());
    proptest::collection::vec(prop_oneof![whole, cut, start, "[abé \n]{0,6}"], 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_hides_the_same_wherever_it_is_cut(
        (store, text) in any_store().prop_flat_map(|store| { let text = any_text(&store); (Just(store), text) })
    ) {
        let Some(mask) = store.mask() else { return Ok(()) };
        let whole = mask.hide(&text).into_owned();
        for value in store.values().map(str::trim).filter(|value| value.len() >= 8) {
            prop_assert!(!whole.contains(value), "{whole:?} shows {value:?}");
        }
        let bytes = text.as_bytes();
        let streamed = |pieces: &[&[u8]]| {
            let mut stream = mask.stream();
            let mut shown: Vec<u8> = pieces.iter().flat_map(|piece| stream.push(piece)).collect();
            shown.extend(stream.finish());
            shown
        };
        for first in 0..=bytes.len() {
            prop_assert_eq!(&streamed(&[&bytes[..first], &bytes[first..]]), whole.as_bytes());
            for second in (first..=bytes.len()).step_by(3) {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                prop_assert_eq!(&streamed(&pieces), whole.as_bytes());
            }
        }
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&streamed(&bytewise), whole.as_bytes());
    }

    #[test]
    fn a_sealed_text_is_restored(
        (store, text) in any_store().prop_flat_map(|store| { let text = any_text(&store); (Just(store), text) })
    ) {
        let Some(mask) = store.mask() else { return Ok(()) };
        if let Some((sealed, _)) = mask.seal(&text, "0123") {
            prop_assert_eq!(mask.fill(&sealed, "0123"), Ok(Some(text)));
        }
    }
}
