//! Why a job is where it is.

use serde::{Deserialize, Serialize};

use super::{Reason, Time, Word, WorkerRef};

/// Why a job is where it is, and what each worker has against taking it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The job's number.
    pub id: u64,
    /// The name of its definition.
    pub name: String,
    /// Its state.
    pub state: Word,
    /// What it waits for, who has it, or how it ended.
    pub reason: Reason,
    /// A verdict for every worker that was not forgotten; none once the job has ended.
    pub workers: Vec<Verdict>,
}

/// What one worker could do for a job at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Which.
    pub worker: WorkerRef,
    /// `has_it`, `able`, `last_resort` or `unable`.
    pub verdict: Word,
    /// In words.
    pub text: Word,
    /// What keeps it from being given the job: the farthest from being overcome first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<Obstacle>,
}

/// Something that keeps a worker from being given a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// For programs.
    pub code: Word,
    /// For people.
    pub text: Word,
    /// When it ends by itself, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}
