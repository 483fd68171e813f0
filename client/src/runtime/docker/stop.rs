//! Stops an attempt in any state of its container.
//!
//! `docker stop` of a container that is not started yet succeeds without effect, and fails if the container does not exist yet. So it is
//! repeated until the attempt has ended. Killing the CLI leaves the container, so the last step kills the CLI and removes the container;
//! the state machine repeats that step.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::Now;
use protocol::order::StopCause;
use rustix::process::Signal;
use worker::step::StopStep;

use super::DockerState;
use super::attempt::{AtFirstStop, Attempt};
use super::cli::CallError;
use super::container::{Container, Lifecycle};
use crate::attempt_dir::Stopping;
use crate::boot::RecordedInstant;
use crate::runtime::stop_cause::record_first_stop;
use crate::runtime::{argv, process_id};

/// Takes one step. The cause is on disk before anything is done; the first cause stays.
pub(super) async fn step(
    docker: Arc<DockerState>,
    attempt: Arc<Attempt>,
    (cause, step): (StopCause, StopStep),
    at: Now,
) {
    if attempt.has_ended() {
        return;
    }
    let at = RecordedInstant::of(at);
    if !attempt.is_stopping() && at_first_stop(&docker, &attempt).await == AtFirstStop::Ended {
        // The task that watches the container reports the program's own exit. A CLI that hangs over it goes with the last step.
        attempt.set_late_stop(at);
        if step == StopStep::Remove {
            kill_cli(&attempt);
        }
        return;
    }
    record_first_stop(&attempt.dir, &attempt.stopping, &attempt.recording_turn, Stopping { cause, at }).await;
    match step {
        StopStep::Ask { grace } => ask(&docker, &attempt, grace).await,
        StopStep::Kill => kill(&docker, &attempt).await,
        StopStep::Remove => remove(&docker, &attempt).await,
    }
}

async fn ask(docker: &DockerState, attempt: &Attempt, grace: Duration) {
    if attempt.stop_in_progress.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut ended = attempt.ended.subscribe();
    let seconds = argv::seconds(grace).to_string();
    let limit = grace.saturating_add(STOP_CALL_EXTRA);
    loop {
        let stop = async {
            match container_of(docker, attempt).await? {
                Some(id) => {
                    docker.engine.cli.call(["stop", "-t", &seconds, "--", &id], limit).await.map(drop)
                }
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
            docker.engine.mark_unreachable(&error);
            docker.engine.health.wait_until_up().await;
        }
        if tokio::time::timeout(ASK_AGAIN, ended.wait_for(|it| *it)).await.is_ok() {
            return;
        }
    }
}

async fn kill(docker: &DockerState, attempt: &Attempt) {
    let killed = async {
        match container_of(docker, attempt).await? {
            Some(id) => docker.engine.call(["kill", "--", &id]).await.map(drop),
            None => Ok(()),
        }
    };
    if let Err(error) = killed.await {
        tracing::warn!(attempt = %attempt.token(), %error, "cannot kill a container; it will be removed by force");
    }
}

/// Id of its container, if there is one. Another attempt's container may have the same name if a store went back in time.
async fn container_of(docker: &DockerState, attempt: &Attempt) -> Result<Option<String>, CallError> {
    if let Some(id) = attempt.container() {
        return Ok(Some(id.to_owned()));
    }
    let found = docker.engine.inspect(&[&attempt.name]).await?;
    Ok(found.into_iter().find(|it| attempt.owns(it)).map(|it| it.id))
}

/// The container before the first stop. The engine is asked once, and all steps share the answer.
async fn at_first_stop(docker: &DockerState, attempt: &Attempt) -> AtFirstStop {
    let ask = async || {
        let found = docker.engine.inspect(&[&attempt.name]).await.unwrap_or_default();
        match found.iter().find(|it| attempt.owns(it)).map(Container::lifecycle) {
            Some(Lifecycle::Ended) => AtFirstStop::Ended,
            Some(Lifecycle::Running) => AtFirstStop::Ran,
            _ => AtFirstStop::Unknown,
        }
    };
    *attempt.at_first_stop.get_or_init(ask).await
}

fn kill_cli(attempt: &Attempt) {
    let watcher = *attempt.watcher();
    if let Some(pid) = watcher {
        process_id::signal_group(pid, Signal::KILL);
    }
}

async fn remove(docker: &DockerState, attempt: &Attempt) {
    // The state machine repeats this step every second, even if a stuck engine takes longer for one.
    if attempt.removal_in_progress.swap(true, Ordering::Relaxed) {
        return;
    }
    kill_cli(attempt);
    docker.engine.health.wait_until_up().await;
    // The watching task reports an end that came before this; a removal would destroy its exit code.
    match docker.engine.inspect(&[&attempt.name]).await {
        Ok(found) => match found.iter().find(|it| attempt.owns(it)) {
            Some(container) if container.lifecycle() != Lifecycle::Ended => {
                docker.engine.remove_now(&container.id).await;
            }
            _ => {}
        },
        Err(error) => docker.engine.mark_unreachable(&error),
    }
    attempt.removal_in_progress.store(false, Ordering::Relaxed);
}

/// Time beyond the grace until the call of `docker stop` is killed.
const STOP_CALL_EXTRA: Duration = Duration::from_secs(10);

/// Pause between two calls: the container may exist or be started by then.
const ASK_AGAIN: Duration = Duration::from_millis(250);
