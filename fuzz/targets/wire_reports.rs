//! Frames of a worker, as a server reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{close, wire};

fuzz_target!(|frame: &[u8]| match wire::decode_report(frame) {
    Ok(Some(report)) => {
        let said = wire::encode_report(&report).expect("what was understood can be said");
        assert_eq!(wire::decode_report(&said), Ok(Some(report)));
    }
    Ok(None) => {}
    Err(error) => assert!(error.close().reason.len() <= close::REASON_BYTES_MAX),
});
