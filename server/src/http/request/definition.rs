//! The definition that a request names.

use std::sync::Arc;

use crate::catalogue::{Definitions, Entry};
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::query::nearest;

/// Finds a definition by name.
///
/// # Errors
/// `unknown_job`, with similar names.
pub(crate) fn find<'d>(definitions: &'d Definitions, name: &str) -> Result<&'d Arc<Entry>, Problem> {
    definitions.find(name).ok_or_else(|| {
        let near = nearest(name, definitions.iter().map(|entry| entry.definition.name.as_str()));
        let problem =
            Problem::new(ProblemCode::UnknownJob, format!("there is no definition \"{}\"", excerpt(name)));
        match near.is_empty() {
            true => problem.hint("GET /api/definitions lists the definitions"),
            false => problem.near(near),
        }
    })
}
