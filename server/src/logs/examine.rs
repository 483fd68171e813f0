//! A look at the segments from outside, without changing anything.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;

use super::index::IndexSummary;
use super::paths;
use super::scan::Scan;

/// The result of a check of all segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentReport {
    /// How many segments there are.
    pub segments: usize,
    /// Their size.
    pub bytes: u64,
    /// Those that grow no more and have no whole index.
    pub without_index: Vec<u64>,
    /// Those that are not whole records from end to end; of the last one, the end may be half written.
    pub damaged: Vec<u64>,
}

/// Looks at all segments in this directory; with `deep`, reads them.
///
/// # Errors
/// A file cannot be read.
pub fn examine(directory: &Path, deep: bool) -> io::Result<SegmentReport> {
    let mut seen = SegmentReport::default();
    let mut numbers = match paths::numbers(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(seen),
        numbers => numbers?,
    };
    numbers.sort_unstable();
    let last = numbers.last().copied();
    for number in numbers {
        let file = match File::open(paths::segment_path(directory, number)) {
            // Just deleted, because it was old.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let bytes = file.metadata()?.len();
        seen.segments += 1;
        seen.bytes += bytes;
        let grows = Some(number) == last;
        if !grows && IndexSummary::read(&paths::index_path(directory, number), bytes).is_none() {
            seen.without_index.push(number);
        }
        if deep {
            let found = Scan::of(&file)?;
            let is_whole = found.end == found.bytes;
            // The end of the last segment may be half written at this moment.
            if !is_whole && (!grows || found.is_damaged_inside()) {
                seen.damaged.push(number);
            }
        }
    }
    Ok(seen)
}

/// How much output is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputTotals {
    /// How many attempts there is any of.
    pub attempts: usize,
    /// How many bytes of it there are; gaps have none.
    pub bytes: u64,
}

/// Reads all segments in this directory, and counts what is in whole records. It may be called while they grow.
///
/// # Errors
/// A file cannot be read.
pub fn output_totals(directory: &Path) -> io::Result<OutputTotals> {
    let numbers = match paths::numbers(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(OutputTotals::default()),
        numbers => numbers?,
    };
    let (mut attempts, mut bytes) = (HashSet::new(), 0);
    for number in numbers {
        let contents = Scan::of(&File::open(paths::segment_path(directory, number))?)?.whole();
        for (attempt, position) in contents.all().filter(|(_, position)| !position.code.kind.is_missing()) {
            attempts.insert(attempt);
            bytes += u64::from(position.payload);
        }
    }
    Ok(OutputTotals { attempts: attempts.len(), bytes })
}
