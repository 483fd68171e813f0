//! The kinds of targets, and their keys in the store.

/// The format of messages to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetKind {
    /// JSON with the facts, signed as Standard Webhooks.
    Webhook,
    /// A text in the format of Slack's incoming webhooks.
    Slack,
    /// An e-mail to one recipient.
    Email,
}

impl TargetKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Webhook, Self::Slack, Self::Email];

    /// The name in jobs.yaml, the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
            Self::Email => "email",
        }
    }

    /// Finds a kind by its name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Tells targets apart in the store without their URL: a part of the SHA-256 of kind and URL or address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey(pub String);
