//! Numbered reports: kept until the server has acknowledged them, sent again after a reconnect with the same numbers.
//!
//! A report gets its number when it is packed: a batch's Runnings first, then its Successes, Failures, Releases, Startings, so that
//! each kind is one frame with consecutive numbers. Ages are computed at each packing. What the wire could not carry (a clock that
//! jumped, a file of no size that can be) is bent here: an entry that cannot be sent would be a hole in the numbers for ever.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::report::{Failed, Numbered, Outcome, OutputLengths, ReleaseCause, Started, Succeeded, Timing};
use protocol::wire::{DURATION_MAX, OFFSET_MAX, cut_text};
use protocol::{Report, ReportNo, Token, Uptime};

use crate::classify::Verdict;

/// Entries of one frame.
pub(crate) const ENTRIES_MAX: usize = 1_000;
/// Bytes of one frame, by a rough estimate that is never too low: half of what the wire allows.
const FRAME_BYTES_MAX: usize = 128 * 1024;
/// An estimate of an entry without its texts.
const ENTRY_BYTES: usize = 96;

/// One numbered report.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Running { token: Token, container: String, at: Uptime },
    Success(Success),
    Failure(Failure),
    Released { token: Token, cause: ReleaseCause },
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
    /// How many of `kept` have been said in this connection.
    said: usize,
    successes: Vec<Success>,
    failures: Vec<Failure>,
    releases: Vec<(Token, ReleaseCause)>,
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

    pub(crate) fn released(&mut self, token: Token, cause: ReleaseCause) {
        self.releases.push((token, cause));
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
        self.kept.extend(self.releases.drain(..).map(|(token, cause)| Entry::Released { token, cause }));
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
        }
    }

    /// A new connection has heard nothing; what the server already has (up to `last`) is not said again.
    pub(crate) fn begin_again(&mut self, last: ReportNo, acknowledged: impl FnMut(Entry)) {
        self.acknowledge(last, acknowledged);
        self.said = 0;
    }

    /// Reports up to this number are durable. A number that was never said is as good as the last one that was.
    pub(crate) fn acknowledge(&mut self, last: ReportNo, mut acknowledged: impl FnMut(Entry)) {
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
                Self::Released { .. } | Self::Starting { .. } => 0,
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
        Some(Entry::Released { .. }) => Report::Released(numbered(first, entries, |entry| match entry {
            Entry::Released { token, cause } => Some((*token, *cause)),
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
mod tests {
    use alloc::string::ToString;

    use protocol::wire::{decode_report, pack_report};

    use super::*;

    fn token(job: u64) -> Token {
        Token { job: protocol::JobId(job), ..Token::default() }
    }

    fn frames(outbox: &mut Outbox) -> Vec<Report> {
        let mut frames = Vec::new();
        outbox.say(Uptime(0), |report| frames.push(report));
        frames
    }

    #[test]
    fn a_batch_is_one_frame_per_kind_with_consecutive_numbers() {
        let mut outbox = Outbox::default();
        for job in 1..=3 {
            outbox.released(token(job), ReleaseCause::Full);
            outbox.starting(token(job + 10));
        }
        outbox.pack(core::iter::empty());

        let said = frames(&mut outbox);

        assert!(matches!(&said[..], [Report::Released(a), Report::Starting(b)]
            if a.first == ReportNo(1) && a.list.len() == 3 && b.first == ReportNo(4) && b.list.len() == 3));
        assert!(frames(&mut outbox).is_empty(), "nothing is said twice in a connection");
    }

    #[test]
    fn a_new_connection_hears_what_is_unacknowledged_under_the_same_numbers() {
        let mut outbox = Outbox::default();
        (1..=4).for_each(|job| outbox.starting(token(job)));
        outbox.pack(core::iter::empty());
        frames(&mut outbox);
        outbox.acknowledge(ReportNo(1), |_| ());

        outbox.begin_again(ReportNo(2), |_| ());

        assert!(
            matches!(&frames(&mut outbox)[..], [Report::Starting(it)] if it.first == ReportNo(3) && it.list == [token(3), token(4)])
        );
    }

    #[test]
    fn an_acknowledgement_beyond_the_last_number_does_no_harm() {
        let mut outbox = Outbox::default();
        outbox.starting(token(1));
        outbox.pack(core::iter::empty());
        frames(&mut outbox);
        outbox.acknowledge(ReportNo(u64::MAX), |_| ());
        outbox.starting(token(2));
        outbox.pack(core::iter::empty());

        assert!(matches!(&frames(&mut outbox)[..], [Report::Starting(it)] if it.first == ReportNo(2)));
    }

    #[test]
    fn whatever_a_runtime_tells_can_be_carried() {
        let mut outbox = Outbox::default();
        let output = OutputLengths { stdout: u64::MAX, stderr: u64::MAX };
        let ran = Duration::MAX;
        let success = Verdict::Success { ran, result: None, note: Some("x".repeat(10_000)) };
        outbox.ended(token(1), Uptime(0), success, output);
        let failure = Verdict::Failure {
            outcome: Outcome::Failed,
            exit_code: Some(1),
            message: "why".to_string(),
            ran: Some(ran),
        };
        outbox.ended(token(2), Uptime(0), failure, output);
        let container = "x".repeat(2 << 20);
        outbox.pack(core::iter::once(Entry::Running { token: token(3), container, at: Uptime(0) }));

        let (mut reports, mut frames) = (Vec::new(), Vec::new());
        outbox.say(Uptime(u64::MAX), |report| reports.push(report));
        for report in &reports {
            pack_report(report, &mut frames).expect("it fits");
        }

        assert_eq!(frames.len(), 3);
        assert!(frames.iter().all(|frame| matches!(decode_report(frame), Ok(Some(_)))));
    }

    #[test]
    fn long_lists_and_long_results_are_split() {
        let mut outbox = Outbox::default();
        (0..2_500).for_each(|job| outbox.starting(token(job)));
        outbox.pack(core::iter::empty());
        assert_eq!(frames(&mut outbox).len(), 3);

        for job in 0..4 {
            let verdict =
                Verdict::Success { ran: Duration::ZERO, result: Some("x".repeat(60_000)), note: None };
            outbox.ended(token(job), Uptime(0), verdict, OutputLengths::default());
        }
        outbox.pack(core::iter::empty());
        assert_eq!(frames(&mut outbox).len(), 2);
    }
}
