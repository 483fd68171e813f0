//! What can be wrong with a frame, told apart by what a caller does about it.

use alloc::string::String;

use bincode::error::DecodeError as Cause;

use crate::close::{self, Close};

/// A message cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// One entry does not even fit into a frame of its own: leave it out, or shorten it.
    #[error("entry {entry} of {message} does not fit into a frame of {} bytes", super::FRAME_BYTES_MAX)]
    EntryTooLarge {
        /// The message's name.
        message: &'static str,
        /// Which entry of its list; for what is no list, zero.
        entry: usize,
    },
    /// One entry has a value that the peer would refuse: leave it out, or mend it.
    #[error("entry {entry} of {message}: {misfit}")]
    OutOfRange {
        /// The message's name.
        message: &'static str,
        /// Which entry of its list.
        entry: usize,
        /// The field and what is wrong with it.
        misfit: Misfit,
    },
    /// All entries are fine but need more than one frame: pack them.
    #[error("{message} needs more than one frame")]
    ListTooLong {
        /// The message's name.
        message: &'static str,
    },
}

/// A frame cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The tag is not known and must not be skipped: the peer speaks a newer protocol, or none.
    #[error("unknown message 0x{tag:02x}")]
    UnknownTag {
        /// The first byte.
        tag: u8,
    },
    /// The body is not what its tag promises.
    #[error("malformed {message} at byte {at}: {why}")]
    Malformed {
        /// The message's name.
        message: &'static str,
        /// How many bytes of the frame had been understood; the tag is byte 0.
        at: usize,
        /// What is wrong there.
        why: &'static str,
    },
    /// The frame, a list in it, or the memory that it asks for is over a limit.
    #[error("{message} has more than {limit} {what}")]
    TooLarge {
        /// The message's name.
        message: &'static str,
        /// What there is too much of.
        what: &'static str,
        /// How much of it there may be.
        limit: usize,
    },
    /// The bytes are well-formed, but a value is one that nothing could mean.
    #[error("{message}.{misfit}")]
    OutOfRange {
        /// The message's name.
        message: &'static str,
        /// The field and what is wrong with it.
        misfit: Misfit,
    },
}

/// A value that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Misfit {
    /// Where it is.
    pub field: &'static str,
    /// What is wrong with it and what would be right. Never echoes a secret.
    pub why: String,
}

impl DecodeError {
    /// What to close the connection with.
    #[must_use]
    pub fn close(&self) -> Close {
        match self {
            Self::UnknownTag { tag } => close::UNKNOWN_MESSAGE.because(format_args!("0x{tag:02x}")),
            Self::Malformed { message, at, why } => {
                close::MALFORMED.because(format_args!("{message} at byte {at}: {why}"))
            }
            Self::TooLarge { .. } => close::TOO_LARGE.because(self),
            Self::OutOfRange { message: "Hello", misfit } => close::INVALID_HELLO.because(misfit),
            Self::OutOfRange { .. } => close::MALFORMED.because(self),
        }
    }

    /// Bincode's own error has no `Error` without the standard library, and names types of ours; this keeps what a reader needs.
    pub(super) fn from_bincode(message: &'static str, at: usize, cause: &Cause) -> Self {
        let why = match cause {
            Cause::LimitExceeded | Cause::OutsideUsizeRange(_) => {
                return Self::TooLarge { message, what: "bytes of memory", limit: super::MEMORY_MAX };
            }
            Cause::UnexpectedEnd { .. } => "it ends too early",
            Cause::UnexpectedVariant { .. } => "no such variant",
            Cause::InvalidIntegerType { .. } => "a number is wider than its field",
            Cause::InvalidBooleanValue(_) => "a flag is neither 0 nor 1",
            Cause::Utf8 { .. } => "a text is not UTF-8",
            Cause::InvalidDuration { .. } => "a duration overflows",
            _ => "it cannot be read",
        };
        Self::Malformed { message, at, why }
    }
}
