//! Checks of a data directory for `longshore doctor` and `longshore upgrade-check`. They change nothing, and run while a server uses the directory, too.
//!
//! Each look gives a [`Finding`]: what was looked at, whether it is well, and the next step if it is not.

mod backup;
mod directory;
mod finding;
mod leftovers;
mod output;
mod store;
mod upgrade;

use std::path::Path;

use directory::WRITING;
pub use finding::{CheckStatus, Finding};
pub use upgrade::examine_upgrade;

/// Looks at a data directory: the place, the store, the output, the last backup. With `deep` every index and every record of output is read.
#[must_use]
pub fn examine(data: &Path, deep: bool) -> Vec<Finding> {
    let mut findings = directory::examine(data);
    // A directory that cannot be written can be read.
    let stops = |finding: &Finding| finding.verdict == CheckStatus::Fail && finding.what != WRITING;
    if !findings.iter().any(stops) {
        findings.extend(store::examine(data, deep));
        findings.push(output::examine(data, deep));
        findings.push(backup::examine(data));
        findings.extend(leftovers::examine(data));
    }
    findings
}

#[cfg(test)]
mod tests;
