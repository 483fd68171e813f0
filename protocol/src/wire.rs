//! Encoding of messages. One binary WebSocket message is one frame: a tag byte, then the body in bincode 2's
//! standard configuration.
//!
//! [`encode_order`] and [`encode_report`] make one frame; [`pack_order`] and [`pack_report`] make as many as
//! a long list needs, each within every limit of the decoder. [`decode_order`] and [`decode_report`] take
//! untrusted bytes: they never panic, never allocate more than [`MEMORY_MAX`] ahead of the bytes, and accept
//! neither trailing bytes nor invalid values.
//!
//! Bincode is named in this directory and in derives only, so that it can be replaced here.

mod check;
mod error;
mod hello;
pub(crate) mod limits;
mod pack;
mod tags;
mod unsent;
mod values;

use alloc::vec::Vec;

use bincode::Decode;
use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::de::read::Reader;
use bincode::de::{Decoder, DecoderImpl};

pub use check::{container_fits, cut_text, overrides_fit, overrides_fit_with, secrets_fit};
pub use error::{DecodeError, EncodeError, InvalidField};
pub use hello::check_hello;
pub use limits::{
    CHUNK_WEIGHT, DURATION_MAX, ENTRIES_MAX, EXIT_CODES, FRAME_BYTES_AIM, FRAME_BYTES_MAX, INNER_ENTRIES_MAX,
    LABELS_MAX, MEMORY_MAX, OFFSET_MAX, OUTPUT_BYTES_MAX, OUTPUT_WINDOW, OVERRIDES_BYTES_MAX,
    RESULT_BYTES_MAX, SECRET_BYTES_MAX, SECRETS_BYTES_MAX, SKIPPABLE_FROM, SLOTS_MAX, TEXT_BYTES_MAX,
};
pub use pack::{pack_order, pack_report};
pub use unsent::Unsent;

use crate::WIRE_FORMAT;
use crate::order::Order;
use crate::report::{Hello, Report};

/// One frame with this order.
///
/// # Errors
/// If it is over a limit: [`pack_order`] splits what is a list.
pub fn encode_order(order: &Order) -> Result<Vec<u8>, EncodeError> {
    pack::one_order(order)
}

/// One frame with this report.
///
/// # Errors
/// If it is over a limit: [`pack_report`] splits what is a list.
pub fn encode_report(report: &Report) -> Result<Vec<u8>, EncodeError> {
    pack::one_report(report)
}

/// Decodes a message of a server; `None` if its tag is unknown and may be skipped.
///
/// # Errors
/// The frame is invalid; [`DecodeError::close`] is the close frame to answer with.
pub fn decode_order(frame: &[u8]) -> Result<Option<Order>, DecodeError> {
    let Some((tag, mut body)) = FrameBody::open(frame, &tags::ORDERS)? else { return Ok(None) };
    let mut order = tags::read_order(tag, &mut body)?;
    check::order(&mut order).map_err(|invalid| body.out_of_range(invalid))?;
    Ok(Some(order))
}

/// Decodes a message of a worker; `None` if its tag is unknown and may be skipped.
///
/// # Errors
/// The frame is invalid; [`DecodeError::close`] is the close frame to answer with.
pub fn decode_report(frame: &[u8]) -> Result<Option<Report>, DecodeError> {
    let Some((tag, mut body)) = FrameBody::open(frame, &tags::REPORTS)? else { return Ok(None) };
    let mut report = tags::read_report(tag, &mut body)?;
    check::report(&mut report).map_err(|invalid| body.out_of_range(invalid))?;
    Ok(Some(report))
}

/// The body of a frame whose tag is known.
struct FrameBody<'a> {
    message: &'static str,
    bytes: &'a [u8],
}

