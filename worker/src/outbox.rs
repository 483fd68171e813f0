//! Numbered reports: kept until the server has acknowledged them, sent again after a reconnect with the same numbers.
//!
//! A report gets its number when it is packed: a batch's Runnings first, then its Successes, Failures, Releases, Startings, so that
//! each kind is one frame with consecutive numbers. Ages are computed at each packing. What the wire could not carry (a clock that
//! jumped, a file of no size that can be) is bent here: an entry that cannot be sent would be a hole in the numbers for ever.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::report::{
    Failed, Numbered, Outcome, OutputLengths, ReleaseCause, Released, Started, Succeeded, Timing,
};
use protocol::wire::{DURATION_MAX, OFFSET_MAX, cut_text};
use protocol::{Report, ReportNo, Token, Uptime};

use crate::classify::Verdict;

/// Entries of one frame.
pub(crate) const ENTRIES_MAX: usize = 1_000;
/// Bytes of one frame, by a rough estimate that is never too low: half of what the wire allows.
const FRAME_BYTES_MAX: usize = 128 * 1024;
/// No server has taken so many reports; behind it there would still be room for as many.
const NUMBER_MAX: ReportNo = ReportNo(1 << 62);
/// An estimate of an entry without its texts.
const ENTRY_BYTES: usize = 96;

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
    ran: Duration,
    output: OutputLengths,
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
    ran: Option<Duration>,
    output: OutputLengths,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Numbered without a hole; the first one's number is `acknowledged + 1`.
    kept: VecDeque<Entry>,
    acknowledged: ReportNo,
    /// The highest number that was ever said.
    told: ReportNo,
    /// How many of `kept` have been said in this connection.
    said: usize,
    successes: Vec<Success>,
    failures: Vec<Failure>,
    releases: Vec<Released>,
    startings: Vec<Token>,
}

impl Outbox {
    /// How many are not acknowledged, packed or not.
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

    pub(crate) fn ended(&mut self, token: Token, at: Uptime, verdict: Verdict, output: OutputLengths) {
        let output =
            OutputLengths { stdout: output.stdout.min(OFFSET_MAX), stderr: output.stderr.min(OFFSET_MAX) };
        match verdict {
            Verdict::Success { ran, result, note } => {
                self.successes.push(Success { token, at, ran: ran.min(DURATION_MAX), output, result, note })
            }
            Verdict::Failure { outcome, exit_code, message, ran } => {
                let ran = ran.map(|it| it.min(DURATION_MAX));
                self.failures.push(Failure { token, at, outcome, exit_code, message, ran, output })
            }
        }
    }

    /// Something that was acknowledged is said once more, under a number of its own.
    pub(crate) fn again(&mut self, entry: Entry) {
        self.kept.push_back(entry);
    }

    pub(crate) fn released(&mut self, token: Token, cause: ReleaseCause, mut why: String) {
        cut_text(&mut why);
        self.releases.push(Released { token, cause, why });
    }

    pub(crate) fn starting(&mut self, token: Token) {
        self.startings.push(token);
    }

    /// It is not going to start: what was not said about that need not be said.
    pub(crate) fn not_starting(&mut self, token: Token) {
        self.startings.retain(|it| *it != token);
    }

    /// Numbers everything new, after the Runnings given.
    pub(crate) fn pack(&mut self, runnings: impl Iterator<Item = Entry>) {
        self.kept.extend(runnings);
        self.kept.extend(self.successes.drain(..).map(Entry::Success));
        self.kept.extend(self.failures.drain(..).map(Entry::Failure));
        self.kept.extend(self.releases.drain(..).map(Entry::Released));
        self.kept.extend(self.startings.drain(..).map(|token| Entry::Starting { token }));
    }

    /// The frames that this connection has not heard yet.
    pub(crate) fn say(&mut self, now: Uptime, mut tell: impl FnMut(Report)) {
        while self.said < self.kept.len() {
            let first = ReportNo(self.acknowledged.0 + 1 + self.said as u64);
            let count = self.frame_length();
            let entries = self.kept.range(self.said..self.said + count);
            tell(frame(first, entries, now));
            self.said += count;
            self.told = self.told.max(ReportNo(self.acknowledged.0 + self.said as u64));
        }
    }

    /// A new connection has heard nothing; what the server already has (up to `last`) is not said again.
    ///
    /// If it has what was never said, this process is one that was set back with its machine: under these numbers it once said something
    /// else. So it numbers on behind them, and nothing that it keeps counts as known. What is said twice for that changes nothing.
    pub(crate) fn begin_again(&mut self, last: ReportNo, acknowledged: impl FnMut(Entry)) {
        if last > self.told && last <= NUMBER_MAX {
            (self.acknowledged, self.told) = (last, last);
        } else {
            self.acknowledge(last, acknowledged);
        }
        self.said = 0;
    }

    /// Reports up to this number are durable. A number that was never said is as good as the last one that was.
    pub(crate) fn acknowledge(&mut self, last: ReportNo, mut acknowledged: impl FnMut(Entry)) {
        let last = last.min(self.told);
        while self.acknowledged < last
            && let Some(entry) = self.kept.pop_front()
        {
            self.acknowledged = self.acknowledged.next();
            self.said = self.said.saturating_sub(1);
            acknowledged(entry);
        }
    }

    /// The attempts whose final report is on its way.
    pub(crate) fn finals(&self) -> impl Iterator<Item = Token> {
        let kept = self.kept.iter().filter_map(Entry::final_token);
        kept.chain(self.successes.iter().map(|it| it.token)).chain(self.failures.iter().map(|it| it.token))
    }

    pub(crate) fn is_starting_on_its_way(&self, token: Token) -> bool {
        self.startings.contains(&token)
            || self.kept.iter().any(|entry| matches!(entry, Entry::Starting { token: it } if *it == token))
    }

    /// Attempts whose Running is not acknowledged, and so told again at each connection.
    pub(crate) fn runnings(&self) -> impl Iterator<Item = Token> {
        self.kept.iter().filter_map(|entry| match entry {
            Entry::Running { token, .. } => Some(*token),
            _ => None,
        })
    }

    /// How many entries from the first unsaid one are of one kind and fit into one frame; at least one.
    fn frame_length(&self) -> usize {
        let mut entries = self.kept.range(self.said..);
        let Some(first) = entries.next() else {
            return 0;
        };
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

    fn bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        ENTRY_BYTES
            + match self {
                Self::Running { container, .. } => container.len(),
                Self::Success(it) => length(&it.result) + length(&it.note),
                Self::Failure(it) => it.message.len(),
                Self::Released(it) => it.why.len(),
                Self::Starting { .. } => 0,
            }
    }
}

/// One frame of entries that are all of the kind of the first.
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
        timing: Timing { ended_ago: age(it.at, now), ran: Some(it.ran) },
        output: it.output,
        result: it.result.clone(),
        note: it.note.clone(),
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
        timing: Timing { ended_ago: age(it.at, now), ran: it.ran },
        output: it.output,
    })
}

fn age(at: Uptime, now: Uptime) -> Duration {
    now.since(at).min(DURATION_MAX)
}

#[cfg(test)]
mod tests;
