//! `cargo xtask pictures`: the pictures of the dashboard in README and docs, made by its test in a browser on a busy day.
//!
//! The test leaves pictures of every page in `target/pictures`. A few of them become smaller and go to `docs/pictures`. A program in Python
//! does that, because its standard library can compress; no library of ours writes PNG.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, bail};

use crate::step;

/// Reads a PNG from its input and writes it with fewer colours.
const SMALLER: &str = include_str!("pictures/smaller.py");

/// The pictures that the documents show: page, width and colours.
const CHOSEN: [&str; 11] = [
    "overview-wide-light",
    "overview-wide-dark",
    "definitions-wide-light",
    "job-wide-light",
    "output-wide-dark",
    "batch-wide-light",
    "job-waiting-wide-light",
    "jobs-narrow-dark",
    "run-wide-light",
    "definition-limits-wide-light",
    "revisions-wide-light",
];

/// A clone of the repository has all pictures of all times.
const PICTURE_BYTES_MAX: usize = 120_000;

pub(crate) async fn run(root: &Path) -> anyhow::Result<()> {
    let words = ["cargo", "test", "--workspace", "--test", "dashboard", "every_page", "--", "--nocapture"];
    let mut test = step::command(root, &words);
    test.env("LONGSHORE_TEST_BROWSER", "required");
    step::run("pictures of every page in a browser", step::succeed(test)).await?;
    let (from, to) = (root.join("target/pictures"), root.join("docs/pictures"));
    std::fs::create_dir_all(&to)?;
    for name in CHOSEN {
        let file = format!("{name}.png");
        let picture =
            smaller(root, &from.join(&file)).await.with_context(|| format!("target/pictures/{file}"))?;
        if picture.len() > PICTURE_BYTES_MAX {
            bail!(
                "{file} has {} bytes, more than {PICTURE_BYTES_MAX}; show less on this page",
                picture.len()
            );
        }
        std::fs::write(to.join(&file), picture)?;
        println!("docs/pictures/{file}");
    }
    println!("Look at each of them before you commit it.");
    Ok(())
}

async fn smaller(root: &Path, picture: &Path) -> anyhow::Result<Vec<u8>> {
    let mut python = step::command(root, &["python3", "-c", SMALLER]);
    python.stdin(Stdio::from(std::fs::File::open(picture)?));
    let output = python.output().await.context("python3")?;
    if !output.status.success() {
        bail!("python3: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}
