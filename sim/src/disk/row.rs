//! One job as it is stored, and the only moves that it may make.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::order::StopCause;
use protocol::report::Outcome;
use protocol::{AttemptNo, Epoch, Fence, JobId, Revision, SessionId, Timestamp, Token, WorkerId};
use scheduler::dependencies::SKIPPED;
use scheduler::job::{AttemptTimeout, LastPlacement, State};
use scheduler::limits::LimitId;
use scheduler::limits::keys::JobKeys;
use scheduler::limits::rate::Rate;
use scheduler::placement::narrowing::Narrowing;
use scheduler::restore::{LiveAttempt, LiveJob, Unconfirmed};
use scheduler::step::{AddedJob, Change, ClosedAttempt};
use scheduler::unique::UniqueId;

/// A job.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) revision: Revision,
    pub(crate) state: State,
    pub(crate) priority: i8,
    pub(crate) due_at: Timestamp,
    /// Not after the begin of the present wait.
    pub(crate) waits_since: Timestamp,
    pub(crate) timeout: Option<AttemptTimeout>,
    /// The workers that it asks for.
    pub(crate) narrowing: Option<Arc<Narrowing>>,
    /// The name of the requester, if a request made it.
    pub(crate) submitted_by: Option<Arc<str>>,
    pub(crate) keys: Option<Box<JobKeys>>,
    /// The limit on jobs at once that it needs, and its value.
    pub(crate) permit: Option<(LimitId, usize)>,
    /// The rate that it needs, and its value.
    pub(crate) rate: Option<(LimitId, Rate)>,
    /// The batch that limits how many of its members hold a worker, and that number.
    pub(crate) limited_by: Option<(JobId, usize)>,
    /// Its batch is paused.
    pub(crate) batch_paused: bool,
    /// Its unique key, since it was given one.
    pub(crate) unique: Option<UniqueId>,
    pub(crate) job_failures: u32,
    pub(crate) oom_kills: u32,
    pub(crate) losses: Vec<Timestamp>,
    pub(crate) attempts: AttemptNo,
    /// A container of it has started, in any attempt.
    pub(crate) has_started: bool,
    pub(crate) confirmed: bool,
    /// It was cancelled because nothing that it requires went wrong.
    pub(crate) skipped: bool,
    /// The placement of the last attempt that is over and was not given back.
    pub(crate) last: Option<LastPlacement>,
    /// Attempts that were lost, each with who had it, and of which nobody has told since that they are gone.
    lost: Vec<(Token, WorkerId)>,
    /// GPUs of all attempts, by fence.
    gpus: BTreeMap<Fence, Vec<String>>,
    /// The latest attempt, over or not.
    pub(crate) latest: Option<Tried>,
    /// The one before, for the story of a failure.
    pub(crate) before: Option<Token>,
}

/// An attempt.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) token: Token,
    pub(crate) worker: WorkerId,
    pub(crate) session: SessionId,
    pub(crate) assigned_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) stopping: Option<StopCause>,
    /// It was to be stopped because its worker leaves or is not listed any more, whatever was ordered after that.
    pub(crate) interrupted: bool,
    pub(crate) outcome: Option<Outcome>,
}

/// A move of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    /// Nothing, if it is new.
    pub(crate) from: Option<State>,
    pub(crate) to: State,
}

impl Row {
    pub(crate) fn new(added: &AddedJob) -> Self {
        Self {
            revision: added.revision,
            state: added.state,
            priority: added.priority,
            due_at: added.due_at,
            waits_since: added.due_at,
            timeout: added.timeout,
            narrowing: added.narrowing.clone(),
            submitted_by: added.submitted_by.clone(),
            keys: added.keys.clone(),
            permit: None,
            rate: None,
            limited_by: None,
            batch_paused: false,
            unique: None,
            job_failures: 0,
            oom_kills: 0,
            losses: Vec::new(),
            attempts: AttemptNo(0),
            has_started: false,
            confirmed: false,
            skipped: false,
            last: None,
            lost: Vec::new(),
            gpus: BTreeMap::new(),
            latest: None,
            before: None,
        }
    }

