//! `tests/golden/*.hex`: a commented frame per message. Any change of a byte fails here; `cargo xtask bless` rewrites them, the
//! reviewer reads the difference, and after the first release there must be none.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use longshore_protocol::wire;

use crate::frames;
use crate::samples::{self, Sample, Tagged};

#[test]
fn every_order_has_its_golden_bytes() {
    for sample in samples::orders() {
        let frame = wire::encode_order(&sample.message).unwrap();
        agrees("order", &sample, &frame);
        assert_eq!(wire::decode_order(&frame), Ok(Some(sample.message)));
    }
}

#[test]
fn every_report_has_its_golden_bytes() {
    for sample in samples::reports() {
        let frame = wire::encode_report(&sample.message).unwrap();
        agrees("report", &sample, &frame);
        assert_eq!(wire::decode_report(&frame), Ok(Some(sample.message)));
    }
}

#[test]
fn every_tag_has_one_sample_and_no_tag_lacks_one() {
    let tags = |known: &dyn Fn(u8) -> bool| (0..=255).filter(|tag| known(*tag)).collect::<Vec<_>>();
    let orders = tags(&|tag| {
        !matches!(wire::decode_order(&[tag]), Ok(None) | Err(wire::DecodeError::UnknownTag { .. }))
    });
    let reports = tags(&|tag| {
        !matches!(wire::decode_report(&[tag]), Ok(None) | Err(wire::DecodeError::UnknownTag { .. }))
    });
    assert_eq!(orders, samples::orders().iter().map(|it| it.message.tag()).collect::<Vec<_>>());
    assert_eq!(reports, samples::reports().iter().map(|it| it.message.tag()).collect::<Vec<_>>());
}

#[test]
fn no_golden_file_is_left_over() {
    let expected: BTreeSet<_> = samples::orders()
        .iter()
        .map(|it| file("order", &it.message))
        .chain(samples::reports().iter().map(|it| file("report", &it.message)))
        .chain([frames::path()])
        .collect();
    let found: BTreeSet<_> = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(found.is_subset(&expected), "no message has these: {:?}", found.difference(&expected));
}

/// The frames of all golden files.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let orders = samples::orders().into_iter().map(|it| wire::encode_order(&it.message).unwrap());
    let reports = samples::reports().into_iter().map(|it| wire::encode_report(&it.message).unwrap());
    orders.chain(reports).collect()
}

/// Contents of the golden files.
pub(crate) fn texts() -> Vec<String> {
    let orders = samples::orders().into_iter().map(|it| render("order", &it));
    orders.chain(samples::reports().into_iter().map(|it| render("report", &it))).collect()
}

fn agrees<M: Tagged>(kind: &str, sample: &Sample<M>, frame: &[u8]) {
    let told: Vec<u8> = sample.notes.0.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    assert_eq!(told, frame, "the notes of {} do not tell its bytes", sample.message.name());

    let path = file(kind, &sample.message);
    let text = render(kind, sample);
    if std::env::var_os("LONGSHORE_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
        fs::write(seed(kind, &sample.message), frame).unwrap();
    }
    let golden = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask bless` writes it", path.display()));
    assert_eq!(parse(&golden), frame, "{} differs from what is encoded now", path.display());
    assert_eq!(golden, text, "the comments of {} are stale", path.display());
    let seed = seed(kind, &sample.message);
    let is_current = fs::read(&seed).is_ok_and(|seed| seed == frame);
    assert!(is_current, "{}, where fuzzing begins, is stale; `cargo xtask bless` writes it", seed.display());
}

fn file<M: Tagged>(kind: &str, message: &M) -> PathBuf {
    directory().join(name(kind, message) + ".hex")
}

/// The frame as it is, from which fuzzing goes on.
fn seed<M: Tagged>(kind: &str, message: &M) -> PathBuf {
    let seeds = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    seeds.join(format!("wire_{kind}s")).join(name(kind, message))
}

fn name<M: Tagged>(kind: &str, message: &M) -> String {
    format!("{kind}-{:02}-{}", message.tag(), message.name().to_lowercase())
}

pub(crate) fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// A line per field: its bytes in hex, then `#` and what they mean. Long fields go on on lines without a comment.
fn render<M: Tagged>(kind: &str, sample: &Sample<M>) -> String {
    let name = sample.message.name();
    let version = if name == "ExtendedDefinitions" { 2 } else { 1 };
    let mut text = format!("# {kind} {name}, protocol version {version}\n");
    for (bytes, meaning) in &sample.notes.0 {
        let mut lines = bytes
            .chunks(BYTES_PER_LINE)
            .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "));
        writeln!(text, "{:<50}  # {meaning}", lines.next().unwrap_or_default()).unwrap();
        for line in lines {
            writeln!(text, "{line}").unwrap();
        }
    }
    text
}

fn parse(golden: &str) -> Vec<u8> {
    let words = golden.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace());
    words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect()
}

/// The longest number, a revision, takes this many.
const BYTES_PER_LINE: usize = 17;
