//! Records ↔ bytes. A segment is a row of them; each says whose it is, where it belongs, and by its checksum that it is whole.
//!
//! ```text
//! 0 checksum of what follows u32 · 4 payload length u32 · 8 job u64 · 16 fence u64
//! 24 stdout before it u64 · 32 stderr before it u64 · 40 code u8 · 41 time of receipt i64, if the code has it · payload
//! ```
//! Numbers are little-endian. The payload of a gap or a cut is its length. The code says stream and kind, and if the header has a time
//! (milliseconds since 1970, by the server's clock): records of earlier versions have none.

use protocol::report::{OutputLengths, Stream};
use protocol::{Fence, JobId, Timestamp};

use super::output::{AttemptKey, PieceData, Streams};

/// The header of a record without a time: what every header has.
pub(super) const SHORT_HEADER_BYTES: usize = 41;

/// The header of a record with the time at which the server received it.
pub(super) const TIMED_HEADER_BYTES: usize = SHORT_HEADER_BYTES + 8;

/// The kind of a record's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes,
    Replayed,
    Gap,
    Cut,
}

impl Kind {
    /// True if the record stands for bytes that are not here.
    pub(super) const fn is_missing(self) -> bool {
        matches!(self, Self::Gap | Self::Cut)
    }
}

/// The code of a record: how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordCode {
    pub(super) stream: Stream,
    pub(super) kind: Kind,
    /// True if the header has the time of receipt.
    pub(super) has_time: bool,
}

impl RecordCode {
    pub(super) const fn to_byte(self) -> u8 {
        let stream = match self.stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        };
        let kind = match self.kind {
            Kind::Bytes => 0,
            Kind::Replayed => 2,
            Kind::Gap => 4,
            Kind::Cut => 6,
        };
        stream | kind | if self.has_time { HAS_TIME } else { 0 }
    }

    pub(super) const fn parse(byte: u8) -> Option<Self> {
        let stream = if byte & 1 == 0 { Stream::Stdout } else { Stream::Stderr };
        let kind = match byte & !(HAS_TIME | 1) {
            0 => Kind::Bytes,
            2 => Kind::Replayed,
            4 => Kind::Gap,
            6 => Kind::Cut,
            _ => return None,
        };
        Some(Self { stream, kind, has_time: byte & HAS_TIME != 0 })
    }

    /// Bytes in front of the payload.
    pub(super) const fn header_bytes(self) -> usize {
        if self.has_time { TIMED_HEADER_BYTES } else { SHORT_HEADER_BYTES }
    }
}

const HAS_TIME: u8 = 8;

/// The position of a record in its segment, and of its content in the output of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordPosition {
    /// The record's first byte in its segment.
    pub(super) at: u32,
    /// Bytes of its payload.
    pub(super) payload: u32,
    pub(super) code: RecordCode,
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

    /// The position after its last byte, by this numbering. A record of the other stream has no bytes.
    pub(super) fn ends(&self, streams: Streams) -> u64 {
        let covers = if self.is_of(streams) { self.covers } else { 0 };
        self.begins(streams).saturating_add(covers)
    }

    pub(super) fn is_of(&self, streams: Streams) -> bool {
        streams.has(self.code.stream)
    }

    /// How much the attempt had written after it.
    pub(super) fn after(&self) -> OutputLengths {
        let mut lengths = self.before;
        match self.code.stream {
            Stream::Stdout => lengths.stdout = lengths.stdout.saturating_add(self.covers),
            Stream::Stderr => lengths.stderr = lengths.stderr.saturating_add(self.covers),
        }
        lengths
    }

    /// Its bytes, with the header.
    pub(super) const fn bytes(&self) -> u64 {
        self.code.header_bytes() as u64 + self.payload as u64
    }

    /// The byte after the record in its segment.
    pub(super) const fn end(&self) -> u64 {
        self.at as u64 + self.bytes()
    }
}

/// The time in a header that has one, unchecked.
pub(super) fn time_of(header: &[u8]) -> Option<Timestamp> {
    let bytes = header.get(SHORT_HEADER_BYTES..TIMED_HEADER_BYTES)?;
    Some(Timestamp(i64::from_le_bytes(bytes.try_into().ok()?)))
}

/// A whole record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'b> {
    pub(super) attempt: AttemptKey,
    pub(super) position: RecordPosition,
    /// Absent in records of earlier versions.
    pub(super) received_at: Option<Timestamp>,
    pub(super) payload: &'b [u8],
}

/// Appends a record to `buffer`, whose first byte will be at `base` in the segment. Without a time it is one of earlier versions.
pub(super) fn encode(
    buffer: &mut Vec<u8>,
    base: u64,
    attempt: AttemptKey,
    stream: Stream,
    before: OutputLengths,
    received_at: Option<Timestamp>,
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
        PieceData::Cut(bytes) => {
            gap = bytes.to_le_bytes();
            (Kind::Cut, &gap)
        }
    };
    // Chunks are bounded by the frame and segments by their limit, both far below 4 GiB.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&length.to_le_bytes());
    for number in [attempt.job.0, attempt.fence.0, before.stdout, before.stderr] {
        buffer.extend_from_slice(&number.to_le_bytes());
    }
    let code = RecordCode { stream, kind, has_time: received_at.is_some() };
    buffer.push(code.to_byte());
    if let Some(received_at) = received_at {
        buffer.extend_from_slice(&received_at.0.to_le_bytes());
    }
    buffer.extend_from_slice(payload);
    let sum = checksum(&buffer[start + 4..]);
    buffer[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    let at = u32::try_from(base + start as u64).unwrap_or(u32::MAX);
    RecordPosition { at, payload: length, code, before, covers: data.len() }
}

