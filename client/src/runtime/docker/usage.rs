//! The use of resources of containers whose control group is not at a usual place: it is looked for once, else the engine is asked.
//!
//! A worker in a container, and one whose engine is on another machine, see no control groups. The engine then tells the figures of all
//! containers in one connection, seldom enough to cost little.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::Token;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::attempt::Attempt;
use super::cli::CallError;
use super::{DockerState, run_blocking, stats};
use crate::attempt_dir::AttemptDir;
use crate::usage::{Layout, Source, UsageSampler, layout_of};

/// Running containers whose control group was not found, so that the engine is asked what they use.
#[derive(Debug, Default)]
pub(super) struct UnseenContainers {
    containers: Mutex<HashMap<Token, UnseenContainer>>,
    added: Notify,
}

#[derive(Clone, Debug)]
struct UnseenContainer {
    id: String,
    dir: AttemptDir,
    has_network: bool,
}

impl UnseenContainers {
    pub(super) fn remove(&self, token: Token) {
        self.containers().remove(&token);
    }

    fn contains(&self, token: Token) -> bool {
        self.containers().contains_key(&token)
    }

    fn add(&self, token: Token, container: UnseenContainer) {
        self.containers().insert(token, container);
        self.added.notify_one();
    }

    fn list(&self) -> Vec<(Token, UnseenContainer)> {
        self.containers().iter().map(|(token, container)| (*token, container.clone())).collect()
    }

    fn containers(&self) -> MutexGuard<'_, HashMap<Token, UnseenContainer>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work that measures a container from then on. It reads files.
pub(super) fn measure(docker: &DockerState, attempt: &Attempt, id: &str) -> impl FnOnce() + Send + use<> {
    let (sampler, unseen) = (docker.config.usage.clone(), Arc::clone(&docker.unseen));
    let has_network = attempt.launch.spec.network.as_deref() != Some(HOST_NETWORK);
    let container = UnseenContainer { id: id.to_owned(), dir: attempt.dir.clone(), has_network };
    let token = attempt.token();
    move || {
        if !container.id.is_empty() && !open(&sampler, token, &container) {
            unseen.add(token, container);
        }
    }
}

fn open(sampler: &UsageSampler, token: Token, container: &UnseenContainer) -> bool {
    let UnseenContainer { id, dir, has_network } = container.clone();
    sampler.watch(token, &dir, Source::Container { id, has_network })
}

/// Looks for the unseen containers, and measures them by the engine meanwhile.
pub(super) async fn run(docker: Arc<DockerState>) {
    loop {
        while docker.unseen.list().is_empty() {
            docker.unseen.added.notified().await;
        }
        // The group of a container that has just ended is gone. Such containers leave the list by themselves.
        sleep(CLOCK_POLL_INTERVAL).await;
        let mut unseen = docker.unseen.list();
        let Some((_, first)) = unseen.first() else { continue };
        if let Some(layout) = find_layout(&docker, &first.id).await {
            docker.config.usage.learn(layout);
            let context = Arc::clone(&docker);
            let look_again = move || {
                let (seen, unseen): (Vec<_>, Vec<_>) = unseen.into_iter().partition(|(token, container)| {
                    let is_open = open(&context.config.usage, *token, container);
                    finish_if_removed(&context, *token);
                    is_open
                });
                for (token, _) in seen {
                    context.unseen.remove(token);
                }
                Ok(unseen)
            };
            unseen = run_blocking(look_again).await.unwrap_or_default();
        }
        if !unseen.is_empty() {
            ask_engine(&docker, unseen).await;
        }
    }
}

/// Ends the watch of an attempt that ended before it began: the list of unseen containers was read some time ago.
fn finish_if_removed(docker: &DockerState, token: Token) {
    if !docker.unseen.contains(token) {
        docker.config.usage.finish(token);
    }
}

/// The place of a container's group, by its first process; `None` if this process does not see it.
async fn find_layout(docker: &Arc<DockerState>, container: &str) -> Option<Layout> {
    if !docker.config.sees_engine_disks {
        return None;
    }
    let args = ["inspect", "--type", "container", "-f", "{{.State.Pid}}", "--", container];
    let answer = docker.engine.call(args).await.ok().filter(|it| it.ok)?;
    let pid: u32 = answer.stdout.trim().parse().ok().filter(|pid| *pid != 0)?;
    let id = container.to_owned();
    let read = move || Ok(std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default());
    layout_of(&run_blocking(read).await?, &id)
}

async fn ask_engine(docker: &Arc<DockerState>, unseen: Vec<(Token, UnseenContainer)>) {
    let (context, tokens) = (Arc::clone(docker), unseen.clone());
    let watch = move || {
        for (token, container) in tokens {
            context.config.usage.watch(token, &container.dir, Source::Elsewhere);
            finish_if_removed(&context, token);
        }
        Ok(())
    };
    run_blocking(watch).await;
    let ids: Vec<(Token, String)> = unseen.into_iter().map(|(token, it)| (token, it.id)).collect();
    let asked =
        timeout(ASK_LIMIT, stats::ask(&docker.engine.cli, &ids, |sample| docker.config.usage.add(sample)));
    match asked.await.unwrap_or(Err(CallError::Slow(ASK_LIMIT))) {
        Ok(()) => {}
        Err(error) => {
            tracing::debug!(%error, "the engine does not tell what containers use");
            sleep(ASK_AGAIN).await;
        }
    }
}

/// The network of the machine itself: its figures are not those of a container.
const HOST_NETWORK: &str = "host";

/// Interval of the questions. A container costs the engine about 2 ms.
const CLOCK_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Time for all answers.
const ASK_LIMIT: Duration = Duration::from_secs(30);

/// Pause after a question that failed: the program may know no such call.
const ASK_AGAIN: Duration = Duration::from_secs(300);
