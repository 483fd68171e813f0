//! Request bodies: read with limits of size and time.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::excerpt::excerpt;
use crate::http::middleware::body_budget::{BodyBudget, BodyReservation};
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::content_type::form;
use crate::http::request::field_errors;

/// Reads a body of at most this many bytes.
///
/// # Errors
/// `body_too_large`, `request_timeout`, or `invalid_request` if it is truncated.
pub(crate) async fn read(body: Body, bytes_max: usize, timeout: Duration) -> Result<Bytes, Problem> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    must_fit(&body, bytes_max)?;
    match tokio::time::timeout(timeout, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) => Err(broken(&*error, bytes_max)),
        Err(_) => Err(late("the body", timeout)),
    }
}

/// Refuses a body where none is expected, because its content would be ignored.
///
/// # Errors
/// `body_too_large` if there is one.
pub(crate) async fn none(body: Body) -> Result<(), Problem> {
    read(body, 0, TIMEOUT).await.map(drop)
}

/// Reads a large body like [`read`], but returns its pieces, because joining them takes a while. Memory is reserved for each piece, and the
/// sender must not pause for longer than [`TIMEOUT`].
///
/// # Errors
/// As [`read`], and `busy` if the memory budget is exhausted.
pub(crate) async fn pieces(
    body: Body,
    bytes_max: usize,
    total: Duration,
    reservation: &mut BodyReservation,
) -> Result<Vec<Bytes>, Problem> {
    must_fit(&body, bytes_max)?;
    let until = Instant::now() + total;
    let mut body = Limited::new(body, bytes_max);
    let (mut pieces, mut small) = (Vec::new(), BytesMut::new());
    loop {
        let timeout = TIMEOUT.min(until.saturating_duration_since(Instant::now()));
        let frame = match tokio::time::timeout(timeout, body.frame()).await {
            Ok(Some(frame)) => frame.map_err(|error| broken(&*error, bytes_max))?,
            Ok(None) => break,
            Err(_) if timeout < TIMEOUT => return Err(late("the whole body", total)),
            Err(_) => return Err(late("what comes next of the body", timeout)),
        };
        let Ok(data) = frame.into_data() else { continue };
        reservation.reserve(data.len()).await?;
        if data.len() < SMALL_PIECE_BYTES {
            // A `Bytes` keeps the whole read buffer alive: copy small pieces.
            small.extend_from_slice(&data);
        } else {
            pieces.extend([small.split().freeze(), data]);
        }
    }
    pieces.push(small.freeze());
    Ok(pieces)
}

/// Reads the body of a single submission. Its memory is reserved until the returned reservation is dropped.
///
/// # Errors
/// As [`pieces`], and `unsupported_media_type`.
pub(crate) async fn submission(
    budget: &BodyBudget,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Bytes, BodyReservation), Problem> {
    let mut held = budget.reservation_at_once();
    if body.is_end_stream() {
        return Ok((Bytes::new(), held));
    }
    let pieces = pieces(body, SUBMISSION_BYTES_MAX, TIMEOUT, &mut held).await?;
    let text = Bytes::from(pieces.concat());
    if !text.is_empty() {
        form(headers, false)?;
    }
    Ok((text, held))
}

fn must_fit(body: &Body, bytes_max: usize) -> Result<(), Problem> {
    if body.size_hint().lower() > bytes_max as u64 { Err(too_large(bytes_max)) } else { Ok(()) }
}

fn too_large(bytes_max: usize) -> Problem {
    let detail = match bytes_max {
        0 => "this address takes no body".to_owned(),
        _ => format!("the body is larger than {bytes_max} bytes"),
    };
    Problem::new(ProblemCode::BodyTooLarge, detail)
        .header(header::CONNECTION, axum::http::HeaderValue::from_static("close"))
}

