//! The state of a worker's process: the state machine, its link, and the tasks of the worker program.

use std::collections::VecDeque;

use protocol::Token;
use protocol::order::StopCause;
use worker::step::Launch;
use worker::{Effect, Input, Worker};

use super::Machine;
use crate::clock::Moment;
use crate::connection::ConnectionNo;
use crate::docker::CliEnd;

#[derive(Debug)]
pub(crate) struct Process {
    /// Absent while it looks at what an earlier process has left.
    pub(crate) worker: Option<Worker>,
    /// As it says in Hello.
    pub(crate) number: u64,
    pub(crate) link: Option<ConnectionNo>,
    /// Counts links, so that the timers of an earlier one are known.
    pub(crate) link_no: u32,
    pub(crate) tasks: Vec<Task>,
    pub(crate) tasks_given: u32,
    /// True if it believes that its engine answers.
    pub(crate) trusts_engine: bool,
    /// True if the engine was silent when it was asked what an earlier process has left.
    pub(crate) is_unlisted: bool,
    /// True if it believes that its disk is nearly full.
    pub(crate) is_short_of_room: bool,
    /// The worker knows that nothing can be recorded.
    pub(crate) knows_full_disk: bool,
    /// True if nothing is started until a probe has worked.
    pub(crate) has_unconfirmed_attempts: bool,
    /// Events of runtimes that came before the state machine was made.
    pub(crate) early: VecDeque<Input>,
    /// The tick that counts.
    pub(crate) wake: Moment,
    /// Effects that it was frozen in front of.
    pub(crate) stuck: Vec<Effect>,
}

/// A fault that hits a worker's process at a certain point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlannedFault {
    /// The process crashes after this number of further effects.
    CrashAfterEffects { effects: u32, back_after: std::time::Duration },
    /// The process freezes before its next `docker run`.
    FreezeBeforeRun { lasts: std::time::Duration },
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) no: u32,
    pub(crate) launch: Launch,
    pub(crate) stage: Stage,
    /// The number that its next event must have.
    pub(super) turn: u32,
    pub(crate) stop: Option<StopCause>,
    /// With which grace it is being asked to stop.
    pub(super) asked: Option<std::time::Duration>,
    /// True if the worker knows that its container has started.
    pub(crate) started: bool,
    /// How often `docker run` was tried; what an earlier process has begun is not tried again.
    pub(super) tries: u32,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The leftovers of the same attempt are being removed.
    Waiting,
    Preparing,
    /// Its image is missing; the state machine says when it may be pulled.
    Imageless,
    Pulling,
    /// The worker is asked whether its container may be made.
    Prepared,
    /// `docker run` is under way.
    Running,
    /// Its container runs, and no CLI of ours is there to tell its end.
    Following,
    /// The engine is asked what became of it.
    Settling(CliEnd),
    /// The worker knows its end.
    Ended,
    /// Container and directory are being removed.
    Discarding,
}

impl Machine {
    /// Nothing can be recorded in its state directory.
    pub(crate) fn has_full_disk(&self, now: Moment) -> bool {
        self.full_disk_from <= now && now < self.low_disk_until
    }

    pub(crate) fn task(&mut self, token: Token) -> Option<&mut Task> {
        let process = self.process.as_mut()?;
        process.tasks.iter_mut().find(|it| it.launch.token == token && it.stage != Stage::Discarding)
    }

    /// Takes an attempt into the books.
    pub(super) fn add_task(&mut self, launch: Launch, stage: Stage, stop: Option<StopCause>) {
        let Some(process) = &mut self.process else { return };
        process.tasks_given += 1;
        let no = process.tasks_given;
        process.tasks.push(Task { no, launch, stage, turn: 0, stop, asked: None, started: false, tries: 0 });
    }
}
