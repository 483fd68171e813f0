//! Notices growth of followed files: one inotify instance and one thread for all attempts, started with the first file.
//!
//! It is a thread because `fstat` and syncs block. A notice costs two `fstat` calls, and notices are handled at most a hundred times a
//! second. Without a watch (the system limits their number) the files are checked four times a second.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use protocol::Token;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;

use super::LogsState;
use super::files::AttemptFiles;

/// The followed files.
#[derive(Default)]
pub(super) struct GrowthWatch {
    followed: Mutex<Followed>,
    source: OnceLock<Option<Arc<GrowthSource>>>,
}

#[derive(Default)]
struct Followed {
    files: HashMap<Token, (Arc<AttemptFiles>, Option<i32>)>,
    by_watch: HashMap<i32, Token>,
}

/// The descriptors that the thread waits for.
struct GrowthSource {
    /// Growth of watched files.
    growth: OwnedFd,
    /// Wakes the thread: a file without a watch was added, or the [`GrowthWatch`] was dropped.
    wakeup: OwnedFd,
}

impl GrowthWatch {
    /// Starts to notice growth of these files, by a watch of their directory. Growth before this call is not noticed, and growth before the
    /// queue knows the attempt is ignored: the caller looks at the files once more when it does.
    pub(super) fn add(&self, state: &Arc<LogsState>, token: Token, files: &Arc<AttemptFiles>) {
        let Some(source) = self.source.get_or_init(|| start(state)) else { return };
        let flags = inotify::WatchFlags::MODIFY;
        let watch = inotify::add_watch(&source.growth, files.dir().path(), flags).ok();
        let mut followed = self.followed();
        followed.files.insert(token, (Arc::clone(files), watch));
        match watch {
            Some(watch) => drop(followed.by_watch.insert(watch, token)),
            None => source.wake(),
        }
    }

    /// `true` if these files are followed already.
    pub(super) fn knows(&self, token: Token) -> bool {
        self.followed().files.contains_key(&token)
    }

    /// Stops following the files of this attempt.
    pub(super) fn forget(&self, token: Token) {
        let mut followed = self.followed();
        let Some((_, Some(watch))) = followed.files.remove(&token) else { return };
        followed.by_watch.remove(&watch);
        if let Some(Some(source)) = self.source.get() {
            // The watch is gone already if the directory is.
            let _ = inotify::remove_watch(&source.growth, watch);
        }
    }

    /// Attempts with growth by their watches, and all attempts without a watch.
    fn tokens(&self, watches: &HashSet<i32>) -> Vec<Token> {
        let followed = self.followed();
        if watches.contains(&OVERFLOW) {
            return followed.files.keys().copied().collect();
        }
        let unwatched =
            followed.files.iter().filter(|(_, (_, watch))| watch.is_none()).map(|(token, _)| *token);
        watches.iter().filter_map(|it| followed.by_watch.get(it).copied()).chain(unwatched).collect()
    }

    fn files(&self, token: Token) -> Option<Arc<AttemptFiles>> {
        self.followed().files.get(&token).map(|(files, _)| Arc::clone(files))
    }

    fn has_unwatched(&self) -> bool {
        self.followed().files.values().any(|(_, watch)| watch.is_none())
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GrowthWatch {
    fn drop(&mut self) {
        if let Some(Some(source)) = self.source.get() {
            source.wake();
        }
    }
}

impl GrowthSource {
    fn open() -> rustix::io::Result<Self> {
        Ok(Self {
            growth: inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?,
            wakeup: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn wake(&self) {
        // This fails only if the thread is woken already.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }

    /// Waits at most this long and returns the watches with growth.
    fn wait(&self, limit: Option<Timespec>) -> HashSet<i32> {
        let mut sources =
            [PollFd::new(&self.growth, PollFlags::IN), PollFd::new(&self.wakeup, PollFlags::IN)];
        // An interrupted wait is a short one.
        let _ = poll(&mut sources, limit.as_ref());
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.growth, &mut buffer);
        let mut watches = HashSet::new();
        while let Ok(event) = reader.next() {
            watches.insert(event.wd());
        }
        watches
    }
}

fn start(state: &Arc<LogsState>) -> Option<Arc<GrowthSource>> {
    let (weak, started) = (Arc::downgrade(state), GrowthSource::open());
    let spawned = started.map_err(std::io::Error::from).and_then(|source| {
        let source = Arc::new(source);
        let for_thread = Arc::clone(&source);
        std::thread::Builder::new().name("output".into()).spawn(move || run(&weak, &for_thread))?;
        Ok(source)
    });
    spawned
        .inspect_err(
            |error| tracing::error!(%error, "cannot watch output files; output is only sent at the end of each attempt"),
        )
        .ok()
}

fn run(state: &Weak<LogsState>, source: &GrowthSource) {
    loop {
        let polls = state.upgrade().is_some_and(|state| state.watch.has_unwatched());
        let watches = source.wait(polls.then_some(POLL_INTERVAL));
        let Some(state) = state.upgrade() else { return };
        for token in state.watch.tokens(&watches) {
            check_growth(&state, token);
        }
        state.wake.notify_one();
        drop(state);
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Passes the present lengths of these files on to the queue.
pub(super) fn check_growth(state: &LogsState, token: Token) {
    let Some(files) = state.watch.files(token) else { return };
    let lengths = files.lengths();
    let freeing = state.queue().record_growth(token, lengths);
    if let Some(freeing) = freeing {
        files.free(&freeing);
    }
}

/// The watch number of the kernel's queue overflow.
const OVERFLOW: i32 = -1;

/// Pause between two checks of files that grow all the time.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Pause between two checks of files without a watch.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
