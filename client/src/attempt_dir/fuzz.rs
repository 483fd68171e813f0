//! Fuzz targets for the files of an attempt directory. Each panics if a property is violated.

use std::fmt::Debug;

use protocol::report::OutputLengths;
use protocol::{ClusterId, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use worker::step::Launch;

use super::record::{EndRecord, LaunchRecord, StoppingRecord};
use super::{AttemptEnd, OutputProgress, ProcessId, Stopping};
use crate::runtime::{Membership, argv};

/// Reads a file with this content. Its meaning survives a rewrite.
pub fn found(file: u8, content: &[u8]) {
    match file % 6 {
        0 => launch(content),
        1 => drop(kept::<StoppingRecord, Stopping>(content, |it| StoppingRecord::from(*it))),
        2 => drop(kept::<EndRecord, AttemptEnd>(content, |it| EndRecord::from(it))),
        3 => drop(kept::<OutputProgress, OutputProgress>(content, |it| *it)),
        4 => drop(kept::<OutputLengths, OutputLengths>(content, |it| *it)),
        _ => drop(kept::<ProcessId, ProcessId>(content, |it| *it)),
    }
}

fn launch(content: &[u8]) {
    let Some(launch) = kept::<LaunchRecord, Launch>(content, |it| LaunchRecord::from(it)) else { return };
    // The content may be anything; the command line made of it keeps its fixed order.
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
