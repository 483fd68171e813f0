//! Lengths of an attempt's output, its writer, and the view of it that a replay needs.

use std::sync::PoisonError;

use protocol::report::OutputLengths;

use super::Attempt;
use crate::attempt_dir::AttemptDir;
use crate::runtime::blocking::{read_until_possible, run_blocking};
use crate::runtime::docker::replay::ReplayedAttempt;

impl Attempt {
    /// Bytes in the files, and the missing ones, which are reported as a gap.
    pub(super) async fn output_lengths(&self) -> OutputLengths {
        let there = self.lengths().await;
        let missing = *self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |of: fn(OutputLengths) -> u64| of(there).saturating_add(of(missing));
        OutputLengths { stdout: sum(|it| it.stdout), stderr: sum(|it| it.stderr) }
    }

    /// Bytes in the files.
    pub(super) async fn lengths(&self) -> OutputLengths {
        read_until_possible(&self.dir, AttemptDir::try_lengths).await
    }

    /// A CLI that writes the files lives. It holds a lock on one of them.
    pub(in crate::runtime::docker) async fn is_being_written(&self) -> bool {
        let dir = self.dir.clone();
        run_blocking(move || Ok(dir.is_being_written())).await.unwrap_or(true)
    }

    /// The parts of this attempt that a replay of its output needs.
    pub(super) fn replayed(&self) -> ReplayedAttempt<'_> {
        ReplayedAttempt {
            token: self.token(),
            name: &self.name,
            dir: &self.dir,
            log_bytes_max: self.launch.spec.log_bytes_max,
            turn: &self.replay_turn,
            missing: &self.missing,
        }
    }
}
