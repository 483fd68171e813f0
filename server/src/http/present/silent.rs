//! The reasons of jobs whose worker, or whose runtime there, is silent.

use std::time::Duration;

use protocol::order::StopCause;
use protocol::report::Availability;
use scheduler::definition::OnLost;

use crate::clock;
use crate::http::present::presenter::{Presenter, is_reconciled};
use crate::http::present::shapes::{self, Time};
use crate::store::{AttemptRow, JobRow};

impl Presenter {
    /// The text for an unreachable worker: since when, when the attempt is given up, and the consequence.
    pub(super) fn absence(&self, row: &JobRow, attempt: &AttemptRow) -> Option<shapes::Reason> {
        let since = self.unreachable_since(attempt)?;
        let worker = self.worker(attempt)?;
        let then = self.definition(row).map(|definition| {
            let is_cancelled = attempt.stopping == Some(StopCause::Cancel);
            // The time counts from the last message, which was a lease before the worker became unreachable, or just before it was revoked.
            let after = definition.given_up_after(is_cancelled).unwrap_or_default();
            let silent_before = if worker.revoked_at == Some(since.0) { Duration::ZERO } else { self.lease };
            let given_up = Time(since.0 - silent_before + after);
            let job_then =
                |becomes| format!("about {given_up} its attempt is given up, and the job {becomes}");
            match definition.loss.on_lost {
                _ if is_cancelled => job_then("is cancelled"),
                // A revoked worker does not come back, and one that its definition does not list may not keep the job.
                OnLost::Retry if worker.revoked_at.is_some() || attempt.stopping == Some(StopCause::Pinning) => {
                    job_then("is tried again")
                }
                OnLost::Retry if clock::now().utc < given_up.0 => format!(
                    "from about {given_up} on, once another connected worker may run the job, its attempt is given up, and the job is tried again"
                ),
                OnLost::Retry => format!(
                    "no other connected worker may run the job now (a pause counts as well), so it waits for this one; \
                     once another may, or somebody releases the job (longshore release {}), its attempt is given up, \
                     and the job is tried again",
                    row.job
                ),
                OnLost::Fail => job_then("ends as lost"),
                OnLost::Wait if definition.waits.silent_worker.is_some() => {
                    job_then("ends as lost, unless somebody releases it before")
                }
                OnLost::Wait => format!(
                    "it is waited for, until it is back or somebody releases the job (longshore release {})",
                    row.job
                ),
            }
        });
        let is_away = match worker.revoked_at {
            Some(at) => format!("was revoked at {}", Time(at)),
            None => format!("has been unreachable since {since}"),
        };
        let then = then.map(|then| format!("; {then}")).unwrap_or_default();
        let text = format!("its worker {is_away}{then}").into();
        Some(shapes::Reason { code: "worker_unreachable".into(), text })
    }

    /// The text for a runtime that does not answer its worker, or is missing on it: nobody can observe or stop the container meanwhile.
    pub(super) fn silence(&self, row: &JobRow, attempt: &AttemptRow) -> Option<shapes::Reason> {
        let worker = self.worker(attempt)?;
        if !is_reconciled(worker) {
            return None;
        }
        let kind = self.definition(row)?.runtime();
        let name = kind.name();
        let what = match worker.runtimes.iter().find(|(it, _)| *it == kind).map(|(_, it)| it) {
            Some(availability) if availability.answers() => return None,
            Some(Availability::Unavailable(why)) if !why.is_empty() => {
                format!("its runtime {name} does not answer its worker ({why})")
            }
            Some(_) => format!("its runtime {name} does not answer its worker"),
            None => format!("its worker was started without its runtime {name}"),
        };
        let waits = match attempt.stopping {
            Some(_) => "nobody can say whether it is stopped",
            None => "nobody can say whether it still runs",
        };
        let text = format!(
            "{what}: {waits}, and it is waited for, until the runtime is back or somebody \
             releases the job (longshore release {})",
            row.job
        );
        Some(shapes::Reason { code: "runtime_unavailable".into(), text: text.into() })
    }
}
