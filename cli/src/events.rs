//! `longshore events`: prints what has changed on the server, and follows it.
//!
//! Each event has an id: if the connection breaks, the next one continues after the last event that was seen.

use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::header::ACCEPT;
use serde_json::Value;
use server::http::present::shapes::CommittedEvent;

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::outage::{Awaited, Outage};
use crate::records;
use crate::screen::{self, Format};
use crate::sse::Events;
use crate::utf8::Utf8Stream;
use crate::view;

/// Show what has changed: jobs, attempts, workers, schedules, definitions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore events                              the last events
  longshore events -f                           and follow what comes
  longshore events -f --kind 'attempt.lost,worker.*'
  longshore events -f --name report --state failed -o json

--kind and --name take several values with commas, and * for any text.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Continue with new events.
    #[arg(short = 'f', long)]
    follow: bool,
    /// Only these kinds, such as job.ended or job.*.
    #[arg(long, value_name = "KINDS")]
    kind: Option<String>,
    /// Only events of these definitions.
    #[arg(long, value_name = "NAMES", add = crate::completions::definitions())]
    name: Option<String>,
    /// Only events after which the job or worker is in one of these states.
    #[arg(long, value_name = "STATES")]
    state: Option<String>,
    /// Only events of this worker: its name or id.
    #[arg(long, value_name = "WORKER", add = crate::completions::workers())]
    worker: Option<String>,
    /// Only events of this batch.
    #[arg(long, value_name = "ID")]
    batch: Option<u64>,
    /// Only events of this job on several workers, and of its members.
    #[arg(long, value_name = "ID")]
    member_of: Option<u64>,
    /// Start with this number of the last events [default: 100, or 0 with --follow].
    #[arg(long, value_name = "COUNT", conflicts_with = "after")]
    tail: Option<u32>,
    /// Start after this event.
    #[arg(long, value_name = "EVENT")]
    after: Option<String>,
}

/// Shows events.
pub(crate) async fn events(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let mut resume = ResumeState { last: flags.after.clone(), ..ResumeState::default() };
    if flags.common.format == Format::Csv {
        print_record(&["id", "at", "kind", "subject"].map(str::to_owned))?;
    }
    loop {
        let opened_at = Instant::now();
        let Err(error) = print_response(&api, &flags, &mut resume).await else { return Ok(()) };
        if !flags.follow || !resume.was_connected {
            return Err(error);
        }
        if opened_at.elapsed() >= STABLE_AFTER {
            resume.outage.end();
        }
        if let Some(error) = skip_gone(error, &mut resume) {
            resume.outage.retry_or_fail(error, Awaited::Nothing)?;
            tokio::time::sleep(resume.outage.growing_pause(PAUSE_MIN, PAUSE_MAX)).await;
        }
    }
}

/// The state that survives broken connections.
#[derive(Debug, Default)]
struct ResumeState {
    /// Id of the last event or position.
    last: Option<String>,
    /// The server was reached before.
    was_connected: bool,
    /// The failed connections since the last sign of the server.
    outage: Outage,
}

/// Continues after missing events, with a note; all other errors are returned.
fn skip_gone(error: anyhow::Error, resume: &mut ResumeState) -> Option<anyhow::Error> {
    let problem = error.downcast_ref::<Failure>().and_then(Failure::document);
    let gone = problem.filter(|problem| problem["code"] == "events_gone");
    let Some(next) = gone.and_then(|problem| problem["last_event_id"].as_str()).map(str::to_owned) else {
        return Some(error);
    };
    screen::note("longshore: some events are missing: the server was restarted, or keeps them no more");
    resume.last = Some(next);
    None
}

