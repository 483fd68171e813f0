//! Derives the outcome of an attempt from its exit and from the cause of its stop.
//!
//! The cause recorded first decides, whatever exit code the program left. If the program ended before the
//! stop, the caller passes no cause, and the exit decides.

use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::wire::{EXIT_CODES, RESULT_BYTES_MAX};

use crate::input::{Exit, ResultFile, StartFailure};

/// The outcome of an attempt with its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExitVerdict {
    Success { run_time: Duration, result: Option<String>, note: Option<String> },
    Failure { outcome: Outcome, exit_code: Option<i32>, message: String, run_time: Option<Duration> },
}

/// Memory of an attempt in bytes, where it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryFigures {
    pub(crate) limit: Option<u64>,
    pub(crate) peak: Option<u64>,
}

/// Derives the outcome. The figures are of the attempt's memory.
pub(crate) fn classify(exit: Exit, stopped: Option<StopCause>, memory: MemoryFigures) -> ExitVerdict {
    let exit = clamp_exit_code(exit);
    match stopped {
        Some(cause) => by_cause(&exit, cause),
        None => by_exit(exit, memory),
    }
}

/// Replaces exit codes that no system has, since the wire cannot carry them.
fn clamp_exit_code(mut exit: Exit) -> Exit {
    if let Exit::Ran { code, .. } | Exit::NotStarted { code: Some(code), .. } = &mut exit
        && !EXIT_CODES.contains(code)
    {
        *code = UNKNOWN_CODE;
    }
    exit
}

/// The outcome of an attempt that was stopped before anything was created for it.
pub(crate) fn unstarted(cause: StopCause) -> ExitVerdict {
    ExitVerdict::Failure {
        outcome: outcome_of(cause),
        exit_code: None,
        message: format!("{} before it started", cause_text(cause)),
        run_time: None,
    }
}

fn by_cause(exit: &Exit, cause: StopCause) -> ExitVerdict {
    let words = cause_text(cause);
    let (exit_code, run_time, message) = match exit {
        Exit::Ran { code, run_time, .. } => {
            (Some(*code), Some(*run_time), format!("{words}; it ended with {}", exit_code_text(*code)))
        }
        Exit::NotStarted { code, .. } => (*code, None, format!("{words} before it started")),
        Exit::DaemonLost { run_time, .. } => {
            (None, *run_time, format!("{words}; the container engine stopped meanwhile"))
        }
        Exit::Vanished => (None, None, words.to_string()),
    };
    ExitVerdict::Failure { outcome: outcome_of(cause), exit_code, message, run_time }
}

fn by_exit(exit: Exit, memory: MemoryFigures) -> ExitVerdict {
    match exit {
        Exit::Ran { code: 0, oom, run_time, result } => success(oom, run_time, result),
        Exit::Ran { code, oom, run_time, .. } => by_code(code, oom, memory, run_time),
        Exit::NotStarted { fault, code, message } => ExitVerdict::Failure {
            outcome: match fault {
                StartFailure::Pull => Outcome::PullFailed,
                StartFailure::Definition => Outcome::StartFailed,
                StartFailure::Host | StartFailure::Stopped => Outcome::HostFailed,
            },
            exit_code: code,
            message: cut_message(message),
            run_time: None,
        },
        Exit::DaemonLost { message, run_time } => ExitVerdict::Failure {
            outcome: Outcome::DaemonLost,
            exit_code: None,
            message: cut_message(message),
            run_time,
        },
        Exit::Vanished => ExitVerdict::Failure {
            outcome: Outcome::Lost,
            exit_code: None,
            message: "its container is gone and nobody knows how it ended".to_string(),
            run_time: None,
        },
    }
}

/// A result that cannot be used does not change the outcome: it is left out and noted.
fn success(oom: bool, run_time: Duration, result: ResultFile) -> ExitVerdict {
    let (result, fault) = match result {
        ResultFile::Absent => (None, None),
        ResultFile::Json(text) if text.len() > RESULT_BYTES_MAX => {
            (None, Some(format!("{} bytes, at most {RESULT_BYTES_MAX} are kept", text.len())))
        }
        ResultFile::Json(text) => (Some(text), None),
        ResultFile::Unusable(why) => (None, Some(why)),
    };
    let note = match fault {
        Some(why) => Some(cut_message(format!("its result was left out: {why}"))),
        None => oom.then(|| CHILD_OOM.to_string()),
    };
    ExitVerdict::Success { run_time, result, note }
}

