//! `/definitions/{name}/run` and `/jobs/{id}/again`: the forms that make a job. A refused form is shown again with what was typed.

mod body;
mod field;
mod form;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::response::Response;
use protocol::JobId;

use super::actions::{Fields, request_for, split, to_job, with_key};
use super::page::{Frame, render};
use crate::http::api::{jobs, submit};
use crate::http::middleware::problem::Problem;
use crate::http::request::definition;
use crate::http::request::path::{Id, Name};
use crate::http::request::query::encode;
use crate::http::state::AppState;
pub(crate) use field::Control;
pub(crate) use form::RunForm;
use form::can_be_mended;

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    /// The definition.
    name: String,
    /// The job that is run again; `None` for a first run.
    again: Option<u64>,
    form: RunForm,
}

/// `GET /definitions/{name}/run`: the form alone.
pub(crate) async fn show(State(state): State<Arc<AppState>>, Name(name): Name) -> Result<Response, Problem> {
    render(&page_of_definition(&state, name)?)
}

/// `POST /definitions/{name}/run`
pub(crate) async fn run(
    State(state): State<Arc<AppState>>,
    Name(name): Name,
    request: Request,
) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    let page = page_of_definition(&state, name.clone())?;
    let made = match page.form.body(&fields) {
        Ok(body) => {
            let asked = with_key(request_for(&shell, "", Some(&body)), &fields)?;
            submit::one(State(Arc::clone(&state)), Name(name), asked).await
        }
        Err(problem) => Err(problem),
    };
    lead_on(&state, made, page, &fields).await
}

/// `GET /jobs/{id}/again`: the form, filled with what the job had.
pub(crate) async fn again(State(state): State<Arc<AppState>>, Id(id): Id) -> Result<Response, Problem> {
    render(&page_of_job(&state, id).await?)
}

/// `POST /jobs/{id}/again`: a retry with changes.
pub(crate) async fn run_again(
    State(state): State<Arc<AppState>>,
    Id(id): Id,
    request: Request,
) -> Result<Response, Problem> {
    let (shell, fields) = split(request).await?;
    let page = page_of_job(&state, id).await?;
    let made = match page.form.body(&fields) {
        Ok(body) => {
            let cleared = page.form.cleared(&fields);
            let query = encode([("clear", cleared.as_str())]);
            let asked = with_key(request_for(&shell, &query, Some(&body)), &fields)?;
            submit::retry(State(Arc::clone(&state)), Id(id), asked).await
        }
        Err(problem) => Err(problem),
    };
    lead_on(&state, made, page, &fields).await
}

fn page_of_definition(state: &AppState, name: String) -> Result<RunPage, Problem> {
    let definitions = state.services.catalogue.current();
    let form = RunForm::of_definition(definition::find(&definitions, &name)?);
    Ok(RunPage { frame: Frame::new(state, "definitions", format!("Run {name}")), again: None, name, form })
}

async fn page_of_job(state: &Arc<AppState>, id: u64) -> Result<RunPage, Problem> {
    let record = jobs::find(state, JobId(id)).await?;
    let definitions = state.services.catalogue.current();
    let name = record.row.definition.clone();
    let entry = definitions.find(&name).map(|entry| &**entry);
    Ok(RunPage {
        frame: Frame::new(state, "jobs", format!("Run job {id} again")),
        again: Some(id),
        form: RunForm::of_job(&record, entry),
        name,
    })
}

/// Leads to the new job, or shows the form again with what is wrong.
async fn lead_on(
    state: &AppState,
    made: Result<Response, Problem>,
    mut page: RunPage,
    fields: &Fields,
) -> Result<Response, Problem> {
    match made {
        Ok(made) => to_job(state, made).await,
        Err(problem) if can_be_mended(&problem) => {
            page.form.refuse(fields, &problem);
            let mut response = render(&page)?;
            *response.status_mut() = problem.code().status();
            Ok(response)
        }
        Err(problem) => Err(problem),
    }
}
