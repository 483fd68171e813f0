//! Removes images when the engine's disk gets full. The pure part, [`ImageGc`], decides which one goes next; this task measures the disk,
//! asks the engine, and removes one image at a time.
//!
//! Only images go that this worker has pulled. An image stays if a container of anybody has it, running or not; if an attempt of this worker
//! will need it; if it has a tag under which this worker has not pulled it; and if the engine refuses to remove it without force. An
//! attempt that arrives in the moment of a removal pulls the image again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use worker::image_gc::{DiskUse, ImageGc, MIN_AGE, PulledImage, Watermarks};

use super::DockerState;
use super::cli::{CallError, CallOutput};
use super::images::{PulledRecord, familiar};
use crate::clock;
use crate::file_system::FileSystem;

/// Settings of the clean-up.
#[derive(Clone, Debug)]
pub struct ImageGcSettings {
    /// Shares of the disk at which it begins and ends.
    pub watermarks: Watermarks,
    /// Images that were used within this time stay.
    pub min_age: Duration,
    /// Pause between two looks at the disk.
    pub look_every: Duration,
    /// Measures the file system of this directory. It may block.
    pub measure: fn(&Path) -> Option<DiskUse>,
    /// The images of attempts that wait at this worker; `None`: only those that the runtime has.
    pub wanted: Option<WantedImages>,
}

impl ImageGcSettings {
    /// The settings of a worker.
    #[must_use]
    pub fn new(watermarks: Watermarks) -> Self {
        Self { watermarks, min_age: MIN_AGE, look_every: LOOK_EVERY, measure, wanted: None }
    }
}

/// Asks the worker's state machine for the images that its attempts need.
#[derive(Clone, Debug)]
pub struct WantedImages(mpsc::Sender<WantedQuestion>);

/// The question; its answer are images as definitions write them.
pub(crate) type WantedQuestion = oneshot::Sender<BTreeSet<String>>;

impl WantedImages {
    /// A way to ask, and the questions.
    pub(crate) fn channel() -> (Self, mpsc::Receiver<WantedQuestion>) {
        let (ask, questions) = mpsc::channel(1);
        (Self(ask), questions)
    }

    /// `None` if the worker is shutting down.
    async fn get(&self) -> Option<BTreeSet<String>> {
        let (question, answer) = oneshot::channel();
        self.0.send(question).await.ok()?;
        answer.await.ok()
    }
}

/// The use of the file system that holds this path, as `df` counts it: blocks that are kept for root are not usable.
fn measure(path: &Path) -> Option<DiskUse> {
    let disk = FileSystem::of(path)?;
    let used = disk.total_bytes.saturating_sub(disk.free_bytes);
    Some(DiskUse { used, usable: used.saturating_add(disk.available_bytes) })
}

/// Looks at the disk from time to time, for ever.
pub(super) async fn run(docker: Arc<DockerState>, settings: ImageGcSettings) {
    let (high, low) = (settings.watermarks.high(), settings.watermarks.low());
    let gc = ImageGc::new(settings.watermarks, settings.min_age);
    let mut cleaner = Cleaner { docker, settings, gc, root: None, refused: HashMap::new(), problem: None };
    tracing::info!(
        high,
        low,
        "images that this worker has pulled are removed when the engine's disk is full"
    );
    loop {
        cleaner.docker.engine.health.wait_until_up().await;
        let problem = cleaner.look().await.err();
        if let Some(problem) = problem.as_ref().filter(|it| cleaner.problem.as_ref() != Some(it)) {
            tracing::warn!("{problem}");
        }
        cleaner.problem = problem;
        tokio::time::sleep(cleaner.settings.look_every).await;
    }
}

/// The clean-up of one engine.
struct Cleaner {
    docker: Arc<DockerState>,
    settings: ImageGcSettings,
    gc: ImageGc,
    /// The engine's data directory, once it is known.
    root: Option<PathBuf>,
    /// Images that the engine refused to remove, and when that was.
    refused: HashMap<String, Instant>,
    /// The problem of the last look, which is logged once.
    problem: Option<String>,
}

