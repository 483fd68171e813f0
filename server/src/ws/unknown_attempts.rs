//! Finds attempts that a worker lists and that this database never assigned, before its inventory is judged, and logs them. They come from
//! an earlier state of the database that a restored backup or a failover has undone.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::report::{Foreign, Inventory};
use protocol::{SessionId, Token, Uptime};

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

/// The alarm of one session about attempts that this database never assigned. A worker may invent such attempts without end, so it is raised
/// at most once in [`ALARM_INTERVAL`].
#[derive(Debug, Default)]
pub(super) struct Alarm {
    raised_at: Option<Uptime>,
}

impl Alarm {
    /// Logs the loss of data: an operator has to decide about these attempts.
    pub(super) fn raise(
        &mut self,
        now: Uptime,
        worker: &str,
        session: SessionId,
        unknown_attempts: &[Token],
    ) {
        let Some(first) = unknown_attempts.first() else { return };
        if !self.is_due(now) {
            return;
        }
        tracing::error!(
            worker,
            session = session.0,
            attempts = unknown_attempts.len(),
            %first,
            "worker holds attempts that this database never assigned (restored backup?); they keep running until an operator stops them, GET /api/workers lists them"
        );
    }

    fn is_due(&mut self, now: Uptime) -> bool {
        let is_due = self.raised_at.is_none_or(|raised| now.since(raised) >= ALARM_INTERVAL);
        if is_due {
            self.raised_at = Some(now);
        }
        is_due
    }
}

/// A session's alarms are at least this far apart.
const ALARM_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_of_a_session_is_raised_once_a_minute() {
        let mut alarm = Alarm::default();
        let is_due = |second: &u64| alarm.is_due(Uptime(*second * 1_000_000_000));
        let due: Vec<u64> = (0..=180).filter(is_due).collect();
        assert_eq!(due, [0, 60, 120, 180]);
    }
}
