//! Numbered reports: kept until the server has acknowledged them, and repeated after a reconnect with the
//! same numbers.
//!
//! A report gets its number when it is packed: Runnings first, then Successes, Failures, Releases and
//! Startings, so that each kind is one frame with consecutive numbers. Ages are computed at each packing.
//! Values that the wire cannot carry are clamped here, because an entry that cannot be sent would stop all
//! later ones.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::report::{
    Failed, Numbered, Outcome, OutputLengths, ReleaseCause, Released, Started, Succeeded, Timing,
};
use protocol::wire::{DURATION_MAX, OFFSET_MAX, cut_text};
use protocol::{Report, ReportNo, Token, Uptime, Usage};

use crate::classify::ExitVerdict;
use crate::end_facts::EndFacts;

/// Entries of one frame.
pub(crate) const ENTRIES_MAX: usize = 1_000;
/// Bytes of one frame, by an estimate that is never too low: half of the wire's limit.
const FRAME_BYTES_MAX: usize = 128 * 1024;
/// Highest number that a server may name; above it there is room for as many again.
const NUMBER_MAX: ReportNo = ReportNo(1 << 62);
/// A report that the server has refused so often is sent in its minimal form.
const REFUSALS_MAX: u32 = 3;
/// Text for people in an end that was sent in its minimal form.
const REDUCED: &str = "the server refused the whole report of this end; its details are left out";
/// Estimated bytes of an entry without its texts.
const ENTRY_BYTES: usize = 96;
/// Bytes of the six figures of a usage at their longest.
const USAGE_BYTES: usize = 60;

/// One numbered report.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Running { token: Token, container: String, at: Uptime },
    Success(Success),
    Failure(Failure),
    Released(Released),
    Starting { token: Token },
}

#[derive(Clone, Debug)]
pub(crate) struct Success {
    token: Token,
    at: Uptime,
    run_time: Duration,
    output: OutputLengths,
    usage: Usage,
    result: Option<String>,
    note: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Failure {
    token: Token,
    at: Uptime,
    outcome: Outcome,
    exit_code: Option<i32>,
    message: String,
    run_time: Option<Duration>,
    output: OutputLengths,
    usage: Usage,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Numbered without gaps; the first one's number is `acknowledged + 1`.
    kept: VecDeque<Entry>,
    acknowledged: ReportNo,
    /// The highest number that was ever sent.
    highest_sent: ReportNo,
    /// Number of entries of `kept` that were sent on this connection.
    sent: usize,
    /// How often in a row the server has refused a message while this report was the first unacknowledged one.
    refusals: Option<(ReportNo, u32)>,
    successes: Vec<Success>,
    failures: Vec<Failure>,
    releases: Vec<Released>,
    startings: Vec<Token>,
    /// Attempts whose Released is not acknowledged.
    released: BTreeSet<Token>,
}

impl Outbox {
    /// Number of unacknowledged reports, packed or not.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
            + self.successes.len()
            + self.failures.len()
            + self.releases.len()
            + self.startings.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn ended(&mut self, token: Token, verdict: ExitVerdict, facts: EndFacts) {
        let EndFacts { output, usage, at } = facts;
        let usage = usage.clamped();
        let output =
            OutputLengths { stdout: output.stdout.min(OFFSET_MAX), stderr: output.stderr.min(OFFSET_MAX) };
        match verdict {
            ExitVerdict::Success { run_time, result, note } => self.successes.push(Success {
                token,
                at,
                run_time: run_time.min(DURATION_MAX),
                output,
                usage,
                result,
                note,
            }),
            ExitVerdict::Failure { outcome, exit_code, message, run_time } => {
                let run_time = run_time.map(|it| it.min(DURATION_MAX));
                self.failures.push(Failure {
                    token,
                    at,
                    outcome,
                    exit_code,
                    message,
                    run_time,
                    output,
                    usage,
                })
            }
        }
    }

    /// Repeats an acknowledged report under a new number.
    pub(crate) fn repeat(&mut self, entry: Entry) {
        self.kept.push_back(entry);
    }

    pub(crate) fn released(&mut self, token: Token, cause: ReleaseCause, mut why: String) {
        cut_text(&mut why);
        self.released.insert(token);
        self.releases.push(Released { token, cause, why });
    }

    /// The attempt was given back, and the server may not know that yet.
    pub(crate) fn is_released(&self, token: Token) -> bool {
        self.released.contains(&token)
    }

