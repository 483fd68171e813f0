//! Bodies of submissions. The first byte says how the rest is written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use server::http::fuzz;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, text)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => fuzz::one(text),
        1 => fuzz::lines(text),
        _ => fuzz::array(text),
    }
});
