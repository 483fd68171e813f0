//! Makes images available before a container is made: with a time limit of its own, and one pull per image at a time.

mod failure;
mod layers;
mod outages;
mod progress;
mod pulled;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::container::{ContainerSpec, PullPolicy};
use protocol::registry::RegistryLogin;
use protocol::report::Phase;
use tokio::time::Instant;

pub(super) use self::failure::{PullFailure, PullFault};
use self::layers::Layers;
use self::outages::Outages;
use self::progress::PullProgress;
pub(super) use self::pulled::{PulledImages, PulledRecord, familiar};
use super::DockerState;
use super::cli::CallError;
use super::engine_location::config_directory;
use super::pull_config::PullConfig;
use crate::clock;
use crate::runtime::blocking::spawn_io;

/// Images seen lately, images that were ever pulled, pulls under way, and failing registries.
pub(super) struct Images {
    seen: Mutex<HashMap<PlatformImage, SeenImage>>,
    pub(super) pulled: Arc<PulledImages>,
    pulls: Mutex<HashMap<PlatformImage, Arc<PullQueue>>>,
    outages: Outages,
}

/// An image for a platform.
type PlatformImage = (String, Option<String>);

/// An image for a platform, with the login for its registry.
type WantedImage<'a> = (&'a PlatformImage, Option<&'a RegistryLogin>);

/// An image that was seen.
struct SeenImage {
    /// Empty if the engine did not say.
    id: String,
    at: Instant,
}

/// The attempts that wait for one image. One of them pulls; if that fails, all attempts that waited meanwhile share the failure, because
/// each would fail as slowly. An attempt with another login does not share it: its password may be newer.
#[derive(Default)]
struct PullQueue {
    failures: AtomicU64,
    last: tokio::sync::Mutex<(PullFailure, Option<RegistryLogin>)>,
    progress: PullProgress,
}

/// An image is not available.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullError {
    /// The pull failed.
    #[error("{}", .0.problem)]
    Failed(PullFailure),
    /// The engine does not answer.
    #[error(transparent)]
    Engine(#[from] CallError),
}

impl Images {
    /// Nothing is seen yet. `state_dir` has the record of pulled images.
    pub(super) fn new(state_dir: &Path) -> Self {
        Self {
            seen: Mutex::default(),
            pulled: Arc::new(PulledImages::open(state_dir)),
            pulls: Mutex::default(),
            outages: Outages::default(),
        }
    }

    /// Makes the image available. If it must be pulled, `permit` is awaited first. `pulling` is called before the first byte is fetched, and
    /// with each progress.
    ///
    /// # Cancel safety
    /// A cancelled pull is killed; the engine keeps its complete layers.
    pub(super) async fn ensure(
        &self,
        docker: &DockerState,
        spec: &ContainerSpec,
        login: Option<&RegistryLogin>,
        permit: impl Future<Output = ()> + Send,
        pulling: impl Fn(Phase) + Send,
    ) -> Result<(), PullError> {
        let wanted: PlatformImage = (spec.image.clone(), spec.platform.clone());
        if spec.pull_policy != PullPolicy::Always && self.is_there(docker, &wanted).await? {
            return Ok(());
        }
        if spec.pull_policy == PullPolicy::Never {
            let platform = wanted.1.map(|it| format!(" for {it}")).unwrap_or_default();
            let (image, fault) = (wanted.0, PullFault::Definition);
            let problem =
                format!("the image `{image}` is not on this worker{platform} and pull_policy is never");
            return Err(PullError::Failed(PullFailure { fault, problem }));
        }
        let queue = self.queue(&wanted);
        self.share_outage(docker, (&wanted, login), &queue)?;
        permit.await;
        self.share_outage(docker, (&wanted, login), &queue)?;
        let pull = self.pull_in_order(docker, (spec, login), &wanted, &queue);
        queue.progress.report_while(pulling, pull).await
    }

    /// Fails while the registry of this image is away and need not be asked for this attempt too.
    fn share_outage(
        &self,
        docker: &DockerState,
        wanted: WantedImage<'_>,
        queue: &PullQueue,
    ) -> Result<(), PullError> {
        let is_asked = || queue.last.try_lock().is_err() && !queue.progress.has_begun();
        let failure = self.outages.shared(wanted, docker.config.outage_shared_for, is_asked);
        failure.map_or(Ok(()), |failure| Err(PullError::Failed(failure)))
    }

