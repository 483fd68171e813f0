//! The store: rows that are durable. A group becomes durable at once or not at all; what was decided and is not in here dies with the
//! server's process. It checks each change against the row before it as the real stores do, and is told nothing else by anyone.

mod batches;
mod changes;
mod dependencies;
mod hooks;
mod limits;
mod row;
mod run_on;
mod schedules;
mod unique;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use protocol::{ClusterId, Epoch, Fence, JobId, Now, Revision, Timestamp, Token, WorkerId};
use scheduler::definition::Definition;
use scheduler::expectations::ExpectationRow;
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::GroupNo;
use scheduler::input::KeyHolder;
use scheduler::limits::LimitId;
use scheduler::restore::LiveJob;
use scheduler::step::{AddedJob, Change};
use scheduler::{Config, Counters, Scheduler};

pub(crate) use row::{Edge, Row, uses_own_budget, uses_platform_budget};

use crate::clock::Moment;

/// Changes that become durable together.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) epoch: Epoch,
    pub(crate) number: GroupNo,
    pub(crate) definitions: Vec<Arc<Definition>>,
    pub(crate) changes: Vec<Change>,
}

/// Hears of each move of a job: with all rows, and the index of its own.
pub(crate) type Moved<'h> = dyn FnMut(&Change, &Edge, &[Option<Row>], usize) + 'h;

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) cluster: ClusterId,
    pub(crate) epoch: Epoch,
    pub(crate) group: GroupNo,
    pub(crate) workers: BTreeMap<WorkerId, WorkerRow>,
    pub(crate) keys: BTreeMap<Arc<str>, KeyHolder>,
    pub(crate) schedules: schedules::Schedules,
    pub(crate) hooks: hooks::Hooks,
    /// When rates have recovered.
    rates: BTreeMap<LimitId, Timestamp>,
    unique: unique::UniqueKeys,
    sets: run_on::Sets,
    dependencies: dependencies::Dependencies,
    /// The epoch of the last commit.
    committed_in: Epoch,
    last_fence: Fence,
    last_worker: WorkerId,
    definitions: BTreeMap<Revision, Arc<Definition>>,
    /// Job 1 first. None where a number was reserved: for a batch that is being made, or never was.
    rows: Vec<Option<Row>>,
    /// The batch that is being made, where nobody sees it: what was added so far.
    forming: Option<(Range<u64>, Vec<AddedJob>)>,
    batches: batches::Batches,
    /// State of expectations by name.
    pub(crate) expectations: BTreeMap<Arc<str>, ExpectationRow>,
    /// The latest success of each definition, by name.
    successes: BTreeMap<String, Timestamp>,
    /// The shortest time between two successes that any version of a definition expects.
    within: BTreeMap<String, Duration>,
    /// Deadlines of jobs that wait.
    pub(crate) expiries: BTreeMap<JobId, Timestamp>,
    /// Jobs that have not ended.
    pub(crate) live: u64,
    /// The group that was refused last.
    pub(crate) refused: Option<(Epoch, GroupNo)>,
    /// Until then commits are not told to have succeeded.
    pub(crate) stalled_until: Moment,
    /// Every attempt that was ever given, by its fence.
    given: Vec<Token>,
    /// Numbers of jobs that are left out: another life of this store may have given them.
    gaps: Vec<Range<u64>>,
    /// True if it is an old state that has come back.
    went_back: bool,
    /// The term that the last restore went up to. Nobody notes one if an old state came back as it was.
    restored_in: Epoch,
}

