//! Rows of tokens and of the audit log, and the trait by which they and lost workers are read. They are no part of the scheduler's state.

use std::net::IpAddr;
use std::sync::Arc;

use protocol::{Timestamp, WorkerId};

use super::ReadError;
use crate::auth::actor::Scope;
use crate::auth::role::Role;

/// The number of a token: part of its text, and never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

/// A token as it is stored. Its text is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its number.
    pub id: TokenId,
    /// Its name; unique among the tokens that were not revoked.
    pub name: Arc<str>,
    /// The SHA-256 of its text.
    pub hash: [u8; 32],
    /// The role of its holder.
    pub role: Role,
    /// The definitions on whose jobs its holder may act.
    pub scope: Scope,
    /// When it was made.
    pub created_at: Timestamp,
    /// The name of the token with which it was made; empty for none.
    pub created_by: String,
    /// From when it is no longer valid; absent: it does not expire.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// How many workers may join by it; absent: any number.
    pub uses: Option<u32>,
    /// The labels that workers get that join by it, ordered by name.
    pub labels: Vec<(String, String)>,
    /// How many workers had joined by it when the store was read.
    pub joined: u32,
}

/// A request that was to change something, or several that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number; later rows have higher ones. 0 before it is stored.
    pub id: u64,
    /// When the first of them was answered.
    pub from: Timestamp,
    /// When the last of them was answered.
    pub to: Timestamp,
    /// How many there were.
    pub count: u64,
    /// The name of the token; absent: none, or none that is valid.
    pub token: Option<Arc<str>>,
    /// The role that it had.
    pub role: Option<Role>,
    /// The address of the client.
    pub address: Option<IpAddr>,
    /// The method of the request.
    pub method: String,
    /// Its path with the query. Only the route for a request without a valid token where one is needed, and for paths that need none:
    /// so an unauthenticated client cannot write its own text into the log.
    pub target: String,
    /// The status of the answer.
    pub status: u16,
    /// The code of the problem, if it was refused.
    pub problem: Option<String>,
    /// The id of the last of them.
    pub request_id: String,
    /// The thing that it acted on, where the target does not say so.
    pub object: Option<String>,
    /// The kind of the change: names, roles, keys.
    pub detail: Option<String>,
}

/// A change of the rows of tokens and of the audit log.
#[derive(Clone, Debug)]
pub enum AccessChange {
    /// A token was made.
    AddToken(Box<TokenRow>),
    /// A token was revoked.
    RevokeToken(TokenId, Timestamp),
    /// Tokens were used.
    UseTokens(Vec<(TokenId, Timestamp)>),
    /// Requests for the audit log. Rows beyond the limits are deleted with it.
    Audit(Vec<AuditRow>, AuditLimits),
    /// Deletes tokens that were revoked before this instant, unless their number could be given to another one then, or a worker has it.
    ForgetTokens(Timestamp),
}

/// The rows of the audit log that are kept.
#[derive(Clone, Copy, Debug)]
pub struct AuditLimits {
    /// Those from this instant on.
    pub since: Timestamp,
    /// At most this many, the latest.
    pub rows_max: u64,
}

/// A filter for the audit log. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// By this token.
    pub token: Option<String>,
    /// With this text in the target.
    pub target: Option<String>,
    /// With this text in the object or the detail.
    pub about: Option<String>,
    /// Answered at or after this instant.
    pub since: Option<Timestamp>,
    /// Refused ones only.
    pub refused: bool,
    /// With a number below this one (the cursor).
    pub before: Option<u64>,
    /// At most this many.
    pub limit: usize,
}

/// Reads tokens and the audit log. Calls block on the disk.
pub trait AccessArchive: Send + Sync {
    /// Every token, also those that were revoked, ordered by number.
    ///
    /// # Errors
    /// The store cannot be read.
    fn tokens(&self) -> Result<Vec<TokenRow>, ReadError>;

    /// The workers that were not heard since their connection ended without their leaving, and when that was.
    ///
    /// # Errors
    /// The store cannot be read.
    fn lost_workers(&self) -> Result<Vec<(WorkerId, Timestamp)>, ReadError>;

    /// A page of the audit log, newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, ReadError>;
}
