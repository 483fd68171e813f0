//! The secrets of known workers, and the join tokens: what lets a worker in.
//!
//! The engine writes it as it decides, and reads it before it steps a Hello, so that two workers cannot take the last use of a token. The
//! check of access reads the secrets. The scheduler checks a secret again: it alone decides who a worker is.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use protocol::WorkerId;
use scheduler::fleet::row::WorkerRow;
use scheduler::ids::JoinTokenId;
use scheduler::input::{Connected, JoinPermit};
use scheduler::step::Change;
use subtle::ConstantTimeEq;

use crate::store::{TokenId, TokenRow};

/// Known workers and valid join tokens.
#[derive(Debug, Default)]
pub struct WorkerRegistry {
    entries: RwLock<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    workers: HashMap<WorkerId, KnownWorker>,
    tokens: HashMap<TokenId, JoinToken>,
    /// Label names that no worker may claim, with the number of tokens and workers that have them.
    reserved: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct KnownWorker {
    secret_hash: [u8; 32],
    is_revoked: bool,
    granted: Vec<String>,
    /// True from the decision that it joins until the audit log has it.
    is_new: bool,
}

#[derive(Debug)]
struct JoinToken {
    uses: Option<u32>,
    joined: u32,
    labels: Vec<(String, String)>,
    is_revoked: bool,
}

/// The result of the check of a worker's secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretVerdict {
    /// It is the secret of this worker.
    Valid,
    /// It is the secret of this worker, which was revoked.
    Revoked,
    /// There is no such worker, or it has another secret.
    Unknown,
}

impl WorkerRegistry {
    /// A registry of these workers.
    #[must_use]
    pub fn new(workers: &[WorkerRow]) -> Self {
        let registry = Self::default();
        workers.iter().for_each(|row| registry.write().put_worker(row));
        registry
    }

    /// Compares the hash of a secret with that of the worker, in constant time.
    pub(crate) fn check(&self, worker: WorkerId, given: &[u8; 32]) -> SecretVerdict {
        match self.read().workers.get(&worker) {
            Some(known) if bool::from(known.secret_hash.ct_eq(given)) => match known.is_revoked {
                true => SecretVerdict::Revoked,
                false => SecretVerdict::Valid,
            },
            _ => SecretVerdict::Unknown,
        }
    }

    /// Follows the workers' rows.
    pub(crate) fn apply_change(&self, change: &Change) {
        match change {
            Change::Worker(row) | Change::CordonEnded { row, .. } => {
                let mut entries = self.write();
                let is_new = !entries.workers.contains_key(&row.worker);
                entries.put_worker(row);
                if is_new && let Some(known) = entries.workers.get_mut(&row.worker) {
                    known.is_new = true;
                }
                if let Some(JoinTokenId(id)) = row.join_token.filter(|_| is_new)
                    && let Some(token) = entries.tokens.get_mut(&TokenId(id))
                {
                    token.joined = token.joined.saturating_add(1);
                }
            }
            Change::WorkerForgotten(worker) => self.write().remove_worker(*worker),
            _ => {}
        }
    }

    /// True the first time that this is asked about a worker that has joined since the start of the server.
    pub(crate) fn take_new(&self, worker: WorkerId) -> bool {
        // Most connections are of workers that are known: they do not wait for each other.
        if !self.read().workers.get(&worker).is_some_and(|known| known.is_new) {
            return false;
        }
        let mut entries = self.write();
        entries.workers.get_mut(&worker).is_some_and(|known| std::mem::take(&mut known.is_new))
    }

    /// Adds a token by which workers join; its labels are reserved from now on. A token with another role is left out.
    pub(crate) fn add_token(&self, row: &TokenRow) {
        if row.role != super::role::Role::Worker {
            return;
        }
        let is_revoked = row.revoked_at.is_some();
        let token = JoinToken { uses: row.uses, joined: row.joined, labels: row.labels.clone(), is_revoked };
        let mut entries = self.write();
        if !is_revoked {
            row.labels.iter().for_each(|(name, _)| entries.reserve(name));
        }
        entries.tokens.insert(row.id, token);
    }

    /// Lets no more workers join by this token. Its labels stay reserved while a worker has them.
    pub(crate) fn revoke_token(&self, id: TokenId) {
        let mut entries = self.write();
        let Some(token) = entries.tokens.get_mut(&id) else { return };
        if !std::mem::replace(&mut token.is_revoked, true) {
            let labels = token.labels.clone();
            labels.iter().for_each(|(name, _)| entries.release(name));
        }
    }

    /// How many workers have joined by this token.
    pub(crate) fn joined(&self, id: TokenId) -> u32 {
        self.read().tokens.get(&id).map_or(0, |token| token.joined)
    }

