//! Splits long lists into frames. Each frame is within every limit of the decoder: entries, bytes, and
//! memory.
//!
//! Entries are encoded once, one after the other; when a frame is full, the entries so far get their tag and
//! count in front.

use alloc::vec::Vec;

use bincode::Encode;
use bincode::enc::write::Writer;

use super::{
    CONFIGURATION, ENTRIES_MAX, EncodeError, FRAME_BYTES_AIM, FRAME_BYTES_MAX, InvalidField,
    OUTPUT_BYTES_MAX, check,
};
use crate::WIRE_FORMAT;
use crate::container::ContainerOptions;
use crate::ids::{ReportNo, Revision, Token};
use crate::order::{Assignment, Definition, Order, OutputMark, Reconciled};
use crate::report::{
    Chunk, Failed, Foreign, Inventory, Numbered, Phase, Released, Report, Started, Succeeded, UsageSample,
};
use crate::secret::AttemptSecrets;

/// Appends this order to `frames`: one frame, or as many as its list needs.
///
/// # Errors
/// If one entry does not even fit alone; `frames` is then as before.
pub fn pack_order(order: &Order, frames: &mut Vec<Vec<u8>>) -> Result<(), EncodeError> {
    Packer::new(order.tag(), order.name(), frames).attempt(|packer| match order {
        Order::Welcome(it) => packer.single(it),
        Order::Definitions(list) => packer.list(list),
        Order::Enqueue(list) => packer.list(list),
        Order::Reconciled(it) => packer.reconciled(it),
        Order::Cancel(it) => packer.single(it),
        Order::Recall(list) => packer.list(list),
        Order::Acknowledge(it) => packer.single(it),
        Order::Pulse(it) => packer.single(it),
        Order::Configure(it) => packer.single(it),
        Order::OutputAcknowledge(list) => packer.list(list),
        Order::Refused(it) => packer.single(it),
        Order::GoAway(it) => packer.single(it),
        Order::ExtendedDefinitions(list) => packer.list(&extended(list)),
    })
}

/// Appends this report to `frames`: one frame, or as many as its list needs.
///
/// # Errors
/// If one entry does not even fit alone; `frames` is then as before.
pub fn pack_report(report: &Report, frames: &mut Vec<Vec<u8>>) -> Result<(), EncodeError> {
    Packer::new(report.tag(), report.name(), frames).attempt(|packer| match report {
        Report::Hello(it) => packer.single(&(WIRE_FORMAT, it)),
        Report::Running(it) => packer.numbered(it),
        Report::Success(it) => packer.numbered(it),
        Report::Failure(it) => packer.numbered(it),
        Report::Inventory(it) => packer.inventory(it),
        Report::Released(it) => packer.numbered(it),
        Report::Heartbeat(it) => packer.single(it),
        Report::Output(list) => packer.list(list),
        Report::Progress(list) | Report::Status(list) => packer.list(list),
        Report::Condition(it) => packer.single(it),
        Report::Wanted(list) => packer.list(list),
        Report::Starting(it) => packer.numbered(it),
        Report::Foreign(list) => packer.list(list),
        Report::Usage(list) => packer.list(list),
    })
}

pub(super) fn one_order(order: &Order) -> Result<Vec<u8>, EncodeError> {
    let mut frames = Vec::with_capacity(1);
    pack_order(order, &mut frames)?;
    only(frames, order.name())
}

pub(super) fn one_report(report: &Report) -> Result<Vec<u8>, EncodeError> {
    let mut frames = Vec::with_capacity(1);
    pack_report(report, &mut frames)?;
    only(frames, report.name())
}

fn only(mut frames: Vec<Vec<u8>>, message: &'static str) -> Result<Vec<u8>, EncodeError> {
    match frames.pop() {
        Some(frame) if frames.is_empty() => Ok(frame),
        _ => Err(EncodeError::ListTooLong { message }),
    }
}

