//! A manifest as text in each of its formats: what is read is sound, and is written and read again as the same.

use sandbar_sandbox::{Format, Manifest};

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let mut sound = false;
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
        sound = true;
    }
    sound
}
