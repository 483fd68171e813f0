//! The Debian package: server and worker in one, packed by `dpkg-deb` from the files in deploy/debian.
//!
//! `dpkg-deb` is on every Debian machine and takes a directory as it is. cargo-deb would have to be compiled first, and would save the few
//! dozen lines below: all that is special about this package stands in the maintainer scripts, which are needed either way.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tokio::process::Command;

use super::stage::{self, Stage};
use super::{COMPLETIONS, Release};
use crate::docker;

#[derive(Clone, Copy)]
pub(crate) enum Compression {
    /// For a release.
    Smallest,
    /// For tests, which pack a debug binary.
    None,
}

/// Builds `longshore_VERSION_ARCHITECTURE.deb` in a directory.
///
/// # Errors
/// `dpkg-deb` is missing or finds a fault, or the binary cannot run here.
pub(crate) async fn build(
    release: &Release,
    out: &Path,
    compression: Compression,
) -> anyhow::Result<PathBuf> {
    let architecture = architecture();
    let stage = Stage::new(&release.root)?;
    lay_out(release, &stage).await?;
    add_control(release, &stage, architecture).await?;

    let package = out.join(format!("longshore_{}_{architecture}.deb", release.version));
    let mut pack = Command::new("dpkg-deb");
    // With the variable, dpkg-deb gives no entry a later time; all files here are new, so all get this one.
    pack.env("SOURCE_DATE_EPOCH", release.epoch.to_string())
        .args(["--root-owner-group", "--build"])
        .arg(match compression {
            Compression::Smallest => "-Zxz",
            Compression::None => "-Znone",
        })
        .arg(stage.path())
        .arg(&package);
    docker::quietly(pack).await?;
    Ok(package)
}

/// The files that the package installs.
async fn lay_out(release: &Release, stage: &Stage) -> anyhow::Result<()> {
    let deploy = release.root.join("deploy");
    stage.copy(&release.binary, "usr/bin/longshore", 0o755)?;
    stage.copy(&deploy.join("debian/longshore-setup"), "usr/sbin/longshore-setup", 0o755)?;
    for unit in ["longshore-server.service", "longshore-worker.service"] {
        // As they stand, the units are for an installation by hand.
        let text = fs::read_to_string(deploy.join("systemd").join(unit)).context(unit)?;
        let text = text.replace("/usr/local/bin/", "/usr/bin/");
        stage.write(&format!("lib/systemd/system/{unit}"), 0o644, text)?;
    }
    stage.copy_directory(&deploy.join("etc"), "etc/longshore", 0o644)?;

    stage.manual_pages(&release.binary, "usr/share/man/man1").await?;
    for page in fs::read_dir(stage.path().join("usr/share/man/man1"))? {
        let mut gzip = Command::new("gzip");
        gzip.arg("-9n").arg(page?.path());
        docker::quietly(gzip).await?;
    }
    for ((shell, file), directory) in COMPLETIONS.iter().zip(COMPLETION_DIRECTORIES) {
        stage.completion(&release.binary, shell, &format!("usr/share/{directory}/{file}")).await?;
    }
    let copyright = fs::read_to_string(deploy.join("debian/copyright"))?;
    stage.write(
        "usr/share/doc/longshore/copyright",
        0o644,
        copyright.replace("VERSION", &release.version),
    )?;
    stage.copy(&release.root.join("LICENSE-MIT"), "usr/share/doc/longshore/LICENSE-MIT", 0o644)?;
    stage.copy(&release.root.join("README.md"), "usr/share/doc/longshore/README.md", 0o644)
}

/// Writes the files that dpkg reads: the description, sums of all files, configuration files, and the scripts.
async fn add_control(release: &Release, stage: &Stage, architecture: &str) -> anyhow::Result<()> {
    let files = stage.files()?;
    let sizes = files.iter().map(|file| Ok(fs::metadata(stage.path().join(file))?.len().div_ceil(1024)));
    let installed_kib: u64 = sizes.sum::<anyhow::Result<u64>>()?;
    // dpkg keeps sums of configuration files by itself.
    let mut md5sum = Command::new("md5sum");
    md5sum.arg("--").args(files.iter().filter(|file| !file.starts_with("etc"))).current_dir(stage.path());
    stage.write("DEBIAN/md5sums", 0o644, stage::output(md5sum).await?)?;

    let debian = release.root.join("deploy/debian");
    let control = fs::read_to_string(debian.join("control"))?
        .replace("Version: VERSION", &format!("Version: {}", release.version))
        .replace("Architecture: ARCHITECTURE", &format!("Architecture: {architecture}"))
        .replace("INSTALLED_SIZE", &installed_kib.to_string());
    stage.write("DEBIAN/control", 0o644, control)?;
    stage.copy(&debian.join("conffiles"), "DEBIAN/conffiles", 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        stage.copy(&debian.join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    Ok(())
}

/// Debian's name of the architecture that this program was compiled for.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Below /usr/share, for each of [`COMPLETIONS`].
const COMPLETION_DIRECTORIES: [&str; 3] =
    ["bash-completion/completions", "zsh/vendor-completions", "fish/vendor_completions.d"];
