//! `docs/protocol.md` against the code: every message and close code has its place there, and its transcript is made of golden frames.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use longshore_protocol::close;

use crate::{golden, samples};

#[test]
fn every_message_and_close_code_is_specified() {
    let page = page();
    let orders = samples::orders()
        .into_iter()
        .map(|it| format!("### Order {}: {}\n", it.message.tag(), it.message.name()));
    let reports = samples::reports()
        .into_iter()
        .map(|it| format!("### Report {}: {}\n", it.message.tag(), it.message.name()));
    let codes = close::ALL.iter().map(|it| format!("| {} | `{}` |", it.code, it.name));
    let missing: Vec<_> = orders.chain(reports).chain(codes).filter(|it| !page.contains(it)).collect();
    assert!(missing.is_empty(), "docs/protocol.md lacks {missing:#?}");
}

#[test]
fn the_transcript_is_made_of_golden_frames() {
    let golden: BTreeMap<String, String> =
        golden::texts().into_iter().map(|text| (first_line(&text).to_owned(), text)).collect();
    let page = page();
    let mut pieces = page.split(FENCE);
    let mut renewed = pieces.next().unwrap().to_owned();
    for piece in pieces {
        let (_, after) = piece.split_once("```\n").unwrap();
        let text =
            golden.get(first_line(piece)).unwrap_or_else(|| panic!("no golden frame: {}", first_line(piece)));
        renewed += &format!("{FENCE}{text}```\n{after}");
    }
    if std::env::var_os("LONGSHORE_BLESS").is_some() {
        fs::write(path(), &renewed).unwrap();
    }
    let shown = |name: &String| renewed.matches(&format!("{FENCE}{name}\n")).count();
    let not_once: Vec<_> = golden.keys().filter(|name| shown(name) != 1).collect();
    assert!(not_once.is_empty(), "the transcript has each message once, but not {not_once:#?}");
    assert!(self::page() == renewed, "the transcript is stale; `cargo xtask bless` renews it");
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn page() -> String {
    fs::read_to_string(path()).unwrap()
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol.md")
}

const FENCE: &str = "```hex\n";
