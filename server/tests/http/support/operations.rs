//! Operations on the workers of the stand-in, and changes of its jobs.

use protocol::{JobId, Timestamp};
use scheduler::fleet::row::{Drain, WorkerRow};
use scheduler::input::{JobUpdate, Operation};
use scheduler::job::State;
use scheduler::origin::{Intervention, Origin};
use scheduler::snapshot::{Snapshot, WorkerState};
use scheduler::step::{Answer, Note, Rejection};

use super::world::{CREATED_AT, World};

/// Changes the row of a worker as an operation says.
pub(super) fn operate(row: &mut WorkerRow, operation: &Operation) {
    match operation {
        Operation::Cordon { until, origin } => {
            (row.cordoned, row.cordon) = (true, Some(Intervention { until: *until, ..cordon(origin) }));
        }
        Operation::Uncordon => (row.cordoned, row.cordon, row.drain) = (false, None, None),
        Operation::Drain(timeout, origin) => {
            row.cordon = Some(cordon(origin));
            let deadline = timeout.map(|timeout| Timestamp(1_000) + timeout);
            (row.cordoned, row.drain) = (true, Some(Drain { process: None, deadline }));
        }
        Operation::Slots(slots) => row.slots = Some(*slots),
        Operation::Labels(changes) => {
            for (name, value) in changes {
                row.labels.retain(|(known, _)| known != name);
                row.labels.extend(value.clone().map(|value| (name.clone(), value)));
            }
        }
        Operation::Revoke => row.revoked_at = Some(Timestamp(1_000)),
        Operation::Forget | Operation::Reset | Operation::StopUnmanaged(_) => {}
    }
}

fn cordon(origin: &Origin) -> Intervention {
    Intervention { since: Timestamp(1_000), until: None, origin: origin.clone() }
}

/// The snapshot shows an operation before its answer.
pub(super) fn show(snapshot: &mut Snapshot, row: &WorkerRow) {
    let Some(mut worker) = snapshot.workers.get(row.worker).cloned() else { return };
    (worker.cordoned, worker.drain_deadline) = (row.cordoned, row.drain.and_then(|drain| drain.deadline));
    worker.cordon.clone_from(&row.cordon);
    worker.state = if row.drain.is_some() { WorkerState::Draining } else { WorkerState::Ready };
    worker.slots = row.slots.unwrap_or(worker.slots);
    worker.set_labels.clone_from(&row.labels);
    snapshot.workers.set(row.worker, Some(worker));
}

/// Changes a job that waits.
pub(super) fn update(world: &mut World, job: JobId, update: JobUpdate, by: String) -> Answer {
    let Some(record) = world.jobs.iter_mut().find(|record| record.row.job == job) else {
        return Answer::Rejected(Rejection::NotLive);
    };
    let row = &mut record.row;
    match row.state {
        State::Scheduled | State::Queued => {
            row.due_at = update.run_at.map_or(row.due_at, |start| start.resolve(CREATED_AT));
            row.priority = update.priority.unwrap_or(row.priority);
            row.state = if row.due_at > CREATED_AT { State::Scheduled } else { State::Queued };
            let (due_at, priority) = (row.due_at, row.priority);
            record.notes.push((Timestamp(5_000), Note::Updated { by, due_at, priority }));
            Answer::Done
        }
        state if state.has_ended() => Answer::Rejected(Rejection::NotLive),
        state => Answer::Rejected(Rejection::NotWaiting(state)),
    }
}
