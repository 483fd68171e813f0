//! The files of an attempt directory, as a restarted worker finds them. The first byte says which file.
#![no_main]

use client::attempt_dir::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((file, content)) = bytes.split_first() {
        fuzz::found(*file, content);
    }
});
