//! Close codes of a WebSocket with reasons for people. `docs/protocol.md` lists all of them.
//!
//! Both sides use the same table. Codes of 4000 and above are Longshore's own; the others are defined in RFC
//! 6455.

use alloc::string::String;
use core::fmt::Write;

/// A close code and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCode {
    /// The number in the close frame.
    pub code: u16,
    /// The first word of the reason.
    pub name: &'static str,
}

/// A close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The code, for machines.
    pub code: u16,
    /// The reason, for people: the name of the code, then the problem. At most [`REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

macro_rules! close_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal $text:literal;)*) => {
        $($(#[$doc])* pub const $name: CloseCode = CloseCode { code: $code, name: $text };)*

        /// All close codes that Longshore sends or reserves, by number.
        pub const ALL: &[CloseCode] = &[$($name),*];
    };
}

close_codes! {
    /// The worker leaves; no error.
    NORMAL = 1000 "leaving";
    /// The server leaves; no error. Reconnect as its GoAway said.
    GOING_AWAY = 1001 "going_away";
    /// The WebSocket protocol itself was broken, such as by a reserved bit.
    PROTOCOL_ERROR = 1002 "protocol_error";
    /// A text message came; all messages are binary.
    TEXT_FRAME = 1003 "text_frame";
    /// A message, its fragments, a list in it, or the memory that it asks for exceeds a limit.
    TOO_LARGE = 1009 "too_large";
    /// The server has an internal error. Reconnect with backoff.
    INTERNAL_ERROR = 1011 "internal_error";
    /// The tag is unknown and must be understood.
    UNKNOWN_MESSAGE = 4002 "unknown_message";
    /// The body does not match its tag, or has an invalid value.
    MALFORMED = 4003 "malformed";
    /// The first message was not a Hello, or none came in time.
    HELLO_EXPECTED = 4004 "hello_expected";
    /// The wire formats differ, or the two sides have no common protocol version.
    UNSUPPORTED_VERSION = 4005 "unsupported_version";
    /// A field of the Hello is not acceptable.
    INVALID_HELLO = 4006 "invalid_hello";
    /// Too many messages without content within a second, or more output than the window allows.
    RATE_LIMITED = 4008 "rate_limited";
    /// Another live worker has this name or this identity.
    DUPLICATE_WORKER = 4009 "duplicate_worker";
    /// The server belongs to another cluster than the worker's state directory. The worker leaves its containers alone.
    WRONG_CLUSTER = 4010 "wrong_cluster";
    /// This peer did not read its messages in time.
    SLOW_CONSUMER = 4011 "slow_consumer";
    /// A newer connection of the same worker has taken over.
    SUPERSEDED = 4012 "superseded";
    /// This peer sent nothing for too long.
    SILENT = 4013 "silent";
    /// Reserved: this server may not write, because another one leads.
    NOT_LEADING = 4014 "not_leading";
    /// The worker reported nothing about an attempt that was enqueued twice. It reconnects, and its inventory decides.
    UNANSWERED = 4015 "unanswered";
    /// The worker was revoked, or its token was before its Hello. Reconnect with backoff: another token may be in its file.
    UNAUTHORIZED = 4016 "unauthorized";
}

impl CloseCode {
    /// The close frame without details.
    #[must_use]
    pub fn plain(self) -> Close {
        Close { code: self.code, reason: String::from(self.name) }
    }

    /// The close frame with this reason after its name, cut to fit.
    #[must_use]
    pub fn with_reason(self, reason: impl core::fmt::Display) -> Close {
        let mut text = Bounded(String::from(self.name));
        // The only error is a full buffer, and a cut reason is intended.
        let _ = write!(text, ": {reason}");
        Close { code: self.code, reason: text.0 }
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

/// Collects text until a close frame is full. Control characters become `?`, since reasons are printed in
/// terminals and logs.
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
        let close = MALFORMED.with_reason("ü".repeat(200));
        assert!(close.reason.len() <= REASON_BYTES_MAX);
        assert!(close.reason.starts_with("malformed: üü"));
    }

    #[test]
    fn a_reason_carries_no_control_characters() {
        assert_eq!(INVALID_HELLO.with_reason("name \u{1b}[31m\n").reason, "invalid_hello: name ?[31m?");
    }
}
