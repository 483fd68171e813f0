//! `/logs/search`: the form that searches the output of all jobs, and a part of what it found.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::format::{self, Moment};
use super::list_address::{FilterFault, ListAddress};
use super::output::plain;
use super::page::{Frame, render};
use crate::http::api::logs;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{OutputLine, OutputSearch};
use crate::http::state::AppState;

/// A line that was found.
struct Row {
    /// Its address in the log viewer, below the base path.
    link: String,
    line: OutputLine,
    parts: Vec<LinePart>,
    started: Option<Moment>,
}

/// A part of a line: a match, or the text between matches.
#[derive(Debug, PartialEq, Eq)]
struct LinePart {
    text: String,
    is_match: bool,
}

impl Row {
    fn of(line: OutputLine) -> Self {
        Self {
            link: format!(
                "/jobs/{}/output?attempt={}#{}@{}",
                line.job, line.attempt, line.stream, line.offset
            ),
            parts: split(&line.text, &line.matches),
            started: line.started_at.map(format::moment),
            line,
        }
    }
}

/// Cuts a line at its matches. Control characters are left out: output of a job is hostile.
fn split(text: &str, matches: &[[usize; 2]]) -> Vec<LinePart> {
    let mut parts = Vec::new();
    let mut push = |from: usize, to: usize, is_match| {
        // A range that does not fit the text shows nothing of it.
        let text = plain(text.get(from..to).unwrap_or_default());
        if !text.is_empty() {
            parts.push(LinePart { text, is_match });
        }
    };
    let mut at = 0;
    for &[begin, end] in matches {
        push(at, begin, false);
        push(begin, end, true);
        at = end;
    }
    push(at, text.len(), false);
    parts
}

/// The fields of the form, as they were sent.
struct Form {
    q: String,
    regex: bool,
    ignore_case: bool,
    name: String,
    since: String,
    until: String,
    fault: Option<FilterFault>,
}

impl Form {
    /// True for the field that was refused.
    fn is_wrong(&self, field: &str) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.is_of(field))
    }
}

#[derive(Template)]
#[template(path = "output_search.html")]
struct SearchPage {
    frame: Frame,
    form: Form,
    rows: Vec<Row>,
    /// The amount of output that was searched, and what is left; absent before the first search.
    searched: Option<Searched>,
    /// The query of the next part.
    next: Option<String>,
}

struct Searched {
    size: String,
    jobs: u64,
    jobs_left_at_most: u64,
    /// Jobs whose output was cut.
    cut_jobs: usize,
    is_complete: bool,
    /// True if the search begins with this part.
    is_first_part: bool,
}

/// `GET /logs/search`
pub(crate) async fn show(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let address = ListAddress::of(&uri)?;
    let found = match address.value("q").is_empty() {
        true => Ok(None),
        false => logs::search::part(&state, address.query()).await.map(Some),
    };
    let (found, refusal) = match found {
        Ok(found) => (found, None),
        Err(problem) => (None, Some(problem)),
    };
    let fault = refusal.as_ref().and_then(FilterFault::of);
    if let (Some(problem), None) = (&refusal, &fault) {
        return Err(problem.clone());
    }
    let is_on = |name: &str| !matches!(address.value(name).as_str(), "" | "0" | "false");
    let form = Form {
        q: address.value("q"),
        regex: is_on("regex"),
        ignore_case: is_on("ignore_case"),
        name: address.value("name"),
        since: address.value("since"),
        until: address.value("until"),
        fault,
    };
    let next = found.as_ref().and_then(|found| found.next.as_deref());
    let page = render(&SearchPage {
        frame: Frame::new(&state, "jobs", "Search in output"),
        form,
        next: address.next_page(next),
        searched: found.as_ref().map(|found| searched(found, address.value("cursor").is_empty())),
        rows: found.into_iter().flat_map(|found| found.lines).map(Row::of).collect(),
    })?;
    Ok(match refusal {
        Some(problem) => problem.shown_by(page),
        None => page,
    })
}

fn searched(found: &OutputSearch, is_first_part: bool) -> Searched {
    Searched {
        size: format::bytes(found.scanned_bytes),
        jobs: found.scanned_jobs,
        jobs_left_at_most: found.jobs_left_at_most,
        cut_jobs: found.cut_jobs.len(),
        is_complete: found.complete,
        is_first_part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_its_matches_and_loses_its_control_characters() {
        let cut = |text: &str, matches: &[[usize; 2]]| {
            let part = |part: LinePart| if part.is_match { format!("<{}>", part.text) } else { part.text };
            split(text, matches).into_iter().map(part).collect::<String>()
        };
        assert_eq!(cut("an error, an error", &[[3, 8], [13, 18]]), "an <error>, an <error>");
        assert_eq!(cut("\u{1b}[31mred\u{7}", &[[5, 8]]), "<red>");
        assert_eq!(cut("é", &[[1, 2]]), "", "not at the bounds of a character");
        assert_eq!(cut("none", &[]), "none");
    }
}
