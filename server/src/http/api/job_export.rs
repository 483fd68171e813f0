//! `GET /api/jobs` as CSV or NDJSON: all jobs that fit, read in slices while they are sent.
//!
//! A slice is read only when the client has taken the one before, so an export holds one slice in memory, however long it is. One that
//! cannot be finished breaks the connection: a regular end would look like the end of the list.

use std::future::ready;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use super::job_list::{ListForm, Results, Slice, slice};
use crate::http::middleware::problem::Problem;
use crate::http::present::csv;
use crate::http::present::shapes::ListedJob;
use crate::http::request::job_filter;
use crate::http::request::paging::LIMIT_MAX;
use crate::http::request::query::{Query, invalid_query};
use crate::http::state::AppState;
use crate::store::JobFilter;

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportFormat {
    /// A heading, and a record a job.
    Csv,
    /// A JSON object a line.
    Ndjson,
}

/// A type that lists of jobs have.
enum AcceptedType {
    /// An array in JSON.
    Array,
    /// An export.
    Export(ExportFormat),
}

impl AcceptedType {
    /// `None` is a type that lists of jobs do not have, or that is refused by its weight.
    fn of_range(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
        let name = parts.next()?;
        if parts.any(|part| part.strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0))) {
            return None;
        }
        match name.as_str() {
            "text/csv" | "text/*" => Some(Self::Export(ExportFormat::Csv)),
            "application/x-ndjson" => Some(Self::Export(ExportFormat::Ndjson)),
            "application/json" | "application/*" | "*/*" => Some(Self::Array),
            _ => None,
        }
    }
}

impl ExportFormat {
    /// The format that a request asks for: the first of its `Accept` that lists of jobs have. `None` is an array in JSON.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).find_map(AcceptedType::of_range).and_then(|accepted| {
            match accepted {
                AcceptedType::Array => None,
                AcceptedType::Export(format) => Some(format),
            }
        })
    }

    const fn content_type(self) -> HeaderValue {
        match self {
            Self::Csv => HeaderValue::from_static("text/csv; charset=utf-8; header=present"),
            Self::Ndjson => HeaderValue::from_static("application/x-ndjson"),
        }
    }

    fn heading(self, results: Results) -> String {
        match self {
            Self::Csv => csv::heading(results == Results::Shown),
            Self::Ndjson => String::new(),
        }
    }

    fn write(self, text: &mut String, job: &ListedJob, results: Results) -> serde_json::Result<()> {
        match self {
            Self::Csv => csv::write_job(text, job, results == Results::Shown),
            Self::Ndjson => {
                text.push_str(&serde_json::to_string(job)?);
                text.push('\n');
            }
        }
        Ok(())
    }
}

/// All jobs that a query asks for. `limit` is the number of all of them, not of a page.
///
/// # Errors
/// Those of [`job_filter::read`], `invalid_query`, and those of a read of the first slice.
pub(crate) async fn export(
    state: &Arc<AppState>,
    mut query: Query,
    format: ExportFormat,
) -> Result<Response, Problem> {
    let mut filter = job_filter::read(state, &mut query).await?;
    let left = query.number("limit")?.unwrap_or(u64::MAX);
    if left == 0 {
        return Err(invalid_query("limit", "it is a whole number from 1"));
    }
    let form = ListForm::of(&mut query)?;
    query.finish()?;
    form.check(&mut filter)?;
    let mut export = Export { state: Arc::clone(state), filter, left, format, form, is_over: false };
    // Read before the answer begins: what fails here still gets a problem document.
    let first = format!("{}{}", format.heading(form.results), export.read().await?);
    let rest = stream::try_unfold(export, |mut export| async move {
        if export.is_over {
            return Ok(None);
        }
        let text = export.read_on().await?;
        Ok::<_, io::Error>(Some((Bytes::from(text), export)))
    });
    let body = Body::from_stream(stream::once(ready(Ok(Bytes::from(first)))).chain(rest));
    let headers =
        [(header::CONTENT_TYPE, format.content_type()), (header::VARY, HeaderValue::from_static("accept"))];
    Ok((headers, body).into_response())
}

/// An export under way.
struct Export {
    state: Arc<AppState>,
    /// The filters; the cursor moves after each slice.
    filter: JobFilter,
    /// The number of jobs that may still be sent.
    left: u64,
    format: ExportFormat,
    form: ListForm,
    is_over: bool,
}

impl Export {
    /// Reads the next slice as text.
    async fn read(&mut self) -> Result<String, Problem> {
        let wanted = usize::try_from(self.left).unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
        let Slice { jobs, last } = slice(&self.state, self.filter.clone(), wanted, self.form).await?;
        self.left -= jobs.len() as u64;
        self.form.go_on(&mut self.filter, last);
        self.is_over = last.is_none() || self.left == 0;
        let mut text = String::new();
        for job in &jobs {
            self.format.write(&mut text, job, self.form.results).map_err(Problem::internal)?;
        }
        Ok(text)
    }

    /// Reads a slice after the first one.
    ///
    /// # Errors
    /// One that breaks the connection.
    async fn read_on(&mut self) -> Result<String, io::Error> {
        let cause = match self.state.services.shutdown.is_cancelled() {
            true => "the server is shutting down",
            false => match self.read().await {
                Ok(text) => return Ok(text),
                Err(problem) => problem.code().name(),
            },
        };
        tracing::warn!(
            cause,
            behind = self.filter.before.or(self.filter.after).map(|job| job.0),
            "export of jobs broken off; the client has an incomplete list and must ask again"
        );
        Err(io::Error::other(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_type_that_lists_have_decides() {
        for (accept, format) in [
            ("text/csv", Some(ExportFormat::Csv)),
            ("Text/CSV; charset=utf-8", Some(ExportFormat::Csv)),
            ("text/*", Some(ExportFormat::Csv)),
            ("application/x-ndjson, text/csv", Some(ExportFormat::Ndjson)),
            ("text/html, text/csv;q=0.5", Some(ExportFormat::Csv)),
            ("text/csv;q=0, application/x-ndjson", Some(ExportFormat::Ndjson)),
            ("application/json, text/csv", None),
            ("text/html,application/xhtml+xml,*/*;q=0.8", None),
            ("text/html", None),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(ExportFormat::of(&headers), format, "{accept}");
        }
        assert_eq!(ExportFormat::of(&HeaderMap::new()), None);
    }
}
