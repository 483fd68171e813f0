//! `tests/golden/frames.json`: all golden frames, and frames that every receiver refuses, for programs that are not written in Rust.
//!
//! `valid` has for each frame its name, direction, tag, bytes and fields. Durations are nanoseconds; bytes, secrets and revisions are
//! hexadecimal; integers are exact, also above 2^53. `invalid` has what is wrong, the close code, and words of its reason. The bytes of
//! an invalid frame are `hex` and after it the number of zero bytes that `zeros` says. `cargo xtask bless` rewrites the file.

use std::fmt::Write as _;
use std::path::PathBuf;

use longshore_protocol::wire;
use serde_json::{Map, Value, json};

use crate::invalid::{self, Direction};
use crate::{golden, mirror, samples};

#[test]
fn the_frames_for_other_languages_are_current() {
    let text = text();
    if std::env::var_os("LONGSHORE_BLESS").is_some() {
        std::fs::write(path(), &text).unwrap();
    }
    let found = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(found == text, "{} is stale; `cargo xtask bless` renews it", path().display());
}

pub(crate) fn path() -> PathBuf {
    golden::directory().join("frames.json")
}

/// A line for each frame.
fn text() -> String {
    let orders = samples::orders().into_iter().map(|it| {
        let frame = wire::encode_order(&it.message).unwrap();
        valid(it.message.name(), Direction::ToWorker, &frame, mirror::order_fields(&it.message))
    });
    let reports = samples::reports().into_iter().map(|it| {
        let frame = wire::encode_report(&it.message).unwrap();
        valid(it.message.name(), Direction::ToServer, &frame, mirror::report_fields(&it.message))
    });
    let invalid = invalid::frames().into_iter().map(|it| {
        json!({
            "why": it.why, "direction": it.direction.name(), "hex": hex(&it.bytes), "zeros": it.zeros,
            "close": it.close, "reason": it.reason,
        })
    });
    let lines = |frames: Vec<Value>| {
        frames.iter().map(|frame| format!("    {frame}")).collect::<Vec<_>>().join(",\n")
    };
    let (valid, invalid) = (lines(orders.chain(reports).collect()), lines(invalid.collect()));
    format!("{{\n  \"valid\": [\n{valid}\n  ],\n  \"invalid\": [\n{invalid}\n  ]\n}}\n")
}

fn valid(name: &str, direction: Direction, frame: &[u8], mut fields: Value) -> Value {
    simplify(&mut fields);
    json!({
        "name": name, "direction": direction.name(), "tag": frame[0], "hex": hex(frame), "fields": fields,
    })
}

/// The fields as the document names them: flat, durations as nanoseconds, bytes as text.
fn simplify(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(simplify),
        Value::Object(fields) => {
            if let Some(nanoseconds) = duration(fields) {
                *value = nanoseconds.into();
                return;
            }
            for group in ["timing", "output"] {
                if let Some(Value::Object(inner)) = fields.remove(group) {
                    fields.extend(inner);
                }
            }
            for (name, field) in fields {
                match name.as_str() {
                    "secret" | "password" | "Bytes" | "Replayed" => *field = hex(&bytes(field)).into(),
                    "variables" | "files" => {
                        for pair in field.as_array_mut().unwrap() {
                            pair[1] = hex(&bytes(&pair[1])).into();
                        }
                    }
                    "masked" => {
                        for secret in field.as_array_mut().unwrap() {
                            *secret = hex(&bytes(secret)).into();
                        }
                    }
                    _ => simplify(field),
                }
            }
        }
        _ => {}
    }
}

fn duration(fields: &Map<String, Value>) -> Option<u64> {
    let (seconds, nanoseconds) = (fields.get("secs")?.as_u64()?, fields.get("nanos")?.as_u64()?);
    Some(seconds * 1_000_000_000 + nanoseconds)
}

fn bytes(list: &Value) -> Vec<u8> {
    let list = list.as_array().unwrap();
    list.iter().map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
