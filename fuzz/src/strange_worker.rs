//! A worker that says anything at any time, against the scheduler: nobody panics, the audit finds nothing wrong, and whatever the
//! scheduler answers can be sent.

#![allow(unreachable_pub, reason = "tests of the workspace compile it as a module of their own")]

use std::sync::Arc;
use std::time::Duration;

use crate::acts::{acts, number};
use crate::scheduler::audit::audit;
use crate::scheduler::definition::{
    Definition, Expect, LossPolicy, OnLost, RetryOn, RetryPolicy, WaitLimits,
};
use crate::scheduler::ids::{GroupNo, Ticket};
use crate::scheduler::input::{Connected, Input, Submit};
use crate::scheduler::limits::rules::LimitRules;
use crate::scheduler::new_jobs::NewJob;
use crate::scheduler::placement::rules::PlacementRules;
use crate::scheduler::schedule::Timetable;
use crate::scheduler::step::{Change, Effect};
use crate::scheduler::{Config, Counters, PriorityAgeing, Scheduler, ServerLimits};
use protocol::container::ContainerSpec;
use protocol::order::Intervals;
use protocol::report::{Hello, Report};
use protocol::{
    ClusterId, Epoch, Nonce, Now, Revision, RuntimeKind, SessionId, Timestamp, Token, Uptime, wire,
};

/// Takes in what bytes make of such a worker.
pub fn walk(bytes: &[u8]) {
    let mut world = World::new();
    for (kind, act) in acts(bytes).take(ACTS_MAX) {
        match kind % 8 {
            0 => world.pass(Duration::from_millis(number(act) % 100_000)),
            1 => world.submit(number(act)),
            2 => world.disconnect(),
            _ => world.hear(act),
        }
    }
}

struct World {
    scheduler: Scheduler,
    now: Now,
    steps: u64,
    session: Option<SessionId>,
    sessions: u64,
    /// By fence.
    nonces: Vec<(Token, Nonce)>,
}

impl World {
    fn new() -> Self {
        let (cluster, intervals) = (ClusterId(7), Intervals::default());
        let config = Config {
            cluster,
            epoch: Epoch(1),
            intervals,
            seed: 1,
            slice: 1_000,
            jobs_max: usize::MAX,
            server_limits: ServerLimits::default(),
            priority_ageing: PriorityAgeing::OFF,
            set_aside_after: None,
            params_of_result: crate::scheduler::results::ignore_result,
        };
        let now = Now { utc: Timestamp(1_000_000_000_000), up: Uptime(3_600_000_000_000) };
        let scheduler = Scheduler::new(config, Counters::default());
        let mut world = Self { scheduler, now, steps: 0, session: None, sessions: 0, nonces: Vec::new() };
        world.step(Input::ReplaceDefinitions((0..4).map(definition).map(Arc::new).collect()));
        world
    }

    fn pass(&mut self, time: Duration) {
        self.now = Now { utc: self.now.utc + time, up: self.now.up + time };
        self.step(Input::Tick);
    }

    fn submit(&mut self, number: u64) {
        let new = NewJob { revision: Revision(u128::from(number % 4)), ..NewJob::default() };
        let jobs = vec![new; 1 + number as usize / 4 % 4];
        self.step(Input::Submit(Submit {
            ticket: Ticket(1),
            jobs: jobs.into(),
            batch: None,
            require_worker: false,
            idempotency_key: None,
        }));
    }

    fn disconnect(&mut self) {
        if let Some(session) = self.session.take() {
            self.step(Input::Disconnected(session));
        }
    }

    fn hear(&mut self, frame: &[u8]) {
        let Ok(Some(mut report)) = wire::decode_report(frame) else { return };
        if let Report::Hello(hello) = report {
            self.disconnect();
            self.sessions += 1;
            self.session = Some(SessionId(self.sessions));
            return self.step(Input::Connected(connected(SessionId(self.sessions), hello)));
        }
        self.fill_in(&mut report);
        if let Some(session) = self.session {
            self.step(Input::Reported(session, report));
        }
    }

