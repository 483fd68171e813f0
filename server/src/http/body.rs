//! Bodies of requests: read whole, within a limit of size and time, and of a type that is understood.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Collected, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use super::code::Code;
use super::problem::{Problem, shown};

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON value.
    Json,
    /// A JSON value per line.
    Lines,
}

/// Reads a body of at most this many bytes.
///
/// # Errors
/// `body_too_large`, `request_timeout`, or `invalid_request` if it breaks off.
pub(super) async fn read(body: Body, bytes_max: usize, patience: Duration) -> Result<Bytes, Problem> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    Ok(collect(body, bytes_max, patience).await?.to_bytes())
}

/// Reads a body like [`read`], and leaves it in the pieces in which it came: putting a large one together takes a while.
///
/// # Errors
/// As [`read`].
pub(super) async fn collect(
    body: Body,
    bytes_max: usize,
    patience: Duration,
) -> Result<Collected<Bytes>, Problem> {
    let too_large = || {
        let detail = match bytes_max {
            0 => "this address takes no body".to_owned(),
            _ => format!("the body is larger than {bytes_max} bytes"),
        };
        Problem::new(Code::BodyTooLarge, detail)
            .header(header::CONNECTION, axum::http::HeaderValue::from_static("close"))
    };
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(patience, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(collected)) => Ok(collected),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(Code::InvalidRequest, "the body breaks off, or is not proper HTTP")),
        Err(_) => Err(Problem::new(
            Code::RequestTimeout,
            format!("the body did not arrive within {} s", patience.as_secs()),
        )),
    }
}

/// How a body that is not empty is written, by its content type.
///
/// # Errors
/// `unsupported_media_type` if it is neither.
pub(super) fn form(headers: &HeaderMap, lines_allowed: bool) -> Result<Form, Problem> {
    let given = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
    let name = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if name.eq_ignore_ascii_case("application/json") {
        return Ok(Form::Json);
    }
    if lines_allowed && LINES.iter().any(|lines| name.eq_ignore_ascii_case(lines)) {
        return Ok(Form::Lines);
    }
    let detail = match given {
        None => "the body has no content type".to_owned(),
        Some(given) => format!("the body has the content type \"{}\"", shown(given)),
    };
    let hint = match lines_allowed {
        true => {
            "send \"content-type: application/json\" with an array, or \"application/x-ndjson\" with lines"
        }
        false => "send \"content-type: application/json\"",
    };
    Err(Problem::new(Code::UnsupportedMediaType, detail).field("Content-Type").hint(hint))
}

/// Reads a small JSON body into a shape.
///
/// # Errors
/// Those of [`read`] and [`form`], and what is wrong with the JSON.
pub(super) async fn json<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Problem> {
    let text = read(body, SMALL_BYTES_MAX, PATIENCE).await?;
    if !text.is_empty() {
        form(headers, false)?;
    }
    serde_json::from_slice(&text).map_err(|error| {
        if !error.is_data() {
            return Problem::new(
                Code::InvalidJson,
                format!("not JSON at byte {}", offset(&text, error.line(), error.column())),
            );
        }
        let message = error.to_string();
        let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
        let code = match what {
            _ if what.starts_with("duplicate field") => Code::DuplicateKey,
            _ if what.starts_with("unknown field") => Code::UnknownField,
            _ if what.starts_with("missing field") => Code::MissingField,
            _ => Code::InvalidType,
        };
        Problem::new(code, shown(what))
    })
}

/// The offset of a line and column of a text, both from 1.
pub(super) fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let before: usize =
        text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    before + column.saturating_sub(1)
}

const LINES: [&str; 4] =
    ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"];

/// How long a small body may take to arrive.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

const SMALL_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn form_of(value: &'static str, lines_allowed: bool) -> Option<Form> {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(value))]);
        form(&headers, lines_allowed).ok()
    }

    #[test]
    fn json_may_name_its_charset_and_lines_are_for_batches_only() {
        assert_eq!(form_of("application/json; charset=utf-8", false), Some(Form::Json));
        assert_eq!(form_of("Application/X-NDJSON", true), Some(Form::Lines));
        assert_eq!(form_of("application/x-ndjson", false), None);
        assert_eq!(form_of("application/x-www-form-urlencoded", true), None);
    }
}
