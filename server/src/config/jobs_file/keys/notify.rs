//! The keys of `notify`.

use std::time::Duration;

use super::{Key, Range, Shape, key, range};
use crate::notifications::occasion::Occasion;
use crate::notifications::target::ChatFormat;

/// The keys of one target.
pub(in crate::config::jobs_file) const TARGET: &[Key] = &[
    key("webhook", Shape::Text, "A URL to which JSON is posted, signed as Standard Webhooks."),
    key("slack", Shape::Text, "The URL of an incoming webhook of Slack, Mattermost or Discord."),
    key(
        "format",
        Shape::Choice(formats),
        "The form of messages to slack: slack, or discord for its own webhooks.",
    ),
    key("email", Shape::Texts, "Addresses that get a mail each; the server needs --smtp."),
    key(
        "on",
        Shape::Choices(occasions),
        "The occasions; if absent, all but succeeded and those about batches.",
    ),
    key(
        "secret",
        Shape::Texts,
        "whsec_ and Base64: signs messages to a webhook; several while one is replaced.",
    ),
    key(
        "period",
        Shape::Duration,
        "The shortest time between two messages about one occasion; 5m if absent.",
    ),
    key(
        "output_lines",
        Shape::Integer(OUTPUT_LINES),
        "How many of the last lines of its output a message about a failed job has; none if absent.",
    ),
];

/// The words for `on`.
pub(in crate::config::jobs_file) fn occasions() -> Vec<&'static str> {
    Occasion::ALL.map(Occasion::name).to_vec()
}

/// Words of other systems for occasions.
pub(in crate::config::jobs_file) const OCCASION_SYNONYMS: &[(&str, Occasion)] = &[
    ("failure", Occasion::Failed),
    ("error", Occasion::Failed),
    ("expired", Occasion::Failed),
    ("success", Occasion::Succeeded),
    ("ok", Occasion::Succeeded),
    ("recovery", Occasion::Recovered),
    ("loss", Occasion::Lost),
    ("quarantine", Occasion::Quarantined),
    ("slow", Occasion::Late),
    ("batch_failure", Occasion::BatchFailed),
    ("batch_success", Occasion::BatchSucceeded),
    ("batch_cancel", Occasion::BatchCancelled),
    ("batch_canceled", Occasion::BatchCancelled),
];

/// The forms of messages to a chat.
pub(in crate::config::jobs_file) const FORMATS: [(&str, ChatFormat); 2] =
    [("slack", ChatFormat::Slack), ("discord", ChatFormat::Discord)];

/// The words for `format`.
fn formats() -> Vec<&'static str> {
    FORMATS.iter().map(|(name, _)| *name).collect()
}

/// The limits of `output_lines`. A message has 8 KiB of output at most.
pub(in crate::config::jobs_file) const OUTPUT_LINES: Range = range(1, 200);

/// How long occasions are counted before the next message, if a target does not say.
pub(in crate::config::jobs_file) const PERIOD: Duration = Duration::from_secs(300);
/// The longest of these: a message a month.
pub(in crate::config::jobs_file) const PERIOD_MAX: Duration = Duration::from_secs(31 * 86_400);
