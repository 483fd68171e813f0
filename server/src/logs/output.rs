//! Output as readers see it: whose it is, which streams, and the pieces of a page.

use bytes::Bytes;
use protocol::report::{OutputLengths, Stream};
use protocol::{Fence, JobId, Timestamp, Token};

/// The end of what is stored of an attempt's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputEnd {
    /// The lengths of both streams, gaps included.
    pub lengths: OutputLengths,
    /// Nothing more is stored: the attempt has reached its limit.
    pub is_cut: bool,
}

/// The attempt that wrote some output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptKey {
    /// The job.
    pub job: JobId,
    /// The attempt's fence.
    pub fence: Fence,
}

impl From<Token> for AttemptKey {
    fn from(token: Token) -> Self {
        Self { job: token.job, fence: token.fence }
    }
}

/// A selection of an attempt's streams. It also selects the numbering of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Streams {
    /// One stream; positions are its own offsets.
    Only(Stream),
    /// Both, as they arrived; positions count the bytes of both.
    Both,
}

impl Streams {
    /// True if this stream is selected.
    #[must_use]
    pub fn has(self, stream: Stream) -> bool {
        match self {
            Self::Only(only) => only == stream,
            Self::Both => true,
        }
    }
}

/// A part of an attempt's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The pieces, in order, without holes: each begins where the one before it ends.
    pub pieces: Vec<Piece>,
    /// The position to continue from.
    pub next: u64,
}

/// A stretch of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stream that the program wrote to.
    pub stream: Stream,
    /// Its position, by the numbering asked for.
    pub at: u64,
    /// The position after its last byte in its own stream.
    pub stream_end: u64,
    /// The time at which the server received it, or noticed that it is missing. After a lost connection that is the time of the
    /// reconnection. Absent for output that an earlier version stored, and for output that is no longer here.
    pub received_at: Option<Timestamp>,
    /// The bytes, or how many are missing.
    pub data: PieceData,
}

/// The content of a piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceData {
    /// As it was written.
    Bytes(Bytes),
    /// Read again from the engine's log: the same for text, not always for binary.
    Replayed(Bytes),
    /// This many bytes are missing.
    Gap(u64),
    /// The server stored nothing of the attempt from here on, because it had as much as it takes of one. This many bytes came in the same
    /// chunk; later ones are not counted.
    Cut(u64),
}

impl PieceData {
    /// How many bytes of output it stands for.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Replayed(bytes) => bytes.len() as u64,
            Self::Gap(bytes) | Self::Cut(bytes) => *bytes,
        }
    }

    /// True if it stands for no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
