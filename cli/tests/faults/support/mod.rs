//! A stage for one test: processes of the real program in a directory of their own, and what is needed to ask and to wait.

use std::ops::Deref;

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