/// An image as the engine describes it.
#[derive(Deserialize)]
struct EngineImage {
    id: String,
    tags: Option<Vec<String>>,
    size: u64,
}

impl Cleaner {
    /// Removes images until there is room.
    ///
    /// # Errors
    /// A message for the log: there is not enough room, or nobody knows.
    async fn look(&mut self) -> Result<(), String> {
        loop {
            let disk = self.disk_use().await?;
            if !self.gc.needs_room(disk) {
                return Ok(());
            }
            self.remove_next(disk).await?;
        }
    }

    async fn disk_use(&mut self) -> Result<DiskUse, String> {
        if self.root.is_none() {
            let answer = self.docker.engine.call(["info", "--format", "{{.DockerRootDir}}"]).await;
            let answer = answer.map_err(|error| unlisted(&error))?;
            let root = answer.stdout.trim();
            if !answer.ok || root.is_empty() {
                return Err(format!(
                    "--image-gc: the engine does not name its data directory, so no images are removed: {}",
                    answer.error_line()
                ));
            }
            self.root = Some(root.into());
        }
        let root = self.root.clone().unwrap_or_default();
        let (measure, measured) = (self.settings.measure, root.clone());
        let disk = tokio::task::spawn_blocking(move || measure(&measured)).await.ok().flatten();
        if disk.is_none() {
            // The engine may have been restarted with another one.
            self.root = None;
        }
        disk.ok_or_else(|| {
            format!("--image-gc: cannot measure the disk of {}, so no images are removed", root.display())
        })
    }

    /// Removes the image that is next.
    async fn remove_next(&mut self, disk: DiskUse) -> Result<(), String> {
        let images = self.images().await?;
        let states: Vec<PulledImage> = images.iter().map(|(_, state)| state.clone()).collect();
        let next = self.gc.next(clock::now().utc, &states).map(|index| &images[index]);
        let (image, _) = next.ok_or(NOTHING_LEFT)?;
        self.remove(image, disk).await
    }

    /// The pulled images that are still there. Records of others are dropped.
    async fn images(&mut self) -> Result<Vec<(EngineImage, PulledImage)>, String> {
        self.refused.retain(|_, at| at.elapsed() < ASK_AGAIN);
        let records = self.docker.images.pulled.all();
        let found = self.inspect(&records).await.map_err(|error| unlisted(&error))?;
        let in_use = self.in_use().await.map_err(|error| unlisted(&error))?;
        // Asked last: an attempt that came meanwhile is among them.
        let wanted =
            self.wanted().await.ok_or("--image-gc: no images are removed, because this worker is leaving")?;
        let state = |image: EngineImage| {
            let record = records.get(&image.id)?;
            let is_held = in_use.contains(&image.id)
                || self.refused.contains_key(&image.id)
                || has_foreign_tag(&image, record)
                || wanted.iter().any(|name| is_name_of(name, &image, record));
            Some((image, PulledImage { used: record.used(), is_held }))
        };
        Ok(found.into_iter().filter_map(state).collect())
    }

