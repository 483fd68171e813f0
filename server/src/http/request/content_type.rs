//! The format of a request body, by its headers.

use axum::http::{HeaderMap, header};

use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One JSON value.
    Json,
    /// One JSON value per line.
    Lines,
}

/// The format of a non-empty body, by its content type.
///
/// # Errors
/// `unsupported_media_type` if it is another, or if the body is compressed.
pub(crate) fn form(headers: &HeaderMap, lines_allowed: bool) -> Result<Form, Problem> {
    if let Some(coding) = headers.get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        let coding = excerpt(coding.to_str().unwrap_or("?"));
        return Err(Problem::new(
            ProblemCode::UnsupportedMediaType,
            format!("the body has the encoding \"{coding}\""),
        )
        .field("Content-Encoding")
        .hint("send it without compression"));
    }
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
        Some(given) => format!("the body has the content type \"{}\"", excerpt(given)),
    };
    let hint = match lines_allowed {
        true => {
            "send \"content-type: application/json\" with an array, or \"application/x-ndjson\" with lines"
        }
        false => "send \"content-type: application/json\"",
    };
    Err(Problem::new(ProblemCode::UnsupportedMediaType, detail).field("Content-Type").hint(hint))
}

const LINES: [&str; 4] =
    ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"];

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_compressed_body_is_refused_as_one() {
        let headers = |coding| {
            let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            HeaderMap::from_iter([json, (header::CONTENT_ENCODING, HeaderValue::from_static(coding))])
        };
        assert_eq!(form(&headers("gzip"), false).unwrap_err().code(), ProblemCode::UnsupportedMediaType);
        assert_eq!(form(&headers("identity"), false).unwrap(), Form::Json);
    }

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
