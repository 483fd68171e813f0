//! Prints the events of the output of a job.

use data_encoding::BASE64;
use serde_json::json;
use server::http::present::missing_output::missing_text;
use server::http::present::shapes::Reason;

use super::ResumeState;
use super::request::LogRequest;
use crate::api::Api;
use crate::screen;
use crate::stream::Stream;
use crate::view;

#[derive(serde::Deserialize)]
pub(super) struct Attempt {
    attempt: u32,
    worker: String,
}

/// Notes that another attempt begins.
pub(super) fn switch_attempt(
    wanted: &LogRequest,
    next: &Attempt,
    resume: &mut ResumeState,
) -> anyhow::Result<()> {
    // A new connection repeats the event of the same attempt.
    if next.attempt != resume.attempt {
        flush_streams(wanted, resume)?;
        resume.replayed.clear();
        resume.withheld = false;
        end_line(Stream::Stdout, resume)?;
        end_line(Stream::Stderr, resume)?;
        if let Some(member) = &mut resume.member {
            member.runs_on(&next.worker);
        }
    }
    if resume.attempt > 0 && next.attempt > resume.attempt {
        note(&format!("longshore: attempt {} on {}", next.attempt, next.worker), resume)?;
    }
    resume.attempt = next.attempt;
    Ok(())
}

#[derive(serde::Deserialize)]
pub(super) struct Output {
    stream: Stream,
    base64: String,
    /// The time at which the server received it, if that was asked for and is known.
    received_at: Option<String>,
    /// True if the worker read it again from the engine's log.
    #[serde(default)]
    replayed: bool,
}

pub(super) fn output(
    api: &Api,
    wanted: &LogRequest,
    output: &Output,
    resume: &mut ResumeState,
) -> anyhow::Result<()> {
    let bytes = BASE64.decode(output.base64.as_bytes()).map_err(|_| api.unexpected_response())?;
    if output.replayed && !resume.replayed.contains(&output.stream) {
        note_replayed(wanted, output.stream, resume)?;
    }
    let look = resume.looks.of(output.stream);
    if wanted.as_json {
        let text = look.text.decode(&bytes);
        return json_text(output.stream, &text, output.received_at.as_deref(), resume);
    }
    let bytes = if wanted.timestamps {
        resume.printed.stamp(output.stream, &bytes, output.received_at.as_deref())
    } else {
        resume.printed.record(output.stream, &bytes);
        bytes
    };
    if let Some(member) = &resume.member {
        let lines = resume.lines.push(output.stream, &look.text.decode(&bytes));
        return member.print(output.stream, &lines);
    }
    screen::output(output.stream, &bytes, look)
}

/// Notes once per stream and attempt that the output comes from the engine's log instead of the container. With JSON, every line has a flag
/// instead.
fn note_replayed(wanted: &LogRequest, stream: Stream, resume: &mut ResumeState) -> anyhow::Result<()> {
    resume.replayed.push(stream);
    if wanted.as_json {
        return Ok(());
    }
    let stream = stream.name();
    note(&format!("longshore: the following part of {stream} was read from the engine's log"), resume)
}

/// Prints an incomplete character, because its remaining bytes will not come, and ends colours.
fn flush_partial(wanted: &LogRequest, stream: Stream, resume: &mut ResumeState) -> anyhow::Result<()> {
    let look = resume.looks.of(stream);
    let rest = look.text.flush();
    if wanted.as_json {
        return json_text(stream, &rest, None, resume);
    }
    if let Some(member) = &resume.member {
        let lines = resume.lines.push(stream, &rest) + &resume.lines.take(stream);
        return member.print(stream, &lines);
    }
    screen::output(stream, rest.as_bytes(), look)?;
    screen::end_output(stream, look)
}

/// Ends a printed line whose rest will not come, so that the next output does not look like its end. Lines of members are whole, and JSON
/// needs no line breaks.
fn end_line(stream: Stream, resume: &mut ResumeState) -> anyhow::Result<()> {
    if resume.printed.end(stream) && resume.member.is_none() {
        return screen::output(stream, b"\n", resume.looks.of(stream));
    }
    Ok(())
}

/// Notes something about the job on a line of its own.
fn note(text: &str, resume: &mut ResumeState) -> anyhow::Result<()> {
    if let Some(member) = &resume.member {
        screen::note(&member.prefixed(text));
        return Ok(());
    }
    end_line(Stream::Stderr, resume)?;
    // Standard output and the note are on one screen. In a file it stays as it is.
    if screen::is_terminal(Stream::Stdout) {
        end_line(Stream::Stdout, resume)?;
    }
    screen::note(text);
    Ok(())
}

pub(super) fn flush_streams(wanted: &LogRequest, resume: &mut ResumeState) -> anyhow::Result<()> {
    flush_partial(wanted, Stream::Stdout, resume)?;
    flush_partial(wanted, Stream::Stderr, resume)
}

