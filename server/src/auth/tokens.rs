//! The tokens of the store, in memory: each request looks its token up here.
//!
//! A token is `longshore_<number>_<secret>`. The number finds the entry, and the hash of the whole text is compared in constant time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use protocol::Timestamp;
use scheduler::ids::JoinTokenId;
use scheduler::input::JoinPermit;
use subtle::ConstantTimeEq;

use super::Denial;
use super::actor::Actor;
use crate::store::{TokenId, TokenRow};

/// All tokens, also those that were revoked or have expired: their holders are told so.
#[derive(Debug, Default)]
pub struct Tokens {
    entries: RwLock<BTreeMap<TokenId, Arc<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    row: TokenRow,
    actor: Arc<Actor>,
    /// The actor was handed out.
    is_in_use: AtomicBool,
    /// In milliseconds; `i64::MIN`: never used.
    last_used: AtomicI64,
    /// The last use that the store has.
    written: AtomicI64,
}

impl Entry {
    fn new(row: TokenRow) -> Arc<Self> {
        let join = JoinPermit::Granted { token: Some(JoinTokenId(row.id.0)), labels: Vec::new() };
        let (scope, expires_at) = (row.scope.clone(), row.expires_at);
        let actor = Actor { scope, expires_at, join, ..Actor::with_token(Arc::clone(&row.name), row.role) };
        if row.revoked_at.is_some() {
            actor.revoked.cancel();
        }
        let used = row.last_used_at.map_or(i64::MIN, |at| at.0);
        let (last_used, written) = (AtomicI64::new(used), AtomicI64::new(used));
        Arc::new(Self { row, actor: Arc::new(actor), is_in_use: AtomicBool::new(false), last_used, written })
    }

    /// An entry of this row with a new actor, which has nothing open.
    fn renewed(&self, row: TokenRow) -> Arc<Self> {
        let renewed = Self::new(row);
        renewed.written.store(self.written.load(Ordering::Relaxed), Ordering::Relaxed);
        renewed
    }

    fn row(&self) -> TokenRow {
        let last_used = self.last_used.load(Ordering::Relaxed);
        TokenRow { last_used_at: (last_used > i64::MIN).then_some(Timestamp(last_used)), ..self.row.clone() }
    }

    fn actor(&self) -> Arc<Actor> {
        self.is_in_use.store(true, Ordering::Relaxed);
        Arc::clone(&self.actor)
    }

    /// Refuses a token that was revoked or has expired.
    fn check(&self, now: Timestamp) -> Result<(), Denial> {
        if self.row.revoked_at.is_some() {
            return Err(Denial::Revoked);
        }
        match self.row.expires_at.is_some_and(|end| end <= now) {
            true => Err(Denial::Expired),
            false => Ok(()),
        }
    }
}

impl Tokens {
    /// Replaces all tokens by those of the store.
    pub fn load(&self, rows: Vec<TokenRow>) {
        *self.write() = rows.into_iter().map(|row| (row.id, Entry::new(row))).collect();
    }

    /// Finds the holder of the token with this number and hash; `None` if no such token was ever made.
    ///
    /// # Errors
    /// [`Denial::Revoked`], [`Denial::Expired`].
    pub(super) fn find(
        &self,
        id: TokenId,
        given: &[u8; 32],
        now: Timestamp,
    ) -> Option<Result<Arc<Actor>, Denial>> {
        let entry = self.entry(id)?;
        if !bool::from(given.ct_eq(&entry.row.hash)) {
            return None;
        }
        Some(entry.check(now).map(|()| {
            entry.last_used.fetch_max(now.0, Ordering::Relaxed);
            entry.actor()
        }))
    }

    /// The row of the token with this text.
    pub(crate) fn row_of(&self, text: &[u8]) -> Option<TokenRow> {
        let entry = self.entry(id_of(text)?)?;
        bool::from(super::hash(text).ct_eq(&entry.row.hash)).then(|| entry.row())
    }

    /// Finds the holder of a token by its number, for the sessions of the dashboard.
    ///
    /// # Errors
    /// [`Denial::Revoked`], [`Denial::Expired`].
    pub(super) fn holder(&self, id: TokenId, now: Timestamp) -> Result<Arc<Actor>, Denial> {
        let entry = self.entry(id).ok_or(Denial::InvalidToken)?;
        entry.check(now).map(|()| entry.actor())
    }

    /// Every token, ordered by number.
    #[must_use]
    pub fn rows(&self) -> Vec<TokenRow> {
        self.read().values().map(|entry| entry.row()).collect()
    }

