//! Reads the output of a job's attempts in order and, for followers, waits for more until the job has ended.
//!
//! The order of the checks matters. The reader subscribes to growth before it reads, so that no wakeup is lost. It leaves an attempt only
//! when the archive says that it has ended *and* everything that its final report counted has been read. The report never waits for the
//! output, so output may arrive some seconds later; missing output is reported.

mod missing;
mod record;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::report::{OutputLengths, Stream};
use protocol::{AttemptNo, JobId};
use tokio::time::Instant;

use crate::clock;
use crate::config::jobs_file;
use crate::engine::JobWatch;
use crate::http::middleware::problem::Problem;
use crate::http::present::ending::attempt_heading;
use crate::http::present::shapes::Reason;
use crate::http::state::AppState;
use crate::logs::{AttemptKey, Follow, Piece, PieceData, Streams};
use crate::store::{AttemptRow, JobRecord, JobRow};

/// The position to start from, and how far to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) which: Streams,
    /// The first attempt to read; absent: the first one that exists.
    pub(super) attempt: Option<AttemptNo>,
    /// The offset in that attempt.
    pub(super) position: u64,
    /// Waits for more output if set.
    pub(super) follow: bool,
    /// Reads this one attempt only if set.
    pub(super) only: bool,
}

/// An item of the output.
#[derive(Debug)]
pub(super) enum Item {
    /// The following output belongs to this attempt and begins at this offset.
    Attempt {
        number: AttemptNo,
        worker: String,
        from: u64,
        /// The attempt and how it ended, in one line.
        heading: String,
    },
    /// A piece of output or a gap.
    Piece {
        attempt: AttemptNo,
        piece: Piece,
        /// For missing output that was cut at `log.max_bytes`: that limit, in bytes.
        cut_at: Option<u64>,
    },
    /// Bytes that the final report counted and that have not arrived in time. They may still arrive.
    Late { bytes: u64 },
    /// The worker keeps what the running attempt writes beyond these bytes until its end. `bytes_max` is `log.max_bytes`.
    Withheld { shown_bytes: u64, bytes_max: u64 },
    /// An attempt has ended, and the job goes on.
    Retried(Box<Retried>),
    /// The job has ended, and all output at hand was read.
    Ended(Box<JobRow>),
    /// The one requested attempt has ended, and all output at hand was read.
    AttemptEnded(Box<AttemptRow>),
    /// The latest attempt has ended, the job has not, and the reader does not follow.
    CaughtUp,
    /// The server shuts down.
    ShuttingDown,
}

/// The end of an attempt that is not the end of its job.
#[derive(Debug)]
pub(super) struct Retried {
    pub(super) ended: AttemptRow,
    /// The next attempt, if there is one already.
    pub(super) next: Option<AttemptNo>,
    /// The reason why the job waits again, if it does.
    pub(super) reason: Option<Reason>,
    /// All of it in one line.
    pub(super) text: String,
}

/// Reads the output of a job's attempts.
pub(super) struct Reader {
    state: Arc<AppState>,
    job: JobId,
    start: Start,
    current: Option<Current>,
    ready: VecDeque<Item>,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    has_ended: bool,
    changes: JobWatch,
    /// True if the job's attempts may have changed since the archive was read.
    may_have_changed: bool,
    /// The job as it was read last, if the reader does not follow.
    record: Option<Arc<JobRecord>>,
    /// `log.max_bytes` of the job, once it was needed.
    bytes_max: Option<u64>,
    done: bool,
}

/// The attempt that is being read.
struct Current {
    number: AttemptNo,
    attempt: AttemptKey,
    position: u64,
    growth: Option<Follow>,
    /// Deadline for the next output of an ended attempt.
    deadline: Option<Instant>,
    /// True if the missing bytes were reported.
    late_reported: bool,
    /// True if the cut at `log.max_bytes` was reported.
    cut_reported: bool,
    /// True if output that the worker withholds was reported.
    withheld_reported: bool,
    /// True if its end was reported, with what comes after it.
    end_reported: bool,
    /// Deadline of the only wait for the final report.
    report_deadline: Option<Instant>,
    /// True if the archive says that it has ended.
    is_over: bool,
}

impl Current {
    /// True if the deadline for late output has passed.
    fn deadline_passed(&mut self) -> bool {
        let until = *self.deadline.get_or_insert_with(|| Instant::now() + OUTPUT_TIMEOUT);
        Instant::now() >= until
    }
}

