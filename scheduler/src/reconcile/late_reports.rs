//! Notes about reports that come too late to count. Only the worker that had an attempt may leave one: notes make events, and take room in the
//! history of a job. The archive knows who had an ended attempt, so the program around the scheduler asks it first.

use alloc::string::String;

use protocol::{Now, SessionId, Token, WorkerId};

use crate::core::Scheduler;
use crate::step::{Change, Note};

/// Records that the archive knows nothing of these attempts on the worker of this session. They replace those of an earlier report.
pub(crate) fn record_not_owned(scheduler: &mut Scheduler, session: SessionId, tokens: &[Token]) {
    let worker = scheduler.fleet.by_session(session).and_then(|id| scheduler.fleet.worker_mut(id));
    if let Some(session) = worker.and_then(|worker| worker.link.state_mut()) {
        session.not_owned = tokens.iter().copied().collect();
    }
}

/// Records a report about an attempt that is not current, and changes nothing else. Nothing if the worker never had the attempt.
pub(crate) fn record(scheduler: &mut Scheduler, now: Now, worker: WorkerId, token: Token, said: &str) {
    let session = scheduler.fleet.worker(worker).and_then(|worker| worker.link.state());
    if session.is_some_and(|session| session.not_owned.contains(&token)) {
        return;
    }
    let note = Note::LateReport { token, worker, said: String::from(said) };
    scheduler.change(Change::Noted { job: token.job, at: now.utc, note });
}