    /// The current attempt.
    pub(crate) fn current(&self) -> Option<Token> {
        self.latest.as_ref().filter(|latest| latest.outcome.is_none()).map(|latest| latest.token)
    }

    /// Makes the move that a change asks for.
    ///
    /// # Errors
    /// It is none that this row may make.
    pub(crate) fn take(&mut self, change: &Change) -> Result<Edge, String> {
        let from = Some(self.state);
        match change {
            Change::Assigned(it) => {
                self.expect(self.state == State::Queued, "is assigned")?;
                self.expect(it.number == AttemptNo(self.attempts.0 + 1), "is tried under a wrong number")?;
                self.state = State::Assigned;
                self.attempts = it.number;
                let tried = Tried {
                    token: it.token,
                    worker: it.worker,
                    session: it.session,
                    assigned_at: it.at,
                    started_at: None,
                    stopping: None,
                    interrupted: false,
                    outcome: None,
                };
                if !it.gpus.is_empty() {
                    self.gpus.insert(it.token.fence, it.gpus.clone());
                }
                self.before = self.latest.replace(tried).map(|before| before.token);
            }
            Change::Started { token, at, .. } => {
                self.expect(self.state == State::Assigned && self.current() == Some(*token), "starts")?;
                (self.state, self.has_started) = (State::Running, true);
                self.update(|latest| latest.started_at = Some(*at));
            }
            Change::Stopping { token, cause, .. } => {
                self.expect(self.current() == Some(*token), "is being stopped")?;
                // The cause recorded first stays, but a cancel is never dropped.
                self.update(|latest| {
                    let first = latest.stopping.filter(|_| *cause != StopCause::Cancel);
                    latest.stopping = first.or(Some(*cause));
                    latest.interrupted |= matches!(cause, StopCause::Drain | StopCause::Pinning);
                });
            }
            Change::AttemptClosed { closed, due_at, state, .. } => {
                self.close(closed, "waits again")?;
                (self.state, self.due_at) = (*state, *due_at);
                let has_started = self.latest.as_ref().is_some_and(|latest| latest.started_at.is_some());
                // An attempt that was given back unstarted goes on with its wait.
                if has_started || !matches!(closed.outcome, Outcome::Released | Outcome::Interrupted) {
                    self.waits_since = *due_at;
                }
                self.count(closed);
            }
            Change::BecameDue { .. } => {
                self.expect(self.state == State::Scheduled, "is due")?;
                self.state = State::Queued;
            }
            Change::Updated(it) => {
                self.expect(matches!(self.state, State::Scheduled | State::Queued), "is changed")?;
                (self.state, self.due_at, self.priority) = (it.state, it.due_at, it.priority);
                self.waits_since = self.waits_since.min(it.due_at);
            }
            Change::QuarantineReleased { .. } => {
                self.expect(self.state == State::Quarantined, "is let go on")?;
                self.state = State::Queued;
                self.losses.clear();
            }
            Change::Ended(it) => {
                match &it.closed {
                    Some(closed) => {
                        self.close(closed, "ends")?;
                        self.count(closed);
                    }
                    None => self.expect(self.current().is_none() && !self.state.has_ended(), "ends")?,
                }
                self.expect(it.state.has_ended(), "ends in a state that is none")?;
                (self.state, self.confirmed) = (it.state, it.confirmed);
                self.skipped = it.reason.starts_with(SKIPPED);
            }
            _ => return Err("a change that is not about a row".into()),
        }
        Ok(Edge { from, to: self.state })
    }

    /// Somebody has told that this attempt is gone.
    pub(crate) fn is_told_gone(&mut self, token: Token) {
        self.lost.retain(|(of, _)| *of != token);
    }

    /// True if this is an attempt of a cancelled job that nobody knows to be gone.
    pub(crate) fn is_unconfirmed(&self, token: Token) -> bool {
        self.unconfirmed().any(|it| it.token == token)
    }

