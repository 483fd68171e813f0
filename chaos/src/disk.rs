//! A small disk for the server's data, which can be filled. Needs root.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system in memory: nothing on it survives a loss of power, but a full one is as full as any.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Puts one at this place.
    #[must_use]
    pub fn mount(at: PathBuf) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={BYTES},mode=0700"), "tmpfs"])
            .arg(&at)
            .status();
        assert!(mounted.is_ok_and(|status| status.success()), "cannot mount {}: is this root?", at.display());
        Self { at }
    }

    /// Takes every byte that is left, and goes on taking what is given back for as long as `busy` says so.
    ///
    /// # Panics
    /// It fails in another way than by being full.
    pub async fn fill(&self, mut busy: impl AsyncFnMut() -> bool) {
        let path = self.at.join("full-of-this");
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

/// Lets a file system go, even if somebody still uses it.
pub(crate) fn unmount(at: &Path) {
    let _ = Command::new("umount").args(["--lazy", "--quiet"]).arg(at).status();
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.at);
    }
}

/// Room for the server's reserve, a quarter of it, and a round's history beside it.
const BYTES: u64 = 192 << 20;
