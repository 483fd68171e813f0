//! Repeats of jobs on several workers: which members a retry makes.

use std::sync::Arc;

use protocol::WorkerId;
use scheduler::job::State as JobState;
use scheduler::run_on::{MemberPlan, ParentRow, WORKERS_MAX};

use crate::http::middleware::code::Code;
use crate::http::middleware::problem::Problem;
use crate::http::request::query::invalid_query;
use crate::http::request::submit_params::MembersChoice;
use crate::http::state::AppState;
use crate::store::{JobRow, MemberPlace, SetPart};

/// The members of a job that repeats this one; nothing if its definition decides.
///
/// # Errors
/// `invalid_query` or `not_finished`: there is nothing to repeat.
pub(crate) async fn repeated(
    state: &Arc<AppState>,
    row: &JobRow,
    choice: MembersChoice,
) -> Result<Option<MemberPlan>, Problem> {
    match (&row.set, choice) {
        (SetPart::None, MembersChoice::Failed) => {
            Err(invalid_query("members", &format!("job {} runs on one worker and has no members", row.job)))
        }
        (SetPart::None, MembersChoice::All) => Ok(None),
        // A repetition of a member is a parent with this member alone.
        (SetPart::Member(member), _) => {
            let places = places(state, member.parent).await?;
            let (own, others): (Vec<_>, Vec<_>) = places.into_iter().partition(|place| place.job == row.job);
            let worker = own.iter().find_map(|place| place.worker);
            Ok(Some(match (member.pinned.is_some(), worker) {
                (true, Some(worker)) => MemberPlan::Workers([worker].into()),
                _ => MemberPlan::Count { members: 1, except: workers(&succeeded(&others)) },
            }))
        }
        (SetPart::Parent(parent), MembersChoice::All) => Ok(as_before(parent)),
        (SetPart::Parent(parent), MembersChoice::Failed) => failed(state, parent).await.map(Some),
    }
}

/// A repetition of the whole chooses its workers anew, unless the workers were named.
fn as_before(parent: &ParentRow) -> Option<MemberPlan> {
    match &parent.plan {
        MemberPlan::Workers(_) => Some(parent.plan.clone()),
        MemberPlan::All | MemberPlan::Count { .. } => None,
    }
}

async fn failed(state: &Arc<AppState>, parent: &ParentRow) -> Result<MemberPlan, Problem> {
    let places = places(state, parent.job).await?;
    let (good, bad): (Vec<_>, Vec<_>) =
        places.into_iter().partition(|place| place.state == JobState::Succeeded);
    let is_done = match &parent.plan {
        MemberPlan::All | MemberPlan::Workers(_) => bad.is_empty(),
        // Members that were never made count as well, and those whose rows are not kept any more.
        MemberPlan::Count { members, .. } => *members <= parent.counts.succeeded,
    };
    if is_done {
        let detail = format!("no member of job {} that is kept has ended without success", parent.job);
        let hint = format!(
            "GET /api/jobs?member_of={} lists its members; without members=failed all are repeated",
            parent.job
        );
        return Err(Problem::new(Code::NotFinished, detail).hint(hint));
    }
    Ok(match &parent.plan {
        MemberPlan::All | MemberPlan::Workers(_) => MemberPlan::Workers(workers(&bad)),
        MemberPlan::Count { members, except } => {
            let members = members.saturating_sub(parent.counts.succeeded);
            let except = workers(&good).iter().chain(except.iter()).copied().collect();
            MemberPlan::Count { members, except }
        }
    })
}

async fn places(state: &Arc<AppState>, parent: protocol::JobId) -> Result<Vec<MemberPlace>, Problem> {
    let places = state.read(move |archive| archive.member_places(parent, WORKERS_MAX + 1)).await?;
    if places.len() > WORKERS_MAX {
        let detail = format!("job {parent} has more than {WORKERS_MAX} members");
        return Err(
            Problem::new(Code::TooManyJobs, detail).hint("repeat all of it, or its members by themselves")
        );
    }
    Ok(places)
}

fn succeeded(places: &[MemberPlace]) -> Vec<MemberPlace> {
    places.iter().filter(|place| place.state == JobState::Succeeded).copied().collect()
}

fn workers(places: &[MemberPlace]) -> Arc<[WorkerId]> {
    places.iter().filter_map(|place| place.worker).collect()
}
