//! The texts of pending reasons.

use scheduler::step::PendingReason;

/// A sentence that says why a job waits.
#[must_use]
pub(crate) const fn pending_text(reason: PendingReason) -> &'static str {
    match reason {
        PendingReason::NotDue => "it is not due yet",
        PendingReason::Dependencies => "jobs that it comes after have not ended yet",
        PendingReason::Replacing => "the job that it replaces has not ended yet",
        PendingReason::Members => {
            "none of its members has started yet: GET /api/jobs?member_of= with its number lists them"
        }
        PendingReason::Paused => {
            "its batch, its definition, the group of that, or the whole server is paused"
        }
        PendingReason::SecretsMissing => {
            "the server does not have all secrets of its definition: put them into --secrets-dir"
        }
        PendingReason::NoWorker => "no worker is connected",
        PendingReason::PinnedWorkerAway => {
            "it may only run on one worker, which is not connected: that of its last attempt (retry.on: same), or its own as a member (run_on)"
        }
        PendingReason::NoRuntime => {
            "workers are connected, but none offers its runtime: docker needs an engine there, process the flag --allow-process"
        }
        PendingReason::NoMatch => {
            "no connected worker is allowed to run it: its labels or name do not fit the definition, or it is too old for a key of it"
        }
        PendingReason::TooLarge => {
            "it reserves more than any connected worker offers that is allowed to run it"
        }
        PendingReason::Cordoned => "the workers that could run it are cordoned or draining",
        PendingReason::RuntimeUnavailable => {
            "a worker that could run it can start nothing now: its container engine (runtime) does not answer, or its disk is full"
        }
        PendingReason::Excluded => "the workers that could run it have refused it, or failed to start it",
        PendingReason::ServerFull => "as many jobs run as the server allows (--max-running)",
        PendingReason::Limited => "all permits of a limit (concurrency) are in use",
        PendingReason::RateLimited => "its rate limit allows no start now",
        PendingReason::Busy => "all slots of the workers that could run it are taken",
        PendingReason::Resources => {
            "workers that could run it have too little left of a resource that it reserves: other jobs hold it"
        }
        PendingReason::SetAside => {
            "workers with room are set aside for an earlier job that needs more of a resource"
        }
        PendingReason::Soon => "it is about to be placed",
        PendingReason::Quarantined => {
            "it is held after too many losses (of its workers or its containers): release it, or cancel it"
        }
    }
}
