//! Pauses, changes of batches, and past slots of schedules.

use std::time::Duration;

use super::World;
use super::protocol::{JobId, Timestamp};
use super::scheduler::batches::{BatchUpdate, NewLimit};
use super::scheduler::ids::GroupNo;
use super::scheduler::input::{BackfillRequest, ChangeBatchRequest, Input, PauseRequest};
use super::scheduler::origin::Origin;
use super::scheduler::pauses::PauseTarget;
use super::scheduler::schedule::ScheduleId;

impl World {
    /// `all`, `schedules`, `group:name`, `batch:j1`, `name`, or `name/schedule`.
    pub fn pause(&mut self, target: &str, paused: bool) {
        self.pause_with(target, paused, None, Origin::default());
    }

    /// As [`World::pause`], with the end and the origin of a pause.
    pub fn pause_with(&mut self, target: &str, paused: bool, lasts: Option<Duration>, origin: Origin) {
        let target = match target.split_once('/') {
            Some((name, id)) => PauseTarget::Schedule(name.into(), ScheduleId::named(id)),
            None if target == "all" => PauseTarget::Server,
            None if target == "schedules" => PauseTarget::Schedules,
            None => match target.strip_prefix("group:") {
                Some(group) => PauseTarget::Group(group.into()),
                None => match target.strip_prefix("batch:j") {
                    Some(first) => PauseTarget::Batch(JobId(first.parse().expect("a number"))),
                    None => PauseTarget::Definition(target.into()),
                },
            },
        };
        let ticket = self.ticket();
        let until = lasts.map(|lasts| self.now.utc + lasts);
        self.step(Input::Pause(PauseRequest { ticket, target, paused, until, origin }));
    }

    /// `max_failures=3`, `concurrency=none`, or both.
    #[allow(dead_code, reason = "used in part by each test")]
    pub fn change_batch<'t>(&mut self, batch: JobId, option: impl Fn(&'static str) -> Option<&'t str>) {
        let limit = |name| match option(name) {
            None => NewLimit::Keep,
            Some("none") => NewLimit::Lift,
            Some(limit) => NewLimit::Set(limit.parse().expect("a number")),
        };
        let update = BatchUpdate { max_failures: limit("max_failures"), concurrency: limit("concurrency") };
        let ticket = self.ticket();
        self.step(Input::ChangeBatch(ChangeBatchRequest { ticket, batch, update }));
    }

    /// Slots are given in seconds from the start of the story; the ledger was read `behind` commits ago.
    pub fn backfill(&mut self, target: &str, slots: Vec<Timestamp>, interval: Duration, behind: u64) {
        let (name, id) = target.split_once('/').unwrap_or((target, "main"));
        let (definition, schedule) = (name.into(), ScheduleId::named(id));
        let read_at = GroupNo((self.steps.len() as u64).saturating_sub(behind));
        let ticket = self.ticket();
        let request =
            BackfillRequest { ticket, definition, schedule, slots, interval, submitted_by: None, read_at };
        self.step(Input::Backfill(request));
    }
}
