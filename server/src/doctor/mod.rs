//! What a careful operator would look at in a data directory, looked at without changing anything; also while a server is at work there.
//!
//! Each look gives a [`Finding`]: what was looked at, whether it is well, and the next step if it is not.

mod output;
mod place;
mod store;

use std::path::Path;

use serde::Serialize;

/// Whether something is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is.
    Ok,
    /// It works, but somebody should know.
    Warn,
    /// It is not.
    Fail,
}

impl Verdict {
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
    /// What was looked at.
    pub what: &'static str,
    /// Whether it is well.
    pub verdict: Verdict,
    /// What was seen, in one line.
    pub text: String,
    /// The next step; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

impl Finding {
    /// All is well.
    pub fn ok(what: &'static str, text: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Ok, text: text.into(), next: String::new() }
    }

    /// Somebody should know.
    pub fn warn(what: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Warn, text: text.into(), next: next.into() }
    }

    /// It is broken.
    pub fn fail(what: &'static str, text: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Fail, text: text.into(), next: next.into() }
    }
}

/// Looks at a data directory: the place, the store, the output. With `deep` every index and every record of output is read.
#[must_use]
pub fn examine(data: &Path, deep: bool) -> Vec<Finding> {
    let mut findings = place::examine(data);
    if findings.iter().all(|finding| finding.verdict != Verdict::Fail) {
        findings.extend(store::examine(data, deep));
        findings.push(output::examine(data, deep));
    }
    findings
}

#[cfg(test)]
mod tests;
