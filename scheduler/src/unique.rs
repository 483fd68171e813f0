//! Unique keys: at most one job of a definition has a key. `handlers::unique` decides about new jobs.
//!
//! - A key is computed when its job is made, and belongs to the name of the definition, not to a revision.
//! - The job has it until an end that clears it (`clear`). After any other end the ended job keeps it, until a retry takes it over or a
//!   person releases it.
//! - A job that replaces one on a worker waits until that one has ended: it is the *predecessor*. There is at most one, because the new
//!   job starts only after it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::JobId;
use sha2::{Digest, Sha256};

use crate::details::JobDetails;
use crate::limits::rules::UniqueRule;
use crate::new_jobs::NewJob;

/// Keys that ended jobs keep at most; beyond it the one of the oldest job is freed. Some 30 MB.
pub const KEPT_MAX: usize = 100_000;

impl UniqueRule {
    /// The key of a new job.
    #[must_use]
    pub fn key_of(&self, new: &NewJob) -> Arc<str> {
        let details = new.details.as_deref();
        match (&new.unique_key, &self.key) {
            (Some(own), _) => own.clone(),
            (None, Some(source)) => source.value(details),
            (None, None) => fingerprint(details).as_str().into(),
        }
    }
}

/// Variables that name the trace of a request (W3C Trace Context).
const TRACE_VARIABLES: [&str; 2] = ["TRACEPARENT", "TRACESTATE"];

/// 32 hexadecimal digits that stand for the overrides of a job. Variables that the server sets (`LONGSHORE_*`) and the trace of the caller
/// do not count, because they differ with each slot of a schedule, each member of a batch and each request; neither does the order of
/// variables.
fn fingerprint(details: Option<&JobDetails>) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    };
    if let Some(details) = details {
        let (overrides, params) = (&details.overrides, &details.params);
        let variables = params.environment.iter().chain(&overrides.environment).chain(&params.variables);
        let variables: BTreeMap<&str, &str> = variables
            .filter(|(name, _)| !name.starts_with("LONGSHORE_") && !TRACE_VARIABLES.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        for (name, value) in variables {
            ["variable", name, value].iter().for_each(|part| add(part));
        }
        for arg in params.args.iter().chain(&overrides.args) {
            ["arg", arg].iter().for_each(|part| add(part));
        }
        if let Some(input) = &overrides.input {
            ["input", input].iter().for_each(|part| add(part));
        }
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Names a key for good: the definition, and the value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UniqueId {
    /// The name of the definition.
    pub definition: Arc<str>,
    /// The value of the key.
    pub key: Arc<str>,
}

/// The job that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniqueHolder {
    /// The job; it may have ended.
    pub job: JobId,
    /// The job that it replaces, if that has not ended yet.
    pub predecessor: Option<JobId>,
}

/// The stored state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueRow {
    /// The key.
    pub id: UniqueId,
    /// The job that has it; none: it is free.
    pub holder: Option<UniqueHolder>,
}

/// All keys that are taken.
#[derive(Debug, Default)]
pub struct UniqueKeys {
    holders: BTreeMap<UniqueId, UniqueHolder>,
    /// Holders and predecessors.
    jobs: BTreeMap<JobId, UniqueId>,
    /// Holders that have ended and keep their keys.
    kept: BTreeSet<JobId>,
    /// Holders that wait for the end of the job that they replace, each with that job.
    replacing: BTreeMap<JobId, JobId>,
}

impl UniqueKeys {
    /// The job that has a key.
    #[must_use]
    pub fn holder(&self, id: &UniqueId) -> Option<UniqueHolder> {
        self.holders.get(id).copied()
    }

    /// The key of a job, as long as it has one or is about to give it to its successor.
    #[must_use]
    pub fn id_of(&self, job: JobId) -> Option<&UniqueId> {
        self.jobs.get(&job)
    }

    /// The job that must end before this one starts.
    #[must_use]
    pub fn predecessor(&self, job: JobId) -> Option<JobId> {
        let holder = self.holders.get(self.jobs.get(&job)?)?;
        holder.predecessor.filter(|_| holder.job == job)
    }

    /// The job that waits for the end of this one, which it replaces.
    #[must_use]
    pub fn successor(&self, job: JobId) -> Option<JobId> {
        let holder = self.holders.get(self.jobs.get(&job)?)?;
        (holder.predecessor == Some(job)).then_some(holder.job)
    }

