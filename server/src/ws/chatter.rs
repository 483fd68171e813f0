//! Messages that say nothing: tags that may be skipped, empty lists, pings. They are tolerated, but not without end (BAD-INPUTS.md row
//! 82). What says something is never counted: how much of that there may be is bounded by slots, windows and the engine's inbox.

use std::time::Duration;

use protocol::report::Numbered;
use protocol::{Report, Uptime};

/// A well-meaning worker pings every few seconds and sends no empty lists: far below this, even with a future minor version's tags.
const MESSAGES_MAX: u32 = 1_000;
const WITHIN: Duration = Duration::from_secs(1);

/// Counts one session's messages that say nothing.
#[derive(Debug, Default)]
pub(super) struct Chatter {
    since: Uptime,
    count: u32,
}

impl Chatter {
    /// Counts one more. Returns whether it is still bearable.
    pub(super) fn note(&mut self, now: Uptime) -> bool {
        if now.since(self.since) > WITHIN {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count <= MESSAGES_MAX
    }
}

/// Whether a report has an empty list where it should have something to say.
pub(super) fn says_nothing(report: &Report) -> bool {
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
        Report::Hello(_) | Report::Inventory(_) | Report::Heartbeat(_) | Report::Condition(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_from_a_trickle() {
        let mut chatter = Chatter::default();
        let second = |n: u64| Uptime(n * 1_000_000_000);
        assert!((0..10_000).all(|n| chatter.note(second(n * 2))));
        assert!((0..MESSAGES_MAX - 1).all(|_| chatter.note(second(19_998))));
        assert!(!chatter.note(second(19_998)));
    }

    #[test]
    fn an_empty_list_says_nothing() {
        assert!(says_nothing(&Report::Progress(Vec::new())));
        assert!(!says_nothing(&Report::Heartbeat(protocol::report::Heartbeat::default())));
    }
}
