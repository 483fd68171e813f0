//! The thread that writes output: it takes all waiting requests, appends their bytes, syncs once, and then publishes and acknowledges them.
//!
//! On a full disk it cuts off the half-written bytes and tries again until there is room. Any other error ends the process: the content of
//! the disk is then unknown, and a second sync could report lost bytes as safe.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use protocol::Timestamp;
use protocol::order::OutputMark;
use protocol::report::Chunk;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::admit::{self, Marks};
use super::error::LogsError;
use super::limits::{Limits, SEGMENT_BYTES_MAX};
use super::output::AttemptKey;
use super::progress::Progress;
use super::record::{self, RecordPosition};
use super::shared::Shared;

/// A chunk of output, and how much its attempt may store.
#[derive(Debug)]
pub struct BoundedChunk {
    /// The output.
    pub chunk: Chunk,
    /// Bytes that may be stored of all output of its attempt. Beyond them it is cut.
    pub bytes_max: u64,
}

/// Chunks to be stored, and where the answer goes.
pub(super) struct Request {
    pub(super) chunks: Vec<BoundedChunk>,
    /// The wall-clock time at which they came.
    pub(super) received_at: Option<Timestamp>,
    pub(super) reply: oneshot::Sender<Vec<OutputMark>>,
    /// Given back when they are stored.
    pub(super) room: OwnedSemaphorePermit,
}

/// Runs until every sender is gone. If the disk fails it ends the process.
pub(super) fn run(shared: &Arc<Shared>, limits: Limits, requests: &Receiver<Request>) {
    let mut writer = Writer::new(shared, limits, requests);
    let mut synced: Option<Instant> = None;
    while let Some(batch) = writer.gather(synced.map(|at| at + limits.sync_interval)) {
        synced = Some(Instant::now());
        if writer.store(batch).is_err() {
            return;
        }
    }
}

struct Writer<'s> {
    shared: &'s Arc<Shared>,
    limits: Limits,
    requests: &'s Receiver<Request>,
    progress: ProgressCache,
    buffer: Vec<u8>,
    /// Came while the disk was full.
    waiting: Vec<Request>,
    /// A new segment could not be begun: not tried again before this.
    rollover_not_before: Option<Instant>,
}

/// Ends the process if the writer's thread panics. Without a writer no output is stored, and workers keep all of theirs;
/// the supervisor's restart brings a new writer.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "the thread that writes output has panicked: ending the process; workers send the output again"
            );
            std::process::abort()
        }
    }
}

/// Every sender is gone.
struct SendersGone;

impl<'s> Writer<'s> {
    fn new(shared: &'s Arc<Shared>, limits: Limits, requests: &'s Receiver<Request>) -> Self {
        let (progress, buffer, waiting) = (ProgressCache::default(), Vec::new(), Vec::new());
        Self { shared, limits, requests, progress, buffer, waiting, rollover_not_before: None }
    }

    /// All that has piled up; waits for the first, and for more until `until`. `None`: every sender is gone.
    fn gather(&mut self, until: Option<Instant>) -> Option<Vec<Request>> {
        let mut batch = std::mem::take(&mut self.waiting);
        if batch.is_empty() {
            batch.push(self.requests.recv().ok()?);
        }
        while batch.len() < BATCH_MAX {
            let timeout =
                until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default();
            match self.requests.recv_timeout(timeout) {
                Ok(next) => batch.push(next),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        Some(batch)
    }

    fn store(&mut self, batch: Vec<Request>) -> Result<(), SendersGone> {
        let base = self.shared.segments().active().1;
        self.buffer.clear();
        let mut records: Vec<(AttemptKey, RecordPosition)> = Vec::new();
        let mut answers = Vec::with_capacity(batch.len());
        for Request { chunks, received_at, reply, room } in batch {
            let admitted = self.admit(chunks, received_at, base, &mut records)?;
            answers.push((reply, admitted, room));
        }
        if !self.buffer.is_empty() {
            self.write(base)?;
        }
        let touched: HashSet<AttemptKey> = records.iter().map(|(attempt, _)| *attempt).collect();
        self.shared.segments_mut().add(records);
        for (reply, admitted, _room) in answers {
            // The session may be gone.
            let _ = reply.send(admitted);
        }
        self.wake(&touched);
        self.roll_over()
    }

    /// Writes and syncs the buffer. As long as there is no room on the disk, the callers wait: the sessions go on, and what is not
    /// acknowledged stays with the workers.
    fn write(&mut self, base: u64) -> Result<(), SendersGone> {
        let mut pause = RETRY_FIRST;
        loop {
            let writer = self.shared.segments().active().0;
            let Err(error) = writer.write(&self.buffer, base) else {
                return writer.sync().or_else(|error| abort_process(&error));
            };
            if !matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
                abort_process(&error);
            }
            tracing::error!(%error, "the disk is full: output waits with the workers; trying again");
            // A half-written record must not be read later. If the cut fails too, the next write overwrites it.
            let _ = writer.cut(base);
            self.pause(&mut pause)?;
        }
    }

    /// Waits before another try, for longer each time.
    fn pause(&mut self, pause: &mut Duration) -> Result<(), SendersGone> {
        let until = Instant::now() + *pause;
        *pause = (*pause * 2).min(RETRY_MAX);
        loop {
            match self.requests.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(request) => self.waiting.push(request),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(SendersGone),
            }
        }
    }

