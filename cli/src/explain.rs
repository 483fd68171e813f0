//! `longshore explain`: shows why a job is not running, and for each worker why it does not take the job; or why the members of a batch wait.

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::batches;
use crate::duration;
use crate::job_refs::{self, JobRef};
use crate::progress::BatchView as _;
use crate::records;
use crate::screen::{self, Format};
use crate::view::{BatchExplanation, Explanation, Limit, WaitingMembers, WorkerVerdict, in_words};

/// Show why a job is not running, and what prevents each worker from taking it; or why the members of a batch wait.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore explain 12
  longshore explain batch:17
  longshore explain 12 -o json | jq -r '.workers[] | select(.verdict == \"able\") | .worker.name'")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Id of the job, a member of a batch by its index, as `1064[3]`, or a batch as batch:ID. Brackets stand in quotes, because shells expand
    /// them.
    #[arg(value_name = "ID", value_parser = parse_subject)]
    id: Subject,
}

/// The subject of an explanation.
#[derive(Clone, Debug)]
enum Subject {
    Job(JobRef),
    Batch(u64),
}

fn parse_subject(text: &str) -> Result<Subject, String> {
    match text.strip_prefix("batch:") {
        Some(id) => crate::batches::parse_id(id).map(Subject::Batch),
        None => job_refs::parse_one(text).map(Subject::Job),
    }
}

/// Explains a job or a batch.
pub(crate) async fn explain(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let format = flags.common.format;
    let id = match flags.id {
        Subject::Job(job) => job.id(&api).await?,
        Subject::Batch(id) => return explain_batch(&api, format, id).await,
    };
    let json = api.json(api.get(&["api", "jobs", &id.to_string(), "explain"])).await?;
    if format != Format::Name && records::print_list(format, &json, "workers", "worker")? {
        return Ok(());
    }
    let explanation: Explanation = parse(&api, &json)?;
    if format == Format::Name {
        let names = explanation.workers.iter().map(|verdict| screen::visible(&verdict.worker.name));
        return names.into_iter().try_for_each(|name| screen::line(&name));
    }
    screen::line(&screen::visible(&state_line(id, &explanation)))?;
    for line in wait_lines(&explanation).into_iter().chain(explanation.limits.iter().map(limit_line)) {
        screen::line(&screen::visible(&line))?;
    }
    if explanation.workers.is_empty() {
        return Ok(());
    }
    screen::line("")?;
    let row = |verdict: &WorkerVerdict| {
        vec![
            verdict.worker.id.to_string(),
            verdict.worker.name.clone(),
            in_words(&verdict.verdict),
            verdict.text.to_string(),
        ]
    };
    screen::table(&[">ID", "WORKER", "VERDICT", "WHY"], explanation.workers.iter().map(row).collect())
}

/// Explains a batch: its counts, its pause, its limit, and its waiting members by reason.
async fn explain_batch(api: &Api, format: Format, id: u64) -> anyhow::Result<()> {
    let json = api.json(api.get(&["api", "batches", &id.to_string(), "explain"])).await?;
    if format != Format::Name && records::print_list(format, &json, "waiting", "example")? {
        return Ok(());
    }
    let explanation: BatchExplanation = parse(api, &json)?;
    if format == Format::Name {
        return explanation.waiting.iter().try_for_each(|group| screen::line(&group.example.to_string()));
    }
    let batch = &explanation.batch;
    screen::line(&format!("batch {id} is {}: {}", batches::state_text(batch), batch.members_text()))?;
    let pause = batch.pause.as_ref().map(|pause| pause.sentence(usize::MAX));
    for line in pause.into_iter().chain(explanation.limit.as_ref().map(limit_line)) {
        screen::line(&screen::visible(&line))?;
    }
    if explanation.waiting.is_empty() {
        return Ok(());
    }
    if explanation.more {
        screen::line(&format!("of the first {} members that wait; more follow", explanation.counted))?;
    }
    screen::line("")?;
    let row = |group: &WaitingMembers| {
        let WaitingMembers { reason, count, example } = group;
        vec![count.to_string(), reason.code.to_string(), example.to_string(), reason.text.to_string()]
    };
    screen::table(&[">MEMBERS", "REASON", ">JOB", "WHY"], explanation.waiting.iter().map(row).collect())
}

/// The state of the job, and the reason.
fn state_line(id: u64, explanation: &Explanation) -> String {
    let Explanation { name, state, reason, .. } = explanation;
    // The reason of a job that has ended names the state again.
    let Some(cause) = reason.text.strip_prefix(&format!("it has ended: {state}")) else {
        return format!("job {id} ({name}) is {state}: {}", reason.text);
    };
    let verb = if matches!(&**state, "cancelled" | "lost") { "was" } else { "has" };
    let cause = match cause.trim_start_matches([',', ' ']) {
        "" => String::new(),
        cause => match cause.strip_prefix(&format!("{state} by ")) {
            Some(by) => format!(" by {by}"),
            None => format!(": {}", cause.strip_prefix(&format!("{state}: ")).unwrap_or(cause)),
        },
    };
    format!("job {id} ({name}) {verb} {state}{cause}")
}

/// The position of a waiting job in its lane, and the estimate of its wait.
fn wait_lines(explanation: &Explanation) -> Vec<String> {
    let position = explanation.position_in_words().map(|position| format!("position {position}"));
    let estimate = explanation.estimate.as_ref().map(|estimate| {
        let wait = duration::show(i64::try_from(estimate.wait_ms).unwrap_or(i64::MAX));
        format!("starts in about {wait}, if {}", estimate.text)
    });
    position.into_iter().chain(estimate).collect()
}

