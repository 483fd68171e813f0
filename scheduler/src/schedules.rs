//! State of the schedules, kept by the name of their definition and not by its revision: cursors, and the jobs that they made and
//! that have not ended. `pauses` keeps what is paused. `handlers::fire` decides, `handlers::reschedule` follows jobs.yaml.
//!
//! Rules that outlive a process:
//! - The *cursor* of a schedule is its last decided slot. It never goes back: a fired slot stays fired, whatever happens to the clock.
//! - A schedule that is seen for the first time begins at that moment. Earlier slots do not exist for it.
//! - While the server was away nothing is decided. The slots of that time are decided at the next start, by `catch_up`.
//! - A changed rule begins at the moment of the change. One row `rule_changed` with count 0 marks it in the ledger. The old rule decides
//!   all slots up to then, jitter or not. Rules are not stored: if one changed while the server was away, nobody knows it any more. Then the
//!   row begins after the cursor, and its count is not exact. A schedule that is gone at a start has such a row, too.
//! - A schedule that leaves jobs.yaml keeps its cursor. If it comes back, the slots in between are missed: `removed`.
//!   The store forgets it after the last row of its ledger, some weeks later: then it begins anew.
//! - While it is paused or disabled its slots are skipped. They never fire later.
//! - A backfill makes jobs of decided slots that have none. It neither moves the cursor nor changes the row that left them out.
//! - A restore moves every cursor to its own time. One row `restored` covers the slots since the backup, which may have fired before.

mod inactive;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use protocol::{JobId, Revision, Timestamp};

use crate::definition::Definition;
use crate::ids::{GroupNo, ScheduleNo};
use crate::origin::Intervention;
use crate::pauses::PauseTarget;
use crate::schedule::catch_up::{CatchUp, SlotCount};
use crate::schedule::{Overlap, Schedule, ScheduleId};
use crate::schedule_cursors::Cursors;

/// The stored state of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRow {
    /// Of which definition.
    pub definition: Arc<str>,
    /// Id among the schedules of that definition.
    pub schedule: ScheduleId,
    /// The last decided slot, or when it was first seen.
    pub cursor: Timestamp,
    /// Of the rule that the cursor belongs to.
    pub fingerprint: u64,
    /// Since when it is not in jobs.yaml; absent: it is.
    pub removed_at: Option<Timestamp>,
    /// The last slot that became a job.
    pub last_fire: Option<LastFire>,
}

impl ScheduleRow {
    /// Moves the cursor of a restored store to the time of the restore: slots since the backup may have fired in the store that is gone.
    /// Returns their row of the ledger, unless the cursor is there already. It has no count, because only the rules of that time could
    /// count them.
    pub fn go_on_at(&mut self, now: Timestamp) -> Option<FireRow> {
        let from = Timestamp(self.cursor.0.saturating_add(1));
        if from > now {
            return None;
        }
        self.cursor = now;
        Some(FireRow {
            definition: self.definition.clone(),
            schedule: self.schedule.clone(),
            from,
            to: now,
            count: SlotCount { count: 0, exact: false },
            verdict: FireVerdict::Missed(MissReason::Restored),
            at: now,
        })
    }
}

/// The stored state of all schedules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveSchedules {
    /// Every schedule ever seen.
    pub rows: Vec<ScheduleRow>,
    /// Pauses, with their beginnings.
    pub paused: Vec<(PauseTarget, Intervention)>,
    /// Jobs that schedules made and that have not ended, with the name of their definition.
    pub jobs: Vec<(JobId, Arc<str>)>,
}

/// A slot that became a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastFire {
    /// The slot.
    pub slot: Timestamp,
    /// When it was decided.
    pub at: Timestamp,
    /// Its job.
    pub job: JobId,
}

/// A row of the fire ledger: consecutive slots of a schedule that became the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FireRow {
    /// Of which definition.
    pub definition: Arc<str>,
    /// Id among the schedules of that definition.
    pub schedule: ScheduleId,
    /// The first slot. No two rows of a schedule begin with the same.
    pub from: Timestamp,
    /// The last slot.
    pub to: Timestamp,
    /// How many slots; a lower bound if not exact.
    pub count: SlotCount,
    /// Their common verdict.
    pub verdict: FireVerdict,
    /// When the last of them was decided.
    pub at: Timestamp,
}

impl FireRow {
    /// How long after the last slot was due it was decided. The jitter is part of when it is due, if the definition, as it is now, has the
    /// schedule.
    #[must_use]
    pub fn lateness(&self, definition: Option<&Definition>) -> Duration {
        let schedules = definition.map_or(&[][..], |definition| &definition.timetable.schedules);
        let schedule = schedules.iter().find(|schedule| schedule.id == self.schedule);
        self.at.since(schedule.map_or(self.to, |schedule| schedule.due_at(self.to)))
    }
}

