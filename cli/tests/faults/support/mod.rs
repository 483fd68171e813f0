//! A stage for one test: processes of the real program in a directory of their own, and what is needed to ask and to wait.

use std::ops::Deref;
use std::process::Command;

pub(crate) mod peer;

pub(crate) use chaos::stage::{Api, Process, docker, eventually, holds, was_told};

/// A stage for the program of this build.
#[derive(Debug)]
pub(crate) struct Stage(chaos::stage::Stage);

impl Stage {
    pub(crate) fn new(jobs_file: &str) -> Self {
        Self(chaos::stage::Stage::new(env!("CARGO_BIN_EXE_longshore"), jobs_file))
    }
}

impl Deref for Stage {
    type Target = chaos::stage::Stage;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A command that gives its program mounts of its own, if there is one here.
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