impl Reader {
    pub(super) fn new(state: Arc<AppState>, job: JobId, start: Start) -> Self {
        let engine = state.services.engine.clone();
        let changes = engine.watch(job);
        let end = async move {
            // Errors (busy, unknown job) are ignored: the archive is asked anyway.
            let _ = engine.ended(job).await;
        };
        Self {
            state,
            job,
            start,
            current: None,
            ready: VecDeque::new(),
            end: Box::pin(end),
            has_ended: !start.follow,
            changes,
            may_have_changed: true,
            record: None,
            bytes_max: None,
            done: false,
        }
    }

    /// The next item; `None` at the end.
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

    /// Makes one step: reads a page of output, goes on to the next attempt, ends the stream, or waits for news of the job.
    async fn look(&mut self) -> Result<(), Problem> {
        if self.read_page().await? {
            return Ok(());
        }
        if self.skips_archive() {
            if !self.report_withheld(None).await? {
                self.wait(RECHECK_AFTER).await;
            }
            return Ok(());
        }
        self.may_have_changed = false;
        let record = self.record().await?;
        let is_cut = self.is_cut().await?;
        if is_cut && self.read_page().await? {
            // The cut came after the last read. Nothing is stored after it.
            return Ok(());
        }
        let Some(current) = &mut self.current else {
            match next_attempt(&record, self.start.attempt, None) {
                Some(attempt) => self.turn_to(attempt),
                None => self.end_or_wait(&record).await,
            }
            return Ok(());
        };
        let row = attempts(&record).find(|attempt| attempt.number == current.number);
        current.is_over = row.is_none_or(|row| row.ended_at.is_some());
        let may_leave = match row {
            Some(row) if row.ended_at.is_none() => false,
            Some(row) if is_cut || current.position >= length(&row.output, self.start.which) => true,
            _ => !self.start.follow || current.deadline_passed(),
        };
        let number = current.number;
        if !may_leave && self.report_withheld(Some(&record.row)).await? {
            // Its item comes first; the next step goes on.
        } else if !may_leave && !self.start.follow {
            self.done = true;
        } else if !may_leave {
            let Some(current) = &self.current else { return Ok(()) };
            let deadline = current.deadline.filter(|_| current.is_over);
            let left = deadline.map(|until| until.saturating_duration_since(Instant::now()).min(OUTPUT_STEP));
            self.wait(left.unwrap_or(RECHECK_AFTER)).await;
        } else if self.report_absent(&record, row, is_cut).await? {
            // Likewise.
        } else if self.start.only {
            self.ready.extend(row.cloned().map(|row| Item::AttemptEnded(Box::new(row))));
            self.done = true;
        } else {
            match next_attempt(&record, None, Some(number)) {
                // Its item comes before a wait.
                next if self.report_end(&record, row, next) => {}
                Some(attempt) => self.turn_to(attempt),
                None => self.end_or_wait(&record).await,
            }
        }
        Ok(())
    }

    /// True if the archive has nothing new: the attempt runs, and nothing has changed since it was read.
    fn skips_archive(&self) -> bool {
        let is_running = self.current.as_ref().is_some_and(|current| !current.is_over);
        self.start.follow && is_running && !self.has_ended && !self.may_have_changed
    }

    /// Reads one page; returns true if there was something to read.
    async fn read_page(&mut self) -> Result<bool, Problem> {
        let Some(current) = &self.current else { return Ok(false) };
        let logs = Arc::clone(&self.state.services.logs);
        let (attempt, which, position) = (current.attempt, self.start.which, current.position);
        let page = self.state.block(move || Ok(logs.read(attempt, which, position, PAGE_BYTES)?)).await?;
        let number = current.number;
        // The position moves once nothing is waited for any more, so that no page is lost if this is dropped.
        let rule = self.cut_rule(number, &page).await?;
        let Some(current) = &mut self.current else { return Ok(false) };
        current.position = page.next;
        if !page.pieces.is_empty() {
            (current.deadline, current.late_reported) = (None, false);
        }
        current.cut_reported |= page.pieces.iter().any(|piece| matches!(piece.data, PieceData::Cut(_)));
        self.ready.extend(page.pieces.into_iter().map(|piece| {
            let cut_at = rule.and_then(|rule| rule.cut_at(&piece));
            Item::Piece { attempt: number, piece, cut_at }
        }));
        Ok(!self.ready.is_empty())
    }

    /// `log.max_bytes` of the job, in bytes.
    async fn bytes_max(&mut self, job: &JobRow) -> Result<u64, Problem> {
        if let Some(known) = self.bytes_max {
            return Ok(known);
        }
        let revision = job.revision;
        let stored = self.state.read(move |archive| archive.definition(revision)).await?;
        Ok(*self.bytes_max.insert(jobs_file::log_bytes_max(stored.as_ref())))
    }

