//! What an earlier process of this worker has left: directories say what was begun, Docker says what became of it.
//!
//! A container without a directory (the state directory was lost, or torn) still carries its labels: it gets a directory again, and its
//! outcome is reported like any other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use protocol::order::StopCause;
use protocol::report::{Availability, Foreign, OutputLengths};
use protocol::{Revision, RuntimeKind, Token};
use tokio::time::Instant;
use worker::input::{Exit, Found, Restored, RuntimeEvent};
use worker::step::Launch;

use super::attempt::Attempt;
use super::cli::CallError;
use super::container::{Container, Meaning};
use super::{Shared, probe};
use crate::attempt_dir::{Ending, Entry, Pid, Stopping, describe};
use crate::clock;
use crate::runtime::elsewhere::tried;
use crate::runtime::{Membership, Survey, proc};

/// Looks at everything once, and goes on watching what still runs.
pub(super) async fn survey(shared: &Arc<Shared>) -> Survey {
    let Some(membership) = shared.membership() else {
        shared.surveyed.store(true, Ordering::Release);
        let availability = availability(shared.ping().await.map(drop));
        return Survey { availability, restored: Vec::new(), foreign: Vec::new() };
    };
    let Look { attempts: restored, foreign, problem } = look(shared, membership).await;
    shared.surveyed.store(problem.is_none(), Ordering::Release);
    let availability = match problem {
        None => Availability::Available,
        Some(problem) => {
            shared.health.unlisted(problem.while_it_answers());
            shared.spawn(survey_again(Arc::clone(shared)));
            Availability::Unavailable(problem.why())
        }
    };
    Survey { availability, restored, foreign }
}

/// When everything was looked at, not everything could be seen: it is looked for until it is. What was seen is watched already.
async fn survey_again(shared: Arc<Shared>) {
    loop {
        shared.health.wait_until_up().await;
        let Some(membership) = shared.membership() else { break };
        let Look { attempts, foreign, problem } = look(&shared, membership).await;
        if problem.is_none() || !attempts.is_empty() {
            shared.tell(RuntimeEvent::Surveyed { attempts, foreign });
        }
        let Some(problem) = problem else { break };
        tracing::warn!(error = problem.why(), "what an earlier process has left cannot be seen yet");
        shared.health.unlisted(problem.while_it_answers());
        tokio::time::sleep(ASK_AGAIN).await;
    }
    shared.surveyed.store(true, Ordering::Release);
    shared.health.listed();
}

/// What is there and was not in the books. It is now.
struct Look {
    attempts: Vec<Restored>,
    foreign: Vec<Foreign>,
    /// Why there may be more.
    problem: Option<Problem>,
}

/// Why not everything can be seen.
enum Problem {
    Engine(CallError),
    Ledger(String),
}

impl Problem {
    fn why(&self) -> String {
        match self {
            Self::Engine(error) => describe(error),
            Self::Ledger(why) => why.clone(),
        }
    }

    /// What is the matter as soon as the engine answers.
    fn while_it_answers(&self) -> String {
        match self {
            Self::Engine(_) => UNLISTED.into(),
            Self::Ledger(why) => why.clone(),
        }
    }
}

async fn look(shared: &Arc<Shared>, membership: Membership) -> Look {
    // Who is in the books before the lists are made, or after, is no leftover, although it may end and be forgotten in between.
    let before = shared.known();
    let containers = shared.list(membership.cluster).await;
    let ledger = shared.ledger.clone();
    let entries = tried(move || ledger.entries()).await;
    let after = shared.known();
    let is_new = |token: &Token| !before.contains(token) && !after.contains(token);

    let is_listed = containers.is_ok();
    let (containers, mut problem) = match containers {
        Ok(containers) => (containers, None),
        Err(error) => (Vec::new(), Some(Problem::Engine(error))),
    };
    let (mut ours, foreign) = sort(containers, membership);
    ours.retain(|token, _| is_new(token));
    let mut begun = Vec::new();
    match entries {
        Ok(entries) => {
            let is_docker = |it: &Entry| it.launch.spec.runtime == RuntimeKind::Docker;
            for entry in entries.into_iter().filter(|it| is_docker(it) && is_new(&it.launch.token)) {
                let container = ours.remove(&entry.launch.token);
                begun.push((entry, container, is_listed));
            }
            let bare = ours.into_iter().map(|(token, container)| entry_for(shared, token, container, None));
            let made: Vec<_> = stream::iter(bare).buffer_unordered(AT_ONCE).collect().await;
            for made in made {
                match made {
                    Ok(it) => begun.push(it),
                    Err(error) => problem = Some(error),
                }
            }
        }
        // Without their directories, containers would be taken for others than they are.
        Err(why) => problem = problem.or(Some(Problem::Ledger(why))),
    }
    Look { attempts: restore_all(shared, membership, begun).await, foreign, problem }
}

