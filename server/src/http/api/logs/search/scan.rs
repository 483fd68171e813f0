//! The scan of one request: jobs from the newest down, their attempts from the first on, standard output before standard error.
//!
//! It stops at the first of four limits: matches, bytes, jobs, time. The position after the last line that was searched continues it.

use std::collections::HashMap;
use std::time::Instant;

use protocol::report::Stream;
use protocol::{JobId, Revision};

use super::lines::Lines;
use super::matcher::Matcher;
use crate::config::jobs_file;
use crate::http::api::logs::reader;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{OutputLine, Time};
use crate::logs::{AttemptKey, BYTES_MAX_FROM, Logs, PieceData, Streams};
use crate::store::{Archive, AttemptRow, JobFilter, JobRow};

/// A position between two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) job: JobId,
    pub(super) attempt: u32,
    pub(super) stream: Stream,
    pub(super) offset: u64,
}

/// A search, with what it has found so far.
pub(super) struct Scan<'a> {
    pub(super) archive: &'a dyn Archive,
    pub(super) logs: &'a Logs,
    pub(super) matcher: &'a Matcher,
    pub(super) filter: JobFilter,
    /// Only this job.
    pub(super) only: Option<JobId>,
    pub(super) streams: Streams,
    pub(super) from: Option<Position>,
    pub(super) lines_max: usize,
    /// The scan stops then, but never before it has searched a line or a job.
    pub(super) deadline: Instant,
    pub(super) found: Vec<OutputLine>,
    pub(super) bytes: u64,
    pub(super) jobs: u64,
    /// Jobs that were searched and whose output was cut.
    pub(super) cut_jobs: Vec<u64>,
    /// `log.max_bytes` of definitions with long output.
    pub(super) limits: HashMap<Revision, u64>,
}

