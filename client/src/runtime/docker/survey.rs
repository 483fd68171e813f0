//! Finds attempts of an earlier process: directories say which were begun, Docker says which containers there are.
//!
//! A container without a directory is adopted by its labels. It gets a directory again, and its end is reported as usual.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use protocol::order::StopCause;
use protocol::report::{Availability, Foreign, OutputLengths};
use protocol::{Revision, RuntimeKind, Token};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use worker::input::{Exit, Found, Restored, RuntimeEvent};
use worker::step::Launch;

use super::attempt::Attempt;
use super::cli::CallError;
use super::container::{Container, Lifecycle};
use super::{DockerState, probe};
use crate::attempt_dir::{AttemptEnd, ProcessId, Stopping, StoredAttempt};
use crate::boot::RecordedInstant;
use crate::clock;
use crate::error_chain::error_chain;
use crate::runtime::argv::SECRETS_LABEL;
use crate::runtime::blocking::{run_blocking, try_blocking};
use crate::runtime::{Membership, Survey, process_id};

/// Looks at everything once, and watches the attempts that still run.
pub(super) async fn survey(docker: &Arc<DockerState>) -> Survey {
    let Some(membership) = docker.registry.membership() else {
        docker.registry.is_recovery_complete.store(true, Ordering::Release);
        let availability = availability(docker.engine.ping().await.map(drop));
        return Survey { availability, restored: Vec::new(), foreign: Vec::new() };
    };
    // The caller reads later events of the attempts after it has used this survey.
    let LookResult { attempts: restored, foreign, problem, reported: _reported } =
        look(docker, membership).await;
    docker.registry.is_recovery_complete.store(problem.is_none(), Ordering::Release);
    let availability = match problem {
        None => Availability::Available,
        Some(problem) => {
            docker.engine.health.set_unlisted(problem.reason_while_up());
            docker.spawn(survey_again(Arc::clone(docker)));
            Availability::Unavailable(problem.why())
        }
    };
    Survey { availability, restored, foreign }
}

/// Repeats an incomplete survey until it is complete. Attempts found before are watched already.
async fn survey_again(docker: Arc<DockerState>) {
    loop {
        docker.engine.health.wait_until_up().await;
        let Some(membership) = docker.registry.membership() else { break };
        let LookResult { attempts, foreign, problem, reported } = look(&docker, membership).await;
        if problem.is_none() || !attempts.is_empty() {
            docker.send_event(RuntimeEvent::Surveyed { attempts, foreign });
        }
        drop(reported);
        let Some(problem) = problem else { break };
        tracing::warn!(
            error = problem.why(),
            "attempts of an earlier process cannot be listed yet; trying again"
        );
        docker.engine.health.set_unlisted(problem.reason_while_up());
        tokio::time::sleep(ASK_AGAIN).await;
    }
    docker.registry.is_recovery_complete.store(true, Ordering::Release);
    docker.engine.health.set_listed();
}

/// Attempts that were not tracked before; they are now.
struct LookResult {
    attempts: Vec<Restored>,
    foreign: Vec<Foreign>,
    /// The reason why the result may be incomplete.
    problem: Option<SurveyError>,
    /// To be dropped when the attempts are reported: until then nothing else is reported about them.
    reported: DropGuard,
}

/// The reason of an incomplete survey.
enum SurveyError {
    Engine(CallError),
    AttemptStore(String),
}

impl SurveyError {
    fn why(&self) -> String {
        match self {
            Self::Engine(error) => error_chain(error),
            Self::AttemptStore(why) => why.clone(),
        }
    }

    /// The reason to report once the engine answers.
    fn reason_while_up(&self) -> String {
        match self {
            Self::Engine(_) => UNLISTED.into(),
            Self::AttemptStore(why) => why.clone(),
        }
    }
}

async fn look(docker: &Arc<DockerState>, membership: Membership) -> LookResult {
    // An attempt that is tracked before or after the lists are made is no leftover, although it may end and be forgotten in between.
    let before = docker.registry.tracked_or_being_removed();
    let containers = docker.engine.list(membership.cluster).await;
    let store = docker.store.clone();
    let entries = try_blocking(move || store.entries()).await;
    let after = docker.registry.tracked_or_being_removed();
    let is_new = |token: &Token| !before.contains(token) && !after.contains(token);

    let is_listed = containers.is_ok();
    let (containers, mut problem) = match containers {
        Ok(containers) => (containers, None),
        Err(error) => (Vec::new(), Some(SurveyError::Engine(error))),
    };
    let (mut ours, foreign) = sort(containers, membership);
    ours.retain(|token, _| is_new(token));
    let mut begun = Vec::new();
    match entries {
        Ok(entries) => {
            let is_docker = |it: &StoredAttempt| it.launch.spec.runtime == RuntimeKind::Docker;
            for entry in entries.into_iter().filter(|it| is_docker(it) && is_new(&it.launch.token)) {
                let container = ours.remove(&entry.launch.token);
                begun.push((entry, container, is_listed));
            }
            let bare = ours.into_iter().map(|(token, container)| entry_for(docker, token, container, None));
            let made: Vec<_> = stream::iter(bare).buffer_unordered(AT_ONCE).collect().await;
            for made in made {
                match made {
                    Ok(it) => begun.push(it),
                    Err(error) => problem = Some(error),
                }
            }
        }
        // Without directories, containers would be matched to the wrong attempts.
        Err(why) => problem = problem.or(Some(SurveyError::AttemptStore(why))),
    }
    let (attempts, reported) = restore_all(docker, membership, begun).await;
    LookResult { attempts, foreign, problem, reported }
}

