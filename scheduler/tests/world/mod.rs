//! A scheduler with a clock of its own, and words for what happens to it: shared by the stories and the random walks.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    missing_docs,
    reason = "test support, used in part by each test"
)]

mod definition;
pub mod ends;
mod restart;
mod schedules;
mod secrets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use definition::definition;
pub use longshore_scheduler as scheduler;
pub use protocol;
use protocol::VERSIONS;
use protocol::order::Intervals;
use protocol::report::{
    Availability, Condition, Foreign, Heartbeat, Inventory, Numbered, Phase, ReleaseCause, Released, Started,
};
use protocol::resources::OfferedResources;
use protocol::version::VersionRange;
use protocol::{
    ClusterId, Epoch, Fence, Incarnation, JobId, Nonce, Now, Report, ReportNo, Revision, RuntimeKind,
    SessionId, Timestamp, Token, Uptime, WorkerId,
};
use scheduler::batches::BatchOptions;
use scheduler::definition::Definition;
use scheduler::ids::{GroupNo, Ticket};
use scheduler::input::{
    CancelBatchRequest, CancelRequest, CancelScope, Connected, IdempotencyKey, Input, JobUpdate, JoinPermit,
    Operation, ReleaseRequest, Submit, UpdateRequest,
};
use scheduler::new_jobs::{NewJob, NewJobs};
use scheduler::step::{Change, Effect, Step};
use scheduler::{Config, Counters, PriorityAgeing, Scheduler, ServerLimits, TICK_WITHIN};

pub struct World {
    pub scheduler: Scheduler,
    pub now: Now,
    pub definitions: BTreeMap<String, Arc<Definition>>,
    pub workers: BTreeMap<String, Member>,
    pub nonces: BTreeMap<(JobId, Fence), Nonce>,
    /// Current attempts, and what their worker is called.
    pub held: BTreeMap<JobId, (Token, String)>,
    pub steps: Vec<(Now, Step)>,
    /// The input of each step.
    pub inputs: Vec<Input>,
    /// The workers that were set aside after each step.
    pub set_aside: Vec<BTreeMap<WorkerId, JobId>>,
    /// When the scheduler was last stepped.
    stepped: Uptime,
    /// Up to this one, fences are in the backup that the server goes on from.
    restored: Fence,
    /// Of the scheduler; a restart keeps all but its epoch, seed and slice.
    pub config: Config,
    sessions: u64,
    tickets: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Member {
    pub session: Option<SessionId>,
    pub slots: u32,
    pub backlog: u32,
    pub number: u8,
    pub incarnation: u64,
    /// Number of the process among all.
    pub process: u64,
    /// The address that it connects from.
    pub place: &'static str,
    pub next_report: u64,
    /// Connected, but nothing is heard of it.
    pub muted: bool,
    /// The name in its Hello, if it differs from the name in the scenario.
    pub alias: Option<String>,
    /// Labels of its own.
    pub labels: Vec<(String, String)>,
    /// The highest protocol version that it speaks.
    pub protocol: u16,
    /// Resources that it offers.
    pub offer: OfferedResources,
    /// The cluster that it joined.
    pub cluster: Option<ClusterId>,
    /// The right of its connections to join.
    pub join: JoinPermit,
}

impl Member {
    fn new(number: u8) -> Self {
        Self {
            number,
            incarnation: 1,
            process: 1,
            place: "here",
            next_report: 1,
            protocol: VERSIONS.highest,
            ..Self::default()
        }
    }
}

impl World {
    /// A batch of more than `slice` members is a large one.
    pub fn new(seed: u64, slice: usize) -> Self {
        Self::with(Self::config(seed, slice))
    }

    /// The settings of a scheduler without limits, whose jobs do not age.
    pub fn config(seed: u64, slice: usize) -> Config {
        Config {
            cluster: ClusterId(7),
            epoch: Epoch(1),
            intervals: Intervals::default(),
            seed,
            slice,
            jobs_max: usize::MAX,
            server_limits: ServerLimits::default(),
            priority_ageing: PriorityAgeing::OFF,
            set_aside_after: None,
            params_of_result: ends::params_of_result,
        }
    }

