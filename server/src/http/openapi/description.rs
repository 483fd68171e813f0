//! The written description of the API.

use bytes::Bytes;
use serde_json::Value;

/// The description of the API.
pub(crate) struct Description {
    pub(crate) document: Value,
    /// The document as text.
    pub(super) text: Bytes,
}

impl Description {
    pub(super) fn new(document: Value) -> Self {
        Self { text: document.to_string().into(), document }
    }
}
