//! Records ↔ bytes. A segment is a row of them; each says whose it is, where it belongs, and by its checksum that it is whole.
//!
//! ```text
//! 0 checksum of what follows u32 · 4 payload length u32 · 8 job u64 · 16 fence u64
//! 24 stdout before it u64 · 32 stderr before it u64 · 40 stream and kind u8 · 41 payload
//! ```
//! Numbers are little-endian. The payload of a gap is its length.

use protocol::report::{OutputLengths, Stream};
use protocol::{Fence, JobId};

use super::{AttemptKey, PieceData, Streams};

/// Bytes in front of a payload.
pub(super) const HEADER_BYTES: usize = 41;

/// The kind of a record's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes,
    Replayed,
    Gap,
}

/// The position of a record in its segment, and of its content in the output of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordPosition {
    /// The record's first byte in its segment.
    pub(super) at: u32,
    /// Bytes of its payload.
    pub(super) payload: u32,
    pub(super) stream: Stream,
    pub(super) kind: Kind,
    /// The lengths of the attempt's streams before this record.
    pub(super) before: OutputLengths,
    /// How many bytes of output it stands for.
    pub(super) covers: u64,
}

impl RecordPosition {
    /// The position of its first byte, by this numbering.
    pub(super) const fn begins(&self, streams: Streams) -> u64 {
        match streams {
            Streams::Only(Stream::Stdout) => self.before.stdout,
            Streams::Only(Stream::Stderr) => self.before.stderr,
            // `admit` lets in no more than a u64 can count.
            Streams::Both => self.before.stdout.saturating_add(self.before.stderr),
        }
    }

    /// The position behind its last byte, by this numbering. A record of the other stream has no bytes.
    pub(super) fn ends(&self, streams: Streams) -> u64 {
        let covers = if self.is_of(streams) { self.covers } else { 0 };
        self.begins(streams).saturating_add(covers)
    }

    pub(super) fn is_of(&self, streams: Streams) -> bool {
        streams.has(self.stream)
    }

    /// How much the attempt had written after it.
    pub(super) fn after(&self) -> OutputLengths {
        let mut lengths = self.before;
        match self.stream {
            Stream::Stdout => lengths.stdout = lengths.stdout.saturating_add(self.covers),
            Stream::Stderr => lengths.stderr = lengths.stderr.saturating_add(self.covers),
        }
        lengths
    }

    /// The byte behind the record in its segment.
    pub(super) const fn end(&self) -> u64 {
        self.at as u64 + HEADER_BYTES as u64 + self.payload as u64
    }
}

/// Appends a record to `buffer`, whose first byte will be at `base` in the segment.
pub(super) fn encode(
    buffer: &mut Vec<u8>,
    base: u64,
    attempt: AttemptKey,
    stream: Stream,
    before: OutputLengths,
    data: &PieceData,
) -> RecordPosition {
    let start = buffer.len();
    let gap;
    let (kind, payload): (Kind, &[u8]) = match data {
        PieceData::Bytes(bytes) => (Kind::Bytes, bytes),
        PieceData::Replayed(bytes) => (Kind::Replayed, bytes),
        PieceData::Gap(bytes) => {
            gap = bytes.to_le_bytes();
            (Kind::Gap, &gap)
        }
    };
    // Chunks are bounded by the frame and segments by their limit, both far below 4 GiB.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&length.to_le_bytes());
    for number in [attempt.job.0, attempt.fence.0, before.stdout, before.stderr] {
        buffer.extend_from_slice(&number.to_le_bytes());
    }
    buffer.push(code(stream, kind));
    buffer.extend_from_slice(payload);
    let sum = checksum(&buffer[start + 4..]);
    buffer[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    let at = u32::try_from(base + start as u64).unwrap_or(u32::MAX);
    RecordPosition { at, payload: length, stream, kind, before, covers: data.len() }
}

/// Reads the record at the beginning of `bytes`, which is at `at` in its segment; nothing if there is none that is whole.
pub(super) fn decode(bytes: &[u8], at: u32) -> Option<(AttemptKey, RecordPosition, &[u8])> {
    let header = bytes.get(..HEADER_BYTES)?;
    let length = u32::from_le_bytes(header[4..8].try_into().ok()?);
    let record = bytes.get(..HEADER_BYTES.checked_add(length as usize)?)?;
    if checksum(&record[4..]) != u32::from_le_bytes(header[..4].try_into().ok()?) {
        return None;
    }
    let number = |index: usize| Some(u64::from_le_bytes(header.get(index..index + 8)?.try_into().ok()?));
    let (stream, kind) = parse_code(header[40])?;
    let payload = &record[HEADER_BYTES..];
    let covers = match kind {
        Kind::Gap => u64::from_le_bytes(payload.try_into().ok()?),
        Kind::Bytes | Kind::Replayed => u64::from(length),
    };
    let attempt = AttemptKey { job: JobId(number(8)?), fence: Fence(number(16)?) };
    let before = OutputLengths { stdout: number(24)?, stderr: number(32)? };
    Some((attempt, RecordPosition { at, payload: length, stream, kind, before, covers }, payload))
}

pub(super) const fn code(stream: Stream, kind: Kind) -> u8 {
    let stream = match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    };
    let kind = match kind {
        Kind::Bytes => 0,
        Kind::Replayed => 2,
        Kind::Gap => 4,
    };
    stream | kind
}

pub(super) const fn parse_code(code: u8) -> Option<(Stream, Kind)> {
    let stream = if code & 1 == 0 { Stream::Stdout } else { Stream::Stderr };
    let kind = match code & !1 {
        0 => Kind::Bytes,
        2 => Kind::Replayed,
        4 => Kind::Gap,
        _ => return None,
    };
    Some((stream, kind))
}

/// CRC-32C (Castagnoli), a byte at a time: output comes at some megabytes a second, this does hundreds.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| (sum >> 8) ^ TABLE[((sum ^ u32::from(*byte)) & 0xFF) as usize])
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0x82F6_3B78 } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const ATTEMPT: AttemptKey = AttemptKey { job: JobId(7), fence: Fence(u64::MAX) };

    #[test]
    fn records_are_read_as_written() {
        let before = OutputLengths { stdout: 5, stderr: u64::MAX / 2 };
        for data in [
            PieceData::Bytes(Bytes::from_static(b"abc")),
            PieceData::Replayed(Bytes::from_static(b"")),
            PieceData::Gap(1 << 40),
        ] {
            for stream in Stream::ALL {
                let mut buffer = vec![9; 3];
                let position = encode(&mut buffer, 100, ATTEMPT, stream, before, &data);
                let (attempt, read, payload) = decode(&buffer[3..], 103).expect("a whole record");
                assert_eq!((attempt, read, read.covers), (ATTEMPT, position, data.len()));
                assert_eq!(payload.len(), position.payload as usize);
            }
        }
    }

    #[test]
    fn a_flipped_bit_or_a_missing_byte_is_noticed_anywhere() {
        let mut buffer = Vec::new();
        let data = PieceData::Bytes(Bytes::from_static(b"abcdef"));
        encode(&mut buffer, 0, ATTEMPT, Stream::Stderr, OutputLengths::default(), &data);
        for cut in 0..buffer.len() {
            assert_eq!(decode(&buffer[..cut], 0), None, "cut at {cut}");
        }
        for bit in 0..buffer.len() * 8 {
            let mut torn = buffer.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&torn, 0), None, "bit {bit}");
        }
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of CRC-32C.
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
    }
}