impl<'a> FrameBody<'a> {
    /// Looks up the tag among `names`; `None` if it is unknown and may be skipped.
    fn open(frame: &'a [u8], names: &tags::Names) -> Result<Option<(u8, Self)>, DecodeError> {
        if frame.len() > FRAME_BYTES_MAX {
            return Err(DecodeError::TooLarge { message: "frame", what: "bytes", limit: FRAME_BYTES_MAX });
        }
        let Some((&tag, bytes)) = frame.split_first() else {
            return Err(DecodeError::Malformed { message: "frame", at: 0, why: "it is empty" });
        };
        match names.of(tag) {
            Some(message) => Ok(Some((tag, Self { message, bytes }))),
            None if tag >= SKIPPABLE_FROM => Ok(None),
            None => Err(DecodeError::UnknownTag { tag }),
        }
    }

    /// The whole body as one value.
    fn read<T: Decode<()>>(&mut self) -> Result<T, DecodeError> {
        let mut decoder = DecoderImpl::new(Cursor { rest: self.bytes }, CONFIGURATION, ());
        let value = T::decode(&mut decoder);
        let rest = decoder.reader().rest.len();
        let at = TAG_BYTES + self.bytes.len() - rest;
        match value {
            Ok(value) if rest == 0 => Ok(value),
            Ok(_) => Err(DecodeError::Malformed { message: self.message, at, why: "bytes are left over" }),
            Err(cause) => Err(DecodeError::from_bincode(self.message, at, &cause)),
        }
    }

    /// The whole body as a value that has lists of entries.
    fn read_list<T: Decode<()>>(&mut self, entries: impl Fn(&T) -> usize) -> Result<T, DecodeError> {
        let value = self.read()?;
        if entries(&value) > ENTRIES_MAX {
            return Err(DecodeError::TooLarge { message: self.message, what: "entries", limit: ENTRIES_MAX });
        }
        Ok(value)
    }

    /// A Hello after the revision of its format. The revision is read first: the rest may be written in any other way.
    fn read_hello(&mut self) -> Result<Hello, DecodeError> {
        let mut decoder = DecoderImpl::new(Cursor { rest: self.bytes }, CONFIGURATION, ());
        match u16::decode(&mut decoder) {
            Ok(format) if format != WIRE_FORMAT => Err(DecodeError::OtherFormat { theirs: format }),
            _ => self.read::<(u16, Hello)>().map(|(_, hello)| hello),
        }
    }

    fn out_of_range(&self, invalid: InvalidField) -> DecodeError {
        DecodeError::OutOfRange { message: self.message, invalid }
    }
}

/// Reads a slice and counts the bytes.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl Reader for Cursor<'_> {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> Result<(), bincode::error::DecodeError> {
        match self.rest.split_at_checked(into.len()) {
            Some((taken, rest)) => {
                into.copy_from_slice(taken);
                self.rest = rest;
                Ok(())
            }
            None => {
                Err(bincode::error::DecodeError::UnexpectedEnd { additional: into.len() - self.rest.len() })
            }
        }
    }

    #[inline]
    fn peek_read(&mut self, count: usize) -> Option<&[u8]> {
        self.rest.get(..count)
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }
}

const CONFIGURATION: Configuration<LittleEndian, Varint, Limit<MEMORY_MAX>> =
    bincode::config::standard().with_limit::<MEMORY_MAX>();

