//! Validity of decoded values. Absurd values that machines act on are refused; texts for people are cut.
//!
//! The state machines check values against their state, such as a current token or a free name; nothing here
//! knows any state.

mod container;

use alloc::format;
use alloc::string::String;

pub use container::container_fits;

use super::InvalidField;
use super::hello::check_hello;
use super::limits::{
    ELLIPSIS, EXIT_CODES, HEARTBEAT_MIN, NUMBER_MAX, OUTPUT_BYTES_MAX, OVERRIDES_BYTES_MAX, RESULT_BYTES_MAX,
    SECRET_BYTES_MAX, SECRETS_BYTES_MAX, TEXT_BYTES_MAX,
};
use super::values::{Checked, duration, ensure, inner, offset, plain, runtimes, slots};
use crate::container::{Overrides, RuntimeKind};
use crate::ids::{ReportNo, Token};
use crate::order::{Intervals, Order};
use crate::report::{
    Availability, Chunk, Failed, Numbered, Outcome, OutputLengths, Phase, Report, Succeeded, Timing, Usage,
    UsageSample,
};
use crate::secret::{AttemptSecrets, SecretValues, is_secret_name};

/// The overrides of a job fit into an Enqueue. A server checks this at submission, so that no job is accepted
/// that could never be sent.
///
/// # Errors
/// The field and its limit.
pub fn overrides_fit(overrides: &Overrides) -> Checked {
    overrides_fit_with(overrides, 0, 0)
}

/// The overrides of a job fit into an Enqueue beside this number of further variables, which have this number of bytes together.
///
/// # Errors
/// The field and its limit.
pub fn overrides_fit_with(overrides: &Overrides, variables: usize, variables_bytes: usize) -> Checked {
    inner("environment", overrides.environment.len() + variables)?;
    inner("args", overrides.args.len())?;
    let bytes = variables_bytes
        + overrides.environment.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
        + overrides.args.iter().map(String::len).sum::<usize>()
        + overrides.input.as_ref().map_or(0, String::len);
    ensure(bytes <= OVERRIDES_BYTES_MAX, "overrides", || {
        format!(
            "environment, args and input have {bytes} bytes together, at most {OVERRIDES_BYTES_MAX} are allowed"
        )
    })
}

/// The secrets of an attempt fit into an Enqueue, and the names of their files are plain.
///
/// # Errors
/// The field and its limit.
pub fn secrets_fit(values: &SecretValues) -> Checked {
    inner("secrets", values.all().count())?;
    let names = values.files.iter().map(|(name, _)| name.as_str());
    for name in names {
        ensure(is_secret_name(name), "secrets", || "the name of a file is no plain name".into())?;
    }
    let longest = values.all().map(|value| value.0.len()).max().unwrap_or(0);
    ensure(longest <= SECRET_BYTES_MAX, "secrets", || {
        format!("a value has {longest} bytes, at most {SECRET_BYTES_MAX} are allowed")
    })?;
    if let Some(login) = &values.registry {
        login.check().map_err(|why| InvalidField { field: "registry", why })?;
    }
    let bytes = values.all().map(|value| value.0.len()).sum::<usize>();
    ensure(bytes <= SECRETS_BYTES_MAX, "secrets", || {
        format!("the values have {bytes} bytes together, at most {SECRETS_BYTES_MAX} are allowed")
    })
}

fn secrets(secrets: &mut AttemptSecrets) -> Checked {
    match secrets {
        AttemptSecrets::Given(values) => secrets_fit(values),
        AttemptSecrets::Withheld(why) => {
            cut_text(why);
            Ok(())
        }
    }
}

/// Cuts a text for people to [`TEXT_BYTES_MAX`], between characters.
pub fn cut_text(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX - ELLIPSIS.len_utf8()));
        text.push(ELLIPSIS);
    }
}

