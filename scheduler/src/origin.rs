//! The origin of an operator's command that lasts: a cordon, a drain, a pause. People read it; no decision depends on it.

use alloc::sync::Arc;

use protocol::{Now, Timestamp};

/// The requester of a command, and the reason that was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Name of the token or user; empty if it is not known.
    pub by: Arc<str>,
    /// The reason as it was given.
    pub reason: Option<Arc<str>>,
}

/// A cordon or a pause that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervention {
    /// Wall-clock time of the command.
    pub since: Timestamp,
    /// Wall-clock time at which it ends by itself; absent: an operator ends it.
    pub until: Option<Timestamp>,
    /// The requester and the reason.
    pub origin: Origin,
}

impl Intervention {
    /// An intervention that begins now.
    #[must_use]
    pub const fn at(now: Now, origin: Origin) -> Self {
        Self { since: now.utc, until: None, origin }
    }

    /// The same after a former one: without a reason it keeps that of the same requester, as a drain after a cordon. The reason of somebody else
    /// would stand beside the wrong name.
    #[must_use]
    pub fn after(mut self, former: Option<Self>) -> Self {
        let former = former.filter(|former| former.origin.by == self.origin.by);
        self.origin.reason = self.origin.reason.or_else(|| former?.origin.reason);
        self
    }
}

/// One that nobody is known to have made.
impl From<Timestamp> for Intervention {
    fn from(since: Timestamp) -> Self {
        Self { since, until: None, origin: Origin::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_stands_beside_the_name_of_its_giver_only() {
        let given_by = |by: &str, reason: Option<&str>| {
            Intervention::at(Now::default(), Origin { by: by.into(), reason: reason.map(Into::into) })
        };
        let first = Some(given_by("anna", Some("disk swap")));
        for (by, reason, kept) in [
            ("anna", None, Some("disk swap")),
            ("anna", Some("new rack"), Some("new rack")),
            ("bert", None, None),
            ("bert", Some("new rack"), Some("new rack")),
        ] {
            let next = given_by(by, reason).after(first.clone());
            assert_eq!((&*next.origin.by, next.origin.reason.as_deref()), (by, kept));
        }
    }
}
