//! Checks of a data directory for `longshore doctor` and `longshore upgrade-check`. They change nothing, and run while a server uses the directory, too.
//!
//! Each look gives a [`Finding`]: what was looked at, whether it is well, and the next step if it is not.

mod directory;
mod leftovers;
mod output;
mod store;
mod upgrade;

use std::path::Path;

use serde::Serialize;

pub use upgrade::examine_upgrade;

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

/// Looks at a data directory: the place, the store, the output. With `deep` every index and every record of output is read.
#[must_use]
pub fn examine(data: &Path, deep: bool) -> Vec<Finding> {
    let mut findings = directory::examine(data);
    if findings.iter().all(|finding| finding.verdict != FindingVerdict::Fail) {
        findings.extend(store::examine(data, deep));
        findings.push(output::examine(data, deep));
        findings.extend(leftovers::examine(data));
    }
    findings
}

#[cfg(test)]
mod tests;