    /// Its scheduler has these settings.
    pub fn with(config: Config) -> Self {
        let now = Now { utc: Timestamp(1_000_000_000_000), up: Uptime(3_600_000_000_000) };
        Self {
            scheduler: Scheduler::new(config, Counters::default()),
            now,
            definitions: BTreeMap::new(),
            workers: BTreeMap::new(),
            nonces: BTreeMap::new(),
            held: BTreeMap::new(),
            steps: Vec::new(),
            inputs: Vec::new(),
            set_aside: Vec::new(),
            stepped: now.up,
            restored: Fence(0),
            config,
            sessions: 0,
            tickets: 0,
        }
    }

    pub fn step(&mut self, input: Input) {
        self.inputs.push(input.clone());
        self.stepped = self.now.up;
        let step = self.scheduler.step(self.now, input);
        for change in &step.changes {
            match change {
                Change::Assigned(assigned) => {
                    let Token { job, fence, nonce } = assigned.token;
                    self.nonces.insert((job, fence), nonce);
                    let on = |(_, member): &(&String, &Member)| member.session == Some(assigned.session);
                    let name = self.workers.iter().find(on).map(|(name, _)| name.clone());
                    self.held.insert(job, (assigned.token, name.unwrap_or_default()));
                }
                Change::AttemptClosed { job, .. } => drop(self.held.remove(job)),
                Change::Ended(ended) => drop(self.held.remove(&ended.job)),
                _ => {}
            }
        }
        for effect in &step.effects {
            if let Effect::Close(session, _) = effect {
                for member in self.workers.values_mut().filter(|member| member.session == Some(*session)) {
                    member.session = None;
                }
            }
        }
        let faults = scheduler::audit::audit(&self.scheduler);
        assert!(faults.is_empty(), "{faults:#?}");
        self.steps.push((self.now, step));
        self.set_aside.push(self.scheduler.workers_set_aside().collect());
        // Each step is a group of its own.
        self.scheduler.begin(GroupNo(self.steps.len() as u64));
    }

    pub fn pass(&mut self, duration: Duration) {
        let end = Now { utc: self.now.utc + duration, up: self.now.up + duration };
        loop {
            let wake = self.scheduler.wake_at();
            let by_wall = wake.utc.map(|at| at.since(self.now.utc));
            let by_uptime = wake.up.map(|at| at.since(self.now.up));
            let in_time = (self.stepped + TICK_WITHIN).since(self.now.up);
            let soonest = [by_wall, by_uptime].into_iter().flatten().fold(in_time, Duration::min);
            let left = end.up.since(self.now.up);
            let Some(jump) = Some(soonest).filter(|jump| *jump <= left) else { break };
            // A monotonic timer may lie between two milliseconds of the wall clock.
            let jump = Duration::from_millis(u64::try_from(jump.as_nanos().div_ceil(1_000_000)).unwrap());
            self.now = Now { utc: self.now.utc + jump, up: self.now.up + jump };
            let sessions =
                self.workers.values().filter(|member| !member.muted).filter_map(|member| member.session);
            let heard = sessions.map(|session| (session, self.now.up)).collect();
            self.step(Input::SessionsActive(heard));
            self.step(Input::Tick);
        }
        self.now = Now { utc: end.utc.max(self.now.utc), up: end.up.max(self.now.up) };
    }

    pub fn define(&mut self, definition: Definition) {
        self.edit(definition);
        self.read_definitions();
    }

    /// Changes jobs.yaml, which is not read yet.
    pub fn edit(&mut self, definition: Definition) {
        self.definitions.insert(definition.name.clone(), Arc::new(definition));
    }

    pub fn read_definitions(&mut self) {
        self.step(Input::ReplaceDefinitions(self.definitions.values().cloned().collect()));
    }

    /// Reads jobs.yaml again, without this definition; twice, since the reading before is remembered.
    pub fn undefine(&mut self, name: &str) {
        self.definitions.remove(name);
        for _ in 0..2 {
            self.step(Input::ReplaceDefinitions(self.definitions.values().cloned().collect()));
        }
    }