/// Verdict on a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FireVerdict {
    /// It became this job, on time.
    Fired(JobId),
    /// It became this job, late.
    CaughtUp(JobId),
    /// It became this job because somebody asked for it, after it had been left out. Its first verdict stays in the ledger.
    Backfilled(JobId),
    /// It did not fire because of an order or a limit.
    Skipped(SkipReason),
    /// It did not fire because nobody could.
    Missed(MissReason),
}

/// Why a slot did not fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// This job of an earlier slot had not ended.
    Overlap(JobId),
    /// This job has the unique key of the slot's job.
    Duplicate(JobId),
    /// The schedule, its definition, or everything is paused.
    Paused,
    /// Too many jobs wait already.
    Limit,
    /// The definition is disabled.
    Disabled,
}

/// Why nobody could fire a slot, or was to do so later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissReason {
    /// `catch_up` says so.
    Policy,
    /// It was longer ago than `catch_up_window`.
    Window,
    /// It was one of more than `catch_up_limit`.
    Limit,
    /// The rule was changed.
    RuleChanged,
    /// The schedule was not in jobs.yaml.
    Removed,
    /// The server was set back to a backup, and slots since then may have fired.
    Restored,
}

impl FireVerdict {
    /// As it is stored and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fired(_) => "fired",
            Self::CaughtUp(_) => "caught_up",
            Self::Backfilled(_) => "backfilled",
            Self::Skipped(_) => "skipped",
            Self::Missed(_) => "missed",
        }
    }

    /// As it is stored and shown; absent if it fired.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        Some(match self {
            Self::Fired(_) | Self::CaughtUp(_) | Self::Backfilled(_) => return None,
            Self::Skipped(SkipReason::Overlap(_)) => "overlap",
            Self::Skipped(SkipReason::Duplicate(_)) => "duplicate",
            Self::Skipped(SkipReason::Paused) => "paused",
            Self::Skipped(SkipReason::Limit) | Self::Missed(MissReason::Limit) => "limit",
            Self::Skipped(SkipReason::Disabled) => "disabled",
            Self::Missed(MissReason::Policy) => "catch_up",
            Self::Missed(MissReason::Window) => "catch_up_window",
            Self::Missed(MissReason::RuleChanged) => "rule_changed",
            Self::Missed(MissReason::Removed) => "removed",
            Self::Missed(MissReason::Restored) => "restored",
        })
    }

    /// The job that it became, or that was in its way.
    #[must_use]
    pub const fn job(self) -> Option<JobId> {
        match self {
            Self::Fired(job)
            | Self::CaughtUp(job)
            | Self::Backfilled(job)
            | Self::Skipped(SkipReason::Overlap(job) | SkipReason::Duplicate(job)) => Some(job),
            Self::Skipped(_) | Self::Missed(_) => None,
        }
    }

    /// Reads what [`Self::name`], [`Self::reason`] and [`Self::job`] wrote.
    #[must_use]
    pub fn parse(name: &str, reason: Option<&str>, job: Option<JobId>) -> Option<Self> {
        Some(match (name, reason, job) {
            ("fired", None, Some(job)) => Self::Fired(job),
            ("caught_up", None, Some(job)) => Self::CaughtUp(job),
            ("backfilled", None, Some(job)) => Self::Backfilled(job),
            ("skipped", Some("overlap"), Some(job)) => Self::Skipped(SkipReason::Overlap(job)),
            ("skipped", Some("duplicate"), Some(job)) => Self::Skipped(SkipReason::Duplicate(job)),
            ("skipped", Some("paused"), None) => Self::Skipped(SkipReason::Paused),
            ("skipped", Some("limit"), None) => Self::Skipped(SkipReason::Limit),
            ("skipped", Some("disabled"), None) => Self::Skipped(SkipReason::Disabled),
            ("missed", Some("catch_up"), None) => Self::Missed(MissReason::Policy),
            ("missed", Some("catch_up_window"), None) => Self::Missed(MissReason::Window),
            ("missed", Some("limit"), None) => Self::Missed(MissReason::Limit),
            ("missed", Some("rule_changed"), None) => Self::Missed(MissReason::RuleChanged),
            ("missed", Some("removed"), None) => Self::Missed(MissReason::Removed),
            ("missed", Some("restored"), None) => Self::Missed(MissReason::Restored),
            _ => return None,
        })
    }

    /// True if the schedule was paused or disabled.
    #[must_use]
    pub const fn is_inactive(self) -> bool {
        matches!(self, Self::Skipped(SkipReason::Paused | SkipReason::Disabled))
    }

    /// True if it became a job.
    #[must_use]
    pub const fn has_fired(self) -> bool {
        matches!(self, Self::Fired(_) | Self::CaughtUp(_) | Self::Backfilled(_))
    }
}

