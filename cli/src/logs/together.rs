//! Prints the output of several jobs as they run, each line with its job, until all have ended: the jobs of a batch, or the members of a job on
//! several workers.
//!
//! Events tell which jobs start. The list of jobs is read once at each connection, after the events have begun, so no start is missed.
//! At most [`STREAMS_MAX`] outputs are read at once; jobs that start meanwhile follow in the order of their starts, with all of their
//! output.

use std::collections::{BTreeSet, VecDeque};

use reqwest::Method;
use reqwest::header::ACCEPT;
use serde_json::Value;
use server::http::present::shapes::CommittedEvent;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

use super::member::{self, Member};
use super::{LogRequest, ReportedEnds, show};
use crate::api::{Api, parse};
use crate::failure::{Exit, Failure};
use crate::jobs;
use crate::outage::{Awaited, Outage};
use crate::screen;
use crate::sse::Events;
use crate::view::{self, BatchSummary, JobView as _};

/// Jobs whose output is printed together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Together {
    /// This number of jobs of a batch, from its first one on.
    Batch(u64, u32),
    /// The members of a job on several workers.
    MembersOf(u64),
}

impl Together {
    /// The batch or the parent, which ends after all of the jobs.
    const fn id(self) -> u64 {
        match self {
            Self::Batch(id, _) | Self::MembersOf(id) => id,
        }
    }

    /// The selected job has output of its own. A parent starts with its first member, and has none.
    const fn has(self, job: u64) -> bool {
        match self {
            Self::Batch(..) => true,
            Self::MembersOf(parent) => job != parent,
        }
    }

    /// The query parameter that selects its jobs and events.
    fn selection(self) -> (&'static str, String) {
        let key = match self {
            Self::Batch(..) => "batch",
            Self::MembersOf(_) => "member_of",
        };
        (key, self.id().to_string())
    }

    /// The events that tell of starts and of the end.
    const fn kinds(self) -> &'static str {
        match self {
            Self::Batch(..) => "job.started,batch.ended",
            Self::MembersOf(_) => "job.started,job.ended",
        }
    }

    const fn awaited(self) -> Awaited {
        match self {
            Self::Batch(id, _) => Awaited::FollowedBatch(id),
            Self::MembersOf(id) => Awaited::Job(id),
        }
    }

    /// Attempts belong to one job.
    fn refuse_attempt(self, wanted: &LogRequest) -> Result<(), Failure> {
        let id = self.id();
        if wanted.attempt.is_none() {
            return Ok(());
        }
        let text = format!("job {id} runs on several workers: --attempt is for one of its members");
        Err(Failure::new(Exit::Usage, text).hint(format!("'longshore ls --member-of {id}' lists them")))
    }

    /// Gives its jobs names for their lines.
    fn names(self) -> impl Fn(u64) -> Member {
        let columns = match self {
            Self::Batch(first, count) => member::columns_of_batch(first, count.into()),
            Self::MembersOf(_) => Default::default(),
        };
        move |job| match self {
            Self::Batch(first, _) => Member::of_batch(job, first, &columns),
            Self::MembersOf(parent) => Member::of_parent(job, parent, &columns),
        }
    }

    /// The batch or the parent as JSON, and whether it has ended.
    async fn read(self, api: &Api) -> anyhow::Result<(Value, bool)> {
        let kind = match self {
            Self::Batch(..) => "batches",
            Self::MembersOf(_) => "jobs",
        };
        let json = api.json(api.get(&["api", kind, &self.id().to_string()])).await?;
        let has_ended = match self {
            Self::Batch(..) => parse::<BatchSummary>(api, &json)?.ended_at.is_some(),
            Self::MembersOf(_) => parse::<view::Job>(api, &json)?.has_ended(),
        };
        Ok((json, has_ended))
    }

    /// The jobs that have started so far, in order.
    async fn started(self, api: &Api) -> anyhow::Result<Vec<u64>> {
        let (jobs, _) = jobs::fetch_jobs(api, &[self.selection()], usize::MAX).await?;
        let started = jobs.iter().rev().filter(|job| job["attempt_count"].as_u64() > Some(0));
        started.map(|job| jobs::job_id(api, job)).collect()
    }
}

/// Prints what the jobs have written so far, one after the other.
pub(super) async fn show_together(api: &Api, wanted: &LogRequest, together: Together) -> anyhow::Result<()> {
    together.refuse_attempt(wanted)?;
    let started = together.started(api).await?;
    if started.is_empty() {
        screen::note(&format!("longshore: no member of job {} has started", together.id()));
    }
    let name = together.names();
    for job in &started {
        show(api, &wanted.of_member(name(*job)), false, &ReportedEnds::default()).await?;
    }
    Ok(())
}

