//! Frames of a server, as a worker reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{close, wire};

fuzz_target!(|frame: &[u8]| match wire::decode_order(frame) {
    Ok(Some(order)) => {
        let said = wire::encode_order(&order).expect("what was understood can be said");
        assert_eq!(wire::decode_order(&said), Ok(Some(order)));
    }
    Ok(None) => {}
    Err(error) => assert!(error.close().reason.len() <= close::REASON_BYTES_MAX),
});
