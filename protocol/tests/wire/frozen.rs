//! Frames of earlier versions, as `cargo xtask freeze` has kept them: this version reads them, and writes the same bytes.
//!
//! The format of a release never changes. A version with a dash, such as `0.1.0-rc.1`, is a draft: its frames count for as long as the
//! format is the same.

use std::path::PathBuf;

use longshore_protocol::{WIRE_FORMAT, wire};
use serde_json::Value;

#[test]
fn frames_of_every_frozen_version_are_read_and_written_as_they_were() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../frozen");
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path().join("frames.json")) else { continue };
        let version = entry.file_name().into_string().unwrap();
        let frames: Value = serde_json::from_str(&text).unwrap();
        let valid = frames["valid"].as_array().unwrap();
        let hello = valid.iter().find(|frame| frame["name"] == "Hello").unwrap();
        if hello["fields"]["format"] != WIRE_FORMAT {
            assert!(version.contains('-'), "the wire format of the release {version} has changed");
            eprintln!(
                "not tested: the draft {version} has another wire format; cargo xtask freeze {version} renews it"
            );
            continue;
        }
        for frame in valid {
            let name = frame["name"].as_str().unwrap();
            let bytes = unhex(frame["hex"].as_str().unwrap());
            let again = if frame["direction"] == "to_worker" {
                let order =
                    wire::decode_order(&bytes).unwrap_or_else(|error| panic!("{version} {name}: {error}"));
                wire::encode_order(&order.unwrap()).unwrap()
            } else {
                let report =
                    wire::decode_report(&bytes).unwrap_or_else(|error| panic!("{version} {name}: {error}"));
                wire::encode_report(&report.unwrap()).unwrap()
            };
            assert_eq!(again, bytes, "{version} {name}");
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
