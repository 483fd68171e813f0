//! Finds what a job's attempts wrote, in order; and, for those who follow, waits for more until the job has ended.
//!
//! The order of looking matters. Growth is watched before anything is read, so that nothing slips in between; and an attempt is left only
//! when the archive says that it has ended *and* everything that its final report counted has been read. The report
//! never waits for the output, so the output gets some time to arrive behind it; what does not come is told.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::report::{OutputLengths, Stream};
use protocol::{AttemptNo, JobId};
use tokio::time::Instant;

use super::super::desk::Desk;
use super::super::jobs::find;
use super::super::problem::Problem;
use crate::clock;
use crate::logs::{Attempt, Follow, Piece, PieceData, Which};
use crate::store::{AttemptRow, JobRecord, JobRow};

/// Where and what to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) which: Which,
    /// The first attempt to read; absent: the first one that there is.
    pub(super) attempt: Option<AttemptNo>,
    /// Where in it.
    pub(super) position: u64,
    /// Whether to wait for more.
    pub(super) follow: bool,
    /// Whether to stay with that attempt.
    pub(super) only: bool,
}

/// What a reader comes upon.
#[derive(Debug)]
pub(super) enum Item {
    /// From here on it is the output of this attempt, from this position on.
    Attempt { number: AttemptNo, worker: String, from: u64 },
    /// A stretch of output.
    Piece { attempt: AttemptNo, piece: Piece },
    /// So many bytes that the final report counted have not arrived. They still may, but are not waited for any longer.
    Late { bytes: u64 },
    /// The job has ended, and all of its output that is here has been told.
    Ended(Box<JobRow>),
    /// The one attempt that was asked for has ended, and all of its output that is here has been told.
    AttemptEnded(Box<AttemptRow>),
    /// The latest attempt has ended, the job has not, and nothing more is waited for.
    Over,
    /// The server leaves.
    Left,
}

/// Reads what a job's attempts wrote.
pub(super) struct Reader {
    desk: Arc<Desk>,
    job: JobId,
    start: Start,
    current: Option<Current>,
    ready: VecDeque<Item>,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    has_ended: bool,
    looked_at: Option<Instant>,
    /// How long to wait before looking for an attempt again.
    pause: Duration,
    done: bool,
}

/// The attempt that is being read.
struct Current {
    number: AttemptNo,
    attempt: Attempt,
    position: u64,
    growth: Option<Follow>,
    /// Until when the next output of an ended attempt is waited for.
    patience: Option<Instant>,
    /// Whether it was told how much has not arrived.
    is_late_told: bool,
}

impl Current {
    /// Whether nothing has arrived for so long that nothing is waited for any more.
    fn is_given_up(&mut self) -> bool {
        let until = *self.patience.get_or_insert_with(|| Instant::now() + OUTPUT_PATIENCE);
        Instant::now() >= until
    }
}

impl Reader {
    pub(super) fn new(desk: Arc<Desk>, job: JobId, start: Start) -> Self {
        let engine = desk.app.engine.clone();
        let end = async move {
            // Too busy to tell, or not among those that live: the archive is asked anyway.
            let _ = engine.ended(job).await;
        };
        Self {
            desk,
            job,
            start,
            current: None,
            ready: VecDeque::new(),
            end: Box::pin(end),
            has_ended: !start.follow,
            looked_at: None,
            pause: WAIT_FOR_ATTEMPT_MIN,
            done: false,
        }
    }

