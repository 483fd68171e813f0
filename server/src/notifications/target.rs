//! Targets of notifications, as jobs.yaml names them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use reqwest::Url;
use sha2::{Digest, Sha256};

use super::occasion::Occasions;
use crate::store::NotifyRule;

/// The format of messages to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetKind {
    /// JSON with the facts, signed as Standard Webhooks.
    Webhook,
    /// A text in the format of Slack's incoming webhooks.
    Slack,
}

impl TargetKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Webhook, Self::Slack];

    /// The name in jobs.yaml, the store and the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
        }
    }

    /// Finds a kind by its name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Tells targets apart in the store without their URL: a part of the SHA-256 of kind and URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey(pub String);

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

/// One entry of `notify`.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The format of its messages.
    pub kind: TargetKind,
    /// The URL that messages are posted to. It often holds a secret, so it is never shown.
    pub url: Url,
    /// The secrets by which messages are signed: several while one is replaced.
    pub secrets: Vec<SigningSecret>,
    /// The occasions of which it is told.
    pub on: Occasions,
    /// The shortest time between two messages about one occasion.
    pub period: Duration,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("kind", &self.kind).field("host", &self.host()).finish_non_exhaustive()
    }
}

impl Target {
    /// The host and port of its URL.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Its key in the store.
    #[must_use]
    pub fn key(&self) -> TargetKey {
        let hash = Sha256::digest(format!("{}\0{}", self.kind.name(), self.url));
        TargetKey(HEXLOWER.encode(&hash[..KEY_BYTES]))
    }

    /// The rule of the store for it.
    #[must_use]
    pub fn rule(&self) -> NotifyRule {
        NotifyRule {
            target: self.key(),
            kind: self.kind,
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
        let kind = TargetKind::Slack;
        let period = Duration::from_secs(300);
        Target { kind, url: url.parse().unwrap(), secrets: Vec::new(), on: Occasions::standard(), period }
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
        assert_ne!(one.key(), Target { kind: TargetKind::Webhook, ..one.clone() }.key());
        assert_eq!(one.key(), Target { period: Duration::ZERO, ..one.clone() }.key());
    }
}