/// A message that is being split into frames.
struct Packer<'a> {
    tag: u8,
    message: &'static str,
    frames: &'a mut Vec<Vec<u8>>,
}

impl<'a> Packer<'a> {
    fn new(tag: u8, message: &'static str, frames: &'a mut Vec<Vec<u8>>) -> Self {
        Self { tag, message, frames }
    }

    /// All of it, or nothing.
    fn attempt(mut self, pack: impl FnOnce(&mut Self) -> Result<(), EncodeError>) -> Result<(), EncodeError> {
        let before = self.frames.len();
        let packed = pack(&mut self);
        if packed.is_err() {
            self.frames.truncate(before);
        }
        packed
    }

    fn single<T: Encode>(&mut self, body: &T) -> Result<(), EncodeError> {
        let mut frame = Sink::with_capacity(SINGLE_BYTES_GUESS);
        frame.bytes.push(self.tag);
        frame.put(body).map_err(|full| self.too_large(0, full))?;
        self.frames.push(frame.bytes);
        Ok(())
    }

    fn numbered<T: Entry>(&mut self, numbered: &Numbered<T>) -> Result<(), EncodeError> {
        self.entries(Some(numbered.first), &numbered.list)
    }

    fn list<T: Entry>(&mut self, list: &[T]) -> Result<(), EncodeError> {
        self.entries(None, list)
    }

    /// `first` is the number of the first entry, for lists that are numbered.
    fn entries<T: Entry>(&mut self, first: Option<ReportNo>, list: &[T]) -> Result<(), EncodeError> {
        let guess = list.len().min(ENTRIES_MAX) * ENTRY_BYTES_GUESS;
        let mut sink = Sink::with_capacity(guess.min(FRAME_BYTES_AIM));
        let mut begin = 0;
        let mut output = 0;
        for (index, entry) in list.iter().enumerate() {
            entry.check().map_err(|invalid| EncodeError::OutOfRange {
                message: self.message,
                element: index,
                invalid,
            })?;
            let before = sink.bytes.len();
            sink.limit = before + ENTRY_BYTES_MAX;
            sink.put(entry).map_err(|full| self.too_large(index, full))?;
            output += entry.output_bytes();
            let full = index - begin == ENTRIES_MAX
                || sink.bytes.len() > FRAME_BYTES_AIM
                || output > OUTPUT_BYTES_MAX;
            if full && index > begin {
                self.frame(first, begin, index - begin, &sink.bytes[..before]);
                sink.bytes.drain(..before);
                begin = index;
                output = entry.output_bytes();
            }
        }
        self.frame(first, begin, list.len() - begin, &sink.bytes);
        Ok(())
    }

    /// A frame with `count` entries from `begin` on, which are already bytes.
    fn frame(&mut self, first: Option<ReportNo>, begin: usize, count: usize, entries: &[u8]) {
        let mut frame = Sink::with_capacity(HEAD_BYTES_MAX + entries.len());
        frame.bytes.push(self.tag);
        let head = first.map_or(Ok(()), |first| frame.put(&ReportNo(first.0.saturating_add(begin as u64))));
        let count = frame.put(&(count as u64));
        debug_assert!(head.is_ok() && count.is_ok(), "a head of two numbers always fits");
        frame.bytes.extend_from_slice(entries);
        self.frames.push(frame.bytes);
    }

    fn reconciled(&mut self, whole: &Reconciled) -> Result<(), EncodeError> {
        let parts = parts(whole.attempts.len());
        for part in 0..parts {
            self.single(&(piece(&whole.attempts, 0, part), whole.last && part + 1 == parts))?;
        }
        Ok(())
    }

    /// Every part repeats the runtimes, so that each can be understood alone.
    fn inventory(&mut self, whole: &Inventory) -> Result<(), EncodeError> {
        let parts = parts(whole.attempts.len() + whole.foreign.len());
        for part in 0..parts {
            let attempts = piece(&whole.attempts, 0, part);
            let foreign = piece(&whole.foreign, whole.attempts.len(), part);
            self.single(&(&whole.runtimes, attempts, foreign, whole.last && part + 1 == parts))?;
        }
        Ok(())
    }

