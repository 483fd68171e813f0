//! State that this process has inherited from its starter and must not pass on to the programs of jobs: ignored signals and descriptors.
//!
//! The standard library gives programs an empty signal mask and the default of SIGPIPE, and opens files with close-on-exec. All else that
//! `nohup`, a shell or a supervisor has set would reach each program: a job that SIGINT does not stop, a pipe that never closes.

use std::fs;

use tokio::signal::unix::{SignalKind, signal};

/// Makes programs start with the standard descriptors only, and with the default action of each signal.
///
/// # Panics
/// It is called outside of a runtime with signals.
pub(crate) fn withhold_from_programs() {
    // Close-on-exec closes nothing in this process: a lock that the starter holds through this process stays held.
    close_fds::CloseFdsBuilder::new().threadsafe(true).cloexecfrom(FIRST_OTHER);
    for number in ignored_signals() {
        // A handled signal gets its default action in a new program. Here the handler does nothing, so the signal stays ignored.
        if let Err(error) = signal(SignalKind::from_raw(number)) {
            tracing::debug!(number, %error, "jobs inherit that this signal is ignored");
        }
    }
}

/// The signals that this process ignores, but for SIGPIPE, which every Rust program ignores.
fn ignored_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap_or(0);
    (1..=SIGNAL_MAX).filter(|it| *it != SIGPIPE && mask >> (it - 1) & 1 == 1).collect()
}

/// The first descriptor after the standard ones.
const FIRST_OTHER: i32 = 3;
/// Signals of Linux have the numbers from 1 to this.
const SIGNAL_MAX: i32 = 64;
const SIGPIPE: i32 = 13;
