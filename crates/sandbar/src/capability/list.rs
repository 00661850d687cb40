//! The list of the capabilities of an agent, and the check that they are compatible.

use std::{fmt, slice, sync::Arc};

use sandbar_sandbox::SandboxError;

use super::{Capability, Compaction, Filesystem, Shell};

/// The capabilities of an agent, in order. The default is [`Filesystem`], [`Shell`] and [`Compaction`].
///
/// ```
/// use sandbar::{Capabilities, Compaction, Shell};
///
/// assert_eq!(format!("{:?}", Capabilities::default()), r#"["filesystem", "shell", "compaction"]"#);
/// let only = Capabilities::none().with(Shell::new()).with(Compaction::new());
/// assert_eq!(format!("{only:?}"), r#"["shell", "compaction"]"#);
/// ```
#[derive(Clone)]
pub struct Capabilities(Vec<Arc<dyn Capability>>);

impl Default for Capabilities {
    fn default() -> Self {
        Self::none().with(Filesystem::new()).with(Shell::new()).with(Compaction::new())
    }
}

impl Capabilities {
    /// An empty list.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Adds a capability at the end.
    #[must_use]
    pub fn with(self, capability: impl Capability + 'static) -> Self {
        self.with_shared(Arc::new(capability))
    }

    /// Adds a capability that is shared with other code at the end.
    #[must_use]
    pub fn with_shared(mut self, capability: Arc<dyn Capability>) -> Self {
        self.0.push(capability);
        self
    }

    /// Removes the capability of this kind, if the list contains one.
    ///
    /// ```
    /// # use sandbar::Capabilities;
    /// let list = Capabilities::default().without("compaction");
    /// assert_eq!(format!("{list:?}"), r#"["filesystem", "shell"]"#);
    /// ```
    #[must_use]
    pub fn without(mut self, kind: &str) -> Self {
        self.0.retain(|capability| capability.kind() != kind);
        self
    }

    /// The capabilities, in order.
    pub fn iter(&self) -> slice::Iter<'_, Arc<dyn Capability>> {
        self.0.iter()
    }

    /// Checks that no kind occurs twice, and that the list contains every kind that a capability requires.
    ///
    /// # Errors
    /// `sandbox_config_invalid` names the kind, and the missing kinds in alphabetical order.
    pub fn check(&self) -> Result<(), SandboxError> {
        let refuse = |kind: &str, why: String| {
            Err(SandboxError::sandbox_config_invalid(format!("the capability {kind:?}"), why))
        };
        for (index, capability) in self.0.iter().enumerate() {
            let kind = capability.kind();
            if self.0[..index].iter().any(|earlier| earlier.kind() == kind) {
                return refuse(kind, "is given twice".to_owned());
            }
            let is_present = |wanted: &&str| self.0.iter().any(|other| other.kind() == *wanted);
            let mut missing: Vec<&str> = capability.requires().into_iter().filter(|kind| !is_present(kind)).collect();
            missing.sort_unstable();
            missing.dedup();
            if !missing.is_empty() {
                return refuse(kind, format!("requires capabilities that are not there: {}", missing.join(", ")));
            }
        }
        Ok(())
    }
}

impl<C: Capability + 'static, const N: usize> From<[C; N]> for Capabilities {
    fn from(capabilities: [C; N]) -> Self {
        capabilities.into_iter().fold(Self::none(), Self::with)
    }
}

impl From<Vec<Arc<dyn Capability>>> for Capabilities {
    fn from(capabilities: Vec<Arc<dyn Capability>>) -> Self {
        Self(capabilities)
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|capability| capability.kind())).finish()
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::{AgentSession, CapabilityKit};

    #[derive(Debug)]
    struct Other(&'static str, &'static [&'static str]);

    #[async_trait]
    impl Capability for Other {
        fn kind(&self) -> &str {
            self.0
        }

        fn requires(&self) -> Vec<&str> {
            self.1.to_vec()
        }

        async fn equip(&self, _agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
            Ok(CapabilityKit::new())
        }
    }

    #[test]
    fn incompatible_capabilities_are_named() {
        let memory = Other("memory", &["shell", "filesystem"]);
        let table = [
            (Capabilities::default(), None),
            (Capabilities::none(), None),
            (Capabilities::default().with(Shell::new()), Some("\"shell\": is given twice")),
            (
                Capabilities::none().with(memory),
                Some("\"memory\": requires capabilities that are not there: filesystem, shell"),
            ),
            (
                Capabilities::none()
                    .with(Other("memory", &["shell", "filesystem"]))
                    .with(Shell::new())
                    .with(Filesystem::new()),
                None,
            ),
        ];
        for (list, expected) in table {
            let message = list.check().err().map(|error| error.to_string()).unwrap_or_default();
            match expected {
                None => assert_eq!(message, "", "{list:?}"),
                Some(expected) => assert!(message.contains(expected), "{message}"),
            }
        }
    }
}