    async fn inspect(&self, records: &BTreeMap<String, PulledRecord>) -> Result<Vec<EngineImage>, CallError> {
        let ids: Vec<&str> = records.keys().map(String::as_str).collect();
        let mut found = Vec::new();
        for ids in ids.chunks(INSPECT_MAX) {
            let args = ["image", "inspect", "--format", IMAGE_FORMAT, "--"].into_iter();
            let answer = self.docker.engine.call(args.chain(ids.iter().copied())).await?;
            for id in ids.iter().filter(|id| says_no_image(&answer, id)) {
                self.docker.images.pulled.remove(id);
            }
            found.extend(answer.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()));
        }
        Ok(found)
    }

    /// Ids of the images that containers have, of anybody and in any state.
    async fn in_use(&self) -> Result<HashSet<String>, CallError> {
        let engine = &self.docker.engine;
        let listed = engine.call(["ps", "-a", "--no-trunc", "--format", "{{.ID}}"]).await?;
        if !listed.ok {
            return Err(CallError::Unreachable(listed.error_line()));
        }
        let containers: Vec<&str> =
            listed.stdout.lines().map(str::trim).filter(|it| !it.is_empty()).collect();
        let mut images = HashSet::new();
        for ids in containers.chunks(INSPECT_MAX) {
            let args = ["inspect", "--type", "container", "-f", "{{.Id}} {{.Image}}", "--"].into_iter();
            let answer = engine.call(args.chain(ids.iter().copied())).await?;
            let told: HashMap<&str, &str> =
                answer.stdout.lines().filter_map(|line| line.trim().split_once(' ')).collect();
            // A container that is neither there nor gone may have any image.
            if let Some(id) = ids.iter().find(|id| !told.contains_key(**id) && !answer.says_absent(id)) {
                let why =
                    format!("`docker inspect` does not say which image {id} has: {}", answer.error_line());
                return Err(CallError::Unreachable(why));
            }
            images.extend(told.into_values().map(str::to_owned));
        }
        Ok(images)
    }

    /// Images of attempts that have not ended, as their definitions write them; `None` if nobody answers any more.
    async fn wanted(&self) -> Option<BTreeSet<String>> {
        let mut wanted = match &self.settings.wanted {
            Some(asked) => asked.get().await?,
            None => BTreeSet::new(),
        };
        wanted.extend(self.docker.registry.wanted_images());
        Some(wanted)
    }

    /// Removes an image by its id, without force. All of its tags but one go first: an id with several is refused. They come back if the
    /// engine then refuses the id, because a container has been started meanwhile.
    ///
    /// # Errors
    /// The engine is unreachable.
    async fn remove(&mut self, image: &EngineImage, disk: DiskUse) -> Result<(), String> {
        let (docker, id) = (&self.docker, image.id.as_str());
        // From here on, an attempt looks for the image itself.
        docker.images.forget_id(id);
        let tags = image.tags.iter().flatten().map(String::as_str);
        let names: Vec<&str> = tags.clone().collect();
        let args = ["image", "rm", "--no-prune", "--"].into_iter().chain(tags.skip(1)).chain([id]);
        let (size, used_percent) = (image.size, disk.percent());
        match docker.engine.cli.call(args, REMOVE_LIMIT).await {
            Ok(answer) if answer.ok || says_no_image(&answer, id) => {
                tracing::info!(
                    image = id,
                    ?names,
                    size,
                    used_percent,
                    "removed an image: the engine's disk is full"
                );
                docker.images.pulled.remove(id);
                docker.images.pulled.save().await;
            }
            Ok(answer) => {
                let error = answer.error_line();
                tracing::info!(
                    image = id,
                    ?names,
                    size,
                    error,
                    "the engine keeps an image that the clean-up would remove"
                );
                self.refused.insert(id.to_owned(), Instant::now());
                let mut result = Ok(());
                for tag in names.iter().filter(|tag| says_untagged(&answer, tag)) {
                    result = result.and(self.tag_again(id, tag).await);
                }
                return result;
            }
            Err(error @ CallError::Slow(_)) => {
                tracing::warn!(image = id, ?names, size, %error, "cannot remove an image; trying again later");
                self.refused.insert(id.to_owned(), Instant::now());
            }
            Err(error) => {
                docker.engine.mark_unreachable(&error);
                return Err(format!("--image-gc: cannot remove an image: {error}"));
            }
        }
        Ok(())
    }

    /// Gives a tag back to an image that stays, unless a pull has given it to another one meanwhile.
    ///
    /// # Errors
    /// The engine is unreachable.
    async fn tag_again(&self, id: &str, tag: &str) -> Result<(), String> {
        let engine = &self.docker.engine;
        let unreachable = |error| format!("--image-gc: cannot give an image its tag {tag} back: {error}");
        let present = engine.call(["image", "inspect", "--format", "{{.Id}}", "--", tag]).await;
        if present.map_err(unreachable)?.ok {
            return Ok(());
        }
        let answer = engine.call(["image", "tag", "--", id, tag]).await.map_err(unreachable)?;
        if !answer.ok {
            let error = answer.error_line();
            tracing::warn!(image = id, tag, error, "cannot give an image its tag back; the next pull does");
        }
        Ok(())
    }
}

