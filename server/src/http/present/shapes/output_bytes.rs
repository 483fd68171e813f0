//! JSON of how much output an attempt has written, and how much of it is stored.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::present::missing_output::cut_text;

/// The length of an attempt's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputBytes {
    /// Bytes of standard output.
    pub stdout_bytes: u64,
    /// Bytes of standard error.
    pub stderr_bytes: u64,
    /// Present if not all of it was stored, because it is longer than `log.max_bytes`. Absent if nothing of it is stored any more, as far as that is
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<OutputCut>,
}

/// An attempt's output that was cut. The stored bytes are unknown for old attempts of a job with many, for output in more than
/// 100,000 parts, and if the disk cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputCut {
    /// `log.max_bytes`.
    pub max_bytes: u64,
    /// Bytes of standard output that are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_stored_bytes: Option<u64>,
    /// Bytes of standard error that are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_stored_bytes: Option<u64>,
}

impl OutputBytes {
    /// Output that was cut, in words; `None` if it was not.
    #[must_use]
    pub fn cut_in_words(&self) -> Option<String> {
        let cut = self.cut?;
        let streams = [
            ("stdout", self.stdout_bytes, cut.stdout_stored_bytes),
            ("stderr", self.stderr_bytes, cut.stderr_stored_bytes),
        ];
        Some(cut_text(cut.max_bytes, &streams))
    }
}
