//! A scheduler with workers that do what they are told at once. Its clock is a counter.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use protocol::order::Intervals;
use protocol::report::{
    Availability, Inventory, Numbered, OutputLengths, ReleaseCause, Released, Succeeded, Timing,
};
use protocol::{
    ClusterId, Epoch, Incarnation, Now, Order, Report, ReportNo, Revision, RuntimeKind, SessionId, Timestamp,
    Token, Uptime, VERSIONS,
};
use scheduler::definition::{Definition, LossPolicy, RetryPolicy};
use scheduler::ids::{GroupNo, Ticket};
use scheduler::input::{Connected, Input, Submit};
use scheduler::new_jobs::NewJob;
use scheduler::step::{Answer, Effect};
use scheduler::{Config, Counters, PriorityAgeing, Scheduler, ServerLimits};

/// The scheduler and its workers.
#[derive(Debug)]
pub(super) struct Model {
    scheduler: Scheduler,
    now: Now,
    groups: u64,
    tickets: u64,
    /// Attempts that workers have, the oldest first.
    held: VecDeque<(SessionId, Token)>,
    /// Reports that each session has sent; the number of a session is its index plus one.
    reports: Vec<u64>,
}

impl Model {
    /// A scheduler that knows these definitions.
    pub(super) fn new(definitions: Vec<Definition>) -> anyhow::Result<Self> {
        Self::with_slice(definitions, SLICE)
    }

    /// Likewise; batches with more members than `slice` are made in slices.
    pub(super) fn with_slice(definitions: Vec<Definition>, slice: usize) -> anyhow::Result<Self> {
        let config = Config {
            cluster: ClusterId(1),
            epoch: Epoch(1),
            intervals: Intervals::default(),
            seed: 1,
            slice,
            jobs_max: usize::MAX,
            server_limits: ServerLimits::default(),
            priority_ageing: PriorityAgeing::OFF,
            set_aside_after: Some(std::time::Duration::from_secs(600)),
            params_of_result: scheduler::results::ignore_result,
        };
        let mut model = Self {
            scheduler: Scheduler::new(config, Counters::default()),
            now: Now { utc: Timestamp(1_000_000_000_000), up: Uptime(3_600_000_000_000) },
            groups: 0,
            tickets: 0,
            held: VecDeque::new(),
            reports: Vec::new(),
        };
        model.step(Input::ReplaceDefinitions(definitions.into_iter().map(Arc::new).collect()))?;
        Ok(model)
    }

    /// Connects one more worker.
    pub(super) fn connect(
        &mut self,
        slots: u32,
        backlog: u32,
        labels: Vec<(String, String)>,
    ) -> anyhow::Result<()> {
        let number = self.reports.len() as u64 + 1;
        let mut secret_hash = [0; 32];
        secret_hash[..8].copy_from_slice(&number.to_le_bytes());
        let runtimes = vec![(RuntimeKind::Docker, Availability::Available)];
        self.reports.push(0);
        self.step(Input::Connected(Connected {
            session: SessionId(number),
            name: format!("w{number}").into(),
            secret_hash,
            cluster: None,
            rejoin: false,
            incarnation: Incarnation(1),
            process: number,
            versions: VERSIONS,
            engine: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            slots,
            backlog,
            labels,
            runtimes: runtimes.clone(),
            resources: Default::default(),
            address: "loopback".to_owned(),
            join: Default::default(),
        }))?;
        let inventory = Inventory { runtimes, attempts: Vec::new(), foreign: Vec::new(), last: true };
        self.step(Input::Reported(SessionId(number), Report::Inventory(inventory)))
    }

    /// Submits jobs in batches, and places what can be placed.
    pub(super) fn submit(&mut self, jobs: impl Iterator<Item = NewJob>) -> anyhow::Result<()> {
        let mut jobs = jobs.peekable();
        while jobs.peek().is_some() {
            let batch = jobs.by_ref().take(BATCH).collect();
            let request = self.request(batch);
            self.step(request)?;
            self.settle()?;
        }
        Ok(())
    }

    /// The request for these jobs.
    pub(super) fn request(&mut self, jobs: Vec<NewJob>) -> Input {
        self.tickets += 1;
        let batch = (jobs.len() > 1).then(Default::default);
        Input::Submit(Submit {
            ticket: Ticket(self.tickets),
            jobs: jobs.into(),
            batch,
            require_worker: false,
            idempotency_key: None,
        })
    }

