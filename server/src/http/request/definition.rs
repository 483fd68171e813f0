//! The definition that a request names, and that of a job.

use std::sync::Arc;

use protocol::Revision;
use scheduler::definition::Definition;

use crate::catalogue::{Definitions, Entry};
use crate::config::jobs_file;
use crate::excerpt::excerpt;
use crate::http::middleware::code::Code;
use crate::http::middleware::problem::Problem;
use crate::http::request::query::nearest;
use crate::http::state::AppState;

/// Finds a definition by name.
///
/// # Errors
/// `unknown_job`, with similar names.
pub(crate) fn find<'d>(definitions: &'d Definitions, name: &str) -> Result<&'d Arc<Entry>, Problem> {
    definitions.find(name).ok_or_else(|| {
        let near = nearest(name, definitions.iter().map(|entry| entry.definition.name.as_str()));
        let problem = Problem::new(Code::UnknownJob, format!("there is no definition \"{}\"", excerpt(name)));
        match near.is_empty() {
            true => problem.hint("GET /api/definitions lists the definitions"),
            false => problem.near(near),
        }
    })
}

/// The definition with this revision, which may be an earlier one; absent if it is gone.
///
/// # Errors
/// The store cannot be read.
pub(crate) async fn of_revision(
    state: &AppState,
    revision: Revision,
) -> Result<Option<Arc<Definition>>, Problem> {
    if let Some(entry) = state.services.catalogue.current().find_revision(revision) {
        return Ok(Some(entry.definition.clone()));
    }
    let stored = state.read(move |archive| archive.definition(revision)).await?;
    Ok(stored.and_then(|stored| jobs_file::parse_stored(&stored).ok()).map(Arc::new))
}