impl Scan<'_> {
    /// Scans, and returns the position to continue from; none if everything was searched.
    ///
    /// # Errors
    /// The store or the output cannot be read.
    pub(super) fn run(&mut self) -> Result<Option<Position>, Problem> {
        self.filter.before =
            self.from.map(|from| from.job).or(self.only).map(|job| JobId(job.0.saturating_add(1)));
        self.filter.limit = if self.only.is_some() { 1 } else { ROWS };
        loop {
            let rows = self.archive.jobs(&self.filter).map_err(Problem::from)?;
            let is_last = rows.len() < self.filter.limit || self.only.is_some();
            for row in rows {
                if self.only.is_some_and(|only| only != row.job) {
                    return Ok(None);
                }
                if self.jobs >= JOBS_MAX || (self.jobs > 0 && self.is_spent()) {
                    let from = self.from.filter(|from| from.job == row.job);
                    let begin = Position { job: row.job, attempt: 0, stream: Stream::Stdout, offset: 0 };
                    return Ok(Some(from.unwrap_or(begin)));
                }
                self.filter.before = Some(row.job);
                if let Some(stopped) = self.job(&row)? {
                    return Ok(Some(stopped));
                }
                self.jobs += 1;
            }
            if is_last {
                return Ok(None);
            }
        }
    }

    fn is_spent(&self) -> bool {
        self.bytes >= BYTES_MAX || Instant::now() >= self.deadline
    }

    fn job(&mut self, row: &JobRow) -> Result<Option<Position>, Problem> {
        if row.attempts.0 <= 1 {
            return row.attempt.as_ref().map_or(Ok(None), |attempt| self.attempt(row, attempt));
        }
        // Removed since the list was read.
        let Some(record) = self.archive.job(row.job).map_err(Problem::from)? else { return Ok(None) };
        for attempt in reader::attempts(&record) {
            if let Some(stopped) = self.attempt(row, attempt)? {
                return Ok(Some(stopped));
            }
        }
        Ok(None)
    }

    fn attempt(&mut self, row: &JobRow, attempt: &AttemptRow) -> Result<Option<Position>, Problem> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let mut position = Position { job: row.job, attempt: attempt.number.0, stream, offset: 0 };
            if let Some(from) = self.from.filter(|from| from.job == row.job) {
                let order = |position: &Position| (position.attempt, position.stream == Stream::Stderr);
                if order(&position) < order(&from) {
                    continue;
                }
                if order(&position) == order(&from) {
                    position.offset = from.offset;
                }
            }
            if self.streams.has(stream)
                && let Some(offset) = self.stream(row, attempt, &position)?
            {
                return Ok(Some(Position { offset, ..position }));
            }
        }
        Ok(None)
    }

    /// Searches a stream. Returns the offset at which it stopped before the end.
    fn stream(
        &mut self,
        row: &JobRow,
        attempt: &AttemptRow,
        from: &Position,
    ) -> Result<Option<u64>, Problem> {
        let key = AttemptKey { job: row.job, fence: attempt.fence };
        let mut lines = Lines::from(from.offset);
        let mut next = from.offset;
        loop {
            if self.bytes > 0 && self.is_spent() {
                return Ok(Some(lines.position()));
            }
            let page = self.logs.read(key, Streams::Only(from.stream), next, READ_BYTES)?;
            let is_end = page.pieces.is_empty();
            // Output that retention has removed is not searched.
            if !is_end && self.was_cut(row, attempt)? {
                self.note_cut(row.job);
            }
            next = page.next;
            for piece in page.pieces {
                if matches!(piece.data, PieceData::Cut(_)) {
                    self.note_cut(row.job);
                }
                let (at_end, after) = match piece.data {
                    PieceData::Bytes(data) | PieceData::Replayed(data) => {
                        lines.push(&data);
                        (false, None)
                    }
                    // A line ends at missing bytes.
                    PieceData::Gap(missing) | PieceData::Cut(missing) => {
                        (true, Some(piece.at.saturating_add(missing)))
                    }
                };
                if self.search(row, attempt, from.stream, &mut lines, at_end) {
                    return Ok(Some(lines.position()));
                }
                if let Some(after) = after {
                    lines = Lines::from(after);
                }
            }
            if is_end {
                let is_stopped = self.search(row, attempt, from.stream, &mut lines, true);
                return Ok(is_stopped.then(|| lines.position()));
            }
        }
    }

    /// True if an attempt wrote more than `log.max_bytes`.
    fn was_cut(&mut self, row: &JobRow, attempt: &AttemptRow) -> Result<bool, Problem> {
        let written = reader::length(&attempt.output, Streams::Both);
        if attempt.ended_at.is_none() || written <= BYTES_MAX_FROM {
            return Ok(false);
        }
        let bytes_max = match self.limits.get(&row.revision) {
            Some(known) => *known,
            None => {
                let stored = self.archive.definition(row.revision).map_err(Problem::from)?;
                let bytes_max = jobs_file::log_bytes_max(stored.as_ref());
                self.limits.insert(row.revision, bytes_max);
                bytes_max
            }
        };
        Ok(written > bytes_max)
    }

    /// Notes a job once: its attempts and streams follow each other.
    fn note_cut(&mut self, job: JobId) {
        if self.cut_jobs.last() != Some(&job.0) {
            self.cut_jobs.push(job.0);
        }
    }

    /// Searches the lines that are there. Returns true at a limit.
    fn search(
        &mut self,
        row: &JobRow,
        attempt: &AttemptRow,
        stream: Stream,
        lines: &mut Lines,
        at_end: bool,
    ) -> bool {
        while let Some((offset, line)) = lines.next(at_end) {
            self.bytes += line.len() as u64 + 1;
            if let Some(found) = self.matcher.find(line) {
                self.found.push(OutputLine {
                    job: row.job.0,
                    name: row.definition.clone(),
                    attempt: attempt.number.0,
                    stream: match stream {
                        Stream::Stdout => "stdout".into(),
                        Stream::Stderr => "stderr".into(),
                    },
                    offset,
                    text: found.text,
                    matches: found.ranges,
                    truncated: found.truncated,
                    started_at: attempt.started_at.map(Time),
                });
            }
            if self.found.len() >= self.lines_max || self.is_spent() {
                return true;
            }
        }
        false
    }
}

/// Bytes of output that one request searches: well below a second for a literal text, so that callers see progress.
const BYTES_MAX: u64 = 16 << 20;

/// Jobs that one request looks at. Each costs a look into the index of the segments.
const JOBS_MAX: u64 = 1_000;

/// Jobs read from the store at a time.
const ROWS: usize = 100;

/// Bytes of output read at a time. More than a line at most has, so that each read gives out a line.
const READ_BYTES: usize = 256 << 10;
const _: () = assert!(READ_BYTES > super::lines::LINE_BYTES_MAX);