    pub(crate) fn starting(&mut self, token: Token) {
        self.startings.push(token);
    }

    /// Drops an unsent Starting of an attempt that will not start.
    pub(crate) fn not_starting(&mut self, token: Token) {
        self.startings.retain(|it| *it != token);
    }

    /// Numbers all new entries, after the given Runnings.
    pub(crate) fn pack(&mut self, runnings: impl Iterator<Item = Entry>) {
        self.kept.extend(runnings);
        self.kept.extend(self.successes.drain(..).map(Entry::Success));
        self.kept.extend(self.failures.drain(..).map(Entry::Failure));
        self.kept.extend(self.releases.drain(..).map(Entry::Released));
        self.kept.extend(self.startings.drain(..).map(|token| Entry::Starting { token }));
    }

    /// Sends the frames that were not sent on this connection.
    pub(crate) fn send_unsent(&mut self, now: Uptime, mut send: impl FnMut(Report)) {
        while self.sent < self.kept.len() {
            let first = ReportNo(self.acknowledged.0 + 1 + self.sent as u64);
            let count = self.frame_length();
            let entries = self.kept.range(self.sent..self.sent + count);
            send(frame(first, entries, now));
            self.sent += count;
            self.highest_sent = self.highest_sent.max(ReportNo(self.acknowledged.0 + self.sent as u64));
        }
    }

    /// Begins a new connection. Reports up to `last` are acknowledged, the others are sent again.
    ///
    /// If the server has reports that this process never sent, the machine was restored from a snapshot: it
    /// once sent other reports under these numbers. The process then numbers on after them and repeats
    /// everything; repetitions change nothing. A number above [`NUMBER_MAX`] is none of any report, and acknowledges nothing.
    pub(crate) fn resume(&mut self, last: ReportNo, acknowledged: impl FnMut(Entry)) {
        if last <= self.highest_sent {
            self.acknowledge(last, acknowledged);
        } else if last <= NUMBER_MAX {
            (self.acknowledged, self.highest_sent, self.refusals) = (last, last, None);
        }
        self.sent = 0;
    }

    /// The server closes the connection because it cannot take a message, which may be one of these. From here on each report is sent
    /// alone, so that those before the bad one are acknowledged. A report that was the first unacknowledged one at [`REFUSALS_MAX`]
    /// refusals is sent in its minimal form from the next connection on, so that its attempt ends.
    pub(crate) fn message_refused(&mut self) {
        if self.sent == 0 {
            return;
        }
        let first = self.acknowledged.next();
        let count = match self.refusals {
            Some((number, count)) if number == first => count.saturating_add(1),
            _ => 1,
        };
        self.refusals = Some((first, count));
        if count >= REFUSALS_MAX
            && let Some(entry) = self.kept.front_mut()
        {
            entry.reduce();
        }
    }

    /// Acknowledges reports up to this number, at most up to the highest number sent.
    pub(crate) fn acknowledge(&mut self, last: ReportNo, mut acknowledged: impl FnMut(Entry)) {
        let last = last.min(self.highest_sent);
        while self.acknowledged < last
            && let Some(entry) = self.kept.pop_front()
        {
            self.acknowledged = self.acknowledged.next();
            self.sent = self.sent.saturating_sub(1);
            if let Entry::Released(it) = &entry {
                self.released.remove(&it.token);
            }
            acknowledged(entry);
        }
        self.refusals = self.refusals.filter(|(number, _)| *number > self.acknowledged);
    }

    /// Attempts whose final report is not acknowledged.
    pub(crate) fn finals(&self) -> impl Iterator<Item = Token> {
        let kept = self.kept.iter().filter_map(Entry::final_token);
        kept.chain(self.successes.iter().map(|it| it.token)).chain(self.failures.iter().map(|it| it.token))
    }

    pub(crate) fn is_starting_on_its_way(&self, token: Token) -> bool {
        self.startings.contains(&token)
            || self.kept.iter().any(|entry| matches!(entry, Entry::Starting { token: it } if *it == token))
    }

    /// Attempts whose Running is not acknowledged, and is thus sent again on each connection.
    pub(crate) fn runnings(&self) -> impl Iterator<Item = Token> {
        self.kept.iter().filter_map(|entry| match entry {
            Entry::Running { token, .. } => Some(*token),
            _ => None,
        })
    }

