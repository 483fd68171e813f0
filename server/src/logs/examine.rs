//! A look at the segments from outside, without changing anything.

use std::fs::File;
use std::io;
use std::path::Path;

use super::index::Summary;
use super::shelf;

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// How many segments there are.
    pub segments: usize,
    /// Their size.
    pub bytes: u64,
    /// Those that grow no more and have no whole index.
    pub without_index: Vec<u64>,
    /// Those that grow no more and are not whole records from end to end.
    pub damaged: Vec<u64>,
}

/// Looks at all segments in this directory; with `deep`, reads those that grow no more.
///
/// # Errors
/// A file cannot be read.
pub fn examine(directory: &Path, deep: bool) -> io::Result<Examined> {
    let mut seen = Examined::default();
    let mut numbers = match shelf::numbers(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(seen),
        numbers => numbers?,
    };
    numbers.sort_unstable();
    let last = numbers.last().copied();
    for number in numbers {
        let file = match File::open(shelf::segment_path(directory, number)) {
            // Just deleted, because it was old.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let bytes = file.metadata()?.len();
        seen.segments += 1;
        seen.bytes += bytes;
        // The last one grows: what is at its end may be half written at this moment.
        if Some(number) == last {
            continue;
        }
        if Summary::read(&shelf::index_path(directory, number)).is_none() {
            seen.without_index.push(number);
        }
        if deep && shelf::scan(&file)?.1 != bytes {
            seen.damaged.push(number);
        }
    }
    Ok(seen)
}
