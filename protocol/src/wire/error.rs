//! Errors of encoding and decoding; a variant for each reaction of a caller.

use alloc::string::String;

use bincode::error::DecodeError as Cause;

use crate::close::{self, Close};

/// A message cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// One element does not even fit into a frame of its own: leave it out, or shorten it.
    #[error("element {element} of {message} does not fit into a frame of {} bytes", super::FRAME_BYTES_MAX)]
    ElementTooLarge {
        /// The message's name.
        message: &'static str,
        /// Index of the element in its list; zero if the message has no list.
        element: usize,
    },
    /// One element has a value that the peer would refuse: leave it out, or correct it.
    #[error("element {element} of {message}: {invalid}")]
    OutOfRange {
        /// The message's name.
        message: &'static str,
        /// Index of the element in its list.
        element: usize,
        /// The field and its problem.
        invalid: InvalidField,
    },
    /// All elements are valid but need more than one frame: pack them.
    #[error("{message} needs more than one frame")]
    ListTooLong {
        /// The message's name.
        message: &'static str,
    },
}

/// A frame is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The tag is unknown and must not be skipped: the peer speaks a newer protocol, or none.
    #[error("unknown message 0x{tag:02x}")]
    UnknownTag {
        /// The first byte.
        tag: u8,
    },
    /// A Hello in another revision of the format: one of the peers is older.
    #[error(
        "the worker speaks wire format {theirs}, this server wire format {}: upgrade the older one",
        crate::WIRE_FORMAT
    )]
    OtherFormat {
        /// The worker's revision.
        theirs: u16,
    },
    /// The body does not match its tag.
    #[error("malformed {message} at byte {at}: {why}")]
    Malformed {
        /// The message's name.
        message: &'static str,
        /// How many bytes of the frame had been understood; the tag is byte 0.
        at: usize,
        /// The problem at that byte.
        why: &'static str,
    },
    /// The frame, a list in it, or the memory that it asks for is over a limit.
    #[error("{message} has more than {limit} {what}")]
    TooLarge {
        /// The message's name.
        message: &'static str,
        /// The kind of limit.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The bytes are well-formed, but a value is invalid.
    #[error("{message}.{invalid}")]
    OutOfRange {
        /// The message's name.
        message: &'static str,
        /// The field and its problem.
        invalid: InvalidField,
    },
}

/// An invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct InvalidField {
    /// The field.
    pub field: &'static str,
    /// The problem and a valid value. Never repeats a secret.
    pub why: String,
}

impl DecodeError {
    /// The close frame to answer with.
    #[must_use]
    pub fn close(&self) -> Close {
        match self {
            Self::UnknownTag { tag } => close::UNKNOWN_MESSAGE.with_reason(format_args!("0x{tag:02x}")),
            Self::OtherFormat { .. } => close::UNSUPPORTED_VERSION.with_reason(self),
            Self::Malformed { message, at, why } => {
                close::MALFORMED.with_reason(format_args!("{message} at byte {at}: {why}"))
            }
            Self::TooLarge { .. } => close::TOO_LARGE.with_reason(self),
            Self::OutOfRange { message: "Hello", invalid } => close::INVALID_HELLO.with_reason(invalid),
            Self::OutOfRange { .. } => close::MALFORMED.with_reason(self),
        }
    }

    /// Bincode's own error does not implement `Error` without the standard library, and it names Rust types;
    /// this keeps the part that a reader needs.
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
