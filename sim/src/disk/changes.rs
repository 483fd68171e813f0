//! Applies one change to the rows, and refuses a change that the rows before it do not allow.

use protocol::report::Outcome;
use protocol::{Fence, JobId, Timestamp, Token};
use scheduler::pauses::PauseTarget;
use scheduler::step::{AddedJob, Assigned, Change, Ended, Note};

use super::{Disk, Moved};

impl Disk {
    /// Applies a change, if the rows before it allow it.
    pub(super) fn take(&mut self, change: &Change, moved: &mut Moved<'_>) -> Result<(), String> {
        match change {
            Change::Added(added) => self.take_added(added, moved),
            Change::PendingBatch { first, last } => self.reserve_batch(*first, *last),
            Change::BatchCompleted { first } => self.complete_batch(*first, moved),
            Change::BatchChanged { first, .. } => {
                self.batches.take(change, &self.rows)?;
                self.batches.limit_members(*first, &mut self.rows);
                Ok(())
            }
            Change::BatchAdded(_)
            | Change::BatchReplaced { .. }
            | Change::BatchCancelled { .. }
            | Change::BatchEnded { .. } => self.batches.take(change, &self.rows),
            Change::IdempotencyKeyStored { key, holder, .. } => {
                match self.keys.insert(key.clone(), *holder) {
                    None => Ok(()),
                    Some(_) => Err(format!("the key {key} was given before")),
                }
            }
            Change::Worker(row) | Change::CordonEnded { row, .. } => {
                self.last_worker = self.last_worker.max(row.worker);
                self.workers.insert(row.worker, row.clone());
                Ok(())
            }
            Change::WorkerForgotten(worker) => {
                self.workers.remove(worker);
                Ok(())
            }
            Change::Noted { job, at, note } => {
                self.take_note(*job, *at, note);
                Ok(())
            }
            Change::Expiry { job, at } => {
                match at {
                    Some(at) => drop(self.expiries.insert(*job, *at)),
                    None => drop(self.expiries.remove(job)),
                }
                Ok(())
            }
            Change::Expectation(row) => self.expect(row),
            Change::ExpectationDropped { definition } => {
                self.expectations.remove(definition);
                Ok(())
            }
            Change::Paused { target: PauseTarget::Batch(first), pause } => {
                self.batches.pause(*first, pause, &mut self.rows)?;
                self.schedules.take(change, &self.rows);
                Ok(())
            }
            Change::Schedule(_) | Change::Fire(_) | Change::Paused { .. } => {
                self.schedules.take(change, &self.rows);
                Ok(())
            }
            Change::Hook(row) => {
                let job = row.result.job().and_then(|job| self.row(job));
                let made = job.and_then(|job| self.definitions.get(&job.revision)).cloned();
                self.hooks.decide(row, made.as_deref());
                Ok(())
            }
            Change::Dependency(_) | Change::DependenciesDropped { .. } => self.depend(change),
            Change::ResultsTaken { job, .. } => self.may_follow(*job),
            Change::Unique(row) => self.claim(row),
            Change::Parent(_) | Change::Member(_) | Change::WorkerUsed(_) => self.take_set(change),
            Change::RateUsed(row) => self.use_rate(row),
            Change::NumbersSkipped { after, job, fence, .. } => self.skip_numbers(*after, *job, *fence),
            Change::ContainerGone { token, .. } => self.confirm(*token),
            Change::Assigned(it) => {
                self.may_assign(it)?;
                self.last_fence = it.token.fence;
                self.given.push(it.token);
                self.move_job(it.token.job, change, moved)
            }
            Change::Started { token, .. } | Change::Stopping { token, .. } => {
                self.move_job(token.job, change, moved)
            }
            Change::AttemptClosed { job, .. }
            | Change::BecameDue { job }
            | Change::QuarantineReleased { job } => self.move_job(*job, change, moved),
            Change::Updated(updated) => self.move_job(updated.job, change, moved),
            Change::Ended(it) => {
                self.may_end(it.job, it.state)?;
                if it.state == scheduler::job::State::Succeeded {
                    self.parent_succeeded(it.job, it.at);
                }
                self.move_job(it.job, change, moved)
            }
        }
    }

    /// Adds a job, or keeps it until the batch that is being made is complete.
    fn take_added(&mut self, added: &AddedJob, moved: &mut Moved<'_>) -> Result<(), String> {
        let Some(definition) = self.definitions.get(&added.revision) else {
            return Err(format!("job {} has a definition that was never stored", added.job));
        };
        self.schedules.check_job(added, &definition.name);
        if let Some((numbers, members)) = &mut self.forming
            && added.job.0 == numbers.start + members.len() as u64
            && numbers.contains(&added.job.0)
        {
            members.push(added.clone());
            return Ok(());
        }
        if added.job != JobId(self.last_job().0 + 1) {
            return Err(format!("job {} is added after job {}", added.job, self.last_job()));
        }
        self.rows.push(None);
        self.add(added, moved);
        Ok(())
    }

