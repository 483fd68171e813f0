//! A worker's state machine with a clock of its own, driven as the client does it: a batch of inputs, then what there is to say. Whatever
//! happens, the audit must stay silent.

#![allow(dead_code, reason = "each test uses its part of the world")]

use std::time::Duration;

use longshore_worker::{Config, Effect, Input, Policy, Worker};
use protocol::order::{Assignment, Definition, Intervals, Welcome};
use protocol::report::Availability;
use protocol::{
    ClusterId, ContainerSpec, Epoch, Fence, Incarnation, JobId, Nonce, Now, Order, ReportNo, Revision,
    RuntimeKind, SessionId, Timestamp, Token, Uptime, WorkerId,
};

pub(crate) struct World {
    pub(crate) worker: Worker,
    pub(crate) now: Uptime,
}

impl World {
    pub(crate) fn new(slots: u32, backlog: u32, seed: u64) -> Self {
        Self::with_pull_slots(slots, backlog, 2, seed)
    }

    pub(crate) fn with_pull_slots(slots: u32, backlog: u32, pull_slots: u32, seed: u64) -> Self {
        let config = Config {
            name: "w1".into(),
            secret: [7; 32],
            cluster: None,
            rejoin: false,
            incarnation: Incarnation(1),
            process: 1,
            engine: None,
            version: "0.1.0".into(),
            slots,
            backlog,
            pull_slots,
            policy: Policy::new(|spec| {
                let forbidden = spec.network.as_deref() == Some("host");
                forbidden.then(|| "this worker does not allow the host's network".into())
            }),
            labels: Vec::new(),
            resources: protocol::resources::OfferedResources { gpus: vec!["0".into()], ..Default::default() },
            runtimes: vec![
                (RuntimeKind::Docker, Availability::Available),
                (RuntimeKind::Fake, Availability::Available),
            ],
        };
        Self { worker: Worker::new(config, seed), now: START }
    }

    /// Steps these inputs as one batch; what was decided, in order.
    pub(crate) fn batch(&mut self, inputs: impl IntoIterator<Item = Input>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for input in inputs {
            let shown = format!("{input:?}");
            effects.extend(self.worker.step(self.stamp(), input).effects);
            self.audit(&shown);
        }
        effects.extend(self.worker.flush(self.stamp()).effects);
        self.audit("flush");
        effects
    }

    pub(crate) fn ordered(&mut self, order: Order) -> Vec<Effect> {
        self.batch([Input::Ordered(order)])
    }

    /// Since the start of the story.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now.since(START)
    }

    fn stamp(&self) -> Now {
        Now { utc: Timestamp(0), up: self.now }
    }

    fn audit(&self, after: &str) {
        let faults = self.worker.audit();
        assert!(faults.is_empty(), "after {after}: {faults:#?}\n{:#?}", self.worker);
    }
}

pub(crate) fn welcome(last_report: u64) -> Order {
    Order::Welcome(Welcome {
        version: 1,
        session: SessionId(1),
        epoch: Epoch(1),
        cluster: ClusterId(1),
        worker: WorkerId(7),
        intervals: Intervals::default(),
        last_report: ReportNo(last_report),
    })
}

pub(crate) fn token(job: u64, fence: u64) -> Token {
    Token { job: JobId(job), fence: Fence(fence), nonce: Nonce(1) }
}

pub(crate) fn definition(name: &str, change: impl FnOnce(&mut ContainerSpec)) -> Definition {
    let mut spec = ContainerSpec {
        image: "busybox".into(),
        stop_grace: Duration::from_secs(10),
        ..ContainerSpec::default()
    };
    change(&mut spec);
    Definition { revision: revision(name), name: name.into(), container: spec }
}

pub(crate) fn revision(name: &str) -> Revision {
    Revision(name.bytes().fold(1, |sum, byte| sum * 257 + u128::from(byte)))
}

pub(crate) fn assignment(token: Token, name: &str) -> Assignment {
    Assignment {
        token,
        priority: 0,
        waited: Duration::ZERO,
        revision: revision(name),
        overrides: None,
        time_left: None,
        memory_bytes: None,
        secrets: None,
        gpus: Vec::new(),
    }
}

/// The machine has been up for an hour.
pub(crate) const START: Uptime = Uptime(3_600_000_000_000);
