//! A worker that says anything at any time, against the scheduler: nobody panics, the audit finds nothing wrong, and whatever the
//! scheduler answers can be sent.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longshore_fuzz::strange_worker::walk(bytes));