    fn too_large(&self, element: usize, _: Full) -> EncodeError {
        EncodeError::ElementTooLarge { message: self.message, element }
    }
}

/// Number of frames for this number of short entries; at least one, because an empty list is sent, too.
fn parts(entries: usize) -> usize {
    entries.div_ceil(ENTRIES_MAX).max(1)
}

/// Entries of a list in the `part`-th frame if `before` entries of other lists come before it.
fn piece<T>(list: &[T], before: usize, part: usize) -> &[T] {
    let bound = |part: usize| (part * ENTRIES_MAX).saturating_sub(before).min(list.len());
    &list[bound(part)..bound(part + 1)]
}

/// An entry of a list.
trait Entry: Encode {
    /// A decoder would accept it, as far as only the sender can correct it.
    fn check(&self) -> Result<(), InvalidField> {
        Ok(())
    }

    /// Bytes of output in it.
    fn output_bytes(&self) -> usize {
        0
    }
}

impl Entry for Assignment {
    fn check(&self) -> Result<(), InvalidField> {
        if let Some(AttemptSecrets::Given(values)) = &self.secrets {
            check::secrets_fit(values)?;
        }
        self.overrides.as_ref().map_or(Ok(()), check::overrides_fit)
    }
}

impl Entry for Definition {
    fn check(&self) -> Result<(), InvalidField> {
        check::container_fits(&self.container)
    }
}

/// A definition, and the options that its own body does not have.
type ExtendedDefinition<'d> = (&'d Definition, &'d ContainerOptions);

fn extended(list: &[Definition]) -> Vec<ExtendedDefinition<'_>> {
    list.iter().map(|definition| (definition, &definition.container.options.0)).collect()
}

impl Entry for ExtendedDefinition<'_> {
    fn check(&self) -> Result<(), InvalidField> {
        self.0.check()
    }
}

impl Entry for Chunk {
    fn check(&self) -> Result<(), InvalidField> {
        check::chunk(self)
    }

    fn output_bytes(&self) -> usize {
        self.data.bytes_len()
    }
}

impl Entry for Succeeded {
    fn check(&self) -> Result<(), InvalidField> {
        check::succeeded(self)
    }
}

impl Entry for Failed {
    fn check(&self) -> Result<(), InvalidField> {
        check::failed(self)
    }
}

impl Entry for UsageSample {
    fn check(&self) -> Result<(), InvalidField> {
        check::sample(self)
    }
}

impl Entry for Started {}
impl Entry for OutputMark {}
impl Entry for Token {}
impl Entry for Revision {}
impl Entry for Foreign {}
impl Entry for (Token, Phase) {}
impl Entry for Released {}

/// Takes bytes up to a limit.
struct Sink {
    bytes: Vec<u8>,
    limit: usize,
}

/// A [`Sink`] is at its limit: the only way in which writing into memory can fail.
struct Full;

impl Sink {
    fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), limit: FRAME_BYTES_MAX }
    }

    fn put<T: Encode>(&mut self, value: &T) -> Result<(), Full> {
        bincode::encode_into_writer(value, self, CONFIGURATION).map_err(|_| Full)
    }
}

impl Writer for &mut Sink {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        if self.bytes.len() + bytes.len() > self.limit {
            return Err(bincode::error::EncodeError::UnexpectedEnd);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// The tag, the number of the first entry and the count of entries, at their longest.
const HEAD_BYTES_MAX: usize = 1 + 9 + 3;

const ENTRY_BYTES_MAX: usize = FRAME_BYTES_MAX - HEAD_BYTES_MAX;

/// Usual size of an entry; only the first allocation depends on it.
const ENTRY_BYTES_GUESS: usize = 48;

/// Usual size of a message without a list.
const SINGLE_BYTES_GUESS: usize = 64;