pub(super) fn order(order: &mut Order) -> Checked {
    match order {
        Order::Welcome(it) => intervals(&it.intervals),
        Order::Definitions(list) | Order::ExtendedDefinitions(list) => {
            list.iter().try_for_each(|it| container_fits(&it.container))
        }
        Order::Enqueue(list) => list.iter_mut().try_for_each(|it| {
            token(it.token)?;
            duration("waited", it.waited)?;
            it.time_left.map_or(Ok(()), |left| duration("time_left", left))?;
            it.secrets.as_mut().map_or(Ok(()), secrets)?;
            inner("gpus", it.gpus.len())?;
            it.overrides.as_ref().map_or(Ok(()), overrides_fit)
        }),
        Order::Reconciled(it) => it.attempts.iter().try_for_each(|(it, _)| token(*it)),
        Order::Cancel(it) => {
            token(it.token)?;
            it.grace.map_or(Ok(()), |grace| duration("grace", grace))
        }
        Order::Recall(list) => list.iter().try_for_each(|it| token(*it)),
        Order::Configure(it) => {
            it.slots.map_or(Ok(()), |count| slots("slots", count))?;
            it.intervals.as_ref().map_or(Ok(()), intervals)
        }
        Order::OutputAcknowledge(list) => list.iter().try_for_each(|it| {
            token(it.token)?;
            offset("offset", it.offset)
        }),
        Order::Refused(it) => {
            cut_text(&mut it.code);
            cut_text(&mut it.text);
            duration("retry_after", it.retry_after)
        }
        Order::GoAway(it) => {
            it.elsewhere.as_ref().map_or(Ok(()), |address| plain("elsewhere", address, 1))?;
            duration("reconnect_after", it.reconnect_after)
        }
        Order::Acknowledge(_) | Order::Pulse(_) => Ok(()),
    }
}

pub(super) fn report(report: &mut Report) -> Checked {
    match report {
        Report::Hello(it) => {
            availabilities(&mut it.runtimes);
            check_hello(it)
        }
        Report::Running(it) => numbered(it, |it| {
            cut_text(&mut it.container);
            token(it.token)?;
            duration("ago", it.ago)
        }),
        Report::Success(it) => numbered(it, |it| {
            it.note.iter_mut().for_each(cut_text);
            succeeded(it)
        }),
        Report::Failure(it) => numbered(it, |it| {
            cut_text(&mut it.message);
            failed(it)
        }),
        Report::Inventory(it) => {
            availabilities(&mut it.runtimes);
            runtimes(&it.runtimes)?;
            it.attempts.iter().try_for_each(phase)?;
            it.foreign.iter().try_for_each(|it| token(it.token))
        }
        Report::Foreign(list) => list.iter().try_for_each(|it| token(it.token)),
        Report::Released(it) => numbered(it, |it| {
            cut_text(&mut it.why);
            token(it.token)
        }),
        Report::Output(list) => {
            let bytes = list.iter().map(|it| it.data.bytes_len()).sum::<usize>();
            ensure(bytes <= OUTPUT_BYTES_MAX, "data", || {
                format!("there are {bytes} bytes, at most {OUTPUT_BYTES_MAX} are allowed in a frame")
            })?;
            list.iter().try_for_each(chunk)
        }
        Report::Progress(list) | Report::Status(list) => list.iter().try_for_each(phase),
        Report::Condition(it) => {
            availabilities(&mut it.runtimes);
            runtimes(&it.runtimes)?;
            slots("slots", it.slots)
        }
        Report::Starting(it) => numbered(it, |it| token(*it)),
        Report::Usage(list) => list.iter().try_for_each(sample),
        Report::Heartbeat(_) | Report::Wanted(_) => Ok(()),
    }
}

pub(super) fn succeeded(succeeded: &Succeeded) -> Checked {
    token(succeeded.token)?;
    timing(succeeded.timing)?;
    lengths(succeeded.output)?;
    usage(&succeeded.usage)?;
    let result = succeeded.result.as_ref().map_or(0, String::len);
    ensure(result <= RESULT_BYTES_MAX, "result", || {
        format!("it has {result} bytes, at most {RESULT_BYTES_MAX} are allowed")
    })
}

pub(super) fn failed(failed: &Failed) -> Checked {
    token(failed.token)?;
    ensure(!matches!(failed.outcome, Outcome::Succeeded | Outcome::Released), "outcome", || {
        format!("{} is no failure", failed.outcome.name())
    })?;
    failed.exit_code.map_or(Ok(()), exit_code)?;
    timing(failed.timing)?;
    usage(&failed.usage)?;
    lengths(failed.output)
}

pub(super) fn sample(sample: &UsageSample) -> Checked {
    token(sample.token)?;
    sample.memory_bytes.map_or(Ok(()), |bytes| offset("memory_bytes", bytes))?;
    usage(&sample.usage)
}

fn usage(usage: &Usage) -> Checked {
    usage
        .figures()
        .into_iter()
        .try_for_each(|(field, figure)| figure.map_or(Ok(()), |figure| offset(field, figure)))
}

