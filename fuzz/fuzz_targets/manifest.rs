//! A manifest as text in each of its formats: what is read is sound, and is written and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbar_sandbox::{Format, Manifest};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for format in [Format::Json, Format::Yaml, Format::Toml] {
        let Ok(manifest) = format.manifest_unchecked(text) else { continue };
        if manifest.check().is_err() {
            assert!(!manifest.faults().is_empty());
            continue;
        }
        assert!(manifest.is_read());
        let again = Manifest::from_json(&manifest.to_json().expect("text")).expect("our own text");
        assert_eq!(again, manifest);
        let saved = manifest.for_saving();
        let restored = saved.clone().restore(None);
        restored.check().expect("what is saved is sound");
        assert_eq!(restored.for_saving(), saved);
    }
});