/// Prints the events of one response.
async fn print_response(api: &Api, flags: &Flags, resume: &mut ResumeState) -> anyhow::Result<()> {
    let tail = flags.tail.or((!flags.follow).then_some(TAIL)).filter(|_| resume.last.is_none());
    let query = [
        ("kind", flags.kind.clone()),
        ("name", flags.name.clone()),
        ("state", flags.state.clone()),
        ("worker", flags.worker.clone()),
        ("batch", flags.batch.map(|batch| batch.to_string())),
        ("member_of", flags.member_of.map(|parent| parent.to_string())),
        ("tail", tail.map(|count| count.to_string())),
        ("after", resume.last.clone()),
        ("follow", (!flags.follow).then(|| "0".to_owned())),
    ];
    let query: Vec<_> = query.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let request = api.request(Method::GET, &["api", "events"]).header(ACCEPT, "text/event-stream");
    let mut events = Events::of(api, api.send(request.query(&query)).await?)?;
    resume.was_connected = true;
    while let Some(event) = events.next().await? {
        match event.name.as_str() {
            "change" => print(api, flags.common.format, &event.read(api)?)?,
            "leaving" => return Err(unavailable("the server is shutting down")),
            "gone" => return Err(unavailable("events came faster than they could be printed")),
            _ => {}
        }
        if event.id.is_some() {
            resume.last = event.id;
            resume.outage.end();
        }
    }
    if flags.follow { Err(unavailable("the events ended early")) } else { Ok(()) }
}

fn print(api: &Api, format: Format, json: &Value) -> anyhow::Result<()> {
    match format {
        Format::Json | Format::Ndjson => screen::line(&json.to_string()),
        Format::Table | Format::Wide => screen::line(&screen::visible(&told(&parse(api, json)?))),
        Format::Name => screen::line(&screen::visible(&parse::<CommittedEvent>(api, json)?.id)),
        Format::Csv => {
            let event: CommittedEvent = parse(api, json)?;
            let cells = [event.id.clone(), event.at.to_string(), event.kind.to_string(), subject(&event)];
            print_record(&cells)
        }
    }
}

/// Prints a line of CSV.
fn print_record(cells: &[String]) -> anyhow::Result<()> {
    let record = records::record(cells.iter().map(|cell| records::cell(cell)));
    screen::records(record.as_bytes(), &mut Utf8Stream::default())
}

/// An event as a line.
fn told(event: &CommittedEvent) -> String {
    let (kind, what) = (event.kind.as_ref(), subject(event));
    let by = event.by.as_ref().map(|by| format!(", by {by}")).unwrap_or_default();
    format!("{}  {kind:<20}  {what}{by}", event.at)
}

fn subject(event: &CommittedEvent) -> String {
    let attempt = event.attempt.as_ref();
    let on = attempt.map(|attempt| format!(", on {}", attempt.worker.name)).unwrap_or_default();
    if let Some(job) = &event.job {
        let outcome = attempt.and_then(|attempt| attempt.outcome.as_deref()).map(view::in_words);
        let detail = if event.kind.starts_with("attempt.") { outcome } else { Some(job.state.to_string()) };
        let exit = job.exit_code.filter(|code| *code != 0).map(|code| format!(", exit {code}"));
        // The job of an attempt that ended mostly goes on, so only the attempt has a reason.
        let own =
            attempt.map(|attempt| attempt.message.as_str()).filter(|_| event.kind.starts_with("attempt."));
        let reason = own.filter(|reason| !reason.is_empty()).unwrap_or(&job.reason);
        let reason = Some(reason).filter(|reason| !reason.is_empty() && exit.is_none());
        let reason = reason.map(|reason| format!(": {reason}"));
        let rest = [exit, reason].into_iter().flatten().collect::<String>();
        return format!("{} {}: {}{rest}{on}", job.name, job.id, detail.unwrap_or_default());
    }
    if let Some(batch) = &event.batch {
        let name = batch.name.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        return format!("batch {} with {}{name}", batch.batch, screen::counted(batch.count, "job"));
    }
    if let Some(fire) = &event.fire {
        let name = event.name.as_deref().unwrap_or_default();
        let why = fire.reason.as_ref().map(|why| format!(": {}", view::in_words(why))).unwrap_or_default();
        let job = fire.job.map(|job| format!(", job {job}")).unwrap_or_default();
        return format!("{name}/{} slot {}{why}{job}", fire.schedule, fire.to);
    }
    if let Some(expectation) = &event.expectation {
        let name = event.name.as_deref().unwrap_or_default();
        let job = expectation.slow_job.map(|job| format!(", job {job}")).unwrap_or_default();
        return format!("{name}: {}{job}", expectation.condition);
    }
    if let Some(schedules) = &event.schedules {
        let id = schedules.id.as_ref().map(|id| format!("/{id}")).unwrap_or_default();
        let why = event.pause.as_ref().map(|pause| pause.why()).unwrap_or_default();
        return format!("{}{id}{why}", schedules.name.as_deref().unwrap_or("all schedules"));
    }
    if let Some(pause) = &event.pause {
        let what = match (pause.of.as_ref(), &pause.name) {
            ("group", Some(name)) => format!("group {name}"),
            ("batch", _) => pause.words(),
            (_, Some(name)) => name.clone(),
            (_, None) => "all jobs and schedules".to_owned(),
        };
        return format!("{what}{}", pause.why());
    }
    if let Some(definition) = &event.definition {
        return format!("{} is now revision {:.12}", definition.name, definition.revision);
    }
    if let Some(worker) = &event.worker {
        let cordoned = if worker.cordoned { ", cordoned" } else { "" };
        let why = worker.cordon.as_ref().map(|cordon| cordon.why()).unwrap_or_default();
        let ended = event.cordon_ended.map(|until| format!(": its cordon was until {until}"));
        return format!("{}: {}{cordoned}{why}{}", worker.name, worker.state, ended.unwrap_or_default());
    }
    if let Some(worker) = &event.forgotten {
        return worker.name.clone();
    }
    let said = event.said.as_ref().map(|said| format!(": {said}")).unwrap_or_default();
    let job = event.job_id.map(|job| format!("job {job}")).unwrap_or_default();
    format!("{job}{said}{on}")
}

