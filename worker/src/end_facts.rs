//! Facts about the end of an attempt beside its exit.

use protocol::report::OutputLengths;
use protocol::{Uptime, Usage};

use crate::input::Exit;

/// Facts about the end of an attempt beside its exit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndFacts {
    /// Length of its output.
    pub(crate) output: OutputLengths,
    /// Resources that it has used.
    pub(crate) usage: Usage,
    /// Monotonic time of the end.
    pub(crate) at: Uptime,
}

impl EndFacts {
    /// Of an attempt that never ran, or of which nothing else is known.
    pub(crate) fn unknown(at: Uptime) -> Self {
        Self { at, ..Self::default() }
    }

    /// Raises a measured peak of memory to the limit if the kernel killed a process for it: the limit was reached, also if the last
    /// sample came before.
    pub(crate) fn with_reached_limit(mut self, exit: &Exit, limit: Option<u64>) -> Self {
        if let (Exit::Ran { oom: true, .. }, Some(limit)) = (exit, limit) {
            let peak = &mut self.usage.memory_peak_bytes;
            *peak = peak.map(|peak| peak.max(limit));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use crate::input::ResultFile;

    use super::*;

    #[test]
    fn a_kill_for_the_limit_means_that_it_was_reached() {
        let ran = |oom| Exit::Ran { code: 137, oom, run_time: Duration::ZERO, result: ResultFile::Absent };
        let seen = |peak| {
            let usage = Usage { memory_peak_bytes: peak, ..Usage::default() };
            EndFacts { usage, ..EndFacts::default() }
        };
        let peak =
            |facts: EndFacts, oom, limit| facts.with_reached_limit(&ran(oom), limit).usage.memory_peak_bytes;
        assert_eq!(peak(seen(Some(24)), true, Some(32)), Some(32));
        assert_eq!(peak(seen(Some(33)), true, Some(32)), Some(33));
        assert_eq!(peak(seen(Some(24)), false, Some(32)), Some(24));
        assert_eq!(peak(seen(None), true, Some(32)), None, "nothing was measured");
        assert_eq!(peak(seen(Some(24)), true, None), Some(24));
    }
}