    /// Reserves the numbers of a large batch, whose members come in slices.
    fn reserve_batch(&mut self, first: JobId, last: JobId) -> Result<(), String> {
        if self.forming.is_some() || first.0 != self.last_job().0 + 1 || last < first {
            return Err(format!("jobs {first} to {last} are reserved after job {}", self.last_job()));
        }
        self.rows.resize(last.0 as usize, None);
        self.forming = Some((first.0..last.0 + 1, Vec::new()));
        Ok(())
    }

    /// Adds the members of a large batch, all of which must have come.
    fn complete_batch(&mut self, first: JobId, moved: &mut Moved<'_>) -> Result<(), String> {
        let whole = self.forming.take().filter(|(numbers, members)| {
            numbers.start == first.0 && numbers.end - numbers.start == members.len() as u64
        });
        let (_, members) = whole.ok_or_else(|| format!("the batch of job {first} is not made"))?;
        members.iter().for_each(|member| self.add(member, moved));
        Ok(())
    }

    fn take_note(&mut self, job: JobId, at: Timestamp, note: &Note) {
        let Some(row) = self.row_mut(job) else { return };
        match note {
            Note::ContainerGone { token, .. } => row.is_told_gone(*token),
            // A released job begins a new wait.
            Note::Released { .. } => row.waits_since = at,
            _ => {}
        }
    }

    /// Leaves out numbers of jobs and fences. Until the store goes back in time, every number that a worker shows was given by it.
    fn skip_numbers(&mut self, after: JobId, job: JobId, fence: Fence) -> Result<(), String> {
        if !self.went_back || after != self.last_job() || job < after || fence < self.last_fence {
            return Err(format!("numbers up to job {job} and fence {fence} are left out"));
        }
        self.gaps.push(after.0 + 1..job.0 + 1);
        self.rows.resize(job.0 as usize, None);
        self.last_fence = fence;
        Ok(())
    }

    fn confirm(&mut self, token: Token) -> Result<(), String> {
        match self.row_mut(token.job).filter(|row| row.is_unconfirmed(token)) {
            Some(row) => {
                row.confirmed = true;
                row.is_told_gone(token);
                Ok(())
            }
            None => Err(format!("{token} is confirmed, and nobody doubted it")),
        }
    }

    /// An attempt has a new fence, and its job may go to a worker now.
    fn may_assign(&mut self, assigned: &Assigned) -> Result<(), String> {
        let token = assigned.token;
        if token.fence <= self.last_fence {
            return Err(format!("fence {} was given before", token.fence));
        }
        if self.batches.is_stopped(token.job, &self.rows) {
            return Err(format!("{token} is of a batch in which too many failed, or that was cancelled"));
        }
        self.batches.check_permit(token.job, &self.rows)?;
        self.may_follow(token.job)?;
        self.may_go(assigned)?;
        let definition = self.row(token.job).and_then(|row| self.definitions.get(&row.revision));
        let counted = self.counted_as(token.job);
        if self.row(counted).is_some_and(|row| row.batch_paused) {
            return Err(format!("I28 {token} is given to a worker while its batch is paused"));
        }
        if definition.is_some_and(|definition| self.schedules.must_wait(definition)) {
            return Err(format!("I28 {token} is given to a worker while its definition is paused"));
        }
        Ok(())
    }

    /// Moves the row of a job along an edge, with what follows from it: successes, hooks, the count of live jobs.
    fn move_job(&mut self, job: JobId, change: &Change, moved: &mut Moved<'_>) -> Result<(), String> {
        self.leave_place(change);
        let (counts, is_member) = (self.counts_as_success(job), self.is_member(job));
        let index = usize::try_from(job.0 - 1).unwrap_or(usize::MAX);
        let Some(Some(row)) = self.rows.get_mut(index) else {
            return Err(format!("job {job} does not exist"));
        };
        if let Change::Ended(Ended { closed: Some(closed), at, .. }) = change
            && closed.outcome == Outcome::Succeeded
            && counts
            && let Some(definition) = self.definitions.get(&row.revision)
        {
            // The clock of the worker may be ahead.
            let succeeded = closed.ended_at.min(*at);
            let latest = self.successes.entry(definition.name.clone()).or_insert(succeeded);
            *latest = succeeded.max(*latest);
        }
        let had_started = row.has_started;
        let edge = row.take(change).map_err(|why| format!("job {job}: {why}"))?;
        if let Some(definition) = self.definitions.get(&row.revision).filter(|_| !is_member) {
            if row.has_started && !had_started {
                self.hooks.started(job, definition);
            }
            if edge.to.has_ended() {
                self.hooks.ended(job, definition, edge.to);
            }
        }
        self.live -= u64::from(edge.to.has_ended());
        moved(change, &edge, &self.rows, index);
        Ok(())
    }
}