    /// Completes a Hello before the scheduler decides on it: what its join token grants, and whether the token takes one more worker.
    /// Returns the names of the labels that were dropped because they are reserved.
    pub(crate) fn prepare(&self, hello: &mut Connected) -> Vec<String> {
        let entries = self.read();
        if let JoinPermit::Granted { token: Some(JoinTokenId(id)), .. } = hello.join {
            hello.join = entries.permit(TokenId(id));
        }
        let (dropped, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut hello.labels)
            .into_iter()
            .partition(|(name, _)| entries.reserved.contains_key(name));
        hello.labels = kept;
        dropped.into_iter().map(|(name, _)| name).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn permit(&self, id: TokenId) -> JoinPermit {
        match self.tokens.get(&id) {
            Some(token) if !token.is_revoked && token.uses.is_none_or(|uses| token.joined < uses) => {
                JoinPermit::Granted { token: Some(JoinTokenId(id.0)), labels: token.labels.clone() }
            }
            _ => JoinPermit::UsedUp,
        }
    }

    fn put_worker(&mut self, row: &WorkerRow) {
        let granted: Vec<String> = row.granted.iter().map(|(name, _)| name.clone()).collect();
        let known = KnownWorker {
            secret_hash: row.secret_hash,
            is_revoked: row.revoked_at.is_some(),
            granted: granted.clone(),
            is_new: self.workers.get(&row.worker).is_some_and(|known| known.is_new),
        };
        granted.iter().for_each(|name| self.reserve(name));
        if let Some(former) = self.workers.insert(row.worker, known) {
            former.granted.iter().for_each(|name| self.release(name));
        }
    }

    fn remove_worker(&mut self, worker: WorkerId) {
        if let Some(former) = self.workers.remove(&worker) {
            former.granted.iter().for_each(|name| self.release(name));
        }
    }

    fn reserve(&mut self, name: &str) {
        *self.reserved.entry(name.to_owned()).or_default() += 1;
    }

    fn release(&mut self, name: &str) {
        if let Some(count) = self.reserved.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.reserved.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{SessionId, Timestamp};

    use super::*;
    use crate::auth::actor::Scope;
    use crate::auth::role::Role;

    fn token(id: u64, uses: Option<u32>, labels: &[(&str, &str)]) -> TokenRow {
        TokenRow {
            id: TokenId(id),
            name: format!("t{id}").into(),
            hash: [0; 32],
            role: Role::Worker,
            scope: Scope::default(),
            created_at: Timestamp(0),
            created_by: String::new(),
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
            uses,
            labels: pairs(labels),
            joined: 0,
        }
    }

    fn pairs(labels: &[(&str, &str)]) -> Vec<(String, String)> {
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn joined(worker: u64, by: u64, granted: &[(&str, &str)]) -> WorkerRow {
        WorkerRow {
            worker: WorkerId(worker),
            name: "w".into(),
            secret_hash: [0; 32],
            joined_at: Timestamp(0),
            seen_at: Timestamp(0),
            cordoned: false,
            cordon: None,
            slots: None,
            drain: None,
            labels: Vec::new(),
            process: None,
            join_token: Some(JoinTokenId(by)),
            granted: pairs(granted),
            revoked_at: None,
        }
    }

    /// The right to join of a Hello with this token, and the labels that are left to it.
    fn prepare(
        registry: &WorkerRegistry,
        by: Option<u64>,
        labels: &[(&str, &str)],
    ) -> (JoinPermit, Vec<(String, String)>) {
        let mut hello = Connected {
            resources: Default::default(),
            session: SessionId(1),
            name: "w".into(),
            secret_hash: [0; 32],
            cluster: None,
            rejoin: false,
            incarnation: protocol::Incarnation(1),
            process: 1,
            versions: protocol::VERSIONS,
            engine: None,
            version: String::new(),
            slots: 1,
            backlog: 1,
            labels: pairs(labels),
            runtimes: Vec::new(),
            address: String::new(),
            join: JoinPermit::Granted { token: by.map(JoinTokenId), labels: Vec::new() },
        };
        registry.prepare(&mut hello);
        (hello.join, hello.labels)
    }

    #[test]
    fn a_token_lets_as_many_workers_join_as_it_has_uses() {
        let registry = WorkerRegistry::default();
        registry.add_token(&token(3, Some(2), &[("zone", "eu")]));
        let granted = JoinPermit::Granted { token: Some(JoinTokenId(3)), labels: pairs(&[("zone", "eu")]) };
        for worker in 1..=2 {
            assert_eq!(prepare(&registry, Some(3), &[]).0, granted);
            let row = joined(worker, 3, &[("zone", "eu")]);
            registry.apply_change(&Change::Worker(row.clone()));
            registry.apply_change(&Change::Worker(WorkerRow { cordoned: true, ..row }));
            assert_eq!(u64::from(registry.joined(TokenId(3))), worker, "a row that changes is no use");
        }
        assert_eq!(prepare(&registry, Some(3), &[]).0, JoinPermit::UsedUp);
        registry.apply_change(&Change::WorkerForgotten(WorkerId(1)));
        assert_eq!(prepare(&registry, Some(3), &[]).0, JoinPermit::UsedUp, "no use comes back");
        assert_eq!(prepare(&registry, Some(4), &[]).0, JoinPermit::UsedUp, "nobody made this one");
        assert_eq!(prepare(&registry, None, &[]).0, JoinPermit::default(), "a token of a file");
        registry.add_token(&token(5, None, &[]));
        registry.revoke_token(TokenId(5));
        assert_eq!(prepare(&registry, Some(5), &[]).0, JoinPermit::UsedUp);
    }

    #[test]
    fn labels_are_reserved_while_a_token_or_a_worker_has_them() {
        let registry = WorkerRegistry::new(&[joined(1, 9, &[("gpu", "a100")])]);
        registry.add_token(&token(3, None, &[("zone", "eu")]));
        registry.add_token(&token(4, None, &[("zone", "us")]));
        let left = || {
            let labels = prepare(&registry, None, &[("gpu", "a100"), ("rack", "7"), ("zone", "eu")]).1;
            labels.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(left(), ["rack"]);
        registry.revoke_token(TokenId(3));
        registry.revoke_token(TokenId(3));
        assert_eq!(left(), ["rack"], "another token grants it");
        registry.apply_change(&Change::Worker(joined(2, 4, &[("zone", "us")])));
        registry.revoke_token(TokenId(4));
        assert_eq!(left(), ["rack"], "a worker has it");
        registry.apply_change(&Change::WorkerForgotten(WorkerId(2)));
        assert_eq!(left(), ["rack", "zone"]);
        registry.apply_change(&Change::WorkerForgotten(WorkerId(1)));
        assert_eq!(left(), ["gpu", "rack", "zone"]);
    }
}
