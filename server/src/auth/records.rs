//! Changes tokens, and writes the audit log: first in the store, then in memory.

use std::sync::Arc;
use std::time::Duration;

use protocol::Timestamp;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::actor::Scope;
use super::audit::AuditLog;
use super::role::Role;
use super::tokens::{Tokens, generate};
use super::workers::WorkerRegistry;
use crate::auth::hash;
use crate::clock;
use crate::engine::RecordWriter;
use crate::retention_time::RetentionTime;
use crate::store::{
    AccessArchive, AccessChange, AuditLimits, CommitError, ReadError, RecordChange, TokenRow,
};

/// Tokens that were not revoked. Each request looks one of them up; a person could not keep track of more.
pub const TOKENS_MAX: usize = 10_000;

/// How often the audit log is written, and expired tokens are looked for.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Ticks of [`WRITE_EVERY`] between two writes of the use of tokens: last use is known to the minute.
const TOKENS_EVERY: u32 = 60;
/// How long the audit log and revoked tokens are kept: more than a year, so that a yearly review finds all of it.
const KEPT_MS: i64 = 400 * 24 * 3_600 * 1_000;
/// Rows of the audit log: some 200 MB.
const AUDIT_ROWS_MAX: u64 = 1_000_000;

/// The tokens and the audit log of a server.
pub struct AccessRecords {
    /// The tokens in memory.
    pub tokens: Arc<Tokens>,
    /// The secrets of workers, and the tokens by which they join.
    pub workers: Arc<WorkerRegistry>,
    /// The requests that were not written yet.
    pub audit: Arc<AuditLog>,
    /// Reads the audit log.
    pub archive: Arc<dyn AccessArchive>,
    writer: RecordWriter,
    /// By it rows become old. Nothing is deleted before it is known.
    time: RetentionTime,
    /// Held while a token is made or revoked, so that its name and number are given once.
    changing: Mutex<()>,
}

impl std::fmt::Debug for AccessRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessRecords").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// A token to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Its name.
    pub name: String,
    /// The role of its holder.
    pub role: Role,
    /// The definitions on whose jobs its holder may act.
    pub scope: Scope,
    /// How long it is valid; absent: until it is revoked.
    pub lifetime: Option<Duration>,
    /// The name of the token with which it is made; empty for none.
    pub created_by: String,
    /// How many workers may join by it; absent: any number.
    pub uses: Option<u32>,
    /// The labels that workers get that join by it, ordered by name.
    pub labels: Vec<(String, String)>,
}

