//! The new jobs for the members of a batch that have not succeeded.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::{JobId, Revision};
use scheduler::definition::Definition;
use scheduler::new_jobs::NewJob;
use scheduler::pending_batch::stored_bytes;
use scheduler::run_on::MemberPlan;

use super::members::{self, Cancelled, Page};
use super::order::{After, dependencies, that_can_start};
use crate::auth::actor::Actor;
use crate::catalogue::Definitions;
use crate::http::api::admission::check_policy;
use crate::http::api::members::repeated;
use crate::http::api::repeat::{definition_of, repetition};
use crate::http::middleware::body_budget::BodyReservation;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes;
use crate::http::request::job_request::JobRequest;
use crate::http::request::stored_size::StoredSize;
use crate::http::request::submit_params::{MembersChoice, RevisionChoice};
use crate::http::state::AppState;
use crate::params::Checker;
use crate::store::{BatchRow, MemberData, RepeatableJob};

/// The purpose of the repetitions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// They are only counted.
    Count,
    /// They are submitted, with these revisions.
    Make(RevisionChoice),
}

/// New jobs for members, in the order of these.
#[derive(Debug, Default)]
pub(super) struct Repetitions {
    pub(super) jobs: Vec<NewJob>,
    /// The members that are to be repeated.
    pub(super) matched: u64,
    /// Those of them that cannot be.
    pub(super) refused: u64,
    /// The first of them.
    pub(super) refusals: Vec<shapes::Refusal>,
    /// The members that are left out because somebody cancelled them.
    pub(super) cancelled: u64,
    /// The memory of the jobs.
    pub(super) held: Option<BodyReservation>,
}

/// A job that stands for a member, with what it comes after and its repetition.
struct Candidate {
    job: JobId,
    after: Vec<After>,
    new: Result<Box<NewJob>, shapes::Refusal>,
}

/// New jobs for the members of a batch that have not succeeded.
///
/// # Errors
/// Those of a read; `too_many_jobs` and `busy` if there is too much data. A member that cannot be repeated is a refusal instead.
pub(super) async fn repetitions(
    state: &Arc<AppState>,
    of: &BatchRow,
    choice: Cancelled,
    purpose: Purpose,
) -> Result<Repetitions, Problem> {
    let batch = of.first;
    let data = match purpose {
        Purpose::Count => MemberData::WithoutOverrides,
        Purpose::Make(_) => MemberData::Whole,
    };
    let (mut candidates, mut known, mut before) = (Vec::new(), KnownRevisions::new(), None);
    let mut left_out = 0;
    let (mut size, mut held) = (StoredSize::default(), state.body_budget.reservation());
    loop {
        state.check_not_draining()?;
        let read = state.read(move |archive| members::page(archive, batch, before, data, choice));
        let Page { jobs, last, cancelled } = read.await?;
        left_out += cancelled;
        let found = match purpose {
            Purpose::Count => jobs.into_iter().map(counted).collect(),
            Purpose::Make(revision) => repeat_page(state, jobs, of, revision, &mut known).await?,
        };
        let mut bytes = 0;
        for details in found.iter().filter_map(|it| it.new.as_ref().ok()).map(|new| new.details.as_deref()) {
            size.add(details, 1)?;
            bytes += details.map_or(0, stored_bytes);
        }
        held.reserve(bytes).await?;
        candidates.extend(found);
        before = last;
        if before.is_none() {
            candidates.reverse();
            return Ok(Repetitions { cancelled: left_out, held: Some(held), ..in_order(candidates) });
        }
    }
}

/// A job that is only counted.
fn counted((job, after): (RepeatableJob, Vec<After>)) -> Candidate {
    Candidate { job: job.row.job, after, new: Ok(Box::default()) }
}

/// Revisions of earlier jobs that were read before.
type KnownRevisions = HashMap<Revision, Arc<Definition>>;

