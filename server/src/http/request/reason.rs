//! The body of a cordon or a drain: `{"reason": "…"}`, or none. The reason is kept with the name of the requester.

use axum::body::Body;
use axum::http::HeaderMap;
use scheduler::origin::Origin;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::excerpt::excerpt;
use crate::http::middleware::code::Code;
use crate::http::middleware::problem::Problem;
use crate::http::request::body;
use crate::http::request::content_type::form;

/// The body of a cordon or a drain. It may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReasonBody {
    /// Why, for people: 1 to 300 characters in one line.
    reason: Option<String>,
}

/// Reads the origin of the present request: the name of its token, and the reason in its body. The audit log gets the reason.
///
/// # Errors
/// Those of [`body::json`], and `too_long` for a reason that is empty, too long or has several lines.
pub(crate) async fn read(headers: &HeaderMap, request_body: Body) -> Result<Origin, Problem> {
    let ReasonBody { reason } = optional(headers, request_body).await?;
    origin(reason)
}

/// Reads a short body that may be left out.
///
/// # Errors
/// Those of [`body::json`].
pub(crate) async fn optional<B: Default + DeserializeOwned>(
    headers: &HeaderMap,
    request_body: Body,
) -> Result<B, Problem> {
    let text = body::read(request_body, BODY_BYTES_MAX, body::TIMEOUT).await?;
    if text.is_empty() {
        return Ok(B::default());
    }
    form(headers, false)?;
    body::parse(&text)
}

/// The origin of the present request: the name of its token, and this reason. The audit log gets the reason.
///
/// # Errors
/// `too_long` for a reason that is empty, too long or has several lines.
pub(crate) fn origin(reason: Option<String>) -> Result<Origin, Problem> {
    if let Some(reason) = &reason {
        check(reason)?;
        note::detail(format!("reason: {reason}"));
    }
    let by = Actor::current().token.clone().unwrap_or_default();
    Ok(Origin { by, reason: reason.map(Into::into) })
}

fn check(reason: &str) -> Result<(), Problem> {
    if (1..=REASON_CHARS_MAX).contains(&reason.chars().count()) && !reason.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Problem::new(Code::TooLong, format!("\"{}\" cannot be a reason", excerpt(reason)))
        .field("reason")
        .hint(format!("a reason is 1 to {REASON_CHARS_MAX} characters in one line")))
}

/// Characters of a reason, as the forms of the dashboard have it. The snapshot and each event of the worker have a copy of it.
const REASON_CHARS_MAX: usize = 300;
/// Bytes of the body: JSON escapes a character by twelve at most.
const BODY_BYTES_MAX: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_some_length() {
        for fits in ["disk swap", "é", &"é".repeat(REASON_CHARS_MAX)] {
            assert!(check(fits).is_ok(), "{fits}");
        }
        for bad in ["", "two\nlines", "\u{1b}[31m", &"x".repeat(REASON_CHARS_MAX + 1)] {
            assert_eq!(check(bad).unwrap_err().code(), Code::TooLong, "{bad}");
        }
    }
}