    /// True if the server stores nothing more of the current attempt, because it has reached `log.max_bytes`.
    async fn is_cut(&mut self) -> Result<bool, Problem> {
        let Some(current) = &self.current else { return Ok(false) };
        let (logs, attempt) = (Arc::clone(&self.state.services.logs), current.attempt);
        self.state.block(move || Ok(logs.end(attempt)?.is_cut)).await
    }

    fn turn_to(&mut self, row: &AttemptRow) {
        let attempt = AttemptKey { job: self.job, fence: row.fence };
        let position = match self.start.attempt {
            Some(number) if number == row.number => self.start.position,
            _ if self.current.is_none() => self.start.position,
            _ => 0,
        };
        self.current = Some(Current {
            number: row.number,
            attempt,
            position,
            growth: self.start.follow.then(|| self.state.services.logs.follow(attempt)),
            deadline: None,
            late_reported: false,
            cut_reported: false,
            withheld_reported: false,
            end_reported: false,
            report_deadline: None,
            is_over: false,
        });
        self.may_have_changed = true;
        let (number, worker) = (row.number, row.worker_name.to_string());
        let heading =
            attempt_heading(number.0, &worker, row.outcome.map(|outcome| outcome.name()), row.exit_code);
        self.ready.push_back(Item::Attempt { number, worker, from: position, heading });
    }

    async fn end_or_wait(&mut self, record: &JobRecord) {
        if record.row.state.has_ended() {
            self.ready.push_back(Item::Ended(Box::new(record.row.clone())));
            self.done = true;
        } else if self.start.follow {
            self.wait(RECHECK_AFTER).await;
        } else {
            let is_over = record.row.attempt.as_ref().is_some_and(|attempt| attempt.ended_at.is_some());
            self.ready.extend(is_over.then_some(Item::CaughtUp));
            self.done = true;
        }
    }

    /// Waits until something may have happened, the time is up, or the server shuts down.
    async fn wait(&mut self, at_most: Duration) {
        let growth = self.current.as_mut().and_then(|current| current.growth.as_mut());
        let grown = async {
            match growth {
                Some(growth) => growth.grown().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Growth counts even if the time is up at the same moment.
            biased;
            () = self.state.services.shutdown.cancelled() => {
                self.ready.push_back(Item::ShuttingDown);
                self.done = true;
            }
            () = grown => {
                // Growth of the other stream extends the wait as well: the missing bytes may come after it.
                if let Some(current) = &mut self.current {
                    current.deadline = None;
                }
            }
            () = &mut self.end, if !self.has_ended => (self.has_ended, self.may_have_changed) = (true, true),
            () = self.changes.changed() => self.may_have_changed = true,
            () = tokio::time::sleep(at_most) => self.may_have_changed = true,
        }
    }
}

/// All attempts of a job, oldest first.
pub(super) fn attempts(record: &JobRecord) -> impl Iterator<Item = &AttemptRow> {
    record.past.iter().chain(&record.row.attempt)
}

/// The length of the output for this selection of streams.
pub(super) fn length(lengths: &OutputLengths, which: Streams) -> u64 {
    match which {
        Streams::Only(Stream::Stdout) => lengths.stdout,
        Streams::Only(Stream::Stderr) => lengths.stderr,
        Streams::Both => lengths.stdout.saturating_add(lengths.stderr),
    }
}

/// True if an attempt ended so long ago that no more output can arrive.
pub(super) fn is_long_over(row: &AttemptRow) -> bool {
    row.ended_at.is_some_and(|at| clock::now().utc.since(at) > OUTPUT_LATE)
}

/// The requested attempt, or the first one after `after`.
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

/// Bytes read at once: small, because many clients may follow.
const PAGE_BYTES: usize = 64 << 10;

/// The longest pause of an ended attempt's output before it is reported as incomplete.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);

/// Workers keep the output of an ended attempt for ten minutes and then drop what the server has not taken
/// (docs/design/failures.md, R25).
const OUTPUT_LATE: Duration = Duration::from_secs(15 * 60);

/// An ended attempt is read again after this time while its output may still arrive, ten times at most.
const OUTPUT_STEP: Duration = Duration::from_secs(1);

/// Commits that change attempts wake the reader. As a safety net the archive is read again after this time.
const RECHECK_AFTER: Duration = Duration::from_secs(30);
