//! The output of jobs: whether every segment has an index that fits it, and whether its records are whole.

use std::path::Path;

use super::finding::Finding;
use crate::logs;

pub(super) fn examine(data: &Path, deep: bool) -> Finding {
    let seen = match logs::examine(&data.join("logs"), deep) {
        Ok(seen) => seen,
        Err(error) => {
            return Finding::fail(
                "output",
                format!("cannot be read: {error}"),
                "run this as the server's user",
            );
        }
    };
    let how = if deep { "read through" } else { "looked at; --deep reads them" };
    let text = format!("{} segments, {} MiB, {how}", seen.segments, seen.bytes >> 20);
    if !seen.damaged.is_empty() {
        let text = format!("{text}; damaged: {:?}", seen.damaged);
        Finding::fail("output", text, "what is damaged is shown as missing; a backup may have it")
    } else if !seen.without_index.is_empty() {
        let text = format!("{text}; without an index: {:?}", seen.without_index);
        Finding::warn("output", text, "the next start of the server makes it again")
    } else {
        Finding::ok("output", text)
    }
}
