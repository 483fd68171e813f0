//! Longshore's own images: made from a program that is built already, saved to files, and judged.
//!
//! The Dockerfile compiles the program itself. For a release its one line that compiles gives way to the program of the archive and the
//! package, so that all of them hold the same one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use super::stand_in;
use crate::{docker, step};

/// One of the two images.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    Server,
    Worker,
}

/// Bytes of an image.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// As the engine reports it.
    pub(crate) stored: u64,
    /// Saved and compressed, as a registry keeps and sends it.
    pub(crate) compressed: u64,
}

impl Own {
    /// The stage of the Dockerfile.
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Worker => "worker",
        }
    }

    /// The user of the image's processes; without a name it is root, for the worker uses the engine's socket.
    const fn user(self) -> &'static str {
        match self {
            Self::Server => "10001:10001",
            Self::Worker => "",
        }
    }

    /// Builds it around this program.
    ///
    /// # Errors
    /// The engine fails, or the program does not run in the image.
    pub(crate) async fn build(self, root: &Path, binary: &Path, tag: &str) -> anyhow::Result<()> {
        let context = stand_in::scratch(root)?;
        let dockerfile = fs::read_to_string(root.join("Dockerfile"))?;
        fs::write(context.path().join("Dockerfile"), with_program(&dockerfile)?)?;
        fs::copy(binary, context.path().join("longshore"))?;
        let mut build = Command::new("docker");
        build.args(["build", "--force-rm", "--target", self.target(), "--tag", tag]).arg(context.path());
        docker::quietly(build).await?;
        ensure!(docker::runs(tag, &["--version"]).await, "the program does not run in the image {tag}");
        Ok(())
    }

    /// Checks the user of an image, and prints and returns its sizes. A release's image must not exceed the limits.
    ///
    /// # Errors
    /// The engine does not have the image, it has another user, or the image of a release is too large.
    pub(crate) async fn check(self, image: &str, is_release: bool) -> anyhow::Result<Sizes> {
        let inspect =
            async |format: &str| docker::query(&["image", "inspect", "--format", format, "--", image]).await;
        let (user, expected) = (inspect("{{.Config.User}}").await?, self.user());
        ensure!(user == expected, "{image} should run as the user `{expected}`, and does as `{user}`");
        let stored = inspect("{{.Size}}").await?;
        let stored = stored.parse().with_context(|| format!("no size of {image}: {stored}"))?;
        let sizes = Sizes { stored, compressed: compressed(image).await? };
        println!("{image}: {} MB, compressed {} MB", sizes.stored / MEGABYTE, sizes.compressed / MEGABYTE);
        if is_release {
            self.judge(sizes).with_context(|| format!("{image} is too large"))?;
        }
        Ok(sizes)
    }

    fn judge(self, sizes: Sizes) -> anyhow::Result<()> {
        let Sizes { stored, compressed } = sizes;
        ensure!(compressed <= SIZE_MAX, "{compressed} bytes when compressed; at most {SIZE_MAX} are allowed");
        ensure!(
            self == Self::Worker || stored <= SIZE_MAX,
            "{stored} bytes in the engine; at most {SIZE_MAX} are allowed"
        );
        Ok(())
    }
}

/// Saves an image to a compressed file, which `docker load` reads.
///
/// # Errors
/// The engine fails, or the file cannot be written.
pub(crate) async fn save(image: &str, file: &Path) -> anyhow::Result<()> {
    let archive = PathBuf::from(file).with_extension("");
    let mut save = Command::new("docker");
    save.args(["save", "--output"]).arg(&archive).args(["--", image]);
    docker::quietly(save).await?;
    let mut gzip = Command::new("gzip");
    gzip.args(["-9n", "--force", "--"]).arg(&archive);
    docker::quietly(gzip).await?;
    // `docker save` lets only its user read the file.
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o644))?)
}

/// The Dockerfile with the program from its context instead of the line that compiles it.
fn with_program(dockerfile: &str) -> anyhow::Result<String> {
    let is_compiling = |line: &&str| line.starts_with("RUN cargo build ");
    let count = dockerfile.lines().filter(is_compiling).count();
    ensure!(count == 1, "the Dockerfile has {count} lines that begin with `RUN cargo build`, not one");
    let replaced = |line: &str| match is_compiling(&line) {
        true => "COPY longshore target/release/longshore\n".to_owned(),
        false => format!("{line}\n"),
    };
    Ok(dockerfile.lines().map(replaced).collect())
}

async fn compressed(image: &str) -> anyhow::Result<u64> {
    let pipeline = "docker save -- \"$1\" | gzip | wc -c";
    let mut count = step::command(Path::new("."), &["sh", "-c", pipeline, "sh", image]);
    let output = count.stdin(Stdio::null()).stderr(Stdio::inherit()).output().await?;
    let count = String::from_utf8(output.stdout)?;
    count.trim().parse().with_context(|| format!("cannot count the bytes of {image}: {count:?}"))
}

const MEGABYTE: u64 = 1_000_000;
/// Bytes: of the server's image in the engine, and of both images when they are compressed. The `docker` command in the worker's image alone
/// has more in the engine.
const SIZE_MAX: u64 = 40 * MEGABYTE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dockerfile_can_take_a_program_that_is_built_already() {
        let dockerfile = include_str!("../../../Dockerfile");
        let replaced = with_program(dockerfile).unwrap();
        assert!(
            !replaced.contains("cargo build")
                && replaced.contains("\nCOPY longshore target/release/longshore\n")
        );
        assert_eq!(replaced.lines().count(), dockerfile.lines().count());
        assert!(with_program("FROM scratch\n").is_err());
    }

    #[test]
    fn only_the_image_with_the_docker_command_may_be_larger_in_the_engine() {
        let sizes = |stored, compressed| Sizes { stored, compressed };
        assert!(Own::Server.judge(sizes(SIZE_MAX, SIZE_MAX)).is_ok());
        assert!(Own::Server.judge(sizes(SIZE_MAX + 1, 1)).is_err());
        assert!(Own::Worker.judge(sizes(SIZE_MAX + 1, SIZE_MAX)).is_ok());
        assert!(Own::Worker.judge(sizes(1, SIZE_MAX + 1)).is_err());
    }
}
