//! The secrets of a run's sandboxes, in the form that the harness uses to hide them.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use sandbar_agent::environment::{HidingStream, KnownSecrets};
use sandbar_sandbox::{MaskStream, SecretMask};

use crate::SandboxRunConfig;

/// Secrets that the configuration gives to fresh sessions, and those of its live session; `None` if there are none.
pub(crate) fn of(config: &SandboxRunConfig) -> Option<Arc<dyn KnownSecrets>> {
    let secrets = &config.options.secrets;
    let mask = match (&config.session, secrets.mask()) {
        (Some(session), Some(_)) => secrets.merged(session.secrets()).mask(),
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

/// A mask over UTF-8 text. A secret value begins and ends at a character boundary, so the mask never splits a character.
struct TextStream(MaskStream);

impl HidingStream for TextStream {
    fn push(&mut self, chunk: &str) -> String {
        String::from_utf8_lossy(&self.0.push(chunk.as_bytes())).into_owned()
    }

    fn finish(&mut self) -> String {
        String::from_utf8_lossy(&self.0.finish()).into_owned()
    }
}
