//! The text of a message in the formats of the targets. Parameters and environment of a job are in none of them, and its output only for a
//! target that asks for it.

use std::collections::BTreeMap;
use std::time::Duration;

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Serialize;
use sha2::Sha256;

use super::batch_facts::{self, BatchFacts, JobBatch};
use super::details::{self, DefinitionFacts};
use super::discord;
use super::occasion::Occasion;
use super::target::{ChatFormat, SigningSecret};
use crate::http::present::batch;
use crate::http::present::shapes::{BatchSummary, WorkerRef, millis};
use crate::http::present::span::round;
use crate::http::present::timeline::{ran_ms, worker_of};
use crate::rfc3339::Time;
use crate::store::{JobRow, NotificationRow};

/// The facts of a message.
#[derive(Debug)]
pub struct Message<'m> {
    /// Its row, or one that is made up for a test.
    pub row: &'m NotificationRow,
    /// The facts of its definition, as jobs.yaml has them now.
    pub definition: DefinitionFacts<'m>,
    /// The job of the last time; absent if there is none, or it is no longer kept.
    pub job: Option<&'m JobRow>,
    /// The batch that has ended, or that the job is a member of; absent if there is none, or it is no longer kept.
    pub batch: Option<&'m BatchFacts>,
    /// The reason of its end.
    pub reason: Option<String>,
    /// The last lines of its output, for a target that asks for them.
    pub output_tail: Option<String>,
    /// The URL of the server for people, without a slash at its end; absent if the server was not told.
    pub public_url: Option<&'m str>,
    /// True for a message that somebody asked for to try a target.
    pub is_test: bool,
}

/// The JSON of a webhook.
#[derive(Debug, Serialize)]
struct WebhookBody<'m> {
    r#type: String,
    timestamp: Time,
    data: WebhookData<'m>,
}

#[derive(Debug, Serialize)]
struct WebhookData<'m> {
    definition: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'m str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'m [String],
    occasion: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Expected>,
    count: u64,
    first_at: Time,
    last_at: Time,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    test: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<WebhookJob<'m>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<BatchSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    text: String,
}

/// The expectation that was missed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Expected {
    MaxDurationMs(u64),
    SuccessWithinMs(u64),
}

/// The job of the last time. Keys that are new since the first release are left out if they are unknown.
#[derive(Debug, Serialize)]
struct WebhookJob<'m> {
    id: u64,
    state: &'static str,
    attempts: u32,
    accepted_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<JobBatch<'m>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'m str, &'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    submitted_by: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_ms: Option<u64>,
    ended_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    exit_code: Option<i32>,
    reason: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tail: Option<&'m str>,
}

impl<'m> WebhookJob<'m> {
    fn of(job: &'m JobRow, message: &'m Message<'_>) -> Self {
        let attempt = job.attempt.as_ref();
        Self {
            id: job.job.0,
            state: job.state.name(),
            attempts: job.attempts.0,
            accepted_at: Time(job.created_at),
            batch: message.batch.and_then(BatchFacts::of_job),
            labels: job.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            schedule: job.slot.as_ref().map(|slot| slot.schedule.as_str()),
            scheduled_at: job.slot.as_ref().map(|slot| Time(slot.at)),
            submitted_by: job.submitted_by.as_deref(),
            worker: attempt.map(worker_of),
            started_at: attempt.and_then(|attempt| attempt.started_at).map(Time),
            ran_ms: attempt.and_then(ran_ms),
            ended_at: job.ended_at.map(Time),
            outcome: attempt.and_then(|attempt| attempt.outcome).map(|outcome| outcome.name()),
            exit_code: attempt.and_then(|attempt| attempt.exit_code),
            reason: message.reason.as_deref(),
            output_tail: message.output_tail.as_deref(),
        }
    }
}

