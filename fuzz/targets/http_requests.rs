//! Whole requests against the router, with a real engine behind it: no answer is a mistake of ours, and every refusal is a problem
//! document. A request is a line `METHOD path`, header lines, an empty line, and a body.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| longshore_fuzz::http_requests::walk(bytes));
