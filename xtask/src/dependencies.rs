//! The step of `cargo xtask test` that judges the libraries by deny.toml: advisories, licences, bans, sources. `cargo deny` does it.
//!
//! Licences, bans and sources are judged from what is here. Advisories need a database that only the network has.

use std::path::Path;

use anyhow::bail;
use clap::ValueEnum;

use crate::step;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dependencies {
    /// They are judged; without cargo-deny and its database of advisories, the command fails
    Required,
    /// They are judged as far as cargo-deny and its database are there
    Auto,
    /// They are not judged
    Off,
}

/// Judges the libraries, or says in one line what is not judged.
///
/// # Errors
/// A library is refused, or something that is required is missing.
pub(crate) async fn run(root: &Path, wanted: Dependencies) -> anyhow::Result<()> {
    if wanted == Dependencies::Off {
        println!("dependencies: off; libraries are not judged");
        return Ok(());
    }
    if !step::is_installed(&["cargo", "deny", "--version"]).await {
        let missing = "there is no cargo-deny (cargo install --locked cargo-deny)";
        if wanted == Dependencies::Required {
            bail!("--dependencies required: {missing}");
        }
        println!("dependencies: {missing}; advisories, licences, bans and sources are not judged");
        return Ok(());
    }
    let mut check = step::command(root, &["cargo", "deny", "--all-features", "check"]);
    if !step::succeeds_silently(step::command(root, &["cargo", "deny", "fetch", "db"])).await {
        let missing = "the database of advisories cannot be fetched (`cargo deny fetch db` says why)";
        if wanted == Dependencies::Required {
            bail!("--dependencies required: {missing}");
        }
        println!("dependencies: {missing}; advisories are not judged");
        check.args(["bans", "licenses", "sources"]);
    }
    step::run("dependencies", step::succeed(check)).await
}
