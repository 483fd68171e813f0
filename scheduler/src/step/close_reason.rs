//! Why the scheduler closes a session.

use protocol::Token;

use super::BrokenRule;

/// Reason for closing a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The Hello was refused; the refusal was sent before.
    Refused,
    /// A newer connection of the same worker replaced it.
    Replaced,
    /// The worker broke a rule of the session.
    Protocol(BrokenRule),
    /// An operator revoked the worker; the refusal was sent before.
    Revoked,
    /// The lease expired.
    Silent,
    /// The worker did not report anything about this attempt, which was sent to it twice.
    Unanswered(Token),
}
