//! Bytes that nobody meant: flipped, cut, doubled and invented ones, and lengths that promise the world. A decoder answers each with
//! a message or an error, never with a panic, and asks for no more memory than its limit.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use longshore_protocol::close::REASON_BYTES_MAX;
use longshore_protocol::wire;
use proptest::prelude::*;

use crate::golden;

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn random_bytes_are_answered(frame in proptest::collection::vec(any::<u8>(), 0..300)) {
        answered(&frame);
    }

    #[test]
    fn random_bodies_of_known_tags_are_answered(
        tag in prop::sample::select(tags()),
        body in proptest::collection::vec(prop_oneof![0..4_u8, 248..=255_u8, any::<u8>()], 0..300),
    ) {
        answered(&[&[tag], &body[..]].concat());
    }

    #[test]
    fn mutated_golden_frames_are_answered(
        which in any::<prop::sample::Index>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        doubled in any::<bool>(),
    ) {
        let mut frame = which.get(&FRAMES).clone();
        for (at, byte) in flips {
            *at.get_mut(&mut frame) = byte;
        }
        if let Some(cut) = cut {
            frame.truncate(cut.index(frame.len()));
        }
        if doubled {
            frame.extend_from_within(..);
        }
        answered(&frame);
    }
}

/// Every golden frame, with every byte replaced by the beginning of the largest numbers of each width.
#[test]
fn oversized_length_prefixes_are_rejected() {
    let bombs: [&[u8]; 5] = [
        &[251, 255, 255],
        &[252, 255, 255, 255, 255],
        &[253, 255, 255, 255, 255, 255, 255, 255, 255],
        &[253, 255, 255, 255, 255, 255, 255, 255, 127],
        &[254, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255],
    ];
    for frame in FRAMES.iter() {
        for at in 1..frame.len() {
            for bomb in bombs {
                let mut bombed = frame[..at].to_vec();
                bombed.extend_from_slice(bomb);
                answered(&bombed);
                bombed.extend_from_slice(&frame[at + 1..]);
                answered(&bombed);
            }
        }
    }
}

/// The cheapest frames on the wire that cost the most memory: full lists of empty entries, up to the largest frame.
#[test]
fn full_frames_of_empty_things_are_answered() {
    for tag in tags() {
        for filler in [0, 1, 250] {
            for count in [1_000_u32, 4_096, 4_097, 80_000, 1_000_000] {
                let mut frame = vec![tag, 252];
                frame.extend_from_slice(&count.to_le_bytes());
                frame.resize(wire::FRAME_BYTES_MAX, filler);
                answered(&frame);
            }
        }
    }
    answered(&vec![0; wire::FRAME_BYTES_MAX + 1]);
}

#[test]
#[cfg(target_os = "linux")]
fn no_frame_makes_a_decoder_ask_for_much_more_memory_than_its_limit() {
    let before = peak_kibibytes();
    oversized_length_prefixes_are_rejected();
    full_frames_of_empty_things_are_answered();
    // Other tests run beside this one, and a new thread's arena reserves 64 MiB of addresses; a length that were believed would
    // ask for gigabytes.
    let grown = peak_kibibytes() - before;
    assert!(grown < 1 << 20, "the peak grew by {grown} KiB");
}

/// The most address space that this process ever had.
#[cfg(target_os = "linux")]
fn peak_kibibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Both decoders answer; an error can be told to the peer in a close frame.
fn answered(frame: &[u8]) {
    let errors = [wire::decode_order(frame).err(), wire::decode_report(frame).err()];
    for error in errors.into_iter().flatten() {
        let close = error.close();
        assert!(
            close.reason.len() <= REASON_BYTES_MAX && !close.reason.contains(char::is_control),
            "{close}"
        );
    }
}

/// Every tag that a message has, on either side.
fn tags() -> Vec<u8> {
    let tags: BTreeSet<u8> = FRAMES.iter().map(|frame| frame[0]).collect();
    tags.into_iter().collect()
}

/// This many cases, or as many as `PROPTEST_CASES` says.
fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usual),
    }
}

static FRAMES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(golden::frames);
