//! The step of `cargo xtask test` that judges the libraries by deny.toml: advisories, licences, bans, sources. `cargo deny` does it.
//!
//! Licences, bans and sources are judged from what is here. Advisories need a database that only the network has.

use std::path::Path;

use anyhow::anyhow;

use crate::step;
use crate::when::When;

/// Judges the libraries, or says in one line what is not judged.
///
/// # Errors
/// A library is refused, or something that is required is missing.
pub(crate) async fn run(root: &Path, wanted: When) -> anyhow::Result<()> {
    if wanted.is_off(FLAG, LEFT_OUT) {
        return Ok(());
    }
    if !step::is_installed(&["cargo", "deny", "--version"]).await {
        let missing = anyhow!("there is no cargo-deny (cargo install --locked cargo-deny)");
        return wanted.leave_out(FLAG, missing, LEFT_OUT);
    }
    let mut check = step::command(root, &["cargo", "deny", "--all-features", "check"]);
    if !step::succeeds_silently(step::command(root, &["cargo", "deny", "fetch", "db"])).await {
        let missing =
            anyhow!("the database of advisories cannot be fetched (`cargo deny fetch db` says why)");
        wanted.leave_out(FLAG, missing, "advisories are not judged")?;
        check.args(["bans", "licenses", "sources"]);
    }
    step::run("dependencies", step::succeed(check)).await
}

const FLAG: &str = "dependencies";
const LEFT_OUT: &str = "advisories, licences, bans and sources of libraries are not judged";