/// Takes containers of this worker into the books that nobody knew of, and tells of them. Those that run are stopped: the server has heard
/// that they are not here, and may have started another attempt.
pub(super) async fn adopt(
    shared: &Arc<Shared>,
    membership: Membership,
    leftovers: Vec<(Token, Container)>,
    foreign: Vec<Foreign>,
) {
    let mut begun = Vec::new();
    for (token, container) in leftovers {
        let runs = container.meaning() == Meaning::Running;
        let stopping = runs.then(|| Stopping { cause: StopCause::Superseded, at: clock::now().utc });
        match entry_for(shared, token, container, stopping).await {
            Ok(it) => begun.push(it),
            Err(problem) => tracing::error!(attempt = %token, error = problem.why(), "cannot be adopted"),
        }
    }
    let attempts = restore_all(shared, membership, begun).await;
    if !attempts.is_empty() {
        shared.tell(RuntimeEvent::Surveyed { attempts, foreign });
    }
}

/// Together, and no longer than one of them may take: nobody hears of this engine before.
async fn restore_all(shared: &Arc<Shared>, membership: Membership, begun: Vec<Begun>) -> Vec<Restored> {
    let until = Instant::now() + CONCLUDE_LIMIT;
    let restored = stream::iter(begun).map(|(entry, container, complete)| {
        restore(Arc::clone(shared), membership, entry, container, complete, until)
    });
    restored.buffer_unordered(AT_ONCE).collect().await
}

/// An attempt that was begun: its directory, its container if there is one, and whether that is known for certain.
type Begun = (Entry, Option<Container>, bool);

fn sort(containers: Vec<Container>, membership: Membership) -> (HashMap<Token, Container>, Vec<Foreign>) {
    let (mut ours, mut foreign) = (HashMap::new(), Vec::new());
    for container in containers {
        match container.owner() {
            Some((_, worker, token)) if worker == membership.worker => drop(ours.insert(token, container)),
            Some((_, worker, token)) => foreign.push(Foreign { worker, token }),
            None if probe::is_probe(&container) => {}
            None => tracing::warn!(container = container.name(), "has labels of ours that cannot be read"),
        }
    }
    (ours, foreign)
}

/// Gives a container its directory back.
async fn entry_for(
    shared: &Shared,
    token: Token,
    container: Container,
    stopping: Option<Stopping>,
) -> Result<Begun, Problem> {
    tracing::warn!(container = container.name(), "has no attempt directory: it is adopted by its labels");
    let spec = shared.spec_of(&container).await.map_err(Problem::Engine)?;
    let launch = Launch {
        token,
        revision: Revision::default(),
        name: container.label("definition").unwrap_or_default().into(),
        spec: spec.into(),
        body: None,
        time_left: container.time_left(&shared.skew),
    };
    let ledger = shared.ledger.clone();
    let made = launch.clone();
    let make = move || {
        let dir = ledger.create(&made)?;
        let stopping = stopping.map(|stopping| dir.record_stopping(stopping)).transpose()?;
        Ok((dir, stopping))
    };
    let (dir, stopping) = tried(make).await.map_err(Problem::Ledger)?;
    let entry = Entry { dir, launch, stopping, ending: None, watcher: None, program: None };
    Ok((entry, Some(container), true))
}

