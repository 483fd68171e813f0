//! The result of a check.

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// The check passed.
    Ok,
    /// The check passed, but an operator should know of it.
    Warn,
    /// The check failed.
    Fail,
}

impl CheckStatus {
    /// As it is shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of one check, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject of the check.
    pub what: &'static str,
    /// Its result.
    pub verdict: CheckStatus,
    /// The facts, in one line.
    pub text: String,
    /// The next step; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

impl Finding {
    /// All is well.
    pub fn ok(what: &'static str, text: impl Into<String>) -> Self {
        Self { what, verdict: CheckStatus::Ok, text: text.into(), next: String::new() }
    }

    /// Somebody should know.
    pub fn warn(what: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what, verdict: CheckStatus::Warn, text: text.into(), next: next.into() }
    }

    /// It is broken.
    pub fn fail(what: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what, verdict: CheckStatus::Fail, text: text.into(), next: next.into() }
    }
}
