//! Frames that no receiver may believe, one for each rule of the wire, with the close code and the words that name the rule.

use longshore_protocol::close;
use longshore_protocol::report::{Availability, Hello};
use longshore_protocol::version::VersionRange;
use longshore_protocol::wire::{self, FRAME_BYTES_MAX, OUTPUT_BYTES_MAX, RESULT_BYTES_MAX};
use longshore_protocol::{Report, RuntimeKind, WIRE_FORMAT};

use crate::samples;

/// The side that receives a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToWorker,
}

impl Direction {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ToServer => "to_server",
            Self::ToWorker => "to_worker",
        }
    }
}

/// A frame that is refused.
#[derive(Debug)]
pub(crate) struct Invalid {
    pub(crate) why: &'static str,
    pub(crate) direction: Direction,
    pub(crate) bytes: Vec<u8>,
    /// How many zeros follow.
    pub(crate) zeros: usize,
    pub(crate) close: u16,
    /// Words of the close reason.
    pub(crate) reason: &'static str,
}

#[test]
fn every_invalid_frame_is_refused_by_its_rule() {
    for invalid in frames() {
        let mut frame = invalid.bytes.clone();
        frame.resize(frame.len() + invalid.zeros, 0);
        let error = match invalid.direction {
            Direction::ToServer => wire::decode_report(&frame).err(),
            Direction::ToWorker => wire::decode_order(&frame).err(),
        };
        let close = error.unwrap_or_else(|| panic!("{}: it is believed", invalid.why)).close();
        assert_eq!(close.code, invalid.close, "{}: {close}", invalid.why);
        assert!(close.reason.contains(invalid.reason), "{}: {close}", invalid.why);
    }
}

pub(crate) fn frames() -> Vec<Invalid> {
    let mut all = to_server();
    all.extend(hellos());
    all.extend(to_worker());
    all
}

/// The attempt 1#1 with the nonce 1.
const TOKEN: [u8; 3] = [1, 1, 1];
/// Number 1, one entry.
const FIRST: [u8; 2] = [1, 1];
/// Six absent figures.
const UNKNOWN_USAGE: [u8; 6] = [0; 6];
/// 2^63, 2^53 + 1, 10,001 and 1,000,000,000 as they are written.
const TWO_TO_63: [u8; 9] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0x80];
const BEYOND_OFFSETS: [u8; 9] = [0xfd, 1, 0, 0, 0, 0, 0, 0x20, 0];
const BEYOND_SLOTS: [u8; 3] = [0xfb, 0x11, 0x27];
const BILLION: [u8; 5] = [0xfc, 0x00, 0xca, 0x9a, 0x3b];
const U64_MAX: [u8; 9] = [0xfd, 255, 255, 255, 255, 255, 255, 255, 255];

