//! Notes about a job that a verb follows or waits for, so that a job that cannot go on is not silent.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::LogRequest;
use crate::api::{Api, parse};
use crate::screen;
use crate::view::{self, FullJob, JobView as _, WorkerRefView as _};

/// The notes that were printed about a job.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Reasons for which the job has waited since this number of attempts, with a note about each.
    waits: (u32, BTreeSet<String>),
    pub(super) reported_ends: ReportedEnds,
}

/// The latest attempt whose end was printed, and the code of the reason for which the job waited then. The notes and the output of a job share
/// it, so that an end is printed once.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportedEnds(Arc<Mutex<(u32, String)>>);

impl ReportedEnds {
    /// Records the end of an attempt before it is printed. Returns false if it was printed before.
    pub(super) fn begin(&self, attempt: u32, code: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = attempt > told.0;
        if is_new {
            *told = (attempt, code.to_owned());
        }
        is_new
    }

    /// True if the end of this attempt was printed with this reason.
    fn has(&self, attempt: u32, code: &str) -> bool {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (told.0, told.1.as_str()) == (attempt, code)
    }
}

impl Notes {
    /// Runs a wait for the job, and prints meanwhile what changes.
    ///
    /// # Cancel safety
    /// As `wait`.
    pub(crate) async fn beside<T>(&mut self, api: &Api, id: u64, wait: impl Future<Output = T>) -> T {
        let mut wait = pin!(wait);
        tokio::select! {
            biased;
            result = &mut wait => result,
            // A job with members makes no attempts of its own, about which there were notes.
            () = self.watch(api, id) => wait.await,
        }
    }

    /// Prints what changes until the job has members.
    pub(super) async fn watch(&mut self, api: &Api, id: u64) {
        let mut pause = PAUSE_MIN;
        loop {
            tokio::time::sleep(pause).await;
            if self.look(api, id).await {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks for the job once, and returns whether it has members. The verb itself reports a server that does not answer.
    pub(super) async fn look(&mut self, api: &Api, id: u64) -> bool {
        let Ok(json) = api.json(api.get(&["api", "jobs", &id.to_string()])).await else { return false };
        let Ok(details) = parse::<FullJob>(api, &json) else { return false };
        self.tell_wait(&details);
        details.job.members.is_some()
    }

    /// Notes once per attempt and reason that the job waits again.
    fn tell_wait(&mut self, details: &FullJob) {
        let job = &details.job;
        let Some(last) = details.attempts.last().filter(|last| last.ended_at.is_some() && job.queuing) else {
            return;
        };
        let (code, why) = match &job.pending_reason {
            Some(reason) => (reason.code.to_string(), format!(": {}", reason.text)),
            None => (String::new(), String::new()),
        };
        if self.waits.0 != job.attempt_count {
            self.waits = (job.attempt_count, BTreeSet::new());
        }
        let is_told = self.reported_ends.has(last.number, &code);
        self.reported_ends.begin(last.number, &code);
        if !self.waits.1.insert(code) || is_told {
            return;
        }
        let outcome = last.outcome.as_deref().map(view::in_words).unwrap_or_default();
        let message = if last.message.is_empty() { String::new() } else { format!(": {}", last.message) };
        let (number, worker) = (last.number, last.worker.label());
        screen::note(&format!(
            "longshore: attempt {number} on {worker} {outcome}{message}; job {} waits again{why}",
            job.id
        ));
    }
}

/// Notes that a job has no output because no attempt of it has begun. JSON is for programs, which ask for the job.
pub(super) async fn tell_unstarted(api: &Api, wanted: &LogRequest) {
    if wanted.as_json {
        return;
    }
    let Ok(json) = api.json(api.get(&["api", "jobs", &wanted.id.to_string()])).await else { return };
    let Ok(job) = parse::<view::Job>(api, &json) else { return };
    if job.attempt_count > 0 {
        return;
    }
    let (id, why) = (job.id, job.reason_text());
    screen::note(&match (job.has_ended(), why.as_str()) {
        (true, _) => format!("longshore: job {id} has ended without a start: {}", job.end_text()),
        (false, "") => format!("longshore: job {id} has not started: it is {}", job.state_text()),
        (false, why) => format!("longshore: job {id} has not started: it is {}; {why}", job.state_text()),
    });
}

/// A job that waits for less is not worth a note.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// A pause doubles up to this, so that hundreds of clients that wait for hours ask little.
const PAUSE_MAX: Duration = Duration::from_secs(32);
