//! Runs the seeds of the fuzz target and random bytes: a worker that sends anything at any time.

#[path = "../../fuzz/src/acts.rs"]
mod acts;
#[path = "../../fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../fuzz/src/strange_worker.rs"]
mod strange_worker;

use longshore_scheduler as scheduler;
use proptest::prelude::*;
use protocol::wire;

#[test]
fn every_seed_leaves_the_scheduler_sound() {
    for seed in seeds::read("strange_worker", "wire_reports", 3, |frame| wire::decode_report(frame).is_ok()) {
        strange_worker::walk(&seed);
    }
}

proptest! {
    #[test]
    fn random_bytes_leave_the_scheduler_sound(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        strange_worker::walk(&bytes);
    }
}
