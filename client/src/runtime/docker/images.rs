//! Having an image before a container is made: a phase of its own, with its own time limit, one pull per image at a time.

mod course;
mod layers;
mod refusal;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::container::{ContainerSpec, PullPolicy};
use protocol::report::Phase;
use tokio::time::Instant;

use self::course::Course;
use self::layers::Layers;
pub(super) use self::refusal::{Blame, Refusal};
use super::Shared;
use super::cli::CallError;

/// Images that were there lately, pulls under way, and registries that are away.
#[derive(Default)]
pub(super) struct Images {
    seen: Mutex<HashMap<Wanted, Instant>>,
    pulls: Mutex<HashMap<Wanted, Arc<Turn>>>,
    outages: Mutex<HashMap<Wanted, Outage>>,
}

/// An image for a platform.
type Wanted = (String, Option<String>);

/// Whose turn it is to pull an image, and why the last pull failed: told to everybody who waited for it meanwhile, as each of them
/// would try as long and in vain.
#[derive(Default)]
struct Turn {
    failures: AtomicU64,
    last: tokio::sync::Mutex<Refusal>,
    course: Course,
}

/// An image has not been had from its registry for as long as this.
#[derive(Clone, Copy)]
struct Outage {
    since: Instant,
    last: Instant,
}

/// Why an image cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullError {
    /// It was asked for, in vain.
    #[error("{}", .0.problem)]
    Refused(Refusal),
    /// The engine does not answer.
    #[error(transparent)]
    Engine(#[from] CallError),
}

impl Images {
    /// Makes sure that the image is there. `pulling` is called before the first byte is fetched, and as the pull goes on.
    ///
    /// # Cancel safety
    /// A pull that is not awaited to its end is killed; the engine keeps the layers that it has.
    pub(super) async fn ensure(
        &self,
        shared: &Shared,
        spec: &ContainerSpec,
        pulling: impl Fn(Phase) + Send,
    ) -> Result<(), PullError> {
        let wanted: Wanted = (spec.image.clone(), spec.platform.clone());
        if spec.pull_policy != PullPolicy::Always && self.is_there(shared, &wanted).await? {
            return Ok(());
        }
        if spec.pull_policy == PullPolicy::Never {
            let platform = wanted.1.map(|it| format!(" for {it}")).unwrap_or_default();
            let (image, blame) = (wanted.0, Blame::Definition);
            let problem =
                format!("the image `{image}` is not on this worker{platform} and pull_policy is never");
            return Err(PullError::Refused(Refusal { blame, problem }));
        }
        let turn = self.turn(&wanted);
        let pull = self.pull_in_turn(shared, spec, &wanted, &turn);
        turn.course.tell_during(pulling, pull).await
    }

    /// The turn of those who wait for this image now. Who is stopped while it waits takes nothing away: what nobody holds any more
    /// goes here, for how its pull went is nobody else's news.
    fn turn(&self, wanted: &Wanted) -> Arc<Turn> {
        let mut pulls = self.pulls();
        pulls.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(pulls.entry(wanted.clone()).or_default())
    }

    /// It was not there after all.
    pub(super) fn forget(&self, spec: &ContainerSpec) {
        self.seen().remove(&(spec.image.clone(), spec.platform.clone()));
    }

