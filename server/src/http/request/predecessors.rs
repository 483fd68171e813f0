//! The jobs and batches that the jobs of a request wait for (`after`): entries of the same list by name, others by the archive.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use protocol::JobId;
use scheduler::dependencies::{self, Dependency, Predecessor, PredecessorId, RequiredEnd};
use scheduler::job::State;
use scheduler::new_jobs::{NewJob, NewJobs};

use crate::auth::actor::Actor;
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::job_request::{self, AFTER_MAX};
use crate::http::state::AppState;
use crate::store::{Archive, PARENT_SLOT_VARIABLE, ReadError, instant_for_followers};

/// Dependencies of one request, each counted for each job that waits: as many as jobs.
const DEPENDENCIES_MAX: usize = 100_000;

/// The names of the entries of a list, and what each comes after.
#[derive(Debug, Default)]
pub(crate) struct EntryNames {
    /// Positions by the entry's own name.
    by_name: HashMap<String, Vec<u32>>,
    /// Positions by the name of the definition, of entries without a name of their own.
    by_definition: HashMap<String, Vec<u32>>,
    /// The names that an entry comes after, by its position.
    after: BTreeMap<u32, Vec<(String, RequiredEnd)>>,
}

impl EntryNames {
    /// Adds the entry at this position.
    pub(crate) fn add(&mut self, position: u32, name: Option<&str>, definition: &str) {
        let (positions, name) = match name {
            Some(name) => (&mut self.by_name, name),
            None => (&mut self.by_definition, definition),
        };
        match positions.get_mut(name) {
            Some(known) => known.push(position),
            None => drop(positions.insert(name.to_owned(), vec![position])),
        }
    }

    /// The entry at this position comes after these.
    pub(crate) fn add_after(&mut self, position: u32, names: Vec<(String, RequiredEnd)>) {
        if !names.is_empty() {
            self.after.insert(position, names);
        }
    }

    /// Replaces the names by positions.
    ///
    /// # Errors
    /// `invalid_dependency`: no entry has a name; there are too many dependencies, or a circle of them.
    pub(crate) fn resolve(self, jobs: &mut [NewJob]) -> Result<(), Problem> {
        if self.after.is_empty() {
            return Ok(());
        }
        let mut waits_for = vec![Vec::new(); jobs.len()];
        let mut count = 0;
        for (position, names) in &self.after {
            let mut of_entry = jobs.get(*position as usize).map_or(0, |job| job.after.len());
            for (name, requires) in names {
                let found = self.by_name.get(name).or_else(|| self.by_definition.get(name));
                let found = found.ok_or_else(|| no_entry(*position, name))?;
                count += found.len();
                of_entry += found.len();
                if count > DEPENDENCIES_MAX {
                    return Err(too_many());
                }
                if of_entry > AFTER_MAX {
                    return Err(after_too_many(*position, of_entry));
                }
                let Some(job) = jobs.get_mut(*position as usize) else { continue };
                for on in found {
                    job.after.push(Dependency { on: Predecessor::Member(*on), requires: *requires });
                    waits_for[*position as usize].push(*on);
                }
            }
        }
        match dependencies::circle(&waits_for) {
            None => Ok(()),
            Some(circle) => Err(self.in_a_circle(&circle)),
        }
    }

    /// The entry as people know it: by its name, and by its position, because several may have the same.
    fn shown(&self, position: u32) -> String {
        let named = self.by_name.iter().chain(&self.by_definition);
        let mut named = named.filter(|(_, positions)| positions.contains(&position));
        match named.next() {
            Some((name, _)) => format!("{} (jobs[{position}])", excerpt(name)),
            None => format!("jobs[{position}]"),
        }
    }

    fn in_a_circle(&self, positions: &[u32]) -> Problem {
        let shown = positions.iter().take(CIRCLE_SHOWN).chain(positions.first());
        let path: Vec<String> = shown.map(|at| self.shown(*at)).collect();
        let detail = format!("the jobs wait for each other in a circle: {}", path.join(" waits for "));
        Problem::new(ProblemCode::InvalidDependency, detail)
            .field("after")
            .hint("leave one of the dependencies out")
    }
}