    /// The token of this name that was not revoked.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<TokenRow> {
        let entries = self.read();
        let mut found = entries.values().filter(|entry| *entry.row.name == *name);
        found.find(|entry| entry.row.revoked_at.is_none()).map(|entry| entry.row())
    }

    /// Tokens in use that will expire, the next one first: valid ones that were used within the last [`USED_WITHIN`]. A token that was made
    /// for no longer than that is meant to end.
    #[must_use]
    pub fn expiring(&self, now: Timestamp) -> Vec<(Timestamp, TokenRow)> {
        let entries = self.read();
        let of_entry = |entry: &Arc<Entry>| {
            let end = entry.row.expires_at.filter(|_| entry.check(now).is_ok())?;
            let used = Timestamp(entry.last_used.load(Ordering::Relaxed));
            let is_in_use = used.0 > i64::MIN && now.since(used) < USED_WITHIN;
            (is_in_use && end.since(entry.row.created_at) > USED_WITHIN).then(|| (end, entry.row()))
        };
        let mut expiring: Vec<_> = entries.values().filter_map(of_entry).collect();
        expiring.sort_by_key(|(end, row)| (*end, row.id));
        expiring
    }

    /// The number of the next token.
    pub(super) fn next_id(&self) -> TokenId {
        TokenId(self.read().last_key_value().map_or(0, |(id, _)| id.0) + 1)
    }

    /// Adds a token that is in the store.
    pub(super) fn add(&self, row: TokenRow) {
        self.write().insert(row.id, Entry::new(row));
    }

    /// Ends a token whose revocation is in the store, with everything that was opened by it.
    pub(super) fn revoke(&self, id: TokenId, at: Timestamp) {
        let mut entries = self.write();
        if let Some(entry) = entries.get(&id) {
            entry.actor.revoked.cancel();
            let revoked = entry.renewed(TokenRow { revoked_at: Some(at), ..entry.row() });
            entries.insert(id, revoked);
        }
    }

    /// The tokens whose last use the store does not have, with it.
    pub(super) fn unwritten_uses(&self) -> Vec<(TokenId, Timestamp)> {
        let entries = self.read();
        let uses = entries.iter().filter_map(|(id, entry)| {
            let used = entry.last_used.load(Ordering::Relaxed);
            (entry.written.load(Ordering::Relaxed) != used).then_some((*id, Timestamp(used)))
        });
        uses.collect()
    }

    /// Records that the store has these uses.
    pub(super) fn uses_written(&self, uses: &[(TokenId, Timestamp)]) {
        let entries = self.read();
        for (id, at) in uses {
            if let Some(entry) = entries.get(id) {
                entry.written.store(at.0, Ordering::Relaxed);
            }
        }
    }

    /// Ends what was opened by tokens that have expired. If the clock is set back, such a token is valid again: its entry gets a new actor,
    /// so that what is opened by it then stays open.
    pub(super) fn end_expired(&self, now: Timestamp) {
        let must_end = |entry: &Entry| {
            entry.is_in_use.load(Ordering::Relaxed) && entry.check(now) == Err(Denial::Expired)
        };
        if !self.read().values().any(|entry| must_end(entry)) {
            return;
        }
        for entry in self.write().values_mut().filter(|entry| must_end(entry)) {
            entry.actor.revoked.cancel();
            *entry = entry.renewed(entry.row());
        }
    }

    fn entry(&self, id: TokenId) -> Option<Arc<Entry>> {
        self.read().get(&id).map(Arc::clone)
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<TokenId, Arc<Entry>>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<TokenId, Arc<Entry>>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new token of this number, with 256 random bits.
pub(super) fn generate(id: TokenId) -> String {
    format!("{PREFIX}{}_{}", id.0, BASE64URL_NOPAD.encode(&rand::random::<[u8; 32]>()))
}

/// The number in the text of a token.
pub(super) fn id_of(text: &[u8]) -> Option<TokenId> {
    let rest = text.strip_prefix(PREFIX.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'_')?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok().map(TokenId)
}

/// A token that was used within this time is in use.
pub const USED_WITHIN: Duration = Duration::from_secs(7 * 24 * 3_600);

/// By it scanners for secrets recognize a token.
const PREFIX: &str = "longshore_";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::actor::Scope;
    use crate::auth::hash;
    use crate::auth::role::Role;

    fn row(id: u64, name: &str, text: &str) -> TokenRow {
        TokenRow {
            id: TokenId(id),
            name: name.into(),
            hash: hash(text.as_bytes()),
            role: Role::Submitter,
            scope: Scope::default(),
            created_at: Timestamp(0),
            created_by: String::new(),
            expires_at: Some(Timestamp(100)),
            last_used_at: None,
            revoked_at: None,
            uses: None,
            labels: Vec::new(),
            joined: 0,
        }
    }

    #[test]
    fn a_token_is_found_by_its_text_until_it_expires_or_is_revoked() {
        let (tokens, text) = (Tokens::default(), generate(TokenId(7)));
        tokens.add(row(7, "ci", &text));
        let find = |now| tokens.find(TokenId(7), &hash(text.as_bytes()), Timestamp(now));
        let actor = find(50).unwrap().unwrap();
        assert_eq!((actor.token.as_deref(), actor.role), (Some("ci"), Role::Submitter));
        assert_eq!(tokens.rows()[0].last_used_at, Some(Timestamp(50)));
        let uses = tokens.unwritten_uses();
        assert_eq!(uses, [(TokenId(7), Timestamp(50))]);
        assert_eq!(tokens.unwritten_uses(), uses, "a use that was not written is written later");
        tokens.uses_written(&uses);
        assert!(tokens.unwritten_uses().is_empty());
        assert_eq!(find(100).unwrap().unwrap_err(), Denial::Expired);
        assert!(!actor.revoked.is_cancelled());
        tokens.revoke(TokenId(7), Timestamp(60));
        assert_eq!(find(50).unwrap().unwrap_err(), Denial::Revoked);
        assert!(actor.revoked.is_cancelled(), "what is open ends");
        assert_eq!((tokens.named("ci"), tokens.next_id()), (None, TokenId(8)));
    }

    #[test]
    fn what_an_expired_token_has_open_ends() {
        let (tokens, text) = (Tokens::default(), generate(TokenId(1)));
        tokens.load(vec![row(1, "ci", &text)]);
        let actor = tokens.holder(TokenId(1), Timestamp(99)).unwrap();
        tokens.end_expired(Timestamp(99));
        assert!(!actor.revoked.is_cancelled());
        tokens.end_expired(Timestamp(100));
        assert!(actor.revoked.is_cancelled());
    }

    #[test]
    fn a_token_that_is_valid_again_after_a_jump_of_the_clock_can_open_something() {
        let (tokens, text) = (Tokens::default(), generate(TokenId(1)));
        tokens.load(vec![row(1, "ci", &text)]);
        let _open = tokens.find(TokenId(1), &hash(text.as_bytes()), Timestamp(99)).unwrap().unwrap();
        tokens.end_expired(Timestamp(5_000));
        let actor = tokens.holder(TokenId(1), Timestamp(50)).unwrap();
        assert!(!actor.revoked.is_cancelled());
        assert_eq!(
            tokens.unwritten_uses(),
            [(TokenId(1), Timestamp(99))],
            "its last use is still to be written"
        );
    }

    #[test]
    fn tokens_in_use_that_expire_are_listed_but_for_short_lived_ones() {
        let (tokens, day) = (Tokens::default(), 86_400_000);
        let made = |id, name: &str, end: i64, used: Option<i64>| TokenRow {
            expires_at: Some(Timestamp(end * day)),
            last_used_at: used.map(|used| Timestamp(used * day)),
            ..row(id, name, name)
        };
        let revoked = TokenRow { revoked_at: Some(Timestamp(0)), ..made(6, "revoked", 101, Some(99)) };
        let endless = TokenRow { expires_at: None, ..made(7, "endless", 0, Some(99)) };
        let short = TokenRow { created_at: Timestamp(98 * day), ..made(8, "short", 103, Some(99)) };
        tokens.load(vec![
            made(1, "later", 130, Some(95)),
            made(2, "next", 102, Some(99)),
            made(3, "idle", 101, Some(92)),
            made(4, "unused", 101, None),
            made(5, "expired", 99, Some(98)),
            revoked,
            endless,
            short,
        ]);
        let names =
            tokens.expiring(Timestamp(100 * day)).into_iter().map(|(end, row)| (end.0 / day, row.name));
        assert_eq!(names.collect::<Vec<_>>(), [(102, "next".into()), (130, "later".into())]);
    }

    #[test]
    fn only_the_text_of_a_token_finds_it() {
        let (tokens, text) = (Tokens::default(), generate(TokenId(1)));
        tokens.add(row(1, "ci", &text));
        assert!(tokens.find(TokenId(1), &hash(b"longshore_1_"), Timestamp(0)).is_none());
        assert!(tokens.find(TokenId(2), &hash(text.as_bytes()), Timestamp(0)).is_none());
        assert_eq!((id_of(text.as_bytes()), id_of(b"longshore_1_x")), (Some(TokenId(1)), Some(TokenId(1))));
        for other in ["", "longshore_", "longshore_1", "longshore_x_y", "s3cret"] {
            assert_eq!(id_of(other.as_bytes()), None, "{other}");
        }
    }
}
