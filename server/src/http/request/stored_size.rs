//! A limit on the data that the jobs of one request store. A short body can ask for much: each job of an array has all of its data.

use scheduler::details::JobDetails;
use scheduler::pending_batch::stored_bytes;

use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::job_request::MANY_BYTES_MAX;

/// Adds up the data of the jobs of a request.
#[derive(Debug, Default)]
pub(crate) struct StoredSize {
    jobs: usize,
    bytes: usize,
}

impl StoredSize {
    /// Adds `count` jobs with these details.
    ///
    /// # Errors
    /// `too_many_jobs` beyond [`STORED_BYTES_MAX`].
    pub(crate) fn add(&mut self, details: Option<&JobDetails>, count: usize) -> Result<(), Problem> {
        let bytes = details.map_or(0, stored_bytes);
        self.jobs += count;
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(count));
        if self.bytes <= STORED_BYTES_MAX {
            return Ok(());
        }
        let detail = format!(
            "{} jobs with {} bytes of parameters, environment, args, input and labels; those of one request have {STORED_BYTES_MAX} bytes at most",
            self.jobs, self.bytes
        );
        Err(Problem::new(ProblemCode::TooManyJobs, detail).hint(
            "split the request, or keep large data in a volume or an object store and pass its address to the jobs",
        ))
    }
}

/// Three times the largest body of a batch: a parameter may be stored as its value, as a variable and as an argument.
const STORED_BYTES_MAX: usize = 3 * MANY_BYTES_MAX;
