//! The result of an attempt before it is reported, and the failures that come before a container exists.

use std::time::Duration;

use protocol::Uptime;
use protocol::report::ReleaseCause;
use worker::input::{Exit, StartFailure};
use worker::step::Launch;

use crate::clock;
use crate::runtime::Membership;
use crate::runtime::argv::{self, CommandLine};
use crate::runtime::docker::cli::CallError;
use crate::runtime::docker::images::{self, PullFailure, PullFault};

/// The result of an attempt.
pub(super) enum AttemptOutcome {
    Ended {
        exit: Exit,
        at: Uptime,
    },
    Refused {
        cause: ReleaseCause,
        why: String,
    },
    /// The state machine has taken it back before anything was fetched. Nothing is reported.
    Withdrawn,
}

/// The reason for which nothing has run, if another try may succeed.
pub(super) enum NotRun {
    /// Something that cannot be seen has the name of the container.
    NameTaken(String),
    Other(String),
}

/// The end of a CLI.
pub(super) enum CliRun {
    /// With this exit code, which is absent if a signal has ended it.
    Exited(Option<i32>),
    /// It hung, and was killed.
    Hung(Hang),
}

/// The step of `docker run` that does not come to its end, although the engine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hang {
    /// There is no container.
    Create,
    /// There is a container, which is not started.
    Start,
}

pub(super) fn command_line(
    launch: &Launch,
    membership: Membership,
    has_gpu_runtime: bool,
) -> Result<CommandLine, argv::Invalid> {
    let now = clock::now().utc.0 / 1000;
    let deadline = launch.time_left.map(|left| now.saturating_add_unsigned(left.as_secs()));
    let mut line = argv::docker_run(launch, membership, deadline)?;
    if let Some(gpus) = argv::gpus_option(launch).filter(|_| has_gpu_runtime) {
        // After `run`.
        line.args.insert(1, gpus);
    }
    Ok(line)
}

pub(super) fn not_started(fault: StartFailure, message: String) -> AttemptOutcome {
    AttemptOutcome::Ended { exit: Exit::NotStarted { fault, code: None, message }, at: clock::now().up }
}

/// The result without an image: nothing was made.
pub(super) fn end_without_image(PullFailure { fault, problem }: PullFailure) -> AttemptOutcome {
    match fault {
        PullFault::Definition | PullFault::Denied => not_started(StartFailure::Pull, problem),
        PullFault::Host => not_started(StartFailure::Host, problem),
        PullFault::Registry => AttemptOutcome::Refused {
            cause: ReleaseCause::RuntimeUnavailable,
            why: format!("the registry does not give the image: {problem}"),
        },
    }
}

/// Docker's message if only an image for another platform was in the way; else the result itself.
pub(super) fn wants_another_image(end: AttemptOutcome) -> Result<String, AttemptOutcome> {
    match end {
        AttemptOutcome::Ended { exit: Exit::NotStarted { message, .. }, .. }
            if images::is_for_another_platform(&message) =>
        {
            Ok(message)
        }
        end => Err(end),
    }
}

pub(super) fn unavailable(error: &CallError) -> AttemptOutcome {
    AttemptOutcome::Refused { cause: ReleaseCause::RuntimeUnavailable, why: error.with_remedy() }
}

/// Pause before the next try of a taken name: 50 ms, doubling to five seconds.
pub(super) fn name_delay(tries: u32) -> Duration {
    (Duration::from_millis(50) * 2_u32.pow(tries.min(8))).min(Duration::from_secs(5))
}