/// Tracks and reports unknown containers of this worker. Running ones are stopped: the server was told that they are not here, and may have
/// started other attempts.
pub(super) async fn adopt(
    docker: &Arc<DockerState>,
    membership: Membership,
    leftovers: Vec<(Token, Container)>,
    foreign: Vec<Foreign>,
) {
    let mut begun = Vec::new();
    for (token, container) in leftovers {
        let runs = container.lifecycle() == Lifecycle::Running;
        let stopping =
            runs.then(|| Stopping { cause: StopCause::Superseded, at: RecordedInstant::of(clock::now()) });
        match entry_for(docker, token, container, stopping).await {
            Ok(it) => begun.push(it),
            Err(problem) => {
                tracing::error!(attempt = %token, error = problem.why(), "cannot adopt a container; trying again later")
            }
        }
    }
    let (attempts, reported) = restore_all(docker, membership, begun).await;
    if !attempts.is_empty() {
        docker.send_event(RuntimeEvent::Surveyed { attempts, foreign });
    }
    drop(reported);
}

/// Restores all at once and within one time limit, because the engine is not used before. They are watched, and their output is finished,
/// when the guard is dropped: the state machine ignores reports about attempts that it does not know yet.
async fn restore_all(
    docker: &Arc<DockerState>,
    membership: Membership,
    begun: Vec<BegunAttempt>,
) -> (Vec<Restored>, DropGuard) {
    let (until, reported) = (Instant::now() + CONCLUDE_LIMIT, CancellationToken::new());
    let restored = stream::iter(begun)
        .map(|begun| restore(Arc::clone(docker), membership, begun, until, reported.clone()));
    (restored.buffer_unordered(AT_ONCE).collect().await, reported.drop_guard())
}

/// A begun attempt: its directory, its container if there is one, and whether the engine's list was complete.
type BegunAttempt = (StoredAttempt, Option<Container>, bool);

fn sort(containers: Vec<Container>, membership: Membership) -> (HashMap<Token, Container>, Vec<Foreign>) {
    let (mut ours, mut foreign) = (HashMap::new(), Vec::new());
    for container in containers {
        match container.owner() {
            Some((_, worker, token)) if worker == membership.worker => drop(ours.insert(token, container)),
            Some((_, worker, token)) => foreign.push(Foreign { worker, token }),
            None if probe::is_probe(&container) => {}
            None => tracing::warn!(
                container = container.name(),
                "a container has invalid labels of this cluster; ignoring it"
            ),
        }
    }
    (ours, foreign)
}

/// Creates the directory of a container again.
async fn entry_for(
    docker: &DockerState,
    token: Token,
    container: Container,
    stopping: Option<Stopping>,
) -> Result<BegunAttempt, SurveyError> {
    tracing::warn!(
        container = container.name(),
        "a container has no attempt directory; adopting it by its labels"
    );
    let spec = docker.engine.spec_of(&container).await.map_err(SurveyError::Engine)?;
    let launch = Launch {
        token,
        revision: Revision::default(),
        name: container.label("definition").unwrap_or_default().into(),
        spec: spec.into(),
        overrides: None,
        time_left: container.time_left(&docker.engine.skew),
        secrets: Default::default(),
    };
    let store = docker.store.clone();
    let made = launch.clone();
    let had_secrets = container.label(SECRETS_LABEL).is_some();
    let make = move || {
        let dir = store.create(&made)?;
        if had_secrets {
            store.record_lost_secrets(&dir, token)?;
        }
        let stopping = stopping.map(|stopping| dir.record_stopping(stopping)).transpose()?;
        Ok((dir, stopping))
    };
    let (dir, stopping) = try_blocking(make).await.map_err(SurveyError::AttemptStore)?;
    let entry = StoredAttempt { dir, launch, stopping, ending: None, watcher: None, program: None };
    Ok((entry, Some(container), true))
}

