//! Runs the seeds of the fuzz target and random bytes: a worker that sends anything at any time.

#[path = "../../fuzz/src/acts.rs"]
mod acts;
#[path = "../../fuzz/src/strange_worker.rs"]
mod strange_worker;

use longshore_scheduler as scheduler;
use proptest::prelude::*;
use protocol::wire;

#[test]
#[expect(clippy::disallowed_methods, reason = "seeds are files; only the crate itself must be pure")]
fn every_seed_leaves_the_scheduler_sound() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/strange_worker");
    for seed in std::fs::read_dir(seeds).unwrap() {
        let path = seed.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let stale = acts::acts(&bytes).find(|(kind, act)| *kind == 3 && wire::decode_report(act).is_err());
        assert_eq!(stale, None, "{}: a frame that is not spoken any more", path.display());
        strange_worker::walk(&bytes);
    }
}

proptest! {
    #[test]
    fn random_bytes_leave_the_scheduler_sound(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        strange_worker::walk(&bytes);
    }
}
