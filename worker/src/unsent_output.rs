//! Ended attempts whose end is durable on the server and whose output is not. They are bounded in number and bytes: beyond that the
//! output of the oldest is given up. The outcome is durable by then, and the client reports what is missing as a gap.

use alloc::collections::BTreeMap;

use protocol::Token;
use protocol::report::OutputLengths;

/// Attempts that wait for their output. Each one is a directory and an entry of every inventory; a server that stops for a second while
/// many short jobs end must not cost their output.
const ATTEMPTS_MAX: usize = 65_536;
/// Bytes of their output: some sixty attempts with as much as a definition keeps by default (64 MiB).
const BYTES_MAX: u128 = 4 * 1024 * 1024 * 1024;

/// Position in the order in which the ends became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnsentNo(u64);

#[derive(Debug, Default)]
pub(crate) struct UnsentOutput {
    waiting: BTreeMap<UnsentNo, (Token, u64)>,
    bytes: u128,
    last: u64,
}

impl UnsentOutput {
    pub(crate) fn add(&mut self, token: Token, output: OutputLengths) -> UnsentNo {
        let bytes = output.stdout.saturating_add(output.stderr);
        self.last += 1;
        let number = UnsentNo(self.last);
        self.waiting.insert(number, (token, bytes));
        self.bytes += u128::from(bytes);
        number
    }

    pub(crate) fn remove(&mut self, number: UnsentNo) {
        if let Some((_, bytes)) = self.waiting.remove(&number) {
            self.bytes -= u128::from(bytes);
        }
    }

    /// The attempt that has waited for longest, if there are too many or too large ones. The last one is kept, whatever its size.
    pub(crate) fn excess(&self) -> Option<Token> {
        let too_many = self.waiting.len() > ATTEMPTS_MAX;
        let too_large = self.bytes > BYTES_MAX && self.waiting.len() > 1;
        let oldest = self.waiting.first_key_value().map(|(_, (token, _))| *token);
        oldest.filter(|_| too_many || too_large)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_waiting(&self, number: UnsentNo, token: Token) -> bool {
        self.waiting.get(&number).is_some_and(|(it, _)| *it == token)
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Fence, JobId, Nonce};

    use super::*;

    fn token(job: u64) -> Token {
        Token { job: JobId(job), fence: Fence(1), nonce: Nonce(1) }
    }

    fn output(stdout: u64) -> OutputLengths {
        OutputLengths { stdout, stderr: 0 }
    }

    #[test]
    fn beyond_the_number_the_oldest_one_is_in_excess() {
        let mut unsent = UnsentOutput::default();
        let first = unsent.add(token(0), output(1));
        for job in 1..ATTEMPTS_MAX as u64 {
            unsent.add(token(job), output(1));
        }
        assert_eq!(unsent.excess(), None);
        unsent.add(token(100_000), output(1));
        assert_eq!(unsent.excess(), Some(token(0)));
        unsent.remove(first);
        unsent.remove(first);
        assert_eq!(unsent.excess(), None);
    }

    #[test]
    fn beyond_the_bytes_all_but_the_last_one_are_in_excess() {
        let mut unsent = UnsentOutput::default();
        let first = unsent.add(token(1), output(u64::MAX));
        assert_eq!(unsent.excess(), None, "it is the only one");
        unsent.add(token(2), output(1));
        assert_eq!(unsent.excess(), Some(token(1)));
        unsent.remove(first);
        unsent.add(token(3), output(u64::try_from(BYTES_MAX).expect("it fits")));
        assert_eq!(unsent.excess(), Some(token(2)));
    }
}
