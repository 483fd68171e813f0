//! The body of a drain, a reload or an acknowledgement: `{"reason": "…"}`, or none. The reason is kept with the name of the requester.

use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderMap;
use protocol::terminal::is_terminal_control;
use scheduler::origin::Origin;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::body;
use crate::http::request::content_type::form;

/// The body of a drain, a reload or an acknowledgement. It may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReasonBody {
    /// Why, for people: 1 to 300 characters in one line.
    reason: Option<String>,
}

/// Reads the origin of the present request: the name of its token, and the reason in its body. The audit log gets the reason.
///
/// # Errors
/// Those of [`body::json`], `too_long`, and `invalid_reason` for a reason that is empty or has characters that are not shown.
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

/// The origin of the present request: the name of its token, and this reason without blanks around it. The audit log gets the reason.
///
/// # Errors
/// `too_long`, and `invalid_reason` for a reason that is empty or has characters that are not shown.
pub(crate) fn origin(reason: Option<String>) -> Result<Origin, Problem> {
    let reason = checked(reason)?;
    if let Some(reason) = &reason {
        note::detail(format!("reason: {reason}"));
    }
    let by = Actor::current().token.clone().unwrap_or_default();
    Ok(Origin { by, reason })
}

/// This reason without blanks around it.
///
/// # Errors
/// `too_long`, and `invalid_reason` for a reason that is empty or has characters that are not shown.
pub(crate) fn checked(reason: Option<String>) -> Result<Option<Arc<str>>, Problem> {
    let reason = reason.as_deref().map(str::trim);
    reason.map(check).transpose()?;
    Ok(reason.map(Into::into))
}

fn check(reason: &str) -> Result<(), Problem> {
    let length = reason.chars().count();
    let problem = if reason.is_empty() {
        Problem::new(ProblemCode::InvalidReason, "the reason is empty").hint("leave it out, or say why")
    } else if length > REASON_CHARS_MAX {
        Problem::new(ProblemCode::TooLong, format!("the reason has {length} characters"))
            .hint(format!("a reason has at most {REASON_CHARS_MAX} characters"))
    } else if let Some(letter) = reason.chars().find(|letter| is_hidden(*letter)) {
        Problem::new(
            ProblemCode::InvalidReason,
            format!("the reason has the character U+{:04X}", u32::from(letter)),
        )
        .hint("a reason is one line, without control characters and marks that change the direction of text")
    } else {
        return Ok(());
    };
    Err(problem.field("reason"))
}

/// True for a character that a terminal or a page would obey instead of showing it, by which a reason could look like another one.
const fn is_hidden(letter: char) -> bool {
    is_terminal_control(letter) || matches!(letter, '\u{2028}' | '\u{2029}')
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
        for bad in ["", "two\nlines", "\u{1b}[31m", "\u{202e}paws ksid", "a\u{2066}b", "a\u{2028}b"] {
            assert_eq!(check(bad).unwrap_err().code(), ProblemCode::InvalidReason, "{bad}");
        }
        assert_eq!(check(&"x".repeat(REASON_CHARS_MAX + 1)).unwrap_err().code(), ProblemCode::TooLong);
    }
}