    /// The queue of this image. Queues without waiters are dropped, and with them the last failure.
    fn queue(&self, wanted: &PlatformImage) -> Arc<PullQueue> {
        let mut pulls = self.pulls();
        pulls.retain(|_, queue| Arc::strong_count(queue) > 1);
        Arc::clone(pulls.entry(wanted.clone()).or_default())
    }

    /// Drops the belief that the image is there.
    pub(super) fn forget(&self, spec: &ContainerSpec) {
        self.seen().remove(&(spec.image.clone(), spec.platform.clone()));
    }

    /// Drops the belief that this image is there, whatever its names are.
    pub(super) fn forget_id(&self, id: &str) {
        self.seen().retain(|_, seen| seen.id != id);
    }

    async fn is_there(&self, docker: &DockerState, wanted: &PlatformImage) -> Result<bool, CallError> {
        let seen = self.seen().get(wanted).filter(|it| it.at.elapsed() < TRUSTED_FOR).map(|it| it.id.clone());
        if let Some(id) = seen {
            self.pulled.touch(&id, clock::now().utc);
            return Ok(true);
        }
        let (image, platform) = wanted;
        let format =
            if platform.is_some() { "{{.Id}} {{.Os}}/{{.Architecture}}/{{.Variant}}" } else { "{{.Id}}" };
        let answer = docker.engine.call(["image", "inspect", "--format", format, "--", image]).await?;
        let said = answer.stdout.trim();
        let (id, its_platform) = said.split_once(' ').unwrap_or((said, ""));
        let is_there = answer.ok && platform.as_ref().is_none_or(|it| fits(it, its_platform));
        if is_there {
            self.saw(wanted, id.to_owned());
            self.pulled.touch(id, clock::now().utc);
        }
        Ok(is_there)
    }

    /// Records a pull for the clean-up of images; returns the id of the image, or nothing if the engine does not say it.
    async fn record_pull(&self, docker: &DockerState, wanted: &PlatformImage) -> String {
        let answer = docker.engine.call(["image", "inspect", "--format", "{{.Id}}", "--", &wanted.0]).await;
        let id = answer.ok().filter(|it| it.ok).map(|it| it.stdout.trim().to_owned()).unwrap_or_default();
        if !id.is_empty() {
            self.pulled.add(&id, &wanted.0, clock::now().utc);
            let pulled = Arc::clone(&self.pulled);
            docker.spawn(async move { pulled.save().await });
        }
        id
    }

    async fn pull_in_order(
        &self,
        docker: &DockerState,
        (spec, login): (&ContainerSpec, Option<&RegistryLogin>),
        wanted: &PlatformImage,
        queue: &PullQueue,
    ) -> Result<(), PullError> {
        let failures = queue.failures.load(Ordering::Acquire);
        let mut last = queue.last.lock().await;
        if queue.failures.load(Ordering::Acquire) != failures && last.1.as_ref() == login {
            return Err(PullError::Failed(last.0.clone()));
        }
        // Another attempt may have pulled it meanwhile.
        if spec.pull_policy != PullPolicy::Always && self.is_there(docker, wanted).await? {
            return Ok(());
        }
        let pulled = self.pull(docker, (wanted, login), spec.pull_timeout, &queue.progress).await;
        if let Err(PullError::Failed(failure)) = &pulled {
            *last = (failure.clone(), login.cloned());
            queue.failures.fetch_add(1, Ordering::Release);
        }
        pulled
    }