    /// Number of unsent entries that fit into one frame of one kind; at least one.
    fn frame_length(&self) -> usize {
        let mut entries = self.kept.range(self.sent..);
        let Some(first) = entries.next() else {
            return 0;
        };
        if self.refusals.is_some() {
            return 1;
        }
        let kind = core::mem::discriminant(first);
        let mut bytes = first.bytes();
        let more = entries.take(ENTRIES_MAX - 1).take_while(|entry| {
            bytes += entry.bytes();
            core::mem::discriminant(*entry) == kind && bytes <= FRAME_BYTES_MAX
        });
        1 + more.count()
    }
}

impl Entry {
    pub(crate) fn final_token(&self) -> Option<Token> {
        match self {
            Self::Success(it) => Some(it.token),
            Self::Failure(it) => Some(it.token),
            _ => None,
        }
    }

    /// Leaves out what the server may be unable to take: texts, the result, the exit code, lengths of output, usage.
    fn reduce(&mut self) {
        match self {
            Self::Running { container, .. } => container.clear(),
            Self::Success(it) => {
                (it.result, it.note) = (None, Some(String::from(REDUCED)));
                (it.output, it.usage) = Default::default();
            }
            Self::Failure(it) => {
                (it.exit_code, it.message) = (None, String::from(REDUCED));
                (it.output, it.usage) = Default::default();
            }
            Self::Released(it) => it.why.clear(),
            Self::Starting { .. } => {}
        }
    }

    fn bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        ENTRY_BYTES
            + match self {
                Self::Running { container, .. } => container.len(),
                Self::Success(it) => USAGE_BYTES + length(&it.result) + length(&it.note),
                Self::Failure(it) => USAGE_BYTES + it.message.len(),
                Self::Released(it) => it.why.len(),
                Self::Starting { .. } => 0,
            }
    }
}

/// Packs a frame of entries of one kind.
fn frame<'a>(first: ReportNo, entries: impl Iterator<Item = &'a Entry> + Clone, now: Uptime) -> Report {
    let mut kinds = entries.clone();
    match kinds.next() {
        Some(Entry::Running { .. }) => Report::Running(numbered(first, entries, |entry| started(entry, now))),
        Some(Entry::Success(_)) => Report::Success(numbered(first, entries, |entry| succeeded(entry, now))),
        Some(Entry::Failure(_)) => Report::Failure(numbered(first, entries, |entry| failed(entry, now))),
        Some(Entry::Released(_)) => Report::Released(numbered(first, entries, |entry| match entry {
            Entry::Released(it) => Some(it.clone()),
            _ => None,
        })),
        Some(Entry::Starting { .. }) | None => {
            Report::Starting(numbered(first, entries, |entry| match entry {
                Entry::Starting { token } => Some(*token),
                _ => None,
            }))
        }
    }
}

fn numbered<'a, T>(
    first: ReportNo,
    entries: impl Iterator<Item = &'a Entry>,
    one: impl FnMut(&'a Entry) -> Option<T>,
) -> Numbered<T> {
    Numbered { first, list: entries.filter_map(one).collect() }
}

fn started(entry: &Entry, now: Uptime) -> Option<Started> {
    let Entry::Running { token, container, at } = entry else {
        return None;
    };
    let mut container = container.clone();
    cut_text(&mut container);
    Some(Started { token: *token, container, ago: age(*at, now) })
}

fn succeeded(entry: &Entry, now: Uptime) -> Option<Succeeded> {
    let Entry::Success(it) = entry else {
        return None;
    };
    Some(Succeeded {
        token: it.token,
        timing: Timing { ended_ago: age(it.at, now), ran: Some(it.run_time) },
        output: it.output,
        result: it.result.clone(),
        note: it.note.clone(),
        usage: it.usage,
    })
}

fn failed(entry: &Entry, now: Uptime) -> Option<Failed> {
    let Entry::Failure(it) = entry else {
        return None;
    };
    Some(Failed {
        token: it.token,
        outcome: it.outcome,
        exit_code: it.exit_code,
        message: it.message.clone(),
        timing: Timing { ended_ago: age(it.at, now), ran: it.run_time },
        output: it.output,
        usage: it.usage,
    })
}

fn age(at: Uptime, now: Uptime) -> Duration {
    now.since(at).min(DURATION_MAX)
}

#[cfg(test)]
mod tests;
