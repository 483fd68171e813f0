//! Runs the seeds of the fuzz target and random bytes: a server that sends anything at any time.

#[path = "../../fuzz/src/acts.rs"]
mod acts;
#[path = "../../fuzz/src/seeds.rs"]
mod seeds;
#[path = "../../fuzz/src/strange_server.rs"]
mod strange_server;

use longshore_worker as worker;
use proptest::prelude::*;
use protocol::wire;

#[test]
fn every_seed_leaves_the_worker_sound() {
    for seed in seeds::read("strange_server", "wire_orders", 7, |frame| wire::decode_order(frame).is_ok()) {
        strange_server::walk(&seed);
    }
}

proptest! {
    #[test]
    fn random_bytes_leave_the_worker_sound(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        strange_server::walk(&bytes);
    }
}