impl Disk {
    pub(crate) fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            epoch: Epoch(0),
            group: GroupNo(0),
            workers: BTreeMap::new(),
            keys: BTreeMap::new(),
            schedules: schedules::Schedules::default(),
            hooks: hooks::Hooks::default(),
            rates: BTreeMap::new(),
            unique: BTreeMap::new(),
            sets: run_on::Sets::default(),
            dependencies: dependencies::Dependencies::default(),
            committed_in: Epoch(0),
            last_fence: Fence(0),
            last_worker: WorkerId(0),
            definitions: BTreeMap::new(),
            rows: Vec::new(),
            forming: None,
            batches: batches::Batches::default(),
            expectations: BTreeMap::new(),
            successes: BTreeMap::new(),
            within: BTreeMap::new(),
            expiries: BTreeMap::new(),
            live: 0,
            refused: None,
            stalled_until: Moment(0),
            given: Vec::new(),
            gaps: Vec::new(),
            went_back: false,
            restored_in: Epoch(0),
        }
    }

    /// An old state becomes the present one.
    pub(crate) fn go_on(&mut self, kind: crate::backup::BackupKind, present: &Self) {
        (self.went_back, self.stalled_until) = (true, present.stalled_until);
        if kind == crate::backup::BackupKind::Raw {
            return;
        }
        let last = self.last_job().0;
        let until = last.max(present.last_job().0) + NUMBERS_LEFT_OUT;
        self.gaps.push(last + 1..until + 1);
        self.rows.resize(until as usize, None);
        self.last_fence = Fence(self.last_fence.max(present.last_fence).0 + NUMBERS_LEFT_OUT);
        self.last_worker = WorkerId(self.last_worker.max(present.last_worker).0 + NUMBERS_LEFT_OUT);
        self.epoch = Epoch(self.epoch.max(present.epoch).0 + NUMBERS_LEFT_OUT);
        self.restored_in = self.epoch;
    }

    /// True if this attempt was never given by this store, nor by one that has only forgotten its job.
    pub(crate) fn is_unknown(&self, token: Token) -> bool {
        let was_given = self.given.binary_search_by_key(&token.fence, |it| it.fence);
        if was_given.is_ok_and(|index| self.given[index] == token) {
            return false;
        }
        self.row(token.job).is_some()
            || token.job > self.last_job()
            || self.gaps.iter().any(|gap| gap.contains(&token.job.0))
    }

    /// The fences up to this one may have been given by this store.
    pub(crate) const fn last_fence(&self) -> Fence {
        self.last_fence
    }

    /// Removes what was made of a batch that was never finished, raises the epoch, and makes a scheduler of what has not ended.
    ///
    /// # Errors
    /// A live job refers to something that is not here.
    pub(crate) fn load(&mut self, now: Now, mut config: Config) -> Result<Scheduler, String> {
        if let Some((numbers, _)) = self.forming.take() {
            self.batches.forget(JobId(numbers.start));
        }
        self.epoch = Epoch(self.epoch.0 + 1);
        config.epoch = self.epoch;
        let last = Counters {
            job: self.last_job(),
            fence: self.last_fence,
            worker: self.last_worker,
            group: self.group,
        };
        let mut scheduler = Scheduler::new(config, last);
        let live = || self.rows().filter(|(_, row)| !row.state.has_ended());
        for revision in live().map(|(_, row)| row.revision) {
            if let Some(definition) = self.definitions.get(&revision) {
                scheduler.restore_definition(definition.clone());
            }
        }
        for row in self.workers.values() {
            scheduler.restore_worker(now, row.clone());
        }
        let mut unconfirmed_attempts = Vec::new();
        for (_, row) in self.rows() {
            for unconfirmed in row.unconfirmed() {
                if let Some(definition) = self.definitions.get(&row.revision) {
                    scheduler.restore_definition(definition.clone());
                }
                unconfirmed_attempts.push(unconfirmed);
            }
        }
        scheduler.restore_unconfirmed(&unconfirmed_attempts);
        let is_live = |job| self.row(job).is_some_and(|row| !row.state.has_ended());
        scheduler.restore_rates(now, &limits::rows(&self.rates));
        scheduler.restore_schedules(self.schedules.live(is_live));
        scheduler.restore_expectations(self.expectations.values().cloned().collect());
        self.batches.live(&self.rows).for_each(|batch| scheduler.restore_batch(batch));
        scheduler.restore_parents(self.live_parents());
        for (job, row) in live() {
            let (expires_at, hook_depth) = (self.expiries.get(&job).copied(), self.hooks.depth_of(job));
            let live = LiveJob { expires_at, hook_depth, ..row.live(job, self.restored_in) };
            if !scheduler.restore_job(now, live) {
                return Err(format!("job {job} cannot be taken in at a start"));
            }
        }
        scheduler.restore_unique(&self.unique_rows());
        scheduler.restore_dependencies(&self.open_dependencies());
        Ok(scheduler)
    }

    /// Makes a group durable, unless it is already. Tells each move of a job.
    ///
    /// # Errors
    /// The scheduler contradicts a row: a real store would refuse the group.
    pub(crate) fn apply(&mut self, group: Group, moved: &mut Moved<'_>) -> Result<(), String> {
        if group.epoch != self.epoch {
            return Err(format!("epoch {} writes although {} does", group.epoch, self.epoch));
        }
        if self.refused == Some((group.epoch, group.number)) {
            return Err(format!("group {} was refused, and comes again", group.number.0));
        }
        if group.number <= self.group {
            return Ok(());
        }
        self.group = group.number;
        let is_start = std::mem::replace(&mut self.committed_in, group.epoch) != group.epoch;
        self.schedules.begin_commit(&group.definitions, is_start);
        for definition in group.definitions {
            self.hooks.define(&definition);
            if let Some(within) = definition.expect.success_within {
                let shortest = self.within.entry(definition.name.clone()).or_insert(within);
                *shortest = within.min(*shortest);
            }
            self.definitions.entry(definition.revision).or_insert(definition);
        }
        for change in &group.changes {
            self.take(change, moved)?;
        }
        self.batches.check_keys(self.forming.as_ref().map(|(numbers, _)| JobId(numbers.start)))?;
        self.schedules.end_commit();
        self.hooks.end_commit();
        Ok(())
    }

    pub(crate) fn last_job(&self) -> JobId {
        JobId(self.rows.len() as u64)
    }

    pub(crate) fn row(&self, job: JobId) -> Option<&Row> {
        self.rows.get(usize::try_from(job.0.checked_sub(1)?).ok()?)?.as_ref()
    }

    fn row_mut(&mut self, job: JobId) -> Option<&mut Row> {
        self.rows.get_mut(usize::try_from(job.0.checked_sub(1)?).ok()?)?.as_mut()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (JobId, &Row)> {
        (1..).map(JobId).zip(&self.rows).filter_map(|(job, row)| Some((job, row.as_ref()?)))
    }

    /// True if the members of a batch are being made.
    pub(crate) const fn is_forming(&self) -> bool {
        self.forming.is_some()
    }

    /// True if this attempt is its job's current one.
    pub(crate) fn is_current(&self, token: Token) -> bool {
        self.row(token.job).is_some_and(|row| row.current() == Some(token))
    }

    /// A definition is stale only after its time without a success.
    fn expect(&mut self, row: &ExpectationRow) -> Result<(), String> {
        let before = self.expectations.insert(row.definition.clone(), row.clone());
        let was_stale = before.as_ref().is_some_and(|before| before.stale_since.is_some());
        if row.awaited_since.is_some() && before.is_none_or(|before| before.awaited_since.is_none()) {
            // It counts from its own beginning, which a clock that was set back may have put before an earlier success.
            self.successes.remove(&*row.definition);
        }
        let Some(since) = row.stale_since.filter(|_| !was_stale) else { return Ok(()) };
        let within = self.within.get(&*row.definition).copied();
        let succeeded = self.successes.get(&*row.definition).copied();
        let is_early = within.zip(succeeded).is_some_and(|(within, last)| since < last + within);
        if within.is_none() || is_early {
            return Err(format!("{} is stale at {}, too early after {succeeded:?}", row.definition, since.0));
        }
        Ok(())
    }

    /// Puts a new job in its place.
    fn add(&mut self, added: &AddedJob, moved: &mut Moved<'_>) {
        let index = added.job.0 as usize - 1;
        let mut row = Row::new(added);
        let definition = self.definitions.get(&added.revision);
        limits::set(&mut row, definition.map(|it| &**it), added);
        row.limited_by = self.batches.limit_of(added.job);
        self.rows[index] = Some(row);
        self.live += 1;
        let edge = Edge { from: None, to: added.state };
        moved(&Change::Added(added.clone()), &edge, &self.rows, index);
    }
}

/// More than any run here gives; the real restore leaves out more.
const NUMBERS_LEFT_OUT: u64 = 100;
