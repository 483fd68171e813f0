//! Attempts that a worker brings and that were never given here: found before its inventory is judged, and told to whoever runs the
//! server. They come from another life of the database, which a restored backup or a failover has undone.

use std::collections::HashSet;
use std::sync::Arc;

use protocol::report::{Foreign, Inventory};
use protocol::{SessionId, Token};

use super::grants::Grants;
use crate::store::{Archive, ReadError};

/// Looks for them in the archive.
#[derive(Clone)]
pub(super) struct Strangers {
    archive: Arc<dyn Archive>,
    grants: Arc<Grants>,
}

impl Strangers {
    /// What was handed over on the session itself need not be looked for.
    pub(super) fn new(archive: Arc<dyn Archive>, grants: Arc<Grants>) -> Self {
        Self { archive, grants }
    }

    /// Those that an inventory lists.
    ///
    /// # Errors
    /// The archive cannot be read: nothing can be said about this inventory.
    pub(super) async fn among(&self, inventory: &Inventory) -> Result<Vec<Token>, ReadError> {
        let listed = inventory.attempts.iter().map(|(token, _)| *token);
        self.of(listed.filter(|token| !self.grants.has_granted(token)).collect()).await
    }

    /// Leaves out of these containers of other workers what was never given here: nothing is decided about them.
    ///
    /// # Errors
    /// The archive cannot be read: nothing can be said about these containers.
    pub(super) async fn leave_out(&self, mut foreign: Vec<Foreign>) -> Result<Vec<Foreign>, ReadError> {
        let strangers = self.of(foreign.iter().map(|it| it.token).collect()).await?;
        let strangers: HashSet<Token> = strangers.into_iter().collect();
        foreign.retain(|it| !strangers.contains(&it.token));
        Ok(foreign)
    }

    async fn of(&self, doubtful: Vec<Token>) -> Result<Vec<Token>, ReadError> {
        if doubtful.is_empty() {
            return Ok(Vec::new());
        }
        let archive = Arc::clone(&self.archive);
        let read = tokio::task::spawn_blocking(move || archive.strangers(&doubtful)).await;
        read.map_err(|error| ReadError(Box::new(error)))?
    }
}

/// Data was lost: that is for a person to know, and to decide about.
pub(super) fn raise_alarm(worker: &str, session: SessionId, strangers: &[Token]) {
    let Some(first) = strangers.first() else { return };
    tracing::error!(
        worker,
        session = session.0,
        attempts = strangers.len(),
        %first,
        "this worker has attempts that were never given here: was a backup restored? They are left running; GET /api/workers shows them"
    );
}
