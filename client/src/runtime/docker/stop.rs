//! Stopping an attempt, in whatever state its container is.
//!
//! `docker stop` of a container that is made and not yet started succeeds and does nothing; of one that does not exist yet it fails. So
//! asking is repeated until the attempt has ended. Killing the CLI leaves the container; so the last step does both, and the brain
//! repeats it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::order::StopCause;
use rustix::process::Signal;
use worker::step::StopStep;

use super::attempt::Attempt;
use super::cli::CallError;
use super::container::Meaning;
use super::{Shared, blocking};
use crate::attempt_dir::Stopping;
use crate::clock;
use crate::runtime::{argv, proc};

/// Takes one step. The cause is on disk before anything is done; the one that was there first stays.
pub(super) async fn step(shared: Arc<Shared>, attempt: Arc<Attempt>, cause: StopCause, step: StopStep) {
    if attempt.has_ended() {
        return;
    }
    let dir = attempt.dir.clone();
    let stopping = Stopping { cause, at: clock::now().utc };
    let first = blocking(move || dir.record_stopping(stopping)).await.unwrap_or(stopping);
    attempt.stopping.send_if_modified(|stopping| stopping.replace(first).is_none());
    match step {
        StopStep::Ask { grace } => ask(&shared, &attempt, grace).await,
        StopStep::Kill => kill(&shared, &attempt).await,
        StopStep::Remove => remove(&shared, &attempt).await,
    }
}

async fn ask(shared: &Shared, attempt: &Attempt, grace: Duration) {
    if attempt.being_asked.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut ended = attempt.ended.subscribe();
    let seconds = argv::seconds(grace).to_string();
    let limit = grace.saturating_add(PATIENCE);
    loop {
        let stop = async {
            match container_of(shared, attempt).await? {
                Some(id) => shared.cli.call(["stop", "-t", &seconds, "--", &id], limit).await.map(drop),
                None => Ok(()),
            }
        };
        let answer = tokio::select! {
            _ = ended.wait_for(|it| *it) => return,
            answer = stop => answer,
        };
        if let Err(error) = answer
            && !matches!(error, CallError::Slow(_))
        {
            shared.note(&error);
            shared.health.wait_until_up().await;
        }
        if tokio::time::timeout(ASK_AGAIN, ended.wait_for(|it| *it)).await.is_ok() {
            return;
        }
    }
}

async fn kill(shared: &Shared, attempt: &Attempt) {
    let killed = async {
        match container_of(shared, attempt).await? {
            Some(id) => shared.call(["kill", "--", &id]).await.map(drop),
            None => Ok(()),
        }
    };
    if let Err(error) = killed.await {
        tracing::warn!(attempt = %attempt.token(), %error, "cannot kill a container");
    }
}

/// Its container, by id, if there is one: what bears its name may be another attempt's of a store that went back in time.
async fn container_of(shared: &Shared, attempt: &Attempt) -> Result<Option<String>, CallError> {
    if let Some(id) = attempt.container() {
        return Ok(Some(id.to_owned()));
    }
    let found = shared.inspect(&[&attempt.name]).await?;
    Ok(found.into_iter().find(|it| attempt.owns(it)).map(|it| it.id))
}

async fn remove(shared: &Shared, attempt: &Attempt) {
    // The brain repeats this step every second, however long an engine that hangs takes for one.
    if attempt.being_removed.swap(true, Ordering::Relaxed) {
        return;
    }
    let watcher = *attempt.watcher();
    if let Some(pid) = watcher {
        proc::signal_group(pid, Signal::KILL);
    }
    shared.health.wait_until_up().await;
    // What ended by itself while nobody could look is told by whoever watches it; removed now, it would take its outcome with it.
    match shared.inspect(&[&attempt.name]).await {
        Ok(found) => match found.iter().find(|it| attempt.owns(it)) {
            Some(container) if container.meaning() != Meaning::Ended => {
                shared.remove_now(&container.id).await;
            }
            _ => {}
        },
        Err(error) => shared.note(&error),
    }
    attempt.being_removed.store(false, Ordering::Relaxed);
}

/// Beyond the grace, until `docker stop` is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two times of asking: a container that was not there, or not started, may be now.
const ASK_AGAIN: Duration = Duration::from_millis(250);
