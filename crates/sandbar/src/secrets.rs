//! The secrets of a run's sandboxes, as the harness knows them.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use sandbar_agent::environment::{HidingStream, KnownSecrets};
use sandbar_sandbox::{MaskStream, SecretMask};

use crate::SandboxRunConfig;

/// Those that fresh sessions are given, and those of a live one.
pub(crate) fn of(config: &SandboxRunConfig) -> Option<Arc<dyn KnownSecrets>> {
    let mask = match (&config.session, config.secrets.mask()) {
        (Some(session), Some(_)) => config.secrets.merged(session.secrets()).mask(),
        (Some(session), None) => session.secrets().mask(),
        (None, own) => own,
    };
    Some(Arc::new(SandboxSecrets(mask?)))
}

#[derive(Debug)]
struct SandboxSecrets(SecretMask);

impl KnownSecrets for SandboxSecrets {
    fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.0.hide(text)
    }

    fn stream(&self) -> Box<dyn HidingStream> {
        Box::new(TextStream(self.0.stream()))
    }

    fn seal(&self, text: &str, mark: &str) -> Option<(String, BTreeSet<String>)> {
        self.0.seal(text, mark)
    }

    fn fill(&self, text: &str, mark: &str) -> Result<Option<String>, String> {
        self.0.fill(text, mark)
    }
}

/// Values begin and end with whole characters, so what is held back never cuts one.
struct TextStream(MaskStream);

impl HidingStream for TextStream {
    fn push(&mut self, piece: &str) -> String {
        String::from_utf8_lossy(&self.0.push(piece.as_bytes())).into_owned()
    }

    fn finish(&mut self) -> String {
        String::from_utf8_lossy(&self.0.finish()).into_owned()
    }
}
