//! The causes of cancelled jobs, as their stored reasons tell them.

use scheduler::batches::{BY_BATCH, MAX_FAILURES_REACHED, STOPPED};
use scheduler::dependencies::{COMES_AFTER, SKIPPED};

/// The cause of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelCause {
    /// Nothing went wrong: the end of another job that it required did not come.
    Skipped,
    /// A newer job has its unique key, or its place in a limit.
    Replaced,
    /// A job or a batch that it comes after did not end as required.
    Predecessor,
    /// `max_failures` of its batch was reached. Earlier versions gave this reason to each cancelled job that a worker had; its notes tell more.
    MaxFailures,
    /// Somebody cancelled it or its batch, or another batch has replaced its batch. A retry of the batch is refused while that one has the key.
    Request,
}

impl CancelCause {
    /// The cause of a cancelled job with this reason.
    #[must_use]
    pub fn of(reason: &str) -> Self {
        let begins = |words: &[&str]| words.iter().any(|word| reason.starts_with(word));
        let is_by_batch = || reason.strip_prefix("cancelled by ").is_some_and(|by| by.starts_with(BY_BATCH));
        if begins(&[SKIPPED]) {
            Self::Skipped
        } else if begins(&["cancelled by job ", "cancelled: replaced by "]) {
            Self::Replaced
        } else if begins(&["job ", "batch "]) && reason.contains(COMES_AFTER) {
            Self::Predecessor
        } else if [MAX_FAILURES_REACHED, STOPPED].contains(&reason) || is_by_batch() {
            Self::MaxFailures
        } else {
            Self::Request
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_tells_the_cause() {
        for (reason, cause) in [
            ("skipped, because job 3 before it was skipped", CancelCause::Skipped),
            ("cancelled: replaced by job 9 of the same unique key", CancelCause::Replaced),
            ("cancelled by job 9, which replaces it", CancelCause::Replaced),
            ("job 1, which it comes after, ended as failed", CancelCause::Predecessor),
            ("batch 4, which it comes after, ended as failed", CancelCause::Predecessor),
            ("batch max_failures reached", CancelCause::MaxFailures),
            ("cancelled", CancelCause::MaxFailures),
            ("cancelled by its batch, in which max_failures was reached", CancelCause::MaxFailures),
            ("cancelled by batch 9, which replaces it", CancelCause::Request),
            ("cancelled by http 10.0.0.7 token ann", CancelCause::Request),
        ] {
            assert_eq!(CancelCause::of(reason), cause, "{reason}");
        }
    }
}
