//! Sizes of both images: as stored by the engine, and compressed, as a registry keeps and sends them.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use crate::docker;

/// Prints the sizes of an image. A release's image must not be larger than [`COMPRESSED_MAX`] when it is compressed.
///
/// # Errors
/// The engine does not have the image, or the image of a release is too large.
pub(crate) async fn check(image: &str, is_release: bool) -> anyhow::Result<()> {
    let stored = docker::query(&["image", "inspect", "--format", "{{.Size}}", "--", image]).await?;
    let stored: u64 = stored.parse().with_context(|| format!("no size of {image}: {stored}"))?;
    let compressed = compressed(image).await?;
    println!("{image}: {} MB, compressed {} MB", stored / MEGABYTE, compressed / MEGABYTE);
    ensure!(
        !is_release || compressed <= COMPRESSED_MAX,
        "{image} has {compressed} bytes when compressed; at most {COMPRESSED_MAX} are allowed"
    );
    Ok(())
}

async fn compressed(image: &str) -> anyhow::Result<u64> {
    let pipeline = "docker save -- \"$1\" | gzip | wc -c";
    let output = Command::new("sh")
        .args(["-c", pipeline, "sh", image])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await?;
    let count = String::from_utf8(output.stdout)?;
    count.trim().parse().with_context(|| format!("cannot count the bytes of {image}: {count:?}"))
}

const MEGABYTE: u64 = 1_000_000;
/// Bytes. The `docker` command takes up about half of it in the worker's image.
const COMPRESSED_MAX: u64 = 40 * MEGABYTE;
