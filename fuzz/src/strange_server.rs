//! A server that says anything at any time, against the state machine of a worker: nobody panics, the audit finds nothing wrong, and
//! whatever the worker reports can be sent.

#![allow(unreachable_pub, reason = "tests of the workspace compile it as a module of their own")]

use std::time::Duration;

use crate::acts::{acts, number};
use crate::worker::input::{Exit, ResultFile, RuntimeEvent, ShutdownMode};
use crate::worker::{Config, Effect, Input, Policy, Worker};
use protocol::report::{Availability, OutputLengths};
use protocol::{Incarnation, Now, RuntimeKind, Timestamp, Token, Uptime, wire};

/// Takes in what bytes make of such a server.
pub fn walk(bytes: &[u8]) {
    let mut world = World::new();
    for (kind, act) in acts(bytes).take(ACTS_MAX) {
        let choice = number(act);
        match kind % 12 {
            0 => world.pass(Duration::from_millis(choice % 100_000)),
            1 => world.take(Input::Connected),
            2 => world.take(Input::Disconnected),
            3 if choice & 0x200 != 0 => world.happen(choice, |token, _| RuntimeEvent::ImageMissing(token)),
            3 if choice & 0x100 != 0 => world.happen(choice, |token, _| RuntimeEvent::Prepared(token)),
            3 => world.happen(choice, |token, at| RuntimeEvent::Started { token, container: "c".into(), at }),
            4 => world.happen(choice, |token, at| {
                let exit = Exit::Ran {
                    code: (choice >> 8) as i32,
                    oom: choice & 0x80 != 0,
                    run_time: Duration::from_secs(1),
                    result: ResultFile::Absent,
                };
                RuntimeEvent::Ended {
                    token,
                    exit,
                    output: OutputLengths { stdout: choice >> 60, stderr: 0 },
                    usage: Default::default(),
                    at,
                }
            }),
            5 => {
                if let Some(token) = world.one(choice) {
                    world.take(Input::OutputDone(token));
                }
            }
            6 if choice == u64::MAX => world.take(Input::Shutdown(ShutdownMode::Drain)),
            _ => {
                if let Ok(Some(order)) = wire::decode_order(act) {
                    world.take(Input::Ordered(order));
                }
            }
        }
    }
}

struct World {
    worker: Worker,
    now: Now,
    launched: Vec<Token>,
}

impl World {
    fn new() -> Self {
        let config = Config {
            resources: Default::default(),
            name: "w1".into(),
            secret: [7; 32],
            cluster: None,
            rejoin: false,
            incarnation: Incarnation(1),
            process: 1,
            engine: None,
            version: "0.1.0".into(),
            slots: 2,
            backlog: 2,
            pull_slots: 1,
            policy: Policy::allow_all(),
            labels: Vec::new(),
            runtimes: vec![
                (RuntimeKind::Docker, Availability::Available),
                (RuntimeKind::Fake, Availability::Available),
            ],
        };
        let now = Now { utc: Timestamp(0), up: Uptime(3_600_000_000_000) };
        let mut world = Self { worker: Worker::new(config, 1), now, launched: Vec::new() };
        world.take(Input::Restored { attempts: Vec::new(), foreign: Vec::new(), contact: None });
        world
    }

    fn pass(&mut self, time: Duration) {
        self.now.up = self.now.up + time;
        self.take(Input::Tick);
    }

    fn happen(&mut self, choice: u64, event: impl FnOnce(Token, Uptime) -> RuntimeEvent) {
        if let Some(token) = self.one(choice) {
            let event = event(token, self.now.up);
            self.take(Input::Happened(event));
        }
    }

    fn one(&self, choice: u64) -> Option<Token> {
        let count = self.launched.len().max(1) as u64;
        self.launched.get((choice % count) as usize).copied()
    }

    fn take(&mut self, input: Input) {
        let mut effects = self.worker.step(self.now, input).effects;
        self.audit();
        effects.extend(self.worker.flush(self.now).effects);
        self.audit();
        for effect in effects {
            match effect {
                Effect::Start(launch) => self.launched.push(launch.token),
                Effect::Send(report) => {
                    wire::pack_report(&report, &mut Vec::new()).expect("whatever is decided can be said");
                }
                _ => {}
            }
        }
    }

    fn audit(&self) {
        let faults = self.worker.audit();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

const ACTS_MAX: usize = 200;
