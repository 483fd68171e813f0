//! Names of the files of segments.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The numbers of the segments in this directory, in no order.
pub(super) fn numbers(directory: &Path) -> io::Result<Vec<u64>> {
    with_extension(directory, SEGMENT)
}

/// The numbers of the segments that have an index, whether they are there or not.
pub(super) fn indexed(directory: &Path) -> io::Result<Vec<u64>> {
    with_extension(directory, INDEX)
}

fn with_extension(directory: &Path, wanted: &str) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = PathBuf::from(entry?.file_name());
        if path.extension().is_some_and(|extension| extension == wanted) {
            numbers.extend(path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
        }
    }
    Ok(numbers)
}

pub(super) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.{SEGMENT}"))
}

pub(super) fn index_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.{INDEX}"))
}

const SEGMENT: &str = "seg";
const INDEX: &str = "idx";
