//! Path parameters: names and ids.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;

/// The single path parameter as text.
#[derive(Debug)]
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(undecodable()),
        }
    }
}

/// The single path parameter as a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Id(pub(crate) u64);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Name(text) = Name::from_request_parts(parts, state).await?;
        id(&text)
    }
}

/// Two path parameters: a number and a verb.
#[derive(Debug)]
pub(crate) struct IdAndVerb(pub(crate) u64, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for IdAndVerb {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((text, verb))) => Ok(Self(id(&text)?.0, verb)),
            Err(_) => Err(undecodable()),
        }
    }
}

/// A name and a word after it.
#[derive(Debug)]
pub(crate) struct NameAndVerb(pub(crate) String, pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for NameAndVerb {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((name, verb))) => Ok(Self(name, verb)),
            Err(_) => Err(undecodable()),
        }
    }
}

/// Parses a number in its one canonical form: no sign, no leading zeros.
///
/// # Errors
/// `invalid_id`.
pub(crate) fn id(text: &str) -> Result<Id, Problem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    match text.parse() {
        Ok(number) if digits => Ok(Id(number)),
        _ => Err(Problem::new(
            ProblemCode::InvalidId,
            format!("\"{}\" is not a whole number from 1", excerpt(text)),
        )),
    }
}

fn undecodable() -> Problem {
    Problem::new(ProblemCode::InvalidPath, "the path is not UTF-8 once its percent signs are decoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_in_one_way_only() {
        assert_eq!(id("12").unwrap().0, 12);
        for text in ["0", "01", "+1", "-1", "1.0", "", "x", "18446744073709551616", "١"] {
            assert!(id(text).is_err(), "{text}");
        }
    }
}
