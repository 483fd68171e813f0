//! Rows of the audit log that no request writes: of reloads that none asks for, and of deploys whose client left.

use super::{DeployError, Deployed, Expected, LoadOrigin, ReloadError, Reloaded, Reloader};
use crate::auth::actor::Actor;
use crate::auth::audit::AuditedRequest;
use crate::auth::audit::note::AuditNote;
use crate::auth::records::AccessRecords;
use crate::clock;
use crate::store::LoadCause;

/// The cause of a reload that no request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The signal SIGHUP.
    Signal,
    /// The file has changed.
    Watch,
    /// The file has changed, and the reload for that failed for another reason than the file.
    Retry,
}

impl Cause {
    /// The cause of the load, for the history of the definitions.
    const fn of_load(self) -> LoadCause {
        match self {
            Self::Signal => LoadCause::Reload,
            Self::Watch | Self::Retry => LoadCause::Watch,
        }
    }

    /// The log says already what this reload has led to.
    fn leaves_no_trace(self, result: &Result<Reloaded, ReloadError>) -> bool {
        match (self, result) {
            (Self::Signal, _) => false,
            // The watch also reads files that say the same as before.
            (Self::Watch | Self::Retry, Ok(reloaded)) => reloaded.changes().is_none(),
            // A retry ends with faults of the file, and before that repeats the first failure.
            (Self::Watch, Err(_)) | (Self::Retry, Err(ReloadError::Faults(_))) => false,
            (Self::Retry, Err(_)) => true,
        }
    }
}

/// The reload that follows on one that no request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextReload {
    /// Once the file has changed again.
    AfterChange,
    /// The same file can be loaded later: the server was busy, or the policy has faults.
    Retry,
}

impl Reloader {
    /// Reloads jobs.yaml for the signal SIGHUP. The result is in the log of the server and in the audit log.
    pub async fn reload_on_hangup(&self) {
        self.reload_for(Cause::Signal).await;
    }

    pub(super) async fn reload_for(&self, cause: Cause) -> NextReload {
        let origin = LoadOrigin::without_request(cause.of_load());
        let result = self.reload(Expected::default(), &origin).await;
        let next = match &result {
            Ok(_) | Err(ReloadError::Faults(_)) => NextReload::AfterChange,
            Err(_) => NextReload::Retry,
        };
        self.record(cause, &result);
        next
    }

    fn record(&self, cause: Cause, result: &Result<Reloaded, ReloadError>) {
        let changes = result.as_ref().ok().and_then(Reloaded::changes);
        if cause.leaves_no_trace(result) {
            return;
        }
        let Some(records) = &self.records else { return };
        let (status, problem) = result.as_ref().err().map_or((200, None), |error| {
            let (status, code) = refusal(error);
            (status, Some(code))
        });
        let detail = match result {
            Ok(_) => changes.unwrap_or_else(|| "nothing changed".to_owned()),
            Err(_) => "the definitions stay as they were".to_owned(),
        };
        let (method, target) = match cause {
            Cause::Signal => ("SIGNAL", "SIGHUP".to_owned()),
            Cause::Watch | Cause::Retry => ("WATCH", self.jobs_file.display().to_string()),
        };
        record_row(records, None, (method, &target), (status, problem), detail);
    }

    /// Records the end of a deploy whose client left before it: the row of its request does not have it.
    pub(super) fn record_deploy(
        &self,
        actor: &Actor,
        origin: &LoadOrigin,
        result: &Result<Deployed, DeployError>,
    ) {
        let Some(records) = &self.records else { return };
        let (status, problem, detail) = match result {
            Ok(deployed) => {
                let effect = format!("{}; the client left before the end", deployed.in_words());
                (200, None, origin.after_reason(effect))
            }
            Err(DeployError::ClientLeft) => return,
            Err(error) => {
                let (status, code) = refusal_of_deploy(error);
                (status, Some(code), "the definitions stay as they were".to_owned())
            }
        };
        record_row(records, Some(actor), ("PUT", "/api/definitions"), (status, problem), detail);
    }
}

/// Writes a row about the definitions.
fn record_row(
    records: &AccessRecords,
    actor: Option<&Actor>,
    (method, target): (&'static str, &str),
    (status, problem): (u16, Option<&str>),
    detail: String,
) {
    let note = AuditNote { object: Some("definitions".to_owned()), detail: Some(detail) };
    let address = None;
    let request = AuditedRequest { actor, address, method, target, status, problem, request_id: "", note };
    records.audit.record(&request, clock::now().utc);
}

/// The status and the code of a refused deploy.
const fn refusal_of_deploy(error: &DeployError) -> (u16, &'static str) {
    match error {
        DeployError::NotAllowed => (403, "deploy_not_allowed"),
        DeployError::Target(_) => (409, "file_not_writable"),
        DeployError::ChangedFile { .. } => (409, "file_changed"),
        DeployError::TooManyRemoved { .. } => (409, "too_many_removed"),
        DeployError::ClientLeft => (503, "busy"),
        DeployError::History(_) => (503, "store_unavailable"),
        DeployError::Reload(error) => refusal(error),
    }
}

/// The status and the code that a request for the same reload would get.
pub(crate) const fn refusal(error: &ReloadError) -> (u16, &'static str) {
    match error {
        ReloadError::Faults(_) => (422, "invalid_jobs_file"),
        ReloadError::Unexpected { .. } | ReloadError::UnexpectedNew { .. } => (409, "revision_mismatch"),
        ReloadError::Policy(_) => (422, "invalid_policy"),
        ReloadError::Busy => (503, "busy"),
        ReloadError::Panicked(_) => (500, "internal"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::jobs_file::Faults;

    #[test]
    fn a_retry_that_ends_with_faults_of_the_file_is_in_the_log_and_a_repeated_failure_is_not() {
        let faults = || Err(ReloadError::Faults(Faults { list: Vec::new(), more: 1 }));
        let cases = [
            (Cause::Watch, Err(ReloadError::Busy), false),
            (Cause::Retry, Err(ReloadError::Busy), true),
            (Cause::Retry, faults(), false),
            (Cause::Signal, faults(), false),
        ];
        for (cause, result, leaves_no_trace) in cases {
            assert_eq!(cause.leaves_no_trace(&result), leaves_no_trace, "{cause:?} {result:?}");
        }
    }
}