fn no_entry(position: u32, name: &str) -> Problem {
    let detail = format!("no entry of the list is called \"{}\"", excerpt(name));
    Problem::new(ProblemCode::InvalidDependency, detail)
        .field("after")
        .hint("an entry is called as its \"as\" says, else as its definition")
        .within(&format!("jobs[{position}]"), None)
}

fn after_too_many(position: u32, count: usize) -> Problem {
    let detail = format!("a job comes after {AFTER_MAX} others at most, and these are {count} or more");
    Problem::new(ProblemCode::InvalidDependency, detail)
        .field("after")
        .hint("let one job come after many, and others after that one")
        .within(&format!("jobs[{position}]"), None)
}

fn too_many() -> Problem {
    let detail = format!("the jobs of the request have more than {DEPENDENCIES_MAX} dependencies");
    Problem::new(ProblemCode::InvalidDependency, detail)
        .field("after")
        .hint("let one job come after many, and others after that one")
}

/// Entries of a circle that are shown.
const CIRCLE_SHOWN: usize = 10;

/// A job of the request waits for another one.
pub(crate) fn has_any(jobs: &NewJobs) -> bool {
    match jobs {
        NewJobs::Each(jobs) => jobs.iter().any(|job| !job.after.is_empty()),
        NewJobs::Copies(job, _) => !job.after.is_empty(),
    }
}

/// Looks up the jobs and batches that the jobs of a request wait for. Those that have ended are marked with their state.
///
/// # Errors
/// `invalid_dependency`: there is no such job or batch, or there are too many dependencies; `predecessor_ended`: one of them has ended
/// otherwise than required.
pub(crate) async fn resolve(state: &AppState, mut jobs: NewJobs) -> Result<NewJobs, Problem> {
    let (list, copies) = match &mut jobs {
        NewJobs::Each(list) => (list.as_mut_slice(), 1),
        NewJobs::Copies(job, count) => (std::slice::from_mut(&mut **job), *count as usize),
    };
    let count: usize = list.iter().map(|job| job.after.len()).sum();
    if count.saturating_mul(copies) > DEPENDENCIES_MAX {
        return Err(too_many());
    }
    for job in list.iter_mut().filter(|job| !job.after.is_empty()) {
        let details = job.details.get_or_insert_default();
        details.has_predecessors = true;
        job_request::check_size_with_predecessors(&details.effective_overrides())?;
    }
    let ids: BTreeSet<PredecessorId> = list.iter().flat_map(|job| &job.after).filter_map(existing).collect();
    let Found { states, instants } = state.read(move |archive| look_up(archive, &ids)).await?;
    for dependency in list.iter_mut().flat_map(|job| &mut job.after) {
        let Some(on) = existing(dependency) else { continue };
        // Retention may have removed the predecessor of a job that is repeated. A request names no such job.
        if matches!(dependency.on, Predecessor::Ended(..)) && !states.contains_key(&on) {
            continue;
        }
        let Some((state, definition)) = states.get(&on) else { return Err(not_found(on)) };
        // The job would get the results of the other one. Of a batch it gets numbers, which every token may read.
        if let Some(definition) = definition {
            Actor::current().check_scope(definition)?;
        }
        if !state.has_ended() {
            continue;
        }
        if !dependency.requires.is_met_by(*state) {
            return Err(ended_otherwise(on, *state, dependency.requires));
        }
        dependency.on = Predecessor::Ended(on, *state);
    }
    pass_instants_on(list, &instants);
    Ok(jobs)
}

/// Facts about the jobs and batches that a request names.
struct Found {
    /// Their states, with the definition of a job.
    states: HashMap<PredecessorId, (State, Option<String>)>,
    /// The slots that jobs pass on to those after them.
    instants: HashMap<JobId, String>,
}

