//! Output of several jobs at once: whole lines, each with the job that wrote it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::outage::Awaited;
use crate::screen;
use crate::screen::job_output::JobOutput;
use crate::stream::Stream;

/// A job whose output is printed beside that of others.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The job.
    pub(super) job: u64,
    group: Group,
    /// Columns of the longest name so far, so that lines begin in one column.
    columns: Arc<AtomicUsize>,
}

/// The jobs that it is printed with.
#[derive(Clone, Debug)]
enum Group {
    /// Those of a batch, whose number is that of its first job.
    Batch { first: u64 },
    /// Those that run in the place of this job, each on a worker of its own.
    Members { of: u64, worker: String },
}

impl Member {
    /// A job of a batch.
    pub(super) fn of_batch(job: u64, first: u64, columns: &Arc<AtomicUsize>) -> Self {
        Self { job, group: Group::Batch { first }, columns: columns.clone() }
    }

    /// A job that runs in the place of another.
    pub(super) fn of_parent(job: u64, parent: u64, columns: &Arc<AtomicUsize>) -> Self {
        let group = Group::Members { of: parent, worker: String::new() };
        Self { job, group, columns: columns.clone() }
    }

    /// Notes the worker of its attempt.
    pub(super) fn runs_on(&mut self, name: &str) {
        if let Group::Members { worker, .. } = &mut self.group {
            name.clone_into(worker);
        }
    }

    /// The batch or job that goes on if the output cannot be followed any longer.
    pub(super) const fn awaited(&self) -> Awaited {
        match &self.group {
            Group::Batch { first } => Awaited::FollowedBatch(*first),
            Group::Members { of, .. } => Awaited::Job(*of),
        }
    }

    /// Lines with the name of the job before each.
    pub(super) fn prefixed(&self, lines: &str) -> String {
        // Before its first line the worker is not known.
        if lines.is_empty() {
            return String::new();
        }
        let name = self.name();
        let columns = name.chars().count();
        let columns = self.columns.fetch_max(columns, Ordering::Relaxed).max(columns);
        let prefix = format!("{name:<columns$} | ");
        lines.split_inclusive('\n').flat_map(|line| [prefix.as_str(), line]).collect()
    }

    /// Prints lines with the name of the job.
    pub(super) fn print(&self, stream: Stream, lines: &str) -> anyhow::Result<()> {
        let mut look = JobOutput::new(true);
        screen::output(stream, self.prefixed(lines).as_bytes(), &mut look)?;
        screen::end_output(stream, &mut look)
    }

    /// Adds the job to a JSON line about it.
    pub(super) fn add_to(&self, line: &mut Value) {
        line["job"] = json!(self.job);
        match &self.group {
            Group::Batch { first } => line["index"] = json!(self.job.saturating_sub(*first)),
            Group::Members { worker, .. } => line["worker"] = json!(worker),
        }
    }

    fn name(&self) -> String {
        match &self.group {
            Group::Batch { first } => name_in_batch(self.job, *first),
            Group::Members { worker, .. } if worker.is_empty() => format!("job {}", self.job),
            Group::Members { worker, .. } => worker.clone(),
        }
    }
}

/// Columns of the longest name in a batch with this number of members.
pub(super) fn columns_of_batch(first: u64, count: u64) -> Arc<AtomicUsize> {
    let last = first.saturating_add(count.saturating_sub(1));
    Arc::new(AtomicUsize::new(name_in_batch(last, first).len()))
}

/// The job, and its position from 0.
fn name_in_batch(job: u64, first: u64) -> String {
    format!("{job}[{}]", job.saturating_sub(first))
}

/// The last lines of both streams of a job, until they are complete.
#[derive(Debug, Default)]
pub(super) struct OpenLines {
    stdout: String,
    stderr: String,
}

impl OpenLines {
    /// Adds text, and returns the lines that are complete with it, each with its line break. A very long line counts as complete.
    pub(super) fn push(&mut self, stream: Stream, text: &str) -> String {
        let line = self.of(stream);
        line.push_str(text);
        match line.rfind('\n') {
            Some(end) => line.drain(..=end).collect(),
            None if line.len() > LINE_BYTES_MAX => self.take(stream),
            None => String::new(),
        }
    }

    /// Returns the incomplete line as a complete one; empty if there is none.
    pub(super) fn take(&mut self, stream: Stream) -> String {
        let mut line = std::mem::take(self.of(stream));
        if !line.is_empty() {
            line.push('\n');
        }
        line
    }

    const fn of(&mut self, stream: Stream) -> &mut String {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// Memory for a line of a program that writes no line breaks.
const LINE_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_begin_in_one_column() {
        let member = Member::of_batch(98, 95, &columns_of_batch(95, 11));
        assert_eq!(member.prefixed("a\n\nb\n"), "98[3]   | a\n98[3]   | \n98[3]   | b\n");
        let columns = Arc::default();
        let [mut one, mut other] = [3, 4].map(|job| Member::of_parent(job, 2, &columns));
        one.runs_on("rack-10");
        other.runs_on("rack-2");
        assert_eq!(one.prefixed("a\n") + &other.prefixed("b\n"), "rack-10 | a\nrack-2  | b\n");
        let mut lines = OpenLines::default();
        assert_eq!(lines.push(Stream::Stdout, "one\ntw"), "one\n");
        assert_eq!(lines.push(Stream::Stderr, "x"), "");
        assert_eq!(lines.push(Stream::Stdout, "o\nthree\n"), "two\nthree\n");
        assert_eq!((lines.take(Stream::Stdout).as_str(), lines.take(Stream::Stderr).as_str()), ("", "x\n"));
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        assert_eq!(lines.push(Stream::Stdout, &long).len(), long.len() + 1);
    }
}
