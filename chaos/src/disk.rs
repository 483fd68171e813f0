//! A small file system for the server's data, which can be filled. Needs root.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted tmpfs. It does not survive a loss of power, but behaves like any other file system when it is full.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Mounts a tmpfs at this path.
    #[must_use]
    pub fn mount(at: PathBuf) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={BYTES},mode=0700"), "tmpfs"])
            .arg(&at)
            .status();
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "cannot mount {}: root is needed",
            at.display()
        );
        Self { at }
    }

    /// Fills the disk, and fills it again whenever space was freed, until `busy` returns false.
    ///
    /// # Panics
    /// A write fails for another reason than a full disk.
    pub async fn fill(&self, mut busy: impl AsyncFnMut() -> bool) {
        let path = self.at.join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        while busy().await {
            loop {
                match file.write_all(&[7; 4096]) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("{}: {error}", path.display()),
                }
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}

/// Unmounts a file system, even if it is in use.
pub(crate) fn unmount(at: &Path) {
    let _ = Command::new("umount").args(["--lazy", "--quiet"]).arg(at).status();
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.at);
    }
}

/// Enough for the server's reserved file, a quarter of it, and the data of one round.
const BYTES: u64 = 192 << 20;