    /// The oldest attempt ends well; the next one takes its place if there is one.
    pub(super) fn finish_oldest(&mut self) -> anyhow::Result<()> {
        let (session, token) = self.held.pop_front().context("no worker has an attempt")?;
        let first = self.next_report(session)?;
        let succeeded = Succeeded {
            token,
            timing: Timing::default(),
            output: OutputLengths::default(),
            result: None,
            note: None,
            usage: Default::default(),
        };
        self.step(Input::Reported(session, Report::Success(Numbered { first, list: vec![succeeded] })))
    }

    /// The attempts that workers have run for ever.
    pub(super) fn forget_held(&mut self) {
        self.held.clear();
    }

    /// Steps until nothing is left to place.
    fn settle(&mut self) -> anyhow::Result<()> {
        while self.scheduler.wake_at().up.is_some_and(|at| at <= self.now.up) {
            self.step(Input::Tick)?;
        }
        Ok(())
    }

    /// Attempts that workers have.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// The job of the oldest attempt.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.held.front().map(|(_, token)| token.job.0)
    }

    /// Jobs that have not ended.
    pub(super) fn live(&self) -> usize {
        self.scheduler.live_jobs()
    }

    /// One input, a group of its own; its effects are performed.
    pub(super) fn step(&mut self, input: Input) -> anyhow::Result<()> {
        self.now = Now { utc: self.now.utc, up: Uptime(self.now.up.0 + STEP_NS) };
        let step = self.scheduler.step(self.now, input);
        self.groups += 1;
        self.scheduler.begin(GroupNo(self.groups));
        let mut recalled: BTreeMap<SessionId, Vec<Token>> = BTreeMap::new();
        for effect in step.effects {
            match effect {
                Effect::Enqueue(session, grants) => {
                    self.held.extend(grants.into_iter().map(|grant| (session, grant.token)));
                }
                Effect::Send(session, Order::Recall(tokens)) => {
                    recalled.entry(session).or_default().extend(tokens);
                }
                Effect::Reply(_, Answer::Rejected(rejection)) => bail!("rejected: {rejection:?}"),
                Effect::Close(session, reason) => bail!("session {session:?} is closed: {reason:?}"),
                _ => {}
            }
        }
        for (session, tokens) in recalled {
            self.give_back(session, tokens)?;
        }
        Ok(())
    }

    fn give_back(&mut self, session: SessionId, tokens: Vec<Token>) -> anyhow::Result<()> {
        self.held.retain(|(_, token)| !tokens.contains(token));
        let first = self.next_report(session)?;
        self.reports[session.0 as usize - 1] += tokens.len() as u64 - 1;
        let released = |token| Released { token, cause: ReleaseCause::Recalled, why: String::new() };
        let list = tokens.into_iter().map(released).collect();
        self.step(Input::Reported(session, Report::Released(Numbered { first, list })))
    }

    fn next_report(&mut self, session: SessionId) -> anyhow::Result<ReportNo> {
        let sent = self.reports.get_mut(session.0 as usize - 1).context("an unknown session")?;
        *sent += 1;
        Ok(ReportNo(*sent))
    }
}

/// A definition without any rule.
pub(super) fn definition(number: u64) -> Definition {
    Definition {
        name: format!("job-{number}"),
        revision: Revision(u128::from(number) + 1),
        enabled: true,
        priority: 0,
        timeout: None,
        retry: RetryPolicy::default(),
        success_exit_codes: Vec::new(),
        loss: LossPolicy::default(),
        waits: Default::default(),
        expect: Default::default(),
        placement: Default::default(),
        timetable: Default::default(),
        submission: Default::default(),
        hooks: Default::default(),
        limits: Default::default(),
        secrets: Default::default(),
        container: Default::default(),
    }
}

/// A job of the definition with this number.
pub(super) fn job(number: u64) -> NewJob {
    NewJob { revision: Revision(u128::from(number) + 1), ..NewJob::default() }
}

/// As the server has it.
const SLICE: usize = 1_000;
/// As many as are created in one step.
const BATCH: usize = SLICE;
/// Time between two steps: so short that no lease ends within a run, and long enough that work which is done ten times a second shows.
const STEP_NS: u64 = 20_000;
