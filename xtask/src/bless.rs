//! `cargo xtask bless`: the tests that compare with a file write that file instead, when `LONGSHORE_BLESS` is set.

use std::path::Path;

use crate::step;

pub(crate) async fn run(root: &Path) -> anyhow::Result<()> {
    let mut tests = step::command(root, &["cargo", "test", "--workspace", "--quiet", "--no-fail-fast"]);
    tests.env("LONGSHORE_BLESS", "1");
    step::run("tests, with LONGSHORE_BLESS=1", step::succeed(tests)).await?;
    step::program(root, &["git", "status", "--short"]).await?;
    println!("Read the difference before you commit it: git diff");
    Ok(())
}