fn unavailable(why: &str) -> anyhow::Error {
    Failure::new(Exit::Unavailable, why).hint("try again").into()
}

/// Events of a run that does not follow.
const TAIL: u32 = 100;
/// The first pause before the server is asked again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A connection that lasted longer than this counts as working.
const STABLE_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(event: Value) -> String {
        let mut whole = json!({ "id": "3.1.1", "at": "2026-01-01T00:00:00.000Z", "kind": "x.y" });
        whole.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        told(&serde_json::from_value(whole).unwrap())
    }

    #[test]
    fn each_object_has_its_line() {
        let job = json!({ "id": 12, "name": "resize", "state": "failed", "created_at": "2026-01-01T00:00:00.000Z", "exit_code": 3 });
        let attempt = json!({ "number": 1, "worker": { "id": 1, "name": "w1" }, "outcome": "timed_out" });
        let ended = json!({ "kind": "job.ended", "job": job, "attempt": attempt, "by": "ann" });
        assert_eq!(
            line(ended),
            "2026-01-01T00:00:00.000Z  job.ended             resize 12: failed, exit 3, on w1, by ann"
        );
        for (event, expected) in [
            (
                json!({ "kind": "attempt.ended", "job": job, "attempt": attempt }),
                "resize 12: timed out, exit 3, on w1",
            ),
            (
                json!({ "kind": "attempt.lost", "job": { "id": 13, "name": "report", "state": "scheduled", "created_at": "2026-01-01T00:00:00.000Z" },
                    "attempt": { "number": 1, "worker": { "id": 2, "name": "w2" }, "outcome": "lost", "message": "no report for 60 s" } }),
                "attempt.lost          report 13: lost: no report for 60 s, on w2",
            ),
            (
                json!({ "batch": { "batch": 5, "count": 3, "name": "resize" } }),
                "batch 5 with 3 jobs of resize",
            ),
            (json!({ "schedules": {} }), "all schedules"),
            (json!({ "schedules": { "name": "a", "id": "b" } }), "a/b"),
            (json!({ "kind": "definition.paused", "pause": { "of": "definition", "name": "a" } }), "  a"),
            (json!({ "kind": "definition.resumed", "pause": { "of": "group", "name": "g" } }), "  group g"),
            (json!({ "kind": "definition.paused", "pause": { "of": "server" } }), "  all jobs and schedules"),
            (json!({ "kind": "batch.resumed", "pause": { "of": "batch", "batch": 17 } }), "  batch 17"),
            (
                json!({ "kind": "schedule.paused", "schedules": { "name": "a" },
                    "pause": { "of": "schedule", "name": "a", "by": "anna", "reason": "moved" } }),
                "  a by anna: moved",
            ),
            (json!({ "forgotten": { "id": 3, "name": "w3" } }), "w3"),
            (
                json!({ "definition": { "name": "a", "revision": "0123456789abcdef" } }),
                "a is now revision 0123456789ab",
            ),
            (json!({ "job_id": 7, "said": "exit 0", "attempt": attempt }), "job 7: exit 0, on w1"),
        ] {
            assert!(line(event.clone()).ends_with(expected), "{}", line(event));
        }
    }
}