async fn restore(
    shared: Arc<Shared>,
    membership: Membership,
    entry: Entry,
    container: Option<Container>,
    complete: bool,
    until: Instant,
) -> Restored {
    let Entry { dir, launch, stopping, ending, watcher, .. } = entry;
    let attempt = Arc::new(Attempt::new(launch.clone(), membership, dir, stopping));
    shared.know(&attempt);
    let found = match ending {
        Some(ending) => ended(&shared, &attempt, ending),
        None => find(&shared, &attempt, watcher, container, complete, until).await,
    };
    if found == Found::Unstarted {
        // It may be started again, under the same token.
        shared.drop_attempt(attempt.token());
    }
    Restored { launch, stopping: stopping.map(|it| it.told(clock::now())), found }
}

fn ended(shared: &Shared, attempt: &Attempt, ending: Ending) -> Found {
    let Ending { exit, output, at } = ending;
    if output != OutputLengths::default() {
        attempt.adopt_start(shared, "");
    }
    attempt.ended.send_replace(true);
    shared.logs.finish(attempt.token(), output);
    let now = clock::now();
    Found::Ended { exit, output, at: now.up - now.utc.since(at) }
}

async fn find(
    shared: &Arc<Shared>,
    attempt: &Arc<Attempt>,
    spawned: Option<Pid>,
    container: Option<Container>,
    complete: bool,
    until: Instant,
) -> Found {
    *attempt.watcher() = spawned.filter(|pid| proc::is_alive(*pid));
    // One that was started, and its starter died before it could write that down, is about to make a container.
    let has_cli = attempt.watcher().is_some() || attempt.dir.is_being_written();
    let (container, complete) = match container {
        // The list was made before: what its CLI has done since then does not stand there. Now that it is gone, the answer is final.
        None if complete && !has_cli => match look_again(shared, attempt, until).await {
            Some(found) => (found, true),
            None => (None, false),
        },
        listed => (listed, complete),
    };
    let started = container.as_ref().filter(|it| it.started().is_some());
    let news = started.map(|it| (it.id.clone(), attempt.start_of(shared, it)));
    if let Some((container, _)) = &news {
        attempt.adopt_start(shared, container);
    }
    let found = match container.as_ref().map(Container::meaning) {
        _ if !complete => Found::Unknown,
        Some(Meaning::Running) => {
            let (container, at) = news.unwrap_or_else(|| (String::new(), clock::now().up));
            Found::Running { container, at }
        }
        // Its CLI is about to make something of it, or will have seen its end in a moment: events tell.
        _ if has_cli => Found::Unknown,
        Some(Meaning::Changing) => Found::Unknown,
        Some(Meaning::Unstarted | Meaning::Failed(_) | Meaning::Ended) => {
            attempt.conclude(shared, until).await
        }
        None if spawned.is_none() => Found::Unstarted,
        // A CLI was started and is gone, and so is what it made.
        None => {
            let vanished =
                Ending { exit: Exit::Vanished, output: OutputLengths::default(), at: clock::now().utc };
            ended(shared, attempt, vanished)
        }
    };
    if matches!(found, Found::Running { .. } | Found::Unknown) {
        shared.watch(Arc::clone(attempt));
    }
    found
}

/// Its container, if there is one; nothing if the engine does not answer in time.
async fn look_again(shared: &Shared, attempt: &Attempt, until: Instant) -> Option<Option<Container>> {
    let found = tokio::time::timeout_at(until, shared.inspect(&[&attempt.name])).await.ok()?.ok()?;
    Some(found.into_iter().find(|it| attempt.owns(it)))
}

pub(super) fn availability(answer: Result<(), CallError>) -> Availability {
    match answer {
        Ok(()) => Availability::Available,
        Err(error) => Availability::Unavailable(error.told()),
    }
}

/// Between two questions to an engine that answers badly.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// How long a survey waits for its verdicts; what takes longer is told by its event.
const CONCLUDE_LIMIT: Duration = Duration::from_secs(20);

/// Verdicts that are asked for at the same time: each is a few processes.
const AT_ONCE: usize = 32;

const UNLISTED: &str = "it answers again, and is being asked what it has of this worker's containers";