fn broken(error: &(dyn std::error::Error + 'static), bytes_max: usize) -> Problem {
    match error.is::<LengthLimitError>() {
        true => too_large(bytes_max),
        false => Problem::new(ProblemCode::InvalidRequest, "the body breaks off, or is not proper HTTP"),
    }
}

fn late(what: &str, timeout: Duration) -> Problem {
    let detail = format!("{what} did not arrive within {} s", timeout.as_secs());
    Problem::new(ProblemCode::RequestTimeout, detail)
}

/// Reads a small JSON body into a type.
///
/// # Errors
/// Those of [`read`] and [`form`], and faults of the JSON.
pub(crate) async fn json<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Problem> {
    let text = read(body, SMALL_BYTES_MAX, TIMEOUT).await?;
    if !text.is_empty() {
        form(headers, false)?;
    }
    parse(&text)
}

/// Parses JSON into a type.
///
/// # Errors
/// Faults of the JSON.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(|error| match error.is_data() {
        true => field_by_field::<T>(text).unwrap_or_else(|| type_fault::<T>(text, &error)),
        false => {
            let at = offset(text, error.line(), error.column());
            Problem::new(ProblemCode::InvalidJson, format!("not JSON at byte {at}"))
        }
    })
}

/// The faults of each field by itself; a missing field is not one of them.
fn field_by_field<T: DeserializeOwned>(text: &[u8]) -> Option<Problem> {
    field_errors::check_each_field(text, |alone| {
        let type_fault = type_fault::<T>(alone, &serde_json::from_slice::<T>(alone).err()?);
        (type_fault.code() != ProblemCode::MissingField).then_some(type_fault)
    })
}

/// The fault of JSON that does not fit `T`, for people: serde's text names Rust types and no field.
fn type_fault<T: DeserializeOwned>(text: &[u8], error: &serde_json::Error) -> Problem {
    let message = error.to_string();
    let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    // serde puts a name into backticks or quotes.
    let named = |prefix: &str| {
        let rest = what.strip_prefix(prefix)?.trim_start();
        let name = rest.get(1..)?.split(rest.chars().next()?).next()?;
        Some((excerpt(name), rest))
    };
    if let Some((name, _)) = named("duplicate field") {
        let detail = format!("\"{name}\" is there twice");
        return Problem::new(ProblemCode::DuplicateKey, detail).field(name);
    }
    if let Some((name, rest)) = named("unknown field") {
        let fields: Vec<&str> = rest.split('`').skip(3).step_by(2).collect();
        let hint = format!("the fields are {}", fields.join(", "));
        return Problem::new(ProblemCode::UnknownField, format!("there is no field \"{name}\""))
            .field(name)
            .hint(hint);
    }
    if let Some((name, _)) = named("missing field") {
        return Problem::new(ProblemCode::MissingField, format!("\"{name}\" is missing")).field(name);
    }
    let value: Value = serde_json::from_slice(text).unwrap_or_default();
    let (field, offending_part) = offending_part::<T>(&value).unwrap_or((String::new(), &value));
    let expected =
        what.rsplit_once(", expected ").map_or("something else", |(_, expected)| in_words(expected));
    let problem =
        Problem::new(ProblemCode::InvalidType, format!("it is {expected}, and not {}", kind(offending_part)));
    if field.is_empty() { problem } else { problem.field(excerpt(&field)) }
}

/// The first part of a body that fails by itself, with its path.
fn offending_part<T: DeserializeOwned>(body: &Value) -> Option<(String, &Value)> {
    let is_misfit = |probe: Value| T::deserialize(probe).is_err();
    let (name, value) = body
        .as_object()?
        .iter()
        .find(|(name, value)| is_misfit(serde_json::json!({ name.as_str(): value })))?;
    let within = value.as_object().and_then(|entries| {
        entries
            .iter()
            .find(|(key, entry)| is_misfit(serde_json::json!({ name.as_str(): { key.as_str(): entry } })))
    });
    Some(match within {
        Some((key, entry)) => (format!("{name}.{key}"), entry),
        None => (name.clone(), value),
    })
}

/// The expected type in serde's message, without names of Rust types.
pub(crate) fn in_words(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "a string" => "a text",
        "an object of strings" => "an object of texts",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        words if words.starts_with("struct ") => "an object",
        words => words,
    }
}

/// A description of a value by which its author recognizes it.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(is) => is.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("the text \"{}\"", excerpt(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The byte offset of a line and column, both from 1.
pub(crate) fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let before: usize =
        text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    before + column.saturating_sub(1)
}

/// The time limit of a small body, and of each piece of a large one.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

const SMALL_BYTES_MAX: usize = 64 << 10;

/// The largest body of a single submission.
const SUBMISSION_BYTES_MAX: usize = 1 << 20;

