//! `longshore wait`: waits until jobs and batches have ended, prints a line for each end, and says by its exit code how they ended.
//!
//! Each wait is a request that the server answers at the end, so a server that is restarted meanwhile only delays it. The jobs go on
//! whatever becomes of the verb.

mod contact;
mod subject_ref;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use self::contact::Contact;
use self::subject_ref::SubjectRef;
use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure, exit_of};
use crate::outage::{Awaited, Outage};
use crate::progress::BatchView as _;
use crate::screen::{self, Format};
use crate::view::{self, BatchSummary, JobView as _};
use crate::{batches, duration, records};

/// Wait until jobs and batches have ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore wait 12                        until job 12 has ended
  longshore wait 12 13 batch:100           until both jobs and all members of batch 100 have ended
  longshore wait '100[0-9]'                until the first ten members of batch 100 have ended
  longshore wait 12 --timeout 10m          at most ten minutes; the job goes on then
  longshore wait $(longshore ls -q --label team=web --state queued,running) -o ndjson

A line is printed at each end. The exit code is 0 if all succeeded, else that of the first ID of
the command line that did not: the exit code of a job, as with 'run --wait'; 1 for a batch, and for
a job that ended without one (cancelled, lost, …). It is 124 when the time is up, and 6 when the
server was away for 15 minutes, or from the start until the time of --timeout was up. What has not
ended goes on then, as after Ctrl-C.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Ids of jobs; batch:100 is the batch whose first job is 100, and `100[3]`, `100[3-9]` and `100[3,7]` are members of it by their
    /// index. Quote them: shells expand brackets.
    #[arg(required = true, value_name = "ID", value_parser = subject_ref::parse)]
    ids: Vec<SubjectRef>,
    /// Wait at most this long (90s, 10m, 2h).
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,
}

/// A job or a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Job(u64),
    Batch(u64),
}

impl Subject {
    const fn path(self) -> (&'static str, u64) {
        match self {
            Self::Job(id) => ("jobs", id),
            Self::Batch(id) => ("batches", id),
        }
    }

    /// How it ended, if it has.
    fn end(self, api: &Api, json: &Value) -> anyhow::Result<Option<End>> {
        Ok(match self {
            Self::Job(id) => {
                let job: view::Job = parse(api, json)?;
                let text = format!("job {id} {}", screen::visible(&job.end_text()));
                job.has_ended().then(|| End { text, failure: job.failure_exit() })
            }
            Self::Batch(id) => {
                let batch: BatchSummary = parse(api, json)?;
                let text = format!("batch {id} {}: {}", batches::state_text(&batch), batch.members_text());
                let failure = (batch.state != "succeeded").then_some(Exit::Failed);
                batch.ended_at.is_some().then_some(End { text, failure })
            }
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(id) => write!(f, "job {id}"),
            Self::Batch(id) => write!(f, "batch {id}"),
        }
    }
}

/// The end of a job or batch.
#[derive(Debug)]
struct End {
    /// One line for people.
    text: String,
    /// The exit code of a verb that waited for it; `None` if it succeeded.
    failure: Option<Exit>,
}

/// A job or batch of the command line, and what is known of it.
struct Waited {
    subject: Subject,
    end: Option<End>,
    /// The JSON of the server: as it ended, or as it was when the time was up.
    json: Option<Value>,
}

/// Waits until all have ended.
pub(crate) async fn wait(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let mut outage = Outage::before_first_answer(flags.timeout);
    let subjects = tokio::select! {
        // Its signal handler is there before the first note.
        biased;
        _ = tokio::signal::ctrl_c() => return Err(Failure::silent(Exit::Interrupted).into()),
        subjects = subject_ref::resolve(&api, &flags.ids, &mut outage) => subjects?,
    };
    let ends = Ends {
        format: flags.common.format,
        quiet: false,
        names_unended: false,
        limit: flags.timeout,
        exit_when_up: Exit::TimedOut,
        outage,
    };
    ends.wait(&api, subjects.into_iter()).await
}

/// A wait for the ends of jobs and batches.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) format: Format,
    /// Prints nothing for people.
    pub(crate) quiet: bool,
    /// Formats for programs also show what has not ended when the wait is broken off: the caller may not know the ids.
    pub(crate) names_unended: bool,
    /// Waits at most this long since the start of the verb, which the outage knows.
    pub(crate) limit: Option<Duration>,
    /// The exit code when the time is up.
    pub(crate) exit_when_up: Exit,
    /// It says whether the server has answered before.
    pub(crate) outage: Outage,
}

