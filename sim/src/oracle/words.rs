//! Statements of the server: never anything that a crash could unsay.

use protocol::{JobId, Order};
use scheduler::input::KeyHolder;
use scheduler::job::State;
use scheduler::step::Answer;

use super::Oracle;
use crate::clients::REQUESTER;
use crate::clock::Moment;
use crate::disk::Disk;
use crate::request::{Command, Request};

impl Oracle {
    /// I1, I2, I18: a client is answered.
    pub(crate) fn answered(&mut self, now: Moment, disk: &Disk, request: &Request, answer: &Answer) {
        match answer {
            Answer::Accepted(it) => self.promised(now, disk, request, it.first, it.count),
            Answer::Replayed(it) => self.promised(now, disk, request, it.job, it.count),
            Answer::CancelRequested { state } => {
                let Command::Cancel(job) = request.command else { return };
                self.cancelled.insert(job);
                let is_durable = disk.row(job).is_some_and(|row| row.state == State::Cancelled);
                if *state == State::Cancelled && !is_durable {
                    self.violated(now, "I18 told before it was durable", format!("job {job} is cancelled"));
                }
            }
            _ => {}
        }
    }

    fn promised(&mut self, now: Moment, disk: &Disk, request: &Request, first: JobId, count: u32) {
        let Command::Jobs(order) = &request.command else { return };
        let mut jobs = (first.0..first.0 + u64::from(count)).map(JobId);
        if let Some(missing) = jobs.find(|job| disk.row(*job).is_none()) {
            self.violated(now, "I1 I18 an accepted job is durable", format!("job {missing}"));
        }
        let mut rows =
            (first.0..first.0 + u64::from(count)).filter_map(|job| Some((job, disk.row(JobId(job))?)));
        if let Some((job, row)) = rows.find(|(_, row)| row.submitted_by.as_deref() != Some(REQUESTER)) {
            let what = format!("job {job} is of {:?}", row.submitted_by);
            self.violated(now, "I30 a job names its requester", what);
        }
        self.accepted.push((first, count));
        let Some(key) = &request.key else { return };
        let holder = KeyHolder { job: first, count, digest: order.digest };
        let before = *self.keys.entry(key.clone()).or_insert(holder);
        if before != holder {
            let what = format!("{key} stood for job {}, and now for job {first}", before.job);
            self.violated(now, "I2 a key stands for one request", what);
        }
        if disk.keys.get(key) != Some(&holder) {
            self.violated(now, "I18 told before it was durable", format!("{key} stands for job {first}"));
        }
    }

    /// I18: the clients that wait for the end of a job are woken.
    pub(crate) fn told_end(&mut self, now: Moment, disk: &Disk, job: JobId, state: State) {
        if disk.row(job).is_none_or(|row| row.state != state) {
            self.violated(now, "I18 told before it was durable", format!("job {job} {}", state.name()));
        }
    }

    /// I18, I19: a worker is told something.
    pub(crate) fn ordered(&mut self, now: Moment, disk: &Disk, no: u16, order: &Order) {
        match order {
            Order::Acknowledge(number) => {
                let broken = self.promises[usize::from(no)].broken(disk, *number);
                // It may have been durable before the store went back, and its worker knows that by Welcome.
                if let Some(token) = broken.filter(|token| !self.is_of_the_past(*token)) {
                    self.violated(now, "I19 acknowledged before it was durable", format!("{token} of w{no}"));
                }
            }
            Order::Welcome(_) => self.sent[usize::from(no)].clear(),
            Order::Enqueue(list) => {
                if let Some(it) =
                    list.iter().find(|it| disk.row(it.token.job).is_none_or(|row| row.attempts.0 == 0))
                {
                    self.violated(
                        now,
                        "I18 told before it was durable",
                        format!("{} is handed out", it.token),
                    );
                }
                let has_started = |token: protocol::Token| {
                    let latest = disk.row(token.job).and_then(|row| row.latest.as_ref());
                    latest.is_some_and(|latest| latest.token == token && latest.started_at.is_some())
                };
                // An order that is repeated may cross the report of the start; the worker knows the attempt.
                let sent = &mut self.sent[usize::from(no)];
                let is_repeated: Vec<bool> = list.iter().map(|it| !sent.insert(it.token)).collect();
                let new = list.iter().zip(is_repeated).filter(|(_, is_repeated)| !is_repeated);
                if let Some((it, _)) = new.into_iter().find(|(it, _)| has_started(it.token)) {
                    let what = format!("{} is handed out although it has started", it.token);
                    self.violated(now, "I12 an attempt runs once", what);
                }
            }
            _ => {}
        }
    }
}
