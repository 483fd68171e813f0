//! Where in the engine's log goes on what a file holds.
//!
//! As a rule that is behind as many bytes. But the engine keeps two files of 64 MiB: of what is longer it drops the beginning. So what the file
//! ends with is looked for, where it should be and then anywhere. Only text comes back as it was written and can be found.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Where the log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind this many bytes.
    After(u64),
    /// Behind as many bytes as the file holds, if at all: what is there was changed by its encoding.
    Unsure(u64),
    /// Its beginning already comes later, nobody knows how much.
    Beyond,
}

/// What is known of an output before its log is read.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// How many bytes of the log the file holds, if its beginning is still there.
    pub(super) bytes: u64,
    /// Some bytes of the file, and where in the log they should be.
    head: Sample,
    tail: Sample,
}

#[derive(Debug, Default)]
struct Sample {
    at: u64,
    bytes: Vec<u8>,
}

impl Known {
    /// Of a file whose bytes from `from` to `to` are the last `bytes` of so many bytes of the log.
    pub(super) fn read(file: &File, from: u64, to: u64, bytes: u64) -> io::Result<Self> {
        let length = to.saturating_sub(from).min(bytes);
        let (from, in_log) = (to - length, bytes - length);
        let sample = |skipped: u64| -> io::Result<Sample> {
            let mut bytes = vec![0; usize::try_from((length - skipped).min(SAMPLE_BYTES)).unwrap_or(0)];
            file.read_exact_at(&mut bytes, from + skipped)?;
            Ok(Sample { at: in_log + skipped, bytes }.of_text())
        };
        Ok(Self { bytes, head: sample(0)?, tail: sample(length.saturating_sub(SAMPLE_BYTES))? })
    }

    /// Reads a log to its end.
    pub(super) async fn find(&self, mut log: impl AsyncRead + Unpin) -> io::Result<Place> {
        let (mut at, mut found, mut begins_alike) = (0, None, true);
        let (mut window, mut buffer) = (Vec::new(), vec![0; BUFFER_BYTES]);
        loop {
            let read = log.read(&mut buffer).await?;
            if read == 0 {
                return Ok(self.judge(at, found, begins_alike));
            }
            begins_alike &= self.head.agrees(at, &buffer[..read]);
            let window_at = at - window.len() as u64;
            window.extend_from_slice(&buffer[..read]);
            at += read as u64;
            found = self.tail.nearer(found, window_at, &window);
            window.drain(..window.len().saturating_sub(self.tail.bytes.len().saturating_sub(1)));
        }
    }

    fn judge(&self, length: u64, found: Option<u64>, begins_alike: bool) -> Place {
        let tail_bytes = self.tail.bytes.len() as u64;
        let is_cut = !begins_alike || (self.bytes > length && self.head.at > 0 && self.head.at >= length);
        match found {
            Some(at) if at == self.tail.at => Place::After(self.bytes),
            Some(at) if is_cut && tail_bytes >= CERTAIN_BYTES => Place::After(at + tail_bytes),
            _ if self.bytes == 0 => Place::After(0),
            // Bytes that are no text are not found even where they are.
            _ if is_cut && tail_bytes > 0 => Place::Beyond,
            _ => Place::Unsure(self.bytes),
        }
    }
}

impl Sample {
    /// Itself, if it is text; it may begin and end within a character.
    fn of_text(mut self) -> Self {
        let within = self.bytes.iter().take(3).take_while(|it| **it & 0xc0 == 0x80).count();
        self.bytes.drain(..within);
        self.at += within as u64;
        match std::str::from_utf8(&self.bytes) {
            Ok(_) => {}
            Err(error) if error.error_len().is_none() => self.bytes.truncate(error.valid_up_to()),
            Err(_) => return Self::default(),
        }
        self
    }