/// All schedules.
#[derive(Debug, Default)]
pub struct Schedules {
    pub(crate) entries: BTreeMap<ScheduleNo, Entry>,
    pub(crate) numbers: BTreeMap<(Arc<str>, ScheduleId), ScheduleNo>,
    pub(crate) by_definition: BTreeMap<Arc<str>, DefinitionSchedules>,
    /// Of those that jobs.yaml has.
    pub(crate) cursors: Cursors,
    /// jobs.yaml has been read since the start.
    pub(crate) are_read: bool,
    /// Jobs of schedules that have not ended.
    jobs: BTreeMap<JobId, Arc<str>>,
    /// The definitions with several of these jobs.
    with_several_live_jobs: BTreeSet<Arc<str>>,
    /// Jobs that are cancelled for the job of a later slot (`overlap: replace`), with that job. Their reasons name it; it is not stored.
    replaced: BTreeMap<JobId, JobId>,
}

/// One schedule.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) row: ScheduleRow,
    /// Its rule; absent while it is not in jobs.yaml.
    pub(crate) schedule: Option<Schedule>,
    /// When its timer is set to.
    pub(crate) due_at: Option<Timestamp>,
    /// The last row of its ledger, if the next slot may extend it: slots that did not fire.
    pub(crate) extendable_row: Option<FireRow>,
    /// The last commit of this process with a backfill of it.
    pub(crate) backfilled_in: Option<GroupNo>,
}

/// State that the schedules of one definition share.
#[derive(Debug, Default)]
pub(crate) struct DefinitionSchedules {
    /// The definition of its jobs; absent while it is not in jobs.yaml.
    pub(crate) current: Option<CurrentDefinition>,
    /// The group that the definition shares its permits with.
    pub(crate) group: Option<Arc<str>>,
    /// Jobs of its schedules that have not ended, of any revision.
    pub(crate) live: BTreeSet<JobId>,
}

/// The keys of a definition in jobs.yaml, as it is now, that decide about its slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentDefinition {
    pub(crate) revision: Revision,
    pub(crate) enabled: bool,
    pub(crate) overlap: Overlap,
    pub(crate) catch_up: CatchUp,
}

impl Schedules {
    pub(crate) fn restore(&mut self, live: LiveSchedules) {
        for row in live.rows {
            self.add(row);
        }
        for (job, name) in live.jobs {
            self.add_job(job, name);
        }
    }

    /// Adds one without a rule.
    pub(crate) fn add(&mut self, row: ScheduleRow) -> ScheduleNo {
        let number = self.entries.last_key_value().map_or(ScheduleNo(0), |(last, _)| ScheduleNo(last.0 + 1));
        self.numbers.insert((row.definition.clone(), row.schedule.clone()), number);
        self.by_definition.entry(row.definition.clone()).or_default();
        self.entries.insert(
            number,
            Entry { row, schedule: None, due_at: None, extendable_row: None, backfilled_in: None },
        );
        number
    }

    /// Adds a job that a schedule of this definition made.
    pub(crate) fn add_job(&mut self, job: JobId, name: Arc<str>) {
        let live = &mut self.by_definition.entry(name.clone()).or_default().live;
        live.insert(job);
        if live.len() > 1 {
            self.with_several_live_jobs.insert(name.clone());
        }
        self.jobs.insert(job, name);
    }

    /// Removes a job that has ended. Returns the first job of the same definition that remains, if this one was made by a schedule.
    pub(crate) fn remove_job(&mut self, job: JobId) -> Option<JobId> {
        self.replaced.remove(&job);
        let name = self.jobs.remove(&job)?;
        let state = self.by_definition.get_mut(&name)?;
        state.live.remove(&job);
        if state.live.len() < 2 {
            self.with_several_live_jobs.remove(&name);
        }
        state.live.first().copied()
    }

    /// A job is cancelled for the job of a later slot. One that was cancelled before, for another reason, is not replaced.
    pub(crate) fn replace(&mut self, job: JobId, by: JobId, is_cancelled: bool) {
        if !is_cancelled || self.replaced.contains_key(&job) {
            self.replaced.insert(job, by);
        }
    }

    /// The job of a later slot that this one is cancelled for.
    pub(crate) fn replaced_by(&self, job: JobId) -> Option<JobId> {
        self.replaced.get(&job).copied()
    }

    /// True if a job must wait for an earlier one of the schedules of its definition.
    pub(crate) fn must_wait(&self, job: JobId) -> bool {
        let Some(state) = self.jobs.get(&job).and_then(|name| self.by_definition.get(name)) else {
            return false;
        };
        state.current.is_some_and(|current| current.overlap != Overlap::Allow)
            && state.live.first().is_some_and(|first| *first < job)
    }

    /// Definitions of which jobs of schedules wait for an earlier one, each with the job that must end first.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (Arc<str>, JobId)> {
        self.with_several_live_jobs.iter().filter_map(|name| {
            let state = self.by_definition.get(name)?;
            state.current.filter(|current| current.overlap != Overlap::Allow)?;
            Some((name.clone(), *state.live.first()?))
        })
    }

    /// When the timer of a schedule is set to, for the audit.
    pub(crate) fn timers(&self) -> impl Iterator<Item = (ScheduleNo, Timestamp)> {
        self.entries.iter().filter_map(|(number, entry)| Some((*number, entry.due_at?)))
    }
}
