//! Every limit of the wire with its reason. `docs/protocol.md` lists those that a peer can meet.

use core::ops::RangeInclusive;
use core::time::Duration;

/// Tags from here on may be skipped by a peer that does not know them.
pub const SKIPPABLE_FROM: u8 = 128;

/// The largest WebSocket message that either side accepts, in bytes. One entry must fit, and the largest is an attempt with 512 KiB
/// of environment, arguments and input; above that a message would only delay the heartbeats behind it.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Packing begins a new frame at this size, in bytes. A quarter of the limit costs no throughput and keeps what a peer must hold in
/// memory for one frame below [`MEMORY_MAX`] whatever the entries are.
pub const FRAME_BYTES_AIM: usize = 256 << 10;

/// How much memory one frame may ask a decoder for, in bytes as bincode counts them: four times the largest frame, since decoded
/// values are wider than their varints. Without a limit ten bytes could ask for all of the machine's memory.
pub const MEMORY_MAX: usize = 4 << 20;

/// How many entries the lists of one frame may have together. The widest entry is a definition of about 500 bytes in memory, so
/// that a full list stays below [`MEMORY_MAX`].
pub const ENTRIES_MAX: usize = 4_096;

/// How many bytes of output one Output frame may carry: small enough that heartbeats never wait for long behind it.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// How much output a session may have sent without an OutputAcknowledge, as the weights of its chunks. The server holds as much for
/// each session while its disk is slow, and not more.
pub const OUTPUT_WINDOW: usize = 256 << 10;

/// Weight of a chunk beside its bytes: about its memory on either side, however short it is.
pub const CHUNK_WEIGHT: usize = 64;

/// How long anything on the wire may take: ten years. A longer time is a broken clock, and sums of them would overflow.
pub const DURATION_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

/// Valid exit codes: a byte, read with or without sign. A worker sends 255 for any other number that a
/// runtime reports.
pub const EXIT_CODES: RangeInclusive<i32> = -128..=255;

/// How many slots, or places in a backlog, one worker may have: ten times what any machine has been seen to run.
pub const SLOTS_MAX: u32 = 10_000;

/// How many labels a worker may have: they are compared with what each waiting definition requires.
pub const LABELS_MAX: usize = 64;

/// The largest offset into an output, in bytes: what a JSON number carries exactly.
pub const OFFSET_MAX: u64 = 1 << 53;

/// How much environment, arguments and input of one job have together, in bytes: 256 KiB of input and as much for the others,
/// and half of a frame.
pub const OVERRIDES_BYTES_MAX: usize = 512 << 10;

/// The largest value of a secret in bytes: a chain of certificates with its key, and what the worker looks for in the output.
pub const SECRET_BYTES_MAX: usize = 64 << 10;

/// How much the secrets of one attempt have together, in bytes: with the largest overrides they still fit into a frame.
pub const SECRETS_BYTES_MAX: usize = 256 << 10;

/// How many entries a list inside of an entry may have (environment, arguments, volumes): empty ones cost a byte on the wire and 48
/// in memory.
pub const INNER_ENTRIES_MAX: usize = 4_096;

/// The largest result of a job in bytes: what `/longshore/result.json` may hold.
pub const RESULT_BYTES_MAX: usize = 64 << 10;

/// Length at which a text for people is cut, in bytes: a screen full.
pub const TEXT_BYTES_MAX: usize = 4_096;

/// Jobs, fences and report numbers are stored as SQL's 64-bit integers.
pub(super) const NUMBER_MAX: u64 = i64::MAX as u64;

/// More than a hundred heartbeats a second would be a flood, not a sign of life.
pub(super) const HEARTBEAT_MIN: Duration = Duration::from_millis(10);

/// A worker's name fits into a DNS label.
pub(super) const NAME_BYTES_MAX: usize = 63;

/// Labels, versions, engine ids and addresses: one DNS name.
pub(super) const PLAIN_BYTES_MAX: usize = 253;

/// How much of a bad text an error shows, so that what is wrong with it still fits into a close reason.
pub(super) const SHOWN_BYTES_MAX: usize = 32;

pub(super) const ELLIPSIS: char = '…';