    pub fn submit(
        &mut self,
        name: &str,
        count: usize,
        new: NewJob,
        key: Option<IdempotencyKey>,
        require_worker: bool,
    ) {
        let revision = self.definitions.get(name).map_or(Revision(0), |definition| definition.revision);
        self.submit_all(vec![NewJob { revision, ..new }; count], key, require_worker);
    }

    pub fn submit_all(&mut self, jobs: Vec<NewJob>, key: Option<IdempotencyKey>, require_worker: bool) {
        let (ticket, count) = (self.ticket(), jobs.len());
        let batch = (count > 1).then(BatchOptions::default);
        self.step(Input::Submit(Submit {
            ticket,
            jobs: jobs.into(),
            batch,
            require_worker,
            idempotency_key: key,
        }));
    }

    /// Submits jobs that are all alike.
    pub fn submit_array(&mut self, name: &str, count: u32, options: BatchOptions) {
        let revision = self.definitions.get(name).map_or(Revision(0), |definition| definition.revision);
        let jobs = NewJobs::Copies(Box::new(NewJob { revision, ..NewJob::default() }), count);
        let (ticket, batch) = (self.ticket(), Some(options));
        self.step(Input::Submit(Submit {
            ticket,
            jobs,
            batch,
            require_worker: false,
            idempotency_key: None,
        }));
    }

    pub fn cancel(&mut self, job: JobId) {
        self.cancel_in(job, CancelScope::Any);
    }

    pub fn cancel_in(&mut self, job: JobId, scope: CancelScope) {
        let ticket = self.ticket();
        self.step(Input::Cancel(CancelRequest { ticket, job, scope, by: "ann".into() }));
    }

    pub fn cancel_batch(&mut self, batch: JobId, by: &[&str]) {
        let (ticket, by) = (self.ticket(), by.first().copied().unwrap_or("ann").into());
        self.step(Input::CancelBatch(CancelBatchRequest { ticket, batch, by }));
    }

    pub fn release(&mut self, job: JobId) {
        let ticket = self.ticket();
        self.step(Input::Release(ReleaseRequest { ticket, job, by: "ann".into() }));
    }

    pub fn update(&mut self, job: JobId, update: JobUpdate) {
        let ticket = self.ticket();
        self.step(Input::Update(UpdateRequest { ticket, job, update, by: "ann".into() }));
    }

    pub fn operate(&mut self, worker: WorkerId, operation: Operation) {
        let ticket = self.ticket();
        self.step(Input::Operate(ticket, worker, operation));
    }

    /// Takes labels with these names away from those who claim them.
    pub fn reserve_labels(&mut self, names: &[&str]) {
        let ticket = self.ticket();
        self.step(Input::ReserveLabels(ticket, names.iter().map(|&name| name.to_owned()).collect()));
    }

    /// The worker with this name in the scenario, which may be new.
    pub fn member(&mut self, name: &str) -> &mut Member {
        let known = u8::try_from(self.workers.len() + 1).unwrap();
        self.workers.entry(name.into()).or_insert_with(|| Member::new(known))
    }

    /// Gives a worker labels of its own, from its next Hello on.
    pub fn label(&mut self, name: &str, labels: Vec<(String, String)>) {
        self.member(name).labels = labels;
    }

    /// Says Hello; the inventory is another word.
    pub fn hello(&mut self, name: &str, slots: u32, backlog: u32, secret: Option<u8>) {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let known = u8::try_from(self.workers.len() + 1).unwrap();
        let member = self.workers.entry(name.into()).or_insert_with(|| Member::new(known));
        member.session = Some(session);
        (member.slots, member.backlog) = (slots, backlog);
        let connected = Connected {
            session,
            name: member.alias.clone().unwrap_or_else(|| name.to_owned()).into(),
            secret_hash: [secret.unwrap_or(member.number); 32],
            cluster: member.cluster,
            rejoin: false,
            incarnation: Incarnation(member.incarnation),
            process: member.process,
            versions: VersionRange { lowest: 1, highest: member.protocol },
            engine: None,
            version: "0.1.0".into(),
            slots,
            backlog,
            labels: member.labels.clone(),
            runtimes: vec![(RuntimeKind::Fake, Availability::Available)],
            resources: member.offer.clone(),
            address: member.place.into(),
            join: member.join.clone(),
        };
        self.step(Input::Connected(connected));
    }