/// Ends a last line without a line break on a terminal, where the outcome or the prompt would follow it. A file gets the output as it is, but
/// for standard error before the note about the end of a followed job.
pub(super) fn end_last_lines(follow: bool, resume: &mut ResumeState) -> anyhow::Result<()> {
    if follow {
        end_line(Stream::Stderr, resume)?;
    }
    for stream in [Stream::Stdout, Stream::Stderr] {
        if resume.printed.end(stream) && resume.member.is_none() {
            screen::end_line(stream)?;
        }
    }
    Ok(())
}

/// Prints a JSON line, unless the text is empty because only an incomplete character came.
fn json_text(
    stream: Stream,
    text: &str,
    received_at: Option<&str>,
    resume: &ResumeState,
) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut line = json!({ "stream": stream.name(), "text": text });
    if let Some(received_at) = received_at {
        line["received_at"] = received_at.into();
    }
    if resume.replayed.contains(&stream) {
        line["replayed"] = true.into();
    }
    resume.print_json(line)
}

#[derive(serde::Deserialize)]
pub(super) struct Gap {
    stream: Stream,
    /// `None` if the number is unknown.
    missing_bytes: Option<u64>,
    /// `log.max_bytes`, if the output was cut at it.
    cut_at_bytes: Option<u64>,
    /// The line in its place; absent from an earlier server.
    text: Option<String>,
}

pub(super) fn gap(wanted: &LogRequest, gap: &Gap, resume: &mut ResumeState) -> anyhow::Result<()> {
    flush_partial(wanted, gap.stream, resume)?;
    end_line(gap.stream, resume)?;
    let (stream, missing) = (gap.stream.name(), gap.missing_bytes);
    if wanted.as_json {
        let mut line = json!({ "stream": stream, "missing_bytes": missing });
        if let Some(limit) = gap.cut_at_bytes {
            line["cut_at_bytes"] = limit.into();
        }
        return resume.print_json(line);
    }
    let text = gap.text.clone().unwrap_or_else(|| missing_text(Some(stream), missing, gap.cut_at_bytes));
    note(&text, resume)
}

#[derive(serde::Deserialize)]
pub(super) struct Withheld {
    shown_bytes: u64,
    max_bytes: u64,
    text: String,
}

/// Says once for an attempt that its further output comes at the end.
pub(super) fn withheld(
    wanted: &LogRequest,
    withheld: &Withheld,
    resume: &mut ResumeState,
) -> anyhow::Result<()> {
    if std::mem::replace(&mut resume.withheld, true) {
        return Ok(());
    }
    if wanted.as_json {
        let Withheld { shown_bytes, max_bytes, .. } = withheld;
        return resume
            .print_json(json!({ "withheld": { "shown_bytes": shown_bytes, "max_bytes": max_bytes } }));
    }
    note(&withheld.text, resume)
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct AttemptEnded {
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_reason: Option<Reason>,
    #[serde(skip_serializing)]
    text: String,
}

/// Notes how an attempt ended that is not the last one of its job.
pub(super) fn attempt_ended(
    wanted: &LogRequest,
    ended: &AttemptEnded,
    resume: &mut ResumeState,
) -> anyhow::Result<()> {
    let code = ended.pending_reason.as_ref().map(|reason| reason.code.to_string()).unwrap_or_default();
    let is_new = resume.reported_ends.begin(ended.attempt, &code);
    if wanted.as_json {
        // A note on standard error does not replace the line of a program.
        if ended.attempt <= resume.ended {
            return Ok(());
        }
        resume.ended = ended.attempt;
        flush_streams(wanted, resume)?;
        return resume.print_json(json!({ "attempt_ended": ended }));
    }
    if !is_new {
        return Ok(());
    }
    flush_streams(wanted, resume)?;
    note(&ended.text, resume)
}

#[derive(serde::Deserialize)]
pub(super) struct Late {
    late_bytes: u64,
}

pub(super) fn late(wanted: &LogRequest, late: &Late, resume: &mut ResumeState) -> anyhow::Result<()> {
    let late = late.late_bytes;
    if wanted.as_json {
        return resume.print_json(json!({ "late_bytes": late }));
    }
    note(&format!("longshore: {late} bytes of output have not arrived yet"), resume)
}

#[derive(serde::Deserialize)]
pub(super) struct End {
    /// The server's line about the end of the job.
    text: Option<String>,
    attempt: Option<u32>,
    outcome: Option<String>,
    exit_code: Option<i32>,
}

/// Prints how the job ended, after all output.
pub(super) fn end(wanted: &LogRequest, end: &End, resume: &mut ResumeState) -> anyhow::Result<()> {
    flush_streams(wanted, resume)?;
    let of_attempt = || {
        let (attempt, outcome) = (end.attempt?, view::in_words(end.outcome.as_deref()?));
        let code = end.exit_code.filter(|code| *code != 0);
        let exit = code.map(|code| format!(", exit {code}")).unwrap_or_default();
        Some(format!("longshore: attempt {attempt} of job {} {outcome}{exit}", wanted.id))
    };
    if wanted.prints_end
        && let Some(text) = end.text.clone().or_else(of_attempt)
    {
        note(&text, resume)?;
    }
    Ok(())
}
