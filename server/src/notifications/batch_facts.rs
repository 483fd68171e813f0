//! The batch that a message is about, or that its job is a member of.

use protocol::JobId;
use serde::Serialize;

use super::occasion::Occasion;
use crate::http::present::span::span;
use crate::rfc3339::Time;
use crate::store::{BatchRow, NotificationRow};

/// A batch, as the store has it when a message is sent.
#[derive(Clone, Debug)]
pub struct BatchFacts {
    /// The batch with its counts.
    pub row: BatchRow,
    /// The position of the message's job in it, from 0; absent if the message is about the batch.
    pub index: Option<u64>,
}

/// The batch of a job, in the JSON of a webhook.
#[derive(Debug, Serialize)]
pub(super) struct JobBatch<'m> {
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'m str>,
    index: u64,
    count: u32,
}

impl BatchFacts {
    /// The JSON for the job of the message; none if the message is about the batch.
    pub(super) fn of_job(&self) -> Option<JobBatch<'_>> {
        let BatchRow { first, name, count, .. } = &self.row;
        Some(JobBatch { id: first.0, name: name.as_deref(), index: self.index?, count: *count })
    }

    /// The number and the name: `batch 12 "import"`.
    pub(super) fn label(&self) -> String {
        label_of(&self.row)
    }

    /// The position of the message's job in words; none if the message is about the batch.
    pub(super) fn position(&self) -> Option<String> {
        Some(format!("index {} of {}", self.index?, self.label()))
    }

    /// The facts beside the line of text, of a message about the batch.
    pub(super) fn details(&self) -> Vec<String> {
        let BatchRow { retry_of, definitions_differ, max_failures, replaced_by, .. } = &self.row;
        let is_reached = self.row.has_reached_max_failures();
        let max_failures = max_failures.filter(|_| is_reached);
        let facts = [
            max_failures.map(|max| format!("max_failures {max} was reached")),
            replaced_by.map(|by| format!("replaced by batch {by}")),
            retry_of.map(|of| format!("a retry of batch {of}")),
            definitions_differ.then(|| "with jobs of other definitions".to_owned()),
        ];
        facts.into_iter().flatten().collect()
    }
}

fn label_of(row: &BatchRow) -> String {
    match &row.name {
        Some(name) => format!("batch {} \"{name}\"", row.first),
        None => format!("batch {}", row.first),
    }
}

/// One line for people about the end of a batch: `report: batch 12 "import" (1000 jobs) failed: 990 succeeded, 10 failed, after 14m 3s`. The
/// counts are left out if the batch is no longer kept.
pub(super) fn text(message: &NotificationRow, batch: Option<&BatchRow>) -> String {
    let definition = &message.definition;
    let end = match message.occasion {
        Occasion::BatchSucceeded => "succeeded",
        Occasion::BatchCancelled => "was cancelled",
        _ => "failed",
    };
    let mut text = match (batch, message.batch) {
        (Some(row), _) => format!("{definition}: {} {}", label_of(row), outcome(row, end)),
        (None, Some(JobId(first))) => format!("{definition}: batch {first} {end}"),
        (None, None) => format!("{definition}: a batch {end}"),
    };
    if let Some(more @ 1..) = message.count.checked_sub(1) {
        let noun = if more == 1 { "batch" } else { "batches" };
        let end =
            if more > 1 && message.occasion == Occasion::BatchCancelled { "were cancelled" } else { end };
        text.push_str(&format!("; {more} more {noun} {end} since {}", Time(message.first_at)));
    }
    text
}