pub(super) fn chunk(chunk: &Chunk) -> Checked {
    let bytes = chunk.data.bytes_len();
    ensure(bytes <= OUTPUT_BYTES_MAX, "data", || {
        format!("there are {bytes} bytes, at most {OUTPUT_BYTES_MAX} are allowed")
    })?;
    token(chunk.token)?;
    offset("offset", chunk.offset)?;
    offset("offset", chunk.end())
}

fn numbered<T>(numbered: &mut Numbered<T>, entry: impl FnMut(&mut T) -> Checked) -> Checked {
    ensure(numbered.first > ReportNo(0) && numbered.first.0 <= NUMBER_MAX, "first", || {
        format!("{} is not between 1 and {NUMBER_MAX}", numbered.first)
    })?;
    numbered.list.iter_mut().try_for_each(entry)
}

fn token(token: Token) -> Checked {
    ensure(token.job.0 <= NUMBER_MAX && token.fence.0 <= NUMBER_MAX, "token", || {
        format!("a job or a fence is above {NUMBER_MAX}")
    })
}

fn timing(timing: Timing) -> Checked {
    duration("ended_ago", timing.ended_ago)?;
    timing.ran.map_or(Ok(()), |ran| duration("ran", ran))
}

fn lengths(output: OutputLengths) -> Checked {
    offset("output.stdout", output.stdout)?;
    offset("output.stderr", output.stderr)
}

fn phase((of, phase): &(Token, Phase)) -> Checked {
    token(*of)?;
    match phase {
        Phase::Pulling { percent: Some(percent), .. } => {
            ensure(*percent <= 100, "percent", || format!("{percent} is above 100"))
        }
        _ => Ok(()),
    }
}

fn availabilities(runtimes: &mut [(RuntimeKind, Availability)]) {
    for (_, availability) in runtimes {
        if let Availability::Unavailable(why) = availability {
            cut_text(why);
        }
    }
}

fn intervals(intervals: &Intervals) -> Checked {
    let Intervals { heartbeat, lease, start_gate } = *intervals;
    ensure(heartbeat >= HEARTBEAT_MIN, "intervals.heartbeat", || {
        format!("{heartbeat:?} is below {HEARTBEAT_MIN:?}")
    })?;
    ensure(lease > heartbeat && lease > start_gate, "intervals.lease", || {
        format!(
            "{lease:?} does not outlast the heartbeat of {heartbeat:?} and the start gate of {start_gate:?}"
        )
    })?;
    duration("intervals.lease", lease)
}

fn exit_code(code: i32) -> Checked {
    ensure(EXIT_CODES.contains(&code), "exit_code", || {
        format!("{code} is not between {} and {}", EXIT_CODES.start(), EXIT_CODES.end())
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use core::time::Duration;

    use super::*;
    use crate::wire::limits::{DURATION_MAX, INNER_ENTRIES_MAX};

    #[test]
    fn what_could_never_be_sent_is_told_before_it_is_accepted() {
        let overrides = |bytes, args| Overrides {
            environment: Vec::new(),
            args: vec![String::new(); args],
            input: Some("x".repeat(bytes)),
        };
        assert_eq!(overrides_fit(&overrides(OVERRIDES_BYTES_MAX, INNER_ENTRIES_MAX)), Ok(()));
        assert_eq!(overrides_fit(&overrides(OVERRIDES_BYTES_MAX + 1, 0)).unwrap_err().field, "overrides");
        assert_eq!(overrides_fit(&overrides(0, INNER_ENTRIES_MAX + 1)).unwrap_err().field, "args");
    }

    #[test]
    fn a_text_for_people_is_cut_between_characters() {
        let mut text = "ü".repeat(TEXT_BYTES_MAX);
        cut_text(&mut text);
        assert!(text.len() <= TEXT_BYTES_MAX && text.ends_with("ü…"));
    }

    #[test]
    fn absurd_durations_and_intervals_are_refused() {
        assert_eq!(duration("ago", DURATION_MAX), Ok(()));
        assert!(duration("ago", DURATION_MAX + Duration::from_nanos(1)).is_err());
        let zero = Intervals { heartbeat: Duration::ZERO, ..Intervals::default() };
        assert_eq!(intervals(&zero).unwrap_err().field, "intervals.heartbeat");
        let short = Intervals { lease: Duration::from_secs(5), ..Intervals::default() };
        assert_eq!(intervals(&short).unwrap_err().field, "intervals.lease");
    }
}
