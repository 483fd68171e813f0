//! Finds attempts that a worker lists and that this database never assigned, before its inventory is judged, and logs them. They come from
//! an earlier state of the database that a restored backup or a failover has undone.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::report::{Foreign, Inventory};
use protocol::{SessionId, Token};

use super::grants::Grants;
use crate::store::{Archive, ReadError};

/// Looks up attempts in the archive.
#[derive(Clone)]
pub(super) struct UnknownAttempts {
    archive: Arc<dyn Archive>,
    grants: Arc<Grants>,
}

impl UnknownAttempts {
    /// Attempts assigned on the session itself are not looked up.
    pub(super) fn new(archive: Arc<dyn Archive>, grants: Arc<Grants>) -> Self {
        Self { archive, grants }
    }

    /// The unknown attempts of an inventory.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub(super) async fn among(&self, inventory: &Inventory) -> Result<Vec<Token>, ReadError> {
        let listed = inventory.attempts.iter().map(|(token, _)| *token);
        self.of(listed.filter(|token| !self.grants.has_granted(token)).collect()).await
    }

    /// Removes unknown attempts from a list of foreign containers: the server decides nothing about them.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub(super) async fn leave_out(&self, mut foreign: Vec<Foreign>) -> Result<Vec<Foreign>, ReadError> {
        let unknown_attempts = self.of(foreign.iter().map(|it| it.token).collect()).await?;
        let unknown_attempts: HashSet<Token> = unknown_attempts.into_iter().collect();
        foreign.retain(|it| !unknown_attempts.contains(&it.token));
        Ok(foreign)
    }

    async fn of(&self, doubtful: Vec<Token>) -> Result<Vec<Token>, ReadError> {
        if doubtful.is_empty() {
            return Ok(Vec::new());
        }
        let doubtful: Arc<[Token]> = doubtful.into();
        let mut pause = PAUSE_MIN;
        loop {
            let (archive, listed) = (Arc::clone(&self.archive), Arc::clone(&doubtful));
            let read = tokio::task::spawn_blocking(move || archive.unknown_attempts(&listed)).await;
            match read.map_err(|error| ReadError(Box::new(error))).flatten() {
                Err(error) if pause <= PAUSE_MAX => {
                    tracing::warn!(%error, ?pause, "cannot look up the attempts of an inventory; the session waits and tries again");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                read => return read,
            }
        }
    }
}

/// Pauses between the reads of an archive that fails, doubled each time: six seconds in all. A worker whose session were closed at once would
/// connect again, and meet the same error.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(3_200);

/// Logs the loss of data: an operator has to decide about these attempts.
pub(super) fn raise_alarm(worker: &str, session: SessionId, unknown_attempts: &[Token]) {
    let Some(first) = unknown_attempts.first() else { return };
    tracing::error!(
        worker,
        session = session.0,
        attempts = unknown_attempts.len(),
        %first,
        "worker holds attempts that this database never assigned (restored backup?); they keep running until an operator stops them, GET /api/workers lists them"
    );
}
