//! The attempts of a session that were certainly never sent: those whose Enqueue waits for overrides, or behind a write that never ended.
//! They are requeued at once when the socket is gone (docs/design/leases-fencing-reconcile.md, L13).
//!
//! A frame that was given to the socket may have been sent, whatever the socket reports, and so may all frames before it.

use protocol::Token;

use crate::engine::ToSession;

/// The attempts of the batch that is being written, and how many of them may have been sent.
#[derive(Debug, Default)]
pub(super) struct UnsentAttempts {
    /// The tokens in the order of writing.
    batch: Vec<Token>,
    /// For each run of neighbours: the number of its first frame, and the number of attempts in frames up to its end.
    framed: Vec<(usize, usize)>,
    /// Frames of the batch that were written before the present ones, whose numbers begin at zero again.
    written: usize,
    sent: usize,
}

impl UnsentAttempts {
    /// Starts a batch and forgets the one before.
    pub(super) fn begin(&mut self, batch: &[ToSession]) {
        self.batch.clear();
        self.framed.clear();
        self.written = 0;
        self.sent = 0;
        for message in batch {
            if let ToSession::Enqueue(grants) = message {
                self.batch.extend(grants.iter().map(|grant| grant.token));
            }
        }
    }

    /// Records that the next attempts are in frames from this one on.
    pub(super) fn framed(&mut self, first: usize, attempts: usize) {
        let before = self.framed.last().map_or(0, |(_, attempts)| *attempts);
        self.framed.push((self.written + first, before + attempts));
    }

    /// Records that this many frames were written, and that others of the batch follow.
    pub(super) fn written(&mut self, frames: usize) {
        self.written += frames;
    }

    /// Records that the socket was given this frame.
    pub(super) fn handed(&mut self, frame: usize) {
        let handed = self.framed.iter().take_while(|(first, _)| *first <= self.written + frame).last();
        self.sent = self.sent.max(handed.map_or(0, |(_, attempts)| *attempts));
    }

    /// The attempts that were certainly not sent if the writing ends here.
    pub(super) fn into_tokens(mut self) -> Vec<Token> {
        self.batch.split_off(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Fence, JobId, Nonce, Revision, Timestamp};
    use scheduler::step::{CloseReason, Grant};

    use super::*;

    fn token(job: u64) -> Token {
        Token { job: JobId(job), fence: Fence(job), nonce: Nonce(job) }
    }

    fn enqueue(jobs: &[u64]) -> ToSession {
        let (due_at, revision) = (Timestamp(0), Revision(0));
        let grant = |token| Grant {
            gpus: Default::default(),
            token,
            priority: 0,
            due_at,
            revision,
            name: String::new(),
            number: protocol::AttemptNo(1),
            has_overrides: false,
            time_left: None,
            memory_bytes: None,
            member: None,
        };
        ToSession::Enqueue(jobs.iter().map(|job| grant(token(*job))).collect())
    }

    /// The unsent ones of attempts 1 to 4, of which 1 and 2 are in frames from 0 on and 3 in frame 2, after these frames were written.
    fn left(frames: &[usize]) -> Vec<u64> {
        let mut unsent = UnsentAttempts::default();
        unsent.begin(&[enqueue(&[9])]);
        unsent.framed(0, 1);
        unsent.handed(0);
        unsent.begin(&[
            enqueue(&[1, 2]),
            enqueue(&[3]),
            ToSession::Close(CloseReason::Silent),
            enqueue(&[4]),
        ]);
        unsent.framed(0, 2);
        unsent.framed(2, 1);
        frames.iter().for_each(|frame| unsent.handed(*frame));
        unsent.into_tokens().into_iter().map(|token| token.job.0).collect()
    }

    #[test]
    fn frames_of_one_batch_may_be_written_in_parts() {
        let mut unsent = UnsentAttempts::default();
        unsent.begin(&[enqueue(&[1]), enqueue(&[2]), enqueue(&[3])]);
        unsent.framed(0, 1);
        [0, 1].into_iter().for_each(|frame| unsent.handed(frame));
        unsent.written(2);
        unsent.framed(0, 1);
        unsent.framed(1, 1);
        unsent.handed(0);
        assert_eq!(unsent.into_tokens(), [token(3)]);
    }

    #[test]
    fn only_frames_given_to_the_socket_may_have_been_sent() {
        assert_eq!(left(&[]), [1, 2, 3, 4]);
        assert_eq!(left(&[0]), [3, 4]);
        assert_eq!(left(&[0, 1]), [3, 4], "the rest of the first two, or something else");
        assert_eq!(left(&[0, 1, 2]), [4], "it never came to a frame");
    }
}
