//! The attempts for which a session may write output: those assigned on it, and those that the archive knows as its worker's.
//!
//! Output carries a token, but the logs are keyed by job and fence alone: without this check any worker could write into any attempt. An
//! Inventory proves nothing, since a worker may name any attempt; its attempts are looked up when their first output comes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{Report, Revision, Token, WorkerId};

use crate::store::{Archive, ReadError};

/// The attempts of one session. The writer adds assigned ones, the reader checks.
pub(super) struct Grants {
    known: Mutex<GrantTable>,
    archive: Arc<dyn Archive>,
}

#[derive(Debug, Default)]
struct GrantTable {
    /// The worker of the session, known after its Welcome.
    worker: Option<WorkerId>,
    live: HashMap<Token, Revision>,
    /// Output may come after the final report: ended attempts are forgotten only after many others ended.
    ended: HashMap<Token, Revision>,
    ended_earlier: HashMap<Token, Revision>,
    /// Listed by the worker and not looked up yet.
    named: HashSet<Token>,
}

impl Grants {
    /// Starts empty. Attempts that the worker lists are looked up in this archive.
    pub(super) fn new(archive: Arc<dyn Archive>) -> Self {
        Self { known: Mutex::default(), archive }
    }

    /// Sets the worker of the session.
    pub(super) fn set_worker(&self, worker: WorkerId) {
        self.known().worker = Some(worker);
    }

    /// Adds attempts that are about to be assigned, and the revisions of their definitions.
    pub(super) fn add(&self, attempts: impl Iterator<Item = (Token, Revision)>) {
        self.known().live.extend(attempts);
    }

    /// The revision of the definition of an attempt of this session.
    pub(super) fn revision_of(&self, token: &Token) -> Option<Revision> {
        self.known().revision_of(token)
    }

    /// True if this attempt was assigned on this session, or was looked up before.
    pub(super) fn has_granted(&self, token: &Token) -> bool {
        self.known().holds(token)
    }

    /// Records the attempts that a report lists or ends.
    pub(super) fn observe(&self, report: &Report) {
        match report {
            Report::Inventory(inventory) => {
                let mut known = self.known();
                let room = NAMED_MAX.saturating_sub(known.named.len());
                let tokens = inventory.attempts.iter().map(|(token, _)| *token);
                let news: Vec<_> = tokens.filter(|token| !known.holds(token)).take(room).collect();
                known.named.extend(news);
            }
            Report::Success(done) => self.end(done.list.iter().map(|it| it.token)),
            Report::Failure(done) => self.end(done.list.iter().map(|it| it.token)),
            Report::Released(done) => self.end(done.list.iter().map(|it| it.token)),
            _ => {}
        }
    }

