//! The JSON files of an attempt directory. Types of the state machine have separate record types here, so a change of theirs does not break
//! the files of older workers. Types of the protocol are stored in their only serde form. A new field needs a default.

use std::time::Duration;

use protocol::container::Overrides;
use protocol::order::StopCause;
use protocol::report::OutputLengths;
use protocol::{ContainerSpec, Fence, JobId, Nonce, Revision, Timestamp, Token, Uptime};
use serde::{Deserialize, Serialize};
use worker::input::{Exit, ResultFile, StartFailure};
use worker::step::Launch;

use crate::boot::{BootId, RecordedInstant};

use super::usage::UsageRecord;
use super::{AttemptEnd, Stopping};

/// `attempt.json`.
#[derive(Serialize, Deserialize)]
pub(super) struct LaunchRecord {
    job: u64,
    fence: u64,
    nonce: u64,
    revision: String,
    name: String,
    #[serde(default)]
    time_left: Option<Duration>,
    spec: ContainerSpec,
    #[serde(default)]
    body: Option<Overrides>,
}

/// An instant of `stopping` and `exit`.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct InstantRecord {
    at_ms: i64,
    #[serde(default)]
    up_ns: u64,
    #[serde(default)]
    boot: BootId,
}

/// `stopping`.
#[derive(Serialize, Deserialize)]
pub(super) struct StoppingRecord {
    cause: StopCause,
    #[serde(flatten)]
    at: InstantRecord,
}

/// `exit`.
#[derive(Serialize, Deserialize)]
pub(super) struct EndRecord {
    #[serde(flatten)]
    at: InstantRecord,
    output: OutputLengths,
    #[serde(default)]
    usage: UsageRecord,
    exit: ExitRecord,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExitRecord {
    Ran {
        code: i32,
        oom: bool,
        #[serde(rename = "ran")]
        run_time: Duration,
        result: Option<String>,
        /// The reason why the result file cannot be used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result_fault: Option<String>,
    },
    NotStarted {
        fault: StartFailureRecord,
        code: Option<i32>,
        message: String,
    },
    DaemonLost {
        message: String,
        #[serde(rename = "ran")]
        run_time: Option<Duration>,
    },
    Vanished,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StartFailureRecord {
    Pull,
    Definition,
    Host,
    Stopped,
}

impl From<&Launch> for LaunchRecord {
    fn from(launch: &Launch) -> Self {
        Self {
            job: launch.token.job.0,
            fence: launch.token.fence.0,
            nonce: launch.token.nonce.0,
            revision: launch.revision.to_string(),
            name: launch.name.to_string(),
            time_left: launch.time_left,
            spec: (*launch.spec).clone(),
            body: launch.overrides.clone(),
        }
    }
}

impl From<LaunchRecord> for Launch {
    fn from(record: LaunchRecord) -> Self {
        Self {
            token: Token { job: JobId(record.job), fence: Fence(record.fence), nonce: Nonce(record.nonce) },
            revision: Revision(u128::from_str_radix(&record.revision, 16).unwrap_or_default()),
            name: record.name.into(),
            spec: record.spec.into(),
            overrides: record.body,
            time_left: record.time_left,
            secrets: Default::default(),
        }
    }
}

impl From<RecordedInstant> for InstantRecord {
    fn from(at: RecordedInstant) -> Self {
        Self { at_ms: at.utc.0, up_ns: at.up.0, boot: at.boot }
    }
}

impl From<InstantRecord> for RecordedInstant {
    fn from(at: InstantRecord) -> Self {
        Self { utc: Timestamp(at.at_ms), up: Uptime(at.up_ns), boot: at.boot }
    }
}

impl From<Stopping> for StoppingRecord {
    fn from(stopping: Stopping) -> Self {
        Self { cause: stopping.cause, at: stopping.at.into() }
    }
}

impl From<StoppingRecord> for Stopping {
    fn from(stopped: StoppingRecord) -> Self {
        Self { cause: stopped.cause, at: stopped.at.into() }
    }
}

impl From<&AttemptEnd> for EndRecord {
    fn from(ending: &AttemptEnd) -> Self {
        Self {
            at: ending.at.into(),
            output: ending.output,
            usage: ending.usage.into(),
            exit: match ending.exit.clone() {
                Exit::Ran { code, oom, run_time, result } => {
                    let (result, result_fault) = match result {
                        ResultFile::Absent => (None, None),
                        ResultFile::Json(text) => (Some(text), None),
                        ResultFile::Unusable(why) => (None, Some(why)),
                    };
                    ExitRecord::Ran { code, oom, run_time, result, result_fault }
                }
                Exit::NotStarted { fault, code, message } => {
                    let fault = match fault {
                        StartFailure::Pull => StartFailureRecord::Pull,
                        StartFailure::Definition => StartFailureRecord::Definition,
                        StartFailure::Host => StartFailureRecord::Host,
                        StartFailure::Stopped => StartFailureRecord::Stopped,
                    };
                    ExitRecord::NotStarted { fault, code, message }
                }
                Exit::DaemonLost { message, run_time } => ExitRecord::DaemonLost { message, run_time },
                Exit::Vanished => ExitRecord::Vanished,
            },
        }
    }
}

impl From<EndRecord> for AttemptEnd {
    fn from(ended: EndRecord) -> Self {
        Self {
            at: ended.at.into(),
            output: ended.output,
            usage: ended.usage.into(),
            exit: match ended.exit {
                ExitRecord::Ran { code, oom, run_time, result, result_fault } => {
                    let result = match (result, result_fault) {
                        (Some(text), _) => ResultFile::Json(text),
                        (None, Some(why)) => ResultFile::Unusable(why),
                        (None, None) => ResultFile::Absent,
                    };
                    Exit::Ran { code, oom, run_time, result }
                }
                ExitRecord::NotStarted { fault, code, message } => {
                    let fault = match fault {
                        StartFailureRecord::Pull => StartFailure::Pull,
                        StartFailureRecord::Definition => StartFailure::Definition,
                        StartFailureRecord::Host => StartFailure::Host,
                        StartFailureRecord::Stopped => StartFailure::Stopped,
                    };
                    Exit::NotStarted { fault, code, message }
                }
                ExitRecord::DaemonLost { message, run_time } => Exit::DaemonLost { message, run_time },
                ExitRecord::Vanished => Exit::Vanished,
            },
        }
    }
}