fn to_server() -> Vec<Invalid> {
    let frame = |why, parts: &[&[u8]], reason| invalid(why, Direction::ToServer, parts, 4003, reason);
    let failure = |outcome: u8, exit_code: &[u8]| {
        [&[3][..], &FIRST, &TOKEN, &[outcome], exit_code, &[0, 0, 0, 0, 0, 0], &UNKNOWN_USAGE].concat()
    };
    let large = |why, bytes: &[u8], zeros, close, reason| Invalid {
        zeros,
        ..invalid(why, Direction::ToServer, &[bytes], close, reason)
    };
    let length = |bytes: usize| [&[0xfc][..], &u32::try_from(bytes).unwrap().to_le_bytes()].concat();
    vec![
        frame("nothing in a frame", &[], "it is empty"),
        invalid("a tag below 128 that is not known", Direction::ToServer, &[&[0x4d]], 4002, "0x4d"),
        frame("bytes left over", &[&[6, 1, 0, 0, 0, 0, 0]], "bytes are left over"),
        frame("bytes missing", &[&[6, 1, 0]], "it ends too early"),
        frame("a flag that is 2", &[&[4, 0, 0, 0, 2]], "a flag is neither 0 nor 1"),
        frame("a variant that does not exist", &[&[8, 1], &TOKEN, &[7]], "no such variant"),
        frame("a u32 in 8 bytes", &[&[6, 1], &U64_MAX, &[0, 0, 0]], "a number is wider than its field"),
        frame("a text that is not UTF-8", &[&[1], &FIRST, &TOKEN, &[1, 0xff, 0, 0]], "a text is not UTF-8"),
        frame(
            "a duration that overflows",
            &[&[1], &FIRST, &TOKEN, &[0], &U64_MAX, &BILLION],
            "a duration overflows",
        ),
        frame(
            "a duration above ten years",
            &[&[1], &FIRST, &TOKEN, &[0], &BILLION, &[0]],
            "ago: 1000000000 s is more than ten years",
        ),
        frame("report number 0", &[&[12, 0, 1], &TOKEN], "first: 0 is not between 1 and"),
        frame("report number 2^63", &[&[12], &TWO_TO_63, &[1], &TOKEN], "first"),
        frame("job 2^63", &[&[12], &FIRST, &TWO_TO_63, &[1, 1]], "token: a job or a fence is above"),
        frame("fence 2^63", &[&[12], &FIRST, &[1], &TWO_TO_63, &[1]], "token: a job or a fence is above"),
        frame("a failure that succeeded", &[&failure(0, &[0])], "outcome: succeeded is no failure"),
        frame("a failure that was released", &[&failure(11, &[0])], "outcome: released is no failure"),
        frame(
            "exit code 256",
            &[&failure(1, &[1, 0xfb, 0, 2])],
            "exit_code: 256 is not between -128 and 255",
        ),
        frame("exit code -129", &[&failure(1, &[1, 0xfb, 1, 1])], "exit_code: -129 is not between"),
        frame("an offset above 2^53", &[&[7, 1], &TOKEN, &[0], &BEYOND_OFFSETS, &[0, 0]], "offset"),
        frame("a gap that ends above 2^53", &[&[7, 1], &TOKEN, &[0, 1, 2], &BEYOND_OFFSETS], "offset"),
        frame(
            "a length above 2^53",
            &[&[2], &FIRST, &TOKEN, &[0, 0, 0], &BEYOND_OFFSETS, &[0, 0, 0], &UNKNOWN_USAGE],
            "output.stdout",
        ),
        frame(
            "CPU time above 2^53",
            &[&[2], &FIRST, &TOKEN, &[0, 0, 0, 0, 0, 0, 0, 1], &BEYOND_OFFSETS, &[0, 0, 0, 0, 0]],
            "cpu_ms",
        ),
        frame(
            "memory above 2^53 in a sample",
            &[&[129, 1], &TOKEN, &UNKNOWN_USAGE, &[1], &BEYOND_OFFSETS],
            "memory_bytes",
        ),
        frame("101 percent", &[&[8, 1], &TOKEN, &[1, 1, 101, 0]], "percent: 101 is above 100"),
        frame(
            "a runtime twice in an Inventory",
            &[&[4, 2, 1, 0, 1, 0, 0, 0, 1]],
            "runtimes: process is given twice",
        ),
        frame(
            "a runtime twice in a Condition",
            &[&[10, 2, 1, 0, 1, 0, 1, 0]],
            "runtimes: process is given twice",
        ),
        frame(
            "10,001 slots in a Condition",
            &[&[10, 0], &BEYOND_SLOTS, &[0]],
            "slots: 10001 is not between 0 and",
        ),
        large(
            "a result of 64 KiB and a byte",
            &[&[2][..], &FIRST, &TOKEN, &[0, 0, 0, 0, 0, 1], &length(RESULT_BYTES_MAX + 1)].concat(),
            RESULT_BYTES_MAX + 2 + UNKNOWN_USAGE.len(),
            4003,
            "result: it has 65537 bytes",
        ),
        large(
            "64 KiB and a byte of output in a frame",
            &[&[7, 1][..], &TOKEN, &[0, 0, 0], &length(OUTPUT_BYTES_MAX + 1)].concat(),
            OUTPUT_BYTES_MAX + 1,
            4003,
            "data: there are 65537 bytes",
        ),
        large("a frame of 1 MiB and a byte", &[6], FRAME_BYTES_MAX, 1009, "too_large"),
        large("4,097 entries", &[11, 0xfb, 1, 0x10], 4_097, 1009, "more than 4096 entries"),
        large(
            "a list that is longer than memory",
            &[&[11][..], &U64_MAX].concat(),
            0,
            1009,
            "bytes of memory",
        ),
    ]
}