async fn restore(
    docker: Arc<DockerState>,
    membership: Membership,
    (entry, container, complete): BegunAttempt,
    until: Instant,
    reported: CancellationToken,
) -> Restored {
    let StoredAttempt { dir, launch, stopping, ending, watcher, .. } = entry;
    let attempt = Arc::new(Attempt::new(launch.clone(), membership, dir, stopping));
    docker.registry.track(&attempt);
    let found = match ending {
        Some(ending) => ended(&docker, &attempt, ending).await,
        None => find(&docker, &attempt, watcher, container, complete, until).await,
    };
    match found {
        // It may be started again under the same token.
        Found::Unstarted => drop(docker.registry.untrack(attempt.token())),
        Found::Ended { output, .. } => {
            let follower = attempt.output(&docker).clone();
            docker.spawn(async move {
                reported.cancelled().await;
                follower.finish(output).await;
            });
        }
        Found::Running { .. } | Found::Unknown => {
            let watching = Arc::clone(&docker);
            docker.spawn(async move {
                reported.cancelled().await;
                attempt.watch(&watching).await;
            });
        }
    }
    Restored { launch, stopping: stopping.map(|it| it.by_uptime(clock::now())), found }
}

async fn ended(docker: &DockerState, attempt: &Attempt, ending: AttemptEnd) -> Found {
    let AttemptEnd { exit, output, usage, at } = ending;
    if output != OutputLengths::default() {
        attempt.mark_started(docker, "").await;
    }
    attempt.ended.send_replace(true);
    Found::Ended { exit, output, usage, at: at.by_uptime(clock::now()) }
}

async fn find(
    docker: &Arc<DockerState>,
    attempt: &Arc<Attempt>,
    spawned: Option<ProcessId>,
    container: Option<Container>,
    complete: bool,
    until: Instant,
) -> Found {
    *attempt.watcher() = spawned.filter(|pid| process_id::is_alive(*pid));
    // A CLI without a record is about to make a container: its starter died before it could record it.
    let has_cli = attempt.watcher().is_some() || attempt.is_being_written().await;
    let (container, complete) = match container {
        // The list is older than the end of the CLI, so the container is inspected once more. Without a CLI the answer is final.
        None if complete && !has_cli => match inspect_until(docker, attempt, until).await {
            Ok(found) => (found, true),
            Err(NoAnswer) => (None, false),
        },
        listed => (listed, complete),
    };
    let started = container.as_ref().filter(|it| it.started().is_some());
    let news = match started {
        Some(it) => Some((it.id.clone(), attempt.start_of(docker, it).await)),
        None => None,
    };
    if let Some((container, _)) = &news {
        attempt.mark_started(docker, container).await;
    }
    match container.as_ref().map(Container::lifecycle) {
        _ if !complete => Found::Unknown,
        Some(Lifecycle::Running) => {
            let (container, at) = news.unwrap_or_else(|| (String::new(), clock::now().up));
            Found::Running { container, at }
        }
        // The CLI is about to act on the container; events follow.
        _ if has_cli => Found::Unknown,
        Some(Lifecycle::Changing) => Found::Unknown,
        Some(Lifecycle::Unstarted | Lifecycle::Failed(_) | Lifecycle::Ended) => {
            attempt.conclude(docker, until).await
        }
        None if spawned.is_none() => Found::Unstarted,
        // A CLI was started, and both it and its container are gone.
        None => {
            let dir = attempt.dir.clone();
            let seen = run_blocking(move || Ok(dir.usage())).await.flatten();
            let vanished = AttemptEnd {
                exit: Exit::Vanished,
                output: OutputLengths::default(),
                usage: seen.unwrap_or_default(),
                at: RecordedInstant::of(clock::now()),
            };
            ended(docker, attempt, vanished).await
        }
    }
}

/// The engine did not answer in time.
struct NoAnswer;

/// Inspects the container; `None` if there is none.
async fn inspect_until(
    docker: &DockerState,
    attempt: &Attempt,
    until: Instant,
) -> Result<Option<Container>, NoAnswer> {
    let answer = tokio::time::timeout_at(until, docker.engine.inspect(&[&attempt.name])).await;
    let found = answer.map_err(|_| NoAnswer)?.map_err(|_| NoAnswer)?;
    Ok(found.into_iter().find(|it| attempt.owns(it)))
}

pub(super) fn availability(answer: Result<(), CallError>) -> Availability {
    match answer {
        Ok(()) => Availability::Available,
        Err(error) => Availability::Unavailable(error.with_remedy()),
    }
}

/// Pause between two questions to an engine that answers badly.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Time limit for ends that are determined during a survey; slower ones follow as events.
const CONCLUDE_LIMIT: Duration = Duration::from_secs(20);

/// Ends that are determined at the same time; each takes a few processes.
const AT_ONCE: usize = 32;

const UNLISTED: &str = "it answers again, and is being asked what it has of this worker's containers";
