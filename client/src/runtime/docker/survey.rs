//! What an earlier process of this worker has left: directories say what was begun, Docker says what became of it.
//!
//! A container without a directory (the state directory was lost, or torn) still carries its labels: it gets a directory again, and its
//! outcome is reported like any other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use protocol::report::{Availability, Foreign, OutputLengths};
use protocol::{ContainerSpec, Revision, RuntimeKind, Token};
use tokio::time::Instant;
use worker::input::{Exit, Found, Restored, RuntimeEvent};
use worker::step::Launch;

use super::attempt::Attempt;
use super::cli::CallError;
use super::container::{Container, Meaning};
use super::{Shared, blocking};
use crate::attempt_dir::{Ending, Entry, describe};
use crate::clock;
use crate::runtime::{Membership, Survey, proc};

/// Looks at everything once, and goes on watching what still runs.
pub(super) async fn survey(shared: &Arc<Shared>) -> Survey {
    let Some(membership) = shared.membership() else {
        shared.surveyed.store(true, Ordering::Release);
        let availability = availability(shared.ping().await.map(drop));
        return Survey { availability, restored: Vec::new(), foreign: Vec::new() };
    };
    let (availability, containers) = match shared.list(membership.cluster).await {
        Ok(containers) => (Availability::Available, containers),
        Err(error) => {
            shared.health.unlisted();
            shared.spawn(survey_again(Arc::clone(shared)));
            (availability(Err(error)), Vec::new())
        }
    };
    let (mut ours, foreign) = sort(containers, membership);
    let ledger = shared.ledger.clone();
    let entries = blocking(move || ledger.entries()).await.unwrap_or_default();
    let mut begun = Vec::new();
    for entry in entries.into_iter().filter(|it| it.launch.spec.runtime == RuntimeKind::Docker) {
        let container = ours.remove(&entry.launch.token);
        begun.push((entry, container, availability.is_available()));
    }
    begun.extend(entries_for(shared, ours).await);
    let restored = restore_all(shared, membership, begun).await;
    shared.surveyed.store(availability.is_available(), Ordering::Release);
    Survey { availability, restored, foreign }
}

/// The engine was silent when everything was looked at. As soon as it answers it is asked for what no directory has told; what they
/// have told is watched already.
async fn survey_again(shared: Arc<Shared>) {
    loop {
        shared.health.wait_until_up().await;
        // Who is in the books before the list is made, or after, is no leftover, although it may end and be forgotten in between.
        let before = shared.known();
        let Some(membership) = shared.membership() else { break };
        match shared.list(membership.cluster).await {
            Ok(containers) => {
                let (mut ours, foreign) = sort(containers, membership);
                let after = shared.known();
                ours.retain(|token, _| !before.contains(token) && !after.contains(token));
                let begun = entries_for(&shared, ours).await;
                let attempts = restore_all(&shared, membership, begun).await;
                shared.tell(RuntimeEvent::Surveyed { attempts, foreign });
                break;
            }
            Err(error) => tracing::warn!(error = describe(&error), "the engine cannot be asked yet"),
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
    shared.surveyed.store(true, Ordering::Release);
    shared.health.listed();
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

async fn entries_for(shared: &Arc<Shared>, containers: HashMap<Token, Container>) -> Vec<Begun> {
    let mut begun = Vec::new();
    for (token, container) in containers {
        if let Some(entry) = entry_for(shared, token, &container).await {
            begun.push((entry, Some(container), true));
        }
    }
    begun
}

fn sort(containers: Vec<Container>, membership: Membership) -> (HashMap<Token, Container>, Vec<Foreign>) {
    let (mut ours, mut foreign) = (HashMap::new(), Vec::new());
    for container in containers {
        match container.owner() {
            Some((_, worker, token)) if worker == membership.worker => drop(ours.insert(token, container)),
            Some((_, worker, token)) => foreign.push(Foreign { worker, token }),
            None => tracing::warn!(container = container.name(), "has labels of ours that cannot be read"),
        }
    }
    (ours, foreign)
}

/// Gives a container its directory back.
async fn entry_for(shared: &Arc<Shared>, token: Token, container: &Container) -> Option<Entry> {
    tracing::warn!(container = container.name(), "has no attempt directory: it is adopted by its labels");
    let spec =
        ContainerSpec { image: container.image.clone(), stop_grace: STOP_GRACE, ..ContainerSpec::default() };
    let launch = Launch {
        token,
        revision: Revision::default(),
        name: container.label("definition").unwrap_or_default().into(),
        spec: spec.into(),
        body: None,
        time_left: None,
    };
    let ledger = shared.ledger.clone();
    let made = launch.clone();
    let dir = blocking(move || ledger.create(&made)).await?;
    Some(Entry { dir, launch, stopping: None, ending: None })
}

async fn restore(
    shared: Arc<Shared>,
    membership: Membership,
    entry: Entry,
    container: Option<Container>,
    complete: bool,
    until: Instant,
) -> Restored {
    let Entry { dir, launch, stopping, ending } = entry;
    let attempt = Arc::new(Attempt::new(launch.clone(), membership, dir, stopping));
    shared.know(&attempt);
    let found = match ending {
        Some(ending) => ended(&shared, &attempt, ending),
        None => find(&shared, &attempt, container, complete, until).await,
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
    container: Option<Container>,
    complete: bool,
    until: Instant,
) -> Found {
    let dir = attempt.dir.clone();
    let spawned = blocking(move || dir.watcher()).await.flatten();
    *attempt.watcher() = spawned.filter(|pid| proc::is_alive(*pid));
    // One that was started, and its starter died before it could write that down, is about to make a container.
    let has_cli = attempt.watcher().is_some() || attempt.dir.is_being_written();
    let started = container.as_ref().filter(|it| it.started().is_some());
    let news = started.map(|it| (it.id.clone(), it.started_at(clock::now())));
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
        Some(Meaning::Unstarted) => {
            if shared.remove_unstarted(&attempt.name).await {
                Found::Unstarted
            } else {
                Found::Unknown
            }
        }
        Some(Meaning::Failed(_) | Meaning::Ended) => {
            attempt.conclude(shared, until).await.unwrap_or(Found::Unknown)
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

/// For containers whose definition is not known any more: Docker's own default.
const STOP_GRACE: Duration = Duration::from_secs(10);
