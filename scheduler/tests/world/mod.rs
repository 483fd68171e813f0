//! A scheduler with a clock of its own, and words for what happens to it: shared by the stories and the random walks.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    missing_docs,
    reason = "test support, used in part by each test"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use longshore_scheduler as scheduler;
pub use protocol;
use protocol::container::ContainerSpec;
use protocol::order::{Intervals, VersionRange};
use protocol::report::{
    Availability, Condition, Failed, Heartbeat, Inventory, Numbered, Outcome, OutputLengths, Phase,
    ReleaseCause, Started, Succeeded, Timing,
};
use protocol::{
    ClusterId, Epoch, Fence, Incarnation, JobId, Nonce, Now, Report, ReportNo, Revision, RuntimeKind,
    SessionId, Timestamp, Token, Uptime, WorkerId,
};
use scheduler::definition::Definition;
use scheduler::input::{CancelRequest, Connected, GroupNo, Input, Key, NewJob, Operation, Submit, Ticket};
use scheduler::step::{Change, Effect, Step};
use scheduler::{Config, Counters, Scheduler};

pub struct World {
    pub scheduler: Scheduler,
    pub now: Now,
    pub definitions: BTreeMap<String, Arc<Definition>>,
    pub workers: BTreeMap<String, Member>,
    pub nonces: BTreeMap<(JobId, Fence), Nonce>,
    pub steps: Vec<(Now, Step)>,
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
    pub next_report: u64,
    /// Connected, but nothing is heard of it.
    pub muted: bool,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let config = Config { cluster: ClusterId(7), epoch: Epoch(1), intervals: Intervals::default(), seed };
        let now = Now { utc: Timestamp(1_000_000_000_000), up: Uptime(3_600_000_000_000) };
        Self {
            scheduler: Scheduler::new(config, Counters::default()),
            now,
            definitions: BTreeMap::new(),
            workers: BTreeMap::new(),
            nonces: BTreeMap::new(),
            steps: Vec::new(),
            sessions: 0,
            tickets: 0,
        }
    }

    pub fn step(&mut self, input: Input) {
        self.scheduler.begin(GroupNo(self.steps.len() as u64));
        let step = self.scheduler.step(self.now, input);
        for change in &step.changes {
            if let Change::Assigned(assigned) = change {
                self.nonces.insert((assigned.token.job, assigned.token.fence), assigned.token.nonce);
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
    }

    pub fn pass(&mut self, duration: Duration) {
        let end = Now { utc: self.now.utc + duration, up: self.now.up + duration };
        loop {
            let wake = self.scheduler.wake_at();
            let by_wall = wake.utc.map(|at| at.since(self.now.utc));
            let by_uptime = wake.up.map(|at| at.since(self.now.up));
            let soonest = [by_wall, by_uptime].into_iter().flatten().min();
            let left = end.up.since(self.now.up);
            let Some(jump) = soonest.filter(|jump| *jump <= left) else { break };
            // A monotonic timer may lie between two milliseconds of the wall clock.
            let jump = Duration::from_millis(u64::try_from(jump.as_nanos().div_ceil(1_000_000)).unwrap());
            self.now = Now { utc: self.now.utc + jump, up: self.now.up + jump };
            let sessions =
                self.workers.values().filter(|member| !member.muted).filter_map(|member| member.session);
            let heard = sessions.map(|session| (session, self.now.up)).collect();
            self.step(Input::Heard(heard));
            self.step(Input::Tick);
        }
        self.now = Now { utc: end.utc.max(self.now.utc), up: end.up.max(self.now.up) };
    }

    pub fn define(&mut self, definition: Definition) {
        self.definitions.insert(definition.name.clone(), Arc::new(definition));
        self.step(Input::Define(self.definitions.values().cloned().collect()));
    }

    pub fn submit(&mut self, name: &str, count: usize, new: NewJob, key: Option<Key>, require_worker: bool) {
        let revision = self.definitions.get(name).map_or(Revision(0), |definition| definition.revision);
        let ticket = self.ticket();
        let jobs = vec![NewJob { revision, ..new }; count];
        self.step(Input::Submit(Submit { ticket, jobs, batch: count > 1, require_worker, key }));
    }

    pub fn cancel(&mut self, job: JobId) {
        let ticket = self.ticket();
        self.step(Input::Cancel(CancelRequest { ticket, job, by: "ann".into() }));
    }

    pub fn operate(&mut self, worker: WorkerId, operation: Operation) {
        let ticket = self.ticket();
        self.step(Input::Operate(ticket, worker, operation));
    }

    /// Says Hello; the inventory is another word.
    pub fn hello(&mut self, name: &str, slots: u32, backlog: u32, secret: Option<u8>) {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let known = u8::try_from(self.workers.len() + 1).unwrap();
        let member = self.workers.entry(name.into()).or_insert(Member {
            number: known,
            incarnation: 1,
            next_report: 1,
            ..Member::default()
        });
        member.session = Some(session);
        (member.slots, member.backlog) = (slots, backlog);
        let connected = Connected {
            session,
            name: name.into(),
            secret_hash: [secret.unwrap_or(member.number); 32],
            cluster: None,
            rejoin: false,
            incarnation: Incarnation(member.incarnation),
            versions: VersionRange { lowest: 1, highest: 1 },
            engine: None,
            version: "0.1.0".into(),
            slots,
            backlog,
            labels: Vec::new(),
            runtimes: vec![(RuntimeKind::Fake, Availability::Available)],
            address: "here".into(),
        };
        self.step(Input::Connected(connected));
    }

    pub fn inventory(&mut self, name: &str, attempts: Vec<(Token, Phase)>, availability: Availability) {
        let runtimes = vec![(RuntimeKind::Fake, availability)];
        self.report(
            name,
            Report::Inventory(Inventory { runtimes, attempts, foreign: Vec::new(), last: true }),
        );
    }

    pub fn disconnect(&mut self, name: &str) {
        if let Some(session) = self.workers.get_mut(name).and_then(|member| member.session.take()) {
            self.step(Input::Disconnected(session));
        }
    }

    pub fn report(&mut self, name: &str, report: Report) {
        if let Some(session) = self.workers.get(name).and_then(|member| member.session) {
            self.step(Input::Reported(session, report));
        }
    }

    pub fn running(&mut self, name: &str, token: Token) {
        let list = self.numbered(name, Started { token, container: "c".into(), ago: Duration::ZERO });
        self.report(name, Report::Running(list));
    }

    pub fn success(&mut self, name: &str, token: Token) {
        let timing = Timing { ended_ago: Duration::ZERO, ran: Some(Duration::from_secs(1)) };
        let output = OutputLengths::default();
        let list = self.numbered(name, Succeeded { token, timing, output, result: None, note: None });
        self.report(name, Report::Success(list));
    }

    pub fn failure(&mut self, name: &str, token: Token, outcome: Outcome, exit_code: Option<i32>) {
        let timing = Timing { ended_ago: Duration::ZERO, ran: exit_code.map(|_| Duration::from_secs(1)) };
        let failed = Failed {
            token,
            outcome,
            exit_code,
            message: String::new(),
            timing,
            output: OutputLengths::default(),
        };
        let list = self.numbered(name, failed);
        self.report(name, Report::Failure(list));
    }

    pub fn released(&mut self, name: &str, token: Token, cause: ReleaseCause) {
        let list = self.numbered(name, (token, cause));
        self.report(name, Report::Released(list));
    }

    pub fn heartbeat(&mut self, name: &str) {
        self.report(name, Report::Heartbeat(Heartbeat::default()));
    }

    pub fn condition(&mut self, name: &str, availability: Availability) {
        let slots = self.workers.get(name).map_or(1, |member| member.slots);
        let runtimes = vec![(RuntimeKind::Fake, availability)];
        self.report(name, Report::Condition(Condition { runtimes, slots, draining: false }));
    }

    pub fn token(&self, job: u64, fence: u64) -> Token {
        let (job, fence) = (JobId(job), Fence(fence));
        Token { job, fence, nonce: self.nonces.get(&(job, fence)).copied().unwrap_or_default() }
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

/// A definition for the fake runtime, to be varied.
pub fn definition(name: &str) -> Definition {
    let revision = name.bytes().fold(0, |sum, byte| sum * 256 + u128::from(byte));
    Definition {
        name: name.into(),
        revision: Revision(revision),
        enabled: true,
        priority: 0,
        timeout: None,
        retry: scheduler::definition::RetryPolicy::default(),
        loss: scheduler::definition::LossPolicy::default(),
        container: ContainerSpec {
            runtime: RuntimeKind::Fake,
            stop_grace: Duration::from_secs(10),
            ..ContainerSpec::default()
        },
    }
}
