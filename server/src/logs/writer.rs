//! The one thread that writes output: takes all that has piled up, appends it, syncs once, and only then lets it be seen and told.
//!
//! An error of the write itself (a full disk) fails what was to be written and takes it back. An error of the sync ends the thread:
//! what the disk holds is then unknown, and trying again would report as safe what is not.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

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

/// Runs until every sender is gone, or the disk fails.
pub(super) fn run(shared: &Arc<Shared>, limits: Limits, requests: &Receiver<Request>) {
    let mut writer = Writer { shared, limits, heads: Heads::default(), buffer: Vec::new() };
    let mut synced: Option<Instant> = None;
    while let Ok(first) = requests.recv() {
        let batch = gather(first, requests, synced.map(|at| at + limits.sync_interval));
        synced = Some(Instant::now());
        if let Err(error) = writer.store(batch) {
            tracing::error!(%error, "the log writer stops: output is kept by the workers until this server is started again");
            return;
        }
    }
}

/// All that has piled up; waits for more until `until`.
fn gather(first: Request, requests: &Receiver<Request>, until: Option<Instant>) -> Vec<Request> {
    let mut batch = vec![first];
    loop {
        let patience = until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default();
        match requests.recv_timeout(patience) {
            Ok(next) => batch.push(next),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return batch,
        }
        if batch.len() >= BATCH_MAX {
            return batch;
        }
    }
}

struct Writer<'s> {
    shared: &'s Arc<Shared>,
    limits: Limits,
    heads: Heads,
    buffer: Vec<u8>,
}

impl Writer<'_> {
    /// # Errors
    /// The disk cannot be trusted any more.
    fn store(&mut self, batch: Vec<Request>) -> Result<(), LogsError> {
        let (file, base) = self.shared.shelf().active();
        self.buffer.clear();
        let mut records: Vec<(Attempt, Place)> = Vec::new();
        let mut answers = Vec::with_capacity(batch.len());
        for Request { chunks, reply, room } in batch {
            let admitted = self.admit(chunks, base, &mut records);
            answers.push((reply, admitted, room));
        }
        if let Err(source) = file.write_all_at(&self.buffer, base) {
            tracing::error!(error = %source, "output is not stored");
            self.heads = Heads::default();
            // What was half written must not be taken for whole records later. If this fails too, the next write covers it.
            let _ = file.set_len(base);
            for (reply, ..) in answers {
                let source = source.kind().into();
                // Whoever asked may be gone.
                let _ = reply.send(Err(LogsError::Io { what: "cannot write output".into(), source }));
            }
            return Ok(());
        }
        if !self.buffer.is_empty() {
            file.sync_data()
                .map_err(|source| LogsError::Io { what: "cannot sync output".to_owned(), source })?;
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

    /// Begins a new segment when this one is full. If there is no room for its index, that is tried again after the next batch.
    fn turn(&mut self) -> Result<(), LogsError> {
        if !self.shared.shelf().is_full(self.limits.segment_bytes) {
            return Ok(());
        }
        let prepared = self.shared.shelf().prepare_turn();
        match prepared {
            Ok(turn) => {
                self.shared.shelf_mut().turn(turn);
                self.heads.age();
            }
            Err(error) if self.shared.shelf().active().1 < 2 * SEGMENT_BYTES_MAX => {
                tracing::error!(%error, "cannot begin a new log segment; going on with the old one");
            }
            Err(error) => return Err(error),
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
            let (token, stream, attempt) = (chunk.token, chunk.stream, Attempt::from(chunk.token));
            let head = self.heads.of(attempt, || self.shared.shelf().lengths(attempt))?;
            let mut before = *head;
            for (_, data) in admit::admit(head, chunk) {
                let place = record::encode(&mut self.buffer, base, attempt, stream, before, &data);
                before = place.after();
                records.push((attempt, place));
            }
            marks.put(OutputMark { token, stream, offset: admit::length(head, stream) });
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

/// Requests in one sync: each session has one on its way.
const BATCH_MAX: usize = 4_096;
