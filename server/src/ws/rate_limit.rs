//! A rate limit (docs/design/bad-inputs.md, row 82) for empty messages: those with an unknown skippable tag, empty lists, and pings. Other
//! messages are bounded by slots, output windows and the engine's inbox.

use std::time::Duration;

use protocol::report::Numbered;
use protocol::{Report, Uptime};

/// A correct worker pings every few seconds and sends no empty lists, so this leaves room for tags of future minor versions.
const MESSAGES_MAX: u32 = 1_000;
const WINDOW: Duration = Duration::from_secs(1);

/// A worker sent too many empty messages.
#[derive(Debug, thiserror::Error)]
#[error(
    "more than {MESSAGES_MAX} messages within a second were empty (unknown skippable tags, empty lists, pings)"
)]
pub(super) struct TooManyEmptyMessages;

/// Counts the empty messages of one session.
#[derive(Debug, Default)]
pub(super) struct RateLimiter {
    window_start: Uptime,
    count: u32,
}

impl RateLimiter {
    /// Counts one message. Returns false above the limit.
    pub(super) fn allow(&mut self, now: Uptime) -> bool {
        if now.since(self.window_start) > WINDOW {
            *self = Self { window_start: now, count: 0 };
        }
        self.count += 1;
        self.count <= MESSAGES_MAX
    }
}

/// True if a report consists of an empty list.
pub(super) fn is_empty_report(report: &Report) -> bool {
    fn none<T>(list: &Numbered<T>) -> bool {
        list.list.is_empty()
    }
    match report {
        Report::Running(list) => none(list),
        Report::Success(list) => none(list),
        Report::Failure(list) => none(list),
        Report::Released(list) => none(list),
        Report::Starting(list) => none(list),
        Report::Output(list) => list.is_empty(),
        Report::Progress(list) | Report::Status(list) => list.is_empty(),
        Report::Wanted(list) => list.is_empty(),
        Report::Foreign(list) => list.is_empty(),
        Report::Usage(list) => list.is_empty(),
        Report::Hello(_) | Report::Inventory(_) | Report::Heartbeat(_) | Report::Condition(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_exceeds_the_limit_and_a_trickle_does_not() {
        let mut rate_limit = RateLimiter::default();
        let second = |n: u64| Uptime(n * 1_000_000_000);
        assert!((0..10_000).all(|n| rate_limit.allow(second(n * 2))));
        assert!((0..MESSAGES_MAX - 1).all(|_| rate_limit.allow(second(19_998))));
        assert!(!rate_limit.allow(second(19_998)));
    }

    #[test]
    fn an_empty_list_is_an_empty_report() {
        assert!(is_empty_report(&Report::Progress(Vec::new())));
        assert!(!is_empty_report(&Report::Heartbeat(protocol::report::Heartbeat::default())));
    }
}