fn by_code(code: i32, oom: bool, memory: MemoryFigures, run_time: Duration) -> ExitVerdict {
    let limit = memory.limit.map(|bytes| format!(" of {}", size_text(bytes))).unwrap_or_default();
    let peak =
        memory.peak.map(|bytes| format!(", at a peak of {}", rounded_size_text(bytes))).unwrap_or_default();
    let (outcome, message) = match code {
        // The container was killed while it was being started.
        KILLED if oom && run_time.is_zero() => {
            (Outcome::OomKilled, format!("killed for its memory limit{limit} before its program started"))
        }
        KILLED if oom => (Outcome::OomKilled, format!("killed for its memory limit{limit}{peak}")),
        // An unexplained SIGKILL is probably the memory limit; engines miss it now and then.
        KILLED if memory.limit.is_some() => {
            (Outcome::Failed, format!("killed, probably for its memory limit{limit}{peak} (exit code 137)"))
        }
        _ if oom => (Outcome::Failed, format!("{}; {CHILD_OOM}", exit_code_text(code))),
        _ => (Outcome::Failed, exit_code_text(code)),
    };
    ExitVerdict::Failure { outcome, exit_code: Some(code), message, run_time: Some(run_time) }
}

const fn outcome_of(cause: StopCause) -> Outcome {
    match cause {
        StopCause::Cancel => Outcome::Cancelled,
        StopCause::Timeout => Outcome::TimedOut,
        StopCause::Superseded => Outcome::Lost,
        // The worker stopped it and knows that it is gone, so the outcome is not a loss.
        StopCause::Pinning | StopCause::Drain | StopCause::SelfFence => Outcome::Interrupted,
    }
}

const fn cause_text(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Cancel => "cancelled",
        StopCause::Timeout => "stopped because it ran for too long",
        StopCause::Superseded => "stopped because it was no longer the current attempt",
        StopCause::Pinning => "stopped because its definition is no longer allowed on this worker",
        StopCause::Drain => "stopped because the worker leaves",
        StopCause::SelfFence => {
            "stopped because the worker had lost its server, and it must not outlive that (self_fence)"
        }
    }
}

fn exit_code_text(code: i32) -> String {
    match code {
        129..=192 => format!("exit code {code} (signal {})", code - 128),
        _ => format!("exit code {code}"),
    }
}

/// A size in the largest unit that shows it exactly to a tenth (`64 MiB`, `1.5 GiB`), else in tenths of MiB.
fn size_text(bytes: u64) -> String {
    let tenths = |shift: u32| (u128::from(bytes) * 10) >> shift;
    let is_exact = |shift: u32| tenths(shift) >= 10 && tenths(shift) << shift == u128::from(bytes) * 10;
    let exact =
        [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter().find(|(_, it)| is_exact(*it));
    let (unit, shift) = exact.unwrap_or(("MiB", 20));
    match (tenths(shift) / 10, tenths(shift) % 10) {
        (whole, 0) => format!("{whole} {unit}"),
        (whole, tenth) => format!("{whole}.{tenth} {unit}"),
    }
}

/// A size in the largest unit that fits, cut to tenths.
fn rounded_size_text(bytes: u64) -> String {
    let units = [("TiB", 40_u32), ("GiB", 30), ("MiB", 20)];
    let (unit, shift) = units.into_iter().find(|(_, shift)| bytes >> shift > 0).unwrap_or(("KiB", 10));
    let tenths = (u128::from(bytes) * 10) >> shift;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {unit}"),
        (whole, tenth) => format!("{whole}.{tenth} {unit}"),
    }
}

