//! Idempotency keys of bulk requests.

use protocol::JobId;

/// The facts that a request must have in common with an earlier one of its key: all of its query but the place at which it goes on.
pub(crate) fn fingerprint_text(mut text: String, query: Option<&str>) -> String {
    let is_place = |pair: &str| matches!(pair.split('=').next(), Some("cursor" | "dry_run"));
    let mut pairs: Vec<&str> = query.unwrap_or_default().split('&').collect();
    pairs.retain(|pair| !pair.is_empty() && !is_place(pair));
    pairs.sort_unstable();
    for pair in pairs {
        text.push(' ');
        text.push_str(pair);
    }
    text
}

/// The idempotency key of one job of a request.
pub(super) fn key_of(key: &str, job: JobId) -> String {
    format!("{}{job}", prefix_of(key))
}

/// The beginning of the idempotency keys of all jobs of a request.
pub(super) fn prefix_of(key: &str) -> String {
    format!("{key}:")
}