/// Prints the output of all jobs until their end, and returns the JSON of the ended batch or parent.
pub(crate) async fn follow_together(
    api: &Api,
    wanted: &LogRequest,
    together: Together,
) -> anyhow::Result<Value> {
    together.refuse_attempt(wanted)?;
    let wanted = LogRequest { from_first: !wanted.skips_beginning(), prints_end: true, ..wanted.clone() };
    let name = together.names();
    let (found, mut started) = mpsc::channel(STREAMS_MAX);
    // Dropping the sets at an error ends their tasks.
    let mut watch = JoinSet::new();
    watch.spawn(watch_starts(api.clone(), together, found));
    let mut streams = JoinSet::new();
    let (mut seen, mut waiting, mut may_come) = (BTreeSet::new(), VecDeque::new(), true);
    let (mut ended, mut is_told) = (None, false);
    while ended.is_none() || may_come || !streams.is_empty() {
        tokio::select! {
            job = started.recv(), if may_come => match job {
                Some(job) if seen.insert(job) => waiting.push_back(job),
                Some(_) => {}
                None => may_come = false,
            },
            Some(watched) = watch.join_next() => ended = Some(watched??),
            Some(printed) = streams.join_next() => printed??,
        }
        while streams.len() < STREAMS_MAX
            && let Some(job) = waiting.pop_front()
        {
            streams.spawn(print_job(api.clone(), wanted.of_member(name(job))));
        }
        // A job keeps its place until it ends, also while it waits for another try.
        if !waiting.is_empty() && !is_told {
            is_told = true;
            let text = format!(
                "longshore: at most {STREAMS_MAX} members are shown at once; others follow as these end"
            );
            screen::note(&text);
        }
    }
    ended.ok_or_else(|| api.unexpected_response().into())
}

async fn print_job(api: Api, wanted: LogRequest) -> anyhow::Result<()> {
    match show(&api, &wanted, true, &ReportedEnds::default()).await {
        Err(error) if error.downcast_ref::<Failure>().is_some_and(|it| it.exit == Exit::NotFound) => {
            screen::note(&format!("longshore: {error:#}"));
            Ok(())
        }
        printed => printed.map(drop),
    }
}

/// Sends the jobs that have started, each at least once, and returns the batch or parent after its end.
async fn watch_starts(api: Api, together: Together, found: mpsc::Sender<u64>) -> anyhow::Result<Value> {
    let mut outage = Outage::default();
    loop {
        let opened_at = Instant::now();
        match watch_once(&api, together, &found, &mut outage).await {
            Ok(ended) => return Ok(ended),
            Err(error) => outage.retry_or_fail(error, together.awaited())?,
        }
        sleep(PAUSE.saturating_sub(opened_at.elapsed())).await;
    }
}

async fn watch_once(
    api: &Api,
    together: Together,
    found: &mpsc::Sender<u64>,
    outage: &mut Outage,
) -> anyhow::Result<Value> {
    let query = [together.selection(), ("kind", together.kinds().to_owned())];
    let request = api.request(Method::GET, &["api", "events"]).header(ACCEPT, "text/event-stream");
    let mut events = Events::of(api, api.send(request.query(&query)).await?)?;
    send(found, together.started(api).await?).await?;
    // The first event is the position from which on they come, and the next ones come every 15 seconds: an end is never waited for in vain.
    while let Some(event) = events.next().await? {
        outage.end();
        let change: Option<CommittedEvent> = match event.name.as_str() {
            "change" => Some(event.read(api)?),
            "leaving" | "gone" => break,
            _ => None,
        };
        match change.map(|change| (change.kind, change.job)) {
            Some((kind, Some(job))) if kind == "job.started" && together.has(job.id) => {
                send(found, vec![job.id]).await?;
            }
            // A member has ended.
            Some((_, Some(job))) if job.id != together.id() => {}
            _ => {
                let (json, has_ended) = together.read(api).await?;
                if has_ended {
                    // The list was read before the end.
                    send(found, together.started(api).await?).await?;
                    return Ok(json);
                }
            }
        }
    }
    Err(Failure::new(Exit::Unavailable, "the events ended early").hint("try again").into())
}

/// The receiver is gone only if the program ends.
async fn send(found: &mpsc::Sender<u64>, jobs: Vec<u64>) -> anyhow::Result<()> {
    for job in jobs {
        found.send(job).await.map_err(|_| Failure::silent(Exit::Failed))?;
    }
    Ok(())
}

/// Outputs that are read at once: more than a screen can show, and few connections for the server.
const STREAMS_MAX: usize = 16;
/// Between two connections.
const PAUSE: Duration = Duration::from_secs(1);