    async fn is_there(&self, shared: &Shared, wanted: &Wanted) -> Result<bool, CallError> {
        if self.seen().get(wanted).is_some_and(|at| at.elapsed() < TRUSTED_FOR) {
            return Ok(true);
        }
        let (image, platform) = wanted;
        let format = if platform.is_some() { "{{.Os}}/{{.Architecture}}/{{.Variant}}" } else { "{{.Id}}" };
        let answer = shared.call(["image", "inspect", "--format", format, "--", image]).await?;
        let is_there = answer.ok && platform.as_ref().is_none_or(|it| fits(it, answer.stdout.trim()));
        if is_there {
            self.saw(wanted);
        }
        Ok(is_there)
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
            return Err(PullError::Refused(last.clone()));
        }
        // Somebody else may have pulled it while we waited for our turn.
        if spec.pull_policy != PullPolicy::Always && self.is_there(shared, wanted).await? {
            return Ok(());
        }
        let pulled = self.pull(shared, wanted, spec.pull_timeout, &turn.course).await;
        if let Err(PullError::Refused(refusal)) = &pulled {
            last.clone_from(refusal);
            turn.failures.fetch_add(1, Ordering::Release);
        }
        pulled
    }

    async fn pull(
        &self,
        shared: &Shared,
        wanted: &Wanted,
        limit: Duration,
        course: &Course,
    ) -> Result<(), PullError> {
        let limit = if limit.is_zero() { LIMIT } else { limit };
        course.begin();
        let mut tries = 0;
        loop {
            let began = Instant::now();
            let refusal = match self.pull_once(shared, wanted, limit, course).await {
                Err(PullError::Refused(refusal)) => refusal,
                pulled => return pulled,
            };
            tries += 1;
            let is_over = refusal.blame == Blame::Registry
                && self.has_been_away(wanted, began) >= shared.config.registry_away_max;
            let wait = refusal.wait(tries, &shared.config.pull_retries).filter(|_| !is_over);
            let Some(wait) = wait else {
                let blame = if is_over { Blame::Denied } else { refusal.blame };
                return Err(PullError::Refused(Refusal { blame, ..refusal }));
            };
            course.fail();
            let (image, problem) = (&wanted.0, refusal.problem);
            tracing::warn!(image, problem, ?wait, "a pull failed and will be tried again");
            tokio::time::sleep(wait).await;
        }
    }

    async fn pull_once(
        &self,
        shared: &Shared,
        wanted: &Wanted,
        limit: Duration,
        course: &Course,
    ) -> Result<(), PullError> {
        let (image, platform) = wanted;
        let mut args = vec!["pull".to_owned()];
        args.extend(platform.iter().map(|it| format!("--platform={it}")));
        args.extend(["--".into(), image.clone()]);
        let mut layers = Layers::default();
        let heard = |line: &str| {
            if let Some(percent) = layers.hear(line) {
                course.reach(percent);
            }
        };
        match shared.cli.follow(&args, limit, heard).await {
            Ok(answer) if answer.ok => {
                self.outages().remove(wanted);
                // What was there under this name for another platform is so no longer.
                self.seen().retain(|(it, _), _| it != image);
                self.saw(wanted);
                Ok(())
            }
            Ok(answer) => Err(PullError::Refused(Refusal::of(answer.error()))),
            Err(CallError::Slow(limit)) => {
                let problem = format!("the pull took longer than {} s", limit.as_secs());
                Err(PullError::Refused(Refusal { blame: Blame::Registry, problem }))
            }
            Err(error) => {
                shared.note(&error);
                Err(error.into())
            }
        }
    }

    /// For how long this image has not been had, now that a try that began then was in vain too. Tries of long before say nothing.
    fn has_been_away(&self, wanted: &Wanted, began: Instant) -> Duration {
        let mut outages = self.outages();
        outages.retain(|_, it| began.saturating_duration_since(it.last) < OUTAGE_FORGOTTEN_AFTER);
        let outage = outages.entry(wanted.clone()).or_insert(Outage { since: began, last: began });
        outage.last = Instant::now();
        outage.since.elapsed()
    }

    fn saw(&self, wanted: &Wanted) {
        let mut seen = self.seen();
        seen.retain(|_, at| at.elapsed() < TRUSTED_FOR);
        seen.insert(wanted.clone(), Instant::now());
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Wanted, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outages(&self) -> MutexGuard<'_, HashMap<Wanted, Outage>> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pulls(&self) -> MutexGuard<'_, HashMap<Wanted, Arc<Turn>>> {
        self.pulls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether Docker refuses to run an image because the one it has is for another platform.
pub(super) fn is_for_another_platform(message: &str) -> bool {
    message.contains("does not match the specified platform")
}

/// Whether an image for this platform, as Docker tells it, is good for what is wanted. Variants count upwards, and a processor runs
/// what is for a lower one; an image that names none is for all of them.
fn fits(wanted: &str, platform: &str) -> bool {
    let [os, architecture, variant] = parts(wanted);
    let [its_os, its_architecture, its_variant] = parts(platform);
    let number = |variant: &str| variant.trim_start_matches('v').parse::<u32>().ok();
    let runs = match (number(variant), number(its_variant)) {
        (Some(wanted), Some(its)) => its <= wanted,
        _ => variant.is_empty() || its_variant.is_empty() || variant == its_variant,
    };
    os == its_os && architecture == its_architecture && runs
}

/// System, architecture, variant: in the names by which images go.
fn parts(platform: &str) -> [&str; 3] {
    let mut parts = platform.split('/').map(|part| match part {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        part => part,
    });
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// How long an image that was seen counts as there: saves 12 ms of CPU for each job in a row. If it goes meanwhile, the start fails and
/// asks again.
const TRUSTED_FOR: Duration = Duration::from_secs(60);

/// For definitions that name no time limit.
const LIMIT: Duration = Duration::from_secs(600);

/// Longer than any wait between two pulls of a job that waits for its image.
const OUTAGE_FORGOTTEN_AFTER: Duration = Duration::from_secs(1800);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_registry_is_away_from_the_first_try_in_vain_to_the_last() {
        let (images, wanted) = (Images::default(), ("app".to_owned(), None));
        let minutes = |it: u64| Duration::from_secs(60 * it);
        let in_vain = async |waits: u64, takes: u64| {
            tokio::time::advance(minutes(waits)).await;
            let began = Instant::now();
            tokio::time::advance(minutes(takes)).await;
            images.has_been_away(&wanted, began)
        };
        assert_eq!(in_vain(0, 0).await, minutes(0));
        assert_eq!(in_vain(5, 1).await, minutes(6));
        assert_eq!(in_vain(1, 90).await, minutes(97), "one try took long");
        assert_eq!(in_vain(600, 2).await, minutes(2), "it was there in between, for all that is known");
    }

    #[test]
    fn an_image_is_there_only_for_its_platform() {
        for (wanted, image, is_there) in [
            ("linux/amd64", "linux/amd64/", true),
            ("linux/x86_64", "linux/amd64/", true),
            ("linux/arm64", "linux/amd64/", false),
            ("linux/aarch64", "linux/arm64/v8", true),
            ("linux/arm64/v8", "linux/arm64/", true),
            ("linux/arm", "linux/arm/v7", true),
            ("linux/arm/v7", "linux/arm/v6", true),
            ("linux/arm/v6", "linux/arm/v7", false),
            ("windows/amd64", "linux/amd64/", false),
        ] {
            assert_eq!(fits(wanted, image), is_there, "{wanted} {image}");
        }
    }
}
