//! The JSON of notifications and their targets.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Text, Time};
use crate::http::present::span;

/// A message to one target about one definition and occasion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Notification {
    /// Its number.
    pub id: u64,
    /// The definition that it is about.
    pub definition: String,
    /// The kind of its target: `webhook`, `slack` or `email`.
    #[schema(value_type = String)]
    pub kind: Text,
    /// The host of its target; of e-mail the address of the recipient.
    pub host: String,
    /// The occasion: `failed`, `succeeded`, `recovered`, `lost`, `quarantined`, `late`, `stale`, `batch_failed`, `batch_succeeded` or `batch_cancelled`.
    #[schema(value_type = String)]
    pub occasion: Text,
    /// How often that happened.
    pub count: u64,
    /// When it happened first.
    pub first_at: Time,
    /// When it happened last.
    pub last_at: Time,
    /// The job of the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// The batch that has ended, for an occasion of batches; the last one if `count` is above 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// `waiting`, `delivered` or `failed`.
    #[schema(value_type = String)]
    pub state: Text,
    /// How often it was sent.
    pub tries: u32,
    /// When it was sent last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried_at: Option<Time>,
    /// When it is sent next, while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Time>,
    /// The error of the last try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The messages that are sent now because of a request, counted. Those to one target go one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SentNotifications {
    /// Those that waited.
    pub waiting: u64,
    /// Those that were given up.
    pub failed: u64,
    /// Those whose target jobs.yaml has no more. They are not sent.
    pub without_target: u64,
    /// Those about definitions that the token is not for. They are not sent.
    pub out_of_scope: u64,
}

/// A target of a definition. Its URL is not shown, because it often holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotifyTarget {
    /// Its kind: `webhook`, `slack` or `email`.
    #[schema(value_type = String)]
    pub kind: Text,
    /// Its host; of e-mail the address of the recipient.
    pub host: String,
    /// The occasions of which it is told.
    #[schema(value_type = Vec<String>)]
    pub on: Vec<Text>,
    /// The shortest time between two messages about one occasion.
    pub period_ms: u64,
    /// True if messages are signed.
    pub signed: bool,
    /// How many of the last lines of the output its messages about failures have; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_lines: Option<u32>,
}

impl NotifyTarget {
    /// In words: `webhook hooks.example on failed, lost, at most every 15m, signed`.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { kind, host, on, period_ms, signed, output_lines } = self;
        let signed = if *signed { ", signed" } else { "" };
        let lines = output_lines.map(|lines| format!(", with {lines} lines of output")).unwrap_or_default();
        let every = span::round(Duration::from_millis(*period_ms));
        format!("{kind} {host} on {}, at most every {every}{signed}{lines}", on.join(", "))
    }
}

/// The result of a message that was sent to try a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetTest {
    /// The target.
    #[serde(flatten)]
    pub target: NotifyTarget,
    /// The reason for which it did not take the message; absent if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
