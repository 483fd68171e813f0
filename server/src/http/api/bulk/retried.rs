//! Jobs that a retry by filters leaves out.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::JobId;

use super::Operation;
use crate::http::middleware::problem::Problem;
use crate::store::Archive;

impl Operation {
    /// The jobs that were retried, but not by this request when it was sent before: the retry stands for its job from then on, and is
    /// chosen itself if it has failed too.
    pub(super) async fn retried_before(&self, jobs: Vec<JobId>) -> Result<BTreeSet<JobId>, Problem> {
        let key = self.key.as_ref().map(|(key, _)| Arc::clone(key));
        let read = move |archive: &dyn Archive| {
            let mut left_out = BTreeSet::new();
            for job in archive.retries(&jobs)?.into_keys() {
                let is_by_this_request = match &key {
                    Some(key) => archive.key(&key_of(key, job))?.0.is_some(),
                    None => false,
                };
                if !is_by_this_request {
                    left_out.insert(job);
                }
            }
            Ok(left_out)
        };
        self.state.read(read).await
    }
}

/// The idempotency key of one job of a request.
pub(super) fn key_of(key: &str, job: JobId) -> String {
    format!("{key}:{job}")
}
