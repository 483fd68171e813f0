//! `PUT /api/definitions`: replaces the server's jobs file by the body, and loads it. With `?dry_run` it only checks. With
//! `?expect=` the present definitions must be the expected ones, and `?max_removed=` limits how many of them may go. `?reason=` is kept
//! in the history of the definitions.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};

use super::plan::{self, BYTES_MAX};
use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::{DRAINING_HINT, Problem};
use crate::http::present::shapes;
use crate::http::request::body;
use crate::http::request::job_filter::revision;
use crate::http::request::query::Query;
use crate::http::request::reason;
use crate::http::state::AppState;
use crate::reload::{Deploy, DeployError, DeployMode, Deployed, HistoryError, LoadOrigin};
use crate::store::{CommitError, LoadCause};

/// `PUT /api/definitions`
pub(crate) async fn deploy(
    State(state): State<Arc<AppState>>,
    request: Request,
) -> Result<Json<shapes::Deployed>, Problem> {
    state.check_not_draining()?;
    let mut query = Query::of(request.uri())?;
    let expected = query.text("expect")?.map(|text| revision("expect", &text)).transpose()?;
    let mode = if query.switch("dry_run")? { DeployMode::DryRun } else { DeployMode::Replace };
    let removed_max = query.number("max_removed")?;
    let reason = reason::checked(query.text("reason")?).map_err(|problem| problem.field("?reason"))?;
    query.finish()?;
    note::object("definitions");
    Actor::current().check_whole_scope()?;
    let reloader = &state.services.reloader;
    reloader.check_deploys()?;
    let body = body::read(request.into_body(), BYTES_MAX, body::TIMEOUT).await?;
    let text = state.parse_blocking(move || one(body)).await?;
    // Read before the deploy, since nothing may fail once it is done.
    let scheduled = state.read(|archive| archive.scheduled_jobs()).await?;
    let snapshot = state.services.engine.snapshot();
    let origin = LoadOrigin::of_request(LoadCause::Deploy, reason);
    // It notes the change itself: the client may leave before the end.
    let Deployed { proposed, reloaded, previous_file } =
        reloader.deploy(Deploy { text, expected, removed_max, mode, origin }).await?;
    let mut plan = plan::compare(proposed, &snapshot);
    plan.cancels_removed = reloader.cancels_removed();
    plan::add_scheduled(&mut plan, &scheduled);
    let dry_run = mode == DeployMode::DryRun;
    if dry_run {
        note::detail(plan::in_words(&plan));
    }
    let policy_changed = reloaded.policy_changed;
    Ok(Json(shapes::Deployed { plan, dry_run, policy_changed, previous_file }))
}

/// The text of the jobs file, as the server would read it from its disk.
fn one(body: bytes::Bytes) -> Result<String, Problem> {
    if plan::has_files(&body) {
        let detail = "a deploy replaces one jobs file, and the body has several";
        return Err(Problem::new(ProblemCode::InvalidJobsFile, detail).hint("send the text of the file"));
    }
    let text = plan::one(body)?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

impl From<DeployError> for Problem {
    fn from(error: DeployError) -> Self {
        let detail = error.to_string();
        match error {
            DeployError::NotAllowed => Self::new(ProblemCode::DeployNotAllowed, detail)
                .hint("its operator can start it with --allow-deploy (allow_deploy: true in server.yaml)"),
            DeployError::Target(error) => Self::new(ProblemCode::FileNotWritable, detail).hint(error.hint),
            DeployError::ChangedFile { .. } => Self::new(ProblemCode::FileChanged, detail).hint(
                "load them with 'longshore reload' and plan again, or deploy without an expected revision to replace them",
            ),
            DeployError::TooManyRemoved { .. } => Self::new(ProblemCode::TooManyRemoved, detail).hint(
                "if this is the right file, and they are to go, allow as many with max_removed (--max-removed)",
            ),
            DeployError::History(HistoryError::Closed) => {
                Self::new(ProblemCode::Draining, detail).hint(DRAINING_HINT).retry_after(5)
            }
            DeployError::History(HistoryError::Store(cause @ CommitError::Refused(_))) => Self::internal(cause),
            DeployError::History(HistoryError::Store(_) | HistoryError::Busy) => {
                Self::new(ProblemCode::StoreUnavailable, detail).retry_after(5)
            }
            DeployError::ClientLeft => Self::new(ProblemCode::Busy, detail),
            DeployError::Reload(error) => error.into(),
        }
    }
}
