//! Support for the tests: the cluster of this build, and a hand-written worker.

use std::ops::Deref;
use std::process::Command;

pub(crate) mod peer;

pub(crate) use testkit::{Api, Process, docker, has_argument, wait_for, wait_until};

/// A cluster that runs the program of this build.
#[derive(Debug)]
pub(crate) struct Cluster(testkit::Cluster);

impl Cluster {
    pub(crate) fn new(jobs_file: &str) -> Self {
        Self(testkit::Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs_file))
    }
}

impl Deref for Cluster {
    type Target = testkit::Cluster;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A command that runs its program with its own mounts, if this machine allows it.
pub(crate) fn own_mounts() -> Option<Vec<String>> {
    [&["unshare", "--mount"][..], &["unshare", "--user", "--map-root-user", "--mount"]]
        .into_iter()
        .find(|words| {
            let tried = Command::new(words[0])
                .args(&words[1..])
                .args(["mount", "-t", "tmpfs", "none", "/mnt"])
                .output();
            tried.is_ok_and(|tried| tried.status.success())
        })
        .map(|words| words.iter().map(|word| (*word).to_owned()).collect())
}
