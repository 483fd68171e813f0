//! What stands in a path: names and ids.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::code::Code;
use super::problem::{Problem, shown};

/// The name, or whatever else, in a path's only variable part.
#[derive(Debug)]
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(undecodable()),
        }
    }
}

/// A number in a path's only variable part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id(pub(super) u64);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Name(text) = Name::from_request_parts(parts, state).await?;
        id(&text)
    }
}

/// A number and a word behind it.
#[derive(Debug)]
pub(super) struct IdAndVerb(pub(super) u64, pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for IdAndVerb {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((text, verb))) => Ok(Self(id(&text)?.0, verb)),
            Err(_) => Err(undecodable()),
        }
    }
}

/// The one way to write a number: no sign, no zeros in front.
fn id(text: &str) -> Result<Id, Problem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    match text.parse() {
        Ok(number) if digits => Ok(Id(number)),
        _ => Err(Problem::new(Code::InvalidId, format!("\"{}\" is not a whole number from 1", shown(text)))),
    }
}

fn undecodable() -> Problem {
    Problem::new(Code::InvalidPath, "the path is not UTF-8 behind its percent signs")
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