    /// The attempts of a cancelled job that nobody knows to be gone.
    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = Unconfirmed> {
        let revision = self.revision;
        let lost = self.lost.iter().filter(|_| self.state == State::Cancelled && !self.confirmed);
        lost.map(move |(token, worker)| {
            let gpus = self.gpus.get(&token.fence).cloned().unwrap_or_default();
            Unconfirmed { token: *token, worker: *worker, revision, gpus }
        })
    }

    /// As a start of the server hands it to the scheduler. What was given in a term before the last restore may have begun.
    pub(crate) fn live(&self, job: JobId, restored_in: Epoch) -> LiveJob {
        let current = self.latest.as_ref().filter(|latest| latest.outcome.is_none());
        LiveJob {
            job,
            revision: self.revision,
            state: self.state,
            priority: self.priority,
            due_at: self.due_at,
            expires_at: None,
            timeout: self.timeout,
            has_overrides: false,
            narrowing: self.narrowing.clone(),
            keys: self.keys.clone(),
            job_failures: self.job_failures,
            oom_kills: self.oom_kills,
            losses: self.losses.clone(),
            lost: self.lost.clone(),
            gpus: self.gpus.clone(),
            attempts: self.attempts,
            has_started: self.has_started,
            hook_depth: 0,
            last: self.last,
            attempt: current.map(|latest| LiveAttempt {
                token: latest.token,
                worker: latest.worker,
                session: latest.session,
                assigned_at: latest.assigned_at,
                started_at: latest.started_at,
                stopping: latest.stopping,
                // Reasons are not compared.
                cancelled_by: None,
                from_backup: latest.session.0 >> 32 < restored_in.0,
            }),
        }
    }

    fn close(&mut self, closed: &ClosedAttempt, what: &str) -> Result<(), String> {
        let holds = matches!(self.state, State::Assigned | State::Running);
        self.expect(holds && self.current() == Some(closed.token), what)?;
        self.has_started |= closed.started_at.is_some();
        self.update(|latest| {
            latest.outcome = Some(closed.outcome);
            latest.started_at = closed.started_at.or(latest.started_at);
        });
        if closed.outcome == Outcome::Lost {
            self.lost.extend(self.latest.as_ref().map(|latest| (latest.token, latest.worker)));
        }
        Ok(())
    }

    fn count(&mut self, closed: &ClosedAttempt) {
        let latest = self.latest.as_ref().filter(|_| closed.outcome != Outcome::Released);
        if let Some(latest) = latest {
            let infrastructure_failure = uses_platform_budget(closed.outcome);
            self.last = Some(LastPlacement { worker: latest.worker, infrastructure_failure });
        }
        if uses_own_budget(closed.outcome) {
            self.job_failures += 1;
        }
        self.oom_kills += u32::from(closed.outcome == Outcome::OomKilled);
        if uses_platform_budget(closed.outcome) {
            scheduler::retry::record_loss(&mut self.losses, closed.ended_at);
        }
    }

    fn update(&mut self, change: impl FnOnce(&mut Tried)) {
        if let Some(latest) = &mut self.latest {
            change(latest);
        }
    }

    fn expect(&self, holds: bool, what: &str) -> Result<(), String> {
        if holds {
            return Ok(());
        }
        let current = self.current().map_or_else(|| "no attempt".to_owned(), |token| token.to_string());
        Err(format!("it {what}, but it is {} with {current}", self.state.name()))
    }
}

/// The user's budget, by docs/design/scheduling.md, Q2: stated here once more, so that the scheduler's own table is compared with another one.
pub(crate) const fn uses_own_budget(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Failed | Outcome::OomKilled | Outcome::TimedOut | Outcome::PullFailed | Outcome::StartFailed
    )
}

/// The platform's.
pub(crate) const fn uses_platform_budget(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Lost | Outcome::DaemonLost | Outcome::HostFailed)
}