    /// The next item; `None` when there will be none.
    pub(super) async fn next(&mut self) -> Option<Result<Item, Problem>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(Ok(item));
            }
            if self.done {
                return None;
            }
            if let Err(problem) = self.look().await {
                self.done = true;
                return Some(Err(problem));
            }
        }
    }

    /// Finds at least one item, or waits for something to happen, or ends.
    async fn look(&mut self) -> Result<(), Problem> {
        if self.read_page().await? {
            return Ok(());
        }
        if self.may_wait_unseen() {
            self.wait(WAIT_FOR_OUTPUT).await;
            return Ok(());
        }
        self.looked_at = Some(Instant::now());
        let record = find(&self.desk, self.job).await?;
        let Some(current) = &mut self.current else {
            match next_attempt(&record, self.start.attempt, None) {
                Some(attempt) => self.turn_to(attempt),
                None => self.end_or_wait(record).await,
            }
            return Ok(());
        };
        let row = attempts(&record).find(|attempt| attempt.number == current.number);
        let may_leave = match row {
            Some(row) if row.ended_at.is_none() => false,
            Some(row) if current.position >= length(&row.output, self.start.which) => true,
            _ => !self.start.follow || current.is_given_up(),
        };
        let number = current.number;
        match next_attempt(&record, None, Some(number)) {
            _ if !may_leave && self.start.follow => self.wait(WAIT_FOR_OUTPUT).await,
            _ if !may_leave => self.done = true,
            _ if self.tell_missing(row).await? => {}
            Some(attempt) if !self.start.only => self.turn_to(attempt),
            _ if self.start.only => {
                self.ready.extend(row.cloned().map(|row| Item::AttemptEnded(Box::new(row))));
                self.done = true;
            }
            _ => self.end_or_wait(record).await,
        }
        Ok(())
    }

    /// An attempt that writes much need not be looked up in the archive after each of its pages.
    fn may_wait_unseen(&self) -> bool {
        let fresh = self.looked_at.is_some_and(|at| at.elapsed() < WAIT_FOR_OUTPUT);
        self.start.follow && self.current.is_some() && !self.has_ended && fresh
    }

    /// Whether there was something to read.
    async fn read_page(&mut self) -> Result<bool, Problem> {
        let Some(current) = &mut self.current else { return Ok(false) };
        let logs = Arc::clone(&self.desk.app.logs);
        let (attempt, which, position) = (current.attempt, self.start.which, current.position);
        let page = self.desk.block(move || Ok(logs.read(attempt, which, position, PAGE_BYTES)?)).await?;
        current.position = page.next;
        if !page.pieces.is_empty() {
            (current.patience, current.is_late_told) = (None, false);
        }
        let number = current.number;
        self.ready.extend(page.pieces.into_iter().map(|piece| Item::Piece { attempt: number, piece }));
        Ok(!self.ready.is_empty())
    }

    /// Tells of output that the final report counted and that is not here. If it has not arrived long after its attempt has ended, it
    /// never will: a disk, or a restored backup, has lost it. Whether there was any to be told of.
    async fn tell_missing(&mut self, row: Option<&AttemptRow>) -> Result<bool, Problem> {
        let (Some(current), Some(row)) = (&mut self.current, row) else { return Ok(false) };
        let counted = length(&row.output, self.start.which);
        if current.position >= counted {
            return Ok(false);
        }
        if !is_long_over(row) {
            return self.tell_late(counted).await;
        }
        let (logs, attempt) = (Arc::clone(&self.desk.app.logs), current.attempt);
        let here = self.desk.block(move || Ok(logs.lengths(attempt)?)).await?;
        for (stream, said, here) in [
            (Stream::Stdout, row.output.stdout, here.stdout),
            (Stream::Stderr, row.output.stderr, here.stderr),
        ] {
            let missing = said.saturating_sub(here);
            if missing > 0 && self.start.which.has(stream) {
                let piece = Piece { stream, at: current.position, data: PieceData::Gap(missing) };
                self.ready.push_back(Item::Piece { attempt: current.number, piece });
                current.position = current.position.saturating_add(missing);
            }
        }
        Ok(!self.ready.is_empty())
    }

    /// Tells once how much of so many bytes may still be on its way. Whether there was anything to be told of.
    async fn tell_late(&mut self, counted: u64) -> Result<bool, Problem> {
        // It may have arrived while the archive was asked.
        if self.read_page().await? {
            return Ok(true);
        }
        let Some(current) = &mut self.current else { return Ok(false) };
        if current.is_late_told {
            return Ok(false);
        }
        current.is_late_told = true;
        self.ready.push_back(Item::Late { bytes: counted.saturating_sub(current.position) });
        Ok(true)
    }

    fn turn_to(&mut self, row: &AttemptRow) {
        let attempt = Attempt { job: self.job, fence: row.fence };
        let position = match self.start.attempt {
            Some(number) if number == row.number => self.start.position,
            _ if self.current.is_none() => self.start.position,
            _ => 0,
        };
        self.pause = WAIT_FOR_ATTEMPT_MIN;
        self.current = Some(Current {
            number: row.number,
            attempt,
            position,
            growth: self.start.follow.then(|| self.desk.app.logs.follow(attempt)),
            patience: None,
            is_late_told: false,
        });
        let (number, worker) = (row.number, row.worker_name.to_string());
        self.ready.push_back(Item::Attempt { number, worker, from: position });
    }

    async fn end_or_wait(&mut self, record: JobRecord) {
        if record.row.state.has_ended() {
            self.ready.push_back(Item::Ended(Box::new(record.row)));
            self.done = true;
        } else if self.start.follow {
            let pause = self.pause;
            self.pause = (pause * 2).min(WAIT_FOR_ATTEMPT_MAX);
            self.wait(pause).await;
        } else {
            let is_over = record.row.attempt.is_some_and(|attempt| attempt.ended_at.is_some());
            self.ready.extend(is_over.then_some(Item::Over));
            self.done = true;
        }
    }

    /// Until something may have happened, or the server leaves.
    async fn wait(&mut self, at_most: Duration) {
        let growth = self.current.as_mut().and_then(|current| current.growth.as_mut());
        let grown = async {
            match growth {
                Some(growth) => growth.grown().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // What has grown counts even if the time is up as well.
            biased;
            () = self.desk.app.leaving.cancelled() => {
                self.ready.push_back(Item::Left);
                self.done = true;
            }
            () = grown => {
                // Also that of the other stream: what is missing may come behind it.
                if let Some(current) = &mut self.current {
                    current.patience = None;
                }
            }
            () = &mut self.end, if !self.has_ended => self.has_ended = true,
            () = tokio::time::sleep(at_most) => {}
        }
    }
}

