//! The facts of a message beside its one line of text: in a second line for chats, and in a list for mails.

use scheduler::definition::Expect;

use super::batch_facts::BatchFacts;
use super::message::Message;
use super::occasion::Occasion;
use crate::catalogue::Entry;
use crate::http::present::span::{round, span_ms};
use crate::http::present::timeline::ran_ms;
use crate::rfc3339::Time;
use crate::store::{AttemptRow, JobRow};

/// The facts of a definition that its messages have.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefinitionFacts<'m> {
    /// The person or team to ask.
    pub owner: Option<&'m str>,
    /// Its tags.
    pub tags: &'m [String],
    /// Its expectations.
    pub expect: Expect,
}

impl<'m> DefinitionFacts<'m> {
    /// The facts of an entry of jobs.yaml.
    #[must_use]
    pub fn of(entry: &'m Entry) -> Self {
        Self { owner: entry.owner.as_deref(), tags: &entry.tags, expect: entry.definition.expect }
    }
}

/// The facts in one line, such as `slot 2026-11-20T02:00:00.000Z, 3 attempts, the last ran 7.11s on rack-1, owner finance`. Empty if there is
/// none.
pub(super) fn in_one_line(message: &Message<'_>) -> String {
    let mut parts = message.ended_batch().map(BatchFacts::details).unwrap_or_default();
    if let Some(job) = message.job {
        parts.extend(job.slot.as_ref().map(|slot| format!("slot {}", Time(slot.at))));
        parts.extend(message.batch.and_then(BatchFacts::position));
        let attempts = job.attempts.0;
        if attempts > 1 {
            parts.push(format!("{attempts} attempts"));
        }
        let the_last = if attempts > 1 { "the last " } else { "" };
        parts.extend(job.attempt.as_ref().map(|attempt| format!("{the_last}{}", run_of(attempt))));
    }
    parts.extend(message.definition.owner.map(|owner| format!("owner {owner}")));
    let line = parts.join(", ");
    line.replace(char::is_control, " ")
}

/// The run of an attempt: how long it was, or since when it runs, and where.
fn run_of(attempt: &AttemptRow) -> String {
    let worker = worker_name(attempt);
    match (ran_ms(attempt), attempt.started_at, attempt.ended_at) {
        (Some(ms), ..) => format!("ran {} on {worker}", span_ms(ms)),
        (None, Some(started), None) => format!("started {} on {worker}", Time(started)),
        _ => format!("on {worker}"),
    }
}

/// The name of the worker, or its number if its row is gone.
fn worker_name(attempt: &AttemptRow) -> String {
    match &*attempt.worker_name {
        "" => format!("worker {}", attempt.worker.0),
        name => name.to_owned(),
    }
}

/// Names and values of the facts, for a mail.
pub(super) fn list(message: &Message<'_>) -> Vec<(&'static str, String)> {
    let (row, definition) = (message.row, &message.definition);
    let mut facts = vec![("definition", row.definition.to_string())];
    facts.extend(definition.owner.map(|owner| ("owner", owner.to_owned())));
    if !definition.tags.is_empty() {
        facts.push(("tags", definition.tags.join(", ")));
    }
    facts.push(("occasion", row.occasion.name().to_owned()));
    facts.extend(message.missed_expectation().map(|expected| {
        let expected = round(expected);
        let words = match row.occasion {
            Occasion::Late => format!("a run of at most {expected}"),
            _ => format!("a success within {expected}"),
        };
        ("expected", words)
    }));
    if let Some(job) = message.job {
        facts.extend(of_job(job, message.reason.as_deref()));
        facts.extend(message.batch.and_then(BatchFacts::position).map(|position| ("batch", position)));
    }
    if let Some(batch) = message.ended_batch() {
        facts.extend(of_batch(batch));
    }
    if row.count > 1 {
        facts.push(("count", format!("{} since {}", row.count, Time(row.first_at))));
    }
    facts
}

fn of_batch(batch: &BatchFacts) -> Vec<(&'static str, String)> {
    let row = &batch.row;
    let mut facts = vec![("batch", batch.label()), ("jobs", row.count.to_string())];
    facts.extend(row.submitted_by.clone().map(|by| ("submitted", format!("by {by}"))));
    facts.push(("accepted", Time(row.created_at).to_string()));
    facts.extend(row.ended_at.map(|ended| ("ended", Time(ended).to_string())));
    facts.extend(batch.details().into_iter().map(|detail| ("note", detail)));
    facts
}

