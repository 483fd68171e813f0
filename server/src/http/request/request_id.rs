//! The id of a request, which its client may choose.

use axum::http::{Extensions, HeaderName, HeaderValue};

/// The id of the request in its extensions: the one of the client, or one that the server made.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

impl RequestId {
    /// The id of a request; empty if it did not pass the middleware.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or(Self(HeaderValue::from_static("")))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

/// Returns true if a client may choose this request id.
pub(crate) fn is_request_id(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_BYTES_MAX: usize = 64;
