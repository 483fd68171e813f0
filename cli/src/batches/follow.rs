//! `longshore batch ID --follow`: prints the output of all members as they run, each line with its job, until the batch has ended.
//!
//! Events tell which members start. The list of members is read once at each connection, after the events have begun, so no start is missed.
//! At most [`STREAMS_MAX`] outputs are read at once; members that start meanwhile follow in the order of their starts, with all of their
//! output.

use std::collections::{BTreeSet, VecDeque};

use reqwest::Method;
use reqwest::header::ACCEPT;
use serde_json::Value;
use server::http::present::shapes::CommittedEvent;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

use crate::api::{Api, parse};
use crate::failure::{Exit, Failure};
use crate::jobs;
use crate::logs::{self, LogRequest, Member};
use crate::outage::{Awaited, Outage};
use crate::progress::BatchView as _;
use crate::records;
use crate::screen::{self, Format};
use crate::sse::Events;
use crate::view::BatchSummary;

/// Follows a batch.
///
/// # Errors
/// A member did not succeed, or the server was away for too long.
pub(super) async fn follow(api: &Api, format: Format, id: u64) -> anyhow::Result<()> {
    records::refuse_records(format)?;
    let batch: BatchSummary = parse(api, &read(api, id).await?)?;
    let end = print_members(api, format, &batch);
    let ended = tokio::select! {
        ended = end => ended?,
        _ = tokio::signal::ctrl_c() => {
            screen::note(&format!("longshore: batch {id} continues; stop it with 'longshore batch {id} cancel'"));
            return Err(Failure::silent(Exit::Interrupted).into());
        }
    };
    screen::note(&format!("longshore: batch {id} {}: {}", ended.state, ended.members_text()));
    if ended.state == "succeeded" { Ok(()) } else { Err(Failure::silent(Exit::Failed).into()) }
}

/// Prints the output of all members, and returns the ended batch.
async fn print_members(api: &Api, format: Format, batch: &BatchSummary) -> anyhow::Result<BatchSummary> {
    let (first, width) = (batch.id, Member::width(batch.id, batch.count.into()));
    let (found, mut started) = mpsc::channel(STREAMS_MAX);
    // Dropping the sets at an error ends their tasks.
    let mut watch = JoinSet::new();
    watch.spawn(watch_starts(api.clone(), first, found));
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
            let member = Member { job, index: job.saturating_sub(first), width };
            streams.spawn(print_member(api.clone(), LogRequest::of_member(member, format.is_json())));
        }
        // A member keeps its place until it ends, also while it waits for another try.
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

async fn print_member(api: Api, wanted: LogRequest) -> anyhow::Result<()> {
    match logs::print_until_end(&api, &wanted).await {
        Err(error) if error.downcast_ref::<Failure>().is_some_and(|it| it.exit == Exit::NotFound) => {
            screen::note(&format!("longshore: {error:#}"));
            Ok(())
        }
        printed => printed,
    }
}

/// Sends the members that have started, each at least once, and returns the batch after its end.
async fn watch_starts(api: Api, id: u64, found: mpsc::Sender<u64>) -> anyhow::Result<BatchSummary> {
    let mut outage = Outage::default();
    loop {
        let opened_at = Instant::now();
        match watch_once(&api, id, &found, &mut outage).await {
            Ok(ended) => return Ok(ended),
            Err(error) => outage.retry_or_fail(error, Awaited::FollowedBatch(id))?,
        }
        sleep(PAUSE.saturating_sub(opened_at.elapsed())).await;
    }
}

async fn watch_once(
    api: &Api,
    id: u64,
    found: &mpsc::Sender<u64>,
    outage: &mut Outage,
) -> anyhow::Result<BatchSummary> {
    let query = [("batch", id.to_string()), ("kind", "job.started,batch.ended".to_owned())];
    let request = api.request(Method::GET, &["api", "events"]).header(ACCEPT, "text/event-stream");
    let mut events = Events::of(api, api.send(request.query(&query)).await?)?;
    send_started(api, id, found).await?;
    // The first event is the position from which on they come, and the next ones come every 15 seconds: an end is never waited for in vain.
    while let Some(event) = events.next().await? {
        outage.end();
        let change: Option<CommittedEvent> = match event.name.as_str() {
            "change" => Some(event.read(api)?),
            "leaving" | "gone" => break,
            _ => None,
        };
        match change.and_then(|change| change.job) {
            Some(job) => send(found, job.id).await?,
            None => {
                let batch: BatchSummary = parse(api, &read(api, id).await?)?;
                if batch.ended_at.is_some() {
                    // The list was read before the end.
                    send_started(api, id, found).await?;
                    return Ok(batch);
                }
            }
        }
    }
    Err(Failure::new(Exit::Unavailable, "the events ended early").hint("try again").into())
}

/// Sends all members that have started so far, in order.
async fn send_started(api: &Api, id: u64, found: &mpsc::Sender<u64>) -> anyhow::Result<()> {
    let (members, _) = jobs::fetch_jobs(api, &[("batch", id.to_string())], usize::MAX).await?;
    for member in members.iter().rev().filter(|member| member["attempt_count"].as_u64() > Some(0)) {
        send(found, jobs::job_id(api, member)?).await?;
    }
    Ok(())
}

/// The receiver is gone only if the program ends.
async fn send(found: &mpsc::Sender<u64>, job: u64) -> anyhow::Result<()> {
    found.send(job).await.map_err(|_| Failure::silent(Exit::Failed).into())
}

async fn read(api: &Api, id: u64) -> anyhow::Result<Value> {
    api.json(api.get(&["api", "batches", &id.to_string()])).await
}

/// Outputs that are read at once: more than a screen can show, and few connections for the server.
const STREAMS_MAX: usize = 16;
/// Between two connections.
const PAUSE: Duration = Duration::from_secs(1);
