//! The numbers of a file system, as far as the worker decides by them.

use std::path::Path;

use rustix::fs::StatVfsMountFlags;

/// A file system. Blocks that it keeps for root are free and not available.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSystem {
    pub(crate) is_read_only: bool,
    /// 0 if it does not tell its size.
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) available_bytes: u64,
    /// 0 if it has no limit of them.
    pub(crate) inodes: u64,
    pub(crate) free_inodes: u64,
}

impl FileSystem {
    /// The file system that holds this path; `None` if the system does not answer. Blocks as long as the disk does.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some(Self {
            is_read_only: disk.f_flag.contains(StatVfsMountFlags::RDONLY),
            total_bytes: bytes(disk.f_blocks),
            free_bytes: bytes(disk.f_bfree),
            available_bytes: bytes(disk.f_bavail),
            inodes: disk.f_files,
            free_inodes: disk.f_ffree,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_a_file_system_and_a_missing_one_has_none() {
        let disk = FileSystem::of(&std::env::temp_dir()).expect("it answers");
        assert!(disk.available_bytes <= disk.free_bytes && disk.free_bytes <= disk.total_bytes, "{disk:?}");
        assert!(FileSystem::of(Path::new("/nonexistent")).is_none());
    }
}
