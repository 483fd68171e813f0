//! `cargo xtask freeze VERSION`: keeps what a version reads and writes in `frozen/VERSION`, so that later versions are tested against it.
//!
//! A test of the CLI writes a backup and the answers of the API. The frames of the protocol and the worker in Python, which speaks the format
//! of this version, are copied.

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::step;

#[derive(Args)]
pub(crate) struct Options {
    /// The version, such as 0.1.0; with a dash, such as 0.1.0-rc.1, it is a draft that may be replaced
    version: String,
}

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let version = options.version.as_str();
    let is_plain = version.starts_with(|first: char| first.is_ascii_digit())
        && version.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-".contains(letter));
    if !is_plain {
        bail!("{version:?} is no version such as 0.1.0");
    }
    let to = root.join("frozen").join(version);
    if to.exists() && !version.contains('-') {
        bail!("{} is there already, and a release never changes", to.display());
    }
    // A draft may be frozen anew, maybe with other files.
    if to.exists() {
        std::fs::remove_dir_all(&to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    std::fs::create_dir_all(to.join(WORKER)).with_context(|| format!("cannot make {}", to.display()))?;
    let frames = "protocol/tests/golden/frames.json";
    std::fs::copy(root.join(frames), to.join("frames.json"))
        .with_context(|| format!("cannot copy {frames}"))?;
    for name in WORKER_FILES {
        let from = root.join("examples/worker-python").join(name);
        std::fs::copy(&from, to.join(WORKER).join(name))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let words = ["cargo", "test", "--workspace", "--test", "black_box", "--", "--exact", WRITER];
    let mut write = step::command(root, &words);
    write.env("LONGSHORE_FREEZE", version);
    step::run("freeze", step::succeed(write)).await?;
    println!("Kept in {}. Read it before you commit it.", to.display());
    Ok(())
}

/// The directory with the worker in Python.
pub(crate) const WORKER: &str = "worker-python";

const WORKER_FILES: [&str; 5] = ["check.py", "codec.py", "jobs.yaml", "records.py", "worker.py"];

/// The test that writes the backup and the answers.
const WRITER: &str = "frozen::a_version_is_frozen_if_that_is_asked_for";