    /// Divides what a worker tells of attempts into what this session may tell, and the rest.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub(super) async fn authorize<T>(
        &self,
        entries: Vec<T>,
        token: impl Fn(&T) -> Token,
    ) -> Result<(Vec<T>, Vec<T>), ReadError> {
        if let Some((worker, tokens)) = self.unverified(entries.iter().map(&token).collect()) {
            let (archive, asked) = (self.archive.clone(), tokens.clone());
            let read = tokio::task::spawn_blocking(move || archive.attempts_of(worker, &asked)).await;
            let own = read.map_err(|error| ReadError(Box::new(error)))??;
            let mut known = self.known();
            for token in tokens {
                known.named.remove(&token);
            }
            known.live.extend(own);
        }
        let known = self.known();
        Ok(entries.into_iter().partition(|entry| known.holds(&token(entry))))
    }

    /// Those of these attempts that were never assigned to the worker of this session. Attempts of earlier sessions are looked up. In a store
    /// that was restored from a backup, attempts that it never assigned to anyone are not among them.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub(super) async fn unassigned(&self, mut tokens: Vec<Token>) -> Result<Vec<Token>, ReadError> {
        let worker = {
            let known = self.known();
            tokens.retain(|token| !known.holds(token));
            known.worker
        };
        let Some(worker) = worker.filter(|_| !tokens.is_empty()) else { return Ok(tokens) };
        let archive = self.archive.clone();
        let look_up = move || {
            let own = archive.attempts_of(worker, &tokens)?;
            tokens.retain(|token| own.iter().all(|(known, _)| known != token));
            if !tokens.is_empty() && archive.was_restored()? {
                // An attempt that the restored store does not know may be the worker's all the same.
                let unknown = archive.unknown_attempts(&tokens)?;
                tokens.retain(|token| !unknown.contains(token));
            }
            Ok::<_, ReadError>((own, tokens))
        };
        let read = tokio::task::spawn_blocking(look_up).await;
        let (own, unassigned) = read.map_err(|error| ReadError(Box::new(error)))??;
        self.known().live.extend(own);
        Ok(unassigned)
    }

    fn unverified(&self, named: HashSet<Token>) -> Option<(WorkerId, Vec<Token>)> {
        let known = self.known();
        let named: Vec<Token> = named.into_iter().filter(|token| known.named.contains(token)).collect();
        Some((known.worker?, named)).filter(|(_, named)| !named.is_empty())
    }

    fn end(&self, tokens: impl Iterator<Item = Token>) {
        let mut known = self.known();
        for token in tokens {
            if let Some(revision) = known.live.remove(&token) {
                if known.ended.len() >= ENDED_MAX {
                    known.ended_earlier = std::mem::take(&mut known.ended);
                }
                known.ended.insert(token, revision);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, GrantTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GrantTable {
    fn holds(&self, token: &Token) -> bool {
        self.revision_of(token).is_some()
    }

    fn revision_of(&self, token: &Token) -> Option<Revision> {
        [&self.live, &self.ended, &self.ended_earlier].into_iter().find_map(|table| table.get(token)).copied()
    }
}

/// More attempts than a worker can ever have.
const NAMED_MAX: usize = 1 << 18;

/// Between this many and twice as many ended attempts are remembered, at 40 bytes each plus the table's overhead.
const ENDED_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use protocol::report::{Chunk, ChunkData, Inventory, Numbered, Phase, Stream, Succeeded};
    use protocol::{Fence, JobId, Nonce, ReportNo};

    use super::*;
    use crate::store::sqlite;

    fn token(job: u64, nonce: u64) -> Token {
        Token { job: JobId(job), fence: Fence(job), nonce: Nonce(nonce) }
    }

    fn grants() -> Grants {
        Grants::new(sqlite::temporary().1)
    }

    async fn may_write(grants: &Grants, token: Token) -> bool {
        let data = ChunkData::Bytes(b"x".to_vec());
        let chunk = Chunk { token, stream: Stream::Stdout, offset: 0, data };
        let (own, foreign) = grants.authorize(vec![chunk], |chunk| chunk.token).await.unwrap();
        assert_eq!(own.len() + foreign.len(), 1);
        foreign.is_empty()
    }

    #[tokio::test]
    async fn a_session_writes_for_assigned_attempts_and_not_for_listed_ones() {
        let grants = grants();
        grants.add([(token(1, 1), Revision(1))].into_iter());
        grants.set_worker(WorkerId(1));
        let attempts = vec![(token(1, 1), Phase::Running), (token(2, 1), Phase::Running)];
        grants.observe(&Report::Inventory(Inventory {
            runtimes: vec![],
            attempts,
            foreign: vec![],
            last: true,
        }));
        assert!(may_write(&grants, token(1, 1)).await);
        assert!(!may_write(&grants, token(1, 2)).await, "the nonce is another");
        assert!(!may_write(&grants, token(2, 1)).await, "the archive does not know it");
        assert!(!may_write(&grants, token(3, 1)).await);
    }

    #[tokio::test]
    async fn attempts_of_nobody_are_unassigned() {
        let grants = grants();
        grants.add([(token(1, 1), Revision(1))].into_iter());
        grants.set_worker(WorkerId(1));
        let asked = vec![token(1, 1), token(1, 2), token(2, 1)];
        assert_eq!(grants.unassigned(asked).await.unwrap(), [token(1, 2), token(2, 1)]);
    }

    #[tokio::test]
    async fn output_may_follow_the_final_report_until_many_other_attempts_ended() {
        let grants = grants();
        let ended = |job| Succeeded {
            token: token(job, 1),
            timing: protocol::report::Timing::default(),
            output: protocol::report::OutputLengths::default(),
            usage: Default::default(),
            result: None,
            note: None,
        };
        let end = |jobs: std::ops::RangeInclusive<u64>| {
            grants.add(jobs.clone().map(|job| (token(job, 1), Revision(1))));
            let list = jobs.map(ended).collect();
            grants.observe(&Report::Success(Numbered { first: ReportNo(1), list }));
        };
        grants.add([(token(0, 1), Revision(1))].into_iter());
        end(1..=1);
        assert!(may_write(&grants, token(1, 1)).await);
        end(2..=200_000);
        assert!(!may_write(&grants, token(1, 1)).await);
        assert!(may_write(&grants, token(200_000, 1)).await);
        assert!(may_write(&grants, token(0, 1)).await, "it has not ended");
    }
}
