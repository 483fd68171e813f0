//! The job whose output is read.

use std::sync::Arc;

use super::Reader;
use crate::http::api::jobs::find;
use crate::http::middleware::problem::Problem;
use crate::store::JobRecord;

impl Reader {
    /// The job with its attempts. Those before the latest one do not change: while one of them is read without following, the job is not
    /// read again.
    pub(super) async fn record(&mut self) -> Result<Arc<JobRecord>, Problem> {
        let current = self.current.as_ref().map(|current| current.number);
        let has_later = |record: &&Arc<JobRecord>| {
            record.row.attempt.as_ref().map(|latest| latest.number) > current && current.is_some()
        };
        if let Some(known) = self.record.as_ref().filter(has_later) {
            return Ok(Arc::clone(known));
        }
        let record = Arc::new(find(&self.state, self.job).await?);
        self.record = (!self.start.follow).then(|| Arc::clone(&record));
        Ok(record)
    }
}
