//! The result of a check.

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingVerdict {
    /// It is.
    Ok,
    /// It works, but somebody should know.
    Warn,
    /// It is not.
    Fail,
}

impl FindingVerdict {
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

/// The result of one look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject of the check.
    pub what: &'static str,
    /// Its result.
    pub verdict: FindingVerdict,
    /// The facts, in one line.
    pub text: String,
    /// The next step; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

impl Finding {
    /// All is well.
    pub fn ok(what: &'static str, text: impl Into<String>) -> Self {
        Self { what, verdict: FindingVerdict::Ok, text: text.into(), next: String::new() }
    }

    /// Somebody should know.
    pub fn warn(what: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what, verdict: FindingVerdict::Warn, text: text.into(), next: next.into() }
    }

    /// It is broken.
    pub fn fail(what: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what, verdict: FindingVerdict::Fail, text: text.into(), next: next.into() }
    }
}