    /// A nonce cannot be guessed: zero stands for the right one.
    fn fill_in(&self, report: &mut Report) {
        let fill = |token: &mut Token| {
            let right =
                self.nonces.iter().find(|(known, _)| (known.job, known.fence) == (token.job, token.fence));
            if let Some((_, nonce)) = right.filter(|_| token.nonce == Nonce(0)) {
                token.nonce = *nonce;
            }
        };
        match report {
            Report::Running(it) => it.list.iter_mut().for_each(|it| fill(&mut it.token)),
            Report::Success(it) => it.list.iter_mut().for_each(|it| fill(&mut it.token)),
            Report::Failure(it) => it.list.iter_mut().for_each(|it| fill(&mut it.token)),
            Report::Released(it) => it.list.iter_mut().for_each(|it| fill(&mut it.token)),
            Report::Starting(it) => it.list.iter_mut().for_each(fill),
            Report::Inventory(it) => it.attempts.iter_mut().for_each(|it| fill(&mut it.0)),
            Report::Progress(it) | Report::Status(it) => it.iter_mut().for_each(|it| fill(&mut it.0)),
            _ => {}
        }
    }

    fn step(&mut self, input: Input) {
        self.steps += 1;
        self.scheduler.begin(GroupNo(self.steps));
        let step = self.scheduler.step(self.now, input);
        for change in &step.changes {
            if let Change::Assigned(it) = change {
                self.nonces.push((it.token, it.token.nonce));
            }
        }
        for effect in &step.effects {
            match effect {
                Effect::Close(session, _) if self.session == Some(*session) => self.session = None,
                Effect::Send(_, order) => {
                    wire::pack_order(order, &mut Vec::new()).expect("whatever is decided can be said");
                }
                _ => {}
            }
        }
        let faults = audit(&self.scheduler);
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

fn connected(session: SessionId, hello: Hello) -> Connected {
    let mut secret_hash = [0; 32];
    secret_hash[0] = hello.secret[0] % 4;
    Connected {
        session,
        name: hello.name.into(),
        secret_hash,
        cluster: hello.cluster,
        rejoin: hello.rejoin,
        incarnation: hello.incarnation,
        process: hello.process % 3,
        versions: hello.versions,
        engine: hello.engine,
        version: hello.version,
        slots: hello.slots,
        backlog: hello.backlog,
        resources: hello.resources,
        labels: hello.labels,
        runtimes: hello.runtimes,
        address: "here".into(),
        join: Default::default(),
    }
}

fn definition(number: u8) -> Definition {
    let container = ContainerSpec { runtime: RuntimeKind::Fake, ..ContainerSpec::default() };
    let retry = RetryPolicy {
        max: u32::from(number),
        on: [RetryOn::Any, RetryOn::Same, RetryOn::Other, RetryOn::Any][usize::from(number % 4)],
        ..RetryPolicy::default()
    };
    let on_lost = [OnLost::Retry, OnLost::Fail, OnLost::Wait, OnLost::Retry][usize::from(number % 4)];
    let timeout = number.is_multiple_of(2).then_some(Duration::from_secs(20));
    Definition {
        name: number.to_string(),
        revision: Revision(u128::from(number)),
        enabled: true,
        priority: 0,
        timeout,
        retry,
        success_exit_codes: if number % 4 == 2 { vec![3] } else { Vec::new() },
        loss: LossPolicy { on_lost, ..LossPolicy::default() },
        waits: WaitLimits { queue: timeout, quarantine: timeout, silent_worker: timeout },
        expect: Expect { success_within: timeout, max_duration: timeout },
        placement: PlacementRules::default(),
        timetable: Timetable::default(),
        hooks: Default::default(),
        secrets: Default::default(),
        submission: Default::default(),
        limits: LimitRules::default(),
        container,
    }
}

const ACTS_MAX: usize = 200;
