//! `cargo xtask dist`: what a release consists of, in one directory.
//!
//! A binary archive, a Debian package, the images if there is an engine, a list of all libraries (CycloneDX), a manifest and checksums. Times are
//! those of the commit, entries are sorted and belong to root, so the same binary always gives the same bytes; images are an exception, for an
//! engine writes the time into them. `package_test.rs` builds the package from a debug binary.

pub(crate) mod debian;
mod images;
mod sbom;
pub(crate) mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::when::When;
use crate::{build, docker, step};
use debian::Compression;
use images::Saved;
use stage::Stage;

#[derive(Args)]
pub(crate) struct Options {
    /// Directory for the results; files of earlier runs in it are replaced
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,
    /// Pack this program instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Make the images and save them?
    #[arg(long, value_enum, default_value_t = When::Auto)]
    images: When,
}

/// The inputs that all parts of a release share.
#[derive(Clone)]
pub(crate) struct Release {
    /// The workspace.
    pub(crate) root: PathBuf,
    /// The program, built.
    pub(crate) binary: PathBuf,
    /// The version of the workspace.
    pub(crate) version: String,
    /// The time of all entries, seconds since 1970.
    pub(crate) epoch: u64,
}

impl Release {
    /// The release of a binary at the workspace's version and the commit's time.
    ///
    /// # Errors
    /// The workspace's version is not found, or there is neither `SOURCE_DATE_EPOCH` nor a commit.
    pub(crate) async fn new(root: &Path, binary: PathBuf) -> anyhow::Result<Self> {
        let metadata = sbom::metadata(root).await?;
        let version = sbom::program(&metadata)?["version"].as_str().context("the program has no version")?;
        Ok(Self { root: root.to_owned(), binary, version: version.to_owned(), epoch: epoch(root).await? })
    }
}

pub(crate) async fn run(root: &Path, options: &Options) -> anyhow::Result<()> {
    let started = Instant::now();
    let out = root.join(&options.out);
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let binary = match &options.binary {
        Some(file) => file.canonicalize().with_context(|| file.display().to_string())?,
        None => build::longshore(root, true).await?,
    };
    let release = Release::new(root, binary).await?;

    let mut files = vec![archive(&release, &out).await?];
    files.push(debian::build(&release, &out, Compression::Smallest).await?);
    files.push(sbom::write(&release, &out).await?);
    let saved = images::make(&release, &out, options.images).await?;
    files.extend(saved.iter().map(|image| image.file.clone()));
    files.push(manifest(&release, &out, &files, &saved)?);
    files.push(checksums(&out, &files).await?);
    for file in &files {
        println!("{:>10} bytes  {}", fs::metadata(file)?.len(), file.display());
    }
    println!("Built in {}.", step::seconds(started.elapsed()));
    Ok(())
}

/// The archive for machines without Debian's tools: one directory with everything that an installation by hand copies.
async fn archive(release: &Release, out: &Path) -> anyhow::Result<PathBuf> {
    let name = format!("longshore-{}-linux-{}", release.version, std::env::consts::ARCH);
    let stage = Stage::new(&release.root)?;
    stage.copy(&release.binary, &format!("{name}/longshore"), 0o755)?;
    // At the paths of a clone, because docs/operating.md and docs/installing.md install from either.
    for file in FILES {
        stage.copy(&release.root.join(file), &format!("{name}/{file}"), 0o644)?;
    }
    for directory in ["deploy/systemd", "deploy/etc"] {
        stage.copy_directory(&release.root.join(directory), &format!("{name}/{directory}"), 0o644)?;
    }
    stage.manual_pages(&release.binary, &format!("{name}/man/man1")).await?;
    for (shell, file) in COMPLETIONS {
        stage.completion(&release.binary, shell, &format!("{name}/completions/{file}")).await?;
    }
    let archive = out.join(format!("{name}.tar.gz"));
    let _ = fs::remove_file(&archive);
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"])
        .arg(format!("--mtime=@{}", release.epoch))
        // Without `-n`, gzip writes the time of the build.
        .args(["--use-compress-program=gzip -9n", "--create", "--file"])
        .arg(&archive)
        .arg("--directory")
        .arg(stage.path())
        .arg(&name);
    docker::quietly(tar).await?;
    Ok(archive)
}

/// Every file with its size; of an image also its name and its size in the engine.
fn manifest(release: &Release, out: &Path, files: &[PathBuf], saved: &[Saved]) -> anyhow::Result<PathBuf> {
    let mut entries = Vec::new();
    for file in files {
        let mut entry = json!({
            "file": file.file_name().and_then(|name| name.to_str()).context("a name that is not UTF-8")?,
            "bytes": fs::metadata(file)?.len(),
        });
        let of_image =
            saved.iter().find(|image| image.file == *file).and_then(|image| image.entry.as_object());
        if let (Some(entry), Some(of_image)) = (entry.as_object_mut(), of_image) {
            entry.extend(of_image.clone());
        }
        entries.push(entry);
    }
    entries.sort_by(|left, right| left["file"].as_str().cmp(&right["file"].as_str()));
    let document: Value = json!({ "version": release.version, "files": entries });
    let file = out.join(format!("longshore-{}.manifest.json", release.version));
    fs::write(&file, serde_json::to_string_pretty(&document)? + "\n")?;
    Ok(file)
}

async fn checksums(out: &Path, files: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let mut names: Vec<_> = files.iter().filter_map(|file| file.file_name()).collect();
    names.sort();
    let mut sha256sum = Command::new("sha256sum");
    sha256sum.arg("--").args(names).current_dir(out);
    let sums = out.join("SHA256SUMS");
    fs::write(&sums, stage::output(sha256sum).await?)?;
    Ok(sums)
}

/// `SOURCE_DATE_EPOCH` if it is set, else the time of the commit.
async fn epoch(root: &Path) -> anyhow::Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let commit = stage::output(step::command(root, &["git", "log", "-1", "--format=%ct"])).await;
            match commit {
                Ok(time) => String::from_utf8(time)?,
                Err(_) => bail!("there is no commit whose time could be used: set SOURCE_DATE_EPOCH"),
            }
        }
    };
    text.trim().parse().with_context(|| format!("SOURCE_DATE_EPOCH: `{}` is no number", text.trim()))
}

/// Files of the archive. deploy/compose-tls is not copied whole, because its users keep tokens there.
const FILES: [&str; 10] = [
    "LICENSE",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "README.md",
    "SECURITY.md",
    "docker-compose.yml",
    "jobs.yaml",
    "deploy/compose-tls/README.md",
    "deploy/compose-tls/docker-compose.yml",
    "deploy/compose-tls/worker.yml",
];
/// The shells with a completion, and the name under which each looks for it.
pub(crate) const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "longshore"), ("zsh", "_longshore"), ("fish", "longshore.fish")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_archive_are_in_the_workspace() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let missing: Vec<&str> = FILES.into_iter().filter(|file| !root.join(file).is_file()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