/// A limit that the job needs: what is in use, by which jobs, and how many wait.
fn limit_line(limit: &Limit) -> String {
    let Limit { name, in_use, waiting, .. } = limit;
    let of = match &*limit.kind {
        "server" => "limit of the server".to_owned(),
        "rate" => format!("rate limit of {name}"),
        kind => format!("limit of the {kind} {name}"),
    };
    let key = limit.key.as_ref().map(|key| format!(" for {key}")).unwrap_or_default();
    let usage = match (limit.interval_ms, limit.limit) {
        (Some(interval), _) => rate_usage(limit, interval),
        (None, Some(permits)) => format!("{in_use} of {permits} in use{}", held_by(limit)),
        (None, None) => format!("{in_use} in use{}; it is not in jobs.yaml any more", held_by(limit)),
    };
    let wait = if *waiting == 1 { "job waits" } else { "jobs wait" };
    format!("{of}{key}: {usage}; {waiting} {wait}")
}

fn rate_usage(limit: &Limit, interval_ms: u64) -> String {
    let interval = duration::show(i64::try_from(interval_ms).unwrap_or(i64::MAX));
    let burst = match limit.burst {
        Some(burst) if burst > 1 => format!(", {burst} at once after a quiet time"),
        _ => String::new(),
    };
    let next = limit.next_start.map_or_else(|| "now".to_owned(), |time| format!("at {time}"));
    format!("a start every {interval}{burst}, the next one {next}")
}

/// The jobs that hold permits: all, or the oldest ten.
fn held_by(limit: &Limit) -> String {
    let holders: Vec<String> = limit.holders.iter().map(u64::to_string).collect();
    if holders.is_empty() {
        return String::new();
    }
    let jobs = if limit.in_use == 1 { "job" } else { "jobs" };
    let others = if limit.in_use > limit.holders.len() as u64 { " and others" } else { "" };
    format!(", by {jobs} {}{others}", holders.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(json: &str) -> String {
        limit_line(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn the_state_of_an_ended_job_is_told_once() {
        let line = |state: &str, text: &str| {
            let json = serde_json::json!({ "name": "hello", "state": state, "reason": { "code": "x", "text": text },
                "workers": [] });
            state_line(1, &serde_json::from_value(json).unwrap())
        };
        assert_eq!(line("queued", "all workers are busy"), "job 1 (hello) is queued: all workers are busy");
        for (state, text, expected) in [
            ("succeeded", "it has ended: succeeded", "has succeeded"),
            ("failed", "it has ended: failed, exit code 3", "has failed: exit code 3"),
            ("cancelled", "it has ended: cancelled", "was cancelled"),
            ("cancelled", "it has ended: cancelled, cancelled by ann", "was cancelled by ann"),
            (
                "cancelled",
                "it has ended: cancelled, cancelled: replaced by job 2",
                "was cancelled: replaced by job 2",
            ),
            (
                "lost",
                "it has ended: lost, its worker did not come back",
                "was lost: its worker did not come back",
            ),
        ] {
            assert_eq!(line(state, text), format!("job 1 (hello) {expected}"));
        }
    }

    #[test]
    fn a_position_that_was_not_counted_to_its_end_is_told_as_such() {
        let lines = |before: &str| {
            let json = format!(
                r#"{{"name":"a","state":"queued","reason":{{"code":"limit","text":"x"}},{before},"lane_jobs":30000,"workers":[]}}"#
            );
            wait_lines(&serde_json::from_str(&json).unwrap())
        };
        let among = "of 30000, among the waiting jobs of its definition with the same keys";
        assert_eq!(lines(r#""before":10000"#), [format!("position 10001 {among}")]);
        let beyond = [format!("position beyond 10001 {among}")];
        assert_eq!(lines(r#""before":10000,"before_at_least":true"#), beyond);
        let others = format!("position 1 {among}; 90000 other jobs wait, which may go before it");
        assert_eq!(lines(r#""before":0,"other_jobs":90000"#), [others]);
    }

    #[test]
    fn limits_tell_their_use_and_their_holders() {
        let of = r#""kind":"definition","name":"report","key":"acme","limit":2"#;
        assert_eq!(
            limit(&format!(r#"{{{of},"in_use":2,"waiting":5,"holders":[7,9]}}"#)),
            "limit of the definition report for acme: 2 of 2 in use, by jobs 7, 9; 5 jobs wait"
        );
        assert_eq!(
            limit(r#"{"kind":"server","name":"server","limit":20,"in_use":12,"waiting":1,"holders":[1]}"#),
            "limit of the server: 12 of 20 in use, by jobs 1 and others; 1 job waits"
        );
        assert_eq!(
            limit(r#"{"kind":"group","name":"db","in_use":0,"waiting":3}"#),
            "limit of the group db: 0 in use; it is not in jobs.yaml any more; 3 jobs wait"
        );
    }

    #[test]
    fn rates_tell_their_next_start() {
        let of = r#""kind":"rate","name":"mail","in_use":0,"waiting":2"#;
        assert_eq!(
            limit(&format!(
                r#"{{{of},"interval_ms":60000,"burst":1,"next_start":"2026-03-01T09:30:00.000Z"}}"#
            )),
            "rate limit of mail: a start every 1m00s, the next one at 2026-03-01T09:30:00.000Z; 2 jobs wait"
        );
        assert_eq!(
            limit(&format!(r#"{{{of},"interval_ms":1000,"burst":3}}"#)),
            "rate limit of mail: a start every 1.0s, 3 at once after a quiet time, the next one now; 2 jobs wait"
        );
    }
}
