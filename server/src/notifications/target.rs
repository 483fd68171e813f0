//! Targets of notifications, as jobs.yaml names them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use protocol::Timestamp;
use reqwest::Url;
use sha2::{Digest, Sha256};

use super::mail::Recipient;
use super::occasion::{Occasion, Occasions};
use super::target_key::{TargetKey, TargetKind};
use crate::store::{NotificationId, NotificationRow, NotificationState, NotifyRule};

/// A key by which messages to a webhook are signed.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

impl SigningSecret {
    /// Reads a secret in the form of Standard Webhooks: `whsec_` and 24 to 64 bytes as Base64.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let key = BASE64.decode(text.strip_prefix("whsec_")?.as_bytes()).ok()?;
        (24..=64).contains(&key.len()).then_some(Self(key))
    }

    /// The key itself.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

/// The form of messages to a chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatFormat {
    /// That of Slack, which Mattermost takes as well.
    #[default]
    Slack,
    /// That of Discord's own webhooks.
    Discord,
}

/// The place that messages go to. URLs often hold a secret, so they are never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A program that takes JSON.
    Webhook {
        /// The URL that messages are posted to.
        url: Url,
        /// The secrets by which messages are signed: several while one is replaced.
        secrets: Vec<SigningSecret>,
    },
    /// An incoming webhook of Slack, or of a service that takes messages like it.
    Slack {
        /// The URL that messages are posted to.
        url: Url,
        /// The form of the messages.
        format: ChatFormat,
    },
    /// A mailbox.
    Email(Recipient),
}

/// One entry of `notify`, or one recipient of an entry with `email`.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The place that its messages go to.
    pub endpoint: Endpoint,
    /// The occasions of which it is told.
    pub on: Occasions,
    /// The shortest time between two messages about one occasion.
    pub period: Duration,
    /// How many of the last lines of the output its messages about failures have; none if absent, because output may hold anything.
    pub output_lines: Option<u32>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("kind", &self.kind())
            .field("host", &self.host())
            .finish_non_exhaustive()
    }
}

impl Target {
    /// The row of a message that tries the target, which the store does not get.
    pub(super) fn test_row(&self, definition: &str, now: Timestamp) -> NotificationRow {
        NotificationRow {
            id: NotificationId(0),
            message: String::new(),
            definition: definition.into(),
            target: self.key(),
            kind: self.kind(),
            host: self.host(),
            occasion: self.on.iter().next().unwrap_or(Occasion::Failed),
            count: 1,
            first_at: now,
            last_at: now,
            job: None,
            batch: None,
            state: NotificationState::Waiting,
            opens_at: now,
            due_at: now,
            tries: 0,
            tried_at: None,
            give_up_at: None,
            error: None,
        }
    }

    /// The format of its messages.
    #[must_use]
    pub const fn kind(&self) -> TargetKind {
        match self.endpoint {
            Endpoint::Webhook { .. } => TargetKind::Webhook,
            Endpoint::Slack { .. } => TargetKind::Slack,
            Endpoint::Email(_) => TargetKind::Email,
        }
    }

    /// The host and port of its URL, or the address of its mailbox.
    #[must_use]
    pub fn host(&self) -> String {
        match &self.endpoint {
            Endpoint::Webhook { url, .. } | Endpoint::Slack { url, .. } => {
                let host = url.host_str().unwrap_or_default();
                url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
            }
            Endpoint::Email(recipient) => recipient.normal_form(),
        }
    }

    /// True if its messages are signed.
    #[must_use]
    pub const fn is_signed(&self) -> bool {
        matches!(&self.endpoint, Endpoint::Webhook { secrets, .. } if !secrets.is_empty())
    }

    /// Its key in the store.
    #[must_use]
    pub fn key(&self) -> TargetKey {
        let place = match &self.endpoint {
            Endpoint::Webhook { url, .. } | Endpoint::Slack { url, .. } => url.as_str().to_owned(),
            Endpoint::Email(recipient) => recipient.normal_form(),
        };
        let hash = Sha256::digest(format!("{}\0{place}", self.kind().name()));
        TargetKey(HEXLOWER.encode(&hash[..KEY_BYTES]))
    }

    /// All that it is, apart from URLs, addresses and secrets, which are hashed or left out.
    #[must_use]
    pub fn shown_keys(&self) -> impl fmt::Debug + use<> {
        let (format, is_signed) = match &self.endpoint {
            Endpoint::Webhook { secrets, .. } => (None, !secrets.is_empty()),
            Endpoint::Slack { format, .. } => (Some(*format), false),
            Endpoint::Email(_) => (None, false),
        };
        (self.rule(), self.output_lines, format, is_signed)
    }

    /// The rule of the store for it.
    #[must_use]
    pub fn rule(&self) -> NotifyRule {
        NotifyRule {
            target: self.key(),
            kind: self.kind(),
            host: self.host(),
            on: self.on,
            period_ms: i64::try_from(self.period.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// The targets of one definition.
pub type Targets = Arc<[Target]>;

/// Too few to try URLs against, and enough to tell the targets of a file apart.
const KEY_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        let endpoint = Endpoint::Slack { url: url.parse().unwrap(), format: ChatFormat::Slack };
        Target { endpoint, on: Occasions::standard(), period: Duration::from_secs(300), output_lines: None }
    }

    #[test]
    fn a_target_shows_its_host_and_not_its_path() {
        let target = target("https://hooks.example:8443/services/T0/B0/planted");
        assert_eq!(target.host(), "hooks.example:8443");
        assert!(!format!("{target:?} {:?}", target.rule()).contains("planted"));
    }

    #[test]
    fn a_secret_has_the_form_of_standard_webhooks() {
        let text = format!("whsec_{}", BASE64.encode(&[7; 24]));
        let secret = SigningSecret::parse(&text).unwrap();
        assert_eq!((secret.reveal().len(), format!("{secret:?}").as_str()), (24, "SigningSecret(…)"));
        for wrong in ["", "whsec_", "whsec_AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "whsec_%%%"] {
            assert!(SigningSecret::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn targets_with_another_url_or_kind_have_another_key() {
        let (one, other) = (target("https://a.example/1"), target("https://a.example/2"));
        assert_ne!(one.key(), other.key());
        let url = "https://a.example/1".parse().unwrap();
        let endpoint = Endpoint::Webhook { url, secrets: Vec::new() };
        assert_ne!(one.key(), Target { endpoint, ..one.clone() }.key());
        assert_eq!(one.key(), Target { period: Duration::ZERO, ..one.clone() }.key());
        let url = "https://a.example/1".parse().unwrap();
        let endpoint = Endpoint::Slack { url, format: ChatFormat::Discord };
        assert_eq!(one.key(), Target { endpoint, ..one.clone() }.key(), "what waits takes the new form");
    }

    #[test]
    fn a_mailbox_is_the_same_target_in_each_spelling_of_its_domain() {
        let mailbox = |address| {
            let endpoint = Endpoint::Email(Recipient::parse(address).unwrap());
            Target { endpoint, on: Occasions::standard(), period: Duration::ZERO, output_lines: None }
        };
        let target = mailbox("ops@Example.org");
        assert_eq!((target.host(), target.is_signed()), ("ops@example.org".to_owned(), false));
        assert_eq!(target.key(), mailbox("ops@example.org").key());
        assert_ne!(target.key(), mailbox("dev@example.org").key());
    }
}
