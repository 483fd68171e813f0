//! Query parameters of submissions and retries.

use std::time::Duration;

use crate::http::middleware::problem::Problem;
use crate::http::request::query::{Query, invalid_query};

/// The query parameters of a submission.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SubmitParams {
    pub(crate) wait: Option<Duration>,
    pub(crate) follow: bool,
    pub(crate) require_worker: bool,
}

impl SubmitParams {
    /// Refuses what cannot be done for several jobs.
    ///
    /// # Errors
    /// `invalid_query`.
    pub(crate) fn check_batch(&self) -> Result<(), Problem> {
        if self.wait.is_none() && !self.follow {
            return Ok(());
        }
        let field = if self.follow { "follow" } else { "wait" };
        Err(invalid_query(field, "it is for one job, and this request makes a batch")
            .hint("GET /api/batches/{id}?wait=30s waits for the end of a batch"))
    }

    pub(crate) fn read(mut query: Query) -> Result<Self, Problem> {
        let params = Self {
            wait: query.wait()?,
            follow: query.switch("follow")?,
            require_worker: query.switch("require_worker")?,
        };
        query.finish()?;
        if params.wait.is_some() && params.follow {
            return Err(invalid_query(
                "wait",
                "it does not go together with follow, which waits for the end",
            ));
        }
        Ok(params)
    }
}

/// The revision of the definition that a retry uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevisionChoice {
    /// The definition as it is in jobs.yaml now.
    Current,
    /// The revision of the job that is retried.
    Original,
}

impl RevisionChoice {
    pub(crate) fn read(query: &mut Query) -> Result<Self, Problem> {
        match query.text("revision")?.as_deref() {
            None | Some("current") => Ok(Self::Current),
            Some("original") => Ok(Self::Original),
            Some(_) => Err(invalid_query("revision", "it is current or original")),
        }
    }

    /// The target of the request as its idempotency key stands for it: the retry of this job, with this revision.
    pub(crate) fn target_text(self, job: u64) -> String {
        match self {
            Self::Current => format!("retry {job}"),
            Self::Original => format!("retry {job} original"),
        }
    }
}

/// The members that a retry of a job on several workers repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MembersChoice {
    /// All, as its definition says.
    All,
    /// Those that did not succeed.
    Failed,
}

impl MembersChoice {
    pub(crate) fn read(query: &mut Query) -> Result<Self, Problem> {
        match query.text("members")?.as_deref() {
            None | Some("all") => Ok(Self::All),
            Some("failed") => Ok(Self::Failed),
            Some(_) => Err(invalid_query("members", "it is all or failed")),
        }
    }

    /// Adds the choice of members to the text of [`RevisionChoice::target_text`].
    pub(crate) fn append_to(self, target: String) -> String {
        match self {
            Self::All => target,
            Self::Failed => format!("{target} failed"),
        }
    }
}