impl Ends {
    /// Waits until all have ended, and prints each end.
    ///
    /// # Errors
    /// One did not succeed, the time is up, or the server was away for too long.
    pub(crate) async fn wait(self, api: &Api, subjects: impl Iterator<Item = Subject>) -> anyhow::Result<()> {
        let format = self.format;
        let mut known = HashSet::new();
        let mut all: Vec<Waited> = subjects
            .filter(|subject| known.insert(*subject))
            .map(|subject| Waited { subject, end: None, json: None })
            .collect();
        let (limit, left) = (self.limit, self.outage.left());
        let is_up = async {
            match left {
                Some(left) => sleep(left).await,
                None => std::future::pending().await,
            }
        };
        let awaited = match &all[..] {
            [Waited { subject: Subject::Job(id), .. }] => Awaited::Job(*id),
            [Waited { subject: Subject::Batch(id), .. }] => Awaited::Batch(*id),
            _ => Awaited::Several,
        };
        let contact = Arc::new(Contact::new(self.outage, awaited));
        let output = (format, self.quiet);
        let waited = tokio::select! {
            // Its signal handler is there before the first note.
            biased;
            _ = tokio::signal::ctrl_c() => Err(Failure::silent(Exit::Interrupted).into()),
            waited = wait_for_all(api, &mut all, output, &contact) => waited,
            () = is_up => Err(Failure::silent(Exit::TimedOut).into()),
        };
        let waited = match waited {
            // Without an answer it is not known that anything goes on. A server that answers late is none that is away.
            Err(error) if exit_of(&error) == Exit::TimedOut => Err(contact.take_failure().unwrap_or(error)),
            waited => waited,
        };
        let stopped_by = waited.as_ref().err().map(exit_of);
        if stopped_by == Some(Exit::TimedOut) {
            read_unended(api, format, &mut all).await?;
        } else if stopped_by.is_some() && self.names_unended {
            name_unended(format, &mut all)?;
        }
        print_records(format, &all)?;
        note_first_of_batch(&all);
        match (stopped_by, limit) {
            (Some(Exit::TimedOut), Some(limit)) => {
                let text = format!("the time of {limit:?} is up: {}", unended_text(&all));
                Err(Failure::new(self.exit_when_up, text).into())
            }
            (Some(Exit::Interrupted), _) => {
                screen::note(&format!("longshore: {}", unended_text(&all)));
                waited
            }
            _ => {
                waited?;
                let failure = all.iter().find_map(|waited| waited.end.as_ref()?.failure);
                failure.map_or(Ok(()), |exit| Err(Failure::silent(exit).into()))
            }
        }
    }
}

/// Waits for all ends, and prints each, unless it is quiet.
///
/// # Errors
/// The server refused a request, or was away for too long.
///
/// # Cancel safety
/// The ends so far are in `all`, and are printed.
async fn wait_for_all(
    api: &Api,
    all: &mut [Waited],
    (format, quiet): (Format, bool),
    contact: &Arc<Contact>,
) -> anyhow::Result<()> {
    let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
    let mut waits = JoinSet::new();
    for (position, waited) in all.iter().enumerate() {
        let (api, contact, permits, subject) =
            (api.clone(), Arc::clone(contact), permits.clone(), waited.subject);
        waits.spawn(async move {
            let _permit = permits.acquire_owned().await;
            (position, wait_for_end(&api, subject, &contact).await)
        });
    }
    while let Some(ended) = waits.join_next().await {
        let (position, ended) = ended?;
        let (json, end) = ended?;
        match format {
            Format::Table | Format::Wide if quiet => {}
            Format::Table | Format::Wide => screen::line(&end.text)?,
            Format::Ndjson => screen::line(&json.to_string())?,
            Format::Json | Format::Csv | Format::Name => {}
        }
        all[position] = Waited { subject: all[position].subject, end: Some(end), json: Some(json) };
    }
    Ok(())
}

/// Waits for one end.
async fn wait_for_end(api: &Api, subject: Subject, contact: &Contact) -> anyhow::Result<(Value, End)> {
    let (kind, id) = subject.path();
    let mut has_failed = false;
    loop {
        let (asked_at, mut pause) = (Instant::now(), PAUSE);
        // After a failure the server answers at once, which shows that it is back: a wait would not for a minute.
        let wait = (!has_failed).then_some([("wait", WAIT)]);
        let request = api.get(&["api", kind, &id.to_string()]).query(&wait);
        match api.json(request).await {
            Ok(json) => {
                contact.end_outage();
                if let Some(end) = subject.end(api, &json)? {
                    return Ok((json, end));
                }
                if std::mem::take(&mut has_failed) {
                    continue;
                }
            }
            Err(error) => match (subject, exit_of(&error)) {
                (Subject::Job(id), Exit::NotFound) => return Err(with_batch_hint(api, id, error).await),
                _ => {
                    has_failed = true;
                    pause = pause.max(contact.retry_or_fail(error)?);
                }
            },
        }
        // A server that is stopping or busy answers at once.
        sleep(pause.saturating_sub(asked_at.elapsed())).await;
    }
}

