//! Late reports that only say again what is known: no news to anyone, so no notes.
//!
//! They come after a crash of ours between a commit and its acknowledgement: the worker says everything again to a scheduler that
//! no longer holds the job. Only whoever has the rows can tell them from reports that contradict the record.

use protocol::report::Outcome;

/// Whether a report tells no more than the row of that very attempt, of that very worker.
pub(super) fn repeats(said: &str, has_started: bool, outcome: Option<Outcome>) -> bool {
    outcome.is_some_and(|outcome| outcome.name() == said) || (has_started && said == "running")
}