    /// The job waits for its predecessor.
    #[must_use]
    pub fn must_wait(&self, job: JobId) -> bool {
        self.predecessor(job).is_some()
    }

    /// Jobs that wait for the one that they replace, with that one, in the order of their numbers.
    pub fn replacing(&self) -> impl Iterator<Item = (JobId, JobId)> {
        self.replacing.iter().map(|(job, predecessor)| (*job, *predecessor))
    }

    /// The key has this holder from now on.
    pub fn put(&mut self, row: &UniqueRow) {
        if let Some(before) = self.holders.remove(&row.id) {
            for job in [before.predecessor, Some(before.job)].into_iter().flatten() {
                self.jobs.remove(&job);
                self.kept.remove(&job);
            }
            self.replacing.remove(&before.job);
        }
        let Some(holder) = row.holder else { return };
        for job in [holder.predecessor, Some(holder.job)].into_iter().flatten() {
            self.jobs.insert(job, row.id.clone());
        }
        if let Some(predecessor) = holder.predecessor {
            self.replacing.insert(holder.job, predecessor);
        }
        self.holders.insert(row.id.clone(), holder);
    }

    /// Records that the holder has ended and keeps its key.
    pub fn keep(&mut self, job: JobId) {
        self.kept.insert(job);
    }

    /// The job has ended and still holds its key.
    #[must_use]
    pub fn is_kept(&self, job: JobId) -> bool {
        self.kept.contains(&job)
    }

    /// The ended holder with the lowest number, if there are more than [`KEPT_MAX`].
    #[must_use]
    pub fn surplus(&self) -> Option<JobId> {
        self.kept.first().copied().filter(|_| self.kept.len() > KEPT_MAX)
    }

    /// All keys, for the audit and for a start.
    pub fn all(&self) -> impl Iterator<Item = (&UniqueId, &UniqueHolder)> {
        self.holders.iter()
    }

    /// The jobs that are listed, for the audit.
    pub(crate) fn jobs(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;

    use protocol::container::Overrides;

    use super::*;
    use crate::limits::rules::{Clear, KeySource, OnDuplicate};

    fn job(environment: &[(&str, &str)], args: &[&str]) -> NewJob {
        let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let args = args.iter().map(|arg| (*arg).into()).collect();
        let overrides = Overrides { environment, args, input: None };
        let details = JobDetails { overrides, ..JobDetails::default() };
        NewJob { details: Some(Box::new(details)), ..NewJob::default() }
    }

    #[test]
    fn the_default_key_stands_for_the_overrides() {
        let rule = UniqueRule { key: None, on_duplicate: OnDuplicate::Return, clear: Clear::Always };
        let key = |new: &NewJob| rule.key_of(new);
        let plain = key(&NewJob::default());
        assert_eq!(plain.len(), 32);
        assert_eq!(key(&job(&[("LONGSHORE_SLOT", "1")], &[])), plain, "the server sets it");
        let traced = job(&[("TRACEPARENT", "00-1-2-01"), ("TRACESTATE", "a=b")], &[]);
        assert_eq!(key(&traced), plain, "each request has its own");
        let pair = job(&[("A", "1"), ("B", "2")], &[]);
        assert_eq!(key(&pair), key(&job(&[("B", "2"), ("A", "1")], &[])));
        let others = [job(&[("A", "12"), ("B", "")], &[]), job(&[], &["A", "1"]), job(&[("A", "1")], &["B"])];
        for other in &others {
            assert_ne!(key(other), key(&pair));
        }
        let labelled = JobDetails { labels: vec![("a".into(), "b".into())], ..JobDetails::default() };
        assert_eq!(key(&NewJob { details: Some(Box::new(labelled)), ..NewJob::default() }), plain);
    }

    #[test]
    fn the_key_of_the_request_goes_before_the_key_of_the_definition() {
        let key = Some(KeySource::Constant("all".into()));
        let rule = UniqueRule { key, on_duplicate: OnDuplicate::Return, clear: Clear::Always };
        assert_eq!(&*rule.key_of(&NewJob::default()), "all");
        assert_eq!(&*rule.key_of(&NewJob { unique_key: Some("own".into()), ..NewJob::default() }), "own");
    }
}