/// Hellos that are well-formed, with a value out of its range.
fn hellos() -> Vec<Invalid> {
    let frame = |why, reason, spoil: &dyn Fn(&mut Hello)| {
        let hello = samples::reports().into_iter().find_map(|it| match it.message {
            Report::Hello(hello) => Some(hello),
            _ => None,
        });
        let mut hello = hello.unwrap();
        spoil(&mut hello);
        let bytes = wire::encode_report(&Report::Hello(hello)).unwrap();
        invalid(why, Direction::ToServer, &[&bytes], close::INVALID_HELLO.code, reason)
    };
    let plain = |text: &str| text.to_owned();
    vec![
        other_format(),
        frame("versions from 0", "versions", &|it| it.versions = VersionRange { lowest: 0, highest: 1 }),
        frame("versions that go down", "versions", &|it| {
            it.versions = VersionRange { lowest: 2, highest: 1 }
        }),
        frame("no name", "name", &|it| it.name = String::new()),
        frame("a name with a slash", "name", &|it| it.name = plain("../dock")),
        frame("a name of 64 bytes", "name", &|it| it.name = "n".repeat(64)),
        frame("an empty engine id", "engine", &|it| it.engine = Some(String::new())),
        frame("a version with a line break", "version", &|it| it.version = plain("1\n2")),
        frame("10,001 slots", "slots", &|it| it.slots = 10_001),
        frame("a backlog of 10,001", "backlog", &|it| it.backlog = 10_001),
        frame("65 labels", "labels: there are 65", &|it| {
            it.labels = (0..65).map(|number| (format!("l{number}"), String::new())).collect();
        }),
        frame("a label twice", "labels", &|it| it.labels = vec![(plain("a"), plain("b")); 2]),
        frame("a label without a name", "labels", &|it| it.labels = vec![(String::new(), plain("b"))]),
        frame("a label with an escape", "labels", &|it| it.labels = vec![(plain("a"), plain("\u{1b}[1m"))]),
        frame("a runtime twice in a Hello", "runtimes: docker is given twice", &|it| {
            it.runtimes = vec![(RuntimeKind::Docker, Availability::Available); 2];
        }),
    ]
}

/// A Hello of a later revision: of the rest nothing is known.
fn other_format() -> Invalid {
    let theirs = [u8::try_from(WIRE_FORMAT).unwrap() + 1];
    let why = "a Hello in another wire format";
    let words = "the worker speaks wire format 6, this server wire format 5";
    let parts: [&[u8]; 3] = [&[0], &theirs, &[0xff, 0xff]];
    invalid(why, Direction::ToServer, &parts, close::UNSUPPORTED_VERSION.code, words)
}

fn to_worker() -> Vec<Invalid> {
    let frame = |why, parts: &[&[u8]], close, reason| invalid(why, Direction::ToWorker, parts, close, reason);
    // Version, session, epoch, cluster and worker of a Welcome.
    let welcome = [0, 1, 1, 1, 1, 1];
    vec![
        frame("an order with tag 13", &[&[13]], 4002, "0x0d"),
        frame("an Acknowledge with a byte left over", &[&[6, 9, 0]], 4003, "bytes are left over"),
        frame(
            "a heartbeat every nanosecond",
            &[&welcome, &[0, 1, 30, 0, 3, 0, 0]],
            4003,
            "intervals.heartbeat",
        ),
        frame(
            "a lease shorter than a heartbeat",
            &[&welcome, &[5, 0, 4, 0, 3, 0, 0]],
            4003,
            "intervals.lease",
        ),
        frame(
            "a lease as short as its start gate",
            &[&welcome, &[5, 0, 9, 0, 9, 0, 0]],
            4003,
            "intervals.lease",
        ),
        frame("10,001 slots in a Configure", &[&[8, 1], &BEYOND_SLOTS, &[0, 0]], 4003, "slots"),
        frame(
            "a Cancel with a grace above ten years",
            &[&[4], &TOKEN, &[1], &BILLION, &[0, 0]],
            4003,
            "grace",
        ),
        frame("a Recall of job 2^63", &[&[5, 1], &TWO_TO_63, &[1, 1]], 4003, "token"),
        frame("an OutputAcknowledge above 2^53", &[&[9, 1], &TOKEN, &[0], &BEYOND_OFFSETS], 4003, "offset"),
        frame("a Recall that is longer than memory", &[&[5], &U64_MAX], 1009, "bytes of memory"),
    ]
}

fn invalid(
    why: &'static str,
    direction: Direction,
    parts: &[&[u8]],
    close: u16,
    reason: &'static str,
) -> Invalid {
    Invalid { why, direction, bytes: parts.concat(), zeros: 0, close, reason }
}
