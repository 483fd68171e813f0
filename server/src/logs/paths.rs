//! Names of the files of segments.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(super) fn numbers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = PathBuf::from(entry?.file_name());
        if path.extension().is_some_and(|extension| extension == "seg") {
            numbers.extend(path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
        }
    }
    Ok(numbers)
}

pub(super) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.seg"))
}

pub(super) fn index_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.idx"))
}
