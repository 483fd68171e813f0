//! The files of a directory that are jobs files, and what tells without reading that a file or a directory of them has changed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Identifies the content of a file: device, inode, length, and the time of its last change in nanoseconds. That of its
/// owner and mode counts, too: a file that could not be read may be readable now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity(pub(crate) u64, pub(crate) u64, pub(crate) u64, pub(crate) i128);

impl FileIdentity {
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        let changed = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
        Self(metadata.dev(), metadata.ino(), metadata.len(), changed)
    }
}

/// A jobs file of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedFile {
    pub(crate) name: OsString,
    /// None if the name leads nowhere, as a symbolic link to a file that is gone.
    identity: Option<FileIdentity>,
}

/// The state of what a path leads to, through all symbolic links. Equal states have the same content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fingerprint {
    /// A file, or a directory that cannot be listed.
    File(FileIdentity),
    /// The jobs files of a directory.
    Directory(Vec<ListedFile>),
}

impl Fingerprint {
    /// The present state; none if nothing is found, as while a file is being replaced. Blocks on the disk.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let files = if metadata.is_dir() { list(path).ok() } else { None };
        Some(files.map_or_else(|| Self::File(FileIdentity::of(&metadata)), Self::Directory))
    }
}

/// Lists the jobs files of a directory in the order of their names; one more than [`FILES_MAX`] if there are too many. Blocks on the disk.
///
/// # Errors
/// The directory cannot be listed.
pub(super) fn list(directory: &Path) -> io::Result<Vec<ListedFile>> {
    let mut listed = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if !is_jobs_file(&name) {
            continue;
        }
        let metadata = fs::metadata(directory.join(&name)).ok();
        if metadata.as_ref().is_some_and(fs::Metadata::is_dir) {
            continue;
        }
        listed.push(ListedFile { name, identity: metadata.as_ref().map(FileIdentity::of) });
        if listed.len() > FILES_MAX {
            break;
        }
    }
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(listed)
}

/// True for the names that are read: editors keep backups and locks under others, Kubernetes its versions of a ConfigMap.
pub(super) fn is_jobs_file(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    !name.starts_with(b".") && (name.ends_with(b".yaml") || name.ends_with(b".yml"))
}

/// Jobs files of a directory: a watch looks at each of them once a second.
pub const FILES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_hidden_files_and_other_formats_are_no_jobs_files() {
        for (name, is_read) in [
            ("a.yaml", true),
            ("a.yml", true),
            ("10-a.b.yaml", true),
            (".yaml", false),
            (".a.yaml", false),
            ("..data", false),
            (".#a.yaml", false),
            ("a.yaml~", false),
            ("a.yaml.swp", false),
            ("a.yaml.dpkg-dist", false),
            ("a.YAML", false),
            ("yaml", false),
            ("README", false),
        ] {
            assert_eq!(is_jobs_file(OsStr::new(name)), is_read, "{name}");
        }
    }
}