    async fn pull(
        &self,
        docker: &DockerState,
        (wanted, login): WantedImage<'_>,
        limit: Duration,
        progress: &PullProgress,
    ) -> Result<(), PullError> {
        let limit = if limit.is_zero() { LIMIT } else { limit };
        progress.begin();
        let mut tries = 0;
        loop {
            let began = Instant::now();
            let failure = match self.pull_once(docker, (wanted, login), limit, progress).await {
                Err(PullError::Failed(failure)) => failure,
                pulled => return pulled,
            };
            tries += 1;
            if failure.fault == PullFault::Registry {
                // The server pauses, and other jobs have the place and the pull slot meanwhile.
                let failure =
                    self.outages.record((wanted, login), began, failure, docker.config.registry_away_max);
                return Err(PullError::Failed(failure));
            }
            // It has answered.
            self.outages.end(wanted);
            let Some(wait) = failure.wait(tries, &docker.config.pull_retries) else {
                return Err(PullError::Failed(failure));
            };
            progress.fail();
            let (image, problem) = (&wanted.0, failure.problem);
            tracing::warn!(image, error = problem, ?wait, "a pull failed; trying again");
            tokio::time::sleep(wait).await;
        }
    }

    async fn pull_once(
        &self,
        docker: &DockerState,
        (wanted, login): WantedImage<'_>,
        limit: Duration,
        progress: &PullProgress,
    ) -> Result<(), PullError> {
        let config = write_config(docker, login).await?;
        let (image, platform) = wanted;
        let mut args = vec!["pull".to_owned()];
        args.extend(platform.iter().map(|it| format!("--platform={it}")));
        args.extend(["--".into(), image.clone()]);
        let mut layers = Layers::default();
        let heard = |line: &str| {
            if let Some(percent) = layers.hear(line) {
                progress.reach(percent);
            }
        };
        match docker.engine.cli.follow(&args, config.as_ref().map(PullConfig::path), limit, heard).await {
            Ok(answer) if answer.ok => {
                self.outages.end(wanted);
                // An image of this name for another platform is replaced.
                self.seen().retain(|(it, _), _| it != image);
                let id = self.record_pull(docker, wanted).await;
                self.saw(wanted, id);
                Ok(())
            }
            Ok(answer) => Err(PullError::Failed(PullFailure::of(answer.error()))),
            Err(CallError::Slow(limit)) => {
                let problem = format!("the pull took longer than {} s", limit.as_secs());
                Err(PullError::Failed(PullFailure { fault: PullFault::Registry, problem }))
            }
            Err(error) => {
                docker.engine.mark_unreachable(&error);
                Err(error.into())
            }
        }
    }

    fn saw(&self, wanted: &PlatformImage, id: String) {
        let mut seen = self.seen();
        seen.retain(|_, it| it.at.elapsed() < TRUSTED_FOR);
        seen.insert(wanted.clone(), SeenImage { id, at: Instant::now() });
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<PlatformImage, SeenImage>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pulls(&self) -> MutexGuard<'_, HashMap<PlatformImage, Arc<PullQueue>>> {
        self.pulls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The configuration of a pull with this login; `None` without one: then that of the worker's user serves.
async fn write_config(
    docker: &DockerState,
    login: Option<&RegistryLogin>,
) -> Result<Option<PullConfig>, PullError> {
    let Some(login) = login.cloned() else { return Ok(None) };
    let failed = |problem: String| {
        let problem = format!("cannot write the login for {}: {problem}", login.host);
        PullError::Failed(PullFailure { fault: PullFault::Host, problem })
    };
    // Attempts with a login are refused before if there is no tmpfs.
    let dirs = docker.store.secrets().cloned().ok_or_else(|| failed("this worker has no tmpfs".into()))?;
    let own = login.clone();
    let written = spawn_io(move || PullConfig::write(&dirs, config_directory().as_deref(), &own)).await;
    written.map(Some).map_err(|error| failed(error.to_string()))
}

/// `true` if Docker refuses to run an image because it is for another platform.
pub(super) fn is_for_another_platform(message: &str) -> bool {
    message.contains("does not match the specified platform")
}

/// `true` if an image of this platform fits. Variants count upwards, and a processor runs lower ones; an image without a variant fits all
/// of them.
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

/// System, architecture and variant, with the usual names of architectures.
fn parts(platform: &str) -> [&str; 3] {
    let mut parts = platform.split('/').map(|part| match part {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        part => part,
    });
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Time for which an image that was seen counts as there. It saves 12 ms of CPU per job. If the image is removed meanwhile, the start fails
/// and pulls again.
const TRUSTED_FOR: Duration = Duration::from_secs(60);

/// Limit for definitions without `pull_timeout`.
const LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

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
