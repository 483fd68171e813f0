//! Checks the names of the workers that jobs ask for. A name that no worker has is a slip: the job would wait for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scheduler::new_jobs::{NewJob, NewJobs};
use scheduler::placement::rules::WorkerSelector;

use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::departed::{KnownWorker, departed_text};
use crate::http::request::query::nearest;
use crate::http::state::AppState;

/// Checks that there are the workers that one job asks for, connected or not.
///
/// # Errors
/// `unknown_worker_name`.
pub(crate) async fn check(state: &AppState, job: &NewJob) -> Result<(), Problem> {
    check_each(state, asked_by(std::slice::from_ref(job))).await.map_err(|(_, problem)| problem)
}

/// As [`check`], for the jobs of one definition.
///
/// # Errors
/// `unknown_worker_name`.
pub(crate) async fn check_batch(state: &AppState, jobs: &NewJobs) -> Result<(), Problem> {
    let asked = match jobs {
        NewJobs::Each(jobs) => asked_by(jobs),
        NewJobs::Copies(job, _) => asked_by(std::slice::from_ref(&**job)),
    };
    check_each(state, asked).await.map_err(|(_, problem)| problem)
}

/// As [`check`], for the entries of a list.
///
/// # Errors
/// `unknown_worker_name` with a wrong entry.
pub(crate) async fn check_list(state: &AppState, jobs: &[NewJob]) -> Result<(), Problem> {
    let checked = check_each(state, asked_by(jobs)).await;
    checked.map_err(|(index, problem)| problem.within(&format!("jobs[{index}]"), None))
}

/// The workers among these that were asked for by id and have left. `None` as well if the workers cannot be read: the jobs are accepted.
pub(crate) async fn departed<'s>(
    state: &AppState,
    asked: impl IntoIterator<Item = &'s WorkerSelector> + Clone,
) -> Option<String> {
    if !asked.clone().into_iter().any(|selector| matches!(selector, WorkerSelector::Id(_))) {
        return None;
    }
    let rows = state.read(|archive| archive.workers()).await.ok()?;
    let snapshot = state.services.engine.snapshot();
    // Those that the snapshot does not have are not connected.
    let stored = rows.iter().map(|row| KnownWorker { id: row.worker, name: &row.name, is_connected: false });
    let live = snapshot.workers.iter().map(|it| KnownWorker {
        id: it.id,
        name: &it.name,
        is_connected: it.session.is_some(),
    });
    departed_text(asked, &live.chain(stored).collect::<Vec<_>>())
}

/// The workers that jobs ask for, each with the position of the first job that does so.
type Asked = BTreeMap<WorkerSelector, usize>;

fn asked_by(jobs: &[NewJob]) -> Asked {
    let mut asked = Asked::new();
    for (index, job) in jobs.iter().enumerate() {
        for selector in job.narrowing.iter().flat_map(|narrowing| &narrowing.workers) {
            asked.entry(selector.clone()).or_insert(index);
        }
    }
    asked
}

async fn check_each(state: &AppState, asked: Asked) -> Result<(), (usize, Problem)> {
    if asked.is_empty() {
        return Ok(());
    }
    let known = KnownWorkers::read(state).await.map_err(|problem| (0, problem))?;
    asked.iter().try_for_each(|(selector, index)| known.check(selector).map_err(|problem| (*index, problem)))
}

/// All workers that were not forgotten.
struct KnownWorkers {
    ids: BTreeSet<u64>,
    names: BTreeSet<Arc<str>>,
}

impl KnownWorkers {
    async fn read(state: &AppState) -> Result<Self, Problem> {
        let rows = state.read(|archive| archive.workers()).await?;
        let snapshot = state.services.engine.snapshot();
        // One that has just joined may not be in the store's answer yet.
        let ids = rows.iter().map(|row| row.worker.0).chain(snapshot.workers.iter().map(|it| it.id.0));
        let names = rows.iter().map(|row| row.name.clone());
        let names = names.chain(snapshot.workers.iter().map(|it| it.name.clone()));
        Ok(Self { ids: ids.collect(), names: names.collect() })
    }

    fn check(&self, selector: &WorkerSelector) -> Result<(), Problem> {
        let near = match selector {
            WorkerSelector::Id(id) if self.ids.contains(&id.0) => return Ok(()),
            WorkerSelector::Id(_) => Vec::new(),
            WorkerSelector::Name(name) if self.names.contains(&**name) => return Ok(()),
            WorkerSelector::Name(name) => nearest(name, self.names.iter().map(|it| &**it)),
        };
        let problem = Problem::new(
            ProblemCode::UnknownWorkerName,
            format!("there is no worker {}", quoted(selector)),
        )
        .field("workers")
        .hint(
            "GET /api/workers?all=1 lists the workers; a label is asked for in \"requires\" (--on gpu=true)",
        );
        Err(if near.is_empty() { problem } else { problem.near(near) })
    }
}

fn quoted(selector: &WorkerSelector) -> String {
    match selector {
        WorkerSelector::Id(id) => id.to_string(),
        WorkerSelector::Name(name) => format!("\"{}\"", excerpt(name)),
    }
}
