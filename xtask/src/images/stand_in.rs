//! How each image is made on a machine without a registry: from what the machine has, and from Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::{docker, step};

/// Debian's minimal system with the host's certificate authorities, so that builds trust whatever the host trusts.
///
/// # Errors
/// Not root, no Debian machine, or the mirror does not answer.
pub(crate) async fn base(root: &Path, tag: &str) -> anyhow::Result<()> {
    require("debootstrap", "debootstrap").await?;
    let scratch = scratch(root)?;
    let system = scratch.path().join("system");
    let mut bootstrap = tokio::process::Command::new("debootstrap");
    bootstrap.args(["--variant=minbase", "--include=ca-certificates", "bookworm"]).arg(&system);
    docker::quietly(bootstrap).await?;
    let authorities = Path::new("etc/ssl/certs/ca-certificates.crt");
    let of_host = Path::new("/").join(authorities);
    if of_host.exists() {
        fs::copy(of_host, system.join(authorities))?;
    }
    let excluded = ["--exclude=./var/lib/apt/lists/*", "--exclude=./var/cache/apt/archives/*.deb"];
    let archive = pack(&scratch, &system, &excluded).await?;
    docker::import(&archive, Some("CMD [\"bash\"]"), tag).await
}

/// The toolchain of this machine on top of `base`, with a linker and the C library's headers.
///
/// # Errors
/// No toolchain found, or the build fails.
pub(crate) async fn rust(root: &Path, base: &str, tag: &str) -> anyhow::Result<()> {
    let sysroot =
        tokio::process::Command::new("rustc").args(["--print", "sysroot"]).current_dir(root).output().await?;
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout)?.trim());
    let scratch = scratch(root)?;
    let context = scratch.path().join("context");
    fs::create_dir(&context)?;
    let archive = pack(&scratch, &sysroot, &["--exclude=./share"]).await?;
    fs::rename(archive, context.join("toolchain.tar"))?;
    fs::write(context.join("Dockerfile"), RUST_DOCKERFILE.replace("BASE", base))?;
    docker::build(tag, &context).await
}

/// The `docker` command of this machine, alone.
///
/// # Errors
/// There is none.
pub(crate) async fn docker_cli(root: &Path, tag: &str) -> anyhow::Result<()> {
    let command = in_path("docker").context("there is no `docker` command in the PATH")?;
    let scratch = scratch(root)?;
    let system = scratch.path().join("system");
    fs::create_dir_all(system.join("usr/local/bin"))?;
    fs::copy(command, system.join("usr/local/bin/docker"))?;
    let archive = pack(&scratch, &system, &[]).await?;
    docker::import(&archive, None, tag).await
}

/// A static busybox, with a link for each of its commands.
///
/// # Errors
/// The machine has none and is no Debian, or we are not root.
pub(crate) async fn busybox(root: &Path, tag: &str) -> anyhow::Result<()> {
    let Err(error) = try_busybox(root, tag).await else { return Ok(()) };
    docker::version().await?;
    // The machine's own may be missing, or need shared libraries that an empty image does not have.
    install(&["busybox-static"]).await.with_context(|| format!("busybox of this machine: {error:#}"))?;
    try_busybox(root, tag).await
}

/// As [`busybox`], but only with what the machine has.
///
/// # Errors
/// There is none, or it cannot run on its own.
pub(crate) async fn try_busybox(root: &Path, tag: &str) -> anyhow::Result<()> {
    let command = in_path("busybox").context("there is no `busybox` command in the PATH")?;
    let scratch = scratch(root)?;
    fs::copy(command, scratch.path().join("busybox"))?;
    fs::write(scratch.path().join("Dockerfile"), BUSYBOX_DOCKERFILE)?;
    docker::build(tag, scratch.path()).await
}

/// The file of a command, links resolved.
fn in_path(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(command))
        .find_map(|file| file.canonicalize().ok())
}

/// A directory for the pieces of an image, beside the build's own files: system temporary directories may be too small.
pub(crate) fn scratch(root: &Path) -> anyhow::Result<TempDir> {
    let parent = root.join("target");
    fs::create_dir_all(&parent)?;
    Ok(tempfile::Builder::new().prefix("image-").tempdir_in(parent)?)
}

async fn pack(scratch: &TempDir, directory: &Path, excluded: &[&str]) -> anyhow::Result<PathBuf> {
    let archive = scratch.path().join("layer.tar");
    let mut tar = tokio::process::Command::new("tar");
    tar.args(excluded).arg("--directory").arg(directory).arg("--create").arg("--file").arg(&archive).arg(".");
    docker::quietly(tar).await?;
    Ok(archive)
}

async fn require(command: &str, package: &str) -> anyhow::Result<()> {
    if in_path(command).is_none() {
        install(&[package]).await?;
    }
    Ok(())
}

/// Installs Debian packages. A mirror may fail for a moment: the second try is the last.
async fn install(packages: &[&str]) -> anyhow::Result<()> {
    if in_path("apt-get").is_none() {
        bail!("missing {}, and this is no Debian machine that could install it", packages.join(", "));
    }
    if !rustix::process::geteuid().is_root() {
        bail!("missing {}: install it (apt-get install {0}) or run this as root", packages.join(" "));
    }
    let Err(error) = try_install(packages).await else { return Ok(()) };
    try_install(packages).await.with_context(|| format!("the first try: {error:#}"))
}

async fn try_install(packages: &[&str]) -> anyhow::Result<()> {
    docker::quietly(step::command(Path::new("/"), &["apt-get", "update", "--quiet"])).await?;
    let mut install =
        step::command(Path::new("/"), &["apt-get", "install", "--yes", "--quiet", "--no-install-recommends"]);
    install.args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    docker::quietly(install).await
}

const RUST_DOCKERFILE: &str = "\
FROM BASE
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo \\
    PATH=/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ADD toolchain.tar /usr/local/rustup/toolchains/stable/
RUN mkdir -p /usr/local/cargo/bin && ln -s /usr/local/rustup/toolchains/stable/bin/* /usr/local/cargo/bin/
";

const BUSYBOX_DOCKERFILE: &str = "\
FROM scratch
COPY busybox /bin/busybox
RUN [\"/bin/busybox\", \"--install\", \"-s\", \"/bin\"]
CMD [\"sh\"]
";
