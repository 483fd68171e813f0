//! Doors for `fuzz/`: the files of an attempt directory, whatever a disk has made of them. Each panics where something is found that
//! must not be.

use std::fmt::Debug;

use protocol::report::OutputLengths;
use protocol::{ClusterId, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use worker::step::Launch;

use super::record::{Ended, Lengths, Record, Sent, Stopped};
use super::{Ending, Pid, Progress, Stopping};
use crate::runtime::{Membership, argv};

/// A file with this content. What it says survives being written again.
pub fn found(file: u8, content: &[u8]) {
    match file % 6 {
        0 => launch(content),
        1 => drop(kept::<Stopped, Stopping>(content, |it| Stopped::from(*it))),
        2 => drop(kept::<Ended, Ending>(content, |it| Ended::from(it))),
        3 => drop(kept::<Sent, Progress>(content, |it| Sent::from(*it))),
        4 => drop(kept::<Lengths, OutputLengths>(content, |it| Lengths::from(*it))),
        _ => drop(kept::<Pid, Pid>(content, |it| *it)),
    }
}

fn launch(content: &[u8]) {
    let Some(launch) = kept::<Record, Launch>(content, |it| Record::from(it)) else { return };
    // What was written may be anything; what is started of it keeps to the one order of words.
    let membership = Membership { cluster: ClusterId(1), worker: WorkerId(1) };
    if let Ok(line) = argv::docker_run(&launch, membership, None) {
        let end = line.args.iter().position(|it| it == "--").expect("options end somewhere");
        assert_eq!(line.args.get(end + 1), Some(&launch.spec.image));
    }
}

fn kept<R, T>(content: &[u8], record: impl Fn(&T) -> R) -> Option<T>
where
    R: Serialize + DeserializeOwned,
    T: From<R> + PartialEq + Debug,
{
    let value = T::from(serde_json::from_slice::<R>(content).ok()?);
    let written = serde_json::to_vec(&record(&value)).expect("what was read can be written");
    let again: R = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(T::from(again), value);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_read() {
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/attempt_records");
        for seed in std::fs::read_dir(seeds).expect("seeds") {
            let seed = std::fs::read(seed.expect("a seed").path()).expect("a file");
            (0..6).for_each(|file| found(file, &seed[1..]));
        }
    }
}
