//! Repeats of jobs on several workers: which members a retry makes.

use std::sync::Arc;

use protocol::WorkerId;
use scheduler::job::State as JobState;
use scheduler::run_on::{MemberPlan, ParentRow, WORKERS_MAX};

use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::query::invalid_query;
use crate::http::request::submit_params::MembersChoice;
use crate::http::state::AppState;
use crate::store::{JobRow, MemberOnWorker, RunOnRole};

/// The members of a job that repeats this one; nothing if its definition decides.
///
/// # Errors
/// `invalid_query` or `not_finished`: there is nothing to repeat.
pub(crate) async fn repeated(
    state: &Arc<AppState>,
    row: &JobRow,
    choice: MembersChoice,
) -> Result<Option<MemberPlan>, Problem> {
    match (&row.run_on_role, choice) {
        (RunOnRole::Alone, MembersChoice::Failed) => {
            Err(invalid_query("members", &format!("job {} runs on one worker and has no members", row.job)))
        }
        (RunOnRole::Alone, MembersChoice::All) => Ok(None),
        // A repetition of a member is a parent with this member alone.
        (RunOnRole::Member(member), _) => {
            let members = members_of(state, member.parent).await?;
            let (own, others): (Vec<_>, Vec<_>) =
                members.into_iter().partition(|member| member.job == row.job);
            let worker = own.iter().find_map(|member| member.worker);
            Ok(Some(match (member.pinned.is_some(), worker) {
                (true, Some(worker)) => MemberPlan::Workers([worker].into()),
                _ => MemberPlan::Count { members: 1, except: workers(&succeeded(&others)) },
            }))
        }
        (RunOnRole::Parent(parent), MembersChoice::All) => Ok(as_before(parent)),
        (RunOnRole::Parent(parent), MembersChoice::Failed) => failed(state, parent).await.map(Some),
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
    let members = members_of(state, parent.job).await?;
    let (good, bad): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|member| member.state == JobState::Succeeded);
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
        return Err(Problem::new(ProblemCode::NotFinished, detail).hint(hint));
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

async fn members_of(state: &Arc<AppState>, parent: protocol::JobId) -> Result<Vec<MemberOnWorker>, Problem> {
    let members = state.read(move |archive| archive.members_on_workers(parent, WORKERS_MAX + 1)).await?;
    if members.len() > WORKERS_MAX {
        let detail = format!("job {parent} has more than {WORKERS_MAX} members");
        return Err(Problem::new(ProblemCode::TooManyJobs, detail)
            .hint("repeat all of it, or its members by themselves"));
    }
    Ok(members)
}

fn succeeded(members: &[MemberOnWorker]) -> Vec<MemberOnWorker> {
    members.iter().filter(|member| member.state == JobState::Succeeded).copied().collect()
}

fn workers(members: &[MemberOnWorker]) -> Arc<[WorkerId]> {
    members.iter().filter_map(|member| member.worker).collect()
}
