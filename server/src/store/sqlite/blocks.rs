//! Blocks of consecutive jobs, by which coarse indexes work.

/// A block of the coarse indexes has 2^12 consecutive jobs: the block of a job is its number without the last 12 bits.
pub(super) const BLOCK_SHIFT: u32 = 12;

/// The last job of a block.
pub(super) const fn last_of(block: i64) -> i64 {
    ((block + 1) << BLOCK_SHIFT) - 1
}

/// In `seen`: blocks with jobs of a definition's name.
pub(super) const SEEN_NAME: i64 = 1;
/// In `seen`: blocks with attempts on a worker.
pub(super) const SEEN_WORKER: i64 = 2;
/// In `seen`: blocks with jobs that the holder of a name has made.
pub(super) const SEEN_REQUESTER: i64 = 3;