/// Adds a hint to the error about a job that does not exist, if a batch has its number.
async fn with_batch_hint(api: &Api, id: u64, error: anyhow::Error) -> anyhow::Error {
    let is_batch = api.json(api.get(&["api", "batches", &id.to_string()])).await.is_ok();
    match error.downcast::<Failure>() {
        Ok(failure) if is_batch => {
            failure.hint(format!("batch {id} exists: longshore wait batch:{id}")).into()
        }
        Ok(failure) => failure.into(),
        Err(error) => error,
    }
}

/// Says that the only job that was waited for is the first one of a batch, whose number people may have meant.
fn note_first_of_batch(all: &[Waited]) {
    let [Waited { subject: Subject::Job(id), json: Some(json), .. }] = all else { return };
    if json["batch"] == *id {
        screen::note(&format!(
            "longshore: job {id} is only the first one of batch {id}; for all of them: longshore wait batch:{id}"
        ));
    }
}

/// Reads what has not ended when the time is up, in formats for programs.
async fn read_unended(api: &Api, format: Format, all: &mut [Waited]) -> anyhow::Result<()> {
    if format.is_text() {
        return Ok(());
    }
    let is_up_at = Instant::now() + READ_TIMEOUT;
    for waited in all.iter_mut().filter(|waited| waited.end.is_none()) {
        let (kind, id) = waited.subject.path();
        let left = is_up_at.saturating_duration_since(Instant::now());
        let read = timeout(left, api.json(api.get(&["api", kind, &id.to_string()]))).await;
        let json = read.ok().and_then(Result::ok).unwrap_or_else(|| json!({ "id": id }));
        if format == Format::Ndjson {
            screen::line(&json.to_string())?;
        }
        waited.json = Some(json);
    }
    Ok(())
}

/// Puts the id for what has not ended, in formats for programs.
fn name_unended(format: Format, all: &mut [Waited]) -> anyhow::Result<()> {
    for waited in all.iter_mut().filter(|waited| waited.end.is_none()) {
        let json = json!({ "id": waited.subject.path().1 });
        if format == Format::Ndjson {
            screen::line(&json.to_string())?;
        }
        waited.json = Some(json);
    }
    Ok(())
}

/// Prints what is known, in the order of the command line. `ndjson` was printed before, in the order of the ends.
fn print_records(format: Format, all: &[Waited]) -> anyhow::Result<()> {
    let known: Vec<Value> = all.iter().filter_map(|waited| waited.json.clone()).collect();
    if known.is_empty() || format == Format::Ndjson {
        return Ok(());
    }
    records::print(format, &Value::Array(known), "id").map(drop)
}

/// Names the jobs and batches that have not ended: `job 12, job 13 and 40 more have not ended, and continue`.
fn unended_text(all: &[Waited]) -> String {
    let unended: Vec<Subject> =
        all.iter().filter(|waited| waited.end.is_none()).map(|waited| waited.subject).collect();
    let mut names: Vec<String> = unended.iter().take(NAMES_MAX).map(Subject::to_string).collect();
    if unended.len() > NAMES_MAX {
        names.push(format!("{} more", unended.len() - NAMES_MAX));
    }
    match (names.pop(), names.as_slice()) {
        (None, _) => "all have ended".to_owned(),
        (Some(one), []) => format!("{one} has not ended, and continues"),
        (Some(last), others) => format!("{} and {last} have not ended, and continue", others.join(", ")),
    }
}

/// Requests that wait at once. The next job or batch is asked for when one of these has ended.
const REQUESTS_MAX: usize = 64;
/// The server waits this long for an end; less than the read timeout.
const WAIT: &str = "60s";
/// Between requests that the server answered at once.
const PAUSE: Duration = Duration::from_secs(1);
/// For all answers after the time is up.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Names in a message; the rest is counted.
const NAMES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_a_few_and_counts_the_rest() {
        let waited = |id| Waited { subject: Subject::Job(id), end: None, json: None };
        let text = |count| unended_text(&(1..=count).map(waited).collect::<Vec<_>>());
        assert_eq!(text(1), "job 1 has not ended, and continues");
        assert_eq!(text(2), "job 1 and job 2 have not ended, and continue");
        assert_eq!(text(7), "job 1, job 2, job 3, job 4, job 5 and 2 more have not ended, and continue");
    }
}
