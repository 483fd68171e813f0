//! Pauses of definitions, groups, schedules, batches and the whole server: each lasts until somebody resumes it, or until a time that was given
//! with it. That of a batch ends with the batch, too. They are kept by name, so a new revision, a removed definition that comes back and a
//! restart change nothing about them. A job is paused by the definition that it was made with: a group by the `concurrency.group` of its own
//! revision, as for permits. The queue keeps the lanes of paused definitions, and those of members of paused batches, apart from the others, so
//! steps do not look at them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::fmt;

use protocol::{JobId, Timestamp};

use crate::batches::LiveBatch;
use crate::definition::Definition;
use crate::origin::Intervention;
use crate::schedule::ScheduleId;

/// The jobs and schedules that a pause reaches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseTarget {
    /// All jobs and schedules.
    Server,
    /// The schedules of all definitions, not their jobs.
    Schedules,
    /// Jobs and schedules of the definitions with this `concurrency.group`.
    Group(Arc<str>),
    /// Jobs and schedules of a definition.
    Definition(Arc<str>),
    /// One schedule of a definition.
    Schedule(Arc<str>, ScheduleId),
    /// The members of the batch with this first job. It has members that have not ended.
    Batch(JobId),
}

/// As people read it: `all`, `all schedules`, `group db-main`, the name of a definition, `name/schedule`, or `batch 12`.
impl fmt::Display for PauseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("all"),
            Self::Schedules => f.write_str("all schedules"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Definition(name) => f.write_str(name),
            Self::Schedule(name, id) => write!(f, "{name}/{id}"),
            Self::Batch(first) => write!(f, "batch {first}"),
        }
    }
}

/// Batches that may be paused at once. Readers of snapshots walk over their pauses.
pub const PAUSED_BATCHES_MAX: usize = 1_000;

/// The pauses in force, with their beginnings, requesters and reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    in_force: BTreeMap<PauseTarget, Intervention>,
    /// The ends of those that have one, in their order.
    ends: BTreeSet<(Timestamp, PauseTarget)>,
    /// The numbers after the last members of paused batches, by their first members.
    batch_ends: BTreeMap<JobId, JobId>,
}

/// A pause in the store after a command or an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseChange {
    /// It is in force, with this end and origin.
    Set(Intervention),
    /// An operator resumed its target.
    Resumed {
        /// Name of the token or user; empty if it is not known.
        by: Arc<str>,
    },
    /// It was to end at this time, which has come.
    Ended(Timestamp),
    /// The batch that was its target has ended.
    BatchEnded,
}

impl PauseChange {
    /// The pause, if it is in force now.
    #[must_use]
    pub const fn in_force(&self) -> Option<&Intervention> {
        match self {
            Self::Set(pause) => Some(pause),
            Self::Resumed { .. } | Self::Ended(_) | Self::BatchEnded => None,
        }
    }
}

/// The pause of a target before and after a command to pause or resume it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseResult {
    /// The pause that the command found.
    pub former: Option<Intervention>,
    /// The pause that it left.
    pub in_force: Option<Intervention>,
}

impl PauseResult {
    /// False if it was so already.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.former != self.in_force
    }
}

impl Pauses {
    /// The pauses of a store.
    #[must_use]
    pub fn of(rows: impl IntoIterator<Item = (PauseTarget, Intervention)>) -> Self {
        let in_force: BTreeMap<PauseTarget, Intervention> = rows.into_iter().collect();
        let ends = in_force.iter().filter_map(|(target, pause)| Some((pause.until?, target.clone())));
        Self { ends: ends.collect(), in_force, batch_ends: BTreeMap::new() }
    }

    /// This target is paused itself.
    #[must_use]
    pub fn contains(&self, target: &PauseTarget) -> bool {
        self.in_force.contains_key(target)
    }

    /// The pause of this target itself.
    #[must_use]
    pub fn get(&self, target: &PauseTarget) -> Option<&Intervention> {
        self.in_force.get(target)
    }

