//! The policy of this worker, as far as a definition alone decides it.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use protocol::ContainerSpec;

/// Returns the rule that forbids a definition on this worker. It is asked once for each definition that arrives, so that forbidden
/// attempts are released before they take a place in the backlog. It must not depend on anything but the definition. Rules that depend
/// on the file system are checked by the runtime.
#[derive(Clone)]
pub struct Policy(Arc<Forbids>);

type Forbids = dyn Fn(&ContainerSpec) -> Option<String> + Send + Sync;

impl Policy {
    /// A policy that asks this function.
    pub fn new(forbids: impl Fn(&ContainerSpec) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(forbids))
    }

    /// Allows everything.
    #[must_use]
    pub fn allow_all() -> Self {
        Self::new(|_| None)
    }

    pub(crate) fn forbids(&self, spec: &ContainerSpec) -> Option<Arc<str>> {
        (self.0)(spec).map(Arc::from)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Policy")
    }
}
