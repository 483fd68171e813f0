//! A look at the segments from outside, without changing anything.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;

use super::index::Summary;
use super::record::Kind;
use super::scan::Scan;
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
    /// Those that are not whole records from end to end; of the last one, the end may be half written.
    pub damaged: Vec<u64>,
}

/// Looks at all segments in this directory; with `deep`, reads them.
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
        let grows = Some(number) == last;
        if !grows && Summary::read(&shelf::index_path(directory, number)).is_none() {
            seen.without_index.push(number);
        }
        if deep {
            let found = Scan::of(&file)?;
            let is_whole = found.end == found.bytes;
            // What is at the end of the last one may be half written at this moment.
            if !is_whole && (!grows || found.is_damaged_inside()) {
                seen.damaged.push(number);
            }
        }
    }
    Ok(seen)
}

/// How much output is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many attempts there is any of.
    pub attempts: usize,
    /// How many bytes of it there are; gaps have none.
    pub bytes: u64,
}

/// Reads all segments in this directory, and counts what is in whole records. It may be called while they grow.
///
/// # Errors
/// A file cannot be read.
pub fn tally(directory: &Path) -> io::Result<Tally> {
    let numbers = match shelf::numbers(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tally::default()),
        numbers => numbers?,
    };
    let (mut attempts, mut bytes) = (HashSet::new(), 0);
    for number in numbers {
        let contents = Scan::of(&File::open(shelf::segment_path(directory, number))?)?.all();
        for (attempt, place) in contents.all().filter(|(_, place)| place.kind != Kind::Gap) {
            attempts.insert(attempt);
            bytes += u64::from(place.payload);
        }
    }
    Ok(Tally { attempts: attempts.len(), bytes })
}
