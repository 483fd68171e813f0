//! Commands of the HTTP API become inputs of the scheduler, and questions about it are answered.

use protocol::Now;
use scheduler::input::{
    BackfillRequest, CancelBatchRequest, CancelRequest, ChangeBatchRequest, Input, PauseRequest,
    ReleaseRequest, Submit, UpdateRequest,
};

use super::{Command, Engine};

impl Engine {
    /// Applies a command, or answers a question.
    pub(super) fn step_command(&mut self, now: Now, command: Command) {
        match command {
            Command::Submit { jobs, batch, require_worker, key: idempotency_key, reply } => {
                let request =
                    Submit { ticket: self.ticket(reply), jobs, batch, require_worker, idempotency_key };
                self.step(now, Input::Submit(request));
            }
            Command::Cancel { job, scope, by, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Cancel(CancelRequest { ticket, job, scope, by }));
            }
            Command::CancelBatch { batch, by, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::CancelBatch(CancelBatchRequest { ticket, batch, by }));
            }
            Command::ChangeBatch { batch, update, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::ChangeBatch(ChangeBatchRequest { ticket, batch, update }));
                self.snapshot_urgent = true;
            }
            Command::Release { job, by, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Release(ReleaseRequest { ticket, job, by }));
            }
            Command::Update { job, update, by, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Update(UpdateRequest { ticket, job, update, by }));
            }
            Command::Operate { worker, operation, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Operate(ticket, worker, operation));
                self.snapshot_urgent = true;
            }
            Command::ReserveLabels { names, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::ReserveLabels(ticket, names));
                self.snapshot_urgent = true;
            }
            Command::Pause { target, paused, until, origin, reply } => {
                let ticket = self.ticket(reply);
                self.step(now, Input::Pause(PauseRequest { ticket, target, paused, until, origin }));
                self.snapshot_urgent = true;
            }
            Command::MissingSecrets(revisions) => {
                self.step(now, Input::MissingSecrets(revisions));
            }
            Command::Backfill { definition, schedule, slots, interval, by: submitted_by, read_at, reply } => {
                let ticket = self.ticket(reply);
                let request =
                    BackfillRequest { ticket, definition, schedule, slots, interval, submitted_by, read_at };
                self.step(now, Input::Backfill(request));
            }
            Command::Explain { job, reply } => {
                self.explains.push((job, reply));
            }
            Command::Limits { selection, reply } => {
                self.open.effects.limits.push((reply, self.scheduler.limits(now, &selection)));
            }
            Command::PendingReasons { jobs, reply } => {
                self.open.effects.reasons.push((reply, self.scheduler.pending_reasons(&jobs)));
            }
            Command::AwaitEnd { job, reply } => {
                if self.scheduler.is_live(job) {
                    self.dispatcher.await_end(job, reply);
                } else {
                    self.open.effects.not_live.push(reply);
                }
            }
            Command::AddDefinition { definition } => {
                self.dispatcher.events.learn(definition.revision, &definition.name);
                self.step(now, Input::AddDefinition(definition));
            }
            Command::ReplaceDefinitions { definitions } => self.define(now, &definitions),
        }
    }
}
