//! A server that says anything at any time, against the state machine of a worker: nobody panics, the audit finds nothing wrong, and
//! whatever the worker reports can be sent.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longshore_fuzz::strange_server::walk(bytes));