/// `true` if the engine says that it has taken this tag from its image.
fn says_untagged(answer: &CallOutput, tag: &str) -> bool {
    let mut untagged = answer.stdout.lines().filter_map(|line| line.trim().strip_prefix("Untagged: "));
    untagged.any(|name| familiar(name) == familiar(tag))
}

/// `true` if somebody has given it a name under which this worker has not pulled it.
fn has_foreign_tag(image: &EngineImage, record: &PulledRecord) -> bool {
    image.tags.iter().flatten().any(|tag| !record.names.contains(&familiar(tag)))
}

/// `true` if a definition that writes this name may mean this image.
fn is_name_of(name: &str, image: &EngineImage, record: &PulledRecord) -> bool {
    let familiar = familiar(name);
    let is_id = |id: &str| !name.is_empty() && id.starts_with(name.strip_prefix("sha256:").unwrap_or(name));
    record.names.contains(&familiar)
        || image.tags.iter().flatten().any(|tag| *tag == familiar)
        || is_id(image.id.strip_prefix("sha256:").unwrap_or(&image.id))
}

/// `true` if the engine says that there is no image of this id.
fn says_no_image(answer: &CallOutput, id: &str) -> bool {
    let is_about = |line: &str| line.split_whitespace().any(|word| word.trim_matches(['"', ':', '.']) == id);
    let says = |line: &str| line.to_lowercase().contains("no such image") || line.contains("image not known");
    answer.stderr.lines().any(|line| says(line) && is_about(line))
}

fn unlisted(error: &CallError) -> String {
    format!("--image-gc: no images are removed, because the engine does not list them: {error}")
}

const NOTHING_LEFT: &str = "--image-gc: the engine's disk is fuller than the watermarks allow, and no further image can be removed: those that this worker has pulled are in use, too young, or named by others; make room by hand";

/// The format of the query: one line of JSON per image.
const IMAGE_FORMAT: &str = r#"{"id":{{json .Id}},"tags":{{json .RepoTags}},"size":{{json .Size}}}"#;

/// A look at the disk is one system call.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Time after which an image that could not be removed is tried again.
const ASK_AGAIN: Duration = Duration::from_secs(3600);

/// A large image takes long to remove; the engine goes on if the command is killed.
const REMOVE_LIMIT: Duration = Duration::from_secs(600);

/// Number of images or containers in one call.
const INSPECT_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_this_machine_can_be_measured() {
        let disk = measure(Path::new("/")).expect("a disk");
        assert!(disk.used <= disk.usable && disk.usable > 0, "{disk:?}");
        assert_eq!(measure(Path::new("/nonexistent")), None);
    }

    #[test]
    fn an_image_is_gone_only_if_the_engine_says_so() {
        let answer = |stderr: &str| CallOutput { ok: false, stdout: String::new(), stderr: stderr.into() };
        for gone in [
            "Error: No such image: sha256:ab\n",
            "Error response from daemon: No such image: sha256:ab\n",
            "Error: sha256:ab: image not known\n",
        ] {
            assert!(says_no_image(&answer(gone), "sha256:ab"), "{gone}");
            assert!(!says_no_image(&answer(gone), "sha256:abc"), "{gone}");
        }
        assert!(!says_no_image(&answer("Error: cannot read sha256:ab\n"), "sha256:ab"));
    }
}