/// Repeats the jobs of a page.
///
/// # Errors
/// The store or the engine is busy.
async fn repeat_page(
    state: &Arc<AppState>,
    jobs: Vec<(RepeatableJob, Vec<After>)>,
    of: &BatchRow,
    revision: RevisionChoice,
    known: &mut KnownRevisions,
) -> Result<Vec<Candidate>, Problem> {
    let (definitions, actor) = (state.services.catalogue.current(), Actor::current());
    let mut found = Vec::with_capacity(jobs.len());
    for (record, after) in jobs {
        let what = match look_up(state, &definitions, &actor, &record, revision, known).await {
            Err(problem) if matches!(problem.code(), ProblemCode::Busy | ProblemCode::StoreUnavailable) => {
                return Err(problem);
            }
            what => what,
        };
        found.push((record, after, what));
    }
    let of = of.clone();
    let repeat = move || {
        let revisions: HashMap<Revision, Arc<Definition>> = found
            .iter()
            .filter_map(|(.., what)| Some(what.as_ref().ok()?.0.clone()))
            .map(|it| (it.revision, it))
            .collect();
        // To compile the patterns of a definition takes longer than to check a job.
        let checkers: HashMap<Revision, Checker<'_>> =
            revisions.iter().map(|(revision, it)| (*revision, Checker::new(&it.submission.params))).collect();
        let candidates = found.into_iter().map(|(record, after, what)| {
            let job = record.row.job;
            let new = what.and_then(|(definition, members)| {
                let checker = &checkers[&definition.revision];
                let new = repetition(record, &definition, checker, Some(&of), JobRequest::default())?;
                check_policy(&definitions, &definition, new.timeout, actor.role)?;
                Ok(Box::new(NewJob { revision: definition.revision, members, ..new }))
            });
            Candidate { job, after, new: new.map_err(|problem| refusal(job, &problem)) }
        });
        Ok(candidates.collect())
    };
    state.parse_blocking(repeat).await
}

/// The definition of the job that repeats this one, and its members if it has some of its own.
async fn look_up(
    state: &Arc<AppState>,
    definitions: &Definitions,
    actor: &Actor,
    record: &RepeatableJob,
    revision: RevisionChoice,
    known: &mut KnownRevisions,
) -> Result<(Arc<Definition>, Option<MemberPlan>), Problem> {
    actor.check_scope(&record.row.definition)?;
    let members = repeated(state, &record.row, MembersChoice::All).await?;
    if let (RevisionChoice::Original, Some(definition)) = (revision, known.get(&record.row.revision)) {
        return Ok((Arc::clone(definition), members));
    }
    let definition = definition_of(state, definitions, &record.row, revision).await?;
    known.insert(definition.revision, Arc::clone(&definition));
    Ok((definition, members))
}

fn refusal(job: JobId, problem: &Problem) -> shapes::Refusal {
    shapes::Refusal { job: job.0, code: problem.code().name().into(), detail: problem.detail().to_owned() }
}

/// Leaves out the jobs that cannot be repeated, and lets the others come after one another.
fn in_order(candidates: Vec<Candidate>) -> Repetitions {
    let mut chosen = Vec::with_capacity(candidates.len());
    let mut repeated = HashMap::with_capacity(candidates.len());
    for Candidate { job, after, new } in candidates {
        chosen.push((job, after));
        repeated.insert(job, new);
    }
    let startable = that_can_start(&chosen, []);
    let is_refused = |job: &JobId| repeated.get(job).is_some_and(Result::is_err);
    let refused: Vec<JobId> = chosen.iter().map(|(job, _)| *job).filter(is_refused).collect();
    let made = if refused.is_empty() { startable.clone() } else { that_can_start(&chosen, refused) };
    let in_batch = chosen.iter().filter(|(job, _)| made.contains(job));
    let positions: HashMap<JobId, u32> = in_batch.map(|(job, _)| *job).zip(0..).collect();
    let mut all = Repetitions::default();
    for (job, after) in &chosen {
        match repeated.remove(job) {
            Some(Ok(new)) if made.contains(job) => {
                all.jobs.push(NewJob { after: dependencies(after, &positions), ..*new });
            }
            Some(Err(refusal)) if startable.contains(job) => {
                all.refused += 1;
                if all.refusals.len() < REFUSALS_SHOWN {
                    all.refusals.push(refusal);
                }
            }
            _ => {}
        }
    }
    all.matched = all.jobs.len() as u64 + all.refused;
    all
}

/// Refusals that are shown; all are counted.
const REFUSALS_SHOWN: usize = 20;
