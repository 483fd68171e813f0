//! Notices that followed files have grown: one inotify instance and one thread for all attempts, neither of them before the first file.
//!
//! A thread, because looking is `fstat` and freeing syncs: nothing here may hold up a task. A notice costs two `fstat`s, and a flood of
//! notices is looked at a hundred times a second. Where the system gives no watch (their number is limited), the files are looked at
//! four times a second instead.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use protocol::Token;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;

use super::Shared;
use super::files::Files;

/// All followed files.
#[derive(Default)]
pub(super) struct Watch {
    followed: Mutex<Followed>,
    notices: OnceLock<Option<Arc<Notices>>>,
}

#[derive(Default)]
struct Followed {
    files: HashMap<Token, (Arc<Files>, Option<i32>)>,
    by_watch: HashMap<i32, Token>,
}

/// What the thread waits for.
struct Notices {
    /// Growth of watched files.
    growth: OwnedFd,
    /// There is something new to wait for, or nothing any more.
    bell: OwnedFd,
}

impl Watch {
    /// From now on growth of these files is noticed. What was there before is not.
    pub(super) fn add(&self, shared: &Arc<Shared>, token: Token, files: &Arc<Files>) {
        let Some(notices) = self.notices.get_or_init(|| start(shared)) else { return };
        let flags = inotify::WatchFlags::MODIFY;
        let watch = inotify::add_watch(&notices.growth, files.dir().path(), flags).ok();
        let mut followed = self.followed();
        followed.files.insert(token, (Arc::clone(files), watch));
        match watch {
            Some(watch) => drop(followed.by_watch.insert(watch, token)),
            None => notices.ring(),
        }
    }

    /// Whether these files are followed already.
    pub(super) fn knows(&self, token: Token) -> bool {
        self.followed().files.contains_key(&token)
    }

    /// The files grow no more, or nobody cares.
    pub(super) fn forget(&self, token: Token) {
        let mut followed = self.followed();
        let Some((_, Some(watch))) = followed.files.remove(&token) else { return };
        followed.by_watch.remove(&watch);
        if let Some(Some(notices)) = self.notices.get() {
            // It is gone already if the directory is.
            let _ = inotify::remove_watch(&notices.growth, watch);
        }
    }

    /// Whose files may have grown, by their watches; without any, those that have none.
    fn tokens(&self, watches: &HashSet<i32>) -> Vec<Token> {
        let followed = self.followed();
        if watches.contains(&OVERFLOW) {
            return followed.files.keys().copied().collect();
        }
        let unwatched =
            followed.files.iter().filter(|(_, (_, watch))| watch.is_none()).map(|(token, _)| *token);
        watches.iter().filter_map(|it| followed.by_watch.get(it).copied()).chain(unwatched).collect()
    }

    fn files(&self, token: Token) -> Option<Arc<Files>> {
        self.followed().files.get(&token).map(|(files, _)| Arc::clone(files))
    }

    fn has_unwatched(&self) -> bool {
        self.followed().files.values().any(|(_, watch)| watch.is_none())
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(Some(notices)) = self.notices.get() {
            notices.ring();
        }
    }
}

impl Notices {
    fn open() -> rustix::io::Result<Self> {
        Ok(Self {
            growth: inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn ring(&self) {
        // It fails only if it has been rung already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Waits, at most this long, and gives the watches of which something was heard.
    fn wait(&self, limit: Option<Timespec>) -> HashSet<i32> {
        let mut sources = [PollFd::new(&self.growth, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
        // An interrupted wait is a short one.
        let _ = poll(&mut sources, limit.as_ref());
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.growth, &mut buffer);
        let mut watches = HashSet::new();
        while let Ok(event) = reader.next() {
            watches.insert(event.wd());
        }
        watches
    }
}

fn start(shared: &Arc<Shared>) -> Option<Arc<Notices>> {
    let (weak, started) = (Arc::downgrade(shared), Notices::open());
    let spawned = started.map_err(std::io::Error::from).and_then(|notices| {
        let notices = Arc::new(notices);
        let for_thread = Arc::clone(&notices);
        std::thread::Builder::new().name("output".into()).spawn(move || run(&weak, &for_thread))?;
        Ok(notices)
    });
    spawned
        .inspect_err(
            |error| tracing::error!(%error, "output is only sent at the end: its growth cannot be noticed"),
        )
        .ok()
}

fn run(shared: &Weak<Shared>, notices: &Notices) {
    loop {
        let polls = shared.upgrade().is_some_and(|shared| shared.watch.has_unwatched());
        let watches = notices.wait(polls.then_some(POLL_EVERY));
        let Some(shared) = shared.upgrade() else { return };
        for token in shared.watch.tokens(&watches) {
            look_at(&shared, token);
        }
        shared.wake.notify_one();
        drop(shared);
        std::thread::sleep(LOOK_EVERY);
    }
}

fn look_at(shared: &Shared, token: Token) {
    let Some(files) = shared.watch.files(token) else { return };
    let lengths = files.lengths();
    let freeing = shared.queue().grown(token, lengths);
    if let Some(freeing) = freeing {
        files.free(&freeing);
    }
}

/// The watch that stands for "there was more than the system could tell".
const OVERFLOW: i32 = -1;

/// Between two looks at files that are being written all the time.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Between two looks at files without a watch.
const POLL_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