    /// Whether a part of the log that begins there says the same where it tells.
    fn agrees(&self, at: u64, part: &[u8]) -> bool {
        let skipped = usize::try_from(self.at.saturating_sub(at)).unwrap_or(usize::MAX);
        let told = usize::try_from(at.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let (part, own) = (part.iter().skip(skipped), self.bytes.iter().skip(told));
        part.zip(own).all(|(one, other)| one == other)
    }

    /// Where it is in the log: where it should be, or else the first place.
    fn nearer(&self, found: Option<u64>, at: u64, part: &[u8]) -> Option<u64> {
        if self.bytes.is_empty() || found == Some(self.at) {
            return found;
        }
        let mut places = part.windows(self.bytes.len()).enumerate().filter(|(_, it)| *it == self.bytes);
        let first = places.next().map(|(index, _)| at + index as u64);
        let is_there = first == Some(self.at) || places.any(|(index, _)| at + index as u64 == self.at);
        if is_there { Some(self.at) } else { found.or(first) }
    }
}

/// Enough to be found once.
const SAMPLE_BYTES: u64 = 512;

/// What is shorter may well be found where it was not meant.
const CERTAIN_BYTES: u64 = 64;

const BUFFER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// What a program may write that counts.
    fn lines(numbers: std::ops::Range<u32>) -> Vec<u8> {
        numbers.flat_map(|number| format!("line {number} ü\n").into_bytes()).collect()
    }

    async fn place(file: &[u8], from: u64, log: &[u8]) -> Place {
        let mut disk = tempfile::tempfile().expect("a file");
        disk.write_all(file).expect("written");
        let bytes = file.len() as u64;
        Known::read(&disk, from, bytes, bytes).expect("read").find(log).await.expect("memory")
    }

    #[tokio::test]
    async fn a_log_that_is_all_there_goes_on_behind_what_the_file_holds() {
        let file = lines(0..20_000);
        let all = file.len() as u64;
        assert_eq!(place(&file, 0, &lines(0..30_000)).await, Place::After(all));
        assert_eq!(place(&file, 0, &file).await, Place::After(all));
        assert_eq!(place(&file, all - 1000, &lines(0..30_000)).await, Place::After(all), "the rest is freed");
        assert_eq!(place(&vec![b'y'; 9_000], 0, &vec![b'y'; 20_000]).await, Place::After(9_000));
        assert_eq!(place(b"", 0, &file).await, Place::After(0));
        assert_eq!(place(b"ok\n", 0, b"ok\nok\n").await, Place::After(3));
    }

    #[tokio::test]
    async fn a_log_whose_beginning_is_gone_goes_on_where_the_file_ends_in_it() {
        let (file, log) = (lines(0..20_000), lines(10_000..30_000));
        let expected = Place::After(lines(10_000..20_000).len() as u64);
        assert_eq!(place(&file, 0, &log).await, expected);
        assert_eq!(place(&file, file.len() as u64 - 300, &log).await, expected, "the rest is freed");
        // It is no longer than the file.
        assert_eq!(
            place(&file, 0, &lines(19_000..20_001)).await,
            Place::After(lines(19_000..20_000).len() as u64)
        );
    }

    #[tokio::test]
    async fn a_log_that_begins_after_what_the_file_holds_is_told_from_one_that_lacks_its_end() {
        let file = lines(0..20_000);
        assert_eq!(place(&file, 0, &lines(20_001..90_000)).await, Place::Beyond);
        assert_eq!(place(&file, file.len() as u64 - 300, &lines(20_001..20_002)).await, Place::Beyond);
        assert_eq!(place(b"ok\n", 0, &lines(0..90_000)).await, Place::Beyond);
        // The daemon died before it had written down what it had passed on.
        assert_eq!(place(&file, 0, &lines(0..19_999)).await, Place::Unsure(file.len() as u64));
    }

    #[tokio::test]
    async fn what_is_no_text_is_counted() {
        let file: Vec<u8> = (0..9_000_u32).map(|it| (it * 7 % 251) as u8).collect();
        let log = String::from_utf8_lossy(&file).into_owned();
        assert_eq!(place(&file, 0, log.as_bytes()).await, Place::Unsure(9_000));
    }
}