    /// The pause of a target after a further command to pause it, or nothing if that changes nothing. The new end, requester and reason
    /// replace the former, also if there is none: a reason never stands beside the name of somebody who has not given it. The beginning stays.
    pub(crate) fn renewed(&self, target: &PauseTarget, next: Intervention) -> Option<Intervention> {
        let Some(former) = self.in_force.get(target) else { return Some(next) };
        let is_same = next.until == former.until && next.origin.reason == former.origin.reason;
        (!is_same).then_some(Intervention { since: former.since, ..next })
    }

    /// The first end of a pause, with its target.
    #[must_use]
    pub fn first_end(&self) -> Option<(Timestamp, &PauseTarget)> {
        self.ends.first().map(|(at, target)| (*at, target))
    }

    /// All pauses, ordered by target.
    pub fn iter(&self) -> impl Iterator<Item = (&PauseTarget, &Intervention)> {
        self.in_force.iter()
    }

    /// The pauses that hold back the jobs of a definition.
    pub fn of_jobs(&self, definition: &Definition) -> impl Iterator<Item = (PauseTarget, &Intervention)> {
        self.reaching(definition.name.as_str().into(), group_of(definition))
    }

    /// The pause of the batch with this first job.
    pub fn of_batch(&self, first: JobId) -> Option<(PauseTarget, &Intervention)> {
        self.among([PauseTarget::Batch(first)]).next()
    }

    /// The paused batch of the job with this number. A member of a job on several workers has no number in the batch: ask for its parent.
    #[must_use]
    pub fn batch_of(&self, job: JobId) -> Option<JobId> {
        let (first, end) = self.batch_ends.range(..=job).next_back()?;
        (job < *end).then_some(*first)
    }

    /// The number of paused batches.
    #[must_use]
    pub(crate) fn batches(&self) -> usize {
        self.batch_ends.len()
    }

    /// The pauses that reach a schedule of this definition.
    pub fn of_schedule(
        &self,
        name: &Arc<str>,
        group: Option<Arc<str>>,
        id: &ScheduleId,
    ) -> impl Iterator<Item = (PauseTarget, &Intervention)> {
        let own = [PauseTarget::Schedules, PauseTarget::Schedule(name.clone(), id.clone())];
        self.reaching(name.clone(), group).chain(self.among(own))
    }

    /// The end of the last pause that reaches a schedule of this definition. Nothing if no pause does, or if one has no end.
    #[must_use]
    pub fn last_end(&self, name: &Arc<str>, group: Option<Arc<str>>, id: &ScheduleId) -> Option<Timestamp> {
        let mut ends = self.of_schedule(name, group, id).map(|(_, pause)| pause.until);
        let first = ends.next()??;
        ends.try_fold(first, |last, end| Some(last.max(end?)))
    }

    fn reaching(
        &self,
        name: Arc<str>,
        group: Option<Arc<str>>,
    ) -> impl Iterator<Item = (PauseTarget, &Intervention)> {
        let targets = [PauseTarget::Server, PauseTarget::Definition(name)];
        self.among(targets).chain(self.among(group.map(PauseTarget::Group)))
    }

    fn among(
        &self,
        targets: impl IntoIterator<Item = PauseTarget>,
    ) -> impl Iterator<Item = (PauseTarget, &Intervention)> {
        targets.into_iter().filter_map(|target| {
            let pause = self.in_force.get(&target)?;
            Some((target, pause))
        })
    }

    /// Tells which numbers the members of a batch have, if it is paused.
    pub(crate) fn set_end_of_batch(&mut self, batch: &LiveBatch) {
        if self.contains(&PauseTarget::Batch(batch.first)) {
            self.batch_ends.insert(batch.first, batch.end());
        }
    }

