//! Attempts whose image is not on this machine yet. They hold no slot until they can start, so others run meanwhile.
//!
//! ```text
//! launched ─▶ image missing ─▶ waits for a pull slot ─▶ pulling ─▶ ready, waits for a run slot ─▶ container
//! ```
//! An image takes one pull slot, however many attempts wait for it: the runtime pulls it once for all of them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use protocol::{ContainerSpec, Token};

use crate::backlog::QueuePosition;

/// An image for a platform.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Image {
    name: String,
    platform: Option<String>,
}

impl Image {
    pub(crate) fn of(spec: &ContainerSpec) -> Self {
        Self { name: spec.image.clone(), platform: spec.platform.clone() }
    }
}

#[derive(Debug)]
pub(crate) struct Pulls {
    /// Images that are pulled at once, at least one.
    pull_slots: u32,
    /// Attempts that wait for a pull slot.
    waiting: BTreeMap<(QueuePosition, Token), Image>,
    /// Images that are being pulled, with the number of attempts for which each one is; never zero.
    images: BTreeMap<Image, u32>,
    /// Attempts that have their image and wait for a run slot.
    ready: BTreeSet<(QueuePosition, Token)>,
}

impl Pulls {
    pub(crate) fn new(pull_slots: u32) -> Self {
        Self {
            pull_slots: pull_slots.max(1),
            waiting: BTreeMap::new(),
            images: BTreeMap::new(),
            ready: BTreeSet::new(),
        }
    }

    /// Number of attempts that wait for a pull, pull, or wait for a run slot.
    pub(crate) fn len(&self) -> usize {
        let pulling: u32 = self.images.values().sum();
        self.waiting.len() + self.ready.len() + pulling as usize
    }

    /// Number of images that are being pulled.
    pub(crate) fn images_in_progress(&self) -> usize {
        self.images.len()
    }

    pub(crate) const fn pull_slots(&self) -> u32 {
        self.pull_slots
    }

    pub(crate) fn wait(&mut self, position: QueuePosition, token: Token, image: Image) {
        self.waiting.insert((position, token), image);
    }

    pub(crate) fn stop_waiting(&mut self, position: QueuePosition, token: Token) {
        self.waiting.remove(&(position, token));
    }

    pub(crate) fn is_waiting(&self, position: QueuePosition, token: Token) -> bool {
        self.waiting.contains_key(&(position, token))
    }

    /// Takes the first attempt that may pull now: its image is being pulled for fewer than `attempts_per_image_max` attempts, or is not
    /// being pulled and a pull slot is free. The bound leaves the others where the server can recall them.
    pub(crate) fn begin_next(&mut self, attempts_per_image_max: u32) -> Option<Token> {
        let has_slot = self.images.len() < self.pull_slots as usize;
        let may_pull = |image: &Image| match self.images.get(image) {
            Some(attempts) => *attempts < attempts_per_image_max.max(1),
            None => has_slot,
        };
        let key = *self.waiting.iter().find(|(_, image)| may_pull(image))?.0;
        let image = self.waiting.remove(&key)?;
        *self.images.entry(image).or_default() += 1;
        Some(key.1)
    }

    /// An attempt does not need this pull any more.
    pub(crate) fn end(&mut self, image: &Image) {
        if let Some(attempts) = self.images.get_mut(image) {
            *attempts -= 1;
            if *attempts == 0 {
                self.images.remove(image);
            }
        }
    }

    pub(crate) fn set_ready(&mut self, position: QueuePosition, token: Token) {
        self.ready.insert((position, token));
    }

    pub(crate) fn first_ready(&self) -> Option<(QueuePosition, Token)> {
        self.ready.first().copied()
    }

    pub(crate) fn remove_ready(&mut self, position: QueuePosition, token: Token) {
        self.ready.remove(&(position, token));
    }

    pub(crate) fn is_ready(&self, position: QueuePosition, token: Token) -> bool {
        self.ready.contains(&(position, token))
    }

    pub(crate) fn attempts_pulling(&self, image: &Image) -> u32 {
        self.images.get(image).copied().unwrap_or_default()
    }
}
