//! The one thread that writes output: takes all that has piled up, appends it, syncs once, and only then lets it be seen and told.
//!
//! If the disk is full, what was half written is taken back, and tried again until there is room. Any other error ends the process: what the
//! disk holds is then unknown, and trying again would report as safe what is not.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use protocol::order::OutputMark;
use protocol::report::{Chunk, OutputLengths};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::admit::{self, Marks};
use super::record::{self, Place};
use super::{Attempt, Limits, LogsError, SEGMENT_BYTES_MAX, Shared};

/// Chunks to be stored, and where the answer goes.
pub(super) struct Request {
    pub(super) chunks: Vec<Chunk>,
    pub(super) reply: oneshot::Sender<Result<Vec<OutputMark>, LogsError>>,
    /// Given back when they are stored.
    pub(super) room: OwnedSemaphorePermit,
}

/// Runs until every sender is gone. If the disk fails it ends the process.
pub(super) fn run(shared: &Arc<Shared>, limits: Limits, requests: &Receiver<Request>) {
    let (heads, buffer, waiting) = (Heads::default(), Vec::new(), Vec::new());
    let mut writer = Writer { shared, limits, requests, heads, buffer, waiting };
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
    heads: Heads,
    buffer: Vec<u8>,
    /// Came while the disk was full.
    waiting: Vec<Request>,
}

/// Every sender is gone.
struct Abandoned;

impl Writer<'_> {
    /// All that has piled up; waits for the first, and for more until `until`. `None`: every sender is gone.
    fn gather(&mut self, until: Option<Instant>) -> Option<Vec<Request>> {
        let mut batch = std::mem::take(&mut self.waiting);
        if batch.is_empty() {
            batch.push(self.requests.recv().ok()?);
        }
        while batch.len() < BATCH_MAX {
            let patience =
                until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default();
            match self.requests.recv_timeout(patience) {
                Ok(next) => batch.push(next),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        Some(batch)
    }

    fn store(&mut self, batch: Vec<Request>) -> Result<(), Abandoned> {
        let base = self.shared.shelf().active().1;
        self.buffer.clear();
        let mut records: Vec<(Attempt, Place)> = Vec::new();
        let mut answers = Vec::with_capacity(batch.len());
        for Request { chunks, reply, room } in batch {
            let admitted = self.admit(chunks, base, &mut records);
            answers.push((reply, admitted, room));
        }
        if !self.buffer.is_empty() {
            self.write(base)?;
        }
        let touched: HashSet<Attempt> = records.iter().map(|(attempt, _)| *attempt).collect();
        self.shared.shelf_mut().add(records);
        for (reply, admitted, _room) in answers {
            // Whoever asked may be gone.
            let _ = reply.send(admitted);
        }
        self.wake(&touched);
        self.turn()
    }

    /// Writes and syncs the buffer. As long as there is no room on the disk, whoever asked waits: the sessions go on, and what is not
    /// acknowledged stays with the workers.
    fn write(&mut self, base: u64) -> Result<(), Abandoned> {
        let mut pause = PAUSE_FIRST;
        loop {
            let pen = self.shared.shelf().active().0;
            let Err(error) = pen.write(&self.buffer, base) else {
                return pen.sync().or_else(|error| give_up(&error));
            };
            if !matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
                give_up(&error);
            }
            tracing::error!(%error, "output cannot be stored; trying again");
            // What was half written must not be taken for whole records later. If this fails too, the next write covers it.
            let _ = pen.cut(base);
            self.pause(&mut pause)?;
        }
    }

    /// Waits before another try, for longer each time.
    fn pause(&mut self, pause: &mut Duration) -> Result<(), Abandoned> {
        let until = Instant::now() + *pause;
        *pause = (*pause * 2).min(PAUSE_MAX);
        loop {
            match self.requests.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(request) => self.waiting.push(request),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Abandoned),
            }
        }
    }

    /// Begins a new segment when this one is full. If there is no room for its index, that is tried again after the next batch, until
    /// the old one can take no more.
    fn turn(&mut self) -> Result<(), Abandoned> {
        let mut pause = PAUSE_FIRST;
        while self.shared.shelf().is_full(self.limits.segment_bytes) {
            let prepared = self.shared.shelf().prepare_turn();
            match prepared {
                Ok(turn) => {
                    self.shared.shelf_mut().turn(turn);
                    self.heads.age();
                }
                Err(error) if self.shared.shelf().active().1 < 2 * SEGMENT_BYTES_MAX => {
                    tracing::error!(%error, "cannot begin a new log segment; going on with the old one");
                    break;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot begin a new log segment; trying again");
                    self.pause(&mut pause)?;
                }
            }
        }
        Ok(())
    }

    fn admit(
        &mut self,
        chunks: Vec<Chunk>,
        base: u64,
        records: &mut Vec<(Attempt, Place)>,
    ) -> Result<Vec<OutputMark>, LogsError> {
        let mut marks = Marks::default();
        for chunk in chunks {
            let (token, stream, attempt, end) =
                (chunk.token, chunk.stream, Attempt::from(chunk.token), chunk.end());
            let head = self.heads.of(attempt, || self.shared.shelf().lengths(attempt))?;
            let mut before = *head;
            for (_, data) in admit::admit(head, chunk) {
                let place = record::encode(&mut self.buffer, base, attempt, stream, before, &data);
                before = place.after();
                records.push((attempt, place));
            }
            marks.put(OutputMark { token, stream, offset: admit::length(head, stream).min(end) });
        }
        Ok(marks.into_vec())
    }

    fn wake(&self, touched: &HashSet<Attempt>) {
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
fn give_up(error: &std::io::Error) -> ! {
    tracing::error!(%error, "output cannot be kept: ending, to recover from what the disk holds");
    std::process::abort()
}

/// How far the output of attempts has come, of those that wrote lately. Others are looked up.
#[derive(Default)]
struct Heads {
    lately: HashMap<Attempt, OutputLengths>,
    earlier: HashMap<Attempt, OutputLengths>,
}

impl Heads {
    fn of(
        &mut self,
        attempt: Attempt,
        look_up: impl FnOnce() -> Result<OutputLengths, LogsError>,
    ) -> Result<&mut OutputLengths, LogsError> {
        if self.lately.len() >= HEADS_MAX {
            self.age();
        }
        if !self.lately.contains_key(&attempt) {
            let lengths = self.earlier.remove(&attempt).map_or_else(look_up, Ok)?;
            self.lately.insert(attempt, lengths);
        }
        Ok(self.lately.entry(attempt).or_default())
    }

    fn age(&mut self) {
        self.earlier = std::mem::take(&mut self.lately);
    }
}

/// Twice this many heads are kept, at some 50 bytes each.
const HEADS_MAX: usize = 100_000;

/// The first wait after a failed write; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Requests in one sync: each session has one on its way.
const BATCH_MAX: usize = 4_096;
