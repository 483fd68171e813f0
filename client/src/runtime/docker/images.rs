//! Having an image before a container is made: a phase of its own, with its own time limit, one pull per image at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::container::{ContainerSpec, PullPolicy};
use tokio::time::Instant;

use super::Shared;
use super::cli::CallError;

/// Images that were there lately, and pulls under way.
#[derive(Default)]
pub(super) struct Images {
    seen: Mutex<HashMap<Wanted, Instant>>,
    pulls: Mutex<HashMap<Wanted, Arc<Turn>>>,
}

/// An image for a platform.
type Wanted = (String, Option<String>);

/// Whose turn it is to pull an image, and why the last pull failed: told to everybody who waited for it meanwhile, as each of them
/// would try as long and in vain.
#[derive(Default)]
struct Turn {
    failures: AtomicU64,
    last: tokio::sync::Mutex<String>,
}

/// Why an image cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullError {
    /// The registry, or the definition, is to blame.
    #[error("{0}")]
    Failed(String),
    /// The engine is.
    #[error(transparent)]
    Engine(#[from] CallError),
}

impl Images {
    /// Makes sure that the image is there. `pulling` is called before the first byte is fetched.
    ///
    /// # Cancel safety
    /// A pull that is not awaited to its end is killed; the engine keeps the layers that it has.
    pub(super) async fn ensure(
        &self,
        shared: &Shared,
        spec: &ContainerSpec,
        pulling: impl Fn() + Send,
    ) -> Result<(), PullError> {
        let wanted: Wanted = (spec.image.clone(), spec.platform.clone());
        if spec.pull_policy != PullPolicy::Always && self.is_there(shared, &wanted).await? {
            return Ok(());
        }
        if spec.pull_policy == PullPolicy::Never {
            let text = format!("the image `{}` is not on this worker and pull_policy is never", wanted.0);
            return Err(PullError::Failed(text));
        }
        pulling();
        let turn = Arc::clone(self.pulls().entry(wanted.clone()).or_default());
        let pulled = self.pull_in_turn(shared, spec, &wanted, &turn).await;
        drop(turn);
        self.pulls().retain(|_, turn| Arc::strong_count(turn) > 1);
        pulled
    }

    /// It was not there after all.
    pub(super) fn forget(&self, spec: &ContainerSpec) {
        self.seen().remove(&(spec.image.clone(), spec.platform.clone()));
    }

    async fn is_there(&self, shared: &Shared, wanted: &Wanted) -> Result<bool, CallError> {
        if self.seen().get(wanted).is_some_and(|at| at.elapsed() < TRUSTED_FOR) {
            return Ok(true);
        }
        let answer = shared.call(["image", "inspect", "--format", "{{.Id}}", "--", &wanted.0]).await?;
        if answer.ok {
            self.saw(wanted);
        }
        Ok(answer.ok)
    }

    async fn pull_in_turn(
        &self,
        shared: &Shared,
        spec: &ContainerSpec,
        wanted: &Wanted,
        turn: &Turn,
    ) -> Result<(), PullError> {
        let failures = turn.failures.load(Ordering::Acquire);
        let mut last = turn.last.lock().await;
        if turn.failures.load(Ordering::Acquire) != failures {
            return Err(PullError::Failed(last.clone()));
        }
        // Somebody else may have pulled it while we waited for our turn.
        if spec.pull_policy != PullPolicy::Always && self.is_there(shared, wanted).await? {
            return Ok(());
        }
        let pulled = self.pull(shared, wanted, spec.pull_timeout).await;
        if let Err(PullError::Failed(problem)) = &pulled {
            last.clone_from(problem);
            turn.failures.fetch_add(1, Ordering::Release);
        }
        pulled
    }

    async fn pull(&self, shared: &Shared, wanted: &Wanted, limit: Duration) -> Result<(), PullError> {
        let limit = if limit.is_zero() { LIMIT } else { limit };
        let mut waits = shared.config.pull_retries.iter();
        loop {
            let problem = match self.pull_once(shared, wanted, limit).await {
                Ok(()) => return Ok(()),
                Err(PullError::Failed(problem)) if is_final(&problem) => {
                    return Err(PullError::Failed(problem));
                }
                Err(PullError::Failed(problem)) => problem,
                Err(error) => return Err(error),
            };
            let Some(wait) = waits.next() else { return Err(PullError::Failed(problem)) };
            tracing::warn!(image = wanted.0, problem, ?wait, "a pull failed and will be tried again");
            tokio::time::sleep(*wait).await;
        }
    }

    async fn pull_once(&self, shared: &Shared, wanted: &Wanted, limit: Duration) -> Result<(), PullError> {
        let (image, platform) = wanted;
        let mut args = vec!["pull".to_owned(), "-q".into()];
        args.extend(platform.iter().map(|it| format!("--platform={it}")));
        args.extend(["--".into(), image.clone()]);
        match shared.cli.call(&args, limit).await {
            Ok(answer) if answer.ok => {
                self.saw(wanted);
                Ok(())
            }
            Ok(answer) => Err(PullError::Failed(answer.complaint())),
            Err(CallError::Slow(limit)) => {
                Err(PullError::Failed(format!("the pull took longer than {} s", limit.as_secs())))
            }
            Err(error) => {
                shared.note(&error);
                Err(error.into())
            }
        }
    }

    fn saw(&self, wanted: &Wanted) {
        let mut seen = self.seen();
        seen.retain(|_, at| at.elapsed() < TRUSTED_FOR);
        seen.insert(wanted.clone(), Instant::now());
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Wanted, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pulls(&self) -> MutexGuard<'_, HashMap<Wanted, Arc<Turn>>> {
        self.pulls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether trying again cannot help.
fn is_final(problem: &str) -> bool {
    let problem = problem.to_lowercase();
    FINAL.iter().any(|phrase| problem.contains(phrase))
}

const FINAL: [&str; 8] = [
    "manifest unknown",
    "not found",
    "does not exist",
    "access denied",
    "unauthorized",
    "denied:",
    "invalid reference format",
    "no matching manifest",
];

/// How long an image that was seen counts as there: saves 12 ms of CPU for each job in a row. If it goes meanwhile, the start fails and
/// asks again.
const TRUSTED_FOR: Duration = Duration::from_secs(60);

/// For definitions that name no time limit.
const LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_that_says_no_is_not_asked_again() {
        assert!(is_final("manifest for app:9 not found: manifest unknown: manifest unknown"));
        assert!(is_final(
            "pull access denied for app, repository does not exist or may require 'docker login'"
        ));
        assert!(!is_final("received unexpected HTTP status: 500 Internal Server Error"));
        assert!(!is_final("toomanyrequests: You have reached your pull rate limit"));
        assert!(!is_final("Get \"https://registry/v2/\": dial tcp: lookup registry: no such host"));
    }
}
