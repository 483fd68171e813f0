//! Labels of metrics.

use std::borrow::Cow;

/// Labels of a metric.
pub(super) type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// The states of workers.
pub(super) const WORKER_STATES: [&str; 8] =
    ["joining", "ready", "suspect", "draining", "disconnected", "unreachable", "cloned", "revoked"];
