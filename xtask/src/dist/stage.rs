//! A directory in which the content of an archive or package is laid out before it is packed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tokio::process::Command;

use crate::images::stand_in;

/// The directory; it is removed when this value is dropped.
pub(crate) struct Stage(TempDir);

impl Stage {
    /// An empty one, beside the build's own files.
    pub(crate) fn new(root: &Path) -> anyhow::Result<Self> {
        let directory = stand_in::scratch(root)?;
        // It becomes the root directory of a package: others must be able to enter it.
        set_mode(directory.path(), 0o755)?;
        Ok(Self(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, with the directories above it.
    pub(crate) fn write(&self, path: &str, mode: u32, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let file = self.file(path)?;
        fs::write(&file, content).with_context(|| file.display().to_string())?;
        set_mode(&file, mode)
    }

    /// Copies a file.
    pub(crate) fn copy(&self, from: &Path, path: &str, mode: u32) -> anyhow::Result<()> {
        let file = self.file(path)?;
        fs::copy(from, &file).with_context(|| from.display().to_string())?;
        set_mode(&file, mode)
    }

    /// Copies the files of a directory that has no directories in it.
    pub(crate) fn copy_directory(&self, from: &Path, path: &str, mode: u32) -> anyhow::Result<()> {
        for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
            let name = entry?.file_name().into_string().ok().context("a name that is not UTF-8")?;
            self.copy(&from.join(&name), &format!("{path}/{name}"), mode)?;
        }
        Ok(())
    }

    /// Writes the manual pages that a binary has.
    pub(crate) async fn manual_pages(&self, binary: &Path, path: &str) -> anyhow::Result<()> {
        let directory = self.path().join(path);
        let mut man = Command::new(binary);
        man.arg("man").arg(&directory);
        output(man).await?;
        for page in fs::read_dir(&directory)? {
            set_mode(&page?.path(), 0o644)?;
        }
        self.open_directories(path)
    }

    /// Writes the completion script of a binary for a shell.
    pub(crate) async fn completion(&self, binary: &Path, shell: &str, path: &str) -> anyhow::Result<()> {
        let mut completions = Command::new(binary);
        completions.args(["completions", shell]);
        self.write(path, 0o644, output(completions).await?)
    }

    /// The files below, relative to the stage, sorted.
    pub(crate) fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let (mut files, mut directories) = (Vec::new(), vec![self.path().to_owned()]);
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    directories.push(entry.path());
                } else {
                    files.push(entry.path().strip_prefix(self.path())?.to_owned());
                }
            }
        }
        files.sort();
        Ok(files)
    }

    fn file(&self, path: &str) -> anyhow::Result<PathBuf> {
        let file = self.path().join(path);
        fs::create_dir_all(file.parent().context("a file without directory")?)?;
        self.open_directories(path.rsplit_once('/').map_or("", |(directory, _)| directory))?;
        Ok(file)
    }

    /// Sets the mode of the directories on the way, so that the umask of the build does not show.
    fn open_directories(&self, path: &str) -> anyhow::Result<()> {
        let mut directory = self.path().to_owned();
        for name in path.split('/') {
            directory.push(name);
            set_mode(&directory, 0o755)?;
        }
        Ok(())
    }
}

/// Runs a program and returns its output.
///
/// # Errors
/// It cannot be started or fails; the error has its own words.
pub(crate) async fn output(mut command: Command) -> anyhow::Result<Vec<u8>> {
    let line = crate::step::display(&command);
    let output = command.output().await.with_context(|| format!("cannot run `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}
