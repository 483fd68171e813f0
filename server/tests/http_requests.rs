//! The seeds of the fuzz target: whole requests against the router, with a real engine behind it.

#[path = "../../fuzz/src/http_requests.rs"]
mod http_requests;

use longshore_server as server;

#[test]
fn every_seed_is_answered() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/http_requests");
    for seed in std::fs::read_dir(seeds).unwrap() {
        http_requests::walk(&std::fs::read(seed.unwrap().path()).unwrap());
    }
}
