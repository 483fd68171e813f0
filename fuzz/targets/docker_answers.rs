//! Answers of the `docker` program: containers, events, errors. The first byte selects the parser.
#![no_main]

use client::runtime::docker::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, text)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    match kind % 3 {
        0 => fuzz::inspected(&text),
        1 => fuzz::event(&text),
        _ => fuzz::error_line(&text),
    }
});
