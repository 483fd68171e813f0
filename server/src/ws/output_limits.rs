//! The limits `log.max_bytes` for the output of one session. Workers keep to them; the server enforces them.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::Revision;
use protocol::report::Chunk;

use super::grants::Grants;
use crate::config::jobs_file;
use crate::logs::{BYTES_MAX_TO, BoundedChunk};
use crate::store::{Archive, ReadError};

/// The limits of the definitions whose attempts have sent output on this session.
pub(super) struct OutputLimits {
    archive: Arc<dyn Archive>,
    known: HashMap<Revision, u64>,
}

impl OutputLimits {
    pub(super) fn new(archive: Arc<dyn Archive>) -> Self {
        Self { archive, known: HashMap::new() }
    }

    /// Adds to each chunk the limit of its attempt.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub(super) async fn bound(
        &mut self,
        grants: &Grants,
        chunks: Vec<Chunk>,
    ) -> Result<Vec<BoundedChunk>, ReadError> {
        let mut bounded = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let bytes_max = match grants.revision_of(&chunk.token) {
                Some(revision) => self.of(revision).await?,
                None => with_slack(BYTES_MAX_TO),
            };
            bounded.push(BoundedChunk { chunk, bytes_max });
        }
        Ok(bounded)
    }

    async fn of(&mut self, revision: Revision) -> Result<u64, ReadError> {
        if let Some(known) = self.known.get(&revision) {
            return Ok(*known);
        }
        let archive = self.archive.clone();
        let read = tokio::task::spawn_blocking(move || archive.definition(revision)).await;
        let stored = read.map_err(|error| ReadError(Box::new(error)))??;
        let bytes_max = with_slack(jobs_file::log_bytes_max(stored.as_ref()));
        self.known.insert(revision, bytes_max);
        Ok(bytes_max)
    }
}

/// The bytes that the server stores of an attempt with this limit. A worker that was restarted may divide the limit between the two streams in
/// another way than before, and so send up to three eighths more.
const fn with_slack(bytes_max: u64) -> u64 {
    bytes_max + bytes_max / 2
}
