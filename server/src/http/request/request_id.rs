//! The id of a request, which its client may choose.

use axum::http::{HeaderName, HeaderValue};

/// Returns true if a client may choose this request id.
pub(crate) fn is_request_id(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_BYTES_MAX: usize = 64;