impl Message<'_> {
    /// One line for people.
    #[must_use]
    pub fn text(&self) -> String {
        let row = self.row;
        let test = if self.is_test { "Test: " } else { "" };
        let name = &row.definition;
        let why = self.reason.as_deref().filter(|why| !why.is_empty()).map(|why| format!(": {why}"));
        let why = why.unwrap_or_default();
        let mut text = match row.occasion {
            Occasion::BatchFailed | Occasion::BatchSucceeded | Occasion::BatchCancelled => {
                let text = batch_facts::text(row, self.batch.map(|batch| &batch.row));
                return format!("{test}{text}");
            }
            Occasion::Failed => format!("{name} failed{why}"),
            Occasion::Succeeded => format!("{name} succeeded"),
            Occasion::Recovered => format!("{name} has recovered: a job succeeded again"),
            Occasion::Lost => format!("{name} lost a job{why}"),
            Occasion::Quarantined => format!("{name}: a job waits for an operator after too many losses"),
            Occasion::Late => {
                format!("{name} is late: a job runs for longer than {}", self.expected_in_words())
            }
            Occasion::Stale => {
                format!("{name} is stale: no job has succeeded for longer than {}", self.expected_in_words())
            }
        };
        if let Some(job) = row.job {
            text.push_str(&format!(" (job {job})"));
        }
        if row.count > 1 {
            text.push_str(&format!(", {} times since {}", row.count, Time(row.first_at)));
        }
        format!("{test}{text}")
    }

    /// The duration that was expected, as jobs.yaml has it now.
    fn expected_in_words(&self) -> String {
        self.missed_expectation().map_or_else(|| "expected".to_owned(), round)
    }

    /// The longest run or time without a success that was expected; none for other occasions, and if jobs.yaml has it no more.
    #[must_use]
    pub fn missed_expectation(&self) -> Option<Duration> {
        match self.row.occasion {
            Occasion::Late => self.definition.expect.max_duration,
            Occasion::Stale => self.definition.expect.success_within,
            _ => None,
        }
    }

    /// The batch whose end the message is about.
    pub(super) fn ended_batch(&self) -> Option<&BatchFacts> {
        self.batch.filter(|_| self.row.occasion.is_about_batch())
    }

    /// The page of the dashboard about it.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        let base = self.public_url?;
        Some(match (self.row.job, self.row.batch) {
            (Some(job), _) => format!("{base}/jobs/{job}"),
            (None, Some(batch)) => format!("{base}/batches/{batch}"),
            (None, None) => format!("{base}/definitions/{}", self.row.definition),
        })
    }

    /// The JSON for a webhook.
    #[must_use]
    pub fn webhook_body(&self) -> String {
        let row = self.row;
        let expected = self.missed_expectation().map(millis).map(match row.occasion {
            Occasion::Late => Expected::MaxDurationMs,
            _ => Expected::SuccessWithinMs,
        });
        let body = WebhookBody {
            r#type: format!("definition.{}", row.occasion.name()),
            timestamp: Time(row.last_at),
            data: WebhookData {
                definition: &row.definition,
                owner: self.definition.owner,
                tags: self.definition.tags,
                occasion: row.occasion.name(),
                expected,
                count: row.count,
                first_at: Time(row.first_at),
                last_at: Time(row.last_at),
                test: self.is_test,
                job: self.job.map(|job| WebhookJob::of(job, self)),
                batch: self
                    .ended_batch()
                    .map(|ended| batch::summary(ended.row.clone(), &scheduler::pauses::Pauses::default())),
                url: self.url(),
                text: self.text(),
            },
        };
        // Texts and numbers always have a JSON form.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// The JSON for a chat.
    #[must_use]
    pub fn chat_body(&self, format: ChatFormat) -> String {
        match format {
            ChatFormat::Slack => self.slack_body(),
            ChatFormat::Discord => {
                discord::body(&self.chat_text(), self.url().as_deref(), self.output_tail.as_deref())
            }
        }
    }

    /// The line for people, and a second one with what else is known.
    fn chat_text(&self) -> String {
        match details::in_one_line(self) {
            details if details.is_empty() => self.text(),
            details => format!("{}\n{details}", self.text()),
        }
    }

    fn slack_body(&self) -> String {
        let text = escape_for_slack(&self.chat_text());
        let text = match self.url() {
            Some(url) => format!("{text}\n<{url}>"),
            None => text,
        };
        let text = match &self.output_tail {
            Some(tail) => format!("{text}\n{}", code_block(&escape_for_slack(tail))),
            None => text,
        };
        serde_json::json!({ "text": text }).to_string()
    }
}

/// Lines in the form that chats show unformatted, and without mentions. Marks that would end the block early are written otherwise.
pub(super) fn code_block(lines: &str) -> String {
    format!("```\n{}\n```", lines.replace("```", "'''"))
}

/// Slack gives a meaning to these three characters only.
fn escape_for_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The headers of Standard Webhooks: the id is the same at each try, the signature covers id, time and body.
#[must_use]
pub fn webhook_headers(secrets: &[SigningSecret], id: &str, seconds: i64, body: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let signatures: Vec<String> =
        secrets.iter().map(|secret| signature(secret.reveal(), id, seconds, body)).collect();
    let mut add = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    add("webhook-id", id);
    add("webhook-timestamp", &seconds.to_string());
    if !signatures.is_empty() {
        add("webhook-signature", &signatures.join(" "));
    }
    headers
}

fn signature(key: &[u8], id: &str, seconds: i64, body: &str) -> String {
    // HMAC takes keys of every length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
    mac.update(format!("{id}.{seconds}.{body}").as_bytes());
    format!("v1,{}", BASE64.encode(&mac.finalize().into_bytes()))
}
