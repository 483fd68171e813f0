//! The text file that describes a refused group, for bug reports.
//!
//! It names rows and states only: no values of variables, arguments, labels, results or messages, no keys, no secrets, no nonces. Operators
//! may attach it to a bug report.

use std::fmt::Write as _;

use scheduler::step::{AddedJob, Change, ClosedAttempt, Note};

use crate::store::{CommitError, Group};

/// Describes a refused group, a line for each change.
pub(super) fn describe(error: &CommitError, group: &Group) -> String {
    let mut text = format!(
        "{error}\n\nLongshore {}, epoch {}, group {}, decided at {} ms\n",
        env!("CARGO_PKG_VERSION"),
        group.epoch,
        group.number.0,
        group.at.0
    );
    for definition in &group.definitions {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "definition {} revision {}", definition.name, definition.revision);
    }
    for change in &group.changes {
        let _ = writeln!(text, "{}", describe_change(change));
    }
    text
}

fn describe_change(change: &Change) -> String {
    match change {
        Change::Added(it) => describe_added(it),
        Change::Assigned(it) => format!(
            "job {} assigned: attempt {} is {} on worker {}, session {}, at {}",
            it.token.job, it.number, it.token, it.worker, it.session, it.at.0
        ),
        Change::Started { token, at, .. } => format!("{token} started at {}", at.0),
        Change::Stopping { token, cause, at, .. } => {
            format!("{token} stopping: {} at {}", cause.name(), at.0)
        }
        Change::AttemptClosed { job, closed, due_at, state } => {
            format!(
                "job {job} waits again as {}, due {}, after {}",
                state.name(),
                due_at.0,
                describe_attempt(closed)
            )
        }
        Change::Expectation(row) => format!("expectation of {}", row.definition),
        Change::ExpectationDropped { definition } => format!("no expectation of {definition}"),
        Change::BecameDue { job } => format!("job {job} due"),
        Change::Expiry { job, at: Some(at) } => format!("job {job} expires {}", at.0),
        Change::Expiry { job, at: None } => format!("job {job} does not expire"),
        Change::QuarantineReleased { job } => format!("job {job} freed"),
        Change::Updated(it) => format!("job {} changed to {} due {}", it.job, it.state.name(), it.due_at.0),
        Change::Ended(it) => {
            let closed = it.closed.as_ref().map_or_else(|| "no attempt".to_owned(), describe_attempt);
            let (state, confirmed) = (it.state.name(), it.confirmed);
            format!("job {} ended as {state} at {}, confirmed {confirmed}, with {closed}", it.job, it.at.0)
        }
        Change::ContainerGone { token, worker, at } => {
            format!("{token} gone from worker {worker} at {}", at.0)
        }
        Change::Noted { job, at, note } => format!("job {job} noted at {}: {}", at.0, describe_note(note)),
        Change::BatchAdded(it) => format!("batch {} of {} jobs", it.first, it.count),
        Change::BatchCancelled { first, at, .. } => format!("batch {first} cancelled at {}", at.0),
        Change::BatchReplaced { first, by } => format!("batch {first} replaced by batch {by}"),
        Change::BatchChanged { first, limits } => format!("batch {first} changed: {limits:?}"),
        Change::BatchEnded { first, at, .. } => format!("batch {first} ended at {}", at.0),
        Change::PendingBatch { first, last } => format!("pending batch of jobs {first} to {last}"),
        Change::BatchCompleted { first } => format!("batch of jobs from {first} on completed"),
        Change::IdempotencyKeyStored { key, holder, at } => {
            format!(
                "a key of {} bytes for job {} and {} in all, at {}",
                key.len(),
                holder.job,
                holder.count,
                at.0
            )
        }
        Change::NumbersSkipped { after, job, fence, .. } => {
            format!("jobs after {after} up to {job} left out, and fences up to {fence}")
        }
        Change::Worker(row) | Change::CordonEnded { row, .. } => format!(
            "worker {} joined {} seen {} cordoned {} until {:?} slots {:?} drain {:?} labels {}",
            row.worker,
            row.joined_at.0,
            row.seen_at.0,
            row.cordoned,
            row.cordon_end().map(|at| at.0),
            row.slots,
            row.drain,
            row.labels.len()
        ),
        Change::WorkerForgotten(worker) => format!("worker {worker} forgotten"),
        Change::Schedule(row) => {
            format!("schedule {}/{} decided until {}", row.definition, row.schedule, row.cursor.0)
        }
        Change::Fire(row) => format!(
            "slots {} to {} of schedule {}/{}: {:?}",
            row.from.0, row.to.0, row.definition, row.schedule, row.verdict
        ),
        Change::Hook(row) => {
            format!("hook {} of job {}: {:?}", row.event.name(), row.parent, row.result)
        }
        Change::Dependency(row) => {
            format!("job {} comes after {} ({}): {:?}", row.job, row.on, row.requires.name(), row.ended)
        }
        Change::DependenciesDropped { job, .. } => format!("job {job} waits for no others any more"),
        Change::ResultsTaken { job, .. } => format!("job {job} takes parameters from results"),
        Change::RateUsed(row) => format!("{} recovers at {}", row.id, row.recovered.0),
        Change::Parent(row) => format!("job {} has members: {:?}", row.job, row.counts),
        Change::Member(row) => format!("job {} is a member of job {}", row.job, row.parent),
        Change::WorkerUsed(of) => format!("job {} was on worker {}", of.member, of.worker),
        Change::Unique(row) => format!("key {} of {}: {:?}", row.id.key, row.id.definition, row.holder),
        Change::Paused { target, pause } => format!("{target:?} paused: {}", pause.in_force().is_some()),
    }
}

