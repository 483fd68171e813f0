//! Checks every invariant of the worker. Tests call it after each step; it walks over all attempts.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::Token;
use protocol::secret::SecretValues;

use crate::attempt::{Attempt, Stage};
use crate::core::Worker;
use crate::definitions::DEFINITIONS_MAX;
use crate::session::State;

impl Worker {
    /// Returns a sentence for each violated invariant; empty if all hold.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let mut faults = Vec::new();
        self.audit_slots(&mut faults);
        self.audit_backlog(&mut faults);
        self.audit_alarms(&mut faults);
        self.audit_reports(&mut faults);
        self.audit_unsent_output(&mut faults);
        self.audit_shutdown(&mut faults);
        if self.definitions.len() > DEFINITIONS_MAX {
            faults.push(format!("{} definitions are kept", self.definitions.len()));
        }
        faults
    }

    fn audit_slots(&self, faults: &mut Vec<String>) {
        let busy = self.attempts.values().filter(|attempt| attempt.holds_slot()).count();
        if busy != self.slots.busy() as usize {
            faults.push(format!("{busy} attempts hold a slot, {} slots are counted busy", self.slots.busy()));
        }
        for token in &self.cleared {
            if !self.is(*token, |attempt| matches!(attempt.stage, Stage::AwaitingStartAck { cleared: true }))
            {
                faults.push(format!("{token} is cleared and does not await an acknowledgement of its start"));
            }
        }
        self.audit_pulls(faults);
        let waiting = self
            .attempts
            .iter()
            .filter(|(_, attempt)| matches!(attempt.stage, Stage::Prepared) && attempt.stop.is_none());
        if !waiting.map(|(token, _)| token).eq(&self.prepared) {
            faults.push(format!("{:?} wait for the gate, not all that are prepared", self.prepared));
        }
        for token in &self.armed_self_fences {
            if !self.is(*token, |attempt| attempt.is_prepared_or_run() && attempt.self_fence().is_some()) {
                faults.push(format!("{token} has an armed self-fence and does not run"));
            }
        }
    }

    fn audit_pulls(&self, faults: &mut Vec<String>) {
        let mut images: BTreeMap<_, u32> = BTreeMap::new();
        let mut waiting = 0;
        for (token, attempt) in &self.attempts {
            let held = match attempt.stage {
                Stage::WaitingForPullSlot => self.pulls.is_waiting(attempt.position, *token),
                Stage::Pulling { .. } => {
                    if let Some(image) = attempt.image() {
                        *images.entry(image).or_default() += 1;
                    }
                    continue;
                }
                Stage::Pulled if attempt.stop.is_none() => self.pulls.is_ready(attempt.position, *token),
                _ => continue,
            };
            waiting += 1;
            if !held {
                faults.push(format!("{token} waits for an image or a slot and is nowhere"));
            }
        }
        let pulling: u32 = images.values().sum();
        if waiting + pulling as usize != self.pulls.len() || images.len() != self.pulls.images_in_progress() {
            faults.push(format!("{waiting} attempts wait and {pulling} pull, {:?} are counted", self.pulls));
        }
        if images.iter().any(|(image, attempts)| *attempts != self.pulls.attempts_pulling(image)) {
            faults.push(format!("{images:?} are pulled, {:?} are counted", self.pulls));
        }
        if self.pulls.images_in_progress() > self.pulls.pull_slots() as usize {
            faults.push(format!("{} images are pulled at once", self.pulls.images_in_progress()));
        }
    }

    fn audit_backlog(&self, faults: &mut Vec<String>) {
        let mut waiting = 0;
        for (token, attempt) in &self.attempts {
            let held = match attempt.stage {
                Stage::Waiting => self.backlog.is_queued(attempt.position, *token),
                Stage::WaitingForDefinition { .. } => {
                    self.backlog.is_parked(attempt.revision, *token) && attempt.definition.is_none()
                }
                _ => continue,
            };
            waiting += 1;
            if !held {
                faults.push(format!("{token} waits and is nowhere"));
            }
        }
        if waiting != self.backlog.len() {
            faults.push(format!("{waiting} attempts wait, the backlog holds {}", self.backlog.len()));
        }
    }

    fn audit_alarms(&self, faults: &mut Vec<String>) {
        let set: BTreeSet<_> =
            self.attempts.iter().filter_map(|(token, attempt)| Some((attempt.alarm?, *token))).collect();
        if set != self.alarms {
            faults.push(format!(
                "{} attempts have an alarm, {} alarms are set",
                set.len(),
                self.alarms.len()
            ));
        }
        for (token, attempt) in &self.attempts {
            if attempt.is_prepared_or_run() && attempt.stop.is_some() && attempt.alarm.is_none() {
                faults.push(format!("{token} is stopped and nobody looks after it"));
            }
            if let Stage::Ended(ended) = &attempt.stage
                && ended.acknowledged
                && (ended.output_done || attempt.alarm.is_none())
            {
                faults.push(format!("{token} is never forgotten"));
            }
        }
    }

    fn audit_unsent_output(&self, faults: &mut Vec<String>) {
        let mut waiting = 0;
        for (token, attempt) in &self.attempts {
            let Stage::Ended(ended) = &attempt.stage else { continue };
            let is_waiting = ended.unsent.is_some_and(|number| self.unsent_output.is_waiting(number, *token));
            waiting += usize::from(is_waiting);
            if is_waiting != (ended.acknowledged && !ended.output_done) {
                faults.push(format!("{token} waits for its output: {is_waiting}"));
            }
        }
        if waiting != self.unsent_output.len() {
            faults.push(format!("{waiting} wait for their output, {} are counted", self.unsent_output.len()));
        }
    }

    fn audit_reports(&self, faults: &mut Vec<String>) {
        let finals: Vec<Token> = self.outbox.finals().collect();
        let distinct: BTreeSet<Token> = finals.iter().copied().collect();
        for (token, attempt) in &self.attempts {
            let has_secrets = *attempt.secrets != SecretValues::default();
            if matches!(attempt.stage, Stage::Ended(_)) && (has_secrets || attempt.overrides.is_some()) {
                faults.push(format!("{token} has ended and keeps its secrets or overrides"));
            }
            match &attempt.stage {
                Stage::Ended(ended) if ended.acknowledged == distinct.contains(token) => {
                    faults.push(format!("{token} has ended; acknowledged: {}", ended.acknowledged));
                }
                Stage::AwaitingStartAck { cleared: false } if !self.outbox.is_starting_on_its_way(*token) => {
                    faults.push(format!("{token} asks and nobody hears it"));
                }
                _ => {}
            }
        }
        let is_unanswered = matches!(self.link.state, State::Down | State::AwaitingWelcome { .. });
        if is_unanswered
            && (self.notices.inventory || !self.notices.status.is_empty() && self.link.state == State::Down)
        {
            faults.push(String::from("there is something to say and nobody to say it to"));
        }
    }

    fn audit_shutdown(&self, faults: &mut Vec<String>) {
        if self.shutdown_mode().is_some() && self.attempts.values().any(Attempt::is_unstarted) {
            faults.push(String::from("the worker shuts down and keeps unstarted attempts"));
        }
    }

    fn is(&self, token: Token, what: impl Fn(&Attempt) -> bool) -> bool {
        self.attempts.get(&token).is_some_and(what)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::time::Duration;

    use protocol::order::{Assignment, Cancel, Definition, Intervals, Reconciled, StopCause, Welcome};
    use protocol::report::Availability;
    use protocol::secret::SecretValue;
    use protocol::{
        ClusterId, ContainerSpec, Epoch, Fence, Incarnation, JobId, Nonce, Now, Order, ReportNo, Revision,
        RuntimeKind, SessionId, Timestamp, Uptime, WorkerId,
    };

    use super::*;
    use crate::backlog::Backlog;
    use crate::core::Config;
    use crate::input::Input;
    use crate::policy::Policy;
    use crate::slots::Slots;

    /// A worker with one attempt in its only slot, and one in the backlog.
    fn worker() -> Worker {
        let config = Config {
            name: "w1".into(),
            secret: [7; 32],
            cluster: None,
            rejoin: false,
            incarnation: Incarnation(1),
            process: 1,
            engine: None,
            version: "0.1.0".into(),
            slots: 1,
            backlog: 1,
            pull_slots: 1,
            policy: Policy::allow_all(),
            labels: Vec::new(),
            resources: Default::default(),
            runtimes: vec![(RuntimeKind::Docker, Availability::Available)],
        };
        let welcome = Welcome {
            version: 1,
            session: SessionId(1),
            epoch: Epoch(1),
            cluster: ClusterId(1),
            worker: WorkerId(7),
            intervals: Intervals::default(),
            last_report: ReportNo(0),
        };
        let revision = Revision(1);
        let definition = Definition { revision, name: "job".into(), container: ContainerSpec::default() };
        let assignment = |token| Assignment {
            token,
            priority: 0,
            waited: Duration::ZERO,
            revision,
            overrides: None,
            time_left: None,
            memory_bytes: None,
            secrets: None,
            gpus: Vec::new(),
        };
        let orders = [
            Order::Welcome(welcome),
            Order::Reconciled(Reconciled { attempts: Vec::new(), last: true }),
            Order::Definitions(vec![definition]),
            Order::Enqueue(vec![assignment(token(1)), assignment(token(2))]),
        ];
        let mut worker = Worker::new(config, 1);
        for input in [Input::Connected].into_iter().chain(orders.map(Input::Ordered)) {
            worker.step(Now { utc: Timestamp(0), up: Uptime(0) }, input);
        }
        worker
    }

    fn token(job: u64) -> Token {
        Token { job: JobId(job), fence: Fence(job), nonce: Nonce(1) }
    }

    fn after(harm: impl FnOnce(&mut Worker)) -> Vec<String> {
        let mut worker = worker();
        assert_eq!(worker.audit(), Vec::<String>::new());
        harm(&mut worker);
        worker.audit()
    }

    #[test]
    fn an_attempt_that_is_cancelled_in_the_backlog_keeps_no_secrets() {
        let faults = after(|worker| {
            let masked = [SecretValue(b"hunter2".to_vec())].into();
            let attempt = worker.attempts.get_mut(&token(2)).expect("it waits");
            attempt.secrets = SecretValues { masked, ..SecretValues::default() }.into();
            let cancel = Cancel { token: token(2), grace: None, cause: StopCause::Cancel };
            worker.step(Now { utc: Timestamp(0), up: Uptime(0) }, Input::Ordered(Order::Cancel(cancel)));
            assert!(matches!(worker.attempts[&token(2)].stage, Stage::Ended(_)));
        });
        assert_eq!(faults, Vec::<String>::new());
    }

    #[test]
    fn audit_reports_inconsistent_state() {
        let told = |faults: &[String], what: &str| {
            assert!(faults.iter().any(|fault| fault.contains(what)), "{what}: {faults:?}");
        };
        told(&after(|it| it.slots = Slots::new(1)), "1 attempts hold a slot, 0 slots are counted busy");
        told(
            &after(|it| it.cleared.extend([token(1)])),
            "is cleared and does not await an acknowledgement of its start",
        );
        told(&after(|it| it.alarms.extend([(Uptime(1), token(2))])), "alarms are set");
        let lost = after(|it| it.backlog = Backlog::default());
        told(&lost, "waits and is nowhere");
        told(&lost, "1 attempts wait, the backlog holds 0");
    }
}
