//! The port [`Runtime`]: how attempts are carried out on this machine.
//!
//! Order of calls: [`Runtime::survey`] once before the first connection; then for each attempt `start` (or nothing, if the survey has
//! found it), any number of `stop`s, and one `forget` after its end. All of them return at once; what happens is told through the
//! events given at construction, in the order in which it happened: Progressed\*, then Started and Ended, or Ended alone, or Refused.
//! Exactly one Ended or Refused is told for each attempt, whatever happens to the engine in between.
//!
//! Idempotent: `stop` of an attempt that has ended, `forget` of one that is gone. A second `start` of the same attempt never makes a
//! second container: it adopts the first.

pub mod argv;
pub mod docker;
