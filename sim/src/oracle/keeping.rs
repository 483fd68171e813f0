//! The data that a worker keeps until it is durable elsewhere: reports, containers, directories.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::{Report, ReportNo, Token};

use super::Oracle;
use crate::clock::Moment;
use crate::disk::Disk;
use crate::machine::Machine;

/// Ends that a worker's process has reported and that were not acknowledged yet, by number.
#[derive(Debug, Default)]
pub(super) struct Promises {
    ends: VecDeque<(ReportNo, Token)>,
}

impl Promises {
    /// Another process numbers its reports anew.
    pub(super) fn begin(&mut self) {
        self.ends.clear();
    }

    pub(super) fn note(&mut self, report: &Report) {
        match report {
            Report::Success(list) => self.keep(list.first, list.list.iter().map(|it| it.token)),
            Report::Failure(list) => self.keep(list.first, list.list.iter().map(|it| it.token)),
            Report::Released(list) => self.keep(list.first, list.list.iter().map(|it| it.token)),
            _ => {}
        }
    }

    fn keep(&mut self, first: ReportNo, tokens: impl Iterator<Item = Token>) {
        for (number, token) in (first.0..).zip(tokens) {
            if self.ends.back().is_none_or(|(last, _)| last.0 < number) {
                self.ends.push_back((ReportNo(number), token));
            }
        }
    }

    /// An attempt whose end is acknowledged by this number although the disk does not have it.
    pub(super) fn broken(&mut self, disk: &Disk, number: ReportNo) -> Option<Token> {
        while let Some((_, token)) = self.ends.front().copied().filter(|(at, _)| *at <= number) {
            self.ends.pop_front();
            if disk.is_current(token) {
                return Some(token);
            }
        }
        None
    }
}

impl Oracle {
    /// I19: a worker removes what is left of an attempt.
    pub(crate) fn check_removal(
        &mut self,
        now: Moment,
        disk: &Disk,
        machine: &Machine,
        token: Token,
        gives_up_output: bool,
    ) {
        let kept = machine.directory.attempts.iter().find(|it| it.launch.token == token);
        let Some(ending) = kept.and_then(|kept| kept.ending.as_ref()) else { return };
        if disk.is_current(token) && !self.is_confused_machine(machine) && !self.is_of_the_past(token) {
            let what = format!("w{} forgets {token}", machine.no);
            self.violated(now, "I19 an outcome is kept until it is durable", what);
        }
        let truth = *self.truth(token);
        let waited_for = truth.end.map(|end| now.since(end.at)).unwrap_or_default();
        let was_low = truth.end.is_some_and(|end| machine.low_disk_until > end.at);
        let timeout = if was_low { LOW_DISK_TIMEOUT } else { OUTPUT_TIMEOUT };
        let may_give_up = gives_up_output && waited_for > timeout;
        if ending.output.stdout > 0 && !truth.output_arrived && !may_give_up {
            let what = format!("w{} forgets {token}", machine.no);
            self.violated(now, "I19 output is kept until it is durable", what);
        }
    }
}

/// Ten minutes by the fastest clock.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(560);
/// Half a minute by the fastest clock, where there was hardly any room.
const LOW_DISK_TIMEOUT: Duration = Duration::from_secs(28);