/// All attempts of a job, oldest first.
pub(super) fn attempts(record: &JobRecord) -> impl Iterator<Item = &AttemptRow> {
    record.past.iter().chain(&record.row.attempt)
}

/// How long the output is, by this numbering.
pub(super) fn length(lengths: &OutputLengths, which: Which) -> u64 {
    match which {
        Which::Only(Stream::Stdout) => lengths.stdout,
        Which::Only(Stream::Stderr) => lengths.stderr,
        Which::Both => lengths.stdout.saturating_add(lengths.stderr),
    }
}

/// Whether an attempt ended so long ago that nothing of its output is on its way any more.
pub(super) fn is_long_over(row: &AttemptRow) -> bool {
    row.ended_at.is_some_and(|at| clock::now().utc.since(at) > OUTPUT_LATE)
}

/// The attempt asked for, or the first one after `after`.
fn next_attempt(
    record: &JobRecord,
    wanted: Option<AttemptNo>,
    after: Option<AttemptNo>,
) -> Option<&AttemptRow> {
    attempts(record).find(|attempt| match wanted {
        Some(wanted) => attempt.number == wanted,
        None => after.is_none_or(|after| attempt.number > after),
    })
}

/// What is read at once: small enough that many may follow.
const PAGE_BYTES: usize = 64 << 10;

/// How long the output of an ended attempt may pause while it arrives behind the report; then it is told as it is.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(10);

/// Workers keep the output of an ended attempt for ten minutes, and then give up what has not been taken (FAULTS.md R25).
const OUTPUT_LATE: Duration = Duration::from_secs(15 * 60);

/// An attempt that is being made is not announced to readers: this is how late they may notice, at first and when the job waits long.
const WAIT_FOR_ATTEMPT_MIN: Duration = Duration::from_millis(100);
const WAIT_FOR_ATTEMPT_MAX: Duration = Duration::from_secs(1);
const WAIT_FOR_OUTPUT: Duration = Duration::from_secs(1);