    pub fn inventory(&mut self, name: &str, attempts: Vec<(Token, Phase)>, availability: Availability) {
        self.inventory_of(name, vec![(RuntimeKind::Fake, availability)], attempts);
    }

    pub fn inventory_of(
        &mut self,
        name: &str,
        runtimes: Vec<(RuntimeKind, Availability)>,
        attempts: Vec<(Token, Phase)>,
    ) {
        self.report(
            name,
            Report::Inventory(Inventory { runtimes, attempts, foreign: Vec::new(), last: true }),
        );
    }

    pub fn foreign(&mut self, name: &str, foreign: Vec<Foreign>) {
        self.report(name, Report::Foreign(foreign));
    }

    /// Gives the archive's answer about the attempts that the worker is about to list or to report.
    pub fn announce(&mut self, name: &str, tokens: Vec<Token>, unassigned: bool) {
        let input = if unassigned { Input::AttemptsNotOwned } else { Input::UnknownAttempts };
        if let Some(session) = self.workers.get(name).and_then(|member| member.session) {
            self.step(input(session, tokens));
        }
    }

    pub fn disconnect(&mut self, name: &str) {
        if let Some(session) = self.workers.get_mut(name).and_then(|member| member.session.take()) {
            self.step(Input::Disconnected(session));
        }
    }

    pub fn unsent(&mut self, session: SessionId, token: Token) {
        self.step(Input::Unsent(session, vec![token]));
    }

    pub fn report(&mut self, name: &str, report: Report) {
        if let Some(session) = self.workers.get(name).and_then(|member| member.session) {
            self.step(Input::Reported(session, report));
        }
    }

    pub fn running(&mut self, name: &str, token: Token) {
        self.running_since(name, token, Duration::ZERO);
    }

    pub fn running_since(&mut self, name: &str, token: Token, ago: Duration) {
        let list = self.numbered(name, Started { token, container: "c".into(), ago });
        self.report(name, Report::Running(list));
    }

    pub fn starting(&mut self, name: &str, token: Token) {
        let list = self.numbered(name, token);
        self.report(name, Report::Starting(list));
    }

    pub fn released(&mut self, name: &str, token: Token, cause: ReleaseCause) {
        let list = self.numbered(name, Released { token, cause, why: String::new() });
        self.report(name, Report::Released(list));
    }

    pub fn progress(&mut self, name: &str, token: Token, phase: Phase) {
        self.report(name, Report::Progress(vec![(token, phase)]));
    }

    pub fn heartbeat(&mut self, name: &str) {
        self.report(name, Report::Heartbeat(Heartbeat::default()));
    }

    /// The answer to an order about an attempt that the worker does not know.
    pub fn unknown(&mut self, name: &str, token: Token) {
        self.report(name, Report::Status(vec![(token, Phase::Unknown)]));
    }

    pub fn condition(&mut self, name: &str, availability: Availability, draining: bool) {
        let slots = self.workers.get(name).map_or(1, |member| member.slots);
        let runtimes = vec![(RuntimeKind::Fake, availability)];
        self.report(name, Report::Condition(Condition { runtimes, slots, draining }));
    }

    pub fn token(&self, job: u64, fence: u64) -> Token {
        let (job, fence) = (JobId(job), Fence(fence));
        Token { job, fence, nonce: self.nonces.get(&(job, fence)).copied().unwrap_or_default() }
    }

    /// How many requests have wanted an answer.
    pub fn tickets(&self) -> u64 {
        self.tickets
    }

    fn numbered<T>(&mut self, name: &str, entry: T) -> Numbered<T> {
        let member = self.workers.entry(name.into()).or_default();
        let first = ReportNo(member.next_report);
        member.next_report += 1;
        Numbered { first, list: vec![entry] }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}
