//! Any sequence of inputs keeps the audit silent, and whatever a flaky server and a flaky network did, once all is quiet every
//! attempt was told exactly once.

mod walk;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longshore_worker::input::{Exit, RuntimeEvent};
use longshore_worker::{Effect, Input};
use proptest::prelude::*;
use protocol::order::{Cancel, Reconciled, StopCause};
use protocol::report::OutputLengths;
use protocol::{Order, Report, ReportNo, Token};
use walk::{NAMES, any_input, defined};
use world::{World, assignment, token, welcome};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_inputs_keeps_the_audit_silent(
        seed in any::<u64>(),
        batches in prop::collection::vec((prop::collection::vec(any_input(), 1..4), 0..8_000_u64), 1..60),
    ) {
        let mut world = World::new(2, 2, seed);
        world.batch([Input::Restored { attempts: Vec::new(), foreign: Vec::new(), contact: None }]);
        for (inputs, millis) in batches {
            world.batch(inputs);
            world.now = world.now + Duration::from_millis(millis);
        }
    }

    #[test]
    fn every_attempt_is_reported_exactly_once(
        seed in any::<u64>(),
        acts in prop::collection::vec(any_act(), 1..80),
    ) {
        let mut play = Play::new(seed);
        for act in acts {
            play.act(act);
        }
        play.settle();
        play.judge();
    }
}

/// Faults of an unreliable network and host around a correct server and runtime.
#[derive(Clone, Copy, Debug)]
enum Act {
    Submit(usize),
    /// The runtime gets on with an attempt.
    Advance(usize),
    Cancel(usize),
    Recall(usize),
    /// The server commits what it has heard, and says so; the word may be lost with the connection.
    Commit,
    Lose,
    Join,
    Wait(u64),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..NAMES.len()).prop_map(Act::Submit),
        6 => any::<usize>().prop_map(Act::Advance),
        1 => any::<usize>().prop_map(Act::Cancel),
        1 => any::<usize>().prop_map(Act::Recall),
        4 => Just(Act::Commit),
        2 => Just(Act::Lose),
        4 => Just(Act::Join),
        2 => (0..20_000_u64).prop_map(Act::Wait),
    ]
}

/// How far the pretended runtime has got with an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Container {
    Preparing,
    Created,
    Up,
    Gone,
}

struct Play {
    world: World,
    connected: bool,
    /// Everything ever handed over.
    submitted: Vec<Token>,
    containers: BTreeMap<Token, Container>,
    /// Numbered reports as the server has heard them: by number, so that a repetition must be the same.
    heard: BTreeMap<u64, (Token, &'static str)>,
    committed: u64,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut world = World::new(2, 3, seed);
        world.batch([Input::Restored { attempts: Vec::new(), foreign: Vec::new(), contact: None }]);
        Self {
            world,
            connected: false,
            submitted: Vec::new(),
            containers: BTreeMap::new(),
            heard: BTreeMap::new(),
            committed: 0,
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Submit(name) if self.connected => {
                let token = token(self.submitted.len() as u64 + 1, 1);
                self.submitted.push(token);
                let order = Order::Enqueue(vec![assignment(token, NAMES[name])]);
                self.batch(Input::Ordered(order));
            }
            Act::Advance(which) => self.advance(which),
            Act::Cancel(which) if self.connected => {
                if let Some(token) = self.pick(which) {
                    let cancel = Cancel { token, grace: None, cause: StopCause::Cancel };
                    self.batch(Input::Ordered(Order::Cancel(cancel)));
                }
            }
            Act::Recall(which) if self.connected => {
                if let Some(token) = self.pick(which) {
                    self.batch(Input::Ordered(Order::Recall(vec![token])));
                }
            }
            Act::Commit => {
                self.committed = self.heard.keys().last().copied().unwrap_or(0);
                if self.connected {
                    self.batch(Input::Ordered(Order::Acknowledge(ReportNo(self.committed))));
                }
            }
            Act::Lose if self.connected => {
                self.connected = false;
                self.batch(Input::Disconnected);
            }
            Act::Join if !self.connected => self.join(),
            Act::Wait(millis) => {
                self.world.now = self.world.now + Duration::from_millis(millis);
                self.batch(Input::Tick);
            }
            _ => {}
        }
    }

    fn join(&mut self) {
        self.connected = true;
        self.batch(Input::Connected);
        self.batch(Input::Ordered(welcome(self.committed)));
        self.batch(Input::Ordered(Order::Reconciled(Reconciled { attempts: Vec::new(), last: true })));
    }

