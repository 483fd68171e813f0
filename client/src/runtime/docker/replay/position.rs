//! Finds the position in the engine's log at which the content of an output file ends.
//!
//! Mostly it is the same number of bytes. But the engine keeps two log files of 64 MiB and drops the beginning of a longer log. So the end
//! of the file is searched, at its usual position and then anywhere. Only text comes back unchanged and can be found.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The position in the log after the file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogPosition {
    /// After this many bytes.
    After(u64),
    /// After as many bytes as the file holds, if at all: the encoding has changed the bytes.
    Unsure(u64),
    /// The log begins later, by an unknown number of bytes.
    Beyond,
}

/// Samples of a file to be found in the log.
#[derive(Debug, Default)]
pub(super) struct FileSamples {
    /// Number of bytes of the log that the file holds, if the log is complete.
    pub(super) bytes: u64,
    /// The first bytes of the file, with their position in a complete log.
    head: Sample,
    tail: Sample,
}

#[derive(Debug, Default)]
struct Sample {
    at: u64,
    bytes: Vec<u8>,
}

impl FileSamples {
    /// Samples the bytes from `from` to `to`, which are the last ones of `bytes` bytes of the log.
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

    /// Reads a log to its end and finds the position.
    pub(super) async fn find(&self, mut log: impl AsyncRead + Unpin) -> io::Result<LogPosition> {
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

    fn judge(&self, length: u64, found: Option<u64>, begins_alike: bool) -> LogPosition {
        let tail_bytes = self.tail.bytes.len() as u64;
        let is_cut = !begins_alike || (self.bytes > length && self.head.at > 0 && self.head.at >= length);
        match found {
            Some(at) if at == self.tail.at => LogPosition::After(self.bytes),
            Some(at) if is_cut && tail_bytes >= CERTAIN_BYTES => LogPosition::After(at + tail_bytes),
            _ if self.bytes == 0 => LogPosition::After(0),
            // Bytes that are not text are never found.
            _ if is_cut && tail_bytes > 0 => LogPosition::Beyond,
            _ => LogPosition::Unsure(self.bytes),
        }
    }
}

impl Sample {
    /// Keeps only text; the sample may begin and end within a character.
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

    /// `true` if this part of the log does not contradict the sample.
    fn agrees(&self, at: u64, part: &[u8]) -> bool {
        let skipped = usize::try_from(self.at.saturating_sub(at)).unwrap_or(usize::MAX);
        let told = usize::try_from(at.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let (part, own) = (part.iter().skip(skipped), self.bytes.iter().skip(told));
        part.zip(own).all(|(one, other)| one == other)
    }

    /// The position of the sample: the expected one, or else the first.
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

/// Enough bytes to be unique.
const SAMPLE_BYTES: u64 = 512;

/// A shorter sample may occur elsewhere by chance.
const CERTAIN_BYTES: u64 = 64;

const BUFFER_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The output of a program that counts.
    fn lines(numbers: std::ops::Range<u32>) -> Vec<u8> {
        numbers.flat_map(|number| format!("line {number} ü\n").into_bytes()).collect()
    }

    async fn place(file: &[u8], from: u64, log: &[u8]) -> LogPosition {
        let mut disk = tempfile::tempfile().expect("a file");
        disk.write_all(file).expect("written");
        let bytes = file.len() as u64;
        FileSamples::read(&disk, from, bytes, bytes).expect("read").find(log).await.expect("memory")
    }

    #[tokio::test]
    async fn a_complete_log_continues_behind_the_files_content() {
        let file = lines(0..20_000);
        let all = file.len() as u64;
        assert_eq!(place(&file, 0, &lines(0..30_000)).await, LogPosition::After(all));
        assert_eq!(place(&file, 0, &file).await, LogPosition::After(all));
        assert_eq!(
            place(&file, all - 1000, &lines(0..30_000)).await,
            LogPosition::After(all),
            "the rest is freed"
        );
        assert_eq!(place(&vec![b'y'; 9_000], 0, &vec![b'y'; 20_000]).await, LogPosition::After(9_000));
        assert_eq!(place(b"", 0, &file).await, LogPosition::After(0));
        assert_eq!(place(b"ok\n", 0, b"ok\nok\n").await, LogPosition::After(3));
    }

    #[tokio::test]
    async fn a_cut_log_continues_at_the_found_end_of_the_file() {
        let (file, log) = (lines(0..20_000), lines(10_000..30_000));
        let expected = LogPosition::After(lines(10_000..20_000).len() as u64);
        assert_eq!(place(&file, 0, &log).await, expected);
        assert_eq!(place(&file, file.len() as u64 - 300, &log).await, expected, "the rest is freed");
        // The log is not longer than the file.
        assert_eq!(
            place(&file, 0, &lines(19_000..20_001)).await,
            LogPosition::After(lines(19_000..20_000).len() as u64)
        );
    }

    #[tokio::test]
    async fn a_log_without_its_beginning_differs_from_one_without_its_end() {
        let file = lines(0..20_000);
        assert_eq!(place(&file, 0, &lines(20_001..90_000)).await, LogPosition::Beyond);
        assert_eq!(place(&file, file.len() as u64 - 300, &lines(20_001..20_002)).await, LogPosition::Beyond);
        assert_eq!(place(b"ok\n", 0, &lines(0..90_000)).await, LogPosition::Beyond);
        // The daemon died before it had written all bytes that it passed on.
        assert_eq!(place(&file, 0, &lines(0..19_999)).await, LogPosition::Unsure(file.len() as u64));
    }

    #[tokio::test]
    async fn what_is_no_text_is_counted() {
        let file: Vec<u8> = (0..9_000_u32).map(|it| (it * 7 % 251) as u8).collect();
        let log = String::from_utf8_lossy(&file).into_owned();
        assert_eq!(place(&file, 0, log.as_bytes()).await, LogPosition::Unsure(9_000));
    }
}