    /// Begins a new segment when this one is full. If there is no room for its index, that is tried again after a pause, while the old
    /// one takes more as long as it can.
    fn roll_over(&mut self) -> Result<(), SendersGone> {
        let mut pause = RETRY_FIRST;
        while self.shared.segments().is_full(self.limits.segment_bytes) {
            let can_grow = self.shared.segments().active().1 < 2 * SEGMENT_BYTES_MAX;
            if can_grow && self.rollover_not_before.is_some_and(|at| Instant::now() < at) {
                break;
            }
            let prepared = self.shared.segments().prepare_rollover();
            match prepared {
                Ok(rollover) => {
                    self.shared.segments_mut().roll_over(rollover);
                    self.progress.age();
                    self.rollover_not_before = None;
                }
                Err(error) if can_grow => {
                    tracing::error!(%error, "cannot begin a new segment; the old one grows on");
                    self.rollover_not_before = Some(Instant::now() + RETRY_MAX);
                    break;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot begin a new segment, and the old one is full; output waits; trying again");
                    self.pause(&mut pause)?;
                }
            }
        }
        Ok(())
    }

    fn admit(
        &mut self,
        chunks: Vec<BoundedChunk>,
        received_at: Option<Timestamp>,
        base: u64,
        records: &mut Vec<(AttemptKey, RecordPosition)>,
    ) -> Result<Vec<OutputMark>, SendersGone> {
        let mut marks = Marks::default();
        for BoundedChunk { chunk, bytes_max } in chunks {
            let (token, stream, attempt, end) =
                (chunk.token, chunk.stream, AttemptKey::from(chunk.token), chunk.end());
            if !self.progress.renew(attempt) {
                let shared = Arc::clone(self.shared);
                let found = self.look_up(|| {
                    let segments = shared.segments().all(attempt);
                    Progress::read(segments.readable())
                })?;
                self.progress.insert(attempt, found);
            }
            let progress = self.progress.of(attempt);
            let (mut before, was_cut) = (progress.lengths, progress.is_cut);
            for data in admit::admit(progress, chunk, bytes_max) {
                let position =
                    record::encode(&mut self.buffer, base, attempt, stream, before, received_at, &data);
                before = position.after();
                records.push((attempt, position));
            }
            if progress.is_cut && !was_cut {
                tracing::warn!(%token, bytes_max, "output has reached the limit of its bytes or of its pieces: the rest is dropped");
            }
            // Dropped output is acknowledged, so that the worker forgets it.
            let here = if progress.is_cut { end } else { admit::length(&progress.lengths, stream).min(end) };
            marks.put(OutputMark { token, stream, offset: here });
        }
        Ok(marks.into_vec())
    }