    fn pick(&self, which: usize) -> Option<Token> {
        self.submitted.get(which % self.submitted.len().max(1)).copied()
    }

    fn advance(&mut self, which: usize) {
        let live: Vec<Token> = self
            .containers
            .iter()
            .filter(|(_, it)| **it != Container::Gone)
            .map(|(token, _)| *token)
            .collect();
        let Some(token) = live.get(which % live.len().max(1)).copied() else { return };
        let at = self.world.now;
        match self.containers[&token] {
            Container::Preparing => self.batch(Input::Happened(RuntimeEvent::Prepared(token))),
            Container::Created => {
                self.containers.insert(token, Container::Up);
                self.batch(Input::Happened(RuntimeEvent::Started { token, container: "c".into(), at }));
            }
            Container::Up | Container::Gone => self.end(token),
        }
    }

    fn end(&mut self, token: Token) {
        self.containers.insert(token, Container::Gone);
        let exit =
            Exit::Ran { code: 0, oom: false, run_time: Duration::from_secs(1), result: Default::default() };
        let at = self.world.now;
        self.batch(Input::Happened(RuntimeEvent::Ended {
            token,
            exit,
            output: OutputLengths::default(),
            usage: Default::default(),
            at,
        }));
    }

    fn batch(&mut self, input: Input) {
        for effect in self.world.batch([input]) {
            self.see(effect);
        }
    }

    fn see(&mut self, effect: Effect) {
        match effect {
            Effect::Start(launch) => {
                let before = self.containers.insert(launch.token, Container::Preparing);
                assert_eq!(before, None, "{} was started twice", launch.token);
                assert!(self.connected, "{} was started without a server", launch.token);
            }
            Effect::Run { token, .. } => {
                let before = self.containers.insert(token, Container::Created);
                assert_eq!(before, Some(Container::Preparing), "{token} is run twice, or was never launched");
                assert!(self.connected, "{token} is run without a server");
            }
            Effect::Send(Report::Wanted(_)) => {
                let order = Order::Definitions(NAMES.iter().map(|name| defined(name)).collect());
                self.batch(Input::Ordered(order));
            }
            Effect::Send(Report::Heartbeat(beat)) => self.batch(Input::Ordered(Order::Pulse(beat.number))),
            Effect::Send(Report::Running(list)) => {
                self.hear(list.first, list.list.iter().map(|it| (it.token, "running")))
            }
            Effect::Send(Report::Starting(list)) => {
                self.hear(list.first, list.list.iter().map(|it| (*it, "starting")))
            }
            Effect::Send(Report::Success(list)) => {
                self.hear(list.first, list.list.iter().map(|it| (it.token, "final")))
            }
            Effect::Send(Report::Failure(list)) => {
                self.hear(list.first, list.list.iter().map(|it| (it.token, "final")))
            }
            Effect::Send(Report::Released(list)) => {
                self.hear(list.first, list.list.iter().map(|it| (it.token, "final")))
            }
            _ => {}
        }
    }

    fn hear(&mut self, first: ReportNo, list: impl Iterator<Item = (Token, &'static str)>) {
        for (number, entry) in (first.0..).zip(list) {
            assert!(number > self.committed, "{number} is told although it is durable");
            let before = self.heard.insert(number, entry);
            assert!(
                before.is_none_or(|before| before == entry),
                "number {number} was {before:?}, is {entry:?}"
            );
        }
    }

    /// Everything heals: the server is there and acknowledges, containers end.
    fn settle(&mut self) {
        for _ in 0..200 {
            if !self.connected {
                self.join();
            }
            let live: Vec<Token> = self
                .containers
                .iter()
                .filter(|(_, it)| **it != Container::Gone)
                .map(|(token, _)| *token)
                .collect();
            live.into_iter().for_each(|token| self.end(token));
            self.act(Act::Wait(500));
            self.act(Act::Commit);
        }
    }

    fn judge(&self) {
        assert_eq!(self.world.worker.load(), (0, 0), "something is left");
        let numbers: Vec<u64> = self.heard.keys().copied().collect();
        assert_eq!(numbers, (1..=self.heard.len() as u64).collect::<Vec<_>>(), "numbers have no holes");
        let mut finals: Vec<Token> =
            self.heard.values().filter(|it| it.1 == "final").map(|it| it.0).collect();
        finals.sort_unstable();
        assert_eq!(finals, self.submitted, "each attempt ends, or is given back, exactly once");
        let started: BTreeSet<Token> = self.containers.keys().copied().collect();
        assert!(started.iter().all(|it| self.submitted.contains(it)));
    }
}