const TAG_BYTES: usize = 1;

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::time::Duration;

    use super::*;
    use crate::close;
    use crate::ids::{Fence, JobId, Nonce, ReportNo, Token};
    use crate::report::{Chunk, ChunkData, Failed, Numbered, Outcome, OutputLengths, Stream, Timing};

    fn token(job: u64) -> Token {
        Token { job: JobId(job), fence: Fence(job), nonce: Nonce(u64::MAX) }
    }

    #[test]
    fn an_unknown_tag_below_128_is_an_error_that_names_it() {
        let error = decode_order(&[0x1f, 1, 2]).unwrap_err();
        assert_eq!(error, DecodeError::UnknownTag { tag: 0x1f });
        assert_eq!(error.close(), close::UNKNOWN_MESSAGE.with_reason("0x1f"));
    }

    #[test]
    fn an_unknown_tag_from_128_on_is_skipped() {
        assert_eq!(decode_order(&[0x80, 1, 2]), Ok(None));
        assert_eq!(decode_report(&[0xff]), Ok(None));
    }

    #[test]
    fn bytes_left_over_are_an_error_that_says_where() {
        let error = decode_order(&[6, 9, 0]).unwrap_err();
        assert_eq!(
            error,
            DecodeError::Malformed { message: "Acknowledge", at: 2, why: "bytes are left over" }
        );
        assert_eq!(error.close().reason, "malformed: Acknowledge at byte 2: bytes are left over");
    }

    #[test]
    fn an_empty_frame_is_malformed() {
        assert_eq!(decode_report(&[]).unwrap_err().close().code, close::MALFORMED.code);
    }

    #[test]
    fn a_length_bomb_asks_for_no_memory() {
        let bomb = [5, 253, 255, 255, 255, 255, 255, 255, 255, 127];
        assert!(matches!(decode_order(&bomb), Err(DecodeError::TooLarge { message: "Recall", .. })));
    }

    #[test]
    fn a_list_above_the_cap_is_refused_and_packed_into_several_frames() {
        let order = Order::Recall((1..=10_000).map(token).collect());
        assert_eq!(encode_order(&order), Err(EncodeError::ListTooLong { message: "Recall" }));

        let mut frames = Vec::new();
        pack_order(&order, &mut frames).unwrap();
        let mut unpacked = Vec::new();
        for frame in &frames {
            match decode_order(frame).unwrap() {
                Some(Order::Recall(part)) => unpacked.extend(part),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((frames.len(), Order::Recall(unpacked)), (3, order));
    }

    #[test]
    fn a_numbered_list_keeps_its_numbers_when_it_is_split() {
        let failed = |job| Failed {
            token: token(job),
            outcome: Outcome::Failed,
            exit_code: Some(1),
            message: "m".repeat(4_000),
            timing: Timing { ended_ago: Duration::from_millis(5), ran: None },
            output: OutputLengths::default(),
            usage: Default::default(),
        };
        let mut frames = Vec::new();
        let report = Report::Failure(Numbered { first: ReportNo(7), list: (1..=200).map(failed).collect() });
        pack_report(&report, &mut frames).unwrap();
        assert!(frames.len() > 1 && frames.iter().all(|frame| frame.len() <= FRAME_BYTES_AIM + 16));

        let mut next = ReportNo(7);
        for frame in &frames {
            let Ok(Some(Report::Failure(part))) = decode_report(frame) else { panic!("{frame:?}") };
            assert_eq!(part.first, next);
            next = part.last().next();
        }
        assert_eq!(next, ReportNo(207));
    }

    #[test]
    fn output_is_packed_by_its_own_smaller_limit() {
        let chunk = |offset| Chunk {
            token: token(1),
            stream: Stream::Stdout,
            offset,
            data: ChunkData::Bytes(vec![b'x'; 40 << 10]),
        };
        let mut frames = Vec::new();
        pack_report(&Report::Output((0..5).map(|n| chunk(n * (40 << 10))).collect()), &mut frames).unwrap();
        assert_eq!(frames.len(), 5);
        assert!(frames.iter().all(|frame| matches!(decode_report(frame), Ok(Some(Report::Output(_))))));
    }

    #[test]
    fn an_absurd_value_is_refused_with_its_field() {
        let failure = Failed {
            token: token(1),
            outcome: Outcome::Failed,
            exit_code: Some(1_000_000),
            message: alloc::string::String::new(),
            timing: Timing::default(),
            output: OutputLengths::default(),
            usage: Default::default(),
        };
        let report = Report::Failure(Numbered { first: ReportNo(1), list: vec![failure] });
        let error = encode_report(&report).unwrap_err();
        assert!(matches!(
            error,
            EncodeError::OutOfRange { invalid: InvalidField { field: "exit_code", .. }, .. }
        ));
    }
}