    /// How far the stored output of an attempt has come. A system without free file handles is waited for, as a full disk is.
    fn look_up(
        &mut self,
        mut read: impl FnMut() -> Result<Progress, LogsError>,
    ) -> Result<Progress, SendersGone> {
        let mut pause = RETRY_FIRST;
        loop {
            match read() {
                Ok(progress) => return Ok(progress),
                Err(error) if error.is_transient() => {
                    tracing::error!(error = &error as &dyn std::error::Error, "output waits; trying again");
                    self.pause(&mut pause)?;
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "stored output of an attempt cannot be counted: what comes now is stored after a gap"
                    );
                    return Ok(Progress::default());
                }
            }
        }
    }

    fn wake(&self, touched: &HashSet<AttemptKey>) {
        let followed = self.shared.followed.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in touched {
            if let Some(growth) = followed.get(attempt) {
                growth.send_modify(|times| *times += 1);
            }
        }
    }
}

/// Ends the process: what the disk holds is unknown, and another sync could succeed although it lost something. The next start reads
/// what is there, and the workers send the rest again.
fn abort_process(error: &std::io::Error) -> ! {
    tracing::error!(%error, "writing output failed: ending the process; the next start reads what the disk holds, and workers send the rest again");
    std::process::abort()
}

/// How far the output of attempts has come, of those that wrote lately. Others are looked up.
#[derive(Default)]
struct ProgressCache {
    lately: HashMap<AttemptKey, Progress>,
    earlier: HashMap<AttemptKey, Progress>,
}

impl ProgressCache {
    /// Keeps the progress of an attempt for longer. Returns false if it is not known.
    fn renew(&mut self, attempt: AttemptKey) -> bool {
        if self.lately.contains_key(&attempt) {
            return true;
        }
        let known = self.earlier.remove(&attempt);
        let is_known = known.is_some();
        known.into_iter().for_each(|progress| self.insert(attempt, progress));
        is_known
    }

    fn insert(&mut self, attempt: AttemptKey, progress: Progress) {
        if self.lately.len() >= CACHED_MAX {
            self.age();
        }
        self.lately.insert(attempt, progress);
    }

    /// The progress of an attempt that was just [renewed](Self::renew) or [inserted](Self::insert).
    fn of(&mut self, attempt: AttemptKey) -> &mut Progress {
        self.lately.entry(attempt).or_default()
    }

    fn age(&mut self) {
        self.earlier = std::mem::take(&mut self.lately);
    }
}

/// Twice this many are kept, at some 70 bytes each.
const CACHED_MAX: usize = 100_000;

/// The first wait after a failed write; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Requests in one sync: each session has one on its way.
const BATCH_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Mutex, RwLock, mpsc};

    use rustix::io::Errno;

    use super::super::segments::SegmentSet;
    use super::*;

    #[test]
    fn the_progress_of_attempts_that_write_is_not_forgotten_for_others() {
        let mut cache = ProgressCache::default();
        let attempt = |job| AttemptKey { job: protocol::JobId(job), fence: protocol::Fence(1) };
        let writes = |records| Progress { records, ..Progress::default() };
        cache.insert(attempt(0), writes(7));
        for job in 1..=4 * CACHED_MAX as u64 {
            assert!(cache.renew(attempt(0)) && !cache.renew(attempt(job)), "{job}");
            cache.insert(attempt(job), writes(1));
        }
        assert_eq!(cache.of(attempt(0)).records, 7);
        assert!(!cache.renew(attempt(1)), "it has not written since");
        assert!(cache.lately.len() <= CACHED_MAX && cache.earlier.len() <= CACHED_MAX);
    }

    #[test]
    fn a_look_up_that_waits_for_a_file_handle_ends_with_the_server() {
        let place = tempfile::tempdir().unwrap();
        let limits = Limits::default();
        let segments = RwLock::new(SegmentSet::open(place.path(), &limits).unwrap());
        let shared = Arc::new(Shared { segments, followed: Mutex::default() });
        let (requests, inbox) = mpsc::channel();
        drop(requests);
        let mut writer = Writer::new(&shared, limits, &inbox);
        let mut tries = 0;
        let found = writer.look_up(|| {
            tries += 1;
            let source = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
            Err(LogsError::Io { what: "cannot open".into(), source })
        });
        assert!(found.is_err() && tries == 1, "nobody waits for the answer any more");
    }
}
