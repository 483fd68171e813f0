//! `/jobs/{id}/output`: the log viewer. The page has the last lines; the script replaces them by all lines, live.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use protocol::JobId;

use super::format;
use super::jobs::Row;
use super::page::{Frame, render};
use crate::escape_sequence;
use crate::http::api::{jobs, logs};
use crate::http::middleware::problem::Problem;
use crate::http::request::path::Id;
use crate::http::request::query::Query;
use crate::http::state::AppState;
use crate::store::JobRecord;

#[derive(Template)]
#[template(path = "output.html")]
struct OutputPage {
    frame: Frame,
    row: Row,
    /// The attempt that is shown; the latest if none is named.
    attempt: Option<u64>,
    attempts: Vec<u32>,
    /// The last lines without their escape sequences, for browsers without JavaScript.
    text: String,
    /// A sentence that says why nothing is shown, if the output was removed.
    missing: Option<String>,
}

/// `GET /jobs/{id}/output?attempt=`
pub(crate) async fn show(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    uri: Uri,
) -> Result<Response, Problem> {
    let mut query = Query::of(&uri)?;
    let attempt = query.number("attempt")?;
    query.finish()?;
    let record = jobs::find(&state, JobId(id)).await?;
    let last = logs::last_bytes(&state, &record, attempt, BYTES).await?;
    let missing = logs::removed(&state, &record, attempt).await?.map(missing);
    let full = state.presenter().full(record);
    render(&OutputPage {
        frame: Frame::new(&state, "jobs", format!("Output of job {id}")),
        attempt,
        attempts: full.attempts.iter().map(|attempt| attempt.number).collect(),
        text: text_of(&last.bytes),
        missing,
        row: Row::of(full.job),
    })
}

fn missing((attempt, written): (u32, u64)) -> String {
    format!(
        "Attempt {attempt} wrote {} of output, and the server has none of it any more. Either it became older than the \
         retention.output_max_age of its definition, or all output together became larger than --keep-output-max and the oldest was \
         deleted, or it never arrived because the worker was lost or the server was restored.",
        format::bytes(written)
    )
}

/// Bytes of output that the page itself carries.
const BYTES: usize = 64 << 10;

/// The last lines of the output of a job's latest attempt.
pub(super) enum LastLines {
    /// There are none.
    None,
    /// They cannot be read now.
    Unreadable,
    Text(String),
}

impl LastLines {
    /// Reads them. The page of a job is shown also if its output cannot be read.
    pub(super) async fn of(state: &AppState, record: &JobRecord) -> Self {
        match logs::last_bytes(state, record, None, LAST_BYTES).await {
            Ok(last) => Self::from(&last.bytes, last.is_cut),
            Err(_) => Self::Unreadable,
        }
    }

    fn from(bytes: &[u8], is_cut: bool) -> Self {
        let text = text_of(bytes);
        let mut lines: Vec<&str> = text.lines().collect();
        if is_cut && lines.len() > 1 {
            // The first one may have begun before these bytes.
            lines.remove(0);
        }
        let shown = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
        if shown.trim().is_empty() { Self::None } else { Self::Text(shown) }
    }
}

/// Lines of output, and bytes that are read for them, that the page of a job shows.
const LAST_LINES: usize = 20;
const LAST_BYTES: usize = 8 << 10;

/// Output as plain text.
fn text_of(bytes: &[u8]) -> String {
    plain(&last_states(&String::from_utf8_lossy(bytes)))
}

/// Lines that carriage returns overwrite, as progress bars do, become their last state. One before the end of a line overwrites nothing.
fn last_states(text: &str) -> String {
    let last = |line: &str| {
        let (shown, end) = line.strip_suffix('\n').map_or((line, ""), |shown| (shown, "\n"));
        let shown = shown.trim_end_matches('\r');
        let from = shown.rfind('\r').map_or(0, |at| at + 1);
        format!("{}{end}", &shown[from..])
    };
    text.split_inclusive('\n').map(last).collect()
}

/// Text without escape sequences and control characters: output of a job is hostile.
pub(super) fn plain(text: &str) -> String {
    let is_shown = |char: &char| !char.is_control() || matches!(char, '\n' | '\t');
    escape_sequence::remove(text).chars().filter(is_shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_bar_is_shown_in_its_last_state() {
        assert_eq!(last_states("1 %\r50 %\r100 %\ndone\r\n\r\r\n2 %\r3 %\r"), "100 %\ndone\n\n3 %");
    }

    #[test]
    fn the_last_lines_are_whole_ones() {
        let shown = |bytes: &str, is_cut| match LastLines::from(bytes.as_bytes(), is_cut) {
            LastLines::Text(text) => text,
            LastLines::None | LastLines::Unreadable => String::new(),
        };
        assert_eq!(shown("\u{1b}[31mred\u{1b}[0m\n\nlast", false), "red\n\nlast");
        assert_eq!(shown("\n \n", false), "");
        let many: String = (1..=30).map(|line| format!("line {line}\n")).collect();
        assert!(shown(&many, true).starts_with("line 11\n") && shown(&many, true).ends_with("line 30"));
        assert_eq!(shown("part\nend\n", true), "end");
        assert_eq!(shown("whole\nend\n", false), "whole\nend");
        assert_eq!(shown("part of a long line", true).len(), 19, "a part of a line is better than none");
    }

    #[test]
    fn escape_sequences_and_control_characters_are_left_out() {
        assert_eq!(plain("\u{1b}[31mred\u{1b}[0m\tx\r\n"), "red\tx\n");
        assert_eq!(plain("\u{1b}]0;title\u{7}after\u{8}\u{1b}c!"), "after!");
        assert_eq!(plain("end\u{1b}"), "end");
        assert_eq!(plain("end\u{1b}[12"), "end");
    }
}