/// The reason for which tokens are not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is a token of this name.
    #[error("there is a token \"{0}\"")]
    NameTaken(String),
    /// No token of this name is valid.
    #[error("there is no token \"{0}\"")]
    Unknown(String),
    /// There are too many tokens.
    #[error("there are {TOKENS_MAX} tokens, which is the most")]
    TooMany,
    /// The text of the token could not be kept.
    #[error("the text of the token cannot be kept")]
    NotKept(#[source] std::io::Error),
    /// The store did not take the change.
    #[error("the store did not take the change")]
    Store(#[source] CommitError),
    /// The server is being shut down.
    #[error("the server is shutting down")]
    Closed,
}

impl AccessRecords {
    /// Reads the tokens of the store.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn load(archive: Arc<dyn AccessArchive>, writer: RecordWriter) -> Result<Self, ReadError> {
        let tokens = Arc::<Tokens>::default();
        tokens.load(archive.tokens()?);
        Ok(Self {
            tokens,
            workers: Arc::default(),
            audit: Arc::default(),
            archive,
            writer,
            time: RetentionTime::unknown(),
            changing: Mutex::default(),
        })
    }

    /// Deletes what is old by this clock, which a wall clock that was set wrongly does not move.
    #[must_use]
    pub(crate) fn with_retention_time(self, time: RetentionTime) -> Self {
        Self { time, ..self }
    }

    /// Lets workers join by the tokens that the store has.
    #[must_use]
    pub fn with_workers(self, workers: Arc<WorkerRegistry>) -> Self {
        self.tokens.rows().iter().for_each(|row| workers.add_token(row));
        Self { workers, ..self }
    }

    /// Makes a token, and returns its text, which nobody can read afterwards.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn create(&self, new: NewToken) -> Result<(TokenRow, String), ChangeError> {
        self.create_kept(new, async |_: &str| Ok(())).await
    }

    /// Makes a token whose text is kept somewhere by `keep`, before the token is valid: a crash in between leaves no valid token that
    /// nobody has.
    ///
    /// # Errors
    /// See [`ChangeError`]; [`ChangeError::NotKept`] if `keep` fails, and there is no token then.
    pub async fn create_kept(
        &self,
        new: NewToken,
        keep: impl AsyncFnOnce(&str) -> std::io::Result<()>,
    ) -> Result<(TokenRow, String), ChangeError> {
        let _changing = self.changing.lock().await;
        if self.tokens.named(&new.name).is_some() {
            return Err(ChangeError::NameTaken(new.name));
        }
        if self.tokens.rows().iter().filter(|row| row.revoked_at.is_none()).count() >= TOKENS_MAX {
            return Err(ChangeError::TooMany);
        }
        let (id, now) = (self.tokens.next_id(), clock::now().utc);
        let text = generate(id);
        let end = |lifetime: Duration| {
            Timestamp(now.0.saturating_add(i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX)))
        };
        let row = TokenRow {
            id,
            name: new.name.into(),
            hash: hash(text.as_bytes()),
            role: new.role,
            scope: new.scope,
            created_at: now,
            created_by: new.created_by,
            expires_at: new.lifetime.map(end),
            last_used_at: None,
            revoked_at: None,
            uses: new.uses,
            labels: new.labels,
            joined: 0,
        };
        keep(&text).await.map_err(ChangeError::NotKept)?;
        self.change(AccessChange::AddToken(Box::new(row.clone()))).await?;
        // Before the token is valid: its labels are reserved for those that join by it.
        self.workers.add_token(&row);
        self.tokens.add(row.clone());
        Ok((row, text))
    }

    /// Revokes the token of this name, and ends everything that was opened by it.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn revoke(&self, name: &str) -> Result<TokenRow, ChangeError> {
        let _changing = self.changing.lock().await;
        let row = self.tokens.named(name).ok_or_else(|| ChangeError::Unknown(name.to_owned()))?;
        let now = clock::now().utc;
        self.change(AccessChange::RevokeToken(row.id, now)).await?;
        self.workers.revoke_token(row.id);
        self.tokens.revoke(row.id, now);
        Ok(TokenRow { revoked_at: Some(now), ..row })
    }

    /// Writes the audit log and the use of tokens, and ends what expired tokens have open, until the server shuts down.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut ticks = interval(WRITE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = 0;
        loop {
            let is_last = tokio::select! {
                _ = ticks.tick() => false,
                () = shutdown.cancelled() => true,
            };
            self.tokens.end_expired(clock::now().utc);
            self.write_collected(is_last).await;
            if count % TOKENS_EVERY == 0 || is_last {
                self.write_uses().await;
            }
            if is_last {
                return;
            }
            count += 1;
        }
    }

    /// Writes all requests that were collected, when the server shuts down.
    pub async fn write_audit(&self) {
        self.write_collected(true).await;
    }

    /// Writes the requests that were collected. While the store is unavailable they wait; the log says when some are lost.
    async fn write_collected(&self, at_shutdown: bool) {
        let rows = self.audit.take(clock::now().utc, at_shutdown);
        if rows.is_empty() {
            return;
        }
        let limits = AuditLimits { since: self.kept_since(), rows_max: AUDIT_ROWS_MAX };
        match self.change(AccessChange::Audit(rows.clone(), limits)).await {
            Ok(()) => {}
            Err(ChangeError::Closed) => {
                tracing::error!(
                    rows = rows.len(),
                    "the server is shutting down: rows of the audit log are lost"
                );
            }
            Err(error) => {
                tracing::warn!(%error, rows = rows.len(), "rows of the audit log wait for the store");
                self.audit.put_back(rows);
            }
        }
    }

    async fn write_uses(&self) {
        let uses = self.tokens.unwritten_uses();
        let written = async {
            self.change(AccessChange::ForgetTokens(self.kept_since())).await?;
            if !uses.is_empty() {
                self.change(AccessChange::UseTokens(uses.clone())).await?;
            }
            Ok::<_, ChangeError>(())
        };
        match written.await {
            Ok(()) => self.tokens.uses_written(&uses),
            Err(error) => {
                tracing::warn!(%error, "the last use of tokens could not be written; trying again in a minute");
            }
        }
    }

    async fn change(&self, change: AccessChange) -> Result<(), ChangeError> {
        self.writer
            .change(RecordChange::Access(change))
            .await
            .ok_or(ChangeError::Closed)?
            .map_err(ChangeError::Store)
    }

    /// The audit log and revoked tokens are kept from this instant on.
    fn kept_since(&self) -> Timestamp {
        self.time.get().map_or(Timestamp(i64::MIN), |now| Timestamp(now.0.saturating_sub(KEPT_MS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite;

    #[test]
    fn rows_become_old_by_the_clock_of_retention() {
        let time = RetentionTime::unknown();
        let records = AccessRecords::load(sqlite::temporary().1, RecordWriter::closed()).unwrap();
        let records = records.with_retention_time(time.clone());
        assert_eq!(records.kept_since(), Timestamp(i64::MIN), "nothing is old before the time is known");
        time.set(Timestamp(KEPT_MS + 5));
        assert_eq!(records.kept_since(), Timestamp(5));
    }
}
