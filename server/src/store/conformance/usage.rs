//! Each attempt keeps the resources that it has used, in whichever table its row is.

use protocol::report::Outcome;
use protocol::{JobId, Usage};
use scheduler::job::State;
use scheduler::step::ClosedAttempt;

use super::Backend;
use super::harness::*;

pub(in crate::store) fn each_attempt_keeps_what_it_has_used(backend: &mut dyn Backend) {
    let first = Usage { cpu_ms: Some(1_730), memory_peak_bytes: Some(1 << 53), ..Usage::default() };
    let second = Usage { disk_read_bytes: Some(0), network_sent_bytes: Some(7), ..Usage::default() };
    let mut harness = Harness::new(backend);
    harness.commit(vec![worker(1, "w1"), added(1), assigned(1, 1), started(1, 1)]);
    let failed = ClosedAttempt { usage: first, ..closed(1, 1, Outcome::Failed) };
    harness.commit(vec![waiting(failed, State::Queued)]);
    assert_eq!(usages(&harness), [first], "while the job waits");
    harness.commit(vec![assigned_as(1, 2, 2, 1), started(1, 2)]);
    assert_eq!(usages(&harness), [first, Usage::default()], "while the next attempt runs");
    let end = ClosedAttempt { usage: second, ..closed(1, 2, Outcome::Failed) };
    harness.commit(vec![ended(1, State::Failed, Some(end))]);
    harness.restart();
    assert_eq!(usages(&harness), [first, second], "after the end");

    // A job that ends while it waits takes its last attempt along.
    harness.commit(vec![added(2), assigned(2, 3), started(2, 3)]);
    let failed = ClosedAttempt { usage: second, ..closed(2, 3, Outcome::Failed) };
    harness.commit(vec![waiting(failed, State::Queued)]);
    harness.commit(vec![ended(2, State::Cancelled, None)]);
    let record = harness.archive().job(JobId(2)).unwrap().unwrap();
    assert_eq!(record.row.attempt.map(|it| it.usage), Some(second));
}

fn usages(harness: &Harness<'_>) -> Vec<Usage> {
    let record = harness.archive().job(JobId(1)).unwrap().unwrap();
    record.past.iter().chain(&record.row.attempt).map(|attempt| attempt.usage).collect()
}