/// Reads the record at the beginning of `bytes`, which is at `at` in its segment; nothing if there is none that is whole.
pub(super) fn decode(bytes: &[u8], at: u32) -> Option<Record<'_>> {
    let record = decode_unchecked(bytes, at)?;
    let end = record.position.bytes() as usize;
    let sum = u32::from_le_bytes(bytes[..4].try_into().ok()?);
    (checksum(&bytes[4..end]) == sum).then_some(record)
}

/// As [`decode`], of a record that may be damaged: nothing of it is checked but its length.
pub(super) fn decode_unchecked(bytes: &[u8], at: u32) -> Option<Record<'_>> {
    let header = bytes.get(..SHORT_HEADER_BYTES)?;
    let length = u32::from_le_bytes(header[4..8].try_into().ok()?);
    let code = RecordCode::parse(header[40])?;
    let record = bytes.get(..code.header_bytes().checked_add(length as usize)?)?;
    let number = |index: usize| Some(u64::from_le_bytes(record.get(index..index + 8)?.try_into().ok()?));
    let received_at = if code.has_time { time_of(record) } else { None };
    let payload = &record[code.header_bytes()..];
    let covers = match code.kind {
        Kind::Gap | Kind::Cut => u64::from_le_bytes(payload.try_into().ok()?),
        Kind::Bytes | Kind::Replayed => u64::from(length),
    };
    let attempt = AttemptKey { job: JobId(number(8)?), fence: Fence(number(16)?) };
    let before = OutputLengths { stdout: number(24)?, stderr: number(32)? };
    let position = RecordPosition { at, payload: length, code, before, covers };
    Some(Record { attempt, position, received_at, payload })
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

    const TIMES: [Option<Timestamp>; 4] =
        [None, Some(Timestamp(0)), Some(Timestamp(1_790_000_000_123)), Some(Timestamp(i64::MIN))];

    #[test]
    fn records_are_read_as_written() {
        let before = OutputLengths { stdout: 5, stderr: u64::MAX / 2 };
        for data in [
            PieceData::Bytes(Bytes::from_static(b"abc")),
            PieceData::Replayed(Bytes::from_static(b"")),
            PieceData::Gap(1 << 40),
            PieceData::Cut(3),
        ] {
            for (stream, time) in Stream::ALL.into_iter().flat_map(|stream| TIMES.map(|time| (stream, time)))
            {
                let mut buffer = vec![9; 3];
                let position = encode(&mut buffer, 100, ATTEMPT, stream, before, time, &data);
                let read = decode(&buffer[3..], 103).expect("a whole record");
                assert_eq!((read.attempt, read.position, read.received_at), (ATTEMPT, position, time));
                assert_eq!((read.position.covers, position.end()), (data.len(), 100 + buffer.len() as u64));
                assert_eq!(read.payload.len(), position.payload as usize);
            }
        }
    }

    /// Records as the versions before the time of receipt wrote them. These bytes never change.
    #[test]
    fn a_record_of_an_earlier_version_is_read_as_ever() {
        let golden = b"\x27\x2f\x06\x68\x06\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\
            \x05\x00\x00\x00\x00\x00\x00\x00\x02\x01\x00\x00\x00\x00\x00\x00\x03abcdef";
        let read = decode(golden, 9).expect("a whole record");
        assert_eq!((read.attempt, read.received_at, read.payload), (ATTEMPT, None, &b"abcdef"[..]));
        let code = RecordCode { stream: Stream::Stderr, kind: Kind::Replayed, has_time: false };
        let before = OutputLengths { stdout: 5, stderr: 258 };
        assert_eq!(read.position, RecordPosition { at: 9, payload: 6, code, before, covers: 6 });
        let mut again = Vec::new();
        let data = PieceData::Replayed(Bytes::from_static(b"abcdef"));
        encode(&mut again, 0, ATTEMPT, Stream::Stderr, before, None, &data);
        assert_eq!(again, golden);
    }

    #[test]
    fn a_code_is_read_as_written_and_others_are_refused() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|byte| RecordCode::parse(*byte).is_some()).collect();
        assert_eq!(known, (0..16).collect::<Vec<u8>>());
        assert!(
            known.iter().all(|byte| RecordCode::parse(*byte).is_some_and(|code| code.to_byte() == *byte))
        );
    }

    #[test]
    fn a_flipped_bit_or_a_missing_byte_is_noticed_anywhere() {
        let data = PieceData::Bytes(Bytes::from_static(b"abcdefghijklmnop"));
        for time in TIMES {
            let mut buffer = Vec::new();
            encode(&mut buffer, 0, ATTEMPT, Stream::Stderr, OutputLengths::default(), time, &data);
            for cut in 0..buffer.len() {
                assert_eq!(decode(&buffer[..cut], 0), None, "cut at {cut}");
            }
            for bit in 0..buffer.len() * 8 {
                let mut torn = buffer.clone();
                torn[bit / 8] ^= 1 << (bit % 8);
                // Bytes of the next record are after it, so that a longer one would fit.
                torn.extend_from_slice(&buffer);
                assert_eq!(decode(&torn, 0), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of CRC-32C.
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
    }
}
