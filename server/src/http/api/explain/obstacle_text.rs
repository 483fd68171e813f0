//! The obstacles of workers as text.

use protocol::report::Availability;
use protocol::{JobId, Now, RuntimeKind, Uptime, WorkerId};
use scheduler::definition::Definition;
use scheduler::explain::{Explanation, Obstacle, WorkerVerdict};
use scheduler::placement::exclusion::Excluded;
use scheduler::placement::rules::EXCLUSIVE;
use scheduler::reservation::{Reservation, ResourceKind};
use scheduler::snapshot::WorkerFacts;

use crate::http::present::shapes::{self, Time};
use crate::http::present::size::bytes;
use crate::http::present::worker::suspect_rule;
use crate::store::AttemptRow;

/// The name of a worker, or its number if it was forgotten.
pub(super) fn name_of(explanation: &Explanation, worker: WorkerId) -> String {
    let named = explanation.workers.iter().find(|it| it.worker == worker);
    named.map_or_else(|| format!("worker {worker}"), |it| it.name.to_string())
}

/// The facts for the text of an obstacle.
pub(super) struct ObstacleText<'s> {
    pub(super) now: Now,
    pub(super) job: JobId,
    pub(super) explanation: &'s Explanation,
    /// The worker that has the obstacle.
    pub(super) worker: &'s WorkerVerdict,
    /// Absent for a worker that is disconnected and has no attempts.
    pub(super) facts: Option<&'s WorkerFacts>,
    /// The last attempt of the job that this worker refused.
    pub(super) refusal: Option<&'s AttemptRow>,
}