fn describe_added(it: &AddedJob) -> String {
    let mut text = format!(
        "job {} added as {}, revision {}, priority {}, created {}, due {}",
        it.job,
        it.state.name(),
        it.revision,
        it.priority,
        it.created_at.0,
        it.due_at.0
    );
    if let Some(batch) = it.batch {
        let _ = write!(text, ", batch {batch}");
    }
    if let Some(old) = it.retry_of {
        let _ = write!(text, ", retry of {old}");
    }
    if let Some(details) = &it.details {
        let (variables, args) = (details.overrides.environment.len(), details.overrides.args.len());
        let _ =
            write!(text, ", with {variables} variables, {args} arguments, {} labels", details.labels.len());
    }
    text
}

fn describe_attempt(it: &ClosedAttempt) -> String {
    format!(
        "{} {} exit {:?}, started {:?}, ended {}",
        it.token,
        it.outcome.name(),
        it.exit_code,
        it.started_at.map(|at| at.0),
        it.ended_at.0
    )
}

fn describe_note(note: &Note) -> String {
    match note {
        Note::CancelRequested { .. } => "cancel requested".to_owned(),
        Note::Released { .. } => "released by an operator".to_owned(),
        Note::Updated { .. } => "changed by a client".to_owned(),
        Note::ResultLeftOut { .. } => "a part of its parent's result left out".to_owned(),
        Note::WorkersLeftOut { .. } => "workers without a member".to_owned(),
        Note::ContainerGone { token, worker } => format!("{token} gone from worker {worker}"),
        Note::LateReport { token, worker, said } => {
            format!("late report of {token} by worker {worker}: {said}")
        }
        Note::Unreachable { token, worker } => format!("{token} unreachable on worker {worker}"),
        Note::Revived { token, worker } => format!("{token} revived on worker {worker}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::container::Overrides;
    use protocol::report::{Outcome, OutputLengths};
    use protocol::{Fence, JobId, Nonce, Revision, Timestamp, Token, WorkerId};
    use scheduler::details::JobDetails;
    use scheduler::fleet::row::WorkerRow;
    use scheduler::input::KeyHolder;
    use scheduler::job::State;
    use scheduler::step::Ended;

    use super::*;
    use crate::store::StoredDefinition;

    #[test]
    fn report_of_refused_group_names_rows_and_no_secrets() {
        let secret = || "hunter2".to_owned();
        let pair = || vec![("NAME".to_owned(), secret())];
        let overrides = Overrides { environment: pair(), args: vec![secret()], input: Some(secret()) };
        let token = Token { job: JobId(7), fence: Fence(9), nonce: Nonce(0x6875_6e74_6572_3200) };
        let closed = ClosedAttempt {
            token,
            outcome: Outcome::Failed,
            exit_code: Some(3),
            message: secret(),
            started_at: None,
            ended_at: Timestamp(5),
            output: OutputLengths::default(),
            usage: Default::default(),
            result: Some(secret()),
            released: None,
        };
        let changes = vec![
            Change::Added(AddedJob {
                job: JobId(7),
                revision: Revision(1),
                state: State::Queued,
                priority: 0,
                created_at: Timestamp(1),
                due_at: Timestamp(1),
                timeout: None,
                batch: Some(JobId(6)),
                retry_of: None,
                submitted_by: None,
                narrowing: None,
                keys: None,
                details: Some(Box::new(JobDetails { overrides, labels: pair(), ..JobDetails::default() })),
            }),
            Change::IdempotencyKeyStored {
                key: secret().into(),
                holder: KeyHolder { job: JobId(7), count: 1, digest: 2 },
                at: Timestamp(1),
            },
            Change::Started { token, at: Timestamp(2), container: secret() },
            Change::Ended(Ended {
                job: JobId(7),
                state: State::Failed,
                at: Timestamp(5),
                reason: secret(),
                closed: Some(closed),
                confirmed: true,
            }),
            Change::Worker(WorkerRow {
                worker: WorkerId(3),
                name: "w".into(),
                secret_hash: [0x68; 32],
                joined_at: Timestamp(1),
                seen_at: Timestamp(1),
                cordoned: false,
                cordon: None,
                slots: None,
                drain: None,
                labels: pair(),
                process: None,
                join_token: None,
                granted: Vec::new(),
                revoked_at: None,
            }),
        ];
        let stored = StoredDefinition { revision: Revision(1), name: "resize".into(), entry: secret() };
        let group = Group { changes, definitions: vec![Arc::new(stored)], ..Group::default() };
        let text = describe(&CommitError::Refused("job 7: expected nothing".into()), &group);
        for expected in [
            "job 7: expected nothing",
            "definition resize",
            "job 7 added as queued",
            "batch 6",
            "7#9 failed",
            "worker 3",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert_eq!(text.lines().count(), 3 + 6, "{text}");
        let nonce = token.nonce.0;
        let secrets = [
            "hunter2".to_owned(),
            "104, 104".to_owned(),
            nonce.to_string(),
            format!("{nonce:x}"),
            "6868".to_owned(),
        ];
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    }
}
