//! Why a WebSocket is closed: a code for machines, a reason for people. `docs/protocol.md` lists all of them.
//!
//! Both sides use the same table. A code of 4000 and above is Longshore's own; the others are RFC 6455's.

use alloc::string::String;
use core::fmt::Write;

/// A close code and its stable name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCode {
    /// What goes into the close frame.
    pub code: u16,
    /// The first word of the reason.
    pub name: &'static str,
}

/// What a close frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// For machines.
    pub code: u16,
    /// For people: the code's name, then what is wrong. At most [`REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

macro_rules! close_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal $text:literal;)*) => {
        $($(#[$doc])* pub const $name: CloseCode = CloseCode { code: $code, name: $text };)*

        /// Every close code that Longshore sends or keeps for itself, by number.
        pub const ALL: &[CloseCode] = &[$($name),*];
    };
}

close_codes! {
    /// Nothing is wrong: the worker leaves.
    NORMAL = 1000 "leaving";
    /// Nothing is wrong: the server leaves. Reconnect as its GoAway said.
    GOING_AWAY = 1001 "going_away";
    /// The WebSocket protocol itself was broken, such as by a reserved bit.
    PROTOCOL_ERROR = 1002 "protocol_error";
    /// A text message came; all messages are binary.
    TEXT_FRAME = 1003 "text_frame";
    /// A message, its fragments, a list in it, or the memory that it asks for is over the limit.
    TOO_LARGE = 1009 "too_large";
    /// A fault of the server's own. Reconnect with backoff.
    INTERNAL_ERROR = 1011 "internal_error";
    /// The tag is not known and is one that must be understood.
    UNKNOWN_MESSAGE = 4002 "unknown_message";
    /// The body is not what its tag promises, or a value in it cannot be.
    MALFORMED = 4003 "malformed";
    /// The first message was not a Hello, or none came in time.
    HELLO_EXPECTED = 4004 "hello_expected";
    /// No protocol version is spoken by both sides.
    UNSUPPORTED_VERSION = 4005 "unsupported_version";
    /// A field of the Hello is not acceptable.
    INVALID_HELLO = 4006 "invalid_hello";
    /// More messages within a second said nothing than a worker can have a reason for, or more output came than its window allows.
    RATE_LIMITED = 4008 "rate_limited";
    /// Another live worker has this name or this identity.
    DUPLICATE_WORKER = 4009 "duplicate_worker";
    /// The server belongs to another cluster than the worker's state directory. The worker leaves its containers alone.
    WRONG_CLUSTER = 4010 "wrong_cluster";
    /// What was sent to this peer was not read in time.
    SLOW_CONSUMER = 4011 "slow_consumer";
    /// A newer connection of the same worker has taken over.
    SUPERSEDED = 4012 "superseded";
    /// Nothing was heard from this peer for too long.
    SILENT = 4013 "silent";
    /// Reserved, not sent yet: this server may not write (any more): another one leads.
    NOT_LEADING = 4014 "not_leading";
}

impl CloseCode {
    /// The close frame without details.
    #[must_use]
    pub fn plain(self) -> Close {
        Close { code: self.code, reason: String::from(self.name) }
    }

    /// The close frame that also says what is wrong, cut to what a close frame can hold.
    #[must_use]
    pub fn because(self, detail: impl core::fmt::Display) -> Close {
        let mut reason = Bounded(String::from(self.name));
        // Being full is the only error, and a cut reason is what we want then.
        let _ = write!(reason, ": {detail}");
        Close { code: self.code, reason: reason.0 }
    }

    /// The entry with this number, if Longshore sends it.
    #[must_use]
    pub fn of(code: u16) -> Option<Self> {
        ALL.iter().find(|it| it.code == code).copied()
    }
}

impl core::fmt::Display for Close {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} {}", self.code, self.reason)
    }
}

/// Takes text until a close frame is full; control characters become `?`, since reasons end up in terminals and logs.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for char in text.chars() {
            let shown = if char.is_control() { '?' } else { char };
            if self.0.len() + shown.len_utf8() > REASON_BYTES_MAX {
                return Err(core::fmt::Error);
            }
            self.0.push(shown);
        }
        Ok(())
    }
}

/// The room for a reason in bytes: a control frame holds 125 (RFC 6455, section 5.5), two of them are the code.
pub const REASON_BYTES_MAX: usize = 123;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(ALL.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert_eq!(CloseCode::of(4003), Some(MALFORMED));
        assert_eq!(CloseCode::of(4999), None);
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let close = MALFORMED.because("ü".repeat(200));
        assert!(close.reason.len() <= REASON_BYTES_MAX);
        assert!(close.reason.starts_with("malformed: üü"));
    }

    #[test]
    fn a_reason_carries_no_control_characters() {
        assert_eq!(INVALID_HELLO.because("name \u{1b}[31m\n").reason, "invalid_hello: name ?[31m?");
    }
}