/// Smaller pieces of a large body are joined as they arrive.
const SMALL_PIECE_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use futures_util::{StreamExt, stream};

    use super::*;
    use crate::http::middleware::body_budget::BodyBudget;

    // The clock runs ahead by itself while nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn a_large_body_that_stops_coming_is_given_up_before_its_time() {
        let bodies = BodyBudget::within(1 << 20);
        let begun = || stream::iter([Ok::<_, std::io::Error>("[{")]).chain(stream::pending());
        let at = Instant::now();
        let read = pieces(Body::from_stream(begun()), 100, TIMEOUT * 10, &mut bodies.reservation()).await;
        assert_eq!(read.unwrap_err().code(), ProblemCode::RequestTimeout);
        assert_eq!(at.elapsed().as_secs(), TIMEOUT.as_secs());
        let read = pieces(Body::from_stream(begun()), 100, TIMEOUT / 2, &mut bodies.reservation()).await;
        let told = format!("{:?}", read.unwrap_err());
        assert!(told.contains("the whole body did not arrive within 15 s"), "{told}");
    }

    #[tokio::test]
    async fn a_large_body_keeps_its_order_for_any_sizes_of_pieces() {
        let bodies = BodyBudget::within(1 << 20);
        let sent: Vec<String> =
            [1, 20_000, 5, 6, 9_000].iter().map(|length| "x".repeat(*length) + "|").collect();
        let body = || Body::from_stream(stream::iter(sent.clone().into_iter().map(Ok::<_, std::io::Error>)));
        let read = pieces(body(), 40_000, TIMEOUT, &mut bodies.reservation()).await.unwrap();
        assert_eq!(read.concat(), sent.concat().as_bytes());
        let cut = pieces(body(), 20_000, TIMEOUT, &mut bodies.reservation()).await;
        assert_eq!(cut.unwrap_err().code(), ProblemCode::BodyTooLarge);
    }

    #[test]
    fn a_body_of_another_shape_is_refused_in_words_and_by_its_field() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only read")]
        struct PatchBody {
            slots: Option<u32>,
            labels: Option<std::collections::BTreeMap<String, Option<String>>>,
        }
        let told = |text: &str| {
            let error = serde_json::from_str::<PatchBody>(text).unwrap_err();
            let written = type_fault::<PatchBody>(text.as_bytes(), &error);
            (written.code(), format!("{written:?}"))
        };
        for (text, code, words) in [
            (r#"{"slot":1}"#, ProblemCode::UnknownField, "there is no field"),
            (r#"{"slot":1}"#, ProblemCode::UnknownField, "the fields are slots, labels"),
            (r#"{"slots":1,"slots":2}"#, ProblemCode::DuplicateKey, "is there twice"),
            (
                r#"{"slots":"8"}"#,
                ProblemCode::InvalidType,
                "a whole number from 0 to 4294967295, and not the text",
            ),
            (r#"{"slots":-1}"#, ProblemCode::InvalidType, "and not -1"),
            (r#"{"slots":5000000000}"#, ProblemCode::InvalidType, "and not 5000000000"),
            (r#"{"labels":{"a":"x","b":1}}"#, ProblemCode::InvalidType, "field: Some(\"labels.b\")"),
            (r#"{"labels":["a"]}"#, ProblemCode::InvalidType, "and not a list"),
            ("[1]", ProblemCode::InvalidType, "field: None"),
        ] {
            let (given, shown) = told(text);
            assert_eq!(given, code, "{text}");
            assert!(shown.contains(words), "{text}: {words} in {shown}");
            assert!(!shown.contains("u32") && !shown.contains('`'), "{shown}");
        }
    }

    #[tokio::test]
    async fn all_faults_of_a_small_body_are_listed_in_its_order() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only read")]
        struct PatchBody {
            slots: u32,
            labels: Option<std::collections::BTreeMap<String, String>>,
            name: String,
        }
        let headers =
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let told =
            async |text: &'static str| json::<PatchBody>(&headers, Body::from(text)).await.unwrap_err();
        let problem = format!("{:?}", told(r#"{"slots":"x","colour":1,"labels":3}"#).await);
        let place = |words: &str| problem.find(words).unwrap_or_else(|| panic!("{words}: {problem}"));
        assert!(place("not the text") < place("no field"), "{problem}");
        assert!(place("no field") < place("it is an object, and not 3"), "{problem}");
        assert!(!problem.contains("missing"), "{problem}");
        assert_eq!(told(r#"{"slots":1}"#).await.code(), ProblemCode::MissingField);
    }
}