/// The size, the end, the members by their end, and the time since the acceptance.
fn outcome(row: &BatchRow, end: &str) -> String {
    let counts = &row.counts;
    let by_end = [
        (counts.succeeded, "succeeded"),
        (counts.failed, "failed"),
        (counts.expired, "expired"),
        (counts.lost, "lost"),
        (counts.cancelled.saturating_sub(row.skipped), "cancelled"),
        (row.skipped, "skipped"),
    ];
    let by_end = by_end.into_iter().filter(|(count, _)| *count > 0);
    let by_end: Vec<String> = by_end.map(|(count, end)| format!("{count} {end}")).collect();
    let noun = if row.count == 1 { "job" } else { "jobs" };
    let took = row.ended_at.map(|ended| format!(", after {}", span(ended.since(row.created_at))));
    format!("({} {noun}) {end}: {}{}", row.count, by_end.join(", "), took.unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use protocol::Timestamp;
    use serde_json::{Value, json};

    use super::super::details::DefinitionFacts;
    use super::super::details::tests::{attempt, job};
    use super::super::message::Message;
    use super::super::occasion::Occasions;
    use super::super::target::{ChatFormat, Endpoint, Target};
    use super::*;
    use crate::store::{BatchCounts, BatchState};

    fn batch() -> BatchRow {
        BatchRow {
            first: JobId(10),
            name: Some("import".to_owned()),
            definition: Some("report".to_owned()),
            definitions_differ: false,
            created_at: Timestamp(1_000),
            count: 1_000,
            cancelled_by: None,
            unique_key: None,
            on_duplicate: None,
            replaced_by: None,
            cancelled_at: None,
            max_failures: None,
            concurrency: None,
            retry_of: None,
            submitted_by: None,
            retried_as: None,
            ended_at: Some(Timestamp(844_000)),
            state: BatchState::Failed,
            removed: 0,
            skipped: 0,
            counts: BatchCounts { succeeded: 990, failed: 10, ..BatchCounts::default() },
        }
    }

    fn row(occasion: Occasion) -> NotificationRow {
        let url = "https://hooks.example/".parse().expect("a URL");
        let endpoint = Endpoint::Slack { url, format: ChatFormat::Slack };
        let on = Occasions::from_iter([occasion]);
        let target = Target { endpoint, on, period: Duration::ZERO, output_lines: None };
        target.test_row("report", Timestamp(844_000))
    }

    fn message<'m>(row: &'m NotificationRow, batch: Option<&'m BatchFacts>) -> Message<'m> {
        Message {
            row,
            definition: DefinitionFacts { owner: Some("finance"), ..DefinitionFacts::default() },
            job: None,
            batch,
            reason: None,
            output_tail: None,
            public_url: Some("https://jobs.example"),
            is_test: false,
        }
    }

    #[test]
    fn the_end_of_a_batch_is_told_with_its_counts_and_its_time() {
        let ended = NotificationRow { batch: Some(JobId(10)), ..row(Occasion::BatchFailed) };
        let facts = BatchFacts { row: batch(), index: None };
        let line = "report: batch 10 \"import\" (1000 jobs) failed: 990 succeeded, 10 failed, after 14m 3s";
        assert_eq!(message(&ended, Some(&facts)).text(), line);
        let counts =
            BatchCounts { succeeded: 1, cancelled: 3, lost: 2, expired: 1, ..BatchCounts::default() };
        let other = BatchRow {
            name: None,
            count: 7,
            skipped: 2,
            counts,
            max_failures: Some(3),
            retry_of: Some(JobId(3)),
            replaced_by: Some(JobId(17)),
            ..batch()
        };
        let facts = BatchFacts { row: other, index: None };
        let ends = "1 succeeded, 1 expired, 2 lost, 1 cancelled, 2 skipped, after 14m 3s";
        let message = message(&ended, Some(&facts));
        assert_eq!(message.text(), format!("report: batch 10 (7 jobs) failed: {ends}"));
        let chat: Value = serde_json::from_str(&message.chat_body(ChatFormat::Slack)).expect("JSON");
        let text = chat["text"].as_str().expect("a text");
        let details = "max_failures 3 was reached, replaced by batch 17, a retry of batch 3, owner finance";
        assert!(text.ends_with(&format!("\n{details}\n<https://jobs.example/batches/10>")), "{text}");
    }

    #[test]
    fn a_batch_that_is_no_longer_kept_and_a_test_have_no_counts() {
        let ended = NotificationRow { batch: Some(JobId(10)), count: 3, ..row(Occasion::BatchSucceeded) };
        let text = message(&ended, None).text();
        let more = "2 more batches succeeded since 1970-01-01T00:14:04.000Z";
        assert_eq!(text, format!("report: batch 10 succeeded; {more}"));
        let cancelled = NotificationRow { occasion: Occasion::BatchCancelled, ..ended };
        let text = message(&cancelled, None).text();
        let more = "2 more batches were cancelled since 1970-01-01T00:14:04.000Z";
        assert_eq!(text, format!("report: batch 10 was cancelled; {more}"));
        let test = row(Occasion::BatchFailed);
        let text = Message { is_test: true, ..message(&test, None) }.text();
        assert_eq!(text, "Test: report: a batch failed");
    }

    #[test]
    fn a_webhook_gets_the_batch_as_the_api_has_it() {
        let ended = NotificationRow { batch: Some(JobId(10)), ..row(Occasion::BatchFailed) };
        let facts = BatchFacts { row: batch(), index: None };
        let body: Value = serde_json::from_str(&message(&ended, Some(&facts)).webhook_body()).expect("JSON");
        assert_eq!(body["type"], "definition.batch_failed");
        let data = &body["data"];
        assert_eq!((&data["batch"]["id"], &data["batch"]["state"]), (&json!(10), &json!("failed")));
        assert_eq!(
            (&data["batch"]["name"], &data["batch"]["counts"]["failed"]),
            (&json!("import"), &json!(10))
        );
        assert_eq!((&data["job"], &data["url"]), (&Value::Null, &json!("https://jobs.example/batches/10")));
    }

    #[test]
    fn a_message_about_a_member_names_its_batch_and_its_labels() {
        let failed = NotificationRow { job: Some(JobId(12)), ..row(Occasion::Failed) };
        let (facts, job) = (BatchFacts { row: batch(), index: Some(2) }, job(1, Some(attempt(true))));
        let message = Message { job: Some(&job), ..message(&failed, Some(&facts)) };
        let body: Value = serde_json::from_str(&message.webhook_body()).expect("JSON");
        let (data, of_job) = (&body["data"], &body["data"]["job"]);
        assert_eq!(of_job["batch"], json!({ "id": 10, "name": "import", "index": 2, "count": 1_000 }));
        assert_eq!(of_job["labels"], json!({ "region": "eu" }));
        assert_eq!((&data["batch"], &data["url"]), (&Value::Null, &json!("https://jobs.example/jobs/12")));
        let chat = message.chat_body(ChatFormat::Discord);
        assert!(chat.contains(r#"index 2 of batch 10 \"import\", ran 7.11s"#), "{chat}");
        assert!(chat.contains("owner finance"), "{chat}");
    }
}
