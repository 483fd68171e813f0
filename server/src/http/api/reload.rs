//! `POST /api/definitions/reload`, also only if the definitions are the expected ones (`?expect=`), and those of the file
//! (`?expect_new=`). A body `{"reason": "…"}` is kept in the history of the definitions.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use scheduler::origin::Origin;

use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::config::jobs_file::{Fault, Faults};
use crate::engine::Busy;
use crate::http::api::definitions;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::job_filter::revision;
use crate::http::request::path::Name;
use crate::http::request::query::Query;
use crate::http::request::reason;
use crate::http::state::AppState;
use crate::reload::{Expected, LoadOrigin, ReloadError, Reloaded, position};
use crate::store::LoadCause;

/// `POST /api/definitions/reload`
pub(crate) async fn reload(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Json<shapes::Reloaded>, Problem> {
    state.check_not_draining()?;
    let mut query = Query::of(request.uri())?;
    let mut expected = |name| query.text(name)?.map(|text| revision(name, &text)).transpose();
    let expected = Expected { present: expected("expect")?, new: expected("expect_new")? };
    query.finish()?;
    let (parts, body) = request.into_parts();
    let Origin { by: _, reason } = reason::read(&parts.headers, body).await?;
    note::object("definitions");
    Actor::current().check_whole_scope()?;
    let origin = LoadOrigin::of_request(LoadCause::Reload, reason);
    let reloaded = state.services.reloader.reload(expected, &origin).await?;
    if let Some(changes) = reloaded.changes() {
        note::detail(origin.after_reason(changes));
    }
    let Reloaded { definitions, revision, added, changed, removed, policy_changed, warnings } = reloaded;
    let revision = revision.to_string();
    Ok(Json(shapes::Reloaded { definitions, revision, added, changed, removed, policy_changed, warnings }))
}

/// `GET /api/definitions/reload`: a definition may be named `reload`.
pub(crate) async fn definition_named_reload(
    state: State<Arc<AppState>>,
) -> Result<Json<shapes::Definition>, Problem> {
    definitions::one(state, Name("reload".to_owned())).await
}

impl From<ReloadError> for Problem {
    fn from(error: ReloadError) -> Self {
        match error {
            ReloadError::Faults(faults) => file_problem(&faults),
            ReloadError::Unexpected { current } => {
                let detail = format!("the definitions have the revision {current}; nothing was changed");
                Self::new(ProblemCode::RevisionMismatch, detail)
                    .field("?expect")
                    .hint("look at what has changed, and expect the present revision")
            }
            ReloadError::UnexpectedNew { found } => {
                let detail = format!("the file has definitions of the revision {found}; nothing was changed");
                Self::new(ProblemCode::RevisionMismatch, detail)
                    .field("?expect_new")
                    .hint("the file, or one that it names, is not the one that was planned: plan it again")
            }
            ReloadError::Policy(error) => {
                Self::new(ProblemCode::InvalidPolicy, format!("{error}; the definitions stay as they were"))
                    .hint("repair the file, and ask again")
            }
            ReloadError::Busy => Busy.into(),
            ReloadError::Panicked(error) => Self::internal(error),
        }
    }
}

fn file_problem(faults: &Faults) -> Problem {
    let fault = |fault: &Fault| shapes::Fault {
        code: fault.code.name().into(),
        field: position(fault),
        detail: fault.text.clone(),
        hint: None,
    };
    let detail = match faults.count() {
        1 => "the file has a fault; the definitions stay as they were".to_owned(),
        count => format!("the file has {count} faults; the definitions stay as they were"),
    };
    Problem::new(ProblemCode::InvalidJobsFile, detail)
        .errors(faults.list.iter().map(fault).collect())
        .hint("repair the file, and ask again")
}