/// Cuts a message between characters, so that no engine error fills a frame.
fn cut_message(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

/// 128 + SIGKILL.
const KILLED: i32 = 137;
const CHILD_OOM: &str = "a process in it was killed for lack of memory";
const MESSAGE_BYTES_MAX: usize = 1000;
const UNKNOWN_CODE: i32 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    const RAN: Duration = Duration::from_secs(3);

    fn ran(code: i32, oom: bool) -> Exit {
        Exit::Ran { code, oom, run_time: RAN, result: ResultFile::Absent }
    }

    fn verdict(exit: Exit, stopped: Option<StopCause>) -> ExitVerdict {
        classify(exit, stopped, MemoryFigures::default())
    }

    fn outcome(verdict: &ExitVerdict) -> Outcome {
        match verdict {
            ExitVerdict::Success { .. } => Outcome::Succeeded,
            ExitVerdict::Failure { outcome, .. } => *outcome,
        }
    }

    fn message(verdict: ExitVerdict) -> String {
        match verdict {
            ExitVerdict::Success { note, .. } => note.unwrap_or_default(),
            ExitVerdict::Failure { message, .. } => message,
        }
    }

    #[test]
    fn what_the_program_did_decides_if_we_did_not_stop_it() {
        let cases = [
            (ran(0, false), Outcome::Succeeded),
            (ran(0, true), Outcome::Succeeded),
            (ran(3, false), Outcome::Failed),
            (ran(125, false), Outcome::Failed),
            (ran(137, true), Outcome::OomKilled),
            (ran(137, false), Outcome::Failed),
            (ran(1, true), Outcome::Failed),
            (Exit::Vanished, Outcome::Lost),
        ];
        for (exit, expected) in cases {
            assert_eq!(outcome(&verdict(exit.clone(), None)), expected, "{exit:?}");
        }
    }

    #[test]
    fn the_cause_of_our_stop_decides_whatever_the_code() {
        for code in [0, 1, 137, 143] {
            assert_eq!(outcome(&verdict(ran(code, false), Some(StopCause::Cancel))), Outcome::Cancelled);
            assert_eq!(outcome(&verdict(ran(code, true), Some(StopCause::Timeout))), Outcome::TimedOut);
            for cause in [StopCause::Drain, StopCause::SelfFence] {
                assert_eq!(outcome(&verdict(ran(code, false), Some(cause))), Outcome::Interrupted);
            }
        }
        assert_eq!(outcome(&unstarted(StopCause::SelfFence)), Outcome::Interrupted);
        assert_eq!(outcome(&verdict(Exit::Vanished, Some(StopCause::Cancel))), Outcome::Cancelled);
    }

    #[test]
    fn start_faults_map_to_distinct_outcomes() {
        let not_started =
            |fault| Exit::NotStarted { fault, code: Some(127), message: "no such program".into() };
        assert_eq!(outcome(&verdict(not_started(StartFailure::Pull), None)), Outcome::PullFailed);
        assert_eq!(outcome(&verdict(not_started(StartFailure::Definition), None)), Outcome::StartFailed);
        assert_eq!(outcome(&verdict(not_started(StartFailure::Host), None)), Outcome::HostFailed);
        assert_eq!(
            outcome(&verdict(not_started(StartFailure::Pull), Some(StopCause::Cancel))),
            Outcome::Cancelled
        );
    }

    #[test]
    fn lack_of_memory_is_said_even_where_it_does_not_decide() {
        assert_eq!(message(verdict(ran(0, true), None)), CHILD_OOM);
        let limited =
            |exit, bytes| message(classify(exit, None, MemoryFigures { limit: Some(bytes), peak: None }));
        assert_eq!(limited(ran(137, true), 64 << 20), "killed for its memory limit of 64 MiB");
        let at_start =
            Exit::Ran { code: 137, oom: true, run_time: Duration::ZERO, result: ResultFile::Absent };
        let told = limited(at_start, 6 << 20);
        assert_eq!(told, "killed for its memory limit of 6 MiB before its program started");
        let probably = "killed, probably for its memory limit of 1.5 GiB (exit code 137)";
        assert_eq!(limited(ran(137, false), 1536 << 20), probably);
        assert!(message(verdict(ran(1, true), None)).contains(CHILD_OOM));
        assert!(!message(verdict(ran(137, false), None)).contains("memory"));
    }

    #[test]
    fn the_peak_stands_beside_the_limit_where_it_was_measured() {
        let memory = MemoryFigures { limit: Some(32 << 20), peak: Some((32 << 20) - 4096) };
        let killed = |oom| message(classify(ran(137, oom), None, memory));
        assert_eq!(killed(true), "killed for its memory limit of 32 MiB, at a peak of 31.9 MiB");
        assert!(killed(false).contains("limit of 32 MiB, at a peak of 31.9 MiB (exit"));
        let unlimited = MemoryFigures { limit: None, peak: Some(1 << 30) };
        assert_eq!(message(classify(ran(3, false), None, unlimited)), "exit code 3");
    }

    #[test]
    fn a_limit_is_told_as_people_write_it() {
        let cases =
            [(6 << 20, "6 MiB"), (1500 << 20, "1500 MiB"), (3 << 39, "1.5 TiB"), (44_739_242, "42.6 MiB")];
        for (bytes, told) in cases {
            assert_eq!(size_text(bytes), told);
        }
    }

    #[test]
    fn out_of_range_exit_codes_and_oversized_results_are_replaced() {
        let strange = verdict(ran(1_000_000, false), None);
        assert!(matches!(strange, ExitVerdict::Failure { exit_code: Some(255), .. }));

        let long = Exit::Ran {
            code: 0,
            oom: false,
            run_time: RAN,
            result: ResultFile::Json("x".repeat(RESULT_BYTES_MAX + 1)),
        };
        let left_out = verdict(long, None);
        assert!(matches!(&left_out, ExitVerdict::Success { result: None, .. }));
        assert!(message(left_out).contains("left out"));

        let torn = ResultFile::Unusable("it is not JSON".to_string());
        let left_out = verdict(Exit::Ran { code: 0, oom: true, run_time: RAN, result: torn }, None);
        assert!(matches!(&left_out, ExitVerdict::Success { result: None, .. }));
        assert!(message(left_out).contains("its result was left out: it is not JSON"));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let cut = cut_message("ä".repeat(2_000));
        assert!(cut.len() <= MESSAGE_BYTES_MAX + '…'.len_utf8());
        assert!(cut.ends_with("ä…"));
    }
}