fn look_up(archive: &dyn Archive, ids: &BTreeSet<PredecessorId>) -> Result<Found, ReadError> {
    let jobs: Vec<JobId> = ids.iter().filter_map(|on| on.job()).collect();
    let batches: Vec<JobId> = ids
        .iter()
        .filter_map(|on| match on {
            PredecessorId::Batch(first) => Some(*first),
            PredecessorId::Job(_) => None,
        })
        .collect();
    let of_jobs = archive.states(&jobs)?.into_iter();
    let of_jobs = of_jobs.map(|(job, name, state)| (PredecessorId::Job(job), (state, Some(name))));
    let of_batches = archive.batch_states(&batches)?.into_iter();
    let of_batches = of_batches.map(|(first, state)| (PredecessorId::Batch(first), (state.as_job(), None)));
    Ok(Found {
        states: of_jobs.chain(of_batches).collect(),
        instants: archive.instants_for_followers(&jobs)?.into_iter().collect(),
    })
}

fn not_found(on: PredecessorId) -> Problem {
    let problem =
        Problem::new(ProblemCode::InvalidDependency, format!("there is no {on}, or it has been removed"));
    let problem = problem.field("after");
    match on {
        PredecessorId::Job(_) => problem,
        PredecessorId::Batch(_) => {
            problem.hint("a batch has the number of its first job; GET /api/batches lists the batches")
        }
    }
}

/// Tells the jobs of a request the slot of the job that began their chain, by the jobs that they come after; those of the request pass it on.
fn pass_instants_on(list: &mut [NewJob], known: &HashMap<JobId, String>) {
    let own = |job: &NewJob| {
        let details = job.details.as_ref()?;
        instant_for_followers(&details.overrides.environment).map(str::to_owned)
    };
    let known_before =
        |job: &NewJob| job.after.iter().filter_map(existing).find_map(|on| known.get(&on.job()?).cloned());
    let instants: Vec<Option<String>> =
        list.iter().map(|job| own(job).or_else(|| known_before(job))).collect();
    let mut open: VecDeque<(usize, String)> =
        instants.into_iter().enumerate().filter_map(|(position, at)| Some((position, at?))).collect();
    if open.is_empty() {
        return;
    }
    let mut followers: HashMap<usize, Vec<usize>> = HashMap::new();
    for (position, job) in list.iter().enumerate() {
        for dependency in &job.after {
            if let Predecessor::Member(on) = dependency.on {
                followers.entry(on as usize).or_default().push(position);
            }
        }
    }
    let mut has_one: HashSet<usize> = open.iter().map(|(position, _)| *position).collect();
    while let Some((position, at)) = open.pop_front() {
        for follower in followers.get(&position).into_iter().flatten() {
            if has_one.insert(*follower) {
                open.push_back((*follower, at.clone()));
            }
        }
        let Some(job) = list.get_mut(position).filter(|job| own(job).is_none()) else { continue };
        let environment = &mut job.details.get_or_insert_default().overrides.environment;
        environment.push((PARENT_SLOT_VARIABLE.to_owned(), at));
    }
}

/// Dependencies of a retry, each predecessor once: several jobs may have become one by retries. An outcome counts more than any end.
pub(crate) fn once_each(dependencies: impl Iterator<Item = Dependency>) -> Vec<Dependency> {
    let mut once: Vec<Dependency> = Vec::new();
    for new in dependencies {
        match once.iter_mut().find(|known| known.on == new.on) {
            Some(known) if known.requires == RequiredEnd::Any => known.requires = new.requires,
            Some(_) => {}
            None => once.push(new),
        }
    }
    once
}

/// A job or a batch that existed before the request.
const fn existing(dependency: &Dependency) -> Option<PredecessorId> {
    match dependency.on {
        Predecessor::Live(on) | Predecessor::Ended(on, _) => Some(on),
        Predecessor::Member(_) => None,
    }
}

fn ended_otherwise(on: PredecessorId, state: State, requires: RequiredEnd) -> Problem {
    let detail = format!("{on} has ended as {}, and after requires {}", state.name(), requires.name());
    let problem = Problem::new(ProblemCode::PredecessorEnded, detail)
        .field("after")
        .state(state.name())
        .hint("come after a retry of it, or require another outcome");
    match on.job() {
        Some(job) => problem.job(job.0),
        None => problem,
    }
}
