//! Which attempts a session may write output for: those that were handed over on it, and those that its worker brought with it.
//!
//! Output carries a token, but the logs go by job and fence alone: without this any worker could write into any attempt.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::report::Chunk;
use protocol::{Report, Token};

/// The attempts of one session. Its writer adds what it hands over, its reader checks.
#[derive(Debug, Default)]
pub(super) struct Grants(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    live: HashSet<Token>,
    /// Output may come after the final report: those that ended are forgotten only when many others have.
    ended: HashSet<Token>,
    ended_earlier: HashSet<Token>,
}

impl Grants {
    /// These are about to be handed over.
    pub(super) fn add(&self, tokens: impl Iterator<Item = Token>) {
        self.known().live.extend(tokens);
    }

    /// Takes note of what the worker brings, and of what has ended.
    pub(super) fn note(&self, report: &Report) {
        match report {
            Report::Inventory(inventory) => {
                let mut known = self.known();
                let room = BROUGHT_MAX.saturating_sub(known.live.len());
                known.live.extend(inventory.attempts.iter().map(|(token, _)| *token).take(room));
            }
            Report::Success(done) => self.end(done.list.iter().map(|it| it.token)),
            Report::Failure(done) => self.end(done.list.iter().map(|it| it.token)),
            Report::Released(done) => self.end(done.list.iter().map(|(token, _)| *token)),
            _ => {}
        }
    }

    /// Keeps only what this session may write; says how many chunks that leaves out.
    pub(super) fn sift(&self, chunks: &mut Vec<Chunk>) -> usize {
        let before = chunks.len();
        let known = self.known();
        chunks.retain(|chunk| known.holds(&chunk.token));
        before - chunks.len()
    }

    fn end(&self, tokens: impl Iterator<Item = Token>) {
        let mut known = self.known();
        for token in tokens {
            if known.live.remove(&token) {
                if known.ended.len() >= ENDED_MAX {
                    known.ended_earlier = std::mem::take(&mut known.ended);
                }
                known.ended.insert(token);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn holds(&self, token: &Token) -> bool {
        self.live.contains(token) || self.ended.contains(token) || self.ended_earlier.contains(token)
    }
}

/// A worker that brings more than this brings more than it could ever have been given.
const BROUGHT_MAX: usize = 1 << 18;

/// Between this many and twice as many ended attempts are remembered, at 24 bytes each and the table's own part.
const ENDED_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use protocol::report::{ChunkData, Inventory, Numbered, Phase, Stream, Succeeded};
    use protocol::{Fence, JobId, Nonce, ReportNo};

    use super::*;

    fn token(job: u64, nonce: u64) -> Token {
        Token { job: JobId(job), fence: Fence(job), nonce: Nonce(nonce) }
    }

    fn may_write(grants: &Grants, token: Token) -> bool {
        let data = ChunkData::Bytes(b"x".to_vec());
        grants.sift(&mut vec![Chunk { token, stream: Stream::Stdout, offset: 0, data }]) == 0
    }

    #[test]
    fn a_session_writes_for_what_it_was_given_or_brought_and_nothing_else() {
        let grants = Grants::default();
        grants.add([token(1, 1)].into_iter());
        let attempts = vec![(token(2, 1), Phase::Backlog)];
        grants.note(&Report::Inventory(Inventory {
            runtimes: vec![],
            attempts,
            foreign: vec![],
            last: true,
        }));
        assert!(may_write(&grants, token(1, 1)) && may_write(&grants, token(2, 1)));
        assert!(!may_write(&grants, token(1, 2)), "the nonce is another");
        assert!(!may_write(&grants, token(3, 1)));
    }

    #[test]
    fn output_may_follow_the_final_report_until_many_others_have_ended() {
        let grants = Grants::default();
        let ended = |job| Succeeded {
            token: token(job, 1),
            timing: protocol::report::Timing::default(),
            output: protocol::report::OutputLengths::default(),
            result: None,
            note: None,
        };
        let end = |jobs: std::ops::RangeInclusive<u64>| {
            grants.add(jobs.clone().map(|job| token(job, 1)));
            let list = jobs.map(ended).collect();
            grants.note(&Report::Success(Numbered { first: ReportNo(1), list }));
        };
        grants.add([token(0, 1)].into_iter());
        end(1..=1);
        assert!(may_write(&grants, token(1, 1)));
        end(2..=200_000);
        assert!(!may_write(&grants, token(1, 1)));
        assert!(may_write(&grants, token(200_000, 1)));
        assert!(may_write(&grants, token(0, 1)), "it has not ended");
    }
}
