//! Keeps the memory of servers and workers, which holds secrets of jobs, out of core dumps.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Writes no core dumps of this process. The programs of a worker may raise the limit again.
///
/// The kernel ignores the limit if it pipes dumps to a program (`core_pattern`), so the process is also made not dumpable. Then only root
/// reads its memory, environment and open files in `/proc`. Programs that it starts are dumpable.
pub(crate) fn forbid() {
    let limit = getrlimit(Resource::Core);
    // A soft limit can always be lowered.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), ..limit });
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "cannot forbid core dumps that are piped to a program; they would hold secrets of jobs");
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::dumpable_behavior;

    use super::*;

    #[test]
    fn the_process_is_not_dumpable_and_its_programs_can_still_be_started_from_proc() {
        forbid();
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        // As a worker starts the shim of plain processes.
        let list = Command::new("/proc/self/exe").arg("--list").output().unwrap();
        assert!(list.status.success());
    }
}
