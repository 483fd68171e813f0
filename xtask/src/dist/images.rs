//! The images of a release: the server's and the worker's, around the program of the release, saved to files for `docker load`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Release;
use crate::images::own::{self, Own};
use crate::when::When;
use crate::{docker, images};

/// An image in its file.
pub(crate) struct Saved {
    /// The compressed archive.
    pub(crate) file: PathBuf,
    /// Its entry in the manifest.
    pub(crate) entry: Value,
}

/// Makes both images, or says in one line why not.
///
/// # Errors
/// An image is wrong or too large, or they are required and no engine answers.
pub(super) async fn make(release: &Release, out: &Path, wanted: When) -> anyhow::Result<Vec<Saved>> {
    if wanted.is_off("images", LEFT_OUT) {
        return Ok(Vec::new());
    }
    if let Err(why) = docker::version().await {
        return wanted.leave_out("images", why, LEFT_OUT).map(|()| Vec::new());
    }
    images::provide_bases(&release.root).await?;
    let mut saved = Vec::new();
    for image in [Own::Server, Own::Worker] {
        saved.push(make_one(release, out, image).await?);
    }
    Ok(saved)
}

const LEFT_OUT: &str = "they are not made";

async fn make_one(release: &Release, out: &Path, image: Own) -> anyhow::Result<Saved> {
    let name = format!("longshore-{}", image.target());
    let tag = format!("{name}:{}", release.version);
    image.build(&release.root, &release.binary, &tag).await?;
    let sizes = image.check(&tag, true).await?;
    let file = out.join(format!("{name}-{}-{}.docker.tar.gz", release.version, std::env::consts::ARCH));
    own::save(&tag, &file).await?;
    let entry = json!({ "image": tag, "stored_bytes": sizes.stored });
    Ok(Saved { file, entry })
}