impl ObstacleText<'_> {
    /// The JSON of an obstacle.
    pub(super) fn obstacle(&self, obstacle: Obstacle) -> shapes::Obstacle {
        let until = match obstacle {
            Obstacle::Excluded(_, until) => until.map(|until| self.instant(until)),
            _ => None,
        };
        shapes::Obstacle { code: obstacle.name().into(), text: self.text(obstacle, until).into(), until }
    }

    /// A resource with the amounts that decide: what the job reserves, and what the worker offers and others have reserved.
    fn resource(&self, kind: ResourceKind, with_use: bool) -> String {
        let wanted = Reservation::of(&self.definition().container.resources);
        let offer = self.facts.map(|facts| &facts.offer);
        let used = self.facts.map(|facts| &facts.in_use).filter(|_| with_use);
        let cores = |milli: u64| format!("{}.{:03}", milli / 1_000, milli % 1_000);
        let (name, wanted, offered, used) = match kind {
            ResourceKind::Cpus => (
                "cpus".to_owned(),
                cores(u64::from(wanted.cpus_milli)),
                offer.and_then(|it| it.cpus_milli).map(|milli| cores(u64::from(milli))),
                used.map(|it| cores(it.cpus_milli)),
            ),
            ResourceKind::Memory => (
                "memory".to_owned(),
                bytes(wanted.memory_bytes),
                offer.and_then(|it| it.memory_bytes).map(bytes),
                used.map(|it| bytes(it.memory_bytes)),
            ),
            ResourceKind::Gpus => (
                "gpus".to_owned(),
                wanted.gpus.to_string(),
                offer.map(|it| it.gpus.len().to_string()),
                used.map(|it| it.gpus.len().to_string()),
            ),
            ResourceKind::Custom(index) => {
                let (name, amount) = wanted.custom.get(usize::from(index)).cloned().unwrap_or_default();
                let offered =
                    offer.map(|it| it.custom.iter().find(|(of, _)| *of == name).map_or(0, |it| it.1));
                let used = used.map(|it| it.custom.get(&name).copied().unwrap_or(0).to_string());
                (name, amount.to_string(), offered.map(|amount| amount.to_string()), used)
            }
        };
        let offered = offered.map(|offered| format!(", it offers {offered}")).unwrap_or_default();
        let used = used.map(|used| format!(", {used} reserved")).unwrap_or_default();
        format!("{name} (the job needs {wanted}{offered}{used})")
    }

    fn text(&self, obstacle: Obstacle, until: Option<Time>) -> String {
        match obstacle {
            Obstacle::PinnedElsewhere(only) => {
                let only = name_of(self.explanation, only);
                format!(
                    "the job may only run on {only}: its last attempt was there (retry.on: same), or it is its own as a member (run_on)"
                )
            }
            Obstacle::Offline | Obstacle::Unreachable => match (self.worker.revoked_at, self.facts) {
                (Some(at), _) => format!("it was revoked at {}, and can only join as a new worker", Time(at)),
                (None, _) if obstacle == Obstacle::Offline => "it is not connected".into(),
                (None, Some(facts)) => format!("it has been unreachable since {}", Time(facts.since)),
                (None, None) => "it is unreachable".into(),
            },
            Obstacle::Sibling => "another member of its parent is or was on it (run_on)".to_owned(),
            Obstacle::NotListed => {
                let names = self.definition().placement.workers.iter().map(ToString::to_string);
                format!("the definition lists other workers: {}", names.collect::<Vec<_>>().join(", "))
            }
            Obstacle::NotAskedFor => match &self.explanation.narrowing {
                Some(narrowing) => format!("this job asks for {narrowing}"),
                None => "this job asks for other workers".to_owned(),
            },
            Obstacle::Condition(index) => self.condition(index),
            Obstacle::NoRuntime => format!("it does not offer the runtime {}", self.runtime().name()),
            Obstacle::TooOld => {
                let needed = self.definition().container.protocol_version();
                format!(
                    "options of this container need version {needed} of the protocol, and it speaks an older one: upgrade the worker"
                )
            }
            Obstacle::Requirement(index) => self.requirement(index),
            Obstacle::Exclusive => match self.label(EXCLUSIVE) {
                Some(labels) => {
                    format!("it takes only jobs that require each of its exclusive labels: {labels}")
                }
                None => "it takes only jobs that require each of its exclusive labels".into(),
            },
            Obstacle::TooLarge(kind) => format!("it offers too little {}", self.resource(kind, false)),
            Obstacle::Resources(kind) => {
                let set_aside = self.facts.and_then(|facts| facts.set_aside_for) == Some(self.job);
                let note = if set_aside {
                    "; it is set aside for this job: later ones get nothing that it needs"
                } else {
                    ""
                };
                format!("other jobs have reserved too much of its {}{note}", self.resource(kind, true))
            }
            Obstacle::RuntimeUnavailable => {
                format!("its runtime {} does not work{}", self.runtime().name(), self.cause())
            }
            Obstacle::Draining => {
                format!("it is draining: it finishes what it has, and leaves{}", self.cordon())
            }
            Obstacle::Cordoned => format!("it is cordoned{}", self.cordon()),
            Obstacle::Excluded(of, _) => {
                let end = until.map_or("until it starts anew".to_owned(), |until| format!("until {until}"));
                let rule = match of {
                    Excluded::Suspect => format!(" ({})", suspect_rule()),
                    Excluded::Anything | Excluded::Runtime(_) | Excluded::Revision(_) => String::new(),
                };
                format!("it is not offered {} {end}{rule}{}", excluded(of), self.refusal())
            }
            Obstacle::Probing => {
                format!(
                    "it is suspect: it gets one job at a time until a container has started ({})",
                    suspect_rule()
                )
            }
            Obstacle::Busy => match self.facts {
                Some(it) if self.definition().takes_free_slots_only() || it.queued < it.backlog => {
                    format!("its slots ({}) are taken", it.slots)
                }
                Some(it) => format!("its slots ({}) and its backlog ({}) are taken", it.slots, it.backlog),
                None => "its slots are taken".into(),
            },
            Obstacle::SetAside(job) => {
                format!("it is set aside for job {job}, which goes first once there is room for it")
            }
            Obstacle::Joining => "it has just connected: what it holds is being settled".into(),
        }
    }

    fn definition(&self) -> &Definition {
        &self.explanation.definition
    }

    /// The message of its last refusal, if this job was refused; another job may have caused the exclusion.
    fn refusal(&self) -> String {
        match self.refusal.filter(|attempt| !attempt.message.is_empty()) {
            Some(attempt) => format!("; attempt {} ended here: {}", attempt.number, attempt.message),
            None => String::new(),
        }
    }

    fn runtime(&self) -> RuntimeKind {
        self.definition().runtime()
    }

    /// The condition that the worker does not meet, and what it has instead.
    fn requirement(&self, index: u16) -> String {
        let Some(rule) = self.definition().placement.requires.get(usize::from(index)) else {
            return "it does not meet a condition".into();
        };
        match (self.facts, self.label(&rule.label)) {
            (None, _) => format!("needs {rule}"),
            (Some(_), Some(value)) => format!("needs {rule}, has {}={value}", rule.label),
            (Some(_), None) => format!("needs {rule}, has no such label"),
        }
    }

    fn condition(&self, index: u16) -> String {
        let narrowing = self.explanation.narrowing.as_ref();
        let Some(rule) = narrowing.and_then(|narrowing| narrowing.requires.get(usize::from(index))) else {
            return "it does not meet a condition of the job".into();
        };
        match (self.facts, self.label(&rule.label)) {
            (None, _) => format!("this job asks for {rule}"),
            (Some(_), Some(value)) => format!("this job asks for {rule}, and it has {}={value}", rule.label),
            (Some(_), None) => format!("this job asks for {rule}, and it has no such label"),
        }
    }

    /// The origin of its cordon or drain, if it is known, in parentheses.
    fn cordon(&self) -> String {
        let cordon = self.worker.cordon.as_ref().map(shapes::Intervention::of);
        cordon.map(|cordon| format!(" ({})", cordon.words())).unwrap_or_default()
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.facts?.label(name)
    }

    /// The cause for which its runtime is unavailable, with a leading colon.
    fn cause(&self) -> String {
        let runtime = self.runtime();
        let told = self.facts.and_then(|facts| facts.runtimes.iter().find(|(kind, _)| *kind == runtime));
        match told {
            Some((_, Availability::Unavailable(why))) if !why.is_empty() => format!(": {why}"),
            _ => String::new(),
        }
    }

    /// Converts a monotonic time to wall-clock time by the present difference of both clocks.
    fn instant(&self, up: Uptime) -> Time {
        Time(self.now.utc + up.since(self.now.up))
    }
}

const fn excluded(of: Excluded) -> &'static str {
    match of {
        Excluded::Anything => "anything, because it gave work back,",
        Excluded::Suspect => {
            "anything, because it is suspect: it failed to start jobs of several definitions,"
        }
        Excluded::Runtime(_) => "jobs of this runtime, because it gave one back,",
        Excluded::Revision(_) => "this revision, which it could not start or does not allow,",
    }
}