fn of_job(job: &JobRow, reason: Option<&str>) -> Vec<(&'static str, String)> {
    let attempts = job.attempts.0;
    let noun = if attempts == 1 { "attempt" } else { "attempts" };
    let attempt = job.attempt.as_ref();
    let time = |time| Time(time).to_string();
    let facts = [
        ("job", Some(format!("{}, {} after {attempts} {noun}", job.job, job.state.name()))),
        ("reason", reason.filter(|reason| !reason.is_empty()).map(str::to_owned)),
        ("schedule", job.slot.as_ref().map(|slot| format!("{}, slot {}", slot.schedule, Time(slot.at)))),
        ("accepted", Some(time(job.created_at))),
        ("worker", attempt.map(worker_name)),
        ("started", attempt.and_then(|attempt| attempt.started_at).map(time)),
        ("ended", job.ended_at.map(time)),
        ("ran", attempt.and_then(ran_ms).map(span_ms)),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use protocol::report::{Outcome, OutputLengths};
    use protocol::{AttemptNo, Fence, JobId, Nonce, Revision, Timestamp, WorkerId};
    use scheduler::job::State;
    use serde_json::{Value, json};

    use super::*;
    use crate::notifications::occasion::Occasions;
    use crate::notifications::target::{ChatFormat, Endpoint, Target};
    use crate::store::{FailureStatus, JobSlot, NotificationRow, RunOnRole};

    /// 2026-11-20T02:00:00Z
    const SLOT: i64 = 1_795_140_000_000;

    pub(in crate::notifications) fn attempt(ended: bool) -> AttemptRow {
        AttemptRow {
            number: AttemptNo(3),
            fence: Fence(7),
            nonce: Nonce(7),
            worker: WorkerId(4),
            worker_name: "rack-1".into(),
            assigned_at: Timestamp(SLOT + 10),
            started_at: Some(Timestamp(SLOT + 1_000)),
            container: String::new(),
            stopping: None,
            ended_at: ended.then_some(Timestamp(SLOT + 8_110)),
            outcome: ended.then_some(Outcome::Failed),
            exit_code: ended.then_some(3),
            message: String::new(),
            output: OutputLengths::default(),
            usage: Default::default(),
            result: None,
            released: None,
        }
    }

    pub(in crate::notifications) fn job(attempts: u32, attempt: Option<AttemptRow>) -> JobRow {
        let ended_at = attempt.as_ref().and_then(|attempt| attempt.ended_at);
        JobRow {
            job: JobId(12),
            definition: "report".into(),
            revision: Revision(1),
            state: if ended_at.is_some() { State::Failed } else { State::Running },
            priority: 0,
            created_at: Timestamp(SLOT + 4),
            due_at: Timestamp(SLOT + 4),
            expires_at: None,
            timeout: None,
            batch: None,
            position: None,
            retry_of: None,
            submitted_by: None,
            slot: Some(JobSlot { schedule: "nightly".into(), at: Timestamp(SLOT) }),
            waits_for: None,
            run_on_role: RunOnRole::Alone,
            labels: vec![("region".into(), "eu".into())],
            narrowing: None,
            ended_at,
            reason: "exit code 3".into(),
            confirmed: true,
            failure: FailureStatus::None,
            attempts: AttemptNo(attempts),
            attempt,
        }
    }

    fn row(occasion: Occasion) -> NotificationRow {
        let url = "https://hooks.example/".parse().unwrap();
        let endpoint = Endpoint::Slack { url, format: ChatFormat::Slack };
        let target =
            Target { endpoint, on: Occasions::standard(), period: Duration::ZERO, output_lines: None };
        NotificationRow { occasion, job: Some(JobId(12)), ..target.test_row("report", Timestamp(SLOT)) }
    }

    const EXPECT: Expect = Expect {
        success_within: Some(Duration::from_secs(26 * 3_600)),
        max_duration: Some(Duration::from_secs(2_400)),
    };

    fn message<'m>(row: &'m NotificationRow, job: Option<&'m JobRow>, tags: &'m [String]) -> Message<'m> {
        let definition = DefinitionFacts { owner: Some("finance"), tags, expect: EXPECT };
        let reason = Some("exit 3".to_owned());
        let (batch, output_tail, public_url) = (None, None, None);
        Message { row, definition, job, batch, reason, output_tail, public_url, is_test: false }
    }

    #[test]
    fn a_chat_gets_a_second_line_with_slot_attempts_run_worker_and_owner() {
        let row = row(Occasion::Failed);
        let text = |job: &JobRow| {
            let body: Value =
                serde_json::from_str(&message(&row, Some(job), &[]).chat_body(ChatFormat::Slack)).unwrap();
            let text = body["text"].as_str().unwrap().to_owned();
            text.strip_prefix("report failed: exit 3 (job 12)\nslot 2026-11-20T02:00:00.000Z, ")
                .unwrap()
                .to_owned()
        };
        let (first, third) = (job(1, Some(attempt(true))), job(3, Some(attempt(true))));
        assert_eq!(text(&first), "ran 7.11s on rack-1, owner finance");
        assert_eq!(text(&third), "3 attempts, the last ran 7.11s on rack-1, owner finance");
        let running = text(&job(1, Some(attempt(false))));
        assert_eq!(running, "started 2026-11-20T02:00:01.000Z on rack-1, owner finance");
        let lost = AttemptRow { outcome: Some(Outcome::Lost), worker_name: "".into(), ..attempt(true) };
        assert_eq!(text(&job(1, Some(lost))), "on worker 4, owner finance");
        assert_eq!(text(&job(0, None)), "owner finance");
    }

    #[test]
    fn an_expectation_that_was_missed_is_named_with_its_duration() {
        let text = |occasion, expect| {
            let row = NotificationRow { job: None, ..row(occasion) };
            let message = message(&row, None, &[]);
            let definition = DefinitionFacts { expect, ..message.definition };
            let body: Value =
                serde_json::from_str(&Message { definition, ..message }.webhook_body()).unwrap();
            (body["data"]["text"].as_str().unwrap().to_owned(), body["data"]["expected"].clone())
        };
        let late = "report is late: a job runs for longer than 40m".to_owned();
        assert_eq!(text(Occasion::Late, EXPECT), (late, json!({ "max_duration_ms": 2_400_000 })));
        let stale = "report is stale: no job has succeeded for longer than 1d 2h".to_owned();
        assert_eq!(text(Occasion::Stale, EXPECT), (stale, json!({ "success_within_ms": 93_600_000 })));
        assert_eq!(text(Occasion::Failed, EXPECT).1, Value::Null);
        let removed = "report is late: a job runs for longer than expected".to_owned();
        assert_eq!(text(Occasion::Late, Expect::default()), (removed, Value::Null));
    }

    #[test]
    fn a_webhook_gets_the_facts_of_definition_and_job() {
        let (row, job) = (row(Occasion::Failed), job(3, Some(attempt(true))));
        let tags = ["nightly".to_owned(), "money".to_owned()];
        let text = message(&row, Some(&job), &tags).webhook_body();
        let body: Value = serde_json::from_str(&text).unwrap();
        let data = &body["data"];
        assert_eq!((&data["owner"], &data["tags"]), (&json!("finance"), &json!(["nightly", "money"])));
        let expected = json!({
            "id": 12, "state": "failed", "attempts": 3, "accepted_at": "2026-11-20T02:00:00.004Z",
            "labels": { "region": "eu" },
            "schedule": "nightly", "scheduled_at": "2026-11-20T02:00:00.000Z", "worker": { "id": 4, "name": "rack-1" },
            "started_at": "2026-11-20T02:00:01.000Z", "ran_ms": 7_110, "ended_at": "2026-11-20T02:00:08.110Z",
            "outcome": "failed", "exit_code": 3, "reason": "exit 3"
        });
        assert_eq!(data["job"], expected);
    }

    #[test]
    fn a_mail_lists_the_facts() {
        let (row, job) = (row(Occasion::Late), job(1, Some(attempt(true))));
        let tags = ["nightly".to_owned(), "money".to_owned()];
        let facts = list(&message(&row, Some(&job), &tags));
        for fact in [
            ("owner", "finance"),
            ("tags", "nightly, money"),
            ("expected", "a run of at most 40m"),
            ("schedule", "nightly, slot 2026-11-20T02:00:00.000Z"),
            ("worker", "rack-1"),
            ("started", "2026-11-20T02:00:01.000Z"),
            ("ran", "7.11s"),
        ] {
            assert!(
                facts.iter().any(|(name, value)| (*name, value.as_str()) == fact),
                "{fact:?} in {facts:?}"
            );
        }
    }
}