    /// Sets or removes a pause. After the pause of a batch is set, [`Self::set_end_of_batch`] follows.
    pub(crate) fn set(&mut self, target: PauseTarget, pause: Option<Intervention>) {
        let until = pause.as_ref().and_then(|pause| pause.until);
        let former = match pause {
            Some(pause) => self.in_force.insert(target.clone(), pause),
            None => self.in_force.remove(&target),
        };
        if let Some(at) = former.and_then(|former| former.until) {
            self.ends.remove(&(at, target.clone()));
        }
        if let (PauseTarget::Batch(first), false) = (&target, self.contains(&target)) {
            self.batch_ends.remove(first);
        }
        if let Some(at) = until {
            self.ends.insert((at, target));
        }
    }

    /// Every end of a pause is in the order of ends, and the members of every paused batch are known, for the audit.
    pub(crate) fn is_consistent(&self) -> bool {
        let batches = self.in_force.keys().filter_map(|target| match target {
            PauseTarget::Batch(first) => Some(first),
            _ => None,
        });
        batches.eq(self.batch_ends.keys()) && self.ends == Self::of(self.in_force.clone()).ends
    }

    /// Jobs of this definition may not start.
    pub(crate) fn hold_back(&self, definition: &Definition) -> bool {
        !self.in_force.is_empty() && self.of_jobs(definition).next().is_some()
    }
}

/// The group that a definition shares its permits with.
#[must_use]
pub fn group_of(definition: &Definition) -> Option<Arc<str>> {
    let concurrency = definition.limits.concurrency.as_ref()?;
    concurrency.group.as_deref().map(Arc::from)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::origin::Origin;

    fn pause(until: Option<i64>, reason: Option<&str>) -> Intervention {
        let origin = Origin { by: Arc::default(), reason: reason.map(Into::into) };
        Intervention { since: Timestamp(5), until: until.map(Timestamp), origin }
    }

    #[test]
    fn a_further_pause_replaces_end_and_origin_and_keeps_the_beginning() {
        let pauses = Pauses::of([(PauseTarget::Server, pause(Some(90), Some("disk")))]);
        let renewed =
            |next| pauses.renewed(&PauseTarget::Server, Intervention { since: Timestamp(7), ..next });
        assert_eq!(renewed(pause(Some(90), Some("disk"))), None);
        assert_eq!(renewed(pause(Some(90), None)), Some(pause(Some(90), None)));
        assert_eq!(renewed(pause(None, None)), Some(pause(None, None)));
        assert_eq!(renewed(pause(Some(60), Some("disk"))), Some(pause(Some(60), Some("disk"))));
        assert_eq!(renewed(pause(Some(90), Some("swap"))), Some(pause(Some(90), Some("swap"))));
        let other = pause(Some(90), None);
        assert_eq!(pauses.renewed(&PauseTarget::Schedules, other.clone()), Some(other), "not paused before");
    }

    #[test]
    fn the_first_end_follows_each_change() {
        let group = PauseTarget::Group("g".into());
        let mut pauses =
            Pauses::of([(PauseTarget::Server, pause(Some(90), None)), (group.clone(), pause(None, None))]);
        let first = |pauses: &Pauses| pauses.first_end().map(|(at, target)| (at.0, target.clone()));
        assert_eq!(first(&pauses), Some((90, PauseTarget::Server)));
        pauses.set(group.clone(), Some(pause(Some(90), None)));
        pauses.set(PauseTarget::Server, Some(pause(Some(95), None)));
        assert_eq!(first(&pauses), Some((90, group.clone())));
        pauses.set(group, None);
        assert_eq!(first(&pauses), Some((95, PauseTarget::Server)));
        pauses.set(PauseTarget::Server, Some(pause(None, None)));
        assert_eq!(first(&pauses), None);
        assert_eq!(
            pauses.iter().map(|(target, _)| target.clone()).collect::<Vec<_>>(),
            [PauseTarget::Server]
        );
    }
}
